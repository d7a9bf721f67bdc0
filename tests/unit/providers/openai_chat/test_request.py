"""Chat Completions: from context windows to bodies."""

import json
from typing import Any

import pytest
from tests.unit.providers.carrying import call, document, message, result
from tests.unit.providers.openai_chat.wire import HOME, OTHER, OWN, body, lost, prepare, sent

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import Message, parse_tools
from turnlog.providers.openai_chat import OpenAIChat

PNG = "iVBORw0KGgo="
TOOLS = parse_tools(
    '[{"name":"files___read","description":"Read.","inputSchema":{"type":"object","properties":{"path":'
    '{"type":"string"}}}},{"name":"now","inputSchema":{"properties":{},"type":"object"}}]'
)
ASKED = message("user", "a")


# The body around the messages


def test_body_has_its_parts_in_order_with_messages_last() -> None:
    """What stays the same in a conversation comes first, so that a longer one keeps the prefix."""
    request = prepare(message("user", "hello"), tools=TOOLS, params={"tool_choice": "auto", "temperature": 0.5})
    assert request.body == (
        b'{"model":"m","stream":true,"tools":[{"type":"function","function":{"name":"files___read","description":"Read.",'
        b'"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},{"type":"function","function":{"name":'
        b'"now","description":"","parameters":{"properties":{},"type":"object"}}}],"tool_choice":"auto","temperature":0.5,'
        b'"messages":[{"role":"user","content":"hello"}]}'
    )
    assert (request.provider, request.api, request.adapter) == ("openai", "chat_completions", "openai_chat")


@pytest.mark.parametrize("stream", [True, False])
def test_stream_options_are_there_only_with_a_stream(stream: bool) -> None:
    """The parameters of a recorded call ask for usage, and the wire refuses them without a stream."""
    given = body(ASKED, stream=stream, params=dict(OpenAIChat.call_params))
    assert given["stream"] is stream
    assert given.get("stream_options") == ({"include_usage": True} if stream else None)


@pytest.mark.parametrize(
    ("adapter", "limit", "tools"), [(HOME, "max_completion_tokens", ["tools"]), (OTHER, "max_tokens", [])]
)
def test_body_is_as_the_endpoint_wants_it(adapter: OpenAIChat, limit: str, tools: list[str]) -> None:
    """Endpoints of others have the older name of the limit, and refuse an empty list of tools, which OpenAI takes."""
    params = {"max_tokens": 5, "top_p": 0.1, "stop_sequences": ["x"], "seed": 7, "response_format": {"type": "text"}}
    given = body(ASKED, adapter=adapter, params=params)
    assert list(given) == ["model", "stream", *tools, limit, "top_p", "stop", "seed", "response_format", "messages"]
    assert (given.get("tools", []), given[limit], given["stop"], given["seed"]) == ([], 5, ["x"], 7)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        *(({name: "x"}, rf"params\.{name}") for name in ("messages", "model", "stream", "tools")),
        ({"seed": float("nan")}, r"params\.seed"),
        ({"stop_sequences": ["a"], "stop": ["b"]}, r"params\.stop: 'stop' is given twice"),
        ({"tool_choice": "other"}, r"params\.tool_choice: .*'other'"),
    ],
)
def test_parameter_that_cannot_be_raises(params: dict[str, Any], match: str) -> None:
    """What the window decides is no parameter; one is JSON, and given once; only what is offered can be chosen."""
    with pytest.raises(ContentError, match=match):
        prepare(ASKED, tools=TOOLS, params=params)


@pytest.mark.parametrize(
    ("chosen", "on_the_wire"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("ANY", "required"),
        ("now", {"type": "function", "function": {"name": "now"}}),
        ({"type": "function", "function": {"name": "now"}}, {"type": "function", "function": {"name": "now"}}),
    ],
)
def test_tool_choice_is_a_word_or_a_tool(chosen: Any, on_the_wire: Any) -> None:
    """The name of a tool becomes the wire's form of it; what has that form already stays."""
    assert body(ASKED, tools=TOOLS, params={"tool_choice": chosen})["tool_choice"] == on_the_wire


