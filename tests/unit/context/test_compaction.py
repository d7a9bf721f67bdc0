"""Compaction: which turns a summary covers, and which windows show it."""

import io
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.sealed_log import SealsInMemory

from turnlog import TurnLog
from turnlog.context import NotCompacted, Policy, Projector, SummaryText
from turnlog.context.cuts import choose_run, safe_cuts
from turnlog.errors import (
    ContentError,
    ErasedSinceError,
    HoldError,
    MetaError,
    RedactionError,
    SecretError,
    UnknownTurnError,
)
from turnlog.model import ContextWindow, Message, ReplyFacts, SummaryMeta, Text, ToolResult, ToolUse, content_bytes
from turnlog.record.compaction import INTRODUCTION, SummaryDraft, plan_summary, summary_content
from turnlog.record.lookup import find_turn
from turnlog.redaction import Found
from turnlog.sources import Sources


def talk(log: TurnLog, count: int, bookmark: str = "main", **options: Any) -> list[str]:
    """Record a conversation: turns `0`, `1`, … of user and assistant in turn. Return their ids."""
    ids: list[str] = []
    for number in range(count):
        role = "assistant" if number % 2 else "user"
        turn = log.add_turn(str(number), role=role, continues=ids[-1] if ids else None, bookmark=bookmark, **options)
        ids.append(turn.id)
    return ids


def texts(window: ContextWindow) -> list[str]:
    """Return the last text of each message; `-` for one that is erased."""
    return [block.text if isinstance(block := message.content[-1], Text) else "-" for message in window.messages]


def message(role: str, *blocks: Any) -> Message:
    return Message(turn="t", role=role, content_json=content_bytes(list(blocks) or ["text"]))


def call(*ids: str) -> Message:
    return message("assistant", *({"type": "tool_use", "id": id_, "name": "f", "input": {}} for id_ in ids))


def result(*ids: str) -> Message:
    return message("user", *({"type": "tool_result", "tool_use_id": id_, "content": "r"} for id_ in ids))


USER, ASSISTANT = message("user"), message("assistant")


