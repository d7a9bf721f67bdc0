"""Replay: an adapter that answers from a log what a provider answered before, without a network.

A request is known by its exact bytes. The same agent run over the same inputs makes the same requests, so that a
recorded run can be repeated in a test, on a machine without keys.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from turnlog.digest import payload_hash
from turnlog.errors import ProviderError
from turnlog.model import CallError, ContextWindow, Tool
from turnlog.providers.interface import (
    Connection,
    Frame,
    FrameInput,
    OnLoss,
    Parameters,
    PreparedRequest,
    Provider,
    RawEvent,
    ReplyReader,
)

if TYPE_CHECKING:
    from turnlog.providers.carriage import Carried


class RecordedReply(Struct, frozen=True, kw_only=True):
    """A reply as it was recorded: the raw events that came, and the error that ended it, if one did."""

    events: tuple[RawEvent, ...]
    error: CallError | None = None


class Replay(Provider):
    """An adapter's double. It prepares and reads as the adapter does, and calls nobody.

    Replies to the same request are given in the order in which they were recorded, the last one again and again.
    """

    def __init__(self, adapter: Provider, replies: Mapping[str, Sequence[RecordedReply]]) -> None:
        """Stand in for an adapter.

        Args:
            adapter: the adapter.
            replies: hash of a request body to its replies; `TurnLog.calls.replies()` of the log that has them.
        """
        super().__init__()
        self.name = adapter.name
        self.provider = adapter.provider
        self.api = adapter.api
        self.version = adapter.version
        self.capabilities = adapter.capabilities
        self.key_variable = adapter.key_variable
        self.call_params = adapter.call_params  # pyright: ignore[reportAttributeAccessIssue] - it stands for another class
        self.reserved = adapter.reserved  # pyright: ignore[reportAttributeAccessIssue]
        self._adapter = adapter
        self._replies = {body: list(found) for body, found in replies.items()}
        self._taking = threading.Lock()

    def prepare_request(
        self,
        window: ContextWindow,
        tools: Sequence[Tool] = (),
        *,
        model: str,
        params: Parameters | None = None,
        on_loss: OnLoss | None = None,
        stream: bool = True,
    ) -> PreparedRequest:
        """Return the request body as the adapter prepares it."""
        return self._adapter.prepare_request(window, tools, model=model, params=params, on_loss=on_loss, stream=stream)

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        raise NotImplementedError("the adapter that is replayed prepares requests")

    def _frame(self, given: FrameInput) -> Frame:
        raise NotImplementedError("the adapter that is replayed prepares requests")

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads a reply, as the adapter does."""
        return self._adapter.reader(model=model)

    def _models(self, connection: Connection) -> list[str]:  # noqa: ARG002
        """Return no models: nobody is asked."""
        return []

    @contextmanager
    def _open(self, request: PreparedRequest, connection: Connection) -> Generator[Iterator[RawEvent]]:  # noqa: ARG002
        yield self._reply(request)

    @asynccontextmanager
    async def _aopen(
        self,
        request: PreparedRequest,
        connection: Connection,  # noqa: ARG002
    ) -> AsyncGenerator[AsyncIterator[RawEvent]]:
        async def events() -> AsyncIterator[RawEvent]:
            for event in self._reply(request):
                yield event

        yield events()

    def _reply(self, request: PreparedRequest) -> Iterator[RawEvent]:
        body = request.body
        with self._taking:
            waiting = self._replies.get(payload_hash(body), [])
            reply = waiting.pop(0) if len(waiting) > 1 else (waiting[0] if waiting else None)
        if reply is None:
            raise ProviderError(
                f"no recorded reply to this request of {len(body):,} bytes ({payload_hash(body)}): "
                "the run has gone another way than the recorded one, another version of the adapter recorded it "
                f"(this one is {self.name} {self.version}), or the request names a turn (a long result that is cut, a "
                "document with bedrock)",
                provider=self.name,
            )
        yield from reply.events
        if reply.error is not None:
            raise ProviderError(
                reply.error.message,
                provider=self.name,
                status=reply.error.status,
                retryable=reply.error.retryable,
                retry_after_s=reply.error.retry_after_s,
            )
