"""A run as an iterator: `async for event in log.run_events(…)`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Self

from msgspec import Struct
from typing_extensions import TypeVar

from turnlog.agent.letting_go import carried, result_of
from turnlog.agent.run_checks import check_callback
from turnlog.errors import RunError, StoreClosedError

if TYPE_CHECKING:
    from turnlog.agent.events import RunEvent
    from turnlog.agent.result import RunResult
    from turnlog.model import Delta

P = ParamSpec("P")
T = TypeVar("T", default=None)

if TYPE_CHECKING:
    _Start = Callable[[Callable[[RunEvent], None], Callable[[Delta], None]], Coroutine[Any, Any, RunResult[T]]]


class ReplyPiece(Struct, frozen=True, kw_only=True):
    """A piece of a reply has come."""

    kind: ClassVar[str] = "delta"
    delta: Delta


class RunFinished(Struct, Generic[T], frozen=True, kw_only=True):
    """The run has ended. It is the last event."""

    kind: ClassVar[str] = "result"
    result: RunResult[T]


class RunEvents(Generic[T]):
    """The events of a run, which begins with the first one that is asked for. They are for one task.

    Whoever leaves the loop before the last one, inside `async with`, cancels the run: what had arrived is recorded
    then, as by any other cancellation. Without it the run is cancelled when nobody has these events any more: as long
    as they have a name, it goes on. `aclose` cancels it from anywhere, such as from the task of a stop button, and the
    loop ends.

    Whoever cancels the wait for an event cancels the run, and there are no more events: so `asyncio.timeout` around the
    loop is a limit of time, and `asyncio.wait_for` around one event is too. To do something while none comes, keep the
    wait: `asyncio.wait([task], timeout=5)` of a task that asks for the next event ends, and the task does not.

    Attributes:
        result: what the run came to, None as long as it has not ended.
    """

    def __init__(self, start: _Start[T]) -> None:
        """Take what starts the run: it is given who is told of events, and of pieces of replies."""
        self.result: RunResult[T] | None = None
        self._state = _State()
        self._events = _followed(start, self._state)
        self._is_asked = False

    def __aiter__(self) -> Self:
        """Return the events themselves."""
        return self

    async def __anext__(self) -> RunEvent | ReplyPiece | RunFinished[T]:
        """Return the next event.

        Raises:
            RunError: another task waits for the next event. The run goes on.
            TurnlogError: as for `TurnLog.run`.
        """
        if self._is_asked:
            raise RunError(
                "another task waits for the next event of this run: read its events in one task, and hand on what "
                "others need, or have them follow the log (log.events)"
            )
        self._is_asked = True
        try:
            event = await anext(self._events)
        finally:
            self._is_asked = False
        if isinstance(event, RunFinished):
            self.result = event.result
        return event

    async def __aenter__(self) -> Self:
        """Return the events themselves."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the run where it has not ended."""
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the run where it has not ended, and wait until what there was is recorded.

        It may be called from any task of the event loop, and more than once. Who waits for an event sees the loop end.

        Raises:
            RunError: the run is in another event loop. It goes on.
            TurnlogError: what there was could not be recorded.
        """
        run = self._state.run
        if run is not None and not run.done() and run.get_loop() is not asyncio.get_running_loop():
            raise RunError(
                "the run is in another event loop: close its events there, with "
                "`asyncio.run_coroutine_threadsafe(events.aclose(), loop)`"
            )
        self._state.closed = True
        if run is not None and not run.done():
            run.cancel()
            await asyncio.wait([run])
            if not run.cancelled():
                _result(run)
        if not self._is_asked:
            await self._events.aclose()


def as_events(
    function: Callable[P, Coroutine[Any, Any, RunResult[T]]],
) -> Callable[P, RunEvents[T]]:
    """Return a coroutine function that does a run as one that returns its events.

    Its callbacks `on_event` and `on_delta` are called as well.
    """

    def run_events(*args: P.args, **kwargs: P.kwargs) -> RunEvents[T]:
        given: dict[str, Any] = dict(kwargs)

        def start(
            on_event: Callable[[RunEvent], None], on_delta: Callable[[Delta], None]
        ) -> Coroutine[Any, Any, RunResult[T]]:
            for name in ("on_event", "on_delta"):
                check_callback(name, given.get(name), awaited=False)
            told = {
                "on_event": _both(given.get("on_event"), on_event),
                "on_delta": _both(given.get("on_delta"), on_delta),
            }
            untyped: Any = function
            return untyped(*args, **{**given, **told})

        return RunEvents(start)

    return run_events


def _both(first: Callable[[Any], object] | None, second: Callable[[Any], None]) -> Callable[[Any], object]:
    if first is None:
        return second

    def tell(event: Any) -> object:
        returned = first(event)
        second(event)
        return returned

    return tell


class _State:
    """What events and whoever closes them know of a run.

    Attributes:
        run: the run, None before the first event is asked for.
        closed: whether somebody ends it.
    """

    def __init__(self) -> None:
        self.run: asyncio.Future[Any] | None = None
        self.closed = False


async def _followed(start: _Start[T], state: _State) -> AsyncGenerator[RunEvent | ReplyPiece | RunFinished[T], None]:
    # No reference leads from here to the `RunEvents`: so it ends as soon as nobody has these any more.
    told: asyncio.Queue[RunEvent | ReplyPiece | None] = asyncio.Queue()

    def on_delta(delta: Delta) -> None:
        told.put_nowait(ReplyPiece(delta=delta))

    if state.closed:
        return
    state.run = run = asyncio.ensure_future(carried(_ended(start(told.put_nowait, on_delta))))
    run.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (event := await told.get()) is not None:
            yield event
        if not state.closed:
            yield RunFinished(result=_result(run))
    finally:
        if not run.done():
            run.cancel()
            await asyncio.wait([run])
            if not run.cancelled():
                _result(run)


async def _ended(run: Coroutine[Any, Any, RunResult[T]]) -> RunResult[T] | StoreClosedError:
    """Return the error of a run whose log was closed: who asks for no event more is not to be told of it."""
    try:
        return await run
    except StoreClosedError as error:
        return error


def _result(run: asyncio.Future[RunResult[T] | StoreClosedError]) -> RunResult[T]:
    """Return what a run came to, or raise what it has raised."""
    result = result_of(run)
    if isinstance(result, StoreClosedError):
        raise result
    return result
