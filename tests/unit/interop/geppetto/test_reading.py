"""Turns of a log as Geppetto's turns: recorded again they say the same, or the loss report names them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.facts import with_facts

from turnlog import TurnLog
from turnlog.interop import exports, geppetto
from turnlog.interop.geppetto import BlockKind
from turnlog.model import (
    Document,
    Native,
    ReplyFacts,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    decode_content,
)

TEXTS = st.sampled_from(["", "a", "Two lines\nof it.", "ä", '{"a":1}', "[1]"])
IMAGE = Document(source=Source(media_type="image/png", data="iVBORw=="))
PAGE = Document(source=Source(media_type="application/pdf", data="JVBERi0="))
NATIVE = Native(provider="p", api="messages", model="m", block=Raw(b'{"type":"server_tool_use","x":[1]}'))
NESTED = st.lists(st.builds(Text, text=TEXTS) | st.sampled_from([IMAGE, PAGE, NATIVE]), max_size=3)
TEXT = st.builds(Text, text=TEXTS)
OF_USERS = TEXT | st.sampled_from([IMAGE, PAGE, NATIVE])
RESULT = st.builds(
    ToolResult,
    tool_use_id=st.sampled_from(["c1", "c2"]),
    content=NESTED,
    is_error=st.sampled_from([True, False]),
)
OF_ASSISTANTS = (
    TEXT
    | st.builds(Thinking, thinking=TEXTS, signature=st.sampled_from(["c2ln", "x"]))
    | st.builds(
        ToolUse,
        id=st.sampled_from(["c1", "c2"]),
        name=st.sampled_from(["shell", "read"]),
        input=st.sampled_from([Raw(b"{}"), Raw(b'{"a":[1,2.5,null]}'), Raw(b'{"b":1,"a":"x"}')]),
    )
    | st.sampled_from([NATIVE, PAGE])
)


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """Return what can be said of a turn, as arguments of `add_turn`."""
    role = draw(st.sampled_from(["user", "assistant", "system", "tool"]))
    if role == "assistant":
        content: Any = draw(st.lists(OF_ASSISTANTS, min_size=1, max_size=4))
        return {
            "content": content,
            "role": role,
            "provider": "p",
            "api": "messages",
            "model": "m",
            "stop_reason": "stop",
        }
    if role == "tool":
        return {"content": draw(st.lists(RESULT, min_size=1, max_size=3)), "role": "user"}
    return {"content": draw(st.lists(OF_USERS if role == "user" else TEXT, min_size=1, max_size=3)), "role": role}


def plain(blocks: list[Any], role: str) -> list[tuple[Any, ...]]:
    """Return what blocks say, in one spelling: results as text or blocks, thinking with whose signature it has."""
    said: list[tuple[Any, ...]] = []
    for block in blocks:
        match block:
            case ToolResult():
                nested = [Text(text=block.content)] if isinstance(block.content, str) else list(block.content)
                said.append(("result", block.tool_use_id, nested, block.is_error is True))
            case Thinking():
                said.append(("thinking", block.thinking, block.signature))
            case _:
                said.append((role, block))
    return said


@given(st.lists(turns(), min_size=1, max_size=4))
def test_any_turns_recorded_again_say_the_same(given_turns: list[dict[str, Any]]) -> None:
    """Every text, call, result, reasoning, image, document and native block, in order, for the same speaker.

    What is told is of replies, and that a result is no error.
    """
    with TurnLog.open("memory://") as log, TurnLog.open("memory://") as again:
        head = None
        for said in given_turns:
            head = log.add_turn(**with_facts(said), continues=head).id
        assert head is not None
        snapshot, report = geppetto.turn_of(log, head)
        assert {entry.block for entry in report.entries} <= {
            "provider",
            "api",
            "model",
            "stop_reason",
            "tool_result.is_error",
        }
        other = geppetto.record_turn(again, snapshot).head
        assert other is not None
        before = [
            each for turn in log.ancestry(head) for each in plain(decode_content(log.payload(turn.id)), turn.meta.role)
        ]
        after = [
            each
            for turn in again.ancestry(other)
            for each in plain(decode_content(again.payload(turn.id)), turn.meta.role)
        ]
        assert [_spoken(each) for each in after] == [_spoken(each) for each in before]


def _spoken(said: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what is said without the role of documents and native blocks: those are `other` blocks, of nobody."""
    return said if said[0] in ("result", "thinking") or isinstance(said[1], Text | ToolUse) else said[1:]


