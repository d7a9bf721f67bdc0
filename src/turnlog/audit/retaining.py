"""Retention: threads of which every turn is older than a time are erased, but for those that a legal hold keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, filterfalse

from msgspec import Struct

from turnlog.audit.asking import Request
from turnlog.audit.erasing import GoneOnError, Search, damage_told, erase
from turnlog.audit.erasure_report import ErasureReport
from turnlog.errors import ConflictError, HoldError, MetaError
from turnlog.events.meta import turn_meta
from turnlog.events.times import said_at
from turnlog.model.kinds import check_type
from turnlog.projections.threads import Thread, latest_threads, turns_backwards
from turnlog.sources import Sources
from turnlog.store import ReadTransaction, Store, past_damage

_CLOCKS_DIFFER = timedelta(days=1)
"""By how much clocks may differ."""

_ROUNDS_MAX = 10
"""So often threads are looked for anew, because somebody has gone on with one of them."""


class RetentionReport(Struct, frozen=True, kw_only=True):
    """Threads that are older than they should be kept, and what became of them.

    Attributes:
        threads: the threads whose last turn is older, oldest activity first.
        held: ids of those that a legal hold keeps, each with the line that says so.
        erasure: what was erased, or would be; None where there is nothing to erase.
        dry_run: whether nothing was done.
    """

    threads: tuple[Thread, ...] = ()
    held: dict[str, str] = {}
    erasure: ErasureReport | None = None
    dry_run: bool = True


def retain(
    store: Store,
    older_than: timedelta,
    *,
    reason: str | None = None,
    by: str | None = None,
    dry_run: bool = True,
    now: datetime | None = None,
    sources: Sources,
) -> RetentionReport:
    """Erase threads whose last turn is older than a time. See `TurnLog.retain`."""
    if check_type(older_than, timedelta, "older_than") <= timedelta(0):
        raise MetaError("older_than: expected a time above zero", field="older_than")
    if not dry_run and not (reason or "").strip():
        raise MetaError("reason: say why: it is all that will be left to tell", field="reason")
    now = now or datetime.now(UTC)
    try:
        limit = now - older_than
    except OverflowError:
        limit = datetime.min.replace(tzinfo=UTC)
    for _ in range(_ROUNDS_MAX):
        with damage_told(), store.read() as transaction, past_damage(transaction):
            seen = transaction.log_end()
            old = latest_threads(transaction, among=lambda thread: _is_old(transaction, thread, now, limit))
            due, kept = _due_and_kept(transaction, [thread.id for thread in old])
        erasure = None
        if due:
            asked = Request(threads=tuple(thread.id for thread in old if thread.id in due))
            try:
                erasure = erase(
                    store, asked, reason=reason or "dry run", by=by, dry_run=dry_run, sources=sources, seen=seen
                )
            except GoneOnError:  # somebody came back to one of them meanwhile
                continue
        return RetentionReport(
            threads=tuple(thread for thread in old if thread.id in due or thread.id in kept),
            held=kept,
            erasure=erasure,
            dry_run=dry_run,
        )
    raise ConflictError("old threads are gone on with all the time: try again")


def _is_old(transaction: ReadTransaction, thread: Thread, now: datetime, limit: datetime) -> bool:
    """Tell whether nothing of a thread was said since a time.

    The last turn may have the time of a clock that was wrong: all turns are looked at. What claims to be of the future,
    as others' turns can, was not said then; a thread of which all does is not old.
    """
    turns = (turn for turn in turns_backwards(transaction, thread.id, 0) if not turn.erased)
    said = (said_at(turn_meta(turn), turn.header.time) for turn in turns)
    is_of_the_past = False
    for time in chain((datetime.fromisoformat(thread.last),), said):
        if time <= now + _CLOCKS_DIFFER:
            if time >= limit:
                return False
            is_of_the_past = True
    return is_of_the_past


def _due_and_kept(transaction: ReadTransaction, threads: Sequence[str]) -> tuple[set[str], dict[str, str]]:
    """Return the threads of which there is something to erase, and those that a hold keeps, with the line that says so.

    To look for what carries a thread's content takes a look at the whole log: one look serves all threads, but where
    a hold refuses some of them, or something is left of threads that began with an erased turn. They are halved until
    it is known which.
    """
    due: set[str] = set()
    kept: dict[str, str] = {}
    whole = [thread for thread in threads if _is_there(transaction, thread)]
    waiting = [(whole, True), ([*filterfalse(set(whole).__contains__, threads)], False)]
    while waiting:
        group, is_whole = waiting.pop()
        if not group:
            continue
        middle = len(group) // 2
        halves = [(group[:middle], is_whole), (group[middle:], is_whole)]
        try:
            search = Search(transaction, Request(threads=tuple(group)))
        except HoldError as error:
            if middle:
                waiting += halves
            else:
                kept[group[0]] = str(error)
            continue
        if not search.foreseen:
            continue
        if is_whole or not middle:
            due.update(group)
        else:
            waiting += halves
    return due, {thread: kept[thread] for thread in threads if thread in kept}


def _is_there(transaction: ReadTransaction, turn: str) -> bool:
    """Tell whether a turn has something that can be erased."""
    found = transaction.event(turn)
    return found is not None and not found.erased and found.header.private is not None
