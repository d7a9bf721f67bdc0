"""Reading recorded calls. Whatever is followed is checked against the digest that it is cited with."""

from __future__ import annotations

from turnlog.calls.values import Call, UnreadableCall
from turnlog.context import ancestry
from turnlog.errors import CorruptionError, ErasedError
from turnlog.events import CALL, Recorded, unreadable
from turnlog.model import LossReport, Tool, parse_tools
from turnlog.record import find_turn
from turnlog.record.calls import call_meta, cited_event, read_request
from turnlog.store import ReadTransaction


def call_of(transaction: ReadTransaction, recorded: Recorded) -> Call:
    """Return a call with its loss report, and with how its window differs from that of its turn."""
    meta = call_meta(recorded)
    if meta.loss is None and meta.window is None:
        return Call(id=recorded.header.id, meta=meta, loss_report=LossReport())
    kept = read_request(transaction, recorded)
    return Call(
        id=recorded.header.id, meta=meta, loss_report=LossReport(entries=kept.losses), window_change=kept.window
    )


def call_or_why(transaction: ReadTransaction, recorded: Recorded) -> Call | UnreadableCall:
    """Return a call, or why it cannot be read."""
    try:
        return call_of(transaction, recorded)
    except (ErasedError, CorruptionError) as error:
        turn = recorded.header.cited("turn") or ""
        return UnreadableCall(id=recorded.header.id, turn=turn, unreadable=str(error))


def asked_in(transaction: ReadTransaction, headish: str) -> list[tuple[Recorded, Recorded]]:
    """Return the turns of an ancestry that came of calls, each with its call, oldest first.

    Raises:
        CorruptionError: a call is not there, or is not the one that its turn cites.
    """
    found: list[tuple[Recorded, Recorded]] = []
    head = find_turn(transaction, headish)
    for turn in ancestry(transaction, head, transaction.stream, lambda recorded: recorded, {}):
        call = cited_event(transaction, turn, "call")
        if call is None:
            continue
        if call.header.topic != CALL:
            raise CorruptionError(f"turn {turn.header.id!r} came of {call.header.id!r}, which is no call")
        found.append((turn, call))
    return found


def tools_of(transaction: ReadTransaction, call: Recorded) -> tuple[Tool, ...]:
    """Return the tools that a call offered.

    Raises:
        CorruptionError: they cannot be found.
        ErasedError: they are erased.
    """
    recorded = cited_event(transaction, call, "tools")
    if recorded is None:
        return ()
    payload = transaction.payload(recorded)
    if recorded.unreadable:
        raise unreadable(recorded, f"the listing of the tools of call {call.header.id!r}")
    if payload is None:
        raise CorruptionError(f"the tools of call {call.header.id!r} cannot be found")
    return parse_tools(payload)
