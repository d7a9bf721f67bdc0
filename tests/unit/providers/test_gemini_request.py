"""Requests to Gemini: contents, and the body around them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from google.genai import types
from tests.unit.providers.gemini_wire import MODEL, OTHER, OWN, body, losses, message, prepared, tool, window

from turnlog import ContentError, UnsupportedContentError
from turnlog.providers.conversation import NO_RESULT

IMAGE = {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"path": "a"}}
HI = message("user", "Hi.")


def _contents(*messages: Any, **more: Any) -> list[Any]:
    return body(window(*messages), **more)["contents"]


def _document(media_type: str, data: str = "aGVsbG8=") -> dict[str, Any]:
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _result(content: Any = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content} | fields


# Contents


def test_turns_become_contents_of_two_roles() -> None:
    """Each turn is a content; assistants are called model, and turns of one role are not joined."""
    assert _contents(HI, message("user", "a", "b"), message("assistant", "Yes?")) == [
        {"role": "user", "parts": [{"text": "Hi."}]},
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "model", "parts": [{"text": "Yes?"}]},
    ]


def test_system_turns_become_one_instruction() -> None:
    """Texts of system turns are parts of the instruction, and no contents."""
    found = body(window(message("system", "a", "b"), HI, message("system", "c")))
    assert found["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}
    assert len(found["contents"]) == 1
    assert "systemInstruction" not in body(window(HI))


@pytest.mark.parametrize("media_type", ["image/png", "application/pdf", "audio/wav", "video/mp4"])
def test_documents_are_inline_data(media_type: str) -> None:
    """Media that the API reads go as base64 with their type."""
    [content] = _contents(message("user", _document(media_type)))
    assert content["parts"] == [{"inline_data": {"mime_type": media_type, "data": "aGVsbG8="}}]


@pytest.mark.parametrize("media_type", ["text/markdown", "application/json", "image/svg+xml"])
def test_documents_that_are_text_become_text(media_type: str) -> None:
    """Media that are text go as text."""
    [content] = _contents(message("user", _document(media_type)))
    assert content["parts"] == [{"text": "hello"}]


def test_documents_that_the_api_cannot_read_are_refused() -> None:
    """Other media are refused by their type."""
    with pytest.raises(UnsupportedContentError, match=r"gemini cannot carry .*'application/zip'"):
        body(window(message("user", _document("application/zip"))))


def test_input_of_calls_keeps_its_spelling() -> None:
    """The text of a call's input goes into the body byte for byte."""
    call = json.dumps(CALL).replace('{"path": "a"}', r'{"n":1.50e2,"t":"\u00e9"}')
    said = message("assistant", "x")
    said = type(said)(turn="t", role="assistant", content_json=b"[" + call.replace(": ", ":").encode() + b"]")
    assert rb'"args":{"n":1.50e2,"t":"\u00e9"}' in prepared(window(HI, said)).body


def test_parallel_calls_are_answered_in_one_content() -> None:
    """Results of all calls of a turn stand first in the next content, under the names of their tools."""
    other = CALL | {"id": "toolu_2", "name": "g"}
    answers = message("user", _result(), "Go on.", _result("no", tool_use_id="toolu_2", is_error=True))
    assert _contents(HI, message("assistant", CALL, other), answers)[1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "f", "args": {"path": "a"}}},
                {"functionCall": {"name": "g", "args": {"path": "a"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"result": "done"}}},
                {"functionResponse": {"name": "g", "response": {"error": "no"}}},
                {"text": "Go on."},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"ok": true}', '{"ok": true}'),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([_document("text/plain")], "hello"),
        ("", ""),
        ([], ""),
    ],
)
def test_results_are_a_text_in_an_object(content: Any, text: str) -> None:
    """The API wants an object: the text is one field of it, also a text that is JSON."""
    answer = _contents(HI, message("assistant", CALL), message("user", _result(content)))[2]
    assert answer["parts"] == [{"functionResponse": {"name": "f", "response": {"result": text}}}]


