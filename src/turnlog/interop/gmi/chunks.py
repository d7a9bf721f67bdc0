"""The chunks of an answer, made of what a run tells of while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from time import perf_counter
from typing import TypeAlias, cast

from pydantic import JsonValue

from turnlog.agent.events import (
    BookmarkLeft,
    CallRetried,
    CallStarted,
    HeadBusy,
    OutputRefused,
    RunEvent,
    ToolFinished,
    ToolInterrupted,
    ToolProgress,
    ToolRetried,
    ToolsNoted,
    ToolStarted,
    TurnRecorded,
    UsageMissing,
)
from turnlog.ids import new_id
from turnlog.interop.gmi.masking import Keys
from turnlog.interop.gmi.naming import quoted
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

_PIECES = {"text": GMIOutputChunkType.TEXT_DELTA, "thinking": GMIOutputChunkType.REASONING_STATE_UPDATE}
"""By the type of the block that pieces are of, how they are told."""

OnChunk = Callable[[GMIOutputChunk], None]
"""Called with each chunk, in order, in the event loop of the run."""


_Noted: TypeAlias = ToolInterrupted | HeadBusy | BookmarkLeft | CallRetried | OutputRefused | ToolsNoted | UsageMissing
"""Events of which there is a line to note, and no more."""


class Teller:
    """Tells of one answer in chunks. The final one comes once, and nothing after it.

    What is told has none of the keys of the run in it: where a piece of text ends with what may be the beginning of
    one, this waits for the next piece.

    Attributes:
        answer: the turns that the run has added so far.
        notes: what was told of as not carried or done as it was asked.
        keys: the keys of the run.
        failure: what `on_chunk` raised at a chunk before the final one. It is given only the final one then.
    """

    def __init__(self, log: TurnLog, interaction_id: str, on_chunk: OnChunk | None, keys: Keys) -> None:
        """Take the log, the interaction, who is told, and the keys of the run."""
        self._log = log
        self._interaction_id = interaction_id
        self._on_chunk = on_chunk
        self._selected: tuple[str, ...] = ()
        self._block = ""
        self._started_s = 0.0
        self._first_s: float | None = None
        self._iteration = 0
        self._has_text = False
        self._held = ""
        self.answer: list[Turn] = []
        self.notes: list[str] = []
        self.keys = keys
        self.failure: BaseException | None = None

    def note(self, line: str) -> None:
        """Tell once of something that is not carried or done as it was asked."""
        line = self.keys.masked(line)
        if line not in self.notes:
            self.notes.append(line)
            self.tell(GMIOutputChunkType.SYSTEM_MESSAGE, line)

    def expect_tools(self, names: Iterable[str]) -> None:
        """Say which tools were selected, so that those that there are not can be told of."""
        self._selected = tuple(names)

    def error(self, error: GMIError) -> None:
        """Tell of an error."""
        error = self.keys.masked_model(error)
        self.tell(GMIOutputChunkType.ERROR, error.message, error=error)

    def final(self, output: GMIOutput, error: BaseException | None = None) -> None:
        """Tell that all is said, also to who has failed at a chunk before.

        Args:
            output: the output, without keys.
            error: what the run ends with, raised by the caller behind this. Where the final chunk fails too, it has a
                note of that.

        Raises:
            BaseException: what `on_chunk` raises, where nothing was raised before.
        """
        first = error or self.failure
        try:
            self._give(
                GMIOutputChunkType.FINAL_RESPONSE_MARKER,
                output.model_dump(mode="json", by_alias=True),
                error=output.error,
                usage=output.usage,
                is_final=True,
                finish_reason=output.finish_reason,
            )
        except Exception as raised:
            if first is None:
                raise
            if raised is not first:
                first.add_note(f"on_chunk failed at the final chunk too: {type(raised).__name__}: {raised}")

    def on_delta(self, delta: Delta) -> None:
        """Tell of a piece of a reply."""
        if self._first_s is None:
            self._first_s = perf_counter()
        if isinstance(delta.type, str) and delta.type != self._block:
            self._release()
            self._block = delta.type
        if isinstance(delta.content, str) and self._block in _PIECES:
            text, self._held = self.keys.split(self._held + delta.content)
            self._piece(text)

    def _release(self) -> None:
        """Tell of the text that waits, since it does not go on."""
        text, self._held = self.keys.masked(self._held), ""
        self._piece(text)

    def _piece(self, text: str) -> None:
        if text:
            self._has_text = self._has_text or self._block == "text"
            self._tell_or_fail(_PIECES[self._block], text)

    def on_event(self, event: RunEvent) -> None:
        """Tell of an event of the run."""
        self._release()
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
                details["toolCallId"] = call.id
                line = f"the tool {quoted(call.name)} failed: {said}"
                self.tell(GMIOutputChunkType.SYSTEM_MESSAGE, line, metadata=details)
            case ToolStarted() | ToolProgress() | ToolRetried() | ToolFinished():
                pass
            case _:
                self.note(self._said_of(event))

    def _said_of(self, event: _Noted) -> str:
        """Return what to note of an event."""
        match event:
            case ToolInterrupted():
                return f"the tool {quoted(event.call.name)} {_interrupted(event)}: it may have had effects"
            case HeadBusy(wait_s=wait_s):
                return f"another run is at work here: it is waited for, {wait_s:g} s at most"
            case BookmarkLeft(bookmark=bookmark):
                return f"bookmark {quoted(bookmark)} was moved or deleted meanwhile: the run has a branch of its own"
            case CallRetried(error=error, wait_s=wait_s):
                return f"{self.keys.masked(error.message)}: tried again in {wait_s:.3g} s"
            case OutputRefused(why=why):
                return f"the reply is not what was asked for: {why}"
            case ToolsNoted(note=note):
                return note
            case UsageMissing():
                return "the provider does not say how many tokens it took: the limit of tokens does not count them"

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
                    self.note(f"the selected tool {quoted(name)} is not offered: there is none of this name")
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
    ) -> None:
        """Give a chunk to whoever is told. Who fails at one gets only the final one.

        Raises:
            BaseException: what `on_chunk` raises.
        """
        self._release()
        self._tell_or_fail(
            type,
            self.keys.masked_json(content),
            usage=usage,
            error=error,
            metadata=cast("dict[str, JsonValue] | None", self.keys.masked_json(metadata)),
        )

    def _tell_or_fail(
        self,
        type: GMIOutputChunkType,
        content: JsonValue,
        *,
        usage: ModelUsage | None = None,
        error: GMIError | None = None,
        metadata: dict[str, JsonValue] | None = None,
    ) -> None:
        if self.failure is not None:
            return
        try:
            self._give(type, content, usage=usage, error=error, metadata=metadata)
        except BaseException as raised:
            self.failure = raised
            raise

    def _give(
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
        self._on_chunk(chunk)


def _interrupted(event: ToolInterrupted) -> str:
    """Return how a call came to be one whose end nobody knows."""
    if event.is_unrecorded:
        return "may have been called by an earlier run, which did not record it"
    return f"was at work when an earlier run {'was stopped' if event.is_told else 'ended'}"
