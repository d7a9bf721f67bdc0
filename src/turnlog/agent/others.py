"""Other runs that are at work where a run is to begin."""

from __future__ import annotations

import time
from collections.abc import Sequence

from turnlog.agent.events import HeadBusy, OnEvent
from turnlog.agent.run_log import RunLog
from turnlog.agent.start import last_turn, open_calls
from turnlog.errors import RunError
from turnlog.turn import Turn

_SLICE_S = 0.5
"""So long is waited at once: a thread that waits cannot be cancelled."""


async def wait_for_others(
    log: RunLog, continues: str | Sequence[str] | None, wait_s: float, tell: OnEvent, *, respond: bool
) -> None:
    """Wait until no other run seems to be at work on the turns to continue.

    Args:
        log: the log.
        continues: the turns, by id or bookmark.
        wait_s: how long to wait at most, in seconds.
        tell: told once that there is another run.
        respond: the turn to continue is the last one of the log.

    Raises:
        RunError: there still is one after so many seconds.
        UnknownTurnError: there is no such turn.
    """
    until_s = time.monotonic() + wait_s
    after, told = 0, False
    while True:
        # The end of the log was asked for before: what comes from here on ends the wait.
        busy = await log.executors.run_read(_busy_turn, log, continues, respond)
        if busy is None:
            return
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise RunError(
                f"another run is still at work on turn {busy.id!r}, or was stopped there: wait longer, or not at all"
            )
        if not told:
            tell(HeadBusy(turn=busy, wait_s=wait_s))
            told = True
        after = await log.executors.run_wait(log.store.wait, after, min(left_s, _SLICE_S))


def _busy_turn(log: RunLog, continues: str | Sequence[str] | None, respond: bool) -> Turn | None:
    """Return the turn to continue on which another run seems to be at work; None where there is none."""
    named = (continues,) if isinstance(continues, str) else continues or ()
    for turn in [last_turn(log)] if respond else map(log.turn, named):
        if turn.meta.role == "user" or open_calls(log, turn):
            return turn
    return None
