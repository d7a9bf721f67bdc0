"""What MCP servers say beside their tools, in runs: changed listings, instructions, tools that cannot be called."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.agent.running import contents, run
from tests.agent.scripted import Scripted, call, say
from tests.agent.servers import COMMAND, odd

from turnlog import ToolServerError, TurnLog
from turnlog.agent.events import RunEvent, ToolsNoted
from turnlog.agent.mcp.descriptions import DESCRIPTION_CHARACTERS_MAX, INSTRUCTIONS_CHARACTERS_MAX
from turnlog.agent.mcp.tools import McpTools


def register_odd(log: TurnLog, behaviour: str, *arguments: str, name: str = "odd") -> None:
    """Register a server that behaves in an odd way."""
    log.servers.set(name, odd(behaviour, *arguments).command)


def notes(told: list[RunEvent]) -> list[str]:
    """Return what was said of the tools."""
    return [event.note for event in told if isinstance(event, ToolsNoted)]


def part(name: str, text: str) -> tuple[str, str]:
    """Return the system message that a server's instructions are."""
    text = f'<mcp_server name="{name}">\n{text}\n</mcp_server>'
    return "system", msgspec.json.encode([{"type": "text", "text": text}]).decode()


def test_a_tool_that_is_added_during_a_run_is_offered_next(log: TurnLog) -> None:
    """And it is in the listing that the next call cites."""
    log.servers.set("s", COMMAND)
    adapter = Scripted(call(("s___learn", {"name": "dance"})), call(("s___dance", {"text": "tango"})), say("Olé."))
    result = run(log, adapter, servers=["s"], bookmark="main")
    assert result.stopped == "done"
    first, second, third = ([tool.name for tool in log.calls.tools(call)] for call in result.calls)
    assert second == third == [*first[:-1], "s___dance", first[-1]]
    assert [body["tools"] for body in adapter.bodies] == [first, second, third]
    assert '"tango"' in contents(log, "main")[4][1]


def test_a_listing_that_goes_wrong_during_a_run_is_told_and_the_tools_stay(log: TurnLog) -> None:
    """Once, however many calls there are."""
    register_odd(log, "instructs", "x")
    told: list[RunEvent] = []
    adapter = Scripted(call(("odd___go", {})), call(("odd___go", {})), say("Done."))
    result = run(log, adapter, servers=["odd"], on_event=told.append)
    assert result.stopped == "done"
    assert [body["tools"] for body in adapter.bodies] == [["odd___go"]] * 3
    assert notes(told) == [
        "MCP server 'odd' does not answer as the protocol has it (tools.0.name: input should be a valid string);"
        " the tools are offered as they were"
    ]


def test_a_tool_that_runs_as_a_task_only_is_not_offered(log: TurnLog) -> None:
    """And that is told."""
    register_odd(log, "tasks")
    told: list[RunEvent] = []
    adapter = Scripted(say("Done."))
    run(log, adapter, servers=["odd"], on_event=told.append)
    assert adapter.bodies[0]["tools"] == ["odd___optional", "odd___forbidden"]
    assert notes(told) == [
        "MCP server 'odd': its tool 'required' runs as a task only, which turnlog cannot do: it is not offered"
    ]
    assert [event.to_record() for event in told if isinstance(event, ToolsNoted)] == [{"note": notes(told)[0]}]


def test_instructions_of_servers_are_system_turns_with_their_names(log: TurnLog) -> None:
    """Once in a thread, before all else that a run adds; other ones are added when they are there."""
    register_odd(log, "instructs", " Go slowly.\n", name="a")
    register_odd(log, "plain", name="b")
    result = run(log, Scripted(say("Yes.")), "Go?", servers=["a", "b"], system="Be brief.", bookmark="main")
    assert [turn.meta.role for turn in result.turns] == ["system", "system", "user", "assistant"]
    assert contents(log, "main")[0] == part("a", "Go slowly.")
    result = run(log, Scripted(say("Yes.")), "And now?", system="Be brief.", continues="main")
    assert [turn.meta.role for turn in result.turns] == ["user", "assistant"]
    register_odd(log, "instructs", "Go fast.", name="b")
    result = run(log, Scripted(say("Yes.")), "Now?", system="Be brief.", continues="main")
    assert [turn.meta.role for turn in result.turns] == ["system", "user", "assistant"]
    assert contents(log, "main")[6] == part("b", "Go fast.")
    result = run(log, Scripted(say("Yes.")), "And now?", system="Be brief.", continues="main")
    assert [turn.meta.role for turn in result.turns] == ["user", "assistant"]


