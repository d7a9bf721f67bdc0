"""What is wrong with what a run is given is said before anything is recorded."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.running import values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say

from turnlog import Ask, AsyncTurnLog, MetaError, RunError, TurnLog
from turnlog.providers.replay import RecordedReply

REPLY = RecordedReply(events=())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"on_loss": "eror"}, r"on_loss: 'eror' is unknown \(one of error, report\)"),
        ({"on_loss": "ERROR"}, r"on_loss: 'ERROR' is unknown"),
        ({"on_loss": True}, r"on_loss: True is unknown"),
        ({"on_loss": Path("error")}, r"on_loss: PosixPath\('error'\) is unknown"),
        ({"stream": None}, "stream: expected bool, got NoneType"),
        ({"stream": 0}, "stream: expected bool, got int"),
        ({"stream": ""}, "stream: expected bool, got str"),
        ({"params": ["max_tokens"]}, "params: expected a record of parameters, got list"),
        ({"tool_choice": 3}, "tool_choice: expected auto, none, required or the name of a tool, got int"),
        ({"connection": "http://x"}, r"connection: expected turnlog\.providers\.Connection, got str"),
        ({"adapter": "openai"}, r"adapter: expected turnlog\.providers\.Provider, got str"),
        ({"replay": [REPLY]}, r"replay: expected recorded replies \(calls\.replies\(\)\), got list"),
        ({"replay": {"sha256-x": 3}}, "replay: expected recorded replies, got int"),
        ({"replay": {"sha256-x": ["x"]}}, "replay: expected recorded replies, got str"),
    ],
)
def test_how_a_model_is_asked_is_of_its_type(given: dict[str, Any], why: str) -> None:
    """Each field, with what is allowed."""
    with pytest.raises(RunError, match=f"^{why}"):
        Ask(**given)


def test_what_to_do_with_losses_is_recorded_as_a_plain_text(log: TurnLog) -> None:
    """Whatever class of text it is: no other can be written."""

    class Word(str):
        __slots__ = ()

    log.run("Go.", model=MODEL, ask=Ask(adapter=Scripted(say("Yes.")), connection=HERE, on_loss=Word("error")))
    assert [recorded.meta.on_loss for recorded in log.calls.all()] == ["error"]


def plain(*_: object) -> None:
    """Take anything."""


async def awaited(*_: object) -> None:
    """Take anything."""


class Told:
    """An async function, as an object."""

    async def __call__(self, *_: object) -> None:
        """Take anything."""


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"system": ["Be brief."]}, "system: expected str, got list"),
    ({"attachments": None}, "attachments: expected paths of files, or documents, got NoneType"),
    ({"attachments": b"notes.txt"}, "attachments: expected paths of files, or documents, got bytes"),
    ({"attachments": ["notes.txt", 3]}, "attachments: expected paths of files, or documents, got int"),
    ({"continues": ""}, "continues: expected an id or a name, got an empty text"),
    ({"continues": [""]}, "continues: expected an id or a name, got an empty text"),
    ({"continues": "", "respond": True}, "continues: expected an id or a name, got an empty text"),
    ({"continues": 3, "wait_s": 1}, "continues: expected an id or a name, got int: of a turn give turn.id"),
    ({"respond": "no"}, "respond: expected bool, got str"),
    ({"bookmark": 3}, "bookmark: expected str, got int"),
    ({"expected_head": 3}, "expected_head: expected str, got int"),
    ({"subject": 3}, "subject: expected str, got int"),
    ({"pointer": ["kilo"]}, "pointer: expected str, got list"),
    ({"provider": 3}, "provider: expected str, got int"),
    ({"model": 3}, "model: expected str, got int"),
    ({"servers": "notes"}, "servers: expected a list of server names"),
    ({"search": "yes"}, "search: expected bool, got str"),
    ({"tool_mode": 3}, "tool_mode: expected str, got int"),
    ({"tool_choice": "a\ud800"}, r"params\.tool_choice"),
    ({"tools": None}, "tools: expected functions or toolboxes, got NoneType"),
    ({"tools": "plain"}, "tools: expected functions or toolboxes, got str"),
    ({"tools": {"plain": plain}}, "tools: expected functions or toolboxes, got dict"),
    ({"tools": [plain, 3]}, "tools: expected functions or toolboxes, got int"),
    ({"policy": {"approve": "auto"}}, r"policy: expected turnlog\.Policy, got dict"),
    ({"ask": {"stream": False}}, r"ask: expected turnlog\.Ask, got dict"),
    ({"around_model": b"x"}, "around_model: expected async functions, got bytes"),
    ({"around_model": [None]}, "around_model: expected async functions, got NoneType"),
    ({"around_tool": 3}, "around_tool: expected async functions, got int"),
    ({"on_approval": "yes"}, "on_approval: expected a function, got str"),
    ({"on_window": 3}, "on_window: expected a function, got int"),
    ({"on_event": 3}, "on_event: expected a function, got int"),
    ({"on_delta": 3}, "on_delta: expected a function, got int"),
    ({"on_event": awaited}, "on_event: expected a plain function, got an async one, which nobody would await"),
    ({"on_delta": functools.partial(awaited, 1)}, "on_delta: expected a plain function, got an async one"),
    ({"on_delta": Told()}, "on_delta: expected a plain function, got an async one"),
]


def _run(log: TurnLog, **given: Any) -> object:
    return log.run("Go.", **given)


def _arun(log: TurnLog, **given: Any) -> object:
    return asyncio.run(log.arun("Go.", **given))


def _run_of_async_log(log: TurnLog, **given: Any) -> object:
    async def go() -> object:
        return await AsyncTurnLog(log).run("Go.", **given)

    return asyncio.run(go())


def _run_events(log: TurnLog, **given: Any) -> object:
    async def go() -> object:
        return [event async for event in AsyncTurnLog(log).run_events("Go.", **given)]

    return asyncio.run(go())


@pytest.mark.parametrize("runs", [_run, _arun, _run_of_async_log, _run_events])
def test_a_wrong_argument_leaves_nothing_behind(log: TurnLog, runs: Callable[..., object]) -> None:
    """Whichever it is, and however the run is begun: the log is as it was, and no model is asked."""
    log.add_turn("Before.", bookmark="main")
    for given, why in WRONG:
        adapter = Scripted(say("Never asked for."))
        way = {} if "ask" in given else {"adapter": adapter, "connection": HERE}
        with pytest.raises((RunError, MetaError), match=f"^{why}"):
            runs(log, **values(**{"model": MODEL, **way, **given}))
        assert (adapter.bodies, log.turn_count()) == ([], 1)


def test_a_wrong_name_is_refused_before_tools_run(log: TurnLog) -> None:
    """A run that goes on from tool calls begins with these: not where it can record nothing of them."""
    made: list[str] = []

    def order() -> None:
        made.append("order")

    asked = Scripted(call(("order", {})))
    log.run("Go.", bookmark="main", tools=order, **values(model=MODEL, adapter=asked, connection=HERE))
    before = len(list(log.events()))
    with pytest.raises(MetaError, match=r"^bookmark: '' cannot be a bookmark"):
        log.run(continues="main", bookmark="", tools=order, **values(**_way(), approve="auto"))
    assert (len(list(log.events())), made) == (before, [])


def _named() -> str:
    return "done"


def _way() -> dict[str, Any]:
    return {"model": MODEL, "adapter": Scripted(say("Never asked for.")), "connection": HERE}


def test_generators_of_tools_and_files_are_taken(log: TurnLog, tmp_path: Path) -> None:
    """They are read once."""
    notes = tmp_path / "notes.txt"
    notes.write_text("Bolts.")
    result = log.run(
        "Go.", tools=(each for each in [_named]), attachments=(each for each in [notes]), **values(**_way())
    )
    assert (result.stopped, len(result.turns)) == ("done", 3)


@pytest.mark.parametrize("name", ["on_event", "on_delta"])
@pytest.mark.parametrize("runs", [_run, _run_events])
def test_what_a_plain_function_returns_is_not_left_to_nobody(
    log: TurnLog, name: str, runs: Callable[..., object]
) -> None:
    """One that hands on to an async one does nothing: nobody awaits that."""
    way = {"model": MODEL, "adapter": Scripted(say("Yes.")), "connection": HERE}
    with pytest.raises(RunError, match=f"{name} returned 'coroutine', which nobody awaits: give a plain function"):
        runs(log, **values(**way, **{name: lambda told: awaited(told)}))  # noqa: PLW0108 - it is no async one itself


def test_a_task_that_a_plain_function_starts_is_left_to_run(log: TurnLog) -> None:
    """It needs nobody who awaits it."""
    told: list[object] = []

    async def hand_on(event: object) -> None:
        await asyncio.sleep(0)
        told.append(event)

    def tell(event: object) -> object:
        return asyncio.create_task(hand_on(event))

    async def go() -> None:
        way = {"model": MODEL, "adapter": Scripted(say("Yes.")), "connection": HERE}
        result = await AsyncTurnLog(log).run("Go.", **values(**way, on_event=tell))
        await asyncio.sleep(0.01)
        assert result.stopped == "done"

    asyncio.run(go())
    assert told
