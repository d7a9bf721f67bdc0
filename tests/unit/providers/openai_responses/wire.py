"""What builds replies of the Responses API, whole and streamed, and takes its bodies apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from tests.wires.typed_bodies import check_body

from turnlog.model import ContextWindow, Message, Response, content_bytes
from turnlog.providers import PreparedRequest
from turnlog.providers.openai_responses import OpenAIResponses

HOME = OpenAIResponses()
OTHER = OpenAIResponses(provider="other")
"""An endpoint of somebody else, who speaks the wire too."""

MODEL = "gpt-6"
OWN = {"provider": "openai", "api": "responses", "model": MODEL}

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
PLAIN = {
    "id": "rs_2",
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}, {"type": "reasoning_text", "text": "So."}],
    "encrypted_content": None,
}
"""Reasoning as vLLM, LM Studio and others send it: plain, and never encrypted."""

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


def called(name: str, arguments: Any, number: int = 1) -> dict[str, Any]:
    """Return a function call item."""
    of = {"id": f"fc_{number}", "type": "function_call", "status": "completed"}
    return of | {"arguments": arguments, "call_id": f"call_{number}", "name": name}


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
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
    } | fields


def dumped(value: Any) -> bytes:
    """Return a value as JSON as OpenAI writes it: without whitespace, and in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def whole(*output: dict[str, Any], **fields: Any) -> bytes:
    """Return a response as it comes where it is not streamed."""
    return dumped(response(*output, **fields))


def streamed(*output: dict[str, Any], **fields: Any) -> list[bytes]:
    """Return the events that a response comes in when it is streamed, texts in pieces of three characters."""
    at_last = response(*output, **fields)
    begun = at_last | {"status": "in_progress", "output": [], "usage": None, "error": None, "incomplete_details": None}
    events = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    for index, item in enumerate(output):
        events += [event | {"output_index": index} for event in _item_events(item)]
    events.append({"type": f"response.{at_last['status']}", "response": at_last})
    return [dumped(event | {"sequence_number": number}) for number, event in enumerate(events)]


def _item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    of = {"item_id": item["id"]}
    begun: dict[str, Any] = {"status": "in_progress"} if "status" in item else {}
    pieces: Iterator[dict[str, Any]] = iter(())
    match item["type"]:
        case "message":
            begun |= {"content": []}
            pieces = _parts("content", "content_index", item["content"])
        case "reasoning":
            begun |= {"summary": [], "encrypted_content": item["encrypted_content"] and "gAAAA-incomplete"}
            begun |= {"content": []} if "content" in item else {}
            if item.get("content"):
                pieces = _parts("reasoning", "content_index", item["content"])
            else:
                pieces = _parts("reasoning_summary", "summary_index", item["summary"])
        case "function_call":
            begun |= {"arguments": ""}
            pieces = _texts("response.function_call_arguments", item["arguments"], "arguments")
        case _:
            pass
    yield {"type": "response.output_item.added", "item": item | begun}
    yield from (piece | of for piece in pieces)
    yield {"type": "response.output_item.done", "item": item}


def _parts(kind: str, index_key: str, parts: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for index, part in enumerate(parts):
        at = {index_key: index}
        key = "refusal" if part["type"] == "refusal" else "text"
        begun = {key: ""} | ({"annotations": []} if "annotations" in part else {})
        logprobs = {"logprobs": []} if part["type"] == "output_text" else {}
        name = f"response.{part['type']}" if kind == "content" else f"response.{kind}_text"
        yield {"type": f"response.{kind}_part.added", "part": part | begun} | at
        yield from (event | at | logprobs for event in _texts(name, part[key], key))
        for number, annotation in enumerate(part.get("annotations", ())):
            added = {"type": "response.output_text.annotation.added", "annotation": annotation}
            yield added | {"annotation_index": number} | at
        yield {"type": f"response.{kind}_part.done", "part": part} | at


def _texts(kind: str, text: str, key: str) -> Iterator[dict[str, Any]]:
    for begin in range(0, len(text), 3):
        yield {"type": f"{kind}.delta", "delta": text[begin : begin + 3], "obfuscation": "x"}
    yield {"type": f"{kind}.done", key: text}


@cache
def _types() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    from openai.types import responses  # noqa: PLC0415 - only where it is asked for

    return TypeAdapter(responses.Response), TypeAdapter(responses.ResponseStreamEvent)


def check_reply(*output: dict[str, Any], **fields: Any) -> None:
    """Check a response and its stream against the SDK's types."""
    of_responses, of_events = _types()
    of_responses.validate_json(whole(*output, **fields))
    for event in streamed(*output, **fields):
        of_events.validate_json(event)


def aggregate(*events: bytes, adapter: OpenAIResponses = HOME, model: str | None = None) -> Response:
    """Return what events add up to."""
    return adapter.aggregate(events, model=model)


def both(*output: dict[str, Any], adapter: OpenAIResponses = HOME, **fields: Any) -> Response:
    """Return what a response says, streamed and whole, once with whitespace: all three are the same."""
    found = aggregate(*streamed(*output, **fields), adapter=adapter)
    assert aggregate(whole(*output, **fields), adapter=adapter) == found
    assert aggregate(json.dumps(response(*output, **fields), indent=1).encode(), adapter=adapter) == found
    return found


def recorded(reply: Response) -> Message:
    """Return a reply as the turn that a log has of it."""
    whose = {"provider": reply.provider, "api": reply.api, "model": reply.model}
    return Message(turn="reply", role="assistant", content_json=content_bytes(list(reply.content)), **whose)


def prepare(
    *messages: Message, adapter: OpenAIResponses = HOME, typed: bool = True, **arguments: Any
) -> PreparedRequest:
    """Prepare a request; check its body against the types of the SDK, unless `typed` is false."""
    window = ContextWindow(messages=messages, options=arguments.pop("options", {}))
    request = adapter.prepare_request(window, model=arguments.pop("model", MODEL), **arguments)
    if typed:
        check_body("openai_responses", request.body)
    return request


def body(*messages: Message, **arguments: Any) -> Any:
    """Return the body as values."""
    return json.loads(prepare(*messages, **arguments).body)


def sent(*messages: Message, **arguments: Any) -> Any:
    """Return the input items of the body."""
    return body(*messages, **arguments)["input"]


def lost(request: PreparedRequest) -> list[str]:
    """Return the losses, each as `kind block turn: why`."""
    return [f"{loss.kind} {loss.block} {loss.turn}: {loss.why}" for loss in request.loss_report.entries]
