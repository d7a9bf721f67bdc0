"""The chunks of an answer, made of what a run tells of while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from time import perf_counter

from msgspec import UNSET
from pydantic import JsonValue

from turnlog.agent.events import CallStarted, RunEvent, ToolFinished, ToolRetried, ToolStarted, TurnRecorded
from turnlog.ids import new_id
from turnlog.interop.gmi.output import (
    FinishReason,
    GMIError,
    GMIOutput,
    GMIOutputChunk,
    GMIOutputChunkType,
    ModelUsage,
    text_of,
    tool_calls_of,
    usage_of,
)
from turnlog.interop.gmi.record import blocks_of
from turnlog.log import TurnLog
from turnlog.model import Delta, Text, Usage
from turnlog.turn import Turn

OnChunk = Callable[[GMIOutputChunk], None]
"""Called with each chunk, in order, in the event loop of the run."""


class Teller:
    """Tells of one answer in chunks. The final one comes once, and nothing after it.

    Attributes:
        answer: the turns that the run has added so far.
        notes: what was told of as not carried or done as it was asked.
    """

    def __init__(self, log: TurnLog, interaction_id: str, on_chunk: OnChunk | None) -> None:
        """Take the log, the interaction, and who is told."""
        self._log = log
        self._interaction_id = interaction_id
        self._on_chunk = on_chunk
        self._selected: tuple[str, ...] = ()
        self._block = ""
        self._started_s = 0.0
        self._first_s: float | None = None
        self._iteration = 0
        self._has_text = False
        self.answer: list[Turn] = []
        self.notes: list[str] = []

    def note(self, line: str) -> None:
        """Tell once of something that is not carried or done as it was asked."""
        if line not in self.notes:
            self.notes.append(line)
            self.tell(GMIOutputChunkType.SYSTEM_MESSAGE, line)

    def expect_tools(self, names: Iterable[str]) -> None:
        """Say which tools were selected, so that those that there are not can be told of."""
        self._selected = tuple(names)

    def error(self, error: GMIError) -> None:
        """Tell of an error."""
        self.tell(GMIOutputChunkType.ERROR, error.message, error=error)

    def final(self, output: GMIOutput) -> None:
        """Tell that all is said."""
        self.tell(
            GMIOutputChunkType.FINAL_RESPONSE_MARKER,
            output.model_dump(mode="json", by_alias=True),
            error=output.error,
            usage=output.usage,
            is_final=True,
            finish_reason=output.finish_reason,
        )

    def on_delta(self, delta: Delta) -> None:
        """Tell of a piece of a reply."""
        if self._first_s is None:
            self._first_s = perf_counter()
        if isinstance(delta.type, str):
            self._block = delta.type
        if not isinstance(delta.content, str) or not delta.content:
            return
        if self._block == "text":
            self._has_text = True
            self.tell(GMIOutputChunkType.TEXT_DELTA, delta.content)
        elif self._block == "thinking":
            self.tell(GMIOutputChunkType.REASONING_STATE_UPDATE, delta.content)

    def on_event(self, event: RunEvent) -> None:
        """Tell of an event of the run."""
        match event:
            case CallStarted():
                self._call(event)
            case TurnRecorded(turn=turn):
                self.answer.append(turn)
                if turn.meta.role == "assistant":
                    self._reply(turn)
            case ToolFinished(call=call, outcome=outcome) if outcome.is_error:
                said = "".join(block.text for block in outcome.content if isinstance(block, Text))
                details: dict[str, JsonValue] = {"toolName": call.name, "isError": True}
                details["toolCallId"] = None if call.id is UNSET else call.id
                line = f"the tool {call.name!r} failed: {said}"
                self.tell(GMIOutputChunkType.SYSTEM_MESSAGE, line, metadata=details)
            case ToolStarted() | ToolRetried() | ToolFinished():
                pass

    def repeat(self, turn: Turn) -> None:
        """Tell of a reply that was recorded before."""
        text = text_of(blocks_of(self._log, turn))
        if text:
            self.tell(GMIOutputChunkType.TEXT_DELTA, text, metadata={"recorded": True})

    def _call(self, event: CallStarted) -> None:
        self._started_s, self._first_s = perf_counter(), None
        self._iteration, self._has_text, self._block = event.iteration, False, ""
        for entry in event.loss_report.entries:
            where = f" of turn {entry.turn!r}" if entry.turn else ""
            self.note(f"{entry.block}{where} {entry.kind}: {entry.why}")
        if self._selected:
            offered = {tool.name for tool in self._log.calls.tools(event.call)}
            for name in self._selected:
                if name not in offered:
                    self.note(f"the selected tool {name!r} is not offered: there is none of this name")
            self._selected = ()

    def _reply(self, turn: Turn) -> None:
        now_s = perf_counter()
        blocks = blocks_of(self._log, turn)
        if not self._has_text and (text := text_of(blocks)):
            self.tell(GMIOutputChunkType.TEXT_DELTA, text)
        calls = [] if turn.meta.failed else tool_calls_of(turn, blocks)
        if calls:
            requests: JsonValue = [call.model_dump(mode="json", by_alias=True, exclude_none=True) for call in calls]
            self.tell(GMIOutputChunkType.TOOL_CALL_REQUEST, requests, metadata={"turnId": turn.id})
        if isinstance(turn.meta.usage, Usage):
            usage = usage_of(turn.meta.usage)
            counts: dict[str, JsonValue] = usage.model_dump(mode="json", by_alias=True, exclude_none=True)
            self.tell(GMIOutputChunkType.USAGE_UPDATE, counts, usage=usage)
        latency: dict[str, JsonValue] = {
            "phase": "model_call",
            "iteration": self._iteration,
            "durationMs": round((now_s - self._started_s) * 1000, 3),
        }
        if self._first_s is not None:
            latency["firstTokenMs"] = round((self._first_s - self._started_s) * 1000, 3)
        self.tell(GMIOutputChunkType.LATENCY_REPORT, latency)

    def tell(
        self,
        type: GMIOutputChunkType,
        content: JsonValue,
        *,
        usage: ModelUsage | None = None,
        error: GMIError | None = None,
        metadata: dict[str, JsonValue] | None = None,
        is_final: bool = False,
        finish_reason: FinishReason | None = None,
    ) -> None:
        """Give a chunk to whoever is told. Who fails at one gets no more."""
        if self._on_chunk is None:
            return
        chunk = GMIOutputChunk(
            interaction_id=self._interaction_id,
            chunk_id=new_id(),
            type=type,
            content=content,
            timestamp=datetime.now(UTC),
            is_final=is_final,
            finish_reason=finish_reason,
            usage=usage,
            error_details=error,
            metadata=metadata,
        )
        on_chunk, self._on_chunk = self._on_chunk, None
        on_chunk(chunk)
        if not is_final:
            self._on_chunk = on_chunk
