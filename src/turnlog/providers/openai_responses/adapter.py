"""The adapter of the Responses API."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnlog.model import Tool
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.interface import Frame, FrameInput, Parameters, Provider, ReplyReader
from turnlog.providers.losses import Losses
from turnlog.providers.openai_responses import items, request
from turnlog.providers.openai_responses.client import CLIENT
from turnlog.providers.openai_responses.reply import Reader
from turnlog.providers.output_schema import OutputSchema
from turnlog.providers.tool_names import ToolNames


class OpenAIResponses(Provider):
    """OpenAI's Responses API; under another `provider` name and with a base URL, any endpoint that speaks it."""

    name = "openai_responses"
    provider = "openai"
    api = "responses"
    version = "7"
    key_variable = "OPENAI_API_KEY"
    client = CLIENT
    base_url_variable = "OPENAI_BASE_URL"
    reserved = request.RESERVED
    embeds_texts = True
    arguments_are_text = True
    capabilities = Capabilities(
        documents=(*items.IMAGES, *items.FILE_NAMES),
        result_documents=(*items.IMAGES, items.PDF),
        document_name="filename",
        thinking="signed",
        thinking_last=False,  # the API refuses a reasoning item without the item that it is followed by
        native=True,
        system="inline",
        tool_names=ToolNames(characters_max=128),
        search="beside_tools",
    )

    def __init__(self, *, provider: str | None = None, key_variable: str | None = None) -> None:
        """Make an adapter; under another provider's name reasoning goes back that is not encrypted, too."""
        super().__init__(provider=provider, key_variable=key_variable)
        if not self._at_home:
            self.capabilities = msgspec.structs.replace(self.capabilities, thinking="all", tool_names=None)

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return request.encode_message(carried)

    def _frame(self, given: FrameInput) -> Frame:
        return request.frame_body(given)

    def _output(self, schema: OutputSchema, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        del tools, model, losses
        asked = {"name": schema.name, "schema": schema.schema, "strict": schema.is_strict}
        return {"text": {"format": {"type": "json_schema", **asked}}}

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply."""
        return Reader(self._sender(model))
