"""From context windows to request bodies of the Responses API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.carrying import OTHER, call, document, message, result
from tests.unit.providers.openai_responses.wire import OWN, body, lost, prepare, sent

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import Tool

ASKED = message("user", "?")
READ = Tool(
    name="files___read",
    description="Read a file.",
    input_schema=Raw(b'{"type":"object","properties":{"path":{"type":"string"}},"$schema":"x"}'),
)


def test_body_is_written_in_a_fixed_order_with_input_last() -> None:
    """Parameters stand before the input, which is all that grows."""
    request = prepare(
        message("system", "Be brief", "Be kind"), ASKED, tools=[READ], params={"max_tokens": 9, "tool_choice": "auto"}
    )
    assert request.body == (
        b'{"model":"gpt-6","stream":true,"store":false,"include":["reasoning.encrypted_content"],'
        b'"tools":[{"type":"function","name":"files___read","description":"Read a file.",'
        b'"parameters":{"type":"object","properties":{"path":{"type":"string"}},"$schema":"x"},"strict":false}],'
        b'"tool_choice":"auto","max_output_tokens":9,'
        b'"input":[{"type":"message","role":"system","content":[{"type":"input_text","text":"Be brief"},'
        b'{"type":"input_text","text":"Be kind"}]},'
        b'{"type":"message","role":"user","content":[{"type":"input_text","text":"?"}]}]}'
    )
    assert not request.loss_report


# Items


def test_documents_become_parts_by_media_type() -> None:
    """Images are image parts, files are file parts, text is text."""
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    user = message(
        "user",
        document("image/PNG; x=1"),
        document("application/pdf"),
        document(word),
        document("application/json", "e30="),
    )
    assert sent(user)[0]["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8=", "detail": "auto"},
        {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,aGVsbG8="},
        {"type": "input_file", "filename": "document.docx", "file_data": f"data:{word};base64,aGVsbG8="},
        {"type": "input_text", "text": "{}"},
    ]


def test_texts_calls_and_results_are_items_of_their_own() -> None:
    """Each text of another model is a message of its own; calls have their input as text, as it is spelled."""
    look = call("a", input=Raw(b'{"b": 1, "a": 2.50}'))
    assert sent(
        ASKED,
        message("assistant", "Let me", "see", look, call("b"), **OTHER),
        message("user", result("b", "B"), result("a", "A"), "And now?"),
    )[1:] == [
        {"type": "message", "role": "assistant", "content": "Let me"},
        {"type": "message", "role": "assistant", "content": "see"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"b":1,"a":2.50}'},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "B"},
        {"type": "function_call_output", "call_id": "a", "output": "A"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
    ]


SEEN = [
    {"type": "input_text", "text": "see"},
    {"type": "input_image", "image_url": "data:image/jpeg;base64,aGVsbG8=", "detail": "auto"},
    {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,aGVsbG8="},
]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "one"}], "one"),
        (
            [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}],
        ),
        ([{"type": "text", "text": "see"}, document("image/jpeg"), document("application/pdf")], SEEN),
    ],
)
def test_result_is_text_or_a_list_of_parts(content: Any, output: Any) -> None:
    """The output of a function is a string where it is one text, else a list of texts, images and files."""
    items = sent(ASKED, message("assistant", call("a"), **OTHER), message("user", result("a", content)))
    assert items[2] == {"type": "function_call_output", "call_id": "a", "output": output}


def test_native_blocks_of_user_turns_are_items_and_parts() -> None:
    """An item that only this api has goes verbatim from a user turn, and a part from a tool result."""
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    file = {"type": "input_file", "file_id": "file_1"}
    found = result("a", [{"type": "text", "text": "see"}, {"type": "native", "block": file, **OWN}])
    assert sent(
        ASKED,
        message("assistant", call("a"), **OTHER),
        message("user", found, {"type": "native", "block": approval, **OWN}, "Go on"),
    )[2:] == [
        {"type": "function_call_output", "call_id": "a", "output": [SEEN[0], file]},
        approval,
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
    ]


def test_signed_thinking_that_came_in_no_item_becomes_one() -> None:
    """Thinking of this model without the fields of its item gets an id made from its signature, always the same."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "gAAAA", **OWN}
    assert sent(ASKED, message("assistant", thinking, "Hello", **OWN))[1] == {
        "type": "reasoning",
        "id": "rs_682eacd2d99a4d8b7b0292d88fff08d07aec015beb740f13",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gAAAA",
    }


# Tools


def test_search_stands_beside_tools() -> None:
    """Search is one more tool."""
    assert [tool["type"] for tool in body(ASKED, tools=[READ], options={"search": True})["tools"]] == [
        "function",
        "web_search",
    ]
    assert body(ASKED, options={"search": True})["tools"] == [{"type": "web_search"}]


