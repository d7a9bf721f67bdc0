"""Turns that were no inputs once, as inputs; and whole conversations as lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import Raw
from tests.agent.running import run
from tests.agent.scripted import Scripted, call, say
from tests.unit.interop.gmi import made

from turnlog import TurnLog
from turnlog.errors import CorruptionError, MetaError
from turnlog.interop import gmi
from turnlog.interop.exports import export
from turnlog.interop.gmi.stored import note_id_of, turn_id_of
from turnlog.model import (
    Block,
    Document,
    Native,
    Origin,
    ReplyFacts,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    decode_content,
)
from turnlog.record import Note
from turnlog.testing.strategies import contents
from turnlog.turn import Turn

DEEP = b'{"a":' + b"[" * 490 + b"]" * 490 + b"}"


def dumped(read: gmi.GMITurnInput) -> dict[str, Any]:
    """Return an input as JSON values, without what is of its time."""
    record = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    del record["timestamp"]
    return record


def losses(log: TurnLog, headish: str) -> list[tuple[str, str, int | None]]:
    """Return kind, block and place of what the nearest input does not have of a turn."""
    report = gmi.nearest_input(log, log.turn(headish))[1]
    assert {entry.turn for entry in report.entries} <= {log.turn(headish).id}
    return [(entry.kind, entry.block, entry.index) for entry in report.entries]


def test_turn_of_a_user_is_an_input_of_text(log: TurnLog) -> None:
    """With what GMI asks for made up, which is told; it can be recorded elsewhere."""
    turn = log.add_turn("Hello.", bookmark="main", subject="ada", inherited={"user_context": {"a": 1}, "x": 2})
    assert dumped(gmi.input_of(log, "main")) == {
        "interactionId": turn.id,
        "userId": "ada",
        "sessionId": "main",
        "type": "text",
        "content": "Hello.",
        "userContextOverride": {"a": 1},
    }
    assert gmi.input_of(log, "main").timestamp == turn.said_at.replace(microsecond=turn.time_ms % 1000 * 1000)
    assert losses(log, "main") == [("synthesised", "turn", None), ("dropped", "options", None)]
    with TurnLog.open("memory://") as other:
        again = gmi.record(other, gmi.input_of(log, "main"))
        assert other.payload(again.id) == log.payload(turn.id)
        assert (again.meta.head, again.meta.subject) == ("main", "ada")


def test_turn_of_nobody_has_a_user_made_up(log: TurnLog) -> None:
    """GMI asks for one. System turns are system messages."""
    turn = log.add_turn("Be kind.", role="system", cache=True)
    read = dumped(gmi.input_of(log, turn.id))
    assert (read["userId"], read["type"], read["content"]) == ("nobody", "system_message", "Be kind.")
    assert losses(log, turn.id) == [
        ("synthesised", "turn", None),
        ("synthesised", "subject", None),
        ("dropped", "cache", None),
    ]


def test_blocks_are_parts_and_what_is_no_part_is_told(log: TurnLog) -> None:
    """Text and documents come back as they were."""
    blocks: list[Block] = [
        Text(text="Look."),
        Document(source=Source(media_type="image/png", data=made.PIXEL)),
        Thinking(thinking="t"),
        Native(provider="p", block=Raw(b"{}")),
        Text(text="x", extra={"citations": Raw(b"[]")}),
    ]
    turn = log.add_turn(blocks, subject="ada")
    read = dumped(gmi.input_of(log, turn.id))
    assert read["type"] == "multimodal_content"
    assert read["content"][:2] == [
        {"type": "text", "text": "Look."},
        {"type": "base64", "data": made.PIXEL, "mimeType": "image/png"},
    ]
    assert losses(log, turn.id) == [
        ("synthesised", "turn", None),
        ("downgraded", "thinking", 2),
        ("downgraded", "native", 3),
        ("dropped", "extra", 4),
    ]


def test_results_are_those_of_the_calls_before(log: TurnLog) -> None:
    """The name of a tool is that of its call, and an id that is missing is made up as the output makes it up."""
    calls = [ToolUse(id="c1", name="add", input=Raw(b"{}")), ToolUse(name="cut", input=Raw(b"{}"))]
    asked = log.add_turn(calls, role="assistant", subject="ada")
    results = [ToolResult(tool_use_id="c1", content="3", is_error=False), ToolResult(name="cut", content=[])]
    turn = log.add_turn(results, continues=asked.id)
    assert dumped(gmi.input_of(log, turn.id))["content"] == [
        {"toolCallId": "c1", "toolName": "add", "output": "3", "isError": False},
        {"toolCallId": f"{asked.id}-1", "toolName": "cut"},
    ]
    kinds = losses(log, turn.id)
    assert ("synthesised", "tool_id", 1) in kinds
    assert ("downgraded", "tool_result", 0) in kinds  # it gets the name of its tool


def test_calls_are_read_once_however_many_results_have_no_name() -> None:
    """What is read for a conversation grows as it does."""

    class Counted(TurnLog):
        reads = 0

        def payload(self, headish: str) -> bytes:
            self.reads += 1
            return super().payload(headish)

        def ancestry(self, *given: Any, **options: Any) -> list[Turn]:
            found = super().ancestry(*given, **options)
            self.reads += len(found)
            return found

    def reads(count: int) -> int:
        with TurnLog.open("memory://") as opened:
            head = opened.add_turn("Go.").id
            for number in range(count):
                use = ToolUse(id=f"c{number}", name=f"t{number}", input=Raw(b"{}"))
                head = opened.add_turn([use], role="assistant", continues=head).id
                head = opened.add_turn([ToolResult(tool_use_id=f"c{number}", content="r")], continues=head).id
            log = Counted(opened.store)
            said = [json.loads(line) for line in gmi.json_lines(log, head)[0].splitlines()]
            names = [line["input"]["content"]["toolName"] for line in said[2::2]]
            assert names == [f"t{number}" for number in range(count)]
            return log.reads

    assert reads(40) - reads(30) == reads(30) - reads(20)


def test_names_of_calls_are_those_of_the_turns_that_are_continued(log: TurnLog) -> None:
    """Not of a branch beside, and of several calls of one id the last one's."""

    def called(name: str, parent: str) -> str:
        use = ToolUse(id="c", name=name, input=Raw(b"{}"))
        return log.add_turn([use], role="assistant", continues=parent).id

    def answered(parent: str) -> str:
        return log.add_turn([ToolResult(tool_use_id="c", content="r")], continues=parent).id

    root = log.add_turn("Go.").id
    first = answered(called("one", root))
    beside, again = answered(root), answered(called("two", first))
    merged = log.add_turn("Both.", continues=[again, beside]).id
    said = [json.loads(line) for line in gmi.json_lines(log, answered(merged))[0].splitlines()]
    results = [line["input"]["content"] for line in said if line.get("input", {}).get("type") == "tool_response"]
    assert sorted(result["toolName"] for result in results) == ["c", "one", "two", "two"]
    assert dumped(gmi.input_of(log, beside))["content"]["toolName"] == "c"


