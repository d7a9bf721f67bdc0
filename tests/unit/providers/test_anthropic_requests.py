"""Requests of the Messages API: the body, its messages, and what is marked in it for the prompt cache."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.messages_wire import MODEL, anthropic, message, own, window
from tests.wires.typed_bodies import check_body

from turnlog import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Message, Tool, content_bytes
from turnlog.model.chunked import Chunked
from turnlog.providers import PreparedRequest
from turnlog.providers.anthropic.breakpoints import with_breakpoints

EPHEMERAL = {"type": "ephemeral"}
WEATHER = Tool(name="home___weather", description="Look out.", input_schema=Raw(b'{"type":"object"}'))


def prepare(*messages: dict[str, Any], options: dict[str, Any] | None = None, **given: Any) -> PreparedRequest:
    """Return the request of a window."""
    return anthropic().prepare_request(
        window(*messages, **(options or {})), given.pop("tools", ()), model=MODEL, **given
    )


def body(*messages: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Return the body of a request, decoded."""
    return json.loads(prepare(*messages, **given).body)


def blocks(*messages: dict[str, Any], **given: Any) -> list[Any]:
    """Return the blocks of the last message of a request."""
    return body(*messages, **given)["messages"][-1]["content"]


def lost(request: PreparedRequest) -> list[str]:
    """Return the loss report in short."""
    return [f"{loss.kind} {loss.block} {loss.turn}".strip() for loss in request.loss_report.entries]


def document(media_type: str, data: str = "aGVsbG8=") -> dict[str, Any]:
    """Return a document; by default its bytes are `hello`."""
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


def called(id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    """Return a tool call."""
    return {"type": "tool_use", "id": id, "name": "home___weather", "input": {}, **fields}


def result(content: Any, id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    """Return a tool result."""
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


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


@pytest.mark.parametrize("name", ["model", "messages", "stream", "system", "tools"])
def test_parameters_do_not_overwrite_what_the_request_sets(name: str) -> None:
    """A parameter of such a name is refused."""
    with pytest.raises(ContentError, match=f"params.{name}") as raised:
        prepare(message("user", "hi"), params={name: None})
    assert raised.value.field == f"params.{name}"


def test_parameters_that_are_no_json_are_refused() -> None:
    """The error names the place."""
    with pytest.raises(ContentError, match="NaN") as raised:
        prepare(message("user", "hi"), params={"metadata": {"x": float("nan")}})
    assert raised.value.field == "params.metadata.x"


def test_a_longer_conversation_keeps_the_prefix() -> None:
    """The bytes of the shorter body, up to its closing, begin those of the longer one."""
    shorter = [message("user", "hi"), own(called()), message("user", result("fine"))]
    longer = [*shorter, own("good"), message("user", "bye")]
    before, after = prepare(*shorter), prepare(*longer)
    assert after.body.startswith(before.body.removesuffix(before.closing))


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


# Cache breakpoints


def marked(sent: dict[str, Any]) -> list[str]:
    """Return the texts of marked blocks."""
    return [
        found["text"]
        for given in sent["messages"]
        for found in given["content"]
        if found.get("cache_control") == EPHEMERAL
    ]


def test_a_cached_turn_is_marked_on_its_last_block() -> None:
    """The mark stands on no other block."""
    sent = blocks(message("user", "one", "two", cache=True))
    assert sent == [{"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": EPHEMERAL}]


def test_only_the_last_four_cached_turns_are_marked() -> None:
    """The API takes four marks: earlier ones go."""
    sent = body(*(message("user", str(number), cache=number != 5) for number in range(7)))
    assert marked(sent) == ["2", "3", "4", "6"]


def test_a_cached_system_turn_takes_one_of_the_four_marks() -> None:
    """The system prompt is then a list of one block, and three turns are marked."""
    sent = body(message("system", "be brief", cache=True), *(message("user", str(n), cache=True) for n in range(5)))
    assert sent["system"] == [{"type": "text", "text": "be brief", "cache_control": EPHEMERAL}]
    assert marked(sent) == ["2", "3", "4"]


def test_a_cached_system_turn_without_text_takes_no_mark() -> None:
    """There is then no system prompt to mark."""
    sent = body(message("system", " ", cache=True), *(message("user", str(number), cache=True) for number in range(4)))
    assert "system" not in sent
    assert marked(sent) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (message("user", document("image/png"), cache=True), "image"),
        (message("user", document("application/pdf"), cache=True), "document"),
        (own(called(), cache=True), "tool_use"),
    ],
)
def test_blocks_of_other_kinds_are_marked_too(given: dict[str, Any], kind: str) -> None:
    """Images, documents and calls can be marked as text can."""
    [sent] = body(given)["messages"][0]["content"]
    assert (sent["type"], sent["cache_control"]) == (kind, EPHEMERAL)


