"""What is going on and is not in the log yet: pieces of replies that stream, for whoever follows the log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import Lock
from weakref import WeakSet

import msgspec
from msgspec import Struct

from turnlog.events import Recorded
from turnlog.model import Delta

_log = logging.getLogger("turnlog.feeds")

DELTAS_MAX = 10_000
"""How many pieces are kept for one follower that is slow. The oldest go first; all of it comes with the reply."""


class LiveDelta(Struct, frozen=True, kw_only=True):
    """A piece of a reply that streams. It is never stored and has no place in the log.

    Attributes:
        call: id of the model call.
        turn: id of the turn that it was made from.
        after: global position of the call.
        number: which piece of the reply it is, from 1.
        missed: how many pieces before it this follower did not get, because it was too slow.
        delta: the piece.
    """

    call: str
    turn: str
    after: int
    number: int
    delta: Delta
    missed: int = 0


class Inbox:
    """The pieces that wait for one follower."""

    def __init__(self, tell: Callable[[], None]) -> None:
        """Take what is called when there is one."""
        self._tell = tell
        self._pieces: deque[LiveDelta] = deque()
        self._missed = 0
        self._lock = Lock()

    def put(self, piece: LiveDelta) -> None:
        """Keep a piece; the first one that is lost to a slow follower, since it last took one, is told to `logging`."""
        with self._lock:
            self._pieces.append(piece)
            is_full = len(self._pieces) > DELTAS_MAX
            if is_full:
                self._pieces.popleft()
                self._missed += 1
            falls_behind = is_full and self._missed == 1
        if falls_behind:
            _log.warning(
                "a follower is slow: of %d pieces of replies that wait for it the oldest are dropped, now of call %s",
                DELTAS_MAX,
                piece.call,
            )
        self._tell()

    def take(self, position: int, *, call: str | None = None) -> LiveDelta | None:
        """Return the next piece, where its call lies not beyond a global position, and is the one that is named."""
        with self._lock:
            if not self.is_due(position) or call not in (None, self._pieces[0].call):
                return None
            piece = self._pieces.popleft()
            missed, self._missed = self._missed, 0
        return msgspec.structs.replace(piece, missed=missed) if missed else piece

    def next(self, position: int) -> LiveDelta | None:
        """Return the next piece as `take` does, and leave it here."""
        with self._lock:
            return self._pieces[0] if self.is_due(position) else None

    def is_due(self, position: int) -> bool:
        """Tell whether there is a piece for a global position."""
        return bool(self._pieces) and self._pieces[0].after <= position


class Streams:
    """Hands pieces of replies to followers of the same process. Costs nothing where there are none."""

    def __init__(self) -> None:
        """Begin with no followers."""
        self._inboxes: WeakSet[Inbox] = WeakSet()
        self._lock = Lock()

    def join(self, tell: Callable[[], None]) -> Inbox:
        """Return a new inbox, which gets pieces for as long as somebody has it."""
        inbox = Inbox(tell)
        with self._lock:
            self._inboxes.add(inbox)
        return inbox

    def leave(self, inbox: Inbox) -> None:
        """Forget an inbox."""
        with self._lock:
            self._inboxes.discard(inbox)

    def of_call(self, call: Recorded) -> Callable[[Delta], None]:
        """Return what the pieces of the reply to a call are given to, in order. It waits for nothing."""
        number = 0
        header, after = call.header, call.global_position
        turn = header.cited("turn") or ""

        def publish(delta: Delta) -> None:
            nonlocal number
            number += 1
            with self._lock:
                inboxes = tuple(self._inboxes)
            for inbox in inboxes:
                inbox.put(LiveDelta(call=header.id, turn=turn, after=after, number=number, delta=delta))

        return publish
