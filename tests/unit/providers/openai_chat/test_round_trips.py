"""Chat Completions: what an endpoint said goes back to it as it came, and to others as something that they take."""

import json
from typing import Any

import msgspec
import pytest
from tests.unit.providers.carrying import message, result
from tests.unit.providers.openai_chat.wire import (
    HOME,
    OTHER,
    THEIRS,
    aggregate,
    calls,
    chunk,
    lost,
    prepare,
    recorded,
    sent,
    shown,
    values,
    whole,
)

from turnlog.model import Native, Response, Text, Thinking, ToolUse
from turnlog.providers.cerebras import Cerebras
from turnlog.providers.openai_chat import OpenAIChat

REFERENCE = {"type": "reference", "reference_ids": [1]}
"""What Mistral has behind a text that a document says."""


def back(response: Response, adapter: OpenAIChat = OTHER, *, left_out: str = "", **arguments: Any) -> Any:
    """Return the message in which a reply goes back, to the same model unless another is named; no more is lost."""
    request = prepare(recorded(response), adapter=adapter, typed=False, **arguments)
    assert lost(request) == [("dropped", name, "reply") for name in left_out.split()]
    return json.loads(request.body)["messages"][0]


def test_what_came_goes_back_as_it_was() -> None:
    """Text, calls and the spelling of their arguments, malformed ones too, go back to the same model unchanged."""
    written = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"n": 1.50e3,\n "s":"\\u00e9"}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": '{"cut'}, "extra_content": {"s": 1}},
        {"id": "c", "type": "function", "function": {"name": "g", "arguments": "{}", "strict": True}},
    ]
    reply = recorded(aggregate(whole({"content": "I look.", "tool_calls": written}, "tool_calls")))
    request = prepare(reply, message("user", result("a"), result("b"), result("c")), typed=False)
    said = {"role": "assistant", "content": "I look.", "tool_calls": written}
    assert json.loads(request.body)["messages"][0] == said
    assert lost(request) == []


def test_spelling_of_arguments_is_of_the_model_that_wrote_them() -> None:
    """Another model gets the same arguments without whitespace, and nothing is lost by that."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    reply = recorded(aggregate(whole({"tool_calls": [call]}, "tool_calls")))
    request = prepare(reply, message("user", result("a")), model="another")
    [sent_call] = json.loads(request.body)["messages"][0]["tool_calls"]
    assert sent_call == call | {"function": {"name": "f", "arguments": '{"x":1}'}}
    assert lost(request) == []


def test_unknown_parts_go_back_as_they_were() -> None:
    """A part that turnlog does not know goes back verbatim, to the same model."""
    parts = [{"type": "text", "text": "a"}, REFERENCE]
    assert back(aggregate(whole({"content": parts})), HOME) == {"role": "assistant", "content": parts}


def thinking_part(text: str) -> dict[str, Any]:
    """Return thinking as a part of a content."""
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": "a"}, REFERENCE, {"type": "text", "text": " b"}, REFERENCE, REFERENCE],
        [thinking_part("hm"), {"type": "text", "text": "a"}, thinking_part("so"), {"type": "text", "text": "b"}],
        [REFERENCE, thinking_part("hm"), REFERENCE],
    ],
    ids=["references", "thinking and text", "no text"],
)
def test_parts_go_back_in_the_order_in_which_they_came(parts: list[dict[str, Any]]) -> None:
    """Which text a reference is for is said by nothing but its place. Pieces of text come as parts or as they are."""
    response = aggregate(whole({"content": parts}), adapter=OTHER)
    assert back(response) == {"role": "assistant", "content": parts}
    strings = [part["text"] if part["type"] == "text" else [part] for part in parts]
    for pieces in ([[part] for part in parts], strings):
        events = [chunk({"content": piece}) for piece in pieces]
        assert aggregate(*events, chunk({}, "stop"), adapter=OTHER) == response


def test_what_stands_beside_parts_stands_before_and_behind_them() -> None:
    """Thinking of a field of its own is before the content, whenever it comes; calls are behind it."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    parts = [REFERENCE, {"type": "text", "text": "a"}, REFERENCE]
    reply = {"tool_calls": [call], "content": parts, "reasoning_content": "hm"}
    response = aggregate(whole(reply, "tool_calls"), adapter=OTHER)
    assert [type(block) for block in response.content] == [Thinking, Native, Text, Native, ToolUse]
    assert sent(recorded(response), message("user", result("c")), adapter=OTHER, typed=False)[0] == {
        "role": "assistant",
        **reply,
    }


# Thinking


