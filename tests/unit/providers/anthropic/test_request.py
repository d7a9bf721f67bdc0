"""Requests of the Messages API: the body and its messages."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.anthropic.wire import blocks, body, called, document, message, own, prepare, result
from tests.wires.typed_bodies import check_body

from turnlog import ContentError, UnsupportedContentError
from turnlog.model import Tool
from turnlog.providers import PreparedRequest

WEATHER = Tool(name="home___weather", description="Look out.", input_schema=Raw(b'{"type":"object"}'))


def lost(request: PreparedRequest) -> list[str]:
    """Return the loss report in short."""
    return [f"{loss.kind} {loss.block} {loss.turn}".strip() for loss in request.loss_report.entries]


def think(signature: str | None = "sig", **fields: Any) -> dict[str, Any]:
    """Return thinking."""
    return {"type": "thinking", "thinking": "hm"} | ({} if signature is None else {"signature": signature}) | fields


# The body


def test_body_has_its_parts_in_a_fixed_order() -> None:
    """What a conversation does not change stands first and the messages last, so that longer bodies begin alike."""
    request = prepare(message("user", "hi"))
    assert request.body == (
        b'{"model":"claude-test","max_tokens":8192,"stream":true,"tools":[],'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}'
    )
    assert request.loss_report.entries == ()


def test_parameters_stand_before_the_messages() -> None:
    """Normalized parameters have the wire's names, others go in as they are, and what is None is left out."""
    params = {
        "stop_sequences": ["END"],
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": None,
        "thinking": {"type": "enabled", "budget_tokens": 50},
    }
    request = prepare(
        message("system", "be brief"), message("user", "hi"), params=params, tools=[WEATHER], stream=False
    )
    assert list(json.loads(request.body)) == [
        "model",
        "max_tokens",
        "stream",
        "system",
        "tools",
        "stop_sequences",
        "temperature",
        "thinking",
        "messages",
    ]
    sent = json.loads(request.body)
    assert (sent["max_tokens"], sent["stream"], sent["temperature"]) == (100, False, 0.5)
    assert (sent["stop_sequences"], sent["thinking"]) == (["END"], params["thinking"])


def test_parameters_that_are_no_json_are_refused() -> None:
    """The error names the place."""
    with pytest.raises(ContentError, match="NaN") as raised:
        prepare(message("user", "hi"), params={"metadata": {"x": float("nan")}})
    assert raised.value.field == "params.metadata.x"


def test_system_turns_are_joined() -> None:
    """Their texts are one, with a line between, wherever in the conversation they stand."""
    sent = body(message("system", "one", "two"), message("user", "hi"), message("system", "three"))
    assert sent["system"] == "one\n\n----\n\ntwo\n\n----\n\nthree"
    assert [given["role"] for given in sent["messages"]] == ["user"]


def test_bodies_are_of_the_types_that_the_sdk_has() -> None:
    """Strictly, and with no key that it does not know: every kind of block, marks, tools, search and parameters."""
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e", "page_age": None}
    results = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]}
    cited = {"type": "char_location", "cited_text": "b", "document_index": 0, "document_title": None}
    place = {"start_char_index": 0, "end_char_index": 1}
    natives = [{"type": "native", "provider": "anthropic", "block": block} for block in (use, results)]
    redacted = {"type": "thinking", "thinking": "", "redacted": True, "signature": "data"}
    text = {"type": "text", "text": "a", "citations": [cited | place]}
    inside = [{"type": "text", "text": "a"}, document("image/png"), document("application/pdf")]
    given = [
        message("system", "be brief", cache=True),
        message("user", "hi", document("image/webp"), document("application/pdf"), document("text/csv"), cache=True),
        own(think(), redacted, *natives, text, called(caller={"type": "direct"}), called("b"), cache=True),
        message("user", result(inside, is_error=True), cache=True),
        own("so"),
    ]
    params = {
        "tool_choice": "home___weather",
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    for stream in (True, False):
        request = prepare(*given, tools=[WEATHER], options={"search": True}, params=params, stream=stream)
        check_body("anthropic", request.body)
        assert lost(request) == ["synthesised tool_result messages[2]"]


# Documents and results


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("image/jpeg", "image"),
        ("image/png", "image"),
        ("image/gif", "image"),
        ("image/webp", "image"),
        ("Application/PDF; version=1", "document"),
        ("text/markdown", "text"),
        ("application/json", "text"),
        ("image/svg+xml", "text"),
    ],
)
def test_documents_are_blocks_of_the_kind_of_their_media_type(media_type: str, kind: str) -> None:
    """It is sent without parameters and in lower case, as the API wants it. What is text is sent as text."""
    plain = media_type.partition(";")[0].lower()
    source = {"type": "base64", "media_type": plain, "data": "aGVsbG8="}
    content = {"text": "hello"} if kind == "text" else {"source": source}
    assert blocks(message("user", document(media_type))) == [{"type": kind, **content}]


def test_results_can_hold_text_images_and_documents() -> None:
    """All stay in the result."""
    content = [{"type": "text", "text": "a"}, document("image/png"), document("application/pdf"), document("text/csv")]
    [sent] = blocks(own(called()), message("user", result(content)))
    assert [inner["type"] for inner in sent["content"]] == ["text", "image", "document", "text"]
    assert sent["content"][3] == {"type": "text", "text": "hello"}


def test_results_say_whether_they_are_errors() -> None:
    """`is_error` is sent where it is true."""
    found = [blocks(own(called()), message("user", result("x", is_error=flag)))[0] for flag in (True, False, None)]
    assert found[0] == {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x", "is_error": True}
    assert found[1] == found[2] == {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}], " \n", [{"type": "text", "text": " \n"}]])
def test_an_empty_result_has_no_content(content: Any) -> None:
    """The API takes no blank text, and a result need not have content."""
    assert blocks(own(called()), message("user", result(content))) == [
        {"type": "tool_result", "tool_use_id": "toolu_1"}
    ]


def test_blank_text_is_dropped_and_reported() -> None:
    """The API refuses text of whitespace alone, which models do write before calls."""
    request = prepare(own("\n\n", called()), message("user", result("x")))
    assert [found["type"] for found in json.loads(request.body)["messages"][0]["content"]] == ["tool_use"]
    assert lost(request) == ["dropped text messages[0]"]


# What goes back to the model that wrote it


def test_signed_thinking_goes_back_to_its_model() -> None:
    """Thinking and its signature, redacted thinking as its data, and the keys that only its own blocks have."""
    cited = {"type": "text", "text": "so", "citations": [{"type": "char_location", "cited_text": "b"}]}
    sent = blocks(own(think(), {"type": "thinking", "thinking": "", "redacted": True, "signature": "data"}, cited))
    assert sent == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "data"},
        cited,
    ]


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


def test_a_tool_without_a_description_has_none() -> None:
    """And one without a schema takes an empty object."""
    assert body(message("user", "hi"), tools=[Tool(name="a")])["tools"] == [
        {"name": "a", "input_schema": {"type": "object", "properties": {}}}
    ]


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


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("home___weather", {"type": "tool", "name": "home___weather"}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_the_tool_choice_is_mapped(choice: Any, expected: dict[str, Any]) -> None:
    """Normalized words become the wire's, records are sent as they are, and `tool_choice` stands behind the tools."""
    sent = body(message("user", "hi"), tools=[WEATHER], params={"tool_choice": choice, "metadata": {}})
    assert sent["tool_choice"] == expected
    assert list(sent)[3:] == ["tools", "tool_choice", "metadata", "messages"]
