"""Exporting a part of a log: the threads of a turn, or its ancestry, with all that they cite."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.forging import exported
from tests.rewriting import erase, rewrite

from turnlog import TurnLog
from turnlog.errors import CorruptionError, MetaError, NotFoundError, UnknownTurnError
from turnlog.events import BOOKMARK, ERASURE, TARGET, cite
from turnlog.interop import geppetto
from turnlog.model import ErasureMeta, LossReport, ReplyFacts, Response, Text, Tool, Usage
from turnlog.providers import PreparedRequest
from turnlog.record import EventDraft, plan_event
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD


def _ids(log: TurnLog, headish: str, *, ancestry: bool = False) -> list[str]:
    """Return the ids of the events of an export of a part."""
    return [json.loads(line)["event"]["id"] for line in exported(log, headish, ancestry=ancestry).splitlines()[1:]]


def _turns(log: TurnLog, headish: str, *, ancestry: bool = False) -> list[str]:
    turns = {recorded.header.id for recorded in log.events(topics=["gpt.turn"])}
    return [event_id for event_id in _ids(log, headish, ancestry=ancestry) if event_id in turns]


def test_what_stands_beside_turns_comes_along(log: TurnLog) -> None:
    """Notes of other models, pieces of transcripts, and a summary that no turn cites yet; those of others stay."""
    run = geppetto.Run(id="r1", turns=[geppetto.Turn(id="t1", blocks=[geppetto.new_user_text_block("Hi.")])])
    head = str(geppetto.record_run(log, run).turns[0].head)
    other = geppetto.record_turn(log, geppetto.Turn(blocks=[geppetto.new_user_text_block("Ho.")]))
    for number in range(20):
        log.add_turn(f"{number}", continues="summed" if number else head, bookmark="summed")
    report = log.compact("summed", text="In short.", keep_last=2)
    for ancestry in (False, True):
        ids = _ids(log, "summed", ancestry=ancestry)
        assert report.summary in ids
        assert other.id not in ids
        with TurnLog.open("memory://") as copy:
            copy.import_turnlog(io.BytesIO(exported(log, "summed", ancestry=ancestry)))
            assert geppetto.load_run(copy, "r1") == run
            assert copy.verify().clean


def _bookmark_events(log: TurnLog, headish: str, *, ancestry: bool = False) -> list[tuple[str, str]]:
    """Return action and name of the bookmark events of an export of a part."""
    found: list[tuple[str, str]] = []
    for line in exported(log, headish, ancestry=ancestry).splitlines()[1:]:
        record = json.loads(line)
        if record["event"]["topic"] == "gpt.bookmark":
            found.append((record["event"]["meta"]["action"], record["private"]["meta"]["name"]))
    return found


def _answer(log: TurnLog, bookmark: str, tools: tuple[Tool, ...] = ()) -> str:
    """Record a call with its reply, and return the call's id."""
    turn = log.turn(bookmark)
    request = PreparedRequest(
        adapter="example",
        version="1",
        provider="example",
        api="messages",
        model="m-1",
        stream=False,
        head=b'{"messages":[',
        messages=[message.content_json + b"," for message in log.context(bookmark).messages],
        closing=b"null]}",
        loss_report=LossReport(entries=()),
        tools=tuple(tools),
    )
    call = log.calls.record(turn.id, request)
    response = Response(
        content=(Text(text="Yes."),),
        model="m-1",
        stop_reason="stop",
        provider="example",
        api="messages",
        usage=Usage(input_tokens=7, output_tokens=1),
    )
    log.calls.record_reply(call, [b'{"text":"Yes."}'], response)
    return call


