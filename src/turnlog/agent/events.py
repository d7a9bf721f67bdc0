"""What a run tells of while it goes on: events for whoever shows or follows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from turnlog.agent.progress import Progress
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import CallError, ContextWindow, LossReport, Response, ToolUse, content_bytes
from turnlog.model.json_values import plain_values
from turnlog.turn import Turn


class TurnRecorded(Struct, frozen=True, kw_only=True):
    """A turn is on disk: what was asked, a reply, or the results of tool calls.

    Attributes:
        turn: the turn.
        response: the reply that it records, before anything was redacted; None where it records none.
    """

    kind: ClassVar[str] = "turn"
    turn: Turn
    response: Response | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return {"turn": self.turn.to_record()}


class HeadBusy(Struct, frozen=True, kw_only=True):
    """Another run is at work on the turn to continue, and is waited for.

    Attributes:
        turn: the turn.
        wait_s: how long is waited for it at most, in seconds.
    """

    kind: ClassVar[str] = "head_busy"
    turn: Turn
    wait_s: float

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return {"turn": self.turn.id, "wait_s": self.wait_s}


class BookmarkLeft(Struct, frozen=True, kw_only=True):
    """Somebody else has moved the bookmark that a run had moved along: from here on it is on a branch of its own.

    Attributes:
        bookmark: the bookmark.
        turn: the first turn of the run that did not move it.
    """

    kind: ClassVar[str] = "bookmark_left"
    bookmark: str
    turn: Turn

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return {"bookmark": self.bookmark, "turn": self.turn.id}


class CallStarted(Struct, frozen=True, kw_only=True):
    """A request is recorded and about to be sent.

    Attributes:
        call: the call's id.
        iteration: which model call of the run it is, from 1.
        provider: the provider.
        model: the model.
        request_bytes: size of the request body, in bytes.
        tools: number of tools that it offers.
        loss_report: what the body does not carry as it was recorded.
    """

    kind: ClassVar[str] = "call"
    call: str
    iteration: int
    provider: str
    model: str
    request_bytes: int
    tools: int
    loss_report: LossReport

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return msgspec.structs.asdict(self) | {"loss_report": msgspec.to_builtins(self.loss_report.entries)}


class CallRetried(Struct, frozen=True, kw_only=True):
    """A call failed, is recorded, and will be made again.

    Attributes:
        call: the call that failed.
        error: why.
        tries: how often it was made, from 1.
        wait_s: how long is waited before the next try, in seconds.
    """

    kind: ClassVar[str] = "call_retried"
    call: str
    error: CallError
    tries: int
    wait_s: float

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return msgspec.structs.asdict(self) | {"error": plain_values(self.error)}


class UsageMissing(Struct, frozen=True, kw_only=True):
    """A reply does not say how many tokens it took: the run's limit of tokens does not count it.

    It is told once a run, and only where the policy has such a limit.

    Attributes:
        call: the call.
    """

    kind: ClassVar[str] = "usage_missing"
    call: str

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return {"call": self.call}


class OutputRefused(Struct, frozen=True, kw_only=True):
    """A reply is not the value that was asked for: the model is told so, and is asked again.

    Attributes:
        turn: the turn of the reply.
        why: what does not fit.
    """

    kind: ClassVar[str] = "output_refused"
    turn: Turn
    why: str

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return {"turn": self.turn.id, "why": self.why}


class ToolStarted(Struct, frozen=True, kw_only=True):
    """A tool is called."""

    kind: ClassVar[str] = "tool_started"
    call: ToolUse

    def raw_record(self) -> dict[str, Any]:
        """Return the same with arguments as raw JSON text, as the model wrote it: see `raw_event_record`."""
        return _call_record(self.call) | {"input": self.call.input}

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return _plain(self.raw_record(), "input")


class ToolProgress(Struct, frozen=True, kw_only=True):
    """A tool says how far it has come.

    Attributes:
        call: the call.
        progress: how far.
    """

    kind: ClassVar[str] = "tool_progress"
    call: ToolUse
    progress: Progress

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return _call_record(self.call) | msgspec.structs.asdict(self.progress)


class ToolInterrupted(Struct, frozen=True, kw_only=True):
    """An earlier run began a tool call, or may have, and its end is not known: it may have had effects.

    Somebody is asked next.

    Attributes:
        call: the call.
        begun_ms: when it was begun, in milliseconds since 1970; where that is not recorded, when the reply was.
        is_claimed: whether it is another log, an export of which was taken in, that says so.
        is_told: whether its result says so already, because somebody has stopped the earlier run (Ctrl-C, a
            cancellation): the model reads it, and nobody is asked.
        is_unrecorded: whether it is not known either that it was begun: its reply may be of an early version of
            turnlog, which did not record that.
    """

    kind: ClassVar[str] = "tool_interrupted"
    call: ToolUse
    begun_ms: int
    is_claimed: bool = False
    is_told: bool = False
    is_unrecorded: bool = False

    def raw_record(self) -> dict[str, Any]:
        """Return the same with arguments as raw JSON text, as the model wrote it: see `raw_event_record`."""
        return _call_record(self.call) | {
            "input": self.call.input,
            "begun_ms": self.begun_ms,
            **({"is_claimed": True} if self.is_claimed else {}),
            **({"is_told": True} if self.is_told else {}),
            **({"is_unrecorded": True} if self.is_unrecorded else {}),
        }

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return _plain(self.raw_record(), "input")


class ToolRetried(Struct, frozen=True, kw_only=True):
    """A tool failed and will be called again.

    Attributes:
        call: the call.
        outcome: how it failed.
        attempt: which attempt failed, from 1.
        wait_s: how long is waited before the next one, in seconds.
    """

    kind: ClassVar[str] = "tool_retried"
    call: ToolUse
    outcome: ToolOutcome
    attempt: int
    wait_s: float

    def raw_record(self) -> dict[str, Any]:
        """Return the same with content as raw JSON text, as the tool wrote it: see `raw_event_record`."""
        return _call_record(self.call) | {
            "content": Raw(content_bytes(self.outcome.content)),
            "attempt": self.attempt,
            "wait_s": self.wait_s,
        }

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return _plain(self.raw_record(), "content")


class ToolFinished(Struct, frozen=True, kw_only=True):
    """A tool call has its result: the tool's, or that of whoever refused or answered it.

    The result is on disk where other calls of the reply were still without theirs. That of the last call, those of a
    reply none of whose tools is called, and those that come as the run is broken off are on disk with the turn that has
    the results: `TurnRecorded` says that it is.

    Attributes:
        call: the call.
        outcome: its result.
        known: whether that is what the log says of it, so that nothing was called now.
    """

    kind: ClassVar[str] = "tool_finished"
    call: ToolUse
    outcome: ToolOutcome
    known: bool = False

    def raw_record(self) -> dict[str, Any]:
        """Return the same with content as raw JSON text, as the tool wrote it: see `raw_event_record`."""
        return _call_record(self.call) | {
            "content": Raw(content_bytes(self.outcome.content)),
            "is_error": self.outcome.is_error,
            "known": self.known,
        }

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return _plain(self.raw_record(), "content")


class ToolsNoted(Struct, frozen=True, kw_only=True):
    """There is something to say of the tools that are offered: one is left out, or they cannot be listed again.

    Attributes:
        note: what.
    """

    kind: ClassVar[str] = "tools_noted"
    note: str

    def to_record(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return {"note": self.note}


RunEvent = (
    TurnRecorded
    | HeadBusy
    | BookmarkLeft
    | CallStarted
    | CallRetried
    | UsageMissing
    | OutputRefused
    | ToolStarted
    | ToolProgress
    | ToolInterrupted
    | ToolRetried
    | ToolFinished
    | ToolsNoted
)
"""Any event of a run."""


def raw_event_record(event: RunEvent) -> dict[str, Any]:
    """Return an event as `to_record` does, with content as raw JSON text: numbers as the model or the tool wrote them.

    `msgspec.json.encode` takes that, and `json.dumps` does not.
    """
    is_raw = isinstance(event, ToolStarted | ToolInterrupted | ToolRetried | ToolFinished)
    return event.raw_record() if is_raw else event.to_record()


OnEvent = Callable[[RunEvent], None]

OnWindow = Callable[[ContextWindow], ContextWindow | Awaitable[ContextWindow]]
"""Given the context window of a turn, returns the one to ask a model with. A message of it that is of no turn may have
any text as its `turn`."""


def _plain(record: dict[str, Any], name: str) -> dict[str, Any]:
    return record | {name: plain_values(record[name])}


def _call_record(call: ToolUse) -> dict[str, Any]:
    return {"name": call.name, "id": call.id if isinstance(call.id, str) else None}
