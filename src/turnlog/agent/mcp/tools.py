"""The tools of MCP servers: started or connected to when they are first needed, and again when they went away."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.agent.given_arguments import value_of
from turnlog.agent.mcp.resources import ServerPrompt, ServerResource, attached, prompt_of, question
from turnlog.agent.mcp.server import Server, check_text
from turnlog.agent.mcp.signals import MisbehaviourError, label
from turnlog.agent.opening import Attached
from turnlog.agent.settled import delivered, finished
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.errors import ContentError, RunError, ToolServerError
from turnlog.executors import of_process
from turnlog.model import ServerMeta, Text, Tool
from turnlog.model.numbers import is_exactly

if TYPE_CHECKING:
    from turnlog.agent.mcp.connection import Connection

_R = TypeVar("_R")

_ROUNDED_TOLD_MAX = 3
_DIGITS_TOLD_MAX = 40


class Origin(Struct, frozen=True, kw_only=True):
    """Where a tool is from: the name of its server, and the server's own name for it."""

    server: str
    tool: str


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
        self._servers: dict[str, Server] = {}
        for meta in servers:
            known = self._servers.get(meta.name)
            if known is not None and known.meta != meta:
                raise ToolServerError(f"two MCP servers are called {meta.name!r}", server=meta.name)
            timeout_s = call_timeout_s if meta.timeout_s is None else meta.timeout_s
            start_s = start_timeout_s if meta.start_timeout_s is None else meta.start_timeout_s
            self._servers[meta.name] = known or Server(meta, timeout_s, start_s, given)
        self.servers = tuple(self._servers)
        self._entered = False

    async def __aenter__(self) -> Self:
        """Make ready. Servers are started when they are needed."""
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all servers. On return their processes are gone, also where a cancellation comes meanwhile."""
        self._entered = False
        closing = asyncio.gather(*(server.close() for server in self._servers.values()))
        await delivered(finished(closing))

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

        What is longer than 16,384 characters is cut: the text says so, and so does `notes`.
        """
        return {name: server.instructions for name, server in self._servers.items() if server.instructions}

    def notes(self) -> Sequence[str]:
        """Return what is left out, and why: tools, or the end of long descriptions and instructions."""
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

        Numbers with a fraction or an exponent go to the server as binary ones of 64 bits, as JSON's readers have them.
        Where one is another number then, a text behind the result says so. Integers go as they are. Where a record has
        a key twice, nothing is sent.

        Raises:
            RunError: this was not entered.
        """
        rounded: dict[str, float] = {}
        try:
            given = value_of(arguments, integer=_integer, number=lambda text: _number(text, rounded))
        except ContentError as error:
            return ToolOutcome.error(str(error))
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
        outcome = await self._servers[origin.server].call(origin.tool, cast("dict[str, Any]", given))
        if rounded:
            outcome = msgspec.structs.replace(outcome, content=(*outcome.content, Text(text=_told(rounded))))
        return outcome

    async def resources(self, server: str) -> list[ServerResource]:
        """Return the resources that a server lists, and its templates behind them.

        Raises:
            ToolServerError: it cannot be started, reached or understood.
            RunError: this was not entered.
        """
        return await (await self._connection(server)).resources()

    async def read_resource(self, server: str, uri: str) -> list[Attached]:
        """Read a resource: documents to attach to what is asked.

        Raises:
            ToolServerError: the server cannot be started, reached or understood, or has no such resource.
            RunError: this was not entered.
        """
        connection = await self._connection(server)
        check_text(server, uri)
        result = await connection.ask(lambda session: session.read_resource(uri), self._servers[server].call_timeout_s)
        return await self._read(server, lambda: attached(server, uri, result))

    async def prompts(self, server: str) -> list[ServerPrompt]:
        """Return the prompts that a server lists.

        Raises:
            ToolServerError: it cannot be started, reached or understood.
            RunError: this was not entered.
        """
        found = await (await self._connection(server)).listed("prompts")
        return await of_process().run_read(lambda: list(map(prompt_of, found)))

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """Return the question that a prompt of a server is with arguments.

        Raises:
            ToolServerError: the server cannot be started, reached or understood; it has no such prompt; or the prompt
                is other than text that a user says.
            RunError: this was not entered.
        """
        connection = await self._connection(server)
        check_text(server, name, *arguments, *arguments.values())
        result = await connection.ask(
            lambda session: session.get_prompt(name, dict(arguments)), self._servers[server].call_timeout_s
        )
        return await self._read(server, lambda: question(name, result))

    async def _connection(self, server: str) -> Connection:
        if not self._entered:
            raise _not_entered()
        if server not in self._servers:
            raise ToolServerError(f"MCP server {server!r} is none of these: {', '.join(self.servers)}", server=server)
        return await self._servers[server].ready()

    async def _read(self, server: str, read: Callable[[], _R]) -> _R:
        try:
            return await of_process().run_read(read)
        except MisbehaviourError as error:
            raise ToolServerError(f"{label(self._servers[server].meta)} {error}", server=server) from error

    async def _list(self) -> list[ToolServerError]:
        """Have all servers list their tools that did not yet, or have others now, and return what failed."""
        if not self._entered:
            raise _not_entered()
        found = await asyncio.gather(*(server.list() for server in self._servers.values()))
        return [failure for failure in found if failure is not None]


def _not_entered() -> RunError:
    return RunError(
        "MCP tools must be entered before they are used, and not after they were left: `async with McpTools(…)`"
    )


def _integer(text: str) -> int:
    """Return an integer.

    Raises:
        ValueError: it has more digits than Python reads.
    """
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"an integer of {len(text.removeprefix('-')):,} digits is too long") from None


def _number(text: str, rounded: dict[str, float]) -> float:
    """Return a number with a fraction or an exponent, and take note of one that is another one now.

    Raises:
        ValueError: it is larger than any that JSON's readers have.
    """
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    if not is_exactly(number, text):
        rounded[text] = number
    return number


def _told(rounded: Mapping[str, float]) -> str:
    first = islice(rounded.items(), _ROUNDED_TOLD_MAX)
    said = [f"{text[:_DIGITS_TOLD_MAX]}{'…' * (len(text) > _DIGITS_TOLD_MAX)} as {number!r}" for text, number in first]
    more = f" and {len(rounded) - len(said):,} more" if len(rounded) > len(said) else ""
    return f"(numbers of the arguments were rounded: {', '.join(said)}{more})"
