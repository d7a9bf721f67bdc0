"""Recorded model calls: exact requests, raw replies, and both again from the log."""

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.faults import hostile
from tests.rewriting import erase, position, rewrite
from tests.wires.server import WireServer, stream, whole

from turnlog import CorruptionError, HeadConflictError, TurnLog, UnknownCallError, UnknownTurnError, UnreadableCall
from turnlog.digest import payload_hash
from turnlog.errors import ContentError, ErasedError, ErasedSinceError, FormatError
from turnlog.ids import new_id
from turnlog.model import CallError, LossEntry, LossReport, ReplyFacts, Tool
from turnlog.model.calls import ReplyMeta
from turnlog.model.tools import TOOLS_MAX
from turnlog.projections import synchronous
from turnlog.providers import Connection, OnLoss, PreparedRequest, get, get_as
from turnlog.providers.replay import Replay
from turnlog.record.calls import CallDraft, plan_call, reply_flaw, reply_payload
from turnlog.record.requests import request_payload
from turnlog.sources import Sources
from turnlog.store import open_store

ANTHROPIC = get("anthropic")
TOOL = Tool(name="fs___read", description="Read a file.")
LOSS = LossEntry(kind="dropped", turn="", block="parameter", why="gone")


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


def test_a_damaged_call_is_among_all_calls(log: TurnLog) -> None:
    """It says why it cannot be read, and keeps none of the others from being listed."""
    turn = log.add_turn("Hi.", bookmark="main")
    sound = [log.calls.record("main", prepare(log, "main"))]
    meta = msgspec.structs.replace(log.calls.get(sound[0]).meta, params="null", base=None)
    payload, _ = request_payload([log.calls.request(sound[0])], b"")
    kept = log.store.place(payload)
    draft = CallDraft(meta=meta, payload=kept, id=new_id(), listing=None, listing_payload=None)
    damaged = log.store.write(lambda transaction: plan_call(transaction, draft, Sources())).header.id
    sound.append(log.calls.record("main", prepare(log, "main")))
    first, why, last = log.calls.all()
    assert [first.id, last.id] == sound
    assert isinstance(why, UnreadableCall)
    assert (why.id, why.turn) == (damaged, turn.id)
    assert why.unreadable.startswith(f"the parameters of call {damaged!r} cannot be read")
    with pytest.raises(CorruptionError):
        log.calls.get(damaged)


def prepare(
    log: TurnLog,
    headish: str,
    *,
    tools: tuple[Tool, ...] = (),
    model: str = "m-1",
    params: Mapping[str, object] | None = None,
) -> PreparedRequest:
    """Prepare the request of a turn."""
    return ANTHROPIC.prepare_request(log.context(headish), tools, model=model, params=params)


def exchange(log: TurnLog, number: int, *, tools: tuple[Tool, ...] = ()) -> str:
    """Record a question, a call and its reply on the bookmark `main`; return the call's id."""
    known = any(bookmark.name == "main" for bookmark in log.bookmarks.all())
    turn = log.add_turn(f"Question {number}? " + "x" * 200, continues="main" if known else None, bookmark="main")
    call = log.calls.record(turn.id, prepare(log, turn.id, tools=tools))
    raw = events(f"Answer {number}. " + "y" * 200)
    log.calls.record_reply(call, raw, ANTHROPIC.aggregate(raw))
    return call


def many_tools(count: int) -> tuple[Tool, ...]:
    """Return as many tools."""
    return tuple(Tool(name=f"t{number}") for number in range(count))


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        (many_tools(TOOLS_MAX + 1), "10,001 tools cannot be offered, 10,000 can"),
        ((TOOL, TOOL), "two tools are called 'fs___read'"),
        ((Tool(name="t", annotations=Raw(b"")),), r"tools\[0\].annotations: not valid JSON"),
        ((Tool(name="t", input_schema=Raw(b'{},"name":"u"')),), r"tools\[0\].input_schema: not valid JSON"),
    ],
)
def test_tools_that_a_log_cannot_list_are_refused(log: TurnLog, tools: tuple[Tool, ...], why: str) -> None:
    """Nothing is recorded: `verify` would call the log damaged."""
    turn = log.add_turn("What now?")
    request = replace(prepare(log, turn.id), tools=tools)
    with pytest.raises(ContentError, match=why):
        log.calls.record(turn.id, request)
    assert log.calls.all() == []
    assert log.verify().clean


