"""Which settings a run of an input takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from turnlog.agent import loop
from turnlog.agent.settings import RunSettings
from turnlog.errors import RunError
from turnlog.interop.gmi.naming import quoted

_SETTINGS = frozenset(RunSettings.__annotations__)
_SET_HERE = frozenset(inspect.signature(loop.arun).parameters) - _SETTINGS
"""What a run takes too, and has from the input and its turns."""


def check_settings(given: Iterable[str]) -> None:
    """Raise if one of these is no setting that a caller can give.

    Raises:
        RunError: names the first that is none.
    """
    for name in given:
        if name in _SET_HERE:
            raise RunError(f"{name!r} is not the caller's to set: the input and its turns say it (leave it out)")
        if name not in _SETTINGS:
            raise RunError(f"there is no setting {quoted(name)} (one of {', '.join(sorted(_SETTINGS))})")
