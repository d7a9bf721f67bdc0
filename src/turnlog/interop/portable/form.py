"""The lines of the portable form, and their codec. `docs/reference/log-format.md` specifies it.

What is written is checked as strictly as it can be from the line alone: a line is spelled exactly as `export` spells
it, so that nothing can stand in it that nobody looks at.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnlog.digest import payload_hash
from turnlog.errors import CorruptionError, FormatError, InputError
from turnlog.events import GENESIS, Event, Recorded, decode, flaw
from turnlog.ids import is_id
from turnlog.interop.portable.contents import content_flaw
from turnlog.model.depth import JSON_DEPTH_MAX, is_deeper
from turnlog.model.json_text import UNREADABLE
from turnlog.model.pieces import PIECE, check_utf8, joined
from turnlog.store.payloads import PAYLOAD_BYTES_MAX

VERSION = 2

Scope = Literal["log", "threads", "ancestry"]
"""What an export is of: a whole log, the threads of a turn, or a turn with its ancestry."""

POSITION_MAX = (1 << 53) - 1
"""No number in the form is larger: JSON readers everywhere read whole numbers up to here exactly."""

_HEADER_BYTES_MAX = 64 * 1024
_PARTS_BYTES_MAX = 16 * 1024 * 1024
"""The longest line without its payload, in bytes. An event's metadata has at most 1 MiB."""

_DEPTH_MAX = 1000
"""So many arrays and objects stand in each other in a line at most, inclusive. Exports have payloads as JSON up to
`JSON_DEPTH_MAX`, and had them up to what Python 3.11 could read; later ones read much more than that."""

_BASE64_PIECE_BYTES = 3 * 256 * 1024


