"""Export and import of turnlog's own portable form."""

import base64
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnlog import TurnLog
from turnlog.digest import event_digest
from turnlog.errors import CorruptionError, FormatError, IdConflictError, TurnlogError, UnknownTurnError
from turnlog.events import decode
from turnlog.ids import new_id
from turnlog.interop.portable import MovedBookmark, RestoreReport

NOISE = os.urandom(70_000)
Lines = list[dict[str, Any]]


def _export(log: TurnLog, headish: str | None = None) -> bytes:
    file = io.BytesIO()
    log.export(file, headish)
    return file.getvalue()


def _import(log: TurnLog, content: bytes) -> RestoreReport:
    return log.import_turnlog(io.BytesIO(content))


def _states(log: TurnLog) -> list[bytes]:
    return [recorded.state for recorded in log.events()]


def _heads(log: TurnLog) -> dict[str, str]:
    return {bookmark.name: bookmark.turn for bookmark in log.bookmarks()}


def _lines(content: bytes) -> Lines:
    return [json.loads(line) for line in content.splitlines()]


def _forged(content: bytes, line: int, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return an export whose event on a line was changed, its digest with it."""
    lines = content.splitlines()
    record = json.loads(lines[line])
    change(record["event"])
    state = msgspec.json.Encoder(order="sorted").encode(record["event"])
    record["event"] = msgspec.Raw(state)
    record["digest"] = event_digest(state)
    lines[line] = msgspec.json.encode(record)
    return b"\n".join(lines) + b"\n"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TurnLog]:
    """Give a log of two threads with documents, forks, a merge inside the first, and bookmark events."""
    (tmp_path / "noise.bin").write_bytes(NOISE)
    (tmp_path / "data.json").write_bytes(b'{ "spaced": true }\n')
    (tmp_path / "min.json").write_bytes(b'{"b":1.50,"a":"\\u00e9"}')
    with TurnLog.open("memory://") as log:
        root = log.add_turn("root\u2028\n", bookmark="main", servers=["a"])
        log.add_turn("reply", role="assistant", continues="main", usage={"input_tokens": 3})
        fork = log.add_turn("fork", continues=root.id)
        log.add_turn("merge", continues=["main", fork.id])
        log.add_document(tmp_path / "noise.bin", continues="main")
        log.add_document(tmp_path / "data.json", continues="main")
        log.add_document(tmp_path / "min.json", continues="main")
        log.add_turn("other thread", bookmark="other")
        log.set_bookmark("side", fork.id)
        log.rename_bookmark("side", "aside")
        yield log


class TestWholeLog:
    """A whole log, to and fro."""

    def test_ids_bytes_payloads_and_projections_come_over(self, source: TurnLog, file_log: TurnLog) -> None:
        """An imported log is the exported one, byte for byte, and verifies clean."""
        report = _import(file_log, _export(source))
        assert (report.added, report.known) == (10, 0)
        assert _states(file_log) == _states(source)
        assert file_log.bookmarks() == source.bookmarks()
        assert file_log.threads() == source.threads()
        for recorded in source.events():
            if recorded.event.hash is not None:
                assert file_log.payload(recorded.event.id) == source.payload(recorded.event.id)
        assert file_log.verify().clean

    def test_export_of_an_import_is_the_same_file(self, source: TurnLog, file_log: TurnLog) -> None:
        """Exporting what was imported gives the same bytes."""
        content = _export(source)
        _import(file_log, content)
        assert _export(file_log) == content

    def test_importing_again_adds_nothing(self, source: TurnLog, log: TurnLog) -> None:
        """A second import of the same file knows everything and moves nothing."""
        content = _export(source)
        _import(log, content)
        assert _import(log, content) == RestoreReport(added=0, known=10, moved_bookmarks=())
        assert len(_states(log)) == 10
        assert _import(source, content) == RestoreReport(added=0, known=10, moved_bookmarks=())

    def test_importing_a_longer_export_adds_what_is_new(self, source: TurnLog, log: TurnLog) -> None:
        """Turns that came since are added behind what is known."""
        _import(log, _export(source))
        before = _heads(source)["main"]
        new = source.add_turn("new", continues="main")
        report = _import(log, _export(source))
        assert report == RestoreReport(
            added=1, known=10, moved_bookmarks=(MovedBookmark(name="main", before=before, after=new.id),)
        )
        assert _states(log) == _states(source)

    def test_logs_of_two_origins_are_joined(self, source: TurnLog, log: TurnLog) -> None:
        """An import goes behind what the log has; bookmarks of the same name move, and the report says so."""
        mine = log.add_turn("mine", bookmark="main")
        aside = log.add_turn("mine too", bookmark="aside")
        heads = _heads(source)
        report = _import(log, _export(source))
        assert report.moved_bookmarks == (
            MovedBookmark(name="aside", before=aside.id, after=heads["aside"]),
            MovedBookmark(name="main", before=mine.id, after=heads["main"]),
            MovedBookmark(name="other", before=None, after=heads["other"]),
        )
        assert _heads(log) == heads
        assert log.turn(mine.id) == mine
        assert log.verify().clean

    def test_empty_log_is_a_header(self, log: TurnLog) -> None:
        """An empty export imports as nothing."""
        content = _export(log)
        assert _lines(content) == [{"turnlog_export": 1, "events": 0}]
        assert _import(log, content) == RestoreReport(added=0, known=0, moved_bookmarks=())

    def test_lines_have_exact_bytes_digest_and_payload(self, source: TurnLog) -> None:
        """JSON payloads stand verbatim in the line, others as base64, and every line hashes."""
        header, *lines = _lines(_export(source))
        assert header == {"turnlog_export": 1, "events": 10}
        raw = _export(source).splitlines()[1:]
        for line, text, recorded in zip(lines, raw, source.events(), strict=True):
            assert recorded.state in text
            assert line["digest"] == event_digest(recorded.state)
            assert decode(recorded.state).id == line["event"]["id"]
        assert base64.b64decode(lines[4]["payload_base64"]) == NOISE
        assert base64.b64decode(lines[5]["payload_base64"]) == b'{ "spaced": true }\n'
        assert b'"payload":{"b":1.50,"a":"\\u00e9"}' in raw[6]
        assert "payload" not in lines[8]
        assert "payload_base64" not in lines[8]

    def test_progress_is_told_on_both_ways(self, source: TurnLog, log: TurnLog) -> None:
        """Export and import count events up to all of them."""
        out: list[tuple[int, int]] = []
        back: list[tuple[int, int]] = []
        file = io.BytesIO()
        assert source.export(file, progress=lambda done, total: out.append((done, total))) == 10
        file.seek(0)
        log.import_turnlog(file, progress=lambda done, total: back.append((done, total)))
        assert out[-1] == back[-1] == (10, 10)

    def test_damaged_payload_is_not_exported(self, file_log: TurnLog, poke: Any) -> None:
        """An export never carries bytes that do not hash."""
        file_log.add_turn("x")
        poke("UPDATE stored_events SET payload = x'00'")
        with pytest.raises(CorruptionError):
            _export(file_log)


class TestOneThread:
    """The thread of one turn, to and fro."""

    def test_thread_comes_with_its_forks_and_without_the_others(self, source: TurnLog, log: TurnLog) -> None:
        """All turns of the thread and the bookmark events about it are exported, in global order."""
        assert (_import(log, _export(source, "main"))).added == 9
        states = _states(source)
        assert _states(log) == states[:7] + states[8:]
        assert _heads(log) == {name: turn for name, turn in _heads(source).items() if name != "other"}
        assert log.context("main") == source.context("main")
        assert log.verify().clean

    def test_any_turn_names_its_thread(self, source: TurnLog) -> None:
        """Root, fork or head: the export is the same."""
        content = _export(source, "main")
        assert _export(source, "aside") == content
        assert _export(source, source.ancestry("main")[0].id.upper()) == content
        assert len(_lines(_export(source, "other"))) == 2

    def test_thread_and_then_the_rest_is_the_whole(self, source: TurnLog, log: TurnLog) -> None:
        """A thread first and the whole log later adds only what was missing."""
        _import(log, _export(source, "other"))
        report = _import(log, _export(source))
        assert (report.added, report.known) == (9, 1)
        assert _heads(log) == _heads(source)
        assert {t.id: t.turns for t in log.threads()} == {t.id: t.turns for t in source.threads()}

    def test_what_a_merge_continues_comes_along(self, log: TurnLog) -> None:
        """Turns of another thread that the exported one continues are exported with their ancestry, and no more."""
        with TurnLog.open("memory://") as source:
            a = source.add_turn("a").id
            b = source.add_turn("b").id
            b1 = source.add_turn("b1", continues=b).id
            b2 = source.add_turn("b2", continues=b1).id
            unrelated = source.add_turn("c").id
            merge = source.add_turn("m", continues=[a, b1]).id
            _import(log, _export(source, a))
            assert [turn.id for turn in log.ancestry(merge)] == [a, b, b1, merge]
            for absent in (b2, unrelated):
                with pytest.raises(UnknownTurnError):
                    log.turn(absent)
        assert log.verify().clean

    def test_renamed_and_deleted_bookmarks_stay_so(self, log: TurnLog) -> None:
        """An export of a thread tells the whole history of its bookmarks, not only where they were set."""
        with TurnLog.open("memory://") as source:
            root = source.add_turn("a", bookmark="kept")
            source.add_turn("b", continues=root.id, bookmark="gone")
            source.add_turn("c", continues=root.id, bookmark="old")
            source.rename_bookmark("old", "new")
            source.delete_bookmark("gone")
            source.add_turn("elsewhere", bookmark="x")
            source.rename_bookmark("x", "y")
            source.delete_bookmark("y")
            _import(log, _export(source, root.id))
            assert _heads(log) == _heads(source)
            assert len(_states(log)) == 5

    def test_unknown_thread_is_an_error(self, source: TurnLog) -> None:
        """There is nothing to export under an unknown name."""
        with pytest.raises(UnknownTurnError):
            _export(source, "nope")

    def test_long_thread_is_exported_turn_by_turn(self) -> None:
        """A run of three thousand turns with forks and merges is read in one pass."""
        with TurnLog.open("memory://") as source:
            turn = source.add_turn("0").id
            for number in range(1, 3000):
                side = source.add_turn("s", continues=turn).id if number % 10 == 0 else None
                turn = source.add_turn("x", continues=[turn, side] if side else turn).id
            assert len(_lines(_export(source, turn))) == 1 + 3000 + 299


def _respelled(content: bytes) -> bytes:
    """Return an export with an event whose bytes have whitespace in them, with their digest."""
    lines = content.splitlines()
    record = json.loads(lines[8])
    state = msgspec.json.Encoder(order="sorted").encode(record["event"])
    spaced = state.replace(b'"format":1', b'"format": 1')
    lines[8] = lines[8].replace(state, spaced).replace(event_digest(state).encode(), event_digest(spaced).encode())
    return b"\n".join(lines) + b"\n"


REFUSED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "no header": lambda content: content.split(b"\n", 1)[1],
    "header is no JSON": lambda content: b"x" + content,
    "header is deep": lambda content: b"[" * 100_000 + b"\n" + content,
    "later version": lambda content: content.replace(b'"turnlog_export":1', b'"turnlog_export":2'),
    "cut after a line": lambda content: content[: content.rstrip(b"\n").rindex(b"\n") + 1],
    "cut in a line": lambda content: content[:-100],
    "more lines than told": lambda content: content + content.splitlines(keepends=True)[-1],
    "blank line": lambda content: content.replace(b"\n", b"\n\n", 1),
    "line is no JSON": lambda content: content.replace(b'{"event"', b'{"event', 1),
    "line is not UTF-8": lambda content: content.replace(b"reply", b"\xff\xfe"),
    "line is deep": lambda content: content.replace(b'"payload":', b'"payload":' + b"[" * 100_000, 1),
    "wrong digest": lambda content: content.replace(b'"digest":"sha256-', b'"digest":"sha256-A', 1),
    "changed event": lambda content: content.replace(b'"role":"assistant"', b'"role":"user"', 1),
    "changed payload": lambda content: content.replace(b'"text":"reply"', b'"text":"forged"', 1),
    "payload without base64": lambda content: content.replace(b'"payload_base64":"', b'"payload_base64":"!', 1),
    "changed base64 payload": lambda content: content.replace(
        base64.b64encode(NOISE), base64.b64encode(NOISE[:-1] + b"x")
    ),
    "missing payload": lambda content: content.replace(b'"payload":', b'"payload_":', 1),
    "payload for none": lambda content: content[:-2] + b',"payload":[]}\n',
    "child before parent": lambda content: b"\n".join(
        [(lines := content.splitlines())[0], lines[2], lines[1], *lines[3:]]
    ),
    "missing parent": lambda content: b"\n".join(
        [
            (lines := content.splitlines())[0].replace(b'"events":10', b'"events":9'),
            *lines[2:],
        ]
    ),
    "forged: role": lambda content: _forged(content, 1, lambda e: e["meta"].update(role="robot")),
    "forged: parent's bytes": lambda content: _forged(content, 1, lambda e: e["meta"].update(role="system")),
    "forged: id in capitals": lambda content: _forged(content, 8, lambda e: e.update(id=e["id"].upper())),
    "forged: no id": lambda content: _forged(content, 8, lambda e: e.update(id="x", stream="x")),
    "forged: stream": lambda content: _forged(content, 8, lambda e: e.update(stream=new_id())),
    "forged: negative position": lambda content: _forged(content, 8, lambda e: e.update(position=-1)),
    "forged: later position": lambda content: _forged(content, 8, lambda e: e.update(position=1)),
    "forged: parent twice": lambda content: _forged(content, 4, lambda e: e["parents"].append(e["parents"][1])),
    "forged: parents reversed": lambda content: _forged(content, 4, lambda e: e["parents"].reverse()),
    "forged: size": lambda content: _forged(content, 8, lambda e: e.update(size=1)),
    "forged: no hash": lambda content: _forged(content, 8, lambda e: e.update(hash=None)),
    "forged: later format": lambda content: _forged(content, 8, lambda e: e.update(format=2)),
    "forged: topic with parents": lambda content: _forged(content, 4, lambda e: e.update(topic="gpt.call")),
    "forged: bookmark on nothing": lambda content: _forged(content, 9, lambda e: e["meta"].update(turn=new_id())),
    "forged: bookmark action": lambda content: _forged(content, 9, lambda e: e["meta"].update(action="x")),
    "other spelling": _respelled,
}


class TestRefusal:
    """What is not as it should be is refused, with nothing written."""

    @pytest.mark.parametrize("damage", REFUSED.values(), ids=REFUSED)
    def test_damaged_export_is_refused_with_nothing_written(
        self, source: TurnLog, file_log: TurnLog, store_path: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        """Whatever is wrong, wherever it stands, the import is refused as a whole."""
        content = _export(source)
        damaged = damage(content)
        assert damaged != content
        with pytest.raises(FormatError):
            _import(file_log, damaged)
        assert _states(file_log) == []
        assert _heads(file_log) == {}
        assert file_log.verify().clean
        assert _import(file_log, content).added == 10

    @pytest.mark.parametrize(
        ("damage", "line"),
        [("no header", 1), ("line is not UTF-8", 3), ("changed payload", 3), ("forged: stream", 9)],
    )
    def test_line_is_named(self, source: TurnLog, log: TurnLog, damage: str, line: int) -> None:
        """The error says on which line of the file it found something."""
        with pytest.raises(FormatError, match=f"line {line}: ") as caught:
            _import(log, REFUSED[damage](_export(source)))
        assert caught.value.line == line

    def test_wrong_hash_leaves_no_payload_file(self, source: TurnLog, file_log: TurnLog, store_path: Path) -> None:
        """A large payload of a refused import is not left in the payload folder."""
        with pytest.raises(FormatError):
            _import(file_log, REFUSED["changed base64 payload"](_export(source)))
        assert not list(store_path.parent.glob("log.db-payloads/*/*"))

    def test_conflicting_id_is_refused_with_nothing_written(self, source: TurnLog, file_log: TurnLog) -> None:
        """An id under which the log has another event, even on the last line, refuses the whole import."""
        *_, last = source.events()
        file_log.add_turn("mine", id=last.event.id)
        before = _states(file_log)
        with pytest.raises(IdConflictError) as caught:
            _import(file_log, _export(source))
        assert caught.value.event_id == last.event.id
        assert _states(file_log) == before
        assert file_log.verify().clean

    def test_conflict_leaves_no_payload_file(self, source: TurnLog, file_log: TurnLog, store_path: Path) -> None:
        """A large payload of an import that conflicts is not left in the payload folder."""
        *_, last = source.events()
        file_log.add_turn("mine", id=last.event.id)
        with pytest.raises(IdConflictError):
            _import(file_log, _export(source))
        assert not list(store_path.parent.glob("log.db-payloads/*/*"))

    def test_diverged_stream_is_refused(self, source: TurnLog, log: TurnLog) -> None:
        """Two logs that both went on from the same turn cannot be joined, and neither is harmed."""
        _import(log, _export(source))
        log.add_turn("mine", continues="other")
        source.add_turn("theirs", continues="other")
        before = _states(log)
        with pytest.raises(IdConflictError, match="diverged"):
            _import(log, _export(source))
        assert _states(log) == before

    def test_errors_are_turnlogs_own(self, source: TurnLog, log: TurnLog) -> None:
        """However an export is cut, the error is a turnlog error, and nothing is written."""
        content = _export(source, "other")
        for length in range(len(content) - 1):
            with pytest.raises(TurnlogError):
                _import(log, content[:length])
        assert _states(log) == []
        assert _import(log, content[:-1]).added == 1
