"""The network part of the Messages API, through the `anthropic` SDK: exact bytes out, raw events in.

The SDK does the connections, the retries and the key. It never sees the body as values, nor a reply as objects, so that
what is recorded is what was sent and what came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from turnlog.errors import ProviderError
from turnlog.providers.interface import Connection, PreparedRequest, RawEvent
from turnlog.providers.raw_json import UNREADABLE, read_object, text_of
from turnlog.providers.sdk import converted
from turnlog.providers.wire import aevents_in, events_in, sendable_key

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

PATH = "/v1/messages"
"""Where requests go, below the base URL."""

SAMPLING_VERSION = "2023-06-01"
"""The last API version that has `temperature`, `top_p` and `top_k`; later ones refuse a request with any of them
(https://docs.anthropic.com/en/api/versioning)."""

MODELS_A_PAGE = 1000
"""How many models are asked for at once: the most that the API gives."""


def _sdk():
    """Return the SDK and the HTTP library that it uses. They take a while to import, and most commands call no one."""
    import anthropic  # noqa: PLC0415
    import httpx2  # noqa: PLC0415

    return anthropic, httpx2


@contextmanager
def open_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> Generator[Iterator[RawEvent], None, None]:
    """Send the body of a request through the SDK and give an iterator over the raw events of the reply.

    A reply that is not streamed, whether that was asked for or not, is one event.

    Raises:
        ProviderError: the endpoint refused, or cannot be reached; also while iterating, where the reply breaks off.
    """
    anthropic, httpx2 = _sdk()
    with _converted(adapter, connection):
        client = anthropic.Anthropic(**_settings(adapter, connection))
    with client:
        with _converted(adapter, connection):
            response = client.post(
                PATH,
                cast_to=httpx2.Response,
                content=request.body,
                options={"headers": _headers(request), "timeout": connection.timeout_s},
                stream=request.stream,
                stream_cls=anthropic.Stream[object],
            )
        assert isinstance(response, httpx2.Response)  # that is what `cast_to` asks for, of a stream too
        with closing(response), closing(_events(adapter, response, connection)) as events:
            yield events


@asynccontextmanager
async def aopen_stream(
    adapter: str, request: PreparedRequest, connection: Connection
) -> AsyncGenerator[AsyncIterator[RawEvent], None]:
    """Do what `open_stream` does, for asyncio."""
    client = await asyncio.to_thread(_async_client, adapter, connection)
    anthropic, httpx2 = _sdk()
    async with client:
        with _converted(adapter, connection):
            response = await client.post(
                PATH,
                cast_to=httpx2.Response,
                content=request.body,
                options={"headers": _headers(request), "timeout": connection.timeout_s},
                stream=request.stream,
                stream_cls=anthropic.AsyncStream[object],
            )
        assert isinstance(response, httpx2.Response)  # that is what `cast_to` asks for, of a stream too
        async with aclosing(response), aclosing(_aevents(adapter, response, connection)) as events:
            yield events


def _async_client(adapter: str, connection: Connection) -> AsyncAnthropic:
    """Return a client. The import of the SDK, and certificates, would hold an event loop up: it is made in a thread."""
    anthropic, _ = _sdk()
    with _converted(adapter, connection):
        return anthropic.AsyncAnthropic(**_settings(adapter, connection))


def list_models(adapter: str, connection: Connection) -> list[str]:
    """Ask the endpoint for its models, all pages of them, and return their names, sorted.

    Raises:
        ProviderError: the endpoint refused, cannot be reached, or answered something else.
    """
    anthropic, _ = _sdk()
    with _converted(adapter, connection):
        client = anthropic.Anthropic(**_settings(adapter, connection))
    with client, _converted(adapter, connection):
        try:
            first = client.models.list(limit=MODELS_A_PAGE)
            msgspec.convert(first.data, list[Any])  # the SDK takes any JSON: what it makes of it may have no data
            names = msgspec.convert([model.id for model in first], list[str])
        except (AttributeError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise ProviderError(
                f"{connection.who or adapter} sent no list of models: check the base URL", provider=adapter
            ) from error
    return sorted(names)


def _events(adapter: str, response: httpx2.Response, connection: Connection) -> Generator[RawEvent, None, None]:
    with _converted(adapter, connection):
        if not _is_stream(response):
            response.read()
            yield from [response.content] if response.content else []
            return
        for event in events_in(response.iter_bytes()):
            yield event
            if _is_last(event):
                return


async def _aevents(adapter: str, response: httpx2.Response, connection: Connection) -> AsyncGenerator[RawEvent, None]:
    with _converted(adapter, connection):
        if not _is_stream(response):
            await response.aread()
            if response.content:
                yield response.content
            return
        async with aclosing(aevents_in(response.aiter_bytes())) as events:
            async for event in events:
                yield event
                if _is_last(event):
                    return


def _is_stream(response: httpx2.Response) -> bool:
    """Return whether a reply is a stream of events: it says so, or a stream was asked for and it does not say."""
    media_type: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "text/event-stream" or (not media_type and not response.is_closed)


def _is_last(event: RawEvent) -> bool:
    """Return whether nothing comes after an event, so that a connection that is kept open is not waited for."""
    if b'"message_stop"' not in event:
        return False
    with suppress(*UNREADABLE):
        return text_of(read_object(event).get("type")) == "message_stop"
    return False


class _Settings(TypedDict):
    api_key: str
    base_url: str | None
    timeout: float
    max_retries: int
    open_telemetry: Literal[False]


def _settings(adapter: str, connection: Connection) -> _Settings:
    return _Settings(
        api_key=sendable_key(adapter, connection) or "none",  # without any the SDK would look for one of its own
        base_url=connection.base_url,
        timeout=connection.timeout_s,
        max_retries=connection.retries_max,
        open_telemetry=False,
    )


def _headers(request: PreparedRequest) -> dict[str, str]:
    """Return the API version that has what the body says, where it is not the SDK's own."""
    sampled = read_object(request.head + request.closing).keys() & {"temperature", "top_p", "top_k"}
    return {"anthropic-version": SAMPLING_VERSION} if sampled else {}


def _converted(adapter: str, connection: Connection) -> AbstractContextManager[None]:
    anthropic, _ = _sdk()
    return converted(anthropic, anthropic.AnthropicError, adapter, connection)
