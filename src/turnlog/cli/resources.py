"""Resources of MCP servers on the command line: `--resource NAME/URI`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.opening import Attached
from turnlog.cli.failures import UsageError
from turnlog.errors import RunError
from turnlog.log import TurnLog


def parse_resources(given: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names of servers, and the URIs of their resources.

    Raises:
        UsageError: one is not of the form NAME/URI.
    """
    found: list[tuple[str, str]] = []
    for text in given:
        name, slash, uri = text.partition("/")
        if not name or not slash or not uri:
            raise UsageError(
                f"--resource {text!r} is not of the form NAME/URI, such as notes/file:///todo.md:"
                " `turnlog mcp resources NAME` lists them"
            )
        found.append((name, uri))
    return found


async def read_resources(log: TurnLog, wanted: Sequence[tuple[str, str]], *, within_s: float | None) -> list[Attached]:
    """Read resources, in the order given: the servers are started for that, and ended.

    Raises:
        RunError: they were not there within `within_s` seconds.
        UnknownServerError: there is no such server.
        ToolServerError: one cannot be started, reached or understood, or has no such resource.
    """
    if not wanted:
        return []
    names = dict.fromkeys(name for name, _ in wanted)
    limit = asyncio.timeout(within_s)
    try:
        async with limit, McpTools([log.servers.get(name) for name in names]) as servers:
            return [document for name, uri in wanted for document in await servers.read_resource(name, uri)]
    except TimeoutError:
        if not limit.expired():
            raise
        raise RunError(
            f"the resources were not there within {within_s:g} s, the limit of time: nothing was recorded"
        ) from None