def test_number_that_no_computer_has_is_text(log: TurnLog) -> None:
    """The block is told of as any that GMI does not have."""
    block = Native(provider="p", block=Raw(b'{"a":1e999}'))
    turn = log.add_turn([block], subject="ada")
    [part] = dumped(gmi.input_of(log, turn.id))["content"]
    assert (part["type"], "1e999" in part["json"]) == ("native", True)
    assert ("downgraded", "native", 0) in losses(log, turn.id)


def test_document_is_a_part_with_its_name(log: TurnLog, tmp_path: Path) -> None:
    """Its path is not."""
    path = tmp_path / "a.txt"
    path.write_text("abc")
    turn = log.add_document(path, subject="ada")
    assert dumped(gmi.input_of(log, turn.id))["content"] == [
        {"type": "base64", "data": "YWJj", "mimeType": "text/plain", "name": "a.txt"}
    ]
    assert losses(log, turn.id) == [("synthesised", "turn", None), ("dropped", "original_path", None)]


def test_merge_continues_one_turn(log: TurnLog) -> None:
    """The others are told."""
    parents = [log.add_turn(text, subject="ada").id for text in "ab"]
    turn = log.add_turn("c", continues=parents)
    assert ("dropped", "continues", None) in losses(log, turn.id)


def test_reply_is_no_input(log: TurnLog) -> None:
    """It is an output."""
    turn = log.add_turn("x", role="assistant")
    with pytest.raises(MetaError, match="is a reply, and no input"):
        gmi.input_of(log, turn.id)


