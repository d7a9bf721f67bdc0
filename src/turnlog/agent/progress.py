"""How far a tool call has come: tools say so, and the run tells whoever follows it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from numbers import Real

from msgspec import Struct

from turnlog.agent.run_checks import check_kind
from turnlog.errors import RunError


class Progress(Struct, frozen=True, kw_only=True):
    """How far a tool call has come. It is told and not recorded.

    Attributes:
        done: how much is done, in a unit of the tool's own.
        total: how much there is to do, None where that is not known.
        message: what is being done.
    """

    done: float
    total: float | None = None
    message: str = ""


OnProgress = Callable[[Progress], None]

_on_progress: ContextVar[OnProgress | None] = ContextVar("on_progress", default=None)


def report_progress(done: float, total: float | None = None, message: str = "") -> None:
    """Say how far the tool call has come that this code runs in. Elsewhere it does nothing.

    It may be called from the thread that a function runs in. What comes after the end of the call is told to nobody.

    Args:
        done: how much is done, in any unit.
        total: how much there is to do.
        message: what is being done.

    Raises:
        RunError: one of them is of another type.
    """
    check_kind("message", message, str, "str")
    progress = Progress(
        done=_number("done", done), total=None if total is None else _number("total", total), message=message
    )
    tell = progress_listener()
    if tell is not None:
        tell(progress)


def _number(name: str, value: object) -> float:
    """Return a number as one of Python's own: that of another library may be no JSON."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RunError(f"{name}: expected a number, got {type(value).__name__}")
    return value if isinstance(value, int) else float(value)


def progress_listener() -> OnProgress | None:
    """Return what is told of the progress of the tool call that this code runs in; None elsewhere."""
    return _on_progress.get()


@contextmanager
def progress_told(tell: OnProgress) -> Generator[None]:
    """Have what is reported inside told to `tell`, in the thread of the event loop that this is entered in.

    Raises:
        BaseException: what `tell` raised, at the end.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    failures: list[BaseException] = []
    is_over = False

    def deliver(progress: Progress) -> None:
        if is_over or failures:
            return
        try:
            tell(progress)
        except BaseException as error:  # noqa: BLE001 - the tool is not to blame for it
            failures.append(error)

    def hear(progress: Progress) -> None:
        if threading.get_ident() == thread:
            deliver(progress)
            return
        with suppress(RuntimeError):  # the event loop is closed: nobody listens any more
            loop.call_soon_threadsafe(deliver, progress)

    token = _on_progress.set(hear)
    try:
        yield
    finally:
        is_over = True
        with suppress(ValueError):  # a call that nobody awaits any more is ended in another context
            _on_progress.reset(token)
        if failures:
            raise failures[0]
