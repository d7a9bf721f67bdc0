"""`turnlog import` and `export`: what they print, what they write and what they refuse."""

import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.command import TIMEOUT_S, Command, turn_id, write_conversation
from tests.forging import exported

from turnlog import TurnLog


@pytest.fixture
def other(tmp_path: Path) -> Command:
    """Give the command with another store."""
    return Command(store=tmp_path / "other.db")


@pytest.fixture
def out(turnlog: Command, tmp_path: Path) -> Path:
    """Give an export of the log of `write_conversation`."""
    write_conversation(turnlog.url)
    path = tmp_path / "out.jsonl"
    with TurnLog.open(turnlog.url) as log:
        path.write_bytes(exported(log))
    return path


def _write_registers(url: str) -> None:
    with TurnLog.open(url) as log:
        log.pointers.set("milli", "anthropic", "m-1", params={"max_tokens": 100})
        log.servers.set("fs", ["serve", "two words"], env=["HOME"])


@contextmanager
def piped(folder: Path, content: bytes) -> Generator[Path]:
    """Give a pipe that somebody writes to."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=lambda: pipe.write_bytes(content))
    writing.start()
    yield pipe
    writing.join()


class TestExport:
    """`turnlog export`."""

    def test_log_is_carried_over(self, turnlog: Command, other: Command, out: Path) -> None:
        """Byte for byte; a second import adds nothing."""
        assert turnlog.ok("export", "-o", out, "--force", "--json").json == {"file": str(out), "events": 6}
        assert turnlog.ok("export").stdout == out.read_bytes()
        assert turnlog.ok("export", "-o", "-").stdout == out.read_bytes()
        first = other.ok("import", "turnlog", out, "--json").json
        assert (first["file"], first["added"], first["known"], first["whole"]) == (str(out), 6, 0, True)
        assert [moved["name"] for moved in first["set_bookmarks"]] == ["main", "try"]
        second = other.ok("import", "turnlog", "-", stdin=out.read_bytes())
        assert second.text == "standard input  0 events added, 6 known\n"
        assert other.ok("export").stdout == out.read_bytes()

    def test_file_is_for_its_owner_alone(self, turnlog: Command, out: Path) -> None:
        """Whatever the umask."""
        turnlog.ok("export", "-o", out, "--force")
        assert stat.S_IMODE(out.stat().st_mode) == 0o600

    def test_part_is_exported(self, turnlog: Command, out: Path) -> None:
        """The threads of a turn, or its ancestry alone."""
        everything = out.read_bytes().splitlines()[2:]
        assert turnlog.ok("export", "try").stdout.splitlines()[1:] == everything
        ancestry = turnlog.ok("export", "--ancestry", "try").stdout.splitlines()[1:]
        assert ancestry == everything[:3]
        assert turnlog.ok("export", turn_id("b"), "--ancestry").stdout.splitlines()[1:] == everything[:2]

    def test_ancestry_is_that_of_a_turn(self, turnlog: Command, out: Path) -> None:
        """Without one it is refused."""
        assert turnlog.refused("export", "--ancestry") == "export: --ancestry of which turn? Give HEADISH"

    def test_failed_export_leaves_no_file(self, turnlog: Command, out: Path, tmp_path: Path) -> None:
        """Neither the file nor what it was written to first; a file that was there stays as it was."""
        before = sorted(tmp_path.iterdir())
        assert turnlog.refused("export", "nope", "-o", tmp_path / "new.jsonl") == turnlog.absent("nope")
        content = out.read_bytes()
        turnlog.refused("export", "nope", "-o", out, "--force")
        assert out.read_bytes() == content
        assert sorted(tmp_path.iterdir()) == before

    def test_pipe_is_written_as_it_comes(self, turnlog: Command, out: Path, tmp_path: Path) -> None:
        """What is no regular file is neither replaced nor refused."""
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        read: list[bytes] = []
        reading = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reading.start()
        turnlog.ok("export", "-o", pipe)
        reading.join()
        assert read == [out.read_bytes()]
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert turnlog.ok("export", "-o", "/dev/stdout", "--json").stdout.startswith(out.read_bytes())


class TestImport:
    """`turnlog import turnlog`."""

    def test_what_came_in_is_told_in_few_lines(self, turnlog: Command, other: Command, tmp_path: Path) -> None:
        """Counts, and the first few names; `--json` has all of them."""
        with TurnLog.open(turnlog.url) as log:
            turn = log.add_turn("a", bookmark=False)
            for number in range(12):
                log.bookmarks.set(f"b{number:02}", turn.id)
        with TurnLog.open(other.url) as log:
            mine = log.add_turn("mine", bookmark="b03")
        _write_registers(turnlog.url)
        content = turnlog.ok("export").stdout
        assert other.ok("import", "turnlog", stdin=content).text.splitlines() == [
            "standard input  16 events added, 0 known",
            "  11 bookmarks set: b00, b01, b02, b04, b05 and 6 more",
            f"  1 bookmark not moved here: b03 (there at {turn.id})",
            "  turnlog bookmarks set NAME TURN moves one; --bookmarks take, at the import, all",
            "  2 registers have no effect until they are confirmed: see turnlog registers",
        ]
        third = Command(store=tmp_path / "third.db")
        with TurnLog.open(third.url) as log:
            log.add_turn("mine", bookmark="b03", id=mine.id)
        report = third.ok("import", "turnlog", "--json", stdin=content).json
        assert len(report["set_bookmarks"]) == 11
        assert report["kept_bookmarks"] == [{"name": "b03", "here": mine.id, "theirs": turn.id}]
        assert len(report["unconfirmed_registers"]) == 2

    def test_bookmarks_are_taken_on_demand(self, other: Command, out: Path) -> None:
        """`--bookmarks take`, and nothing else that can be misread."""
        other.ok("add", "mine", "--bookmark", "main")
        assert "line" not in other.ok("import", "turnlog", out, "--bookmarks", "take").text
        assert turn_id("e") in other.ok("bookmarks").text
        assert "--bookmarks" in other.refused("import", "turnlog", out, "--bookmarks", "all")

    def test_moved_bookmarks_are_told(self, other: Command, out: Path) -> None:
        """On a line of their own."""
        other.ok("add", "mine", "--bookmark", "main")
        assert other.ok("import", "turnlog", out, "--bookmarks", "take").text.splitlines() == [
            f"{out}  6 events added, 0 known",
            "  1 bookmark set: try",
            "  1 bookmark moved: main",
        ]

    def test_restored_store_is_told_to_be_that_log(self, other: Command, out: Path) -> None:
        """Once, when something came in."""
        line = "  the store is that log: same identity, positions and digests"
        assert line in other.ok("import", "turnlog", out).text.splitlines()
        assert line not in other.ok("import", "turnlog", out).text.splitlines()

    def test_registers_are_shown_in_full_and_confirmed_on_demand(self, turnlog: Command, other: Command) -> None:
        """`--registers`: all fields of each before it has effect."""
        _write_registers(turnlog.url)
        text = other.ok("import", "turnlog", "--registers", stdin=turnlog.ok("export").stdout).text
        for field in ("model: m-1", 'params: {"max_tokens":100}', 'command: ["serve","two words"]', 'env: ["HOME"]'):
            assert f"  {field}\n" in text
        assert text.splitlines()[-1] == "  2 registers confirmed"
        assert "milli" in other.ok("pointer").text
        again = other.ok("import", "turnlog", "--registers", "--json", stdin=turnlog.ok("export").stdout).json
        assert (again["confirmed_registers"], again["registers"]) == ([], [])

    def test_json_has_registers_in_full(self, turnlog: Command, other: Command) -> None:
        """Confirmed or not."""
        _write_registers(turnlog.url)
        report = other.ok("import", "turnlog", "--json", stdin=turnlog.ok("export").stdout).json
        assert [register["name"] for register in report["registers"]] == ["milli", "fs"]
        assert report["registers"][1]["meta"]["command"] == ["serve", "two words"]
        assert report["unconfirmed_registers"] == [register["id"] for register in report["registers"]]

    def test_registers_that_cannot_be_shown_are_not_confirmed(self, turnlog: Command, other: Command) -> None:
        """Standard output is full."""
        _write_registers(turnlog.url)
        export = other.store.with_name("out.jsonl")
        export.write_bytes(turnlog.ok("export").stdout)
        assert other.into("/dev/full", "import", "turnlog", str(export), "--registers").status == 2
        assert len(other.ok("registers", "--json").json_lines) == 2

    def test_first_bad_file_ends_it_and_says_which_are_in(self, other: Command, out: Path, tmp_path: Path) -> None:
        """The ones after the bad one are not touched."""
        bad = tmp_path / "bad.jsonl"
        bad.write_text("no export\n")
        outcome = other("import", "turnlog", out, bad, out)
        assert outcome.status == 2
        assert outcome.text.splitlines()[0] == f"{out}  6 events added, 0 known"
        assert outcome.stderr == (
            f"turnlog: {bad}: line 1: not a turnlog export: the header is missing (imported before it: {out})\n"
        )

    def test_version_1_is_refused_on_one_line(self, other: Command) -> None:
        """It was never released."""
        message = other.refused("import", "turnlog", stdin=b'{"turnlog_export":1,"events":0}\n')
        assert message == "standard input: line 1: export of version 1, this turnlog knows 2: export it anew"

    @pytest.mark.parametrize("through", ["file", "format", "pipe", "pipe as a file"])
    @pytest.mark.parametrize("what", ["cut", "edited", "of a newer version"])
    def test_what_is_refused_makes_no_store(
        self, other: Command, out: Path, tmp_path: Path, what: str, through: str
    ) -> None:
        """It is checked before there is one."""
        whole = out.read_bytes()
        wrong = {
            "cut": whole[: whole.rindex(b"\n", 0, -1) + 1],
            "edited": whole.replace(b"text", b"txet", 1),
            "of a newer version": whole.replace(b'"format":2', b'"format":3', 1),
        }[what]
        file = tmp_path / "wrong.jsonl"
        file.write_bytes(wrong)
        if through == "pipe":
            other.refused("import", "turnlog", stdin=wrong)
        elif through == "pipe as a file":
            with piped(tmp_path, wrong) as pipe:
                other.refused("import", "turnlog", pipe)
        else:
            other.refused("import", *(["turnlog"] if through == "format" else []), str(file))
        assert not other.store.exists()

    def test_missing_files_are_refused_before_it_begins(self, turnlog: Command, tmp_path: Path) -> None:
        """No store is made for nothing."""
        missing = tmp_path / "none.jsonl"
        for kind in ("claude-code", "turnlog"):
            assert turnlog.refused("import", kind, missing) == f"there is no file {str(missing)!r}"
        assert not turnlog.store.exists()

    def test_standard_input_that_is_named_twice_comes_in_once(self, other: Command, out: Path) -> None:
        """The second time there is nothing left of it."""
        outcome = other("import", "turnlog", "-", "-", stdin=out.read_bytes())
        assert outcome.status == 2
        assert outcome.stderr.endswith("the header is missing (imported before it: standard input)\n")
        assert other.ok("stats", "--json").json["events"] == 6

    def test_pipe_as_a_file_is_read(self, other: Command, out: Path, tmp_path: Path) -> None:
        """As of `turnlog import turnlog <(ssh there turnlog export)`."""
        with piped(tmp_path, out.read_bytes()) as pipe:
            assert other.ok("import", "turnlog", pipe).text.startswith(f"{pipe}  6 events added")

    @pytest.mark.parametrize("there", ["pipe", "/dev/null"])
    def test_a_transcript_that_is_no_file_makes_no_store(self, other: Command, tmp_path: Path, there: str) -> None:
        """Its importer reads files alone."""
        file = tmp_path / there
        if there == "pipe":
            os.mkfifo(file)
        assert other.refused("import", "claude-code", file).endswith(": give a regular file")
        assert not other.store.exists()

    def test_import_that_nobody_can_be_told_of_says_that_it_is_done(self, other: Command, out: Path) -> None:
        """Standard output is full, and the log has the events."""
        outcome = other.into("/dev/full", "import", "turnlog", str(out))
        assert outcome.status == 2
        assert outcome.stderr == (
            f"turnlog: {out} is imported, 6 events added, but that could not be printed (no space left on device)\n"
        )
        assert other.ok("stats", "--json").json["events"] == 6

    def test_full_disk_says_how_much_is_in(self, other: Command, tmp_path: Path) -> None:
        """On one line; the same import adds the rest when there is space again."""
        path = tmp_path / "long.jsonl"
        with TurnLog.open("memory://") as log, path.open("wb") as file:
            log.add_turn("0", bookmark="main")
            for number in range(1, 1200):
                log.add_turn(str(number), continues="main")
            log.export(file)
        program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)); "
        program += "from turnlog.cli import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", program, "import", "turnlog", str(path)],
            capture_output=True,
            env=other.environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 2
        [line] = done.stderr.decode().splitlines()
        assert line.startswith(f"turnlog: {path}: ")
        told = re.search(r"at least ([0-9,]+) of 1,201 new events are in: the same import again adds the rest$", line)
        assert told is not None
        there = int(told[1].replace(",", ""))
        assert there >= 500
        report = other.ok("import", "turnlog", path, "--json").json
        assert report["known"] >= there
        assert report["added"] + report["known"] == 1201
        assert other.ok("export").stdout == path.read_bytes()


class TestLog:
    """`turnlog log --ancestry`."""

    def test_only_the_ancestry_is_drawn(self, turnlog: Command, out: Path) -> None:
        """The turns of `turnlog ancestry`, without what else grows from them."""
        names = [line.split()[1] for line in turnlog.ok("log", "try", "--ancestry").text.splitlines() if "●" in line]
        assert names == [turn_id("a"), turn_id("b"), turn_id("c")]
        shown = turnlog.ok("log", "main", "--ancestry", "--json").json_lines
        assert [turn["id"] for turn in shown] == [turn_id(name) for name in "abcde"]

    def test_it_is_that_of_a_turn(self, turnlog: Command, out: Path) -> None:
        """Without one it is refused."""
        assert turnlog.refused("log", "--ancestry") == "log: --ancestry of which turn? Give HEADISH"


def test_import_claude_code_reads_a_session(turnlog: Command, shared: Path) -> None:
    """A real session goes in, again adds nothing, and verifies clean."""
    session = shared / "corpus" / "claude-opus-4-5.jsonl"
    report = turnlog.ok("import", "claude-code", session, "--json").json
    assert report["turns_added"] > 0
    assert (report["format"], report["places"]) == ("claude-code", len(session.read_bytes().splitlines()))
    again = turnlog.ok("import", "claude-code", session, "--json").json
    assert (again["turns_added"], again["events_added"]) == (0, 0)
    assert again["turns_known"] == report["turns_added"]
    assert turnlog.ok("verify", "--json").json["clean"] is True


class TestTranscripts:
    """`turnlog import FILE…` and the commands of formats."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Give a folder with a session of Codex CLI and another file."""
        folder = tmp_path / "sessions"
        folder.mkdir()
        items = [
            {"type": "session_meta", "payload": {"id": "s-1"}},
            {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "How many?"}},
            {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": []}},
        ]
        (folder / "rollout.jsonl").write_text("".join(json.dumps(item) + "\n" for item in [*items, {"type": "new"}]))
        (folder / "notes.txt").write_text("nothing")
        return folder

    def test_folder_is_imported_and_the_rest_named(self, turnlog: Command, folder: Path) -> None:
        """Again adds nothing. A link out of the folder is not followed."""
        (folder / "private.jsonl").symlink_to(folder.parent / "private.jsonl")
        (folder.parent / "private.jsonl").write_bytes((folder / "rollout.jsonl").read_bytes())
        done = turnlog("import", folder)
        assert (done.status, "codex: 2 turns added, 0 known" in done.text) == (0, True)
        assert done.stderr.splitlines() == [
            f"turnlog: passed over {folder / 'notes.txt'}: it is of no format that can be imported",
            f"turnlog: passed over {folder / 'private.jsonl'}: a link out of the folder, not followed",
        ]
        assert "0 turns added, 2 known" in turnlog.ok("import", "codex", folder / "rollout.jsonl").text

    def test_what_is_refused_makes_no_store(self, turnlog: Command, folder: Path) -> None:
        """Nor does a file before which nothing goes in; behind one that does go in it is another matter."""
        said = turnlog.refused("import", "codex", folder / "notes.txt", folder / "rollout.jsonl")
        assert said.endswith("no line of it is one; nothing was imported")
        assert not turnlog.store.exists()
        said = turnlog("import", "codex", folder / "rollout.jsonl", folder / "notes.txt").stderr
        assert said.endswith(f"nothing was imported (imported before it: {folder}/rollout.jsonl)\n")
        assert turnlog.ok("stats", "--json").json["turns"] == 2

    def test_report_is_json(self, turnlog: Command, folder: Path) -> None:
        """One value a file."""
        report = turnlog.ok("import", folder / "rollout.jsonl", "--json").json
        assert (report["format"], report["sessions"], report["places"]) == ("codex", ["s-1"], 4)

    def test_what_cannot_be_imported_is_refused_in_a_line(self, turnlog: Command, folder: Path) -> None:
        """And nothing is made."""
        assert "is of no known format" in turnlog.refused("import", folder / "notes.txt")
        assert turnlog.refused("import", folder / "none") == f"there is no file {str(folder / 'none')!r}"
        assert "no line of it is one" in turnlog.refused("import", "codex", folder / "notes.txt")
        assert turnlog.refused("import", folder, "--format", "x").startswith("no format 'x' to import (one of ")

    @pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not limit the memory of a process")
    def test_file_that_there_is_not_enough_memory_for_is_named(
        self, turnlog: Command, folder: Path, tmp_path: Path
    ) -> None:
        """What was imported before it is in."""
        large = tmp_path / "conversations.json"
        with large.open("wb") as file:
            file.write(b'[{"mapping":{')
            file.truncate(1_000_000_000)
        program = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (900_000_000, 900_000_000)); "
        program += "from turnlog.cli import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", program, "import", folder / "rollout.jsonl", large],
            capture_output=True,
            env=turnlog.environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        what = f"{large}: there is not enough memory to import it (imported before it: {folder / 'rollout.jsonl'})"
        assert (done.returncode, done.stderr.decode()) == (2, f"turnlog: {what}\n")

    def test_export_is_found_by_what_is_in_it(self, other: Command, out: Path, folder: Path) -> None:
        """Alone, and in a folder beside transcripts; again adds nothing."""
        done = other.ok("import", out)
        assert done.text.splitlines()[:2] == [
            f"{out}  6 events added, 0 known",
            "  the store is that log: same identity, positions and digests",
        ]
        (folder / "notes.txt").write_bytes(out.read_bytes())
        reports = other.ok("import", folder, "--json").json_lines
        assert {(each.get("format"), each.get("added"), each.get("known")) for each in reports} == {
            (None, 0, 6),
            ("codex", None, None),
        }

    def test_export_is_not_redacted(self, other: Command, out: Path) -> None:
        """So that is refused."""
        message = other.refused("import", out, "--redact")
        assert message == f"nothing can be redacted in what export wrote ({out}): import it without --redact"
        assert not other.store.exists()

    def test_standard_input_is_only_for_exports(self, turnlog: Command) -> None:
        """Which is said by its name."""
        for names in ((), ("codex",)):
            message = turnlog.refused("import", *names, "-", stdin=b"{}\n")
            assert message.startswith("standard input can only be what turnlog export wrote: turnlog import turnlog")

    def test_name_of_a_format_that_is_a_file_too_is_explained(
        self, turnlog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the spelling that means the file."""
        monkeypatch.chdir(tmp_path)
        message = turnlog.refused("import", "xs")
        assert message == "missing FILE for 'import xs': name one (turnlog import xs --help)"
        (tmp_path / "xs").mkdir()
        assert "name one, or if you mean 'xs' here: turnlog import ./xs (" in turnlog.refused("import", "xs")


class TestExportAs:
    """`turnlog export --format`."""

    def test_thread_is_written_for_people_and_tools(self, turnlog: Command, out: Path, tmp_path: Path) -> None:
        """To standard output, or to a file."""
        markdown = turnlog("export", "main", "--format", "markdown")
        assert (markdown.status, markdown.text.startswith("# main\n")) == (0, True)
        told = f"turnlog: dropped: inherited of turn {turn_id('a')} and 1 more: a page has no options\n"
        assert markdown.stderr == told
        for form, what in (("markdown", "a page"), ("html", "a page"), ("geppetto", "YAML")):
            assert f"--format {form} is {what}, and no JSON" in turnlog.refused(
                "export", "main", "--format", form, "--json"
            )
        page = tmp_path / "page.html"
        assert "5 turns" in turnlog("export", "main", "--format", "html", "-o", page).text
        assert page.read_bytes().startswith(b"<!doctype html>")
        # Before the thread is read, and what of it would be left out is said.
        assert "already: name another one" in turnlog.refused("export", "main", "--format", "html", "-o", page)
        assert turnlog.ok("export", "main", "--format", "jsonl").json_lines[0]["id"] == turn_id("a")
        assert "messages" in turnlog.ok("export", "main", "--format", "openai").json
        canonical = turnlog("export", "main", "--format", "canonical")
        assert (canonical.json[0]["role"], "dropped: inherited of turn" in canonical.stderr) == ("user", True)
        assert turnlog.ok("export", "main", "--format", "atif").json["schema_version"] == "ATIF-v1.7"

    def test_other_form_needs_a_turn(self, turnlog: Command, out: Path) -> None:
        """It is refused."""
        assert turnlog.refused("export", "--format", "html") == "export: --format html of which turn? Give HEADISH"
