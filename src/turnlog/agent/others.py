"""Other runs: a run has the turn that it is at work on for itself, and can wait where another one has it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from turnlog.agent.events import HeadBusy, OnEvent
from turnlog.agent.run_log import RunLog
from turnlog.agent.settled import settled
from turnlog.agent.start import last_turn
from turnlog.errors import RunError, StoreError
from turnlog.store.locks import Release
from turnlog.turn import Turn

_SLICE_S = 0.5
"""So long is waited at once: a thread that waits cannot be cancelled, and that a lock is given back is no event."""


class AtWork:
    """The turn that a run is at work on: no other run goes on from it meanwhile.

    It is a lock of the store: when the process ends, however it ends, the turn is free.
    """

    def __init__(self, log: RunLog) -> None:
        """Begin with no turn."""
        self._log = log
        self._turn: str | None = None
        self._release: Release | None = None

    async def begin(self, turn: Turn, named: str) -> bool:
        """Take a turn to go on from, by the name that the caller has for it.

        Returns:
            False where another run has it, or has recorded more behind it under that name in this moment.
        """
        self._release = await settled(self._log.executors, partial(_taken, self._log, turn, named))
        self._turn = turn.id
        return self._release is not None

    async def move(self, turn: Turn) -> bool:
        """Take the turn that the run has recorded, and let go of the one before; False where another run has it."""
        if turn.id == self._turn:
            return True
        # That one is let go of when this one is taken: whoever looks sees one of them taken.
        release = await settled(self._log.executors, partial(self._log.store.locks.take, turn.id))
        await self.end()
        self._turn, self._release = turn.id, release
        return release is not None

    async def end(self) -> None:
        """Let go of the turn."""
        release, self._release, self._turn = self._release, None, None
        if release is not None:
            with suppress(StoreError):  # a connection that is lost has no locks
                await settled(self._log.executors, release)  # a server is told


async def wait_for_others(
    log: RunLog, continues: str | Sequence[str] | None, wait_s: float, tell: OnEvent, *, respond: bool
) -> None:
    """Wait until no other run is at work on the turns to continue.

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
            raise RunError(f"another run is still at work on turn {busy.id!r}: wait longer, or not at all")
        if not told:
            tell(HeadBusy(turn=busy, wait_s=wait_s))
            told = True
        after = await log.executors.run_wait(log.store.wait, after, min(left_s, _SLICE_S))


def _busy_turn(log: RunLog, continues: str | Sequence[str] | None, respond: bool) -> Turn | None:
    """Return the turn to continue on which another run is at work; None where there is none."""
    named = (continues,) if isinstance(continues, str) else continues or ()
    for turn in [last_turn(log)] if respond else map(log.turn, named):
        if log.store.locks.is_taken(turn.id) or _is_fresh(log, turn):
            return turn
    return None


def _taken(log: RunLog, turn: Turn, named: str) -> Release | None:
    release = None if _is_fresh(log, turn) else log.store.locks.take(turn.id)
    if release is not None and log.turn(named).id != turn.id:
        release()
        return None
    return release


def _is_fresh(log: RunLog, turn: Turn) -> bool:
    """Tell whether the run that has recorded a turn has not taken it yet. What a person adds there is no turn of it."""
    is_of_a_run = isinstance(turn.meta.call, str) or bool(turn.meta.tool_ends)
    return is_of_a_run and any(log.store.locks.is_taken(parent) for parent in turn.continues)
