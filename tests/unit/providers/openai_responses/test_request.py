"""From context windows to request bodies of the Responses API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.openai_responses.wire import body_of, lost, prepared, spoken

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Tool
from turnlog.providers import get
from turnlog.providers.openai_responses import OpenAIResponses

OTHER = {"provider": "anthropic", "api": "messages", "model": "claude"}
READ = Tool(
    name="files___read",
    description="Read a file.",
    input_schema=Raw(b'{"type":"object","properties":{"path":{"type":"string"}},"$schema":"x"}'),
)


def _document(media_type: str, data: str = "aGVsbG8=") -> dict[str, Any]:
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _call(id: str = "call_1", name: str = "files___read", input: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input or {}}


def _result(id: str = "call_1", content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content} | fields


def test_adapter_is_found_by_its_name() -> None:
    """`get` returns the adapter, with its provider and api."""
    adapter = get("openai_responses")
    assert isinstance(adapter, OpenAIResponses)
    assert (adapter.provider, adapter.api, adapter.key_variable) == ("openai", "responses", "OPENAI_API_KEY")


def test_body_is_written_in_a_fixed_order_with_input_last() -> None:
    """The bytes of a body are the same each time, and the input stands at its end."""
    request = prepared(spoken("user", "Hello"), tools=[READ], params={"max_tokens": 9, "tool_choice": "required"})
    assert request.body == (
        b'{"model":"gpt-6","stream":true,"store":false,"include":["reasoning.encrypted_content"],'
        b'"tools":[{"type":"function","name":"files___read","description":"Read a file.",'
        b'"parameters":{"type":"object","properties":{"path":{"type":"string"}},"$schema":"x"},"strict":false}],'
        b'"tool_choice":"required","max_output_tokens":9,'
        b'"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}]}'
    )
    assert not request.loss_report


def test_longer_conversation_keeps_the_prefix() -> None:
    """The body of a longer conversation starts with that of the shorter one."""
    adapter = OpenAIResponses()
    turns = [spoken("user", "One"), spoken("assistant", "Two", **OTHER), spoken("user", "Three")]
    bodies = [
        adapter.prepare_request(ContextWindow(messages=turns[:count], options={}), model="gpt-6").body
        for count in (1, 2, 3)
    ]
    assert bodies[1].startswith(bodies[0].removesuffix(b"]}"))
    assert bodies[2].startswith(bodies[1].removesuffix(b"]}"))


def test_system_turns_stand_among_the_messages() -> None:
    """System turns become system messages where they stand."""
    body = body_of(spoken("user", "One"), spoken("system", "Be brief", "Be kind"))
    assert body["input"][1] == {
        "type": "message",
        "role": "system",
        "content": [{"type": "input_text", "text": "Be brief"}, {"type": "input_text", "text": "Be kind"}],
    }


def test_documents_become_parts_by_media_type() -> None:
    """Images are image parts, files are file parts, text is text."""
    user = spoken(
        "user",
        _document("image/PNG; x=1"),
        _document("application/pdf"),
        _document("application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        _document("application/json", "e30="),
    )
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert body_of(user)["input"][0]["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8=", "detail": "auto"},
        {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,aGVsbG8="},
        {"type": "input_file", "filename": "document.docx", "file_data": f"data:{word};base64,aGVsbG8="},
        {"type": "input_text", "text": "{}"},
    ]


def test_document_of_an_unknown_type_is_refused() -> None:
    """A document that the API does not take raises, naming provider, block and turn."""
    with pytest.raises(UnsupportedContentError) as caught:
        prepared(spoken("user", _document("audio/wav"), turn="t7"))
    assert (caught.value.provider, caught.value.block, caught.value.turn) == ("openai_responses", "document", "t7")


def test_texts_of_other_models_are_messages_of_plain_text() -> None:
    """Each text of an assistant turn that another model wrote is a message whose content is a string."""
    body = body_of(spoken("user", "?"), spoken("assistant", "One", "Two", **OTHER))
    assert body["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "One"},
        {"type": "message", "role": "assistant", "content": "Two"},
    ]


def test_parallel_calls_and_results_are_items_of_their_own() -> None:
    """Calls are function_call items with their input as text, as it is spelled; results follow them."""
    body = body_of(
        spoken("user", "?"),
        spoken("assistant", "Let me see", _call("a", input=Raw(b'{"b": 1, "a": 2.50}')), _call("b"), **OTHER),
        spoken("user", _result("b", "B"), _result("a", "A"), "And now?"),
    )
    assert body["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "Let me see"},
        {"type": "function_call", "call_id": "a", "name": "files___read", "arguments": '{"b":1,"a":2.50}'},
        {"type": "function_call", "call_id": "b", "name": "files___read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "B"},
        {"type": "function_call_output", "call_id": "a", "output": "A"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
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
        (
            [{"type": "text", "text": "see"}, _document("image/jpeg"), _document("application/pdf")],
            [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/jpeg;base64,aGVsbG8=", "detail": "auto"},
                {
                    "type": "input_file",
                    "filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,aGVsbG8=",
                },
            ],
        ),
    ],
)
def test_result_is_text_or_a_list_of_parts(content: Any, output: Any) -> None:
    """The output of a function is a string where it is one text, else a list of texts, images and files."""
    body = body_of(spoken("user", "?"), spoken("assistant", _call(), **OTHER), spoken("user", _result(content=content)))
    assert body["input"][2] == {"type": "function_call_output", "call_id": "call_1", "output": output}


def test_failed_result_does_not_look_like_a_success() -> None:
    """The wire has no mark for errors, and the result of a tool that failed differs from one that did not."""
    call = spoken("assistant", _call(), **OTHER)
    good, bad = (
        body_of(spoken("user", "?"), call, spoken("user", _result(content="no such file", is_error=failed)))
        for failed in (False, True)
    )
    assert good["input"][2]["output"] == "no such file"
    assert bad["input"][2]["output"] != "no such file"
    assert "no such file" in bad["input"][2]["output"]


def test_id_that_the_api_refuses_is_mapped_in_call_and_result() -> None:
    """A call id that is too long or has other characters is replaced in both places and reported."""
    id = "toolu:" + "x" * 80
    request = prepared(spoken("user", "?"), spoken("assistant", _call(id), **OTHER), spoken("user", _result(id)))
    items = json.loads(request.body)["input"]
    assert items[1]["call_id"] == items[2]["call_id"]
    assert len(items[1]["call_id"]) <= 64
    assert [loss.kind for loss in request.loss_report.entries] == ["renamed"]


def test_thinking_and_native_blocks_of_others_are_dropped_and_reported() -> None:
    """What belongs to another model does not go to this one."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s", **OTHER}
    native = {"type": "native", "provider": "anthropic", "api": "messages", "model": "claude", "block": {"type": "x"}}
    request = prepared(spoken("user", "?"), spoken("assistant", thinking, native, "Hello", turn="t2", **OTHER))
    assert json.loads(request.body)["input"][1:] == [{"type": "message", "role": "assistant", "content": "Hello"}]
    assert [entry.split(":")[0] for entry in lost(request)] == ["dropped thinking t2", "dropped native t2"]


