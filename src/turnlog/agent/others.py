"""Other runs: a run has the turn that it is at work on for itself, and can wait where another one has it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Self

from turnlog.agent.events import HeadBusy, OnEvent
from turnlog.agent.letting_go import LEAVING
from turnlog.agent.own_loop import given_back_at_close
from turnlog.agent.run_log import RunLog
from turnlog.agent.settled import settled
from turnlog.agent.start import last_turn
from turnlog.errors import RunError, StoreError
from turnlog.store.awaiting import wait_beyond
from turnlog.store.locks import Release
from turnlog.turn import Turn

_SLICE_S = 0.5
"""So long is waited at once: that a lock is given back is no event."""


class AtWork:
    """The turn that a run is at work on: no other run goes on from it meanwhile.

    It is a lock of the store: when the process ends, however it ends, the turn is free. On leaving the context, too,
    and where the event loop is closed before that, as by a person who does not wait for what is being ended.
    """

    def __init__(self, log: RunLog) -> None:
        """Begin with no turn."""
        self._log = log
        self._turn: str | None = None
        self._places: list[Release] = []
        """Locks of the names that this run begins at: other runs that wait do not begin there meanwhile."""
        self._held: list[Release] = []
        """All locks that it has, from the moment that a thread has taken one until it is given back."""
        self._is_over = False
        self._known = ExitStack()

    async def __aenter__(self) -> Self:
        """Return it."""
        self._known.enter_context(given_back_at_close(self._drop))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the turn."""
        self._is_over = True
        with self._known:
            try:
                await self._let_go(list(self._held))
            except LEAVING:
                self._drop()
                raise

    async def wait(self, continues: str | Sequence[str] | None, wait_s: float, tell: OnEvent, *, respond: bool) -> None:
        """Wait until no other run is at work on the turns to continue.

        Runs that wait for the same turns begin one after the other: the next one when this one has taken a turn.

        Args:
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
            busy = await settled(self._log.executors, partial(self._begin_after, continues, respond))
            if busy is None:
                return
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise RunError(f"another run is still at work on turn {busy.id!r}: wait longer, or not at all")
            if not told:
                tell(HeadBusy(turn=busy, wait_s=wait_s))
                told = True
            after = await wait_beyond(self._log.store, self._log.executors, after, min(left_s, _SLICE_S))

    async def begin(self, turn: Turn, named: str) -> bool:
        """Take a turn to go on from, by the name that the caller has for it.

        Returns:
            False where another run has it, or has recorded more behind it under that name in this moment.
        """
        release = await settled(self._log.executors, partial(self._taken, turn, named))
        self._turn = turn.id
        return release is not None

    async def move(self, turn: Turn) -> bool:
        """Take the turn that the run has recorded, and let go of the one before; False where another run has it."""
        if turn.id != self._turn:
            # What there was is let go of when this one is taken: whoever looks sees one of them taken.
            before = list(self._held)
            release = await settled(self._log.executors, partial(self._take, turn.id))
            await self._let_go(before)
            self._turn, self._places = turn.id, []
            return release is not None
        places, self._places = self._places, []
        await self._let_go(places)
        return True

    async def _let_go(self, held: Sequence[Release]) -> None:
        if held:
            with suppress(StoreError):  # the log is closed, and has none any more
                await settled(self._log.executors, partial(self._give_back, held))  # a server is told

    def _take(self, name: str) -> Release | None:
        release = self._log.store.locks.take(name)
        if release is not None:
            self._held.append(release)
        if self._is_over:
            self._drop()
        return release

    def _taken(self, turn: Turn, named: str) -> Release | None:
        release = None if _is_fresh(self._log, turn) else self._take(turn.id)
        if release is not None and self._log.turn(named).id != turn.id:
            self._give_back([release])
            return None
        return release

    def _drop(self) -> None:
        """Give all locks back, also one that a thread is about to take."""
        self._is_over = True
        self._give_back(list(self._held))

    def _give_back(self, held: Sequence[Release]) -> None:
        for release in held:
            with suppress(StoreError):  # a connection that is lost has no locks
                release()
            with suppress(ValueError):  # it was given back a moment ago
                self._held.remove(release)

    def _begin_after(self, continues: str | Sequence[str] | None, respond: bool) -> Turn | None:
        """Keep other runs that wait from beginning there, and return the turn that another run is at work on, or None.

        Where another one that waits is about to begin, that is a turn to continue.
        """
        named = {continues} if isinstance(continues, str) else set(continues or ())
        locks, names = self._log.store.locks, [""] if respond else sorted(named)
        if not self._places:
            places = [self._take(f"begin {name}") for name in names]
            self._places = [place for place in places if place is not None]
            if None in places:
                self._give_back(self._places)
                self._places = []
                return self._at(names[places.index(None)])
        turns = map(self._at, names)  # not before: only now they stay where they are
        return next((turn for turn in turns if locks.is_taken(turn.id) or _is_fresh(self._log, turn)), None)

    def _at(self, name: str) -> Turn:
        return self._log.turn(name) if name else last_turn(self._log)


def _is_fresh(log: RunLog, turn: Turn) -> bool:
    """Tell whether the run that has recorded a turn has not taken it yet. What a person adds there is no turn of it."""
    is_of_a_run = isinstance(turn.meta.call, str) or bool(turn.meta.tool_ends)
    return is_of_a_run and any(log.store.locks.is_taken(parent) for parent in turn.continues)
