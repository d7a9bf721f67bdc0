"""What the SDKs of OpenAI and Anthropic take: the window of a turn as their adapters send it."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from turnlog import providers
from turnlog.interop.exports.reading import Exported, Said
from turnlog.log import TurnLog

_body = msgspec.json.Decoder(dict[str, Raw])


def openai_body(log: TurnLog, headish: str, said: list[Said]) -> Exported:
    """Return `{"messages": […]}`, for `client.chat.completions.create(**body, model=…)`."""
    return _prepared(log, headish, said, "openai_chat", ("messages",))


def anthropic_body(log: TurnLog, headish: str, said: list[Said]) -> Exported:
    """Return `{"system": …, "messages": […]}`, for `client.messages.create(**body, model=…, max_tokens=…)`."""
    return _prepared(log, headish, said, "anthropic", ("system", "messages"))


def _prepared(log: TurnLog, headish: str, said: list[Said], provider: str, fields: tuple[str, ...]) -> Exported:
    """Prepare a request as if the model that spoke last were asked: its own thinking stays."""
    models = (each.turn.meta.model for each in reversed(said))
    model = next((model for model in models if isinstance(model, str)), "model")
    request = providers.get(provider).prepare_request(log.context(headish), model=model, on_loss="report")
    body = _body.decode(request.body)
    content = msgspec.json.encode({name: body[name] for name in fields if name in body})
    return Exported(content=msgspec.json.format(content, indent=2) + b"\n", turns=len(said), losses=request.loss_report)