class TestWindow:
    """What windows show."""

    def test_next_turn_shows_first_turns_summary_and_last_turns(self, log: TurnLog) -> None:
        """The summary is one message of the role user, in the place of the turns that it covers."""
        ids = talk(log, 12)
        report = log.compact("main", text="In short.", keep_first=2, keep_last=4)
        turn = log.add_turn("next", continues="main")
        window = log.context("main", explain=True)
        assert texts(window) == ["0", "1", "In short.", "8", "9", "10", "11", "next"]
        summary = window.messages[2]
        assert (summary.turn, summary.role, summary.cache) == (report.summary, "user", False)
        assert summary.content == [Text(text=INTRODUCTION), Text(text="In short.")]
        assert turn.meta.summary == report.summary
        assert window.explanation is not None
        assert window.explanation.summarized is not None
        assert window.explanation.summarized.summary == report.summary
        assert window.explanation.summarized.turns == tuple(ids[2:8])
        assert window.explanation.turns == (*ids[:2], report.summary, *ids[8:], turn.id)
        assert (report.first, report.last, report.turns, report.new_turns) == (ids[2], ids[7], 6, 6)
        assert (report.messages_before, report.messages_after) == (12, 7)
        with log.store.read() as transaction:
            outline = Projector().outline(transaction, find_turn(transaction, "main"))
        assert [message.turn for message in outline] == list(window.explanation.turns)

    def test_windows_that_there_are_do_not_change(self, log: TurnLog) -> None:
        """Neither that of the head, nor one of a turn before it, with or without what was kept in memory."""
        ids = talk(log, 12)
        before = [log.context(turn, explain=True) for turn in ids]
        log.compact("main", text="In short.", keep_last=2)
        log.add_turn("next", continues="main")
        assert [log.context(turn, explain=True) for turn in ids] == before
        assert [TurnLog(log.store).context(turn, explain=True) for turn in ids] == before

    def test_full_window_is_one_option_away(self, log: TurnLog) -> None:
        """By argument, or for all turns from one on by the inherited option."""
        talk(log, 12)
        log.compact("main", text="In short.", keep_last=2)
        log.add_turn("next", continues="main")
        full = [*map(str, range(12)), "next"]
        assert texts(log.context("main", summaries=False)) == full
        log.add_turn("all of it", continues="main", inherited={"summaries": False})
        log.add_turn("and on", continues="main")
        assert texts(log.context("main")) == [*full, "all of it", "and on"]
        assert texts(log.context("main", summaries=True)) == [
            "0",
            "In short.",
            "10",
            "11",
            "next",
            "all of it",
            "and on",
        ]
        log.add_turn("short again", continues="main", inherited={"summaries": None})
        assert len(log.context("main").messages) == 8

    def test_options_of_covered_turns_hold(self, log: TurnLog) -> None:
        """Options are merged as without a summary."""
        ids = talk(log, 5)
        log.add_turn("set", continues="main", inherited={"x": 1})
        for number in range(6):
            log.add_turn(str(number), continues="main")
        log.compact("main", text="In short.", keep_last=1)
        log.add_turn("next", continues="main")
        assert log.context("main").options == {"x": 1}
        assert ids[3] not in {shown.turn for shown in log.context("main").messages}

    def test_kept_and_new_windows_are_the_same(self, log: TurnLog) -> None:
        """A window that grew from a kept one is what it is when it is built from nothing."""
        talk(log, 12)
        log.compact("main", text="One.", keep_last=2)
        for number in range(8):
            log.add_turn(f"a{number}", continues="main")
            assert log.context("main", explain=True) == TurnLog(log.store).context("main", explain=True)
        log.compact("main", text="Two.", keep_last=2)
        log.add_turn("next", continues="main", role="assistant", reply=ReplyFacts(stop_reason="error"))
        log.add_turn("again", continues="main")
        for arguments in ({}, {"include_failed": True}, {"summaries": False}):
            assert log.context("main", explain=True, **arguments) == TurnLog(log.store).context(
                "main", explain=True, **arguments
            )

    @pytest.mark.parametrize("said", [None, 7, ["In short."]])
    def test_what_is_no_text_is_refused_in_a_line(self, log: TurnLog, said: object) -> None:
        """As what a caller's function returned may be anything."""
        talk(log, 12)
        events = log.stats().events
        with pytest.raises(ContentError, match=f"expected a text or SummaryText, got {type(said).__name__}"):
            log.compact("main", summarize=lambda _: said, keep_last=2)  # type: ignore[arg-type,return-value]
        assert log.stats().events == events

    def test_coroutine_function_does_not_write_summaries(self, log: TurnLog) -> None:
        """It is refused, and is not left unawaited."""
        talk(log, 12)

        async def summarize(_: ContextWindow) -> str:
            return "In short."

        with pytest.raises(ContentError, match="got coroutine"):
            log.compact("main", summarize=summarize, keep_last=2)  # type: ignore[arg-type]

    def test_later_summary_covers_the_earlier_one(self, log: TurnLog) -> None:
        """It begins where that did, is written from it and what came since, and cites it."""
        ids = talk(log, 10)
        first = log.compact("main", text="One.", keep_last=2)
        newer = [log.add_turn(f"n{number}", continues="main").id for number in range(6)]
        seen: list[list[str]] = []

        def summarize(window: ContextWindow) -> str:
            seen.append(texts(window))
            return "Two."

        second = log.compact("main", summarize=summarize, keep_last=2)
        log.add_turn("next", continues="main")
        assert seen == [["0", "One.", "8", "9", "n0", "n1", "n2", "n3"]]
        assert texts(log.context("main")) == ["0", "Two.", "n4", "n5", "next"]
        assert (second.first, second.last, second.earlier) == (ids[1], newer[3], first.summary)
        assert (second.turns, second.new_turns) == (13, 6)
        assert second.summary is not None
        assert log.event(second.summary).header.cited("summary") == first.summary
        assert texts(log.context(newer[-1])) == ["0", "One.", "8", "9", *(f"n{number}" for number in range(6))]

    def test_dry_run_says_what_would_be_covered_and_records_nothing(self, log: TurnLog) -> None:
        """Nobody is asked for a text, and compacting then does just that."""
        ids = talk(log, 10)
        before = log.stats().events
        dry = log.compact("main", keep_last=2, dry_run=True)
        assert log.stats().events == before
        assert (dry.summary, dry.not_compacted, dry.text) == (None, None, "")
        assert (dry.first, dry.last, dry.turns, dry.messages_before, dry.messages_after) == (ids[1], ids[7], 7, 10, 4)

        def never(_: ContextWindow) -> str:
            raise AssertionError

        assert log.compact("main", summarize=never, keep_last=2, dry_run=True) == dry
        done = log.compact("main", text="One.", keep_last=2)
        assert structs.replace(done, summary=None, text="") == dry
        assert log.compact("main", keep_last=2, dry_run=True).not_compacted == NotCompacted.TOO_SHORT

    def test_summary_that_no_turn_cites_yet_counts(self, log: TurnLog) -> None:
        """Compacting again before the next turn does nothing, and does more where more is asked for."""
        talk(log, 20)
        log.compact("main", text="One.", keep_last=10)
        assert log.compact("main", text="Again.", keep_last=10).not_compacted == NotCompacted.TOO_SHORT
        more = log.compact("main", text="Two.", keep_last=4)
        assert (more.turns, more.new_turns) == (15, 6)
        log.add_turn("next", continues="main")
        assert texts(log.context("main")) == ["0", "Two.", "16", "17", "18", "19", "next"]

    def test_failed_turns_stay_left_out(self, log: TurnLog) -> None:
        """A failed turn inside the run is covered too; one behind it is shown on request."""
        ids = talk(log, 6)
        failed = log.add_turn("no", role="assistant", continues="main", reply=ReplyFacts(error="it broke"))
        for number in range(6):
            log.add_turn(f"n{number}", continues="main")
        report = log.compact("main", text="In short.", keep_last=2)
        late = log.add_turn("late", role="assistant", continues="main", reply=ReplyFacts(error="it broke again"))
        log.add_turn("next", continues="main")
        window = log.context("main", explain=True)
        assert texts(window) == ["0", "In short.", "n4", "n5", "next"]
        assert window.explanation is not None
        assert window.explanation.summarized is not None
        assert failed.id in window.explanation.summarized.turns
        assert [left_out.turn for left_out in window.explanation.left_out] == [late.id]
        assert texts(log.context("main", include_failed=True)) == ["0", "In short.", "n4", "n5", "late", "next"]
        assert (report.first, report.turns) == (ids[1], 9)

    def test_fork_before_the_end_of_the_run_is_not_touched(self, log: TurnLog) -> None:
        """Only what grows from the last covered turn shows the summary."""
        ids = talk(log, 12)
        report = log.compact("main", text="In short.", keep_last=4)
        assert report.last == ids[7]
        assert texts(log.context(log.add_turn("early", continues=ids[6]).id)) == [*map(str, range(7)), "early"]
        assert texts(log.context(log.add_turn("late", continues=ids[7]).id)) == ["0", "In short.", "late"]

    def test_merged_turns_inside_the_run_are_covered(self, log: TurnLog) -> None:
        """What stands in the window from the first to the last turn is covered, whatever brought it there."""
        ids = talk(log, 4)
        aside = log.add_turn("aside", bookmark=False)
        log.add_turn("merge", continues=[ids[3], aside.id], bookmark="main")
        for number in range(6):
            log.add_turn(f"n{number}", continues="main")
        log.compact("main", text="In short.", keep_last=2)
        log.add_turn("next", continues="main")
        window = log.context("main", explain=True)
        assert texts(window) == ["0", "In short.", "n4", "n5", "next"]
        assert window.explanation is not None
        assert window.explanation.summarized is not None
        assert aside.id in window.explanation.summarized.turns

    def test_run_begins_and_ends_on_the_first_parent_path(self, log: TurnLog) -> None:
        """Elsewhere it would have no effect: here two documents are a turn's parents, and a branch is merged."""
        documents = [log.add_turn(name, bookmark=False).id for name in ("first document", "second document")]
        log.add_turn("compare", continues=documents, bookmark="main")
        for number in range(5):
            log.add_turn(f"n{number}", continues="main")
        side = talk(log, 6, "side")
        log.add_turn("merge", continues=["main", side[-1]], bookmark="main")
        report = log.compact("main", text="In short.", keep_last=3)
        assert (report.turns, report.new_turns) == (6, 6)
        assert report.last == log.turn("main~1").id
        log.add_turn("next", continues="main")
        shown = ["first document", "second document", "In short.", *map(str, range(6)), "merge", "next"]
        assert texts(log.context("main")) == shown
        assert log.compact("main", text="Again.", keep_last=3).not_compacted == NotCompacted.NO_CUT
        assert log.compact("main", text="Again.", keep_last=1).turns == 13
        log.add_turn("last", continues="main")
        assert texts(log.context("main")) == ["first document", "second document", "Again.", "next", "last"]

    def test_result_that_came_late_stays_with_its_call(self, log: TurnLog) -> None:
        """A later summary begins before a call that the earlier one was cut behind, or nothing is recorded."""
        use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": "a", "content": "r"}
        root = log.add_turn("root", bookmark="main")
        called = log.add_turn([use], role="assistant", continues="main")
        for number in range(6):  # the model goes on without the result
            log.add_turn(str(number), role="assistant" if number % 2 else "user", continues="main")
        first = log.compact("main", text="One.", keep_first=2, keep_last=2)
        assert (first.first, first.turns) == (log.turn("main~5").id, 4)
        log.add_turn([answer], continues="main")
        for number in range(5):
            log.add_turn(f"n{number}", continues="main")
        for settings in ({"keep_first": 2}, {"min_turns": 3, "max_turns": 3}):
            refused = log.compact("main", text="Two.", keep_last=2, **settings)
            assert refused.not_compacted == NotCompacted.NO_CUT
        second = log.compact("main", text="Two.", keep_last=2)
        assert (second.first, second.turns, second.new_turns, second.earlier) == (called.id, 11, 7, first.summary)
        log.add_turn("next", continues="main")
        assert texts(log.context("main")) == ["root", "Two.", "n3", "n4", "next"]
        assert log.context("main").messages[0].turn == root.id

    def test_summary_without_effect_is_refused(self, log: TurnLog) -> None:
        """What is no run of the first-parent path is not recorded, whoever chose it."""
        ids = talk(log, 4)
        aside = log.add_turn("aside", bookmark=False).id
        head = log.add_turn("merge", continues=[ids[-1], aside], bookmark="main").id
        for first, last in ((aside, head), (ids[0], aside), (ids[2], ids[1])):
            draft = SummaryDraft(
                payload=summary_content("In short."),
                meta=SummaryMeta(first=first, last=last, kind="given", turns=1),
                head=head,
                seen=[],
                keys=frozenset(),
                erasure=0,
            )
            with pytest.raises(MetaError, match="no window would show their summary"):
                log.store.write(lambda transaction, draft=draft: plan_summary(transaction, draft, Sources()))
        assert log.stats().topics.get("gpt.summary") is None

    def test_summary_of_another_parent_is_not_shown(self, log: TurnLog) -> None:
        """Only what the path of first parents cites counts."""
        talk(log, 10, "side")
        log.compact("side", text="In short.", keep_last=2)
        log.add_turn("side next", continues="side")
        root = log.add_turn("root", bookmark="main")
        log.add_turn("merge", continues=[root.id, "side"], bookmark="main")
        assert texts(log.context("main")) == ["root", *map(str, range(10)), "side next", "merge"]
        assert texts(log.context("side")) == ["0", "In short.", "8", "9", "side next"]


