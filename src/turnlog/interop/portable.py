"""turnlog's own portable form: JSON lines, one event a line with its payload, in global order.

The first line is a header. Each further line holds an event's exact bytes as a JSON object, its digest, and its
payload: under `payload` where it is JSON (verbatim), else under `payload_base64`. `docs/reference/log-format.md`
specifies it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnlog import events
from turnlog.digest import event_digest, payload_hash
from turnlog.errors import CorruptionError, FormatError
from turnlog.events import BOOKMARK, CALL, TURN, Event, Recorded, bookmark_meta, meta_of, turn_meta
from turnlog.model import CallMeta
from turnlog.projections import thread_turns
from turnlog.projections.bookmarks import all_bookmarks
from turnlog.record import RestoredEvent, find_turn, plan_restore
from turnlog.store import ReadTransaction, Store, WriteTransaction

VERSION = 1
Progress = Callable[[int, int], None]


class Header(Struct, frozen=True, kw_only=True):
    """The first line: which version of the form this is, and how many events follow."""

    turnlog_export: int
    events: int


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A further line: an event and its payload."""

    event: Raw
    digest: str
    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class MovedBookmark(Struct, frozen=True, kw_only=True):
    """A bookmark that stood elsewhere before an import, None for nowhere."""

    name: str
    before: str | None
    after: str | None


class RestoreReport(Struct, frozen=True, kw_only=True):
    """What an import of a turnlog export did.

    Attributes:
        added: number of events that were new.
        known: number of events that the log had already, byte for byte.
        moved_bookmarks: bookmarks that the imported events moved away from, or onto, a turn.
    """

    added: int
    known: int
    moved_bookmarks: tuple[MovedBookmark, ...]


_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def export(store: Store, file: BinaryIO, headish: str | None, *, progress: Progress | None = None) -> int:
    """Write a log, or the threads of one turn with all that they continue, and return the number of events."""
    with store.read() as transaction:
        if headish is None:
            [(count,)] = transaction.rows("SELECT COUNT(*) FROM stored_events")
            found: Iterator[Recorded] = transaction.log()
        else:
            part = _closure(transaction, headish)
            count, found = len(part), iter(part)
        file.write(_encoder.encode(Header(turnlog_export=VERSION, events=count)) + b"\n")
        for done, recorded in enumerate(found, 1):
            file.write(_export_line(recorded, transaction.payload(recorded)) + b"\n")
            if progress is not None:
                progress(done, count)
    return count


def _closure(transaction: ReadTransaction, headish: str) -> list[Recorded]:
    """Return the turns of a turn's threads, all that they continue, the model calls that they came of, and bookmarks.

    A bookmark that has left for a turn elsewhere stays, in the export, where it last stood here.
    """
    head = find_turn(transaction, headish).event
    found: dict[str, Recorded] = {}
    reached: dict[str, int] = {}
    """The last position of each stream that is found; what is found of a stream is its beginning."""
    waiting = [
        (turn.event.stream, turn.event.position) for turn in thread_turns(transaction, head.stream, head.position)
    ]
    while waiting:
        stream, position = waiting.pop()
        first = reached.get(stream, -1) + 1
        reached[stream] = max(position, first - 1)
        for turn in transaction.stream(stream, first, position):
            found[turn.event.id] = turn
            for parent in turn.event.parents[min(turn.event.position, 1) :]:
                known = transaction.event(parent.id)
                if known is not None:
                    waiting.append((known.event.stream, known.event.position))
    held: set[str] = set()
    for recorded in transaction.log(topics=[TURN, BOOKMARK]):
        _follow_bookmark(recorded, found, held)
    for turn in list(found.values()):
        if turn.event.topic == TURN:
            _add_call(transaction, turn, found)
    return sorted(found.values(), key=lambda recorded: recorded.global_position)


def _add_call(transaction: ReadTransaction, turn: Recorded, found: dict[str, Recorded]) -> None:
    """Add what a turn came of: the call, the earlier calls that its request has parts of, the tools, the reply.

    An event that cannot be found is left out: the turn itself does not need it.
    """
    meta = turn_meta(turn.event)
    waiting = [name for name in (meta.call, meta.reply) if name is not UNSET]
    while waiting:
        recorded = transaction.event(waiting.pop())
        if recorded is None or recorded.event.id in found:
            continue
        found[recorded.event.id] = recorded
        if recorded.event.topic == CALL:
            call = meta_of(recorded.event, CallMeta)
            waiting += [name for name in (call.base, call.tools) if name is not UNSET]


