"""Folding a log anew into a scratch database, a page at a time, so that no snapshot is held for long."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

import msgspec

from turnlog.events import Recorded
from turnlog.store.transactions import ReadTransaction, ScratchTransaction

PAGE_EVENTS = 1000


def fold_page(target: ScratchTransaction, transaction: ReadTransaction, after: int) -> int:
    """Fold the events above a global position, at most a page; return the last one's global position."""
    for recorded in islice(transaction.log(after), PAGE_EVENTS):
        target.fold(recorded)
        after = recorded.global_position
    return after


def fold_without(
    target: ScratchTransaction, transaction: ReadTransaction, after: int, last: int, erased: Collection[int] = ()
) -> int:
    """Fold a page of events above a global position as if some were erased; return where it ends."""
    for count, recorded in enumerate(transaction.log(after), 1):
        if recorded.global_position > last:
            break
        after = recorded.global_position
        target.fold(without_private(recorded) if after in erased else recorded)
        if count == PAGE_EVENTS:
            break
    return after


def without_private(recorded: Recorded) -> Recorded:
    """Return an event as it is once it is erased."""
    if recorded.header.private is None:
        return recorded
    return msgspec.structs.replace(recorded, private=None, private_state=None, sealed=None)
