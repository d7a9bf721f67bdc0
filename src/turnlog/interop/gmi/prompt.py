"""The window that a model is asked with for an input.

The system prompt has these parts, in this order, each a message of its own:

1. the system turns of the thread before the input, oldest first;
2. `promptProfile.systemInstructions`;
3. the user's context, as JSON: what the overrides so far come to;
4. the context of the task, as JSON;
5. `capabilityDiscovery.promptContext`;
6. `rollingSummary`: its text, then its JSON.

Then comes the conversation: the turns before the input, or `conversationHistoryForPrompt` in their place where that is
not empty, then the input, then what the run has added. Only the contexts hold for later turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from turnlog.interop.gmi.content import json_text
from turnlog.interop.gmi.history import read_history
from turnlog.interop.gmi.input import GMITurnInput, read_input
from turnlog.interop.gmi.record import TASK_CONTEXT, USER_CONTEXT, blocks_of, is_input, kept_input
from turnlog.interop.gmi.stored import JSONRecord
from turnlog.log import TurnLog
from turnlog.model import ContextWindow, Message, ToolResult, content_bytes
from turnlog.turn import Turn

USER_CONTEXT_TITLE = "User context (JSON):"
TASK_CONTEXT_TITLE = "Task context (JSON):"
SUMMARY_TITLE = "Summary of the conversation so far:"
SUMMARY_JSON_TITLE = "Summary of the conversation so far (JSON):"


def window_of(log: TurnLog, headish: str) -> ContextWindow:
    """Return the window that a model is, or was, asked with at a turn. A pure function of the log.

    For an input, and for the replies and results of its run, that is the window of its prompt; for all other turns the
    window that every run sees.

    Raises:
        UnknownTurnError: there is no such turn.
        ErasedError: the input was erased, or is sealed and its key is not here.
        CorruptionError: what is kept beside the input cannot be read.
    """
    head = log.turn(headish)
    window = log.context(head.id)
    turn = input_before(log, head)
    kept = None if turn is None else kept_input(log, turn)
    return window if turn is None or kept is None else shown(window, turn.id, kept)


def on_window_of(log: TurnLog, turn: Turn) -> Callable[[ContextWindow], ContextWindow]:
    """Return what makes of each window of a run that goes on from an input the one to ask a model with.

    Args:
        log: the log.
        turn: the turn of the input.

    Raises:
        ErasedError: it was erased, or is sealed and its key is not here.
        CorruptionError: what is kept beside it cannot be read.
    """
    kept = kept_input(log, turn)
    return lambda window: window if kept is None else shown(window, turn.id, kept)


def input_before(log: TurnLog, head: Turn) -> Turn | None:
    """Return the input that a turn is, or whose run it is of; None for other turns."""
    for turn in reversed(log.ancestry(head.id)):
        if is_input(turn):
            return turn
        if not is_of_run(log, turn):
            return None
    return None


def is_of_run(log: TurnLog, turn: Turn) -> bool:
    """Tell whether a turn is one that runs add: a reply, or results of tools alone."""
    if turn.meta.role == "assistant":
        return True
    blocks = blocks_of(log, turn)
    return turn.meta.role == "user" and bool(blocks) and all(isinstance(block, ToolResult) for block in blocks)


def shown(window: ContextWindow, turn: str, stored: JSONRecord) -> ContextWindow:
    """Return a window as the prompt of an input has it.

    Args:
        window: the window of the input's turn, or of a later one of its run.
        turn: the turn of the input.
        stored: the input, as JSON values.

    Raises:
        MetaError: the conversation that it brings cannot be read.
    """
    messages = list(window.messages)
    at = next((index for index, message in enumerate(messages) if message.turn == turn), None)
    if at is None:
        return window  # it is left out: the window is that of another turn
    before, inbound, after = messages[:at], messages[at], messages[at + 1 :]
    system = [message for message in before if message.role == "system"]
    talk = [message for message in before if message.role != "system"]
    history = read_history(stored)
    if history is not None:
        told = {message.content_json for message in system}
        talk = [each for each in history if each.role != "system" or each.content_json not in told]
        if talk and _says_the_same(talk[-1], inbound):
            talk = talk[:-1]
    parts = [_message(text) for text in prompt_parts(read_input(stored), window.options)]
    return msgspec.structs.replace(window, messages=(*system, *parts, *talk, inbound, *after))


def prompt_parts(given: GMITurnInput, options: Mapping[str, Any]) -> list[str]:
    """Return the parts of the system prompt that are of an input and its contexts, in order; empty ones are left out.

    Args:
        given: the input.
        options: the merged options of its turn.
    """
    metadata = given.metadata
    profile = None if metadata is None else metadata.prompt_profile
    discovery = None if metadata is None else metadata.capability_discovery
    summary = None if metadata is None else metadata.rolling_summary
    parts = [
        None if profile is None else profile.system_instructions,
        _titled(USER_CONTEXT_TITLE, options.get(USER_CONTEXT)),
        _titled(TASK_CONTEXT_TITLE, options.get(TASK_CONTEXT)),
        None if discovery is None else discovery.prompt_context,
        f"{SUMMARY_TITLE}\n{summary.text}" if summary is not None and summary.text else None,
        None if summary is None else _titled(SUMMARY_JSON_TITLE, summary.json_value),
    ]
    return [part for part in parts if part]


def _titled(title: str, value: object) -> str | None:
    return None if value is None or value in ({}, [], "") else f"{title}\n{json_text(value)}"


def _message(text: str) -> Message:
    return Message(turn="", role="system", content_json=content_bytes(text))


def _says_the_same(last: Message, inbound: Message) -> bool:
    """Tell whether the last message of a conversation is the input itself."""
    return last.role == inbound.role and not inbound.erased and last.content == inbound.content
