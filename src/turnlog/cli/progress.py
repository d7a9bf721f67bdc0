"""A progress bar for long work: on standard error, and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from time import monotonic

_UPDATE_S = 0.05
"""The bar is told of progress no more often than that: some work reports each event."""


Move = Callable[[int, int], None]
"""Tells a bar how much is done, and of how much."""


@contextmanager
def progress_bar(what: str, *, at_once: bool = True) -> Generator[Move | None]:
    """Show a bar while the context lasts, and give the function that moves it; None where nobody would see it.

    Args:
        what: what is being done.
        at_once: show it before it is moved, too. Work of which mostly nothing is to be done has none until then.
    """
    if not sys.stderr.isatty():
        yield None
    elif at_once:
        with _bar(what) as move:
            yield move
    else:
        with ExitStack() as stack:
            shown: list[Move] = []

            def begin(done: int, total: int) -> None:
                if not shown:
                    shown.append(stack.enter_context(_bar(what)))
                shown[0](done, total)

            yield begin


@contextmanager
def _bar(what: str) -> Generator[Move]:
    # What a bar takes is imported where there is one: most commands are done before it could be seen.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        last = 0.0

        def move(done: int, total: int) -> None:
            nonlocal last
            now = monotonic()
            if now - last >= _UPDATE_S or done >= total:
                last = now
                bar.update(task, completed=done, total=total)

        yield move
