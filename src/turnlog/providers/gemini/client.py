"""The network part of the adapter: the `google-genai` SDK sends the exact body, and the reply stays as it came.

The SDK takes objects and gives objects, so it is given an HTTP client of turnlog's own (`HttpOptions.httpx_client`),
which puts the exact body into the request and keeps the reply to itself: the SDK sees an empty one. Addresses, keys,
headers and the decision to try again are the SDK's. It knows no `Retry-After`, so the client does the waiting.

This module is imported when a call is made: the SDK takes a while to import, and is an extra.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from http import HTTPStatus
from typing import Any

import httpx2
from google import genai
from google.genai import errors, types

from turnlog.errors import ProviderError
from turnlog.providers.gemini.reply import failure
from turnlog.providers.interface import Connection, RawEvent
from turnlog.providers.wire import RETRYABLE_STATUS, EventBytes, connection_error

API_VERSION = "v1beta"
"""The version of the API that is asked, also where the environment would have the SDK ask another."""

WAIT_S_MAX = 60.0
"""The longest `Retry-After` that is waited for, in seconds."""

_KEY_HEADER = "x-goog-api-key"
_NO_KEY = "none"
_FIRST_WAIT_S = 0.5
_LAST_WAIT_S = 8.0
_PLACEHOLDER = "-"
"""What the SDK is given for the contents, which it insists on."""

# It warns of keys in the environment that are not used here. Whoever sets logging up sees it, and nobody else.
logging.getLogger("google_genai").addHandler(logging.NullHandler())


class _Exchange:
    """What one call sends, what came back last, and how long to wait before sending again."""

    def __init__(self, adapter: str, connection: Connection, body: bytes | None) -> None:
        self.adapter = adapter
        self.connection = connection
        self.body = body
        self.refused: ProviderError | None = None
        self._attempts = 0

    def arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a request as they shall be: with the exact body, and no key where there is none."""
        headers: dict[str, str] = dict(arguments.get("headers") or {})
        if not self.connection.api_key:
            headers.pop(_KEY_HEADER, None)
        content = arguments.get("content") if self.body is None else self.body
        return arguments | {"headers": headers, "content": content}

    def wait_s(self) -> float:
        """Return how long to wait before sending: not the first time, then as long as was asked for, or ever longer."""
        self._attempts += 1
        refused, self.refused = self.refused, None
        if self._attempts == 1:
            return 0.0
        asked = None if refused is None else refused.retry_after_s
        if asked is not None and asked <= WAIT_S_MAX:
            return asked
        longest = min(_LAST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (self._attempts - 2))
        return longest * random.uniform(0.75, 1.0)  # so that many clients do not come back at once

    def refuse(self, response: httpx2.Response) -> None:
        """Keep what a response with another status than 200 says. Its body was read."""
        error = failure(self.adapter, response.status_code, response.content, response.headers.get("retry-after"))
        self.refused = error


class _Client(httpx2.Client):
    """Sends the body of an exchange, and keeps the reply unread."""

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__(timeout=exchange.connection.timeout_s)
        self._exchange = exchange
        self.reply: httpx2.Response | None = None

    def build_request(self, method: str, url: httpx2.URL | str, **arguments: Any) -> httpx2.Request:
        return super().build_request(method, url, **self._exchange.arguments(arguments))

    def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,  # noqa: ARG002 - what the SDK asks for; the reply is kept unread in any case
        **arguments: Any,
    ) -> httpx2.Response:
        time.sleep(self._exchange.wait_s())
        response = super().send(request, stream=True, **arguments)
        if response.status_code == HTTPStatus.OK and self._exchange.body is not None:
            self.reply = response
            return httpx2.Response(HTTPStatus.OK, request=request)
        with closing(response):
            response.read()
        if response.status_code != HTTPStatus.OK:
            self._exchange.refuse(response)
        return response


class _AsyncClient(httpx2.AsyncClient):
    """Does the same for asyncio."""

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__(timeout=exchange.connection.timeout_s)
        self._exchange = exchange
        self.reply: httpx2.Response | None = None

    def build_request(self, method: str, url: httpx2.URL | str, **arguments: Any) -> httpx2.Request:
        return super().build_request(method, url, **self._exchange.arguments(arguments))

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,  # noqa: ARG002 - as above
        **arguments: Any,
    ) -> httpx2.Response:
        await asyncio.sleep(self._exchange.wait_s())
        response = await super().send(request, stream=True, **arguments)
        if response.status_code == HTTPStatus.OK:
            self.reply = response
            return httpx2.Response(HTTPStatus.OK, request=request)
        async with aclosing(response):
            await response.aread()
        self._exchange.refuse(response)
        return response


@contextmanager
def open_stream(
    adapter: str, model: str, body: bytes, stream: bool, connection: Connection
) -> Generator[Iterator[RawEvent], None, None]:
    """Send a body through the SDK and give an iterator over the raw events of the reply.

    A reply that is not streamed, whether that was asked for or not, is one event.

    Raises:
        ProviderError: the API refused, or cannot be reached; also while iterating, where the reply breaks off.
    """
    exchange = _Exchange(adapter, connection, body)
    with _Client(exchange) as http:
        with _converted(exchange):
            models: Any = genai.Client(**_settings(exchange, httpx_client=http)).models
            if stream:
                for _ in models.generate_content_stream(model=model, contents=_PLACEHOLDER, config=_one_request()):
                    pass
            else:
                models.generate_content(model=model, contents=_PLACEHOLDER, config=_one_request())
        assert http.reply is not None  # the SDK sent a request and did not raise
        with closing(http.reply), closing(_events(http.reply, exchange)) as events:
            yield events


