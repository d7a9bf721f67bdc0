"""Long texts in an export: they are written in pieces, and what comes out is what it is without that."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from turnlog import TurnLog
from turnlog.errors import ContentError
from turnlog.interop import canonical, geppetto, gmi
from turnlog.interop.exports import export
from turnlog.interop.exports.reading import MarkedLog
from turnlog.interop.geppetto import (
    Block,
    BlockKind,
    Turn,
    new_tool_call_block,
    new_tool_use_block,
    new_user_text_block,
)
from turnlog.model import Native, Origin, ReplyFacts, Text, Thinking, ToolResult, ToolUse
from turnlog.model.blocks import Block as ContentBlock
from turnlog.model.pieces import PIECE
from turnlog.record import plan_group, turn_draft
from turnlog.sources import Sources

LONG = 'A "text",\twith a 🙂 in it & </b>.\n' * (PIECE // 30)  # in two pieces, as YAML takes long to write
SHORT = "b" * (PIECE - 57)  # with a mark before and one behind it, the latter stands where a piece ends
GIVEN = (("a", "short"), ("b", LONG))


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """A log of a thread with long texts alone, among others, of tools, and thought."""
    with TurnLog.open("memory://") as log:
        log.add_turn(LONG, bookmark="main")
        log.add_turn(
            [Text(text=LONG[1:]), Text(text=SHORT), Text(text=LONG)],
            role="assistant",
            continues="main",
            reply=ReplyFacts(model="m-1", provider="anthropic", api="messages"),
        )
        log.add_turn([ToolResult(tool_use_id="c1", name="ls", content=LONG), Text(text=LONG)], continues="main")
        log.add_turn(
            [Thinking(thinking=LONG, signature="s"), Thinking(thinking=LONG[1:]), Text(text=SHORT)],
            role="assistant",
            continues="main",
            reply=ReplyFacts(model="m-1", provider="anthropic", api="messages"),
        )
        inside = (Text(text=LONG[1:]), Text(text=SHORT), Text(text=LONG))
        log.add_turn([ToolResult(tool_use_id="c2", name="ls", content=[*inside], is_error=True)], continues="main")
        spelled_otherwise = json.dumps([{"type": "text", "text": LONG}, {"type": "text", "text": SHORT}])
        log.add_turn(spelled_otherwise.replace("/", r"\/").encode(), continues="main", json=True)
        log.add_turn(" " * 2 * PIECE, continues="main")
        yield log


def _text(text: str) -> ContentBlock:
    return Text(text=text)


def _thinking(text: str) -> ContentBlock:
    return Thinking(thinking=text)


def _result(text: str) -> ContentBlock:
    return ToolResult(tool_use_id="c", content=text)


def _texts_of_result(text: str) -> ContentBlock:
    return ToolResult(tool_use_id="c", content=[Text(text="FIRST"), Text(text=text), Text(text="LAST")])


def _text_beside(text: str) -> ContentBlock:
    return ToolResult(tool_use_id="c", content=[Text(text=text), Native(provider="p", block=Raw(b"{}"))])


def as_page(value: object) -> bytes:
    """Return a value as the JSON of an export, made by the codec alone."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def test_messages_are_those_of_the_log(log: TurnLog) -> None:
    """Canonical ones, as they are without marks."""
    found, losses = canonical.messages(log, "main")
    exported = export(log, "main", "canonical")
    assert exported.content == as_page(found)
    assert exported.losses == losses


