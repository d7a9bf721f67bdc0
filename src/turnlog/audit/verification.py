"""Verification of a store: every stored byte, every hash, every citation, every request, every projection.

The log is walked in its order, a page at a time and a snapshot a page, so that a long verification holds no snapshot
for long. The last snapshot has what came meanwhile, and the projections. No index of the store is relied on, and no
projection: what an event needs to know of earlier ones is taken from what was read of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from time import sleep
from typing import cast

import msgspec

from turnlog.audit import contents
from turnlog.audit.anchors import Anchor, Leaf, Roots, drop_damaged, stored_anchors
from turnlog.audit.citations import Citations, check_genesis
from turnlog.audit.contents import Contents
from turnlog.audit.erasures import Erasures
from turnlog.audit.known import Known
from turnlog.audit.projections import damaged_projections
from turnlog.audit.report import NOT_DAMAGE, Damage, Findings, VerifyReport, shown
from turnlog.audit.requests import Requests
from turnlog.audit.rows import Row, examine, plain
from turnlog.audit.threads import Threads
from turnlog.digest import leaf_hash
from turnlog.errors import CorruptionError, StoreBusyError, StoreError, TurnlogError, lacks_thread
from turnlog.events import ERASURE, TURN
from turnlog.ids import is_id
from turnlog.projections.tree import TREE
from turnlog.store import Placement, ReadTransaction, ScratchTransaction, Store, StoredRow
from turnlog.store.reading import NOT_SETTLED, SETTLED_TRIES_MAX, SETTLED_WAIT_S

Progress = Callable[[int, int], None]

PAGE_EVENTS = 512
"""Events a snapshot."""

STEP_EVENTS = 64
"""Events that take each step of the check together. That is faster by a third than one event after the other, as the
code of a step stays in the processor's cache, and faster than a page, as the events do too."""

_ROUNDS_MAX = 10
"""How often the end of the log is looked for again, where others append while it is read."""

_POSITION_MIN = -(1 << 63)
_POSITION_MAX = (1 << 63) - 1
_ERASED = int(Placement.ERASED)


def verify(
    store: Store,
    *,
    progress: Progress | None = None,
    repair_projections: bool = False,
    checkpoints: Sequence[Anchor] = (),
    since: int = 0,
) -> VerifyReport:
    """Read the whole store again and check it.

    Args:
        store: the store. Others may append to it meanwhile.
        progress: called with events done and events in all.
        repair_projections: build projections anew that are missing or damaged, and what else the schema lacks; and
            take away what is kept as a checkpoint and cannot be read as one.
        checkpoints: signed checkpoints to compare the events with, beside those that the store keeps.
        since: payloads up to this global position are not read again, and requests not put together. All else is
            checked for all events: nothing behind would be known without it.

    Checked are the schema and settings of the store, and the engine's own structures; that global positions have no
    gap; of each event header, private part and payload, and all columns beside them; its metadata; that all it cites
    is earlier, has that digest and is of the right kind; its place in its stream; what is in its payload: content
    blocks, tools, raw events, and of calls the exact request and the loss report; that what was erased was erased on
    somebody's word; that each synchronous projection, and the kept tree, equals its rebuild from the events; and that
    each checkpoint was signed for these events.

    Raises:
        StoreBusyError, StoreClosedError, StoreFullError: it cannot be read now, or there is no space to work in.
        StoreDeniedError: this role may not read it, or this user not a payload file.
        StorageError: the storage of large payloads does not answer, or refuses.
        SealError: keys that are here cannot be used. Without any the log can be verified.
        StoreReadOnlyError: there is something to repair, and the store cannot be written.
    """
    findings = Findings()
    without = ("checkpoints",) if repair_projections and _dropped(store) else ()
    with store.scratch() as scratch:
        known = Known(scratch)
        threads = Threads(scratch, known)
        with Requests(known, threads, findings) as requests:
            roots = _roots(store, checkpoints, findings)
            walk = _Verification(store, scratch, known, threads, requests, findings, roots, since, progress)
            report = walk.run(repair=repair_projections)
    return msgspec.structs.replace(report, repaired=report.repaired + without)


def _dropped(store: Store) -> bool:
    """Take away what is kept as a checkpoint and is none; of a store that cannot be read more is told later."""
    try:
        return drop_damaged(store)
    except NOT_DAMAGE:
        raise
    except StoreError:
        return False


def _roots(store: Store, given: Sequence[Anchor], findings: Findings) -> Roots | None:
    """Return what compares the events with checkpoints and the kept tree; None where there is neither."""
    try:
        with store.read() as transaction:
            genesis = transaction.genesis()
            log_id = None if genesis is None else genesis.header.id
            kept = list(stored_anchors(transaction, findings))
            if not kept and not given and not transaction.has(TREE):
                return None
    except NOT_DAMAGE:
        raise
    except StoreError as error:
        findings.add(str(error))
        kept, log_id = [], None
    anchors = [*given, *kept]
    findings.checkpoints = len(anchors)
    return Roots(anchors, findings, log_id)


