"""Copying a log into another store, on whatever engine: the same log there, in groups, and compared at the end.

Events are copied as they lie in the store, erased and sealed ones too: no key is needed. What is derived from them is
made anew. A copy that was stopped goes on where the target's log ends, once that is found to be the beginning of the
source's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from turnlog.audit.merkle import Frontier
from turnlog.audit.tree import PAGE_LEAVES, gain, grow
from turnlog.digest import sri
from turnlog.errors import ConflictError, CorruptionError, StoreReadOnlyError, tell_what_went_in
from turnlog.events import ERASURE, Recorded
from turnlog.projections.checkpoints import CHECKPOINTS, keep, kept
from turnlog.projections.tree import tree_size
from turnlog.record.lookup import erased_by
from turnlog.store import (
    NO_PAYLOAD,
    NewPayload,
    Placement,
    ReadTransaction,
    SQLRow,
    Store,
    StoredRow,
    Taken,
    WriteTransaction,
)
from turnlog.store.payloads import FILE_BYTES_MIN, PayloadPlacer
from turnlog.store.places import is_same_place
from turnlog.store.reading import settled_end

GROUP_EVENTS_MAX = 1000
GROUP_BYTES_MAX = 8 * 1024 * 1024
"""How much is copied in one transaction, in events and in bytes. An event that is larger goes alone."""

Progress = Callable[[int, int], None]
"""Called with events done and events in all, each counted once for the copy and once for the comparison."""

_BESIDE = (Placement.INLINE, Placement.INLINE_ZSTD)
_loader = PayloadPlacer(None)
"""Checks payloads that stand beside their events."""


class CopyReport(Struct, frozen=True, kw_only=True):
    """What a copy did. The target has the first `events` events of the source's log, compared byte for byte.

    Attributes:
        log: the identity of the log; None where it is empty.
        events: number of events in the target.
        added: number of those that this copy brought.
        known: number of those that were there before.
        erased: number of events that were erased in the source after they had been copied, and now are in the target.
        remains: what of them, or of what an earlier copy erased there, is left in files of the target or beside it, one
            line; None for nothing.
        checkpoints: number of signed checkpoints that this copy brought.
        root: the root of the Merkle tree over all of them, as a digest.
        since: number of events that the source's log has grown by meanwhile, and the target lacks.
    """

    log: str | None
    events: int
    added: int
    known: int
    erased: int
    checkpoints: int
    root: str
    since: int
    remains: str | None = None


def copy(source: Store, target: Store, *, progress: Progress | None = None) -> CopyReport:
    """Make a store the log that another one has. See `TurnLog.copy_to`.

    An error says in a note (`__notes__`) how much went in before it.
    """
    if is_same_place(source, target):
        raise ConflictError("the source and the target of the copy are the same store: nothing was copied")
    return _Copy(source, target, progress).run()


class _Copy:
    """One copy. `end` is how much of the source is to be copied, `done` how much of it the target has."""

    def __init__(self, source: Store, target: Store, progress: Progress | None) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._end = self._done = self._known = self._erased = self._compared = 0
        self._remains: str | None = None

    def run(self) -> CopyReport:
        """Copy, erase what the source has erased since, and compare all of it."""
        self._end = settled_end(self._source)
        self._known = self._done = self._common()
        try:
            self._bring()
            while stale := self._compare():
                if left := self._still_there(stale):
                    self._take_away(left)
            if not self._erased:
                self._remains = self._left()
            checkpoints = self._checkpoints()
            root = self._root()
            if self._done == self._known:
                self._target.confirm()
        except BaseException as error:
            if self._done > self._known or not isinstance(error, Exception):  # an interrupt may fall behind a commit
                went_in = f"at least {self._done:,} of {self._end:,} events are in"
                tell_what_went_in(error, f"{went_in}: the same copy again adds the rest")
            raise
        with self._source.read() as transaction:
            genesis, end = transaction.genesis(), transaction.log_end()
        return CopyReport(
            log=None if genesis is None else genesis.header.id,
            events=self._done,
            added=self._done - self._known,
            known=self._known,
            erased=self._erased,
            checkpoints=checkpoints,
            root=sri(root),
            since=end - self._done,
            remains=self._remains,
        )

    def _tell(self) -> None:
        if self._progress is not None and self._end:
            self._progress(self._done - self._known + self._compared, 2 * self._end - self._known)

    def _common(self) -> int:
        """Return where the target's log ends, once it is found to be the beginning of the source's.

        Raises:
            ConflictError: it is not.
        """
        with self._source.read() as ours, self._target.read() as theirs:
            first, other = ours.genesis(), theirs.genesis()
            end = theirs.log_end()
            if other is None:
                return 0
            if first is None or first.state != other.state:
                raise ConflictError(f"the target has another log, {other.header.id!r}: nothing was copied")
            if end > self._end:
                raise ConflictError(
                    f"the target has {end:,} events of this log and the source {self._end:,}: somebody has written to "
                    "the target, or the source was cut; nothing was copied"
                )
            for after in range(0, end, PAGE_LEAVES):
                count = min(PAGE_LEAVES, end - after)
                mine, there = ours.leaves(after, count), theirs.leaves(after, count)
                if mine != there:
                    raise _parting(after, mine, there)
            return end

    def _bring(self) -> None:
        """Copy what the target lacks. What was erased meanwhile has its erasure copied too."""
        while True:
            while self._done < self._end:
                group = self._group()
                append = _plan(group, self._done)
                if stale := self._erased_by(group):
                    # With the events that say so: who reads in between would take what is left for what is to stay.
                    self._take_away(stale, append)
                else:
                    self._target.write(append)
                self._done += len(group)
                self._tell()
            with self._source.read() as transaction:
                last_erasure = transaction.last_erasure()
            if last_erasure <= self._end:
                return
            self._end = last_erasure

    def _group(self) -> list[tuple[Recorded, NewPayload]]:
        """Read the next events with their payloads, ready to be appended."""
        with self._source.read() as transaction:
            page = _page(transaction, self._done, self._end)
            rows = transaction.stored_rows(self._done, len(page))
            return [
                (recorded, self._payload(transaction, recorded, row)) for recorded, row in zip(page, rows, strict=True)
            ]

    def _erased_by(self, group: Sequence[tuple[Recorded, NewPayload]]) -> list[Recorded]:
        """Return what erasures of a group have erased in the source, and the target still has."""
        erasures = [recorded for recorded, _ in group if recorded.header.topic == ERASURE]
        if not erasures:
            return []
        with self._source.read() as ours:
            erased = {found.header.id: found for erasure in erasures for found in erased_by(ours, erasure)}
        return self._still_there(list(erased.values()))

    def _still_there(self, erased: Sequence[Recorded]) -> list[Recorded]:
        """Return the events of the target, in place of those of the source, that are not erased there."""
        with self._target.read() as theirs:
            theirs.seals = None
            there = (theirs.at_global(recorded.global_position) for recorded in erased)
            return [found for found in there if found is not None and not found.erased]

    def _payload(self, transaction: ReadTransaction, recorded: Recorded, row: StoredRow) -> NewPayload:
        """Return a payload as it is to be kept: small ones in the form that they have."""
        hash_, size = recorded.stored_hash, recorded.stored_size
        if hash_ is None or size is None:
            return NO_PAYLOAD
        if size >= FILE_BYTES_MIN or row.placement not in _BESIDE:
            return self._target.place(transaction.stored_payload(recorded))
        _loader.load(
            hash_,
            size,
            row.placement,
            row.stored,
            event_id=recorded.header.id,
            global_position=recorded.global_position,
        )
        return NewPayload(hash=hash_, size=size, placement=Placement(row.placement), stored=row.stored)

    def _compare(self) -> list[Recorded]:
        """Read all of the target and compare it with the source. Return what the source has erased and it has not.

        Raises:
            CorruptionError: something is not as it is in the source.
        """
        stale: list[Recorded] = []
        after = self._compared = 0
        while after < self._done:
            with self._source.read() as ours:
                page = _page(ours, after, self._done)
            with self._target.read() as theirs:
                theirs.seals = None
                rows = theirs.stored_rows(after, len(page))
                if len(rows) != len(page):
                    raise CorruptionError(f"events after global position {after} are missing in the target")
                for recorded, row in zip(page, rows, strict=True):
                    if recorded.erased and row.private is not None:
                        stale.append(recorded)
                    else:
                        _check_same(theirs, recorded, row)
            after = self._compared = after + len(page)
            self._tell()
        if stale:
            # The source may have erased them since: then the target lacks the events that say so.
            self._bring()
        return stale

    def _take_away(self, stale: Sequence[Recorded], append: Callable[[WriteTransaction], None] | None = None) -> None:
        """Erase in the target what the source has erased, and append the events that say so, unless they are there."""

        def plan(transaction: WriteTransaction) -> Sequence[Recorded]:
            if append is not None:
                append(transaction)
            return stale

        self._remains = self._target.erase(plan, foreseen=stale, until=self._done).remains
        self._erased += len(stale)

    def _left(self) -> str | None:
        """Go on with what earlier copies have erased and had to leave in files; return what is still left, one line."""
        with self._target.read() as transaction:
            if not transaction.last_erasure():
                return None
        with suppress(StoreReadOnlyError):  # who may not erase there has not done so
            return self._target.erase(lambda _: ()).remains
        return None

    def _checkpoints(self) -> int:
        """Copy the signed checkpoints of what is copied, and return how many the target lacked."""
        with self._source.read() as ours, self._target.read() as theirs:
            there = set(kept(theirs))
            notes = [row for row in kept(ours) if row not in there and self._is_covered(row)]

        def plan(transaction: WriteTransaction) -> None:
            for size, note in notes:
                keep(transaction, size, note)

        if notes:
            gain(self._target, CHECKPOINTS)
            self._target.write(plan)
        return len(notes)

    def _is_covered(self, row: SQLRow) -> bool:
        """Tell whether a kept checkpoint is one, and of no more than what is copied."""
        size, note = row
        return type(size) is int and type(note) is str and size <= self._done

    def _root(self) -> bytes:
        """Return the root over what is copied, which is that of both stores. A tree is kept where the source keeps one.

        Raises:
            CorruptionError: the roots differ.
        """
        with self._source.read() as transaction:
            has_tree = tree_size(transaction) > 0
        if has_tree:
            grow(self._target)
        root = _root_of(self._source, self._done)
        if _root_of(self._target, self._done) != root:
            raise CorruptionError("the roots of the source and of the copy differ: run `turnlog verify` on both")
        return root


def _root_of(store: Store, size: int) -> bytes:
    """Return the root of the tree over the first events of a store, from their leaf hashes."""
    frontier = Frontier()
    for after in range(0, size, PAGE_LEAVES):
        with store.read() as transaction:
            leaves = transaction.leaves(after, min(PAGE_LEAVES, size - after))
        frontier.extend([leaf for leaf, _ in leaves])
    return frontier.root


def _page(transaction: ReadTransaction, after: int, end: int) -> list[Recorded]:
    """Return the next events of the source, as many as one transaction takes, read without keys.

    Raises:
        CorruptionError: some are missing.
    """
    transaction.seals = None
    page: list[Recorded] = []
    size = 0
    for recorded in islice(transaction.log(after), min(GROUP_EVENTS_MAX, end - after)):
        if recorded.global_position != after + len(page) + 1:
            break
        size += len(recorded.state) + len(recorded.private_state or b"") + (recorded.stored_size or 0)
        if page and size > GROUP_BYTES_MAX:
            break
        page.append(recorded)
    if not page:
        raise CorruptionError(f"the event at global position {after + 1} is missing: run `turnlog verify`")
    return page


def _plan(group: Sequence[tuple[Recorded, NewPayload]], after: int) -> Callable[[WriteTransaction], None]:
    """Return the plan that appends a group to the first `after` events."""

    def plan(transaction: WriteTransaction) -> None:
        transaction.heads.clear()
        if transaction.log_end() != after:
            raise _written_to(after)
        for recorded, payload in group:
            if isinstance(transaction.append(recorded, payload, recorded.arrival), Taken):
                raise _written_to(after)

    return plan


def _written_to(after: int) -> ConflictError:
    return ConflictError(
        f"somebody else has written to the target, behind its {after:,} events: it is another log from there on, "
        "unless that was a copy of the same source"
    )


def _parting(after: int, mine: Sequence[tuple[bytes, int]], there: Sequence[tuple[bytes, int]]) -> ConflictError:
    """Return the error for a target that is not the beginning of the source, which says from where on."""
    at, leaf, other = next(
        (at, leaf, other) for at, (leaf, other) in enumerate(zip(mine, there, strict=True), after + 1) if leaf != other
    )
    if leaf[0] == other[0]:
        return ConflictError(
            f"the target has the event at global position {at} from an import, or as a guest, and the source has not: "
            "copy into an empty store; nothing was copied"
        )
    return ConflictError(f"the target goes another way from global position {at} on: nothing was copied")


def _check_same(transaction: ReadTransaction, recorded: Recorded, row: StoredRow) -> None:
    """Check that an event lies in the target as the source has it, with its payload.

    Raises:
        CorruptionError: it does not.
    """
    header = recorded.header
    expected = (recorded.global_position, header.stream, header.position, header.topic, recorded.state, header.id)
    if (*row[:6], row.leaf_hash, row.arrival, row.private) != (
        *expected,
        recorded.leaf_hash,
        recorded.arrival,
        recorded.private_state,
    ):
        raise CorruptionError(
            f"event {header.id!r} is not in the target as it is in the source: run `turnlog verify` on both",
            global_position=recorded.global_position,
        )
    transaction.verified_payload(row, recorded)
