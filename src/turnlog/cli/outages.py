"""Waiting for a server that is away, for commands that follow a log until they are interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from turnlog.cli.output import note
from turnlog.cli.text import one_line
from turnlog.errors import StoreLostError

T = TypeVar("T")


def waited_for(step: Callable[[], T]) -> T:
    """Return what a step returns, done again for as long as the server of the log is away; say that once."""
    is_told = False
    while True:
        try:
            return step()
        except StoreLostError as error:
            if not is_told:
                note(f"{one_line(str(error))}; it is waited for")
            is_told = True


def at_once(step: Callable[[], T]) -> T:
    """Return what a step returns."""
    return step()
