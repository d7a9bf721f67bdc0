"""Who is told, and who is asked, while a run goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from msgspec import Struct

from turnlog.agent.events import OnEvent, OnWindow, RunEvent
from turnlog.agent.policy import OnApproval
from turnlog.model import ContextWindow, Delta


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

    async def shown(self, window: ContextWindow) -> ContextWindow:
        """Return the window that `on_window` wants a model to be asked with: the same one where there is none.

        It is what a caller returned, and may be no window at all: see `Reading.to_ask`.
        """
        if self.on_window is None:
            return window
        given = self.on_window(window)
        return await given if inspect.isawaitable(given) else given
