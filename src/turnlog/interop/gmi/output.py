"""What a GMI says: chunks while it answers, and the output that they come to, as pydantic models.

JSON is in camelCase: `chunk.model_dump_json(by_alias=True, exclude_none=True)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Raw
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from turnlog.agent.result import Stopped, summed
from turnlog.agent.start import PAUSED
from turnlog.errors import ContentError, MetaError
from turnlog.interop.gmi.prompt import input_before, is_of_run
from turnlog.interop.gmi.record import blocks_of, interaction_of, is_input, unnamed_call
from turnlog.log import TurnLog
from turnlog.model import MALFORMED, Block, Text, ToolResult, ToolUse, Usage
from turnlog.model.json_values import DEPTH_MAX, decoded
from turnlog.turn import Turn


class GMIOutputChunkType(StrEnum):
    """Say what a chunk brings."""

    TEXT_DELTA = "text_delta"
    TOOL_CALL_REQUEST = "tool_call_request"
    REASONING_STATE_UPDATE = "reasoning_state_update"
    FINAL_RESPONSE_MARKER = "final_response_marker"
    ERROR = "error"
    SYSTEM_MESSAGE = "system_message"
    USAGE_UPDATE = "usage_update"
    LATENCY_REPORT = "latency_report"
    UI_COMMAND = "ui_command"


class FinishReason(StrEnum):
    """Say why a GMI stopped."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    TOOL_ERROR = "tool_error"
    ITERATIONS = "max_iterations"
    TOKENS = "max_tokens"
    ERROR = "error"
    ABORTED = "aborted"


STOPPED: dict[Stopped, FinishReason] = {
    "done": FinishReason.STOP,
    "unanswered": FinishReason.TOOL_CALLS,
    "iterations": FinishReason.ITERATIONS,
    "tokens": FinishReason.TOKENS,
    "tool_error": FinishReason.TOOL_ERROR,
    "length": FinishReason.LENGTH,
    "refusal": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
    "aborted": FinishReason.ABORTED,
    "interrupted": FinishReason.TOOL_CALLS,
    "busy": FinishReason.ABORTED,
    "time": FinishReason.ABORTED,
    "invalid": FinishReason.ERROR,
}
"""By the reason that a run stopped for its word here."""

_text = msgspec.json.Decoder(str)

_FINAL = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER)


class _Said(BaseModel):
    """Write camelCase keys, and read them or field names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class ToolCallRequest(_Said):
    """Ask for a call of a tool.

    Attributes:
        id: the call's id; one that has none gets one made up.
        name: the tool.
        arguments: its arguments.
        malformed_arguments: what the model wrote, where that cannot be read; `arguments` is empty then.
    """

    id: str
    name: str
    arguments: dict[str, JsonValue]
    malformed_arguments: str | None = None


class ModelUsage(_Said):
    """Count the tokens of one model call, or of several."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class UsagePart(_Said):
    """Count the tokens of one model call, and say whose they are."""

    provider_id: str
    model_id: str
    tokens: int
    prompt_tokens: int
    completion_tokens: int


class CostAggregator(ModelUsage):
    """Count the tokens of all model calls of an interaction, together and each."""

    breakdown: list[UsagePart] = Field(default_factory=list[UsagePart])


class GMIError(_Said):
    """Say what went wrong.

    `code` is the name of turnlog's error, such as `MissingKeyError`, or `ModelCallError` for a call that failed.
    """

    code: str
    message: str
    details: dict[str, JsonValue] | None = None


class GMIOutput(_Said):
    """Hold the whole answer to one interaction.

    Attributes:
        interaction_id: the interaction.
        is_final: whether the model has finished: no tool call waits for its result, and nothing went wrong.
        response_text: text of the last reply; null where there is none.
        tool_calls: calls of the last reply that have no result: answer them by an input of type `tool_response`.
        usage: tokens of all model calls.
        error: what went wrong.
        finish_reason: why it stopped; null where nothing was asked yet.
        turn_ids: the turns of the log: that of the input, then those of the answer.
        head_id: the last of them; null where nothing was recorded.
        notes: what was not carried or done as it was asked, a line for people each.
    """

    interaction_id: str
    is_final: bool
    response_text: str | None = None
    tool_calls: list[ToolCallRequest] = Field(default_factory=list[ToolCallRequest])
    usage: CostAggregator = Field(default_factory=CostAggregator)
    error: GMIError | None = None
    finish_reason: FinishReason | None = None
    turn_ids: list[str] = Field(default_factory=list[str])
    head_id: str | None = None
    notes: list[str] = Field(default_factory=list[str])


