"""Several toolboxes as one, and a toolbox that outlives a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, cast

from msgspec import Raw

from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.errors import ContentError, MetaError, RunError
from turnlog.model import Tool
from turnlog.model.kinds import check_list, check_record, check_texts, check_type
from turnlog.model.tools import check_tool


class CombinedTools(Toolbox):
    """Several toolboxes as one. Their tools are offered in the order of the toolboxes."""

    def __init__(self, boxes: Sequence[Toolbox], *, built_in: Toolbox | None = None) -> None:
        """Put toolboxes together. They are entered and left with this one.

        Args:
            boxes: the toolboxes.
            built_in: a toolbox of turnlog's own, whose tools `tools` does not list. One that has the name of a tool of
                the others gives way.
        """
        self.servers = tuple(name for box in boxes for name in box.servers)
        self._boxes = tuple(boxes)
        self._open = AsyncExitStack()
        self._box_of: Mapping[str, Toolbox] = {}
        self._built_in = built_in
        self._built_in_tools: Mapping[str, Tool] = {}

    async def __aenter__(self) -> Self:
        """Make all of them ready."""
        async with AsyncExitStack() as stack:
            for box in self._boxes:
                await stack.enter_async_context(box)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release all of them, the last one first."""
        await self._open.__aexit__(kind, error, trace)

    async def tools(self, check: Callable[[Sequence[Tool]], None] = lambda _: None) -> Sequence[Tool]:
        """Return the tools of all. Where that raises, the tools that can be called are those of before.

        Args:
            check: refuses them, by raising.

        Raises:
            ToolServerError: a server cannot be started, reached or understood.
            RunError: two tools have one name, or a toolbox lists what is none.
        """
        found: list[Tool] = []
        box_of: dict[str, Toolbox] = {}
        for box in self._boxes:
            for tool in _listed(box, await box.tools()):
                if tool.name in box_of:
                    raise RunError(f"two tools are called {tool.name!r}: rename one of them, or leave one out")
                box_of[tool.name] = box
                found.append(tool)
        check(found)
        built_in = () if self._built_in is None else await self._built_in.tools()
        self._built_in_tools = {tool.name: tool for tool in built_in if tool.name not in box_of}
        self._box_of = box_of
        return found

    @property
    def built_in(self) -> Sequence[Tool]:
        """The tools of turnlog's own, as of the last listing."""
        return tuple(self._built_in_tools.values())

    def is_built_in(self, name: str) -> bool:
        """Tell whether a tool is one of turnlog's own, which nobody has to allow."""
        return name in self._built_in_tools

    def instructions(self) -> Mapping[str, str]:
        """Return what all servers say of the use of their tools, by their names.

        Raises:
            MetaError: a toolbox says something that is no text.
        """
        said: dict[str, str] = {}
        for box in self._boxes:
            for name, text in check_record(box.instructions(), "instructions").items():
                said[check_type(name, str, "instructions")] = check_type(text, str, f"instructions.{name}")
        return said

    def notes(self) -> Sequence[str]:
        """Return what there is to say of the last listing.

        Raises:
            MetaError: a toolbox says something that is no text.
        """
        return [note for box in self._boxes for note in check_texts(box.notes(), "notes", "['a tool is left out']")]

    def box_of(self, name: str) -> Toolbox | None:
        """Return the toolbox that a tool was listed by, None if there is no such tool."""
        return self._built_in if self.is_built_in(name) else self._box_of.get(name)

    def server_of(self, name: str) -> str | None:
        """Return the name of the MCP server that a tool runs on; None where it is of none."""
        box = self.box_of(name)
        return None if box is None else box.server_of(name)

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Call a tool of the last listing."""
        box = self.box_of(name)
        if box is None:
            return ToolOutcome.error(no_such_tool(name, list(self._box_of)))
        return await box.call(name, arguments)


class KeptTools(Toolbox):
    """A toolbox that stays open from one run to the next: whoever made it enters and leaves it."""

    def __init__(self, box: Toolbox) -> None:
        """Lend a toolbox that has been entered."""
        self.servers = box.servers
        self.limits_time = box.limits_time
        self._box = box

    async def tools(self) -> Sequence[Tool]:
        """Return its tools."""
        return await self._box.tools()

    def instructions(self) -> Mapping[str, str]:
        """Return what its servers say of the use of their tools, by their names."""
        return self._box.instructions()

    def notes(self) -> Sequence[str]:
        """Return what there is to say of its last listing."""
        return self._box.notes()

    def server_of(self, name: str) -> str | None:
        """Return the name of the MCP server that a tool runs on; None where it is of none."""
        return self._box.server_of(name)

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Call one of them."""
        return await self._box.call(name, arguments)


def _listed(box: Toolbox, tools: object) -> Sequence[Tool]:
    """Return what a toolbox lists.

    Raises:
        RunError: something of it is no tool.
    """
    try:
        listed = check_list(cast("Sequence[Tool]", tools), "tools", "tools")
        for index, tool in enumerate(listed):
            check_tool(tool, f"tools[{index}]")
    except (ContentError, MetaError) as error:
        raise RunError(f"{type(box).__name__} lists what cannot be offered: {error}") from error
    return listed


def no_such_tool(name: str, known: Sequence[str]) -> str:
    """Return what a model is told that calls a tool that does not exist."""
    return f"there is no tool {name!r}" + (f" (one of {', '.join(known)})" if known else ": none is offered")