def with_text_blocks(block: Block) -> Block:
    """Return a result whose content is text as one whose content is a block."""
    if isinstance(block, ToolResult) and isinstance(block.content, str):
        return msgspec.structs.replace(block, content=[Text(text=block.content)])
    return block


@given(contents())
def test_any_content_comes_back_or_is_told(content: list[Block]) -> None:
    """What an input would be recorded as is what the turn has, where the report says nothing of a block."""
    with TurnLog.open("memory://") as log:
        turn = log.add_turn(content, subject="ada")
        read, report = gmi.nearest_input(log, turn)
        told = {entry.index for entry in report.entries}
        again = decode_content(log.payload(gmi.record(log, read).id))
        for index, block in enumerate(decode_content(log.payload(turn.id))):
            if index not in told:
                assert again[index] == with_text_blocks(block)


@pytest.mark.parametrize("note", [b"[]", b'{"input":' + b'{"a":' * 2000])
def test_damaged_note_is_an_error(log: TurnLog, note: bytes) -> None:
    """What is kept beside a turn and cannot be read is not passed over."""
    turn = log.add_turn("x", id=turn_id_of("i1"), origin=Origin(format="gmi", ids=["i1"]))
    log.add_group([Note(topic=gmi.TOPIC, payload=note, turn=turn.id, id=note_id_of(turn.id))])
    with pytest.raises(CorruptionError, match=f"what is kept of the input '{turn.id}' cannot be read"):
        gmi.input_of(log, turn.id)


# Lines


def lines(content: bytes) -> list[dict[str, Any]]:
    """Return the values of JSON lines."""
    return [json.loads(line) for line in content.splitlines()]


