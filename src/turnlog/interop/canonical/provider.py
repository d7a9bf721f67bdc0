"""A provider that is one function, `complete(AgentContext) -> AssistantMessage`, as an adapter of the run loop.

The body of a request is the context as JSON, byte for byte what the function is given, and the one event of a reply is
its message as JSON. What the function gets of a conversation is decided by the rules that all adapters share: thinking
goes back to the model that it is of, calls and results are paired by id, failed turns are left out.

A window has no times: the messages of a context have the timestamp 0. A message with thinking names the provider, api
and model that it is of; others are of anybody.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import ClassVar, NoReturn

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError, ProviderError, RunError, UnsupportedContentError
from turnlog.executors import is_in_a_loop
from turnlog.interop.canonical import types
from turnlog.interop.canonical.blocks import canonical_api, message_blocks, turn_api, turn_usage
from turnlog.interop.canonical.threads import in_thread
from turnlog.model import (
    Block,
    CallError,
    Delta,
    Response,
    StopReason,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    normal_stop_reason,
)
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
    tool_choice,
)
from turnlog.providers.body import encode, frame

Complete = Callable[[types.AgentContext], types.AssistantMessage | Awaitable[types.AssistantMessage]]
"""A provider as one function, plain or async."""

API = "canonical"
"""The api of turns that such a provider wrote, where it does not say over which wire it asks."""

MAX_TOKENS = 8192
"""The budget of a reply where no parameter says another."""

RESERVED = ("max-tokens", "messages", "model", "stream", "system-prompt", "tools")
"""The parts of a context, and what is said of a call elsewhere: no parameter may set them."""


class CompleteProvider(Provider):
    """The adapter of a provider that is one function. `provider_of` makes one.

    To register one for others, subclass it with an `__init__` that hands over the function and takes `provider` and
    `key_variable`, and name the subclass in the entry point group `turnlog.providers`.

    A plain function is called in a thread, so that others go on meanwhile. A call of it that is cancelled is left
    alone: it goes on in its thread, and nobody waits for it.
    """

    name = API
    provider = API
    api = API
    version = "1"
    key_variable = ""
    reserved = RESERVED
    capabilities: Capabilities = Capabilities(
        thinking="all",
        system="joined",
        tool_id_pattern=r"[\s\S]+",
        tool_id_characters_max=1_000_000,
        result_errors=True,
        streams=False,
    )
    _separator: ClassVar[str] = "\n\n"

    def __init__(
        self,
        complete: Complete,
        *,
        provider: str | None = None,
        api: types.Api | None = None,
        max_tokens: int = MAX_TOKENS,
        key_variable: str | None = None,
    ) -> None:
        """Take the function, and how turns are to name its provider and its wire.

        Args:
            complete: the function. What it raises is a failed call.
            provider: the provider's name.
            api: the wire that it asks over. Thinking of turns of the same provider, api and model goes back to it.
            max_tokens: the budget of a reply where no parameter says another.
            key_variable: the environment variable that holds the API key, if it is to be asked for one.
        """
        super().__init__(provider=provider, key_variable=key_variable)
        if api is not None:
            self.api = turn_api(api)
        self._complete = complete
        self._max_tokens = max_tokens

    # From a window to a context

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        if carried.role == "assistant":
            return [encode(self._assistant(carried))]
        results = [block for block in carried.blocks if isinstance(block, ToolResult)]
        texts = [types.TextContent(text=block.text) for block in carried.blocks if isinstance(block, Text)]
        messages: list[types.Message] = [self._result(result, carried) for result in results]
        if texts:
            messages.append(types.UserMessage(content=texts[0].text if len(texts) == 1 else texts, timestamp=0))
        return [types.to_json(message) for message in messages]

    def _assistant(self, carried: Carried) -> dict[str, object]:
        """Return an assistant message for JSON, with the arguments of its calls as the model spelled them."""
        content: list[types.TextContent | types.ThinkingContent | dict[str, object]] = []
        for block in carried.blocks:
            if block.extra:
                self._refuse(f"{sorted(block.extra)[0]!r} of a block", "extra", carried.turn)
            match block:
                case Text():
                    content.append(types.TextContent(text=block.text))
                case Thinking():
                    signature = block.signature if isinstance(block.signature, str) else None
                    thinking = types.ThinkingContent(
                        thinking=block.thinking, thinking_signature=signature, redacted=block.redacted
                    )
                    content.append(thinking)
                case ToolUse():
                    call: dict[str, object] = {
                        "type": "tool-call",
                        "id": block.id,
                        "name": block.name,
                        "arguments": block.input,
                    }
                    content.append(call)
                case _:
                    raise AssertionError(f"{type(block).__name__} is no part of an assistant message")
        message: dict[str, object] = {"role": "assistant", "content": content, "timestamp": 0}
        if any(isinstance(block, Thinking) for block in carried.blocks):
            api = canonical_api(self.api)
            message |= {} if api is None else {"api": api}
            message |= {"provider": self.provider, "model": carried.model}
        return message

    def _result(self, result: ToolResult, carried: Carried) -> types.ToolResultMessage:
        content = [Text(text=result.content)] if isinstance(result.content, str) else result.content
        texts = [types.TextContent(text=block.text) for block in content if isinstance(block, Text)]
        if len(texts) < len(content):
            raise AssertionError(f"a result of turn {carried.turn!r} has more than text")
        return types.ToolResultMessage(
            tool_call_id=str(result.tool_use_id),
            tool_name=str(result.name),
            content=texts,
            is_error=result.is_error is True,
            timestamp=0,
        )

    def _frame(self, given: FrameInput) -> Frame:
        for name, value in given.params.items():
            if name not in ("max_tokens", "tool_choice"):
                given.losses.lose("dropped", "parameter", f"{name} {value!r}: a context has no such field")
        choice = tool_choice(given)
        if choice is not None and choice.mode not in ("auto", "none"):
            asked = "tool_choice" in given.params
            said = given.params["tool_choice"] if asked else given.tool_mode
            why = f"tool_choice {said!r}: a context has no such field"
            given.losses.lose("dropped", "tool_choice", why, harmless=not asked)
        offered = () if choice is not None and choice.mode == "none" else given.tools
        before: dict[str, object] = {"max-tokens": given.params.get("max_tokens", self._max_tokens)}
        if given.system:
            before["system-prompt"] = self._separator.join(given.system)
        tools = [Raw(types.tool_json(tool.name, tool.description, tool.input_schema)) for tool in offered]
        return frame(before, "messages", {"tools": tools})

    def _refuse(self, what: str, block: str, turn: str | None) -> NoReturn:
        of = "" if turn is None else f" of turn {turn!r}"
        raise UnsupportedContentError(
            f"{self.name} cannot carry {what}{of}: leave it out, or allow losses with on_loss='report'",
            provider=self.name,
            block=block,
            turn=turn,
        )

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads a reply: one event, the message."""
        return _Reader(self._sender(model))

    # To the function and back

    @property
    def _at_home(self) -> bool:
        """Whatever the provider is called: it is the function, and no endpoint gets a key."""
        return True

    def _models(self, connection: Connection) -> list[str]:  # noqa: ARG002
        """Return no models: a function cannot be asked for them."""
        return []

    @contextmanager
    def _open(self, request: PreparedRequest, connection: Connection) -> Generator[Iterator[RawEvent]]:  # noqa: ARG002
        with self._failing():
            context = types.parse_context(request.body)
            said = self._complete(context)
            message = _in_own_loop(said) if inspect.isawaitable(said) else said
        yield iter((self._event(message),))

    @asynccontextmanager
    async def _aopen(
        self,
        request: PreparedRequest,
        connection: Connection,  # noqa: ARG002
    ) -> AsyncGenerator[AsyncIterator[RawEvent]]:
        with self._failing():
            context = types.parse_context(request.body)
            if inspect.iscoroutinefunction(self._complete):
                message: object = await self._complete(context)
            else:
                said = await in_thread(partial(self._complete, context), name=self.name)
                message = await said if inspect.isawaitable(said) else said
        event = self._event(message)

        async def events() -> AsyncIterator[RawEvent]:
            yield event

        yield events()

    @contextmanager
    def _failing(self) -> Generator[None]:
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise ProviderError(f"{self.name} failed: {said}", provider=self.name) from error

    def _event(self, message: object) -> RawEvent:
        if not isinstance(message, types.AssistantMessage):
            raise ProviderError(
                f"{self.name} returned {type(message).__name__}: return an AssistantMessage", provider=self.name
            )
        try:
            return types.to_json(message)
        except ContentError as error:
            raise ProviderError(
                f"{self.name} gave a reply that JSON cannot carry: {error}", provider=self.name
            ) from error


