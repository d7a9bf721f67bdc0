"""The tools of MCP servers: started or connected to when they are first needed, and again when they went away."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from msgspec import UNSET, Raw, Struct

from turnlog.agent.mcp_content import outcome_of, raw_json
from turnlog.agent.mcp_launch import Launch, launch
from turnlog.agent.mcp_resources import (
    ServerPrompt,
    ServerResource,
    attached,
    prompt_of,
    question,
    resource_of,
)
from turnlog.agent.mcp_signals import CallRefusedError, ConnectionGoneError, MisbehaviourError, label
from turnlog.agent.opening import Attached
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.errors import RunError, ToolServerError
from turnlog.model import ServerMeta, Tool
from turnlog.registers import SERVER_SEPARATOR

if TYPE_CHECKING:
    from turnlog.agent.mcp_connection import Connection

_R = TypeVar("_R")

STARTS_MAX = 10
"""How often one server is started, or connected to, in one run."""
INSTRUCTIONS_CHARACTERS_MAX = 16_384
"""How much of the instructions of a server a model is given."""
NAME_CHARACTERS_MAX = 64
"""The longest name of a tool that every provider takes."""

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_CHARACTERS_MAX}}}")


class Origin(Struct, frozen=True, kw_only=True):
    """Where a tool is from: the name of its server, and the server's own name for it."""

    server: str
    tool: str


def tool_name(server: str, tool: str) -> str:
    """Return the name that a model sees: `server___tool`.

    Providers take letters, digits, `_` and `-`, and 64 characters at most. A name that is otherwise gets `_` in place
    of other characters, is cut, and ends with 8 digits of its SHA-256: it is always the same, and no other tool's.
    """
    name = f"{server}{SERVER_SEPARATOR}{tool}"
    if _NAME.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', name)[: NAME_CHARACTERS_MAX - 9]}_{mark}"


