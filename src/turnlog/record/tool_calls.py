"""Plans that record tool calls: that one begins, before it has any effect, and how it ended.

Both have ids that follow from the turn, the block and the attempt. So they are found without an index, and of two runs
that go on from the same turn one alone begins a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError, ToolCallTakenError
from turnlog.events import TOOL_CALL, TOOL_END, Arrival, Recorded, cite, meta_of, turn_meta
from turnlog.ids import derived_id, time_of_id
from turnlog.model import ToolCallMeta, ToolEndMeta
from turnlog.record.append import plan_event
from turnlog.record.drafts import EventDraft, TurnDraft
from turnlog.record.lookup import find_turn
from turnlog.record.sealing import key_after
from turnlog.record.turns import cite_event, plan_turn
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, NewPayload, ReadTransaction, WriteTransaction

_SAID_OF_NO_CALL = ("denied", "answer")
"""Endings of calls that are not made, because somebody said so."""

_SAID_OF_A_CALL = ("result", "error", "given_up", "broken_off")
"""Endings that only the run knows that made the call."""

_LATE = "late"


def tool_event_id(topic: str, turn: str, block: int, attempt: int) -> str:
    """Return the id of the beginning or the end of a tool call, by the topic."""
    return derived_id(time_of_id(turn), topic, turn, str(block), str(attempt))


def late_end_id(turn: str, block: int, attempt: int) -> str:
    """Return the id of the end of a tool call that another run had given up as unknown before it came."""
    return derived_id(time_of_id(turn), TOOL_END, turn, str(block), str(attempt), _LATE)


def plan_tool_call(transaction: WriteTransaction, meta: ToolCallMeta, sources: Sources) -> Recorded:
    """Record that a tool is about to be called.

    Raises:
        UnknownTurnError: there is no such turn.
        MetaError: it is no call of an assistant turn.
        ToolCallTakenError: this attempt was begun before, by another run.
    """
    turn = _turn_of(transaction, meta)
    event_id = tool_event_id(TOOL_CALL, turn.header.id, meta.block, meta.attempt)
    ended = tool_event_id(TOOL_END, turn.header.id, meta.block, meta.attempt)
    if transaction.event(event_id) is not None or transaction.event(ended) is not None:
        raise _taken(meta)
    event = EventDraft(topic=TOOL_CALL, meta=meta, id=event_id)
    key = key_after(transaction, [turn])
    return plan_event(transaction, event, NO_PAYLOAD, sources, [cite(turn, "turn")], key=key)


def plan_tool_end(
    transaction: WriteTransaction, meta: ToolEndMeta, payload: NewPayload, sources: Sources
) -> Recorded | None:
    """Record how a tool call ended. Return None where another run has recorded that, or makes the call.

    What became of a call is for the run to say that made it. It does so too where another run has not waited for it,
    and has recorded that nobody knows.

    Raises:
        UnknownTurnError: there is no such turn.
        MetaError: it is no call of an assistant turn.
        ToolCallTakenError: it was denied, or answered by a person, and another run has made it.
    """
    turn = _turn_of(transaction, meta)
    event_id = tool_event_id(TOOL_END, turn.header.id, meta.block, meta.attempt)
    begun = transaction.event(tool_event_id(TOOL_CALL, turn.header.id, meta.block, meta.attempt))
    ended = transaction.event(event_id)
    if meta.ending in _SAID_OF_NO_CALL and (begun is not None or ended is not None):
        raise _taken(meta)
    if ended is not None:
        came_late = begun is not None and (
            not is_said_here(ended, turn)
            or (meta.ending in _SAID_OF_A_CALL and meta_of(ended, ToolEndMeta).ending == "unknown")
        )
        event_id = late_end_id(turn.header.id, meta.block, meta.attempt)
        if not came_late or transaction.event(event_id) is not None:
            return None
    if begun is not None and meta.ending == "not_called" and meta.tool_call is None:
        return None  # not by this run, that is
    citations = [cite(turn, "turn")]
    if begun is not None:
        citations.append(cite_event(transaction, begun.header.id, "tool_call", TOOL_CALL))
        meta = msgspec.structs.replace(meta, tool_call=begun.header.id)
    event = EventDraft(topic=TOOL_END, meta=meta, id=event_id)
    if turn.erased:
        payload = NO_PAYLOAD  # nobody would find it by whom it is of: the turn of the results has it, and a subject
    return plan_event(transaction, event, payload, sources, citations, key=key_after(transaction, [turn]))


def _turn_of(transaction: ReadTransaction, meta: ToolCallMeta | ToolEndMeta) -> Recorded:
    """Return the turn of a call, which is one that an assistant's turn can have."""
    turn = find_turn(transaction, meta.turn)
    role = turn_meta(turn).role
    if role != "assistant":
        raise MetaError(f"tool call: turn {meta.turn!r} is of the {role}, and calls no tools", field="turn")
    if meta.block < 0 or meta.attempt < 1:
        what = f"block {meta.block}, attempt {meta.attempt}"
        raise MetaError(f"tool call: {what}: blocks are counted from 0, attempts from 1", field="tool_call")
    return turn


