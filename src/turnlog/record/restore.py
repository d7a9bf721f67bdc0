"""Plans that take over events of another store exactly as they are: ids, bytes, streams and positions."""

from __future__ import annotations

from msgspec import Struct

from turnlog.errors import FormatError, IdConflictError
from turnlog.events import BOOKMARK, TURN, Event, bookmark_meta
from turnlog.store import NewPayload, WriteTransaction


class RestoredEvent(Struct, frozen=True, kw_only=True):
    """An event from elsewhere: its exact bytes, decoded, its payload, and the line it was read from."""

    line: int
    state: bytes
    event: Event
    payload: NewPayload


def plan_restore(transaction: WriteTransaction, restored: RestoredEvent) -> bool:
    """Take over one event. Return False if it is stored already, byte for byte.

    Raises:
        IdConflictError: another event has its id or its place in the stream.
        FormatError: a parent is unknown or is not the one that the event cites, or the position does not follow.
    """
    event, line = restored.event, restored.line
    stored = transaction.event(event.id)
    if stored is not None:
        if stored.state != restored.state:
            raise IdConflictError(
                f"line {line}: the store has another event under id {event.id!r}; nothing was imported",
                event_id=event.id,
            )
        return False
    _check_parents(transaction, event, line)
    if event.topic == BOOKMARK and isinstance(turn := bookmark_meta(event).turn, str):
        known = transaction.event(turn)
        if known is None or known.event.topic != TURN:
            raise FormatError(
                f"line {line}: event {event.id!r} puts a bookmark on the unknown turn {turn!r}", line=line
            )
    previous = event.position - 1
    if previous >= 0 and transaction.at(event.stream, previous) is None:
        raise FormatError(
            f"line {line}: event {event.id!r} is at position {event.position} of its stream, "
            "and the one before is missing",
            line=line,
        )
    if (taken := transaction.at(event.stream, event.position)) is not None:
        raise IdConflictError(
            f"line {line}: in this store stream {event.stream!r} goes on with {taken.event.id!r} "
            f"instead of {event.id!r}: the two stores have diverged; nothing was imported",
            event_id=event.id,
        )
    transaction.append(restored.state, event, restored.payload)
    return True


def _check_parents(transaction: WriteTransaction, event: Event, line: int) -> None:
    for parent in event.parents:
        known = transaction.event(parent.id)
        if known is None or known.event.topic != TURN:
            raise FormatError(f"line {line}: event {event.id!r} continues the unknown turn {parent.id!r}", line=line)
        if known.digest != parent.digest:
            raise FormatError(
                f"line {line}: event {event.id!r} cites its parent {parent.id!r} with another digest", line=line
            )
    before = transaction.at(event.stream, event.position - 1) if event.position else None
    if before is not None and before.event.id != event.parents[0].id:
        raise FormatError(f"line {line}: event {event.id!r} does not follow in its stream {event.stream!r}", line=line)
