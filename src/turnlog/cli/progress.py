"""A progress bar for long work: on standard error, and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_UPDATE_S = 0.05
"""The bar is told of progress no more often than that: some work reports each event."""


@contextmanager
def progress_bar(what: str) -> Generator[Callable[[int, int], None] | None]:
    """Show a bar while the context lasts, and give the function that moves it; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
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