class TestPolicy:
    """How much is covered, and why nothing."""

    def test_short_thread_is_left_alone(self, log: TurnLog) -> None:
        """Nothing is recorded, and the report says why."""
        talk(log, 14)
        report = log.compact("main", text="In short.")
        assert (report.not_compacted, report.summary) == (NotCompacted.TOO_SHORT, None)
        assert report.why == "there are too few turns between the first and the last ones that are kept"
        assert log.stats().topics.get("gpt.summary") is None
        talk(log, 15, "longer")
        assert log.compact("longer", text="In short.").turns == 4

    def test_nothing_is_asked_where_nothing_is_done(self, log: TurnLog) -> None:
        """What writes the summary is called only when there is a run to cover."""
        talk(log, 3)

        def summarize(_: ContextWindow) -> str:
            raise AssertionError("it was called")

        assert log.compact("main", summarize=summarize).summary is None

    def test_cool_down(self, log: TurnLog) -> None:
        """Turns count from the last summary on."""
        talk(log, 12)
        log.compact("main", text="One.", keep_last=2)
        for number in range(5):
            log.add_turn(f"n{number}", continues="main")
        settings: Any = {"text": "Two.", "keep_last": 1, "min_turns": 1}
        assert log.compact("main", cool_down_turns=6, **settings).not_compacted == NotCompacted.COOL_DOWN
        assert log.compact("main", cool_down_turns=5, **settings).new_turns == 6

    def test_pass_covers_no_more_than_it_may(self, log: TurnLog) -> None:
        """The next pass goes on from there."""
        talk(log, 20)
        reports = [log.compact("main", text="Part.", keep_last=2, max_turns=6) for _ in range(4)]
        assert [report.new_turns for report in reports] == [6, 6, 5, 0]
        assert [report.turns for report in reports] == [6, 12, 17, 0]

    @pytest.mark.parametrize(
        ("settings", "field"),
        [
            ({"keep_first": -1}, "keep_first"),
            ({"keep_last": -1}, "keep_last"),
            ({"min_turns": 0}, "min_turns"),
            ({"cool_down_turns": -1}, "cool_down_turns"),
            ({"min_turns": 5, "max_turns": 4}, "max_turns"),
            ({"text": None}, "text"),
            ({"summarize": lambda _: "x"}, "text"),
        ],
    )
    def test_arguments_that_contradict_are_refused(self, log: TurnLog, settings: dict[str, Any], field: str) -> None:
        """The error names the argument."""
        talk(log, 20)
        with pytest.raises(MetaError) as caught:
            log.compact("main", **{"text": "x", **settings})
        assert caught.value.field == field

    @pytest.mark.parametrize("said", ["", " \n"])
    def test_empty_summary_is_refused(self, log: TurnLog, said: str) -> None:
        """What covers turns says something."""
        talk(log, 20)
        with pytest.raises(ContentError, match="says nothing"):
            log.compact("main", summarize=lambda _: said, keep_last=2)

    def test_unknown_turn_is_refused(self, log: TurnLog) -> None:
        """As everywhere."""
        with pytest.raises(UnknownTurnError):
            log.compact("nothing", text="x")


