"""Workflows execute every pending call of a turn, and keep or refuse what middleware appends to a reply."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.running import values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say

from turnlog import ContentError, Policy, RunError, TurnLog, UnknownPointerError
from turnlog.agent.events import RunEvent, TurnRecorded
from turnlog.interop import geppetto
from turnlog.interop.geppetto import (
    KEY_TOOL_CONFIG,
    Block,
    BlockKind,
    Handler,
    InMemoryToolRegistry,
    Middleware,
    ToolConfig,
    Turn,
    TurnStore,
    arun_workflow,
    run_workflow,
)
from turnlog.model import ReplyFacts, ToolUse

SETTINGS: dict[str, Any] = {"model": MODEL, "connection": HERE, "approve": "auto"}


class Times:
    """A tool that keeps what it was called with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @property
    def registry(self) -> InMemoryToolRegistry:
        def times(day: str) -> str:
            """Tell when ferries leave."""
            self.ran.append(day)
            return f"times of {day}"

        return InMemoryToolRegistry(times)


def asking(*blocks: Block) -> Turn:
    """Make a turn that asks something, with more blocks behind."""
    turn = Turn(id="t1", run_id="r1", blocks=[geppetto.new_user_text_block("When?", id="b1"), *blocks])
    KEY_TOOL_CONFIG.set(turn.data, ToolConfig(enabled=True))
    return turn


def ask(call_id: str, day: str) -> Block:
    """Make a call."""
    return geppetto.new_tool_call_block(call_id, "times", {"day": day})


def said(text: str = "Meanwhile.") -> Block:
    """Make what a user says."""
    return geppetto.new_user_text_block(text, id="b9")


def shape(turn: Turn) -> list[tuple[str, object]]:
    """Return kind and id, or text, of each block."""
    return [(str(block.kind), block.payload.get("id", block.payload.get("text"))) for block in turn.blocks]


