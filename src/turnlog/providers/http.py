"""The network of wires that need no SDK: exact bytes out and raw events in, by `httpx2`.

Time-outs, retries and errors are those that the SDKs of other wires have: what may pass is tried again, after as long
as the provider asks for, else after ever longer pauses. Redirects are not followed: the key is for one endpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from turnlog.errors import ProviderError
from turnlog.executors import of_process
from turnlog.model.json_text import UNREADABLE
from turnlog.providers.certificates import tls_context
from turnlog.providers.exchange import Connection, PreparedRequest, not_a_base_url
from turnlog.providers.proxies import check_proxies, proxy_of
from turnlog.providers.reader import RawEvent
from turnlog.providers.sending import Body, sent, told_how_far
from turnlog.providers.wire import (
    EventBytes,
    EventCutter,
    Waited,
    aevents_in,
    asked_wait_s,
    connect_s,
    connection_error,
    events_in,
    is_event_stream,
    no_models,
    pause_s,
    said_by,
    sendable_key,
    status_error,
    wait_said_by,
    without_key,
)
from turnlog.web_address import shown

if TYPE_CHECKING:
    import httpx2

WAIT_S_MAX = 60.0
"""The longest wait that a provider can ask for, in seconds. One that asks for a longer one is not asked again."""

T = TypeVar("T", Retrying, AsyncRetrying)


class HttpCall(Struct, frozen=True, kw_only=True):
    """What is sent.

    Attributes:
        url: where to.
        headers: all of them, that of the key among them.
        body: the exact body, whole or in its parts; None asks with GET.
        events: makes what cuts a stream into its events; by default `text/event-stream`.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes | Sequence[bytes] | None = None
    events: Callable[[], EventCutter] = EventBytes


class Page(Struct, kw_only=True):
    """A page of a list of models. A wire gives its fields their names.

    Attributes:
        token: what to ask for the next page with, if there is one.
    """

    token: str | None = None


P = TypeVar("P", bound=Page)


