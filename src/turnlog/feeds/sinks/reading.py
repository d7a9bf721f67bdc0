"""What a feed reads of a log: batches of records, each of one snapshot, and events that were erased."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from turnlog.errors import CorruptionError
from turnlog.events import ERASURE, Recorded
from turnlog.feeds.erasures import ERASURES_AT_ONCE, Due, erasures_due
from turnlog.feeds.records import EventRecords, content_record
from turnlog.feeds.sinks.interface import Batch, Choice, SinkRecord, record_key
from turnlog.feeds.sinks.states import FeedState
from turnlog.feeds.sinks.status import check_log
from turnlog.record.lookup import erased_by
from turnlog.store import ReadTransaction, Store, past_damage
from turnlog.store.pages import check_dense

ERASED_AT_ONCE = 10_000
"""How many erased events are handed out at once, about: for each time a sink may look through all that it has."""


class LogReader:
    """Reads batches of one log. Each is of one snapshot: content that was erased before it is not in it."""

    def __init__(self, store: Store, choice: Choice, *, reads_content: bool = True) -> None:
        """Take the store, what is wanted of it, and whether content is read for the records."""
        self._store = store
        self._choice = choice
        self._reads_content = reads_content
        self._records = EventRecords()

    def batch(self, state: FeedState, *, until: int | None, events_max: int, bytes_max: int) -> Batch | None:
        """Return the next batch; None where the log has no more.

        Args:
            state: how far the feed has come.
            until: a global position, up to which it goes at most.
            events_max: how many events it has at most.
            bytes_max: how many bytes of content, about.

        Raises:
            StoreCutError: the log ends before that, has another event there, or is another one.
            CorruptionError: a stored event is damaged, or one is missing.
        """
        with self._store.read() as transaction:
            end = transaction.log_end()
            genesis = transaction.genesis()
            check_log(transaction, state)
            after = state.position
            if genesis is None or end == after:
                return None
            identity = genesis.header.id
            last = end if until is None else min(until, end)
            found: list[Recorded] = []
            records: list[SinkRecord] = []
            size = 0
            for recorded in transaction.log(after, topics=self._choice.topics):
                if recorded.global_position > last:
                    break
                if len(found) == events_max or (found and size + (recorded.size or 0) > bytes_max):
                    last = found[-1].global_position
                    break
                found.append(recorded)
                records.append(self._record(transaction, recorded, identity))
                size += recorded.size or 0
            if not self._choice.topics:
                check_dense(found, after)
            at_last = transaction.at_global(last)
            if at_last is None:
                raise CorruptionError(
                    f"global position {last:,} is missing in the log: run `turnlog verify`", global_position=last
                )
            return Batch(
                log=identity,
                first=after + 1,
                last=last,
                event_id=at_last.header.id,
                digest=at_last.digest,
                records=records,
                end=end,
            )

    def check(self, state: FeedState) -> None:
        """Check that a feed can go on from where it is; see `batch`.

        Raises:
            StoreCutError: the log ends before that, has another event there, or is another one.
        """
        with self._store.read() as transaction:
            check_log(transaction, state)

    def log(self) -> str | None:
        """Return the id of the log; None while it is empty."""
        with self._store.read() as transaction:
            genesis = transaction.genesis()
            return None if genesis is None else genesis.header.id

    def is_erased(self, state: FeedState, due: Due) -> bool:
        """Tell whether erasures name something that a feed may have delivered."""
        return state.has_delivered and any(self.erased(due.after, max(state.position, state.sent)))

    def erasures_due(self, state: FeedState) -> Due | None:
        """Return the erasures that a feed has not carried out; see `erasures_due`."""
        with self._store.read() as transaction:
            return erasures_due(transaction, state)

    def erased(self, after: int, before: int) -> Iterator[list[SinkRecord]]:
        """Iterate over erased events that erasures above a global position name.

        Args:
            after: a global position.
            before: only events up to this global position.
        """
        found: dict[int, SinkRecord] = {}
        while True:
            with self._store.read() as transaction, past_damage(transaction):
                genesis = transaction.genesis()
                erasures = list(islice(transaction.log(after, topics=(ERASURE,)), ERASURES_AT_ONCE))
                if genesis is None or not erasures:
                    break
                found |= {
                    target.global_position: self._record(transaction, target, genesis.header.id)
                    for erasure in erasures
                    for target in erased_by(transaction, erasure)
                    if target.global_position <= before
                }
            after = erasures[-1].global_position
            if len(found) >= ERASED_AT_ONCE:
                yield [found[position] for position in sorted(found)]
                found = {}
        if found:
            yield [found[position] for position in sorted(found)]

    def _record(self, transaction: ReadTransaction, recorded: Recorded, log: str) -> SinkRecord:
        is_closed = recorded.unreadable and not recorded.erased
        if self._choice.public:
            shown = msgspec.structs.replace(recorded, private=None)
        elif recorded.sealed is not None and not self._choice.unseal:
            shown, is_closed = msgspec.structs.replace(recorded, private=None), True
        else:
            shown = recorded
        has_content = self._reads_content and shown.hash is not None
        payload = transaction.payload(shown) if has_content else None
        fields = {
            "idempotency_key": record_key(log, recorded),
            "log": log,
            **self._records.of(transaction, shown),
            "closed": is_closed,
            "content": None if payload is None else content_record(shown, payload),
        }
        return SinkRecord(log=log, recorded=shown, fields=fields)
