"""What all wires share on the network: server-sent events, JSON events, and which HTTP errors may pass."""

from __future__ import annotations

import math
import random
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, cast

import msgspec

from turnlog.errors import ProviderError
from turnlog.model.api_keys import stands_out
from turnlog.model.json_text import UNREADABLE
from turnlog.providers.raw_json import read_object, text_of, unreadable

if TYPE_CHECKING:
    from turnlog.providers.interface import Connection

T = TypeVar("T")

RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed later (RFC 9110 §15; 529: Anthropic, overloaded)."""

_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""How long to wait at most after each failed try, in seconds; the last one stands for all others."""

CONNECT_S = 30.0
"""How long is waited for a connection at most, in seconds: whoever is there answers that much sooner than a model."""

Waited = Literal["connection", "reply"]
"""For what something waited too long."""

_MESSAGE_CHARACTERS_MAX = 500

_UNKNOWN_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""What a look-up says of a name that does not exist, or has no address (RFC 3493 §6.1)."""

_UNKNOWN_ISSUER = frozenset({18, 19, 20, 21})
"""What OpenSSL says of a certificate that nobody who is trusted has signed (`X509_V_ERR_*` in `x509_vfy.h`)."""

_page_begins = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)[\s>]", re.IGNORECASE)

DONE = b"[DONE]"
"""What stands for the end in streams that can go on after it."""


class EventCutter(Protocol):
    """Cuts the bytes of a stream into its events."""

    def add(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the events that end in them."""
        ...

    def end(self) -> list[bytes]:
        """Return the events that the stream ended in before it was known where they end."""
        ...


_FIELDS = frozenset({b"", b"data", b"event", b"id", b"retry"})
"""What a line of a stream has before its first colon: the name of a field, or nothing where it is a comment."""

_json_begins = re.compile(rb"\s*(?:\{|\[\s*(?:[\[{\]]|$))")
"""How JSON that stands between events begins. A bracket before something else may be that of a line of some log."""

_json_strings = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')

_stream_begins = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")


def is_event_stream(body: bytes) -> bool:
    """Return whether a body is a `text/event-stream`, as its first line has it: some are called JSON."""
    return _stream_begins.match(body) is not None


