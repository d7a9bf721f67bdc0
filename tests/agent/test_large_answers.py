"""Servers that answer with very much: the event loop goes on meanwhile, and nothing is lost."""

import asyncio
import gc
import json
import ssl
import sys
import threading
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, TypeVar, cast

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.agent.running import results, values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say
from tests.agent.servers import ListeningServer, OneToolServer
from tests.agent.test_mcp import called, said, used
from tests.wires.server import whole

from turnlog import TurnLog
from turnlog.agent.events import RunEvent, ToolsNoted
from turnlog.agent.mcp import exchange, http, messages
from turnlog.agent.mcp.content import PARTS_MAX
from turnlog.agent.mcp.descriptions import DESCRIPTION_CHARACTERS_MAX, cut
from turnlog.agent.mcp.exchange import ARRIVED, Arrived
from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.program import ASKED_MAX
from turnlog.agent.mcp.signals import MisbehaviourError
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.result import RunResult
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import ServerMeta, Text, ToolResult
from turnlog.providers import certificates

T = TypeVar("T")

PROGRAM = Path(__file__).parent / "large_server.py"
HELD_S_MAX = 0.4
"""How much of the processor the event loop's thread may use in one go: 10,000 tools took 1.3 s of it, and take 0.03."""


async def held_s(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Return what work comes to, and for how long it held the event loop at most, in seconds of the processor.

    What other programs do meanwhile is not in it, and nor is what Python's collector does with what there was before.
    """
    gc.collect()
    gc.freeze()
    longest, before = 0.0, time.thread_time()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0.001)
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    gc.unfreeze()
    return await task, longest


@contextmanager
def serving(wire: str, case: str, count: int) -> Generator[dict[str, Any]]:
    """Have such a server: give its command, or its address over HTTP."""
    command = [sys.executable, str(PROGRAM), case, str(count)]
    if wire == "stdio":
        yield {"command": command}
        return
    with Popen([*command, wire], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield {"url": f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"}
        finally:
            process.kill()


def run_with(
    log: TurnLog, case: str, count: int, told: list[RunEvent], wire: str = "stdio"
) -> tuple[RunResult, Scripted, float]:
    """Run a tool of such a server."""
    adapter = Scripted(call(("s___go", {})), say("Done."))
    given = values(model=MODEL, adapter=adapter, connection=HERE, approve="auto", bookmark="main")
    with serving(wire, case, count) as server:
        log.servers.set("s", **server)
        result, held = asyncio.run(held_s(log.arun("Go.", servers=["s"], on_event=told.append, **given)))
    assert result.stopped == "done"
    assert log.verify().clean
    return result, adapter, held


def schemas(log: TurnLog, result: RunResult) -> dict[str, Any]:
    """Return the schemas of the tools that a run offered first, by name."""
    return {tool.name: json.loads(bytes(tool.input_schema)) for tool in log.calls.tools(result.calls[0])}


@pytest.mark.parametrize(
    ("case", "wire"), [("tools", "stdio"), ("tools", "json"), ("tools", "sse"), ("pages", "stdio")]
)
def test_thousands_of_tools_hold_nothing_up(log: TurnLog, case: str, wire: str) -> None:
    """In one answer, or in many pages: all are offered, with their schemas as the server wrote them."""
    result, adapter, held = run_with(log, case, 9_000, [], wire)
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


@pytest.mark.parametrize("wire", ["stdio", "json", "sse"])
def test_a_result_of_very_many_parts_is_recorded_whole(log: TurnLog, wire: str) -> None:
    """The parts that are too many are a text of their JSON; the model reads the first ones, and is told of the rest."""
    count = 100_000
    result, adapter, held = run_with(log, "parts", count, [], wire)
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


@pytest.mark.parametrize(("count", "answer"), [(2 * ASKED_MAX, "gone"), (100 * ASKED_MAX, "given up")])
def test_a_server_that_asks_and_asks_is_not_read_on(log: TurnLog, count: int, answer: str) -> None:
    """Each of its requests is a task. One that reads no answers is no longer read, and the call is given up.

    What lies in pipes and in the buffers of both sides, some ten thousand requests and answers, is beside the tasks.
    """
    log.servers.set("s", [sys.executable, str(PROGRAM), "asks", str(count)])
    adapter = Scripted(call(("s___go", {})), say("Done."))
    timeout_s = 60 if answer == "gone" else 2
    given = values(
        model=MODEL, adapter=adapter, connection=HERE, approve="auto", bookmark="main", tool_timeout_s=timeout_s
    )

    async def go() -> int:
        most = 0
        task = asyncio.ensure_future(log.arun("Go.", servers=["s"], **given))
        while not task.done():
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0.001)
        assert (await task).stopped == "done"
        return most

    assert asyncio.run(go()) < ASKED_MAX + 50
    [(_, text, is_error)] = results(log, "main")
    assert answer in text
    assert is_error == (answer == "given up")


@pytest.mark.parametrize("wire", ["stdio", "json", "sse"])
def test_half_of_a_surrogate_pair_loses_no_result(log: TurnLog, wire: str) -> None:
    """U+FFFD stands for it, whatever carries the answer."""
    result, _, _ = run_with(log, "half", 0, [], wire)
    assert results(log, "main") == [("c1", "\ufffd gone", False)]
    assert len(result.calls) == 2


@given(st.integers(1, 40), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_an_event_stream_is_read_however_it_is_cut(size: int, end: str, is_long: bool) -> None:
    """Other events, comments and ids stay; an answer that is long, or is on several lines, is read whole."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "é" * (20_000 * is_long)}]}}
    data = end.join(
        f"data:{' ' * (number % 2)}{line}" for number, line in enumerate(json.dumps(answer, indent=1).splitlines())
    )
    stream = end.join([": hello", "", "event: message", "id: 7", data, "", "retry: 5", "data", "", "data: {", "", "da"])
    body = stream.encode()
    arrived = Arrived()

    async def read() -> list[httpx2.ServerSentEvent]:
        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(body), size if not is_long else 9973 * size):
                yield body[start : start + (size if not is_long else 9973 * size)]

        left = b"".join([piece async for piece in http._events(pieces(), http.Client(arrived)._short)])
        response = httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=left, request=httpx2.Request("GET", "http://x")
        )
        return list(httpx2.EventSource(response))

    first, second, third = asyncio.run(read())
    said = cast("dict[str, Any]", first.json())
    result = arrived.take(said["result"])
    assert json.loads(msgspec.json.encode(result)) == answer["result"]
    assert bool(is_long) == (ARRIVED in said["result"])
    assert (first.id, second.retry, third.data) == ("7", 5, "{")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (json.dumps("é" * 100_000).encode(), "é" * 100_000),
        (b'"\\ud83d gone"', "\ufffd gone"),
        (b'"caf\xe9"', "caf\ufffd"),
    ],
    ids=["long", "half", "no UTF-8"],
)
def test_a_result_that_comes_on_the_stream_of_a_session_is_whole(written: bytes, read: str) -> None:
    """Not in the answer to the call, but where the server says what it likes."""
    with ListeningServer(b'{"content":[{"type":"text","text":%b}]}' % written) as server:
        meta = ServerMeta(action="register", name="s", url=f"{server.url}/mcp")

        async def twice(tools: McpTools) -> list[ToolOutcome]:
            return [await tools.call("s___go", Raw(b"{}")) for _ in range(2)]

        assert used(meta, twice, call_timeout_s=20) == [said(read), said(read)]