class HttpClient(ABC):
    """The network of one wire.

    Attributes:
        key_header: the name of the header with the key, and what stands before it there.
        events: makes what cuts a stream into its events.
    """

    key_header: ClassVar[tuple[str, str]] = ("authorization", "Bearer ")
    events: Callable[[], EventCutter] = EventBytes

    @abstractmethod
    def _url(self, adapter: str, request: PreparedRequest, connection: Connection) -> str:
        """Return where a request goes.

        Raises:
            ProviderError: nothing says so.
        """

    def load(self) -> None:
        """Import what requests are sent with, and read the certificates of authorities."""
        import_module("httpx2")
        tls_context()

    @abstractmethod
    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Ask for the models that can be asked, all pages of them, and return their names, sorted.

        Raises:
            ProviderError: the provider refused, cannot be reached, or answered something else; what `_url` raises.
        """

    def open_stream(
        self, adapter: str, request: PreparedRequest, connection: Connection
    ) -> AbstractContextManager[Iterator[RawEvent]]:
        """Send a request and give an iterator over the raw events of the reply: see `http.open_stream`."""
        return open_stream(adapter, self._request(adapter, request, connection), connection)

    def aopen_stream(
        self, adapter: str, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        """Do what `open_stream` does, for asyncio."""
        return aopen_stream(adapter, self._request(adapter, request, connection), connection)

    def _request(self, adapter: str, request: PreparedRequest, connection: Connection) -> HttpCall:
        return self._call(adapter, self._url(adapter, request, connection), connection, tuple(request.parts))

    def _call(self, adapter: str, url: str, connection: Connection, body: Sequence[bytes] | None = None) -> HttpCall:
        headers = {} if body is None else {"content-type": "application/json"}
        if key := sendable_key(adapter, connection):
            name, before = self.key_header
            headers[name] = before + key
        return HttpCall(url=url, headers=headers, body=body, events=self.events)

    def _pages(self, adapter: str, url: str, parameter: str, kind: type[P], connection: Connection) -> Iterator[P]:
        """Iterate over the pages of a list of models. One that names the same page again is at its end.

        Args:
            adapter: the adapter's name, for errors.
            url: where the list is, with a query.
            parameter: the parameter of the query with the token of a page.
            kind: what a page holds.
            connection: how to reach the provider.
        """
        asked: set[str] = set()
        token = ""
        while token not in asked:
            asked.add(token)
            after = f"&{parameter}={quote(token, safe='')}" if token else ""
            body = fetch(adapter, self._call(adapter, url + after, connection), connection)
            with no_models(adapter, connection):
                page = msgspec.json.decode(body, type=kind)
            yield page
            token = page.token or ""


@contextmanager
def open_stream(adapter: str, call: HttpCall, connection: Connection) -> Generator[Iterator[RawEvent], None, None]:
    """Send a body and give an iterator over the raw events of the reply.

    A reply that is not streamed, whether that was asked for or not, is one event.

    Raises:
        ProviderError: the provider refused, or cannot be reached; also while iterating, where the reply breaks off.
    """
    import httpx2  # noqa: PLC0415 - it takes a while to import, and most commands call no one

    check_proxies(adapter)
    with httpx2.Client(timeout=timeouts(connection), verify=tls_context()) as client:
        response: httpx2.Response | None = None
        for attempt in retrying(Retrying, connection):
            with attempt:
                response = _sent(client, adapter, call, connection)
        assert response is not None
        cutter = without_page(response, call.events(), adapter, connection)
        events = events_of(response, cutter, converted(adapter, connection))
        with closing(response), closing(events):
            yield events


@asynccontextmanager
async def aopen_stream(
    adapter: str, call: HttpCall, connection: Connection
) -> AsyncGenerator[AsyncIterator[RawEvent], None]:
    """Do what `open_stream` does, for asyncio."""
    async with await of_process().run_read(_async_client, adapter, connection) as client:
        response: httpx2.Response | None = None
        async for attempt in retrying(AsyncRetrying, connection):
            with attempt:
                response = await _asent(client, adapter, call, connection)
        assert response is not None
        cutter = without_page(response, call.events(), adapter, connection)
        events = aevents_of(response, cutter, converted(adapter, connection))
        async with aclosing(response), aclosing(events):
            yield events


def timeouts(connection: Connection) -> httpx2.Timeout:
    """Return the time-outs of a client."""
    import httpx2  # noqa: PLC0415

    return httpx2.Timeout(connection.timeout_s, connect=connect_s(connection))


def _async_client(adapter: str, connection: Connection) -> httpx2.AsyncClient:
    """Return a client. The import, and certificates, would hold an event loop up: it is made in a thread."""
    import httpx2  # noqa: PLC0415

    check_proxies(adapter)
    return httpx2.AsyncClient(timeout=timeouts(connection), verify=tls_context())


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
    with converted(adapter, connection):
        _, request = _request(client, call, is_async=False)
        response = client.send(request, stream=True)
        if response.is_success:
            return response
        with closing(response):
            response.read()
    raise refused(adapter, response, connection)


async def _asent(client: httpx2.AsyncClient, adapter: str, call: HttpCall, connection: Connection) -> httpx2.Response:
    """Do what `_sent` does, for asyncio."""
    with converted(adapter, connection):
        body, request = _request(client, call, is_async=True)
    with told_how_far(body), converted(adapter, connection):
        response = await client.send(request, stream=True)
        if response.is_success:
            return response
        async with aclosing(response):
            await response.aread()
    raise refused(adapter, response, connection)


def _request(
    client: httpx2.Client | httpx2.AsyncClient, call: HttpCall, *, is_async: bool
) -> tuple[Body | None, httpx2.Request]:
    method = "GET" if call.body is None else "POST"
    parts = [call.body] if isinstance(call.body, bytes) else call.body
    body, headers = sent(parts, is_async=is_async)
    return body, client.build_request(method, call.url, content=body, headers={**call.headers, **headers})


def events_of(
    response: httpx2.Response, cutter: EventCutter, errors: AbstractContextManager[None]
) -> Generator[RawEvent, None, None]:
    """Iterate over the raw events of a response; a whole one is one event, or none where it is empty.

    Whether it is a stream is what its body says: headers are missing, or say something else, where a proxy made them.

    Args:
        response: the response, read or not.
        cutter: what cuts a stream into its events.
        errors: what is entered while reading, to convert errors.
    """
    with errors:
        if _is_whole(response):
            response.read()
            yield from _in_whole(response, cutter)
        else:
            yield from events_in(response.iter_bytes(), cutter)


async def aevents_of(
    response: httpx2.Response, cutter: EventCutter, errors: AbstractContextManager[None]
) -> AsyncGenerator[RawEvent, None]:
    """Do the same for asyncio."""
    with errors:
        if _is_whole(response):
            await response.aread()
            for event in _in_whole(response, cutter):
                yield event
        else:
            async for event in aevents_in(response.aiter_bytes(), cutter):
                yield event


def _is_whole(response: httpx2.Response) -> bool:
    """Return whether a response is read whole before it is looked at: it was read already, or says that it is JSON."""
    return response.is_closed or media_type(response) == "application/json"


def _in_whole(response: httpx2.Response, cutter: EventCutter) -> list[RawEvent]:
    if is_event_stream(response.content):
        return list(events_in([response.content], cutter))
    if isinstance(cutter, NoPage):
        cutter.check(response.content)
    return [response.content] if response.content else []


class NoPage:
    """Cuts a stream into its events, and refuses a web page in place of one.

    That is what a server answers that is not the provider's, such as the one of a user interface, or of a network that
    wants a login. Servers are there that call a stream a page, so that only its start tells.
    """

    def __init__(self, cutter: EventCutter, error: ProviderError) -> None:
        """Wrap what cuts a stream, with the error to raise for a page."""
        self._cutter = cutter
        self._error = error
        self._begun = False

    def check(self, start: bytes) -> None:
        """Raise the error where a page begins so."""
        if not self._begun and start.lstrip()[:1] == b"<":
            raise self._error
        self._begun = self._begun or not start.isspace()

    def add(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the events that end in them."""
        self.check(chunk)
        return self._cutter.add(chunk)

    def end(self) -> list[bytes]:
        """Return what the stream ended in before it was an event."""
        return self._cutter.end()