def test_lines_are_those_of_the_log(log: TurnLog) -> None:
    """Those of AgentOS, also where several texts of a reply are one."""
    found, losses = gmi.json_lines(log, "main")
    exported = export(log, "main", "gmi")
    assert exported.content == found
    assert exported.losses == losses


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"text":%b}',
        b'{"text":%b,"number":1e999}',
        b'{"text":%b,"deep":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"text":%b,"text":"twice"}',
    ],
    ids=["arguments", "a number that no float holds", "deep", "a key twice"],
)
@pytest.mark.parametrize("by_user", [False, True])
def test_long_arguments_are_those_of_the_log(arguments: bytes, by_user: bool) -> None:
    """Also those that no values say, which are written as text, and those that no reply has."""
    call = ToolUse(id="c", name="write", input=Raw(arguments % msgspec.json.encode(LONG)))
    with TurnLog.open("memory://") as log:
        log.add_turn("Write it.", bookmark="main")
        if by_user:
            log.add_turn([call, Text(text="There.")], continues="main")
        else:
            log.add_turn([call], role="assistant", continues="main", reply=ReplyFacts(model="m-1"))
        assert len(MarkedLog(log, also=("inputs",)).payload("main")) < len(LONG)
        messages, losses = canonical.messages(log, "main")
        exported = export(log, "main", "canonical")
        assert (exported.content, exported.losses) == (as_page(messages), losses)
        lines, losses = gmi.json_lines(log, "main")
        exported = export(log, "main", "gmi")
        assert (exported.content, exported.losses) == (lines, losses)
        snapshot, losses = geppetto.turn_of(log, "main")
        exported = export(log, "main", "geppetto")
        assert (exported.content.decode(), exported.losses) == (geppetto.turn_to_yaml(snapshot), losses)


def test_steps_have_the_texts_as_the_codec_spells_them(log: TurnLog) -> None:
    """However whoever recorded them did."""
    content = export(log, "main", "atif").content
    trajectory = msgspec.json.decode(content)
    assert content == as_page(trajectory)
    first, second, third, result, thought, failed, fourth, blank = trajectory["steps"]
    assert first["message"] == third["message"] == result["observation"]["results"][0]["content"] == LONG
    assert [part["text"] for part in second["message"]] == [LONG[1:], SHORT, LONG]
    assert (thought["reasoning_content"], thought["message"]) == (f"{LONG}\n\n{LONG[1:]}", SHORT)
    assert [part["text"] for part in failed["observation"]["results"][0]["content"]] == [LONG[1:], SHORT, LONG]
    assert [part["text"] for part in fourth["message"]] == [LONG, SHORT]
    assert blank["message"] == " " * 2 * PIECE


@pytest.mark.parametrize(
    "block",
    [
        new_user_text_block(LONG),
        new_tool_use_block("c1", {"answer": LONG}),
        new_tool_use_block("c1", LONG, error=LONG[1:]),
        new_tool_call_block("c1", "write", {"text": LONG}),
        new_tool_call_block("c1", "write", json.dumps({"text": LONG}, ensure_ascii=False, separators=(",", ":"))),
        new_tool_call_block("c1", "write", json.dumps({"text": LONG, "number": 1.10}) + " "),
        new_tool_call_block("c1", "write", f"no JSON: {LONG}"),
        Block(kind=BlockKind.REASONING, payload={"text": LONG, "encrypted_content": LONG[1:]}),
        Block(kind=BlockKind.OTHER, payload={"provider": "p", "block": {"type": "t", "text": LONG}}),
        Block(kind=BlockKind.OTHER, payload={"anything": [LONG]}),
        Block(kind=BlockKind.LLM_TEXT, payload={"other": LONG}),
    ],
    ids=[
        "by a user",
        "record",
        "error",
        "arguments",
        "text",
        "spelled",
        "malformed",
        "reasoning",
        "native",
        "other",
        "no text",
    ],
)
def test_a_snapshot_is_the_one_that_was_recorded(block: Block) -> None:
    """Also with what is a text in the log, and a record in the snapshot, and the other way round."""
    turn = Turn(blocks=[new_user_text_block("Go on."), block])
    with TurnLog.open("memory://") as log:
        geppetto.record_turn(log, turn)
        [last] = log.latest(1)
        assert export(log, last.id, "geppetto").content.decode() == geppetto.turn_to_yaml(turn)


def test_a_snapshot_of_any_turns_is_that_of_the_log(log: TurnLog) -> None:
    """As it is without marks."""
    log.add_turn([Native(provider="p", block=Raw(b'{"x":%b}' % msgspec.json.encode(LONG)))], continues="main")
    found, losses = geppetto.turn_of(log, "main")
    exported = export(log, "main", "geppetto")
    assert (exported.content.decode(), exported.losses) == (geppetto.turn_to_yaml(found), losses)


