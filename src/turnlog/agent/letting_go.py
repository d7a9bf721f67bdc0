"""Tools, middleware and callbacks that do not let themselves be ended, or that end everything: a run stays in order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from turnlog.errors import RunError
from turnlog.store.telling import logger

_log = logger("turnlog.runs")

T = TypeVar("T")

GRACE_S = 1.5
"""How long a tool has to end when it was cancelled, in seconds: as long as the program of a server."""

_POLL_S = 0.05

ENDING = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""What ends whatever awaits it; of all else that a tool raises the model is told. So it is of a GeneratorExit that no
closing has thrown, once its task has ended: see `result_of`."""

LEAVING = (SystemExit, KeyboardInterrupt)
"""What leaves the event loop at once, from whatever task raises it: all other tasks stay where they are."""

_left: set[asyncio.Future[Any]] = set()
"""Tasks that go on; kept, for tasks that nobody has may end before they do."""


class CarriedError(Exception):
    """Carry out of a task what would leave the event loop there. It never leaves turnlog."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def carried(work: Awaitable[T]) -> T:
    """Await work in a task of its own; what would leave the event loop there is for who awaits that: see `result_of`.

    So a run that it ends can still record what there was. It leaves the event loop with the run.
    """
    try:
        return await work
    except LEAVING as error:
        raise CarriedError(error) from None


def result_of(task: asyncio.Future[T]) -> T:
    """Return the result of a task that has ended, or raise what it has raised, also what it has `carried`.

    Raises:
        RunError: it has raised GeneratorExit. Raised here, that would say that who awaits this is being closed.
    """
    try:
        return task.result()
    except CarriedError as carrying:
        raise carrying.error from None
    except GeneratorExit as error:
        raise RunError("GeneratorExit was raised where nothing is being closed") from error


def cancellations() -> int:
    """Return how often this task was cancelled, also where something in it has passed over that."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def check_cancelled(before: int) -> None:
    """Let a cancellation of this task come through that waits, or that something in it has passed over.

    Args:
        before: how often it had been cancelled before that: see `cancellations`.

    Raises:
        CancelledError: it was cancelled since.
    """
    await asyncio.sleep(0)  # who cancels again and again, as anyio does, is to see the cancellation as its own
    if cancellations() > before:
        raise asyncio.CancelledError


@contextmanager
def cancelled_from_without(who: str) -> Generator[None]:
    """Let a cancellation of this task come through, and none that is but said: in a group of tasks that ends it.

    Args:
        who: who may say so in here.

    Raises:
        RunError: it was raised in a run that goes on.
    """
    before = cancellations()
    try:
        yield
    except asyncio.CancelledError as error:
        if cancellations() > before:
            raise
        raise RunError(f"{who} raised CancelledError in a run that goes on") from error


async def answer_of(who: str, ask: Callable[[], T | Awaitable[T]]) -> T:
    """Return what somebody says who is asked, awaited where that is to be awaited.

    Args:
        who: the name of the callback.
        ask: calls it.

    Raises:
        CancelledError: the run was cancelled meanwhile, also where who was asked has passed over that.
        RunError: who was asked says so in a run that goes on.
    """

    def leave() -> None:
        _log.warning("%s goes on %g s after it was cancelled: it is left", who, GRACE_S)

    before = cancellations()
    with cancelled_from_without(who):
        answer = ask()
        said = await ended_or_left(answer, leave) if inspect.isawaitable(answer) else answer
    await check_cancelled(before)  # who was asked may have cancelled the run instead
    return said


def cancel_as(task: asyncio.Future[Any], cancelled: asyncio.CancelledError) -> None:
    """Cancel a task with the message of a cancellation that came: anyio knows its own by that."""
    task.cancel(*cancelled.args[:1])


async def ended_or_left(
    work: Awaitable[T], on_left: Callable[[], None], *, is_busy: Callable[[], bool] = lambda: False
) -> T:
    """Await work in a task of its own, and pass a cancellation on to it; it has `GRACE_S` seconds to end then.

    What it comes to when it is cancelled is what this comes to, a result too. Work that goes on is left alone, for as
    long as the event loop goes on, which does not wait for it when it is closed.

    Args:
        work: the work.
        on_left: called where it is left at work.
        is_busy: tells whether it waits for something that ends by itself: its own time begins behind that.

    Raises:
        CancelledError: it was cancelled, from here or from within, or is left at work.
    """
    task = work if asyncio.isfuture(work) else asyncio.ensure_future(carried(work))
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError as cancelled:
        if not await ends(task, is_busy, cancelled):
            _leave(task)
            on_left()
            raise
    return result_of(task)


async def ends(
    task: asyncio.Future[Any], is_busy: Callable[[], bool], cancelled: asyncio.CancelledError | None = None
) -> bool:
    """Cancel a task, again with each further cancellation of this one, and tell whether it ends.

    That this one was cancelled meanwhile is for the caller to ask: see `cancellations`.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + GRACE_S
    cancel_as(task, cancelled or asyncio.CancelledError())
    while not task.done():
        if is_busy():
            until_s = loop.time() + GRACE_S
        if (left_s := until_s - loop.time()) <= 0:
            break
        try:
            await asyncio.wait([task], timeout=min(left_s, _POLL_S))
        except asyncio.CancelledError as again:
            cancel_as(task, again)
    return task.done()


def _leave(task: asyncio.Future[Any]) -> None:
    _left.add(task)
    task.add_done_callback(_forget)
    # `asyncio.run` waits for all tasks that it knows of, without a bound. A task with a life of its own may be unknown
    # to it (asyncio's documentation, "Extending").
    if isinstance(task, asyncio.Task):
        asyncio._unregister_task(task)


def _forget(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio prints it: who waited for it was told that it is not known
