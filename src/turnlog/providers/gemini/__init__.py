"""The wire of Google's Gemini API: generateContent and streamGenerateContent.

The key is looked for as `GEMINI_API_KEY`. The SDK's other name for it, `GOOGLE_API_KEY`, is not read. Calls need the
package `google-genai` (`turnlog[gemini]`); requests and replies are prepared and read without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import ModuleType

from turnlog.errors import MissingPackageError
from turnlog.model import Delta, Response
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.gemini import reply, request
from turnlog.providers.interface import Connection, Frame, FrameInput, PreparedRequest, Provider, RawEvent


class Gemini(Provider):
    """Gemini API, `models.generateContent` (v1beta). The model and whether to stream are in the URL, not in the body.

    Thinking goes back part by part as it came: the API asks for its parts whole, signatures on the parts that they
    stood on. A signature is a thinking block before the block of its part.
    """

    name = "gemini"
    provider = "gemini"
    api = "generate_content"
    version = "1"
    key_variable = "GEMINI_API_KEY"
    capabilities = Capabilities(
        # No `image/svg+xml`, which is text; no other type that the API takes begins with an s.
        documents=("image/[!s]*", "application/pdf", "audio/*", "video/*"),
        thinking="all",
        native=True,
        system="joined",
        tool_id_pattern=None,
        tool_ids_of_others=False,
        result_errors=True,
        search="alone",
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return request.contents(carried)

    def _frame(self, given: FrameInput) -> Frame:
        return request.framed(given, self.name)

    def deltas(self, event: RawEvent) -> Sequence[Delta]:
        """Return what to show of one event of a stream, or of one whole reply; empty where there is nothing.

        Raises:
            ProviderError: the event is not JSON.
        """
        return reply.deltas(event, self.name)

    def aggregate(self, events: Iterable[RawEvent], *, model: str | None = None) -> Response:
        """Return what the events of a stream add up to, or what one whole reply says. Never raises for its content.

        Args:
            events: the events in order, or one whole reply.
            model: the model that was asked: thinking and native blocks go back to it.
        """
        return reply.aggregate(events, adapter=self.name, provider=self.provider, api=self.api, model=model)

    def models(self, connection: Connection) -> list[str]:
        """Ask the API for its models and return the names of those that generate content, sorted.

        Raises:
            ProviderError: the API refused, or cannot be reached.
            MissingPackageError: the SDK is not installed.
        """
        return self._client().list_models(self.name, connection)

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Iterator[RawEvent]]:
        return self._client().open_stream(self.name, request.model, request.body, request.stream, connection)

    def _aopen(
        self, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        return self._client().aopen_stream(self.name, request.model, request.body, request.stream, connection)

    def _client(self) -> ModuleType:
        try:
            from turnlog.providers.gemini import client  # noqa: PLC0415 - it imports the SDK, which is an extra
        except ImportError as error:
            raise MissingPackageError(
                "calls to Gemini need the package google-genai: install turnlog[gemini]", provider=self.name
            ) from error
        return client
