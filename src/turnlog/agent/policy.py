"""Policies of a run: which tool calls may go ahead, how much a run may use, and what a failing tool means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeVar, get_args

from msgspec import Struct

from turnlog.agent.bounds import RESULT_BYTES_MAX
from turnlog.errors import RunError
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
nothing (None): then the run stops, with the call unanswered."""

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

_T = TypeVar("_T")


class Policy(Struct, frozen=True, kw_only=True):
    """The policies of a run.

    Attributes:
        approve: what to do with a tool call that no pattern allows.
        allow: patterns of tool names (`fs___read_*`) whose calls run without being asked for, whatever `approve` says.
        offer: patterns of the names of the tools that are offered; None for all.
        iterations_max: how many model calls a run may make, at least 1.
        time_max_s: how long a run may take, in seconds; None for no limit.
        tries_max: how often one model call is made at most; None for one more than the connection's `retries_max`.
        retry_wait_max_s: how long a provider may ask to wait before the next try, in seconds.
        call_timeout_s: how long a model call may wait for its connection, and for each next piece of a reply, in
            seconds; None for what the connection says.
        wait_s: how long to wait for another run that seems to be at work on the turn to continue, in seconds; None for
            not at all.
        total_tokens_max: how many tokens its model calls may take, all kinds together; None for no limit. The reply
            that goes beyond it is recorded, and is the last one.
        tool_timeout_s: how long one call of a tool may take, in seconds. A registered time-out of an MCP server wins.
        parallel_max: how many tools may run at the same time, at least 1.
        result_bytes_max: how much text of a tool's result goes to the model, in bytes of UTF-8, at least 1; None for
            all of it.
        on_tool_error: what a failing tool means.
        on_interrupted: what to do with a call that an earlier run began and whose end is not known.
        tool_retries_max: how often it is tried again, with `retry`.
        tool_retry_wait_s: how long to wait before the first retry, in seconds; twice as long before each further one,
            and never more than 30.
    """

    approve: Approve = "ask"
    allow: tuple[str, ...] = ()
    offer: tuple[str, ...] | None = None
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
            RunError: one is out of its bounds.
        """
        _one_of("approve", self.approve, get_args(Approve))
        _one_of("on_tool_error", self.on_tool_error, get_args(OnToolError))
        _one_of("on_interrupted", self.on_interrupted, get_args(OnInterrupted))
        for name, least in (("iterations_max", 1), ("parallel_max", 1), ("tool_retries_max", 0)):
            if getattr(self, name) < least:
                raise RunError(f"{name}: {getattr(self, name)} is less than {least}")
        if self.total_tokens_max is not None and self.total_tokens_max < 1:
            raise RunError(f"total_tokens_max: {self.total_tokens_max} is less than 1: give None for no limit")
        if self.result_bytes_max is not None and self.result_bytes_max < 1:
            raise RunError(f"result_bytes_max: {self.result_bytes_max} is less than 1: give None for no limit")
        if self.time_max_s is not None and not self.time_max_s > 0:
            raise RunError(f"time_max_s: {self.time_max_s:g} is not more than 0: give None for no limit")
        if self.tries_max is not None and self.tries_max < 1:
            raise RunError(f"tries_max: {self.tries_max} is less than 1")
        if not self.retry_wait_max_s >= 0:
            raise RunError(f"retry_wait_max_s: {self.retry_wait_max_s:g} is less than 0")
        if self.call_timeout_s is not None and not self.call_timeout_s > 0:
            raise RunError(f"call_timeout_s: {self.call_timeout_s:g} is not more than 0: give None for the default")
        if self.wait_s is not None and not self.wait_s > 0:
            raise RunError(f"wait_s: {self.wait_s:g} is not more than 0: give None for not at all")
        if not self.tool_timeout_s > 0:
            raise RunError(f"tool_timeout_s: {self.tool_timeout_s:g} is not more than 0")
        if not self.tool_retry_wait_s >= 0:
            raise RunError(f"tool_retry_wait_s: {self.tool_retry_wait_s:g} is less than 0")

    def approval_of(self, tool: str) -> Approve:
        """Return what is to be done with a call of a tool."""
        return "auto" if any(fnmatchcase(tool, pattern) for pattern in self.allow) else self.approve

    def offers(self, tool: str) -> bool:
        """Tell whether a tool is offered."""
        return self.offer is None or any(fnmatchcase(tool, pattern) for pattern in self.offer)


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise RunError(f"{name}: {value!r} is unknown (one of {', '.join(known)})")
