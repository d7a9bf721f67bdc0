"""The network of Chat Completions: the `openai` SDK, at the path of this wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from turnlog.providers import openai_client
from turnlog.providers.interface import Connection, PreparedRequest, RawEvent
from turnlog.providers.openai_client import list_models

__all__ = ["aopen_stream", "list_models", "open_stream"]

_PATH = "/chat/completions"


def open_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractContextManager[Iterator[RawEvent]]:
    """Send a request and give an iterator over the raw events of the reply: see `openai_client.open_stream`."""
    return openai_client.open_stream(adapter, _PATH, request.body, request.stream, connection)


def aopen_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
    """Do the same for asyncio."""
    return openai_client.aopen_stream(adapter, _PATH, request.body, request.stream, connection)
