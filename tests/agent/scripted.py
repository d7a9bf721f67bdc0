"""A provider whose replies are scripted: a real adapter of a small wire of its own, that asks nobody."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.errors import ProviderError
from turnlog.model import CallError, Delta, Response, Text, Thinking, ToolUse, Usage, content_bytes, parse_arguments
from turnlog.providers import (
    Capabilities,
    Carried,
    Connection,
    Frame,
    FrameInput,
    PreparedRequest,
    Provider,
    RawEvent,
    ReplyReader,
    Sender,
)
from turnlog.providers.body import encode, frame

HANG = "hang"
"""In a script: nothing more comes, until the call is cancelled."""

MODEL = "scripted-1"
HERE = Connection(retries_max=0)


def say(text: str, *, tokens: int = 10, end: str = "stop") -> list[Any]:
    """Return the events of a reply of one text."""
    return [{"text": text}, {"end": end, "tokens": tokens}]


def call(*calls: tuple[str, object], text: str = "", tokens: int = 10, end: str = "tool_use") -> list[Any]:
    """Return the events of a reply that calls tools: a name and an input each. Ids are `c1`, `c2`, …."""
    said = [{"text": text}] if text else []
    named = [{"call": {"id": f"c{n}", "name": name, "input": given}} for n, (name, given) in enumerate(calls, 1)]
    return [*said, *named, {"end": end, "tokens": tokens}]


class _Reader(ReplyReader):
    """Each event is a block, or the end."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(sender)
        self._content: list[Text | Thinking | ToolUse] = []
        self._end: Any = None
        self._tokens = 0

    def add(self, event: RawEvent) -> list[Delta]:
        match msgspec.json.decode(event):
            case {"text": text}:
                self._content.append(Text(text=text))
                return [Delta(type="text", content=text)]
            case {"thinking": text}:
                self._content.append(Thinking(thinking=text, signature="signed"))
                return [Delta(type="thinking", content=text)]
            case {"call": {"name": name, "id": id_, "input": given}}:
                text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
                arguments, extra = parse_arguments(text)
                self._content.append(ToolUse(id=id_, name=name, input=arguments, extra=extra))
                return [Delta(type="tool_use", name=name, id=id_, content=Raw(msgspec.json.encode(given)))]
            case {"end": end, "tokens": tokens}:
                self._end, self._tokens = end, tokens
                return []
            case _:
                return []

    def response(self) -> Response:
        end = self._end
        response = Response(
            content=tuple(self._content),
            model=self.sender.model or MODEL,
            stop_reason={"pause_turn": "stop", "model_context_window_exceeded": "length"}.get(end, end) or "error",
            provider=self.sender.provider,
            api=self.sender.api,
            raw_stop_reason=end,
            usage=Usage(output_tokens=self._tokens) if end else None,
        )
        return response if end else response.failed(CallError(message="the stream ended early", retryable=True))


class Scripted(Provider):
    """An adapter that gives scripted replies, and keeps the bodies that it was sent."""

    name = provider = "scripted"
    api = "script"
    version = "1"
    key_variable = "SCRIPTED_API_KEY"
    reserved = ("messages",)
    capabilities = Capabilities(
        documents=("image/*",),
        result_documents=("image/*",),
        thinking="signed",
        result_errors=True,
        search="beside_tools",
    )

    def __init__(self, *replies: Sequence[Any]) -> None:
        """Take the replies, each a list of events, errors to raise, functions to call, or `HANG`."""
        super().__init__()
        self.replies = deque(replies)
        self.bodies: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()
        self.closed = 0

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return [encode({"role": carried.role, "content": Raw(content_bytes(carried.blocks))})]

    def _frame(self, given: FrameInput) -> Frame:
        before = {
            "model": given.model,
            "stream": given.stream,
            "tools": [tool.name for tool in given.tools],
            "params": dict(given.params),
            "search": given.search,
        }
        return frame(before, "messages", {})

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads a scripted reply."""
        return _Reader(self._sender(model))

    def _models(self, connection: Connection) -> list[str]:
        """Return the one model."""
        return [MODEL]

    @contextmanager
    def _open(self, request: PreparedRequest, connection: Connection) -> Iterator[Iterator[RawEvent]]:
        raise NotImplementedError("the run loop calls with asyncio")

    @asynccontextmanager
    async def _aopen(self, request: PreparedRequest, connection: Connection) -> AsyncIterator[AsyncIterator[RawEvent]]:
        self.bodies.append(msgspec.json.decode(request.body))
        script = self.replies.popleft() if self.replies else [ProviderError("the script is over", provider=self.name)]

        async def events() -> AsyncIterator[RawEvent]:
            for step in script:
                if isinstance(step, Exception):
                    raise step
                if callable(step):
                    step()
                elif step == HANG:
                    self.arrived.set()
                    await asyncio.Event().wait()
                else:
                    yield msgspec.json.encode(step)

        try:
            yield events()
        finally:
            self.closed += 1
