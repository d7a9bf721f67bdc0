"""The adapter of Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec import Raw

from turnlog.model import Tool
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.extras import taken_fields
from turnlog.providers.interface import (
    Frame,
    FrameInput,
    Parameters,
    Provider,
    ReplyReader,
)
from turnlog.providers.losses import Losses
from turnlog.providers.openai_chat import request
from turnlog.providers.openai_chat.client import CLIENT
from turnlog.providers.openai_chat.reply import Reader
from turnlog.providers.output_schema import OutputSchema
from turnlog.providers.schemas import plain_object
from turnlog.providers.tool_names import ToolNames

_NAMES = ToolNames(characters_max=64)
"""What OpenAI takes, and Mistral."""


class OpenAIChat(Provider):
    """OpenAI's Chat Completions; with another `provider` name and a base URL, any endpoint that speaks them."""

    name = "openai_chat"
    provider = "openai"
    api = "chat_completions"
    version = "6"
    key_variable = "OPENAI_API_KEY"
    client = CLIENT
    call_params: ClassVar[Parameters] = {"stream_options": {"include_usage": True}}
    embeds_texts = True
    arguments_are_text = True
    capabilities = Capabilities(
        documents=("image/gif", "image/jpeg", "image/png", "image/webp", "application/pdf"),
        document_name=request.FILE_NAME,
        text_documents=False,
        joins_texts=True,
        native=True,
        tool_id_characters_max=40,
        tool_names=_NAMES,
    )
    base_url_variable = "OPENAI_BASE_URL"
    reserved = request.RESERVED

    def __init__(self, *, provider: str | None = None, key_variable: str | None = None) -> None:
        """Make an adapter; under another provider's name thinking goes back, as their endpoints want it.

        Mistral takes ids of tool calls in the form that it makes them in, and refuses any other. Which names of tools
        other endpoints than it and OpenAI take is not known.
        """
        super().__init__(provider=provider, key_variable=key_variable)
        if not self._at_home:
            self.capabilities = msgspec.structs.replace(self.capabilities, thinking="all")
        if self.provider == "mistral":
            self.capabilities = msgspec.structs.replace(
                self.capabilities, tool_id_pattern="[a-zA-Z0-9]{9}", tool_id_characters_max=9
            )
        elif self.provider != OpenAIChat.provider:
            self.capabilities = msgspec.structs.replace(self.capabilities, tool_names=None)

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        fields = taken_fields(self.api, self.provider) or ()
        return request.encode_message(carried, home=self._at_home, fields=fields)

    def _frame(self, given: FrameInput) -> Frame:
        return request.frame_body(given, home=self._at_home, schema=self._schema)

    def _schema(self, schema: Raw) -> tuple[Raw, Sequence[str]]:
        """Return a tool's input schema as the endpoint takes it, and the keywords that it does not have any more."""
        return plain_object(schema) if self._at_home else (schema, ())

    def _output(self, schema: OutputSchema, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        del tools, model, losses
        asked = {"name": schema.name, "schema": schema.schema, "strict": schema.is_strict}
        return {"response_format": {"type": "json_schema", "json_schema": asked}}

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply. Choices after the first one are kept in `extra`, under `choices`."""
        return Reader(self._sender(model), thinking_goes_back=not self._at_home)
