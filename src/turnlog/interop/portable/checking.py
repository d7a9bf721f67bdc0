"""The first pass over an export: all of it is checked, also against the log, before the first event is written.

Memory is bounded: what must be known of earlier events stands in a temporary database, and one byte an event here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from msgspec import Struct

from turnlog.errors import FormatError
from turnlog.events import ERASURE, GENESIS, TARGET, TURN, Arrival
from turnlog.events.form import recorded
from turnlog.interop.portable.form import ExportedEvent, ExportFile, is_genesis_of
from turnlog.projections.bookmarks import kept_heads
from turnlog.record.restore import Place, check_citations, is_at, is_known, place_of
from turnlog.store import ReadTransaction, ScratchTransaction, Store

PAGE_EVENTS = 500
PAGE_BYTES = 8 * 1024 * 1024
"""How much is looked at with one snapshot."""

_NEW, _EXTENDED, _ERASED, _NAMED, _GUEST = 1, 2, 4, 8, 16
"""What is noted of an event: the log does not have it; another one follows it in its stream; it is erased; an erasure
of the export names it, one of its log where the event is of that; it is a guest's there."""


class Survey(Struct, frozen=True, kw_only=True):
    """What an export is to a log.

    Attributes:
        whole: whether it is the log itself, its beginning, or what it goes on with.
        notes: a byte for each event.
        new: number of events that the log does not have.
        not_erased: ids of turns that are erased in the export, whose log can say so, and are here in full.
        bookmarks: where the export leaves each bookmark: the id of a turn by name, or by what stands for a sealed one.
    """

    whole: bool
    notes: bytearray
    new: int
    not_erased: list[str]
    bookmarks: dict[str, str]

    def is_new(self, line: int) -> bool:
        """Tell whether the log lacked the event of a line when the export was looked at."""
        return bool(self.notes[line - 2] & _NEW)

    def is_unnamed(self, line: int) -> bool:
        """Tell whether the event of a line is erased, and no erasure of the export names it: it names others too."""
        return _is_unnamed(self.notes[line - 2])


def survey(store: Store, export: ExportFile, done: Callable[[int], None], *, is_own: bool) -> Survey:
    """Check all of an export, and return what it is to the log. Nothing is written.

    Args:
        store: the log.
        export: the export.
        done: called with the number of events that are checked.
        is_own: whether it is an export of this log.

    Raises:
        FormatError: a line is wrong, or does not go with the others or with the log.
        IdConflictError: the log has another event under an id, or a stream goes another way there.
    """
    with store.scratch() as scratch:
        checker = _Checker(export, scratch, is_own=is_own)
        events = export.events()
        while True:
            with store.read() as transaction:
                count = checker.page(transaction, events)
            if not count:
                break
            done(checker.count)
        checker.end()
        bookmarks = kept_heads(scratch)
    return Survey(
        whole=checker.whole, notes=checker.notes, new=checker.new, not_erased=checker.not_erased, bookmarks=bookmarks
    )