def test_a_prompt_of_a_sub_agent_is_found_in_the_call_that_gave_it(log: TurnLog) -> None:
    """However long it is: the one of two calls that has it started the sub-agent."""
    calls = [ToolUse(id=id, name="task", input=Raw(msgspec.json.encode({"prompt": prompt}))) for id, prompt in GIVEN]
    parent = log.add_turn(calls, role="assistant", continues="main", reply=ReplyFacts(model="m-1"))
    log.add_turn([ToolResult(tool_use_id=id, content="done") for id, _ in GIVEN], continues="main")
    log.add_turn(LONG, continues=parent.id, bookmark=False, origin=Origin(format="f", ids=["x"], sidechain=True))
    results = msgspec.json.decode(export(log, "main", "atif").content)["steps"][-1]["observation"]["results"]
    assert [(result["source_call_id"], "subagent_trajectory_ref" in result) for result in results] == [
        ("a", False),
        ("b", True),
    ]


def test_marks_stand_for_texts_of_turns_alone(log: TurnLog, tmp_path: Path) -> None:
    """The same one each time; a document that looks like a text has none, nor has a text of blanks, nor an argument."""
    path = tmp_path / "looks.json"
    path.write_bytes(log.payload("main~6"))
    call = ToolUse(id="c3", name="write", input=Raw(msgspec.json.encode({"text": LONG})))
    log.add_turn([call], role="assistant", continues="main", reply=ReplyFacts(model="m-1"))
    document = log.add_document(path, continues="main")
    marked = MarkedLog(log)
    turns = log.ancestry("main")
    marks = [marked.payload(turn.id) for turn in turns]
    marked_sizes = [len(payload) for payload in marks]
    assert [size < len(SHORT) for size in marked_sizes] == [True, False, True, False, False, False, False, False, False]
    assert [size < len(log.payload(turn.id)) for size, turn in zip(marked_sizes, turns, strict=True)] == [
        *[True] * 6,
        *[False] * 3,
    ]
    assert all(
        text not in payload.decode()
        for payload in marks[:6]
        for text in (LONG[1:-1], msgspec.json.encode(LONG)[2:-1].decode())
    )
    assert marked.payload(turns[0].id) is marks[0]
    assert marked.payload(document.id) == path.read_bytes()


@pytest.mark.parametrize(
    "block",
    [_text, _thinking, _result, _texts_of_result, _text_beside],
)
@pytest.mark.parametrize("form", ["html", "markdown"])
@pytest.mark.parametrize(
    "text",
    ["as it is", "```\nopen", "`" * 70, "\n# a heading", "\n==\u3000", "![x](y)", "[a\nb]: c", "&<b>", "a\x1b\x85\r\n"],
)
def test_a_long_text_is_on_a_page_as_a_short_one_is(form: str, text: str, block: Callable[[str], ContentBlock]) -> None:
    """In a fence where that is in one, with the same characters for others, and the same told of it."""
    found: list[tuple[str, object]] = []
    for filling in ("A line. 🙂\n", "A line. 🙂\n" * (PIECE // 8)):
        with TurnLog.open("memory://") as log:
            turn = log.add_turn([block(f"{filling}{text}\n{filling}")], bookmark="main")
            exported = export(log, "main", form)
        _, _, page = exported.content.decode().partition(turn.id)
        losses = [(loss.kind, loss.block, loss.why) for loss in exported.losses.entries]
        found.append((page.replace(filling, "FILLING "), losses))
    assert found[0] == found[1]
    assert found[0][0].count("FILLING") == 2


@pytest.mark.parametrize("form", ["atif", "canonical", "geppetto", "gmi", "html", "markdown"])
@pytest.mark.parametrize(
    "around",
    [
        b'[{"type":"text","text":%b}]',
        b'[{"type":"thinking","thinking":%b}]',
        b'[{"type":"tool_result","tool_use_id":"c","content":%b}]',
        b'[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":%b}]}]',
    ],
    ids=["text", "thinking", "result", "text of a result"],
)
def test_a_text_that_is_none_is_refused_before_anything_is_written(form: str, around: bytes) -> None:
    """Only somebody who writes a store by other means can have recorded it."""
    malformed = around % (b'"' + b"x" * 2 * PIECE + b'\\ud800"')
    with TurnLog.open("memory://") as log:
        draft = msgspec.structs.replace(turn_draft("x", bookmark="main"), payload=malformed)
        log.store.write(lambda transaction: plan_group(transaction, [draft], Sources()))
        with pytest.raises(ContentError, match="content: a text is malformed: "):
            export(log, "main", form)
