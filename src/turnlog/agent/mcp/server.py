"""One MCP server of a run: its connection, of which there may be several, and what it lists."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from turnlog.agent.mcp.content import raw_json
from turnlog.agent.mcp.descriptions import (
    DESCRIPTION_CHARACTERS_MAX,
    INSTRUCTIONS_CHARACTERS_MAX,
    cut,
    with_descriptions_cut,
)
from turnlog.agent.mcp.grants import Grant, kept_grant
from turnlog.agent.mcp.launch import Launch, launch
from turnlog.agent.mcp.resources import ServerResource
from turnlog.agent.mcp.signals import (
    CallRefusedError,
    ConnectionGoneError,
    EndUnknownError,
    KeyringUnusableError,
    label,
)
from turnlog.agent.toolbox import ToolOutcome
from turnlog.errors import ToolServerError
from turnlog.executors import of_process
from turnlog.model import ServerMeta, Tool
from turnlog.model.tools import ABSENT
from turnlog.registers import SERVER_SEPARATOR
from turnlog.store.telling import logger

if TYPE_CHECKING:
    from turnlog.agent.mcp.connection import Connection
    from turnlog.agent.mcp.listing import ListedTool

_log = logger("turnlog.mcp")

STARTS_MAX = 10
"""How often one server is started, or connected to, in one run."""
NAME_CHARACTERS_MAX = 64
"""The longest name of a tool that every provider takes."""
RESOURCES_TIMEOUT_S = 5.0
"""How long a server may take to list its resources before its tools are offered without a tool that reads those."""
READ_RESOURCE = "read_resource"
"""The name of the tool that reads resources, behind the server's name and `___`."""
_RESOURCES_SHOWN_MAX = 50
_RESOURCE_CHARACTERS_MAX = 200

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_CHARACTERS_MAX}}}")


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


def check_text(server: str, *texts: str) -> None:
    """Raise on what the SDK cannot send: it would end the connection.

    Raises:
        ToolServerError: a text is not Unicode.
    """
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ToolServerError(
                f"{text!r} cannot be sent to MCP server {server!r}: it is no Unicode", server=server
            ) from error