class _Reader(ReplyReader):
    """Reads a message. It is of this provider and api, whatever it names; the event keeps that."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(sender)
        self._events = 0
        self._message: types.AssistantMessage | None = None
        self._error: str | None = None

    def add(self, event: RawEvent) -> list[Delta]:
        self._events += 1
        try:
            message = types.parse_message(event)
        except ContentError as error:
            self._error = self._error or f"{self.sender.provider} gave a reply that cannot be read: {error}"
            return []
        if not isinstance(message, types.AssistantMessage):
            self._error = self._error or f"{self.sender.provider} gave a reply that is no assistant message"
            return []
        self._message = message
        return [_delta(block) for block in message.content]

    def response(self) -> Response:
        sender, message = self.sender, self._message
        nothing = Response(
            content=(), model=sender.model or "", stop_reason="error", provider=sender.provider, api=sender.api
        )
        if self._events != 1:
            why = f"{self._events} messages came in place of one" if self._events else "no message came"
            return nothing.failed(CallError(message=f"{sender.provider}: {why}", retryable=not self._events))
        if message is None:
            return nothing.failed(CallError(message=self._error or ""))
        asked = message.model or sender.model or ""
        content = tuple(self._named(block, asked) for block in message_blocks(message))
        calls = any(isinstance(block, ToolUse) for block in content)
        spelled = message.stop_reason
        reason: StopReason = (None if spelled is None else normal_stop_reason(spelled)) or (
            "tool_use" if calls else "stop"
        )
        response = Response(
            content=content,
            model=asked,
            stop_reason=reason,
            provider=sender.provider,
            api=sender.api,
            raw_stop_reason=spelled,
            usage=None if message.usage is None else turn_usage(message.usage),
            raw_usage=None if message.usage is None else Raw(types.to_json(message.usage)),
        )
        match reason:
            case "error":
                return response.failed(CallError(message=message.error_message or "the provider says no more"))
            case "aborted":
                return response.failed(CallError(message="the provider aborted the reply"), stop_reason="aborted")
            case _:
                return response

    def _named(self, block: Block, model: str) -> Block:
        """Return a block that says itself whose it is, where that counts."""
        if not isinstance(block, Thinking):
            return block
        return msgspec.structs.replace(block, provider=self.sender.provider, api=self.sender.api, model=model)


def _delta(block: types.TextContent | types.ThinkingContent | types.ToolCall) -> Delta:
    match block:
        case types.TextContent():
            return Delta(type="text", content=block.text)
        case types.ThinkingContent():
            return Delta(type="thinking", content=block.thinking)
        case types.ToolCall():
            arguments = Raw(msgspec.json.encode(dict(block.arguments)))
            return Delta(type="tool_use", name=block.name, id=block.id, content=arguments)


def _in_own_loop(said: Awaitable[types.AssistantMessage]) -> types.AssistantMessage:
    """Wait for a reply in an event loop of its own."""

    async def awaited() -> types.AssistantMessage:
        return await said

    if not is_in_a_loop():
        return asyncio.run(awaited())
    if inspect.iscoroutine(said):
        said.close()
    raise RunError("an event loop runs in this thread: await `acall` there")


def provider_of(
    complete: Complete,
    *,
    provider: str | None = None,
    api: types.Api | None = None,
    max_tokens: int = MAX_TOKENS,
) -> CompleteProvider:
    """Return an adapter for a provider that is one function. See `CompleteProvider` for what is said of it.

    A run uses it with `log.run(…, model="name", ask=Ask(adapter=provider_of(complete)))`. The model's name is what
    turns and calls record; the function gets a context, which names none.
    """
    return CompleteProvider(complete, provider=provider, api=api, max_tokens=max_tokens)


def context_of(request: PreparedRequest) -> types.AgentContext:
    """Return the context behind a request that a `CompleteProvider` prepared.

    Raises:
        ContentError: it is of another adapter.
    """
    return types.parse_context(request.body)
