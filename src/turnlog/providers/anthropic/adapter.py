"""The adapter of the Messages API: what the wire can carry, and where its parts are."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from turnlog.model import ContextWindow, Tool
from turnlog.providers.anthropic import reply, request
from turnlog.providers.anthropic.breakpoints import KEY, with_breakpoints
from turnlog.providers.anthropic.client import CLIENT
from turnlog.providers.carriage import Capabilities, Carried, CarriedConversation
from turnlog.providers.interface import (
    Frame,
    FrameInput,
    Parameters,
    Provider,
    ReplyReader,
)
from turnlog.providers.losses import Losses
from turnlog.providers.output_schema import OutputSchema
from turnlog.providers.server_calls import ServerPart
from turnlog.providers.tool_loops import is_claude, without_thinking
from turnlog.providers.tool_names import ToolNames

_DOCUMENTS = ("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf")


class Anthropic(Provider):
    """The adapter of the Messages API.

    `temperature`, `top_p` and `top_k` are in no API version after 2023-06-01: a body that has them is sent as of that
    version, any other as of the SDK's own. Models that do not take them answer with an error.
    """

    name = "anthropic"
    provider = "anthropic"
    api = "messages"
    version = "8"
    key_variable = "ANTHROPIC_API_KEY"
    client = CLIENT
    base_url_variable = "ANTHROPIC_BASE_URL"
    reserved = request.RESERVED
    embeds_texts = True
    capabilities = Capabilities(
        documents=_DOCUMENTS,
        result_documents=_DOCUMENTS,
        document_name="title",
        blank_text=False,
        blank_end=False,
        thinking="signed",
        thinking_last=False,
        native=True,
        system="joined",
        tool_id_pattern="[a-zA-Z0-9_-]+",
        tool_id_characters_max=64,
        tool_names=ToolNames(characters_max=128),
        result_errors="text",
        search="beside_tools",
        cache_breakpoints_max=4,
        cache_key=KEY,
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return request.encode_message(carried)

    def _server_part(self, block: Raw) -> ServerPart | None:
        return request.server_part(block)

    def _frame(self, given: FrameInput) -> Frame:
        return request.frame_body(given)

    def _fitting(
        self, params: Parameters, carried: CarriedConversation, window: ContextWindow, model: str, losses: Losses
    ) -> Parameters:
        if not (self._at_home or is_claude(model)):
            return params
        return without_thinking(params, carried.messages, window, losses, request.kind_in_loop)

    def _with_breakpoints(self, carried: CarriedConversation, params: Parameters, losses: Losses) -> Sequence[bytes]:
        of_system = carried.system_cached and bool(carried.system)
        of_the_api = params.get("cache_control") is not None  # the API then sets one itself, on the last block
        room = self.capabilities.cache_breakpoints_max - of_system - of_the_api
        own = dict(carried.marked)
        messages, lost = with_breakpoints(carried.messages, carried.cached, room, own)
        for index in lost:
            why = f"{KEY}: the request has more than {self.capabilities.cache_breakpoints_max}, and the last ones count"
            losses.lose("dropped", KEY, why, harmless=True, turn=own[index])
        return messages

    def _output(self, schema: OutputSchema, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        del tools, model
        held = schema.held_to(losses)
        return {} if held is None else {"output_config": {"format": {"type": "json_schema", "schema": held}}}

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply: see `Provider.reader`.

        Thinking and native blocks are marked as those of the model that the reply names, a dated version, as a rule, of
        the one that was asked. Deltas of tool calls have no id. Results of a web search are shown as CSV, a line a
        result, and what other server tools found as JSON.
        """
        return reply.Reader(self._sender(model))
