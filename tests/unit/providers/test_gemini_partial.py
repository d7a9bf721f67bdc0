"""Calls whose arguments come in pieces: they are put together, or kept as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnlog.model import Block, Native, ToolUse
from turnlog.providers.gemini import Gemini


def call(name: str | None = None, *pieces: dict[str, Any], more: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a part: the beginning of a call, or a further piece of one."""
    said = {} if name is None else {"name": name}
    return {
        "functionCall": said
        | ({"partialArgs": [*pieces]} if pieces else {})
        | ({"willContinue": True} if more else {})
        | fields
    }


def at(path: str, value: Any, *, more: bool = False) -> dict[str, Any]:
    """Return a piece of the arguments."""
    kind = "boolValue" if isinstance(value, bool) else "stringValue" if isinstance(value, str) else "numberValue"
    piece = {"jsonPath": path, "nullValue" if value is None else kind: value}
    return piece | ({"willContinue": True} if more else {})


def blocks(*parts: dict[str, Any]) -> tuple[Block, ...]:
    """Return the blocks of a stream, a part an event."""
    events = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    return (
        Gemini()
        .aggregate([json.dumps(each).encode() for each in [*events, {"candidates": [{"finishReason": "STOP"}]}]])
        .content
    )


def arguments(*parts: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the calls of a stream: names and arguments."""
    found = blocks(*parts)
    assert all(isinstance(block, ToolUse) and "functionCall" not in block.extra for block in found)
    return [(block.name, json.loads(bytes(block.input))) for block in found if isinstance(block, ToolUse)]


def test_pieces_are_put_in_their_places() -> None:
    """Texts go on where the piece before says so; numbers, flags and nulls are whole."""
    assert arguments(
        call("cook"),
        call(None, at("$.name", "Lasa", more=True)),
        call(None, at("$.name", "gne", more=True)),
        call(None, at("$.name", "")),
        call(None, at("$.items[0].amount", 0.5), at("$.items[0].raw", True)),
        call(None, at("$.items[1]['odd.name']", None), at('$["a b"]', 7)),
        call(None, more=False),
    ) == [("cook", {"name": "Lasagne", "items": [{"amount": 0.5, "raw": True}, {"odd.name": None}], "a b": 7})]


def test_a_text_that_does_not_go_on_is_another_one() -> None:
    """Said twice, the later one counts."""
    assert arguments(call("f"), call(None, at("$.a", "x")), call(None, at("$.a", "y"), more=False)) == [
        ("f", {"a": "y"})
    ]


def test_a_call_ends_where_the_next_part_is_none_of_it() -> None:
    """Another call begins, or the reply ends, without a last piece."""
    parts = [call("f", at("$.a", "x")), call("g"), call(None, at("$.b", 1))]
    assert arguments(*parts) == [("f", {"a": "x"}), ("g", {"b": 1})]
    assert arguments(call("f", at("$.a", 1), more=False)) == [("f", {"a": 1})]


def test_arguments_that_came_whole_are_where_pieces_begin() -> None:
    """And id and signature of the first part are those of the call."""
    first = call("f", args={"a": 1}, id="f-1") | {"thoughtSignature": "c2ln"}
    [thinking, used] = blocks(first, call(None, at("$.b", 2), more=False))
    assert isinstance(used, ToolUse)
    assert (used.id, json.loads(bytes(used.input))) == ("f-1", {"a": 1, "b": 2})
    assert not isinstance(thinking, Native)


@pytest.mark.parametrize(
    "piece",
    [
        at("a", "x"),
        at("$", "x"),
        at("$[0]", "x"),
        at("$.a[*]", "x"),
        at("$..a", "x"),
        at("$.a[999999]", "x"),
        at("$.t.deeper", "x"),
        at("$.t[0]", "x"),
        {"jsonPath": 7},
        {"jsonPath": "$.a", "odd": 1},
    ],
)
def test_what_cannot_be_put_together_is_kept_as_it_came(piece: dict[str, Any]) -> None:
    """A native block for each part, verbatim."""
    parts = [call("f", at("$.t", "text")), call(None, piece), call(None, more=False)]
    found = blocks(*parts)
    assert all(isinstance(block, Native) for block in found)
    assert [json.loads(bytes(block.block)) for block in found if isinstance(block, Native)] == parts


def test_a_stream_that_is_cut_has_what_had_come() -> None:
    """At every part."""
    parts = [call("f"), call(None, at("$.a", "x", more=True)), call(None, at("$.a", "y")), call(None, more=False)]
    [begun] = blocks(*parts[:1])
    assert isinstance(begun, ToolUse)
    assert bytes(begun.input) == b"{}"
    assert [arguments(*parts[:end]) for end in range(2, 5)] == [
        [("f", {"a": "x"})],
        [("f", {"a": "xy"})],
        [("f", {"a": "xy"})],
    ]
