"""The JSON of a reply: as RFC 8259 has it, and nothing that Python takes beside."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from turnlog.errors import OutputError


def parsed(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        OutputError: it is no JSON, or has a number that is beyond what a float holds.
    """
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise OutputError(f"it is no JSON: {error}") from error


def unfenced(text: str) -> str:
    """Return what a text has in it that is one Markdown code block, of JSON or of nothing said; else the text."""
    first, _, rest = text.strip().partition("\n")
    if first.rstrip().lower() not in ("```", "```json") or not rest.endswith("```"):
        return text
    inner = rest[:-3].rstrip(" \t")
    return inner if inner.endswith("\n") else text


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
