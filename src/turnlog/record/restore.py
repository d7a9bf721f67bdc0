"""Plans that take over events of another store exactly as they are: ids, bytes, streams and positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct

from turnlog.digest import sri
from turnlog.errors import ConflictError, CorruptionError, ErasedError, FormatError, IdConflictError, PositionTakenError
from turnlog.events import (
    BASE,
    CALL,
    HOLD,
    PARENT,
    REGISTERS,
    REPLY,
    SHAPES,
    SUMMARY,
    TARGET,
    TOOL_CALL,
    TOOL_END,
    TOOLS,
    TRUST,
    TURN,
    Arrival,
    Event,
    Recorded,
    is_of_format,
)
from turnlog.projections.belonging import threads_of
from turnlog.record.calls import cited_event, read_request
from turnlog.store import NewPayload, ReadTransaction, Taken, WriteTransaction

_CITED_TOPICS: Mapping[str, str] = {
    PARENT: TURN,
    "turn": TURN,
    "call": CALL,
    "reply": REPLY,
    BASE: CALL,
    "tools": TOOLS,
    "summary": SUMMARY,
    "tool_call": TOOL_CALL,
    "tool_end": TOOL_END,
    "from": TURN,
    "to": TURN,
}
"""What an event of turnlog's own cites as something is of this topic."""


class RestoredEvent(Struct, frozen=True, kw_only=True):
    """An event from elsewhere: its parts, its payload, and the line it was read from.

    Attributes:
        line: number of the line, from 1.
        event: the event.
        payload: its payload.
        arrival: how it comes into the store.
        at: the global position that it must get here, where it has to be a certain one.
    """

    line: int
    event: Event
    payload: NewPayload
    arrival: Arrival
    at: int | None = None


class Place(NamedTuple):
    """What of an earlier event must be known, to check one that cites it."""

    leaf_hash: bytes
    topic: str
    stream: str
    position: int


Find = Callable[[str], Place | None]
"""Finds an earlier event by its id."""


def place_of(recorded: Recorded) -> Place:
    """Return what must be known of an event in a store."""
    header = recorded.header
    return Place(recorded.leaf_hash, header.topic, header.stream, header.position)


def plan_restore(transaction: WriteTransaction, restored: RestoredEvent) -> Recorded | None:
    """Take over one event. Return None if it is stored already, byte for byte.

    Raises:
        IdConflictError: another event has its id or its place in the stream.
        FormatError: what it cites is unknown or has another digest, or its position does not follow.
        ConflictError: it must get a global position that the next event would not get.
    """
    if restored.at is not None:
        if is_at(transaction, restored.event, restored.at):
            return None
        if transaction.log_end() != restored.at - 1:
            raise ConflictError(
                f"line {restored.line}: somebody else has written to the log while it was restored: "
                "import again, then the rest comes in as events of another log"
            )
    elif is_known(transaction, restored.event, restored.line):
        return None

    def find(event_id: str) -> Place | None:
        found = transaction.event(event_id)
        return None if found is None else place_of(found)

    check_citations(restored.event, restored.line, find)
    outcome = transaction.append(restored.event, restored.payload, restored.arrival)
    if outcome is Taken.ID:
        raise _id_taken(restored.event, restored.line)
    if isinstance(outcome, Taken):
        raise _diverged(transaction, restored.event, restored.line)
    _check_call(transaction, outcome, restored.line)
    return outcome


def _check_call(transaction: ReadTransaction, recorded: Recorded, line: int) -> None:
    """Check what a call and a turn that came of one say of each other, which takes more than the event itself.

    Raises:
        FormatError: a request is not what its call says, or builds on a call of another thread; or a turn has a reply
            to another call than its own.
    """
    header = recorded.header
    if header.topic == TURN and (reply_id := header.cited("reply")) is not None:
        reply = transaction.event(reply_id)
        if reply is None or reply.header.cited("call") != header.cited("call"):
            raise FormatError(f"line {line}: turn {header.id!r} has the reply to another call than its own", line=line)
    if header.topic != CALL or recorded.unreadable:
        return
    try:
        base = cited_event(transaction, recorded, BASE)
        if base is not None and not _threads(transaction, recorded) & _threads(transaction, base):
            raise FormatError(f"line {line}: call {header.id!r} builds on a call of another thread", line=line)
        read_request(transaction, recorded)
    except ErasedError:
        return  # what it builds on is gone, and so nobody can tell
    except CorruptionError as error:
        raise FormatError(f"line {line}: call {header.id!r}: {error}", line=line) from error


