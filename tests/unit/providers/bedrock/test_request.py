"""Request bodies of Bedrock's Converse API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.providers.bedrock.wire import CITATION, CONTENT, MODEL, OWN, add_up, whole
from tests.unit.providers.carrying import call, document, message, result
from tests.wires.typed_bodies import check_body

from turnlog import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Message, Tool, content_bytes, parse_tools
from turnlog.providers import PreparedRequest, get

TOOLS = parse_tools(
    '[{"name":"fs___read","description":"Read.","inputSchema":{"type":"object","properties":{}}},'
    '{"name":"ls","inputSchema":{"anyOf":[{"type":"object"}]}}]'
)
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
POINT = {"cachePoint": {"type": "default"}}


def prepare(*messages: Message, tools: Sequence[Tool] = (), **fields: Any) -> PreparedRequest:
    """Prepare a request for Bedrock; `options` are those of the window."""
    window = ContextWindow(messages=messages, options=fields.pop("options", {}))
    return get("bedrock").prepare_request(window, tools, model=MODEL, **fields)


def body(*messages: Message, **fields: Any) -> dict[str, Any]:
    """Return the body of a request, checked against the types of the API."""
    found = prepare(*messages, **fields).body
    check_body("bedrock", found)
    return json.loads(found)


def wire(*messages: Message, **fields: Any) -> list[list[Any]]:
    """Return the messages of a request, each as its role and its content."""
    return [[each["role"], *each["content"]] for each in body(*messages, **fields)["messages"]]


def losses(request: PreparedRequest) -> list[str]:
    """Return the loss report in short."""
    return [f"{entry.kind} {entry.block}: {entry.why}" for entry in request.loss_report.entries]


def test_body_has_its_fields_in_order() -> None:
    """Messages are last, so that a longer body starts with that of a shorter one. Model and stream are in the URL."""
    params = {
        "top_p": 0.9,
        "thinking": {"type": "enabled"},
        "max_tokens": 5,
        "serviceTier": {"type": "flex"},
        "tool_choice": "required",
    }
    request = prepare(message("system", "s"), message("user", "a"), tools=TOOLS[:1], params=params)
    assert request.body == (
        b'{"toolConfig":{"tools":[{"toolSpec":{"name":"fs___read","description":"Read.","inputSchema":{"json":'
        b'{"type":"object","properties":{}}}}}],"toolChoice":{"any":{}}},"system":[{"text":"s"}],'
        b'"inferenceConfig":{"maxTokens":5,"topP":0.9},"additionalModelRequestFields":{"thinking":{"type":"enabled"}},'
        b'"serviceTier":{"type":"flex"},"messages":[{"role":"user","content":[{"text":"a"}]}]}'
    )
    assert prepare(message("user", "a"), stream=False).body == prepare(message("user", "a")).body


# Messages


def test_turns_of_one_role_are_one_message() -> None:
    """Roles alternate; nothing is between what was said, and nothing is lost."""
    turns = [message(role, text) for role, text in zip(["user", "user", "assistant", "assistant"], "abcd", strict=True)]
    assert wire(*turns, message("user", "e")) == [
        ["user", {"text": "a"}, {"text": "b"}],
        ["assistant", {"text": "c"}, {"text": "d"}],
        ["user", {"text": "e"}],
    ]
    assert losses(prepare(*turns)) == []


def test_next_turn_of_a_role_goes_on_in_the_last_message() -> None:
    """Up to the end of its last message, the body of a longer conversation starts with that of the shorter one."""
    turns = [message("user", "a"), message("assistant", "b"), message("user", "c"), message("user", "d")]
    shorter, longer = prepare(*turns[:3]), prepare(*turns)
    assert shorter.body.endswith(b"]}]}")
    assert longer.body.startswith(shorter.body.removesuffix(b"]}]}") + b',{"text":"d"}')
    assert len(longer.messages) == len(shorter.messages) == 3


def test_what_begins_with_the_assistant_is_sent_so() -> None:
    """Some models take that: who does not says so."""
    assert [each[0] for each in wire(message("assistant", "a"), message("user", "b"))] == ["assistant", "user"]


@pytest.mark.parametrize(
    ("media_type", "kind", "form"),
    [
        ("image/PNG; q=1", "image", "png"),
        ("image/jpg", "image", "jpeg"),
        ("application/pdf", "document", "pdf"),
        (DOCX, "document", "docx"),
        ("video/3gpp", "video", "three_gp"),
        ("audio/mpeg", "audio", "mp3"),
    ],
)
def test_documents_are_of_their_kind(media_type: str, kind: str, form: str) -> None:
    """Each has its format; documents in the narrow sense have a name that says nothing."""
    [[_, text, found]] = wire(message("user", "a", document(media_type)))
    record = found[kind]
    name = record.pop("name", None)
    assert (text, record) == ({"text": "a"}, {"format": form, "source": {"bytes": "aGVsbG8="}})
    assert (name is not None) == (kind == "document")


def test_documents_have_names_of_their_own() -> None:
    """The same one twice has two names, which stay as the conversation grows: the API refuses equal ones."""
    pdf = document("application/pdf")
    turns = [message("user", "a", pdf, pdf, turn="1"), message("user", pdf, turn="2")]
    [[_, *content]] = wire(*turns)
    names = [block["document"]["name"] for block in content if "document" in block]
    assert len(set(names)) == 3
    [[_, *before]] = wire(turns[0])
    assert [block["document"]["name"] for block in before[1:]] == names[:2]


@pytest.mark.parametrize(("count", "said"), [(1, "(1 document)"), (2, "(2 documents)")])
def test_documents_alone_have_a_text_beside_them(count: int, said: str) -> None:
    """The API takes no documents without one; images it does."""
    [[_, *content]] = wire(message("user", *[document("application/pdf")] * count))
    assert content[count:] == [{"text": said}]
    [[_, *images]] = wire(message("user", document("image/png")))
    assert [list(block) for block in images] == [["image"]]


def test_text_like_documents_are_text() -> None:
    """Their text stands where they stood."""
    assert wire(message("user", document("text/csv"), "b")) == [["user", {"text": "hello"}, {"text": "b"}]]


def test_calls_and_results_are_paired() -> None:
    """Results are a list of blocks, documents among them; that one is an error is its status."""
    nested = [{"type": "text", "text": "x"}, document("image/png"), document("application/pdf")]
    turns = [
        message("user", "a"),
        message("assistant", "b", call("c.1", input={"z": 1.50}), call("c2")),
        message("user", result("c.1", nested), result("c2", "no", is_error=True), "beside"),
        message("assistant", call("c3")),
        message("user", result("c3", "")),
    ]
    _, asked, answered, _, empty = wire(*turns, tools=TOOLS, on_loss="report")
    first = asked[2]["toolUse"]["toolUseId"]
    assert asked[2:] == [
        {"toolUse": {"toolUseId": first, "name": "f", "input": {"z": 1.5}}},
        {"toolUse": {"toolUseId": "c2", "name": "f", "input": {}}},
    ]
    seen = answered[1]["toolResult"]
    assert (seen["toolUseId"], [list(block) for block in seen["content"]]) == (
        first,
        [["text"], ["image"], ["document"]],
    )
    assert "status" not in seen
    assert answered[2:] == [
        {"toolResult": {"toolUseId": "c2", "content": [{"text": "no"}], "status": "error"}},
        {"text": "beside"},
    ]
    assert empty[1:] == [{"toolResult": {"toolUseId": "c3", "content": []}}]


def test_audio_in_results_moves_behind_them() -> None:
    """The API has it in messages only."""
    turns = [message("assistant", call("c")), message("user", result("c", [document("audio/wav")]))]
    [_, [_, answer, moved]] = wire(message("user", "a"), *turns, tools=TOOLS)[1:]
    assert (list(answer), list(moved)) == (["toolResult"], ["audio"])
    assert losses(prepare(*turns)) == ["moved document: behind the tool result that it is part of"]


def test_arguments_that_are_no_object_are_put_into_one() -> None:
    """The model sees what it wrote."""
    turn = message("assistant", call("c", malformed_arguments="[1"), **OWN)
    [asked, _] = wire(message("user", "a"), turn, tools=TOOLS)[1:]
    assert asked[1]["toolUse"]["input"] == {"malformed_arguments": "[1"}


def test_reply_goes_back_as_it_came() -> None:
    """Reasoning with its signature, redacted reasoning, citations, calls and unknown blocks."""
    further = [
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"reasoningContent": {"reasoningText": {"text": "", "signature": "s2", "x": 1}}},
        {"hologram": {"depth": 1.5}},
        {"toolUse": {"toolUseId": "s", "name": "code", "type": "server_tool_use", "input": {"a": 1}}},
        {"text": "Done."},
    ]
    reply = add_up(whole(*CONTENT[:3], *further))
    turn = Message(turn="t", role="assistant", content_json=content_bytes(reply.content), **OWN)
    request = prepare(message("user", "a"), turn, message("user", result("c1")), tools=TOOLS[:1])
    [_, back, _] = json.loads(request.body)["messages"]
    assert back["content"] == [*CONTENT[:3], *further]
    assert losses(request) == []


def test_what_is_anothers_stays_behind() -> None:
    """Citations, reasoning and unknown blocks are dropped for another model, and so is reasoning without signature."""
    thought = {"type": "thinking", "thinking": "Hm."}
    blocks = [thought, {"type": "text", "text": "b", "citations": [CITATION]}, thought | {"signature": "s"}]
    for model, kept in ((MODEL, 1), ("us.amazon.nova-pro-v1:0", 0)):
        turn = message("assistant", *blocks, "c", **(OWN | {"model": model}))
        request = prepare(message("user", "a"), turn)
        assert [json.loads(request.body)["messages"][1]["content"].count(thing) for thing in ({"text": "c"},)] == [1]
        assert (b"citationsContent" in request.body, request.body.count(b"reasoningContent")) == (bool(kept), kept)
        assert len(request.loss_report.entries) == (1 if kept else 3)


# Cache points and system


def test_cache_points_are_behind_what_is_cached() -> None:
    """There are four at most, the last ones, and one of them is the system's; they change no other byte."""
    turns = [message("user" if n % 2 else "assistant", str(n), cache=True) for n in range(1, 7)]
    plain = [[*each] for each in wire(*(message("user" if n % 2 else "assistant", str(n)) for n in range(1, 7)))]
    assert wire(*turns) == [*plain[:2], *([*each, POINT] for each in plain[2:])]
    found = body(message("system", "s", cache=True), *turns)
    assert found["system"] == [{"text": "s"}, POINT]
    assert [POINT in each["content"] for each in found["messages"]] == [False] * 3 + [True] * 3


