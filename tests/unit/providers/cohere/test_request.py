"""Request bodies of Cohere's v2 chat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.providers.carrying import call, message, result
from tests.unit.providers.cohere.wire import MODEL, OWN
from tests.wires.typed_bodies import check_body

from turnlog import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Message, Tool, parse_tools
from turnlog.providers import PreparedRequest, get

TOOLS = parse_tools('[{"name":"fs___read","description":"Read.","inputSchema":{"type":"object","$schema":"s"}}]')


def prepare(*messages: Message, tools: Sequence[Tool] = (), **fields: Any) -> PreparedRequest:
    """Prepare a request for Cohere; `options` are those of the window."""
    window = ContextWindow(messages=messages, options=fields.pop("options", {}))
    return get("cohere").prepare_request(window, tools, model=MODEL, **fields)


def wire(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    """Return the messages of a request, which the SDK has types for."""
    body = prepare(*messages, **fields).body
    check_body("cohere", body)
    return json.loads(body)["messages"]


def losses(request: PreparedRequest) -> list[str]:
    """Return the loss report in short."""
    return [f"{entry.kind} {entry.block}: {entry.why}" for entry in request.loss_report.entries]


# Messages


def test_long_tool_ids_of_its_own_stay() -> None:
    """They are the tool's name and a mark."""
    own = "server___" + "x" * 70 + "_xn4bd3e6y76v"
    turns = [message("assistant", call(own)), message("user", result(own))]
    assert [losses(prepare(*turns)), wire(*turns)[1]["tool_call_id"]] == [[], own]


def test_citations_go_back_to_their_model_alone() -> None:
    """They are a field of the message, in the order of the blocks; others get the text without them."""
    cited = [{"start": 0, "end": 1, "text": "a", "sources": [], "content_index": 0, "type": "TEXT_CONTENT"}]
    text = {"type": "text", "text": "a", "citations": cited}
    assert wire(message("assistant", text, **OWN)) == [{"role": "assistant", "content": "a", "citations": cited}]
    assert wire(message("assistant", text, "b", **OWN))[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    of_other = message("assistant", text, **OWN | {"model": "another"})
    assert losses(prepare(of_other)) == ["dropped citations: it is of another provider, api or model"]
    assert wire(of_other) == [{"role": "assistant", "content": "a"}]


def test_citations_of_text_that_goes_as_a_plan_are_reported() -> None:
    """They count in a part of the content, and there is none."""
    text = {"type": "text", "text": "a", "citations": [{"start": 0, "end": 1, "type": "TEXT_CONTENT"}]}
    turns = [message("assistant", text, call("c1"), **OWN), message("user", result("c1"))]
    assert losses(prepare(*turns)) == ["dropped citations: the wire has no place for it"]
    [said, _] = wire(*turns)
    assert (said["tool_plan"], "citations" in said) == ("a", False)


# Tool choice and parameters


def test_one_tool_of_several_cannot_be_chosen() -> None:
    """Where losses are allowed that tool alone is offered, and a call required."""
    tools = (*TOOLS, Tool(name="other"))
    params = {"tool_choice": "fs___read"}
    why = "tool_choice 'fs___read' as the only tool that is offered, with a call required"
    with pytest.raises(UnsupportedContentError, match=f"{why}: offer that tool alone") as caught:
        prepare(tools=tools, params=params)
    assert caught.value.block == "tool_choice"
    request = prepare(tools=tools, params=params, on_loss="report")
    body = json.loads(request.body)
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["fs___read"], "REQUIRED")
    assert losses(request) == [f"downgraded tool_choice: {why}"]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"messages": []}, "params.messages"),
        ({"tools": []}, "params.tools"),
        ({"stream": False}, "params.stream"),
        ({"model": "x"}, "params.model"),
        ({"p": 1, "top_p": 1}, "params.p"),
        ({"temperature": float("nan")}, "params.temperature"),
        ({"tool_choice": {"type": "function"}}, "params.tool_choice"),
    ],
)
def test_parameters_that_the_body_cannot_have_are_refused(params: dict[str, Any], field: str) -> None:
    """Those that the window decides, two names of one, what is not JSON, and a record, which the choice never is."""
    with pytest.raises(ContentError) as caught:
        prepare(tools=TOOLS, params=params)
    assert caught.value.field == field