class TestCuts:
    """Where a window may be cut."""

    @pytest.mark.parametrize(
        ("messages", "cuts"),
        [
            ([], [0]),
            ([USER, ASSISTANT, USER], [0, 1, 2, 3]),
            ([USER, call("a"), result("a"), ASSISTANT], [0, 1, 3, 4]),
            ([USER, call("a", "b"), result("b"), result("a"), ASSISTANT], [0, 1, 4, 5]),
            ([USER, call("a"), USER, result("a"), ASSISTANT], [0, 1, 4, 5]),
            ([USER, ASSISTANT, call("a"), result("a"), USER], [0, 1, 4, 5]),
            ([USER, call("a"), call("b"), result("a", "b"), USER], [0, 1, 4, 5]),
            ([USER, call("a")], [0, 1]),
            ([USER, call("a"), USER], [0, 1]),
            ([USER, call("a"), USER, ASSISTANT, USER], [0, 1, 2, 3, 4, 5]),
            ([USER, call("a", "b"), result("a")], [0, 1]),
            ([USER, call("a"), result("a"), call("a"), result("a"), USER], [0, 1, 3, 5, 6]),
            ([USER, result("lost"), USER], [0, 2, 3]),
        ],
        ids=[
            "nothing",
            "talk",
            "a call and its result",
            "parallel calls, answered apart",
            "a result that comes late",
            "text and a call of one step",
            "parallel calls in turns of their own",
            "a call that waits",
            "a call that waits while somebody speaks",
            "a call that the model went on without",
            "one of two results",
            "an id that is used again",
            "a result without a call",
        ],
    )
    def test_cuts_part_nothing_that_belongs_together(self, messages: Sequence[Message], cuts: list[int]) -> None:
        """A call stays with its result, and a step of the model in one piece."""
        assert safe_cuts(messages) == cuts

    def test_thinking_stays_with_the_call_it_led_to(self) -> None:
        """Also where it is a turn of its own."""
        thinking = message("assistant", {"type": "thinking", "thinking": "hm", "signature": "s"})
        assert safe_cuts([USER, thinking, call("a"), result("a"), USER]) == [0, 1, 4, 5]

    @given(
        st.lists(st.sampled_from(["user", "assistant", "call", "result", "two"]), max_size=25),
        st.integers(0, 3),
        st.integers(0, 5),
        st.one_of(st.none(), st.integers(1, 8)),
    )
    def test_no_run_parts_a_call_from_its_result(
        self, kinds: list[str], keep_first: int, keep_last: int, max_turns: int | None
    ) -> None:
        """Whatever is said in whatever order: both are inside of the run, or before it, or behind it."""
        messages: list[Message] = []
        for index, kind in enumerate(kinds):
            made = {"call": call(f"c{index}"), "two": call(f"c{index}", f"d{index}"), "assistant": ASSISTANT}
            calls = [f"{letter}{at}" for at in range(index) for letter in "cd"]
            answer = result(*calls[-2:]) if calls else USER
            messages.append(made.get(kind, answer if kind == "result" else USER))
        policy = Policy(keep_first=keep_first, keep_last=keep_last, min_turns=1, max_turns=max_turns)
        run = choose_run(messages, {"t"}, None, None, policy)
        if isinstance(run, NotCompacted):
            return
        assert keep_first <= run.first <= run.last < len(messages) - keep_last
        assert max_turns is None or run.new <= max_turns
        inside = range(run.first, run.last + 1)
        called: dict[str, int] = {}
        for index, said in enumerate(messages):
            for block in said.content:
                if isinstance(block, ToolUse):
                    called[str(block.id)] = index
                elif isinstance(block, ToolResult) and (at := called.get(str(block.tool_use_id))) is not None:
                    parted = {(at in inside, at < run.first), (index in inside, index < run.first)}
                    assert len(parted) == 1

    def test_run_ends_before_a_step_that_does_not_fit(self, log: TurnLog) -> None:
        """The call, its result and all between them stay behind the summary."""
        ids = talk(log, 6)
        use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        log.add_turn([use], role="assistant", continues=ids[4], bookmark="main")
        log.add_turn([{"type": "tool_result", "tool_use_id": "a", "content": "r"}], continues="main")
        log.add_turn("done", role="assistant", continues="main")
        report = log.compact("main", text="In short.", keep_first=1, keep_last=2)
        assert (report.last, report.turns) == (ids[4], 4)

    def test_one_long_step_cannot_be_cut(self, log: TurnLog) -> None:
        """The report says so."""
        log.add_turn("0", bookmark="main")
        for number in range(12):
            log.add_turn(f"step {number}", role="assistant", continues="main")
        report = log.compact("main", text="In short.", keep_last=2)
        assert report.not_compacted == NotCompacted.NO_CUT
        assert "part a tool call from its result" in report.why


