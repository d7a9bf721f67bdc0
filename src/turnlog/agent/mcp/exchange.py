"""Requests to an MCP server, and what came of each as the server wrote it, but for secrets.

This module imports the SDK, which is an extra.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from itertools import count
from typing import Any, cast

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types import PaginatedRequestParams, PaginatedResult
from mcp.types.jsonrpc import METHOD_NOT_FOUND, JSONRPCRequest
from msgspec import Raw

from turnlog.agent.mcp.listing import listed
from turnlog.agent.mcp.messages import SHORT
from turnlog.agent.mcp.signals import LoginError, MisbehaviourError
from turnlog.executors import of_process

PAGES_MAX = 1000
"""Pages of a tool listing; a server that has more never ends it."""

ARRIVED = "turnlog/arrived"
"""The key of a result that says which of the results that have come already it stands for."""

ARRIVED_BYTES_MAX = 512 * 1024 * 1024
"""How much of results that nobody has taken yet a connection keeps: answers to requests that were given up are among
them. Each counts as 32 KiB at least, and the one that came last stays, however large it is."""

_PARTS = {
    "prompts/get": "messages",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/read": "contents",
    "resources/templates/list": "resourceTemplates",
    "tools/list": "tools",
}
"""By methods, the keys of their results for lists that may be long."""

Result = Mapping[str, Any]
Request = Callable[[], Coroutine[Any, Any, object]]


class Exchange:
    """A request and what came of it: the result as the server wrote it, and over HTTP the status of the answer."""

    def __init__(self) -> None:
        self.result: Mapping[str, Any] = {}
        self.status = 0
        self.login: LoginError | None = None
        """Why it was not made, where there was no login to make it with."""


class Arrived:
    """Results of a connection that have come already, for which something short is on its way through the SDK.

    They are of the connection and not of a request, for an answer may come on any stream (MCP 2025-11-25, Transports,
    Listening for Messages from the Server). Threads may share one.
    """

    def __init__(self) -> None:
        self._results: dict[str, tuple[Result, int]] = {}
        self._numbers = count()
        self._size = 0
        self._mutex = threading.Lock()

    def keep(self, result: Result, size: int) -> Result:
        """Keep a result of so many bytes, and return what stands for it."""
        with self._mutex:
            number, size = str(next(self._numbers)), max(size, SHORT)
            self._results[number] = result, size
            self._size += size
            while self._size > ARRIVED_BYTES_MAX and len(self._results) > 1:
                self._drop(next(iter(self._results)))
        return {ARRIVED: number}

    def take(self, result: Result) -> Result:
        """Return the result that something stands for, which is not kept any more; what stands for none as it is.

        Raises:
            MisbehaviourError: it is not here.
        """
        if ARRIVED not in result:
            return result
        with self._mutex:
            found = self._drop(str(result[ARRIVED]))
        if found is None:
            raise MisbehaviourError(f"answered with a key that is turnlog's own, {ARRIVED!r}, or with too much at once")
        return found

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._mutex:
            self._results.clear()
            self._size = 0

    def _drop(self, number: str) -> Result | None:
        result, size = self._results.pop(number, (None, 0))
        self._size -= size
        return result


current_exchange: ContextVar[Exchange] = ContextVar("mcp_exchange")
"""The request of this task. The SDK sends it in a copy of the context that it came from."""


class Dispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, which keeps each result as it came but for secrets, and tells when the server is gone."""

    def __init__(
        self,
        streams: tuple[Any, Any],
        masked: Callable[[object], object],
        on_end: Callable[[], None],
        arrived: Arrived | None,
    ) -> None:
        super().__init__(*streams)
        self._masked = masked
        self._arrived = arrived
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

        The session gets a result without its parts, which are checked here in its place, in a thread: it would take a
        second of the event loop for 10,000 tools, and refuse content of a tool that is not in the specification.

        Raises:
            MisbehaviourError: a part is not as the protocol has it, or the result stands for one that is not here.
        """
        result = await super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        whole = result if self._arrived is None else self._arrived.take(result)
        current_exchange.get().result, handed = await of_process().run_read(self._taken, method, whole)
        return handed

    def _taken(self, method: str, whole: Result) -> tuple[Result, dict[str, Any]]:
        """Return what is kept of a result, and what the session is to see of it."""
        kept = cast("Result", self._masked(whole))
        if method == "tools/call":
            return kept, {"content": [], "resultType": "complete"}
        key = _PARTS.get(method, "")
        if not isinstance(kept.get(key), list):
            return kept, dict(whole)
        short = {name: value for name, value in whole.items() if not isinstance(value, Raw)}
        return {**kept, key: listed(key, kept[key])}, {**short, key: []}

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


def check_arguments(tool: str, arguments: Mapping[str, Any]) -> None:
    """Check that a call of a tool can be sent: what fails on its way takes the connection along, or goes as another.

    Raises:
        ValueError: it cannot; says why.
    """
    params = {"name": tool, "arguments": dict(arguments)}
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair, which is no Unicode") from None
    except ValueError:
        raise ValueError("NaN and Infinity are no numbers of JSON") from None
    try:
        JSONRPCRequest(jsonrpc="2.0", id=0, method="tools/call", params=params).model_dump_json()
    except ValueError:
        raise ValueError("they are nested too deeply") from None


async def pages(
    page: Callable[[PaginatedRequestParams | None], Coroutine[Any, Any, PaginatedResult]], key: str
) -> list[Any]:
    """Return all pages of a listing, as `listed` has them, none where it does not know the method.

    Raises:
        MisbehaviourError: there is no end of them.
    """
    found: list[Any] = []
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