@pytest.mark.parametrize("names", [("reasoning_content",), ("reasoning",), ("reasoning_content", "reasoning")])
def test_thinking_goes_back_in_the_field_that_it_came_in(names: tuple[str, ...]) -> None:
    """DeepSeek, z.ai, Ollama and others want their thinking back, under the name that they have for it."""
    pieces = [chunk(dict.fromkeys(names, text)) for text in ("h", "m")]
    response = aggregate(*pieces, chunk({"content": "a"}, "stop"), adapter=OTHER)
    assert response == aggregate(whole({"content": "a"} | dict.fromkeys(names, "hm")), adapter=OTHER)
    assert back(response) == {"role": "assistant", "content": "a"} | dict.fromkeys(names, "hm")


def test_thinking_in_parts_goes_back_as_a_part() -> None:
    """Mistral has thinking among the parts of the content; what a part has beside its text stays with it."""
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}
    pieces = [
        part | {"thinking": [{"type": "text", "text": text}], "closed": closed}
        for text, closed in (("h", False), ("m", True))
    ]
    parts = [part, {"type": "text", "text": "a"}]
    response = aggregate(*(chunk({"content": [one]}) for one in pieces), chunk({"content": "a"}, "stop"), adapter=OTHER)
    assert response == aggregate(whole({"content": parts}), adapter=OTHER)
    assert back(response) == {"role": "assistant", "content": parts}


DETAILS = [
    {"type": "reasoning.summary", "summary": "hm", "format": None, "index": 0},
    {"type": "reasoning.encrypted", "data": "eA==", "id": "rs-1", "index": 1},
    {"type": "reasoning.text", "text": "so", "signature": "c2ln", "index": 2},
]


def test_records_of_reasoning_go_back_in_their_order() -> None:
    """OpenRouter wants its records back as they came; the same text in `reasoning` need not go beside them."""
    response = aggregate(whole({"content": "a", "reasoning": "hmso", "reasoning_details": DETAILS}), adapter=OTHER)
    assert [type(block) for block in response.content] == [Thinking, Text]
    assert response.content[0].thinking == "hmso"
    assert back(response) == {"role": "assistant", "content": "a", "reasoning_details": DETAILS}


def test_pieces_of_a_record_are_put_together() -> None:
    """Text comes in pieces under one index, and its signature ends it; the next one is another record."""
    text = {"type": "reasoning.text", "index": 0}
    pieces = [
        {**text, "text": "", "signature": ""},
        {**text, "text": "h", "format": None},
        {**text, "text": "m", "format": "f"},
        {**text, "signature": "c2ln"},
        {**text, "text": "so"},
        {"type": "reasoning.encrypted", "data": "eA==", "index": 1},
        {"type": "reasoning.encrypted", "data": "eQ==", "index": 1},
    ]
    events = [chunk({"reasoning_details": [one]}) for one in pieces]
    response = aggregate(*events, chunk({"content": "a"}, "stop"), adapter=OTHER)
    assert response.content[0].thinking == "hmso"
    assert [delta["content"] for delta in shown(*events)] == ["h", "m", "so"]
    assert back(response)["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "c2ln", "format": "f"},
        *pieces[4:],
    ]


def test_encrypted_reasoning_alone_reaches_the_turn() -> None:
    """A record without text is thinking without text, and goes back."""
    response = aggregate(whole({"content": "a", "reasoning_details": DETAILS[1:2]}), adapter=OTHER)
    assert response.content[0].thinking == ""
    assert back(response) == {"role": "assistant", "content": "a", "reasoning_details": DETAILS[1:2]}
    assert shown(whole({"reasoning_details": DETAILS[1:2]})) == []


def test_thinking_that_does_not_say_where_it_was_goes_where_most_have_it() -> None:
    """Thinking of a transcript has no field; with no text beside it the content is empty."""
    thinking = {"type": "thinking", "thinking": "hm", **THEIRS}
    assert sent(message("assistant", thinking, **THEIRS), adapter=OTHER, typed=False) == [
        {"role": "assistant", "content": "", "reasoning_content": "hm"}
    ]


@pytest.mark.parametrize("adapter", [HOME, Cerebras()])
def test_thinking_stays_behind_where_the_wire_is_at_home(adapter: OpenAIChat) -> None:
    """OpenAI and Cerebras take no thinking back: it is dropped, or refused."""
    reply = recorded(aggregate(whole({"content": "a", "reasoning": "hm"}), adapter=adapter))
    request = prepare(reply, adapter=adapter)
    assert json.loads(request.body)["messages"] == [{"role": "assistant", "content": "a"}]
    assert lost(request) == [("dropped", "thinking", "reply")]
    assert (adapter.capabilities.thinking, OTHER.capabilities.thinking) == ("none", "all")


