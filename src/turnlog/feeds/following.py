"""Following a log: its events in global order, and then those that are recorded, as they are.

One follower is one `Following`: it knows how far it has come. `Events` gives it to threads and `AsyncEvents` to
coroutines; what differs is how they wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, cast

from msgspec import Struct

from turnlog.errors import MetaError, StoreCutError
from turnlog.events import Recorded
from turnlog.executors import Executors
from turnlog.feeds.live import Inbox, LiveDelta, Streams
from turnlog.feeds.selection import Selection, Selector
from turnlog.store import Store
from turnlog.store.awaiting import Watching
from turnlog.store.pages import check_seen
from turnlog.store.reading import Reader, read_again
from turnlog.store.waiting import Latch

T_co = TypeVar("T_co", covariant=True)


class CaughtUp(Struct, frozen=True, kw_only=True):
    """Where history ends for a follower: what comes now was recorded after it had begun to read.

    Attributes:
        global_position: where the log ended.
    """

    global_position: int


Item = Recorded | CaughtUp | LiveDelta
"""What a follower is given."""


class Wanted(Struct, frozen=True, kw_only=True):
    """What a follower asks for; see `TurnLog.events`."""

    after: int
    after_id: str | None
    follow: bool
    selection: Selection
    mark: bool
    deltas: bool

    @classmethod
    def of(
        cls,
        after: int,
        *,
        after_id: str | None,
        follow: bool,
        topics: str | Sequence[str],
        thread: str | None,
        bookmark: str | None,
        mark: bool,
        deltas: bool,
    ) -> Wanted:
        """Check what a caller asks for.

        Raises:
            MetaError: something of it is not what it should be.
        """
        if type(after) is not int or after < 0:
            raise MetaError(f"after is {after!r}: give a global position, 0 for the beginning", field="after")
        if deltas and not follow:
            raise MetaError("deltas come only to those who follow: give follow=True", field="deltas")
        return cls(
            after=after,
            after_id=after_id,
            follow=follow,
            selection=Selection.of(topics, thread, bookmark),
            mark=mark,
            deltas=deltas,
        )


class Parts(Protocol):
    """What all followers of a log share. `Feeds` has it."""

    @property
    def store(self) -> Store:
        """The store."""
        ...

    @property
    def streams(self) -> Streams:
        """What hands on pieces of replies."""
        ...


class Following:
    """How far one follower has come, and what it is given next. Reading blocks; nothing else does."""

    def __init__(self, parts: Parts, wanted: Wanted, tell: Callable[[], None]) -> None:
        """Begin.

        Args:
            parts: what all followers of the log share.
            wanted: what is asked for.
            tell: called when there may be more to give: from any thread.
        """
        self._parts = parts
        self._wanted = wanted
        self._ready: deque[Recorded] = deque()
        self._unselected: Sequence[Recorded] = ()
        """What was read, and not looked at yet whether it is wanted."""
        self._selector: Selector | None = None
        self._begun = False
        self._is_at_end = False
        """Whether it has come to where the log ended when it began, or beyond."""
        self._until = wanted.after
        """Where the log ended when it began."""
        self._marked = not wanted.mark
        self._call = ("", False)
        """The call of the last piece of a reply, and whether it is wanted."""
        # Who does not follow looks at history as it is, also at that of a damaged log.
        self._reader = Reader(
            parts.store,
            wanted.after,
            wanted.selection.topics,
            after_id=wanted.after_id,
            is_dense=wanted.follow,
        )
        self.position = wanted.after
        """All up to this global position was given, or is not wanted."""
        self._inbox: Inbox | None = parts.streams.join(tell) if wanted.deltas else None

    @property
    def read_to(self) -> int:
        """The global position up to which the log was read."""
        return min(self._reader.position, self._until) if not self._wanted.follow else self._reader.position

    def close(self) -> None:
        """Let go of all that this follower keeps."""
        self._ready.clear()
        if self._inbox is not None:
            self._parts.streams.leave(self._inbox)

    def take(self) -> Item | None:
        """Return what is to be given next of what was read, or None. It waits for nothing.

        Raises:
            StoreClosedError: the log was closed, or was opened before this process was forked.
        """
        self._parts.store.check_open()
        if not self._begun:
            return None
        if self._inbox is not None and (piece := self._wanted_piece(self._inbox)) is not None:
            return piece
        if self._unknown_piece() is not None:
            return None
        if self._ready:
            event = self._ready.popleft()
            self.position = event.global_position if self._ready else self.read_to
            return event
        if self._unselected:
            return None
        self.position = self.read_to
        if self._is_at_end and not self._marked:
            self._marked = True
            return CaughtUp(global_position=self.read_to)
        return None

    def is_due(self) -> bool:
        """Tell whether a piece of a reply waits to be given."""
        return self._inbox is not None and self._inbox.is_due(self.position)

    def read(self) -> bool:
        """Read on, and tell whether there may be more to read at once.

        Raises:
            StoreCutError: the log was cut or rolled back since it was read, or since the caller did.
            UnknownTurnError: there is no turn of which the thread is wanted.
            CorruptionError: a stored event is damaged, or, for who follows, one is missing.
        """
        if not self._begun:
            read_again(self._begin)
        if (piece := self._unknown_piece()) is not None:
            return self._look(piece)
        if self._unselected:
            return self._select()
        if not self._wanted.follow and self._is_at_end:
            return False
        return self._accept(self._reader.read())

    def read_kept(self) -> bool:
        """Read on if that needs no waiting, and tell whether it did."""
        # Who wants events of some thread or bookmark has to look into the log for each.
        if self._selector is not None or (events := self._reader.read_kept()) is None:
            return False
        return self._accept(events)

    def _begin(self) -> None:
        wanted = self._wanted
        with self._parts.store.read() as transaction:
            end = transaction.log_end()
            if wanted.after_id is not None:
                check_seen(transaction, wanted.after, wanted.after_id)
            self._selector = wanted.selection.selector(transaction)
        if wanted.after > end:
            raise StoreCutError(
                f"the log ends at global position {end:,}, before {wanted.after:,}: it was cut or rolled back, or is "
                "another log",
                position=wanted.after,
                end=end,
            )
        self._until = end
        self._is_at_end = wanted.after == end
        self._begun = True

    def _accept(self, events: list[Recorded] | None) -> bool:
        self._is_at_end = self._is_at_end or events is None or self._reader.position >= self._until
        if events is None:
            return False
        if not self._wanted.follow:
            events = [event for event in events if event.global_position <= self._until]
        self._unselected = events
        return self._select()

    def _select(self) -> bool:
        events = self._unselected
        self._ready.extend(events if self._selector is None else self._selected(self._selector, events))
        self._unselected = ()
        return True

    def _selected(self, selector: Selector, events: Sequence[Recorded]) -> list[Recorded]:
        if not events:
            return []

        def select() -> list[Recorded]:
            with self._parts.store.read() as transaction:
                return [event for event in events if selector.has(transaction, event)]

        return read_again(select)

    def _wanted_piece(self, inbox: Inbox) -> LiveDelta | None:
        if self._selector is None:
            return inbox.take(self.position)
        call, is_wanted = self._call
        while (piece := inbox.take(self.position, call=call)) is not None:
            if is_wanted:
                return piece
        return None

    def _unknown_piece(self) -> LiveDelta | None:
        """Return the piece of a reply that comes next, where the log has to be asked whether it is wanted."""
        if self._inbox is None or self._selector is None:
            return None
        piece = self._inbox.next(self.position)
        return None if piece is None or piece.call == self._call[0] else piece

    def _look(self, piece: LiveDelta) -> bool:
        selector = self._selector

        def is_wanted() -> bool:
            with self._parts.store.read() as transaction:
                turn = transaction.event(piece.turn)
                return selector is None or (turn is not None and selector.has(transaction, turn))

        self._call = piece.call, read_again(is_wanted)
        return True


class Events(Generic[T_co]):
    """Events of a log in global order, for one thread: iterate over it.

    It holds nothing of the store between two events: a reader may take its time. A context manager, or `stop`, ends it;
    so does closing the log, with a `StoreClosedError`. Behind a `StoreLostError` the next event may be asked for again:
    none is missing then, and none comes twice.
    """

    def __init__(self, parts: Parts, wanted: Wanted) -> None:
        """Begin after a global position; see `TurnLog.events`."""
        self._latch = Latch()
        self._store = parts.store
        self._follow = wanted.follow
        self._following = Following(parts, wanted, self._latch.open)
        self._stopped = False

    @property
    def position(self) -> int:
        """The global position to go on from another time: all up to it was given, or is not wanted."""
        return self._following.position

    def stop(self) -> None:
        """End it, also while another thread waits for the next event."""
        self._stopped = True
        self._following.close()
        self._latch.open()

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> T_co:
        """Return the next event; wait for it if the log is followed.

        Raises:
            StopIteration: there are no more events, or it was stopped.
            StoreCutError: the log was cut or rolled back since it was read.
            StoreLostError: the server of the log is away, and has not come back in time.
            CorruptionError: a stored event is damaged, or, for who follows, one is missing.
            StoreClosedError: the log was closed, or was opened before this process was forked.
        """
        following = self._following
        while not self._stopped:
            if (item := following.take()) is not None:
                return cast("T_co", item)
            if following.read():
                continue
            if (item := following.take()) is not None:
                return cast("T_co", item)
            if not self._follow:
                break
            self._wait()
        raise StopIteration

    def _wait(self) -> None:
        watch = self._store.watch(self._following.read_to, self._latch.open, backwards=True)
        try:
            if not self._stopped and not self._following.is_due():
                self._latch.wait(None)
        finally:
            self._store.unwatch(watch)
        watch.result()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


class AsyncEvents(Generic[T_co]):
    """Events of a log in global order, for one task: iterate over it with `async for`. See `Events`.

    One that waits takes no thread.
    """

    def __init__(self, parts: Parts, wanted: Wanted, executors: Executors) -> None:
        """Begin after a global position; see `TurnLog.events`."""
        self._store = parts.store
        self._follow = wanted.follow
        self._executors = executors
        self._loop: asyncio.AbstractEventLoop | None = None
        self._more: asyncio.Event | None = None
        self._following = Following(parts, wanted, self._tell)
        self._reading: asyncio.Future[bool] | None = None
        """A read that is under way."""
        self._stopped = False

    @property
    def position(self) -> int:
        """The global position to go on from another time: all up to it was given, or is not wanted."""
        return self._following.position

    def stop(self) -> None:
        """End it, also while a task waits for the next event. May be called from any thread."""
        self._stopped = True
        self._following.close()
        self._tell()

    async def aclose(self) -> None:
        """End it."""
        self.stop()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> T_co:
        """Return the next event; wait for it if the log is followed. Raises what `Events` does.

        Where the wait is cancelled, as by a time limit, nothing is lost: the next one goes on.
        """
        following = self._following
        while not self._stopped:
            if self._reading is None and (item := following.take()) is not None:
                return cast("T_co", item)
            if await self._read():
                continue
            if (item := following.take()) is not None:
                return cast("T_co", item)
            if not self._follow:
                break
            await self._wait()
        raise StopAsyncIteration

    async def _read(self) -> bool:
        """Read on. A thread that reads for a task that was cancelled goes on, and whoever comes next awaits that."""
        reading = self._reading
        if reading is None:
            if self._following.read_kept():
                return True
            reading = self._reading = asyncio.ensure_future(self._executors.run_read(self._following.read))
            reading.add_done_callback(_noticed)
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading = None

    async def _wait(self) -> None:
        if self._more is None:
            self._loop, self._more = asyncio.get_running_loop(), asyncio.Event()
        self._more.clear()
        watching = Watching(self._store, self._following.read_to, self._tell, backwards=True)
        try:
            watch = await self._executors.run_read(watching.begin)
            if not self._stopped and not self._following.is_due():
                await self._more.wait()
        finally:
            watching.give_up()
        watch.result()

    def _tell(self) -> None:
        """Wake the task that waits, from any thread."""
        loop, more = self._loop, self._more
        if loop is not None and more is not None:
            with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                loop.call_soon_threadsafe(more.set)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


def _noticed(reading: asyncio.Future[bool]) -> None:
    """Look at how a read has ended, for nobody may come for it any more."""
    if not reading.cancelled():
        reading.exception()