def test_cache_point_stays_within_a_message_of_several_turns() -> None:
    """What comes behind it is not cached with it."""
    assert wire(message("user", "a", cache=True), message("user", "b")) == [
        ["user", {"text": "a"}, POINT, {"text": "b"}]
    ]


# Tools


def test_schemas_are_those_of_objects() -> None:
    """Combinations at the top are taken out and reported; a name that the API refuses is refused, or dropped."""
    request = prepare(message("user", "a"), tools=TOOLS)
    check_body("bedrock", request.body)
    assert json.loads(request.body)["toolConfig"]["tools"][1] == {
        "toolSpec": {"name": "ls", "inputSchema": {"json": {"type": "object", "properties": {}}}}
    }
    assert losses(request) == ["downgraded tool: the schema of 'ls' without the keywords anyOf"]
    named = parse_tools('[{"name":"a.b","inputSchema":true}]')
    with pytest.raises(UnsupportedContentError, match="call it otherwise"):
        prepare(message("user", "a"), tools=named)
    assert "toolConfig" not in body(message("user", "a"), tools=named, on_loss="report")


@pytest.mark.parametrize(
    ("choice", "spelled"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        ("ls", {"tool": {"name": "ls"}}),
        ({"any": {}}, {"any": {}}),
    ],
)
def test_choice_is_spelled(choice: Any, spelled: dict[str, Any]) -> None:
    """A record goes as it is."""
    asked = body(message("user", "a"), tools=TOOLS, params={"tool_choice": choice})
    assert asked["toolConfig"]["toolChoice"] == spelled