class GMIOutputChunk(_Said):
    """Hold one piece of an answer.

    Attributes:
        interaction_id: the interaction.
        chunk_id: the chunk's own id.
        type: what it brings.
        content: text of `text_delta`, `reasoning_state_update`, `system_message` and `error`; a list of
            `ToolCallRequest` of `tool_call_request`; the `GMIOutput` of `final_response_marker`; a record of others.
        timestamp: when, in UTC.
        is_final: whether it is the last one.
        finish_reason: why the GMI stopped, in the last one.
        usage: tokens, in `usage_update` and in the last one.
        error_details: what went wrong, in `error` and in the last one.
        metadata: more.
    """

    interaction_id: str
    chunk_id: str
    type: GMIOutputChunkType
    content: JsonValue
    timestamp: datetime
    is_final: bool = False
    finish_reason: FinishReason | None = None
    usage: ModelUsage | None = None
    error_details: GMIError | None = None
    metadata: dict[str, JsonValue] | None = None


def usage_of(usage: Usage) -> ModelUsage:
    """Return counts of tokens in GMI's words."""
    prompt = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return ModelUsage(
        prompt_tokens=prompt,
        completion_tokens=usage.output_tokens + usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
        cache_creation_input_tokens=usage.cache_creation_input_tokens or None,
        cache_read_input_tokens=usage.cache_read_input_tokens or None,
    )


def tool_calls_of(turn: Turn, blocks: Sequence[Block]) -> list[ToolCallRequest]:
    """Return the tool calls of a turn that have no result in it. A call without an id gets one made up."""
    return [
        _request(block, block.id if isinstance(block.id, str) else unnamed_call(turn.id, index))
        for index, block in _open_calls(blocks)
    ]


def _open_calls(blocks: Sequence[Block]) -> list[tuple[int, ToolUse]]:
    """Return the calls among blocks that have no result there, each with its place."""
    answered = {block.tool_use_id for block in blocks if isinstance(block, ToolResult)}
    calls = [(index, block) for index, block in enumerate(blocks) if isinstance(block, ToolUse)]
    return [(index, call) for index, call in calls if not (call.id and call.id in answered)]


def _request(call: ToolUse, call_id: str) -> ToolCallRequest:
    given, malformed = arguments_of(call)[0], None
    if given is None:
        given, malformed = {}, bytes(call.input).decode()
    elif MALFORMED in call.extra:
        malformed = _malformed(call.extra[MALFORMED])
    return ToolCallRequest(id=call_id, name=call.name, arguments=given, malformed_arguments=malformed)


def _malformed(written: Raw) -> str:
    try:
        return _text.decode(written)
    except (msgspec.DecodeError, ValueError):  # it is no text, so it is as it stands
        return bytes(written).decode()


def arguments_of(call: ToolUse) -> tuple[dict[str, JsonValue] | None, str | None]:
    """Return the arguments of a call as JSON values, None where none say them; and what is other in them, or why."""
    try:
        found = decoded(call.input, depth_max=DEPTH_MAX)
        return found.value, found.change
    except ContentError as error:
        return None, str(error)


def text_of(blocks: Sequence[Block]) -> str | None:
    """Return the text of a reply, without thinking; None where it has none."""
    texts = [block.text for block in blocks if isinstance(block, Text)]
    return "".join(texts) if texts else None


# The answer to an input, as the log has it


def answer_of(log: TurnLog, turn: Turn) -> list[Turn]:
    """Return the turns that the run of an input has added, oldest first.

    Where it was run more than once side by side: those of the first run that has finished, else of the last one.
    """
    path: list[Turn] = []
    head = turn
    while not (path and is_finished(log, head)):
        after = [
            child
            for child in log.children(head.id)
            if child.continues[0] == head.id and not is_input(child) and is_of_run(log, child)
        ]
        if not after:
            break
        if len(after) > 1:
            ways = [[child, *answer_of(log, child)] for child in after]
            return path + next((way for way in ways if is_finished(log, way[-1])), ways[-1])
        path += after
        head = after[0]
    return path