class TestThreads:
    """The threads of a turn."""

    def test_header_names_the_turn(self, source: TurnLog) -> None:
        """What was asked for, and where the part lies in the log."""
        header = json.loads(exported(source, "main").splitlines()[0])
        assert header == {
            "turnlog_export": 2,
            "log": source.id,
            "of": "threads",
            "head": source.turn("main").id,
            "first": 2,
            "last": 11,
            "events": 9,
            "payload_bytes": source.stats().payload_bytes - source.turn("other").size,
        }

    def test_any_turn_names_its_thread(self, source: TurnLog) -> None:
        """Root, fork or head: the same events, with all forks and without other threads."""
        wanted = [recorded.header.id for recorded in source.events(1) if recorded.header.id != source.turn("other").id]
        for headish in ("main", "aside", source.ancestry("main")[0].id.upper()):
            assert _ids(source, headish) == wanted
        assert _ids(source, "other") == [source.turn("other").id]

    def test_what_a_merge_continues_comes_along(self, log: TurnLog) -> None:
        """Turns of another thread that this one continues come with their ancestry, and no more of it."""
        a, b = log.add_turn("a").id, log.add_turn("b").id
        b1 = log.add_turn("b1", continues=b).id
        log.add_turn("b2", continues=b1)
        log.add_turn("c")
        merge = log.add_turn("m", continues=[a, b1]).id
        assert _ids(log, a) == [a, b, b1, merge]

    def test_unknown_turn_is_an_error(self, source: TurnLog) -> None:
        """There is nothing to export under an unknown name."""
        for ancestry in (False, True):
            with pytest.raises(UnknownTurnError):
                exported(source, "nope", ancestry=ancestry)

    def test_long_thread_is_whole(self, log: TurnLog) -> None:
        """A thread of thousands of turns with forks and merges, longer than any page."""
        turn = log.add_turn("0").id
        for number in range(1, 1300):
            side = log.add_turn("s", continues=turn).id if number % 10 == 0 else None
            turn = log.add_turn("x", continues=[turn, side] if side else turn).id
        assert len(_ids(log, turn)) == 1300 + 129
        assert len(_ids(log, turn, ancestry=True)) == 1300 + 129
        assert len(_ids(log, log.ancestry(turn)[1000].id, ancestry=True)) == 1001


class TestAncestry:
    """A turn with what it grew from."""

    def test_forks_and_later_turns_stay_away(self, source: TurnLog) -> None:
        """Of the thread only what the turn's window is made of."""
        aside = source.turn("aside").id
        assert _turns(source, "aside", ancestry=True) == [turn.id for turn in source.ancestry("aside")]
        merge = source.ancestry("main")[3].id
        assert _turns(source, merge, ancestry=True) == [turn.id for turn in source.ancestry(merge)]
        assert aside in _turns(source, merge, ancestry=True)

    def test_shared_document_does_not_bring_the_others_along(self, log: TurnLog) -> None:
        """One of fifty conversations about a document is exported alone."""
        document = log.add_turn("A document.").id
        questions = [log.add_turn(f"Question {number}?", continues=document).id for number in range(50)]
        answer = log.add_turn("Answer.", role="assistant", continues=questions[7]).id
        assert _ids(log, answer, ancestry=True) == [document, questions[7], answer]
        assert len(_ids(log, answer)) == 52

    def test_header_says_so(self, source: TurnLog) -> None:
        """The scope is in the first line."""
        header = json.loads(exported(source, "aside", ancestry=True).splitlines()[0])
        assert (header["of"], header["head"]) == ("ancestry", source.turn("aside").id)


class TestCitations:
    """What the events of a part cite comes along."""

    def test_calls_replies_bases_and_tools_come_along(self, log: TurnLog) -> None:
        """And so does what these cite; calls of turns elsewhere do not."""
        log.add_turn("Hello " * 30, bookmark="main")
        first = _answer(log, "main", (Tool(name="fs___read"),))
        log.add_turn("More " * 30, continues="main")
        second = _answer(log, "main", (Tool(name="fs___read"),))
        log.add_turn("Elsewhere.", bookmark="other")
        elsewhere = _answer(log, "other")
        assert log.event(second).header.cited("base") == first
        ids = set(_ids(log, "main"))
        assert ids == set(_ids(log, "main", ancestry=True))
        assert {first, second} < ids
        assert elsewhere not in ids
        topics = sorted(recorded.header.topic for recorded in log.events() if recorded.header.id in ids)
        assert topics == ["gpt.call", "gpt.call", "gpt.reply", "gpt.reply", *["gpt.turn"] * 4, "mcp.tools"]
        ancestor = log.ancestry("main")[1].id
        assert second not in _ids(log, ancestor, ancestry=True)

    def test_registers_and_events_of_others_stay_away(self, source: TurnLog) -> None:
        """What nobody cites is in the export of the whole log only."""
        root = source.ancestry("main")[0].id
        before = _ids(source, "main")
        source.pointers.set("milli", "anthropic", "m-1")
        source.add_event("acme.review", b"x", cites=[("reviewed", root)])
        assert _ids(source, "main") == before

    def test_citation_of_what_is_not_there_is_corruption(self, file_log: TurnLog, poke: Any) -> None:
        """Nothing that dangles is exported."""
        root = file_log.add_turn("a")
        file_log.add_turn("b", continues=root.id, bookmark="b")
        fork = file_log.add_turn("c", continues=root.id, bookmark="c")
        poke(f"DELETE FROM stored_events WHERE event_id = '{root.id}'")
        for ancestry in (False, True):
            with pytest.raises(CorruptionError, match="run `turnlog verify`"):
                exported(file_log, fork.id, ancestry=ancestry)


