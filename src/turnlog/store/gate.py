"""A gate that calls go through: once it is closed nobody comes in, and whoever closes it knows when all have left.

To close what others are using at that moment (a connection in the middle of a statement) can crash the interpreter. A
count of those inside would tell, but an interrupt (Ctrl-C) may hit any line, also that which counts somebody out. So
the interpreter counts: each thread has a place, an `io.BytesIO`, and is inside while it holds a view of its buffer. A
view is let go when its `with` block ends, in C and thus not to be interrupted, and also when it is dropped on the way
there. A place with a view cannot be closed, and of a closed place there are no views: between looking whether somebody
is inside and shutting the door nobody slips in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from io import BytesIO
from threading import Event, Lock, Thread, get_ident
from time import monotonic, sleep
from weakref import WeakSet

from turnlog.errors import StoreClosedError

LOOK_S = 0.0005
"""How long closing waits before it looks again whether all have left, in seconds. It waits longer each time."""

LOOK_S_MAX = 0.02


class Gate:
    """Lets calls in until it is closed, and lets closing wait for those inside. Safe to use from many threads."""

    __slots__ = ("__weakref__", "_closed", "_forked", "_leaving", "_lock", "_name", "_open", "_places")

    def __init__(self, name: str) -> None:
        """Take the name of the store that errors tell."""
        self._name = name
        self._lock = Lock()
        self._closed = False
        self._forked = False
        self._open = Event()
        """Not set while it is shut for a moment."""
        self._open.set()
        self._places: dict[int, BytesIO] = {}
        """By thread. Threads that ended leave theirs to later ones of the same number."""
        self._leaving: list[tuple[int, BytesIO]] = []
        """What the places were when the gate was closed, or shut for a moment."""
        _gates.add(self)

    def enter(self) -> AbstractContextManager[object]:
        """Go inside: `with gate.enter(): …`. A thread may do so more than once. Whoever comes while it is shut waits.

        Raises:
            StoreClosedError: the gate is closed, or was made before this process was forked.
        """
        # Not with `suppress`: this is on the way of every append.
        try:
            return self._places[get_ident()].getbuffer()
        except (KeyError, ValueError):
            pass  # the first time, or closed
        return self._first()

    def check(self) -> None:
        """Raise what `enter` does, and go nowhere."""
        if self._closed or self._forked:
            self._entered()

    def _first(self) -> AbstractContextManager[object]:
        while True:
            with self._lock:
                if self._open.is_set():
                    return self._entered()
                if (again := self._again()) is not None:
                    return again
            self._open.wait()

    def _again(self) -> AbstractContextManager[object] | None:
        """Let a thread in that is inside already, and that whoever has shut the gate waits for; None if it is not."""
        for thread, place in self._leaving:
            if thread == get_ident() and not _closable(place):
                return place.getbuffer()
        return None

    def _entered(self) -> AbstractContextManager[object]:
        if self._forked:
            message = f"store {self._name!r} was opened before this process was forked: open it again"
            raise StoreClosedError(message) from None
        if self._closed:
            raise StoreClosedError(f"store {self._name!r} is closed") from None
        return self._places.setdefault(get_ident(), BytesIO()).getbuffer()

    def shut(self, wait_s: float) -> bool:
        """Let nobody in until it is opened again, wait for those inside, and return whether all but this thread left.

        Args:
            wait_s: how long to wait at most, in seconds.
        """
        with self._lock:
            self._open.clear()
            self._leaving += self._places.items()
            self._places = {}
        return self._left(wait_s, own=get_ident())

    def open(self) -> None:
        """Let those in that wait since it was shut."""
        with self._lock:
            self._leaving = [(thread, place) for thread, place in self._leaving if not _closable(place)]
            self._open.set()

    def close(self, wait_s: float, on_empty: Callable[[], None] | None = None) -> bool:
        """Let nobody in from now on, wait for those inside, and return whether all have left.

        What this thread itself entered does not count, since it would wait for itself. To close a second time waits
        too. In a process that was forked from that which made the gate nothing is waited for, and the answer is no.

        Args:
            wait_s: how long to wait at most, in seconds.
            on_empty: called once all have left, this thread too, if that takes longer. It runs in a thread of its own,
                which the end of the process does not wait for, and must not raise.
        """
        with self._lock:
            if self._forked:
                return False
            self._closed = True
            self._leaving += self._places.items()
            self._places = {}
        if self._left(wait_s, own=get_ident()):
            return True
        if on_empty is not None:
            # It cannot be started when the interpreter is about to end: then there is nothing left to do either.
            with suppress(RuntimeError):
                Thread(target=self._run_once_left, args=(on_empty,), name="turnlog-gate", daemon=True).start()
        return False

    def _left(self, wait_s: float, *, own: int | None) -> bool:
        """Wait until all but one thread have left, and tell whether they have."""
        until = monotonic() + wait_s
        look_s = LOOK_S
        while not all(_closable(place) for thread, place in self._leaving if thread != own):
            rest_s = until - monotonic()
            if rest_s <= 0:
                return False
            sleep(min(look_s, rest_s))
            look_s = min(2 * look_s, LOOK_S_MAX)
        return True

    def _run_once_left(self, on_empty: Callable[[], None]) -> None:
        self._left(float("inf"), own=None)
        on_empty()

    def _after_fork(self) -> None:
        """Refuse everything: the threads that are inside, or hold the lock, exist in the other process only."""
        self._lock = Lock()
        self._forked = True
        self._places = {}
        self._open = Event()
        self._open.set()


def _closable(place: BytesIO) -> bool:
    try:
        place.close()
    except BufferError:  # somebody holds a view
        return False
    return True


_gates: WeakSet[Gate] = WeakSet()


def _after_fork() -> None:
    for gate in list(_gates):
        gate._after_fork()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
