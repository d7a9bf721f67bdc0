"""Requests to an MCP server, and what came of each as the server wrote it, but for secrets.

This module imports the SDK, which is an extra.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, cast

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types import PaginatedRequestParams, PaginatedResult
from mcp.types.jsonrpc import METHOD_NOT_FOUND

from turnlog.agent.mcp_signals import MisbehaviourError

PAGES_MAX = 1000
"""Pages of a tool listing; a server that has more never ends it."""

Result = Mapping[str, Any]
Request = Callable[[], Coroutine[Any, Any, object]]


class Exchange:
    """A request and what came of it: the result as the server wrote it, and over HTTP the status of the answer."""

    def __init__(self) -> None:
        self.result: Mapping[str, Any] = {}
        self.status = 0


current_exchange: ContextVar[Exchange] = ContextVar("mcp_exchange")
"""The request of this task. The SDK sends it in a copy of the context that it came from."""


class Dispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, which keeps each result as it came but for secrets, and tells when the server is gone."""

    def __init__(
        self, streams: tuple[Any, Any], masked: Callable[[object], object], on_end: Callable[[], None]
    ) -> None:
        super().__init__(*streams)
        self._masked = masked
        self._on_end = on_end

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: str | int | None = None,
    ) -> dict[str, Any]:
        """Send a request.

        The session gets an empty result of a tool: it would refuse content of kinds that are not in the specification.
        """
        result = await super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        # It may be large, or of very many parts: the event loop goes on meanwhile.
        current_exchange.get().result = cast("Result", await asyncio.to_thread(self._masked, result))
        return {"content": [], "resultType": "complete"} if method == "tools/call" else result

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Receive until the server is gone."""
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._on_end()


async def pages(
    page: Callable[[PaginatedRequestParams | None], Coroutine[Any, Any, PaginatedResult]], key: str
) -> list[Result]:
    """Return all pages of a listing as the server wrote them, none where it does not know the method.

    Raises:
        MisbehaviourError: there is no end of them.
    """
    found: list[Result] = []
    cursors: set[str] = set()
    cursor: str | None = None
    while True:
        try:
            answer = await page(None if cursor is None else PaginatedRequestParams(cursor=cursor))
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND or found:
                raise
            return found
        found += current_exchange.get().result[key]
        cursor = answer.next_cursor
        if not cursor:  # some servers write an empty one behind their last page
            return found
        if cursor in cursors or len(cursors) == PAGES_MAX:
            raise MisbehaviourError(f"lists its {key} without an end")
        cursors.add(cursor)


async def exchanged(request: Request, exchange: Exchange) -> None:
    current_exchange.set(exchange)
    await request()
