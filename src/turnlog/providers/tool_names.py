"""Which names of tools a wire takes, and what a recorded call is called whose name it does not take: one rule for all.

Tools that are offered keep their names, or are refused. A call that is in the thread already cannot be called otherwise
by anybody: its name is one that another provider takes, or that a model made up.
"""

from __future__ import annotations

import re
from hashlib import sha256

from msgspec import Struct

_UNNAMED = "unnamed"
_MARK_CHARACTERS = 8


class ToolNames(Struct, frozen=True, kw_only=True):
    """The names of tools that a wire takes.

    Attributes:
        characters_max: how long a name can be.
        pattern: the form of names, as a regular expression. It has `_` in any place.
        form: the same in words.
    """

    characters_max: int
    pattern: str = "[a-zA-Z0-9_-]+"
    form: str = "letters, digits, '_' and '-'"

    def take(self, name: str) -> bool:
        """Return whether the wire takes a name as it is."""
        return len(name) <= self.characters_max and re.fullmatch(self.pattern, name) is not None

    def made_from(self, name: str) -> str:
        """Return a name that the wire takes: the name itself, or one that depends on it alone.

        Characters that the wire does not take become `_`, and what is too long is cut. A mark of the name is behind it:
        names that would become one stay apart, from each other and from those of tools that are offered.
        """
        if self.take(name):
            return name
        kept = name[: self.characters_max]
        made = "".join(character if re.fullmatch(self.pattern, f"_{character}") else "_" for character in kept)
        if not re.fullmatch(self.pattern, made := made or _UNNAMED):
            made = f"_{made}"  # it takes the first character in other places alone
        mark = sha256(name.encode()).hexdigest()[:_MARK_CHARACTERS]
        return f"{made[: self.characters_max - _MARK_CHARACTERS - 1]}_{mark}"


ANY_NAME = ToolNames(characters_max=1 << 62, pattern="(?s:.+)", form="characters")
"""The names of a wire of which nobody knows which ones it takes: none is empty."""
