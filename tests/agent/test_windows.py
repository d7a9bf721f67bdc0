"""Runs that show the model another window than that of the turn, or only some of the tools."""

import json

import msgspec
import pytest
from msgspec import Raw
from tests.agent.running import results, run
from tests.agent.scripted import Scripted, call, say

from turnlog import ContentError, ErasedError, RunError, TurnLog
from turnlog.model import ContextWindow, Message

TOLD = b'[{"type":"text","text":"Answer in verse."}]'


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def take(a: int, b: int) -> int:
    """Take one number from another."""
    return a - b


def told(window: ContextWindow) -> ContextWindow:
    """Return the window with a system message in front."""
    system = Message(turn="", role="system", content_json=TOLD)
    return msgspec.structs.replace(window, messages=(system, *window.messages))


async def last_two(window: ContextWindow) -> ContextWindow:
    """Return the window without all but its last two messages."""
    return msgspec.structs.replace(window, messages=window.messages[-2:])


def test_model_is_asked_with_what_on_window_returns(log: TurnLog) -> None:
    """Each call of the run has it, the turns of the log do not, and each request can be made again."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("It is 3."))
    result = run(log, adapter, "1 + 2?", bookmark="main", tools=add, on_window=told)
    for each in result.calls:
        body = msgspec.json.decode(log.calls.request(each))
        assert [message["role"] for message in body["messages"]][:2] == ["system", "user"]
        change = log.calls.get(each).window_change
        assert change is not None
        assert (change.at, change.removed) == (0, 0)
        assert [(added.role, added.content) for added in change.added] == [("system", Raw(TOLD))]
    assert [message.role for message in log.context("main").messages] == ["user", "assistant", "user", "assistant"]
    checks = list(log.calls.check("main", adapter=lambda *_: Scripted()))
    assert [(check.difference, check.reply_difference) for check in checks] == [(None, None)] * 2
    assert not log.verify().damage


def test_a_window_that_leaves_nothing_to_ask_names_on_window(log: TurnLog) -> None:
    """As one that has results alone, whose calls it leaves out."""

    def last(window: ContextWindow) -> ContextWindow:
        return msgspec.structs.replace(window, messages=window.messages[-1:])

    with pytest.raises(RunError, match=r"the window that on_window returned has no message .*: keep what is asked"):
        run(log, Scripted(call(("add", {"a": 1, "b": 2}))), "1 + 2?", tools=add, on_window=last)


def test_on_window_may_be_a_coroutine_function_and_leave_messages_out(log: TurnLog) -> None:
    """The call says which messages of the window it does not show."""
    for number in range(3):
        run(log, Scripted(say(f"Yes, {number}.")), f"Is it {number}?", bookmark="main", respond=number > 0)
    result = run(log, Scripted(say("No.")), "Is it 3?", continues="main", on_window=last_two)
    body = msgspec.json.decode(log.calls.request(result.calls[0]))
    assert [message["role"] for message in body["messages"]] == ["assistant", "user"]
    change = log.calls.get(result.calls[0]).window_change
    assert change is not None
    assert (change.at, change.removed, change.added) == (0, 5, ())
    assert json.loads(json.dumps(log.calls.get(result.calls[0]).to_record()))["window_change"] == {"removed": 5}
    assert [check.difference for check in log.calls.check(result.head.id, adapter=lambda *_: Scripted())] == [None] * 4


def test_a_window_that_is_returned_as_it_is_leaves_no_trace(log: TurnLog) -> None:
    """A call whose window is that of its turn says nothing of it."""
    result = run(log, Scripted(say("Yes.")), on_window=lambda window: window)
    assert log.calls.get(result.calls[0]).window_change is None
    assert "window_change" not in log.calls.get(result.calls[0]).to_record()


def test_what_is_no_window_is_refused_before_anything_is_sent(log: TurnLog) -> None:
    """The error names the message, and no call is recorded."""

    def broken(window: ContextWindow) -> ContextWindow:
        return msgspec.structs.replace(window, messages=(Message(turn="", role="robot", content_json=TOLD),))

    adapter = Scripted(say("Yes."))
    with pytest.raises(ContentError, match=r"messages\[0\]\.role: 'robot' is unknown"):
        run(log, adapter, on_window=broken)
    assert not list(log.events(topics="gpt.call"))


def test_changed_windows_share_the_bytes_of_the_request_before(log: TurnLog) -> None:
    """A second call of a run keeps only what is new: not the window's change once more."""
    long = Message(turn="", role="system", content_json=b'[{"type":"text","text":"' + b"Be kind. " * 4000 + b'"}]')
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("It is 3."))
    result = run(
        log,
        adapter,
        tools=add,
        on_window=lambda window: msgspec.structs.replace(window, messages=(long, *window.messages)),
    )
    first, second = (len(log.payload(each)) for each in result.calls)
    assert first > 72_000
    assert second < 2_000
    assert not log.verify().damage


def test_erasing_the_turn_erases_what_its_window_was_changed_to(log: TurnLog) -> None:
    """What a model was told in place of a turn goes with the call."""
    result = run(log, Scripted(say("Yes.")), "Ask.", on_window=told)
    assert b"Answer in verse." in log.payload(result.calls[0])
    log.erase(turn=result.turns[0].id, reason="asked")
    with pytest.raises(ErasedError):
        log.payload(result.calls[0])
    assert not log.verify().damage


def test_only_tools_that_are_offered_can_be_called(log: TurnLog) -> None:
    """The model sees the others neither in the listing nor by guessing their names."""
    adapter = Scripted(call(("take", {"a": 3, "b": 2}), ("add", {"a": 1, "b": 2})), say("Done."))
    result = run(log, adapter, tools=[add, take], offer="a*")
    assert [tool.name for tool in log.calls.tools(result.calls[0])] == ["add"]
    assert [(text, error) for _, text, error in results(log, result.turns[2].id)] == [
        ("there is no tool 'take' (one of add)", True),
        ("3", False),
    ]


def test_no_pattern_offers_no_tool(log: TurnLog) -> None:
    """An empty list is not the same as none given."""
    result = run(log, Scripted(say("Done.")), tools=[add, take], offer=())
    assert log.calls.tools(result.calls[0]) == ()
