"""Which files there are to import, and of which format."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli import transcripts

from turnlog import TurnLog
from turnlog.errors import FormatError, NotFoundError
from turnlog.interop import formats
from turnlog.interop.finding import TURNLOG, PassedOver, ToImport, find, formats_of
from turnlog.interop.folders import NOT_FOLLOWED, files_in, leads_out

CLAUDE = {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "hi"}}
CODEX = {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "hi"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with files of two formats and of none, one of them in a folder of its own."""
    folder = tmp_path / "all"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_text(json.dumps(CLAUDE) + "\n")
    (folder / "deep" / "b.jsonl").write_text("{damaged\n" + json.dumps(CODEX) + "\n")
    (folder / "deep" / "link").symlink_to(folder)
    (folder / "readme.txt").write_text("nothing")
    return folder


def test_format_is_found_by_content(folder: Path) -> None:
    """The names of files say nothing."""
    assert formats_of(folder / "a.jsonl") == ["claude-code"]
    assert formats_of(folder / "deep" / "b.jsonl") == ["codex"]
    assert formats_of(folder / "readme.txt") == []


def test_folder_is_all_that_is_in_it(folder: Path) -> None:
    """And what is of no format is named; links to folders of it are not followed: what is there is found already."""
    found = find([folder])
    assert found.files == (
        ToImport(path=folder / "a.jsonl", format="claude-code"),
        ToImport(path=folder / "deep" / "b.jsonl", format="codex"),
    )
    assert found.passed_over == (
        PassedOver(path=folder / "readme.txt", why="it is of no format that can be imported"),
        PassedOver(path=folder / "deep" / "link", why="a link to a folder in it: what is there is found without it"),
    )


def test_what_was_written_last_is_imported_last(folder: Path) -> None:
    """Whatever its name and place, so that it is the latest in the log too; only sub-agents are behind all others."""
    names = ["deep/b.jsonl", "z.jsonl", "deep/agent-old.jsonl", "a.jsonl", "agent-new.jsonl", "deep/c.jsonl"]
    for number, name in enumerate(names):
        (folder / name).write_text(json.dumps(CLAUDE) + "\n")
        os.utime(folder / name, (number, number))
    found = [each.path.relative_to(folder).as_posix() for each in find([folder]).files]
    assert found == ["deep/b.jsonl", "z.jsonl", "a.jsonl", "deep/c.jsonl", "deep/agent-old.jsonl", "agent-new.jsonl"]


def test_sub_agent_that_another_one_started_is_imported_behind_it(folder: Path) -> None:
    """It is at its end before that one is, and so written last before it; what says no time is first."""
    times = ["2026-02-10T17:00:05.000Z", "2026-02-10T17:00:01.000Z", None, 7]
    for number, time in enumerate(times):
        path = folder / f"agent-{number}.jsonl"
        rows = [CLAUDE | {"timestamp": time}, CLAUDE | {"timestamp": "1"}]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (number, number))
    assert [each.path.name for each in find([folder]).files[2:]] == [f"agent-{number}.jsonl" for number in (2, 3, 1, 0)]