@pytest.mark.parametrize(
    ("blocks", "ran", "results"),
    [
        ([ask("p1", "mon"), ask("p2", "tue"), geppetto.new_tool_use_block("p2", "x")], ["mon"], ["p1"]),
        ([ask("p1", "mon"), ask("p2", "tue"), geppetto.new_tool_use_block("p1", "x")], ["tue"], ["p2"]),
        ([ask("p1", "mon"), said()], ["mon"], ["p1"]),
        ([ask("p1", "mon"), geppetto.new_assistant_text_block("Aloud.")], ["mon"], ["p1"]),
        ([ask("p1", "mon"), said(), ask("p2", "tue")], ["mon", "tue"], ["p1", "p2"]),
        ([ask("p1", "mon"), ask("p2", "tue")], ["mon", "tue"], ["p1", "p2"]),
    ],
)
def test_every_pending_call_is_executed_and_its_result_appended(
    log: TurnLog, blocks: list[Block], ran: list[str], results: list[str]
) -> None:
    """Wherever it stands; the model is asked once, with each result right behind the reply of its call."""
    tool, adapter = Times(), Scripted(say("Soon."))
    turn = asking(*blocks)
    told: list[RunEvent] = []
    done = run_workflow(log, turn, registry=tool.registry, on_event=told.append, **values(**SETTINGS, adapter=adapter))
    assert tool.ran == ran
    assert geppetto.pending_calls(done.turn) == []
    assert shape(done.turn) == [
        *shape(turn),
        *[("tool_use", result) for result in results],
        ("llm_text", "Soon."),
    ]
    assert [event.turn for event in told if isinstance(event, TurnRecorded)] == list(done.run.turns)
    assert len(done.run.turns) == 2
    [body] = adapter.bodies
    before: set[str] = set()
    for message in body["messages"]:
        answered = {block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"}
        assert answered == before
        before = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
    assert log.verify().damage == ()


def test_a_kind_that_is_a_text_is_a_kind(log: TurnLog) -> None:
    """A call that was made without the enumeration is executed too."""
    tool = Times()
    loose: Any = "tool_call"
    turn = asking(Block(kind=loose, payload={"id": "p1", "name": "times", "args": {"day": "mon"}}), said())
    assert [block.payload["id"] for block in geppetto.pending_calls(turn)] == ["p1"]
    run_workflow(log, turn, registry=tool.registry, **values(**SETTINGS, adapter=Scripted(say("Soon."))))
    assert tool.ran == ["mon"]


@pytest.mark.parametrize(
    ("payload", "behind", "says"),
    [
        ({}, [], "without a usable 'name'"),
        ({"id": "p1", "name": 7}, [], "without a usable 'name'"),
        ({"name": "times"}, [said()], "without a usable 'id'"),
        ({"name": "times", "id": 7}, [said()], "without a usable 'id'"),
    ],
)
def test_a_pending_call_that_cannot_be_executed_is_refused(
    log: TurnLog, payload: dict[str, Any], behind: list[Block], says: str
) -> None:
    """By its place, before anything is executed."""
    tool, adapter = Times(), Scripted(say("Soon."))
    turn = asking(Block(kind=BlockKind.TOOL_CALL, payload=payload), *behind)
    with pytest.raises(RunError, match=rf"^turn\.blocks\[1\]: a pending tool_call {says}"):
        run_workflow(log, turn, registry=tool.registry, **values(**SETTINGS, adapter=adapter))
    assert (tool.ran, adapter.bodies) == ([], [])


def test_pending_calls_before_the_end_need_approval_too(log: TurnLog) -> None:
    """Without it the run stops with them unanswered; who is asked may refuse one."""
    tool, turn = Times(), asking(ask("p1", "mon"), said())
    settings = SETTINGS | {"approve": "ask"}
    done = run_workflow(log, turn, registry=tool.registry, **values(**settings, adapter=Scripted()))
    assert (done.run.stopped, [each.id for each in done.run.unanswered]) == ("unanswered", ["p1"])
    assert shape(done.turn) == shape(turn)
    settings["on_approval"] = lambda _: False
    done = run_workflow(log, turn, registry=tool.registry, **values(**settings, adapter=Scripted(say("Well."))))
    assert tool.ran == []
    assert done.turn.blocks[3].payload["error"] == "The user did not allow this tool call."
    assert done.run.text == "Well."


def test_a_failing_pending_call_aborts_where_the_policy_says_so(log: TurnLog) -> None:
    """Its result is recorded, and the model is not asked."""
    turn = asking(geppetto.new_tool_call_block("p1", "nope", {}), said())
    adapter = Scripted(say("Soon."))
    seen: list[str] = []
    done = run_workflow(
        log,
        turn,
        registry=Times().registry,
        on_snapshot=lambda phase, _: seen.append(phase),
        **values(**SETTINGS, adapter=adapter, on_tool_error="abort"),
    )
    assert (done.run.stopped, adapter.bodies, seen) == ("tool_error", [], ["post_tools"])
    assert shape(done.turn)[-1] == ("tool_use", "p1")
    assert done.run.turns == (done.run.head,)


def test_nothing_is_executed_for_a_run_that_cannot_begin(log: TurnLog) -> None:
    """Else it would be executed again when it can."""
    tool = Times()
    with pytest.raises(UnknownPointerError):
        run_workflow(
            log, asking(ask("p1", "mon"), said()), registry=tool.registry, pointer="nope", policy=Policy(approve="auto")
        )
    assert tool.ran == []


def test_results_of_pending_calls_are_recorded_when_the_run_is_broken_off(log: TurnLog) -> None:
    """What a tool had answered, and that another one was broken off."""
    started = asyncio.Event()

    async def slow(day: str) -> str:
        """Tell nothing for long."""
        started.set()
        await asyncio.sleep(3600)
        return day

    async def cancelled() -> None:
        turn = asking(geppetto.new_tool_call_block("p1", "slow", {"day": "mon"}), said())
        registry = InMemoryToolRegistry(slow)
        task = asyncio.create_task(
            arun_workflow(log, turn, registry=registry, **values(**SETTINGS, adapter=Scripted()))
        )
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    *_, last = log.events(topics="gpt.turn")
    turn, _ = geppetto.turn_of(log, last.header.id)
    assert shape(turn)[-1] == ("tool_use", "p1")
    assert "The run was stopped while this tool was at work" in str(turn.blocks[-1].payload["error"])
    assert shape(turn)[:-1] == [("user", "When?"), ("tool_call", "p1"), ("user", "Meanwhile.")]


def test_calls_of_a_refused_reply_are_not_executed(log: TurnLog) -> None:
    """As the run loop has it: the model, or its provider, took them back."""
    log.add_turn("When?", bookmark="main")
    given = ToolUse(id="p1", name="times", input=Raw(b'{"day":"mon"}'))
    log.add_turn(
        [given], role="assistant", continues="main", reply=ReplyFacts(model="m", provider="p", stop_reason="refusal")
    )
    turn, _ = geppetto.turn_of(log, "main")
    KEY_TOOL_CONFIG.set(turn.data, ToolConfig(enabled=True))
    tool = Times()
    with pytest.raises(RunError, match="ends with a finished reply"):
        run_workflow(log, turn, registry=tool.registry, **values(**SETTINGS, adapter=Scripted()))
    geppetto.append_block(turn, said())
    done = run_workflow(log, turn, registry=tool.registry, **values(**SETTINGS, adapter=Scripted(say("Soon."))))
    assert (tool.ran, done.run.text) == ([], "Soon.")


def test_a_finished_turn_is_refused_with_what_to_do(log: TurnLog) -> None:
    """In words of Geppetto."""
    with pytest.raises(RunError, match=r"^turn 't1' ends with a finished reply \(llm_text\) .*: append a user block"):
        run_workflow(log, asking(geppetto.new_assistant_text_block("Soon.")), **values(**SETTINGS, adapter=Scripted()))


# What middleware makes of a reply


def after(change: Any) -> Middleware:
    """Return middleware that changes what a model answered, at each call."""

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            return change(await handler(turn))

        return handle

    return middleware


def appending(*blocks: Block) -> Middleware:
    """Return middleware that appends blocks to what a model answered."""

    def change(turn: Turn) -> Turn:
        geppetto.append_blocks(turn, *deepcopy(blocks))
        return turn

    return after(change)


def test_what_middleware_appends_to_the_last_reply_is_kept_and_recorded(log: TurnLog) -> None:
    """Behind the reply, with its ids and metadata; a workflow goes on from there."""
    noted = said("Check this.")
    geppetto.KEY_BLOCK_MIDDLEWARE.set(noted.metadata, "checker")
    middlewares = (geppetto.system_prompt("Be brief."), appending(noted))
    done = run_workflow(log, asking(), *middlewares, **values(**SETTINGS, adapter=Scripted(say("Soon."))))
    assert shape(done.turn) == [("user", "When?"), ("llm_text", "Soon."), ("user", "Check this.")]
    assert done.turn.blocks[2] == noted
    assert TurnStore(log).load(TurnStore(log).list(limit=1)[0].id) == done.turn
    last = TurnStore(log).list(limit=1)[0].head
    assert [turn.id for turn in log.ancestry(last)][-2] == done.run.head.id
    following = run_workflow(log, done.turn, **values(**SETTINGS, adapter=Scripted(say("It is right."))))
    assert log.ancestry(following.run.head.id)[-2].id == last


def test_a_copy_of_a_block_that_middleware_appends_is_a_new_block(log: TurnLog) -> None:
    """Though it names the turn that it was copied from."""

    def twice(turn: Turn) -> Turn:
        turn.blocks.append(deepcopy(turn.blocks[-1]))
        return turn

    done = run_workflow(log, asking(), after(twice), **values(**SETTINGS, adapter=Scripted(say("Soon."))))
    assert shape(done.turn) == [("user", "When?"), ("llm_text", "Soon."), ("llm_text", "Soon.")]


def test_what_middleware_appends_behind_calls_is_refused(log: TurnLog) -> None:
    """Their results come there, and the run does not go on without the blocks."""
    adapter = Scripted(call(("times", {"day": "mon"})), say("Soon."))
    with pytest.raises(RunError, match="appended blocks behind a reply with tool calls"):
        run_workflow(log, asking(), appending(said()), registry=Times().registry, **values(**SETTINGS, adapter=adapter))
    assert len(adapter.bodies) == 1


def test_what_middleware_puts_before_a_reply_after_the_call_is_refused(log: TurnLog) -> None:
    """The reply stands behind what it answers."""

    def change(turn: Turn) -> Turn:
        geppetto.prepend_block(turn, said())
        return turn

    with pytest.raises(RunError, match="put blocks before or into what the model answered"):
        run_workflow(log, asking(), after(change), **values(**SETTINGS, adapter=Scripted(say("Soon."))))


def test_what_the_model_said_stays_as_it_said_it(log: TurnLog) -> None:
    """Whether a middleware changes it afterwards, or leaves it out."""

    def edited(turn: Turn) -> Turn:
        turn.blocks[-1].payload["text"] = "Never."
        return turn

    def dropped(turn: Turn) -> Turn:
        del turn.blocks[-1]
        return turn

    for change in (edited, dropped):
        done = run_workflow(log, asking(), after(change), **values(**SETTINGS, adapter=Scripted(say("Soon."))))
        assert shape(done.turn) == [("user", "When?"), ("llm_text", "Soon.")]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            None,
            "^what a middleware returned: expected a Turn, got NoneType: return the turn that its handler returned$",
        ),
        (Turn(blocks=[None]), r"^what a middleware returned\.blocks\[0\]: expected a Block, got NoneType"),  # type: ignore[list-item]
    ],
)
def test_middleware_that_returns_no_turn_is_refused(log: TurnLog, made: Any, says: str) -> None:
    """After the call, at the last one as at any."""
    for replies in ([say("Soon.")], [call(("times", {"day": "mon"})), say("Soon.")]):
        with pytest.raises(ContentError, match=says):
            run_workflow(
                log,
                asking(),
                after(lambda _: made),
                registry=Times().registry,
                **values(**SETTINGS, adapter=Scripted(*replies)),
            )