class TestBookmarks:
    """Which events about bookmarks are in a part."""

    def test_events_that_set_bookmarks_in_it(self, source: TurnLog) -> None:
        """Those on a turn of the part, and what became of these bookmarks."""
        assert _bookmark_events(source, "main") == [("set", "side"), ("rename", "side")]
        assert _bookmark_events(source, "other") == []
        assert _bookmark_events(source, "aside", ancestry=True) == [("set", "side"), ("rename", "side")]
        reply = source.ancestry("main")[1].id
        assert _bookmark_events(source, reply, ancestry=True) == []

    def test_bookmark_that_was_elsewhere_at_the_time_is_not_followed(self, log: TurnLog) -> None:
        """A rename or deletion is exported if the bookmark stood in the part, and not else."""
        root = log.add_turn("a", bookmark="kept")
        log.add_turn("b", continues=root.id, bookmark="gone")
        log.add_turn("c", continues=root.id, bookmark="old")
        log.bookmarks.rename("old", "new")
        log.bookmarks.delete("gone")
        log.add_turn("elsewhere", bookmark="x")
        log.bookmarks.rename("x", "y")
        log.bookmarks.delete("y")
        log.bookmarks.set("new", log.add_turn("elsewhere too", bookmark=False).id)
        log.bookmarks.rename("new", "newer")
        assert _bookmark_events(log, root.id) == [("rename", "old"), ("delete", "gone")]

    def test_rename_after_a_rename_is_followed(self, log: TurnLog) -> None:
        """By whatever name it goes by then, and back."""
        turn = log.add_turn("a", bookmark="one")
        for name, to in (("one", "two"), ("two", "three"), ("three", "one")):
            log.bookmarks.rename(name, to)
        log.add_turn("elsewhere", bookmark="four")
        log.bookmarks.rename("four", "five")
        assert _bookmark_events(log, turn.id) == [("rename", "one"), ("rename", "two"), ("rename", "three")]

    def test_many_bookmark_events_are_read_in_pages(self, log: TurnLog) -> None:
        """More of them than a page has."""
        here, there = log.add_turn("here", bookmark=False).id, log.add_turn("there", bookmark=False).id
        for number in range(600):
            log.bookmarks.set(f"{number % 7}", here if number % 2 else there)
        log.bookmarks.delete("0")
        sets = [(action, name) for action, name in _bookmark_events(log, here) if action == "set"]
        assert sets == [("set", f"{number % 7}") for number in range(600) if number % 2]
        # The last to be set of the bookmark 0 was number 595.
        assert ("delete", "0") in _bookmark_events(log, here)


class TestErasures:
    """Erased events of a part, and the events that say why."""

    def _erase(self, log: TurnLog, path: Path, *turns: str) -> str:
        draft = EventDraft(topic=ERASURE, meta=ErasureMeta(reason="asked for"))
        citations = [cite(log.event(turn), TARGET) for turn in turns]
        recorded = log.store.write(lambda t: plan_event(t, draft, NO_PAYLOAD, Sources(), citations))
        for turn in turns:
            erase(path, turn)
        return recorded.header.id

    def test_erasures_of_the_part_alone_come_along(self, file_log: TurnLog, store_path: Path) -> None:
        """One that concerns other threads too would bring these, so it stays away."""
        mine, mine_too = (file_log.add_turn(text, bookmark=False) for text in "ab")
        child = file_log.add_turn("c", continues=mine.id, bookmark=False)
        alone = self._erase(file_log, store_path, mine.id)
        self._erase(file_log, store_path, child.id, mine_too.id)
        ids = _ids(file_log, child.id)
        assert ids == [mine.id, child.id, alone]
        assert mine_too.id not in ids

    def test_part_without_erased_events_has_no_erasure(self, file_log: TurnLog, store_path: Path) -> None:
        """Whatever was erased elsewhere."""
        turn, other = (file_log.add_turn(text, bookmark=False) for text in "ab")
        self._erase(file_log, store_path, other.id)
        assert _ids(file_log, turn.id) == [turn.id]


def test_lines_of_a_part_are_those_of_the_whole(source: TurnLog) -> None:
    """Byte for byte, with the positions that they have in the log."""
    whole = exported(source).splitlines()[1:]
    for headish in ("main", "other"):
        for ancestry in (False, True):
            part = exported(source, headish, ancestry=ancestry).splitlines()[1:]
            assert [line for line in whole if line in part] == part
    assert [msgspec.json.decode(line)["at"] for line in part] == [9]