def is_at(transaction: ReadTransaction, event: Event, global_position: int) -> bool:
    """Tell whether an event stands at a global position of this log, byte for byte, erased or not."""
    stored = transaction.at_global(global_position)
    return stored is not None and stored.state == event.state


def is_known(transaction: ReadTransaction, event: Event, line: int) -> bool:
    """Tell whether an event is stored already, byte for byte, erased or not.

    Raises:
        IdConflictError: another event has its id or its place in the stream.
    """
    header = event.header
    stored = transaction.event(header.id)
    if stored is None:
        if header.position and transaction.at(header.stream, header.position) is not None:
            raise _diverged(transaction, event, line)
        return False
    if stored.state != event.state:
        raise _id_taken(event, line)
    return True


def check_citations(event: Event, line: int, find: Find) -> None:
    """Check that all that an event cites is there before it, with the digest that is cited, and that it follows it.

    Raises:
        FormatError: it is not, or does not.
    """
    header = event.header
    found: dict[str, Place] = {}
    for citation in header.citations:
        known = find(citation.id)
        if known is None:
            raise FormatError(
                f"line {line}: event {header.id!r} cites the unknown event {citation.id!r} as its {citation.relation}",
                line=line,
            )
        if sri(known.leaf_hash) != citation.digest:
            raise FormatError(
                f"line {line}: event {header.id!r} cites {citation.id!r} with another digest than it has", line=line
            )
        if not _is_of(header.topic, citation.relation, known.topic):
            raise FormatError(
                f"line {line}: event {header.id!r} cites {citation.id!r} as its {citation.relation}, "
                f"and that is a {known.topic} event",
                line=line,
            )
        found[citation.id] = known
    if header.position and not _follows(event, found):
        raise FormatError(
            f"line {line}: event {header.id!r} at position {header.position} of stream {header.stream!r} "
            "does not follow the turn before it there",
            line=line,
        )


def _is_of(citing: str, relation: str, cited: str) -> bool:
    """Tell whether an event of a topic can cite one of another as something."""
    if citing == TRUST and relation == TARGET:
        return cited in REGISTERS
    if citing == HOLD and relation == TARGET:
        return cited in (TURN, HOLD)
    if relation == PARENT or citing in SHAPES or is_of_format(citing):
        return _CITED_TOPICS.get(relation, cited) == cited
    return True


def _follows(event: Event, cited: Mapping[str, Place]) -> bool:
    header = event.header
    before = cited.get(header.parents[0].id) if header.parents else None
    return before is not None and (before.stream, before.position) == (header.stream, header.position - 1)


def _id_taken(event: Event, line: int) -> IdConflictError:
    event_id = event.header.id
    return IdConflictError(f"line {line}: the store has another event under id {event_id!r}", event_id=event_id)


def _diverged(transaction: ReadTransaction, event: Event, line: int) -> PositionTakenError:
    header = event.header
    taken = transaction.at(header.stream, header.position)
    other = "another event" if taken is None else repr(taken.header.id)
    return PositionTakenError(
        f"line {line}: in this store stream {header.stream!r} goes on with {other} instead of {header.id!r}: "
        "the two stores have diverged",
        event_id=header.id,
    )


def _threads(transaction: ReadTransaction, call: Recorded) -> set[str]:
    """Return the threads of the turn that a model was asked to go on from."""
    turn = cited_event(transaction, call, "turn")
    return set() if turn is None else set(threads_of(transaction, turn.header.stream, turn.header.position))