class Header(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The first line.

    Attributes:
        turnlog_export: the version of the form.
        log: the id of the log; None for an empty one.
        of: what of the log is here.
        head: the turn that was asked for, where it is not the whole log.
        first: global position of the first event, where there is one.
        last: global position of the last event, where there is one.
        events: number of lines that follow.
        payload_bytes: bytes of all payloads.
    """

    turnlog_export: int
    log: str | None
    of: Scope
    head: str | UnsetType = UNSET
    first: int | UnsetType = UNSET
    last: int | UnsetType = UNSET
    events: int
    payload_bytes: int


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A further line: an event with its private part and its payload.

    Attributes:
        at: its global position in the log that it was exported from.
        guest: whether it was of another log there, so that it moved no bookmark.
        erased: whether its private part and its payload are gone.
        digest: its digest.
        event: the bytes of its header.
        private: the bytes of its private part.
        payload: its payload, where that is JSON without whitespace outside strings.
        payload_base64: its payload, where it is anything else.
    """

    at: int
    guest: bool = False
    erased: bool = False
    digest: str
    event: Raw
    private: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    payload_base64: Raw | UnsetType = UNSET


class ExportedEvent(Struct, frozen=True, kw_only=True):
    """What a line says, checked as far as that goes without the log.

    Attributes:
        line: number of the line, from 1.
        at: global position in the log that it was exported from.
        guest: whether it was of another log there.
        event: the event.
        payload: its payload.
    """

    line: int
    at: int
    guest: bool
    event: Event
    payload: bytes | None


class _Version(Struct, frozen=True):
    turnlog_export: int


_encoder = msgspec.json.Encoder()
_version = msgspec.json.Decoder(_Version)
_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(Line)


# Write


def header_line(header: Header) -> bytes:
    """Return the first line."""
    return _encoder.encode(header) + b"\n"


def event_line(recorded: Recorded, payload: bytes | None, *, guest: bool) -> Iterator[bytes]:
    """Give the line of an event in pieces: its payload is not held twice."""
    private = UNSET if recorded.private_state is None else Raw(recorded.private_state)
    line = Line(
        at=recorded.global_position,
        guest=guest,
        erased=recorded.erased,
        digest=recorded.digest,
        event=Raw(recorded.state),
        private=private,
    )
    text = _encoder.encode(line)
    if payload is None:
        yield text + b"\n"
    elif _stands_as_json(payload):
        yield text[:-1] + b',"payload":'
        yield payload
        yield b"}\n"
    else:
        yield text[:-1] + b',"payload_base64":"'
        for start in range(0, len(payload), _BASE64_PIECE_BYTES):
            yield b2a_base64(payload[start : start + _BASE64_PIECE_BYTES], newline=False)
        yield b'"}\n'


def _stands_as_json(payload: bytes) -> bool:
    """Tell whether an export has a payload as JSON. How deep that may be is not left to what Python can read."""
    return _is_minified_json(payload) and not is_deeper(payload, JSON_DEPTH_MAX)


def _is_minified_json(payload: bytes) -> bool:
    try:
        check_utf8(payload)
        return b"\n" not in payload and msgspec.json.format(payload, indent=-1) == payload
    except UNREADABLE:
        return False


# Read


class ExportFile:
    """An export to read, from where the file stands, as often as is wanted.

    Attributes:
        header: its header.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Read the header of an export.

        Raises:
            FormatError: it is none, or of another version.
        """
        self._file = file
        self.header = _read_header(file.readline(_HEADER_BYTES_MAX + 1))
        self._start = file.tell()
        payload_bytes = min(self.header.payload_bytes, PAYLOAD_BYTES_MAX)
        self._line_bytes_max = _PARTS_BYTES_MAX + payload_bytes * 4 // 3

    def events(self, wanted: Callable[[int], bool] | None = None) -> Iterator[ExportedEvent]:
        """Give the events from the beginning, each checked as far as that goes without the log.

        Of a large one no more is held than its line and its payload, and then its payload and that in another form.

        Args:
            wanted: tells of the number of a line whether its event is wanted; others are passed over.

        Raises:
            FormatError: there are more or fewer than the header says, or one is longer than any can be; a line is not
                what `export` writes; a hash or a digest is wrong; an event is malformed.
        """
        self._file.seek(self._start)
        events = self.header.events
        for number in range(2, events + 2):
            if wanted is None or wanted(number):
                yield _checked(_read(number, self._line(number)))
            else:
                self._line(number)
        if self._file.read(1):
            raise FormatError(
                f"line {events + 2}: there is more than the {events:,} events that the header says", line=events + 2
            )

    def _line_pieces(self) -> Iterator[bytes]:
        """Iterate over the next line, up to a byte more than one can have. Read at once, a long one is there twice."""
        left = self._line_bytes_max + 1
        while left and (piece := self._file.readline(min(left, PIECE))):
            yield piece
            left = 0 if piece.endswith(b"\n") else left - len(piece)

    def _line(self, number: int) -> bytes:
        """Return the next line, line feed included."""
        text = joined(self._line_pieces())
        if len(text) > self._line_bytes_max:
            raise FormatError(f"line {number}: longer than any line of this export can be", line=number)
        if not text.endswith(b"\n"):
            events = self.header.events
            raise FormatError(f"the export is cut: its header says {events:,} events, and it has {number - 2:,}")
        return text


def _read_header(text: bytes) -> Header:
    try:
        version = _version.decode(text).turnlog_export
    except UNREADABLE as error:
        raise FormatError("line 1: not a turnlog export: the header is missing", line=1) from error
    if version != VERSION:
        hint = "upgrade turnlog" if version > VERSION else "export it anew"
        raise FormatError(f"line 1: export of version {version}, this turnlog knows {VERSION}: {hint}", line=1)
    try:
        header = _header.decode(text)
    except UNREADABLE as error:
        raise FormatError(f"line 1: not the header of a turnlog export: {error}", line=1) from error
    if header_line(header) != text:
        raise FormatError("line 1: the header is not spelled as `turnlog export` does", line=1)
    if (wrong := _header_flaw(header)) is not None:
        raise FormatError(f"line 1: the header cannot be that of an export: {wrong}", line=1)
    return header


def _header_flaw(header: Header) -> str | None:
    numbers = {"events": header.events, "payload_bytes": header.payload_bytes}
    numbers |= {name: at for name, at in (("first", header.first), ("last", header.last)) if isinstance(at, int)}
    for name, number in numbers.items():
        if not 0 <= number <= POSITION_MAX:
            return f"{name} is {number}"
    for name, value in (("log", header.log), ("head", header.head)):
        if isinstance(value, str) and not _is_stored_id(value):
            return f"{name} {value!r} is not an id in stored form"
    if (header.of == "log") != isinstance(header.head, UnsetType):
        return f"it is of {header.of!r}, and {'has' if header.of == 'log' else 'lacks'} a head"
    there = header.events > 0
    if there != isinstance(header.first, int) or there != isinstance(header.last, int) or there != bool(header.log):
        return "log, first and last are there if there are events, and not else"
    if header.of == "log" and there and (header.first, header.last) != (1, header.events):
        return f"a whole log of {header.events} events has the positions 1 to {header.events}"
    return None


def _is_stored_id(text: str) -> bool:
    return is_id(text) and text == text.lower()


class _Read(NamedTuple):
    """What a line says, taken out of its text."""

    line: int
    at: int
    guest: bool
    erased: bool
    digest: str
    event: Event
    payload: bytes | None
    is_json: bool
    """Whether the payload stands there as JSON."""


def _read(number: int, text: bytes) -> _Read:
    """Take out of a line what it says.

    Raises:
        FormatError: the line is not spelled as `export` does, or has no event.
    """
    with _converted(number):
        if is_deeper(text, _DEPTH_MAX):
            raise _too_deep(number)
        line = _line.decode(text)
        if isinstance(line.payload, Raw) and isinstance(line.payload_base64, Raw):
            raise ValueError("it has two payloads")
        if not _is_spelled(line, text):
            raise ValueError("it is not spelled as `turnlog export` does (a key twice, whitespace, another order)")
        if not 0 < line.at <= POSITION_MAX:
            raise ValueError(f"{line.at} is not a global position")
        if (
            sum(len(memoryview(part)) for part in (line.event, line.private) if isinstance(part, Raw))
            > _PARTS_BYTES_MAX
        ):
            raise ValueError("its event is longer than any is")
        event = _event(line)
        return _Read(
            line=number,
            at=line.at,
            guest=line.guest,
            erased=line.erased,
            digest=line.digest,
            event=event,
            payload=_payload(line),
            is_json=isinstance(line.payload, Raw),
        )


def _checked(read: _Read) -> ExportedEvent:
    """Return an event that was read, once its payload and all that it says are checked.

    Raises:
        FormatError: something of it is wrong.
    """
    with _converted(read.line):
        if read.payload is not None and read.is_json and not _is_minified_json(read.payload):
            raise ValueError("its payload is not JSON in UTF-8 without whitespace, and not in base64")
        if read.payload is not None and not read.is_json and _stands_as_json(read.payload):
            raise ValueError("its payload is JSON in base64, where `turnlog export` writes it as it is")
    if (wrong := _flaw(read)) is not None:
        raise FormatError(f"line {read.line}: event {read.event.header.id!r}: {wrong}", line=read.line)
    return ExportedEvent(line=read.line, at=read.at, guest=read.guest, event=read.event, payload=read.payload)


def _too_deep(number: int) -> FormatError:
    return FormatError(f"line {number}: not a line of a turnlog export: nested too deeply", line=number)


@contextmanager
def _converted(number: int) -> Generator[None]:
    """Raise what is wrong with a line as turnlog's error."""
    try:
        yield
    except RecursionError as error:
        raise _too_deep(number) from error
    except (*UNREADABLE, CorruptionError, ValueError) as error:
        raise FormatError(f"line {number}: not a line of a turnlog export: {error}", line=number) from error


def _is_spelled(line: Line, text: bytes) -> bool:
    """Tell whether a line is spelled as `export` does: all but its payload is encoded again, and its length compared.

    Where nothing is beside the payload but what is encoded, the rest of the line is the payload.
    """
    spelled = _encoder.encode(msgspec.structs.replace(line, payload=UNSET, payload_base64=UNSET))
    size, start = len(spelled) + 1, spelled[:-1]
    for key, payload in ((b',"payload":', line.payload), (b',"payload_base64":', line.payload_base64)):
        if isinstance(payload, Raw):
            size, start = size + len(key) + len(memoryview(payload)), start + key
    return len(text) == size and text.startswith(start) and text.endswith(b"}\n")


def _event(line: Line) -> Event:
    state = bytes(line.event)
    private_state = None if isinstance(line.private, UnsetType) else bytes(line.private)
    event = decode(state, None, global_position=line.at)
    if private_state is None:
        return event
    if event.header.private != payload_hash(private_state):
        raise ValueError(f"the private part of event {event.header.id!r} is not the one that its header commits to")
    return decode(state, private_state, global_position=line.at)


def _payload(line: Line) -> bytes | None:
    if isinstance(line.payload, Raw):
        return bytes(line.payload)
    if isinstance(line.payload_base64, Raw):
        string = memoryview(line.payload_base64)
        if bytes(string[:1]) != b'"':
            raise ValueError("payload_base64 is no string")
        return a2b_base64(string[1:-1], strict_mode=True)
    return None


def _flaw(read: _Read) -> str | None:
    """Return what is wrong with an event and its payload, apart from all other events."""
    event, payload = read.event, read.payload
    if event.digest != read.digest:
        return f"it does not have the digest {read.digest!r}"
    if event.erased != read.erased:
        return "its private part is missing" if event.erased else "it is marked as erased, and is not"
    if event.header.position > POSITION_MAX:
        return f"position {event.header.position} is beyond all that there can be"
    if event.stored_hash is None and payload is not None:
        return "it has a payload that it does not tell of"
    if event.stored_hash is not None and payload is None:
        return "its payload is missing"
    if payload is not None and (payload_hash(payload), len(payload)) != (event.stored_hash, event.stored_size):
        return f"its payload does not have the hash {event.stored_hash!r} and {event.stored_size} bytes"
    try:
        return flaw(event) or content_flaw(event, payload)
    except (CorruptionError, InputError, *UNREADABLE) as error:
        return str(error)


def is_genesis_of(line: ExportedEvent, header: Header) -> bool:
    """Tell whether a line has the first event of the log that an export is of."""
    return line.event.header.topic == GENESIS and line.event.header.id == header.log and not line.guest