def test_tool_mode_that_the_wire_does_not_have_is_left_out() -> None:
    """A mode of another provider does not make a thread unusable; it is reported."""
    request = prepare(ASKED, tools=TOOLS, options={"tool_mode": "validated"})
    assert "tool_choice" not in json.loads(request.body)
    assert lost(request) == [("dropped", "tool_choice", "")]
    with pytest.raises(UnsupportedContentError, match="validated"):
        prepare(ASKED, tools=TOOLS, options={"tool_mode": "validated"}, on_loss="error")


def test_schema_of_a_tool_is_of_a_plain_object() -> None:
    """OpenAI refuses a combination at the top, and an object without properties; the former is reported."""
    tools = parse_tools('[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"anyOf":[true]}}]')
    request = prepare(ASKED, tools=tools)
    schemas = [tool["function"]["parameters"] for tool in json.loads(request.body)["tools"]]
    assert schemas == [{"type": "object", "properties": {}}] * 2
    [entry] = request.loss_report.entries
    assert (entry.kind, entry.block) == ("downgraded", "tool")
    assert entry.why == "the schema of 'b' without the keywords anyOf"
    with pytest.raises(UnsupportedContentError, match="'b'"):
        prepare(ASKED, tools=tools, on_loss="error")


def test_schema_goes_to_other_endpoints_as_it_is() -> None:
    """What OpenAI refuses, others may take."""
    tools = parse_tools('[{"name":"b","inputSchema":{"anyOf":[true],"$schema":"x"}}]')
    request = prepare(ASKED, tools=tools, adapter=OTHER)
    assert b'"parameters":{"anyOf":[true],"$schema":"x"}' in request.body
    assert lost(request) == []


# Messages


def test_text_of_a_turn_is_one_string() -> None:
    """Text blocks are joined without anything between; turns of one role stay apart."""
    turns = (message("system", "s", "1"), message("user", "a", "b"), message("user", "c"), message("assistant", "d"))
    assert sent(*turns) == [
        {"role": "system", "content": "s1"},
        {"role": "user", "content": "ab"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]


def test_images_and_pdfs_are_parts_beside_the_text() -> None:
    """With a document the content is a list, in its order."""
    given = message("user", "see", document("image/png", PNG), document("application/pdf", "JVBERg=="), "end")
    assert sent(given)[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "text", "text": "end"},
    ]


@pytest.mark.parametrize("media_type", ["text/markdown", "application/json", "audio/wav", "image/tiff"])
def test_other_documents_are_refused_on_wish(media_type: str) -> None:
    """A document that the wire does not have is refused where nothing may be lost, text too."""
    with pytest.raises(UnsupportedContentError, match="document"):
        prepare(message("user", document(media_type)), on_loss="error")


@pytest.mark.parametrize("media_type", ["text/csv", "application/json", "application/xml", "application/yaml"])
def test_text_document_is_text(media_type: str) -> None:
    """The text of a document stands in for it, and the report says so."""
    request = prepare(message("user", document(media_type), turn="t"))
    assert json.loads(request.body)["messages"] == [{"role": "user", "content": "hello"}]
    assert lost(request) == [("downgraded", "document", "t")]


def test_tool_calls_stand_beside_the_text_of_their_turn() -> None:
    """Several calls are one message, their arguments as they are recorded; without text its content is null."""
    calls = (
        b'{"type":"tool_use","id":"a","name":"f","input":{"n":1.50e3,"s":"\\u00e9"}},'
        b'{"type":"tool_use","id":"b","name":"g","input":{}}]'
    )
    said = Message(turn="t", role="assistant", content_json=b'[{"type":"text","text":"I look."},' + calls)
    alone = Message(turn="t", role="assistant", content_json=b"[" + calls)
    results = message("user", result("a"), result("b"))
    on_the_wire = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"n":1.50e3,"s":"\\u00e9"}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert sent(said, results)[0] == {"role": "assistant", "content": "I look.", "tool_calls": on_the_wire}
    assert sent(alone, results)[0] == {"role": "assistant", "content": None, "tool_calls": on_the_wire}


