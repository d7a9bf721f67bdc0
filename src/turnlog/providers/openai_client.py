"""The network part of all wires that go through the `openai` SDK: exact bytes out, raw events in.

The SDK does the connections, the retries and the keys. It never sees the body as values, nor a reply as objects, so
that what is recorded is what was sent and what came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from turnlog.errors import ProviderError
from turnlog.providers.interface import Connection, RawEvent
from turnlog.providers.sdk import converted
from turnlog.providers.wire import aevents_in, events_in, sendable_key

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI, Omit, RequestOptions


def _sdk():
    """Return the SDK and the HTTP library that it uses. They take a while to import, and most commands call no one."""
    import httpx2  # noqa: PLC0415
    import openai  # noqa: PLC0415

    return openai, httpx2


@contextmanager
def open_stream(
    adapter: str, path: str, body: bytes, stream: bool, connection: Connection
) -> Generator[Iterator[RawEvent], None, None]:
    """Send a body through the SDK and give an iterator over the raw events of the reply.

    A reply that is not streamed, whether that was asked for or not, is one event.

    Args:
        adapter: the adapter's name, for errors.
        path: where to post to, below the base URL: `/chat/completions`, `/responses`.
        body: the exact body.
        stream: whether the body asks for a stream.
        connection: how to reach the endpoint.

    Raises:
        ProviderError: the endpoint refused, or cannot be reached; also while iterating, where the reply breaks off.
    """
    openai, httpx2 = _sdk()
    with _converted(adapter, connection):
        client = openai.OpenAI(**_settings(adapter, connection))
    with client:
        with _converted(adapter, connection):
            response = client.post(
                path,
                cast_to=httpx2.Response,
                content=body,
                options=_options(connection),
                stream=stream,
                stream_cls=openai.Stream[object],
            )
        assert isinstance(response, httpx2.Response)  # that is what `cast_to` asks for, of a stream too
        with closing(response), closing(_events(adapter, response, connection)) as events:
            yield events


@asynccontextmanager
async def aopen_stream(
    adapter: str, path: str, body: bytes, stream: bool, connection: Connection
) -> AsyncGenerator[AsyncIterator[RawEvent], None]:
    """Do what `open_stream` does, for asyncio."""
    client = await asyncio.to_thread(_async_client, adapter, connection)
    openai, httpx2 = _sdk()
    async with client:
        with _converted(adapter, connection):
            response = await client.post(
                path,
                cast_to=httpx2.Response,
                content=body,
                options=_options(connection),
                stream=stream,
                stream_cls=openai.AsyncStream[object],
            )
        assert isinstance(response, httpx2.Response)  # that is what `cast_to` asks for, of a stream too
        async with aclosing(response), aclosing(_aevents(adapter, response, connection)) as events:
            yield events


def _async_client(adapter: str, connection: Connection) -> AsyncOpenAI:
    """Return a client. The import of the SDK, and certificates, would hold an event loop up: it is made in a thread."""
    openai, _ = _sdk()
    with _converted(adapter, connection):
        return openai.AsyncOpenAI(**_settings(adapter, connection))


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


_models = msgspec.json.Decoder(_Models)


def list_models(adapter: str, connection: Connection) -> list[str]:
    """Ask the endpoint for its models and return their names, sorted.

    Raises:
        ProviderError: the endpoint refused, cannot be reached, or answered something else.
    """
    openai, httpx2 = _sdk()
    with _converted(adapter, connection):
        client = openai.OpenAI(**_settings(adapter, connection))
    with client, _converted(adapter, connection):
        response = client.get("/models", cast_to=httpx2.Response, options=_options(connection))
    try:
        return sorted(model.id for model in _models.decode(response.content).data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProviderError(
            f"{connection.who or adapter} sent no list of models: check the base URL", provider=adapter
        ) from error


def _events(adapter: str, response: httpx2.Response, connection: Connection) -> Generator[RawEvent, None, None]:
    with _converted(adapter, connection):
        if _is_whole(response):
            response.read()
            yield from [response.content] if response.content else []
        else:
            yield from events_in(response.iter_bytes())


async def _aevents(adapter: str, response: httpx2.Response, connection: Connection) -> AsyncGenerator[RawEvent, None]:
    with _converted(adapter, connection):
        if _is_whole(response):
            await response.aread()
            if response.content:
                yield response.content
        else:
            async for event in aevents_in(response.aiter_bytes()):
                yield event


def _is_whole(response: httpx2.Response) -> bool:
    """Return whether a reply is one piece: it was read already, or is JSON although a stream was asked for."""
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.is_closed or media_type == "application/json"


def _settings(adapter: str, connection: Connection) -> dict[str, Any]:
    return {
        # `_options` says what is sent; without any the SDK would look for one of its own.
        "api_key": sendable_key(adapter, connection) or "none",
        "base_url": connection.base_url,
        "timeout": connection.timeout_s,
        "max_retries": connection.retries_max,
    }


def _options(connection: Connection) -> RequestOptions:
    """Return headers: the key that was given and no other, and nothing of the user's OpenAI account to others."""
    openai, _ = _sdk()
    headers: dict[str, str | Omit] = {
        "Authorization": f"Bearer {connection.api_key}" if connection.api_key else openai.Omit(),
    }
    if connection.base_url is not None:
        headers |= {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
    return {"headers": headers}


def _converted(adapter: str, connection: Connection) -> AbstractContextManager[None]:
    openai, _ = _sdk()
    return converted(openai, openai.OpenAIError, adapter, connection)
