"""A provider whose replies are scripted: a real adapter of a small wire of its own, that asks nobody."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.errors import ProviderError
from turnlog.model import CallError, Delta, Response, Text, Thinking, ToolUse, Usage, content_bytes, parse_arguments
from turnlog.providers import Capabilities, Carried, Connection, Frame, FrameInput, PreparedRequest, Provider, RawEvent
from turnlog.providers.body import encode, frame

HANG = "hang"
"""In a script: nothing more comes, until the call is cancelled."""

MODEL = "scripted-1"
HERE = Connection()


def say(text: str, *, tokens: int = 10, end: str = "stop") -> list[Any]:
    """Return the events of a reply of one text."""
    return [{"text": text}, {"end": end, "tokens": tokens}]


def call(*calls: tuple[str, object], text: str = "", tokens: int = 10, end: str = "tool_use") -> list[Any]:
    """Return the events of a reply that calls tools: a name and an input each. Ids are `c1`, `c2`, …."""
    said = [{"text": text}] if text else []
    named = [{"call": {"id": f"c{n}", "name": name, "input": given}} for n, (name, given) in enumerate(calls, 1)]
    return [*said, *named, {"end": end, "tokens": tokens}]


class Scripted(Provider):
    """An adapter that gives scripted replies, and keeps the bodies that it was sent."""

    name = provider = "scripted"
    api = "script"
    version = "1"
    key_variable = "SCRIPTED_API_KEY"
    capabilities = Capabilities(
        documents=("image/*",), result_documents=("image/*",), thinking="signed", result_errors=True
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

    def deltas(self, event: RawEvent) -> Sequence[Delta]:
        """Return the text of a text event."""
        match msgspec.json.decode(event):
            case {"text": text}:
                return [Delta(type="text", content=text)]
            case {"thinking": text}:
                return [Delta(type="thinking", content=text)]
            case {"call": {"name": name, "id": id_, "input": given}}:
                return [Delta(type="tool_use", name=name, id=id_, content=Raw(msgspec.json.encode(given)))]
            case _:
                return []

    def aggregate(self, events: Iterable[RawEvent], *, model: str | None = None) -> Response:
        """Return the blocks of the events."""
        content: list[Text | Thinking | ToolUse] = []
        end, tokens = None, 0
        for event in events:
            match msgspec.json.decode(event):
                case {"text": text}:
                    content.append(Text(text=text))
                case {"thinking": text}:
                    content.append(Thinking(thinking=text, signature="signed"))
                case {"call": {"name": name, "id": id_, "input": given}}:
                    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
                    arguments, extra = parse_arguments(text)
                    content.append(ToolUse(id=id_, name=name, input=arguments, extra=extra))
                case {"end": end, "tokens": tokens}:
                    pass
        response = Response(
            content=tuple(content),
            model=model or MODEL,
            stop_reason={"pause_turn": "stop"}.get(end, end) or "error",
            provider=self.provider,
            api=self.api,
            raw_stop_reason=end,
            usage=Usage(output_tokens=tokens) if end else None,
        )
        return response if end else response.failed(CallError(message="the stream ended early", retryable=True))

    def models(self, connection: Connection) -> list[str]:
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