@asynccontextmanager
async def aopen_stream(
    adapter: str, model: str, body: bytes, stream: bool, connection: Connection
) -> AsyncGenerator[AsyncIterator[RawEvent], None]:
    """Do what `open_stream` does, for asyncio."""
    exchange = _Exchange(adapter, connection, body)
    async with _AsyncClient(exchange) as http:
        with _converted(exchange):
            models: Any = genai.Client(**_settings(exchange, httpx_async_client=http)).aio.models
            config = _one_request()
            if stream:
                async for _ in await models.generate_content_stream(model=model, contents=_PLACEHOLDER, config=config):
                    pass
            else:
                await models.generate_content(model=model, contents=_PLACEHOLDER, config=config)
        assert http.reply is not None  # the SDK sent a request and did not raise
        async with aclosing(http.reply), aclosing(_aevents(http.reply, exchange)) as events:
            yield events


def list_models(adapter: str, connection: Connection) -> list[str]:
    """Ask the API for its models, all pages of them, and return the names of those that generate content, sorted.

    Raises:
        ProviderError: the API refused, cannot be reached, or answered something else.
    """
    exchange = _Exchange(adapter, connection, None)
    with _Client(exchange) as http, _converted(exchange):
        client = genai.Client(**_settings(exchange, httpx_client=http))
        try:
            return sorted(
                (model.name or "").removeprefix("models/")
                for model in client.models.list()
                if model.supported_actions is None or "generateContent" in model.supported_actions
            )
        except (AttributeError, TypeError, ValueError) as error:  # what the SDK raises when it reads something else
            if exchange.refused is not None:
                raise
            raise ProviderError(f"{adapter} sent no list of models: check the base URL", provider=adapter) from error


def _settings(
    exchange: _Exchange, *, httpx_client: _Client | None = None, httpx_async_client: _AsyncClient | None = None
) -> dict[str, Any]:
    connection = exchange.connection
    key = connection.api_key
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ProviderError(
            f"the API key for {exchange.adapter} has a line end or another character that cannot be sent: set it anew",
            provider=exchange.adapter,
        )
    options = types.HttpOptions(
        base_url=connection.base_url,
        api_version=API_VERSION,
        timeout=max(1, round(connection.timeout_s * 1000)),
        retry_options=types.HttpRetryOptions(
            attempts=connection.retries_max + 1,
            initial_delay=0.0,
            max_delay=0.0,
            jitter=0.0,
            http_status_codes=sorted(RETRYABLE_STATUS),
        ),
        # The SDK makes what it is not given, with all certificates, which takes longer than the rest together.
        httpx_client=httpx_client or httpx2.Client(transport=httpx2.BaseTransport()),
        httpx_async_client=httpx_async_client or httpx2.AsyncClient(transport=httpx2.AsyncBaseTransport()),
    )
    return {"enterprise": False, "api_key": key or _NO_KEY, "http_options": options}


def _one_request() -> types.GenerateContentConfig:
    """Return the settings by which the SDK sends one request, and calls no functions."""
    return types.GenerateContentConfig(
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), automatic_continuation=False
    )


# Events


class _Events(EventBytes):
    """Cuts out events, and errors as well, which the API puts between events as they are."""

    def __init__(self) -> None:
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


def _events(response: httpx2.Response, exchange: _Exchange) -> Generator[RawEvent, None, None]:
    with _converted(exchange):
        if _is_whole(response):
            response.read()
            yield from [response.content] if response.content else []
            return
        parts = _Events()
        for chunk in response.iter_bytes():
            yield from parts.add(chunk)
        yield from parts.end()


async def _aevents(response: httpx2.Response, exchange: _Exchange) -> AsyncGenerator[RawEvent, None]:
    with _converted(exchange):
        if _is_whole(response):
            await response.aread()
            if response.content:
                yield response.content
            return
        parts = _Events()
        async for chunk in response.aiter_bytes():
            for event in parts.add(chunk):
                yield event
        for event in parts.end():
            yield event


def _is_whole(response: httpx2.Response) -> bool:
    """Return whether a reply is one piece of JSON, although a stream may have been asked for."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


# Errors


@contextmanager
def _converted(exchange: _Exchange) -> Generator[None, None, None]:
    """Raise the errors of the SDK and of the HTTP library below it as `ProviderError`."""
    adapter = exchange.adapter
    try:
        yield
    except httpx2.TimeoutException as error:
        raise connection_error(adapter, error, timed_out=True) from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        url = exchange.connection.base_url
        raise ProviderError(f"{adapter}: {url!r} is not a base URL: give http(s)://…", provider=adapter) from error
    except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError) as error:
        raise connection_error(adapter, error) from error
    except (errors.APIError, ValueError) as error:
        # A ValueError is raised for a model's name that cannot stand in a path, and for answers that are not JSON.
        refused = exchange.refused
        if refused is None:
            raise ProviderError(_without_key(f"{adapter}: {error}", exchange), provider=adapter) from error
        raise ProviderError(
            _without_key(str(refused), exchange),
            provider=adapter,
            status=refused.status,
            retryable=refused.retryable,
            retry_after_s=refused.retry_after_s,
        ) from error


def _without_key(message: str, exchange: _Exchange) -> str:
    """Return a message without the key, which some endpoints repeat when they refuse it."""
    key = exchange.connection.api_key
    return " ".join((message.replace(key, "…") if key else message).split())
