"""Engines, middleware and the tool workflow: the run loop, seen through Geppetto's types."""

from __future__ import annotations

import asyncio
import logging
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from tests.agent.running import values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say

from turnlog import MetaError, RunError, TurnLog
from turnlog.agent.target import Target
from turnlog.interop import geppetto
from turnlog.interop.geppetto import (
    KEY_TOOL_CONFIG,
    BlockKind,
    Handler,
    InMemoryToolRegistry,
    Middleware,
    ToolConfig,
    Turn,
    TurnStore,
)
from turnlog.interop.geppetto.workflow import arun_workflow, run_workflow
from turnlog.model import ReplyFacts

SETTINGS: dict[str, Any] = {"model": MODEL, "connection": HERE, "approve": "auto"}


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"mild in {city}"


def asked(*, tools: bool = True, **config: Any) -> Turn:
    """Make a turn that asks a question, as the guide does."""
    seed = Turn(id="t1", run_id="r1")
    geppetto.append_block(seed, geppetto.new_system_text_block("You are a helpful assistant."))
    geppetto.append_block(seed, geppetto.new_user_text_block("What is the weather in Paris?"))
    if tools:
        KEY_TOOL_CONFIG.set(seed.data, ToolConfig(enabled=True, **config))
    return seed


def target(*replies: Any) -> Target:
    """Give a scripted model to ask."""
    return Target(adapter=Scripted(*replies), connection=HERE, model=MODEL, params={})


def kinds(turn: Turn) -> list[str]:
    """Return the kinds of a turn's blocks."""
    return [str(block.kind) for block in turn.blocks]


def marking(name: str, seen: list[str]) -> Middleware:
    """Return middleware that notes when it is passed."""

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            seen.append(f"{name} in")
            answered = await handler(turn)
            seen.append(f"{name} out {len(answered.blocks)}")
            return answered

        return handle

    return middleware


# Engines


def test_engine_appends_text_and_tool_calls() -> None:
    """The turn that was given stays; provider, model, stop reason and usage are in the metadata of the other one."""
    turn = asked(tools=False)
    before = deepcopy(turn)
    engine = geppetto.engine_of(target(call(("weather", {"city": "Paris"}), text="Let me look.", tokens=7)))
    answered = asyncio.run(engine(turn))  # type: ignore[arg-type]
    assert turn == before
    assert kinds(answered) == ["system", "user", "llm_text", "tool_call"]
    assert answered.blocks[3].payload == {"id": "c1", "name": "weather", "args": {"city": "Paris"}}
    assert [block.payload["id"] for block in geppetto.pending_calls(answered)] == ["c1"]
    geppetto.append_block(answered, geppetto.new_tool_use_block("c1", "mild"))
    assert geppetto.pending_calls(answered) == []
    assert geppetto.KEY_MODEL.get(answered.metadata) == MODEL
    assert geppetto.KEY_STOP_REASON.get(answered.metadata) == "tool_use"
    usage = geppetto.KEY_USAGE.get(answered.metadata)
    assert usage is not None
    assert usage.output_tokens == 7


def test_engine_offers_the_tools_of_its_context_where_the_turn_enables_them() -> None:
    """The registry is in the context, and only the configuration in the turn."""
    asking = target(say("1"), say("2"), say("3"), say("4"))
    engine = geppetto.engine_of(asking)

    async def ask() -> None:
        registry = InMemoryToolRegistry(weather)
        await engine(asked())
        with geppetto.with_registry(registry):
            await engine(asked())
            await engine(asked(tools=False))
            await engine(asked(allowed_tools=[]))

    asyncio.run(ask())
    assert isinstance(asking.adapter, Scripted)
    assert [body["tools"] for body in asking.adapter.bodies] == [[], ["weather"], [], []]


def test_config_that_is_none_is_refused() -> None:
    """With the identity of its key."""
    turn = asked(tools=False)
    turn.data.put(KEY_TOOL_CONFIG.identity, {"enabled": "yes"})
    with pytest.raises(MetaError, match=r"geppetto\.tool_config@v1: expected `bool`"):
        geppetto.tool_config(turn)


# Middleware


