"""Recorded model calls: exact requests, raw replies, and both again from the log."""

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.wires.server import WireServer, stream, whole

from turnlog import CorruptionError, HeadConflictError, TurnLog, UnknownCallError, UnknownTurnError
from turnlog.model import CallError, Tool
from turnlog.providers import Connection, PreparedRequest, get, get_as
from turnlog.providers.replay import Replay

ANTHROPIC = get("anthropic")
TOOL = Tool(name="fs___read", description="Read a file.")


def events(text: str) -> list[bytes]:
    """Return a streamed reply of Anthropic's Messages that says a text."""
    return [
        msgspec.json.encode(event)
        for event in (
            {
                "type": "message_start",
                "message": {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": "m-1",
                    "content": [],
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": {"input_tokens": 3, "output_tokens": 1},
                },
            },
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        )
    ]


def prepare(log: TurnLog, headish: str, *, tools: tuple[Tool, ...] = (), model: str = "m-1") -> PreparedRequest:
    """Prepare the request of a turn."""
    return ANTHROPIC.prepare_request(log.context(headish), tools, model=model)


def exchange(log: TurnLog, number: int, *, tools: tuple[Tool, ...] = ()) -> str:
    """Record a question, a call and its reply on the bookmark `main`; return the call's id."""
    known = any(bookmark.name == "main" for bookmark in log.bookmarks())
    turn = log.add_turn(f"Question {number}? " + "x" * 200, continues="main" if known else None, bookmark="main")
    call = log.calls.record(turn.id, prepare(log, turn.id, tools=tools), tools=tools)
    raw = events(f"Answer {number}. " + "y" * 200)
    log.calls.record_reply(call, raw, ANTHROPIC.aggregate(raw))
    return call


def test_call_and_reply_are_recorded_with_the_turn_that_came_of_them(log: TurnLog) -> None:
    """The turn names both events; what was asked and what came is there byte for byte."""
    question = log.add_turn("Hello", bookmark="main")
    request = prepare(log, "main", tools=(TOOL,))
    call = log.calls.record(question.id, request, params={"max_tokens": 9}, tools=[TOOL], servers=["fs"])
    raw = events("Hi")
    turn = log.calls.record_reply(call, raw, ANTHROPIC.aggregate(raw))
    assert log.turn("main") == turn
    assert (turn.continues, turn.meta.call) == ((question.id,), call)
    assert (turn.meta.stop_reason, turn.meta.raw_stop_reason, turn.meta.model) == ("stop", "end_turn", "m-1")
    assert turn.meta.usage is not msgspec.UNSET
    assert turn.meta.usage.total_tokens == 8
    assert log.calls.request(call) == log.calls.request("main") == request.body
    assert log.calls.events("main") == raw
    assert log.calls.tools(call) == (TOOL,)
    found = log.calls.get(turn.id)
    assert (found.id, found.meta.turn, found.meta.parameters, found.meta.adapter) == (
        call,
        question.id,
        {"max_tokens": 9},
        "anthropic",
    )
    assert log.stats().topics == {"gpt.call": 1, "gpt.reply": 1, "gpt.turn": 2, "mcp.tools": 1}
    assert log.verify().clean


def test_requests_of_a_conversation_take_space_in_proportion_to_it(log: TurnLog) -> None:
    """Each request holds all turns before it, and is kept as what is new."""
    calls = [exchange(log, number) for number in range(40)]
    sizes = [len(log.payload(call)) for call in calls]
    assert len(log.calls.request(calls[-1])) > 40 * 400
    assert max(sizes) < 1500
    assert all(log.calls.get(call).meta.base == before for before, call in pairwise(calls))
    assert [one.difference for one in log.calls.check("main")] == [None] * 40


def test_request_is_read_in_another_process_as_it_was_sent(file_log: TurnLog, store_path: Path) -> None:
    """Nothing depends on what is kept in memory: neither reading nor the next call's base."""
    calls = [exchange(file_log, number) for number in range(5)]
    bodies = [file_log.calls.request(call) for call in calls]
    with TurnLog.open(f"sqlite:///{store_path}") as again:
        assert [again.calls.request(call) for call in calls] == bodies
        last = exchange(again, 5)
        assert again.calls.get(last).meta.base == calls[-1]
        assert len(again.payload(last)) < 1500
        assert [one.difference for one in again.calls.check("main")] == [None] * 6


def test_call_to_another_model_starts_anew(log: TurnLog) -> None:
    """And the one after it finds the earlier call of its own model again."""
    first = exchange(log, 1)
    turn = log.add_turn("And you?", continues="main")
    other = log.calls.record(turn.id, prepare(log, turn.id, model="m-2"))
    assert log.calls.get(other).meta.base is msgspec.UNSET
    third = exchange(log, 3)
    assert log.calls.get(third).meta.base == first