def test_as_many_tools_as_a_log_can_list_are_recorded(log: TurnLog) -> None:
    """And are read again."""
    call = exchange(log, 1, tools=many_tools(TOOLS_MAX))
    assert log.calls.tools(call) == many_tools(TOOLS_MAX)
    assert log.verify().clean


def test_an_export_that_lists_too_many_tools_is_refused(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it comes in."""
    exchange(log, 1, tools=many_tools(3))
    file = io.BytesIO()
    log.export(file)
    monkeypatch.setattr("turnlog.record.contents.TOOLS_MAX", 2)
    with TurnLog.open("memory://") as other:
        file.seek(0)
        with pytest.raises(FormatError, match="it lists 3 tools: more than anybody can offer"):
            other.import_turnlog(file)
        assert other.stats().events == 0


def test_call_and_reply_are_recorded_with_the_turn_that_came_of_them(log: TurnLog) -> None:
    """The turn names both events; what was asked and what came is there byte for byte."""
    question = log.add_turn("Hello", bookmark="main")
    request = prepare(log, "main", tools=(TOOL,), params={"max_tokens": 9})
    call = log.calls.record(question.id, request, servers=["fs"])
    raw = events("Hi")
    turn = log.calls.record_reply(call, raw, ANTHROPIC.aggregate(raw))
    assert log.turn("main") == turn
    assert (turn.continues, turn.meta.call) == ((question.id,), call)
    assert (turn.meta.stop_reason, turn.meta.raw_stop_reason, turn.meta.model) == ("stop", "end_turn", "m-1")
    assert turn.meta.usage is not None
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
    assert log.stats().topics == {
        "gpt.call": 1,
        "gpt.reply": 1,
        "gpt.turn": 2,
        "log.genesis": 1,
        "mcp.tools": 1,
    }
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
    assert log.calls.get(other).meta.base is None
    third = exchange(log, 3)
    assert log.calls.get(third).meta.base == first
    # Of the second one no reply came: it is among all calls, and not among those that the ancestry came of.
    assert log.calls.all() == [log.calls.get(call) for call in (first, other, third)]
    assert [call.id for call in log.calls.of("main")] == [first, third]


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


@pytest.mark.parametrize("raw", [[b"\x1e"], [b'{"a":"\x1e"}', b""], [b"", b"\n\x1e\n", b"\x1e\x1e"]])
def test_what_parts_raw_events_may_stand_in_one(log: TurnLog, raw: list[bytes]) -> None:
    """What came is kept as it came: no JSON has such a byte in it, and a broken server may send it."""
    question = log.add_turn("Hello", bookmark="main")
    call = log.calls.record(question.id, prepare(log, "main"))
    turn = log.calls.record_reply(call, raw, ANTHROPIC.aggregate([]).failed(CallError(message="broken")))
    assert log.calls.events(turn.id) == raw
    assert [reply.events for replies in log.calls.replies().values() for reply in replies] == [tuple(raw)]
    assert log.verify().clean
    file = io.BytesIO()
    log.export(file)
    with TurnLog.open("memory://") as copy:
        copy.import_turnlog(io.BytesIO(file.getvalue()))
        assert copy.calls.events(turn.id) == raw
        assert copy.verify().clean


@pytest.mark.parametrize("sizes", [(1,), (1, 2), (3,), (2, -1), (), (1, 1, 0)])
def test_sizes_of_raw_events_are_those_of_the_payload(sizes: tuple[int, ...]) -> None:
    """Wrong ones are told, and read nothing that is not there."""
    meta = ReplyMeta(call="c", events=2, sizes=(1, 1))
    payload = reply_payload([b"\x1e", b"x"])
    assert reply_flaw(payload, meta) is None
    assert reply_flaw(payload, replace(meta, sizes=sizes)) is not None
    assert reply_flaw(payload, replace(meta, sizes=None)) is not None
    assert reply_flaw(payload[:-1], meta) is not None


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
        log.calls.record("0" * 25, prepare(log, "main", tools=(TOOL,)))
    assert log.stats().topics == {"gpt.turn": 1, "log.genesis": 1}


def test_check_says_where_a_request_differs(log: TurnLog) -> None:
    """Here because it was prepared with a parameter that is not recorded with it."""
    turn = log.add_turn("Hello", bookmark="main")
    request = msgspec.structs.replace(prepare(log, "main", params={"max_tokens": 7}), params={})
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
        call = log.calls.record(log.turn("main").id, request)
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
            log.calls.record_reply(call, reply.events, reply.response, bookmark=False)
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
    imported = log.add_turn("x", role="assistant", reply=ReplyFacts(stop_reason="max_tokens"))
    assert [imported.stop_reason_as(one) for one in ("turnlog", "messages", "canonical")] == [
        "length",
        "max_tokens",
        "length",
    ]
    assert (
        log.add_turn("x", role="assistant", reply=ReplyFacts(stop_reason="nonesuch")).stop_reason_as("turnlog") is None
    )
    assert log.add_turn("x").stop_reason_as("turnlog") is None


def test_parameters_keep_their_order(log: TurnLog) -> None:
    """A schema's properties are written by the model in their order, so that a request has them in it."""
    schema = {"type": "object", "properties": {"reason": {"type": "string"}, "answer": {"type": "string"}}}
    params = {"top_k": 3, "output_format": {"type": "json_schema", "schema": schema}, "max_tokens": 5}
    turn = log.add_turn("Hello", bookmark="main")
    request = ANTHROPIC.prepare_request(log.context("main"), model="m-1", params=params)
    call = log.calls.record(turn.id, request)
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


# What is committed

Tell = Callable[[PreparedRequest], PreparedRequest]


def tell(
    change: Tell = lambda request: request,
    *,
    raw: Sequence[bytes] = (),
    params: Mapping[str, object] | None = None,
    on_loss: OnLoss | None = None,
    tools: Sequence[Tool] = (TOOL,),
) -> tuple[str, str]:
    """Record an exchange in a log whose ids, times and salts are given; return the hash and the digest of its turn."""
    ids, salts = itertools.count(), itertools.count()
    sources = Sources(
        new_id=lambda: f"{next(ids):025d}",
        time_ms=lambda: 1_700_000_000_000,
        salt=lambda: next(salts).to_bytes(16, "big"),
    )
    said = events("Hi")
    with TurnLog(open_store("memory://", projections=synchronous()), sources=sources) as log:
        turn = log.add_turn("Hello", bookmark="main")
        asked = {"tools": tuple(tools), "params": params or {}, "on_loss": on_loss}
        request = change(msgspec.structs.replace(prepare(log, "main", tools=(TOOL,)), **asked))
        call = log.calls.record(turn.id, request)
        answer = log.calls.record_reply(call, raw or said, ANTHROPIC.aggregate(said))
        return answer.hash, answer.digest


def test_same_exchange_has_the_same_digest() -> None:
    """Nothing goes into a digest but what is recorded and what the log's sources give."""
    assert tell() == tell()


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(lambda: tell(lambda request: replace(request, closing=request.closing + b" ")), id="request"),
        pytest.param(
            lambda: tell(lambda request: replace(request, loss_report=LossReport(entries=(LOSS,)))), id="loss report"
        ),
        pytest.param(lambda: tell(lambda request: replace(request, version="another")), id="adapter's version"),
        pytest.param(lambda: tell(params={"max_tokens": 3}), id="parameters"),
        pytest.param(lambda: tell(on_loss="error"), id="on_loss"),
        pytest.param(lambda: tell(tools=(replace(TOOL, description="Read it."),)), id="tools"),
        pytest.param(lambda: tell(raw=[*events("Hi"), b'{"type":"ping"}']), id="raw events"),
        pytest.param(lambda: tell(raw=[events("Hi")[0] + b" ", *events("Hi")[1:]]), id="raw bytes"),
    ],
)
def test_digest_of_a_reply_commits_to_all_evidence_behind_it(again: Callable[[], tuple[str, str]]) -> None:
    """The same words that came of another request, another loss report or other events have another digest."""
    said, digest = tell()
    other_said, other_digest = again()
    assert said == other_said
    assert digest != other_digest