@pytest.mark.parametrize("given", [{"tools": TOOLS, "params": {"tool_choice": "none"}}, {}], ids=["none", "no tools"])
def test_no_tools_are_offered(given: dict[str, Any]) -> None:
    """Where the conversation has calls, which the API refuses then, one tool stands in, behind the messages."""
    turns = [message("user", 'a {"toolUse":{'), message("assistant", call("c")), message("user", result("c"))]
    assert "toolConfig" not in body(turns[0], **given)
    request = prepare(*turns, **given)
    [tool] = json.loads(request.body)["toolConfig"]["tools"]
    assert (tool["toolSpec"]["name"], losses(request)) == ("no_tool", [])
    check_body("bedrock", request.body)
    shorter = prepare(turns[0], **given)
    assert request.body.startswith(shorter.head + b"".join(shorter.messages))


# Parameters


def test_records_of_the_wire_are_put_together_with_names() -> None:
    """What belongs into a record of the API goes there, beside what is given there."""
    params = {
        "inferenceConfig": {"maxTokens": 7},
        "additionalModelRequestFields": {"top_k": 5},
        "stopSequences": ["x"],
        "reasoning": {"effort": "low", "x": None},
        "temperature": None,
    }
    asked = body(message("user", "a"), params=params)
    assert asked["inferenceConfig"] == {"maxTokens": 7, "stopSequences": ["x"]}
    assert asked["additionalModelRequestFields"] == {"top_k": 5, "reasoning": {"effort": "low", "x": None}}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"modelId": "m"}, "params.modelId: the request sets it itself"),
        ({"toolConfig": {}}, "params.toolConfig: the request sets it itself"),
        ({"top_p": 1, "topP": 1}, "params.top_p: topP is given twice"),
        ({"max_tokens": 1, "inferenceConfig": {"maxTokens": 1}}, "params.max_tokens: maxTokens is given twice"),
        ({"inferenceConfig": 1}, "params.inferenceConfig: expected a record, got int"),
    ],
)
def test_parameters_that_say_two_things_are_refused(params: dict[str, Any], said: str) -> None:
    """So are those that the request sets itself."""
    with pytest.raises(ContentError, match=said):
        prepare(message("user", "a"), params=params)
