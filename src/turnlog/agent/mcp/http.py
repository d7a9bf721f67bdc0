"""Answers of MCP servers over HTTP, read as those of programs are: large ones in slices, and odd ones if they can be.

The SDK reads a whole answer in one call, in the event loop, and refuses one with half of a surrogate pair. Here an
answer that is long or odd is read before the SDK sees it. The result stays with the exchange, and something short that
stands for it goes on. This module imports the SDK, which is an extra.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import httpx2
import msgspec

from turnlog.agent.mcp.exchange import Arrived, current_exchange
from turnlog.agent.mcp.messages import SHORT, json_of
from turnlog.agent.mcp.program import LINE_BYTES_MAX
from turnlog.agent.mcp.signals import LoginError, MisbehaviourError
from turnlog.executors import of_process

_END = re.compile(rb"\r\n|\n|\r")
"""The end of a line of an event stream (HTML, Server-sent events, 9.2.5)."""

_READ_ALREADY = ("content-encoding", "content-length", "transfer-encoding")
"""Headers of what is no longer as it came."""

_Shorten = Callable[[bytearray], Awaitable[bytes]]
_Read = Callable[[AsyncIterator[bytes], _Shorten], AsyncIterator[bytes]]


class Client(httpx2.AsyncClient):
    """An HTTP client whose answers are short."""

    def __init__(self, arrived: Arrived, **options: Any) -> None:
        """Take where results are to stay for which something short goes on, and options of the client."""
        super().__init__(**options)
        self._arrived = arrived

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, and return what is left of its answer.

        One that there is no login for is answered as the server would: the SDK ends the connection, with all that is
        under way, where sending fails.
        """
        try:
            response = await super().send(request, **options)
        except LoginError as error:
            exchange = current_exchange.get(None)
            if exchange is not None and request.method == "POST":
                exchange.login, exchange.status = error, 401
            return httpx2.Response(401, request=request)
        kind = response.headers.get("content-type", "").lower()
        read = next((read for name, read in _READ.items() if kind.startswith(name)), None)
        if read is None or response.next_request is not None or response.is_closed:
            return response
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _READ_ALREADY]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            stream=_Body(response, read, self._short),
            request=response.request,
            extensions=response.extensions,
            history=response.history,
        )

    async def _short(self, text: bytearray) -> bytes:
        """Return a message, or what stands for one that is long or odd: its result stays here then."""
        if len(text) <= SHORT and not _is_odd(text):
            return bytes(text)
        return await of_process().run_read(_stand_in, text, self._arrived)


class _Body(httpx2.AsyncByteStream):
    """What is left of the body of an answer."""

    def __init__(self, response: httpx2.Response, read: _Read, shorten: _Shorten) -> None:
        self._response = response
        self._read = read
        self._shorten = shorten

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._read(self._response.aiter_bytes(), self._shorten):
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


async def _message(pieces: AsyncIterator[bytes], shorten: _Shorten) -> AsyncIterator[bytes]:
    """Iterate over JSON that is a message."""
    text = bytearray()
    async for piece in pieces:
        text += piece
        _check_size(len(text))
    yield await shorten(text)


async def _events(pieces: AsyncIterator[bytes], shorten: _Shorten) -> AsyncIterator[bytes]:
    """Iterate over events, each with a message."""
    event, size = list[bytearray](), 0
    async for line in _lines(pieces):
        event.append(line)
        size += len(line)
        _check_size(size)
        if len(line) <= 2 and not line.strip(b"\r\n"):
            yield await _short_event(event, shorten)
            event, size = [], 0
    yield b"".join(event)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytearray]:
    """Iterate over the lines of pieces, with their ends."""
    line, held = bytearray(), b""
    async for piece in pieces:
        text, place = held + piece, 0
        held = b"\r" if text.endswith(b"\r") else b""  # LF may follow
        text = text.removesuffix(b"\r")
        for end in _END.finditer(text):
            line += text[place : end.end()]
            place = end.end()
            yield line
            line = bytearray()
        line += text[place:]
        _check_size(len(line))
    yield line + held


_READ: dict[str, _Read] = {"application/json": _message, "text/event-stream": _events}


async def _short_event(event: list[bytearray], shorten: _Shorten) -> bytes:
    """Return an event in whose place of data stands something short, if the data is long or odd."""
    places = [place for place, line in enumerate(event) if line.startswith(b"data:")]
    if not places:
        return b"".join(event)
    end = _end_of(event[places[0]])
    first, *more = (_data_of(event[place]) for place in places)
    data = bytearray(b"\n").join((first, *more)) if more else first
    said = await shorten(data)
    rest = [line for place, line in enumerate(event) if place not in places]
    lines = [b"data: " + line + end for line in said.split(b"\n")]
    return b"".join([*lines, *rest])


def _end_of(line: bytearray) -> bytes:
    last = bytes(line[-2:])
    return last if last == b"\r\n" else last[-1:] if last[-1:] in (b"\r", b"\n") else b""


def _data_of(line: bytearray) -> bytearray:
    """Return the data of a line, which is it without the rest: a copy of a long one takes its time."""
    del line[len(line) - len(_end_of(line)) :]
    del line[: 6 if line.startswith(b"data: ") else 5]
    return line


def _is_odd(text: bytearray) -> bool:
    try:
        text.decode()
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return bool(text)
    return False


def _stand_in(text: bytearray, arrived: Arrived) -> bytes:
    try:
        message: object = json_of(text)
    except (ValueError, RecursionError):
        return bytes(text)  # the SDK says what is wrong with it
    if isinstance(message, dict):
        fields = cast("dict[str, Any]", message)
        if isinstance(fields.get("result"), dict):
            fields["result"] = arrived.keep(fields["result"], len(text))
    return msgspec.json.encode(message)


def _check_size(size: int) -> None:
    if size > LINE_BYTES_MAX:
        raise MisbehaviourError(f"wrote a message of more than {LINE_BYTES_MAX:,} bytes")
