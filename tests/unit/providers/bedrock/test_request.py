"""Request bodies of Bedrock's Converse API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.providers.bedrock.wire import MODEL, OWN
from tests.unit.providers.carrying import call, document, message, result
from tests.wires.typed_bodies import check_body

from turnlog import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Message, Tool, parse_tools
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


# Messages


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


def test_audio_in_results_moves_behind_them() -> None:
    """The API has it in messages only."""
    turns = [message("assistant", call("c")), message("user", result("c", [document("audio/wav")]))]
    [_, [_, answer, moved]] = wire(message("user", "a"), *turns, tools=TOOLS)[1:]
    assert (list(answer), list(moved)) == (["toolResult"], ["audio"])
    assert losses(prepare(*turns)) == ["moved document: behind the tool result that it is part of"]


def test_call_of_a_server_tool_has_its_result_or_is_left_out() -> None:
    """The API refuses one without the other, but while the turn goes on."""
    use, found = (
        {kind: {"toolUseId": "s", **fields}}
        for kind, fields in (
            ("toolUse", {"name": "nova_grounding", "type": "server_tool_use", "input": {}}),
            ("toolResult", {"content": [], "status": "success", "type": "nova_grounding_result"}),
        )
    )
    natives = [{"type": "native", **OWN, "block": block} for block in (use, found)]
    cut, whole, late = (
        message("assistant", "a", *blocks, **OWN, turn="m") for blocks in (natives[:1], natives, natives[1:])
    )
    asked, thanks = message("user", "go"), message("user", "thanks")
    before, behind = ["user", {"text": "go"}], ["user", {"text": "thanks"}]
    assert wire(asked, whole, thanks) == [before, ["assistant", {"text": "a"}, use, found], behind]
    assert wire(asked, cut) == [before, ["assistant", {"text": "a"}, use]]
    for one, why in (
        (cut, "call 's' has no result, and its turn has ended"),
        (late, "there is no call 's' that it answers"),
    ):
        assert wire(asked, one, thanks) == [before, ["assistant", {"text": "a"}], behind]
        assert losses(prepare(asked, one, thanks)) == [f"dropped native: {why}"]


def test_arguments_that_are_no_object_are_put_into_one() -> None:
    """The model sees what it wrote."""
    turn = message("assistant", call("c", malformed_arguments="[1"), **OWN)
    [asked, _] = wire(message("user", "a"), turn, tools=TOOLS)[1:]
    assert asked[1]["toolUse"]["input"] == {"malformed_arguments": "[1"}


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
        ({"top_p": 1, "topP": 1}, "params.top_p: 'topP' is given twice"),
        ({"max_tokens": 1, "inferenceConfig": {"maxTokens": 1}}, "params.max_tokens: 'maxTokens' is given twice"),
        ({"inferenceConfig": 1}, "params.inferenceConfig: expected a record, got int"),
    ],
)
def test_parameters_that_say_two_things_are_refused(params: dict[str, Any], said: str) -> None:
    """So are those that the request sets itself."""
    with pytest.raises(ContentError, match=said):
        prepare(message("user", "a"), params=params)


@pytest.mark.parametrize("at", ["thinking", "additionalModelRequestFields"])
def test_a_loop_of_tools_that_began_without_thinking_goes_on_without(at: str) -> None:
    """Claude refuses thinking in the middle of a turn, wherever the parameter was given; what it began with goes on."""
    thinking = {"type": "enabled", "budget_tokens": 2000}
    params = {at: thinking} if at == "thinking" else {at: {"thinking": thinking, "top_k": 5}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    foreign, own = message("assistant", call("a")), message("assistant", thought, call("a"), **OWN)
    [without, with_it] = (
        prepare(message("user", "q"), asked, message("user", result("a")), params=params) for asked in (foreign, own)
    )
    fields = json.loads(without.body).get("additionalModelRequestFields", {})
    assert fields == ({} if at == "thinking" else {"top_k": 5})
    assert losses(without) == ["dropped parameter: thinking: the turn that goes on calls tools, and began without it"]
    assert json.loads(with_it.body)["additionalModelRequestFields"]["thinking"] == thinking
    assert losses(with_it) == []


def test_a_conversation_does_not_end_in_whitespace() -> None:
    """Claude refuses a last message of the assistant that does, cited or not, in however many turns it is."""
    cited = {"type": "text", "text": "b\n", "citations": []}
    request = prepare(message("user", "q"), message("assistant", "a "), message("assistant", cited, turn="t", **OWN))
    assert json.loads(request.body)["messages"][1]["content"] == [
        {"text": "a "},
        {"citationsContent": {"content": [{"text": "b"}], "citations": []}},
    ]
    assert losses(request) == ["downgraded text: without the whitespace that it ends in: no conversation can end so"]


def test_whitespace_that_was_cut_is_told_with_the_place_of_its_text() -> None:
    """Not with that of what stood behind it and was dropped."""
    thought = {"type": "thinking", "thinking": "hm"}
    said = [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}, {"type": "text", "text": " "}, thought]
    request = prepare(message("user", "q"), message("assistant", *said))
    cut = [loss.index for loss in request.loss_report.entries if loss.kind == "downgraded"]
    assert cut == [1]