@pytest.mark.parametrize(("adapter", "model"), [(OTHER, "another"), (OpenAIChat(provider="third"), "m")])
def test_thinking_goes_to_no_other_provider_or_model(adapter: OpenAIChat, model: str) -> None:
    """It is of one model of one endpoint."""
    reply = recorded(aggregate(whole({"content": "a", "reasoning": "hm"}), adapter=OTHER))
    request = prepare(reply, adapter=adapter, model=model)
    assert json.loads(request.body)["messages"] == [{"role": "assistant", "content": "a"}]
    assert lost(request) == [("dropped", "thinking", "reply")]


# Calls that are no functions


CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "sum", "input": '4 + "4"'}}


def test_custom_call_goes_back_as_it_came() -> None:
    """Its input is text: here an object with that as its only value, on the wire what it was."""
    first = CUSTOM | {"index": 0, "custom": {"name": "sum", "input": ""}}
    events = [calls(first), *(calls({"index": 0, "custom": {"input": text}}) for text in ("4 + ", '"4"'))]
    response = aggregate(*events, chunk({}, "tool_calls"))
    assert response == aggregate(whole({"tool_calls": [CUSTOM]}, "tool_calls"))
    [block] = response.content
    assert isinstance(block, ToolUse)
    assert (block.name, block.id, json.loads(bytes(block.input))) == ("sum", "c", {"input": '4 + "4"'})
    assert shown(*events) == [
        {"type": "tool_use", "name": "sum", "id": "c"},
        {"content": "4 + "},
        {"content": '"4"'},
    ]
    assert sent(recorded(response), message("user", result("c"))) == [
        {"role": "assistant", "content": None, "tool_calls": [CUSTOM]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]


def test_custom_call_is_a_function_for_another_model() -> None:
    """Whoever has no such call gets one of a function, and the report says what it was."""
    reply = recorded(aggregate(whole({"tool_calls": [CUSTOM]}, "tool_calls")))
    request = prepare(reply, message("user", result("c")), model="another")
    function = {"name": "sum", "arguments": json.dumps({"input": '4 + "4"'}, separators=(",", ":"))}
    assert json.loads(request.body)["messages"][0]["tool_calls"] == [
        {"id": "c", "type": "function", "function": function}
    ]
    assert lost(request) == [("dropped", "call_type", "reply")]


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c", "type": "builtin_function", "function": {"name": "search", "arguments": "{}"}},
        {"id": "c", "type": "of_tomorrow", "of_tomorrow": {"name": "f", "n": 1}},
        {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x", "grammar": "g"}},
    ],
)
def test_call_of_any_type_goes_back_as_it_came(call: dict[str, Any]) -> None:
    """A type that turnlog does not know is kept, with the fields that are its own, under a name that others take."""
    response = aggregate(whole({"tool_calls": [call]}, "tool_calls"), adapter=OTHER)
    assert response.stop_reason == "tool_use"
    assert all(block.name for block in response.content if isinstance(block, ToolUse))
    messages = sent(recorded(response), message("user", result("c")), adapter=OTHER, typed=False)
    assert messages[0]["tool_calls"] == [call]


def test_empty_custom_field_of_a_function_is_nothing() -> None:
    """Some endpoints have every field in each call."""
    function = {"name": "f", "arguments": "{}"}
    call = {"id": "c", "type": "function", "function": function, "custom": {"name": "", "input": ""}}
    assert aggregate(whole({"tool_calls": [call]}, "tool_calls")).content == (
        ToolUse(id="c", name="f", input=msgspec.Raw(b"{}")),
    )


# Further fields of a message


CITED = [{"type": "url_citation", "url_citation": {"url": "https://x.example/", "start_index": 0, "end_index": 1}}]


def test_annotations_are_with_the_text_and_stay_behind() -> None:
    """Citations reach the turn; the wire does not take them back."""
    response = aggregate(chunk({"content": "a"}), chunk({"annotations": CITED}), chunk({}, "stop"))
    assert response == aggregate(whole({"content": "a", "annotations": CITED}))
    [text] = response.content
    assert (text.text, values(text.extra)) == ("a", {"annotations": CITED})
    assert back(response, HOME, left_out="annotations") == {"role": "assistant", "content": "a"}


