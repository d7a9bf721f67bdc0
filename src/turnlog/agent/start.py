"""Where a run begins: the turns that it continues, and the options that will hold there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from turnlog.agent.run_log import RunLog
from turnlog.calls import RecordedToolCall
from turnlog.errors import ErasedError, NotFoundError, RunError, UnknownTurnError
from turnlog.events import TURN
from turnlog.model import Options, Text, Tool, ToolResult, ToolUse, decode_content, merge_options
from turnlog.record.fields import check_continues
from turnlog.turn import Turn, turn_of

PAUSED = "pause_turn"
"""Anthropic's word for a reply that is to be sent back as it is, so that the model goes on with it."""


STOPPED = "The run was stopped while this tool was at work."
"""How the result begins of a tool call that was at work when its run was stopped."""


class Start(Struct, frozen=True, kw_only=True):
    """Where a run begins.

    Attributes:
        continues: the turns to continue, as the caller named them.
        head: the turn to go on from, where there is nothing to add or a tool call of it was interrupted; None where a
            turn is added at once.
        options: the options of the window that the model will be asked with.
    """

    continues: tuple[str, ...]
    head: Turn | None
    options: Options


def find_start(
    log: RunLog, continues: str | Sequence[str] | None, *, respond: bool, adds: bool, inherited: Mapping[str, Any]
) -> Start:
    """Return where a run begins. Nothing is recorded.

    Args:
        log: the log.
        continues: the turns to continue, by id or bookmark.
        respond: continue the turn that was recorded last in the log.
        adds: whether the run adds a turn of its own first.
        inherited: the options that this turn sets.

    Raises:
        RunError: there is nothing to go on with, `continues` and `respond` contradict each other, or of one of several
            turns a tool call was broken off.
        UnknownTurnError: there is no such turn.
    """
    if respond and continues:
        raise RunError("continues and respond contradict each other: give one of them")
    named = check_continues(continues, respond=False)
    if respond:
        named = (last_turn(log).id,)
    parents = [log.turn(headish) for headish in named]
    if adds:
        broken_off = [turn for turn in parents if any(map(is_interrupted, open_calls(log, turn)))]
        if len(parents) > 1 and (left := [turn for turn in broken_off if not log.store.locks.is_taken(turn.id)]):
            raise RunError(
                f"a tool call of turn {left[0].id!r} was broken off, and may have had effects: go on from that turn "
                "alone first, and say what to do with it (on_interrupted)"
            )
        head = broken_off[0] if broken_off and len(parents) == 1 else None
        return Start(continues=named, head=head, options=merge_options(_options(log, parents), inherited))
    if len(parents) != 1:
        raise RunError("there is nothing to run: give content, or the one turn to go on from")
    if inherited:
        raise RunError(f"{', '.join(inherited)}: options are set by a turn: give content too, or leave them out")
    _check_open(log, parents[0])
    return Start(continues=named, head=parents[0], options=_options(log, parents))


def last_turn(log: RunLog) -> Turn:
    """Return the turn that was recorded last in the log.

    Raises:
        UnknownTurnError: there is none.
    """
    with log.store.read() as transaction:
        last = transaction.last(TURN)
    if last is None:
        raise UnknownTurnError("there is no turn yet to respond to", headish="respond")
    return turn_of(last)


def server_names(options: Options) -> list[str]:
    """Return the names of the MCP servers that options name, each once. In a forged log some may be no names."""
    names: object = options.get("servers")
    listed = cast("list[object]", names) if isinstance(names, list) else []
    return list(dict.fromkeys(name for name in listed if isinstance(name, str)))


def _options(log: RunLog, parents: Sequence[Turn]) -> Options:
    """Return the merged options of turns that a turn continues all of."""
    if len(parents) == 1:
        return log.context(parents[0].id).options
    options: Options = {}
    seen: set[str] = set()
    for parent in parents:
        for turn in log.ancestry(parent.id):
            if turn.id not in seen:
                seen.add(turn.id)
                options = merge_options(options, turn.meta.delta)
    return options


def _check_open(log: RunLog, head: Turn) -> None:
    """Check that there is something to do about a turn.

    Raises:
        RunError: it is a finished reply.
    """
    meta = head.meta
    if meta.role == "assistant" and not meta.failed and meta.raw_stop_reason != PAUSED and not open_calls(log, head):
        raise RunError(f"turn {head.id!r} is a finished reply: give content to go on from it")


def open_calls(log: RunLog, turn: Turn) -> tuple[RecordedToolCall, ...]:
    """Return the tool calls of a turn that have no result in it: those that a run from there has to answer first.

    Each comes with what is recorded of it. Failed turns have none: they are left out of windows, and the model call is
    made again.
    """
    meta = turn.meta
    if meta.role != "assistant" or meta.failed or meta.type == "document" or meta.stop_reason == "refusal":
        return ()
    try:
        blocks = decode_content(log.payload(turn.id))
    except ErasedError:  # what it called is gone with it, and a window has a note in its place
        return ()
    answered = {block.tool_use_id for block in blocks if isinstance(block, ToolResult)}
    if not any(isinstance(block, ToolUse) for block in blocks):
        return ()
    calls = log.tool_calls.of(turn.id)
    return tuple(recorded for recorded in calls if not (recorded.call.id and recorded.call.id in answered))


def stopped_calls(log: RunLog, turn: Turn) -> tuple[RecordedToolCall, ...]:
    """Return the tool calls that a turn has the results of, and that were at work when their run was stopped."""
    if turn.meta.role != "user" or not turn.meta.tool_ends or len(turn.continues) != 1:
        return ()
    calls = log.tool_calls.of(turn.continues[0])
    return tuple(call for call in calls if call.attempts and call.may_have_had_effects and _was_stopped(call.result))


def _was_stopped(result: ToolResult | None) -> bool:
    """Tell from a result whether its run was stopped. A tool that took too long may have had effects too."""
    content = () if result is None or isinstance(result.content, str) else result.content
    return any(isinstance(block, Text) and block.text.startswith(STOPPED) for block in content)


def has_result(recorded: RecordedToolCall) -> bool:
    """Tell whether the log has what a tool call comes to: what it returned, or what a person said of it.

    Who goes back to a turn is asked again; whoever goes on with a run that was killed is not.
    """
    if recorded.result is None:
        return False
    last = recorded.attempts[-1]
    is_said = last.ending == "answer" or (last.ending == "denied" and last.by == "person")
    return last.ending in ("result", "error", "given_up") or (is_said and not recorded.went_on)


def offered_of(log: RunLog, turn: Turn, tools: Sequence[Tool]) -> Sequence[Tool]:
    """Return those tools that were offered when a model was asked for a turn: it can call no others there.

    All of them where nothing tells of it: the turn did not come of a call, or what was offered is erased.
    """
    if turn.meta.call is None:
        return tools
    try:
        names = {tool.name for tool in log.calls.tools(turn.meta.call)}
    except (NotFoundError, ErasedError):
        return tools
    return [tool for tool in tools if tool.name in names]


def is_interrupted(recorded: RecordedToolCall) -> bool:
    """Tell whether a tool call may have been made, and what came of it is not known.

    It was begun here, another log says so, or the version of turnlog that recorded its reply did not record that.
    """
    attempts = recorded.attempts
    if recorded.claimed is not None or recorded.unrecorded_since_ms is not None:
        return True
    if not attempts or attempts[-1].begun_ms is None:
        return False
    # What is said to have a result and has none to be found was made all the same.
    return recorded.may_have_had_effects or recorded.result is None
