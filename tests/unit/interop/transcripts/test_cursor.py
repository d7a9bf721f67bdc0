"""Transcripts of Cursor's agent."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import Said, check_erasing, check_growing, check_importing, said, take

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop.transcripts import Problem
from turnlog.interop.transcripts.cursor import Cursor


def line(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a transcript."""
    return {"role": role, "message": {"content": list(blocks)}}


def text(said: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": said}


SESSION = [
    line("user", text("How many files?")),
    line(
        "assistant",
        {"type": "thinking", "thinking": "I count."},
        text("Looking."),
        {"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "a"}},
        {"type": "tool_use", "id": "c2", "name": "ls", "input": {"path": "b"}},
    ),
    line(
        "user",
        {"type": "tool_result", "tool_use_id": "c1", "content": "x y"},
        {"type": "tool_result", "tool_use_id": "c2", "content": [text("none")], "is_error": True},
    ),
    line("assistant", text("Done.")),
    line("user", text("Again?")),
    line("assistant", text("Done.")),
]


def written(lines: list[dict[str, Any]]) -> bytes:
    """Return lines as the file has them."""
    return b"\n".join(json.dumps(each).encode() for each in lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a transcript."""
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(written(SESSION))
    return path


def test_each_line_is_a_turn(path: Path) -> None:
    """Also one that says what an earlier one said."""
    report, found = check_importing("cursor", path)
    assert (report.turns_added, len(report.roots), len(report.heads)) == (6, 1, 1)
    assert found["text", "Done."] == 2
    assert found["call", "ls", '{"path":"a"}'] == 1
    assert found["result", "none"] == 1


def test_error_of_a_tool_is_kept(path: Path) -> None:
    """On the result that has it."""
    with TurnLog.open("memory://") as log:
        [head] = take(log, "cursor", path).heads
        results = log.context(head).messages[2].content
        assert [getattr(each, "is_error", None) is True for each in results] == [False, True]


def test_file_that_grows_is_imported_as_it_grows(path: Path) -> None:
    """Whatever line it ends at."""
    check_growing("cursor", [written(SESSION[:end]) for end in range(1, len(SESSION) + 1)], path)


def test_files_that_begin_alike_are_branches(path: Path, tmp_path: Path) -> None:
    """And a line that both have behind different ones is in both threads."""
    other = tmp_path / "other.jsonl"
    other.write_bytes(written([SESSION[0], line("assistant", text("No.")), SESSION[3]]))
    with TurnLog.open("memory://") as log:
        first = take(log, "cursor", path)
        second = take(log, "cursor", other)
        assert second.roots == first.roots
        assert (second.turns_added, second.turns_known) == (2, 1)
        assert [message.role for message in log.context(second.heads[0]).messages] == ["user", "assistant", "assistant"]
        assert said(log)["text", "Done."] == 3


def test_unknown_blocks_are_kept_as_they_are(path: Path) -> None:
    """As native ones."""
    path.write_bytes(written([line("user", {"type": "mention", "file": "a.py"}, text("Look."))]))
    _, found = check_importing("cursor", path)
    assert found == Counter({("native", '{"file":"a.py","type":"mention"}'): 1, ("text", "Look."): 1})


def test_damaged_lines_are_reported_and_the_rest_goes_in(path: Path) -> None:
    """With their numbers."""
    path.write_bytes(b"{broken\n\n" + written(SESSION) + b'\n{"role":"assistant"}\n')
    report, _ = check_importing("cursor", path)
    assert (report.places, report.blank, report.damaged, report.turns_added) == (9, 1, 1, 6)
    assert [problem.place for problem in report.problems] == [1, 9]


def test_other_file_is_refused(tmp_path: Path) -> None:
    """In one line."""
    other = tmp_path / "other.jsonl"
    other.write_text('{"type":"user","role":"user","message":{"content":"x"}}\n')
    assert not Cursor().recognizes(other, other.read_bytes())
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="nothing was imported"):
        log.import_transcript("cursor", other)


def test_erased_thread_is_gone_from_its_lines_too(path: Path, tmp_path: Path) -> None:
    """With all that was said in it."""
    check_erasing("cursor", path, "Looking.", tmp_path)


def test_all_of_a_real_session_is_in_the_log(shared: Path) -> None:
    """Every text of every line."""
    path = shared / "corpus" / "cursor-opus-4-6.jsonl"
    assert Cursor().recognizes(path, path.read_bytes())
    expected: Counter[Said] = Counter()
    for each in path.read_text().splitlines():
        expected.update((part["type"], part["text"]) for part in json.loads(each)["message"]["content"])
    _, found = check_importing("cursor", path)
    assert found == expected


def test_image_that_is_not_base64_is_a_native_block(tmp_path: Path) -> None:
    """It is told with its place; one that is base64 is a document."""
    path = tmp_path / "transcript.jsonl"
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        for data in ("no base64", "aGk=")
    ]
    path.write_bytes(written([*SESSION, line("user", *images)]))
    report, found = check_importing("cursor", path)
    what = "the bytes of a document are not base64: kept as a native block"
    assert report.problems == (Problem(place=len(SESSION) + 1, what=what),)
    assert found["document", "aGk="] == 1
    [native] = [each for each in found if each[0] == "native"]
    assert "no base64" in native[1]
