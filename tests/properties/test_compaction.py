"""Compaction of threads that were forked and merged at random: what it says that it has done, the next window shows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from turnlog import TurnLog
from turnlog.model import ContextWindow, ReplyFacts, ToolResult, ToolUse

KINDS = ("user", "assistant", "failed", "call", "result", "compact", "compact")


def _parts_a_call(window: ContextWindow, first: int, last: int) -> bool:
    """Tell whether a call and its result are on two sides of an end of a run."""

    def side(index: int) -> int:
        return (index >= first) + (index > last)

    made: dict[str | None, int] = {}
    for index, message in enumerate(window.messages):
        for block in message.content:
            if isinstance(block, ToolUse):
                made[block.id] = index
            elif isinstance(block, ToolResult) and side(made.get(block.tool_use_id, index)) != side(index):
                return True
    return False


@given(st.data())
def test_summary_is_in_the_next_window(data: st.DataObject) -> None:
    """Or nothing was recorded. It stands in the place of the very turns that the report names, and parts no call."""
    with TurnLog.open("memory://") as log:
        turns = [log.add_turn("root").id]
        for number in range(data.draw(st.integers(0, 30))):
            kind = data.draw(st.sampled_from(KINDS))
            others = data.draw(st.lists(st.sampled_from(turns), max_size=2, unique=True) | st.just([]))
            if kind == "compact":
                _compact(log, turns, data)
                continue
            parents = data.draw(st.permutations(list(dict.fromkeys([turns[-1], *others]))))
            turns.append(_add(log, kind, str(number), parents, data))
        _compact(log, turns, data)


def _add(log: TurnLog, kind: str, text: str, parents: list[str], data: st.DataObject) -> str:
    id_ = data.draw(st.sampled_from("ab"))
    content: Any = text
    role = "user" if kind in ("user", "result") else "assistant"
    if kind == "call":
        content = [ToolUse(id=id_, name="f", input=Raw(b"{}"))]
    elif kind == "result":
        content = [ToolResult(tool_use_id=id_, content=text)]
    reply = ReplyFacts(error="no") if kind == "failed" else None
    return log.add_turn(content, role=role, continues=parents, reply=reply).id


def _compact(log: TurnLog, turns: list[str], data: st.DataObject) -> None:
    head = data.draw(st.sampled_from(turns[-3:]))
    whole = log.context(head, summaries=False)
    before = log.stats().events
    keep_first, keep_last, min_turns = (data.draw(st.integers(least, 3)) for least in (0, 0, 1))
    report = log.compact(
        head, text="In short.", keep_first=keep_first, keep_last=keep_last, min_turns=min_turns, max_turns=None
    )
    if report.summary is None:
        assert (log.stats().events, report.why != "") == (before, True)
        return
    assert report.first is not None
    assert report.last is not None
    ids = [message.turn for message in whole.messages]
    first, last = ids.index(report.first), ids.index(report.last)
    assert report.turns == last - first + 1
    assert not _parts_a_call(whole, first, last)
    turns.append(log.add_turn("next", continues=head).id)
    shown = [message.turn for message in log.context(turns[-1]).messages]
    assert shown == [*ids[:first], report.summary, *ids[last + 1 :], turns[-1]]
    assert report.messages_after == len(shown) - 1