def test_schemas_are_made_what_the_api_takes_at_their_top() -> None:
    """Combinations at the top of a schema are removed and reported, or refused; an object gets its properties."""
    tools = [
        Tool(name="a", input_schema=Raw(b'{"anyOf":[{"required":["x"]}],"properties":{"anyOf":{"not":{}}}}')),
        Tool(name="b", input_schema=Raw(b'{"type":"object"}')),
        Tool(name="c", input_schema=Raw(b"true")),
    ]
    request = prepare(ASKED, tools=tools)
    assert [tool["parameters"] for tool in json.loads(request.body)["tools"]] == [
        {"type": "object", "properties": {"anyOf": {"not": {}}}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {}},
    ]
    assert lost(request) == ["downgraded tool : the schema of 'a' without the keywords anyOf"]
    with pytest.raises(UnsupportedContentError, match="openai_responses can only carry the schema of 'a'"):
        prepare(ASKED, tools=tools, on_loss="error")


@pytest.mark.parametrize(
    ("params", "options", "expected"),
    [
        ({"tool_choice": "none"}, {"tool_mode": "required"}, "none"),
        ({"tool_choice": "files___read"}, {}, {"type": "function", "name": "files___read"}),
        ({"tool_choice": {"type": "file_search"}}, {}, {"type": "file_search"}),
        ({}, {"tool_mode": "any"}, "required"),
        ({}, {"tool_mode": "files___read"}, {"type": "function", "name": "files___read"}),
        ({}, {}, None),
    ],
)
def test_tool_choice_is_mapped(params: dict[str, Any], options: dict[str, Any], expected: Any) -> None:
    """The parameter decides, else the window's tool mode."""
    assert body(ASKED, tools=[READ], params=params, options=options).get("tool_choice") == expected


@pytest.mark.parametrize(
    ("tools", "mode", "why"),
    [
        ([READ], "VALIDATED", "it is neither a choice of the wire nor a tool that is offered"),
        ([], "required", "no tools are offered"),
    ],
)
def test_tool_mode_that_means_nothing_is_left_out(tools: list[Tool], mode: str, why: str) -> None:
    """It is inherited, and may be meant for another provider: it is reported, or refused."""
    request = prepare(ASKED, tools=tools, options={"tool_mode": mode})
    assert "tool_choice" not in json.loads(request.body)
    assert lost(request) == [f"dropped tool_choice : tool_mode {mode!r}: {why}"]
    with pytest.raises(UnsupportedContentError, match="tool_mode"):
        prepare(ASKED, tools=tools, options={"tool_mode": mode}, on_loss="error")


# Parameters


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("gpt-6", True),
        ("o3-mini", True),
        ("gpt-5.1-chat-latest", True),
        ("gpt-4o-mini", False),
        ("gpt-4.1", False),
        ("ft:gpt-4o-2024-08-06:acme::x", False),
        ("openai/gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("chatgpt-4o-latest", False),
    ],
)
def test_encrypted_reasoning_is_asked_for_where_the_model_reasons(model: str, asked: bool) -> None:
    """The API refuses the request for encrypted reasoning for models that do not reason."""
    assert ("include" in body(ASKED, model=model)) is asked


def test_parameters_are_mapped_or_go_verbatim() -> None:
    """Normalized names become the API's; any other parameter goes as it is, and replaces a default."""
    verbatim = {
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["message.output_text.logprobs"],
        "store": True,
    }
    found = body(ASKED, params=verbatim | {"max_tokens": 9, "stop_sequences": []})
    del found["input"]
    assert found == {"model": "gpt-6", "stream": True, "tools": [], "max_output_tokens": 9} | verbatim


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input", "x"),
        ("model", "x"),
        ("stream", True),
        ("tools", []),
        ("instructions", "x"),
        ("previous_response_id", "x"),
        ("tool_choice", "nope"),
        ("top_p", float("nan")),
    ],
)
def test_parameter_that_cannot_be_is_refused(name: str, value: Any) -> None:
    """None can take the place of the window, the tools or the model, choose a tool that is not there, or be no JSON."""
    with pytest.raises(ContentError) as caught:
        prepare(ASKED, tools=[READ], params={name: value})
    assert caught.value.field == f"params.{name}"


def test_stop_sequences_are_refused_or_reported() -> None:
    """The API has no stop sequences."""
    with pytest.raises(UnsupportedContentError, match="stop_sequences"):
        prepare(ASKED, params={"stop_sequences": ["END"]})
    request = prepare(ASKED, params={"stop_sequences": ["END"]}, on_loss="report")
    assert lost(request) == ["dropped parameter : stop_sequences ['END']: the API has none"]
