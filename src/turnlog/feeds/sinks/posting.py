"""Sending bytes by HTTP: how long that may take, what may be tried again, and when."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from socket import gaierror
from ssl import SSLError
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import SplitResult

from turnlog.audit.posting import exchange
from turnlog.errors import MetaError
from turnlog.feeds.sinks.interface import Sink
from turnlog.feeds.sinks.loop import Loop
from turnlog.feeds.sinks.seconds import check_seconds
from turnlog.providers.sending import sent
from turnlog.providers.wire import asked_wait_s
from turnlog.web_address import parsed, shown_text

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 30.0

_ANSWER_BYTES_MAX = 16 * 1024
"""How much of an answer is read at most."""
_ANSWER_CHARACTERS_MAX = 200
"""How much of it an error repeats at most."""
_AGAIN = frozenset({408, 425, 429})
"""Statuses below 500 that may be another one later."""


def parse_endpoint(url: str, field: str, *, instead: str) -> SplitResult:
    """Return the parts of an HTTP URL.

    Args:
        url: the URL.
        field: its name.
        instead: where a login goes, for the message.

    Raises:
        MetaError: it is none, or has a user or a password in it.
    """
    parts = parsed(url)
    if parts is None:
        raise MetaError(f"{shown_text(url)!r} is not a URL of the form https://HOST/PATH", field=field)
    if "@" in parts.netloc:
        raise MetaError(f"the URL has a user or a password in it: leave them out, and {instead}", field=field)
    return parts


class Answer(NamedTuple):
    """An answer of status 2xx: the beginning of its body, and its content type without parameters, in lower case."""

    body: bytes
    content_type: str


def in_short(body: bytes) -> str:
    """Return how an answer begins, on one line, for errors."""
    return " ".join(body.decode(errors="replace").split())[:_ANSWER_CHARACTERS_MAX]


class Poster:
    """Posts to one URL, over one connection that is kept."""

    def __init__(self, sink: Sink, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Take the sink that it is for, the URL, and how long it may take until an answer is there, all in all.

        Raises:
            MetaError: that is no time.
        """
        self._sink = sink
        self._url = url
        self._timeout_s = check_seconds(timeout_s, "timeout_s")
        self._loop: Loop | None = None
        self._client: httpx2.AsyncClient | None = None

    def post(self, body: Iterable[bytes | memoryview], headers: Mapping[str, str]) -> Answer:
        """Post a body, which comes in pieces, and return the answer, which is of status 2xx: its first 16 KiB.

        Raises:
            SinkError: there is no such answer. Others than those that may pass, and redirects, are not tried again.
        """
        # No client has a limit for all of an answer, but what runs in an event loop can be ended at any time.
        if self._loop is None:
            self._loop = Loop("turnlog-http")
        return self._loop.run(self._post(body, headers))

    def close(self) -> None:
        """Close the connection."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._disconnect())
            finally:
                loop.close()

    async def _post(self, body: Iterable[bytes | memoryview], headers: Mapping[str, str]) -> Answer:
        import httpx2  # noqa: PLC0415 - it takes long to import, and most commands post nothing

        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False)
        content, of_content = sent(body, is_async=True)
        try:
            answer, said = await exchange(
                self._client,
                self._url,
                content,
                headers={**headers, **of_content},
                answer_bytes=_ANSWER_BYTES_MAX,
                timeout_s=self._timeout_s,
            )
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self._sink.failed(f"no answer within {self._timeout_s:g} s", retryable=True) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
            raise self._sink.failed(f"cannot be called: {error}") from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise self._sink.failed(f"cannot be reached, or broke off: {_said(error)}", retryable=True) from error
        if answer.is_success:
            return Answer(said, answer.headers.get("content-type", "").partition(";")[0].strip().lower())
        shortly = in_short(said)
        raise self._sink.failed(
            f"answered {answer.status_code}{f': {shortly}' if shortly else ''}",
            retryable=answer.status_code >= 500 or answer.status_code in _AGAIN,
            retry_after_s=asked_wait_s(answer.headers.get("retry-after")),
        )

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _said(error: BaseException) -> str:
    """Return what an error says; where a system call has failed below it, what that says."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, BaseExceptionGroup):  # one for each address of the host
            below = cast("BaseExceptionGroup[BaseException]", below).exceptions[-1]
        if isinstance(below, OSError) and below.errno and not isinstance(below, gaierror | SSLError):
            return f"[Errno {below.errno}] {os.strerror(below.errno)}"
        below = below.__cause__ or below.__context__
    return " ".join(str(error).split()) or type(error).__name__
