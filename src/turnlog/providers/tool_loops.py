"""Thinking in the middle of a loop of tools: Claude refuses to begin with it there.

The messages from the last one of a user on that holds no results are one turn to the API. With thinking `enabled` it
has to begin with some, which a turn that another model began does not (Claude's documentation, "Extended thinking",
"Toggling thinking modes in conversations"). With `adaptive` it need not. Claude itself does not think anew in each
message of a turn, and thinking that is there may not stand in a request without the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model import ContextWindow
from turnlog.model.plain import plain_json
from turnlog.providers.body import encode
from turnlog.providers.exchange import Parameters
from turnlog.providers.losses import Losses
from turnlog.providers.raw_json import Fields, fields_of

THINKING = "thinking"
"""The parameter."""

Kind = Literal["thinking", "call", "result"]
"""What of a loop a block is."""


class _Message(Struct):
    role: str
    content: list[Raw]


class _Mode(Struct):
    type: str


_message = msgspec.json.Decoder(_Message)
_mode = msgspec.json.Decoder(_Mode)


def is_claude(model: str) -> bool:
    """Return whether a model is one of Claude's by its name."""
    return "claude" in model.lower()


def without_thinking(
    params: Parameters,
    messages: Sequence[bytes],
    window: ContextWindow,
    losses: Losses,
    kind_of: Callable[[Fields], Kind | None],
) -> Parameters:
    """Return parameters without thinking where these messages end in a loop that began without it.

    Args:
        params: the parameters.
        messages: the fragments of a body, all but the first one with the comma before it.
        window: the window that they are of.
        losses: where that is told.
        kind_of: returns what of a loop a block of the wire is.

    Raises:
        UnsupportedContentError: nothing may be lost.
        ContentError: `thinking` is not JSON.
    """
    if not _is_enabled(params.get(THINKING)) or not _calls_without_thinking(messages, kind_of):
        return params
    turn = next((message.turn for message in reversed(window.messages) if message.role == "assistant"), "")
    why = "thinking: the turn that goes on calls tools, and began without it"
    losses.lose("dropped", "parameter", why, harmless=True, turn=turn)
    return {name: value for name, value in params.items() if name != THINKING}


def _is_enabled(thinking: object) -> bool:
    try:
        return _mode.decode(encode(plain_json(thinking, "params.thinking", ContentError))).type == "enabled"
    except msgspec.DecodeError:
        return False


def _calls_without_thinking(messages: Sequence[bytes], kind_of: Callable[[Fields], Kind | None]) -> bool:
    """Return whether the turn of the assistant that goes on calls tools, and thinks nowhere."""
    calls = False
    results: bool | None = None
    """Whether the user's messages right behind hold a result; None where there are none."""
    for fragment in reversed(messages):
        message = _message.decode(fragment.removeprefix(b","))
        kinds = {kind_of(fields_of(block) or {}) for block in message.content}
        if message.role == "user":
            results = results or "result" in kinds
        elif results is False:
            break
        elif "thinking" in kinds:
            return False
        else:
            calls, results = calls or "call" in kinds, None
    return calls
