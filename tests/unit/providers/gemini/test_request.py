"""Requests to Gemini: contents, and the body around them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.unit.providers.gemini.wire import OTHER, OWN, body, losses, message, prepared, tool, window

from turnlog import ContentError, UnsupportedContentError
from turnlog.providers import OnLoss
from turnlog.providers.gemini.request import made_up_id

CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"path": "a"}}
HI = message("user", "Hi.")


def _contents(*messages: Any, **more: Any) -> list[Any]:
    return body(window(*messages), **more)["contents"]


def _result(content: Any = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content} | fields


# Contents


@pytest.mark.parametrize(
    ("id", "of", "given"),
    [
        *((id, OWN, True) for id in ("g-1", "call_883098", "call_1", "call_x", "call_x_y", "a_1")),
        ("g-1", OWN | {"model": "gemini-other"}, True),
        (made_up_id("r1", 1), OWN, False),
        (made_up_id("x-Pu_7", 12), OWN, False),
        (made_up_id(None, 2), OWN, False),
        ("toolu_1", OTHER, False),
        ("toolu_1", {}, False),
    ],
)
def test_ids_go_back_only_where_the_api_gave_them(id: str, of: dict[str, str], given: bool) -> None:
    """Ids that were made up, or are another provider's, are on neither the call nor its result."""
    call, answer = message("assistant", CALL | {"id": id}, **of), message("user", _result(tool_use_id=id))
    [called], [answered] = (content["parts"] for content in _contents(HI, call, answer)[1:])
    assert called["functionCall"].get("id") == (id if given else None)
    assert answered["functionResponse"].get("id") == (id if given else None)


# The body


def test_parameters_become_generation_config() -> None:
    """Normalized names and the API's own, in either spelling, go inside; null takes a default away."""
    params = {
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": None,
        "stop_sequences": ["END"],
        "top_k": 40,
        "thinkingConfig": {"includeThoughts": True},
        "generationConfig": {"seed": 7},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "cachedContent": "cachedContents/1",
    }
    found = body(window(HI), params=params)
    assert found.pop("generationConfig") == {
        "temperature": 0.5,
        "maxOutputTokens": 100,
        "stopSequences": ["END"],
        "topK": 40,
        "thinkingConfig": {"includeThoughts": True},
        "seed": 7,
    }
    assert set(found) == {"safetySettings", "cachedContent", "contents"}
    assert found["safetySettings"] == params["safetySettings"]


@pytest.mark.parametrize(
    "name", ["contents", "messages", "model", "stream", "system", "systemInstruction", "system_instruction", "tools"]
)
def test_parameters_that_the_request_sets_itself_are_refused(name: str) -> None:
    """What the window and the call decide is no parameter."""
    with pytest.raises(ContentError, match=f"params.{name}: the request sets it itself"):
        body(window(HI), params={name: []})


@pytest.mark.parametrize(
    "params",
    [
        {"max_tokens": 100, "maxOutputTokens": 5},
        {"maxOutputTokens": 5, "max_tokens": 100},
        {"max_tokens": 100, "generationConfig": {"maxOutputTokens": 5}},
        {"generationConfig": {"maxOutputTokens": 5, "seed": 1}, "maxOutputTokens": 5},
    ],
)
def test_parameter_that_is_given_under_two_names_is_refused(params: dict[str, Any]) -> None:
    """Which of them counts would go by their order."""
    with pytest.raises(ContentError, match="'maxOutputTokens' is given twice: leave one out"):
        body(window(HI), params=params)


def test_generation_config_that_is_no_object_is_for_the_api_to_refuse() -> None:
    """It is sent as it was given, and not left out in silence."""
    assert body(window(HI), params={"generationConfig": 5, "max_tokens": 7})["generationConfig"] == 5