def test_native_blocks_of_user_turns_are_items_and_parts() -> None:
    """An item that only this api has goes verbatim from a user turn, and a part from a tool result."""
    own = {"provider": "openai", "api": "responses", "model": "gpt-6"}
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    file = {"type": "input_file", "file_id": "file_1"}
    result = _result(content=[{"type": "text", "text": "see"}, {"type": "native", "block": file, **own}])
    body = body_of(
        spoken("user", "?"),
        spoken("assistant", _call(), **OTHER),
        spoken("user", result, {"type": "native", "block": approval, **own}, "Go on"),
    )
    assert body["input"][2:] == [
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "see"}, file],
        },
        approval,
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
    ]


def test_signed_thinking_that_came_in_no_item_becomes_one() -> None:
    """Thinking of this model without the fields of its item gets an id made from its signature, always the same."""
    own = {"provider": "openai", "api": "responses", "model": "gpt-6"}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "gAAAA", **own}
    item = body_of(spoken("user", "?"), spoken("assistant", thinking, "Hello", **own))["input"][1]
    assert item["id"].startswith("rs_")
    assert len(item["id"]) <= 64
    assert item | {"id": ""} == {
        "type": "reasoning",
        "id": "",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gAAAA",
    }


def test_search_stands_beside_tools() -> None:
    """Search is one more tool."""
    body = body_of(spoken("user", "?"), tools=[READ], options={"search": True})
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
    assert body_of(spoken("user", "?"), options={"search": True})["tools"] == [{"type": "web_search"}]


