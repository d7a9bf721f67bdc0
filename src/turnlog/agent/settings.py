"""The settings of a run, for what is built on the run loop and hands them on."""

from __future__ import annotations

from typing import TypedDict

from turnlog.agent.ask import Ask
from turnlog.agent.policy import OnApproval, Policy


class RunSettings(TypedDict, total=False):
    """Which model a run asks, and how. Each means what it means for `TurnLog.run`."""

    pointer: str | None
    provider: str | None
    model: str | None
    policy: Policy | None
    ask: Ask | None
    on_approval: OnApproval | None