def test_search_is_a_tool_of_the_api_that_nobody_calls() -> None:
    """A call that is asked for beside search alone is lost: refused for a parameter, reported for the window's mode."""
    assert body(window(HI, search=True), params={"tool_choice": "auto"})["tools"] == [{"google_search": {}}]
    assert losses(prepared(window(HI, search=True, tool_mode="required"))) == [("dropped", "tool_choice", "")]
    with pytest.raises(UnsupportedContentError, match=r"gemini cannot carry a call that is asked for: search is none"):
        prepared(window(HI, search=True), params={"tool_choice": "required"})


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
ENDLESS = {"type": "object", "properties": {"first": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}}
NO_END = "cut short: references are written out, and it refers to itself by '#/$defs/Node'"


@pytest.mark.parametrize(
    ("schema", "search", "refused_by", "block", "why"),
    [
        (None, True, (None, "error"), "search", "search beside tools: the API has one or the other"),
        (ENDLESS, False, (None, "error"), "tool", f"the schema of 'g' {NO_END}"),
        ({"$id": "x", "format": "y"}, False, ("error",), "tool", "the schema of 'g' without the keywords $id, format"),
    ],
)
def test_what_a_request_cannot_say_is_refused_or_reported(
    schema: Any, search: bool, refused_by: tuple[OnLoss | None, ...], block: str, why: str
) -> None:
    """Search beside tools, schemas without end, and keywords, of which the last are lost where nothing is said."""
    given, tools = window(HI, search=search), [tool(), tool(schema, name="g")]
    for on_loss in refused_by:
        told = f"gemini {'cannot' if search else 'can only'} carry {why}: "
        with pytest.raises(UnsupportedContentError, match=re.escape(told)) as caught:
            prepared(given, tools, on_loss=on_loss)
        assert (caught.value.provider, caught.value.block) == ("gemini", block)
    request = prepared(given, tools, on_loss="report")
    assert request.loss_report.entries[0].why == why
    assert losses(request)[0] == ("dropped" if search else "downgraded", block, "")
    assert len(json.loads(request.body)["tools"]) == 1


def test_schema_without_end_ends_where_it_begins_again() -> None:
    """With an object of any form."""
    [declared] = body(window(HI), [tool(ENDLESS)], on_loss="report")["tools"][0]["functionDeclarations"]
    first = {"type": "object", "properties": {"next": {"type": "object"}}}
    assert declared["parameters"] == {"type": "object", "properties": {"first": first}}


@pytest.mark.parametrize("schema", ["7", "null", '{"properties":7}', '{"type":7}', '{"$ref":1}'])
def test_schema_that_is_none_is_refused(schema: str) -> None:
    """A schema of another form is refused by the tool's name."""
    broken = type(tool())(name="g", input_schema=json.loads(json.dumps(schema)).encode())
    with pytest.raises(ContentError, match="tools: the schema of 'g' cannot be read"):
        prepared(window(HI), [broken])


@pytest.mark.parametrize(
    ("model", "signed"),
    [
        *((name, True) for name in ("gemini-3-pro-preview", "models/gemini-10", "gemini-pro-latest")),
        *((name, False) for name in ("gemini-2.5-flash", "models/gemini-2.0-flash", "gemma-3")),
    ],
)
def test_call_of_another_model_is_marked_for_models_that_ask_for_signatures(model: str, signed: bool) -> None:
    """Only the first of a message: parallel calls have one signature. A name that says no generation may be new."""
    calls = [{"type": "tool_use", "id": name, "name": name, "input": {}} for name in ("a", "b")]
    results = [{"type": "tool_result", "tool_use_id": name, "name": name, "content": "x"} for name in ("a", "b")]
    given = window(message("assistant", *calls), message("user", *results))
    parts = body(given, model=model)["contents"][0]["parts"]
    mark = ["skip_thought_signature_validator"] if signed else []
    assert [part["thoughtSignature"] for part in parts if "thoughtSignature" in part] == mark
    assert ("thoughtSignature" in parts[0]) is signed