class McpTools(Toolbox):
    """The tools of MCP servers (Model Context Protocol), over stdio and streamable HTTP.

    Servers are started all at once when the tools are first asked for. One that ended, that forgot the session, or
    that does not answer after a call was given up, is started anew for the next call, `STARTS_MAX` times at most. A
    call that was under way when its server went is an error and not repeated: it may have had effects.

    A program gets a few variables of the environment (PATH, HOME, …) and those that its registration names. What it
    writes to its standard error is not shown; the last lines are part of the message when it fails.
    """

    limits_time = True

    def __init__(
        self,
        servers: Sequence[ServerMeta],
        *,
        call_timeout_s: float = 60.0,
        start_timeout_s: float = 30.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take servers as they are registered. Nothing is started yet.

        Args:
            servers: the servers, `log.servers.get(name)`. One that is given twice is one.
            call_timeout_s: how long one call may take, where the registration does not say.
            start_timeout_s: how long a server may take to start, or to be reached, and to list its tools, where the
                registration does not say.
            environment: where named variables are looked up, by default the process's environment. Those that it does
                not have are looked up in the keyring.

        Raises:
            ToolServerError: two of the servers have one name.
        """
        given = os.environ if environment is None else environment
        self._servers: dict[str, _Server] = {}
        for meta in servers:
            known = self._servers.get(meta.name)
            if known is not None and known.meta != meta:
                raise ToolServerError(f"two MCP servers are called {meta.name!r}", server=meta.name)
            timeout_s = call_timeout_s if meta.timeout_s is UNSET else meta.timeout_s
            start_s = start_timeout_s if meta.start_timeout_s is UNSET else meta.start_timeout_s
            self._servers[meta.name] = known or _Server(meta, timeout_s, start_s, given)
        self.servers = tuple(self._servers)
        self._entered = False

    async def __aenter__(self) -> Self:
        """Make ready. Servers are started when they are needed."""
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all servers. On return their processes are gone."""
        self._entered = False
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def tools(self) -> Sequence[Tool]:
        """Return the tools of all servers: servers in the order given, tools in the server's order.

        Raises:
            ToolServerError: a server cannot be started, reached or understood; or two tools have one name.
            RunError: this was not entered.
        """
        failures = await self._list()
        if failures:
            also = "".join(f"; and {failure}" for failure in failures[1:])
            raise ToolServerError(f"{failures[0]}{also}", server=failures[0].server)
        listed: dict[str, Tool] = {}
        for server in self._servers.values():
            for name, (_, tool) in server.listing.items():
                if name in listed:
                    raise ToolServerError(
                        f"MCP server {server.meta.name!r} has a tool that another one has too, {name!r}:"
                        " register one of them under another name",
                        server=server.meta.name,
                    )
                listed[name] = tool
        return list(listed.values())

    def instructions(self) -> Mapping[str, str]:
        """Return what the servers say of the use of their tools, by their names; those that say nothing are not there.

        Of what is longer than `INSTRUCTIONS_CHARACTERS_MAX` the rest is left out, which `notes` tells.
        """
        return {name: server.instructions for name, server in self._servers.items() if server.instructions}

    def notes(self) -> Sequence[str]:
        """Return what is left out, and why: tools, or the end of long instructions."""
        return [note for server in self._servers.values() for note in server.notes]

    def origin(self, name: str) -> Origin | None:
        """Return where a tool is from, by the name that `tools` gave it; None where there is no such tool."""
        for server in self._servers.values():
            if name in server.listing:
                return Origin(server=server.meta.name, tool=server.listing[name][0])
        return None

    def server_of(self, name: str) -> str | None:
        """Return the name of the server that a tool runs on; None where there is no such tool."""
        origin = self.origin(name)
        return None if origin is None else origin.server

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Call a tool. Whatever goes wrong is an outcome with `is_error`; only cancellation is raised.

        Raises:
            RunError: this was not entered.
        """
        try:
            given: object = json.loads(bytes(arguments))
        except (ValueError, RecursionError) as error:
            return ToolOutcome.error(f"the arguments cannot be read: {error}")
        if not isinstance(given, dict):
            return ToolOutcome.error(f"the arguments are {type(given).__name__} and not a JSON object")
        failures = [] if self.origin(name) else await self._list()
        origin = self.origin(name)
        if origin is None:
            known = [listed for server in self._servers.values() for listed in server.listing]
            close = get_close_matches(name, known, n=3)
            hint = f", did you mean {' or '.join(map(repr, close))}" if close else ""
            also = "".join(f"; {failure}" for failure in failures)
            return ToolOutcome.error(f"there is no tool {name!r}{hint}{also}")
        if not self._entered:
            raise _not_entered()
        return await self._servers[origin.server].call(origin.tool, cast("dict[str, Any]", given))

    async def resources(self, server: str) -> list[ServerResource]:
        """Return the resources that a server lists, and its templates behind them.

        Raises:
            ToolServerError: it cannot be started, reached or understood.
            RunError: this was not entered.
        """
        connection = await self._connection(server)
        found = [*await connection.listed("resources"), *await connection.listed("resourceTemplates")]
        return list(map(resource_of, found))

    async def read_resource(self, server: str, uri: str) -> list[Attached]:
        """Read a resource: documents to attach to what is asked.

        Raises:
            ToolServerError: the server cannot be started, reached or understood, or has no such resource.
            RunError: this was not entered.
        """
        connection = await self._connection(server)
        _check_text(server, uri)
        result = await connection.ask(lambda session: session.read_resource(uri), self._servers[server].call_timeout_s)
        return self._read(server, lambda: attached(server, uri, result))

    async def prompts(self, server: str) -> list[ServerPrompt]:
        """Return the prompts that a server lists.

        Raises:
            ToolServerError: it cannot be started, reached or understood.
            RunError: this was not entered.
        """
        return list(map(prompt_of, await (await self._connection(server)).listed("prompts")))

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """Return the question that a prompt of a server is with arguments.

        Raises:
            ToolServerError: the server cannot be started, reached or understood; it has no such prompt; or the prompt
                is other than text that a user says.
            RunError: this was not entered.
        """
        connection = await self._connection(server)
        _check_text(server, name, *arguments, *arguments.values())
        result = await connection.ask(
            lambda session: session.get_prompt(name, dict(arguments)), self._servers[server].call_timeout_s
        )
        return self._read(server, lambda: question(name, result))

    async def _connection(self, server: str) -> Connection:
        if not self._entered:
            raise _not_entered()
        if server not in self._servers:
            raise ToolServerError(f"MCP server {server!r} is none of these: {', '.join(self.servers)}", server=server)
        return await self._servers[server].ready()

    def _read(self, server: str, read: Callable[[], _R]) -> _R:
        try:
            return read()
        except MisbehaviourError as error:
            raise ToolServerError(f"{label(self._servers[server].meta)} {error}", server=server) from error

    async def _list(self) -> list[ToolServerError]:
        """Have all servers list their tools that did not yet, or have others now, and return what failed."""
        if not self._entered:
            raise _not_entered()
        found = await asyncio.gather(*(server.list() for server in self._servers.values()))
        return [failure for failure in found if failure is not None]


def _check_text(server: str, *texts: str) -> None:
    """Raise on what the SDK cannot send: it would end the connection.

    Raises:
        ToolServerError: a text is not Unicode.
    """
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ToolServerError(
                f"{text!r} cannot be sent to MCP server {server!r}: no Unicode", server=server
            ) from error


def _not_entered() -> RunError:
    return RunError(
        "MCP tools must be entered before they are used, and not after they were left: `async with McpTools(…)`"
    )


class _Server:
    """A server of a run: its connection, of which there may be several, one after the other."""

    def __init__(
        self, meta: ServerMeta, call_timeout_s: float, start_timeout_s: float, environment: Mapping[str, str]
    ) -> None:
        self.meta = meta
        self._label = label(meta)
        self.listing: dict[str, tuple[str, Tool]] = {}
        """The tools by the name that a model sees, each with the server's own name for it. They stay when it ends."""
        self.notes: Sequence[str] = ()
        """What there is to say of the tools."""
        self.instructions = ""
        self._listed = False
        self.call_timeout_s = call_timeout_s
        self._start_timeout_s = start_timeout_s
        self._environment = environment
        self._connection: Connection | None = None
        self._starts = 0
        self._mutex = asyncio.Lock()
        self._closing: dict[asyncio.Task[None], Connection] = {}

    async def list(self) -> ToolServerError | None:
        """Have the tools listed if they are not, or have changed, and return why that failed."""
        try:
            async with self._mutex:
                connection = self._connection
                if not self._listed:
                    await self._start()
                elif connection is not None and connection.alive and connection.tools_changed:
                    await connection.list_tools()
                    self.listing = self._read(connection)
        except ToolServerError as error:
            gone = self._listed and (self._connection is None or not self._connection.alive)
            return None if gone else error
        return None

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Call a tool. The server is started if need be."""
        gone = ""
        for _ in range(2):
            try:
                connection = await self.ready()
                result = await connection.call(tool, arguments, self.call_timeout_s)
                return connection.masked(outcome_of(result))
            except (ToolServerError, CallRefusedError) as error:
                return ToolOutcome.error(str(error))
            except TimeoutError:
                return ToolOutcome.error(
                    f"{self._label}: {tool!r} did not answer within {self.call_timeout_s:g} s;"
                    " the call was given up, and may have had effects"
                )
            except ConnectionGoneError as error:
                if error.sent:
                    return ToolOutcome.error(f"{error}\nThe call was not repeated, for it may have had effects.")
                gone = str(error)
            except ValueError as error:
                return ToolOutcome.error(f"{self._label}: the result cannot be read: {error}")
        return ToolOutcome.error(gone)

    async def close(self) -> None:
        """End the server."""
        self._retire()
        closing = dict(self._closing)
        await asyncio.gather(*(connection.close() for connection in closing.values()))
        await asyncio.gather(*closing)

    async def ready(self) -> Connection:
        """Return a connection to call over: the one that is there, or a new one.

        Raises:
            ToolServerError: there is none to be had.
        """
        async with self._mutex:
            connection = self._connection
            if connection is not None and connection.alive and (not connection.suspect or await connection.answers()):
                return connection
            return await self._start()

    async def _start(self) -> Connection:
        self._retire(idle_first=True)
        if self._starts == STARTS_MAX:
            raise ToolServerError(
                f"{self._label} was started {STARTS_MAX} times in this run, and is not started again",
                server=self.meta.name,
            )
        self._starts += 1
        # A keyring may take its time.
        given = await asyncio.to_thread(launch, self.meta, self._environment)
        connection = self._connection = self._connect(given)
        try:
            await connection.open()
            self.listing, self._listed = self._read(connection), True
        except BaseException:
            self._retire()
            raise
        return connection

    def _connect(self, given: Launch) -> Connection:
        try:
            from turnlog.agent.mcp_connection import Connection  # noqa: PLC0415 - it imports the SDK, an extra
        except ImportError as error:
            raise ToolServerError(
                f"{self._label} needs the package `mcp`: install it with `pip install 'turnlog[mcp]'`",
                server=self.meta.name,
            ) from error
        return Connection(self.meta, given, start_timeout_s=self._start_timeout_s)

    def _retire(self, *, idle_first: bool = False) -> None:
        """Close the connection, if there is one, in a task of its own."""
        connection, self._connection = self._connection, None
        if connection is not None:
            closing = asyncio.create_task(connection.close_when_idle() if idle_first else connection.close())
            self._closing[closing] = connection
            closing.add_done_callback(self._closing.pop)

    def _read(self, connection: Connection) -> dict[str, tuple[str, Tool]]:
        """Return the tools of a connection.

        Raises:
            ToolServerError: two have one name, or one has a schema that is not JSON.
        """
        found: dict[str, tuple[str, Tool]] = {}
        notes: list[str] = []
        for fields in connection.tools:
            own = str(fields["name"])
            if _needs_task(fields):
                notes.append(
                    f"{self._label}: its tool {own!r} runs as a task only, which turnlog cannot do: it is not offered"
                )
                continue
            name = tool_name(self.meta.name, own)
            if name in found:
                raise ToolServerError(f"{self._label} lists two tools that are called {own!r}", server=self.meta.name)
            try:
                found[name] = own, _tool(name, own, fields)
            except ValueError as error:
                raise ToolServerError(
                    f"{self._label}: its tool {own!r} cannot be read: {error}", server=self.meta.name
                ) from error
        said = connection.instructions.strip()
        self.instructions = said[:INSTRUCTIONS_CHARACTERS_MAX]
        if said != self.instructions:
            notes.append(
                f"{self._label}: its instructions have {len(said)} characters: only the first"
                f" {INSTRUCTIONS_CHARACTERS_MAX} are taken"
            )
        self.notes = notes
        return found


def _needs_task(fields: Mapping[str, Any]) -> bool:
    """Tell whether a tool can be called as a task only: MCP 2025-11-25, Tasks, Tool-Level Negotiation."""
    execution = fields.get("execution")
    return isinstance(execution, dict) and cast("dict[str, object]", execution).get("taskSupport") == "required"


def _tool(name: str, own: str, fields: Mapping[str, Any]) -> Tool:
    """Return a tool as it is listed. One that had to be renamed has its own name as the title, if it has no other."""
    renamed = not name.endswith(f"{SERVER_SEPARATOR}{own}")
    title = fields.get("title") or (own if renamed else UNSET)
    raw = {key: raw_json(value) for key in ("outputSchema", "annotations") if (value := fields.get(key)) is not None}
    return Tool(
        name=name,
        description=fields.get("description") or "",
        input_schema=raw_json(fields["inputSchema"]),
        output_schema=raw.get("outputSchema", UNSET),
        title=title,
        annotations=raw.get("annotations", UNSET),
    )
