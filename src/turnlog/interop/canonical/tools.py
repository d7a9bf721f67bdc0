"""Agent tools as a toolbox of the run loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import Raw

from turnlog.agent.given_arguments import check_keys
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.errors import ContentError, RunError
from turnlog.interop.canonical import types
from turnlog.interop.canonical.threads import in_thread
from turnlog.model import JSONValue, Text, Tool

OnProgress = Callable[[str, JSONValue], None]
"""Told the name of a tool, and what it yields while it runs."""

OnResult = Callable[[str, types.AgentToolResult], None]
"""Told the name of a tool, and its result with the details that no provider sees."""


class AgentTools(Toolbox):
    """Agent tools for a run: `log.run(…, tools=AgentTools([tool]))`.

    A plain `execute` runs in a thread of its own, and so do the functions that it calls to tell its progress; an async
    one runs in the event loop. What it raises becomes an error result. A plain one that takes too long is left alone.
    """

    def __init__(
        self,
        tools: Sequence[types.AgentTool],
        *,
        on_progress: OnProgress | None = None,
        on_result: OnResult | None = None,
    ) -> None:
        """Take tools, and who is told of their progress and of their results.

        Raises:
            RunError: two tools have one name.
        """
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) < len(tools):
            names = [tool.name for tool in tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise RunError(f"two tools are called {twice!r}: rename one of them")
        self._on_progress = on_progress
        self._on_result = on_result

    async def tools(self) -> Sequence[Tool]:
        """Return the tools as a model is to see them."""
        return [model_tool(tool.tool) for tool in self._tools.values()]

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Run a tool."""
        tool = self._tools.get(name)
        if tool is None:
            return ToolOutcome.error(f"there is no tool {name!r} (one of {', '.join(self._tools)})")
        try:
            check_keys(arguments)
            given = msgspec.json.decode(bytes(arguments), type=dict[str, JSONValue])
        except ContentError as error:
            return ToolOutcome.error(str(error))
        except msgspec.DecodeError as error:
            return ToolOutcome.error(f"the arguments do not fit {name!r}: {error}")
        try:
            result = await self._run(tool, given)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, the model is told
            return ToolOutcome.error(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        if self._on_result is not None:
            self._on_result(name, result)
        return ToolOutcome(content=tuple(Text(text=block.text) for block in result.content), is_error=result.is_error)

    async def _run(self, tool: types.AgentTool, given: dict[str, JSONValue]) -> types.AgentToolResult:
        tell = self._teller(tool.name)
        if inspect.iscoroutinefunction(tool.execute):
            result: object = await tool.execute(given, tell)
        else:
            result = await in_thread(partial(tool.execute, given, tell), name=f"tool {tool.name!r}")
            if inspect.isawaitable(result):
                result = await result
        if not isinstance(result, types.AgentToolResult):
            raise RunError(f"tool {tool.name!r} returned {type(result).__name__}: return an AgentToolResult")
        return result

    def _teller(self, name: str) -> types.YieldFunction | None:
        on_progress = self._on_progress
        return None if on_progress is None else lambda told: on_progress(name, told)


def model_tool(tool: types.Tool) -> Tool:
    """Return a tool as turnlog has it."""
    return Tool(
        name=tool.name, description=tool.description, input_schema=Raw(msgspec.json.encode(dict(tool.parameters)))
    )
