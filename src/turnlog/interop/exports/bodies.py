"""What the SDKs of OpenAI and Anthropic take: the window of a turn as their adapters send it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from turnlog import providers
from turnlog.interop.exports.reading import Exported, json_writer
from turnlog.log import TurnLog
from turnlog.model.long_strings import LongStrings
from turnlog.turn import Turn

_body = msgspec.json.Decoder(dict[str, Raw])


def openai_body(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:
    """Return `{"messages": […]}`, for `client.chat.completions.create(**body, model=…)`."""
    return _prepared(log, headish, turns, "openai_chat", ("messages",))


def anthropic_body(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:
    """Return `{"system": …, "messages": […]}`, for `client.messages.create(**body, model=…, max_tokens=…)`."""
    return _prepared(log, headish, turns, "anthropic", ("system", "messages"))


def _prepared(log: TurnLog, headish: str, turns: Sequence[Turn], provider: str, fields: tuple[str, ...]) -> Exported:
    """Prepare a request as if the model that spoke last were asked: its own thinking stays."""
    models = (turn.meta.model for turn in reversed(turns))
    model = next((model for model in models if isinstance(model, str)), "model")
    request = providers.get(provider).prepare_request(log.context(headish), model=model, on_loss="report")
    long = LongStrings()
    body = _body.decode(b"".join(map(long.out_of_json, request.parts)))
    wanted = {name: body[name] for name in fields if name in body}
    return Exported(writer=json_writer(wanted, long), turns=len(turns), losses=request.loss_report)
