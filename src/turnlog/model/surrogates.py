"""Halves of surrogate pairs in JSON text, which are no Unicode: no codec takes one, and no UTF-8 has it."""

from __future__ import annotations

import re

HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape that is half of a pair, or looks like one."""

ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<first>u[dD][89abAB]..)|(?P<second>u[dD][c-fC-F]..)|.)", re.DOTALL
)
"""Escapes of strings. Two halves that follow each other are a character; one alone is `first` or `second`."""

REPLACEMENT = rb"\ufffd"


def without_halves(text: bytes | bytearray) -> bytes:
    """Return JSON text with U+FFFD for each half that is alone."""
    return ESCAPES.sub(lambda found: REPLACEMENT if found["first"] or found["second"] else found[0], text)
