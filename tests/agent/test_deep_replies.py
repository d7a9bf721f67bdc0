"""Runs whose model or tool says what is nested too deeply to be recorded: it is told, and the rest is kept."""

from typing import Any

import pytest
from msgspec import Raw
from tests.agent.running import run
from tests.agent.scripted import Scripted, call, say
from tests.agent.wires import KEY, Anthropic, set_up
from tests.wires.server import WireServer, stream, whole

from turnlog import Policy, Text, TurnLog
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import Native, ToolResult, ToolUse

DEEP = "[" * 2000 + "]" * 2000


@pytest.mark.parametrize("levels", [498, 499, 2000])
def test_arguments_that_are_nested_too_deeply_are_what_the_model_is_told_of(log: TurnLog, levels: int) -> None:
    """They are kept as the text that the model wrote, and the model can go on."""
    text = '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"

    def look(a: list[Any]) -> str:
        """Look."""
        return f"{len(a)} seen"

    result = run(log, Scripted(call(("look", text)), say("done")), tools=[look], bookmark="main")
    assert (result.text, result.stopped) == ("done", "done")
    [asked] = log.content("main~2")
    assert isinstance(asked, ToolUse)
    is_kept = levels < 499
    assert bytes(asked.input) == (text.encode() if is_kept else b"{}")
    assert ("malformed_arguments" in asked.extra) is not is_kept
    [answered] = log.content("main~1")
    assert isinstance(answered, ToolResult)
    assert answered.is_error is (None if is_kept else True)
    assert log.verify().clean


@pytest.mark.parametrize(("levels", "streamed"), [(600, True), (600, False), (100_000, False)])
def test_a_block_that_is_nested_too_deeply_is_left_out_of_the_turn(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, levels: int, streamed: bool
) -> None:
    """The reply has failed, and says why; what came beside it is kept, but of an event that cannot be read.

    All of it is kept as raw events.
    """
    wire, is_kept = Anthropic(streamed=streamed), streamed or levels == 600
    deep = b'{"type":"strange","data":%b}' % (b"[" * levels + b"]" * levels)
    if streamed:
        *said, stop, end = wire.events("Half of it")
        begun = b'{"type":"content_block_start","index":1,"content_block":%b}' % deep
        events = [*said, begun, stop, end]
        answer = stream(events, names=True)
    else:
        events = [b"".join(wire.reply("Half of it").chunks).replace(b"}]", b"}," + deep + b"]", 1)]
        answer = whole(events[0])
    monkeypatch.setenv(wire.key_variable, KEY)
    with WireServer(*[answer] * 9) as server:
        set_up(log, wire, server.url)
        result = log.run("Go.", pointer="kilo", bookmark="main", policy=Policy(tries_max=1))
    assert result.stopped == "error"
    assert "nested" in result.why
    [turn] = [turn for turn in log.ancestry("main") if turn.meta.role == "assistant"]
    assert [block.text for block in log.content(turn.id) if isinstance(block, Text)] == ["Half of it"] * is_kept
    [[reply]] = log.calls.replies().values()
    assert reply.events == tuple(events)
    assert log.verify().clean


def test_what_a_tool_returns_too_deep_is_left_out_and_the_model_told() -> None:
    """It has the rest."""
    deep = Native(provider="p", block=Raw(DEEP.encode()))
    outcome = ToolOutcome(content=(Text(text="a"), deep))
    assert outcome.content == (
        Text(text="a"),
        Text(text="What the tool returned is nested deeper than 500 levels, and was left out."),
    )
