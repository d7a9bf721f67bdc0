"""Chat Completions: from context windows to bodies."""

import json
from typing import Any

import pydantic
import pytest
from openai.types.chat import completion_create_params
from pydantic_core import SchemaValidator
from tests.unit.providers.carrying import call, document, message, result

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Message, parse_tools
from turnlog.providers import PreparedRequest
from turnlog.providers.cerebras import Cerebras
from turnlog.providers.openai_chat import OpenAIChat

PNG = "iVBORw0KGgo="
OWN = {"provider": "openai", "api": "chat_completions", "model": "m"}
TOOLS = parse_tools(
    '[{"name":"files___read","description":"Read.","inputSchema":{"type":"object","properties":{"path":'
    '{"type":"string"}}}},{"name":"now","inputSchema":{"properties":{},"type":"object"}}]'
)


def prepare(*messages: Message, adapter: OpenAIChat | None = None, **arguments: Any) -> PreparedRequest:
    """Prepare a request to the model `m`; check its body against the types of the SDK, unless `typed` is false."""
    options, typed = arguments.pop("options", {}), arguments.pop("typed", True)
    window = ContextWindow(messages=messages, options=options)
    request = (adapter or OpenAIChat()).prepare_request(window, model="m", **arguments)
    if typed:
        _params.validate_json(request.body)
    return request


def eager(schema: Any) -> Any:
    """Return a pydantic schema whose iterables are lists: others are checked only as someone reads them."""
    match schema:
        case {"type": "generator"}:
            return {name: eager(inner) for name, inner in (schema | {"type": "list"}).items()}
        case dict():
            return {name: eager(inner) for name, inner in schema.items()}
        case list() | tuple():
            return [eager(inner) for inner in schema]
        case _:
            return schema


_params = SchemaValidator(
    eager(
        pydantic.TypeAdapter(
            completion_create_params.CompletionCreateParamsStreaming
            | completion_create_params.CompletionCreateParamsNonStreaming
        ).core_schema
    )
)


def body(*messages: Message, **arguments: Any) -> Any:
    """Return the body as values."""
    return json.loads(prepare(*messages, **arguments).body)


def sent(*messages: Message, **arguments: Any) -> Any:
    """Return the messages of the body."""
    return body(*messages, **arguments)["messages"]


def lost(request: PreparedRequest) -> list[tuple[str, str, str]]:
    """Return the losses as kind, block and turn."""
    return [(entry.kind, entry.block, entry.turn) for entry in request.loss_report.entries]


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
    assert (request.provider, request.api, request.version, request.adapter) == (
        "openai",
        "chat_completions",
        "1",
        "openai_chat",
    )


def test_longer_conversation_keeps_the_body_of_the_shorter_one() -> None:
    """The body of one more turn starts with that of the turns before, up to its closing brackets."""
    adapter = OpenAIChat()
    messages = [message("user", "a"), message("assistant", "b", call("c")), message("user", result("c"), "d")]
    bodies = [prepare(*messages[:count], adapter=adapter).body for count in (1, 3)]
    assert bodies[1].startswith(bodies[0].removesuffix(b"]}"))
    assert bodies[1] == prepare(*messages).body


def test_request_without_tools_has_an_empty_list() -> None:
    """The list of tools is always there."""
    assert body(message("user", "a"))["tools"] == []


@pytest.mark.parametrize("stream", [True, False])
def test_stream_options_are_there_only_with_a_stream(stream: bool) -> None:
    """The parameters of a recorded call ask for usage, and the wire refuses them without a stream."""
    given = body(message("user", "a"), stream=stream, params=dict(OpenAIChat.call_params))
    assert given["stream"] is stream
    assert given.get("stream_options") == ({"include_usage": True} if stream else None)


