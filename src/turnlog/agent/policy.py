"""Policies of a run: which tool calls may go ahead, how much a run may use, and what a failing tool means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Literal, get_args

from msgspec import Struct

from turnlog.agent.bounds import RESULT_BYTES_MAX
from turnlog.agent.run_checks import check_number, check_patterns, check_seconds, one_of
from turnlog.model import ToolUse

Approve = Literal["ask", "auto", "never"]
"""What to do with a tool call that no pattern allows: ask, run it, or refuse it."""

OnToolError = Literal["continue", "abort", "retry"]
"""What a failing tool means: the model is told; the run stops after that; or the tool is tried again first."""

OnInterrupted = Literal["ask", "repeat", "report"]
"""What to do with a tool call that an earlier run began and whose end is not known: ask, whatever `approve` says; treat
it as a call that was not made; or tell the model that nobody knows. What `approve` never allows is not repeated."""

Answer = bool | str | None
"""What somebody who is asked says: run it, do not, a text that the model gets in place of the tool's result, or
nothing (None): then the run stops, with the call unanswered. An empty text is a no. Anything else is a `RunError`, and
no call of the reply is made."""

OnApproval = Callable[[ToolUse], Answer | Awaitable[Answer]]
"""Asked for each tool call that needs approval, and for one that may have had effects in an earlier run, one after the
other, in the order of the reply. A plain function keeps the event loop waiting, and with it all else that goes on
there."""

ITERATIONS_MAX = 50
TOOL_TIMEOUT_S = 60.0
PARALLEL_MAX = 8
RETRY_WAIT_MAX_S = 60.0
TOOL_RETRIES_MAX = 3
TOOL_RETRY_WAIT_S = 1.0
TOOL_RETRY_WAIT_S_MAX = 30.0


class Policy(Struct, frozen=True, kw_only=True):
    """The policies of a run: which tools it may call, how much it may use, and what is done about failures.

    Attributes:
        approve: what to do with a tool call that no pattern allows: `ask` calls `on_approval`, `auto` runs it, `never`
            refuses it.
        allow: patterns of tool names, such as `fs___read_*`, whose calls run without being asked for, whatever
            `approve` says. A text is one pattern.
        offer: patterns of the names of the tools to offer, such as `fs___*`; None for all.
        iterations_max: how many model calls it may make, at least 1.
        time_max_s: how long the run may take in all, in seconds; what is at work then is broken off, as by a
            cancellation, and recorded. Programs that it has started have some seconds more to end. None for no limit.
        tries_max: how often to make one model call at most, where it fails before anything of a reply was shown, in a
            way that may pass. Each try is recorded as a call. None for one more than the connection's `retries_max`.
        retry_wait_max_s: how long a provider may ask to wait before it is tried again, in seconds. One that asks for
            more is not tried again, and the run ends with its error, which says when to come back.
        call_timeout_s: how long a model call may wait for its connection, and for each next piece of a reply, in
            seconds; None for what the connection says: 600.
        wait_s: how long to wait, in seconds, where another run is at work on the turn to continue. Then the run begins
            behind what that one has recorded, if `continues` is a bookmark; runs that wait begin one after the other.
            None for not at all: a run without content stops (`busy`), and one with content takes the bookmark along,
            so that the reply of the other one is on a branch that no bookmark is at. To refuse that, give
            `expected_head`.
        total_tokens_max: how many tokens its model calls may take, all kinds together; None for no limit. The reply
            that goes beyond it is recorded, and is the last one. A reply that does not say what it took is not
            counted, which the run tells once (`UsageMissing`): `iterations_max` and `time_max_s` hold then too.
        tool_timeout_s: how long one call of a tool may take, in seconds. A registered time-out of an MCP server wins.
        parallel_max: how many tools may run at the same time, at least 1.
        result_bytes_max: how much text of a tool's result goes to the model, in bytes of UTF-8, at least 1; None for
            all of it. The log has all of it, the model is told where it was cut, and is offered the tool `read_result`
            to read on. An image or another document may have fifty times as many bytes; a larger one becomes a text
            that says what it was. Results of the turns before are bounded too.
        on_tool_error: what a failing tool means: the model is told (`continue`), the run stops after that (`abort`), or
            the tool is tried again first (`retry`). One that was given up, or whose server ended, may have done its
            work, and is not tried again.
        on_interrupted: what to do with a tool call that an earlier run began and whose end is not known, because it was
            killed: ask `on_approval`, whatever `approve` says (`ask`); call the tool again as if it had not been called
            (`repeat`); or tell the model that nobody knows (`report`). A call whose result is recorded is not repeated.
        tool_retries_max: how often to try a failing tool again, with `retry`.
        tool_retry_wait_s: how long to wait before the first retry, in seconds; twice as long before each further one,
            and never more than 30.
    """

    approve: Approve = "ask"
    allow: str | Sequence[str] = ()
    offer: str | Sequence[str] | None = None
    iterations_max: int = ITERATIONS_MAX
    time_max_s: float | None = None
    tries_max: int | None = None
    retry_wait_max_s: float = RETRY_WAIT_MAX_S
    call_timeout_s: float | None = None
    wait_s: float | None = None
    total_tokens_max: int | None = None
    tool_timeout_s: float = TOOL_TIMEOUT_S
    parallel_max: int = PARALLEL_MAX
    result_bytes_max: int | None = RESULT_BYTES_MAX
    on_tool_error: OnToolError = "continue"
    on_interrupted: OnInterrupted = "ask"
    tool_retries_max: int = TOOL_RETRIES_MAX
    tool_retry_wait_s: float = TOOL_RETRY_WAIT_S

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: one is of another type, or out of its bounds.
        """
        one_of("approve", self.approve, get_args(Approve))
        one_of("on_tool_error", self.on_tool_error, get_args(OnToolError))
        one_of("on_interrupted", self.on_interrupted, get_args(OnInterrupted))
        check_patterns("allow", self.allow)
        if self.offer is not None:
            check_patterns("offer", self.offer)
        check_number("iterations_max", self.iterations_max, 1)
        check_number("parallel_max", self.parallel_max, 1)
        check_number("tool_retries_max", self.tool_retries_max, 0)
        check_number("total_tokens_max", self.total_tokens_max, 1, none="no limit")
        check_number("result_bytes_max", self.result_bytes_max, 1, none="no limit")
        check_number("tries_max", self.tries_max, 1, none="the default")
        check_seconds("time_max_s", self.time_max_s, none="no limit")
        check_seconds("call_timeout_s", self.call_timeout_s, none="the default")
        check_seconds("wait_s", self.wait_s, none="not at all")
        check_seconds("tool_timeout_s", self.tool_timeout_s)
        check_seconds("retry_wait_max_s", self.retry_wait_max_s, may_be_0=True)
        check_seconds("tool_retry_wait_s", self.tool_retry_wait_s, may_be_0=True)

    def approval_of(self, tool: str) -> Approve:
        """Return what is to be done with a call of a tool."""
        return "auto" if _matches(tool, self.allow) else self.approve

    def offers(self, tool: str) -> bool:
        """Tell whether a tool is offered."""
        return self.offer is None or _matches(tool, self.offer)


def _matches(tool: str, patterns: str | Sequence[str]) -> bool:
    """Tell whether a tool's name is of one of the patterns. A text is one of them, not one a letter."""
    return any(fnmatchcase(tool, pattern) for pattern in ((patterns,) if isinstance(patterns, str) else patterns))
