"""Tools at run time: a registry in the call's context, never in a turn."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from turnlog.agent.combined import CombinedTools
from turnlog.agent.functions import Function, Functions
from turnlog.agent.toolbox import Toolbox
from turnlog.interop.geppetto_model.checking import check_turn
from turnlog.interop.geppetto_model.keys import KEY_TOOL_CONFIG, ToolConfig
from turnlog.interop.geppetto_model.types import PAYLOAD_KEY_ID, Block, BlockKind, Turn


class InMemoryToolRegistry:
    """Tools by what they are: Python functions, and toolboxes such as those of MCP servers."""

    def __init__(self, *tools: Function | Toolbox) -> None:
        """Begin with tools."""
        self._tools: list[Function | Toolbox] = [*tools]

    def register(self, *tools: Function | Toolbox) -> None:
        """Add tools."""
        self._tools += tools

    def __len__(self) -> int:
        """Return how many functions and toolboxes there are."""
        return len(self._tools)

    @property
    def tools(self) -> list[Function | Toolbox]:
        """What a run of turnlog takes as its tools."""
        return [*self._tools]

    def toolbox(self) -> CombinedTools:
        """Return all of them as one toolbox, that is not entered yet.

        Raises:
            RunError: a function cannot be offered as a tool.
        """
        functions = [tool for tool in self._tools if not isinstance(tool, Toolbox)]
        boxes = [tool for tool in self._tools if isinstance(tool, Toolbox)]
        return CombinedTools([*boxes, Functions(functions)] if functions else boxes)


_registry: ContextVar[InMemoryToolRegistry | None] = ContextVar("turnlog_geppetto_registry", default=None)


@contextmanager
def with_registry(registry: InMemoryToolRegistry) -> Generator[InMemoryToolRegistry]:
    """Let calls that are made inside see a registry: `with with_registry(registry): …`."""
    token = _registry.set(registry)
    try:
        yield registry
    finally:
        _registry.reset(token)


def registry_from() -> InMemoryToolRegistry | None:
    """Return the registry of the context, None where there is none."""
    return _registry.get()


def tool_config(turn: Turn) -> ToolConfig:
    """Return the tool configuration of a turn; where it has none, tools are not enabled.

    Raises:
        MetaError: what stands there is none.
        ContentError: what was given is no turn; names the place.
    """
    check_turn(turn)
    return KEY_TOOL_CONFIG.get(turn.data) or ToolConfig()


def pending_calls(turn: Turn) -> list[Block]:
    """Return the `tool_call` blocks that no `tool_use` block answers by its id, in their order.

    Raises:
        ContentError: what was given is no turn; names the place.
    """
    check_turn(turn)
    answered = {block.payload.get(PAYLOAD_KEY_ID) for block in turn.blocks if block.kind == BlockKind.TOOL_USE}
    calls = (block for block in turn.blocks if block.kind == BlockKind.TOOL_CALL)
    return [block for block in calls if block.payload.get(PAYLOAD_KEY_ID) not in answered]
