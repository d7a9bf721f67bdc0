"""Whole runs: the real SDK clients against a server that speaks the wires, and a real MCP server in a real process."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import msgspec
import pytest
from tests.agent.running import contents, results, values
from tests.agent.servers import COMMAND, HttpServer
from tests.agent.wires import KEY, Anthropic, OpenAI, Wire, set_up
from tests.wires.server import WireServer, stream, whole

from turnlog import Ask, AsyncTurnLog, Policy, ToolServerError, TurnLog
from turnlog.agent.events import CallStarted, RunEvent
from turnlog.model import Delta

ECHO_TWICE = (("id_1", "s___echo", '{"text":"one"}'), ("id_2", "s___add", '{"a":1,"b":2}'))

each_wire = pytest.mark.parametrize(
    "wire",
    [Anthropic(), Anthropic(streamed=False), OpenAI(), OpenAI(streamed=False)],
    ids=lambda wire: f"{wire.provider}-{'stream' if wire.streamed else 'whole'}",
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give keys that no provider knows."""
    for wire in (Anthropic, OpenAI):
        monkeypatch.setenv(wire.key_variable, KEY)


@pytest.fixture(params=["stdio", "http"])
def served(request: pytest.FixtureRequest, log: TurnLog) -> Iterator[TurnLog]:
    """Give a log with an MCP server that is reached over stdio, then over HTTP."""
    with ExitStack() as stack:
        if request.param == "stdio":
            log.servers.set("s", COMMAND)
        else:
            log.servers.set("s", url=stack.enter_context(HttpServer()).url)
        yield log


@pytest.mark.parametrize("wire", [Anthropic(), OpenAI(streamed=False)], ids=lambda wire: wire.provider)
def test_a_run_with_an_mcp_server_goes_to_its_end(served: TurnLog, wire: Wire) -> None:
    """Tools are listed and offered, called in parallel, and their results go back; all is in the log, byte for byte."""
    with WireServer(wire.reply("I look.", ECHO_TWICE), wire.reply("Done.")) as server:
        set_up(served, wire, server.url)
        result = served.run(
            "Go.",
            bookmark="main",
            pointer="kilo",
            servers=["s"],
            policy=Policy(approve="auto"),
            ask=Ask(stream=wire.streamed),
        )
        bodies = [received.body for received in server.received]
    assert (result.stopped, result.text) == ("done", "Done.")
    assert results(served, "main") == [("id_1", "one", False), ("id_2", "3", False)]
    assert [served.calls.request(call) for call in result.calls] == bodies
    assert [check.difference for check in served.calls.check("main")] == [None, None]
    assert result.usage.total_tokens == 60
    assert [tool.name for tool in served.calls.tools(result.calls[0])][:2] == ["s___echo", "s___arguments"]
    assert served.stats().topics["mcp.tools"] == 1
    assert served.context("main").options == {"provider_ptr": "kilo", "servers": ["s"]}
    assert KEY.encode() not in b"".join(recorded.state for recorded in served.events())


def test_plain_functions_in_the_threads_of_asyncio_can_wait_for_a_run(served: TurnLog) -> None:
    """Also when there are as many as threads: neither the run, nor its value, nor its server needs one."""
    wire = OpenAI()

    async def go() -> object:
        loop, ended = asyncio.get_running_loop(), threading.Event()
        with ThreadPoolExecutor(1) as threads:
            loop.set_default_executor(threads)
            running = loop.create_task(
                served.arun("Go.", pointer="kilo", servers=["s"], output=list[int], policy=Policy(approve="auto"))
            )
            running.add_done_callback(lambda _: ended.set())
            waiting = loop.run_in_executor(None, ended.wait)
            try:
                return (await asyncio.wait_for(running, 30)).output
            finally:
                ended.set()
                await waiting

    with WireServer(wire.reply("I look.", ECHO_TWICE), wire.reply('{"value":[1,2]}')) as server:
        set_up(served, wire, server.url)
        assert asyncio.run(go()) == [1, 2]


@each_wire
def test_a_recorded_run_can_be_repeated_without_a_network(log: TurnLog, wire: Wire) -> None:
    """The same tools and the same words make the same requests, so that the recorded replies answer them."""

    def look(where: str) -> str:
        """Look somewhere."""
        return f"nothing {where}"

    calls = (("id_1", "look", '{"where": "here"}'), ("id_2", "look", '{"where":"there"}'))
    given = {"pointer": "kilo", "tools": [look], "approve": "auto", "stream": wire.streamed}
    with WireServer(wire.reply("I look.", calls), wire.reply("Done.")) as server:
        set_up(log, wire, server.url)
        recorded = log.run("Go.", bookmark="main", **values(**given))
    with TurnLog.open("memory://") as again:
        set_up(again, wire, "http://127.0.0.1:1")
        repeated = again.run("Go.", bookmark="main", **values(**given, replay=log.calls.replies()))
        assert contents(again, "main") == contents(log, "main")
        assert [again.calls.request(c) for c in repeated.calls] == [log.calls.request(c) for c in recorded.calls]
        assert [again.calls.events(turn.id) for turn in repeated.turns[1::2]] == [
            log.calls.events(turn.id) for turn in recorded.turns[1::2]
        ]


