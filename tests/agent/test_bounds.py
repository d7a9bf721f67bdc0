"""Runs whose tools return more than a model is to be sent."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.agent.running import results, run
from tests.agent.scripted import Scripted, call, say

from turnlog import RunError, TurnLog
from turnlog.agent.bounds import READ_RESULT
from turnlog.agent.read_on import ReadResults
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import ContextWindow, Document, Message, Source

TEXT = "".join(f"line {number}\n" for number in range(30_000))


def read_log() -> str:
    """Return more than a model is to be sent."""
    return TEXT


def offered(log: TurnLog, calls: Sequence[str]) -> list[list[str]]:
    """Return the names of the tools of calls."""
    return [[tool.name for tool in log.calls.tools(each)] for each in calls]


def last_result(log: TurnLog, call_id: str) -> str:
    """Return the text of the last result in the request of a call."""
    messages = msgspec.json.decode(log.calls.request(call_id))["messages"]
    blocks = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    return blocks[-1]["content"][0]["text"]


def began(log: TurnLog, **settings: Any) -> str:
    """Run a tool with a long result; return the place of that as `read_result` wants it."""
    run(log, Scripted(call(("read_log", {})), say("It is long.")), bookmark="main", tools=read_log, **settings)
    return next(f"{m.turn}.0" for m in log.context("main").messages if b'"tool_result"' in m.content_json)


def test_a_long_result_is_cut_for_the_model_and_whole_in_the_log(log: TurnLog) -> None:
    """The call keeps how its window differs from that of its turn, so that it can be made again."""
    place = began(log)
    [first, second] = [each.id for each in log.calls.of("main")]
    assert log.calls.get(first).window_change is None
    sent = last_result(log, second)
    kept, _, told = sent.partition("\n\n[")
    assert TEXT.startswith(kept)
    assert len(kept.encode()) == 100_000
    assert told == (
        f"Cut here: this is the first 100,000 of {len(TEXT):,} bytes."
        f' To read on, call read_result with "result": "{place}" and "offset": 100000.]'
    )
    assert results(log, "main")[0][1] == TEXT
    assert offered(log, [first, second]) == [["read_log"], ["read_log", READ_RESULT]]
    checks = list(log.calls.check("main", adapter=lambda *_: Scripted()))
    assert [(check.difference, check.reply_difference) for check in checks] == [(None, None)] * 2
    assert not log.verify().damage


def test_the_model_reads_on_without_being_allowed_to(log: TurnLog) -> None:
    """Each part is a tool call like any other, and together they are the result."""
    place = began(log)
    offsets = range(0, len(TEXT), 100_000)
    asked = [call((READ_RESULT, {"result": place, "offset": offset})) for offset in offsets]
    run(log, Scripted(*asked, say("Done.")), "Read it all.", continues="main", approve="never")
    read = [text for m in log.context("main").messages if m.role == "user" for text in _texts(m)][-len(offsets) :]
    assert "".join(text.partition("\n\n[Cut here")[0] for text in read) == TEXT
    [recorded] = log.tool_calls.of(log.context("main").messages[-3].turn)
    assert (recorded.call.name, recorded.attempts[-1].approved) == (READ_RESULT, "allowed")


def _texts(message: Message) -> list[str]:
    content = msgspec.json.decode(message.content_json)
    return [block["content"][0]["text"] for block in content if block["type"] == "tool_result"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"result": "t.0", "offset": 0}, "there is no result 't.0': give one as the notice at a cut names it"),
        ({"result": "x", "offset": 0}, "there is no result 'x': give one as the notice at a cut names it"),
        ({"offset": 0}, "the arguments do not fit 'read_result': Object missing required field `result`"),
    ],
)
def test_what_cannot_be_read_is_an_error_for_the_model(log: TurnLog, given: Any, said: str) -> None:
    """It says what to give."""
    began(log)
    run(log, Scripted(call((READ_RESULT, given)), say("Done.")), "More.", continues="main")
    assert results(log, "main") == [("c1", said, True)]


def test_an_offset_that_is_given_twice_is_an_error_for_the_model() -> None:
    """In the words that functions and MCP servers have for it."""

    async def window() -> ContextWindow:
        raise AssertionError("nothing is read")

    given = msgspec.Raw(b'{"result":"t.0","offset":0,"offset":1}')
    outcome = asyncio.run(ReadResults(window, 100).call(READ_RESULT, given))
    assert outcome == ToolOutcome.error("the arguments have the key 'offset' twice")


@pytest.mark.parametrize("offset", [-1, len(TEXT)])
def test_an_offset_outside_of_the_result_is_an_error_for_the_model(log: TurnLog, offset: int) -> None:
    """It says how long the result is."""
    place = began(log)
    adapter = Scripted(call((READ_RESULT, {"result": place, "offset": offset})), say("Done."))
    run(log, adapter, "More.", continues="main")
    [(_, said, is_error)] = results(log, "main")
    assert (said, is_error) == (f"the result has {len(TEXT):,} bytes: the offset {offset:,} is none of them", True)


def test_without_a_bound_nothing_is_cut(log: TurnLog) -> None:
    """Nor is anything offered to read on."""
    began(log, result_bytes_max=None)
    [first, second] = [each.id for each in log.calls.of("main")]
    assert last_result(log, second) == TEXT
    assert log.calls.get(second).window_change is None
    assert offered(log, [first, second]) == [["read_log"], ["read_log"]]


def test_a_bound_below_one_is_refused(log: TurnLog) -> None:
    """Nothing is recorded."""
    with pytest.raises(RunError, match="result_bytes_max: 0 is less than 1: give None for no limit"):
        run(log, Scripted(), result_bytes_max=0)
    assert log.stats().turns == 0


def test_a_bound_holds_for_the_results_of_earlier_turns(log: TurnLog) -> None:
    """It is of the run, not of the tool call."""
    began(log, result_bytes_max=None)
    result = run(log, Scripted(say("Yes.")), "Still there?", continues="main", result_bytes_max=21)
    assert last_result(log, result.calls[0]).startswith("line 0\nline 1\nline 2\n\n\n[Cut here: this is the first 21 ")
    assert offered(log, result.calls) == [[READ_RESULT]]


def test_a_tool_that_is_not_to_be_offered_is_not(log: TurnLog) -> None:
    """Then the notice does not name it."""
    began(log, offer="read_log")
    call_id = log.calls.of("main")[-1].id
    assert offered(log, [call_id]) == [["read_log"]]
    assert last_result(log, call_id).endswith("The rest is recorded, and cannot be shown here.]")


def test_a_run_that_chooses_among_its_tools_is_offered_no_other(log: TurnLog) -> None:
    """To some providers a choice of tools, or an output, means something else where there are tools."""
    began(log)
    adapter = Scripted(say("Yes."))
    result = run(log, adapter, "Still there?", continues="main", tool_choice="none")
    assert offered(log, result.calls) == [[]]


def test_a_tool_of_the_same_name_wins(log: TurnLog) -> None:
    """It is called as any other."""
    began(log)

    def read_result(page: int) -> str:
        """Read a page."""
        return f"page {page}"

    adapter = Scripted(call((READ_RESULT, {"page": 7})), say("Done."))
    result = run(log, adapter, "More.", continues="main", tools=read_result)
    assert results(log, "main") == [("c1", "page 7", False)]
    assert offered(log, result.calls) == [[READ_RESULT]] * 2
    assert "read_result" not in last_result(log, log.calls.of("main")[-2].id)


def test_a_call_that_was_left_unanswered_is_answered_by_the_next_run(log: TurnLog) -> None:
    """Nobody is asked about it."""
    place = began(log)
    adapter = Scripted(call((READ_RESULT, {"result": place, "offset": len(TEXT) - 3})))
    stopped = run(log, adapter, "More.", continues="main", iterations_max=1, approve="ask")
    assert [left.name for left in stopped.unanswered] == [READ_RESULT]
    assert run(log, Scripted(say("Done.")), None, continues="main", approve="ask").text == "Done."
    assert results(log, "main") == [("c1", TEXT[-3:], False)]


def test_a_window_that_somebody_changes_is_bounded_too(log: TurnLog) -> None:
    """`on_window` sees all of a result; what is not of the thread cannot be read on."""
    seen: list[int] = []

    def doubled(window: ContextWindow) -> ContextWindow:
        seen.append(max(len(message.content_json) for message in window.messages))
        added = Message(turn="", role="user", content_json=window.messages[2].content_json)
        called = Message(turn="", role="assistant", content_json=window.messages[1].content_json)
        return msgspec.structs.replace(window, messages=(called, added, *window.messages))

    began(log)
    result = run(log, Scripted(say("Yes.")), "Well?", continues="main", on_window=doubled)
    assert min(seen) > len(TEXT)
    sent = log.calls.request(result.calls[0])
    assert sent.count(b"[Cut here") == 2
    assert sent.count(b"To read on") == 1
    [check] = list(log.calls.check(result.head.id, adapter=lambda *_: Scripted()))[-1:]
    assert check.difference is None


def test_a_large_image_is_said_to_be_one(log: TurnLog) -> None:
    """There is nothing to read on in it."""

    def shoot() -> Any:
        """Return a picture."""
        return [Document(source=Source(media_type="image/png", data=b64encode(bytes(300_000)).decode()))]

    run(log, Scripted(call(("shoot", {})), say("Done.")), bookmark="main", tools=shoot, result_bytes_max=5000)
    second = log.calls.of("main")[-1].id
    assert last_result(log, second) == (
        "[a document of type image/png, 300,000 bytes, that is recorded and left out here: more than 250,000 bytes]"
    )
    assert offered(log, [second]) == [["shoot"]]