def is_finished(log: TurnLog, turn: Turn) -> bool:
    """Tell whether a turn is a reply that is complete: none that failed or paused, or whose calls wait for results."""
    meta = turn.meta
    if meta.role != "assistant" or meta.failed or meta.raw_stop_reason == PAUSED or turn.erased or turn.closed:
        return False
    return meta.stop_reason == "refusal" or not _open_calls(blocks_of(log, turn))


def is_handed_over(log: TurnLog, turn: Turn) -> bool:
    """Tell whether a turn is a reply whose calls a later input has answered: then its own interaction is at its end."""
    return turn.meta.role == "assistant" and any(
        is_input(child) and any(isinstance(block, ToolResult) for block in blocks_of(log, child))
        for child in log.children(turn.id)
    )


def output_of(log: TurnLog, headish: str) -> GMIOutput:
    """Return the answer to an input as far as the log has it.

    Args:
        log: the log.
        headish: the turn of the input, or one that its run has added: the answer up to there.

    Raises:
        UnknownTurnError: there is no such turn.
        MetaError: the turn is neither an input nor of the run of one.
    """
    head = log.turn(headish)
    turn = input_before(log, head)
    if turn is None:
        raise MetaError(f"turn {head.id!r} is neither an input nor of the run of one", field="headish")
    if head.id == turn.id:
        return made_output(log, turn, answer_of(log, turn))
    ancestry = log.ancestry(head.id)
    start = next(index for index, each in enumerate(ancestry) if each.id == turn.id)
    return made_output(log, turn, ancestry[start + 1 :])


def made_output(
    log: TurnLog,
    turn: Turn | None,
    answer: Sequence[Turn],
    *,
    finish_reason: FinishReason | None = None,
    error: GMIError | None = None,
    notes: Sequence[str] = (),
    interaction_id: str | None = None,
) -> GMIOutput:
    """Return an output of turns.

    Args:
        log: the log.
        turn: the turn of the input; None where it was not recorded.
        answer: the turns of its run.
        finish_reason: why it stopped, where that is known better than the last turn tells.
        error: what went wrong, where that is known better.
        notes: what to tell of.
        interaction_id: the interaction; by default as the turn has it.
    """
    last = answer[-1] if answer else None
    replies = [each for each in answer if each.meta.role == "assistant"]
    blocks = blocks_of(log, replies[-1]) if replies else []
    calls = tool_calls_of(replies[-1], blocks) if last is not None and last.meta.role == "assistant" else []
    if last is not None and last.meta.failed:
        calls = []
        message = last.meta.error if isinstance(last.meta.error, str) else "the model call failed"
        error = error or GMIError(code="ModelCallError", message=message)
    reason = finish_reason or _finish_reason(last, calls)
    recorded = [*([] if turn is None else [turn]), *answer]
    return GMIOutput(
        interaction_id=interaction_id or ("" if turn is None else interaction_of(turn)),
        is_final=reason in _FINAL and not calls and error is None,
        response_text=text_of(blocks),
        tool_calls=calls,
        usage=_usage(replies),
        error=error,
        finish_reason=reason,
        turn_ids=[each.id for each in recorded],
        head_id=recorded[-1].id if recorded else None,
        notes=list(notes),
    )


def _finish_reason(last: Turn | None, calls: Sequence[ToolCallRequest]) -> FinishReason | None:
    if last is None or last.meta.role != "assistant":
        return None
    match last.meta.stop_reason:
        case "error":
            return FinishReason.ERROR
        case "aborted":
            return FinishReason.ABORTED
        case "length":
            return FinishReason.LENGTH
        case "refusal":
            return FinishReason.CONTENT_FILTER
        case _:
            return FinishReason.TOOL_CALLS if calls else FinishReason.STOP


def _usage(replies: Sequence[Turn]) -> CostAggregator:
    parts: list[UsagePart] = []
    total = Usage()
    for turn in replies:
        usage = turn.meta.usage
        if not isinstance(usage, Usage):
            continue
        counted = usage_of(usage)
        total = summed(total, usage)
        parts.append(
            UsagePart(
                provider_id=turn.meta.provider if isinstance(turn.meta.provider, str) else "",
                model_id=turn.meta.model if isinstance(turn.meta.model, str) else "",
                tokens=counted.total_tokens,
                prompt_tokens=counted.prompt_tokens,
                completion_tokens=counted.completion_tokens,
            )
        )
    return CostAggregator(**usage_of(total).model_dump(), breakdown=parts)