def test_chain_puts_the_first_middleware_outermost() -> None:
    """It sees the turn first on the way in, and last on the way out."""
    seen: list[str] = []
    handler = geppetto.chain(geppetto.engine_of(target(say("Mild."))), marking("a", seen), marking("b", seen))
    asyncio.run(handler(asked(tools=False)))  # type: ignore[arg-type]
    assert seen == ["a in", "b in", "b out 3", "a out 3"]


def test_system_prompt_is_put_in_front_once() -> None:
    """A second time it takes the place of the first; system blocks of others stay."""
    turn = asked(tools=False)

    async def same(given: Turn) -> Turn:
        return given

    once = asyncio.run(geppetto.chain(same, geppetto.system_prompt("Be brief."))(turn))  # type: ignore[arg-type]
    twice = asyncio.run(geppetto.chain(same, geppetto.system_prompt("Be kind."))(once))  # type: ignore[arg-type]
    assert [block.payload["text"] for block in once.blocks][:2] == ["Be brief.", "You are a helpful assistant."]
    assert [block.payload["text"] for block in twice.blocks][:2] == ["Be kind.", "You are a helpful assistant."]
    assert kinds(turn) == ["system", "user"]


def test_tool_results_are_put_behind_their_calls() -> None:
    """Behind all calls of one reply, in the order of the calls; a result without a call stays where it is."""
    turn = Turn()
    geppetto.append_blocks(
        turn,
        geppetto.new_tool_use_block("c9", "of no call"),
        geppetto.new_assistant_text_block("Both."),
        geppetto.new_tool_call_block("c1", "weather", {}),
        geppetto.new_tool_call_block("c2", "weather", {}),
        geppetto.new_user_text_block("And?"),
        geppetto.new_tool_use_block("c2", "two"),
        geppetto.new_tool_use_block("c1", "one"),
    )

    async def same(given: Turn) -> Turn:
        return given

    ordered = asyncio.run(geppetto.chain(same, geppetto.tool_result_reorder())(turn))  # type: ignore[arg-type]
    assert [block.payload.get("id", block.payload.get("text")) for block in ordered.blocks] == [
        "c9",
        "Both.",
        "c1",
        "c2",
        "c1",
        "c2",
        "And?",
    ]
    assert kinds(turn)[-1] == "tool_use"