def test_turn_cites_its_call_and_its_reply(log: TurnLog) -> None:
    """Each event with the digest that it has: turn, reply, call, what it went on from, its base, its tools."""
    exchange(log, 1, tools=(TOOL,))
    call = exchange(log, 2, tools=(TOOL,))
    cited = {one.relation: log.event(one.id) for one in log.event(log.turn("main").id).header.citations}
    assert [cited["parent"].header.topic, cited["call"].header.id, cited["reply"].header.topic] == [
        "gpt.turn",
        call,
        "gpt.reply",
    ]
    of_call = {one.relation: log.event(one.id).header.topic for one in cited["call"].header.citations}
    assert of_call == {"turn": "gpt.turn", "base": "gpt.call", "tools": "mcp.tools"}
    for event in log.events():
        assert all(one.digest == log.event(one.id).digest for one in event.header.citations)
        assert all(log.event(one.id).global_position < event.global_position for one in event.header.citations)


def test_unknown_call_cannot_be_named(log: TurnLog) -> None:
    """Nothing dangles: a turn that names a call which is not there is refused, and so is one that names a turn."""
    turn = log.add_turn("Hello")
    for call in (new_id(), turn.id):
        with pytest.raises(UnknownCallError, match=r"call: there is no gpt\.call event") as caught:
            log.add_turn("Hi", role="assistant", continues=turn.id, call=call)
        assert caught.value.call == call
    assert log.stats().events == 2