class Server:
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
        self._resources: Sequence[ServerResource] = ()
        self._unlisted = ""
        self._reads: bool | None = None
        """Whether `READ_RESOURCE` is turnlog's tool or the server's own: what was approved is called. None: neither."""
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
                    self.listing = await of_process().run_read(self._read, connection)
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
                result = await self._result(connection, tool, arguments)
                return await of_process().run_read(connection.outcome, result, self._output_schema(tool))
            except (ToolServerError, CallRefusedError) as error:
                return ToolOutcome.error(str(error))
            except TimeoutError as error:
                said = str(error) or "did not answer"
                return ToolOutcome.error(
                    f"{self._label}: {tool!r} {said} within {self.call_timeout_s:g} s;"
                    " the call was given up, and may have had effects",
                    may_have_had_effects=True,
                )
            except EndUnknownError as error:
                why = f"{error}\nThe call was not repeated, for it may have had effects."
                return ToolOutcome.error(why, may_have_had_effects=True)
            except ConnectionGoneError as error:
                gone = str(error)
            except ValueError as error:
                why = f"{self._label}: the result cannot be read: {error}"
                return ToolOutcome.error(why, may_have_had_effects=True)
        return ToolOutcome.error(gone)

    def _output_schema(self, tool: str) -> Raw:
        """Return the output schema that a tool of the server is listed with."""
        return next((listed.output_schema for own, listed in self.listing.values() if own == tool), ABSENT)

    async def _result(self, connection: Connection, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of a tool of the server, or of the one that reads its resources."""
        if tool != READ_RESOURCE or not self._reads:
            return await connection.call(tool, arguments, self.call_timeout_s)
        uri = arguments.get("uri")
        if not isinstance(uri, str):
            raise CallRefusedError(f'{self._label}: give the address of the resource to read: {{"uri": "…"}}')
        check_text(self.meta.name, uri)
        read = await connection.ask(lambda session: session.read_resource(uri), self.call_timeout_s)
        return {"content": [{"type": "resource", "resource": part} for part in read["contents"]]}

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
        if self._starts > 1:
            _log.warning("%s is gone: starting it again (%d of %d)", self._label, self._starts, STARTS_MAX)
        # A keyring may take its time.
        given, grant, keyring = await of_process().run_wait(self._given)
        connection = self._connection = self._connect(given, grant, keyring)
        try:
            await connection.open()
            await self._list_resources(connection)
            self.listing, self._listed = await of_process().run_read(self._read, connection), True
        except BaseException as error:
            if isinstance(error, Exception):  # else whoever wants it has given up
                _log.warning("%s could not be started", self._label)
            self._retire()
            raise
        _log.info("%s is started, with %d tools", self._label, len(self.listing))
        return connection

    async def _list_resources(self, connection: Connection) -> None:
        """Have the resources listed of a server that says that it has some. One that cannot list them is told of."""
        self._resources, self._unlisted = (), ""
        if not connection.has_resources:
            return
        try:
            async with asyncio.timeout(RESOURCES_TIMEOUT_S):
                self._resources = tuple(await connection.resources())
        except TimeoutError:
            self._unlisted = f"{self._label} did not list its resources within {RESOURCES_TIMEOUT_S:g} s"
        except ToolServerError as error:
            self._unlisted = str(error)

    def _given(self) -> tuple[Launch, Grant | None, str]:
        """Return how to start it, what has been granted for it, and why the keyring cannot be used that would say."""
        with suppress(ImportError):  # it is told where it is needed
            import_module("turnlog.agent.mcp.connection")  # a second, with the SDK: not in the event loop
        given = launch(self.meta, self._environment)
        asks = given.url and not any(name.lower() == "authorization" for name in given.headers)
        try:
            return given, kept_grant(self.meta.name, given.url) if asks else None, ""
        except KeyringUnusableError as error:
            return given, None, str(error)

    def _connect(self, given: Launch, grant: Grant | None, keyring: str) -> Connection:
        try:
            from turnlog.agent.mcp.connection import Connection  # noqa: PLC0415 - it imports the SDK, an extra
        except ImportError as error:
            raise ToolServerError(
                f"{self._label} needs the package `mcp`: install it with `pip install 'turnlog[mcp]'`",
                server=self.meta.name,
            ) from error
        return Connection(self.meta, given, start_timeout_s=self._start_timeout_s, grant=grant, keyring=keyring)

    def _retire(self, *, idle_first: bool = False) -> None:
        """Close the connection, if there is one, in a task of its own."""
        connection, self._connection = self._connection, None
        if connection is not None:
            closing = asyncio.create_task(connection.close_when_idle() if idle_first else connection.close())
            self._closing[closing] = connection
            closing.add_done_callback(self._ended)

    def _ended(self, closing: asyncio.Task[None]) -> None:
        self._closing.pop(closing)
        _log.info("%s is ended", self._label)

    def _read(self, connection: Connection) -> dict[str, tuple[str, Tool]]:
        """Return the tools of a connection. Of thousands that takes seconds: it is no work for the event loop.

        Raises:
            ToolServerError: two have one name, or one has a schema that is not JSON.
        """
        found: dict[str, tuple[str, Tool]] = {}
        notes = [
            f"{self._label}: its tool {name!r} is not offered: its schema has no valid header ({why})"
            for name, why in connection.refused.items()
        ]
        for listed in connection.tools:
            own = listed.name
            if listed.needs_task:
                notes.append(
                    f"{self._label}: its tool {own!r} runs as a task only, which turnlog cannot do: it is not offered"
                )
                continue
            name = tool_name(self.meta.name, own)
            if name in found:
                raise ToolServerError(f"{self._label} lists two tools that are called {own!r}", server=self.meta.name)
            whole = _tool(name, listed)
            try:
                tool = _bounded(whole)
            except ValueError as error:
                raise ToolServerError(
                    f"{self._label}: its tool {own!r} cannot be read: {error}", server=self.meta.name
                ) from error
            if tool != whole:
                notes.append(
                    f"{self._label}: what is said of its tool {own!r} is too long: only the first"
                    f" {DESCRIPTION_CHARACTERS_MAX} characters of a description or a title are offered"
                )
            found[name] = own, tool
        name = tool_name(self.meta.name, READ_RESOURCE)
        if self._reads is None and (name in found or self._resources):
            self._reads = name not in found
        if self._reads:
            if found.pop(name, None) is not None:
                notes.append(f"{self._label}: its tool {READ_RESOURCE!r} is new, and turnlog's stays in its place")
            found[name] = READ_RESOURCE, _reading(name, self.meta.name, self._resources)
        if self._unlisted:
            notes.append(f"{self._unlisted}: the model is offered no tool that reads them")
        said = connection.instructions.strip()
        self.instructions = cut(said, INSTRUCTIONS_CHARACTERS_MAX)
        if said != self.instructions:
            notes.append(
                f"{self._label}: its instructions have {len(said)} characters: only the first"
                f" {INSTRUCTIONS_CHARACTERS_MAX} are taken"
            )
        self.notes = notes
        return found


def _tool(name: str, listed: ListedTool) -> Tool:
    """Return a tool as it is listed. One that had to be renamed has its own name as the title, if it has no other."""
    renamed = not name.endswith(f"{SERVER_SEPARATOR}{listed.name}")
    return Tool(
        name=name,
        description=listed.description,
        input_schema=listed.input_schema,
        output_schema=listed.output_schema,
        title=listed.title or (listed.name if renamed else None),
        annotations=listed.annotations,
    )


def _bounded(tool: Tool) -> Tool:
    """Return a tool with what is too long of its descriptions and titles cut, the same one where nothing is.

    Raises:
        ValueError: its schema is nested too deeply.
    """
    description = cut(tool.description, DESCRIPTION_CHARACTERS_MAX)
    title = None if tool.title is None else cut(tool.title, DESCRIPTION_CHARACTERS_MAX)
    schema = with_descriptions_cut(tool.input_schema)
    return msgspec.structs.replace(tool, description=description, title=title, input_schema=schema)


def _reading(name: str, server: str, resources: Sequence[ServerResource]) -> Tool:
    """Return the tool that reads the resources of a server. Its description names those that the server lists."""
    lines = [f"Read a resource of the server {server!r} by its address. It lists these:"]
    for resource in resources[:_RESOURCES_SHOWN_MAX]:
        kind = f" ({resource.media_type})" if resource.media_type else ""
        said = " ".join(f"{resource.name}{kind} {resource.description}".split())[:_RESOURCE_CHARACTERS_MAX]
        fill = ", to fill in" if resource.is_template else ""
        lines.append(f"- {resource.uri}{fill}: {said}")
    more = len(resources) - _RESOURCES_SHOWN_MAX
    if more > 0:
        lines.append(f"and {more} more")
    schema = {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "The address of the resource."}},
        "required": ["uri"],
    }
    return Tool(
        name=name,
        description=cut("\n".join(lines), DESCRIPTION_CHARACTERS_MAX),
        input_schema=raw_json(schema),
        annotations=raw_json({"readOnlyHint": True}),
    )
