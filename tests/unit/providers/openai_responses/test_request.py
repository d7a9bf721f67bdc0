"""From context windows to request bodies of the Responses API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.carrying import OTHER, call, message, result
from tests.unit.providers.openai_responses.wire import OWN, body, lost, prepare, sent

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import Tool

ASKED = message("user", "?")
READ = Tool(
    name="files___read",
    description="Read a file.",
    input_schema=Raw(b'{"type":"object","properties":{"path":{"type":"string"}},"$schema":"x"}'),
)


# Items


SEEN = [
    {"type": "input_text", "text": "see"},
    {"type": "input_image", "image_url": "data:image/jpeg;base64,aGVsbG8=", "detail": "auto"},
    {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,aGVsbG8="},
]


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


@pytest.mark.parametrize("names", [("max_tokens", "max_output_tokens"), ("max_output_tokens", "max_tokens")])
def test_parameter_that_is_given_under_two_names_is_refused(names: tuple[str, str]) -> None:
    """Which of them counts would go by their order."""
    with pytest.raises(ContentError, match=r"params\.max_tokens: 'max_output_tokens' is given twice: leave one out"):
        prepare(message("user", "a"), params=dict.fromkeys(names, 5))


def test_stop_sequences_are_refused_or_reported() -> None:
    """The API has no stop sequences."""
    with pytest.raises(UnsupportedContentError, match="stop_sequences"):
        prepare(ASKED, params={"stop_sequences": ["END"]})
    request = prepare(ASKED, params={"stop_sequences": ["END"]}, on_loss="report")
    assert lost(request) == ["dropped parameter : stop_sequences ['END']: the API has none"]