class EventBytes:
    """Cuts the bytes of a `text/event-stream` into its events, as exactly the bytes of their data (WHATWG HTML §9.2.6).

    Lines end with CR, LF or both, and with nothing else: U+2028, which many line readers take for an end, may stand in
    JSON as it is. Blank data, which some servers keep a connection open with, is no event here: no wire has one.

    JSON that stands between events as it is, and not as the data of one, is an event too, up to the end of the line
    that it ends in: servers write an error so that fail while they stream, and a whole reply that do not stream. So is
    all of a body in which no line is one of a stream. Lines of either are joined as those of data are, with LF.
    """

    def __init__(self) -> None:
        """Begin with no bytes."""
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._json: list[bytes] = []
        self._depth = 0
        """How many brackets are open in the lines of JSON so far."""
        self._other: list[bytes] | None = []
        """All lines so far, until one of them is JSON or one of a stream."""
        self._after_cr = False
        self._first = True

    def add(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the events that end in them."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest += chunk
            return []
        *lines, last = (bytes(self._rest) + chunk).splitlines(keepends=True)
        self._rest = bytearray()
        if last.endswith((b"\n", b"\r")):
            lines.append(last)
        else:
            self._rest += last
        return [event for line in lines for event in self._line(line.rstrip(b"\r\n"))]

    def end(self) -> list[bytes]:
        """Return the events that the stream ended in: data before its empty line, JSON, or what was no stream."""
        rest, self._rest = bytes(self._rest), bytearray()
        events = self._line(rest) if rest else []
        other, self._other = b"\n".join(self._other or ()).strip(), None
        return [*events, *self._end_of_data(), *self._end_of_json(), *([other] if other else [])]

    def _line(self, line: bytes) -> list[bytes]:
        """Take a line; return the events that end with it, or before it."""
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        name, _, value = line.partition(b":")
        if line and name in _FIELDS:
            self._other = None
            ended = self._end_of_json() if name else []
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return ended
        if self._json or _json_begins.match(line):
            self._other = None
            ended = self._end_of_data()
            self._json.append(line)
            outside = _json_strings.sub(b"", line)
            self._depth += sum(map(outside.count, (b"{", b"["))) - sum(map(outside.count, (b"}", b"]")))
            return [*ended, *self._end_of_json()] if self._depth <= 0 else ended
        if self._other is not None:
            self._other.append(line)
        return [] if line else self._end_of_data()

    def _end_of_data(self) -> list[bytes]:
        event, self._data = b"\n".join(self._data), []
        said = event.strip()
        return [DONE] if said == DONE else [event] if said else []

    def _end_of_json(self) -> list[bytes]:
        event, self._json, self._depth = b"\n".join(self._json).strip(), [], 0
        return [event] if event else []


class EventsUpToLast(EventBytes):
    """Cuts out events up to the one that nothing comes after, so that a connection kept open is not waited for.

    Nor does it matter how the connection ends then.

    Attributes:
        last: the types that the last event can have.
    """

    last: ClassVar[frozenset[str]]

    def add(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the data of the events that end in them."""
        events = super().add(chunk)
        end = next((place for place, event in enumerate(events, 1) if self._is_last(event)), None)
        return events if end is None else [*events[:end], DONE]

    def _is_last(self, event: bytes) -> bool:
        if not any(b'"%b"' % name.encode() in event for name in self.last):
            return False
        with suppress(*UNREADABLE):
            return text_of(read_object(event).get("type")) in self.last
        return False


def events_in(chunks: Iterable[bytes], parts: EventCutter | None = None) -> Iterator[bytes]:
    """Iterate over the raw events in the bytes of a stream, up to `[DONE]`, or where what cuts them puts that.

    An event that the stream ends in before its empty line is one too: nothing that arrived is lost.

    Args:
        chunks: the bytes, as they come.
        parts: what cuts them; by default they are a `text/event-stream`.
    """
    parts = parts or EventBytes()
    for chunk in chunks:
        for data in parts.add(chunk):
            if data == DONE:
                return
            yield data
    yield from (data for data in parts.end() if data != DONE)


async def aevents_in(chunks: AsyncIterable[bytes], parts: EventCutter | None = None) -> AsyncGenerator[bytes, None]:
    """Do the same for asyncio."""
    parts = parts or EventBytes()
    async for chunk in chunks:
        for data in parts.add(chunk):
            if data == DONE:
                return
            yield data
    for data in parts.end():
        if data != DONE:
            yield data


def decode_event(event: bytes, decoder: msgspec.json.Decoder[T], *, provider: str) -> T:
    """Return an event decoded.

    Raises:
        ProviderError: it is not JSON, or not of the type.
    """
    try:
        return decoder.decode(event)
    except UNREADABLE as error:
        raise ProviderError(unreadable(provider, event, error), provider=provider) from error


def status_error(
    provider: str, status: int, message: str, retry_after: str | None = None, *, who: str = ""
) -> ProviderError:
    """Return the error behind an HTTP status: one line, with what the provider said.

    Args:
        provider: the adapter's name.
        status: the HTTP status.
        message: what the provider said; shortened to one line. Of a page of HTML, which gateways answer with, it is
            what a reader sees.
        retry_after: the `Retry-After` header (RFC 9110 §10.2.3), seconds or a date.
        who: who answered, as people call it; by default the adapter's name.
    """
    if _page_begins.match(message):
        from turnlog.providers.html_page import text_of_page  # noqa: PLC0415 - few answers are one

        message = text_of_page(message)
    said = _one_line(message)
    return ProviderError(
        f"{who or provider} answered {status}: {said or 'nothing more'}",
        provider=provider,
        status=status,
        retryable=status in RETRYABLE_STATUS,
        retry_after_s=asked_wait_s(retry_after),
    )


def http_status(code: object) -> int | None:
    """Return the code that an error names where it is an HTTP status (RFC 9110 §15); None for anything else."""
    return code if type(code) is int and 100 <= code <= 599 else None


def connect_s(connection: Connection) -> float:
    """Return how long to wait for a connection, in seconds."""
    return min(CONNECT_S, connection.timeout_s)


def connection_error(
    adapter: str, error: BaseException, connection: Connection, *, waited: Waited | None = None, proxy: str = ""
) -> ProviderError:
    """Return the error of a connection that could not be made, timed out or broke off.

    Trying again may help, but for a certificate that is not trusted, and for a name that no resolver knows: that is a
    mistake in the base URL, most often.

    Args:
        adapter: the adapter's name.
        error: what was raised.
        connection: how the provider was to be reached.
        waited: for what it took too long, if it did.
        proxy: the proxy that it goes through, as people call it; empty for none.
    """
    who = connection.who or adapter
    behind = list(_behind(error))
    through = f", through {proxy}" if proxy else ""
    if waited == "connection":
        said = f"{who} cannot be reached: there was no connection within {connect_s(connection):g} s{through}"
        return ProviderError(said, provider=adapter, retryable=True)
    if waited == "reply":
        said = f"{who} did not answer in time: nothing came for {connection.timeout_s:g} s{through}"
        return ProviderError(said, provider=adapter, retryable=True)
    detail = why(error) + through
    looked_up = next((each for each in behind if isinstance(each, socket.gaierror)), None)
    if looked_up is not None and looked_up.errno in _UNKNOWN_NAME:
        return ProviderError(f"{who} cannot be reached: {detail}: check the base URL", provider=adapter)
    refused = next((each for each in behind if isinstance(each, ssl.SSLCertVerificationError)), None)
    if refused is not None:
        said = f"{who} cannot be reached: its certificate is not trusted: {_one_line(refused.verify_message)}{through}"
        known = f"{said}: SSL_CERT_FILE names a file of the authorities to trust"
        return ProviderError(known if refused.verify_code in _UNKNOWN_ISSUER else said, provider=adapter)
    return ProviderError(f"{who} cannot be reached, or broke off: {detail}", provider=adapter, retryable=True)


def why(error: BaseException) -> str:
    """Return what an error says in one line, or what one behind it says, or its name where none says anything."""
    return next((said for each in _behind(error) if (said := _one_line(each))), type(error).__name__)


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    """Iterate over an error and those that it came of, the last one first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(said: object) -> str:
    return " ".join(str(said).split())[:_MESSAGE_CHARACTERS_MAX]


@contextmanager
def no_models(adapter: str, connection: Connection, *errors: type[Exception]) -> Generator[None, None, None]:
    """Raise what reading a list of models raises as `ProviderError`: JSON that cannot be read, and further errors."""
    try:
        yield
    except (*UNREADABLE, *errors) as error:
        said = f"{connection.who or adapter} sent no list of models: check the base URL"
        raise ProviderError(said, provider=adapter) from error


def sendable_key(adapter: str, connection: Connection) -> str | None:
    """Return the key of a connection, None for none.

    Raises:
        ProviderError: it cannot be sent in a header.
    """
    key = connection.api_key
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ProviderError(
            f"the API key for {adapter} has a line end or another character that cannot be sent: set it anew",
            provider=adapter,
        )
    return key or None


def without_key(said: str, connection: Connection) -> str:
    """Return what an endpoint said without the key, if that stands out: some repeat one that they refuse."""
    key = connection.api_key
    return said.replace(key, "…") if stands_out(key) else said


def said_by(body: Any) -> str:
    """Return the message in the body of an error, in any of the shapes that providers have for it, as one line."""
    return " ".join(_said_in(body).split())


def _said_in(body: Any) -> str:
    match body:
        case (
            {"error": {"message": str(message)}}
            | {"message": str(message)}
            | {"Message": str(message)}
            | {"error": str(message)}
        ):
            return message
        case {"error": {"type": str(kind)}}:
            return kind
        case [first, *_]:
            return _said_in(first)
        case None:
            return ""
        case _:
            return str(body)


def status_said_by(body: Any) -> int | None:
    """Return the HTTP status in the body of an error, which one within a stream has there; None where it has none."""
    whole: dict[str, Any] = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    inner = whole.get("error")
    places = (cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}, whole)
    codes = (http_status(place.get(name)) for place in places for name in ("code", "status"))
    return next((code for code in codes if code is not None), None)


def wait_said_by(body: Any) -> str | None:
    """Return how long the body of an error asks to wait, as `Retry-After` would; None where it says nothing.

    Google says so there, in a `google.rpc.RetryInfo`, and has no header for it.
    """
    match body:
        case {"error": {"details": [*details]}}:
            told = (_retry_delay(detail) for detail in cast("list[object]", details))
            return next((delay for delay in told if delay is not None), None)
        case [first, *_]:
            return wait_said_by(first)
        case _:
            return None


def _retry_delay(detail: object) -> str | None:
    match detail:
        case {"retryDelay": str(delay)}:
            return delay.removesuffix("s")
        case _:
            return None


def asked_wait_s(retry_after: str | None) -> float | None:
    """Return what a `Retry-After` header asks for, in seconds (RFC 9110 §10.2.3); None where it says nothing."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        pass
    else:
        return seconds if 0 <= seconds < math.inf else None
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:  # it names no zone, or `-0000`: a date in HTTP is in UTC (§5.6.7)
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def pause_s(tries: int) -> float:
    """Return how long to wait after a failed try, in seconds, where the provider does not say.

    Those that failed at one moment do not all ask again at one moment.

    Args:
        tries: how many there were, from 1 on.
    """
    return _PAUSES_S[min(tries, len(_PAUSES_S)) - 1] * random.uniform(0.75, 1)