def _leaf(row: StoredRow, looked_at: Row | None) -> Leaf:
    """Return an event as a leaf, with the hash that its bytes give."""
    if looked_at is not None:
        return row.global_position, row.leaf_hash, row.arrival
    digest = leaf_hash(row.state) if type(row.state) is bytes else None
    return row.global_position, digest, row.arrival if type(row.arrival) is int else -1


def _is_erased(transaction: ReadTransaction, at: int) -> bool:
    """Tell whether an event is erased; not of one that cannot be read."""
    try:
        found = transaction.at_global(at)
    except CorruptionError:
        return False
    return found is not None and found.erased


class _Verification:
    def __init__(  # noqa: PLR0913, PLR0917 - what a verification is made of
        self,
        store: Store,
        scratch: ScratchTransaction,
        known: Known,
        threads: Threads,
        requests: Requests,
        findings: Findings,
        roots: Roots | None,
        since: int,
        progress: Progress | None,
    ) -> None:
        self._store = store
        self._scratch = scratch
        self._known = known
        self._threads = threads
        self._findings = findings
        self._roots = roots
        self._since = findings.since = since
        self._progress = progress
        self._leaves: list[Leaf] = []
        """The leaves of the page that is read, where roots are wanted."""
        self._citations = Citations(known, findings)
        self._contents = Contents(requests, findings)
        self._erasures = Erasures(scratch, known, findings)
        self._doubtful: dict[int, list[Damage]] = {}
        """What is wrong with payloads, by global position: an erasure may have taken away what is a file."""
        self._after = _POSITION_MIN
        self._expected = 1
        """The global position that the next event should have."""
        self._end = 0
        self._stopped = False
        """Whether something stands in the log that nothing can be read behind."""

    def run(self, *, repair: bool) -> VerifyReport:
        schema = self._schema()
        if not repair:
            self._tell(schema)
        # The engine looks at its own structures meanwhile, and leaves Python's lock to the walk.
        with ThreadPoolExecutor(max_workers=1) as beside:
            engine = None if repair else self._begun(beside)
            self._log()
            if not repair:
                self._engine_damage(self._engine() if engine is None else engine.result())
        damaged = self._last()
        self._tell_progress()
        repaired: tuple[str, ...] = ()
        if repair:
            repaired, schema, damaged = self._repair(schema, damaged)
            self._tell(schema)
            self._engine_damage(self._engine())
        self._tell(damaged.values())
        if self._since > max(self._after, 0):
            which = "it was cut or rolled back, or is another log"
            self._tell(
                [f"the log ends before global position {self._since:,}, up to which payloads were read: {which}"]
            )
        self._told_erasures()
        if self._roots is not None:
            self._roots.report()
            self._findings.anchored = self._roots.anchored
        return self._findings.report(repaired=repaired, others=tuple(self._others()))

    def _begun(self, beside: Executor) -> Future[list[tuple[int | None, str]]] | None:
        """Let the engine look at its own structures; None where there can be no thread for that."""
        try:
            return beside.submit(self._engine)
        except RuntimeError as error:
            if not lacks_thread(error):
                raise
            return None

    def _tell(self, lines: Iterable[str]) -> None:
        """Note damage that is not of one event."""
        self._findings.at(None)
        for line in lines:
            self._findings.add(line)

    # The store

    def _schema(self) -> list[str]:
        try:
            return self._store.check_schema()
        except NOT_DAMAGE:
            raise
        except StoreError as error:
            return [str(error)]

    def _engine(self) -> list[tuple[int | None, str]]:
        found: list[tuple[int | None, str]] = []
        try:
            found.extend(self._store.check())  # what comes before an error is in there then
        except NOT_DAMAGE:
            raise
        except StoreError as error:
            found.append((None, str(error)))
        return found

    def _engine_damage(self, damage: Iterable[tuple[int | None, str]]) -> None:
        for at, what in damage:
            self._findings.at(at)
            self._findings.add(what)

    def _others(self) -> list[str]:
        try:
            return self._store.unread()
        except NOT_DAMAGE:
            raise
        except StoreError as error:
            self._tell([str(error)])
            return []

    # The log

    def _log(self) -> None:
        """Walk to the end of the log, and to the new end if others have appended meanwhile."""
        for _ in range(_ROUNDS_MAX):
            try:
                with self._store.read() as transaction:
                    end = cast("object", transaction.log_end())
                # In a table that is not turnlog's it may be anything.
                self._end = end if isinstance(end, int) else _POSITION_MAX
            except NOT_DAMAGE:
                raise
            except StoreError:
                self._end = _POSITION_MAX  # it is told by the page that cannot be read
            if self._stopped or self._after >= self._end:
                return
            self._pages()

    def _pages(self) -> None:
        """Walk to the end, a snapshot a page. Where the store cannot be read, go on behind."""
        limit, skipped = PAGE_EVENTS, 0
        unread: tuple[int, int, str] | None = None
        """From where on and up to where nothing could be read, and why: one line for all with the same reason."""
        while self._after < self._end:
            try:
                with self._store.read() as transaction:
                    found = self._rows(transaction, limit)
            except NOT_DAMAGE:
                raise
            except StoreError as error:
                if limit > 1:
                    limit = 1
                    continue
                if unread is not None and unread[2] != str(error):
                    self._tell_unread(unread)
                    unread = None
                first = max(self._after, 0) + 1 if unread is None else unread[0]
                skipped = self._skip(2 * skipped or 1)
                unread = first, self._after, str(error)
                continue
            self._tell_unread(unread)
            unread, limit, skipped = None, PAGE_EVENTS, 0
            # Outside the snapshot: whoever is told may do whatever it likes with the log.
            self._tell_progress()
            if not found:
                return
        self._tell_unread(unread)

    def _tell_progress(self) -> None:
        if self._progress is not None:
            self._progress(self._findings.events, max(self._findings.events, self._end))

    def _skip(self, count: int) -> int:
        """Go on behind some events that cannot be read, more each time: it may be all that are left. Return `count`."""
        self._after = min(max(self._after, 0) + count, self._end)
        self._expected = self._after + 1
        return count

    def _tell_unread(self, unread: tuple[int, int, str] | None) -> None:
        """Say what could not be read, if that is anything."""
        if unread is not None:
            first, last, why = unread
            self._tell([f"global positions {first} to {last} cannot be read: {why}"])

    def _rows(self, transaction: ReadTransaction, limit: int) -> bool:
        """Check a page of rows, and return whether there were any."""
        page = [] if self._stopped else transaction.stored_rows(self._after, limit)
        for start in range(0, len(page), STEP_EVENTS):
            self._step(transaction, page[start : start + STEP_EVENTS])
        if self._roots is not None:
            self._roots.add(transaction, self._leaves)
            self._leaves.clear()
        return bool(page)

    def _step(self, transaction: ReadTransaction, page: list[StoredRow]) -> None:
        """Check a few rows. All are read before any is put in its place, and so on: see `STEP_EVENTS`."""
        found_before = self._findings.count
        rows = self._read(transaction, page)
        cites = [self._placed(transaction, row) for row in rows]
        looked_into = [both for both in zip(rows, cites, strict=True) if both[0].recorded.global_position > self._since]
        plain_ones = contents.plain([row for row, _ in looked_into])
        for (row, sound), is_plain in zip(looked_into, plain_ones, strict=True):
            if is_plain:
                self._findings.payloads += 1
                self._findings.payload_bytes += row.recorded.size or 0
            else:
                self._content(transaction, row, cites=sound)
        self._findings.sort(found_before)

    def _read(self, transaction: ReadTransaction, page: list[StoredRow]) -> list[Row]:
        """Check rows by themselves, and return those whose header can be read."""
        for row in page:
            at = row.global_position
            if at == self._expected:
                self._expected += 1
            elif type(at) is int:
                self._out_of_place(at)
            else:
                # Only a table that is not turnlog's has such a row, which its schema tells.
                self._findings.at(None)
                self._findings.add(f"a row has {shown(at)} for its global position: what is behind it is not read")
                page = page[: page.index(row)]
                self._stopped = True
                break
        self._findings.events += len(page)
        if page:
            self._after = page[-1].global_position
        short = plain(page)
        if self._roots is not None:
            self._leaves += map(_leaf, page, short)
        read = [looked_at or self._examined(transaction, row) for row, looked_at in zip(page, short, strict=True)]
        rows = [row for row in read if row is not None]
        self._findings.private_parts += sum([row.recorded.private_state is not None for row in rows])
        self._findings.sealed += sum([row.recorded.sealed is not None for row in rows])
        return rows

    def _examined(self, transaction: ReadTransaction, row: StoredRow) -> Row | None:
        self._findings.at(row.global_position)
        try:
            return examine(row, self._findings, transaction.opened)
        except Exception as error:  # noqa: BLE001 - what stored bytes make decoders raise is damage, whatever it is
            self._wrong("it cannot be read", error)
            return None

    def _out_of_place(self, at: int) -> None:
        if at < 1:
            self._findings.at(at)
            self._findings.add("it stands before the first global position")
        elif at < self._expected:
            self._findings.at(at)
            self._findings.add("another event has the same global position")
        else:
            self._findings.at(self._expected)
            self._findings.add(f"global positions {self._expected} to {at - 1} are missing")
            self._expected = at + 1

    def _placed(self, transaction: ReadTransaction, row: Row) -> bool:
        """Check what an event cites and where it stands, and fold it. Return whether all that it cites is sound."""
        recorded = row.recorded
        header = recorded.header
        cites = False
        try:
            if row.sound and recorded.private is not None and self._citations.goes_on(recorded):
                self._findings.citations += 1
                self._known.note(recorded)
                self._scratch.fold(recorded)
                return True
            self._findings.at(recorded.global_position, header.id)
            check_genesis(recorded, self._findings)
            cites = self._citations.check(transaction, recorded)
            erased = recorded.private is None and row.row.placement == _ERASED
            if erased or header.topic == ERASURE:
                self._erasures.note(recorded, erased=erased and recorded.erased, cites=cites)
            # What has no id cannot be cited, and its id might be of any size.
            if row.sound or (is_id(header.id) and is_id(header.stream)):
                if header.topic == TURN:
                    self._threads.note(recorded)
                self._known.note(recorded)
                self._scratch.fold(recorded)
        except Exception as error:  # noqa: BLE001 - as above
            self._wrong("it cannot be put in its place", error)
        return cites

    def _content(self, transaction: ReadTransaction, row: Row, *, cites: bool) -> None:
        """Check the payload of an event."""
        recorded = row.recorded
        if recorded.erased or not row.has_private or row.row.placement == _ERASED:
            return
        self._findings.at(recorded.global_position, recorded.header.id)
        before = self._findings.count
        try:
            self._contents.check(transaction, row, cites=cites)
        except Exception as error:  # noqa: BLE001 - as above
            self._wrong("its payload cannot be checked", error)
        if found := self._findings.found_since(before):
            self._doubtful[recorded.global_position] = found

    def _wrong(self, what: str, error: Exception) -> None:
        """Note what was raised as damage, unless it says nothing of what is stored."""
        if isinstance(error, NOT_DAMAGE):
            raise error
        name = "" if isinstance(error, TurnlogError) else f"{type(error).__name__}: "
        self._findings.add(f"{what}: {name}{error}")

    def _told_erasures(self) -> None:
        """Tell of what was erased on nobody's word, and of nothing that was erased while it was read.

        A payload that is a file, or an object, goes behind the erasure, and older snapshots have its event still.
        """
        try:
            with self._store.read() as transaction:
                for at, found in self._doubtful.items():
                    if _is_erased(transaction, at):
                        self._findings.take_back(found)
                self._erasures.report(transaction)
        except NOT_DAMAGE:
            raise
        except StoreError as error:
            self._tell([str(error)])

    # The projections

    def _last(self) -> dict[str, str]:
        """Read what others have appended meanwhile, and compare the projections in the same snapshot.

        Returns:
            What is wrong, by the name of the projection.
        """
        try:
            for tried in range(SETTLED_TRIES_MAX):
                sleep(SETTLED_WAIT_S if tried else 0)
                with self._store.read() as transaction:
                    while self._rows(transaction, PAGE_EVENTS):
                        pass
                    if transaction.unsettled():  # the tables have them already
                        continue
                    self._lowest(transaction)
                    if self._roots is not None:
                        self._roots.check_kept(transaction)
                    return damaged_projections(self._store, transaction, self._scratch)
            raise StoreBusyError(NOT_SETTLED)
        except NOT_DAMAGE:
            raise
        except StoreError as error:
            self._tell([str(error)])
            return {}

    def _lowest(self, transaction: ReadTransaction) -> None:
        """Look at the one position that no other is below."""
        try:
            found = transaction.at_global(_POSITION_MIN) is not None
        except CorruptionError:
            found = True
        if found:
            self._findings.at(_POSITION_MIN)
            self._findings.add("it stands before the first global position")

    def _repair(self, schema: list[str], damaged: dict[str, str]) -> tuple[tuple[str, ...], list[str], dict[str, str]]:
        """Build anew what is damaged, and look again. Return what is in order now, and what is still wrong."""
        if not schema and not damaged:
            return (), schema, damaged
        try:
            self._store.rebuild(list(damaged))
        except NOT_DAMAGE:
            raise
        except StoreError as error:
            self._tell([f"the projections cannot be built anew: {error}"])
            return (), schema, damaged
        schema_now = self._schema()
        damaged_now = self._last()
        repaired = [name for name in damaged if name not in damaged_now]
        if set(schema) - set(schema_now):
            repaired.append("schema")
        return tuple(repaired), schema_now, damaged_now
