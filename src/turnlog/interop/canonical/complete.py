"""The run loop's providers as one function, `complete(AgentContext) -> AssistantMessage`.

What a provider gets of a context is decided by the rules that all adapters share, as for a window of a log: messages
that failed or were aborted are left out, and calls and results are paired by id.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from turnlog.agent.target import Target
from turnlog.interop.canonical import types
from turnlog.interop.canonical.reading import MessageReader, Said
from turnlog.interop.canonical.tools import model_tool
from turnlog.interop.canonical.turns import draft_of
from turnlog.model import (
    ContextWindow,
    Delta,
    LossReport,
    Message,
    Response,
    TurnMeta,
    content_bytes,
    decode_content,
)
from turnlog.providers import OnLoss, PreparedRequest

REPLY = "reply"
"""What a loss report names in place of a turn for what the message of a reply does not have."""

SYSTEM = "system-prompt"
"""What it names for the system prompt. A message of the context is `messages[N]`."""

OnReport = Callable[[LossReport], None]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Completion(Struct, frozen=True, kw_only=True):
    """What both functions do, but for the call itself."""

    target: Target
    on_loss: OnLoss | None
    on_report: OnReport | None
    now_ms: Callable[[], int]

    def request(self, context: types.AgentContext) -> PreparedRequest:
        """Return the request of a context."""
        adapter = self.target.adapter
        return adapter.prepare_request(
            window_of(context),
            [model_tool(tool) for tool in context.tools],
            model=self.target.model,
            params={**adapter.call_params, **self.target.params, "max_tokens": context.max_tokens},
            on_loss=self.on_loss,
            stream=adapter.capabilities.streams,
        )

    def message(self, request: PreparedRequest, response: Response) -> types.AssistantMessage:
        """Return the message of a response, and report what is lost on the way there and back."""
        message, losses = message_of(response, timestamp=self.now_ms())
        report = request.loss_report.with_entries(losses.entries)
        if report and self.on_report is not None:
            self.on_report(report)
        return message


def complete_of(
    target: Target,
    *,
    on_loss: OnLoss | None = None,
    on_delta: Callable[[Delta], None] | None = None,
    on_report: OnReport | None = None,
    now_ms: Callable[[], int] = _now_ms,
) -> Callable[[types.AgentContext], types.AssistantMessage]:
    """Return a model as one function. A call that fails is a message with the stop reason `error`; nothing is recorded.

    Args:
        target: the model, its adapter and the way to it. `turnlog.agent.target.find_target` finds that of a pointer.
        on_loss: what to do with what the provider's api cannot carry, as for `Provider.prepare_request`.
        on_delta: called with each piece of a reply as it comes.
        on_report: called with what the request does not carry of the context, and the message not of the reply, where
            there is something.
        now_ms: the clock of the messages, in milliseconds since 1970 UTC.

    The function raises:
        UnsupportedContentError: the provider's api cannot carry something of the context.
        ContentError: the context has something that JSON does not have.
    """
    completion = _Completion(target=target, on_loss=on_loss, on_report=on_report, now_ms=now_ms)

    def complete(context: types.AgentContext) -> types.AssistantMessage:
        request = completion.request(context)
        reply = target.adapter.call(request, target.connection, on_delta=on_delta)
        return completion.message(request, reply.response)

    return complete


def acomplete_of(
    target: Target,
    *,
    on_loss: OnLoss | None = None,
    on_delta: Callable[[Delta], None] | None = None,
    on_report: OnReport | None = None,
    now_ms: Callable[[], int] = _now_ms,
) -> Callable[[types.AgentContext], Awaitable[types.AssistantMessage]]:
    """Do what `complete_of` does, for asyncio."""
    completion = _Completion(target=target, on_loss=on_loss, on_report=on_report, now_ms=now_ms)

    async def complete(context: types.AgentContext) -> types.AssistantMessage:
        request = completion.request(context)
        reply = await target.adapter.acall(request, target.connection, on_delta=on_delta)
        return completion.message(request, reply.response)

    return complete


def window_of(context: types.AgentContext) -> ContextWindow:
    """Return the context window that an agent context is, without messages that failed or were aborted.

    Tool results that follow each other are one message: turns of a run hold them so.

    Raises:
        ContentError: a message is not what the types say.
    """
    checked = types.parse_messages(types.to_json(context.messages))
    messages = [] if context.system_prompt is None else [_system(context.system_prompt)]
    results: list[Message] = []
    for index, message in enumerate(checked):
        draft = draft_of(message)
        if draft.meta.failed:
            continue
        meta = draft.meta
        carried = Message(
            turn=f"messages[{index}]",
            role=meta.role,
            content_json=draft.payload,
            model=meta.model,
            provider=meta.provider,
            api=meta.api,
        )
        if isinstance(message, types.ToolResultMessage):
            results.append(carried)
            continue
        messages += _together(results)
        results = []
        messages.append(carried)
    return ContextWindow(messages=(*messages, *_together(results)), options={})


def _system(prompt: str) -> Message:
    return Message(turn=SYSTEM, role="system", content_json=content_bytes(prompt))


def _together(results: Sequence[Message]) -> list[Message]:
    if len(results) < 2:
        return list(results)
    content = b"[" + b",".join(result.content_json[1:-1] for result in results) + b"]"
    return [msgspec.structs.replace(results[0], content_json=content)]


def message_of(response: Response, *, timestamp: int | float) -> tuple[types.AssistantMessage, LossReport]:
    """Return the message of a response, and what it does not have of it."""
    failed = response.stop_reason == "error"
    error = "the call failed" if failed and response.error is None else None
    meta = TurnMeta(
        role="assistant",
        model=response.model,
        provider=response.provider,
        api=response.api,
        stop_reason=response.stop_reason,
        usage=response.usage,
        error=error or (None if response.error is None else response.error.line()),
    )
    blocks = decode_content(content_bytes(response.content))
    reader = MessageReader()
    [message] = reader.read(Said(turn=REPLY, meta=meta, blocks=blocks, timestamp=timestamp))
    assert isinstance(message, types.AssistantMessage)
    return message, LossReport(entries=tuple(reader.losses))