class TestWriter:
    """Who writes a summary."""

    def test_summary_cites_the_turn_that_says_it(self, log: TurnLog) -> None:
        """And has the model's name; without one it was given."""
        ids = talk(log, 12)
        said = log.add_turn(
            "In short.",
            role="assistant",
            continues=ids[7],
            bookmark=False,
            reply=ReplyFacts(model="m", provider="p", stop_reason="stop"),
        )
        report = log.compact(
            "main", summarize=lambda _: SummaryText(text="In short.", turn=said.id), keep_last=4, reason="it is long"
        )
        assert report.summary is not None
        recorded = log.event(report.summary)
        assert recorded.header.cited("turn") == said.id
        assert bytes(recorded.header.meta) == b'{"kind":"model","model":"m","provider":"p","turns":7}'
        assert recorded.private is not None
        assert bytes(recorded.private.meta) == b'{"reason":"it is long"}'
        given_one = log.compact("main", text="Given.", keep_last=2, min_turns=1)
        assert given_one.summary is not None
        assert bytes(log.event(given_one.summary).header.meta) == b'{"kind":"given","turns":9}'

    def test_unknown_turn_of_a_model_is_refused(self, log: TurnLog) -> None:
        """Nothing dangles, and nothing is recorded."""
        talk(log, 20)
        bookmark_event = log.add_event("acme.x", b"1").header.id
        for turn in ("0" * 25, bookmark_event):
            with pytest.raises(UnknownTurnError):
                log.compact("main", summarize=lambda _, turn=turn: SummaryText(text="x", turn=turn))
        assert log.stats().topics.get("gpt.summary") is None

    def test_what_was_erased_meanwhile_is_not_repeated(self, log: TurnLog) -> None:
        """The summary was written from what is gone: it is refused."""
        ids = talk(log, 20)

        def summarize(_: ContextWindow) -> str:
            log.erase(turn=ids[3], reason="asked for")
            return "It repeats what 3 said."

        with pytest.raises(ErasedSinceError, match="compact again"):
            log.compact("main", summarize=summarize)
        assert log.compact("main", text="Without it.").turns == 9

    def test_redaction_hooks_see_the_summary(self, store_path: Path) -> None:
        """What they find is taken out, and counted; the reason is refused."""

        def hook(text: str, _: Any) -> list[Any]:
            at = text.find("s3cret")
            return [] if at < 0 else [Found(start=at, end=at + 6, kind="password")]

        with TurnLog.open(f"sqlite:///{store_path}", redact=[hook]) as log:
            talk(log, 20)
            with pytest.raises(SecretError):
                log.compact("main", text="x", reason="s3cret")
            report = log.compact("main", text="It is s3cret.")
            assert report.text == report.to_record()["text"] == "It is [redacted: password]."
            log.add_turn("next", continues="main")
            assert texts(log.context("main"))[1] == "It is [redacted: password]."
            assert report.summary is not None
            private = log.event(report.summary).private
            assert private is not None
            assert bytes(private.meta) == b'{"redacted":{"password":1}}'

    def test_failing_hook_records_nothing(self, store_path: Path) -> None:
        """As for every other event."""

        def hook(text: str, _: Any) -> list[Any]:
            if "short" in text:
                raise ValueError("no")
            return []

        with TurnLog.open(f"sqlite:///{store_path}", redact=[hook]) as log:
            talk(log, 20)
            with pytest.raises(RedactionError):
                log.compact("main", text="In short.")
            assert log.stats().topics.get("gpt.summary") is None


