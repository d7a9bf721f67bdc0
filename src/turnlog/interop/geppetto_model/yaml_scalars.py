"""What a plain word of YAML is, as Go's yaml.v3 has it, which is what Geppetto reads and writes with.

Numbers are those of YAML 1.2, and the binary and octal ones of 1.1 too: `resolve` in resolve.go of yaml.v3. What 1.1
alone has as a flag, a date or a number, such as `yes` or `1:30`, is text.
"""

from __future__ import annotations

import math
import re

from turnlog.interop.geppetto_model.numbers import number

_OCTAL = re.compile(r"([-+]?)0([0-7]+)\Z")
_NO_NUMBERS = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Form:
    """What the words of a kind look like."""

    def __init__(self, pattern: str, *, underscores: bool = False) -> None:
        """Make the form.

        Args:
            pattern: a regular expression for all of a word.
            underscores: whether there may be underscores anywhere behind its first character, as in numbers that begin
                with a digit or a sign.
        """
        self._pattern = re.compile(rf"(?:{pattern})\Z")
        self._underscores = underscores

    def match(self, word: str) -> re.Match[str] | None:
        """Return a match where a word is of this kind."""
        return self._pattern.match(_without_underscores(word) if self._underscores else word)


FORMS = {
    "tag:yaml.org,2002:null": (Form("~|null|Null|NULL|"), ["~", "n", "N", ""]),
    "tag:yaml.org,2002:bool": (Form("true|True|TRUE|false|False|FALSE"), [*"tTfF"]),
    "tag:yaml.org,2002:int": (
        Form("[-+]?(?:0[bB][01]+|0[oO]?[0-7]+|0[xX][0-9a-fA-F]+|[1-9][0-9]*|0)", underscores=True),
        [*"-+0123456789"],
    ),
    "tag:yaml.org,2002:float": (
        Form(
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
            underscores=True,
        ),
        [*"-+.0123456789"],
    ),
}
"""By tag what its words look like, and the characters that they begin with. A word is of the first kind it fits."""


def integer_of(word: str) -> int:
    """Return the integer of a word.

    Raises:
        ValueError: it is none.
    """
    plain = _without_underscores(word)
    octal = _OCTAL.match(plain)
    return int(plain, 0) if octal is None else int(octal[1] + octal[2], 8)


def number_of(word: str) -> float | str:
    """Return the number of a word; one that is too large for a float is text, as in Go.

    Raises:
        ValueError: it is none.
    """
    plain = _without_underscores(word)
    named = _NO_NUMBERS.get(plain.lower().replace(".", "", 1))
    if named is not None:
        return named
    value = number(plain)
    return word if math.isinf(value) else value


def _without_underscores(word: str) -> str:
    return word if word.startswith(".") else word[:1] + word[1:].replace("_", "")
