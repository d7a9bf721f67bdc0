"""Taking over an export: checked as a whole first, then recorded in groups, so that others can append meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO, cast

from msgspec import Struct

from turnlog.errors import NO_SPACE, MetaError, tell_what_went_in
from turnlog.events import ERASURE, REGISTERS, TARGET, TURN, Arrival, Recorded, cite
from turnlog.interop.portable.bookmarks import Changes, OnBookmark, plan_bookmarks
from turnlog.interop.portable.checking import Survey, survey
from turnlog.interop.portable.form import ExportedEvent, ExportFile
from turnlog.interop.portable.report import KeptBookmark, RestoreReport
from turnlog.model import ErasureMeta
from turnlog.model.pieces import PIECE
from turnlog.projections.bookmarks import MovedBookmark, all_bookmarks
from turnlog.record import EventDraft, RestoredEvent, plan_event, plan_restore
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, Store, WriteTransaction
from turnlog.store.begin import begin

GROUP_EVENTS_MAX = 500
GROUP_BYTES_MAX = 8 * 1024 * 1024
"""How much goes in in one transaction, in events and in bytes of payloads, so that no other append waits for long."""

_ERASED_THERE = "it was erased in the log that it comes from"
"""Why an event is erased of which an export says that it is, and not why: its erasure names what is not exported."""

Progress = Callable[[int, int], None]
"""Called with events done and events in all."""


class _Incoming(Struct, frozen=True, kw_only=True):
    """An event to take over.

    Attributes:
        restored: the event.
        guest: whether it moved no bookmark where it comes from.
        unnamed: whether it is erased, and no erasure of the export says so.
    """

    restored: RestoredEvent
    guest: bool
    unnamed: bool


class _Written(Struct, frozen=True, kw_only=True):
    """What one transaction did."""

    added: int
    erased: int
    registers: list[str]
    not_erased: list[str]
    changes: Changes


class _Total:
    """What all transactions did so far."""

    def __init__(self) -> None:
        self.groups = self.added = self.erased = 0
        self.registers: list[str] = []
        self.not_erased: dict[str, None] = {}
        self.set: list[MovedBookmark] = []
        self.moved: list[MovedBookmark] = []
        self.kept: list[KeptBookmark] = []
        self.settled: set[str] = set()
        self.closed: set[str] = set()

    def add(self, written: _Written) -> None:
        changes = written.changes
        self.groups += 1
        self.added += written.added
        self.erased += written.erased
        self.registers += written.registers
        self.not_erased.update(dict.fromkeys(written.not_erased))
        self.set += changes.set
        self.moved += changes.moved
        self.kept += changes.kept
        self.settled.update(changes.names)
        self.closed |= changes.closed


def restore(
    store: Store,
    file: BinaryIO,
    sources: Sources,
    *,
    bookmarks: OnBookmark = "keep",
    progress: Progress | None = None,
    known: Survey | None = None,
) -> RestoreReport:
    """Take over the events of an export. See `TurnLog.import_turnlog`.

    Args:
        store: the log.
        file: the export.
        sources: clock and ids.
        bookmarks: what becomes of bookmarks that stand elsewhere here.
        progress: called with events done and events in all.
        known: what `check` returned of the export: then it is not checked again for a log that is empty.

    An error says in a note (`__notes__`) how much went in before it.
    """
    with seekable(file) as given:
        export = ExportFile(given)
        count = export.header.events

        def tell(checked: int, written: int) -> None:
            if progress is not None and count:
                progress((checked + written) // 2, count)

        heads_before = _heads(store)
        is_own = _is_of(store, export.header.log)
        found = known if known is not None and _is_empty(store) else None
        if found is None:
            found = survey(store, export, lambda checked: tell(checked, 0), is_own=is_own)
        total = _Total()
        total.not_erased.update(dict.fromkeys(found.not_erased))
        try:
            for last_line, group in _groups(store, export, found):
                total.add(store.write(_plan(group, found, sources, bookmarks, total.settled, is_own=is_own)))
                del group
                tell(count, last_line - 1)
            if not total.groups:
                store.confirm()
        except BaseException as error:
            if total.groups or not isinstance(error, Exception):  # an interrupt may fall behind a commit
                went_in = f"at least {total.added:,} of {found.new:,} new events are in"
                tell_what_went_in(error, f"{went_in}: the same import again adds the rest")
            raise
        tell(count, count)
    if found.whole:
        total.set, total.moved = _moved(heads_before, _heads(store))
    return RestoreReport(
        added=total.added,
        known=count - total.added,
        erased=total.erased,
        whole=found.whole,
        set_bookmarks=tuple(total.set),
        moved_bookmarks=tuple(total.moved),
        kept_bookmarks=tuple(total.kept),
        closed_bookmarks=len(total.closed),
        unconfirmed_registers=tuple(total.registers),
        not_erased=tuple(total.not_erased),
    )


def check(file: BinaryIO, empty: Store, *, progress: Progress | None = None) -> Survey:
    """Check all of an export that is to become a new log, before there is one. See `TurnLog.import_turnlog`.

    Args:
        file: the export. It can be read twice, and stands behind the header afterwards.
        empty: an empty log, to which nothing is written.
        progress: called with half of the events that are checked, and events in all.

    Raises:
        FormatError: a line is wrong, or does not go with the others.
    """
    export = ExportFile(file)
    count = export.header.events

    def tell(checked: int) -> None:
        if progress is not None and count:
            progress(checked // 2, count)

    return survey(empty, export, tell, is_own=False)


def _is_empty(store: Store) -> bool:
    with store.read() as transaction:
        return not transaction.log_end()


@contextmanager
def seekable(file: BinaryIO) -> Generator[BinaryIO]:
    """Give a file that can be read twice.

    What cannot, as a pipe or an object that has `read` alone, is copied to a temporary file first, which is its owner's
    alone.
    """
    has_all = all(callable(getattr(file, name, None)) for name in ("seekable", "seek", "tell", "readline"))
    if has_all and file.seekable():
        yield file
        return
    with TemporaryFile() as copy:
        try:
            for piece in _pieces(file):
                copy.write(piece)
            copy.seek(0)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise OSError(error.errno, error.strerror, gettempdir()) from error
            raise
        yield copy


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        if not isinstance(cast("object", piece), bytes | bytearray | memoryview):
            kind = type(piece).__name__
            raise MetaError(f"file: expected a file that is open for bytes, and its `read` gave {kind}", field="file")
        yield piece


def _groups(store: Store, export: ExportFile, found: Survey) -> Iterator[tuple[int, list[_Incoming]]]:
    """Give the new events in groups, with their payloads placed, and the last line of each group.

    Lines are checked again: the file may have been written to since.
    """
    group: list[_Incoming] = []
    size = number = 0
    for exported in export.events(found.is_new):
        number = exported.line
        group.append(_incoming(store, exported, found))
        size += exported.event.stored_size or 0
        del exported  # before the next one comes: both may be large
        if len(group) >= GROUP_EVENTS_MAX or size >= GROUP_BYTES_MAX:
            yield number, group
            group, size = [], 0
    if group:
        yield number, group


def _incoming(store: Store, exported: ExportedEvent, found: Survey) -> _Incoming:
    restored = RestoredEvent(
        line=exported.line,
        event=exported.event,
        payload=store.place(exported.payload),
        arrival=Arrival.RESTORED if found.whole and not exported.guest else Arrival.GUEST,
        at=exported.at if found.whole else None,
    )
    return _Incoming(restored=restored, guest=exported.guest, unnamed=found.is_unnamed(exported.line))


def _plan(
    group: Sequence[_Incoming],
    found: Survey,
    sources: Sources,
    bookmarks: OnBookmark,
    settled: AbstractSet[str],
    *,
    is_own: bool,
) -> Callable[[WriteTransaction], _Written]:
    """Return the plan that records a group."""

    def plan(transaction: WriteTransaction) -> _Written:
        if not found.whole:
            begin(transaction, sources)
        added: list[Recorded] = []
        moving: list[Recorded] = []
        not_erased: list[str] = []
        unnamed: list[Recorded] = []
        for incoming in group:
            if (recorded := plan_restore(transaction, incoming.restored)) is not None:
                added.append(recorded)
                if recorded.header.topic == ERASURE:
                    not_erased += _not_erased(transaction, recorded, is_own=is_own and not incoming.guest)
                if not incoming.guest and not found.whole:
                    moving.append(recorded)
                if incoming.unnamed and not found.whole:
                    unnamed.append(recorded)
        if unnamed:
            # Whose they were nobody here can tell: each may have had another subject than the turn before it.
            changes = tuple(event.header.id for event in unnamed if event.header.topic == TURN)
            draft = EventDraft(topic=ERASURE, meta=ErasureMeta(reason=_ERASED_THERE, subject_changes=changes))
            plan_event(transaction, draft, NO_PAYLOAD, sources, [cite(event, TARGET) for event in unnamed])
        return _Written(
            added=len(added),
            erased=sum(recorded.erased for recorded in added),
            registers=[one.header.id for one in added if one.header.topic in REGISTERS and not one.unreadable],
            not_erased=not_erased,
            changes=plan_bookmarks(transaction, moving, found.bookmarks, bookmarks, settled, sources),
        )

    return plan


def _not_erased(transaction: ReadTransaction, erasure: Recorded, *, is_own: bool) -> Iterator[str]:
    """Iterate over the turns that an erasure names and that are here in full, but for those that are not its log's.

    An export of this log, which a store that has recorded events itself takes for somebody else's, may tell of turns of
    its own: an older copy was put in its place.
    """
    for citation in erasure.header.citations:
        turn = transaction.event(citation.id) if citation.relation == TARGET else None
        if turn is None or turn.erased or turn.header.topic != TURN:
            continue
        if is_own or erasure.arrival != Arrival.GUEST or turn.arrival == Arrival.GUEST:
            yield turn.header.id


def _is_of(store: Store, log: str | None) -> bool:
    with store.read() as transaction:
        genesis = transaction.genesis()
    return genesis is not None and genesis.header.id == log


def _heads(store: Store) -> dict[str, str]:
    with store.read() as transaction:
        return {bookmark.name: bookmark.turn for bookmark in all_bookmarks(transaction)}


def _moved(before: dict[str, str], after: dict[str, str]) -> tuple[list[MovedBookmark], list[MovedBookmark]]:
    """Return the bookmarks that were set, and those that were moved or taken away, when a log was restored."""
    changed = [
        MovedBookmark(name=name, before=before.get(name), after=after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    return [new for new in changed if new.before is None], [moved for moved in changed if moved.before is not None]
