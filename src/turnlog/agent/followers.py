"""Who is told, and who is asked, while a run goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from msgspec import Struct

from turnlog.agent.events import OnEvent, OnWindow, RunEvent
from turnlog.agent.policy import OnApproval
from turnlog.model import ContextWindow, Delta, WindowChange, change_between, changed_window


class Followers(Struct, frozen=True, kw_only=True):
    """Who is told, and who is asked, while a run goes on. See `turnlog.agent.loop.arun` for each."""

    on_approval: OnApproval | None
    on_delta: Callable[[Delta], None] | None
    on_event: OnEvent | None
    on_window: OnWindow | None

    def tell(self, event: RunEvent) -> None:
        """Tell of an event."""
        if self.on_event is not None:
            self.on_event(event)

    async def shown(self, window: ContextWindow) -> tuple[ContextWindow, WindowChange | None]:
        """Return the window that a model is to be asked with, and how it differs from that of its turn.

        Raises:
            ContentError: what `on_window` returned is no window.
        """
        if self.on_window is None:
            return window, None
        given = self.on_window(window)
        change = change_between(window, await given if inspect.isawaitable(given) else given)
        # It is made of what will be recorded, so that the same request can be made again of that.
        return (window, None) if change is None else (changed_window(window, change), change)