def test_equal_listing_is_recorded_once(file_log: TurnLog, store_path: Path) -> None:
    """Also by another process; a changed one is recorded anew."""
    calls = [exchange(file_log, number, tools=(TOOL,)) for number in range(3)]
    other = msgspec.structs.replace(TOOL, description="Read it.")
    with TurnLog.open(f"sqlite:///{store_path}") as again:
        calls.append(exchange(again, 3, tools=(TOOL,)))
        changed = exchange(again, 4, tools=(other,))
        assert len({again.calls.get(call).meta.tools for call in calls}) == 1
        assert again.calls.tools(changed) == (other,)
        assert again.stats().topics["mcp.tools"] == 2


def test_failed_reply_is_a_turn_that_windows_leave_out(log: TurnLog) -> None:
    """What had arrived is kept, with the error and whether to try again."""
    question = log.add_turn("Hello", bookmark="main")
    call = log.calls.record(question.id, prepare(log, "main"))
    raw = events("Hi the")[:3]
    response = ANTHROPIC.aggregate(raw).failed(CallError(message="gone", retryable=True, retry_after_s=2.5))
    turn = log.calls.record_reply(call, raw, response)
    assert (turn.meta.stop_reason, turn.meta.error) == ("error", "gone (retryable after 2.5 s)")
    assert log.payload(turn.id) == b'[{"type":"text","text":"Hi the"}]'
    assert [message.turn for message in log.context("main").messages] == [question.id]
    assert log.calls.events(turn.id) == raw


def test_reply_without_any_event_has_no_payload(log: TurnLog) -> None:
    """A refused connection leaves nothing to keep."""
    question = log.add_turn("Hello", bookmark="main")
    call = log.calls.record(question.id, prepare(log, "main"))
    response = ANTHROPIC.aggregate([]).failed(CallError(message="refused"))
    turn = log.calls.record_reply(call, [], response)
    assert log.calls.events(turn.id) == []
    assert log.verify().clean


def test_reply_onto_a_moved_bookmark_is_refused_as_a_whole(log: TurnLog) -> None:
    """Neither the reply nor the turn is recorded."""
    question = log.add_turn("Hello", bookmark="main")
    call = log.calls.record(question.id, prepare(log, "main"))
    log.add_turn("Wait", continues="main")
    before = log.stats().events
    raw = events("Hi")
    with pytest.raises(HeadConflictError):
        log.calls.record_reply(call, raw, ANTHROPIC.aggregate(raw), bookmark="main", expected_head=question.id)
    assert log.stats().events == before


@pytest.mark.parametrize("read", ["request", "get", "tools"])
def test_unknown_call_is_said_to_be_unknown(log: TurnLog, read: str) -> None:
    """So is a turn that came of no call."""
    turn = log.add_turn("Hello", bookmark="main")
    method: Callable[[str], object] = getattr(log.calls, read)
    with pytest.raises(UnknownCallError, match="did not come of a recorded model call"):
        method(turn.id)
    with pytest.raises(UnknownCallError, match="no recorded model call"):
        method("0" * 25)
    with pytest.raises(UnknownTurnError):
        method("nobody")
    with pytest.raises(UnknownCallError):
        log.calls.events("main")


def test_call_on_an_unknown_turn_records_nothing(log: TurnLog) -> None:
    """Not even its tools."""
    log.add_turn("Hello", bookmark="main")
    with pytest.raises(UnknownTurnError):
        log.calls.record("0" * 25, prepare(log, "main"), tools=[TOOL])
    assert log.stats().events == 1


def test_check_says_where_a_request_differs(log: TurnLog) -> None:
    """Here because it was prepared with a parameter that was not recorded."""
    turn = log.add_turn("Hello", bookmark="main")
    request = ANTHROPIC.prepare_request(log.context("main"), model="m-1", params={"max_tokens": 7})
    call = log.calls.record(turn.id, request)
    log.calls.record_reply(call, events("Hi"), ANTHROPIC.aggregate(events("Hi")))
    [checked] = log.calls.check("main")
    assert checked.difference is not None
    assert checked.difference.startswith("differs at byte ")
    assert (checked.call, checked.turn, checked.size) == (call, turn.id, len(request.body))


def test_damaged_request_is_corruption(file_log: TurnLog, store_path: Path, poke: Callable[..., None]) -> None:
    """The bytes are checked against the hash of the body, whatever they are made of."""
    call = exchange(file_log, 1)
    file_log.close()
    poke(f"UPDATE stored_events SET payload_placement = 1, payload = x'00' WHERE event_id = '{call}'")
    with TurnLog.open(f"sqlite:///{store_path}") as again, pytest.raises(CorruptionError):
        again.calls.request(call)


