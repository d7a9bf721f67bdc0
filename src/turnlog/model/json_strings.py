"""The strings in JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import msgspec
from msgspec import Raw

from turnlog.model.json_text import UNREADABLE


def json_strings(text: bytes | Raw, *, without: Collection[str] = ()) -> Iterator[str]:
    """Iterate over all strings in JSON, in its order; over none in what is no JSON.

    Args:
        text: JSON text.
        without: names of fields whose values are left out.
    """
    try:
        waiting: list[Any] = [msgspec.json.decode(text)]
    except UNREADABLE:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting.extend(reversed(cast("list[Any]", value)))
        elif isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            waiting.extend(reversed([inner for name, inner in fields.items() if name not in without]))
