"""Ids of tool calls on a wire: their own where it takes them, else such as are made from them, each used once."""

from __future__ import annotations

import hashlib
import re

from turnlog.providers.carriage import Capabilities

_ANY = "(?s:.+)"
"""The form of the ids of an endpoint that may make them in any."""


class ToolIds:
    """The ids of one conversation's calls, in the order of the calls."""

    def __init__(self, capabilities: Capabilities) -> None:
        """Begin with none, for what a wire can carry."""
        self._pattern = capabilities.tool_id_pattern
        self._characters_max = capabilities.tool_id_characters_max
        self._own_fit = capabilities.own_tool_ids_fit
        self._count = 0
        self._used: dict[str, int] = {}
        """The ids used on the wire, each with the number of the last one that was made from it."""

    def add(self, given: str | None, *, returns: bool) -> tuple[str, str | None]:
        """Return the id of the next call on the wire, and why it is another one than its own, if it is.

        What the provider made itself it takes, however long, and in whatever form it makes them.

        Args:
            given: its own id, if it has one.
            returns: whether the call goes back to the provider that made it.
        """
        self._count += 1
        own = "" if given is None else given
        made = f"call_{self._count}"
        if self._pattern is None:
            return own or made, None
        pattern = self._pattern if self._own_fit or not returns else _ANY
        fits = re.fullmatch(pattern, own)
        longest = max(self._characters_max, len(own)) if returns and fits else self._characters_max
        mapped = own
        if not own:
            mapped = _in_form(made, pattern, longest)
        elif not fits or len(own) > longest:
            mark = hashlib.sha256(own.encode()).hexdigest()[:8]
            mapped = _in_form(f"{re.sub('[^a-zA-Z0-9]', '_', own)[: longest - 9]}_{mark}", pattern, longest)
        repeat = self._used.get(mapped, 0)
        unique = mapped
        while unique in self._used:
            repeat += 1
            unique = _in_form(f"{mapped[: longest - 1 - len(str(repeat))]}_{repeat}", pattern, longest)
        self._used |= {mapped: max(repeat, 1), unique: self._used.get(unique, 1)}
        if unique == own:
            return unique, None
        reason = "is used twice" if mapped == own else "is not in the form of the wire"
        return unique, f"{unique!r} for {own!r}, which {reason}" if own else f"{unique!r} for a call without an id"


def _in_form(made: str, pattern: str, characters_max: int) -> str:
    """Return an id that was made up if it is in a form, else digits of its SHA-256: a form may want one length."""
    return made if re.fullmatch(pattern, made) else hashlib.sha256(made.encode()).hexdigest()[:characters_max]
