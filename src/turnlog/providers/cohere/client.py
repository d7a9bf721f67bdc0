"""The network part of Cohere: exact bytes out, raw events in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from turnlog.errors import ProviderError
from turnlog.providers import http
from turnlog.providers.http import HttpCall
from turnlog.providers.interface import Connection, PreparedRequest, RawEvent
from turnlog.providers.wire import sendable_key

HOME = "https://api.cohere.com"

_MODELS_A_PAGE = 1000


def open_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractContextManager[Iterator[RawEvent]]:
    """Send a request and give an iterator over the raw events of the reply: see `http.open_stream`."""
    return http.open_stream(adapter, _chat(adapter, request, connection), connection)


def aopen_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
    """Do what `open_stream` does, for asyncio."""
    return http.aopen_stream(adapter, _chat(adapter, request, connection), connection)


class _Model(Struct):
    name: str


class _Models(Struct):
    models: list[_Model]
    next_page_token: str | None = None


_models = msgspec.json.Decoder(_Models)


def list_models(adapter: str, connection: Connection) -> list[str]:
    """Ask Cohere for the models that chat, all pages of them, and return their names, sorted.

    Raises:
        ProviderError: Cohere refused, cannot be reached, or answered something else.
    """
    names: set[str] = set()
    tokens: set[str] = set()
    query: dict[str, str | int] = {"page_size": _MODELS_A_PAGE, "endpoint": "chat"}
    while True:
        call = _call(adapter, f"/v1/models?{urlencode(query)}", None, connection)
        try:
            page = _models.decode(http.fetch(adapter, call, connection))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProviderError(
                f"{connection.who or adapter} sent no list of models: check the base URL", provider=adapter
            ) from error
        names |= {model.name for model in page.models}
        token = page.next_page_token
        if not token or token in tokens:
            return sorted(names)
        tokens.add(token)
        query["page_token"] = token


def _chat(adapter: str, request: PreparedRequest, connection: Connection) -> HttpCall:
    return _call(adapter, "/v2/chat", request.body, connection)


def _call(adapter: str, path: str, body: bytes | None, connection: Connection) -> HttpCall:
    key = sendable_key(adapter, connection)
    headers = {} if body is None else {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return HttpCall(url=(connection.base_url or HOME).rstrip("/") + path, headers=headers, body=body)
