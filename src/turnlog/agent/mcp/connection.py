"""One connection to an MCP server, over stdio or streamable HTTP, with the official SDK.

The SDK binds a session to the task that opened it. So each connection has a task of its own that opens it, waits, and
closes it; calls may come from any task of the same event loop, at the same time, and each can be cancelled.

This module imports the SDK, which is an extra: it is imported when the first server is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import httpx2
import msgspec
from mcp.client.context import ClientRequestContext
from mcp.client.session import ClientSession, IncomingMessage
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    ListRootsResult,
    Root,
    ToolListChangedNotification,
)
from mcp.types.jsonrpc import CONNECTION_CLOSED, METHOD_NOT_FOUND
from mcp.types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from msgspec import Raw
from pydantic import FileUrl, ValidationError

from turnlog.agent.mcp.conforming import outcome_by
from turnlog.agent.mcp.exchange import (
    Arrived,
    Dispatcher,
    Exchange,
    Request,
    Result,
    check_arguments,
    current_exchange,
    exchanged,
    pages,
)
from turnlog.agent.mcp.failures import StderrTail, has_unknown_end, never_connected, reason
from turnlog.agent.mcp.grants import Grant
from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.listing import ListedTool
from turnlog.agent.mcp.login import Person, ServerLogin
from turnlog.agent.mcp.resources import ServerResource, resource_of
from turnlog.agent.mcp.signals import CallRefusedError, ConnectionGoneError, EndUnknownError, MisbehaviourError, label
from turnlog.agent.mcp.transport import Streams, reach, run_program
from turnlog.agent.progress import Progress, progress_listener
from turnlog.agent.toolbox import ToolOutcome
from turnlog.errors import ToolServerError
from turnlog.executors import of_process
from turnlog.model import ServerMeta

PROBE_TIMEOUT_S = 2.0
"""How long a server may take to show that it still answers, after a call that was given up."""
CLOSE_TIMEOUT_S = {"stdio": 10.0, "http": 2.0}
"""How long closing may take. A program has up to 5 s: to end by itself, by SIGTERM, by SIGKILL."""

_TELL_TIMEOUT_S = 1.0
"""How long a server over HTTP may take to hear that something is over, when the connection is broken off."""

_END_WAIT_S = 0.2

# Where logging is not set up, Python prints warnings to standard error; the SDK's would stand among the output.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Connection:
    """A connection to a server. Use it in one event loop, and close it in the end, whatever became of it.

    Attributes:
        tools: the tools as the server lists them.
        refused: those that are not to be offered, by the server's names for them, and why.
        tools_changed: whether the server has said since that it has others.
        name: the server's name.
        suspect: whether a call was given up, so that it may hang.
        instructions: what the server says of the use of its tools; empty for nothing.
    """

    def __init__(
        self,
        meta: ServerMeta,
        launch: Launch,
        *,
        start_timeout_s: float,
        grant: Grant | None = None,
        keyring: str = "",
        person: Person | None = None,
    ) -> None:
        """Prepare a connection to a server, with what the environment has for it.

        Args:
            meta: the server.
            launch: how to start or to reach it.
            start_timeout_s: how long that may take, in seconds.
            grant: what has been granted for it, None where nobody has logged in.
            keyring: why the keyring cannot be used, where the grant would be.
            person: who can log in.

        Raises:
            ToolServerError: what has been granted cannot be read.
        """
        self._meta = meta
        self.name = meta.name
        self._given = self._launch = launch
        self._login = None if grant is None else ServerLogin(meta.name, grant, self._hide, person)
        self._keyring = keyring
        self._logs_in = person is not None
        self._start_timeout_s = start_timeout_s
        self._close_timeout_s = CLOSE_TIMEOUT_S["stdio" if meta.command else "http"]
        self.tools: Sequence[ListedTool] = ()
        self.refused: Mapping[str, str] = {}
        self.tools_changed = False
        self.suspect = False
        self.instructions = ""
        self._settled = asyncio.Event()
        self._over = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._calls = 0
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._given_up: set[asyncio.Task[None]] = set()
        self._failure: str | None = None
        self._stderr = StderrTail()
        self._opening = Exchange()
        self._arrived = None if meta.command else Arrived()
        self._session_lost = False
        self._never_connected = False
        self._broken_off = False
        self._unreadable = 0

    @property
    def alive(self) -> bool:
        """Whether requests can be sent."""
        return self._session is not None and not self._over.is_set() and not self._session_lost

    async def open(self) -> None:
        """Start the server, or connect to it, and have it list its tools.

        Raises:
            ToolServerError: it cannot be started, reached or understood.
        """
        self._task = asyncio.create_task(self._own(), name=f"MCP server {self._meta.name}")
        try:
            async with asyncio.timeout(self._start_timeout_s + self._close_timeout_s):
                await self._settled.wait()
        except TimeoutError as error:
            why = self._message(self._why(error, self._opening))
            raise ToolServerError(why, server=self.name) from error
        if self._session is None:
            raise ToolServerError(self._message(self._failure or "was closed"), server=self.name)

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Call a tool by the server's name for it, and return the result as the server wrote it.

        Raises:
            TimeoutError: it took longer than that, and the server was told to stop. Where
                something came that cannot be read, it says so.
            CallRefusedError: the server refused it, or answered with an error of the protocol; or the arguments cannot
                be sent, and nothing was.
            ConnectionGoneError: the server went away before the call.
            EndUnknownError: the server went away during the call, or answered with no result and no refusal.
        """
        session = self._session
        if session is None or not self.alive:
            raise ConnectionGoneError(self._message(self._failure or "has ended"))
        try:
            await of_process().run_read(check_arguments, tool, arguments)
        except ValueError as error:
            raise CallRefusedError(f"{label(self._meta)}: the arguments cannot be sent: {error}") from error
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        exchange = Exchange()
        on_progress, unreadable = self._on_progress(), self._unreadable
        self._calls += 1
        self._idle.clear()
        try:
            await self._within(
                timeout_s,
                lambda: session.send_request(request, CallToolResult, progress_callback=on_progress),
                exchange,
            )
            return exchange.result
        except TimeoutError:
            self.suspect = True
            if self._unreadable > unreadable:
                raise TimeoutError("answered with what cannot be read, and with nothing else") from None
            raise
        except asyncio.CancelledError:
            self.suspect = True
            raise
        except MCPError as error:
            raise await self._explained(error, exchange) from error
        except MisbehaviourError as error:
            raise EndUnknownError(self._message(str(error))) from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    def _on_progress(self) -> ProgressFnT | None:
        """Return what hears of the progress of the call that is about to be made; None where nobody does."""
        tell = progress_listener()
        if tell is None:
            return None

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            tell(Progress(done=progress, total=total, message=self._launch.without_secrets(message or "")))

        return hear

    async def list_tools(self) -> None:
        """Ask for the tools again.

        Raises:
            ToolServerError: the listing cannot be understood, or the server went away.
        """
        await self.ask(self._list, self._start_timeout_s)

    async def ask(self, ask: Callable[[ClientSession], Coroutine[Any, Any, object]], timeout_s: float) -> Result:
        """Ask the server for something else than to call a tool, and return its answer as it wrote it.

        Raises:
            ToolServerError: it does not answer, or not as the protocol has it.
        """
        session = self._session
        assert session is not None
        exchange = Exchange()
        try:
            await self._within(timeout_s, lambda: ask(session), exchange)
        except TimeoutError as error:
            self.suspect = True
            raise ToolServerError(self._message(f"did not answer within {timeout_s:g} s"), server=self.name) from error
        except Exception as error:  # the SDK raises what it likes: here it becomes an error of turnlog
            why = self._message(self._why(error, exchange))
            raise ToolServerError(why, server=self.name) from error
        return exchange.result

    def outcome(self, result: Result, output_schema: Raw) -> ToolOutcome:
        """Return the outcome that the result of a call tells of, also without secrets that are split over its texts.

        Raises:
            ValueError: the result cannot be read; see `outcome_by`.
        """
        return self._launch.without_split(outcome_by(result, output_schema))

    @property
    def logged_in(self) -> bool:
        """Whether it is used with a login."""
        return self._login is not None and self._login.was_granted

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources."""
        told = self._session and (self._session.initialize_result or self._session.discover_result)
        return bool(told and told.capabilities.resources)

    async def resources(self) -> list[ServerResource]:
        """Return the resources that the server lists, and its templates behind them.

        Raises:
            ToolServerError: a listing cannot be understood, or the server went away.
        """
        found = [*await self.listed("resources"), *await self.listed("resourceTemplates")]
        return await of_process().run_read(lambda: list(map(resource_of, found)))

    async def listed(self, kind: Literal["resources", "resourceTemplates", "prompts"]) -> list[Result]:
        """Return all that the server lists of a kind, none where it has no such listing.

        Raises:
            ToolServerError: the listing cannot be understood, or the server went away.
        """
        found: list[Result] = []

        async def ask(session: ClientSession) -> None:
            lists = {
                "resources": session.list_resources,
                "resourceTemplates": session.list_resource_templates,
                "prompts": session.list_prompts,
            }
            ask_page = lists[kind]
            found.extend(await pages(lambda params: ask_page(params=params), kind))

        await self.ask(ask, self._start_timeout_s)
        return found

    async def answers(self) -> bool:
        """Return whether the server still answers, and if so trust it again."""
        session = self._session
        if session is None or not self.alive:
            return False

        def probe() -> Coroutine[Any, Any, object]:
            if session.discover_result is None:
                return session.send_ping()
            return session.send_discover(session.protocol_version or LATEST_MODERN_VERSION)

        exchange = Exchange()
        try:
            await self._within(PROBE_TIMEOUT_S, probe, exchange)
        except MCPError as error:
            # A server may not know what it was asked, and answers all the same.
            if error.code != METHOD_NOT_FOUND or exchange.status >= 400:
                return False
        except (TimeoutError, ValidationError, MisbehaviourError):
            return False
        self.suspect = False
        return True

    async def close(self) -> None:
        """End the connection and the program that it started. Calls that are under way end with an error."""
        self._over.set()
        if self._task is None:
            return
        ending = [] if self._login is None else [asyncio.create_task(self._login.close())]
        if self._settled.is_set():
            await asyncio.wait({self._task}, timeout=self._close_timeout_s)
        if not self._broken_off:
            self._broken_off = True  # a second time would break off what the first one has it do: end the program
            self._task.cancel()
            # Over HTTP that has it tell the server that a request is given up, and then that the session is over.
            while self._meta.url and not self._task.done():
                await asyncio.wait({self._task}, timeout=_TELL_TIMEOUT_S)
                self._task.cancel()
        await asyncio.wait({self._task, *self._given_up, *ending})

    async def close_when_idle(self) -> None:
        """Wait for the calls that are under way, then close."""
        await self._idle.wait()
        await self.close()

    async def _within(self, timeout_s: float, request: Request, exchange: Exchange) -> None:
        """Make a request in a task of its own.

        A request that is given up tells the server so, which takes a while where the server reads no more. Nobody waits
        for that but `close`.

        Raises:
            TimeoutError: it took longer than that.
        """
        task = asyncio.create_task(exchanged(request, exchange))
        try:
            await asyncio.wait({task}, timeout=timeout_s)
            if not task.done():
                raise TimeoutError
            task.result()
        finally:
            if not task.done():
                task.cancel()
                self._given_up.add(task)
                task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._given_up.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio logs those that nobody asks for

    # The task that owns the session

    async def _own(self) -> None:
        failed: BaseException | None = None
        current_exchange.set(self._opening)
        try:
            async with AsyncExitStack() as stack:
                self._session = await self._start(stack)
                self._settled.set()
                await self._over.wait()
        except Exception as error:  # noqa: BLE001 - the SDK raises what it likes: here it becomes an error of turnlog
            failed = error
        finally:
            self._over.set()
            if self._arrived is not None:
                self._arrived.clear()
            if failed is not None:
                self._failure, self._never_connected = self._why(failed, self._opening), never_connected(failed)
            self._settled.set()

    async def _start(self, stack: AsyncExitStack) -> ClientSession:
        async with asyncio.timeout(self._start_timeout_s):
            streams = await self._streams(stack)
            dispatcher = Dispatcher(streams, self._launch.masked, self._over.set, self._arrived)
            session = ClientSession(
                dispatcher=dispatcher,
                client_info=Implementation(name="turnlog", version=version("turnlog")),
                message_handler=self._on_message,
                list_roots_callback=self._tell_roots if self._meta.roots else None,
            )
            await stack.enter_async_context(session)
            await self._shake_hands(session)
            told = session.initialize_result or session.discover_result
            self.instructions = self._launch.without_secrets((told and told.instructions) or "")
            await self._list(session)
        return session

    async def _streams(self, stack: AsyncExitStack) -> Streams:
        if self._arrived is None:
            return await run_program(stack, self._launch, self._stderr)
        return await reach(stack, self._launch, self._login, self._on_response, self._start_timeout_s, self._arrived)

    def _hide(self, secrets: Mapping[str, str]) -> None:
        """Have secrets of a login hidden as those of the environment are."""
        given = self._given
        self._launch = msgspec.structs.replace(
            given, values={**given.values, **secrets}, secrets={**given.secrets, **secrets}
        )

    async def _shake_hands(self, session: ClientSession) -> None:
        """Agree on a version of the protocol.

        `initialize` comes first, which nearly every server knows, and some end the connection when anything else does.
        The few of 2026-07-28 that have it no more refuse it, and are asked to `server/discover`.
        """
        try:
            await session.initialize()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self._opening.status in (401, 403):
                raise
            try:
                await session.discover()
            except (MCPError, ValidationError):
                raise error from None

    async def _list(self, session: ClientSession) -> None:
        self.tools_changed = False
        tools: list[ListedTool] = await pages(lambda params: session.list_tools(params=params), "tools")
        # 2026-07-28: a client must not offer a tool with an annotation for a header that is none.
        checks = session.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.refused = {tool.name: tool.bad_header for tool in tools if checks and tool.bad_header}
        self.tools = tuple(tool for tool in tools if tool.name not in self.refused)

    async def _tell_roots(self, context: ClientRequestContext) -> ListRootsResult:  # noqa: ARG002 - the SDK names it
        return ListRootsResult(roots=[Root(uri=FileUrl(Path(root).as_uri())) for root in self._meta.roots])

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.tools_changed = True
        elif isinstance(message, Exception):
            self._unreadable += 1

    async def _on_response(self, response: httpx2.Response) -> None:
        if response.request.method != "POST" or str(response.request.url) != str(httpx2.URL(self._launch.url)):
            return  # a login has requests of its own
        exchange = current_exchange.get(self._opening)
        exchange.status = response.status_code
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self._session_lost = True

    # What went wrong, in words

    async def _explained(
        self, error: MCPError, exchange: Exchange
    ) -> CallRefusedError | ConnectionGoneError | EndUnknownError:
        if exchange.login is not None:
            return CallRefusedError(self._launch.scrub(f"{label(self._meta)} {exchange.login}"))
        status = exchange.status
        if status == 404 and self._session_lost:
            # Streamable HTTP, Session Management: the server does not know the session any more, so it did nothing.
            return ConnectionGoneError(self._message("has forgotten this session"))
        if error.code == CONNECTION_CLOSED and self._task is not None:
            if await self._has_ended():
                # A program may go on for a moment when its output has ended. Its last words are known when it is gone.
                await asyncio.wait({self._task}, timeout=self._close_timeout_s)
                message = self._message(self._failure or "ended during the call")
                return ConnectionGoneError(message) if self._never_connected else EndUnknownError(message)
            self.suspect = True
        # Some servers do not say that they forgot the session but refuse it in other ways.
        self.suspect = self.suspect or status >= 400
        why = self._launch.scrub(f"{label(self._meta)} {self._why(error, exchange)}")
        return EndUnknownError(why) if has_unknown_end(error, status) else CallRefusedError(why)

    async def _has_ended(self) -> bool:
        """Return whether the connection has ended: servers have errors of their own with the code that says so."""
        try:
            async with asyncio.timeout(_END_WAIT_S):
                return await self._over.wait()
        except TimeoutError:
            return False

    def _message(self, what: str) -> str:
        return self._launch.scrub(f"{label(self._meta)} {what}{self._stderr.last_words(self._launch)}")

    def _why(self, error: BaseException, exchange: Exchange) -> str:
        why = reason(
            exchange.login or error,
            self._meta,
            started=self._session is not None,
            status=exchange.status,
            timeout_s=self._start_timeout_s,
            keyring=self._keyring,
            logs_in=self._logs_in,
        )
        return f"{why} ({self._unreadable} of its messages could not be read)" if self._unreadable else why
