"""Sending bytes by HTTP: what may be tried again, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit, urlunsplit

from turnlog.errors import MetaError
from turnlog.feeds.sinks.interface import Sink
from turnlog.providers.wire import asked_wait_s

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 30.0

_ANSWER_CHARACTERS_MAX = 200
_AGAIN = frozenset({408, 425, 429})
"""Statuses below 500 that may be another one later."""


def parse_endpoint(url: str, field: str) -> SplitResult:
    """Return the parts of an HTTP URL.

    Raises:
        MetaError: it is none, or has a user or a password in it.
    """
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise MetaError(f"{url!r} is not a URL: {error}", field=field) from error
    if parts.scheme not in ("http", "https") or not has_host or not url.isprintable():
        raise MetaError(f"{url!r} is not a URL of the form https://HOST/PATH", field=field)
    if "@" in parts.netloc:
        raise MetaError("the URL has a user or a password in it, which would be kept: leave them out", field=field)
    return parts


def shown(parts: SplitResult) -> str:
    """Return a URL without what may be secret in it."""
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


class Poster:
    """Posts to one URL, over one connection that is kept."""

    def __init__(self, sink: Sink, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Take the sink that it is for, the URL, and how long an answer may take."""
        self._sink = sink
        self._url = url
        self._timeout_s = timeout_s
        self._client: httpx2.Client | None = None

    def post(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Post a body and return that of the answer, which is of status 2xx.

        Raises:
            SinkError: there is no such answer. Others than those that may pass, and redirects, are not tried again.
        """
        import httpx2  # noqa: PLC0415 - it takes long to import, and most commands post nothing

        if self._client is None:
            self._client = httpx2.Client(timeout=self._timeout_s, follow_redirects=False)
        try:
            answer = self._client.post(self._url, content=body, headers=dict(headers))
        except httpx2.TimeoutException as error:
            raise self._sink.failed(f"no answer within {self._timeout_s:g} s", retryable=True) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise self._sink.failed(f"cannot be called: {error}") from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise self._sink.failed(f"cannot be reached, or broke off: {said}", retryable=True) from error
        if answer.is_success:
            return answer.content
        said = " ".join(answer.text.split())[:_ANSWER_CHARACTERS_MAX]
        raise self._sink.failed(
            f"answered {answer.status_code}{f': {said}' if said else ''}",
            retryable=answer.status_code >= 500 or answer.status_code in _AGAIN,
            retry_after_s=asked_wait_s(answer.headers.get("retry-after")),
        )

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None