@pytest.mark.parametrize(("provider", "name"), [(None, "max_completion_tokens"), ("groq", "max_tokens")])
def test_parameters_have_their_names_of_the_wire(provider: str | None, name: str) -> None:
    """Normalized names are translated, others go as they are; endpoints of others have the older name of the limit."""
    given = body(
        message("user", "a"),
        adapter=OpenAIChat(provider=provider),
        params={"max_tokens": 5, "top_p": 0.1, "stop_sequences": ["x"], "seed": 7, "response_format": {"type": "text"}},
    )
    names = ["model", "stream", "tools", name, "top_p", "stop", "seed", "response_format", "messages"]
    assert list(given) == (names if provider is None else [one for one in names if one != "tools"])
    assert (given[name], given["stop"], given["seed"]) == (5, ["x"], 7)


@pytest.mark.parametrize("name", ["messages", "model", "stream", "tools"])
def test_parameter_that_would_overwrite_the_body_raises(name: str) -> None:
    """What the window and the call decide is no parameter."""
    with pytest.raises(ContentError, match=rf"params\.{name}"):
        prepare(message("user", "a"), params={name: "x"})


def test_parameter_that_is_not_json_raises() -> None:
    """A value that JSON does not have is named."""
    with pytest.raises(ContentError, match=r"params\.seed"):
        prepare(message("user", "a"), params={"seed": float("nan")})


def test_parameter_under_two_names_raises() -> None:
    """The normalized name and the wire's are one parameter."""
    with pytest.raises(ContentError, match=r"params\.stop: 'stop' is given twice"):
        prepare(message("user", "a"), params={"stop_sequences": ["a"], "stop": ["b"]})


@pytest.mark.parametrize(
    ("chosen", "on_the_wire"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("now", {"type": "function", "function": {"name": "now"}}),
        ({"type": "function", "function": {"name": "x"}}, {"type": "function", "function": {"name": "x"}}),
    ],
)
def test_tool_choice_is_a_word_or_a_tool(chosen: Any, on_the_wire: Any) -> None:
    """The name of a tool becomes the wire's form of it; what has that form already stays."""
    assert body(message("user", "a"), tools=TOOLS, params={"tool_choice": chosen})["tool_choice"] == on_the_wire


def test_tool_choice_of_a_tool_that_is_not_offered_raises() -> None:
    """A tool that is not offered cannot be chosen."""
    with pytest.raises(ContentError, match=r"params\.tool_choice: 'other'"):
        prepare(message("user", "a"), tools=TOOLS, params={"tool_choice": "other"})


def test_tool_mode_of_the_window_is_the_choice_unless_parameters_have_one() -> None:
    """The window's option stands in for a parameter that is not given."""
    options = {"tool_mode": "required"}
    assert body(message("user", "a"), tools=TOOLS, options=options)["tool_choice"] == "required"
    given = body(message("user", "a"), tools=TOOLS, options=options, params={"tool_choice": "none"})
    assert given["tool_choice"] == "none"


def test_tool_mode_that_the_wire_does_not_have_is_dropped_and_reported() -> None:
    """A mode of another provider does not make a thread unusable."""
    request = prepare(message("user", "a"), tools=TOOLS, options={"tool_mode": "validated"})
    assert "tool_choice" not in json.loads(request.body)
    assert lost(request) == [("dropped", "parameter", "")]


@pytest.mark.parametrize(("chosen", "losses"), [("auto", []), ("none", []), ("now", [("dropped", "parameter", "")])])
def test_tool_choice_without_tools_is_left_out(chosen: str, losses: list[tuple[str, str, str]]) -> None:
    """The wire refuses a choice of nothing; it is reported where it would have meant something."""
    request = prepare(message("user", "a"), params={"tool_choice": chosen})
    assert "tool_choice" not in json.loads(request.body)
    assert lost(request) == losses


@pytest.mark.parametrize("adapter", [OpenAIChat(), Cerebras()])
def test_search_is_refused_or_reported(adapter: OpenAIChat) -> None:
    """The wire has no search of its own."""
    with pytest.raises(UnsupportedContentError, match="search") as caught:
        prepare(message("user", "a"), options={"search": True}, adapter=adapter)
    assert (caught.value.provider, caught.value.block, caught.value.turn) == (adapter.name, "search", None)
    request = prepare(message("user", "a"), options={"search": True}, on_loss="report", adapter=adapter)
    assert lost(request) == [("dropped", "search", "")]