def test_each_result_is_a_message_and_the_rest_of_the_turn_follows() -> None:
    """Results go by the ids of their calls; text beside them is a message of the user."""
    texts = [{"type": "text", "text": "B"}, {"type": "text", "text": "2"}]
    answers = message("user", "so:", result("b", texts), result("a", []))
    assert sent(message("assistant", call("a"), call("b")), answers)[1:] == [
        {"role": "tool", "tool_call_id": "b", "content": "B2"},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "user", "content": "so:"},
    ]


def test_image_of_a_result_follows_in_a_message_of_the_user() -> None:
    """The wire has only text in results."""
    answer = result("a", [{"type": "text", "text": "shot"}, document("image/png", PNG)])
    request = prepare(message("assistant", call("a")), message("user", answer, turn="t"))
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    assert json.loads(request.body)["messages"][1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "shot"},
        {"role": "user", "content": [image]},
    ]
    assert lost(request) == [("moved", "document", "t")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("no such file", "Error: no such file"),
        ("ERROR: no such file", "ERROR: no such file"),
        ("", "Error"),
        ([], "Error"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "Error: ab"),
    ],
)
def test_error_of_a_tool_is_said_in_its_text(content: Any, expected: str) -> None:
    """The wire cannot say that a result is an error, so its text does, and the report says so."""
    request = prepare(message("assistant", call("a")), message("user", result("a", content, is_error=True), turn="t"))
    assert json.loads(request.body)["messages"][1]["content"] == expected
    assert lost(request) == [("downgraded", "tool_result", "t")]


@pytest.mark.parametrize("whose", [{}, OWN])
def test_id_of_forty_characters_is_the_longest_of_others(whose: dict[str, str]) -> None:
    """What the provider made itself is kept however long it is."""
    for long in ("y" * 40, "y" * 41):
        messages = sent(message("assistant", call(long), **whose), message("user", result(long)))
        id = messages[0]["tool_calls"][0]["id"]
        assert (id == long) is (bool(whose) or len(long) == 40)
        assert (len(id) <= 40 or bool(whose), messages[1]["tool_call_id"]) == (True, id)


def test_unknown_part_of_an_own_turn_goes_back_as_it_was() -> None:
    """A part that turnlog does not know stands among the others, verbatim; for another model it is dropped."""
    native = {"type": "native", "block": {"type": "sound", "n": 1}, **OWN}
    parts = [{"type": "text", "text": "a"}, {"type": "sound", "n": 1}]
    assert sent(message("assistant", "a", native, **OWN), typed=False)[0]["content"] == parts
    assert lost(prepare(message("assistant", "a", native, turn="t", **OWN), model="other")) == [
        ("dropped", "native", "t")
    ]


def test_unknown_fields_of_an_own_text_go_back_as_they_were() -> None:
    """Text with further fields is a part of a list, so that they have a place."""
    text = {"type": "text", "text": "a", "mark": 1}
    assert sent(message("assistant", text, **OWN), typed=False)[0]["content"] == [text]
    assert lost(prepare(message("assistant", text, turn="t", **OWN), model="other")) == [("dropped", "mark", "t")]


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "thinking", "thinking": "hm", "sent_in": 7, "reasoning_details": "x", **OWN, "provider": "other"},
        {"type": "text", "text": "a", "audio": [], "message_fields": "x", "annotations": 1},
        call("c", spelled_arguments='{"x": 1}', call_type=7, function=[]),
        call("c", call_type="custom"),
    ],
)
def test_keys_of_an_unexpected_type_do_no_harm(odd: dict[str, Any]) -> None:
    """A window may come from anywhere: what stands beside its blocks need not be what a reply puts there."""
    own = OWN | {"provider": "other"}
    messages = sent(message("assistant", "b", odd, **own), message("user", result("c")), adapter=OTHER, typed=False)
    assert messages[0]["role"] == "assistant"
