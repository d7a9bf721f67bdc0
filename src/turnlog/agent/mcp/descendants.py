"""What the program of an MCP server has started, and that is to end with it.

Its process group is not all of that: a server that starts a browser often does so in a session of its own. So it is
looked for by parents, and by the session that the program was started in. This module imports `psutil`, which is of an
extra.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

from turnlog.store.telling import logger

_log = logger("turnlog.mcp")

_POLL_S = 0.01

_KILL_S = 0.5
"""How long what is killed may take to be gone, with what it starts meanwhile."""


class Descendants:
    """The processes of a program that leads a session, and that this process has started. Its methods block.

    These are the program, all in its session, and those that have one of them for their parent, and so on, whatever
    their session. They are remembered: one whose parent has ended since is still one. One that was in a session of its
    own, and whose parent had ended, before it was looked for the first time is none: it has made itself a daemon.
    """

    def __init__(self, program: int) -> None:
        """Take the program's process id. Nothing is looked for yet."""
        self._program = program
        self._known: set[psutil.Process] = set()

    def look(self) -> None:
        """Look which there are now. Takes milliseconds."""
        waiting = {process for process in self._known if _lives(process)} | self._session()
        self._known = set(waiting)
        # The oldest first: what they have started is found with them, in one go through all processes.
        for process in sorted(waiting, key=_age):
            if process in waiting:
                found = _below(process)
                self._known |= found
                waiting -= found

    def end(self, grace_s: float) -> None:
        """End them: wait for them, terminate those that go on, and kill those that go on then.

        Args:
            grace_s: how long they have to end by themselves, and again when they were told to.
        """
        self._wait(grace_s)
        for process in self._left():
            whose = "of an MCP server" if process.pid == self._program else "that an MCP server had started"
            _log.warning("process %d %s went on when its input had ended: it is terminated", process.pid, whose)
            _tell(process, "terminate")
        self._wait(grace_s)
        until_s = time.monotonic() + _KILL_S
        while left := self._left():
            if time.monotonic() > until_s:
                _log.warning(
                    "processes that an MCP server had started cannot be ended: %s", [each.pid for each in left]
                )
                return
            for process in left:
                _tell(process, "kill")
            self._wait(_POLL_S)

    def _left(self) -> list[psutil.Process]:
        """Return which there are now, the oldest first."""
        self.look()
        return sorted(self._known, key=_age)

    def _wait(self, time_s: float) -> None:
        """Wait until all that are known have ended, for so long at most."""
        until_s = time.monotonic() + time_s
        while any(map(_lives, self._known)) and time.monotonic() < until_s:
            time.sleep(_POLL_S)

    def _session(self) -> set[psutil.Process]:
        found: set[psutil.Process] = set()
        with suppress(psutil.Error):
            if psutil.Process(self._program).ppid() != os.getpid():
                return found  # the program is long gone, and its process id is of another one
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if os.getsid(pid) == self._program and _lives(process := psutil.Process(pid)):
                    found.add(process)
        return found


def _below(process: psutil.Process) -> set[psutil.Process]:
    with suppress(psutil.Error):
        return set(filter(_lives, process.children(recursive=True)))
    return set()


def _lives(process: psutil.Process) -> bool:
    """Tell whether a process is there. One that has ended, and that nobody has asked for its status, is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:  # gone, or nobody's here to end
        return False


def _age(process: psutil.Process) -> tuple[float, int]:
    return process.create_time(), process.pid


def _tell(process: psutil.Process, what: str) -> None:
    """Send a process a signal; psutil sends it to none that has the process id of one that is gone."""
    with suppress(psutil.Error):  # who is still there in the end is told of
        process.terminate() if what == "terminate" else process.kill()
