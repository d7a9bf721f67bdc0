"""What is marked for the prompt cache in requests of the Messages API."""

import json
from typing import Any

import pytest
from tests.unit.providers.anthropic.wire import (
    MODEL,
    anthropic,
    body,
    called,
    message,
    own,
    prepare,
    result,
)

from turnlog.model import ContextWindow, Message, content_bytes
from turnlog.model.chunked import Chunked
from turnlog.providers.anthropic.breakpoints import with_breakpoints

EPHEMERAL = {"type": "ephemeral"}


def marked(sent: dict[str, Any]) -> list[str]:
    """Return the texts of marked blocks."""
    return [
        found["text"]
        for given in sent["messages"]
        for found in given["content"]
        if found.get("cache_control") == EPHEMERAL
    ]


def test_only_the_last_four_cached_turns_are_marked() -> None:
    """The API takes four marks: earlier ones go."""
    sent = body(*(message("user", str(number), cache=number != 5) for number in range(7)))
    assert marked(sent) == ["2", "3", "4", "6"]


def test_a_cached_system_turn_takes_one_of_the_four_marks() -> None:
    """The system prompt is then a list of one block, and three turns are marked."""
    sent = body(message("system", "be brief", cache=True), *(message("user", str(n), cache=True) for n in range(5)))
    assert sent["system"] == [{"type": "text", "text": "be brief", "cache_control": EPHEMERAL}]
    assert marked(sent) == ["2", "3", "4"]


@pytest.mark.parametrize(("given", "expected"), [({"type": "ephemeral"}, ["3", "4"]), (None, ["2", "3", "4"])])
def test_cache_control_of_the_request_takes_one_of_the_four_marks(given: Any, expected: list[str]) -> None:
    """The API then marks the last block itself, and refuses a fifth mark."""
    turns = (message("user", str(number), cache=True) for number in range(5))
    sent = body(message("system", "be brief", cache=True), *turns, params={"cache_control": given})
    assert sent.get("cache_control") == given
    assert marked(sent) == expected


def test_a_cached_system_turn_without_text_takes_no_mark() -> None:
    """There is then no system prompt to mark."""
    sent = body(message("system", " ", cache=True), *(message("user", str(number), cache=True) for number in range(4)))
    assert "system" not in sent
    assert marked(sent) == ["0", "1", "2", "3"]


def test_native_blocks_are_marked_and_otherwise_verbatim() -> None:
    """The mark is added to the end of the block; its own keys keep their order and spelling."""
    native = {
        "type": "native",
        "provider": "anthropic",
        "block": {"type": "server_tool_use", "id": "s", "input": {"n": 1.0}},
    }
    request = prepare(own(native, cache=True))
    assert request.messages[0] == (
        b'{"role":"assistant","content":[{"type":"server_tool_use","id":"s","input":{"n":1.0},'
        b'"cache_control":{"type":"ephemeral"}}]}'
    )


def test_blocks_that_cannot_be_marked_are_passed_over() -> None:
    """Thinking cannot be marked: the last block before it is. A message of nothing else is passed over."""
    mixed = (
        b'{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"","signature":"s"}]}'
    )
    alone = b',{"role":"assistant","content":[{"type":"redacted_thinking","data":"d"}]}'
    (first, second), _ = with_breakpoints([mixed, alone], [0, 1], 1)
    assert json.loads(first)["content"][0]["cache_control"] == EPHEMERAL
    assert second == alone
    assert with_breakpoints([alone], [0], 4) == ([alone], [])


def test_a_mark_that_is_there_stays() -> None:
    """A block with a time to live of its own keeps it."""
    fragment = b'{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]}'
    assert with_breakpoints([fragment], [0], 4) == ([fragment], [])


def test_marks_that_blocks_have_count_too() -> None:
    """Those of the last blocks stay, wherever they are; each that goes is told with its turn."""

    def said(text: str) -> dict[str, Any]:
        return {"type": "text", "text": text, "cache_control": EPHEMERAL}

    answer = result([said("c"), said("d")], cache_control=EPHEMERAL)
    turns = [own(said("a"), said("b"), called()), own(answer) | {"role": "user"}, message("user", "e", cache=True)]
    request = prepare(*turns, params={"max_tokens": 9})
    first, second, third = (given["content"] for given in json.loads(request.body)["messages"])
    assert [block.get("cache_control") for block in first] == [None] * 3
    assert [block.get("cache_control") for block in second[0]["content"]] == [EPHEMERAL] * 2
    assert (second[0]["cache_control"], third[0]["cache_control"]) == (EPHEMERAL, EPHEMERAL)
    assert [(loss.kind, loss.block, loss.turn) for loss in request.loss_report.entries] == [
        ("dropped", "cache_control", "messages[0]")
    ] * 2
    assert request.loss_report.entries[0].why == "cache_control: the request has more than 4, and the last ones count"


def test_what_only_looks_like_a_mark_is_none() -> None:
    """A key of a tool's arguments, and one that is null: messages without a mark are the very same."""
    given = own(called(input={"cache_control": "no"}), {"type": "text", "text": "a", "cache_control": None})
    request = prepare(*[given] * 5, message("user", "hi", cache=True))
    assert request.body.count(b'"cache_control":{') == 1
    assert not [loss for loss in request.loss_report.entries if loss.block == "cache_control"]


def test_marks_are_laid_over_the_messages() -> None:
    """The marked messages are a sequence like the others, and the unmarked ones in it are the very same objects."""
    fragments = Chunked(
        [b'%s{"role":"user","content":[{"type":"text","text":"%d"}]}' % (b"," * (n > 0), n) for n in range(9)]
    )
    found, _ = with_breakpoints(fragments, [2, 8], 4)
    listed = list(found)
    assert [b"cache_control" in fragment for fragment in listed] == [n in (2, 8) for n in range(9)]
    assert all(listed[n] is fragments[n] for n in range(9) if n not in (2, 8))
    assert [found[n] for n in range(-9, 9)] == listed + listed
    assert (len(found), found[1:3], found == listed, found == fragments) == (9, tuple(listed[1:3]), True, False)
    assert hash(found) == hash(tuple(listed))
    assert (found == 9, repr(found)) == (False, repr(tuple(listed)))
    with pytest.raises(IndexError):
        found[9]


def test_marks_move_and_the_rest_stays() -> None:
    """In a longer conversation the marks stand elsewhere; what is not marked in either has the same bytes."""
    turns = [Message(turn=str(n), role="user", content_json=content_bytes(str(n)), cache=True) for n in range(300)]
    before, after = (
        anthropic().prepare_request(ContextWindow(messages=Chunked(turns[:count]), options={}), model=MODEL).messages
        for count in (299, 300)
    )
    different = [n for n in range(299) if before[n] != after[n]]
    assert different == [295]
    assert [n for n in range(300) if b"cache_control" in after[n]] == [296, 297, 298, 299]
