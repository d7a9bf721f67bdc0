"""Large bodies on their way out: in pieces, so that no HTTP library holds another copy of one.

An HTTP client takes a body whole, and one for asyncio copies what the socket does not take at once. Here one gets the
same bytes piece by piece, with the same `content-length`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast, overload

from turnlog.errors import ProviderError

WHOLE_BYTES_MAX = 1024 * 1024
"""Bodies up to this size are sent whole."""

PIECE_BYTES = 64 * 1024


class AsyncBody:
    """A body for a client for asyncio. It can be sent again: each iteration begins at its start."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        """Take the pieces."""
        self._pieces = pieces
        self._sent_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces, from the first one on."""
        self._sent_bytes = 0
        for piece in self._pieces:
            yield piece
            self._sent_bytes += len(piece)

    def how_far(self) -> str:
        """Return how much of the body is sent, in words; empty where that is all of it, or nothing."""
        size = sum(map(len, self._pieces))
        if self._sent_bytes in (0, size):
            return ""
        return f"after {self._sent_bytes:,} of {size:,} bytes of the request, which may be too large for it"


Body = bytes | list[bytes] | AsyncBody


@overload
def sent(parts: Iterable[bytes | memoryview], *, is_async: bool) -> tuple[Body, dict[str, str]]: ...
@overload
def sent(parts: None, *, is_async: bool) -> tuple[None, dict[str, str]]: ...
def sent(parts: Iterable[bytes | memoryview] | None, *, is_async: bool) -> tuple[Body | None, dict[str, str]]:
    """Return a body as an HTTP client is to have it, and the headers that it needs for that.

    Args:
        parts: the body in its parts, or None where there is none.
        is_async: whether the client is one for asyncio.
    """
    if parts is None:
        return None, {}
    parts = list(parts)
    size = sum(map(len, parts))
    if size <= WHOLE_BYTES_MAX:
        return b"".join(parts), {}
    pieces = list(_pieces(parts))
    return AsyncBody(pieces) if is_async else pieces, {"content-length": str(size)}


@contextmanager
def told_how_far(body: Body | None) -> Generator[None]:
    """Say in the error of a connection that broke off how much of the body was sent by then.

    A server that refuses a request by its length, and closes the connection, leaves no other sign of why.
    """
    try:
        yield
    except ProviderError as error:
        how_far = body.how_far() if isinstance(body, AsyncBody) and error.status is None else ""
        if not how_far:
            raise
        said = f"{error}, {how_far}"
        raise ProviderError(said, provider=error.provider, retryable=error.retryable) from error


def _pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Iterate over a body in pieces of about one size: what is smaller goes together, what is larger is cut."""
    small: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        if len(part) < PIECE_BYTES:
            small.append(part)
            size += len(part)
        if small and (size >= PIECE_BYTES or len(part) >= PIECE_BYTES):
            yield b"".join(small)
            small, size = [], 0
        if len(part) >= PIECE_BYTES:
            view = cast("bytes", memoryview(part))  # a view does for what HTTP clients do with a piece
            yield from (view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES))
    if small:
        yield b"".join(small)
