"""The key of a provider as a redaction hook: found wherever it stands, also as JSON spells it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from turnlog.record.findings import Found, Place
from turnlog.record.strings import as_read

API_KEY = "api-key"
"""What is counted where a reply repeats the key that its call was sent with."""

_SHORT_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""RFC 8259 §7: `\\/` is how servers in PHP spell a slash."""

_DIGITS = {digit: f"[{digit}{digit.upper()}]" for digit in "abcdef"}
"""Classes, because a pattern that ignores case is searched for several times as slowly."""

_ESCAPE_CHARACTERS_MAX = 12
"""A character beyond U+FFFF is spelled as two escapes."""


class KeyHook:
    """Finds a key as it is and as a JSON text spells it, which may be in a text."""

    def __init__(self, key: str) -> None:
        """Take the key, which is not empty."""
        self._key = key.encode()
        self._escape, self._form = _patterns(key)
        self.reach = _ESCAPE_CHARACTERS_MAX * len(key)

    def is_in(self, text: bytes) -> bool:
        """Tell whether there is something to find in a text, or in the strings of one that is JSON.

        Only where an escape stands for one of the key's characters, which is rare, there are strings to decode.
        """
        if self._key in text:
            return True
        return self._escape.search(text) is not None and self._form.search(as_read(text)) is not None

    def __call__(self, text: str, _: Place) -> Iterable[Found]:
        """Find the key."""
        for found in self._form.finditer(text):
            yield Found(start=found.start(), end=found.end(), kind=API_KEY)


@lru_cache(maxsize=8)  # a process has few keys, and asks with each many times
def _patterns(key: str) -> tuple[re.Pattern[bytes], re.Pattern[str]]:
    """Return what finds escapes of the characters of a key, and what finds the key."""
    escapes = sorted({escape for character in key for escape in _escapes(character)})
    spelled = "".join(map(_spellings, key))
    # The spelled one first: of a key that ends with a backslash it has two, and half of them would escape what follows.
    return re.compile("|".join(escapes).encode()), re.compile(f"{spelled}|{re.escape(key)}")


def _escapes(character: str) -> list[str]:
    """Return patterns of the escapes that a JSON text may have for a character."""
    units = character.encode("utf-16-be").hex(" ", 2).split()
    long = "".join(r"\\u" + "".join(_DIGITS.get(digit, digit) for digit in unit) for unit in units)
    short = _SHORT_ESCAPES.get(character)
    return [long] if short is None else [long, re.escape(f"\\{short}")]


def _spellings(character: str) -> str:
    """Return a pattern of all that stands for a character in a JSON text."""
    as_it_is = [] if character in '"\\' or character < " " else [re.escape(character)]
    return f"(?:{'|'.join((*as_it_is, *_escapes(character)))})"