def test_middleware_that_asks_with_no_turn_is_refused(log: TurnLog) -> None:
    """Before the call: nothing is asked."""

    def middleware(handler: Handler) -> Handler:
        async def handle(_: Turn) -> Turn:
            nothing: Any = None
            return await handler(nothing)

        return handle

    adapter = Scripted(say("Soon."))
    with pytest.raises(ContentError, match=r"^what a middleware asks with: expected a Turn, got NoneType"):
        run_workflow(log, asking(), middleware, **values(**SETTINGS, adapter=adapter))
    assert adapter.bodies == []


def test_snapshots_are_told_as_the_store_has_them_with_middleware(log: TurnLog) -> None:
    """`pre_inference` with what middleware put in for the call, the others without it."""
    seen: list[tuple[str, list[tuple[str, object]]]] = []
    done = run_workflow(
        log,
        asking(),
        geppetto.system_prompt("Be brief."),
        registry=Times().registry,
        on_snapshot=lambda phase, turn: seen.append((phase, shape(turn))),
        **values(**SETTINGS, adapter=Scripted(call(("times", {"day": "mon"})), say("Soon."))),
    )
    store = TurnStore(log)
    listed = [found for found in reversed(store.list(thread=done.run.head.id)) if found.phase]
    assert [(found.phase, shape(store.load(found.id))) for found in listed] == seen
    assert [(phase, len(blocks)) for phase, blocks in seen] == [
        ("pre_inference", 2),
        ("post_inference", 2),
        ("post_tools", 3),
        ("pre_inference", 4),
        ("post_inference", 4),
    ]