def test_the_loss_report_names_what_blocks_have_no_place_for(log: TurnLog) -> None:
    """Failed and erased turns, options, cache marks, names of documents."""
    first = log.add_turn("Hi.", inherited={"a": 1}, cache=True).id
    failed = log.add_turn(
        "", role="assistant", continues=first, reply=ReplyFacts(stop_reason="error", error="broke")
    ).id
    gone = log.add_turn("Secret.", continues=first).id
    last = log.add_turn("Go on.", continues=[failed, gone]).id
    log.erase(turn=gone, reason="asked")
    turn, report = geppetto.turn_of(log, last)
    assert [block.payload for block in turn.blocks] == [{"text": "Hi."}, {"text": "Go on."}]
    assert [(entry.turn, entry.block) for entry in report.entries] == [
        (first, "inherited"),
        (first, "cache"),
        (failed, "error"),
        (failed, "turn"),
        (gone, "turn"),
    ]


def test_the_outcome_is_that_of_the_last_reply(log: TurnLog) -> None:
    """One that says less than the reply before it is not credited with what that one says, which is told."""
    first = log.add_turn(
        "One.",
        role="assistant",
        reply=ReplyFacts(
            provider="anthropic", api="messages", model="m1", stop_reason="length", usage=Usage(input_tokens=7)
        ),
    )
    last = log.add_turn("Two.", role="assistant", continues=first.id, reply=ReplyFacts(model="m2", api="chat"))
    turn, report = geppetto.turn_of(log, last.id)
    assert dict(turn.metadata.range()) == {"geppetto.model@v1": "m2"}
    assert [(entry.kind, entry.turn, entry.block) for entry in report.entries] == [
        ("dropped", first.id, "api"),
        ("dropped", first.id, "provider"),
        ("dropped", first.id, "model"),
        ("dropped", first.id, "stop_reason"),
        ("dropped", first.id, "usage"),
        ("dropped", last.id, "api"),
    ]


def test_the_outcome_is_not_that_of_a_call_that_failed(log: TurnLog) -> None:
    """It is that of the last reply that is in the snapshot."""
    first = log.add_turn("One.", role="assistant", reply=ReplyFacts(model="m1"))
    failed = log.add_turn(
        "", role="assistant", continues=first.id, reply=ReplyFacts(model="m2", stop_reason="error", error="broke")
    )
    turn, report = geppetto.turn_of(log, failed.id)
    assert dict(turn.metadata.range()) == {"geppetto.model@v1": "m1"}
    assert [(entry.turn, entry.block) for entry in report.entries] == [(failed.id, "error"), (failed.id, "turn")]


def test_hints_of_reasoning_have_whose_a_reply_is(log: TurnLog) -> None:
    """So that is not told of an earlier one."""
    reply = ReplyFacts(provider="p", api="messages", model="m", stop_reason="stop")
    first = log.add_turn([Thinking(thinking="Hm.")], role="assistant", reply=reply)
    last = log.add_turn("Two.", role="assistant", continues=first.id, reply=ReplyFacts(model="m"))
    _, report = geppetto.turn_of(log, last.id)
    assert [(entry.turn, entry.block) for entry in report.entries] == [(first.id, "stop_reason")]


def test_what_results_say_beside_their_content_is_told(log: TurnLog) -> None:
    """A name other than that of the call, that it is no error, and further keys of its one text."""
    malformed = {"malformed_arguments": Raw(b'"{"')}  # the payload has it
    call = log.add_turn([ToolUse(id="c1", name="read", input=Raw(b"{}"), extra=malformed)], role="assistant")
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "name": "read", "content": "a"},
        {"type": "tool_result", "tool_use_id": "c1", "name": "other", "content": "b", "is_error": False},
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "c", "cite": 1}]},
    ]
    last = log.add_turn(results, continues=call.id)
    _, report = geppetto.turn_of(log, last.id)
    assert [(entry.kind, entry.block, entry.index) for entry in report.entries] == [
        ("dropped", "tool_result.name", 1),
        ("dropped", "tool_result.is_error", 1),
        ("dropped", "cite", 2),
    ]