def test_results_are_marked() -> None:
    """A cached turn of results is marked on the last of them."""
    calls = own(called("a"), called("b"))
    sent = blocks(calls, message("user", result("1", "a"), result("2", "b"), cache=True))
    assert [found.get("cache_control") for found in sent] == [None, EPHEMERAL]


def test_native_blocks_are_marked_and_otherwise_verbatim() -> None:
    """The mark is added to the end of the block; its own keys keep their order and spelling."""
    native = {
        "type": "native",
        "provider": "anthropic",
        "block": {"type": "server_tool_use", "id": "s", "input": {"n": 1.0}},
    }
    request = prepare(own(native, cache=True))
    assert request.messages[0] == (
        b'{"role":"assistant","content":[{"type":"server_tool_use","id":"s","input":{"n":1.0},'
        b'"cache_control":{"type":"ephemeral"}}]}'
    )


def test_blocks_that_cannot_be_marked_are_passed_over() -> None:
    """Thinking cannot be marked: the last block before it is. A message of nothing else is passed over."""
    mixed = (
        b'{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"","signature":"s"}]}'
    )
    alone = b',{"role":"assistant","content":[{"type":"redacted_thinking","data":"d"}]}'
    first, second = with_breakpoints([mixed, alone], [0, 1], 1)
    assert json.loads(first)["content"][0]["cache_control"] == EPHEMERAL
    assert second == alone
    assert with_breakpoints([alone], [0], 4) == [alone]


def test_a_mark_that_is_there_stays() -> None:
    """A block with a time to live of its own keeps it."""
    fragment = b'{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]}'
    assert with_breakpoints([fragment], [0], 4) == [fragment]


def test_marks_are_laid_over_the_messages() -> None:
    """The marked messages are a sequence like the others, and the unmarked ones in it are the very same objects."""
    fragments = Chunked(
        [b'%s{"role":"user","content":[{"type":"text","text":"%d"}]}' % (b"," * (n > 0), n) for n in range(9)]
    )
    found = with_breakpoints(fragments, [2, 8], 4)
    listed = list(found)
    assert [b"cache_control" in fragment for fragment in listed] == [n in (2, 8) for n in range(9)]
    assert all(listed[n] is fragments[n] for n in range(9) if n not in (2, 8))
    assert [found[n] for n in range(-9, 9)] == listed + listed
    assert (len(found), found[1:3], found == listed, found == fragments) == (9, tuple(listed[1:3]), True, False)
    assert hash(found) == hash(tuple(listed))
    assert (found == 9, repr(found)) == (False, repr(tuple(listed)))
    with pytest.raises(IndexError):
        found[9]


def test_marks_move_and_the_rest_stays() -> None:
    """In a longer conversation the marks stand elsewhere; what is not marked in either has the same bytes."""
    turns = [Message(turn=str(n), role="user", content_json=content_bytes(str(n)), cache=True) for n in range(300)]
    before, after = (
        anthropic().prepare_request(ContextWindow(messages=Chunked(turns[:count]), options={}), model=MODEL).messages
        for count in (299, 300)
    )
    different = [n for n in range(299) if before[n] != after[n]]
    assert different == [295]
    assert [n for n in range(300) if b"cache_control" in after[n]] == [296, 297, 298, 299]


# Documents and results


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png", "image/gif", "image/webp"])
def test_images_are_image_blocks(media_type: str) -> None:
    """The four types that the API knows."""
    source = {"type": "base64", "media_type": media_type, "data": "aGVsbG8="}
    assert blocks(message("user", document(media_type))) == [{"type": "image", "source": source}]


