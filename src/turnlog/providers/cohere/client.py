"""The network part of Cohere: exact bytes out, raw events in, through the `cohere` SDK, the extra `turnlog[cohere]`.

The SDK does the connection, the headers and the errors. It builds requests and reads replies as objects; so that what
is recorded is what was sent and what came, a hook of its HTTP client puts the body in, and the reply is read below it.
It does not try again when it streams: that is done here, for streamed and whole replies alike.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from msgspec import Struct

from turnlog.errors import MissingPackageError, ProviderError
from turnlog.providers.interface import Connection, RawEvent
from turnlog.providers.wire import aevents_in, connection_error, events_in, said_by, status_error

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

PAUSE_S_FIRST = 0.5
"""The pause before another try where the provider asks for none, in seconds. The next ones are twice as long each."""

PAUSE_S_MAX = 60.0
"""The longest pause before another try, in seconds. A provider that asks for a longer one is not asked again."""

_MODELS_A_PAGE = 1000


@contextmanager
def open_stream(adapter: str, body: bytes, connection: Connection) -> Generator[Iterator[RawEvent], None, None]:
    """Send a body through the SDK and give an iterator over the raw events of the reply.

    A reply that is not streamed, whether that was asked for or not, is one event.

    Raises:
        ProviderError: Cohere refused, or cannot be reached; also while iterating, where the reply breaks off.
    """
    cohere, httpx = _sdk(adapter)
    with ExitStack() as stack:
        answers: list[httpx.Response] = []
        with _converted(adapter, connection, answers):
            hooks: Any = {"request": [_put_in(body)], "response": [answers.append]}
            http = stack.enter_context(httpx.Client(event_hooks=hooks, **_settings(connection)))
            client = cohere.ClientV2(_key(adapter, connection), base_url=connection.base_url, httpx_client=http)
        reply, pauses = None, 0
        while reply is None:
            try:
                with _converted(adapter, connection, answers):
                    # The hook replaces what is said here.
                    reply = stack.enter_context(client.with_raw_response.chat_stream(model="", messages=[]))
            except ProviderError as error:
                pauses += 1
                time.sleep(_pause_s(error, pauses, connection))
        yield stack.enter_context(closing(_events(adapter, reply.response, connection)))


@asynccontextmanager
async def aopen_stream(
    adapter: str, body: bytes, connection: Connection
) -> AsyncGenerator[AsyncIterator[RawEvent], None]:
    """Do what `open_stream` does, for asyncio."""
    cohere, httpx = _sdk(adapter)
    async with AsyncExitStack() as stack:
        answers: list[httpx.Response] = []
        with _converted(adapter, connection, answers):
            hooks: Any = {"request": [_asynchronous(_put_in(body))], "response": [_asynchronous(answers.append)]}
            http = await stack.enter_async_context(httpx.AsyncClient(event_hooks=hooks, **_settings(connection)))
            client = cohere.AsyncClientV2(_key(adapter, connection), base_url=connection.base_url, httpx_client=http)
        reply, pauses = None, 0
        while reply is None:
            try:
                with _converted(adapter, connection, answers):
                    reply = await stack.enter_async_context(client.with_raw_response.chat_stream(model="", messages=[]))
            except ProviderError as error:
                pauses += 1
                await anyio.sleep(_pause_s(error, pauses, connection))
        yield await stack.enter_async_context(aclosing(_aevents(adapter, reply.response, connection)))


class _Model(Struct):
    name: str


class _Models(Struct):
    models: list[_Model]
    next_page_token: str | None = None


_models = msgspec.json.Decoder(_Models)


def list_models(adapter: str, connection: Connection) -> list[str]:
    """Ask Cohere for the models that chat and return their names, sorted.

    Raises:
        ProviderError: Cohere refused, cannot be reached, or answered something else.
    """
    cohere, httpx = _sdk(adapter)
    names: set[str] = set()
    page: str | None = None
    pages: set[str] = set()
    with ExitStack() as stack:
        answers: list[httpx.Response] = []
        with _converted(adapter, connection, answers):
            hooks: Any = {"response": [answers.append]}
            http = stack.enter_context(httpx.Client(event_hooks=hooks, **_settings(connection)))
            client = cohere.ClientV2(
                _key(adapter, connection),
                base_url=connection.base_url,
                max_retries=connection.retries_max,
                httpx_client=http,
            )
        while True:
            with _converted(adapter, connection, answers):
                reply = client.models.with_raw_response.list(page_size=_MODELS_A_PAGE, page_token=page, endpoint="chat")
            try:
                found = _models.decode(reply.response.content)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ProviderError(
                    f"{adapter} sent no list of models: check the base URL", provider=adapter
                ) from error
            names |= {model.name for model in found.models}
            page = found.next_page_token
            if not page or page in pages:
                return sorted(names)
            pages.add(page)


def _sdk(adapter: str):
    """Return the SDK and the HTTP library that it uses, both of the extra.

    Raises:
        MissingPackageError: they are not installed.
    """
    try:
        import cohere  # noqa: PLC0415 - an extra
        import httpx  # noqa: PLC0415
    except ImportError as error:
        raise MissingPackageError(
            f"provider {adapter!r} needs the package cohere: pip install 'turnlog[cohere]'", provider=adapter
        ) from error
    return cohere, httpx


def _settings(connection: Connection) -> dict[str, Any]:
    return {"timeout": connection.timeout_s, "follow_redirects": True}


def _key(adapter: str, connection: Connection) -> str:
    """Return the key for the SDK. With an empty one it sends none, and looks for none in the environment."""
    key = connection.api_key or ""
    if not (key.isascii() and key.isprintable()):
        raise ProviderError(
            f"the API key for {adapter} has a line end or another character that cannot be sent: set it anew",
            provider=adapter,
        )
    return key.strip()


def _put_in(body: bytes) -> Callable[[httpx.Request], None]:
    """Return a hook that makes a request carry exactly a body, whatever the SDK made of what it was told."""
    import httpx  # noqa: PLC0415 - an extra

    def put_in(request: httpx.Request) -> None:
        if request.method == "POST":  # and not where a redirection leads to
            request.stream = httpx.ByteStream(body)
            request.headers["content-length"] = str(len(body))

    return put_in


def _asynchronous(hook: Callable[[T], None]) -> Callable[[T], Awaitable[None]]:
    async def run(argument: T) -> None:
        hook(argument)

    return run


def _pause_s(error: ProviderError, pauses: int, connection: Connection) -> float:
    """Return how long to wait before another try, in seconds; raise the error where there is to be none.

    Args:
        error: why the last try failed. What timed out may have been done, and is not tried again.
        pauses: how many there were, with this one.
        connection: says how many there may be.
    """
    wanted = error.retry_after_s or 0.0
    if not error.retryable or pauses > connection.retries_max or wanted > PAUSE_S_MAX or _timed_out(error):
        raise error
    return min(PAUSE_S_FIRST * 2 ** (pauses - 1), PAUSE_S_MAX) if error.retry_after_s is None else wanted


def _timed_out(error: ProviderError) -> bool:
    import httpx  # noqa: PLC0415 - an extra

    return isinstance(error.__cause__, httpx.ReadTimeout | httpx.WriteTimeout)


def _events(adapter: str, response: httpx.Response, connection: Connection) -> Generator[RawEvent, None, None]:
    with _converted(adapter, connection):
        if _is_stream(response):
            yield from events_in(response.iter_bytes())
        elif whole := response.read():
            yield whole


async def _aevents(adapter: str, response: httpx.Response, connection: Connection) -> AsyncGenerator[RawEvent, None]:
    with _converted(adapter, connection):
        if _is_stream(response):
            async for event in aevents_in(response.aiter_bytes()):
                yield event
        elif whole := await response.aread():
            yield whole


def _is_stream(response: httpx.Response) -> bool:
    media_type: str = response.headers.get("content-type", "")
    return media_type.partition(";")[0].strip().lower() == "text/event-stream"


@contextmanager
def _converted(
    adapter: str, connection: Connection, answers: Sequence[httpx.Response] = ()
) -> Generator[None, None, None]:
    """Raise the errors of the SDK and of the HTTP library below it as `ProviderError`.

    Args:
        adapter: the adapter's name.
        connection: how Cohere is reached.
        answers: what was answered so far: the last one is what the SDK complains of.
    """
    import httpx  # noqa: PLC0415 - an extra
    from cohere.core.api_error import ApiError  # noqa: PLC0415

    try:
        yield
    except (ApiError, UnicodeDecodeError) as error:  # the latter is of an error's body that is not UTF-8
        raise _refusal(adapter, answers, connection) from error
    except httpx.TimeoutException as error:
        raise connection_error(adapter, error, timed_out=True) from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ProviderError(
            f"{adapter}: {connection.base_url!r} is not a base URL: give http(s)://…", provider=adapter
        ) from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise connection_error(adapter, error) from error


def _refusal(adapter: str, answers: Sequence[httpx.Response], connection: Connection) -> ProviderError:
    """Return the error behind the last answer, whose body the SDK has read."""
    if not answers or answers[-1].is_success:
        return ProviderError(f"{adapter} sent a reply that cannot be read: check the base URL", provider=adapter)
    response = answers[-1]
    try:
        said = said_by(msgspec.json.decode(response.content))
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = response.content.decode(errors="replace")
    if connection.api_key:
        said = said.replace(connection.api_key, "…")  # some endpoints repeat a key that they refuse
    retry_after: str | None = response.headers.get("retry-after")
    with suppress(KeyError, ValueError):
        retry_after = str(float(response.headers["retry-after-ms"]) / 1000)
    return status_error(adapter, response.status_code, said, retry_after)
