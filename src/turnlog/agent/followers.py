"""Who is told, and who is asked, while a run goes on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import Struct

from turnlog.agent.events import (
    BookmarkLeft,
    CallRetried,
    CallStarted,
    HeadBusy,
    OnEvent,
    OnWindow,
    OutputRefused,
    RunEvent,
    ToolFinished,
    ToolInterrupted,
    ToolRetried,
    TurnRecorded,
    UsageMissing,
)
from turnlog.agent.letting_go import answer_of
from turnlog.agent.policy import OnApproval
from turnlog.agent.run_checks import check_callback
from turnlog.errors import RunError
from turnlog.model import ContextWindow, Delta
from turnlog.store.telling import logger

T = TypeVar("T")

_log = logger("turnlog.runs")


class Followers(Struct, frozen=True, kw_only=True):
    """Who is told, and who is asked, while a run goes on. See `turnlog.agent.loop.arun` for each."""

    on_approval: OnApproval | None
    on_delta: Callable[[Delta], None] | None
    on_event: OnEvent | None
    on_window: OnWindow | None

    def __post_init__(self) -> None:
        """Refuse what cannot be called, before anything is recorded.

        Raises:
            RunError: one of them is no function, or an async one that nobody would await.
        """
        check_callback("on_approval", self.on_approval)
        check_callback("on_window", self.on_window)
        check_callback("on_delta", self.on_delta, awaited=False)
        check_callback("on_event", self.on_event, awaited=False)

    def tell(self, event: RunEvent) -> None:
        """Tell of an event, and have it in the records of logging.

        Raises:
            RunError: `on_event` raised what says that a task is cancelled, or a coroutine closed, and neither is; or it
                returned what is to be awaited.
        """
        note(event)
        if self.on_event is not None:
            _tell("on_event", self.on_event, event)

    def show(self, delta: Delta) -> None:
        """Show a piece of a reply.

        Raises:
            RunError: `on_delta` raised what `on_event` may not raise, or returned what it may not return.
        """
        if self.on_delta is not None:
            _tell("on_delta", self.on_delta, delta)

    async def shown(self, window: ContextWindow) -> ContextWindow:
        """Return the window that `on_window` wants a model to be asked with: the same one where there is none.

        It is what a caller returned, and may be no window at all: see `Reading.to_ask`.
        """
        if self.on_window is None:
            return window
        return await answer_of("on_window", partial(self.on_window, window))


def _tell(who: str, tell: Callable[[T], object], what: T) -> None:
    try:
        returned = tell(what)
    except (asyncio.CancelledError, GeneratorExit) as error:
        raise RunError(f"{who} raised {type(error).__name__}: to end a run, cancel its task") from error
    # A task, or what is to come of one, comes about by itself.
    if returned is not None and inspect.isawaitable(returned) and not isinstance(returned, asyncio.Future):
        if inspect.iscoroutine(returned):
            returned.close()
        raise RunError(f"{who} returned {type(returned).__name__!r}, which nobody awaits: give a plain function")


def note(event: RunEvent) -> None:
    """Make a record of an event, with ids, names of tools and numbers: no content, no text of others, no bookmark."""
    match event:
        case CallRetried():
            status = "no status" if event.error.status is None else f"status {event.error.status}"
            _log.warning(
                "call %s failed (%s): trying again in %.1f s, after %d tries",
                event.call,
                status,
                event.wait_s,
                event.tries,
            )
        case ToolRetried():
            _log.warning(
                "tool %s failed: trying again in %.1f s, after %d tries", event.call.name, event.wait_s, event.attempt
            )
        case ToolInterrupted(is_unrecorded=True):
            _log.warning("tool %s may have been called by an earlier run, which did not record it", event.call.name)
        case ToolInterrupted():
            when = "was stopped" if event.is_told else "ended"
            _log.warning("tool %s was at work when an earlier run %s: how it ended is not known", event.call.name, when)
        case ToolFinished() if event.outcome.is_error:
            _log.info("tool %s failed", event.call.name)
        case BookmarkLeft():
            _log.warning("somebody else moved the bookmark: the run goes on on a branch, at turn %s", event.turn.id)
        case HeadBusy():
            _log.info("another run is at work on turn %s: waiting up to %.0f s", event.turn.id, event.wait_s)
        case OutputRefused():
            _log.info("the reply in turn %s is not what was asked for: the model is told", event.turn.id)
        case UsageMissing():
            _log.warning("call %s: its reply says no usage, and the limit of tokens does not count it", event.call)
        case CallStarted():
            _log.debug("call %s: %s, %s, %d bytes", event.call, event.provider, event.model, event.request_bytes)
        case TurnRecorded():
            _log.debug("turn %s is recorded", event.turn.id)
        case _:
            pass