ODD = [b'{"a":-0}', b'{"a":1.10}', b'{"a":1,"a":2}', b'{"a":1e400}', b'{"a":1180591620717411303424}']
DEEP = b'{"a":' + b"[" * 490 + b"]" * 490 + b"}"


@pytest.mark.parametrize("given", [*ODD, DEEP])
def test_arguments_that_a_record_cannot_say_are_the_text_that_the_model_wrote(log: TurnLog, given: bytes) -> None:
    """So they are exported and recorded again as they are, and nothing is to be told."""
    turn = log.add_turn([ToolUse(id="c1", name="f", input=Raw(given))], role="assistant")
    exported = exports.export(log, turn.id, "geppetto")
    assert not exported.losses.entries
    made = geppetto.turn_from_yaml(exported.content.decode())
    assert made.blocks[0].payload["args"] == given.decode()
    with TurnLog.open("memory://") as again:
        head = str(geppetto.record_turn(again, made).head)
        [call] = decode_content(again.payload(head))
        assert isinstance(call, ToolUse)
        assert bytes(call.input) == given
        assert not call.extra
        assert geppetto.load_turn(again, geppetto.record_turn(again, made).id) == made


@pytest.mark.parametrize("given", [*ODD, DEEP])
def test_native_blocks_that_no_value_says_exactly_are_told(log: TurnLog, given: bytes) -> None:
    """As near as values come, or as their text; the rest is exported."""
    native = Native(provider="p", block=Raw(given))
    first = log.add_turn([native], role="assistant")
    nested = [Text(text="b", extra={"more": Raw(given)}), native, Text(text="c", extra={"more": Raw(b"1")})]
    last = log.add_turn([ToolResult(tool_use_id="c1", content=nested)], continues=first.id)
    exported = exports.export(log, last.id, "geppetto")
    geppetto.turn_from_yaml(exported.content.decode())
    assert [(entry.kind, entry.turn, entry.block, entry.index) for entry in exported.losses.entries] == [
        ("downgraded", first.id, "native", 0),
        ("downgraded", last.id, "tool_result.content", 0),
        ("downgraded", last.id, "tool_result.content", 0),
    ]


def test_a_recorded_snapshot_is_exported_as_it_was(log: TurnLog) -> None:
    """And one that can be imported again; other turns as what can be made of them, with what is lost."""
    turn = geppetto.Turn(id="t1", run_id="r1", blocks=[geppetto.new_user_text_block("Hi.")])
    geppetto.KEY_TRACE_ID.set(turn.metadata, "trace")
    head = str(geppetto.record_turn(log, turn).head)
    exported = exports.export(log, head, "geppetto")
    assert geppetto.turn_from_yaml(exported.content.decode()) == turn
    assert not exported.losses.entries
    onward = log.add_turn("Hello.", role="assistant", continues=head, inherited={"a": 1}, reply=ReplyFacts(model="m"))
    exported = exports.export(log, onward.id, "geppetto")
    made = geppetto.turn_from_yaml(exported.content.decode())
    assert [block.kind for block in made.blocks] == [BlockKind.USER, BlockKind.LLM_TEXT]
    assert geppetto.KEY_MODEL.get(made.metadata) == "m"
    assert [entry.block for entry in exported.losses.entries] == ["inherited"]


@pytest.mark.parametrize("options", [{}, {"lines_max": 1}])
def test_the_printer_shows_images(options: dict[str, Any]) -> None:
    """What they are, and how large or where."""
    images = [{"media_type": "image/png", "content": "iVBORw=="}, {"url": "https://example.com/a.png"}, 7]
    turn = geppetto.Turn(blocks=[geppetto.Block(kind=BlockKind.USER, payload={"text": "Look.", "images": images})])
    shown = geppetto.format_turn(turn, geppetto.PrintOptions(**options))
    whole = "[user]\n  Look.\n  image: image/png, 4 B\n  image: ?, https://example.com/a.png\n  image: ?, ?\n"
    assert shown == (whole if not options else "[user]\n  Look.\n  … 3 more lines\n")