class TestWhatIsWanted:
    """Turns that fit come with their ancestry, whatever else is left out; what is written is taken in by any log."""

    @pytest.fixture
    def days(self, log: TurnLog) -> dict[str, str]:
        """Give the turns of two threads by what they say: the first has a fork, and a model in each of its branches."""
        ids: dict[str, str] = {}

        def add(text: str, continues: str | list[str] | None, model: str | None = None) -> None:
            of = [continues] if isinstance(continues, str) else continues or []
            ids[text] = log.add_turn(
                text,
                role="user" if model is None else "assistant",
                continues=[ids[each] for each in of] or None,
                reply=ReplyFacts(model=model),
                bookmark=f"at-{text}",
            ).id

        add("root", None)
        add("left", "root", "m-1")
        add("right", "root", "m-2")
        add("left on", "left")
        add("other", None)
        add("other on", "other", "m-1")
        return ids

    @pytest.mark.parametrize(
        ("headish", "model", "limit", "found"),
        [
            (None, "m-1", None, ["root", "left", "other", "other on"]),
            (None, "m-2", None, ["root", "right"]),
            (None, "m-1", 1, ["other", "other on"]),
            (None, None, 1, ["other", "other on"]),
            (None, None, 2, ["root", "left", "left on", "other", "other on"]),
            (None, None, 9, ["root", "left", "right", "left on", "other", "other on"]),
            ("at-right", "m-1", None, ["root", "left"]),
            ("at-right", None, 1, ["root", "left", "left on"]),
            (["at-right", "at-other on"], "m-1", None, ["root", "left", "other", "other on"]),
        ],
    )
    def test_turns_that_fit_come_with_their_ancestry(
        self,
        log: TurnLog,
        days: dict[str, str],
        headish: str | list[str] | None,
        model: str | None,
        limit: int | None,
        found: list[str],
    ) -> None:
        """Of the log, or of the threads of some turns; the limit is of those that no other one continues."""
        file = io.BytesIO()
        log.export(file, headish, wanted=None if model is None else lambda turn: turn.model == model, limit=limit)
        lines = [json.loads(line) for line in file.getvalue().splitlines()]
        assert [line["event"]["id"] for line in lines[1:]] == [days[text] for text in found]
        assert lines[0]["of"] == "ancestry"
        assert lines[0]["head"] in {line["event"]["id"] for line in lines[1:]}
        file.seek(0)
        with TurnLog.open("memory://") as copy:
            assert copy.import_turnlog(file).added == len(found)
            assert copy.verify().clean

    def test_ancestries_of_several_turns(self, log: TurnLog, days: dict[str, str]) -> None:
        """Without what else grows from them, each turn once."""
        file = io.BytesIO()
        assert log.export(file, ["at-left", "at-right"], ancestry=True) == 3
        header, *lines = map(json.loads, file.getvalue().splitlines())
        assert [line["event"]["id"] for line in lines] == [days["root"], days["left"], days["right"]]
        assert header["head"] == days["right"]

    def test_ancestry_can_be_chosen_from(self, log: TurnLog, days: dict[str, str]) -> None:
        """What no turn of it fits is nothing to export."""
        file = io.BytesIO()
        assert log.export(file, "at-left on", ancestry=True, wanted=lambda turn: turn.model == "m-1") == 2
        with pytest.raises(NotFoundError, match="nothing to export"):
            log.export(io.BytesIO(), "at-left on", ancestry=True, wanted=lambda turn: turn.model == "m-2")

    def test_many_turns_are_chosen_in_pages(self, log: TurnLog) -> None:
        """Also where a page has nothing that fits."""
        for number in range(1201):
            log.add_turn(f"{number}", continues="long" if number else None, bookmark="long")
        last = log.latest(1)[0].id
        assert log.export(io.BytesIO(), wanted=lambda turn: turn.position == 100) == 101
        assert log.export(io.BytesIO(), "long", wanted=lambda turn: turn.position == 100) == 101
        assert log.export(io.BytesIO(), wanted=lambda turn: turn.id == last) == 1201

    @pytest.mark.parametrize(
        ("arguments", "what"), [({"limit": 0}, "limit: must be at least 1, got 0"), ({"headish": []}, "give a turn")]
    )
    def test_what_chooses_nothing_is_refused(self, log: TurnLog, arguments: Any, what: str) -> None:
        """Before anything is read."""
        with pytest.raises(MetaError, match=what):
            log.export(io.BytesIO(), **arguments)


def test_bookmark_event_that_names_no_turn_is_not_passed_over(tmp_path: Path) -> None:
    """What a bookmark was at is unknown: an export without it would say that there was none."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        turn = log.add_turn("hello")
        log.bookmarks.set("main", turn.id)
        [event] = log.events(topics=[BOOKMARK])
    rewrite(path, event.header.id, header=lambda header: header.update(citations=[]))
    said = f"^bookmark event '{event.header.id}' names no turn: run `turnlog"
    with TurnLog.open(f"sqlite:///{path}") as log, pytest.raises(CorruptionError, match=said):
        exported(log, turn.id)
