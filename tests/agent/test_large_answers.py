"""Servers that answer with very much: the event loop goes on meanwhile, and nothing is lost."""

import asyncio
import json
import sys
import time
from base64 import b64decode
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.agent.running import values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say

from turnlog import TurnLog
from turnlog.agent import mcp_messages
from turnlog.agent.events import RunEvent, ToolsNoted
from turnlog.agent.mcp_content import PARTS_MAX
from turnlog.agent.mcp_descriptions import DESCRIPTION_CHARACTERS_MAX, cut
from turnlog.agent.mcp_launch import Launch
from turnlog.agent.result import RunResult
from turnlog.model import Text, ToolResult

T = TypeVar("T")

PROGRAM = Path(__file__).parent / "large_server.py"
HELD_S_MAX = 0.4
"""How much of the processor the event loop's thread may use in one go: 10,000 tools took 1.3 s of it, and take 0.03."""


async def held_s(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Return what work comes to, and for how long it held the event loop at most, in seconds of the processor.

    What other programs do meanwhile is not in it.
    """
    longest, before = 0.0, time.thread_time()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0.001)
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    return await task, longest


def run_with(log: TurnLog, case: str, count: int, told: list[RunEvent]) -> tuple[RunResult, Scripted, float]:
    """Run a tool of such a server."""
    adapter = Scripted(call(("s___go", {})), say("Done."))
    given = values(model=MODEL, adapter=adapter, connection=HERE, approve="auto", bookmark="main")
    log.servers.set("s", [sys.executable, str(PROGRAM), case, str(count)])

    result, held = asyncio.run(held_s(log.arun("Go.", servers=["s"], on_event=told.append, **given)))
    assert result.stopped == "done"
    assert log.verify().clean
    return result, adapter, held


def schemas(log: TurnLog, result: RunResult) -> dict[str, Any]:
    """Return the schemas of the tools that a run offered first, by name."""
    return {tool.name: json.loads(bytes(tool.input_schema)) for tool in log.calls.tools(result.calls[0])}


@pytest.mark.parametrize("case", ["tools", "pages"])
def test_thousands_of_tools_hold_nothing_up(log: TurnLog, case: str) -> None:
    """In one answer, or in many pages: all are offered, with their schemas as the server wrote them."""
    result, adapter, held = run_with(log, case, 9_000, [])
    assert adapter.bodies[-1]["tools"][:9001] == ["s___go", *(f"s___t{number}" for number in range(9_000))]
    assert held < HELD_S_MAX
    properties = schemas(log, result)["s___t8999"]["properties"]
    assert properties["p19"] == {"type": "string", "description": "x" * 50}
    assert properties["words"]["properties"]["deep"]["properties"]["er"]["enum"] == [[[1]]]


def test_a_tool_with_a_very_large_schema_holds_nothing_up(log: TurnLog) -> None:
    """It is offered whole, but for a description that is too long, which is told."""
    told: list[RunEvent] = []
    result, _, held = run_with(log, "schema", 60_000, told)
    assert held < HELD_S_MAX
    properties = schemas(log, result)["s___go"]["properties"]
    assert len(properties) == 60_001
    assert properties["p59999"] == {"type": "string", "description": "é"}
    assert properties["long"]["description"] == cut("y" * 20_000, DESCRIPTION_CHARACTERS_MAX)
    assert len([event for event in told if isinstance(event, ToolsNoted)]) == 1


def test_a_result_of_very_many_parts_is_recorded_whole(log: TurnLog) -> None:
    """The parts that are too many are a text of their JSON; the model reads the first ones, and is told of the rest."""
    count = 100_000
    result, adapter, held = run_with(log, "parts", count, [])
    assert held < HELD_S_MAX
    [recorded] = [block for turn in result.turns for block in log.content(turn.id) if isinstance(block, ToolResult)]
    texts = [block.text for block in recorded.content if isinstance(block, Text)]
    assert texts[:PARTS_MAX] == [f"part {number}" for number in range(PARTS_MAX)]
    assert texts[PARTS_MAX] == f"{count - PARTS_MAX:,} more parts, as JSON:"
    rest = [{"type": "text", "text": f"part {number}"} for number in range(PARTS_MAX, count)]
    assert [json.loads(text) for text in texts[PARTS_MAX + 1 :]] == [rest]
    assert "[Cut here: this is the first" in json.dumps(adapter.bodies[-1])


def test_structured_content_with_very_many_values_is_recorded_whole(log: TurnLog) -> None:
    """It is not taken apart: it becomes the text that it was."""
    result, _, held = run_with(log, "wide", 500_000, [])
    assert held < HELD_S_MAX
    [recorded] = [block for turn in result.turns for block in log.content(turn.id) if isinstance(block, ToolResult)]
    texts = [block.text for block in recorded.content if isinstance(block, Text)]
    said = {"é": list(range(500_000)), "n": [{"a": [{}]}] * 9}
    assert texts == ["gone", json.dumps(said, ensure_ascii=False, separators=(",", ":"))]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\[]{},: é\n'), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('a"\\]},'), max_size=3), inner),
    max_leaves=30,
)


@given(st.lists(JSON, max_size=12), st.sampled_from([None, 1]), st.integers(1, 60))
def test_the_items_of_a_list_are_read_some_at_a_time(items: list[object], indent: int | None, piece: int) -> None:
    """However they are nested, and wherever a piece ends."""
    text = json.dumps(items, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcp_messages, "PIECE", piece)
        found = list(mcp_messages._items(text))
    assert [json.loads(bytes(item)) for item in found] == items


def test_what_masks_secrets_leaves_parts_as_they_are_where_there_is_none() -> None:
    """And reads those where there may be one, however it is spelled."""
    launch = Launch(secrets={"MY_TOKEN": "s3cret/key"})
    plain, *told = (
        Raw(b'{"type":"text","text":"%b"}' % text)
        for text in (b"nothing", b"s3cret/key", b"s3cret\\/key", b"\\u0073\\u0033cret/key")
    )
    masked = cast("list[object]", launch.masked([plain, *told, Raw(b'{"data":"czNjcmV0L2tleQ=="}')]))
    assert masked[0] is plain
    assert masked[1:4] == [{"type": "text", "text": "[redacted: MY_TOKEN]"}] * 3
    assert b64decode(cast("dict[str, str]", masked[4])["data"]) == b"[redacted: MY_TOKEN]"
