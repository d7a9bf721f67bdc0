"""The adapter of Cohere's v2 chat: what it can carry, and which part does what."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.model import Tool
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.cohere.client import CLIENT
from turnlog.providers.cohere.reply import Reader
from turnlog.providers.cohere.request import IMAGES, RESERVED, encode_message, frame_body
from turnlog.providers.interface import Frame, FrameInput, Parameters, Provider
from turnlog.providers.losses import Losses
from turnlog.providers.output_schema import OutputSchema, lose
from turnlog.providers.reader import ReplyReader


class Cohere(Provider):
    """Cohere's v2 chat.

    Replies do not name the model that answered: a response has the one that was asked, else `cohere`.
    """

    name = "cohere"
    provider = "cohere"
    api = "chat_v2"
    version = "7"
    key_variable = "CO_API_KEY"
    client = CLIENT
    reserved = RESERVED
    embeds_texts = True
    arguments_are_text = True
    capabilities = Capabilities(
        documents=IMAGES,
        joins_texts=True,
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

    def _output(self, schema: OutputSchema, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        del model
        if tools:
            lose(losses, "the API takes none beside tools")
            return {}
        return {"response_format": {"type": "json_object", "json_schema": schema.schema}}

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply: see `Reader`."""
        return Reader(self._sender(model))
