"""Which register events have effect: those recorded here, and those that were confirmed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnlog.errors import CorruptionError
from turnlog.events import TRUST, Arrival, Recorded, check_cited, unreadable
from turnlog.store import ReadTransaction


def effective(transaction: ReadTransaction, topic: str) -> Iterator[Recorded]:
    """Iterate over the events of a register that have effect, in the order in which they took it.

    One that came with an import takes effect when it is confirmed. Only confirmations that were recorded here count.

    Raises:
        CorruptionError: a confirmation cites what is not there, or was changed.
        SealedError: an event is sealed, and its key is not here.
    """
    for recorded in transaction.log(topics=[topic, TRUST]):
        if recorded.arrival != Arrival.RECORDED or recorded.erased:
            continue
        if recorded.unreadable:
            # What it allows or forbids is not known, and what would hold without it may be the opposite.
            raise unreadable(recorded, f"the {recorded.header.topic} event {recorded.header.id!r}")
        if recorded.header.topic == TRUST:
            yield from (event for event in confirmed(transaction, recorded) if event.header.topic == topic)
        else:
            yield recorded


def confirmed(transaction: ReadTransaction, trust: Recorded) -> Iterator[Recorded]:
    """Iterate over the events that a confirmation cites."""
    for citation in trust.header.citations:
        event = transaction.event(citation.id)
        if event is None:
            raise CorruptionError(f"event {trust.header.id!r} confirms {citation.id!r}, which cannot be found")
        check_cited(trust, citation, event)
        if not event.unreadable:
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