def test_schema_of_a_tool_is_of_a_plain_object() -> None:
    """OpenAI refuses a combination at the top, and an object without properties; the former is reported."""
    tools = parse_tools('[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"anyOf":[true]}}]')
    request = prepare(message("user", "a"), tools=tools)
    schemas = [tool["function"]["parameters"] for tool in json.loads(request.body)["tools"]]
    assert schemas == [{"type": "object", "properties": {}}] * 2
    assert lost(request) == [("downgraded", "tool", "")]
    assert "'b'" in request.loss_report.entries[0].why


def test_schema_goes_to_other_endpoints_as_it_is() -> None:
    """What OpenAI refuses, others may take."""
    tools = parse_tools('[{"name":"b","inputSchema":{"anyOf":[true],"$schema":"x"}}]')
    request = prepare(message("user", "a"), tools=tools, adapter=OpenAIChat(provider="mine"))
    assert b'"parameters":{"anyOf":[true],"$schema":"x"}' in request.body
    assert lost(request) == []


# Messages


def test_text_of_a_turn_is_one_string() -> None:
    """Text blocks are joined without anything between."""
    assert sent(message("system", "s", "1"), message("user", "a", "b"), message("assistant", "c")) == [
        {"role": "system", "content": "s1"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
    ]


def test_turns_of_one_role_stay_apart() -> None:
    """The wire takes several messages of a role in a row."""
    assert [m["role"] for m in sent(message("user", "a"), message("user", "b"), message("system", "c"))] == [
        "user",
        "user",
        "system",
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
def test_other_documents_are_refused(media_type: str) -> None:
    """A document that the wire does not have is refused, with its turn."""
    with pytest.raises(UnsupportedContentError, match="document") as caught:
        prepare(message("user", document(media_type), turn="t"))
    assert (caught.value.provider, caught.value.block, caught.value.turn) == ("openai_chat", "document", "t")


def test_text_document_is_text_where_losses_are_reported() -> None:
    """With `on_loss="report"` the text of a document stands in for it."""
    request = prepare(message("user", document("text/markdown"), turn="t"), on_loss="report")
    assert json.loads(request.body)["messages"] == [{"role": "user", "content": "hello"}]
    assert lost(request) == [("downgraded", "document", "t")]


def test_tool_calls_stand_beside_the_text_of_their_turn() -> None:
    """Several calls are one message, their arguments exactly as the model wrote them."""
    spelled = Message(
        turn="t",
        role="assistant",
        content_json=b'[{"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"f","input":{"n":1.50e3,'
        b'"s":"\\u00e9"}},{"type":"tool_use","id":"b","name":"g","input":{}}]',
    )
    messages = sent(spelled, message("user", result("a"), result("b")))
    assert messages[0] == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"n":1.50e3,"s":"\\u00e9"}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


def test_calls_alone_have_no_content() -> None:
    """The content of a message of calls alone is null."""
    assert sent(message("assistant", call("a")))[0]["content"] is None


def test_each_result_is_a_message_and_the_rest_of_the_turn_follows() -> None:
    """Results go by the ids of their calls; text beside them is a message of the user."""
    messages = sent(
        message("assistant", call("a"), call("b")),
        message(
            "user", "so:", result("b", [{"type": "text", "text": "B"}, {"type": "text", "text": "2"}]), result("a")
        ),
    )
    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "b", "content": "B2"},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
        {"role": "user", "content": "so:"},
    ]


@pytest.mark.parametrize("content", ["", []])
def test_result_without_text_is_empty(content: Any) -> None:
    """A result that says nothing is there nevertheless."""
    assert sent(message("assistant", call("a")), message("user", result("a", content)))[1]["content"] == ""