def test_a_pdf_is_a_document_block() -> None:
    """Its media type is sent without parameters and in lower case, as the API wants it."""
    source = {"type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}
    assert blocks(message("user", document("Application/PDF; version=1"))) == [{"type": "document", "source": source}]


@pytest.mark.parametrize("media_type", ["text/markdown", "application/json", "image/svg+xml"])
def test_text_like_documents_are_text(media_type: str) -> None:
    """What is text is sent as text."""
    assert blocks(message("user", document(media_type))) == [{"type": "text", "text": "hello"}]


def test_other_documents_are_refused() -> None:
    """The error names the adapter, the block and the turn."""
    with pytest.raises(UnsupportedContentError, match="'image/bmp'") as raised:
        prepare(message("user", document("image/bmp")))
    assert (raised.value.provider, raised.value.block, raised.value.turn) == ("anthropic", "document", "messages[0]")


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


def test_results_of_parallel_calls_are_one_message() -> None:
    """They stand first in it, and text behind them."""
    sent = blocks(own(called("a"), called("b")), message("user", "so?", result("1", "a"), result("2", "b")))
    assert [found["type"] for found in sent] == ["tool_result", "tool_result", "text"]


def test_ids_that_the_wire_does_not_take_are_mapped_in_call_and_result() -> None:
    """The same id gives the same mapped one, in both places, and is reported."""
    request = prepare(own(called("call:1")), message("user", result("1", "call:1")))
    sent = json.loads(request.body)["messages"]
    assert sent[0]["content"][0]["id"] == sent[1]["content"][0]["tool_use_id"]
    assert ":" not in sent[0]["content"][0]["id"]
    assert lost(request) == ["renamed tool_id messages[0]"]


def test_blank_text_is_dropped_and_reported() -> None:
    """The API refuses text of whitespace alone, which models do write before calls."""
    request = prepare(own("\n\n", called()), message("user", result("x")))
    assert [found["type"] for found in json.loads(request.body)["messages"][0]["content"]] == ["tool_use"]
    assert lost(request) == ["dropped text messages[0]"]


# What goes back to the model that wrote it


def think(signature: str | None = "sig", **fields: Any) -> dict[str, Any]:
    """Return thinking."""
    return {"type": "thinking", "thinking": "hm"} | ({} if signature is None else {"signature": signature}) | fields


def test_signed_thinking_goes_back_to_its_model() -> None:
    """Thinking and its signature, and redacted thinking as its data."""
    sent = blocks(own(think(), {"type": "thinking", "thinking": "", "redacted": True, "signature": "data"}, "so"))
    assert sent == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "data"},
        {"type": "text", "text": "so"},
    ]


@pytest.mark.parametrize(
    "given",
    [
        own(think(None), "so"),
        own(think(model="claude-other"), "so"),
        message("assistant", think(), "so", provider="gemini", api="generateContent", model=MODEL),
        message("assistant", think(), "so"),
    ],
    ids=["unsigned", "another model", "another provider", "unknown model"],
)
def test_other_thinking_is_dropped_and_reported(given: dict[str, Any]) -> None:
    """What the API would refuse is left out, or refused where losses are."""
    request = prepare(given)
    assert json.loads(request.body)["messages"][-1]["content"] == [{"type": "text", "text": "so"}]
    assert lost(request) == ["dropped thinking messages[0]"]
    with pytest.raises(UnsupportedContentError):
        prepare(given, on_loss="error")


def test_thinking_that_a_message_would_end_with_is_dropped() -> None:
    """The API refuses it: such a reply was cut short, or had only blank text behind it."""
    request = prepare(message("user", "hi"), own("so", think(), " "), message("user", "go on"))
    assert json.loads(request.body)["messages"][1]["content"] == [{"type": "text", "text": "so"}]
    assert lost(request) == ["dropped text messages[1]", "dropped thinking messages[1]"]
    assert [loss.index for loss in request.loss_report.entries] == [2, 1]


def test_a_message_of_nothing_that_can_be_sent_is_left_out() -> None:
    """No message is empty."""
    sent = body(message("user", "hi"), own(think(None)), message("user", "", " "), message("user", "go on"))
    assert [given["content"][0]["text"] for given in sent["messages"]] == ["hi", "go on"]


