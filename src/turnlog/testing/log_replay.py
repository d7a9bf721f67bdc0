"""What `TurnLog` promises about reading back: context windows, export and import, verification."""

from __future__ import annotations

import io
import json
import random
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.errors import FormatError, IdConflictError
from turnlog.events import Arrival
from turnlog.model import ReplyFacts, Text
from turnlog.testing.harness import LogHarness, count, heads


def window(log: TurnLog, headish: str, **arguments: bool) -> dict[str, Any]:
    """Return the window of a turn as plain values."""
    return json.loads(log.context(headish, **arguments).to_json())


def texts(log: TurnLog, headish: str, **arguments: bool) -> list[str]:
    """Return the first text of each message of a window."""
    return [message["content"][0]["text"] for message in window(log, headish, **arguments)["messages"]]


def exported(log: TurnLog, headish: str | None = None) -> bytes:
    """Return the export of a log."""
    file = io.BytesIO()
    log.export(file, headish)
    return file.getvalue()


class LogReplay(LogHarness):
    """Tests of `context`, `export`, `import_turnlog`, `verify` and `stats`."""

    # Context windows

    def test_window_has_messages_and_options(self, log: TurnLog) -> None:
        """A window holds role, content and cache of each turn, oldest first, and the merged options."""
        log.add_turn("be brief", role="system", bookmark="main", servers=["fs"], cache=True)
        log.add_turn("hi", continues="main", search=True)
        log.add_turn(["a", "b"], role="assistant", continues="main", inherited={"servers": None})
        assert window(log, "main") == {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "be brief"}], "cache": True},
                {"role": "user", "content": [{"type": "text", "text": "hi"}], "cache": False},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                    "cache": False,
                },
            ],
            "options": {"search": True},
        }

    def test_window_content_is_what_was_stored(self, log: TurnLog) -> None:
        """Content reaches the window byte for byte: order, spelling and unknown keys included."""
        tool_use = '{"input":{"z":1e2,"a":[]},"type":"tool_use","name":"f"}'
        text = '[{"text":"\\u00fc","type":"text","citations":[1.50]},' + tool_use + "]"
        turn = log.add_turn(text, json=True)
        [message] = log.context(turn.id).messages
        assert message.content_json == text.encode()
        assert isinstance(message.content[0], Text)
        assert text.encode() in log.context(turn.id).to_json()

    def test_window_of_a_merge_is_in_ancestry_order(self, log: TurnLog) -> None:
        """A merge reads its first parent's ancestry before its second's; the later turn's options win."""
        root = log.add_turn("root", inherited={"a": {"x": 0, "y": 0}})
        left = log.add_turn("left", continues=root.id, inherited={"a": {"x": 1}, "b": [1]})
        right = log.add_turn("right", continues=root.id, inherited={"a": {"x": 2, "y": None}, "b": []})
        forward = log.add_turn("m", continues=[left.id, right.id], bookmark=False)
        backward = log.add_turn("m", continues=[right.id, left.id])
        assert texts(log, forward.id) == ["root", "left", "right", "m"]
        assert texts(log, backward.id) == ["root", "right", "left", "m"]
        assert window(log, forward.id)["options"] == {"a": {"x": 2}, "b": []}
        assert window(log, backward.id)["options"] == {"a": {"x": 1}, "b": [1]}

    def test_window_grows_and_earlier_ones_stay(self, log: TurnLog) -> None:
        """A window asked for again after more turns is the same, and that of the new head starts with it."""
        log.add_turn("0", bookmark="main", inherited={"n": 0})
        shorter = log.context("main")
        head = log.turn("main").id
        for n in range(1, 30):
            log.add_turn(str(n), continues="main", inherited={"n": n})
            longer = log.context("main")
            assert longer.messages[:-1] == shorter.messages
            assert longer.options == {"n": n}
            shorter = longer
        assert len(log.context(head).messages) == 1
        assert log.context(head).options == {"n": 0}

    def test_changed_options_do_not_change_the_next_window(self, log: TurnLog) -> None:
        """A caller may change the options it was given: the next window is as it was."""
        log.add_turn("x", bookmark="main", inherited={"a": {"b": [1]}})
        options = log.context("main").options
        options["a"]["b"].append(2)
        options["a"]["c"] = 3
        assert window(log, "main")["options"] == {"a": {"b": [1]}}

    def test_document_is_a_base64_block(self, log: TurnLog, tmp_path: Path) -> None:
        """A document turn is one document block, in base64 with its media type, for text too."""
        file = tmp_path / "notes.txt"
        file.write_bytes(b"some notes")
        turn = log.add_document(file, cache=True)
        source = {"type": "base64", "media_type": "text/plain", "data": b64encode(b"some notes").decode()}
        assert window(log, turn.id)["messages"] == [
            {"role": "user", "content": [{"type": "document", "source": source}], "cache": True}
        ]

    def test_failed_turns_are_left_out(self, log: TurnLog) -> None:
        """Error and aborted turns are stored and left out of the window, unless they are asked for."""
        log.add_turn("ask", bookmark="main")
        failed = log.add_turn(
            "half", role="assistant", continues="main", reply=ReplyFacts(stop_reason="error", error="overloaded")
        )
        aborted = log.add_turn("ha", role="assistant", continues="main", reply=ReplyFacts(stop_reason="aborted"))
        log.add_turn("answer", role="assistant", continues="main", reply=ReplyFacts(stop_reason="end_turn"))
        assert texts(log, "main") == ["ask", "answer"]
        assert texts(log, "main", include_failed=True) == ["ask", "half", "ha", "answer"]
        assert texts(log, aborted.id) == ["ask"]
        explain = window(log, "main", explain=True)["explain"]
        assert explain["left_out"] == [
            {"turn": failed.id, "reason": "error: overloaded"},
            {"turn": aborted.id, "reason": "stop_reason aborted"},
        ]

    def test_explanation_names_the_turn_of_each_message_and_option(self, log: TurnLog) -> None:
        """An explanation says which turn each message is of and which turn set each option."""
        a = log.add_turn("a", bookmark="main", inherited={"x": {"y": 1, "z": 1}, "gone": True})
        b = log.add_turn("b", continues="main", inherited={"x": {"z": 2}, "gone": None, "w": []})
        assert window(log, "main", explain=True)["explain"] == {
            "turns": [a.id, b.id],
            "options": {"x": {"y": a.id, "z": b.id}, "w": b.id},
            "left_out": [],
        }
        assert "explain" not in window(log, "main")

    # Export and import

    def test_import_takes_over_an_export(self, log: TurnLog, other: TurnLog, tmp_path: Path) -> None:
        """An imported log has the same events, payloads, bookmarks and windows, byte for byte."""
        _conversation(log, tmp_path)
        report = other.import_turnlog(io.BytesIO(exported(log)))
        assert (report.added, report.known, report.whole) == (count(log), 0, True)
        assert _bytes(other) == _bytes(log)
        assert {recorded.arrival for recorded in other.events()} == {Arrival.RESTORED}
        assert other.id == log.id
        assert heads(other) == heads(log)
        assert other.threads() == log.threads()
        for turn in list(log.events(topics=["gpt.turn"])):
            assert other.payload(turn.header.id) == log.payload(turn.header.id)
            assert other.context(turn.header.id, explain=True) == log.context(turn.header.id, explain=True)
        assert other.verify().clean
        assert exported(other) == exported(log)

    def test_import_again_adds_nothing(self, log: TurnLog, other: TurnLog, tmp_path: Path) -> None:
        """A second import of the same export changes nothing; one of a longer log adds only what is new."""
        _conversation(log, tmp_path)
        first = exported(log)
        other.import_turnlog(io.BytesIO(first))
        again = other.import_turnlog(io.BytesIO(first))
        assert (again.added, again.known, again.moved_bookmarks) == (0, count(log), ())
        turn = log.add_turn("more", continues="main")
        longer = other.import_turnlog(io.BytesIO(exported(log)))
        assert longer.added == 1
        assert [(moved.name, moved.after) for moved in longer.moved_bookmarks] == [("main", turn.id)]

    def test_import_into_a_log_that_has_more(self, log: TurnLog, other: TurnLog, tmp_path: Path) -> None:
        """An import beside other turns leaves those as they are and verifies clean."""
        _conversation(log, tmp_path)
        own = other.add_turn("own", bookmark="own")
        identity = other.id
        report = other.import_turnlog(io.BytesIO(exported(log)))
        assert (report.added, report.whole) == (count(log), False)
        assert other.turn("own") == own
        assert other.id == identity
        assert heads(other) == heads(log) | {"own": own.id}
        assert len(other.threads()) == len(log.threads()) + 1
        guests = {recorded.header.id for recorded in other.events() if recorded.arrival is Arrival.GUEST}
        assert guests == {recorded.header.id for recorded in log.events()}
        assert window(other, "main") == window(log, "main")
        assert other.verify().clean

    def test_bookmark_that_stands_elsewhere_stays(self, log: TurnLog, other: TurnLog) -> None:
        """An import leaves the bookmarks of a log where they are, and says which; it moves them if it is asked to."""
        theirs = log.add_turn("theirs", bookmark="main")
        ours = other.add_turn("ours", bookmark="main")
        kept = other.import_turnlog(io.BytesIO(exported(log)))
        assert heads(other) == {"main": ours.id}
        assert [(bookmark.name, bookmark.here, bookmark.theirs) for bookmark in kept.kept_bookmarks] == [
            ("main", ours.id, theirs.id)
        ]
        newer = log.add_turn("newer", continues="main")
        taken = other.import_turnlog(io.BytesIO(exported(log)), bookmarks="take")
        assert heads(other) == {"main": newer.id}
        assert [(bookmark.name, bookmark.before, bookmark.after) for bookmark in taken.moved_bookmarks] == [
            ("main", ours.id, newer.id)
        ]

    def test_export_of_a_thread_holds_what_it_continues(self, log: TurnLog, other: TurnLog, tmp_path: Path) -> None:
        """The export of one turn holds its threads and their ancestry, and nothing else."""
        _conversation(log, tmp_path)
        alone = log.add_turn("alone", bookmark="alone")
        other.import_turnlog(io.BytesIO(exported(log, "alone")))
        assert [recorded.header.id for recorded in other.events() if recorded.arrival is Arrival.GUEST] == [alone.id]
        assert heads(other) == {"alone": alone.id}
        other.import_turnlog(io.BytesIO(exported(log, "main")))
        assert window(other, "main") == window(log, "main")
        assert other.verify().clean

    def test_export_of_an_ancestry_leaves_the_rest_of_the_threads(
        self, log: TurnLog, other: TurnLog, tmp_path: Path
    ) -> None:
        """A document that many conversations share is exported with one of them without the others."""
        file = tmp_path / "shared.txt"
        file.write_bytes(b"shared")
        document = log.add_document(file)
        log.add_turn("one", continues=document.id, bookmark="one")
        two = log.add_turn("two", continues=document.id, bookmark="two")
        written = io.BytesIO()
        log.export(written, "two", ancestry=True)
        written.seek(0)
        other.import_turnlog(written)
        assert [recorded.header.id for recorded in other.events(topics=["gpt.turn"])] == [document.id, two.id]
        assert window(other, "two") == window(log, "two")
        assert other.verify().clean

    @pytest.mark.parametrize("damage", ["payload", "private", "digest", "event", "cut", "header", "version", "order"])
    def test_damaged_export_is_refused(self, log: TurnLog, other: TurnLog, tmp_path: Path, damage: str) -> None:
        """An export with a wrong hash, a wrong digest or a missing line is refused, and nothing of it is imported."""
        _conversation(log, tmp_path)
        lines = exported(log).splitlines(keepends=True)
        match damage:
            case "payload":
                lines[2] = lines[2].replace(b'"text":"root"', b'"text":"toor"')
            case "private":
                lines[2] = lines[2].replace(b'"head":"main"', b'"head":"niam"')
            case "digest":
                lines[2] = lines[2].replace(b'"digest":"sha256-', b'"digest":"sha256-A')
            case "event":
                lines[2] = lines[2].replace(b'"role":"user"', b'"role":"system"')
            case "cut":
                del lines[-1]
            case "header":
                del lines[0]
            case "version":
                lines[0] = lines[0].replace(b'"turnlog_export":2', b'"turnlog_export":99')
            case _:
                lines[2], lines[3] = lines[3], lines[2]
        assert b"".join(lines) != exported(log)
        with pytest.raises(FormatError):
            other.import_turnlog(io.BytesIO(b"".join(lines)))
        assert list(other.events()) == []

    def test_import_of_a_diverged_log_is_refused(self, log: TurnLog, other: TurnLog) -> None:
        """Where two logs continue one stream differently, or have other events under one id, nothing is imported."""
        root = log.add_turn("root", bookmark="main")
        other.import_turnlog(io.BytesIO(exported(log)))
        log.add_turn("here", continues="main")
        other.add_turn("there", continues="main")
        before = list(other.events())
        with pytest.raises(IdConflictError):
            other.import_turnlog(io.BytesIO(exported(log)))
        assert list(other.events()) == before
        assert other.turn(root.id) == root

    # Care

    def test_verify_reads_everything(self, log: TurnLog, tmp_path: Path) -> None:
        """A sound log verifies clean; the report counts events, payloads and their bytes."""
        assert log.verify().clean
        _conversation(log, tmp_path)
        report = log.verify()
        turns = list(log.events(topics=["gpt.turn"]))
        assert report.damage == ()
        assert report.events == count(log)
        assert (report.payloads, report.payload_bytes) == (len(turns), sum(turn.size or 0 for turn in turns))

    def test_stats_count_what_is_there(self, log: TurnLog, tmp_path: Path) -> None:
        """`stats` counts turns, threads, bookmarks, and the events of each topic."""
        _conversation(log, tmp_path)
        stats = log.stats()
        assert (stats.turns, stats.threads, stats.bookmarks) == (6, 2, 2)
        assert stats.topics == {"gpt.bookmark": 3, "gpt.turn": 6, "log.genesis": 1}
        assert stats.events == 10


def _bytes(log: TurnLog) -> list[tuple[int, bytes, bytes | None]]:
    """Return the global position, the header and the private part of every event, as they are stored."""
    return [(recorded.global_position, recorded.state, recorded.private_state) for recorded in log.events()]


def _conversation(log: TurnLog, folder: Path) -> None:
    """Record a small log with all that a log can have: fork, merge, document, bookmark events, a failed turn."""
    file = folder / "noise.bin"
    file.write_bytes(random.Random(0).randbytes(200_000))
    root = log.add_turn("root", bookmark="main", servers=["fs"])
    log.add_turn("a", role="assistant", continues="main", inherited={"deep": {"er": None, "y": [1.5, "ü"]}})
    document = log.add_document(file, continues=root.id, bookmark="doc")
    log.bookmarks.set("extra", document.id)
    log.add_turn("merge", continues=["main", "doc"])
    log.bookmarks.rename("extra", "renamed")
    log.add_turn("failed", role="assistant", continues="main", reply=ReplyFacts(stop_reason="error"), bookmark=False)
    log.bookmarks.delete("renamed")
    log.add_turn("second thread", role="system", inherited={"null": {"x": 1}})
