"""The beginning of a payload that is too large to be read for one line of it."""

from __future__ import annotations

import re

from msgspec.structs import replace

from turnlog.errors import ContentError
from turnlog.model import Block, Document, ToolResult, decode_content

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""A string, of which the end may be missing, or a bracket."""

_CLOSING = {b"[": b"]", b"{": b"}"}

_ESCAPE_BYTES_MAX = 12
"""How long what stands for one character can be: two escapes, each of a surrogate."""


def blocks_at_start(start: bytes) -> list[Block]:
    """Return the content blocks that the beginning of a payload has; of the last one perhaps the beginning alone.

    A document that is cut is left out, and so is a block that cannot be read without its end.
    """
    open_brackets: list[bytes] = []
    whole, token = 0, b""
    for found in _TOKEN.finditer(start):
        token = found[0]
        if token in _CLOSING:
            open_brackets.append(_CLOSING[token])
        elif token in (b"]", b"}") and open_brackets:
            open_brackets.pop()
            whole = found.end() if len(open_brackets) == 1 else whole
    if _is_cut(token):
        end = b'"' + b"".join(reversed(open_brackets))
        for missing in range(_ESCAPE_BYTES_MAX):
            try:
                return _without_document(decode_content(start[: len(start) - missing] + end))
            except (ContentError, UnicodeDecodeError):
                continue
    return decode_content(start[:whole] + b"]") if whole else []


def _is_cut(token: bytes) -> bool:
    """Tell whether a token is a string without its end. An escaped quotation mark is none."""
    return token.startswith(b'"') and _WHOLE.fullmatch(token) is None


_WHOLE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def _without_document(blocks: list[Block]) -> list[Block]:
    match blocks:
        case [*before, Document()]:
            return before
        case [*before, ToolResult(content=[*nested, Document()]) as result]:
            return [*before, replace(result, content=nested)]
        case _:
            return blocks