def test_image_of_a_result_follows_in_a_message_of_the_user() -> None:
    """The wire has only text in results."""
    request = prepare(
        message("assistant", call("a")),
        message("user", result("a", [{"type": "text", "text": "shot"}, document("image/png", PNG)]), turn="t"),
    )
    assert json.loads(request.body)["messages"][1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "shot"},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}],
        },
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


def test_result_that_is_no_error_is_said_as_it_is() -> None:
    """A false flag says nothing."""
    request = prepare(message("assistant", call("a")), message("user", result("a", "x", is_error=False)))
    assert json.loads(request.body)["messages"][1]["content"] == "x"
    assert lost(request) == []


def test_call_without_a_result_is_answered() -> None:
    """The wire refuses calls that no one answers."""
    request = prepare(message("assistant", call("a"), turn="t"), message("user", "never mind"))
    assert [m["role"] for m in json.loads(request.body)["messages"]] == ["assistant", "tool", "user"]
    assert lost(request) == [("synthesised", "tool_result", "t")]


def test_long_and_foreign_ids_are_mapped_in_call_and_result() -> None:
    """An id has at most 40 characters of a small alphabet; both sides of a pair have the same one."""
    foreign = "toolu:" + "x" * 40
    messages = sent(message("assistant", call(foreign)), message("user", result(foreign)))
    mapped = messages[0]["tool_calls"][0]["id"]
    assert len(mapped) <= 40
    assert messages[1]["tool_call_id"] == mapped
    assert sent(message("assistant", call("y" * 40)), message("user", result("y" * 40)))[1]["tool_call_id"] == "y" * 40


def test_thinking_is_dropped_and_reported() -> None:
    """The wire takes no thinking back, not its own either."""
    thinking = {"type": "thinking", "thinking": "hm", **OWN}
    request = prepare(message("user", "a"), message("assistant", thinking, "b", turn="t", **OWN))
    assert json.loads(request.body)["messages"][1] == {"role": "assistant", "content": "b"}
    assert lost(request) == [("dropped", "thinking", "t")]
    with pytest.raises(UnsupportedContentError, match="thinking"):
        prepare(message("assistant", thinking, "b", **OWN), on_loss="error")


def test_unknown_part_of_an_own_turn_goes_back_as_it_was() -> None:
    """A part that turnlog does not know stands among the others, verbatim; for another model it is dropped."""
    native = {"type": "native", "block": {"type": "sound", "n": 1}, **OWN}
    assert sent(message("assistant", "a", native, **OWN), typed=False)[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "sound", "n": 1},
    ]
    assert lost(prepare(message("assistant", "a", native | {"model": "other"}, turn="t"))) == [
        ("dropped", "native", "t")
    ]


def test_unknown_fields_of_an_own_call_go_back_as_they_were() -> None:
    """Some endpoints hang signatures on calls; the text of malformed arguments goes back verbatim too."""
    extra = {"extra_content": {"google": {"thought_signature": "s"}}, "malformed_arguments": '{"a":'}
    [request] = sent(message("assistant", call("a", **extra), **OWN), message("user", result("a")))[:1]
    assert request["tool_calls"] == [
        {
            "id": "a",
            "type": "function",
            "function": {"name": "f", "arguments": '{"a":'},
            "extra_content": {"google": {"thought_signature": "s"}},
        }
    ]


def test_unknown_fields_of_an_own_text_go_back_as_they_were() -> None:
    """Text with further fields is a part of a list, so that they have a place."""
    text = {"type": "text", "text": "a", "mark": 1}
    assert sent(message("assistant", text, **OWN))[0]["content"] == [{"type": "text", "text": "a", "mark": 1}]
    assert lost(prepare(message("assistant", text, turn="t", model="other"))) == [("dropped", "mark", "t")]


def test_endpoint_of_another_provider_gets_no_empty_list_of_tools() -> None:
    """Several refuse one, and OpenAI's own does not."""
    window = ContextWindow(messages=(), options={})
    bodies = [
        json.loads(one.prepare_request(window, model="m").body) for one in (OpenAIChat(), OpenAIChat(provider="local"))
    ]
    assert ["tools" in body for body in bodies] == [True, False]
