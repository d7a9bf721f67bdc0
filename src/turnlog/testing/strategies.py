"""Hypothesis strategies for what a log holds: JSON, options, content blocks."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from hypothesis import strategies as st

JSON_INT_MIN = -(1 << 63)
JSON_INT_MAX = (1 << 64) - 1


def texts(*, min_size: int = 0, max_size: int | None = 60) -> st.SearchStrategy[str]:
    """Return texts that can be UTF-8: of all characters but surrogates."""
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=min_size, max_size=max_size)


def json_values(*, keys: st.SearchStrategy[str] | None = None, max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Return values that JSON can have: numbers are finite, and integers fit into 64 bits."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(JSON_INT_MIN, JSON_INT_MAX)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts(max_size=20)
    )

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        names = texts(max_size=8) if keys is None else keys
        return st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4)

    return st.recursive(leaves, extend, max_leaves=max_leaves)


def json_objects(*, keys: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[dict[str, Any]]:
    """Return values that JSON has as objects."""
    return st.dictionaries(
        texts(max_size=8) if keys is None else keys, json_values(keys=keys, max_leaves=6), max_size=4
    )


def options() -> st.SearchStrategy[dict[str, Any]]:
    """Return inherited options, and patches of them: few names, so that patches meet what they patch; null unsets."""
    return json_objects(keys=st.sampled_from(["a", "b", "c", "deep", "ü", ""]))


def blocks(*, extra: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Return content blocks as JSON has them, keys in any order; with `extra`, also with keys unknown to turnlog."""
    source = st.fixed_dictionaries(
        {
            "type": st.just("base64"),
            "media_type": st.sampled_from(["image/png", "application/pdf", "text/plain"]),
            "data": st.binary(max_size=30).map(lambda data: b64encode(data).decode()),
        }
    )
    text = _block("text", {"text": texts()}, {}, extra=extra)
    document = _block("document", {"source": source}, {}, extra=extra)
    native = _block(
        "native", {"provider": texts(), "block": json_values()}, {"api": texts(), "model": texts()}, extra=extra
    )
    tool_use = _block("tool_use", {"name": texts(), "input": json_objects()}, {"id": texts()}, extra=extra)
    thinking = _block(
        "thinking",
        {"thinking": texts()},
        {"signature": texts(), "redacted": st.booleans(), "provider": texts(), "api": texts(), "model": texts()},
        extra=extra,
    )
    tool_result = _block(
        "tool_result",
        {},
        {
            "content": texts() | st.lists(text | document | native, max_size=3),
            "tool_use_id": texts(),
            "name": texts(),
            "is_error": st.booleans() | st.none(),
        },
        extra=extra,
    )
    return text | document | native | tool_use | thinking | tool_result


def contents(*, extra: bool = True) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return the content of a turn: a list of blocks as JSON has them."""
    return st.lists(blocks(extra=extra), max_size=4)


@st.composite
def json_texts(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> str:
    """Return values as JSON text, with whitespace and escapes as writers differ in them."""
    return json.dumps(
        draw(values),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 2, "\t", " \n"])),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", "\t:  ")])),
    )


@st.composite
def _block(
    draw: st.DrawFn,
    kind: str,
    required: dict[str, st.SearchStrategy[Any]],
    optional: dict[str, st.SearchStrategy[Any]],
    *,
    extra: bool,
) -> dict[str, Any]:
    block = {"type": kind} | draw(st.fixed_dictionaries(required, optional=optional))
    if extra:
        # Names that no block has, one of them the name of a key that providers do put there.
        names = st.sampled_from(["citations", "cache_control", "x", "ü"])
        block |= draw(st.dictionaries(names, json_values(max_leaves=4), max_size=2))
    return {name: block[name] for name in draw(st.permutations(sorted(block)))}
