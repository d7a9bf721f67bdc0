"""The network of the adapter: addresses, the header of the key, and what stands between events (Gemini API, v1beta)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from urllib.parse import quote

import msgspec
from msgspec import Struct

from turnlog.errors import ProviderError
from turnlog.providers import http
from turnlog.providers.http import HttpCall
from turnlog.providers.interface import Connection, PreparedRequest, RawEvent
from turnlog.providers.raw_json import UNREADABLE
from turnlog.providers.wire import EventBytes, sendable_key

BASE_URL = "https://generativelanguage.googleapis.com"

_WITH_COLLECTION = ("models/", "tunedModels/")
_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~:@+=,-]+"
_path = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})*")
"""What can stand in a path as it is (RFC 3986 §3.3), and does not lead elsewhere."""


def open_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractContextManager[Iterator[RawEvent]]:
    """Send a request and give an iterator over the raw events of the reply: see `http.open_stream`.

    Raises:
        ProviderError: the API refused, or cannot be reached; also while iterating, where the reply breaks off.
    """
    return http.open_stream(adapter, _generate(adapter, request, connection), connection)


def aopen_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
    """Do what `open_stream` does, for asyncio."""
    return http.aopen_stream(adapter, _generate(adapter, request, connection), connection)


def _generate(adapter: str, request: PreparedRequest, connection: Connection) -> HttpCall:
    model = request.model
    if not _path.fullmatch(model):
        raise ProviderError(f"{adapter}: {model!r} is not the name of a model: see `models`", provider=adapter)
    path = model if model.startswith(_WITH_COLLECTION) else f"models/{model}"
    method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    headers = _headers(adapter, connection) | {"content-type": "application/json"}
    url = f"{_base(connection)}/{path}:{method}"
    return HttpCall(url=url, headers=headers, body=request.body, events=EventsAndErrors)


def _base(connection: Connection) -> str:
    return f"{(connection.base_url or BASE_URL).rstrip('/')}/v1beta"


def _headers(adapter: str, connection: Connection) -> dict[str, str]:
    key = sendable_key(adapter, connection)
    return {} if key is None else {"x-goog-api-key": key}


class EventsAndErrors(EventBytes):
    """Cuts out events, and errors as well, which the API puts between events as they are."""

    def __init__(self) -> None:
        """Begin with no bytes."""
        super().__init__()
        self._stray: list[bytes] = []

    def _line(self, line: bytes) -> bytes | None:
        name = line.partition(b":")[0]
        if line and name not in (b"", b"data", b"event", b"id", b"retry") and (self._stray or line[:1] in b"{["):
            self._stray.append(line)
            return None
        return super()._line(line)

    def end(self) -> list[bytes]:
        """Return what is left at the end."""
        rest = super().end()
        stray, self._stray = b"\n".join(self._stray), []
        return [*rest, stray] if stray else rest


# Models


class _Model(Struct, frozen=True, rename="camel"):
    name: str = ""
    supported_generation_methods: list[str] | None = None


class _Page(Struct, frozen=True, rename="camel"):
    models: list[_Model] = []
    next_page_token: str | None = None


_page = msgspec.json.Decoder(_Page)


def list_models(adapter: str, connection: Connection) -> list[str]:
    """Ask the API for its models, all pages of them, and return the names of those that generate content, sorted.

    Raises:
        ProviderError: the API refused, cannot be reached, or answered something else.
    """
    names: set[str] = set()
    asked: set[str] = set()
    headers = _headers(adapter, connection)
    url = f"{_base(connection)}/models?pageSize=1000"
    token = ""
    while token not in asked:
        asked.add(token)
        after = f"&pageToken={quote(token, safe='')}" if token else ""
        body = http.fetch(adapter, HttpCall(url=url + after, headers=headers), connection)
        try:
            page = _page.decode(body)
        except UNREADABLE as error:
            raise ProviderError(
                f"{connection.who or adapter} sent no list of models: check the base URL", provider=adapter
            ) from error
        names |= {model.name.removeprefix("models/") for model in page.models if _generates(model)}
        token = page.next_page_token or ""
    return sorted(names)


def _generates(model: _Model) -> bool:
    methods = model.supported_generation_methods
    return methods is None or "generateContent" in methods
