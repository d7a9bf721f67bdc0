"""Options of inputs as parameters of each api."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import providers
from turnlog.interop.gmi import ModelOptions
from turnlog.interop.gmi.options import call_options

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}


def called(api: str, **given: Any) -> Any:
    """Return what options come to for an api."""
    return call_options(ModelOptions.model_validate(given), api)


@pytest.mark.parametrize("adapter", ["openai_chat", "openai_responses", "anthropic", "gemini", "cohere"])
def test_what_all_apis_have_goes_to_each(adapter: str) -> None:
    """Under the names that all adapters read."""
    api = providers.get(adapter).api
    call = called(api, temperature=0.5, topP=0.25, maxTokens=9, stopSequences=["a", "b"], presencePenalty=None)
    assert call.params == {"temperature": 0.5, "top_p": 0.25, "max_tokens": 9, "stop_sequences": ["a", "b"]}
    assert call.notes == ()


@pytest.mark.parametrize(
    ("api", "given", "params"),
    [
        ("chat_completions", {"presencePenalty": 1}, {"presence_penalty": 1}),
        ("chat_completions", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ("responses", {"reasoningEffort": "low"}, {"reasoning": {"effort": "low"}}),
        ("responses", {"userId": "u"}, {"user": "u"}),
        ("messages", {"userId": "u"}, {"metadata": {"user_id": "u"}}),
        ("messages", {"topK": 5}, {"top_k": 5}),
        ("generate_content", {"topK": 5, "frequency_penalty": 1}, {"topK": 5, "frequencyPenalty": 1}),
        ("chat_v2", {"topK": 5, "presencePenalty": 1}, {"k": 5, "presence_penalty": 1}),
        ("messages", {"topK": 5, "customModelParams": {"top_k": 6, "x": 1}}, {"top_k": 6, "x": 1}),
    ],
)
def test_what_some_apis_have_goes_under_their_name(api: str, given: dict[str, Any], params: dict[str, Any]) -> None:
    """In either spelling; custom parameters go as they are, and win."""
    call = called(api, **given)
    assert (call.params, call.notes) == (params, ())


@pytest.mark.parametrize(
    ("api", "given", "field"),
    [
        ("messages", {"presencePenalty": 1}, "presencePenalty"),
        ("responses", {"frequencyPenalty": 1}, "frequencyPenalty"),
        ("chat_completions", {"tools": [{"name": "x"}]}, "tools"),
        ("chat_completions", {"myOwn": 1}, "myOwn"),
        ("chat_completions", {"customModelParams": [1]}, "customModelParams"),
        ("chat_completions", {"stream": "yes"}, "stream"),
        ("chat_completions", {"requestTimeout": True}, "requestTimeout"),
        ("chat_completions", {"requestTimeout": -5}, "requestTimeout"),
        ("chat_completions", {"toolChoice": {"x": 1}}, "toolChoice"),
        ("messages", {"responseFormat": {"type": "json_object"}}, "responseFormat"),
        ("chat_completions", {"responseFormat": "json"}, "responseFormat"),
        ("generate_content", {"responseFormat": {"type": "grammar"}}, "responseFormat"),
        ("chat_v2", {"responseFormat": {"type": "json_schema"}}, "responseFormat"),
    ],
)
def test_what_cannot_be_carried_is_told(api: str, given: dict[str, Any], field: str) -> None:
    """One line names it; nothing of it is a parameter."""
    call = called(api, **given)
    [note] = call.notes
    assert note.startswith(f"options.{field} is not carried: ")
    assert (call.params, call.tool_choice, call.stream, call.timeout_s) == ({}, None, None, None)


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("any", "required"),
        ("add", "add"),
        ({"type": "function", "function": {"name": "add"}}, "add"),
        ({"type": "function", "name": "add"}, "add"),
        ({"type": "tool", "name": "add"}, "add"),
        ({"type": "any"}, "required"),
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        (None, None),
    ],
)
def test_tool_choice_is_read_in_each_spelling(given: Any, choice: str | None) -> None:
    """That of OpenAI, of Anthropic, and plain words."""
    assert called("messages", toolChoice=given).tool_choice == choice


@pytest.mark.parametrize(
    ("api", "given", "params"),
    [
        ("chat_completions", JSON_SCHEMA, {"response_format": JSON_SCHEMA}),
        (
            "responses",
            JSON_SCHEMA,
            {"text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": SCHEMA}}},
        ),
        ("responses", {"type": "json_object"}, {"text": {"format": {"type": "json_object"}}}),
        ("messages", JSON_SCHEMA, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
        (
            "messages",
            {"_agentosUseToolForStructuredOutput": True, "tool": {"name": "n", "input_schema": SCHEMA}},
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        ),
        ("messages", {"type": "text"}, {}),
        (
            "generate_content",
            JSON_SCHEMA,
            {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
        ),
        (
            "generate_content",
            {"type": "json_object", "_gemini": {"responseSchema": SCHEMA}},
            {"responseMimeType": "application/json", "responseSchema": SCHEMA},
        ),
        ("generate_content", {"type": "text"}, {"responseMimeType": "text/plain"}),
        ("chat_v2", JSON_SCHEMA, {"response_format": {"type": "json_object", "schema": SCHEMA}}),
    ],
)
def test_response_format_is_that_of_the_api(api: str, given: dict[str, Any], params: dict[str, Any]) -> None:
    """Each has a spelling of its own."""
    call = called(api, responseFormat=given)
    assert (call.params, call.notes) == (params, ())


def test_stream_and_time_out_are_of_the_run() -> None:
    """And no parameters; a time-out is in milliseconds."""
    call = called("messages", stream=False, requestTimeout=1500)
    assert (call.stream, call.timeout_s, call.params, call.notes) == (False, 1.5, {}, ())


def test_no_options_are_no_parameters() -> None:
    """Nothing is asked for then."""
    assert call_options(None, "messages").params == {}