def test_conversation_is_inputs_and_outputs(log: TurnLog) -> None:
    """Inputs as they were recorded, outputs of each reply, and results of tools as responses."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    log.add_turn("Be kind.", role="system", bookmark="chat-1", subject="ada")
    given_input = made.full()
    gmi.record(log, given_input)
    run(
        log,
        Scripted(call(("add", {"a": 1, "b": 2}), text="I add."), say("It is 3.")),
        None,
        continues="chat-1",
        tools=add,
    )
    exported = export(log, "chat-1", "gmi")
    system, asked, calling, answered, final = lines(exported.content)
    assert exported.turns == 5
    assert system["input"]["type"] == "system_message"
    del given_input["metadata"]["userApiKeys"]
    assert gmi.read_input(asked["input"]) == gmi.read_input(given_input)
    assert (calling["output"]["interactionId"], calling["output"]["responseText"]) == ("i-full", "I add.")
    [request] = calling["output"]["toolCalls"]
    assert (request["id"], request["name"], request["arguments"]) == ("c1", "add", {"a": 1, "b": 2})
    assert answered["input"]["content"] == {"toolCallId": "c1", "toolName": "add", "output": "3"}
    assert (final["output"]["interactionId"], final["output"]["isFinal"]) == ("i-full", True)
    for line in (calling, final):
        assert gmi.GMIOutput.model_validate(line["output"]).head_id in [turn.id for turn in log.ancestry("chat-1")]
    assert [(entry.kind, entry.block) for entry in exported.losses.entries] == [
        ("synthesised", "turn"),
        ("dropped", "api"),
        ("synthesised", "turn"),
        ("dropped", "api"),
    ]


def test_what_outputs_do_not_have_is_told(log: TurnLog) -> None:
    """Thinking, documents, texts apart, and whose reply it is where no tokens are counted; what was erased."""
    first = log.add_turn("x", subject="ada")
    blocks: list[Block] = [
        Thinking(thinking="t"),
        Text(text="a"),
        Text(text="b"),
        Native(provider="p", block=Raw(b"{}")),
    ]
    reply = log.add_turn(
        blocks, role="assistant", continues=first.id, reply=ReplyFacts(model="m", provider="p"), bookmark="main"
    )
    failed = [ToolUse(id="c1", name="add", input=Raw(b"{}"))]
    log.add_turn(failed, role="assistant", continues=reply.id, reply=ReplyFacts(stop_reason="error", error="broke"))
    log.erase(turn=first.id, reason="asked for")
    content, report = gmi.json_lines(log, "main")
    assert [line["output"]["interactionId"] for line in lines(content)] == [first.id, first.id]
    assert [line["output"]["responseText"] for line in lines(content)] == ["ab", None]
    assert lines(content)[1]["output"]["error"] == {"code": "ModelCallError", "message": "broke", "details": None}
    assert [(entry.kind, entry.block, entry.index) for entry in report.entries] == [
        ("dropped", "turn", None),
        ("dropped", "thinking", 0),
        ("dropped", "native", 3),
        ("downgraded", "text", None),
        ("dropped", "model", None),
        ("dropped", "tool_use", 0),
    ]


@pytest.mark.parametrize(
    ("given", "arguments", "malformed", "why"),
    [
        (b'{"a":-0}', {"a": 0}, None, "decoded: -0 is 0"),
        (b'{"a":1.10}', {"a": 1.1}, None, "decoded: 1.10 is 1.1"),
        (b'{"a":1,"a":2}', {"a": 2}, None, "decoded: of the key 'a' that is there twice it has the last"),
        (b'{"a":1180591620717411303424}', {"a": 1180591620717411303424}, None, None),
        (b'{"a":1e400}', {}, '{"a":1e400}', "as malformed arguments: it cannot be decoded: Number out of range"),
        (DEEP, {}, DEEP.decode(), "as malformed arguments: it is nested more than 200 deep"),
    ],
)
def test_arguments_that_values_do_not_say_exactly_are_told(
    log: TurnLog, given: bytes, arguments: object, malformed: str | None, why: str | None
) -> None:
    """As near as values come, or as the text that the model wrote where none say it."""
    turn = log.add_turn([ToolUse(id="c", name="f", input=Raw(given))], role="assistant")
    content, report = gmi.json_lines(log, turn.id)
    [call] = json.loads(content)["output"]["toolCalls"]
    assert (call["arguments"], call["malformedArguments"]) == (arguments, malformed)
    told = [(entry.kind, entry.block, entry.index, entry.why) for entry in report.entries]
    assert told == ([] if why is None else [("downgraded", "tool_use.input", 0, why)])


def test_malformed_arguments_that_are_no_text_are_shown_as_they_stand(log: TurnLog) -> None:
    """They do not keep the rest from being exported."""
    call = ToolUse(id="c", name="f", input=Raw(b"{}"), extra={"malformed_arguments": Raw(b"[1e400]")})
    turn = log.add_turn([call], role="assistant")
    [shown] = json.loads(gmi.json_lines(log, turn.id)[0])["output"]["toolCalls"]
    assert shown["malformedArguments"] == "[1e400]"


def test_nested_blocks_that_no_value_says_are_text(log: TurnLog) -> None:
    """Also where they are nested too deeply."""
    turn = log.add_turn([ToolResult(tool_use_id="c", content=[Native(provider="p", block=Raw(DEEP))])])
    output: Any = gmi.input_of(log, turn.id).content
    assert output.output == [
        {"type": "native", "json": '{"type":"native","provider":"p","block":' + DEEP.decode() + "}"}
    ]
