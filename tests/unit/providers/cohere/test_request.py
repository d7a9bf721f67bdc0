"""Request bodies of Cohere's v2 chat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.providers.carrying import call, document, message, result
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


def test_body_has_its_fields_in_order() -> None:
    """Parameters are sorted, and messages last, so that a longer body starts with that of a shorter one."""
    params = {
        "top_p": 0.9,
        "thinking": {"type": "enabled", "token_budget": 9},
        "max_tokens": 5,
        "tool_choice": "required",
    }
    request = prepare(message("user", "a"), tools=TOOLS, params=params, stream=False)
    assert request.body == (
        b'{"model":"command-a-reasoning-08-2025","stream":false,"tools":[{"type":"function","function":{"name":'
        b'"fs___read","description":"Read.","parameters":{"type":"object","$schema":"s"}}}],"tool_choice":"REQUIRED",'
        b'"max_tokens":5,"p":0.9,"thinking":{"type":"enabled","token_budget":9},'
        b'"messages":[{"role":"user","content":"a"}]}'
    )
    check_body("cohere", request.body)


# Messages


def test_text_is_one_string() -> None:
    """Texts of one turn are put together without anything between; text-like documents are text."""
    assert wire(message("user", "a", "b", document("text/markdown")), message("system", "c", "d")) == [
        {"role": "user", "content": "abhello"},
        {"role": "system", "content": "cd"},
    ]
    assert wire(message("user", document("image/svg+xml"))) == [{"role": "user", "content": "hello"}]


def test_images_stand_among_parts() -> None:
    """A turn with an image is a list of parts, the image a data URL."""
    assert wire(message("user", "a", document("Image/PNG; q=1"), "b")) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
                {"type": "text", "text": "b"},
            ],
        }
    ]


def test_tool_calls_and_results_have_their_messages() -> None:
    """Arguments are the exact text of the input; each result is a message of its own, what else there is follows."""
    inputs = {"z": 1.0, "a": "\u2028"}
    turns = [
        message("assistant", "Let me ", "look.", call("c1", "fs___read") | {"input": inputs}, call("c2", "fs___read")),
        message(
            "user", result("c1"), result("c2", [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]), "more"
        ),
    ]
    assert wire(*turns) == [
        {
            "role": "assistant",
            # Text as content of a message that calls tools is refused.
            "tool_plan": "Let me look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "fs___read", "arguments": '{"z":1.0,"a":"\u2028"}'},
                },
                {"id": "c2", "type": "function", "function": {"name": "fs___read", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "tool", "tool_call_id": "c2", "content": "xy"},
        {"role": "user", "content": "more"},
    ]


@pytest.mark.parametrize(
    ("fields", "text"),
    [({"malformed_arguments": '{"a":'}, '{"a":'), ({"spelled_arguments": '{"a": 1}', "input": {"a": 1}}, '{"a": 1}')],
)
def test_arguments_go_back_as_they_were_spelled(fields: dict[str, Any], text: str) -> None:
    """Their text is what the model wrote, also where that is no JSON."""
    turns = [message("assistant", call("c1", **fields), **OWN), message("user", result("c1"))]
    assert wire(*turns)[0]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": text}}
    ]


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


def test_native_parts_go_back_as_they_are() -> None:
    """A part of a type that turnlog does not know is spliced into the content."""
    native = {"type": "native", "block": {"type": "chart", "n": 1.0}, **OWN}
    body = prepare(message("assistant", "a", native, **OWN)).body
    assert b'"content":[{"type":"text","text":"a"},{"type":"chart","n":1.0}]' in body


# Tool choice and parameters


@pytest.mark.parametrize(
    ("params", "options", "field"),
    [
        ({}, {}, None),
        ({"tool_choice": "auto"}, {"tool_mode": "none"}, None),
        ({"tool_choice": "none"}, {}, "NONE"),
        ({"tool_choice": "REQUIRED"}, {}, "REQUIRED"),
        ({}, {"tool_mode": "any"}, "REQUIRED"),
        ({"tool_choice": "fs___read"}, {}, "REQUIRED"),
    ],
)
def test_tool_choice_is_that_of_the_wire(params: dict[str, Any], options: dict[str, Any], field: str | None) -> None:
    """The only tool that is offered is chosen by requiring a call."""
    request = prepare(tools=TOOLS, params=params, options=options)
    assert json.loads(request.body).get("tool_choice") == field
    assert losses(request) == []


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