def without_page(response: httpx2.Response, cutter: EventCutter, adapter: str, connection: Connection) -> EventCutter:
    """Return what cuts a response into its events, such that it refuses a web page."""
    if media_type(response) != "text/html":
        return cutter
    said = f"{connection.who or adapter} answered with a web page, and not with a reply: check the base URL"
    return NoPage(cutter, ProviderError(said, provider=adapter, status=response.status_code))


def media_type(response: httpx2.Response) -> str:
    """Return the media type of a response without its parameters, empty where it does not say."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


# Trying again


def retrying(kind: type[T], connection: Connection) -> T:
    """Return what tries again after a `ProviderError` that may pass, as often as a connection says.

    After as long as the provider asks for; one that asks for more than `WAIT_S_MAX` is not asked again.
    """
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
    return pause_s(state.attempt_number) if asked is None else asked


# Errors


@contextmanager
def converted(adapter: str, connection: Connection) -> Generator[None, None, None]:
    """Raise the errors of the HTTP library as `ProviderError`."""
    import httpx2  # noqa: PLC0415

    try:
        yield
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, UnicodeError, OSError) as error:
        raise network_error(adapter, error, connection) from error


def network_error(adapter: str, error: BaseException, connection: Connection) -> ProviderError:
    """Return the error behind one of the HTTP library."""
    import httpx2  # noqa: PLC0415

    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL | UnicodeError):  # of a host's name
        return not_a_base_url(adapter, connection)
    connecting = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError)
    proxy = proxy_of(_asked(error)) if connecting else ""
    waited: Waited | None = None
    if isinstance(error, httpx2.TimeoutException):
        waited = "connection" if connecting else "reply"
    return connection_error(adapter, error, connection, waited=waited, proxy=proxy)


def _asked(error: httpx2.RequestError) -> str:
    """Return what URL was asked for when an error came; empty where it does not say."""
    with suppress(RuntimeError):
        return str(error.request.url)
    return ""


def refused(adapter: str, response: httpx2.Response, connection: Connection) -> ProviderError:
    """Return the error behind a response that was read, and is none that can be used: with what it says."""
    retry_after: str | None = response.headers.get("retry-after")
    with suppress(KeyError, ValueError):
        in_ms = str(float(response.headers["retry-after-ms"]) / 1000)
        retry_after = retry_after if asked_wait_s(in_ms) is None else in_ms
    location = response.headers.get("location")
    if response.is_redirect and location:
        place = shown(urlsplit(urljoin(str(response.url), location)))
        said = f"it redirects to {without_key(place, connection)}, which is not followed: check the base URL"
        return status_error(adapter, response.status_code, said, who=connection.who)
    said = _text_of(response)
    try:
        body = msgspec.json.decode(said)
    except UNREADABLE:
        pass
    else:
        said, retry_after = said_by(body), retry_after or wait_said_by(body)
    return status_error(adapter, response.status_code, without_key(said, connection), retry_after, who=connection.who)


def _text_of(response: httpx2.Response) -> str:
    """Return the text of a response that was read: UTF-8, or in what its first bytes or its headers say."""
    import json  # noqa: PLC0415 - few answers are an error

    content = response.content
    with suppress(UnicodeDecodeError):
        return content.decode(json.detect_encoding(content))
    with suppress(LookupError, ValueError):  # it says something that is no encoding of text
        return content.decode(response.charset_encoding or "utf-8", errors="replace")
    return content.decode(errors="replace")
