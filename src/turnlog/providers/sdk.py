"""The network of the wires that go through the SDKs of OpenAI and Anthropic: exact bytes out, raw events in.

The SDK does the connections and the keys. It never sees the body as values, nor a reply as objects, so that what is
recorded is what was sent and what came. It neither tries again, for it may wait for hours where a provider asks it to,
nor follows a redirection. Both SDKs are made alike: here is what they have in common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

from tenacity import AsyncRetrying, Retrying

from turnlog.errors import ProviderError
from turnlog.executors import of_process
from turnlog.providers import http
from turnlog.providers.certificates import tls_context
from turnlog.providers.interface import Connection, PreparedRequest, RawEvent
from turnlog.providers.proxies import check_proxies
from turnlog.providers.sending import sent, told_how_far
from turnlog.providers.wire import EventBytes, EventCutter, sendable_key


class SdkClient(ABC):
    """The network of one wire, through an SDK.

    Attributes:
        brand: the name of the SDK's client class; that of the asynchronous one and of its errors are made from it. In
            lower case it is the provider whose SDK it is.
        path: where requests go, below the base URL.
        events: makes what cuts a stream into its events.
        settings: further settings of the SDK's client.
    """

    brand: str
    path: str
    events: Callable[[], EventCutter] = EventBytes
    settings: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def _sdk(self) -> Any:
        """Return the SDK's module. It takes a while to import, and most commands call no one."""

    def load(self) -> None:
        """Import the SDK, and read the certificates of authorities."""
        self._sdk()
        tls_context()

    @abstractmethod
    def _options(self, request: PreparedRequest | None, connection: Connection) -> dict[str, Any]:
        """Return the SDK's options of a request, or of asking for models."""

    @abstractmethod
    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Ask the endpoint for its models and return their names, sorted.

        Raises:
            ProviderError: the endpoint refused, cannot be reached, or answered something else.
        """

    @contextmanager
    def open_stream(
        self, adapter: str, request: PreparedRequest, connection: Connection
    ) -> Generator[Iterator[RawEvent], None, None]:
        """Send the body of a request and give an iterator over the raw events of the reply.

        A reply that is not streamed, whether that was asked for or not, is one event.

        Raises:
            ProviderError: the endpoint refused, or cannot be reached; also while iterating, where the reply breaks off.
        """
        with self._client(adapter, connection) as client:
            asked = self._post(request, connection, is_async=False)
            ask = partial(client.post, **asked, stream_cls=self._sdk().Stream[object])
            response = self._tried(adapter, connection, ask)
            cutter = http.without_page(response, self.events(), adapter, connection)
            events = http.events_of(response, cutter, self._converted(adapter, connection))
            with closing(response), closing(events):
                yield events

    @asynccontextmanager
    async def aopen_stream(
        self, adapter: str, request: PreparedRequest, connection: Connection
    ) -> AsyncGenerator[AsyncIterator[RawEvent], None]:
        """Do what `open_stream` does, for asyncio."""
        # The import of the SDK, and certificates, would hold an event loop up: the client is made in a thread.
        async with await of_process().run_read(self._client, adapter, connection, "Async") as client:
            asked = self._post(request, connection, is_async=True)
            response: Any = None
            async for attempt in http.retrying(AsyncRetrying, connection):
                with attempt, told_how_far(asked["content"]), self._converted(adapter, connection):
                    response = await client.post(**asked, stream_cls=self._sdk().AsyncStream[object])
            cutter = http.without_page(response, self.events(), adapter, connection)
            events = http.aevents_of(response, cutter, self._converted(adapter, connection))
            async with aclosing(response), aclosing(events):
                yield events

    def _tried(self, adapter: str, connection: Connection, ask: Callable[[], Any]) -> Any:
        """Return what is answered, at the last try where the ones before failed in a way that may pass.

        Raises:
            ProviderError: the endpoint refused, or cannot be reached.
        """
        answer: Any = None
        for attempt in http.retrying(Retrying, connection):
            with attempt, self._converted(adapter, connection):
                answer = ask()
        return answer

    def _client(self, adapter: str, connection: Connection, kind: str = "") -> Any:
        check_proxies(adapter)
        with self._converted(adapter, connection):
            client = getattr(self._sdk(), kind + self.brand)(
                # `_options` says what is sent; without any the SDK would look for one of its own.
                api_key=sendable_key(adapter, connection) or "none",
                base_url=connection.base_url,
                timeout=http.timeouts(connection),
                max_retries=0,
                http_client=getattr(self._sdk(), f"Default{kind}HttpxClient")(
                    timeout=http.timeouts(connection), follow_redirects=False, verify=tls_context()
                ),
                **self.settings,
            )
        if connection.base_url is not None and connection.provider != self.brand.lower():
            # What the SDK has read in `…_CUSTOM_HEADERS` is for the endpoint that the key of its provider is for.
            client._custom_headers = {}  # no setting keeps them out
        # Else the SDK would find it out in a thread of asyncio, which may be full of what waits for this call.
        with suppress(AttributeError):  # a later SDK may have it elsewhere: it finds it out itself then
            client._platform = self._sdk()._base_client.get_platform()
        return client

    def _post(self, request: PreparedRequest, connection: Connection, *, is_async: bool) -> dict[str, Any]:
        import httpx2  # noqa: PLC0415 - it comes with the SDKs

        body, headers = sent(request.parts, is_async=is_async)
        options = self._options(request, connection)
        options["headers"] = {**options["headers"], **headers}
        return {
            "path": self.path,
            "cast_to": httpx2.Response,
            "content": body,
            "options": options,
            "stream": request.stream,
        }

    @contextmanager
    def _converted(self, adapter: str, connection: Connection) -> Generator[None]:
        """Raise the errors of the SDK and of the HTTP library below it as `ProviderError`."""
        sdk = self._sdk()
        with http.converted(adapter, connection):
            try:
                yield
            except sdk.APIStatusError as error:
                raise http.refused(adapter, error.response, connection) from error
            except sdk.APIConnectionError as error:
                raise http.network_error(adapter, error.__cause__ or error, connection) from error
            except (getattr(sdk, f"{self.brand}Error"), ValueError) as error:
                said = f"{connection.who or adapter} cannot be called: {error}"
                raise ProviderError(said, provider=adapter) from error
