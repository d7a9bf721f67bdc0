"""The settings of a run, for what is built on the run loop and hands them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from turnlog.agent.policy import Approve, OnApproval, OnInterrupted, OnToolError
from turnlog.agent.target import Replies
from turnlog.providers import Connection, OnLoss, Parameters, Provider


class RunSettings(TypedDict, total=False):
    """Which model a run asks, and how. Each means what it means for `TurnLog.run`."""

    pointer: str | None
    provider: str | None
    model: str | None
    approve: Approve
    allow: str | Sequence[str]
    on_approval: OnApproval | None
    iterations_max: int
    time_max_s: float | None
    tries_max: int | None
    retry_wait_max_s: float
    call_timeout_s: float | None
    wait_s: float | None
    total_tokens_max: int | None
    tool_timeout_s: float
    parallel_max: int
    result_bytes_max: int | None
    on_tool_error: OnToolError
    on_interrupted: OnInterrupted
    tool_retries_max: int
    tool_retry_wait_s: float
    params: Parameters | None
    on_loss: OnLoss | None
    stream: bool
    connection: Connection | None
    adapter: Provider | None
    replay: Replies | None