def _taken(meta: ToolCallMeta | ToolEndMeta) -> ToolCallTakenError:
    return ToolCallTakenError(
        f"another run has made the tool call in block {meta.block} of turn {meta.turn!r}: it is not made twice"
    )


def plan_results(
    transaction: WriteTransaction,
    turn: TurnDraft,
    payload: NewPayload,
    ends: Sequence[ToolEndMeta],
    known: Sequence[str],
    sources: Sources,
) -> Recorded:
    """Record how tool calls ended, and the turn that has their results. Return the turn.

    Args:
        transaction: where to record them.
        turn: the turn.
        payload: its payload.
        ends: the calls whose end is not recorded yet.
        known: ids of the ends that are.
        sources: where ids, times and salts come from.

    Raises:
        UnknownTurnError: there is no such turn.
        HeadConflictError: the bookmark is not where it was expected.
        ToolCallTakenError: a call was denied, or answered by a person, and another run has made it.
    """
    recorded = [plan_tool_end(transaction, end, NO_PAYLOAD, sources) for end in ends]
    ids = (*known, *(end.header.id for end in recorded if end is not None))
    meta = msgspec.structs.replace(turn.meta, tool_ends=ids)
    return plan_turn(transaction, msgspec.structs.replace(turn, meta=meta), payload, sources)


class Attempt(Struct, frozen=True, kw_only=True):
    """The events of one attempt to call a tool: its beginning, and its end. At least one of them is there.

    The end is that of the run that made it, where another one had recorded before that nobody knows.

    Attributes:
        number: which it is, from 1.
        begun: its beginning.
        ended: its end.
        is_claimed: whether another log says so, of a call that was recorded in this one.
    """

    number: int
    begun: Recorded | None
    ended: Recorded | None
    is_claimed: bool = False


def attempts_of(transaction: ReadTransaction, turn: Recorded, block: int) -> list[Attempt]:
    """Return the attempts of a tool call, the first one first, and among them what other logs say of it."""
    found: list[Attempt] = []
    of = turn.header.id
    for number in count(1):
        begun, ended = (
            _event_of(transaction, tool_event_id(topic, of, block, number), topic, of)
            for topic in (TOOL_CALL, TOOL_END)
        )
        if begun is None and ended is None:
            return found
        late = _event_of(transaction, late_end_id(of, block, number), TOOL_END, of)
        if begun is not None and ended is not None and late is not None and is_said_here(late, turn):
            ends = (ended, late) if not is_said_here(ended, turn) else (late,)
        else:
            ends = (ended,)
        for is_claimed in (True, False):
            own = [
                next((event for event in events if event is not None and is_said_here(event, turn) != is_claimed), None)
                for events in ((begun,), ends)
            ]
            if any(own):
                found.append(Attempt(number=number, begun=own[0], ended=own[1], is_claimed=is_claimed))
    return found


def is_said_here(recorded: Recorded, turn: Recorded) -> bool:
    """Tell whether what an event says of a turn counts: anybody's log can say anything of a turn of this one."""
    return recorded.arrival is not Arrival.GUEST or turn.arrival is Arrival.GUEST


def _event_of(transaction: ReadTransaction, event: str, topic: str, turn: str) -> Recorded | None:
    """Return an event of a tool call. An id can be chosen: what is no event of this call is None."""
    recorded = transaction.event(event)
    return recorded if recorded is not None and _is_of(recorded, topic, turn) else None


def _is_of(recorded: Recorded, topic: str, turn: str) -> bool:
    return recorded.header.topic == topic and recorded.header.cited("turn") == turn


def results_turn(end: str, children: Sequence[Recorded]) -> Recorded | None:
    """Return the turn that has the result of a call, by the id of its end, among those that continue the call's."""
    return next((child for child in children if ("tool_end", end) in _cited(child)), None)


def _cited(recorded: Recorded) -> list[tuple[str, str]]:
    return [(citation.relation, citation.id) for citation in recorded.header.citations]
