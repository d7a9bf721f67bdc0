"""Writing an export: a page of events at a time, a snapshot a page, as the log was at the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO

from msgspec import UNSET, Struct

from turnlog.errors import CorruptionError, StoreBusyError
from turnlog.events import ERASURE, GENESIS, TARGET, Arrival, Recorded
from turnlog.interop.portable.choosing import PAGE_EVENTS, before, choose
from turnlog.interop.portable.form import VERSION, Header, Scope, event_line, header_line
from turnlog.model.binary_files import whole_writes
from turnlog.projections import ANYWHERE
from turnlog.store import ReadTransaction, Store
from turnlog.store.reading import settled_end

PAGE_BYTES = 8 * 1024 * 1024
"""How much of payloads is read before it is written, and no snapshot is held."""

RECENT_EVENTS = 10_000
"""Of how many events the digests are kept, because what is cited is mostly recent."""

Progress = Callable[[int, int], None]
"""Called with events done and events in all."""


class _Choice(Struct, frozen=True, kw_only=True):
    """What is exported: its header, and the global positions of its events."""

    header: Header
    positions: Iterable[int]


def export(
    store: Store,
    file: BinaryIO,
    headish: Sequence[str] = (),
    *,
    ancestry: bool = False,
    fits: Callable[[Recorded], bool] | None = None,
    limit: int | None = None,
    spans: Sequence[range] = ANYWHERE,
    progress: Progress | None = None,
) -> int:
    """Write a log, or a part of it, and return the number of events. See `TurnLog.export`."""
    file = whole_writes(file)
    is_whole = not headish and fits is None and limit is None
    if is_whole:
        choice = _whole(store)
    else:
        choice = _part(store, headish, ancestry=ancestry, fits=fits, limit=limit, spans=spans)
    header = choice.header
    file.write(header_line(header))
    written = payload_bytes = 0
    for page in _Reader(store, choice.positions, check=is_whole).pages():
        for recorded, payload in page:
            guest = recorded.arrival == Arrival.GUEST
            for piece in event_line(recorded, payload, guest=guest):
                file.write(piece)
            written += 1
            payload_bytes += recorded.stored_size or 0
            if progress is not None:
                progress(written, header.events)
    if payload_bytes != header.payload_bytes or (is_whole and _was_erased(store, header)):
        raise StoreBusyError("events were erased while they were exported: export again")
    return written


def _was_erased(store: Store, header: Header) -> bool:
    """Tell whether something of an exported log was erased on the word of an event that came behind its end.

    It may have had no payload, or be gone before payloads were counted; its erasure would be missing.
    """
    end = header.events
    with store.read() as transaction:
        if transaction.last_erasure() <= end:
            return False
        for erasure in transaction.log(end, topics=[ERASURE]):
            for citation in erasure.header.citations:
                target = transaction.event(citation.id) if citation.relation == TARGET else None
                if target is not None and target.erased and target.global_position <= end:
                    return True
    return False


def _whole(store: Store) -> _Choice:
    end = settled_end(store)
    with store.read() as transaction:
        log = _identity(transaction)
    payload_bytes = after = 0
    while after < end:
        with store.read() as transaction:
            page = list(islice(transaction.log(after), min(PAGE_EVENTS, end - after)))
        if not page or page[-1].global_position != after + len(page):
            raise CorruptionError(f"events after global position {after} are missing: run `turnlog verify`")
        payload_bytes += sum(recorded.stored_size or 0 for recorded in page)
        after += len(page)
    return _Choice(header=_header(log, "log", None, end, (1, end), payload_bytes), positions=range(1, end + 1))


def _part(
    store: Store,
    headish: Sequence[str],
    *,
    ancestry: bool,
    fits: Callable[[Recorded], bool] | None,
    limit: int | None,
    spans: Sequence[range],
) -> _Choice:
    part = choose(store, headish, ancestry=ancestry, fits=fits, limit=limit, spans=spans)
    with store.read() as transaction:
        log = _identity(transaction)
    found = part.positions
    bounds = (next(iter(found)), max(found))
    scope = "threads" if fits is None and limit is None and not ancestry else "ancestry"
    return _Choice(header=_header(log, scope, part.head, len(found), bounds, part.payload_bytes), positions=found)


def _header(
    log: str | None, of: Scope, head: str | None, events: int, bounds: tuple[int, int], payload_bytes: int
) -> Header:
    return Header(
        turnlog_export=VERSION,
        log=log,
        of=of,
        head=UNSET if head is None else head,
        first=bounds[0] if events else UNSET,
        last=bounds[1] if events else UNSET,
        events=events,
        payload_bytes=payload_bytes,
    )


def _identity(transaction: ReadTransaction) -> str | None:
    genesis = transaction.genesis()
    if genesis is not None and genesis.header.topic != GENESIS:
        raise CorruptionError("the log does not begin with log.genesis: run `turnlog verify`", global_position=1)
    return None if genesis is None else genesis.header.id


class _Reader:
    """Reads events at global positions with their payloads, and checks what each of them cites."""

    def __init__(self, store: Store, positions: Iterable[int], *, check: bool) -> None:
        """Take the positions, in ascending order, and whether the citations are still to be checked."""
        self._store = store
        self._positions = iter(positions)
        self._check = check
        self._recent: dict[str, str] = {}
        """Id to digest. They were read before, so what is here is earlier."""

    def pages(self) -> Iterator[list[tuple[Recorded, bytes | None]]]:
        """Give the events in pages; while a page is written, no snapshot is held."""
        while page := self._page():
            yield page

    def _page(self) -> list[tuple[Recorded, bytes | None]]:
        page: list[tuple[Recorded, bytes | None]] = []
        size = 0
        with self._store.read() as transaction:
            while len(page) < PAGE_EVENTS and size < PAGE_BYTES:
                position = next(self._positions, None)
                if position is None:
                    break
                recorded = transaction.at_global(position)
                if recorded is None:
                    raise CorruptionError(f"the event at global position {position} is missing: run `turnlog verify`")
                if self._check:
                    self._check_citations(transaction, recorded)
                page.append((recorded, transaction.stored_payload(recorded)))
                size += recorded.stored_size or 0
        return page

    def _check_citations(self, transaction: ReadTransaction, recorded: Recorded) -> None:
        for citation in recorded.header.citations:
            if self._recent.get(citation.id) != citation.digest:
                before(transaction, recorded, citation)
        self._recent[recorded.header.id] = recorded.digest
        if len(self._recent) > RECENT_EVENTS:
            del self._recent[next(iter(self._recent))]