def test_links_out_of_a_folder_are_not_followed_and_told(folder: Path, tmp_path: Path) -> None:
    """To files and folders, from any depth; links within are followed, and so is the one that was named."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "p.jsonl").write_text(json.dumps(CLAUDE))
    links = {"deep/p.jsonl": tmp_path / "private" / "p.jsonl", "p": tmp_path / "private", "x": tmp_path / "none"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "deep" / "a.jsonl").symlink_to("../a.jsonl")
    (folder / "loop").symlink_to("loop")
    (tmp_path / "named").symlink_to(folder)
    for root in (folder, tmp_path / "named"):
        found = find([root])
        assert [str(each.path.relative_to(root)) for each in found.files] == ["a.jsonl", "deep/a.jsonl", "deep/b.jsonl"]
        told = {str(each.path.relative_to(root)) for each in found.passed_over if each.why == NOT_FOLLOWED}
        assert told == {*links, "loop"}
        files, out = files_in(root)
        assert {str(each.relative_to(root)) for each in out} == told
        assert [each.name for each in files] == ["a.jsonl", "a.jsonl", "b.jsonl", "readme.txt"]
    assert find([folder / "deep" / "p.jsonl"]).files[0].format == "claude-code"
    assert leads_out(folder / "..", folder)
    for name in ("a.jsonl", "deep/a.jsonl", "deep/b.jsonl"):
        (folder / name).unlink()
    with pytest.raises(FormatError, match=r"\('.*' is a link out of the folder, not followed\); nothing"):
        find([folder])


def test_format_that_is_named_is_the_only_one(folder: Path) -> None:
    """A file that is named is taken for one of it."""
    found = find([folder, folder / "readme.txt"], format="codex")
    assert [each.path.name for each in found.files] == ["b.jsonl", "readme.txt"]
    with pytest.raises(NotFoundError, match="no format 'x' to import"):
        find([folder], format="x")


def test_file_of_no_format_is_refused(folder: Path, tmp_path: Path) -> None:
    """Also a folder without any, and what cannot be read."""
    with pytest.raises(FormatError, match=r"is of no known format .*: say which with --format; nothing was imported"):
        find([folder / "readme.txt"])
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db"), pytest.raises(FormatError, match="turnlog copy SOURCE TARGET"):
        find([tmp_path / "log.db"])
    for encoding in ("utf-16", "utf-16-be"):
        (tmp_path / "wide").write_text("\ufeff" * (encoding != "utf-16") + json.dumps(CLAUDE), encoding=encoding)
        with pytest.raises(FormatError, match="is text in UTF-16: save it as UTF-8"):
            find([tmp_path / "wide"])
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(FormatError, match="is an SQLite database, and not one of llm; nothing was imported"):
        find([tmp_path / "other.db"])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FormatError, match="has no file of a known format in it; nothing was imported"):
        find([empty])
    with pytest.raises(FormatError, match="has no file of a format 'codex' in it"):
        find([empty], format="codex")
    with pytest.raises(FormatError, match="cannot be read"):
        find([tmp_path / "none"])


def test_a_line_of_any_length_is_looked_at(tmp_path: Path) -> None:
    """A session may begin with a long prompt, or with long instructions, and have a short line of no format before."""
    text = "x" * 200_000
    claude = {**CLAUDE, "message": {"role": "user", "content": text}}
    codex = {"type": "session_meta", "payload": {"id": "1", "instructions": text}}
    for name, record, first in (("claude-code", claude, ""), ("codex", codex, ""), ("claude-code", claude, "{x\n")):
        (tmp_path / "a.jsonl").write_text(first + json.dumps(record) + "\n" + "{}\n" * 3)
        assert formats_of(tmp_path / "a.jsonl") == [name]
        assert find([tmp_path]).files == (ToImport(path=tmp_path / "a.jsonl", format=name),)


def test_exports_of_turnlog_can_be_asked_for(folder: Path, tmp_path: Path) -> None:
    """As any other format can."""
    (folder / "deep" / "c.jsonl").write_text('{"turnlog_export":2}\n')
    assert find([folder], format=TURNLOG).files == (ToImport(path=folder / "deep" / "c.jsonl", format=TURNLOG),)
    assert find([folder / "a.jsonl"], format=TURNLOG).files == (ToImport(path=folder / "a.jsonl", format=TURNLOG),)


def test_export_of_turnlog_is_found_as_one(tmp_path: Path) -> None:
    """Alone, and in a folder; not where another format is asked for."""
    path = tmp_path / "log.jsonl"
    with TurnLog.open("memory://") as log, path.open("wb") as file:
        log.add_turn("hi")
        log.export(file)
    for given in (path, tmp_path):
        assert find([given]).files == (ToImport(path=path, format=TURNLOG),)
    with pytest.raises(FormatError, match="has no file of a format 'codex' in it"):
        find([tmp_path], format="codex")


def test_every_transcript_that_is_named_for_people_is_a_format() -> None:
    """And has a summary."""
    for name in formats.TRANSCRIPTS:
        assert formats.get(name).name == name
        assert formats.get(name).summary


@pytest.mark.parametrize("format", transcripts.FORMATS)
def test_export_of_what_was_imported_is_found_as_one(tmp_path: Path, format: str) -> None:
    """It has what the format is recognized by in it: the lines of the transcript."""
    path = tmp_path / "export.jsonl"
    transcripts.write(format, ["Well."], tmp_path / "transcript")
    with TurnLog.open("memory://") as log:
        for found in find([tmp_path / "transcript"]).files:
            log.import_transcript(found.format, found.path)
        with path.open("wb") as file:
            log.export(file)
    assert formats_of(path) == [TURNLOG]
    assert formats_of(path, format="opencode") == []
