"""Inherited options: merged down the ancestry by JSON Merge Patch (RFC 7396).

Records recurse, scalars and lists replace, null unsets. False and the empty list are values, not absences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

JSONValue = Any
"""A value as JSON has it. Its type cannot be narrowed: users may inherit any record."""

Options = Mapping[str, JSONValue]
Sources = Mapping[str, Any]
"""Which turn set each option: the shape of the options, with turn ids for leaves."""


def merge_options(base: Options, patch: Options) -> dict[str, JSONValue]:
    """Return `base` patched by `patch`, by RFC 7396 §2. Neither is changed."""
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = merge_options(
                cast("Options", below) if isinstance(below, Mapping) else {}, cast("Options", value)
            )
        else:
            merged[name] = value
    return merged


def merge_sources(base: Sources, patch: Options, turn: str) -> dict[str, Any]:
    """Return who set each option after `turn` patched them, in the shape of the merged options.

    A record that is empty after the merge has the turn that emptied or set it.
    """
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            inner = merge_sources(
                cast("Sources", below) if isinstance(below, Mapping) else {}, cast("Options", value), turn
            )
            merged[name] = inner or turn
        else:
            merged[name] = turn
    return merged