def test_a_conversation_goes_on_with_another_provider(log: TurnLog) -> None:
    """Thinking of the first one is reported as lost to the second, and goes back to the first."""
    first, second = Anthropic(), OpenAI()
    losses: list[str] = []

    def follow(event: RunEvent) -> None:
        if isinstance(event, CallStarted):
            losses.extend(f"{event.provider}: {entry.kind} {entry.block}" for entry in event.loss_report.entries)

    with (
        WireServer(first.reply("Hello.", thought="Be kind."), first.reply("Bye.")) as here,
        WireServer(second.reply("Hi.")) as there,
    ):
        set_up(log, first, here.url, "first")
        set_up(log, second, there.url, "second")
        log.run("One.", bookmark="main", pointer="first", on_event=follow)
        log.run("Two.", continues="main", pointer="second", on_event=follow)
        log.run("Three.", continues="main", pointer="first", on_event=follow)
        body = msgspec.json.decode(here.received[1].body)
    assert losses == ["openai: dropped thinking"]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Be kind.", "signature": "signed"}


@pytest.mark.parametrize("wire", [Anthropic(), OpenAI()], ids=lambda wire: wire.provider)
def test_a_provider_that_is_busy_is_asked_again_and_each_try_is_a_call(log: TurnLog, wire: Wire) -> None:
    """A 429 before anything came ends no run, and as many requests are in the log as were sent."""
    busy = whole(b'{"error":{"message":"slow down"}}', status=429, headers={"retry-after-ms": "1"})
    with WireServer(busy, wire.reply("Done.")) as server:
        set_up(log, wire, server.url)
        result = log.run("Go.", pointer="kilo")
    assert (result.stopped, len(server.received), log.stats().topics["gpt.call"]) == ("done", 2, 2)


@pytest.mark.parametrize("wire", [Anthropic(), OpenAI()], ids=lambda wire: wire.provider)
def test_a_stream_that_is_cut_is_recorded_and_can_be_asked_for_again(log: TurnLog, wire: Wire) -> None:
    """With the text that had come; the second request is the first one again."""
    cut = stream(wire.events("Half")[:-2], names=wire.names, cut=True)
    with WireServer(cut, wire.reply("Whole.")) as server:
        set_up(log, wire, server.url)
        failed = log.run("Go.", bookmark="main", pointer="kilo")
        again = log.run(continues="main")
    assert (failed.stopped, failed.text, failed.error is not None and failed.error.retryable) == ("error", "Half", True)
    assert (again.stopped, again.text) == ("done", "Whole.")
    assert server.received[0].body == server.received[1].body


@pytest.mark.parametrize("wire", [Anthropic(), OpenAI()], ids=lambda wire: wire.provider)
def test_a_cancelled_call_closes_its_connection(log: TurnLog, wire: Wire) -> None:
    """What had come is an aborted turn; warnings of what was left open would fail this test."""
    came: list[Delta] = []

    async def go(url: str) -> None:
        set_up(log, wire, url)
        some = asyncio.Event()

        def show(delta: Delta) -> None:
            came.append(delta)
            if delta.content:  # the first piece of a block may be empty
                some.set()

        task = asyncio.create_task(AsyncTurnLog(log).run("Go.", bookmark="main", pointer="kilo", on_delta=show))
        await some.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with WireServer(stream(wire.events("Half")[:-2], names=wire.names, hang=True)) as server:
        asyncio.run(go(server.url))
    assert (log.turn("main").meta.stop_reason, came[0].type) == ("aborted", "text")
    assert log.payload("main") == b'[{"type":"text","text":"Half"}]'


def test_a_tool_of_a_server_that_hangs_is_ended(log: TurnLog) -> None:
    """The run goes on with the result of the other."""
    wire = OpenAI()
    calls = (("id_1", "s___wait", "{}"), ("id_2", "s___echo", '{"text":"one"}'))
    log.servers.set("s", COMMAND)
    with WireServer(wire.reply("I wait.", calls), wire.reply("Done.")) as server:
        set_up(log, wire, server.url)
        given = {"pointer": "kilo", "servers": ["s"], "approve": "auto"}
        result = log.run("Go.", bookmark="main", **values(**given, tool_timeout_s=0.5))
    assert result.stopped == "done"
    [(_, said, failed), answered] = results(log, "main")
    assert (failed, "0.5 s" in said, answered) == (True, True, ("id_2", "one", False))


def test_a_server_that_cannot_be_started_keeps_the_run_from_beginning(log: TurnLog) -> None:
    """Nothing is recorded, so that the same can be said again."""
    log.servers.set("s", ["/nowhere/to/be/found"])
    set_up(log, OpenAI(), "http://127.0.0.1:1")
    with pytest.raises(ToolServerError, match="'s'"):
        log.run("Go.", pointer="kilo", servers=["s"])
    assert log.threads() == []
