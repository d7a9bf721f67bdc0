"""How deep JSON is nested, told without a stack of its own.

What a codec can read depends on how deep the stack of its caller is already. So there is a bound that leaves room for
any reader, and a way to read what is nested deeper: in layers, each of which is flat enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable

JSON_DEPTH_MAX = 500
"""So many arrays and objects stand in each other at most, inclusive, in content that is recorded, and in JSON that is
given to others: common parsers take about twice that."""

FIELD_DEPTH_MAX = JSON_DEPTH_MAX - 2
"""So many of them in what stands in a block: that is in a list."""

NESTED_FIELD_DEPTH_MAX = FIELD_DEPTH_MAX - 2
"""So many of them in what stands in a block within the result of a tool."""

_BRACKETS = re.compile(rb'[\[{]+|[\]}]+|"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""Brackets, and strings, in which brackets are none. A string without an end goes to the end of the text."""


def is_deeper(text: bytes, levels: int) -> bool:
    """Tell whether a JSON text has more than so many arrays and objects in each other. It takes no stack to tell."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text):
        start, end = found.span()  # and not what stands there, which may be a string of any size
        if text[start] in b"[{":
            depth += end - start
            if depth > levels:
                return True
        elif text[start] in b"]}":
            depth -= end - start
    return False


def in_layers(text: bytes, levels: int, mark: Callable[[bytes, memoryview], bytes]) -> bytes:
    """Return JSON that is nested no deeper than so many levels: something stands for what is nested deeper.

    What has no end is left out to the end, and so is no JSON.

    Args:
        text: JSON.
        levels: how deep a layer is nested at most, inclusive; at least 1.
        mark: called with each array or object that begins below the last level of a layer, inner ones first: as a
            layer itself, and as it stands in the text. Returns the JSON that stands for it.
    """
    whole = memoryview(text)
    layers: list[tuple[int, list[bytes | memoryview]]] = [(0, [])]
    depth = place = 0  # the depth in the layer, and up to where the text is in one
    for found in _BRACKETS.finditer(text):
        if text[found.start()] in b"[{":
            for start in range(found.start(), found.end()):
                if depth == levels:
                    layers[-1][1].append(whole[place:start])
                    layers.append((start, []))
                    depth, place = 0, start
                depth += 1
        elif text[found.start()] in b"]}":
            for end in range(found.start() + 1, found.end() + 1):
                depth -= 1
                if depth == 0 and len(layers) > 1:
                    start, parts = layers.pop()
                    layer = b"".join((*parts, whole[place:end]))
                    layers[-1][1].append(mark(layer, whole[start:end]))
                    depth, place = levels, end
    _, parts = layers[0]
    return b"".join(parts if len(layers) > 1 else (*parts, whole[place:]))
