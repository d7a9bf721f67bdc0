"""What a run came to."""

from __future__ import annotations

from typing import Any, Generic, Literal

from msgspec import Raw, Struct
from typing_extensions import TypeVar

from turnlog.agent.plain_values import plain
from turnlog.model import CallError, Response, Text, ToolUse, Usage, content_bytes
from turnlog.model.json_values import plain_values
from turnlog.providers.too_large import says_too_large
from turnlog.turn import Turn

T = TypeVar("T", default=None)

Stopped = Literal[
    "done",
    "invalid",
    "unanswered",
    "interrupted",
    "busy",
    "iterations",
    "tokens",
    "time",
    "tool_error",
    "length",
    "refusal",
    "error",
    "aborted",
]
"""Why a run stopped.

`done`: the model has finished. `invalid`: it has, and what it said is not the value that was asked for, nor was it
when it was told so. `unanswered`: a tool call needs approval, and nobody gave it. `interrupted`: an earlier
run ended while a tool was at work, and nobody said whether to call it again. `busy`: another run is making the tool
calls of the last turn. `iterations`, `tokens`, `time`: a
limit of the run. `tool_error`: a tool failed, and the policy is to stop then. `length`: the reply is cut off at
`max_tokens`. `refusal`: the model, or its provider, refused. `error`: the call failed. `aborted`: it was cancelled.
"""

_WHY: dict[Stopped, str] = {
    "done": "the model has finished",
    "invalid": "the reply is not what was asked for",
    "unanswered": "a tool call needs approval, and nobody gave it",
    "interrupted": "an earlier run ended while a tool was at work, or did not record whether it called it, or another "
    "log says that it was called there: it may have had effects; call it again (repeat), or "
    "tell the model that nobody knows (report)",
    "busy": "another run is at work on this turn",
    "iterations": "the limit of model calls is reached",
    "tokens": "the limit of tokens is reached",
    "time": "the limit of time is reached",
    "tool_error": "a tool failed",
    "length": "the reply is cut off at its length limit",
    "refusal": "the model refused; who goes on from here shows it again what it refused, from an earlier turn not",
    "error": "the model call failed",
    "aborted": "the model call was cancelled",
}


_TOO_LARGE = (
    "the thread is too large for this model: compact it, go on from an earlier turn, or ask a model that takes more"
)

_FILLED = ("model_context_window_exceeded",)
"""What providers call the end of a reply for which the model had no more room. Anthropic does."""


class RunResult(Struct, Generic[T], frozen=True, kw_only=True):
    """What a run came to. All of it is in the log.

    Attributes:
        stopped: why it stopped.
        head: the last turn; the next run continues it.
        turns: the turns that it recorded, in order.
        calls: the ids of its model calls, in order.
        response: the last reply, None if there was none.
        paused: the replies in which the model paused right before it, so that it goes on with them (Anthropic's
            `pause_turn`); none as a rule.
        usage: the tokens of its model calls together.
        unanswered: tool calls of the last turn that have no result yet: a run from the head begins with them.
        output: the value that was asked for, where the run is `done`; else None.
        invalid: why the last reply is not that value, where it is not.
    """

    stopped: Stopped
    head: Turn
    turns: tuple[Turn, ...]
    calls: tuple[str, ...]
    response: Response | None
    usage: Usage
    paused: tuple[Response, ...] = ()
    unanswered: tuple[ToolUse, ...] = ()
    output: T | None = None
    invalid: str | None = None

    @property
    def text(self) -> str:
        """The text of the last reply, with what the model said before it paused, without thinking; empty for none."""
        return "" if self.response is None else text_of_replies(*self.paused, self.response)

    @property
    def error(self) -> CallError | None:
        """Why the last model call failed, None if it did not."""
        return None if self.response is None else self.response.error

    @property
    def too_large(self) -> bool:
        """Whether the run stopped because the thread is too large for its model, or has filled it.

        The same call cannot succeed. A summary can stand for older turns from the next turn on (`TurnLog.compact`), a
        run can go on from an earlier turn, a model can be asked that takes more, or less of what tools returned can be
        shown (`result_bytes_max`).
        """
        if self.error is not None:
            return self.stopped == "error" and says_too_large(self.error)
        return self.stopped == "length" and self.response is not None and self.response.raw_stop_reason in _FILLED

    @property
    def why(self) -> str:
        """Why the run stopped, as a line for people."""
        if self.too_large:
            said = _WHY[self.stopped] if self.error is None else self.error.line()
            return f"{said}: {_TOO_LARGE}"
        if self.error is not None and self.stopped != "time":
            return self.error.line()
        if self.invalid is not None:
            return f"{_WHY[self.stopped]}: {self.invalid}"
        waiting = ", ".join(dict.fromkeys(call.name for call in self.unanswered))
        return _WHY[self.stopped] + (f" (waiting: {waiting})" if waiting else "")

    def raw_record(self) -> dict[str, Any]:
        """Return the result as `to_record` does, with tool calls as raw JSON text: numbers as the model wrote them.

        `msgspec.json.encode` takes that, and `json.dumps` does not.
        """
        return {
            "stopped": self.stopped,
            "why": self.why,
            "too_large": self.too_large,
            "head": self.head.id,
            "bookmark": self.head.meta.head if isinstance(self.head.meta.head, str) else None,
            "turns": [turn.id for turn in self.turns],
            "calls": list(self.calls),
            "text": self.text,
            "usage": self.usage.to_record(),
            "unanswered": Raw(content_bytes(self.unanswered)),
            "error": plain_values(self.error),
            "output": plain(self.output),
        }

    def to_record(self) -> dict[str, Any]:
        """Return the result as values for JSON, which `json.dumps` takes too."""
        record = self.raw_record()
        return record | {"unanswered": plain_values(record["unanswered"])}


def text_of_replies(*responses: Response) -> str:
    """Return the text of a reply, or of several that go on with each other, without thinking."""
    return "".join(block.text for response in responses for block in response.content if isinstance(block, Text))


def summed(first: Usage, second: Usage | None) -> Usage:
    """Return the tokens of two calls together."""
    return first if second is None else first + second