def test_transcript_of_audio_is_what_was_said() -> None:
    """It is text of the turn, with the audio beside it."""
    pieces = [
        {"id": "audio-1"},
        {"transcript": "H", "data": "AA"},
        {"transcript": "i", "data": "BB"},
        {"expires_at": 9},
    ]
    events = [chunk({"audio": one}) for one in pieces]
    response = aggregate(*events, chunk({}, "stop"))
    audio = {"id": "audio-1", "data": "AABB", "expires_at": 9}
    [text] = response.content
    assert (text.text, values(text.extra)) == ("Hi", {"audio": audio})
    assert response == aggregate(whole({"content": None, "audio": audio | {"transcript": "Hi"}}))
    assert [delta["content"] for delta in shown(*events)] == ["H", "i"]


def test_audio_goes_back_to_openai_by_its_id_and_to_others_as_text() -> None:
    """Only OpenAI keeps audio; its transcript is for everyone else."""
    reply = whole({"content": None, "audio": {"id": "audio-1", "data": "AA", "transcript": "Hi"}})
    said = {"role": "assistant", "content": "Hi"}
    assert back(aggregate(reply), HOME) == {"role": "assistant", "content": None, "audio": {"id": "audio-1"}}
    assert back(aggregate(reply, adapter=OTHER), OTHER, left_out="audio") == said
    request = prepare(recorded(aggregate(reply)), model="another")
    assert json.loads(request.body)["messages"] == [said]
    assert lost(request) == [("dropped", "audio", "reply")]


@pytest.mark.parametrize("reply", [{"content": "a"}, {"tool_calls": [CUSTOM]}])
def test_further_fields_of_a_message_reach_the_turn(reply: dict[str, Any]) -> None:
    """They stand beside its first text, or its first block; of them only what is known to be wanted goes back."""
    signed = {"google": {"thought_signature": "c2ln"}}
    response = aggregate(whole(reply | {"executed_tools": [1], "extra_content": signed}), adapter=OTHER)
    [block] = response.content
    assert values(block.extra)["message_fields"] == {"executed_tools": [1], "extra_content": signed}
    goes = sent(recorded(response), adapter=OTHER, typed=False)[0]
    assert goes == {"role": "assistant", "content": None} | reply | {"extra_content": signed}


def test_fields_that_are_of_no_block_are_with_the_reply() -> None:
    """What is about pieces, and what is empty."""
    response = aggregate(
        chunk({"content": "a", "channel": "final", "audio": {"id": "", "transcript": "", "expires_at": 0}}, "stop")
    )
    assert response.content == (Text(text="a"),)
    assert values(response.extra)["channel"] == "final"


IMAGES = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]


@pytest.mark.parametrize(
    "fields", [{"images": IMAGES}, {"audio": {"id": "audio-1", "data": "AA"}}, {"annotations": CITED}]
)
def test_fields_of_a_message_without_content_are_a_block(fields: dict[str, Any]) -> None:
    """A model that draws need not say anything: what it sent is all there is of the turn."""
    response = aggregate(whole({"content": ""} | fields), adapter=OTHER)
    assert response == aggregate(chunk({"content": ""} | fields), chunk({}, "stop"), adapter=OTHER)
    [block] = response.content
    assert isinstance(block, Native)
    assert (block.provider, json.loads(bytes(block.block)), values(block.extra)) == (
        "other",
        fields,
        {"message_fields": True},
    )
    assert set(values(response.extra)) == {"created"}


def test_fields_of_a_message_without_content_go_back_where_they_are_known() -> None:
    """What is known to be wanted goes back without them."""
    signed = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    said = {"role": "assistant", "content": ""} | signed
    assert back(aggregate(whole(signed), adapter=OTHER)) == said
    assert back(aggregate(whole(signed | {"images": IMAGES}), adapter=OTHER), left_out="images") == said


@pytest.mark.parametrize("content", ["", "Here it is."])
@pytest.mark.parametrize("length", [4, 4_000_000])
def test_images_go_back_to_openrouter(content: str, length: int) -> None:
    """It takes those that a model drew as it sent them; a model that is to change one has to see it."""
    openrouter = OpenAIChat(provider="openrouter")
    drawn = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * length}"}, "index": 0}
    said = {"role": "assistant", "content": content, "images": [drawn]}
    response = aggregate(chunk({"content": content}), chunk({"images": [drawn]}), chunk({}, "stop"), adapter=openrouter)
    assert back(response, openrouter) == said


@pytest.mark.parametrize("odd", [{"content": {"a": 1}}, {"tool_calls": [1]}, {"reasoning": 7}, {"function_call": "f"}])
def test_field_of_an_unexpected_type_is_kept(odd: dict[str, Any]) -> None:
    """It is not read, and not lost; the rest of the message is as it was."""
    response = aggregate(whole({"refusal": "no"} | odd))
    assert response.content[0].text == "no"
    assert values(response.content[0].extra)["message_fields"] == odd
