"""Calls whose arguments come in pieces: they are put together, or kept as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.gemini.wire import event

from turnlog.model import Block, Delta, Native, ToolUse
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


def read(*parts: dict[str, Any], whole: bool = False) -> tuple[list[Delta], tuple[Block, ...]]:
    """Return the deltas and the blocks of a reply, a part an event or all in one."""
    reader = Gemini().reader()
    events = [event(*parts, finish="STOP")] if whole else [*(event(part) for part in parts), event(finish="STOP")]
    shown = [delta for one in events for delta in reader.add(one)]
    return shown, reader.response().content


def blocks(*parts: dict[str, Any]) -> tuple[Block, ...]:
    """Return the blocks of a reply, which are the same whole or streamed."""
    shown, found = read(*parts)
    assert read(*parts, whole=True) == (shown, found)
    return found


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


def test_a_call_is_shown_when_it_begins_and_its_arguments_when_it_ends() -> None:
    """By a last piece, or by what comes next."""
    parts = [call("f"), call(None, at("$.a", 1)), call(None, more=False), call("g"), call(None, at("$.b", 2))]
    shown, _ = read(*parts, {"text": "x"})
    assert shown == [
        Delta(type="tool_use", name="f"),
        Delta(content=Raw(b'{"a":1}')),
        Delta(type="tool_use", name="g"),
        Delta(content=Raw(b'{"b":2}')),
        Delta(type="text", content="x"),
    ]


def test_a_part_that_is_no_call_ends_the_call() -> None:
    """It is kept as it came."""
    odd = {"functionCall": 7}
    [used, kept] = blocks(call("f", at("$.a", 1)), odd)
    assert isinstance(used, ToolUse)
    assert isinstance(kept, Native)
    assert (bytes(used.input), json.loads(bytes(kept.block))) == (b'{"a":1}', odd)


def test_a_part_that_is_more_than_a_piece_is_a_call_of_its_own() -> None:
    """One that has no name. So is a piece that no call is open for."""
    signed = call(None, at("$.b", 1)) | {"thoughtSignature": "c2ln"}
    found = blocks(call("f", at("$.a", 1)), signed)
    assert [(block.name, bytes(block.input)) for block in found if isinstance(block, ToolUse)] == [
        ("f", b'{"a":1}'),
        ("", b'{"b":1}'),
    ]
    assert arguments(call(None, at("$.b", 1)), call(None, at("$.c", 2))) == [("", {"b": 1, "c": 2})]