def test_calls_are_logged_without_content_unless_asked(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers and kinds; with `content` what was answered; an error with its traceback."""
    logger = logging.getLogger("turnlog.test")
    caplog.set_level(logging.INFO, logger=logger.name)
    plain = geppetto.chain(geppetto.engine_of(target(say("Mild."))), geppetto.call_logging(logger))
    asyncio.run(plain(asked(tools=False)))  # type: ignore[arg-type]
    assert "asking with 2 blocks" in caplog.text
    assert "llm_text in " in caplog.text
    assert "Mild" not in caplog.text
    told = geppetto.chain(geppetto.engine_of(target(say("Mild."))), geppetto.call_logging(logger, content=True))
    asyncio.run(told(asked(tools=False)))  # type: ignore[arg-type]
    assert "llm_text: Mild." in caplog.text

    async def broken(_: Turn) -> Turn:
        raise RunError("no model")

    with pytest.raises(RunError):
        asyncio.run(geppetto.chain(broken, geppetto.call_logging(logger))(asked()))  # type: ignore[arg-type]
    assert "failed" in caplog.text


# The workflow


def test_workflow_asks_executes_and_asks_again(log: TurnLog) -> None:
    """Until no call is pending; with a snapshot before and after each call, and after the tools."""
    seen: list[tuple[str, list[str]]] = []
    adapter = Scripted(call(("weather", {"city": "Paris"}), text="Let me look."), say("It is mild."))
    with geppetto.with_registry(InMemoryToolRegistry(weather)):
        done = run_workflow(
            log,
            asked(),
            on_snapshot=lambda phase, turn: seen.append((phase, kinds(turn))),
            **values(**SETTINGS, adapter=adapter),
        )
    assert done.run.stopped == "done"
    whole = ["system", "user", "llm_text", "tool_call", "tool_use", "llm_text"]
    assert kinds(done.turn) == whole
    assert done.turn.blocks[4].payload == {"id": "c1", "result": "mild in Paris"}
    assert (done.turn.id, done.turn.run_id, done.turn.data) == ("t1", "r1", asked().data)
    assert seen == [
        ("pre_inference", whole[:2]),
        ("post_inference", whole[:4]),
        ("post_tools", whole[:5]),
        ("pre_inference", whole[:5]),
        ("post_inference", whole),
    ]
    assert log.verify().damage == ()


def test_workflow_executes_calls_that_are_pending_at_the_start(log: TurnLog) -> None:
    """A turn that ends with a call is gone on with."""
    turn = asked()
    geppetto.append_block(turn, geppetto.new_tool_call_block("c7", "weather", {"city": "Rome"}))
    registry = InMemoryToolRegistry(weather)
    done = run_workflow(log, turn, registry=registry, **values(**SETTINGS, adapter=Scripted(say("Mild."))))
    assert done.turn.blocks[3].payload == {"id": "c7", "result": "mild in Rome"}
    assert done.run.text == "Mild."


def test_middleware_changes_what_the_model_is_asked_with_and_nothing_that_is_recorded(log: TurnLog) -> None:
    """Each call keeps the difference, so that its request can be made again."""
    seen: list[str] = []
    adapter = Scripted(call(("weather", {"city": "Paris"})), say("It is mild."))
    done = run_workflow(
        log,
        asked(),
        marking("a", seen),
        geppetto.system_prompt("Be brief."),
        geppetto.tool_result_reorder(),
        registry=InMemoryToolRegistry(weather),
        **values(**SETTINGS, adapter=adapter),
    )
    assert seen == ["a in", "a out 4", "a in", "a out 6"]
    for each in done.run.calls:
        body = msgspec.json.decode(log.calls.request(each))
        assert body["messages"][0]["content"][0]["text"] == "Be brief."
        change = log.calls.get(each).window_change
        assert change is not None
        assert (change.at, change.removed, len(change.added)) == (0, 0, 1)
    assert "Be brief." not in str([message.content_json for message in log.context(done.run.head.id).messages])
    assert [check.difference for check in log.calls.check(done.run.head.id, adapter=lambda *_: Scripted())] == [
        None
    ] * 2


def test_without_middleware_calls_have_the_window_of_their_turn(log: TurnLog) -> None:
    """Documents, images, reasoning and native blocks pass through as they are."""
    done = run_workflow(log, asked(tools=False), **values(**SETTINGS, adapter=Scripted(say("Mild."))))
    assert [log.calls.get(each).window_change for each in done.run.calls] == [None]


def test_tool_configuration_sets_what_is_offered_and_its_limits(log: TurnLog) -> None:
    """Without one no tool is offered, and those that are not allowed are not."""

    def wind(city: str) -> str:
        """Tell the wind."""
        return city

    registry = InMemoryToolRegistry(weather, wind)
    offered: list[list[str]] = []
    for turn in (asked(tools=False), asked(), asked(allowed_tools=["wind"]), asked(tool_choice="required")):
        adapter = Scripted(say("Mild."))
        done = run_workflow(log, turn, registry=registry, **values(**SETTINGS, adapter=adapter))
        offered.append([tool.name for tool in log.calls.tools(done.run.calls[0])])
    assert offered == [[], ["weather", "wind"], ["wind"], ["weather", "wind"]]
    assert log.calls.get(done.run.calls[0]).meta.parameters == {"tool_choice": "required"}
    endless = Scripted(*[call(("weather", {"city": "Paris"}))] * 9)
    stopped = run_workflow(log, asked(max_iterations=2), registry=registry, **values(**SETTINGS, adapter=endless))
    assert (stopped.run.stopped, len(stopped.run.calls)) == ("iterations", 2)


@pytest.mark.parametrize(("times", "says"), [(0, "returned without asking the model"), (2, "asked the model again")])
def test_middleware_asks_the_model_exactly_once(log: TurnLog, times: int, says: str) -> None:
    """Else the run would not be what is recorded of it."""

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            for _ in range(times):
                turn = await handler(turn)
            return turn

        return handle

    with pytest.raises(RunError, match=says):
        run_workflow(log, asked(), middleware, **values(**SETTINGS, adapter=Scripted(say("Mild."))))


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_middleware_raises_ends_the_workflow(log: TurnLog, when: str) -> None:
    """What is recorded by then stays."""

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            if when == "before":
                raise RunError("not now")
            await handler(turn)
            raise RunError("not like that")

        return handle

    with pytest.raises(RunError, match="not now" if when == "before" else "not like that"):
        run_workflow(log, asked(), middleware, **values(**SETTINGS, adapter=Scripted(say("Mild."))))
    assert len(log.threads()) == 1


def test_a_cancelled_workflow_leaves_an_aborted_turn_and_no_task(log: TurnLog) -> None:
    """The middlewares that waited for the reply are cancelled with it."""
    ended: list[str] = []

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            try:
                return await handler(turn)
            finally:
                ended.append("ended")

        return handle

    async def cancelled() -> int:
        adapter = Scripted([{"text": "It"}, HANG])
        task = asyncio.create_task(arun_workflow(log, asked(), middleware, **values(**SETTINGS, adapter=adapter)))
        await adapter.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(cancelled()) == 1
    assert ended == ["ended"]


def test_a_turn_without_blocks_is_refused(log: TurnLog) -> None:
    """There is nothing to ask."""
    with pytest.raises(RunError, match="a turn without blocks has nothing to ask"):
        run_workflow(log, Turn(), **values(**SETTINGS, adapter=Scripted(say("Mild."))))


# The store


def test_store_lists_all_snapshots_of_a_run_and_loads_each(log: TurnLog) -> None:
    """What the workflow told is what is loaded, with the block ids of the log."""
    seen: list[tuple[str, list[str]]] = []
    adapter = Scripted(call(("weather", {"city": "Paris"})), say("It is mild."))
    done = run_workflow(
        log,
        asked(),
        registry=InMemoryToolRegistry(weather),
        on_snapshot=lambda phase, turn: seen.append((phase, kinds(turn))),
        **values(**SETTINGS, adapter=adapter),
    )
    store = TurnStore(log)
    listed = store.list(thread=done.run.head.id)
    loaded = [(found.phase, kinds(store.load(found.id))) for found in reversed(listed)]
    assert loaded == [("", ["system", "user"]), *seen]
    assert {found.session for found in listed} == {"r1"}
    assert listed[0].head == done.run.head.id
    assert [found.phase for found in store.list(phase="post_tools")] == ["post_tools"]
    assert store.list(session="r1") == listed
    assert store.list(session="r2") == []


def test_store_saves_and_finds_by_conversation_phase_time_and_limit(log: TurnLog) -> None:
    """Newest first; the same one again is the same snapshot."""
    store = TurnStore(log)
    turn = asked()
    first = store.save(turn, conversation="c1")
    second = store.save(turn, conversation="c1", phase="draft")
    third = store.save(Turn(id="empty"), conversation="c2")
    assert store.save(turn, conversation="c1") == first
    assert [found.id for found in store.list()] == [third, second, first]
    assert [found.id for found in store.list(conversation="c1", phase="final")] == [first]
    assert [found.id for found in store.list(limit=1)] == [third]
    times = {found.id: found.time_ms for found in store.list()}
    assert store.list(since_ms=times[third] + 1) == []
    assert store.list(until_ms=times[first]) == []
    assert store.list(since_ms=times[first], until_ms=times[third] + 1) == store.list()
    assert store.load(first) == turn
    assert store.load(third) == Turn(id="empty")


def test_turns_of_a_log_are_a_snapshot_and_a_loss_report_names_the_rest(log: TurnLog) -> None:
    """Any turn of a log can be seen as one."""
    log.add_turn("Hi.", bookmark="main", inherited={"temperature": 0.5})
    log.add_turn(
        "Hello.", role="assistant", continues="main", reply=ReplyFacts(model="m", provider="p", stop_reason="stop")
    )
    turn, report = geppetto.turn_of(log, "main")
    assert [(str(block.kind), block.payload) for block in turn.blocks] == [
        ("user", {"text": "Hi."}),
        ("llm_text", {"text": "Hello."}),
    ]
    assert [(entry.block, entry.kind) for entry in report.entries] == [("inherited", "dropped")]
    assert turn.blocks[0].kind is BlockKind.USER
