"""The network part of Bedrock: addresses by region, exact bytes out, raw events in."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from turnlog.errors import ProviderError
from turnlog.providers import http
from turnlog.providers.bedrock.eventstream import EventStreamBytes
from turnlog.providers.http import HttpCall
from turnlog.providers.interface import Connection, PreparedRequest, RawEvent
from turnlog.providers.raw_json import UNREADABLE
from turnlog.providers.wire import sendable_key

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""The environment variables that name the region, the first one that does."""

_region = re.compile("[a-z0-9-]+")


def open_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractContextManager[Iterator[RawEvent]]:
    """Send a request and give an iterator over the raw events of the reply: see `http.open_stream`.

    Raises:
        ProviderError: no region is named; what `http.open_stream` raises.
    """
    return http.open_stream(adapter, _converse(adapter, request, connection), connection)


def aopen_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
    """Do what `open_stream` does, for asyncio."""
    return http.aopen_stream(adapter, _converse(adapter, request, connection), connection)


def _converse(adapter: str, request: PreparedRequest, connection: Connection) -> HttpCall:
    method = "converse-stream" if request.stream else "converse"
    url = f"{base_url(adapter, 'bedrock-runtime', connection)}/model/{quote(request.model, safe='')}/{method}"
    headers = _headers(adapter, connection) | {"content-type": "application/json"}
    return HttpCall(url=url, headers=headers, body=request.body, events=EventStreamBytes)


def base_url(adapter: str, service: str, connection: Connection) -> str:
    """Return where a service of Bedrock is: at the endpoint that is given, else at AWS in the region.

    Raises:
        ProviderError: no region is named.
    """
    if connection.base_url:
        return connection.base_url.rstrip("/")
    region = next((found for name in REGION_VARIABLES if (found := os.environ.get(name, "").strip())), None)
    if region is None:
        named = " or ".join(REGION_VARIABLES)
        raise ProviderError(f"{adapter}: no region: set {named}, or give a base URL", provider=adapter)
    if not _region.fullmatch(region):
        raise ProviderError(f"{adapter}: {region!r} is not a region: set it as in 'us-east-1'", provider=adapter)
    return f"https://{service}.{region}.amazonaws.com"


def _headers(adapter: str, connection: Connection) -> dict[str, str]:
    key = sendable_key(adapter, connection)
    return {} if key is None else {"authorization": f"Bearer {key}"}


# Models


class _Model(Struct, rename="camel"):
    model_id: str
    inference_types_supported: list[str] | None = None


class _Models(Struct, rename="camel"):
    model_summaries: list[_Model]


class _Profile(Struct, rename="camel"):
    inference_profile_id: str


class _Profiles(Struct, rename="camel"):
    inference_profile_summaries: list[_Profile]
    next_token: str | None = None


_Page = TypeVar("_Page", _Models, _Profiles)


def list_models(adapter: str, connection: Connection) -> list[str]:
    """Ask for the models that write text on demand, and for all inference profiles; return their names, sorted.

    Raises:
        ProviderError: no region is named; Bedrock refused, cannot be reached, or answered something else.
    """
    models = _page(adapter, "/foundation-models?byOutputModality=TEXT", _Models, connection).model_summaries
    names = {model.model_id for model in models if _on_demand(model)}
    tokens: set[str] = set()
    token = ""
    while token not in tokens:
        tokens.add(token)
        after = f"&nextToken={quote(token, safe='')}" if token else ""
        page = _page(adapter, f"/inference-profiles?maxResults=1000{after}", _Profiles, connection)
        names |= {profile.inference_profile_id for profile in page.inference_profile_summaries}
        token = page.next_token or ""
    return sorted(names)


def _on_demand(model: _Model) -> bool:
    types = model.inference_types_supported
    return types is None or "ON_DEMAND" in types


def _page(adapter: str, path: str, kind: type[_Page], connection: Connection) -> _Page:
    call = HttpCall(url=base_url(adapter, "bedrock", connection) + path, headers=_headers(adapter, connection))
    try:
        return msgspec.json.decode(http.fetch(adapter, call, connection), type=kind)
    except UNREADABLE as error:
        raise ProviderError(
            f"{connection.who or adapter} sent no list of models: check the base URL", provider=adapter
        ) from error
