"""Which erasures are still to be carried out, in what was made of a log or delivered of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from msgspec import Struct

from turnlog.events import ERASURE, Recorded
from turnlog.store import ReadTransaction, Store, past_damage

FORGOTTEN = "what it failed with is not kept: something was erased since"
"""What stands in the place of an error that may repeat what was erased."""

ERASURES_AT_ONCE = 50
"""How many erasures are read at once, each of which may name a thousand events."""


class Reached(Protocol):
    """How far somebody has come with erasures."""

    @property
    def erased_to(self) -> int:
        """The global position of the last erasure that was carried out."""
        ...

    @property
    def erased_id(self) -> str | None:
        """The id of the event there; None where it is not known."""
        ...


class Due(Struct, frozen=True, kw_only=True):
    """Erasures that are to be carried out.

    Attributes:
        after: the global position above which they are.
        last: the global position of the last one.
        last_id: its id.
    """

    after: int
    last: int
    last_id: str


def erasures_due(transaction: ReadTransaction, state: Reached) -> Due | None:
    """Return the erasures that were not carried out; None without any.

    These are all, where the last one that was carried out is not in the log: an older copy of it was put back.
    """
    with past_damage(transaction):
        last = transaction.at_global(transaction.last_erasure())
        if last is None or (last.global_position, last.header.id) == (state.erased_to, state.erased_id):
            return None
        done = transaction.at_global(state.erased_to)
    is_there = done is not None and done.header.id == state.erased_id
    return Due(after=state.erased_to if is_there else 0, last=last.global_position, last_id=last.header.id)


def due_erasures(store: Store, due: Due) -> Iterator[Recorded]:
    """Iterate over the events of erasures that are to be carried out."""
    after = due.after
    while after < due.last:
        with store.read() as transaction, past_damage(transaction):
            erasures = list(islice(transaction.log(after, topics=(ERASURE,)), ERASURES_AT_ONCE))
        if not erasures:
            return
        yield from (erasure for erasure in erasures if erasure.global_position <= due.last)
        after = erasures[-1].global_position