def test_images_in_results_move_behind_them() -> None:
    """A result holds text; its image is a part of its own, and the report says so."""
    request = prepared(window(HI, message("assistant", CALL), message("user", _result([IMAGE]), turn="r")))
    assert json.loads(request.body)["contents"][2]["parts"] == [
        {"functionResponse": {"name": "f", "response": {"result": "(1 document: see below)"}}},
        {"inline_data": {"mime_type": "image/png", "data": "aGVsbG8="}},
    ]
    assert losses(request) == [("moved", "document", "r")]


def test_call_without_a_result_gets_an_error() -> None:
    """The API wants an answer to each call."""
    request = prepared(window(HI, message("assistant", CALL, turn="c")))
    assert json.loads(request.body)["contents"][2]["parts"] == [
        {"functionResponse": {"name": "f", "response": {"error": NO_RESULT}}}
    ]
    assert losses(request) == [("synthesised", "tool_result", "c")]


@pytest.mark.parametrize(
    ("id", "of", "given"),
    [
        ("g-1", OWN, True),
        ("g-1", OWN | {"model": "gemini-other"}, True),
        ("call_r1_1", OWN, False),
        ("call_1", OWN, False),
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


def test_calls_without_an_id_are_answered_by_name() -> None:
    """A call and its result need no ids."""
    call = {name: value for name, value in CALL.items() if name != "id"}
    answer = {"type": "tool_result", "name": "f", "content": "done"}
    [_, called, answered] = _contents(HI, message("assistant", call, **OWN), message("user", answer))
    assert called["parts"] == [{"functionCall": {"name": "f", "args": {"path": "a"}}}]
    assert answered["parts"] == [{"functionResponse": {"name": "f", "response": {"result": "done"}}}]


def test_thinking_and_native_blocks_of_others_are_dropped() -> None:
    """What another model thought is left out and reported; its text and calls go on."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    native = {"type": "native", "provider": "anthropic", "block": {"x": 1}}
    said = message("assistant", thinking, "Yes.", native, turn="a", **OTHER)
    request = prepared(window(HI, said))
    assert json.loads(request.body)["contents"][1]["parts"] == [{"text": "Yes."}]
    assert losses(request) == [("dropped", "thinking", "a"), ("dropped", "native", "a")]


def test_thinking_of_another_gemini_model_is_dropped() -> None:
    """A signature is good for the model that made it."""
    thinking = {"type": "thinking", "thinking": "", "signature": "c2ln", **OWN, "model": "gemini-other"}
    request = prepared(window(HI, message("assistant", thinking, CALL, turn="a", **OWN), message("user", _result())))
    [called] = json.loads(request.body)["contents"][1]["parts"]
    assert called == {"functionCall": {"name": "f", "args": {"path": "a"}, "id": "toolu_1"}}
    assert losses(request) == [("dropped", "thinking", "a")]


def test_turn_of_which_nothing_is_left_is_no_content() -> None:
    """A turn that only another model can read leaves no empty content."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert len(_contents(HI, message("assistant", thinking, **OTHER), HI)) == 2
    assert len(_contents(HI, message("assistant", {"type": "thinking", "thinking": ""}, **OWN), HI)) == 2


# The body


def test_contents_come_last_and_grow_at_the_end() -> None:
    """The body of a longer conversation begins with the bytes of the shorter one."""
    turns = [message("system", "Be kind."), HI, message("assistant", "Yes?"), message("user", "b")]
    more = {"tools": [tool()], "params": {"tool_choice": "auto", "safetySettings": []}}
    bodies = [prepared(window(*turns[:count]), **more).body for count in (2, 3, 4)]
    assert list(json.loads(bodies[0])) == [
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "safetySettings",
        "contents",
    ]
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter.removesuffix(b"]}"))


def test_model_and_stream_are_not_in_the_body() -> None:
    """They are in the URL: a request is the same for all models, streamed or not."""
    assert set(body(window(HI))) == {"generationConfig", "contents"}


def test_defaults_hold_where_parameters_say_nothing() -> None:
    """A request always says how long, and how freely, to write."""
    assert body(window(HI))["generationConfig"] == {"temperature": 1, "topP": 0.95, "maxOutputTokens": 81920}


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


def test_tools_are_function_declarations() -> None:
    """All tools are in one list, with names and descriptions as they are."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    found = body(window(HI), [tool(schema, description="Read."), tool(name="g")])
    assert found["tools"] == [
        {
            "functionDeclarations": [
                {"name": "files___read", "description": "Read.", "parameters": schema},
                {"name": "g", "parameters": {"type": "object", "properties": {}}},
            ]
        }
    ]
    assert "toolConfig" not in found


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("files___read", {"mode": "ANY", "allowedFunctionNames": ["files___read"]}),
    ],
)
def test_choice_of_tools_becomes_tool_config(choice: str, config: dict[str, Any]) -> None:
    """A parameter or the window's `tool_mode` says which calls are wanted; the parameter comes first."""
    assert body(window(HI), [tool()], params={"tool_choice": choice})["toolConfig"] == {"functionCallingConfig": config}
    assert body(window(HI, tool_mode=choice), [tool()])["toolConfig"] == {"functionCallingConfig": config}
    both = body(window(HI, tool_mode="none"), [tool()], params={"tool_choice": choice})
    assert both["toolConfig"] == {"functionCallingConfig": config}


def test_choice_of_tools_keeps_other_tool_config() -> None:
    """What else a parameter configures stays beside it."""
    params = {"toolConfig": {"retrievalConfig": {"languageCode": "de"}}, "tool_choice": "required"}
    assert body(window(HI), [tool()], params=params)["toolConfig"] == {
        "retrievalConfig": {"languageCode": "de"},
        "functionCallingConfig": {"mode": "ANY"},
    }


def test_choice_of_a_tool_that_is_not_offered_is_refused() -> None:
    """A parameter must name a tool that is there; a window's mode that does not is passed over, and reported."""
    with pytest.raises(ContentError, match=r"params\.tool_choice: 'g' is not auto, none, required or the name of a"):
        body(window(HI), [tool()], params={"tool_choice": "g"})
    request = prepared(window(HI, tool_mode="g"), [tool()])
    assert "toolConfig" not in json.loads(request.body)
    assert losses(request) == [("dropped", "tool_mode", "")]


@pytest.mark.parametrize(
    ("choice", "lost"), [("none", []), ("auto", []), ("required", [("dropped", "tool_choice", "")])]
)
def test_choice_without_tools_says_nothing(choice: str, lost: Sequence[Any]) -> None:
    """Without tools there is nothing to configure, and something is lost only where a call was required."""
    request = prepared(window(HI), params={"tool_choice": choice})
    assert "toolConfig" not in json.loads(request.body)
    assert losses(request) == lost


def test_search_is_a_tool_of_the_api() -> None:
    """Search alone is grounding with Google Search."""
    assert body(window(HI, search=True))["tools"] == [{"google_search": {}}]
    assert "tools" not in body(window(HI, search=False))


def test_search_beside_tools_is_refused() -> None:
    """The API has one or the other; with losses allowed the tools stay."""
    for on_loss in (None, "error"):
        with pytest.raises(
            UnsupportedContentError, match="gemini cannot search and offer tools in one request"
        ) as caught:
            prepared(window(HI, search=True), [tool()], on_loss=on_loss)
        assert (caught.value.provider, caught.value.block, caught.value.turn) == ("gemini", "search", None)
    request = prepared(window(HI, search=True), [tool()], on_loss="report")
    assert list(json.loads(request.body)["tools"][0]) == ["functionDeclarations"]
    assert losses(request) == [("dropped", "search", "")]


def test_lost_keywords_of_a_schema_are_reported_by_tool() -> None:
    """Each tool that lost something has one entry, which names the keywords."""
    schema = {"$schema": "x", "type": "object", "properties": {"n": {"type": "integer", "format": "uint64"}}}
    request = prepared(window(HI), [tool(), tool(schema, name="g")])
    [loss] = request.loss_report.entries
    assert (loss.kind, loss.turn, loss.block) == ("downgraded", "", "tool")
    assert loss.why == "the schema of 'g' without the keywords $schema, format"


def test_recursive_schema_is_refused_or_cut() -> None:
    """A schema without end is refused by the tool's name; with losses allowed it ends where it begins again."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"type": "object", "properties": {"first": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    with pytest.raises(
        UnsupportedContentError, match=r"'files___read'.*it refers to itself by '#/\$defs/Node'"
    ) as caught:
        prepared(window(HI), [tool(schema)])
    assert caught.value.block == "tool"
    request = prepared(window(HI), [tool(schema)], on_loss="report")
    [declared] = json.loads(request.body)["tools"][0]["functionDeclarations"]
    first = {"type": "object", "properties": {"next": {"type": "object"}}}
    assert declared["parameters"] == {"type": "object", "properties": {"first": first}}
    assert losses(request) == [("downgraded", "tool", "")]


@pytest.mark.parametrize("schema", ["7", "null", '{"properties":7}', '{"type":7}', '{"$ref":1}'])
def test_schema_that_is_none_is_refused(schema: str) -> None:
    """A schema of another form is refused by the tool's name."""
    broken = type(tool())(name="g", input_schema=json.loads(json.dumps(schema)).encode())
    with pytest.raises(ContentError, match="tools: the schema of 'g' cannot be read"):
        prepared(window(HI), [broken])


def test_body_is_what_the_sdk_describes() -> None:
    """The SDK's own types take the contents, the instruction and the tools."""
    schema = {
        "type": "object",
        "properties": {"path": {"type": ["string", "null"], "const": "a"}},
        "required": ["path"],
    }
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln", **OWN}
    request = prepared(
        window(
            message("system", "Be kind."),
            message("user", "Look.", IMAGE),
            message("assistant", thinking, CALL, **OWN),
            message("user", _result()),
        ),
        [tool(schema)],
        params={"tool_choice": "required"},
    )
    found = json.loads(request.body)
    contents = [types.Content.model_validate(content) for content in found["contents"]]
    assert [len(content.parts or ()) for content in contents] == [2, 2, 1]
    [declaration] = types.Tool.model_validate(found["tools"][0]).function_declarations or []
    assert declaration.parameters is not None
    assert declaration.parameters.required == ["path"]
    config = types.ToolConfig.model_validate(found["toolConfig"]).function_calling_config
    assert config is not None
    assert config.mode == types.FunctionCallingConfigMode.ANY
    assert types.GenerationConfig.model_validate(found["generationConfig"]).max_output_tokens == 81920
    assert types.Content.model_validate(found["systemInstruction"]).parts == [types.Part(text="Be kind.")]


def test_same_window_gives_the_same_bytes() -> None:
    """An adapter that has seen the conversation grow prepares what a new one does."""
    turns = [HI, message("assistant", CALL, **OWN), message("user", _result([IMAGE]))]
    assert prepared(window(*turns)).body == prepared(window(*turns)).body
    assert prepared(window(*turns), model=MODEL).head == prepared(window(HI)).head


def test_large_documents_are_not_decoded() -> None:
    """Base64 goes through as it is."""
    data = b64encode(bytes(range(256)) * 64).decode()
    assert _contents(message("user", _document("image/webp", data)))[0]["parts"][0]["inline_data"]["data"] == data


@pytest.mark.parametrize(
    ("model", "signed"),
    [("gemini-3-pro-preview", True), ("models/gemini-10", True), ("gemini-2.5-flash", False), ("gemma-3", False)],
)
def test_call_of_another_model_is_marked_for_models_that_ask_for_signatures(model: str, signed: bool) -> None:
    """Only the first of a message: parallel calls have one signature."""
    calls = [{"type": "tool_use", "id": name, "name": name, "input": {}} for name in ("a", "b")]
    results = [{"type": "tool_result", "tool_use_id": name, "name": name, "content": "x"} for name in ("a", "b")]
    given = window(message("assistant", *calls), message("user", *results))
    parts = body(given, model=model)["contents"][0]["parts"]
    mark = ["skip_thought_signature_validator"] if signed else []
    assert [part["thoughtSignature"] for part in parts if "thoughtSignature" in part] == mark
    assert ("thoughtSignature" in parts[0]) is signed
