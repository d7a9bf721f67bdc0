"""Variables in texts of a server's registration: `${NAME}`, and `${NAME:-default}` for one that may be missing."""

from __future__ import annotations

import re
from collections.abc import Callable

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}", re.ASCII)


def expanded(text: str, look_up: Callable[[str], str | None]) -> str:
    """Return a text with values in place of its variables.

    What a value has in it is not expanded again. A default stands for a variable that is empty too, as in a shell.

    Args:
        text: the text.
        look_up: returns the value of a variable, None where it has none.

    Raises:
        KeyError: a variable without a default has no value; the argument is its name.
    """

    def value_of(found: re.Match[str]) -> str:
        value, default = look_up(found["name"]), found["default"]
        if default is not None:
            return value or default
        if value is None:
            raise KeyError(found["name"])
        return value

    return _REFERENCE.sub(value_of, text)


def filled(text: str, value: str) -> str:
    """Return a text with one value in place of all its variables."""
    return _REFERENCE.sub(value, text)


def variables_in(text: str) -> list[str]:
    """Return the names of the variables of a text, each once, in their order."""
    return list(dict.fromkeys(found["name"] for found in _REFERENCE.finditer(text)))


def defaults_in(text: str) -> list[tuple[str, str]]:
    """Return the variables of a text that have a default, each with that."""
    return [(found["name"], found["default"]) for found in _REFERENCE.finditer(text) if found["default"]]


def only_variable(text: str) -> str | None:
    """Return the name of the variable that a text is, None where it is anything else or has a default."""
    found = _REFERENCE.fullmatch(text)
    return None if found is None or found["default"] is not None else found["name"]


def with_references(text: str, rewritten: Callable[[str], str]) -> str:
    """Return a text with each of its `${…}` rewritten: `rewritten` is given what stands between the braces."""
    return re.sub(r"\$\{([^{}]*)\}", lambda found: rewritten(found[1]), text)