async def _no_middleware(turn: Turn) -> Turn:
    return turn


@pytest.mark.parametrize(
    ("middleware", "says"),
    [
        (3, "^a middleware is int: it is a plain function that takes a handler"),
        (_no_middleware, "^a middleware returned coroutine: it is a plain function"),
        (lambda _: lambda turn: turn, "^the handler of a middleware returned Turn, which cannot be awaited"),
    ],
)
def test_what_is_no_middleware_is_refused(log: TurnLog, middleware: Any, says: str) -> None:
    """Before the model is asked."""
    adapter = Scripted(say("Soon."))
    with pytest.raises(RunError, match=says):
        run_workflow(log, asking(), middleware, **values(**SETTINGS, adapter=adapter))
    assert adapter.bodies == []


def test_the_built_in_middlewares_refuse_what_is_no_turn() -> None:
    """From an outer one, and from an inner one."""

    async def nothing(_: Turn) -> Any:
        return None

    given: Any = None
    for built_in in (geppetto.system_prompt("Be brief."), geppetto.tool_result_reorder(), geppetto.call_logging()):
        with pytest.raises(ContentError, match=r"^what a handler is given: expected a Turn, got NoneType$"):
            asyncio.run(geppetto.chain(nothing, built_in)(given))  # type: ignore[arg-type]
    with pytest.raises(ContentError, match=r"^what a middleware returned: expected a Turn, got NoneType: return"):
        asyncio.run(geppetto.chain(nothing, geppetto.call_logging())(asking()))  # type: ignore[arg-type]
