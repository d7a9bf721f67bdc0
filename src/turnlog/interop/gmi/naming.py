"""Names that people give, as messages repeat them."""

from __future__ import annotations

NAME_CHARACTERS_MAX = 80
"""How long a name is repeated whole."""

_KEPT_CHARACTERS = 40


def quoted(name: str) -> str:
    """Return a name in quotes for a message; of a long one the beginning, and how long it is."""
    return repr(name) if len(name) <= NAME_CHARACTERS_MAX else f"{name[:_KEPT_CHARACTERS]!r}… ({len(name)} characters)"


def shortened(name: str) -> str:
    """Return a name as part of a place, such as `options.NAME`; of a long one the beginning."""
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:_KEPT_CHARACTERS]}…"
