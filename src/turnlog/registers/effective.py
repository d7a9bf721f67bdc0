"""Which register events have effect: those recorded here, and those that were confirmed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from turnlog.errors import CorruptionError
from turnlog.events import TRUST, Arrival, Recorded, check_cited, unreadable
from turnlog.store import ReadTransaction


class Held(Struct, frozen=True, kw_only=True):
    """The event that holds of each name of a register, as far as the log was read.

    Attributes:
        events: by name, in no order. It is never changed.
        last: the last event that was read for it, of the register or a confirmation; None where there is none.
        erasure: the last erasure of the log then.
        is_final: whether none of what was read can say more later, when another key is here.
    """

    events: Mapping[str, Recorded] = {}
    last: Recorded | None = None
    erasure: int = 0
    is_final: bool = True


def held(transaction: ReadTransaction, topic: str, name_of: Callable[[Recorded], str], known: Held) -> Held:
    """Return what holds of each name of a register.

    Args:
        transaction: what to read.
        topic: the register's.
        name_of: returns the name in an event of the register.
        known: what held of it earlier: only what has come since is read. In a log that is not that one all is.

    Raises:
        CorruptionError: a confirmation cites what is not there, or was changed.
        SealedError: an event is sealed, and its key is not here.
    """
    erasure = transaction.last_erasure()
    base = known if known.erasure == erasure else Held(erasure=erasure)
    last = base.last
    read = transaction.log(0 if last is None else last.global_position - 1, topics=[topic, TRUST])
    if last is not None and not _is_same(next(read, None), last):
        return held(transaction, topic, name_of, Held())
    events: dict[str, Recorded] = {}
    is_final = base.is_final
    for recorded in read:
        for event in _effective(transaction, recorded, topic):
            if not event.unreadable:
                events[name_of(event)] = event
            elif not event.erased:
                is_final = False
        last = recorded
    if last is base.last:
        return base
    return Held(events={**base.events, **events}, last=last, erasure=erasure, is_final=is_final)


def _is_same(found: Recorded | None, kept: Recorded) -> bool:
    """Tell whether an event is where it was: else the log was cut off, or is another snapshot."""
    place = None if found is None else (found.header.id, found.global_position)
    return place == (kept.header.id, kept.global_position)


def _effective(transaction: ReadTransaction, recorded: Recorded, topic: str) -> Iterator[Recorded]:
    """Iterate over the events of a register that take effect with an event of the log.

    One that came with an import takes effect when it is confirmed. Only confirmations that were recorded here count.
    """
    if recorded.arrival != Arrival.RECORDED or recorded.erased:
        return
    if recorded.unreadable:
        # What it allows or forbids is not known, and what would hold without it may be the opposite.
        raise unreadable(recorded, f"the {recorded.header.topic} event {recorded.header.id!r}")
    if recorded.header.topic == TRUST:
        yield from (event for event in _confirmed(transaction, recorded) if event.header.topic == topic)
    else:
        yield recorded


def _confirmed(transaction: ReadTransaction, trust: Recorded) -> Iterator[Recorded]:
    """Iterate over the events that a confirmation cites."""
    for citation in trust.header.citations:
        event = transaction.event(citation.id)
        if event is None:
            raise CorruptionError(f"event {trust.header.id!r} confirms {citation.id!r}, which cannot be found")
        check_cited(trust, citation, event)
        yield event


def imported(transaction: ReadTransaction, topics: Sequence[str]) -> Iterator[Recorded]:
    """Iterate over the register events that came with an import and were not confirmed, in global order."""
    return (recorded for recorded, is_confirmed in arrived(transaction, topics) if not is_confirmed)


def arrived(transaction: ReadTransaction, topics: Sequence[str]) -> Iterator[tuple[Recorded, bool]]:
    """Iterate over the register events that came with an import, each with whether it was confirmed here."""
    known: set[str] = set()
    for trust in transaction.log(topics=[TRUST]):
        if trust.arrival == Arrival.RECORDED:
            known.update(citation.id for citation in trust.header.citations)
    for recorded in transaction.log(topics=topics):
        if recorded.arrival != Arrival.RECORDED and not recorded.unreadable:
            yield recorded, recorded.header.id in known
