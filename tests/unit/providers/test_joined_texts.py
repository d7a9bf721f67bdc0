"""Texts of one turn on wires that make one string of them: what stood between them may be left out."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from tests.unit.providers.carrying import OTHER, WIRE, call, carry, document, message, result

from turnlog.model import ContextWindow, Message
from turnlog.providers import Capabilities, get

JOINED = Capabilities(documents=("image/*",), joins_texts=True)
ZIP, CSV, PNG = document("application/zip"), document("text/csv"), document("image/png")
SEARCH = {"type": "native", "provider": "elsewhere", "block": {"type": "search"}}
THINKING = {"type": "thinking", "thinking": "hm"}
LINE = "[a document of type application/zip, 5 bytes, that cannot be shown here]"


def texts(*blocks: Any, role: str = "assistant", capabilities: Capabilities = JOINED) -> list[str]:
    """Return the texts that are carried of a message of another provider's."""
    [carried] = carry(message(role, *blocks, turn="t", **OTHER), capabilities=capabilities).messages
    return [block["text"] for block in carried["blocks"] if block["type"] == "text"]


def content(adapter: str, *messages: Message) -> list[Any]:
    """Return the contents, or the plans, of the messages that an adapter sends."""
    window = ContextWindow(messages=messages, options={})
    body = json.loads(get(adapter).prepare_request(window, model="m").body)
    return [one.get("content") or one["tool_plan"] for one in body["messages"]]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (("one", SEARCH, "two"), ["one\n\n", "two"]),
        (("one", THINKING, SEARCH, "two", "three"), ["one\n\n", "two", "three"]),
        (("one", ZIP, "two"), ["one\n\n", f"{LINE}\n\n", "two"]),
        (("one", "", SEARCH, "", "two"), ["one\n\n", "two"]),
        ((SEARCH, "one", "two", SEARCH), ["one", "two"]),
        (("one", "two"), ["one", "two"]),
        (("one", "", "two"), ["one", "two"]),
    ],
)
def test_texts_are_apart_where_something_between_them_is_left_out(blocks: tuple[Any, ...], expected: list[str]) -> None:
    """And only there: what a turn says in pieces is said as it was."""
    assert texts(*blocks) == expected


def test_a_call_that_is_carried_elsewhere_leaves_no_gap() -> None:
    """What is left out beside it does."""
    carried = [
        carry(message("assistant", *blocks, turn="t"), message("user", result("a")), capabilities=JOINED).messages[0]
        for blocks in (["one", call("a"), "two"], ["one", SEARCH, call("a"), "two"])
    ]
    assert [[block.get("text") for block in one["blocks"]] for one in carried] == [
        ["one", None, "two"],
        ["one\n\n", None, "two"],
    ]


def test_documents_that_are_carried_leave_no_gap() -> None:
    """Those whose text is their form on the wire stand apart from the others, though that is no loss."""
    assert texts("one", PNG, "two", CSV, "three", role="user") == ["one", "two\n\n", "hello\n\n", "three"]


def test_wires_that_keep_texts_apart_get_them_as_they_are() -> None:
    """Each is a block there."""
    assert not WIRE.joins_texts
    assert texts("one", SEARCH, "two", capabilities=WIRE) == ["one", "two"]


@pytest.mark.parametrize("adapter", ["openai_chat", "cerebras", "cohere"])
def test_a_search_of_another_provider_leaves_a_blank_line(adapter: str) -> None:
    """In what is said, in what is said beside calls, in results of tools, and in texts of any length."""
    long = "x" * 100_000
    results = [
        {"type": "text", "text": "seen"},
        ZIP,
        {"type": "text", "text": "all"},
    ]
    assert content(
        adapter,
        message("assistant", "I look.", SEARCH, "It is 42.", **OTHER),
        message("assistant", long, SEARCH, long, **OTHER),
        message("assistant", "I look", " and ask.", SEARCH, "Now.", call("a"), **OTHER),
        message("user", result("a", results), "thanks"),
    ) == ["I look.\n\nIt is 42.", f"{long}\n\n{long}", "I look and ask.\n\nNow.", f"seen\n\n{LINE}\n\nall", "thanks"]


def test_documents_that_go_as_text_stand_apart() -> None:
    """Nothing of them is lost, and none is a part of the text beside it."""
    first, second = (
        document("text/csv", b64encode(text).decode()) for text in (b"part,count\nbolt,400", b"part,count\nnut,380")
    )
    total = [{"type": "text", "text": "total: 4"}, document("text/csv", b64encode(b"2,3").decode())]
    assert content(
        "cohere",
        message("user", first, second, "Which is more?", turn="t"),
        message("assistant", "I look.", call("a")),
        message("user", result("a", total)),
    ) == ["part,count\nbolt,400\n\npart,count\nnut,380\n\nWhich is more?", "I look.", "total: 4\n\n2,3"]


def test_anything_but_texts_beside_them_keeps_them_in_parts() -> None:
    """The blank line is in the first one then."""
    [parts] = content("openai_chat", message("user", PNG, "one", ZIP, "two"))
    assert [part.get("text") for part in parts] == [None, "one\n\n", f"{LINE}\n\n", "two"]
