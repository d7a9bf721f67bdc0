"""The adapter of Chat Completions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from turnlog.errors import ProviderError, UnsupportedContentError
from turnlog.model import Delta, LossEntry, Response, Tool
from turnlog.providers.body import frame
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.interface import (
    Connection,
    Frame,
    FrameInput,
    Parameters,
    PreparedRequest,
    Provider,
    RawEvent,
)
from turnlog.providers.openai_chat.events import event_deltas
from turnlog.providers.openai_chat.replies import Sender, aggregate
from turnlog.providers.openai_chat.requests import encode_message, tool_choice, tool_definition, wire_parameters
from turnlog.providers.openai_client import aopen_stream, list_models, open_stream
from turnlog.providers.schemas import plain_object

_PATH = "/chat/completions"


class OpenAIChat(Provider):
    """OpenAI's Chat Completions; with another `provider` name and a base URL, any endpoint that speaks them.

    Attributes:
        home: the provider whose endpoint `base_url` is. Under another name a connection has to bring its own.
        base_url: the endpoint, or None for what the SDK takes: `OPENAI_BASE_URL`, else OpenAI.
    """

    name = "openai_chat"
    provider = "openai"
    api = "chat_completions"
    version = "1"
    key_variable = "OPENAI_API_KEY"
    call_params: ClassVar[Parameters] = {"stream_options": {"include_usage": True}}
    capabilities = Capabilities(
        documents=("image/gif", "image/jpeg", "image/png", "image/webp", "application/pdf"),
        text_documents=False,
        native=True,
        tool_id_characters_max=40,
    )
    home: ClassVar[str] = "openai"
    base_url: ClassVar[str | None] = None

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return encode_message(carried)

    def _frame(self, given: FrameInput) -> Frame:
        losses: list[LossEntry] = []
        if given.search:
            losses.append(self._without_search(given))
        tools = [self._tool(tool, losses) for tool in given.tools]
        parameters = wire_parameters(given, max_tokens=self._max_tokens)
        choice, lost = tool_choice(given)
        # OpenAI takes an empty list of tools, and has been sent one from the first; others refuse it.
        offered = {"tools": tools} if tools or self.provider == self.home else {}
        before = {"model": given.model, "stream": given.stream, **offered}
        return frame(before | choice | parameters, "messages", {}, [*losses, *lost])

    def _without_search(self, given: FrameInput) -> LossEntry:
        if given.on_loss == "report":
            return LossEntry(kind="dropped", turn="", block="search", why="the wire has no search")
        raise UnsupportedContentError(
            f"{self.name} cannot search: ask another provider, or set `search` to false",
            provider=self.name,
            block="search",
        )

    def _tool(self, tool: Tool, losses: list[LossEntry]) -> dict[str, Any]:
        schema, removed = self._schema(tool.input_schema)
        if removed:
            why = f"the schema of {tool.name!r} without the keywords {', '.join(removed)}"
            losses.append(LossEntry(kind="downgraded", turn="", block="tool", why=why))
        return tool_definition(tool, schema)

    def _schema(self, schema: Raw) -> tuple[Raw, Sequence[str]]:
        """Return a tool's input schema as the endpoint takes it, and the keywords that it does not have any more."""
        return plain_object(schema) if self.provider == self.home else (schema, ())

    @property
    def _max_tokens(self) -> str:
        """The wire's name for `max_tokens`: OpenAI's newer models refuse the old one, others may know no other."""
        return "max_completion_tokens" if self.provider == self.home else "max_tokens"

    def deltas(self, event: RawEvent) -> Sequence[Delta]:
        """Return what to show of an event; thinking and text in pieces that all name their type."""
        return event_deltas(event, self.name)

    def aggregate(self, events: Iterable[RawEvent], *, model: str | None = None) -> Response:
        """Return what events add up to. Choices after the first one are kept in `extra`, under `choices`."""
        return aggregate(events, Sender(adapter=self.name, provider=self.provider, api=self.api, model=model))

    def models(self, connection: Connection) -> list[str]:
        """Ask the endpoint for its models and return their names, sorted."""
        return list_models(self.name, self._at_endpoint(connection))

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Iterator[RawEvent]]:
        return open_stream(self.name, _PATH, request.body, request.stream, self._at_endpoint(connection))

    def _aopen(
        self, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        return aopen_stream(self.name, _PATH, request.body, request.stream, self._at_endpoint(connection))

    def _at_endpoint(self, connection: Connection) -> Connection:
        """Return the connection with an endpoint, never one that the key is not for."""
        if connection.base_url is not None:
            return connection
        if self.provider != self.home:
            raise ProviderError(f"{self.provider!r} has no base URL: set one", provider=self.name)
        return msgspec.structs.replace(connection, base_url=self.base_url)