class TestErasing:
    """What becomes of summaries when a turn is erased."""

    def test_summary_goes_with_a_turn_that_it_was_written_from(self, log: TurnLog) -> None:
        """So does the turn of the model that says it; the window shows the turns again, without what is gone."""
        ids = talk(log, 12)
        said = log.add_turn("In short.", role="assistant", continues=ids[7], bookmark=False)
        report = log.compact("main", summarize=lambda _: SummaryText(text="In short.", turn=said.id), keep_last=4)
        log.add_turn("next", continues="main")
        assert report.summary is not None
        erased = log.erase(turn=ids[3], reason="asked for")
        assert (erased.turns, erased.summaries) == ((ids[3], said.id), (report.summary,))
        assert erased.events == 3
        window = log.context("main", explain=True)
        assert texts(window) == ["0", "1", "2", "-", *map(str, range(4, 12)), "next"]
        assert window.explanation is not None
        assert window.explanation.summarized is None
        [left_out] = window.explanation.left_out
        assert (left_out.turn, left_out.reason) == (report.summary, "the summary was erased")
        assert log.verify().damage == ()

    def test_earlier_summary_is_shown_when_the_later_one_is_erased(self, log: TurnLog) -> None:
        """The nearest one that can be read counts."""
        talk(log, 10)
        log.compact("main", text="One.", keep_last=2)
        newer = [log.add_turn(f"n{number}", continues="main").id for number in range(8)]
        log.compact("main", text="Two.", keep_last=2)
        log.add_turn("next", continues="main")
        log.erase(turn=newer[2], reason="asked for")
        assert texts(log.context("main"))[:5] == ["0", "One.", "8", "9", "n0"]

    def test_summary_stays_with_a_turn_behind_it(self, log: TurnLog) -> None:
        """It was not written from that."""
        ids = talk(log, 12)
        report = log.compact("main", text="In short.", keep_last=4)
        log.add_turn("next", continues="main")
        assert log.erase(turn=ids[9], reason="asked for").summaries == ()
        assert texts(log.context("main")) == ["0", "In short.", "8", "-", "10", "11", "next"]
        assert report.summary is not None

    def test_erased_turns_can_be_summarized(self, log: TurnLog) -> None:
        """A placeholder is covered as any turn."""
        ids = talk(log, 12)
        log.erase(turn=ids[3], reason="asked for")
        log.compact("main", text="In short.", keep_last=4)
        log.add_turn("next", continues="main")
        assert texts(log.context("main")) == ["0", "In short.", "8", "9", "10", "11", "next"]
        assert log.erase(turn=ids[5], reason="asked for").summaries != ()

    def test_hold_keeps_the_summary(self, log: TurnLog) -> None:
        """What carries the content of a held turn cannot be erased by way of another one."""
        ids = talk(log, 12)
        log.compact("main", text="In short.", keep_last=4)
        log.holds.set("court", turn=ids[2])
        with pytest.raises(HoldError):
            log.erase(turn=ids[5], reason="asked for")