def test_long_instructions_are_cut_and_that_is_told(log: TurnLog) -> None:
    """A server cannot fill the window with them."""
    register_odd(log, "instructs", "x" * (INSTRUCTIONS_CHARACTERS_MAX + 1))
    told: list[RunEvent] = []
    run(log, Scripted(say("Yes.")), servers=["odd"], bookmark="main", on_event=told.append)
    assert contents(log, "main")[0] == part(
        "odd",
        f"{'x' * INSTRUCTIONS_CHARACTERS_MAX}\n\n[Cut here: this is the first 16,384 of 16,385 characters.]",
    )
    assert notes(told) == ["MCP server 'odd': its instructions have 16385 characters: only the first 16384 are taken"]


def test_long_descriptions_of_tools_are_cut_and_that_is_told(log: TurnLog) -> None:
    """And titles, of a tool and of its parameters, wherever a schema has them; what is neither stays as it is."""
    most = DESCRIPTION_CHARACTERS_MAX
    register_odd(log, "describes", str(most + 1))
    told: list[RunEvent] = []
    result = run(log, Scripted(say("Yes.")), servers=["odd"], on_event=told.append)
    assert notes(told) == [
        "MCP server 'odd': what is said of its tool 'go' is too long: only the first 10000 characters of a description"
        " or a title are offered"
    ]
    [listed, _] = log.calls.tools(result.calls[0])
    end = "\n\n[Cut here: this is the first 10,000 of 10,001 characters.]"
    assert (listed.description, listed.title) == ("x" * most + end, "x" * most + end)
    schema = msgspec.json.decode(listed.input_schema)
    text = "x" * (most + 1)
    described = {"description": "x" * most + end}
    assert schema == {
        "type": "object",
        "properties": {
            "description": {"type": "string", **described, "title": "x" * most + end},
            "default": {"anyOf": [{"type": "null"}, described], "default": {"description": text}},
        },
        "examples": [{"description": text}],
    }


def test_descriptions_that_are_long_enough_are_whole(log: TurnLog) -> None:
    """Nothing is told."""
    register_odd(log, "describes", str(DESCRIPTION_CHARACTERS_MAX))
    told: list[RunEvent] = []
    result = run(log, Scripted(say("Yes.")), servers=["odd"], on_event=told.append)
    assert notes(told) == []
    assert log.calls.tools(result.calls[0])[0].description == "x" * DESCRIPTION_CHARACTERS_MAX


def test_a_secret_in_instructions_is_masked(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in what its tools return."""
    monkeypatch.setenv("ODD_TOKEN", "abc-123-secret")
    log.servers.set("odd", odd("instructs", "Use abc-123-secret.").command, env=["ODD_TOKEN"])
    run(log, Scripted(say("Yes.")), servers=["odd"], bookmark="main")
    assert contents(log, "main")[0] == part("odd", "Use [redacted: ODD_TOKEN].")


@pytest.mark.parametrize("given", [{"start_timeout_s": 0.2}, {}])
def test_a_start_time_out_of_a_registration_wins(log: TurnLog, given: dict[str, Any]) -> None:
    """Over that of the toolbox; without one, that holds."""
    log.servers.set("odd", odd("silent").command, **given)

    async def use() -> None:
        async with McpTools([log.servers.get("odd")], start_timeout_s=30.0 if given else 0.3) as tools:
            await tools.tools()

    with pytest.raises(ToolServerError) as caught:
        asyncio.run(use())
    assert str(caught.value) == f"MCP server 'odd' did not answer within {0.2 if given else 0.3} s"
