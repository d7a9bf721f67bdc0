"""Requests of the Messages API: the body and its messages."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.anthropic.wire import blocks, body, called, document, message, own, prepare, result, window

from turnlog import ContentError, UnsupportedContentError
from turnlog.model import Tool
from turnlog.providers import PreparedRequest, get_as

WEATHER = Tool(name="home___weather", description="Look out.", input_schema=Raw(b'{"type":"object"}'))


def lost(request: PreparedRequest) -> list[str]:
    """Return the loss report in short."""
    return [f"{loss.kind} {loss.block} {loss.turn}".strip() for loss in request.loss_report.entries]


def think(signature: str | None = "sig", **fields: Any) -> dict[str, Any]:
    """Return thinking."""
    return {"type": "thinking", "thinking": "hm"} | ({} if signature is None else {"signature": signature}) | fields


# The body


def test_parameters_that_are_no_json_are_refused() -> None:
    """The error names the place."""
    with pytest.raises(ContentError, match="NaN") as raised:
        prepare(message("user", "hi"), params={"metadata": {"x": float("nan")}})
    assert raised.value.field == "params.metadata.x"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, 18_192),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}, 2000),
        ({"thinking": Raw(b' {"budget_tokens": 2000}')}, 10_192),
        ({"thinking": {"type": "adaptive"}}, 8192),
        ({"thinking": {"budget_tokens": "many"}}, 8192),
        ({"thinking": None}, 8192),
        ({}, 8192),
    ],
)
def test_max_tokens_that_nobody_gave_have_room_for_thinking(given: dict[str, Any], expected: int) -> None:
    """The API counts thinking among them, and refuses a budget that they do not exceed."""
    assert body(message("user", "hi"), params=given)["max_tokens"] == expected


ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
BEGUN = (message("user", "hi"), message("assistant", "so", called()), message("user", result("ok")))


@pytest.mark.parametrize(
    ("behind", "why"),
    [
        ((), ["messages[1]"]),
        ((own(called("b")), message("user", result("ok", "b"))), ["messages[3]"]),
        ((message("user", "quick"),), ["messages[1]"]),
        ((own(think(), called("b")), message("user", result("ok", "b"))), []),
        ((own("done"), message("user", "why?")), []),
    ],
)
def test_a_loop_of_tools_that_began_without_thinking_goes_on_without(behind: Any, why: list[str]) -> None:
    """The API refuses thinking in the middle of a turn. What the next turn of the user begins has it again."""
    request = prepare(*BEGUN, *behind, params=ENABLED)
    sent = json.loads(request.body)
    assert sent.get("thinking") == (None if why else ENABLED["thinking"])
    assert sent["max_tokens"] == (8192 if why else 10_192)
    assert lost(request) == [f"dropped parameter {turn}" for turn in why]
    assert request.params == ENABLED


def test_thinking_that_a_loop_began_with_goes_on() -> None:
    """Claude does not think in each message of a turn, and what it thought may not be there without the parameter."""
    messages = (
        own(think(), called()),
        message("user", result("ok")),
        own(called("b")),
        message("user", result("", "b")),
    )
    assert body(message("user", "hi"), *messages, params=ENABLED)["thinking"] == ENABLED["thinking"]


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "disabled"}])
def test_other_modes_of_thinking_may_begin_anywhere(thinking: Any) -> None:
    """Only a budget has to be used from the start of a turn."""
    assert body(*BEGUN, params={"thinking": thinking})["thinking"] == thinking


@pytest.mark.parametrize(("model", "thinks"), [("glm-5", True), ("anthropic/claude-x", False)])
def test_other_models_behind_the_wire_may_think_anywhere(model: str, thinks: bool) -> None:
    """An endpoint under a name of its own has its own rules, but for Claude."""
    request = get_as("anthropic", "myend").prepare_request(window(*BEGUN), model=model, params=ENABLED)
    assert ("thinking" in json.loads(request.body)) is thinks


def test_thinking_is_not_left_out_where_nothing_may_be_lost() -> None:
    """The error names the turn."""
    told = "anthropic cannot carry thinking: the turn that goes on calls tools, and began without it: leave it out"
    with pytest.raises(UnsupportedContentError, match=told) as raised:
        prepare(*BEGUN, params=ENABLED, on_loss="error")
    assert (raised.value.block, raised.value.turn) == ("parameter", "messages[1]")


# Documents and results


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}], " \n", [{"type": "text", "text": " \n"}]])
def test_an_empty_result_has_no_content(content: Any) -> None:
    """The API takes no blank text, and a result need not have content."""
    assert blocks(own(called()), message("user", result(content))) == [
        {"type": "tool_result", "tool_use_id": "toolu_1"}
    ]


@pytest.mark.parametrize("content", ["", [], " \n", [{"type": "text", "text": " \n"}]])
def test_an_error_without_content_says_that_it_is_one(content: Any) -> None:
    """The API refuses an error that has no content, and would each time that the thread is sent."""
    [sent] = blocks(own(called()), message("user", result(content, is_error=True)))
    said = "Error" if isinstance(content, str) else [{"type": "text", "text": "Error"}]
    assert sent == {"type": "tool_result", "tool_use_id": "toolu_1", "content": said, "is_error": True}


@pytest.mark.parametrize("on_loss", [None, "error"])
def test_an_error_with_an_image_says_so_in_its_text(on_loss: Any) -> None:
    """The API refuses one that is marked as an error; the report says that the mark is not there."""
    image = {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    content = [{"type": "text", "text": "no paper"}, image]
    request = prepare(own(called()), message("user", result(content, is_error=True)), on_loss=on_loss)
    [sent] = json.loads(request.body)["messages"][1]["content"]
    assert "is_error" not in sent
    assert [block["type"] for block in sent["content"]] == ["text", "image"]
    assert sent["content"][0]["text"] == "Error: no paper"
    assert lost(request) == ["downgraded tool_result messages[1]"]
    assert request.loss_report.entries[0].why == "that it is an error stands in its text"


# The end of a conversation


@pytest.mark.parametrize("text", ["Half: \n", "x" * 100_000 + "\n"])
def test_a_conversation_does_not_end_in_whitespace(text: str) -> None:
    """The API refuses a last message of the assistant that does. It is whole again when the conversation goes on."""
    half = own("so ", text, " ")
    system, more = message("system", "be brief"), message("user", "go on")
    ending = prepare(message("user", "hi"), half, system, on_loss="error")
    said = [{"type": "text", "text": "so "}, {"type": "text", "text": text.rstrip()}]
    assert json.loads(ending.body)["messages"][1]["content"] == said
    assert lost(ending) == ["dropped text messages[1]", "downgraded text messages[1]"]
    assert [entry.index for entry in ending.loss_report.entries] == [2, 1]
    assert prepare(message("user", "hi"), half, system).body == ending.body
    going_on = prepare(message("user", "hi"), half, system, more)
    assert json.loads(going_on.body)["messages"][1]["content"][1]["text"] == text
    assert lost(going_on) == ["dropped text messages[1]"]


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (message("user", "a "), "a "),
        (own("a ", called()), "a "),
        (own("a ", cache=True), "a"),
        (own(document("text/plain", "YSA=")), "a"),
    ],
)
def test_whitespace_stays_where_the_conversation_does_not_end_in_it(last: Any, text: str) -> None:
    """A user may end so, and results come behind calls. What is cut can be marked for the cache."""
    [first, *_] = body(last)["messages"][0]["content"]
    assert (first["text"], "cache_control" in first) == (text, "cache" in last)


# What goes back to the model that wrote it


def test_thinking_that_a_message_would_end_with_is_dropped() -> None:
    """The API refuses it: such a reply was cut short, or had only blank text behind it."""
    request = prepare(message("user", "hi"), own("so", think(), " "), message("user", "go on"))
    assert json.loads(request.body)["messages"][1]["content"] == [{"type": "text", "text": "so"}]
    assert lost(request) == ["dropped text messages[1]", "dropped thinking messages[1]"]
    assert [loss.index for loss in request.loss_report.entries] == [2, 1]


def test_malformed_arguments_go_back_inside_an_object() -> None:
    """The wire takes objects only: the model sees its text in one, and its other keys stay."""
    given = called(malformed_arguments='{"a":', caller={"type": "direct"})
    [sent] = body(own(given))["messages"][0]["content"]
    assert sent["input"] == {"malformed_arguments": '{"a":'}
    assert sent["caller"] == {"type": "direct"}
    assert "malformed_arguments" not in sent


# Tools


@pytest.mark.parametrize(
    ("given", "expected", "losses"),
    [
        (b'{"$schema":"x","type":"object","properties":{"format":{"format":"uri"}}}', None, []),
        (b"{}", b'{"type":"object"}', []),
        (b"true", b'{"type":"object"}', []),
        (b'{"required":["x"]}', b'{"type":"object","required":["x"]}', []),
        (
            b'{"type":"object","oneOf":[{}],"properties":{"oneOf":{"anyOf":[{"minimum":1.0}]}},"anyOf":[{}]}',
            b'{"type":"object","properties":{"oneOf":{"anyOf":[{"minimum":1.0}]}}}',
            ["the schema of 'a___b' without the keywords anyOf, oneOf"],
        ),
    ],
)
def test_a_schema_is_the_servers_own_text_as_far_as_the_api_takes_it(
    given: bytes, expected: bytes | None, losses: list[str]
) -> None:
    """The API wants an object's at the top, and no combination there; what else it does not know stays as it is."""
    tool = Tool(name="a___b", description="Do.", input_schema=Raw(given), output_schema=Raw(b"{}"), title="B")
    request = prepare(message("user", "hi"), tools=[tool])
    schema = given if expected is None else expected
    assert b'"tools":[{"name":"a___b","description":"Do.","input_schema":' + schema + b"}]," in request.head
    found = [(loss.kind, loss.block, loss.turn, loss.why) for loss in request.loss_report.entries]
    assert found == [("downgraded", "tool", "", why) for why in losses]
    if losses:
        with pytest.raises(UnsupportedContentError, match="keywords anyOf, oneOf"):
            prepare(message("user", "hi"), tools=[tool], on_loss="error")


@pytest.mark.parametrize("name", ["", "a.b", "ü", "x" * 129])
def test_a_tool_name_that_the_wire_does_not_take_is_refused(name: str) -> None:
    """The call would fail. Where it may be lost, the others are offered, and no choice can name it."""
    given: dict[str, Any] = {"tools": [Tool(name=name), WEATHER], "options": {"tool_mode": name}}
    with pytest.raises(UnsupportedContentError, match="tool called") as raised:
        prepare(message("user", "hi"), **given)
    assert (raised.value.block, raised.value.turn) == ("tool", None)
    request = prepare(message("user", "hi"), **given, on_loss="report")
    assert lost(request) == ["dropped tool", "dropped tool_choice"]
    sent = json.loads(request.body)
    assert ([tool["name"] for tool in sent["tools"]], "tool_choice" in sent) == (["home___weather"], False)
