"""Runs with a scripted provider, and what they left in the log."""

from typing import Any

from tests.agent.scripted import HERE, MODEL, Scripted

from turnlog import Ask, Policy, TurnLog
from turnlog.agent.result import RunResult
from turnlog.model import Text, ToolResult


def run(log: TurnLog, adapter: Scripted | None, content: Any = "Go.", **settings: Any) -> RunResult:
    """Run with a scripted provider; tools run without being asked for."""
    given = {"model": MODEL, "adapter": adapter, "connection": HERE, "approve": "auto", **settings}
    return log.run(content, **values(**given))


def values(**given: Any) -> dict[str, Any]:
    """Return arguments of a run with what belongs to its policy, and to how it asks, in these."""
    kinds: dict[str, type[Policy] | type[Ask]] = {"policy": Policy, "ask": Ask}
    told = dict(given)
    for name, kind in kinds.items():
        fields = {field: told.pop(field) for field in kind.__struct_fields__ if field in told}
        if fields:
            told[name] = kind(**fields)
    return told


def contents(log: TurnLog, headish: str) -> list[tuple[str, str]]:
    """Return the roles and the content of a window, as JSON text."""
    return [(message.role, message.content_json.decode()) for message in log.context(headish).messages]


def results(log: TurnLog, headish: str) -> list[tuple[object, str, bool]]:
    """Return the results of the last turn that has some: id of the call, text, whether it is an error."""
    for message in reversed(log.context(headish).messages):
        found = [block for block in message.content if isinstance(block, ToolResult)]
        if found:
            return [(block.tool_use_id, _text(block), block.is_error is True) for block in found]
    return []


def _text(result: ToolResult) -> str:
    assert not isinstance(result.content, str)
    return "".join(block.text for block in result.content if isinstance(block, Text))
