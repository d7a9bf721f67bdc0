"""Request bodies of Cohere's v2 chat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from cohere import AssistantChatMessageV2, SystemChatMessageV2, ToolChatMessageV2, ToolV2, UserChatMessageV2
from tests.unit.providers.carrying import call, document, message, result

from turnlog import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, LossEntry, Message, Tool, parse_tools
from turnlog.providers import PreparedRequest, get

MODEL = "command-a-03-2025"
OWN = {"provider": "cohere", "api": "chat_v2", "model": MODEL}
TOOLS = parse_tools('[{"name":"fs___read","description":"Read.","inputSchema":{"type":"object","$schema":"s"}}]')
_TYPES = {
    "user": UserChatMessageV2,
    "assistant": AssistantChatMessageV2,
    "system": SystemChatMessageV2,
    "tool": ToolChatMessageV2,
}


def prepare(*messages: Message, tools: Sequence[Tool] = (), **fields: Any) -> PreparedRequest:
    """Prepare a request for Cohere; `options` are those of the window."""
    window = ContextWindow(messages=messages, options=fields.pop("options", {}))
    return get("cohere").prepare_request(window, tools, model=MODEL, **fields)


def wire(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    """Return the messages of a request, each of which is of the SDK's type for its role."""
    found = json.loads(prepare(*messages, **fields).body)["messages"]
    for one in found:
        _TYPES[one["role"]].model_validate(one, strict=True)
    return found


def losses(request: PreparedRequest) -> list[str]:
    """Return the loss report in short."""
    return [f"{entry.kind} {entry.block}: {entry.why}" for entry in request.loss_report.entries]


def test_body_has_its_fields_in_order() -> None:
    """Messages are last, so that the body of a longer conversation starts with that of a shorter one."""
    params = {
        "top_p": 0.9,
        "max_tokens": 5,
        "thinking": {"type": "enabled", "token_budget": 9},
        "tool_choice": "required",
    }
    request = prepare(message("user", "a"), tools=TOOLS, params=params, stream=False)
    assert request.body == (
        b'{"model":"command-a-03-2025","stream":false,"tools":[{"type":"function","function":{"name":"fs___read",'
        b'"description":"Read.","parameters":{"type":"object","$schema":"s"}}}],"tool_choice":"REQUIRED",'
        b'"max_tokens":5,"p":0.9,"thinking":{"type":"enabled","token_budget":9},'
        b'"messages":[{"role":"user","content":"a"}]}'
    )
    ToolV2.model_validate(json.loads(request.body)["tools"][0], strict=True)


def test_order_of_parameters_says_nothing() -> None:
    """The same parameters in another order give the same bytes."""
    one = prepare(params={"seed": 1, "max_tokens": 2, "k": 3})
    other = prepare(params={"k": 3, "max_tokens": 2, "seed": 1})
    assert one.body == other.body


def test_longer_conversation_keeps_the_prefix() -> None:
    """The shorter body without its end is how the longer one begins."""
    turns = [
        message("user", "a"),
        message("assistant", "b"),
        message("user", document("image/png")),
        message("user", "c"),
    ]
    bodies = [prepare(*turns[:count], tools=TOOLS).body for count in range(1, 5)]
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter.removesuffix(b"]}") + b",")


def test_text_is_one_string() -> None:
    """Texts of one turn are put together without anything between; text-like documents are text."""
    assert wire(message("user", "a", "b", document("text/markdown")), message("system", "c", "d")) == [
        {"role": "user", "content": "abhello"},
        {"role": "system", "content": "cd"},
    ]


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


@pytest.mark.parametrize("media_type", ["application/pdf", "image/tiff", "application/zip"])
def test_other_documents_are_refused(media_type: str) -> None:
    """What Cohere's models do not see is refused, by name, or a line of text in its place."""
    with pytest.raises(UnsupportedContentError) as caught:
        prepare(message("user", document(media_type), turn="t1"))
    assert (caught.value.provider, caught.value.block, caught.value.turn) == ("cohere", "document", "t1")
    assert wire(message("user", document(media_type)), on_loss="report")[0]["content"].startswith("[a document of type")


