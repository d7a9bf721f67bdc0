"""The network of wires that need no SDK: exact bytes out and raw events in, by `httpx2`.

Time-outs, retries and errors are those that the SDKs of other wires have: what may pass is tried again, after as long
as the provider asks for, else after ever longer pauses. Redirects are not followed: the key is for one endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

from turnlog.errors import ProviderError
from turnlog.providers.interface import Connection, RawEvent
from turnlog.providers.wire import (
    EventBytes,
    EventCutter,
    aevents_in,
    connection_error,
    events_in,
    not_a_base_url,
    said_by,
    status_error,
    wait_said_by,
    without_key,
)

if TYPE_CHECKING:
    import httpx2

WAIT_S_MAX = 60.0
"""The longest wait that a provider can ask for, in seconds. One that asks for a longer one is not asked again."""

T = TypeVar("T", Retrying, AsyncRetrying)

_pause = wait_exponential_jitter(initial=0.5, max=8, jitter=0.5)


class HttpCall(Struct, frozen=True, kw_only=True):
    """What is sent.

    Attributes:
        url: where to.
        headers: all of them, that of the key among them.
        body: the exact body; None asks with GET.
        events: makes what cuts a stream into its events; by default `text/event-stream`.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    events: Callable[[], EventCutter] = EventBytes


@contextmanager
def open_stream(adapter: str, call: HttpCall, connection: Connection) -> Generator[Iterator[RawEvent], None, None]:
    """Send a body and give an iterator over the raw events of the reply.

    A reply that is JSON, whether a stream was asked for or not, is one event.

    Raises:
        ProviderError: the provider refused, or cannot be reached; also while iterating, where the reply breaks off.
    """
    import httpx2  # noqa: PLC0415 - it takes a while to import, and most commands call no one

    with httpx2.Client(timeout=connection.timeout_s) as client:
        response: httpx2.Response | None = None
        for attempt in _retrying(Retrying, connection):
            with attempt:
                response = _sent(client, adapter, call, connection)
        assert response is not None
        with closing(response), closing(_events(adapter, response, call, connection)) as events:
            yield events


@asynccontextmanager
async def aopen_stream(
    adapter: str, call: HttpCall, connection: Connection
) -> AsyncGenerator[AsyncIterator[RawEvent], None]:
    """Do what `open_stream` does, for asyncio."""
    async with await asyncio.to_thread(_async_client, connection) as client:
        response: httpx2.Response | None = None
        async for attempt in _retrying(AsyncRetrying, connection):
            with attempt:
                response = await _asent(client, adapter, call, connection)
        assert response is not None
        async with aclosing(response), aclosing(_aevents(adapter, response, call, connection)) as events:
            yield events


def _async_client(connection: Connection) -> httpx2.AsyncClient:
    """Return a client. The import, and certificates, would hold an event loop up: it is made in a thread."""
    import httpx2  # noqa: PLC0415

    return httpx2.AsyncClient(timeout=connection.timeout_s)


def fetch(adapter: str, call: HttpCall, connection: Connection) -> bytes:
    """Return the body of an answer, whole.

    Raises:
        ProviderError: the provider refused, or cannot be reached.
    """
    with open_stream(adapter, call, connection) as events:
        return b"".join(events)


def _sent(client: httpx2.Client, adapter: str, call: HttpCall, connection: Connection) -> httpx2.Response:
    """Return a response that can be read.

    Raises:
        ProviderError: there is none.
    """
    with _converted(adapter, connection):
        response = client.send(_request(client, call), stream=True)
        if response.is_success:
            return response
        with closing(response):
            response.read()
    raise _refused(adapter, response, connection)


async def _asent(client: httpx2.AsyncClient, adapter: str, call: HttpCall, connection: Connection) -> httpx2.Response:
    """Do what `_sent` does, for asyncio."""
    with _converted(adapter, connection):
        response = await client.send(_request(client, call), stream=True)
        if response.is_success:
            return response
        async with aclosing(response):
            await response.aread()
    raise _refused(adapter, response, connection)


def _request(client: httpx2.Client | httpx2.AsyncClient, call: HttpCall) -> httpx2.Request:
    method = "GET" if call.body is None else "POST"
    return client.build_request(method, call.url, content=call.body, headers=dict(call.headers))


def _events(
    adapter: str, response: httpx2.Response, call: HttpCall, connection: Connection
) -> Generator[RawEvent, None, None]:
    with _converted(adapter, connection):
        if _is_whole(response):
            response.read()
            yield from [response.content] if response.content else []
        else:
            yield from events_in(response.iter_bytes(), call.events())


async def _aevents(
    adapter: str, response: httpx2.Response, call: HttpCall, connection: Connection
) -> AsyncGenerator[RawEvent, None]:
    with _converted(adapter, connection):
        if _is_whole(response):
            await response.aread()
            if response.content:
                yield response.content
        else:
            async for event in aevents_in(response.aiter_bytes(), call.events()):
                yield event


def _is_whole(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


# Trying again


def _retrying(kind: type[T], connection: Connection) -> T:
    return kind(
        stop=stop_after_attempt(connection.retries_max + 1),
        retry=retry_if_exception(_may_pass),
        wait=_wait_s,
        reraise=True,
    )


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and error.retryable and (error.retry_after_s or 0) <= WAIT_S_MAX


def _wait_s(state: RetryCallState) -> float:
    error = None if state.outcome is None else state.outcome.exception()
    asked = error.retry_after_s if isinstance(error, ProviderError) else None
    return _pause(state) if asked is None else asked


# Errors


@contextmanager
def _converted(adapter: str, connection: Connection) -> Generator[None, None, None]:
    """Raise the errors of the HTTP library as `ProviderError`."""
    import httpx2  # noqa: PLC0415

    try:
        yield
    except httpx2.TimeoutException as error:
        raise connection_error(adapter, error, connection, timed_out=True) from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise not_a_base_url(adapter, connection) from error
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise connection_error(adapter, error, connection) from error


def _refused(adapter: str, response: httpx2.Response, connection: Connection) -> ProviderError:
    retry_after = response.headers.get("retry-after")
    if retry_after is None and (given_ms := response.headers.get("retry-after-ms")):
        retry_after = f"{given_ms}e-3"
    try:
        body = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = response.content.decode(errors="replace")
    else:
        said, retry_after = said_by(body), retry_after or wait_said_by(body)
    return status_error(adapter, response.status_code, without_key(said, connection), retry_after, who=connection.who)
