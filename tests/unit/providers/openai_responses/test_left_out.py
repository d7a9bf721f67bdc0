"""Calls of custom tools over the Responses API: they come as calls, and are answered in the type that they have."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw
from tests.unit.providers.carrying import message, result
from tests.unit.providers.openai_responses.wire import HOME, aggregate, dumped, prepare, recorded, response, whole

from turnlog.model import ToolUse

CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "sql", "input": "SELECT\t1"}
CALL = ToolUse(
    name="sql",
    input=Raw(b'{"input":"SELECT\\t1"}'),
    id="call_1",
    extra={"call_type": Raw(b'"custom"'), "item": Raw(b'{"id":"ctc_1"}')},
)
EVENTS: list[dict[str, Any]] = [
    {"type": "response.output_item.added", "output_index": 0, "item": CUSTOM | {"input": ""}},
    {"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "ctc_1", "delta": "SELECT"},
    {"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "ctc_1", "delta": "\t1"},
    {"type": "response.custom_tool_call_input.done", "output_index": 0, "item_id": "ctc_1", "input": "SELECT\t1"},
    {"type": "response.output_item.done", "output_index": 0, "item": CUSTOM},
    {"type": "response.completed", "response": response(CUSTOM)},
]


def test_custom_call_is_a_call_streamed_and_whole() -> None:
    """Its input is a text, and here an object with that as its only value."""
    for reply in (aggregate(*map(dumped, EVENTS)), aggregate(whole(CUSTOM))):
        assert reply.content == (CALL,)
        assert (reply.stop_reason, reply.error) == ("tool_use", None)


def test_custom_call_is_shown_as_it_comes() -> None:
    """The name and the id come first, then the text; of a whole reply both at once."""
    reader = HOME.reader()
    shown = [(delta.type, delta.name, delta.content) for event in EVENTS for delta in reader.add(dumped(event))]
    whole_shown = [(delta.type, delta.name, delta.content) for delta in HOME.deltas(whole(CUSTOM))]
    assert [(kind, content) for kind, _, content in shown if isinstance(content, str)] == [
        (None, "SELECT"),
        (None, "\t1"),
    ]
    assert [content for _, _, content in whole_shown if isinstance(content, str)] == ["SELECT\t1"]
    assert shown[0][:2] == whole_shown[0][:2] == ("tool_use", "sql")


def test_custom_call_cut_off_keeps_what_had_arrived() -> None:
    """The text so far is its input."""
    [call] = aggregate(*map(dumped, EVENTS[:2])).content
    assert isinstance(call, ToolUse)
    assert (call.name, bytes(call.input)) == ("sql", b'{"input":"SELECT"}')


def test_custom_call_goes_back_and_is_answered_in_its_type() -> None:
    """The item is as it came, and its result is one of custom tools; that of a function stays one of functions."""
    function = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_2", "name": "f"}
    reply = aggregate(whole(CUSTOM, function | {"arguments": "{}"}))
    answers = message("user", result("call_1", "one row"), result("call_2", "ok"), turn="answers")
    request = prepare(message("user", "Go."), recorded(reply), answers)
    assert json.loads(request.body)["input"][1:] == [
        CUSTOM,
        function | {"arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "one row"},
        {"type": "function_call_output", "call_id": "call_2", "output": "ok"},
    ]
    assert request.loss_report.entries == ()


def test_custom_call_without_a_result_is_answered_in_its_type() -> None:
    """What is made up for it has its type too."""
    request = prepare(message("user", "Go."), recorded(aggregate(whole(CUSTOM))), message("user", "Go on."))
    answer = json.loads(request.body)["input"][2]
    assert (answer["type"], answer["call_id"]) == ("custom_tool_call_output", "call_1")
    assert [(entry.kind, entry.block) for entry in request.loss_report.entries] == [("synthesised", "tool_result")]


def test_custom_call_is_one_of_a_function_to_another_model() -> None:
    """Another model has no such tool: call and result are those of a function, and the type is reported."""
    turns = (recorded(aggregate(whole(CUSTOM))), message("user", result("call_1", "one row"), turn="answers"))
    request = prepare(*turns, model="another")
    asked, answered = json.loads(request.body)["input"]
    assert (asked["type"], answered["type"]) == ("function_call", "function_call_output")
    assert json.loads(asked["arguments"]) == {"input": "SELECT\t1"}
    assert ("dropped", "call_type", 0) in [
        (entry.kind, entry.block, entry.index) for entry in request.loss_report.entries
    ]


def test_call_without_a_name_is_a_call() -> None:
    """Each has a result, since the model is told that there is no such tool."""
    function = {"id": "fc_1", "type": "function_call", "call_id": "call_2", "arguments": "{}"}
    for odd in (CUSTOM | {"name": None}, function, function | {"name": ""}):
        reply = aggregate(whole(odd))
        [call] = reply.content
        assert isinstance(call, ToolUse)
        assert (call.name, call.id, reply.stop_reason) == ("", odd["call_id"], "tool_use")
        request = prepare(message("user", "Go."), recorded(reply), message("user", "Go on."))
        assert [(loss.kind, loss.block) for loss in request.loss_report.entries] == [
            ("renamed", "tool_name"),
            ("synthesised", "tool_result"),
        ]


def test_what_is_no_text_in_a_call_is_its_json_text() -> None:
    """The input of a custom call, and an id."""
    [call] = aggregate(whole(CUSTOM | {"input": {"a": 1}, "call_id": 7})).content
    assert isinstance(call, ToolUse)
    assert (json.loads(bytes(call.input)), call.id) == ({"input": '{"a":1}'}, "7")
