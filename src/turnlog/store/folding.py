"""Folding a log anew into a scratch database, a page at a time, so that no snapshot is held for long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from math import inf
from typing import Generic, Self, TypeVar

import msgspec

from turnlog.errors import SchemaError
from turnlog.events import Recorded
from turnlog.store.transactions import ReadTransaction, ScratchTransaction, SyncProjection, past_damage

PAGE_EVENTS = 1000

TRIES_MAX = 3
"""How often a log is folded ahead of the write lock, where others erase something of it meanwhile."""

Scratch = TypeVar("Scratch", bound=ScratchTransaction)
Handle = TypeVar("Handle")
Reading = Callable[[], AbstractContextManager[ReadTransaction]]
"""Opens a snapshot."""
Progress = Callable[[int, int], None]
"""Called with events done and events in all."""


def named(projections: Sequence[SyncProjection], names: Sequence[str]) -> list[SyncProjection]:
    """Return the projections of these names; all of them where none is named.

    Raises:
        SchemaError: there is none of a name.
    """
    known = {projection.name: projection for projection in projections}
    if unknown := [name for name in names if name not in known]:
        raise SchemaError(f"no projection {unknown[0]!r} (one of {', '.join(map(repr, known))})")
    return [known[name] for name in names] or list(projections)


def fold_log(target: ScratchTransaction, reading: Reading, progress: Progress | None = None) -> int:
    """Fold the log as it is now, a snapshot a page, and return the last event's global position."""
    after = 0
    with reading() as transaction:
        end = transaction.log_end()
    while after < end:
        with reading() as transaction:
            after = _fold_page(target, transaction, after)
        if progress is not None:
            progress(after, end)
    return after


def fold_rest(target: ScratchTransaction, transaction: ReadTransaction, after: int) -> None:
    """Fold all events above a global position."""
    while (reached := _fold_page(target, transaction, after)) > after:
        after = reached


def fold_anew(
    scratch: Callable[[], AbstractContextManager[Scratch]],
    reading: Reading,
    writing: Callable[[], AbstractContextManager[tuple[Handle, ReadTransaction]]],
    put: Callable[[Handle, Scratch], None],
    progress: Progress | None = None,
) -> None:
    """Fold the log, and put what that gives in the place of tables, while others append and erase.

    Only what came meanwhile is folded under the write lock; where something was erased, all is folded again, for what
    it had is in there: ahead of the lock, or the last time under it.

    Args:
        scratch: opens a database to fold into.
        reading: opens a snapshot.
        writing: takes the write lock, and commits on leaving. Gives what tables are written with, and what is read.
        put: puts tables that were folded in the place of those that are there.
        progress: told of each page.
    """
    for tries_left in reversed(range(TRIES_MAX)):
        with scratch() as target:
            with reading() as transaction:
                erasures = transaction.last_erasure()
            after = fold_log(target, reading, progress)
            with writing() as (handle, transaction):
                if transaction.last_erasure() == erasures:
                    fold_rest(target, transaction, after)
                    put(handle, target)
                    return
                if not tries_left:
                    with scratch() as again:
                        fold_rest(again, transaction, 0)
                        put(handle, again)


class Refolding(Generic[Scratch]):
    """The tables of projections without what is about to be erased: folded ahead, and finished under the write lock.

    Only projections that rest on private parts of the events in question are folded.
    """

    def __init__(
        self,
        projections: Sequence[SyncProjection],
        scratch: Callable[[Sequence[SyncProjection]], AbstractContextManager[Scratch]],
        foreseen: Sequence[Recorded],
        until: int,
    ) -> None:
        """Take what is to be folded.

        Args:
            projections: all that the store has.
            scratch: opens a database to fold into.
            foreseen: events that are erased by the time of `finish`, by this transaction or by somebody else.
            until: the global position up to which to fold ahead.
        """
        self._projections = projections
        self._scratch = scratch
        self._erased = frozenset(recorded.global_position for recorded in foreseen)
        self._folded = self._resting_on(foreseen)
        self._until = until
        self._after = self._erasures = 0
        self._damaged: dict[int, Recorded] = {}
        self._stack = ExitStack()
        self._target: Scratch | None = None

    def __enter__(self) -> Self:
        """Return itself. What it is folded into is gone on leaving."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was folded."""
        self._stack.close()

    def fold_ahead(self, reading: Reading) -> None:
        """Fold as if the foreseen events were erased, a snapshot a page, so that others can append meanwhile."""
        if not self._folded:
            return
        self._target = target = self._stack.enter_context(self._scratch(self._folded))
        with reading() as transaction:
            self._erasures = transaction.last_erasure()
        is_more = True
        while is_more:
            with reading() as transaction, past_damage(transaction):
                reached = _fold_page(target, transaction, self._after, self._until, self._erased, self._damaged)
            is_more, self._after = reached > self._after, reached

    def look(self, transaction: ReadTransaction) -> None:
        """See whether others have erased something since it was folded. Under the write lock, before the plan runs."""
        if transaction.last_erasure() != self._erasures:
            self._target = None

    def finish(
        self, transaction: ReadTransaction, erased: Sequence[Recorded]
    ) -> tuple[Sequence[SyncProjection], Scratch | None]:
        """Fold the rest of the log, of which events are erased by now, and return what has new tables, and those.

        All is folded again where others than the foreseen events were erased, or others have erased something.
        """
        needed = self._resting_on(erased)
        if not needed:
            return (), None
        target = self._target
        names = {projection.name for projection in self._folded}
        if (
            target is None
            or any(projection.name not in names for projection in needed)
            or any(each.global_position <= self._until and each.global_position not in self._erased for each in erased)
        ):
            target, self._after = self._stack.enter_context(self._scratch(needed)), 0
            self._damaged.clear()
        with past_damage(transaction):
            while (reached := _fold_page(target, transaction, self._after, damaged=self._damaged)) > self._after:
                self._after = reached
        gone = {recorded.global_position for recorded in erased}
        left = [recorded for at, recorded in self._damaged.items() if at not in gone]
        for projection in needed if left else ():
            projection.carry_over(target, transaction, left, erased)
        return needed, target

    def _resting_on(self, events: Sequence[Recorded]) -> Sequence[SyncProjection]:
        """Return the projections that rest on private parts of events."""
        return [projection for projection in self._projections if any(map(projection.reads_private, events))]


def _fold_page(
    target: ScratchTransaction,
    transaction: ReadTransaction,
    after: int,
    until: float = inf,
    erased: Collection[int] = (),
    damaged: dict[int, Recorded] | None = None,
) -> int:
    """Fold the events above a global position, at most a page; return the last one's global position.

    Args:
        target: what to fold into.
        transaction: where to read.
        after: the global position.
        until: the last one to fold.
        erased: the global positions of those to fold as if they were erased.
        damaged: takes those whose private part is damaged, where that is read past: they are folded likewise.
    """
    for recorded in islice(transaction.log(after), PAGE_EVENTS):
        if recorded.global_position > until:
            break
        after = recorded.global_position
        if recorded.damaged and damaged is not None:
            damaged[after] = recorded
        target.fold(_without_private(recorded) if after in erased or recorded.damaged else recorded)
    return after


def _without_private(recorded: Recorded) -> Recorded:
    """Return an event as it is once it is erased."""
    if recorded.header.private is None:
        return recorded
    return msgspec.structs.replace(recorded, private=None, private_state=None, sealed=None)
