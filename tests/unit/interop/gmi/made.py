"""Inputs of GMI turns for tests: an example with a value in every field, and strategies for any of them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from hypothesis import strategies as st

from turnlog.testing.strategies import json_objects, json_values, texts

KEY = "a-key-that-no-form-gives-away-4711"

PIXEL = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()


def text(interaction: str = "i1", content: Any = "hello", **fields: Any) -> dict[str, Any]:
    """Return the JSON of an input of type text; with `kind` of another type."""
    kind = fields.pop("kind", "text")
    return {"interactionId": interaction, "userId": "ada", "type": kind, "content": content, **fields}


def full() -> dict[str, Any]:
    """Return the JSON of an input with a value in every field of the document."""
    return text(
        "i-full",
        "And now?",
        sessionId="chat-1",
        timestamp="2026-03-01T12:00:00.250000Z",
        userContextOverride={"skillLevel": "expert", "preferences": {"tone": "dry"}},
        taskContextOverride={"goal": "ship", "progress": 0.5},
        metadata={
            "options": {
                "temperature": 0.25,
                "topP": 0.9,
                "preferredModelId": "m-1",
                "preferredProviderId": "openai",
                "toolChoice": "auto",
                "responseFormat": {"type": "json_object"},
            },
            "userApiKeys": {"openai": KEY},
            "userFeedback": {"rating": 5},
            "explicitPersonaSwitchId": "reviewer",
            "conversationHistoryForPrompt": [
                {"role": "user", "content": "Hi."},
                {"role": "assistant", "content": "Hello."},
            ],
            "rollingSummary": {"text": "They greet.", "json": {"facts": ["greeted"]}},
            "promptProfile": {"id": "concise", "systemInstructions": "Be brief.", "reason": "asked"},
            "executionPolicy": {
                "plannerVersion": "2",
                "toolFailureMode": "fail_open",
                "toolSelectionMode": "discovered",
            },
            "capabilityDiscovery": {
                "query": "sum",
                "kind": "tool",
                "selectedToolNames": ["add"],
                "promptContext": "You can add.",
                "fallbackReason": "none found",
                "result": {"score": 0.75},
            },
            "traceId": "t-1",
        },
    )


def names() -> st.SearchStrategy[str]:
    """Return texts that can be names of users and interactions."""
    return st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=20)


def _members(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return records that have some of the fields, and perhaps one more."""
    more = st.dictionaries(st.sampled_from(["x1", "x2"]), json_values(), max_size=1)
    return st.builds(lambda known, other: known | other, st.fixed_dictionaries({}, optional=fields), more)


def _or_null(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def results() -> st.SearchStrategy[dict[str, Any]]:
    """Return results of tools."""
    named = st.fixed_dictionaries({"toolCallId": names(), "toolName": names()})
    rest = _members(output=json_values(), isError=_or_null(st.booleans()), errorDetails=json_values())
    return st.builds(lambda one, other: one | other, named, rest)


def parts() -> st.SearchStrategy[dict[str, Any]]:
    """Return parts of a content that is no text."""
    data = st.binary(min_size=1, max_size=60).map(lambda given: b64encode(given).decode())
    return st.one_of(
        st.builds(lambda said: {"type": "text", "text": said}, texts()),
        st.builds(lambda given: {"type": "base64", "data": given, "mimeType": "image/png", "description": "d"}, data),
        st.builds(lambda given: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{given}"}}, data),
        json_objects(),
    )


def contents() -> st.SearchStrategy[Any]:
    """Return contents of every form."""
    return st.one_of(
        texts(), parts(), st.lists(parts(), max_size=3), results(), st.lists(results(), min_size=1, max_size=3)
    )


def metadata() -> st.SearchStrategy[dict[str, Any]]:
    """Return metadata with some of its fields, at every level null, absent or there."""
    message = st.builds(lambda said: {"role": "user", "content": said, "at": 1}, texts())
    maybe = _or_null(texts())
    return _members(
        options=_or_null(
            _members(
                temperature=st.floats(0, 2),
                preferredModelId=maybe,
                preferredProviderId=maybe,
                toolChoice=json_values(),
                responseFormat=json_values(),
            )
        ),
        userApiKeys=_or_null(st.just({"openai": KEY})),
        userFeedback=json_values(),
        explicitPersonaSwitchId=maybe,
        conversationHistoryForPrompt=_or_null(st.lists(message, max_size=2)),
        rollingSummary=_or_null(_members(text=maybe, json=json_values())),
        promptProfile=_or_null(
            st.builds(lambda own, rest: {"id": own} | rest, texts(), _members(systemInstructions=maybe, reason=maybe))
        ),
        executionPolicy=_or_null(
            _members(
                plannerVersion=maybe,
                toolFailureMode=st.sampled_from([None, "fail_open", "fail_closed"]),
                toolSelectionMode=st.sampled_from([None, "all", "discovered"]),
            )
        ),
        capabilityDiscovery=_or_null(
            _members(
                query=maybe,
                kind=maybe,
                selectedToolNames=_or_null(st.lists(texts(), max_size=2)),
                promptContext=maybe,
                fallbackReason=maybe,
                result=json_values(),
            )
        ),
    )


def inputs() -> st.SearchStrategy[dict[str, Any]]:
    """Return the JSON of any input."""
    needed = st.fixed_dictionaries(
        {
            "interactionId": names(),
            "userId": names(),
            "type": st.sampled_from(
                ["text", "multimodal_content", "tool_response", "system_message", "lifecycle_event"]
            ),
            "content": contents(),
        }
    )
    times = st.datetimes() | st.datetimes(timezones=st.timezones())
    rest = _members(
        sessionId=_or_null(names()),
        timestamp=_or_null(times.map(lambda time: time.isoformat())),
        userContextOverride=_or_null(json_objects()),
        taskContextOverride=_or_null(json_objects()),
        metadata=_or_null(metadata()),
    )
    return st.builds(lambda one, other: one | other, needed, rest)
