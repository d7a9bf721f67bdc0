"""OpenAI's Responses API: https://developers.openai.com/api/reference/resources/responses (`POST /responses`).

Requests are stateless: nothing is stored at the provider, and reasoning goes back encrypted, as the items that it came
in. Each output item becomes blocks that hold all it takes to send the very same item back to the model that wrote it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from turnlog.model import Delta, Response
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.interface import Connection, Frame, FrameInput, PreparedRequest, Provider, RawEvent
from turnlog.providers.openai_client import aopen_stream, list_models, open_stream
from turnlog.providers.openai_responses.items import FILE_NAMES, IMAGES, PDF, Owner, input_items
from turnlog.providers.openai_responses.reply import Gathered, deltas_of
from turnlog.providers.openai_responses.request import frame_of

__all__ = ["OpenAIResponses"]

_PATH = "/responses"


class OpenAIResponses(Provider):
    """The adapter of OpenAI's Responses API, and of endpoints that speak it."""

    name = "openai_responses"
    provider = "openai"
    api = "responses"
    version = "1"
    key_variable = "OPENAI_API_KEY"
    capabilities = Capabilities(
        documents=(*IMAGES, *FILE_NAMES),
        result_documents=(*IMAGES, PDF),
        thinking="signed",
        thinking_last=False,  # the API refuses a reasoning item without the item that it is followed by
        native=True,
        system="inline",
        search="beside_tools",
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return input_items(carried)

    def _frame(self, given: FrameInput) -> Frame:
        return frame_of(given, self.name)

    def deltas(self, event: RawEvent) -> Sequence[Delta]:
        """Return what to show of one event of a stream, or of one whole response."""
        return deltas_of(event, adapter=self.name)

    def aggregate(self, events: Iterable[RawEvent], *, model: str | None = None) -> Response:
        """Return what the events of a stream add up to, or what one whole response says."""
        gathered = Gathered(self.name)
        for event in events:
            gathered.add(event)
        return gathered.response(Owner(provider=self.provider, api=self.api, model=gathered.model or model or ""))

    def models(self, connection: Connection) -> list[str]:
        """Ask the endpoint for its models and return their names, sorted."""
        return list_models(self.name, connection)

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Iterator[RawEvent]]:
        return open_stream(self.name, _PATH, request.body, request.stream, connection)

    def _aopen(
        self, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        return aopen_stream(self.name, _PATH, request.body, request.stream, connection)
