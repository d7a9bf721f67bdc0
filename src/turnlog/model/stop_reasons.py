"""Why a model stopped: one enum, and the spellings that other systems have for it."""

from __future__ import annotations

from typing import Literal, get_args

StopReason = Literal["stop", "length", "tool_use", "refusal", "error", "aborted"]
"""Why a model stopped. `error`: the call failed or the stream broke off; `aborted`: it was cancelled on our side."""

STOP_REASONS: tuple[StopReason, ...] = get_args(StopReason)

Spelling = Literal["turnlog", "messages", "canonical"]
"""Whose words: turnlog's, those of Anthropic's Messages (also gpt2099's), or the canonical types' (with a hyphen)."""

_SPELLINGS: dict[Spelling, dict[StopReason, str]] = {
    "turnlog": {reason: reason for reason in STOP_REASONS},
    "messages": {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_use": "tool_use",
        "refusal": "refusal",
        "error": "error",
        "aborted": "aborted",
    },
    "canonical": {
        "stop": "stop",
        "length": "length",
        "tool_use": "tool-use",
        "refusal": "stop",  # the canonical types have no word of their own for it
        "error": "error",
        "aborted": "aborted",
    },
}
_NORMAL: dict[str, StopReason] = {
    **{reason: reason for reason in STOP_REASONS},
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool-use": "tool_use",
}


def spell_stop_reason(reason: StopReason, spelling: Spelling) -> str:
    """Return a stop reason as another system spells it."""
    return _SPELLINGS[spelling][reason]


def normal_stop_reason(spelled: str) -> StopReason | None:
    """Return the stop reason behind any known spelling of it, or None."""
    return _NORMAL.get(spelled)