# The base of a request


def test_base_is_of_the_same_thread(log: TurnLog) -> None:
    """A call that went on from a turn of another thread is no base, though a turn of this one came of it."""
    elsewhere = log.add_turn("Question? " + "x" * 200, bookmark="elsewhere")
    call = log.calls.record(elsewhere.id, prepare(log, "elsewhere"))
    here = log.add_turn("Question? " + "x" * 200, bookmark="here")
    raw = events("Answer.")
    log.calls.record_reply(call, raw, ANTHROPIC.aggregate(raw), continues=here.id)
    again = log.calls.record(here.id, prepare(log, "here"))
    assert log.calls.get(again).meta.base is None
    third = log.add_turn("And?", continues="here")
    assert log.calls.get(log.calls.record(third.id, prepare(log, "here"))).meta.base is None


def test_call_names_the_turn_that_a_bookmark_was_at(log: TurnLog) -> None:
    """A call that was recorded by a bookmark's name cites the turn itself."""
    turn = log.add_turn("Hello", bookmark="main")
    call = log.calls.record("main", prepare(log, "main"))
    assert log.calls.get(call).meta.turn == turn.id


# Whether all is as it was


def test_changed_reply_is_told_from_a_changed_request(log: TurnLog) -> None:
    """Raw events that do not add up to the turn are a difference of the reply, and not of the request."""
    turn = log.add_turn("Hello", bookmark="main")
    call = log.calls.record(turn.id, prepare(log, "main"))
    log.calls.record_reply(call, events("Bye"), ANTHROPIC.aggregate(events("Hi")))
    [checked] = log.calls.check("main")
    assert checked.difference is None
    assert checked.reply_difference is not None
    assert checked.reply_difference.startswith("differs at byte ")
    assert "adapter" not in checked.reply_difference
    assert checked.by_version == ()


def test_changed_adapter_is_told_by_its_version(log: TurnLog) -> None:
    """Where the adapter is another than it was, a difference says so."""
    turn = log.add_turn("Hello", bookmark="main")
    request = replace(prepare(log, "main"), version="0", closing=b"}")
    call = log.calls.record(turn.id, request)
    log.calls.record_reply(call, events("Bye"), ANTHROPIC.aggregate(events("Hi")))
    [checked] = log.calls.check("main")
    for difference in (checked.difference, checked.reply_difference):
        assert difference is not None
        assert difference.endswith(f"; adapter anthropic was of version 0, is {ANTHROPIC.version}")
    assert checked.by_version == ("request", "reply")


def test_other_stop_reason_is_a_difference(log: TurnLog) -> None:
    """The words may be equal, and the outcome another."""
    turn = log.add_turn("Hello", bookmark="main")
    call = log.calls.record(turn.id, prepare(log, "main"))
    raw = events("Hi")
    log.calls.record_reply(call, raw, replace(ANTHROPIC.aggregate(raw), stop_reason="length"))
    [checked] = log.calls.check("main")
    assert checked.difference is None
    assert checked.reply_difference == "the turn says stop_reason length, the reply adds up to stop"


