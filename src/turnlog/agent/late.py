"""Runs that begin in an event loop where the run loop was never imported: a thread does that, and the loop goes on."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from turnlog.agent.run_events import as_events

if TYPE_CHECKING:
    from turnlog.agent.result import RunResult
    from turnlog.agent.run_log import RunLog


async def arun(log: RunLog, *args: Any, **kwargs: Any) -> RunResult[Any]:
    """Do a run: see `turnlog.agent.loop.arun`, whose arguments these are."""
    loop = await log.executors.run_read(_loop)
    return await loop.arun(log, *args, **kwargs)


run_events = as_events(arun)


def _loop() -> ModuleType:
    return import_module("turnlog.agent.loop")