def _follow_bookmark(recorded: Recorded, found: dict[str, Recorded], held: set[str]) -> None:
    """Keep which bookmarks stand in the part that is exported, and add the bookmark events that concern it."""
    event = recorded.event
    if event.topic == TURN:
        head = turn_meta(event).head
        if isinstance(head, str):
            (held.add if event.id in found else held.discard)(head)
        return
    meta = bookmark_meta(event)
    if meta.action == "set":
        if meta.turn in found:
            found[event.id] = recorded
            held.add(meta.name)
        else:
            held.discard(meta.name)
    elif meta.name in held:
        found[event.id] = recorded
        held.discard(meta.name)
        if isinstance(meta.to, str):
            held.add(meta.to)


def _export_line(recorded: Recorded, payload: bytes | None) -> bytes:
    text: Raw | UnsetType = UNSET
    encoded: str | UnsetType = UNSET
    if payload is not None and _is_minified_json(payload):
        text = Raw(payload)
    elif payload is not None:
        encoded = b64encode(payload).decode()
    return _encoder.encode(
        Line(event=Raw(recorded.state), digest=recorded.digest, payload=text, payload_base64=encoded)
    )


def _is_minified_json(payload: bytes) -> bool:
    try:
        payload.decode()
        return b"\n" not in payload and msgspec.json.format(payload, indent=-1) == payload
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False


def restore(store: Store, file: BinaryIO, *, progress: Progress | None = None) -> RestoreReport:
    """Take over the events of an export in one transaction, all or nothing."""
    first = file.readline()
    try:
        header = _header.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError("line 1: not a turnlog export: the header is missing", line=1) from error
    if header.turnlog_export != VERSION:
        raise FormatError(
            f"line 1: export of version {header.turnlog_export}, this turnlog knows {VERSION}: upgrade turnlog", line=1
        )
    checked = [_checked(number, line) for number, line in enumerate(file, 2)]
    if len(checked) != header.events:
        raise FormatError(
            f"the export is cut: its header says {header.events} events, it has {len(checked)}; nothing was imported"
        )
    lines = [
        RestoredEvent(line=number, state=state, event=event, payload=store.place(payload))
        for number, state, event, payload in checked
    ]

    def plan(transaction: WriteTransaction) -> RestoreReport:
        before = {bookmark.name: bookmark.turn for bookmark in all_bookmarks(transaction)}
        added = 0
        for done, restored in enumerate(lines, 1):
            added += plan_restore(transaction, restored)
            if progress is not None:
                progress(done, len(lines))
        after = {bookmark.name: bookmark.turn for bookmark in all_bookmarks(transaction)}
        return RestoreReport(
            added=added,
            known=len(lines) - added,
            moved_bookmarks=tuple(
                MovedBookmark(name=name, before=before.get(name), after=after.get(name))
                for name in sorted(before.keys() | after.keys())
                if before.get(name) != after.get(name)
            ),
        )

    return store.write(plan)


def _checked(number: int, text: bytes) -> tuple[int, bytes, Event, bytes | None]:
    """Return a line's event bytes, event and payload, checked as far as that goes without the log."""
    try:
        line = _line.decode(text)
        state = bytes(line.event)
        event = events.decode(state)
        if (wrong := events.flaw(event, state)) is not None:
            raise ValueError(wrong)
        if isinstance(line.payload_base64, str):
            payload: bytes | None = b64decode(line.payload_base64, validate=True)
        else:
            payload = bytes(line.payload) if isinstance(line.payload, Raw) else None
    except (msgspec.DecodeError, CorruptionError, ValueError, RecursionError) as error:
        raise FormatError(
            f"line {number}: not a line of a turnlog export: {error}; nothing was imported", line=number
        ) from error
    if event_digest(state) != line.digest:
        raise FormatError(
            f"line {number}: event {event.id!r} does not have the digest {line.digest!r}; nothing was imported",
            line=number,
        )
    if (None if payload is None else (payload_hash(payload), len(payload))) != (
        event.hash and (event.hash, event.size)
    ):
        raise FormatError(
            f"line {number}: the payload of event {event.id!r} does not have the hash {event.hash!r}; "
            "nothing was imported",
            line=number,
        )
    return number, state, event, payload