def test_svg_is_text() -> None:
    """It is an image by its name, but none that models see."""
    assert wire(message("user", document("image/svg+xml"))) == [{"role": "user", "content": "hello"}]


def test_tool_calls_and_results_have_their_messages() -> None:
    """Arguments are the exact text of the input; each result is a message of its own, what else there is follows."""
    inputs = {"z": 1.0, "a": "\u2028"}
    turns = [
        message("assistant", call("c1", "fs___read") | {"input": inputs}, call("c2", "fs___read")),
        message(
            "user", result("c1"), result("c2", [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]), "more"
        ),
    ]
    body = prepare(*turns, tools=TOOLS).body
    assert rb'"arguments":"{\"z\":1.0,\"a\":\"' in body
    assert wire(*turns) == [
        {
            "role": "assistant",
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


def test_text_beside_tool_calls_is_the_plan() -> None:
    """Cohere refuses text as content of a message that calls tools: it has the tool plan for it."""
    turns = [message("assistant", "Let me ", "look.", call("c1")), message("user", result("c1"))]
    found = wire(*turns)[0]
    assert (found["tool_plan"], "content" in found) == ("Let me look.", False)


def test_long_tool_ids_of_its_own_stay() -> None:
    """They are the tool's name and a mark."""
    own = "server___" + "x" * 70 + "_xn4bd3e6y76v"
    turns = [message("assistant", call(own)), message("user", result(own))]
    assert [losses(prepare(*turns)), wire(*turns)[1]["tool_call_id"]] == [[], own]


def test_image_in_a_result_moves_behind_it() -> None:
    """Tool messages have no images: the image is in the user's message that follows."""
    turns = [
        message("assistant", call("c1")),
        message("user", result("c1", [{"type": "text", "text": "see"}, document("image/png")]), turn="t2"),
    ]
    found = wire(*turns)
    assert [one["role"] for one in found] == ["assistant", "tool", "user"]
    assert found[1]["content"] == "see"
    assert found[2]["content"][0]["type"] == "image_url"
    assert losses(prepare(*turns)) == ["moved document: behind the tool result that it is part of"]


def test_thinking_and_plan_go_back_to_their_model() -> None:
    """Thinking is a part of the content, the plan a field of the message."""
    thinking = {"type": "thinking", "thinking": "Hm.", **OWN}
    plan = {"type": "thinking", "thinking": "I will.", **OWN, "tool_plan": True}
    turns = [message("assistant", thinking, plan, call("c1"), **OWN), message("user", result("c1"))]
    assert wire(*turns)[0] == {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm."}],
        "tool_plan": "I will.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    assert losses(prepare(*turns)) == []


def test_thinking_of_others_is_dropped_and_reported() -> None:
    """It means nothing to another model."""
    of_other = message(
        "assistant", {"type": "thinking", "thinking": "Hm.", "signature": "s"}, "a", provider="x", turn="t"
    )
    assert wire(of_other) == [{"role": "assistant", "content": "a"}]
    assert losses(prepare(of_other)) == ["dropped thinking: it is of another provider, api or model"]


def test_citations_go_back_to_their_model_alone() -> None:
    """They are a field of the message, in the order of the blocks; others get the text without them."""
    cited = [{"start": 0, "end": 1, "text": "a", "sources": [], "content_index": 0, "type": "TEXT_CONTENT"}]
    text = {"type": "text", "text": "a", "citations": cited}
    assert wire(message("assistant", text, **OWN)) == [{"role": "assistant", "content": "a", "citations": cited}]
    assert wire(message("assistant", text, "b", **OWN))[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    of_other = prepare(message("assistant", text, provider="cohere", api="chat_v2", model="another"))
    assert losses(of_other) == ["dropped citations: it is of another provider, api or model"]
    assert json.loads(of_other.body)["messages"] == [{"role": "assistant", "content": "a"}]


def test_native_parts_go_back_as_they_are() -> None:
    """A part of a type that turnlog does not know is spliced into the content."""
    native = {"type": "native", "block": {"type": "chart", "n": 1.0}, **OWN}
    body = prepare(message("assistant", "a", native, **OWN)).body
    assert b'"content":[{"type":"text","text":"a"},{"type":"chart","n":1.0}]' in body


def test_search_is_refused() -> None:
    """The wire has none; where losses are allowed it is left out and reported."""
    with pytest.raises(UnsupportedContentError) as caught:
        prepare(message("user", "a"), options={"search": True})
    assert (caught.value.block, caught.value.turn) == ("search", None)
    request = prepare(message("user", "a"), options={"search": True}, on_loss="report")
    assert request.loss_report.entries == (LossEntry(kind="dropped", turn="", block="search", why="search: the wire has none"),)


@pytest.mark.parametrize(
    ("params", "options", "field"),
    [
        ({}, {}, None),
        ({"tool_choice": "auto"}, {"tool_mode": "none"}, None),
        ({"tool_choice": "none"}, {}, "NONE"),
        ({"tool_choice": "REQUIRED"}, {}, "REQUIRED"),
        ({}, {"tool_mode": "required"}, "REQUIRED"),
    ],
)
def test_tool_choice_is_that_of_the_wire(params: dict[str, Any], options: dict[str, Any], field: str | None) -> None:
    """The parameter wins over the window's tool mode."""
    request = prepare(tools=TOOLS, params=params, options=options)
    assert json.loads(request.body).get("tool_choice") == field
    assert losses(request) == []


def test_tool_mode_of_others_is_left_out_and_reported() -> None:
    """As is a choice where there is nothing to choose."""
    of_other = prepare(tools=TOOLS, options={"tool_mode": "VALIDATED"})
    assert losses(of_other) == [
        "dropped parameter: tool_mode 'VALIDATED': it is neither a choice of the wire nor a tool that is offered"
    ]
    assert losses(prepare(params={"tool_choice": "required"})) == [
        "dropped parameter: tool_choice 'required': no tools are offered"
    ]
    assert losses(prepare(params={"tool_choice": "none"})) == []
    assert b"tool_choice" not in of_other.body


def test_one_tool_cannot_be_chosen_by_name() -> None:
    """Where losses are allowed that tool alone is offered, and a call required."""
    tools = (*TOOLS, Tool(name="other"))
    with pytest.raises(UnsupportedContentError, match="cannot be told to call 'fs___read'") as caught:
        prepare(tools=tools, params={"tool_choice": "fs___read"})
    assert caught.value.block == "tool_choice"
    request = prepare(tools=tools, params={"tool_choice": "fs___read"}, on_loss="report")
    body = json.loads(request.body)
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["fs___read"], "REQUIRED")
    assert [entry.kind for entry in request.loss_report.entries] == ["downgraded"]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"messages": []}, "params.messages"),
        ({"tools": []}, "params.tools"),
        ({"stream": False}, "params.stream"),
        ({"model": "x"}, "params.model"),
        ({"p": 1, "top_p": 1}, "params.p"),
        ({"temperature": float("nan")}, "params.temperature"),
        ({"tool_choice": "nothing"}, "params.tool_choice"),
        ({"tool_choice": {"type": "function"}}, "params.tool_choice"),
    ],
)
def test_parameters_that_the_body_cannot_have_are_refused(params: dict[str, Any], field: str) -> None:
    """Those that the window decides, two names of one, and what is not JSON or no choice."""
    with pytest.raises(ContentError) as caught:
        prepare(tools=TOOLS, params=params)
    assert caught.value.field == field


def test_malformed_arguments_go_back_as_they_were() -> None:
    """Their text is what the model wrote, and the id of the call that of the wire."""
    broken = call("c1", malformed_arguments='{"a":')
    turns = [message("assistant", broken, **OWN), message("user", result("c1"))]
    assert wire(*turns)[0]["tool_calls"][0]["function"]["arguments"] == '{"a":'
