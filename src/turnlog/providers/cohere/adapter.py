"""The adapter of Cohere's v2 chat: what it can carry, and which part does what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from turnlog.model import Delta, Response
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.cohere.client import aopen_stream, list_models, open_stream
from turnlog.providers.cohere.replies import add_up, deltas_of
from turnlog.providers.cohere.requests import IMAGES, encode_message, frame_body
from turnlog.providers.interface import Connection, Frame, FrameInput, PreparedRequest, Provider, RawEvent


class Cohere(Provider):
    """Cohere's v2 chat.

    Replies do not name the model that answered: `aggregate` takes the one that was asked, else `cohere`. The SDK reads
    `COHERE_API_KEY` too, but documents only `CO_API_KEY`; turnlog reads only that one.
    """

    name = "cohere"
    provider = "cohere"
    api = "chat_v2"
    version = "1"
    key_variable = "CO_API_KEY"
    capabilities = Capabilities(
        documents=IMAGES,
        thinking="all",
        native=True,
        # Its own ids are the name of the tool and a mark, and can be longer than those of others.
        tool_id_pattern="[!-~]+",
        tool_id_characters_max=256,
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return encode_message(carried)

    def _frame(self, given: FrameInput) -> Frame:
        return frame_body(self.name, given)

    def deltas(self, event: RawEvent) -> Sequence[Delta]:
        """Return what to show of one event: text, thinking and the tool plan as thinking, tool calls."""
        return deltas_of(self.name, event)

    def aggregate(self, events: Iterable[RawEvent], *, model: str | None = None) -> Response:
        """Return what the events of a stream add up to, or what one whole reply says."""
        return add_up(events, adapter=self.name, provider=self.provider, api=self.api, model=model or self.name)

    def models(self, connection: Connection) -> list[str]:
        """Ask Cohere for the models that chat and return their names, sorted."""
        return list_models(self.name, connection)

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Iterator[RawEvent]]:
        return open_stream(self.name, request.body, connection)

    def _aopen(
        self, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        return aopen_stream(self.name, request.body, connection)
