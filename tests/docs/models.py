"""The models that the pages talk to: a local server that speaks real wires, and answers by what was said last.

It knows a few models, checks that there is a key where the endpoint is not a local one, and counts tokens by the length
of the texts. The same request always gets the same reply, so that pages can show it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from tests.docs.replies import Call, Part, Thought, reply_to
from tests.wires.server import Answer, Received, WireServer, stream, whole

CLAUDE = "claude-haiku-4-5"
GPT = "gpt-5-mini"
LOCAL = "llama3.3"
HARBOUR = "pilot-1"
_MODELS = {"/api.openai/": GPT, "/harbour/": HARBOUR}
"""The models by the path of the endpoint that has them, but for Anthropic's and those of local endpoints."""


class ModelServer(WireServer):
    """A server of Anthropic's Messages, of OpenAI's Chat Completions, and of the made-up wire of the adapter page."""

    def answer_to(self, request: Received) -> Answer:
        """Return the answer to a request, by its path, its headers and its body."""
        local = request.path.startswith("/v1/") and "anthropic-version" not in request.headers
        if not local and not {"authorization", "x-api-key"} & set(request.headers):
            return _failure(401, "authentication_error", "there is no key")
        if request.path.partition("?")[0].endswith("/models"):
            return _models(request)
        body = json.loads(request.body)
        if body["model"] not in (CLAUDE, GPT, LOCAL, HARBOUR):
            return _failure(404, "not_found_error", f"model: {body['model']}")
        try:
            parts = reply_to(_last_said(body))
        except LookupError as error:
            return _failure(400, "invalid_request_error", str(error))
        said = "\n".join(_all_said(body))
        mark, tokens = sha256(said.encode()).hexdigest(), len(said) // 4 + 10
        if request.path.endswith("/messages"):
            return _messages(body, parts, mark, tokens)
        if request.path.endswith("/talk"):
            return _talk(body, parts, mark, tokens)
        return _chat(body, parts, mark, tokens)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _failure(status: int, kind: str, message: str) -> Answer:
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return whole(_json(error).encode(), status=status, headers={"x-should-retry": "false"})


def _models(request: Received) -> Answer:
    name = next((name for prefix, name in _MODELS.items() if request.path.startswith(prefix)), LOCAL)
    if "anthropic-version" in request.headers:
        name = CLAUDE
    data = [{"id": name, "type": "model", "object": "model", "display_name": name, "created": 0}]
    return whole(_json({"object": "list", "data": data, "has_more": False}).encode())


def _last_said(body: Mapping[str, Any]) -> str:
    """Return the texts of the last message. Results of tools in a row, as Chat Completions has them, are one."""
    messages = body.get("messages") or body["talk"]
    last = [messages[-1]]
    while last[0].get("role") == "tool" and len(last) < len(messages) and messages[-1 - len(last)]["role"] == "tool":
        last.insert(0, messages[-1 - len(last)])
    return "\n".join(text for message in last for text in _texts(_inside(message)))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from _texts(_inside(part) if isinstance(part, dict) else part)


def _inside(part: Mapping[str, Any]) -> Any:
    return next((part[key] for key in ("content", "text", "says") if key in part), None)


def _pieces(text: str) -> list[str]:
    """Return a text in pieces, as it streams: word by word."""
    return re.findall(r"\S+\s*|\s+", text)


def _all_said(body: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the texts of a request. What stands around them may change without a page changing."""
    yield from _texts(body.get("system"))
    yield from _texts(body.get("messages") or body.get("talk"))


def _sum(parts: Sequence[Part]) -> int:
    return sum(len(part if isinstance(part, str) else str(part)) for part in parts) // 4 + 1


# Messages


def _messages(body: Mapping[str, Any], parts: Sequence[Part], mark: str, tokens: int) -> Answer:
    blocks = [_block(part, f"{mark[:12]}{place}") for place, part in enumerate(parts)]
    calls = any(isinstance(part, Call) for part in parts)
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": tokens, "output_tokens": _sum(parts)}
    message = {"id": f"msg_{mark[:20]}", "type": "message", "role": "assistant", "model": body["model"]}
    if not body.get("stream"):
        return whole(_json(message | {"content": blocks} | end | {"usage": usage}).encode())
    started = message | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": started}]
    for index, block in enumerate(blocks):
        start, deltas = _streamed(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events += [{"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"}]
    return stream([_json(event).encode() for event in events], names=True)


def _block(part: Part, mark: str) -> dict[str, Any]:
    match part:
        case str():
            return {"type": "text", "text": part}
        case Thought():
            return {"type": "thinking", "thinking": part.text, "signature": f"c2ln{mark}"}
        case Call():
            return {"type": "tool_use", "id": f"toolu_{mark}", "name": part.name, "input": dict(part.arguments)}


def _streamed(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            return {"type": "text", "text": ""}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
        case _:
            text = _json(block["input"])
            return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": text}]


# Chat Completions


def _chat(body: Mapping[str, Any], parts: Sequence[Part], mark: str, tokens: int) -> Answer:
    text = "".join(part for part in parts if isinstance(part, str))
    calls = [
        {
            "index": index,
            "id": f"call_{mark[:12]}{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": _json(call.arguments)},
        }
        for index, call in enumerate(part for part in parts if isinstance(part, Call))
    ]
    reason = "tool_calls" if calls else "stop"
    out = _sum(parts)
    usage = {"prompt_tokens": tokens, "completion_tokens": out, "total_tokens": tokens + out}
    common = {"id": f"chatcmpl-{mark[:20]}", "created": 1_790_000_000, "model": body["model"]}
    if not body.get("stream"):
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return whole(_json(common | {"object": "chat.completion", "choices": [choice], "usage": usage}).encode())
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in _pieces(text))]
    deltas += [{"tool_calls": [call]} for call in calls]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({"choices": [], "usage": usage})
    common["object"] = "chat.completion.chunk"
    return stream([_json(common | chunk).encode() for chunk in chunks], done=True)


# The made-up wire of the page on adapters


def _talk(body: Mapping[str, Any], parts: Sequence[Part], mark: str, tokens: int) -> Answer:
    says = "".join(part for part in parts if isinstance(part, str))
    calls = [
        {"id": f"c{mark[:8]}{place}", "tool": call.name, "input": _json(call.arguments)}
        for place, call in enumerate(part for part in parts if isinstance(part, Call))
    ]
    end = {"why": "calls" if calls else "end", "tokens": {"in": tokens, "out": _sum(parts)}}
    if not body["stream"]:
        return whole(_json({"model": body["model"], "says": says, "calls": calls, **end}).encode())
    events = [{"model": body["model"]}, *({"says": piece} for piece in _pieces(says)), {"calls": calls}, end]
    return stream([_json(event).encode() for event in events])