def test_a_result_that_stands_for_none_that_is_here_is_no_success() -> None:
    """A server that writes turnlog's own key is told of, and the call may have had effects."""
    answer = whole(b'{"jsonrpc":"2.0","id":ID,"result":{"content":[],"turnlog/arrived":"0"}}')
    with OneToolServer(answer) as server:
        outcome = called(ServerMeta(action="register", name="s", url=f"{server.url}/mcp"), "s___go")
    assert (outcome.is_error, outcome.may_have_had_effects) == (True, True)
    assert "answered with a key that is turnlog's own" in str(outcome.content[0])


def test_results_that_nobody_takes_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests that were given up: the oldest go first, the last one stays, and none is taken twice."""
    monkeypatch.setattr(exchange, "ARRIVED_BYTES_MAX", 4 * messages.SHORT)
    arrived = Arrived()
    first, *others = (arrived.keep({"content": [number]}, size=1) for number in range(5))
    assert [arrived.take(other) for other in others] == [{"content": [number]} for number in range(1, 5)]
    large = arrived.keep({"content": []}, size=100 * messages.SHORT)
    assert arrived.take(large) == {"content": []}
    for gone in (first, large, others[0]):
        with pytest.raises(MisbehaviourError, match="turnlog's own"):
            arrived.take(gone)
    last = arrived.keep({"content": []}, size=1)
    arrived.clear()
    with pytest.raises(MisbehaviourError):
        arrived.take(last)


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
        patch.setattr(messages, "PIECE", piece)
        found = list(messages._items(text))
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


def test_certificates_are_not_read_in_the_event_loop(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a while, for a server over HTTP; they are read once."""
    threads: list[threading.Thread] = []
    make = ssl.create_default_context

    def noted(*args: Any, **settings: Any) -> ssl.SSLContext:
        threads.append(threading.current_thread())
        return make(*args, **settings)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    monkeypatch.setattr(certificates, "_made", None)
    for _ in range(2):
        run_with(log, "plain", 0, [], "json")
    assert len(threads) == 1
    assert threading.main_thread() not in threads
