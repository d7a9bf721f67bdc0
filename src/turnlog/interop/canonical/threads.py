"""Plain functions beside an event loop, each in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

from turnlog.errors import RunError

_R = TypeVar("_R")


async def in_thread(function: Callable[[], _R], *, name: str) -> _R:
    """Return what a plain function returns, or raise what it raises.

    Whoever is cancelled while waiting leaves the function alone. Not even the end of the process waits for it.

    Args:
        function: the function.
        name: what it is called in the name of its thread.

    Raises:
        RunError: it raised what ends a thread, such as `SystemExit`.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Callable[[], _R]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: Callable[[], _R]) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        try:
            outcome: Callable[[], _R] = _returning(context.run(function))
        except BaseException as error:  # noqa: BLE001 - it is raised where the function is waited for
            outcome = _raising(error, name)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=f"turnlog {name}", daemon=True).start()
    return (await future)()


def _returning(value: _R) -> Callable[[], _R]:
    return lambda: value


def _raising(error: BaseException, name: str) -> Callable[[], NoReturn]:
    def raise_it() -> NoReturn:
        if isinstance(error, Exception):
            raise error
        raise RunError(f"{name} ended with {type(error).__name__}: {error}") from error

    return raise_it
