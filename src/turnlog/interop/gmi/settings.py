"""Which settings a run of an input takes."""

from __future__ import annotations

import inspect

from turnlog.agent import loop
from turnlog.agent.settings import RunSettings
from turnlog.errors import RunError
from turnlog.interop.gmi.naming import quoted

_SETTINGS = frozenset(RunSettings.__annotations__)
_SET_HERE = frozenset(inspect.signature(loop.arun).parameters) - _SETTINGS
"""What a run takes too, and has from the input and its turns."""


def check_settings(given: RunSettings) -> None:
    """Raise if one of these is no setting that a caller can give.

    Raises:
        RunError: names the first that is none.
    """
    for name in given:
        if name in _SET_HERE:
            raise _set_here(name)
        if name not in _SETTINGS:
            raise RunError(f"there is no setting {quoted(name)} (one of {', '.join(sorted(_SETTINGS))})")
    policy, ask = given.get("policy"), given.get("ask")
    if policy is not None and policy.offer is not None:
        raise _set_here("policy.offer")
    if ask is not None and ask.tool_choice is not None:
        raise _set_here("ask.tool_choice")


def _set_here(name: str) -> RunError:
    return RunError(f"{name!r} is not the caller's to set: the input and its turns say it (leave it out)")
