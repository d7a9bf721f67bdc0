"""Chat Completions: from context windows to bodies."""

import json
from typing import Any

import pytest
from tests.unit.providers.carrying import call, message, result
from tests.unit.providers.openai_chat.wire import HOME, OTHER, OWN, body, lost, prepare, sent

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import parse_tools
from turnlog.providers.openai_chat import OpenAIChat

PNG = "iVBORw0KGgo="
TOOLS = parse_tools(
    '[{"name":"files___read","description":"Read.","inputSchema":{"type":"object","properties":{"path":'
    '{"type":"string"}}}},{"name":"now","inputSchema":{"properties":{},"type":"object"}}]'
)
ASKED = message("user", "a")


# The body around the messages


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


@pytest.mark.parametrize("whose", [{}, OWN])
def test_id_of_forty_characters_is_the_longest_of_others(whose: dict[str, str]) -> None:
    """What the provider made itself is kept however long it is."""
    for long in ("y" * 40, "y" * 41):
        messages = sent(message("assistant", call(long), **whose), message("user", result(long)))
        id = messages[0]["tool_calls"][0]["id"]
        assert (id == long) is (bool(whose) or len(long) == 40)
        assert (len(id) <= 40 or bool(whose), messages[1]["tool_call_id"]) == (True, id)


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