def test_reply_without_raw_events_has_nothing_to_differ(log: TurnLog) -> None:
    """A turn whose call was refused is not asked for its events."""
    turn = log.add_turn("Hello", bookmark="main")
    call = log.calls.record(turn.id, prepare(log, "main"))
    log.calls.record_reply(call, [], ANTHROPIC.aggregate([]).failed(CallError(message="refused")))
    [checked] = log.calls.check("main")
    assert (checked.difference, checked.reply_difference) == (None, None)


# Edited where nobody looked

TEXT = b'[{"type":"text","text":"Forged"}]'
TURN_EDITS: dict[str, tuple[int, dict[str, Any]]] = {
    "role": (0, {"header": lambda head: head["meta"].update(role="system")}),
    "text": (0, {"payload": TEXT}),
    "options": (0, {"private": lambda part: part["meta"].update(inherited={"servers": ["evil"]})}),
    "reply": (1, {"payload": TEXT}),
    "stop reason": (1, {"header": lambda head: head["meta"].update(stop_reason="error")}),
    "citation": (2, {"header": lambda head: head["citations"].pop()}),
    "time": (2, {"header": lambda head: head.update(time=1)}),
}


@pytest.mark.parametrize(("turn", "edit"), TURN_EDITS.values(), ids=TURN_EDITS)
@pytest.mark.parametrize("read", ["context", "ancestry", "check"])
def test_edited_turn_is_refused_where_it_is_used(
    file_log: TurnLog, store_path: Path, turn: int, edit: dict[str, Any], read: str
) -> None:
    """Also where header, digest, private part and payload fit each other: what cites the turn knows its digest."""
    for number in range(2):
        exchange(file_log, number)
    edited = file_log.ancestry("main")[turn].id
    file_log.close()
    rewrite(store_path, edited, **edit)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        uses: dict[str, Callable[[], object]] = {
            "context": lambda: log.context("main"),
            "ancestry": lambda: log.ancestry("main"),
            "check": lambda: list(log.calls.check("main")),
        }
        with pytest.raises(CorruptionError, match="run `turnlog verify`"):
            uses[read]()


def forge(part: dict[str, Any]) -> None:
    """Let a call's private part say that its request is `FORGED`."""
    part["meta"]["request"] = {"hash": payload_hash(FORGED), "size": len(FORGED)}


FORGED = b'{"model":"m-1","messages":[]}'
CALL_EDITS: dict[str, tuple[str, dict[str, Any], str]] = {
    "request": ("call", {"payload": request_payload([FORGED], b"")[0], "private": forge}, "request"),
    "request of its base": ("base", {"payload": request_payload([FORGED], b"")[0], "private": forge}, "request"),
    "parameters": ("call", {"private": lambda part: part["meta"].update(params='{"max_tokens":1}')}, "get"),
    "model": ("call", {"header": lambda head: head["meta"].update(model="m-2")}, "get"),
    "raw events": ("reply", {"payload": b"\x1e{}\n"}, "events"),
    "tools": ("tools", {"payload": b"[]"}, "tools"),
    "raw events, checked": ("reply", {"payload": b"\x1e{}\n"}, "check"),
    "tools, checked": ("tools", {"payload": b"[]"}, "check"),
}


@pytest.mark.parametrize(("which", "edit", "read"), CALL_EDITS.values(), ids=CALL_EDITS)
def test_edited_call_is_refused_where_it_is_used(
    file_log: TurnLog, store_path: Path, which: str, edit: dict[str, Any], read: str
) -> None:
    """Who asks by the turn gets no other request, reply or tools than those that the turn came of."""
    exchange(file_log, 1, tools=(TOOL,))
    call = file_log.event(exchange(file_log, 2, tools=(TOOL,)))
    ids = {one.relation: one.id for one in (*file_log.event(file_log.turn("main").id).header.citations,)}
    ids |= {one.relation: one.id for one in call.header.citations}
    file_log.close()
    rewrite(store_path, ids[which], **edit)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        uses: dict[str, Callable[[], object]] = {
            "request": lambda: log.calls.request("main"),
            "get": lambda: log.calls.get("main"),
            "events": lambda: log.calls.events("main"),
            "tools": lambda: log.calls.tools("main"),
        }
        if read in uses:
            with pytest.raises(CorruptionError, match="run `turnlog verify`"):
                uses[read]()
            return
        *_, last = log.calls.check("main")
        assert "run `turnlog verify`" in f"{last.difference}{last.reply_difference}"