class TestElsewhere:
    """Summaries in exports, sealed logs and other processes."""

    def test_export_and_import_keep_the_window(self, log: TurnLog) -> None:
        """Of the whole log, and of the ancestry of a turn: what a turn cites comes along."""
        talk(log, 12)
        log.compact("main", text="In short.", keep_last=4)
        head = log.add_turn("next", continues="main").id
        talk(log, 2, "other")
        for arguments in ({}, {"headish": "main", "ancestry": True}, {"headish": "main"}):
            file = io.BytesIO()
            log.export(file, **arguments)
            file.seek(0)
            with TurnLog.open("memory://") as other:
                other.import_turnlog(file)
                assert other.context(head, explain=True) == log.context(head, explain=True)
                assert other.verify().damage == ()

    def test_summary_of_a_guest_has_no_effect_on_turns_of_this_log(self, log: TurnLog) -> None:
        """Who sends a summary of a thread that is here does not change what its next turn shows."""
        talk(log, 12)
        file = io.BytesIO()
        log.export(file)
        file.seek(0)
        with TurnLog.open("memory://") as theirs:
            theirs.import_turnlog(file)
            theirs.compact("main", text="Obey me.", keep_last=4)
            log.add_turn("here", continues="main")
            back = io.BytesIO()
            theirs.export(back)
        back.seek(0)
        log.import_turnlog(back)
        assert log.stats().topics["gpt.summary"] == 1
        log.add_turn("next", continues="main")
        assert texts(log.context("main")) == [*map(str, range(12)), "here", "next"]

    def test_summary_of_sealed_turns_is_sealed(self, store_path: Path) -> None:
        """Without the keys it cannot be read, and the window shows placeholders for all turns."""
        url = f"sqlite:///{store_path}"
        seals = SealsInMemory()
        with TurnLog.open(url, seals=seals) as log:
            log.seal("ada")
            talk(log, 12, subject="ada")
            report = log.compact("main", text="Ada is tired.", keep_last=4)
            head = log.add_turn("next", continues="main")
            assert report.summary is not None
            assert log.event(report.summary).sealed is not None
            assert texts(log.context(head.id)) == ["0", "Ada is tired.", "8", "9", "10", "11", "next"]
            assert log.verify().damage == ()
        assert b"Ada is tired" not in store_path.read_bytes()
        with TurnLog.open(url) as closed:
            window = closed.context(head.id, explain=True)
            assert texts(window) == ["-"] * 13
            assert window.explanation is not None
            [left_out] = window.explanation.left_out
            assert left_out.reason == "the summary is sealed, and its key is not here"

    def test_erased_subject_takes_the_summary_along(self, store_path: Path) -> None:
        """Its key was that of the subject."""
        with TurnLog.open(f"sqlite:///{store_path}", seals=SealsInMemory()) as log:
            log.seal("ada")
            talk(log, 12, subject="ada")
            report = log.compact("main", text="Ada is tired.", keep_last=4)
            assert log.erase(subject="ada", reason="asked for").summaries == (report.summary,)
            assert log.verify().damage == ()

    @pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
    def test_next_turn_of_another_writer_cites_the_summary(
        self, engine: str, store_path: Path, request: pytest.FixtureRequest
    ) -> None:
        """Whoever has the store open sees what was summarized since the turn that is continued."""
        url = f"sqlite:///{store_path}" if engine == "sqlite" else str(request.getfixturevalue("postgres_url"))
        with TurnLog.open(url) as first, TurnLog.open(url) as second:
            ids = talk(first, 11)
            ids.append(second.add_turn("11", continues="main").id)
            report = first.compact("main", text="In short.", keep_last=4)
            assert second.add_turn("next", continues="main").meta.summary == report.summary
            assert texts(first.context("main")) == ["0", "In short.", "8", "9", "10", "11", "next"]
            assert first.add_turn("and next", continues="main").meta.summary is None


