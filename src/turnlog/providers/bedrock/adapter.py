"""The adapter of Bedrock's Converse API: what it can carry, and which part does what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Raw

from turnlog.model import ContextWindow, Tool
from turnlog.providers.bedrock import request
from turnlog.providers.bedrock.client import CLIENT
from turnlog.providers.bedrock.reply import Reader
from turnlog.providers.carriage import Capabilities, Carried, CarriedConversation
from turnlog.providers.interface import Frame, FrameInput, OnLoss, Parameters, PreparedRequest, Provider
from turnlog.providers.losses import Losses
from turnlog.providers.output_schema import OutputSchema
from turnlog.providers.reader import ReplyReader
from turnlog.providers.server_calls import ServerPart
from turnlog.providers.tool_loops import is_claude, without_thinking
from turnlog.providers.tool_names import ToolNames


class Bedrock(Provider):
    """Bedrock's Converse API.

    Turns of one role in a row are one message, because roles have to alternate: the last message of a body can grow
    with the next turn. Replies do not name the model that answered: a response has the one that was asked, else
    `bedrock`. Keys are Bedrock API keys; requests are not signed (AWS Signature Version 4).
    """

    name = "bedrock"
    provider = "bedrock"
    api = "converse"
    version = "7"
    key_variable = "AWS_BEARER_TOKEN_BEDROCK"
    client = CLIENT
    reserved = request.RESERVED
    embeds_texts = True
    capabilities = Capabilities(
        documents=tuple(request.MEDIA),
        result_documents=tuple(name for name, (kind, _) in request.MEDIA.items() if kind != "audio"),
        blank_text=False,
        blank_end=False,
        thinking="signed",
        thinking_last=False,
        native=True,
        system="joined",
        tool_id_pattern="[a-zA-Z0-9_-]+",
        tool_id_characters_max=64,
        tool_names=ToolNames(characters_max=64),
        result_errors=True,
        cache_breakpoints_max=4,
    )

    def prepare_request(
        self,
        window: ContextWindow,
        tools: Sequence[Tool] = (),
        *,
        model: str,
        params: Parameters | None = None,
        on_loss: OnLoss | None = None,
        stream: bool = True,
    ) -> PreparedRequest:
        """Return the request body of a context window: see `Provider.prepare_request`, and `request.with_stand_in`."""
        prepared = super().prepare_request(window, tools, model=model, params=params, on_loss=on_loss, stream=stream)
        return request.with_stand_in(prepared)

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return request.encode_message(carried)

    def _server_part(self, block: Raw) -> ServerPart | None:
        return request.server_part(block)

    def _frame(self, given: FrameInput) -> Frame:
        return request.frame_body(given)

    def _fitting(
        self, params: Parameters, carried: CarriedConversation, window: ContextWindow, model: str, losses: Losses
    ) -> Parameters:
        if not is_claude(model):
            return params
        fitting = without_thinking(params, carried.messages, window, losses, request.kind_in_loop)
        further = params.get(request.FURTHER)
        if not isinstance(further, Mapping):
            return fitting
        further = cast("Parameters", further)
        kept = without_thinking(further, carried.messages, window, losses, request.kind_in_loop)
        return fitting if kept is further else {**fitting, request.FURTHER: kept}

    def _with_breakpoints(self, carried: CarriedConversation, params: Parameters, losses: Losses) -> Sequence[bytes]:
        del params, losses
        room = self.capabilities.cache_breakpoints_max - (carried.system_cached and bool(carried.system))
        return request.alternating(request.with_cache_points(carried.messages, carried.cached, room))

    def _output(self, schema: OutputSchema, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        del tools, model
        held = schema.held_to(losses)
        if held is None:
            return {}
        structure = {"jsonSchema": {"name": schema.name, "schema": bytes(held).decode()}}
        return {"outputConfig": {"textFormat": {"type": "json_schema", "structure": structure}}}

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply: see `Reader`."""
        return Reader(self._sender(model))
