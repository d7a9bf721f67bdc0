"""The wire of the Responses API for tests: responses, their streams, and the SDK's own types to check both against."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from turnlog.model import ContextWindow, JSONValue, Message, content_bytes
from turnlog.model import Response as Reply
from turnlog.providers.openai_responses import OpenAIResponses

MODEL = "gpt-6"

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 35},
    "total_tokens": 150,
}

REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAAA-secret",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
}
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "tides", "sources": [{"type": "url", "url": "https://example.org/tides"}]},
}
CITATION = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 4,
    "title": "Tides",
    "url": "https://example.org/tides",
}


def said(text: str, id: str = "msg_1", annotations: Sequence[Any] = (), **fields: Any) -> dict[str, Any]:
    """Return a message item of one text."""
    part = {"type": "output_text", "annotations": list(annotations), "logprobs": [], "text": text}
    return {"id": id, "type": "message", "status": "completed", "content": [part], "role": "assistant"} | fields


def refused(text: str, id: str = "msg_1") -> dict[str, Any]:
    """Return a message item of one refusal."""
    return said("", id) | {"content": [{"type": "refusal", "refusal": text}]}


def called(name: str, arguments: str, number: int = 1) -> dict[str, Any]:
    """Return a function call item."""
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": f"call_{number}",
        "name": name,
    }


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a whole response."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1790000000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": MODEL,
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
    } | fields


def stream_of(whole: dict[str, Any]) -> list[bytes]:
    """Return the events that a response comes in when it is streamed, texts in pieces of three characters."""
    begun = whole | {"status": "in_progress", "output": [], "usage": None, "error": None, "incomplete_details": None}
    events = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    for index, item in enumerate(whole["output"]):
        events += [event | {"output_index": index} for event in _item_events(item)]
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [dumped(event | {"sequence_number": number}) for number, event in enumerate(events)]


def dumped(value: Any) -> bytes:
    """Return a value as JSON as OpenAI writes it: without whitespace, and in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    of = {"item_id": item["id"]}
    begun = {"status": "in_progress"} if "status" in item else {}
    match item["type"]:
        case "message":
            yield {"type": "response.output_item.added", "item": item | begun | {"content": []}}
            for index, part in enumerate(item["content"]):
                yield from _part_events(part, of | {"content_index": index})
        case "reasoning":
            begun = {"summary": [], "encrypted_content": "gAAAA-incomplete"}
            yield {"type": "response.output_item.added", "item": item | begun}
            for index, part in enumerate(item["summary"]):
                at = of | {"summary_index": index}
                added = {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}}
                yield added | at
                yield from _text_events("response.reasoning_summary_text", part["text"], "text", at)
                yield {"type": "response.reasoning_summary_part.done", "part": part} | at
        case "function_call":
            yield {"type": "response.output_item.added", "item": item | begun | {"arguments": ""}}
            yield from _text_events("response.function_call_arguments", item["arguments"], "arguments", of)
        case _:
            yield {"type": "response.output_item.added", "item": item | begun}
    yield {"type": "response.output_item.done", "item": item}


def _part_events(part: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    key = "text" if part["type"] == "output_text" else "refusal"
    begun = {key: ""} | ({"annotations": []} if "annotations" in part else {})
    yield {"type": "response.content_part.added", "part": part | begun} | at
    logprobs = {"logprobs": []} if key == "text" else {}
    for event in _text_events(f"response.{'output_text' if key == 'text' else 'refusal'}", part[key], key, at):
        yield event | logprobs
    for index, annotation in enumerate(part.get("annotations", ())):
        added = {"type": "response.output_text.annotation.added", "annotation": annotation, "annotation_index": index}
        yield added | at
    yield {"type": "response.content_part.done", "part": part} | at


def _text_events(kind: str, text: str, key: str, at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for begin in range(0, len(text), 3):
        yield {"type": f"{kind}.delta", "delta": text[begin : begin + 3], "obfuscation": "x"} | at
    yield {"type": f"{kind}.done", key: text} | at


@cache
def _adapter(of: Any) -> TypeAdapter[Any]:
    return TypeAdapter(of)


def checked_stream(whole: dict[str, Any]) -> list[bytes]:
    """Return the stream of a response, each event checked against the SDK's types."""
    _adapter(Response).validate_python(whole)
    events = stream_of(whole)
    for event in events:
        _adapter(ResponseStreamEvent).validate_json(event)
    return events


def checked_body(body: bytes) -> dict[str, Any]:
    """Return a request body decoded, checked against the SDK's types in all its parts."""
    decoded = json.loads(body)
    kind = ResponseCreateParamsStreaming if decoded["stream"] else ResponseCreateParamsNonStreaming
    _exhaust(_adapter(kind).validate_python(decoded))
    return decoded


def _exhaust(value: Any) -> None:
    """Go through a value: pydantic checks the items of iterables only when somebody takes them."""
    if isinstance(value, dict):
        for inner in value.values():
            _exhaust(inner)
    elif not isinstance(value, str | int | float | None):
        for inner in value:
            _exhaust(inner)


def spoken(role: str, *blocks: dict[str, Any] | str, turn: str = "t", **fields: Any) -> Message:
    """Return a message of a window."""
    return Message(turn=turn, role=role, content_json=content_bytes(list(blocks)), **fields)


def recorded(reply: Reply, turn: str = "reply") -> Message:
    """Return a reply as the message that it is once it is recorded."""
    return Message(
        turn=turn,
        role="assistant",
        content_json=content_bytes(list(reply.content)),
        provider=reply.provider,
        api=reply.api,
        model=reply.model,
    )


def prepared(*messages: Message, options: dict[str, JSONValue] | None = None, tools: Any = (), **given: Any) -> Any:
    """Prepare a request, check its body and return it; `given` goes to `prepare_request`."""
    window = ContextWindow(messages=messages, options=options or {})
    request = OpenAIResponses().prepare_request(window, tools, model=given.pop("model", MODEL), **given)
    checked_body(request.body)
    return request


def body_of(*messages: Message, **given: Any) -> dict[str, Any]:
    """Return the checked body of a request as values."""
    return json.loads(prepared(*messages, **given).body)


def lost(request: Any) -> list[str]:
    """Return the losses of a request, each as `kind block turn: why`."""
    return [f"{loss.kind} {loss.block} {loss.turn}: {loss.why}" for loss in request.loss_report.entries]