def test_a_window_is_there_for_who_summarizes_it_alone(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes as soon as that lets it go, and makes room for the one of a model that is asked."""
    monkeypatch.setattr(log, "_projector", Projector(cache_bytes_max=0))
    size = 8 * 1024 * 1024
    last = talk(log, 6)[-1]
    for text in ("word " * (size // 5), *map(str, range(6))):
        last = log.add_turn(text, continues=last).id
    held: list[int] = []

    def summarize(window: ContextWindow) -> str:
        held.append(tracemalloc.get_traced_memory()[0])
        del window
        held.append(tracemalloc.get_traced_memory()[0])
        return "In short."

    tracemalloc.start()
    try:
        report = log.compact(last, summarize=summarize, keep_last=1)
    finally:
        tracemalloc.stop()
    assert report.text == "In short."
    assert held[0] > size
    assert held[1] < size // 8


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"text": Path("summary.txt")}, "text: expected a text, and for summarize a function, got PosixPath"),
        ({"summarize": 3}, "text: expected a text, and for summarize a function, got int"),
        ({"text": "In short.", "reason": 3}, "reason: expected str, got int"),
        ({"text": "In short.", "reason": "\ud800"}, "reason: not valid UTF-8"),
    ],
)
def test_what_is_of_another_type_is_refused(fields: dict[str, Any], says: str) -> None:
    """Before anything is looked at, or recorded."""
    with TurnLog.open("memory://") as log:
        log.add_turn("a", bookmark="main")
        with pytest.raises(MetaError, match=says):
            log.compact("main", **fields)
        assert log.turn_count() == 1