def test_citations_go_back_to_their_model_and_to_no_other() -> None:
    """Keys of a block that turnlog does not know are the model's own."""
    cited = {"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "b"}]}
    assert blocks(own(cited)) == [cited]
    request = prepare(own(cited) | {"model": "claude-other"})
    assert json.loads(request.body)["messages"][0]["content"] == [{"type": "text", "text": "a"}]
    assert lost(request) == ["dropped citations messages[0]"]


def test_inputs_keep_their_spelling() -> None:
    """The text of a tool's input is not decoded on its way."""
    content = b'[{"type":"tool_use","id":"a","name":"f","input":{"b":1.0,"a":1E2,"s":"\\u00e9"}}]'
    given = Message(turn="t", role="assistant", content_json=content)
    request = anthropic().prepare_request(ContextWindow(messages=[given], options={}), model=MODEL)
    assert b'"input":{"b":1.0,"a":1E2,"s":"\\u00e9"}' in request.messages[0]


def test_malformed_arguments_go_back_inside_an_object() -> None:
    """The wire takes objects only: the model sees its text in one, and its other keys stay."""
    given = called(malformed_arguments='{"a":', caller={"type": "direct"})
    [sent] = body(own(given))["messages"][0]["content"]
    assert sent["input"] == {"malformed_arguments": '{"a":'}
    assert sent["caller"] == {"type": "direct"}
    assert "malformed_arguments" not in sent


# Tools


def test_tools_are_offered_with_their_schemas_unchanged() -> None:
    """The schema is the server's own text, keywords that the API does not know included."""
    schema = b'{"$schema":"x","type":"object","properties":{"format":{"format":"uri"}},"additionalProperties":false}'
    tool = Tool(name="a___b", description="Do.", input_schema=Raw(schema), output_schema=Raw(b"{}"), title="B")
    request = prepare(message("user", "hi"), tools=[tool])
    assert b'"tools":[{"name":"a___b","description":"Do.","input_schema":' + schema + b"}]," in request.head


def test_a_schema_without_a_type_gets_one() -> None:
    """The API wants `type` at the top. A tool without a description has none."""
    tools = [Tool(name="a", input_schema=Raw(b"{}")), Tool(name="b", input_schema=Raw(b'{"required":["x"]}'))]
    assert body(message("user", "hi"), tools=tools)["tools"] == [
        {"name": "a", "input_schema": {"type": "object"}},
        {"name": "b", "input_schema": {"type": "object", "required": ["x"]}},
    ]


def test_a_schema_that_is_a_combination_is_taken_apart_and_reported() -> None:
    """The API takes no combination at the top, and any below it."""
    schema = b'{"type":"object","oneOf":[{}],"properties":{"oneOf":{"anyOf":[{"minimum":1.0}]}},"anyOf":[{}]}'
    request = prepare(message("user", "hi"), tools=[Tool(name="a", input_schema=Raw(schema))])
    assert b'"input_schema":{"type":"object","properties":{"oneOf":{"anyOf":[{"minimum":1.0}]}}}' in request.head
    [loss] = request.loss_report.entries
    assert (loss.kind, loss.block, loss.turn) == ("downgraded", "tool", "")
    assert loss.why == "the schema of 'a' without the keywords anyOf, oneOf"


def test_a_schema_that_takes_anything_is_one_of_an_object() -> None:
    """`true` is a schema, but none that the API takes."""
    [tool] = body(message("user", "hi"), tools=[Tool(name="a", input_schema=Raw(b"true"))])["tools"]
    assert tool == {"name": "a", "input_schema": {"type": "object"}}


@pytest.mark.parametrize("name", ["", "a.b", "ü", "x" * 129])
def test_a_tool_name_that_the_wire_does_not_take_is_refused(name: str) -> None:
    """The call would fail; the error names the tool."""
    with pytest.raises(UnsupportedContentError, match="tool called") as raised:
        prepare(message("user", "hi"), tools=[Tool(name=name)])
    assert (raised.value.block, raised.value.turn) == ("tools", None)


@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_search_is_a_tool_beside_the_others(tools: Sequence[Tool]) -> None:
    """The option `search` adds the provider's search."""
    sent = body(message("user", "hi"), tools=tools, options={"search": True})["tools"]
    assert sent[len(tools) :] == [{"type": "web_search_20250305", "name": "web_search"}]
    assert len(sent) == len(tools) + 1


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


def test_the_option_tool_mode_is_the_tool_choice_unless_a_parameter_is() -> None:
    """The parameter of a call wins over what the conversation inherits."""
    given: dict[str, Any] = {"tools": [WEATHER], "options": {"tool_mode": "required"}}
    assert body(message("user", "hi"), **given)["tool_choice"] == {"type": "any"}
    assert body(message("user", "hi"), **given, params={"tool_choice": "none"})["tool_choice"] == {"type": "none"}


def test_a_tool_choice_without_tools_is_left_out_or_refused() -> None:
    """The API takes it only beside tools. What must call one is refused, or reported as lost."""
    for choice in ("auto", "none"):
        request = prepare(message("user", "hi"), params={"tool_choice": choice})
        assert (b"tool_choice" in request.head, lost(request)) == (False, [])
    with pytest.raises(UnsupportedContentError, match="'required'") as raised:
        prepare(message("user", "hi"), params={"tool_choice": "required"})
    assert raised.value.block == "tool_choice"
    request = prepare(message("user", "hi"), params={"tool_choice": "f"}, on_loss="report")
    assert (b"tool_choice" in request.head, lost(request)) == (False, ["dropped tool_choice"])


def test_a_tool_choice_of_another_kind_is_refused() -> None:
    """The error names the parameter."""
    with pytest.raises(ContentError, match="got int") as raised:
        prepare(message("user", "hi"), tools=[WEATHER], params={"tool_choice": 1})
    assert raised.value.field == "params.tool_choice"