def test_erased_reply_and_request_are_said_to_be_erased(file_log: TurnLog, store_path: Path) -> None:
    """What was erased can neither be read nor checked, and what is left can."""
    first, second = exchange(file_log, 1, tools=(TOOL,)), exchange(file_log, 2, tools=(TOOL,))
    answer = file_log.turn("main")
    reply = file_log.event(answer.id).header.cited("reply")
    tools = file_log.event(second).header.cited("tools")
    file_log.close()
    for event_id in (reply, first, tools):
        erase(store_path, str(event_id))
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        for read in (log.calls.request, log.calls.get):
            with pytest.raises(ErasedError) as caught:
                read(first)
            assert caught.value.event_id == first
        with pytest.raises(ErasedError) as caught:
            log.calls.tools("main")
        assert caught.value.event_id == tools
        with pytest.raises(ErasedError) as caught:
            log.calls.events("main")
        assert caught.value.event_id == reply
        one, two = log.calls.check("main")
        assert (one.difference, one.unreadable, one.size) == (None, f"event {first!r} was erased", 0)
        assert (two.difference, two.reply_difference) == (None, None)
        rests_on = f"call {first!r}, which has parts of the request, was erased"
        assert two.unreadable == rests_on
        with pytest.raises(ErasedError, match="which has parts of the request"):
            log.calls.request(second)
        assert log.calls.replies() == {}
        # What is asked next is not built on what cannot be read.
        third = exchange(log, 3, tools=(TOOL,))
        assert log.event(third).header.cited("base") is None
        assert [check.unreadable for check in log.calls.check("main")] == [one.unreadable, rests_on, None]


FORGED_CALLS: dict[str, Callable[[dict[str, Any]], object]] = {
    "parameters that are no JSON": lambda part: part["meta"].update(params="{"),
    "parameters that are no object": lambda part: part["meta"].update(params="[1]"),
    "parameters without end": lambda part: part["meta"].update(params='{"a":' + "[" * 100_000),
    "a request of 64 GiB": lambda part: part["meta"]["request"].update(size=1 << 36),
    "a loss report that is none": lambda part: part["meta"].update(
        loss={"hash": payload_hash(b"[]"), "size": 2}, request={"hash": payload_hash(b""), "size": 0}
    ),
}


@pytest.mark.parametrize("forge_call", FORGED_CALLS.values(), ids=FORGED_CALLS)
def test_forged_call_is_corruption(
    file_log: TurnLog, store_path: Path, forge_call: Callable[[dict[str, Any]], object]
) -> None:
    """Also where every digest fits, as in somebody's forged export: nothing but an error of turnlog's comes of it."""
    call = exchange(file_log, 1)
    file_log.close()
    payload = request_payload([b"[]"], b"")[0]
    hostile.rewrite(store_path, position(store_path, call), private=forge_call, payload=payload, follow=True)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        with pytest.raises(CorruptionError) as caught:
            log.calls.request("main")
        [checked] = log.calls.check("main")
        assert checked.difference == str(caught.value)
        assert len(log.context("main").messages) == 2


def test_request_whose_window_was_read_before_an_erasure_is_not_recorded(log: TurnLog) -> None:
    """What was erased would be in the log again. An erasure elsewhere changes nothing, nor does one before it."""
    first = log.add_turn("of Ada", bookmark="main")
    second = log.add_turn("and on", continues="main")
    other = log.add_turn("elsewhere")
    fork = log.add_turn("beside", continues=first.id, bookmark=False)
    log.erase(turn=log.add_turn("long gone").id, reason="asked")
    request = prepare(log, "main")
    assert request.erasure == log.context("main").erasure == 7
    log.erase(turn=other.id, reason="asked")
    log.calls.record(second.id, request)
    log.erase(turn=first.id, reason="asked")
    for again in (request, prepare(log, "main")):
        stale = again is request
        before = log.stats().events
        if stale:
            with pytest.raises(ErasedSinceError, match=f"{first.id}.*nothing was recorded"):
                log.calls.record(second.id, again)
        else:
            log.calls.record(second.id, again)
        assert log.stats().events == before + (not stale)
    with pytest.raises(ErasedSinceError):
        log.calls.record(fork.id, request)
    assert not any(b"of Ada" in (log.payload(event.header.id) or b"") for event in log.events() if event.hash)
