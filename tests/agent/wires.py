"""Replies of two providers, as a server on loopback answers them."""

from collections.abc import Sequence
from typing import Any

import msgspec
from tests.unit.providers.anthropic import wire as messages_wire
from tests.wires.server import Answer, stream, whole

from turnlog import TurnLog

Calls = Sequence[tuple[str, str, str]]
"""Tool calls: id, name, arguments as JSON text."""

KEY = "sk-of-a-test"


class Anthropic:
    """Replies of the Messages API."""

    provider = "anthropic"
    model = messages_wire.MODEL
    key_variable = "ANTHROPIC_API_KEY"
    names = True

    def __init__(self, *, streamed: bool = True) -> None:
        """Answer with streams, or with whole replies."""
        self.streamed = streamed

    def base_url(self, url: str) -> str:
        """Return the base URL of a server."""
        return url

    def events(self, text: str, calls: Calls = (), *, thought: str = "") -> list[bytes]:
        """Return the events of a reply."""
        blocks = [messages_wire.thinking(0, "signed", thought)] if thought else []
        blocks.append(messages_wire.text(len(blocks), text))
        for id_, name, arguments in calls:
            blocks.append(messages_wire.call(len(blocks), id_, name, arguments))
        return messages_wire.reply(*blocks, messages_wire.end("tool_use" if calls else "end_turn"))

    def reply(self, text: str, calls: Calls = (), *, thought: str = "") -> Answer:
        """Return a reply."""
        if self.streamed:
            return stream(self.events(text, calls, thought=thought), names=True)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if thought:
            blocks.insert(0, {"type": "thinking", "thinking": thought, "signature": "signed"})
        blocks += [
            {"type": "tool_use", "id": id_, "name": name, "input": msgspec.json.decode(arguments)}
            for id_, name, arguments in calls
        ]
        return whole(messages_wire.whole(*blocks, stop_reason="tool_use" if calls else "end_turn"))


class OpenAI:
    """Replies of Chat Completions."""

    provider = "openai"
    model = "model-1"
    key_variable = "OPENAI_API_KEY"
    names = False

    def __init__(self, *, streamed: bool = True) -> None:
        """Answer with streams, or with whole replies."""
        self.streamed = streamed

    def base_url(self, url: str) -> str:
        """Return the base URL of a server."""
        return f"{url}/v1"

    def events(self, text: str, calls: Calls = (), *, thought: str = "") -> list[bytes]:
        """Return the events of a reply. This wire has no thinking."""
        pieces = [
            {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (id_, name, arguments) in enumerate(calls)
        ]
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": text}, *({"tool_calls": [p]} for p in pieces)]
        return [
            *(_chunk("chat.completion.chunk", [{"index": 0, "delta": d, "finish_reason": None}]) for d in deltas),
            _chunk("chat.completion.chunk", [{"index": 0, "delta": {}, "finish_reason": _finish(calls)}]),
            _chunk("chat.completion.chunk", [], usage=_USAGE),
        ]

    def reply(self, text: str, calls: Calls = (), *, thought: str = "") -> Answer:
        """Return a reply."""
        if self.streamed:
            return stream(self.events(text, calls, thought=thought), done=True)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id_, name, arguments in calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": _finish(calls)}
        return whole(_chunk("chat.completion", [choice], usage=_USAGE))


Wire = Anthropic | OpenAI

_USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}


def _finish(calls: Calls) -> str:
    return "tool_calls" if calls else "stop"


def _chunk(kind: str, choices: list[dict[str, Any]], **fields: Any) -> bytes:
    record = {"id": "r-1", "object": kind, "created": 1, "model": OpenAI.model, "choices": choices}
    return msgspec.json.encode(record | fields)


def set_up(log: TurnLog, wire: Wire, url: str, pointer: str = "kilo") -> None:
    """Point a pointer at a provider whose endpoint is a server on loopback."""
    log.providers.set(wire.provider, base_url=wire.base_url(url))
    log.pointers.set(pointer, wire.provider, wire.model, params={"max_tokens": 1000})