class _Checker:
    def __init__(self, export: ExportFile, scratch: ScratchTransaction, *, is_own: bool) -> None:
        self._is_own = is_own
        self._header = export.header
        self._scratch = scratch
        self._last = 0
        self._payload_bytes = 0
        self._extends_log: set[tuple[str, int]] = set()
        """Places in streams of events whose predecessor the export lacks."""
        self.whole = self._header.of == "log" and self._header.events > 0
        self.notes = bytearray()
        self.count = self.new = 0
        self.not_erased: list[str] = []

    def page(self, transaction: ReadTransaction, events: Iterator[ExportedEvent]) -> int:
        """Check the next events with one snapshot, and return how many they were."""
        end = transaction.log_end()
        count = size = 0
        for exported in islice(events, PAGE_EVENTS):
            self._check(transaction, exported, end)
            count, size = count + 1, size + len(exported.event.state) + (exported.event.stored_size or 0)
            del exported  # before the next one comes: both may be large
            if size >= PAGE_BYTES:
                break
        return count

    def end(self) -> None:
        """Check what only the whole export tells."""
        header = self._header
        if self.whole:
            self._check_erasures()
        if self.count and self._last != header.last:
            raise FormatError(f"line {self.count + 1}: the header says that the last global position is {header.last}")
        if self._payload_bytes != header.payload_bytes:
            raise FormatError(
                f"the header says {header.payload_bytes:,} bytes of payloads, and there are {self._payload_bytes:,}"
            )

    def _check_erasures(self) -> None:
        """Check that each erased event of a whole log has its erasure: it goes to the end of what was erased there.

        What comes in as a guest's has an erasure of this log for that. This one would be damaged.
        """
        for line, notes in enumerate(self.notes, 2):
            if notes & _NEW and _is_unnamed(notes):
                raise _error(
                    line, "it is erased, and no gpt.erasure event of the log names it: export again, or import a part"
                )

    def _check(self, transaction: ReadTransaction, exported: ExportedEvent, log_end: int) -> None:
        event, line = exported.event, exported.line
        self._check_order(exported)
        earlier = self._scratch.folded(event.header.id)
        if earlier is not None:
            raise _error(line, f"event {event.header.id!r} is there twice, first on line {earlier.global_position + 1}")
        self.notes.append(0)
        self.count += 1
        if self._is_new(transaction, exported, log_end):
            self.notes[-1] |= _NEW
            self.new += 1
            check_citations(event, line, lambda event_id: self._find(transaction, event_id))
        elif event.erased and event.header.topic == TURN:
            here = transaction.event(event.header.id)
            can_say = self._is_own and not exported.guest
            if here is not None and not here.erased and (can_say or here.arrival == Arrival.GUEST):
                self.not_erased.append(event.header.id)
        self._check_stream(exported)
        self._note_erasures(exported)
        arrival = Arrival.GUEST if exported.guest else Arrival.RESTORED
        self._scratch.fold(recorded(event, self.count, arrival))
        self._payload_bytes += event.stored_size or 0

    def _check_order(self, exported: ExportedEvent) -> None:
        header, line, at = self._header, exported.line, exported.at
        expected = self._last + 1 if self._last or header.of == "log" else header.first
        if header.of == "log" or not self._last:
            if at != expected:
                raise _error(line, f"global position {at} where {expected} is expected")
        elif at <= self._last:
            raise _error(line, f"global position {at} after {self._last}")
        self._last = at
        begins = is_genesis_of(exported, header)
        if exported.event.header.topic == GENESIS and not exported.guest and not begins:
            raise _error(line, "it begins another log than the header says")
        if header.of == "log" and begins != (at == 1):
            raise _error(line, "a log begins with log.genesis, and has one")

    def _is_new(self, transaction: ReadTransaction, exported: ExportedEvent, log_end: int) -> bool:
        if self.whole:
            if exported.at > log_end:
                return True
            # A store that has recorded events of its own is nobody's copy: whoever has seen an export of the log could
            # make one that goes on from it.
            stored = transaction.at_global(exported.at)
            if is_at(transaction, exported.event, exported.at) and stored and stored.arrival != Arrival.RECORDED:
                return False
            self.whole = False
        return not is_known(transaction, exported.event, exported.line)

    def _find(self, transaction: ReadTransaction, event_id: str) -> Place | None:
        folded = self._scratch.folded(event_id)
        if folded is not None:
            return Place(folded.leaf_hash, folded.topic, folded.stream, folded.position)
        found = None if self.whole else transaction.event(event_id)
        return None if found is None else place_of(found)

    def _check_stream(self, exported: ExportedEvent) -> None:
        """Check that no other event of the export has the same place in a stream."""
        header = exported.event.header
        if header.position == 0:
            return
        earlier = self._scratch.folded(header.parents[0].id)
        if earlier is None:
            taken = (header.stream, header.position) in self._extends_log
            self._extends_log.add((header.stream, header.position))
        else:
            taken = bool(self.notes[earlier.global_position - 1] & _EXTENDED)
            self.notes[earlier.global_position - 1] |= _EXTENDED
        if taken:
            raise _error(exported.line, f"two events have position {header.position} of stream {header.stream!r}")

    def _note_erasures(self, exported: ExportedEvent) -> None:
        event = exported.event
        self.notes[-1] |= (_ERASED if event.erased else 0) | (_GUEST if exported.guest else 0)
        if event.header.topic == ERASURE:
            for citation in event.header.citations:
                target = self._scratch.folded(citation.id)
                if target is None or citation.relation != TARGET:
                    continue
                at = target.global_position - 1
                if not exported.guest or self.notes[at] & _GUEST:
                    self.notes[at] |= _NAMED


def _is_unnamed(notes: int) -> bool:
    return notes & (_ERASED | _NAMED) == _ERASED


def _error(line: int, what: str) -> FormatError:
    return FormatError(f"line {line}: {what}", line=line)