def test_schemas_are_made_what_the_api_takes_at_their_top() -> None:
    """Combinations at the top of a schema are removed and reported; an object gets its properties."""
    tools = [
        Tool(name="a", input_schema=Raw(b'{"anyOf":[{"required":["x"]}],"properties":{"anyOf":{"not":{}}}}')),
        Tool(name="b", input_schema=Raw(b'{"type":"object"}')),
        Tool(name="c", input_schema=Raw(b"true")),
    ]
    request = prepared(spoken("user", "?"), tools=tools)
    assert [tool["parameters"] for tool in json.loads(request.body)["tools"]] == [
        {"type": "object", "properties": {"anyOf": {"not": {}}}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {}},
    ]
    assert lost(request) == ["downgraded tool : the schema of 'a' without the keywords anyOf"]


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
    assert ("include" in body_of(spoken("user", "?"), model=model)) is asked


def test_parameters_are_mapped_or_go_verbatim() -> None:
    """Normalized names become the API's; any other parameter goes as it is, and replaces a default."""
    params = {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["message.output_text.logprobs"],
        "store": True,
        "stop_sequences": [],
    }
    body = body_of(spoken("user", "?"), params=params)
    del body["input"]
    assert body == {
        "model": "gpt-6",
        "stream": True,
        "store": True,
        "include": ["message.output_text.logprobs"],
        "tools": [],
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "high", "summary": "auto"},
    }


@pytest.mark.parametrize("name", ["input", "model", "stream", "tools", "instructions", "previous_response_id"])
def test_parameter_that_changes_what_the_model_sees_is_refused(name: str) -> None:
    """Parameters cannot take the place of the window, the tools or the model."""
    with pytest.raises(ContentError) as caught:
        prepared(spoken("user", "?"), params={name: "x"})
    assert caught.value.field == f"params.{name}"


def test_parameter_that_is_not_json_is_refused() -> None:
    """A parameter that JSON cannot carry raises."""
    with pytest.raises(ContentError, match=r"params\.top_p"):
        prepared(spoken("user", "?"), params={"top_p": float("nan")})


def test_stop_sequences_are_refused_or_reported() -> None:
    """The API has no stop sequences."""
    with pytest.raises(UnsupportedContentError, match="stop_sequences"):
        prepared(spoken("user", "?"), params={"stop_sequences": ["END"]})
    request = prepared(spoken("user", "?"), params={"stop_sequences": ["END"]}, on_loss="report")
    assert lost(request) == ["dropped parameter : stop_sequences ['END']: the API has none"]


@pytest.mark.parametrize(
    ("params", "options", "expected"),
    [
        ({"tool_choice": "auto"}, {}, "auto"),
        ({"tool_choice": "none"}, {"tool_mode": "required"}, "none"),
        ({"tool_choice": "files___read"}, {}, {"type": "function", "name": "files___read"}),
        ({"tool_choice": {"type": "file_search"}}, {}, {"type": "file_search"}),
        ({}, {"tool_mode": "required"}, "required"),
        ({}, {"tool_mode": "files___read"}, {"type": "function", "name": "files___read"}),
        ({}, {}, None),
    ],
)
def test_tool_choice_is_mapped(params: dict[str, Any], options: dict[str, Any], expected: Any) -> None:
    """The parameter decides, else the window's tool mode."""
    assert body_of(spoken("user", "?"), tools=[READ], params=params, options=options).get("tool_choice") == expected


def test_choice_of_a_tool_that_is_not_offered_is_refused() -> None:
    """A parameter that names no tool raises; a tool mode of another provider is left out and reported."""
    with pytest.raises(ContentError, match="tool_choice"):
        prepared(spoken("user", "?"), tools=[READ], params={"tool_choice": "nope"})
    request = prepared(spoken("user", "?"), tools=[READ], options={"tool_mode": "VALIDATED"})
    assert "tool_choice" not in json.loads(request.body)
    assert lost(request) == [
        "dropped tool_choice : tool_mode 'VALIDATED': it is neither a choice of the wire nor a tool that is offered"
    ]
    with pytest.raises(UnsupportedContentError, match="tool_mode"):
        prepared(spoken("user", "?"), tools=[READ], options={"tool_mode": "VALIDATED"}, on_loss="error")


def test_tool_choice_without_tools_is_left_out() -> None:
    """Where there is nothing to choose from, no choice is sent; one that must fail is reported."""
    assert not prepared(spoken("user", "?"), options={"tool_mode": "auto"}).loss_report
    request = prepared(spoken("user", "?"), options={"tool_mode": "required"})
    assert "tool_choice" not in json.loads(request.body)
    assert lost(request) == ["dropped tool_choice : tool_mode 'required': no tools are offered"]
