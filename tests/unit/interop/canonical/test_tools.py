"""Agent tools in a run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog.agent.toolbox import ToolOutcome
from turnlog.errors import RunError
from turnlog.interop.canonical import AgentTool, AgentToolResult, AgentTools, TextContent
from turnlog.model import Text

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def result(text: str, *, is_error: bool = False, details: Any = None) -> AgentToolResult:
    """Return a result of one text."""
    return AgentToolResult(content=[TextContent(text=text)], is_error=is_error, details=details)


def tool(execute: Any, name: str = "count") -> AgentTool:
    """Return a tool."""
    return AgentTool(name=name, description="Count.", parameters=SCHEMA, label="Counting", execute=execute)


def plain(given: dict[str, Any], tell: Any) -> AgentToolResult:
    """Count, and tell of it."""
    for number in range(given["n"]):
        tell({"at": number})
    return result("done", details=["shown"])


async def awaited(given: dict[str, Any], tell: Any) -> AgentToolResult:
    """Count in the event loop."""
    await asyncio.sleep(0)
    return plain(given, tell)


def later(given: dict[str, Any], tell: Any) -> Any:
    """Return what can be awaited."""
    return awaited(given, tell)


@pytest.mark.parametrize("execute", [plain, awaited, later])
def test_tool_runs_and_tells_its_progress(execute: Any) -> None:
    """A plain and an async function are run; progress and details are told, and only the text goes to the model."""
    told: list[Any] = []
    box = AgentTools(
        [tool(execute)],
        on_progress=lambda name, what: told.append((name, what)),
        on_result=lambda name, what: told.append((name, what.details)),
    )
    outcome = asyncio.run(box.call("count", Raw(b'{"n":2}')))
    assert outcome.content == (Text(text="done"),)
    assert not outcome.is_error
    assert told == [("count", {"at": 0}), ("count", {"at": 1}), ("count", ["shown"])]


def test_tool_has_no_function_to_tell_where_nobody_listens() -> None:
    """The yield function is optional."""
    seen: list[Any] = []

    def execute(_given: dict[str, Any], tell: Any) -> AgentToolResult:
        seen.append(tell)
        return result("", is_error=True)

    assert asyncio.run(AgentTools([tool(execute)]).call("count", Raw(b"{}"))).is_error
    assert seen == [None]


def test_tools_are_offered_with_their_schema() -> None:
    """A model sees name, description and parameters."""
    [offered] = asyncio.run(AgentTools([tool(plain)]).tools())
    assert (offered.name, offered.description) == ("count", "Count.")
    assert msgspec.json.decode(offered.input_schema) == SCHEMA


def raising(_given: dict[str, Any], _tell: Any) -> AgentToolResult:
    """Fail."""
    raise ValueError("no number")


def leaving(_given: dict[str, Any], _tell: Any) -> AgentToolResult:
    """End the thread."""
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("execute", "name", "text"),
    [
        (leaving, "count", "RunError: tool 'count' ended with SystemExit: 3"),
        (raising, "count", "ValueError: no number"),
        (lambda _given, _tell: "text", "count", "RunError: tool 'count' returned str: return an AgentToolResult"),
        (plain, "other", "there is no tool 'other' (one of count)"),
    ],
)
def test_failures_are_error_results(execute: Any, name: str, text: str) -> None:
    """Whatever goes wrong, the model is told."""
    outcome = asyncio.run(AgentTools([tool(execute)]).call(name, Raw(b"{}")))
    assert outcome.is_error
    assert outcome.content == (Text(text=text),)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (b'{"a":1,"a":2}', "the arguments have the key 'a' twice"),
        (b"[1]", "the arguments do not fit 'count': Expected `object`, got `array`"),
    ],
)
def test_arguments_that_are_none_are_told_and_the_tool_is_not_called(arguments: bytes, text: str) -> None:
    """Of two values of one key a reader would know one."""
    outcome = asyncio.run(AgentTools([tool(raising)]).call("count", Raw(arguments)))
    assert outcome == ToolOutcome.error(text)


def test_two_tools_of_one_name_are_refused() -> None:
    """Names tell tools apart."""
    with pytest.raises(RunError, match="two tools are called 'count'"):
        AgentTools([tool(plain), tool(awaited)])
