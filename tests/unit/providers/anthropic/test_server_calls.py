"""Calls of server tools on their way back: the API refuses one without its result, but while its turn goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.providers.carrying import call, message, result

from turnlog.model import ContextWindow, Message
from turnlog.model.chunked import Chunked
from turnlog.providers import get

OWN = {"provider": "anthropic", "api": "messages", "model": "claude-9"}
OTHER = {"provider": "openai", "api": "responses", "model": "gpt-9"}
KINDS = [
    ("server_tool_use", "web_search_tool_result"),
    ("server_tool_use", "bash_code_execution_tool_result"),
    ("mcp_tool_use", "mcp_tool_result"),
    ("later_tool_use", "later_tool_result"),
]


def native(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block of Claude's that has no form of turnlog's."""
    return {"type": "native", **OWN, "block": block}


def searches(id: str = "s1", type: str = "server_tool_use") -> dict[str, Any]:
    """Return the call of a server tool."""
    return native({"type": type, "id": id, "name": "web_search", "input": {}})


def found(id: str = "s1", type: str = "web_search_tool_result") -> dict[str, Any]:
    """Return the result of one."""
    return native({"type": type, "tool_use_id": id, "content": []})


def says(*blocks: dict[str, Any] | str, turn: str = "reply") -> Message:
    """Return a message of Claude's."""
    return message("assistant", *blocks, turn=turn, **OWN)


def sent(*messages: Message) -> tuple[list[list[str]], list[str]]:
    """Return the types of the blocks that Claude is sent, message by message, and what is lost.

    Nothing of it may be refused, and an adapter that has sent the shorter threads sends the same.
    """
    warm, fresh = get("anthropic"), get("anthropic")
    source: Chunked[Message] = Chunked()
    for one in messages:
        source = source.extended([one])
        grown = warm.prepare_request(ContextWindow(messages=source, options={}), model="claude-9", on_loss="error")
    request = fresh.prepare_request(ContextWindow(messages=messages, options={}), model="claude-9", on_loss="error")
    assert (grown.body, grown.loss_report) == (request.body, request.loss_report)
    losses = [f"{loss.kind} {loss.block} {loss.turn} {loss.index}" for loss in request.loss_report.entries]
    return [[block["type"] for block in one["content"]] for one in json.loads(request.body)["messages"]], losses


@pytest.mark.parametrize(("called", "answered"), KINDS)
def test_a_call_that_another_message_follows_is_left_out(called: str, answered: str) -> None:
    """A reply that was cut off, or has paused and is not gone on with. With its result it stays, whatever comes."""
    cut = says("let me see", searches(type=called))
    whole = says("let me see", searches(type=called), found(type=answered), "so it is")
    assert sent(cut, message("user", "never mind")) == ([["text"], ["text"]], ["dropped native reply 1"])
    assert sent(whole, message("user", "thanks")) == ([["text", called, answered, "text"], ["text"]], [])


def test_a_paused_turn_goes_back_as_it_is() -> None:
    """The API goes on with it; the result may come in the reply that does, which is a turn of its own here."""
    paused = says("let me see", searches())
    assert sent(paused) == ([["text", "server_tool_use"]], [])
    assert sent(message("user", "go"), paused, says(found(), "so it is", turn="more"), message("user", "thanks")) == (
        [["text"], ["text", "server_tool_use"], ["web_search_tool_result", "text"], ["text"]],
        [],
    )


def test_a_system_turn_behind_a_paused_one_ends_it_not() -> None:
    """It stands at the top of the request."""
    assert sent(says(searches()), message("system", "Be brief.")) == ([["server_tool_use"]], [])


def test_a_call_beside_calls_of_ours_waits_for_their_results() -> None:
    """The API runs its tool when it has the results of ours, and nothing else: its own result comes first then."""
    both = says(searches(), call("c1"))
    answers = message("user", result("c1"))
    shape = [["server_tool_use", "tool_use"], ["tool_result"]]
    assert sent(both, answers) == (shape, [])
    more = says(found(), "so it is", turn="more")
    assert sent(both, answers, more, message("user", "thanks")) == (
        [*shape, ["web_search_tool_result", "text"], ["text"]],
        [],
    )
    assert sent(both, message("user", result("c1"), "and hurry")) == (
        [["tool_use"], ["tool_result", "text"]],
        ["dropped native reply 0"],
    )


def test_a_call_of_code_waits_through_the_calls_that_the_code_makes() -> None:
    """Code that calls our tools one after the other is one call of a server tool, with its result at the end."""
    turns = [
        says(searches("code"), call("c1")),
        message("user", result("c1")),
        says(call("c2"), turn="again"),
        message("user", result("c2")),
        says(found("code"), "done", turn="end"),
        message("user", "thanks"),
    ]
    shape, losses = sent(*turns)
    assert shape[0] == ["server_tool_use", "tool_use"]
    assert shape[4] == ["web_search_tool_result", "text"]
    assert losses == []


def test_a_result_without_its_call_is_left_out() -> None:
    """Its call was of another turn, or is not in the window."""
    assert sent(message("user", "go"), says(found(), "so it is")) == (
        [["text"], ["text"]],
        ["dropped native reply 0"],
    )
    assert sent(says(searches(), "a", turn="1"), message("user", "b"), says(found(), "c", turn="2")) == (
        [["text"], ["text"], ["text"]],
        ["dropped native 1 0", "dropped native 2 0"],
    )


def test_a_reply_of_another_model_ends_the_turn() -> None:
    """It does not go on with the call."""
    other = message("assistant", "I do not search", **OTHER)
    assert sent(says("let me see", searches()), other) == ([["text"], ["text"]], ["dropped native reply 1"])


def test_blocks_that_only_look_like_calls_and_results_stay() -> None:
    """One has no id, or is of another kind."""
    odd = [{"type": "container_upload", "id": "f1"}, {"type": "x_tool_use"}, {"type": "x_tool_result"}, {}]
    window = ContextWindow(messages=(says(*map(native, odd)), message("user", "go")), options={})
    request = get("anthropic").prepare_request(window, model="claude-9")
    assert json.loads(request.body)["messages"][0]["content"] == odd
    assert request.loss_report.entries == ()