def test_export_of_a_thread_takes_its_calls_along(log: TurnLog) -> None:
    """With the bases that their requests have parts of, the tools and the replies."""
    exchange(log, 1, tools=(TOOL,))
    fork = log.add_turn("Elsewhere", continues="main", bookmark="fork")
    exchange(log, 2, tools=(TOOL,))
    log.add_turn("Another thread", bookmark="other")
    file = io.BytesIO()
    log.export(file, fork.id)
    with TurnLog.open("memory://") as copy:
        copy.import_turnlog(io.BytesIO(file.getvalue()))
        assert copy.calls.request("main") == log.calls.request("main")
        assert copy.calls.events("main") == log.calls.events("main")
        assert [one.difference for one in copy.calls.check("main")] == [None, None]
        assert copy.verify().clean


def test_server_gets_the_bytes_that_are_recorded(log: TurnLog) -> None:
    """What `request` returns is what went over the wire, and the raw events are what came."""
    raw = events("Hi")
    log.add_turn("Hello … \u2028 é", bookmark="main")
    with WireServer(stream(raw, names=True)) as server:
        request = prepare(log, "main", tools=(TOOL,))
        call = log.calls.record(log.turn("main").id, request, tools=[TOOL])
        reply = ANTHROPIC.call(request, Connection(api_key="k", base_url=server.url))
        log.calls.record_reply(call, reply.events, reply.response)
    assert log.calls.request(call) == server.received[0].body
    assert log.calls.events("main") == raw


def test_replay_answers_from_the_log(log: TurnLog) -> None:
    """The same request gets the recorded reply, errors included, and another one is said to be new."""
    log.add_turn("Hello", bookmark="main")
    connection = Connection(api_key="k", retries_max=0)
    overloaded = whole(b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', status=529)
    with WireServer(stream(events("Hi"), names=True), overloaded) as server:
        reached = msgspec.structs.replace(connection, base_url=server.url)
        replies = []
        for _ in range(2):
            request = prepare(log, "main")
            call = log.calls.record(log.turn("main").id, request)
            reply = ANTHROPIC.call(request, reached)
            log.calls.record_reply(call, reply.events, reply.response, bookmark=None)
            replies.append(reply)
    replay = Replay(ANTHROPIC, log.calls.replies())
    again = [replay.call(prepare(log, "main"), connection) for _ in range(3)]
    assert again == [replies[0], replies[1], replies[1]]
    assert again[1].response.error is not None
    assert again[1].response.error.status == 529
    log.add_turn("Something else", bookmark="other")
    new = replay.call(prepare(log, "other"), connection)
    assert new.response.error is not None
    assert "no recorded reply to this request" in new.response.error.message


def test_stop_reason_is_told_in_the_words_of_others(log: TurnLog) -> None:
    """Of recorded calls and of imported turns, which keep the source's spelling."""
    exchange(log, 1)
    assert log.turn("main").stop_reason_as("messages") == "end_turn"
    imported = log.add_turn("x", role="assistant", stop_reason="max_tokens")
    assert [imported.stop_reason_as(one) for one in ("turnlog", "messages", "canonical")] == [
        "length",
        "max_tokens",
        "length",
    ]
    assert log.add_turn("x", role="assistant", stop_reason="nonesuch").stop_reason_as("turnlog") is None
    assert log.add_turn("x").stop_reason_as("turnlog") is None


def test_parameters_keep_their_order(log: TurnLog) -> None:
    """A schema's properties are written by the model in their order, so that a request has them in it."""
    schema = {"type": "object", "properties": {"reason": {"type": "string"}, "answer": {"type": "string"}}}
    params = {"top_k": 3, "output_format": {"type": "json_schema", "schema": schema}, "max_tokens": 5}
    turn = log.add_turn("Hello", bookmark="main")
    request = ANTHROPIC.prepare_request(log.context("main"), model="m-1", params=params)
    call = log.calls.record(turn.id, request, params=params)
    log.calls.record_reply(call, events("Hi"), ANTHROPIC.aggregate(events("Hi")))
    assert [one.difference for one in log.calls.check("main")] == [None]
    assert list(log.calls.get(call).meta.parameters) == list(params)


def test_call_to_an_endpoint_of_ones_own_is_checked_as_such(log: TurnLog) -> None:
    """Whose thinking a block is depends on the provider's name."""
    adapter = get_as("anthropic", "local")
    turn = log.add_turn("Hello", bookmark="main")
    request = adapter.prepare_request(log.context("main"), model="m-1")
    call = log.calls.record(turn.id, request)
    thought = events("")
    thought[1:4] = [
        b'{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}',
        b'{"type":"content_block_stop","index":0}',
        b'{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}',
        b'{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}',
        b'{"type":"content_block_stop","index":1}',
    ]
    log.calls.record_reply(call, thought, adapter.aggregate(thought))
    turn = log.add_turn("And?", continues="main")
    request = adapter.prepare_request(log.context("main"), model="m-1")
    assert b"c2ln" in request.body
    call = log.calls.record(turn.id, request)
    log.calls.record_reply(call, events("Hi"), adapter.aggregate(events("Hi")))
    assert [one.difference for one in log.calls.check("main")] == [None, None]
