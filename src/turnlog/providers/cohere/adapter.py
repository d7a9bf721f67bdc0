"""The adapter of Cohere's v2 chat: what it can carry, and which part does what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.cohere import client
from turnlog.providers.cohere.reply import Reader
from turnlog.providers.cohere.request import IMAGES, encode_message, frame_body
from turnlog.providers.interface import Connection, Frame, FrameInput, PreparedRequest, Provider
from turnlog.providers.reader import RawEvent, ReplyReader


class Cohere(Provider):
    """Cohere's v2 chat.

    Replies do not name the model that answered: a response has the one that was asked, else `cohere`.
    """

    name = "cohere"
    provider = "cohere"
    api = "chat_v2"
    version = "2"
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
        return frame_body(given)

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply: see `Reader`."""
        return Reader(self._sender(model))

    def models(self, connection: Connection) -> list[str]:
        """Ask Cohere for the models that chat and return their names, sorted."""
        return client.list_models(self.name, connection)

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Iterator[RawEvent]]:
        return client.open_stream(self.name, request, connection)

    def _aopen(
        self, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        return client.aopen_stream(self.name, request, connection)
