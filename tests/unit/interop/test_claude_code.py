"""Import of Claude Code's session files, on small files that are built here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog import Turn, TurnLog, providers
from turnlog.cli.preview import previews
from turnlog.errors import FormatError
from turnlog.events import Recorded, metadata
from turnlog.interop.claude_code.lines import topic_name
from turnlog.interop.finding import find
from turnlog.interop.importing import GROUP_STEPS_MAX, Problem, TranscriptReport
from turnlog.interop.texts import NOT_BASE64
from turnlog.model import Usage

LAST = "the row that was added last"


class Session:
    """Builds a session file, row by row, as Claude Code writes it."""

    def __init__(self, session: str = "session-1") -> None:
        self.session = session
        self.lines: list[bytes] = []
        self.last: str | None = None

    def row(self, type_: str | None, *, parent: str | None = LAST, uuid: str | None = "", **fields: Any) -> str:
        """Add a row that continues the last one, unless said otherwise, and return its uuid."""
        number = len(self.lines)
        uuid = f"uuid-{number}" if uuid == "" else uuid
        record: dict[str, Any] = {
            "parentUuid": self.last if parent is LAST else parent,
            "isSidechain": False,
            "sessionId": self.session,
            "version": "2.1.34",
            "type": type_,
            "uuid": uuid,
            "timestamp": f"2026-02-10T17:{number // 60 % 60:02d}:{number % 60:02d}.245Z",
        } | fields
        self.raw({name: value for name, value in record.items() if name not in ("uuid", "type") or value is not None})
        self.last = self.last if uuid is None else uuid
        return uuid or ""

    def user(self, content: object, **fields: Any) -> str:
        """Add a user row."""
        return self.row("user", **{"message": {"role": "user", "content": content}, **fields})

    def fragment(self, message_id: str | None, *blocks: object, message: dict[str, Any] | None = None, **f: Any) -> str:
        """Add a fragment of an assistant message."""
        record = {
            "model": "claude-x",
            "id": message_id,
            "role": "assistant",
            "content": list(blocks),
            **(message or {}),
        }
        return self.row("assistant", message=record, requestId=f"req-{message_id}", **f)

    def raw(self, line: bytes | dict[str, Any]) -> None:
        """Add a line as it is."""
        self.lines.append(line if isinstance(line, bytes) else _json(line))

    def file(self, folder: Path, *, lines: int | None = None, name: str = "session.jsonl") -> Path:
        """Write the file, or the first lines of it."""
        path = folder / name
        path.write_bytes(b"".join(line + b"\n" for line in self.lines[:lines]))
        return path


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def tool_use(id_: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "Grep", "input": {"b": 1, "a": [True, None]}, **fields}


def tool_result(id_: str, content: object = "found") -> dict[str, Any]:
    return {"tool_use_id": id_, "type": "tool_result", "content": content}


@pytest.fixture
def log() -> Iterator[TurnLog]:
    with TurnLog.open("memory://") as opened:
        yield opened


def window(log: TurnLog, turn_id: str) -> list[Any]:
    """Return the blocks of a window, decoded, message by message."""
    return [json.loads(message.content_json) for message in log.context(turn_id).messages]


def texts(log: TurnLog, turn_id: str) -> list[str]:
    """Return the texts of a window, turns joined by nothing."""
    return ["+".join(block.get("text", block["type"]) for block in blocks) for blocks in window(log, turn_id)]


def turn_of(log: TurnLog, uuid: str) -> Turn:
    """Return the turn that the line of a uuid became: of several, the one that was recorded last."""
    found = [meta["turn"] for _, meta, _ in lines_in(log) if meta.get("uuid") == uuid]
    return log.turn(found[-1])


def lines_in(log: TurnLog) -> list[tuple[str, dict[str, Any], bytes]]:
    """Return topic, metadata and payload of every line event, in global order. The cited turn is `turn`."""
    recorded = [event for event in log.events() if event.header.topic.startswith("claude-code.")]
    return [
        (event.header.topic, metadata(event) | _cited(log, event), log.payload(event.header.id)) for event in recorded
    ]


def _cited(log: TurnLog, event: Recorded) -> dict[str, str]:
    assert all(citation.digest == log.event(citation.id).digest for citation in event.header.citations)
    return {citation.relation: citation.id for citation in event.header.citations}


def blocks_in_heads(log: TurnLog) -> set[bytes]:
    """Return the raw JSON of every block in the window of some head."""
    heads = {head for thread in log.threads() for head in thread.heads}
    contents = [message.content_json for head in heads for message in log.context(head).messages]
    return {bytes(raw) for content in contents for raw in msgspec.json.decode(content, type=list[msgspec.Raw])}


def problems(report: TranscriptReport) -> list[tuple[int, str]]:
    return [(problem.place, problem.what) for problem in report.problems]


# Turns


def test_string_content_becomes_one_text_block(tmp_path: Path, log: TurnLog) -> None:
    """Content that is a string is one text block, spelled as in the file."""
    session = Session()
    session.raw(
        b'{"type":"user","uuid":"u","parentUuid":null,"message":{"role":"user","content":"caf\\u00e9 \\/ \xc3\xa9"}}'
    )
    report = log.import_claude_code(session.file(tmp_path))
    assert log.payload(report.heads[0]) == b'[{"type":"text","text":"caf\\u00e9 \\/ \xc3\xa9"}]'


def test_turn_keeps_what_the_file_says_about_it(tmp_path: Path, log: TurnLog) -> None:
    """Role, model, provider, api, usage, stop reason and origin are in the turn's metadata."""
    session = Session()
    session.user("hi")
    usage = {"input_tokens": 3, "cache_read_input_tokens": 7, "service_tier": "standard", "output_tokens": 1}
    session.fragment("m", text("a"), message={"usage": usage, "stop_reason": None})
    last = {"usage": usage | {"output_tokens": 9}, "stop_reason": "tool_use"}
    session.fragment("m", tool_use("t"), message=last)
    log.import_claude_code(session.file(tmp_path))
    metas = [turn_of(log, uuid).meta for uuid in ("uuid-0", "uuid-1")]
    user, assistant = ({"content_type": meta.content_type} | msgspec.to_builtins(meta) for meta in metas)
    assert user == {
        "role": "user",
        "content_type": "application/json",
        "origin": {
            "format": "claude-code",
            "ids": ["uuid-0"],
            "session": "session-1",
            "timestamp": "2026-02-10T17:00:00.245Z",
        },
    }
    assert assistant == {
        "role": "assistant",
        "content_type": "application/json",
        "continues": (turn_of(log, "uuid-0").id,),
        "model": "claude-x",
        "provider": "anthropic",
        "api": "messages",
        "usage": {"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 7},
        "stop_reason": "tool_use",
        "origin": {
            "format": "claude-code",
            "ids": ["uuid-1", "uuid-2"],
            "session": "session-1",
            "timestamp": "2026-02-10T17:00:01.245Z",
            "message_id": "m",
            "request_id": "req-m",
        },
    }


def test_signed_thinking_goes_back_to_the_model_that_wrote_it(tmp_path: Path, log: TurnLog) -> None:
    """As it was, with its signature."""
    thinking = {"type": "thinking", "thinking": "I count.", "signature": "c2lnbmVk"}
    session = Session()
    session.user("How many?")
    session.fragment("m", thinking)
    session.fragment("m", text("Three."))
    session.user("Sure?")
    [head] = log.import_claude_code(session.file(tmp_path)).heads
    request = providers.get("anthropic").prepare_request(log.context(head), model="claude-x", on_loss="report")
    assert json.loads(request.body)["messages"][1]["content"] == [thinking, text("Three.")]


def test_stop_reason_is_the_last_that_is_not_null(tmp_path: Path, log: TurnLog) -> None:
    """A later fragment without a stop reason does not take the earlier one away."""
    session = Session()
    session.fragment("m", text("a"), message={"stop_reason": "end_turn"})
    session.fragment("m", text("b"), message={"stop_reason": None})
    report = log.import_claude_code(session.file(tmp_path))
    assert log.turn(report.heads[0]).meta.stop_reason == "end_turn"


def test_turn_has_the_time_of_its_first_row(tmp_path: Path, log: TurnLog) -> None:
    """A turn was said at the timestamp in the file, which is the time hint of its id too; it was recorded now."""
    session = Session()
    session.user("hi", timestamp="2025-12-31T23:59:59.999Z")
    report = log.import_claude_code(session.file(tmp_path))
    turn = log.turn(report.heads[0])
    assert turn.to_record()["said_at"] == "2025-12-31T23:59:59.999000+00:00"
    assert int(turn.id, 36) >> 80 == int(turn.said_at.timestamp() * 1000)
    assert turn.said_at < turn.time


@pytest.mark.parametrize("timestamp", [None, 5, "yesterday", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_row_without_usable_timestamp_goes_in(tmp_path: Path, log: TurnLog, timestamp: object) -> None:
    """A timestamp that is absent, malformed or out of range does not keep a row out; one that is no time is told."""
    session = Session()
    session.user("hi", timestamp=timestamp)
    report = log.import_claude_code(session.file(tmp_path))
    assert texts(log, report.heads[0]) == ["hi"]
    told = [] if timestamp is None else [Problem(place=1, what=f"{timestamp!r} is not a time: the turn is without one")]
    assert list(report.problems) == told


def test_fragments_of_a_message_become_one_turn(tmp_path: Path, log: TurnLog) -> None:
    """Rows with one message id are one turn, its blocks in row order."""
    session = Session()
    session.user("q")
    session.fragment("m", text("a"))
    session.fragment("m", text("b"))
    session.fragment("m", text("c"))
    session.user("next")
    report = log.import_claude_code(session.file(tmp_path))
    assert report.turns_added == 3
    assert texts(log, report.heads[0]) == ["q", "a+b+c", "next"]


def test_tool_result_between_fragments_continues_the_whole_turn(tmp_path: Path, log: TurnLog) -> None:
    """A result that comes before a later fragment does not split the message."""
    session = Session()
    session.user("q")
    first = session.fragment("m", tool_use("t1"))
    result = session.user([tool_result("t1")])
    session.fragment("m", tool_use("t2"), parent=first)
    session.user([tool_result("t2")])
    report = log.import_claude_code(session.file(tmp_path))
    assert report.turns_added == 4
    assert [texts(log, head) for head in report.heads] == [["q", "tool_use+tool_use", "tool_result", "tool_result"]]
    assert turn_of(log, result).continues == (turn_of(log, first).id,)


def test_fragment_that_hangs_on_a_tool_result_joins_its_message(tmp_path: Path, log: TurnLog) -> None:
    """A fragment belongs to its message though a result stands between them in the parent chain."""
    session = Session()
    session.fragment("m", tool_use("t1"))
    session.user([tool_result("t1")])
    session.fragment("m", tool_use("t2"))
    session.user([tool_result("t2")])
    report = log.import_claude_code(session.file(tmp_path))
    assert report.turns_added == 3
    assert [texts(log, head) for head in report.heads] == [["tool_use+tool_use", "tool_result", "tool_result"]]


def results_of(log: TurnLog, turn_id: str) -> list[str]:
    """Return the ids that are answered in a window."""
    return [block["tool_use_id"] for blocks in window(log, turn_id) for block in blocks if "tool_use_id" in block]


@pytest.mark.parametrize("goes_on_from", [0, 1, 2])
@pytest.mark.parametrize("lines", [1, 100], ids=["line by line", "at once"])
def test_what_goes_on_has_the_results_of_all_parallel_calls(
    tmp_path: Path, log: TurnLog, goes_on_from: int, lines: int
) -> None:
    """They stand on rows beside each other, and the row that goes on names one of them."""
    session = Session()
    session.user("q")
    calls = [session.fragment("m", tool_use(f"t{n}")) for n in range(3)]
    results = [session.user([tool_result(f"t{n}")], parent=calls[n]) for n in (1, 0, 2)]
    aside = session.row("system", parent=results[goes_on_from], content="a hook ran")
    session.fragment("n", text("Done."), parent=aside)
    for count in range(lines, len(session.lines), lines):
        log.import_claude_code(session.file(tmp_path, lines=count))
    report = log.import_claude_code(session.file(tmp_path))
    assert len(report.heads) == 1
    assert sorted(results_of(log, report.heads[0])) == ["t0", "t1", "t2"]
    request = providers.get("anthropic").prepare_request(log.context(report.heads[0]), model="claude-x")
    assert not [entry for entry in request.loss_report.entries if entry.kind == "synthesised"]


@pytest.mark.parametrize("hangs_on", ["result", "call"])
@pytest.mark.parametrize("goes_on_from", ["skill", "result", "call"])
def test_what_is_said_between_two_results_is_not_taken_out(
    tmp_path: Path, log: TurnLog, hangs_on: str, goes_on_from: str
) -> None:
    """A skill's text follows the result of its call, and the next result follows it or stands beside it."""
    session = Session()
    session.user("q")
    calls = [session.fragment("m", tool_use(f"t{n}")) for n in range(2)]
    session.user([tool_result("t0")], parent=calls[0])
    skill = session.user("The skill says so.", isMeta=True)
    result = session.user([tool_result("t1")], parent=skill if hangs_on == "result" else calls[1])
    session.fragment("n", text("Done."), parent={"skill": skill, "result": result, "call": calls[1]}[goes_on_from])
    report = log.import_claude_code(session.file(tmp_path))
    said = ["q", "tool_use+tool_use", "tool_result", "The skill says so.", "tool_result", "Done."]
    assert [texts(log, head) for head in report.heads] == [said]


def test_edited_question_behind_results_is_a_branch(tmp_path: Path, log: TurnLog) -> None:
    """Where all calls are answered, what follows them may be said again."""
    session = Session()
    session.fragment("m", tool_use("t0"), tool_use("t1"))
    last = session.user([tool_result("t0"), tool_result("t1")])
    session.user("this")
    session.user("that", parent=last)
    report = log.import_claude_code(session.file(tmp_path))
    assert [texts(log, head)[-1] for head in report.heads] == ["this", "that"]
    assert [len(texts(log, head)) for head in report.heads] == [3, 3]


def test_session_that_ends_in_parallel_results_has_one_head(tmp_path: Path, log: TurnLog) -> None:
    """No window of a head lacks a result that the file has."""
    session = Session()
    calls = [session.fragment("m", tool_use(f"t{n}")) for n in range(3)]
    for n in (2, 0, 1):
        session.user([tool_result(f"t{n}")], parent=calls[n])
    report = log.import_claude_code(session.file(tmp_path))
    assert [results_of(log, head) for head in report.heads] == [["t2", "t0", "t1"]]


def test_call_that_is_answered_again_makes_a_branch(tmp_path: Path, log: TurnLog) -> None:
    """As where somebody went back before the result: both answers are kept, each in its branch."""
    session = Session()
    call = session.fragment("m", tool_use("t"))
    session.user([tool_result("t", "first")])
    session.fragment("n", text("One."))
    session.user([tool_result("t", "second")], parent=call)
    session.fragment("o", text("Two."))
    report = log.import_claude_code(session.file(tmp_path))
    assert len(report.heads) == 2
    assert [window(log, head)[1][0]["content"] for head in report.heads] == ["first", "second"]
    assert [texts(log, head)[-1] for head in report.heads] == ["One.", "Two."]


def agent_call(prompt: str, id_: str = "a", **fields: Any) -> dict[str, Any]:
    return tool_use(id_, **{"name": "Task", "input": {"prompt": prompt, "description": "x"}} | fields)


@pytest.mark.parametrize("content", ["Look there.", [{"type": "text", "text": "Look there.\n"}]], ids=["text", "block"])
def test_sub_agent_continues_the_call_that_started_it(tmp_path: Path, log: TurnLog, content: object) -> None:
    """Its first row has no parent in the file, and says what the call gave it."""
    session = Session()
    session.user("q")
    session.fragment("m", agent_call("Look elsewhere.", "a"), agent_call("Look there.", "b", name="Agent"))
    call = session.last
    side = session.user(content, parent=None, isSidechain=True)
    session.fragment("n", text("It is there."), isSidechain=True)
    session.user([tool_result("a"), tool_result("b")], parent=call)
    report = log.import_claude_code(session.file(tmp_path))
    assert turn_of(log, side).continues == (turn_of(log, call or "").id,)
    assert turn_of(log, side).meta.origin.sidechain
    assert len(report.roots) == 1
    assert [texts(log, head)[-1] for head in report.heads] == ["It is there.", "tool_result+tool_result"]


@pytest.mark.parametrize("folder", [".", "session-1/subagents"])
def test_file_of_a_sub_agent_continues_the_call_in_the_file_of_its_session(
    tmp_path: Path, log: TurnLog, folder: str
) -> None:
    """It lies beside that file, or in a folder of its name; of a folder of both, the session goes in first."""
    session, agent = Session(), Session()
    session.user("q")
    call = session.fragment("m", agent_call("Look there."))
    session.user([tool_result("a")])
    agent.row("user", message={"role": "user", "content": "Look there."}, parent=None, uuid="side", isSidechain=True)
    agent.fragment("n", text("It is there."), isSidechain=True, uuid="answer")
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    session.file(tmp_path, name="session-1.jsonl")
    agent.file(tmp_path / folder, name="agent-7.jsonl")
    found = [each.path for each in find([tmp_path]).files]
    assert [path.name for path in found] == ["session-1.jsonl", "agent-7.jsonl"]
    reports = [log.import_claude_code(path) for path in found]
    assert turn_of(log, "side").continues == (turn_of(log, call).id,)
    assert [problems(report) for report in reports] == [[], []]
    assert [log.import_claude_code(path).turns_added for path in found] == [0, 0]


def test_file_of_a_sub_agent_is_not_looked_up_behind_a_link(tmp_path: Path, log: TurnLog) -> None:
    """The session that lies beside it may be anybody's, where it is a link out of the folder."""
    session, agent = Session(), Session()
    session.user("q")
    session.fragment("m", agent_call("Look there."))
    agent.row("user", message={"role": "user", "content": "Look there."}, parent=None, uuid="side", isSidechain=True)
    for name in ("private", "theirs"):
        (tmp_path / name).mkdir()
    private = session.file(tmp_path / "private", name="session-1.jsonl")
    (tmp_path / "theirs" / "session-1.jsonl").symlink_to(private)
    log.import_claude_code(private)
    log.import_claude_code(agent.file(tmp_path / "theirs", name="agent-7.jsonl"))
    assert turn_of(log, "side").continues == ()


def test_what_follows_a_compaction_goes_on_from_what_was_summarized(tmp_path: Path, log: TurnLog) -> None:
    """The row that says so has a logical parent only."""
    session = Session()
    session.user("q")
    last = session.fragment("m", text("a"))
    session.row("system", parent=None, subtype="compact_boundary", logicalParentUuid=last)
    session.user("In short: q, a.", isCompactSummary=True)
    report = log.import_claude_code(session.file(tmp_path))
    assert [texts(log, head) for head in report.heads] == [["q", "a", "In short: q, a."]]


def test_what_the_tool_told_the_model_by_itself_is_marked(tmp_path: Path, log: TurnLog) -> None:
    """The model saw it, and so it is in windows; titles are no turns."""
    session = Session()
    caveat = session.user("Caveat: a command ran.", isMeta=True)
    said = session.user("q")
    session.raw({"type": "summary", "summary": "A title", "leafUuid": said})
    report = log.import_claude_code(session.file(tmp_path))
    assert [turn_of(log, uuid).meta.origin.meta for uuid in (caveat, said)] == [True, False]
    assert texts(log, report.heads[0]) == ["Caveat: a command ran.", "q"]
    assert previews(log, [turn_of(log, caveat)], []) == {turn_of(log, caveat).id: "(meta) Caveat: a command ran."}
    assert report.turns_added == 2


@pytest.mark.parametrize("prompt", ["Leave b alone.", [text("Leave b alone.")]])
@pytest.mark.parametrize("mode", ["prompt", "task-notification"])
def test_what_was_typed_while_the_agent_worked_is_a_turn(
    tmp_path: Path, log: TurnLog, prompt: object, mode: str
) -> None:
    """It stands where the agent took it; the line's event has all but the prompt. What no person typed is marked."""
    session = Session()
    session.user("q")
    session.fragment("m", tool_use("t"))
    session.user([tool_result("t")])
    waited = session.row("attachment", attachment={"type": "queued_command", "prompt": prompt, "commandMode": mode})
    session.row("attachment", attachment={"type": "queued_command", "prompt": None})
    session.fragment("n", text("Done."))
    report = log.import_claude_code(session.file(tmp_path))
    said = ["q", "tool_use", "tool_result", "Leave b alone.", "Done."]
    assert [texts(log, head) for head in report.heads] == [said]
    turn = turn_of(log, waited)
    assert (turn.meta.role, turn.meta.origin.meta) == ("user", mode != "prompt")
    [event, _] = [json.loads(payload) for topic, _, payload in lines_in(log) if topic == "claude-code.attachment"]
    assert event["attachment"] == {"type": "queued_command", "commandMode": mode}
    assert (report.turns_added, report.problems) == (5, ())


def test_what_was_typed_between_two_results_is_not_taken_out(tmp_path: Path, log: TurnLog) -> None:
    """The next result follows it."""
    session = Session()
    session.user("q")
    calls = [session.fragment("m", tool_use(f"t{n}")) for n in range(2)]
    session.user([tool_result("t0")], parent=calls[0])
    session.row("attachment", attachment={"type": "queued_command", "prompt": "Be quick."})
    session.user([tool_result("t1")], parent=calls[1])
    session.fragment("n", text("Done."))
    report = log.import_claude_code(session.file(tmp_path))
    said = ["q", "tool_use+tool_use", "tool_result", "Be quick.", "tool_result", "Done."]
    assert [texts(log, head) for head in report.heads] == [said]


def test_message_id_on_unconnected_branches_makes_turns_of_their_own(tmp_path: Path, log: TurnLog) -> None:
    """Fragments that do not hang together are not one turn, even with one message id."""
    session = Session()
    root = session.user("q")
    session.fragment("m", text("a"), parent=root)
    session.fragment("m", text("b"), parent=root)
    report = log.import_claude_code(session.file(tmp_path))
    assert [texts(log, head) for head in report.heads] == [["q", "a"], ["q", "b"]]


def test_messages_without_id_stay_apart(tmp_path: Path, log: TurnLog) -> None:
    """An assistant row without a message id is a turn of its own."""
    session = Session()
    session.fragment(None, text("a"))
    session.fragment(None, text("b"))
    report = log.import_claude_code(session.file(tmp_path))
    assert texts(log, report.heads[0]) == ["a", "b"]


def test_fork_stays_a_fork(tmp_path: Path, log: TurnLog) -> None:
    """Two rows with one parent are two branches."""
    session = Session()
    session.user("q")
    answer = session.fragment("m", text("a"))
    session.user("this way", parent=answer)
    session.user("that way", parent=answer)
    report = log.import_claude_code(session.file(tmp_path))
    assert [texts(log, head) for head in report.heads] == [["q", "a", "this way"], ["q", "a", "that way"]]
    assert report.roots == (turn_of(log, "uuid-0").id,)


def test_sidechain_is_a_thread_of_its_own(tmp_path: Path, log: TurnLog) -> None:
    """A sidechain without a parent is a root, and its turns say that they are of a sidechain."""
    session = Session()
    session.user("main")
    side = session.user("side", parent=None, isSidechain=True)
    answer = session.fragment("m", text("done"), isSidechain=True)
    session.user("main goes on", parent="uuid-0")
    report = log.import_claude_code(session.file(tmp_path))
    assert [texts(log, head) for head in report.heads] == [["side", "done"], ["main", "main goes on"]]
    sidechains = [turn_of(log, uuid).meta.origin.sidechain for uuid in ("uuid-0", side, answer, "uuid-3")]
    assert sidechains == [False, True, True, False]


def test_chain_goes_through_rows_that_are_no_messages(tmp_path: Path, log: TurnLog) -> None:
    """A message continues the nearest message up the chain; the rows between know that turn too."""
    session = Session()
    session.user("q")
    session.row("progress", data={"percent": 1})
    session.row("system", subtype="informational", content="note")
    session.fragment("m", text("a"))
    report = log.import_claude_code(session.file(tmp_path))
    assert texts(log, report.heads[0]) == ["q", "a"]
    question, answer = turn_of(log, "uuid-0").id, turn_of(log, "uuid-3").id
    assert [(topic, meta["turn"]) for topic, meta, _ in lines_in(log)] == [
        ("claude-code.user", question),
        ("claude-code.progress", question),
        ("claude-code.system", question),
        ("claude-code.assistant", answer),
    ]


def test_row_above_its_parent_continues_it(tmp_path: Path, log: TurnLog) -> None:
    """The order of the lines does not matter for who continues whom."""
    session = Session()
    session.user("second", uuid="b", parent="a")
    session.user("first", uuid="a", parent=None)
    report = log.import_claude_code(session.file(tmp_path))
    assert texts(log, report.heads[0]) == ["first", "second"]
    assert report.problems == ()


def test_chain_of_ten_thousand_rows_goes_in(tmp_path: Path, log: TurnLog) -> None:
    """The depth of a session is not bounded by a stack."""
    session = Session()
    for number in range(5000):
        session.user(f"q{number}")
        session.fragment(f"m{number}", text("a"))
    report = log.import_claude_code(session.file(tmp_path))
    assert (report.turns_added, len(report.heads), len(report.roots)) == (10_000, 1, 1)
    assert len(log.context(report.heads[0]).messages) == 10_000


def test_import_moves_no_bookmark(tmp_path: Path, log: TurnLog) -> None:
    """A bookmark on a turn stays there when the session goes on."""
    session = Session()
    session.user("q")
    session.fragment("m", text("a"))
    report = log.import_claude_code(session.file(tmp_path, lines=1))
    log.bookmarks.set("here", report.heads[0])
    log.import_claude_code(session.file(tmp_path))
    assert [(b.name, b.turn) for b in log.bookmarks.all()] == [("here", report.heads[0])]


def test_failed_call_is_kept_and_left_out_of_the_window(tmp_path: Path, log: TurnLog) -> None:
    """A row with isApiErrorMessage is a turn with an error, which windows leave out by default."""
    session = Session()
    session.user("q")
    session.fragment("m", text("API Error: 529"), isApiErrorMessage=True)
    session.user("again")
    report = log.import_claude_code(session.file(tmp_path))
    assert turn_of(log, "uuid-1").meta.error == "API Error: 529"
    assert texts(log, report.heads[0]) == ["q", "again"]
    assert len(log.context(report.heads[0], include_failed=True).messages) == 3


def test_long_error_text_is_cut_in_the_metadata_only(tmp_path: Path, log: TurnLog) -> None:
    """The metadata of a failed call has the beginning of its text, the content all of it."""
    session = Session()
    session.fragment("m", text("x" * 2_000_000), isApiErrorMessage=True)
    report = log.import_claude_code(session.file(tmp_path))
    assert log.turn(report.heads[0]).meta.error == "x" * 2000
    assert log.payload(report.heads[0]) == _json([text("x" * 2_000_000)])


# Content


@pytest.mark.parametrize(
    "block",
    [
        b'{"type":"text","text":"a","citations":[{"z":1.50,"a":1e3}]}',
        b'{"text":"type comes last","type":"text"}',
        b'{"type":"thinking","thinking":"hm","signature":"c2ln","later":null}',
        b'{"type":"tool_use","id":"t","name":"Bash","input":{"z":1,"a":{"y":0.10,"b":"\\u00e9\\/"}},"caller":{"type":"direct"}}',
        b'{"tool_use_id":"t","type":"tool_result","content":"out","is_error":true,"cache_control":{"type":"ephemeral"}}',
        b'{"type":"tool_result","tool_use_id":"t","content":[{"text":"out","type":"text","x":1}]}',
        b'{"type":"tool_result","tool_use_id":"t","content":[{"text":"out","type":"text"}],"\\u0078":1}',
        b'{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="},"title":"T"}',
    ],
)
def test_block_of_both_forms_is_kept_byte_for_byte(tmp_path: Path, log: TurnLog, block: bytes) -> None:
    """Text, thinking, tool_use, tool_result and base64 documents keep their keys, their order and their spelling."""
    session = Session()
    session.raw(b'{"type":"user","uuid":"u","message":{"role":"user","content":[' + block + b"]}}")
    report = log.import_claude_code(session.file(tmp_path))
    assert log.payload(report.heads[0]) == b"[" + block + b"]"
    assert report.problems == ()


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}, "x": 1}
URL_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}


def test_base64_image_becomes_a_document(tmp_path: Path, log: TurnLog) -> None:
    """An image with its bytes is a document block with its other keys, inside a tool_result as well."""
    session = Session()
    session.user([IMAGE, tool_result("t", [text("see"), IMAGE])])
    report = log.import_claude_code(session.file(tmp_path))
    document = IMAGE | {"type": "document"}
    assert window(log, report.heads[0]) == [[document, tool_result("t", [text("see"), document])]]
    assert [type(block).__name__ for block in log.context(report.heads[0]).messages[0].content] == [
        "Document",
        "ToolResult",
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}},
        URL_IMAGE,
        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "***not base64***"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": 7}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA==", "detail": "high"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "text", "text": "a", "$extra": {}},
        {"type": "tool_use", "id": "t", "name": "n", "input": "not an object"},
        {"type": "tool_result", "tool_use_id": "t", "content": None},
        {"type": "native", "provider": "x", "block": {}},
        {"type": None},
        {"no": "type"},
        "a bare string",
        None,
    ],
)
def test_other_block_becomes_native(tmp_path: Path, log: TurnLog, block: object) -> None:
    """What has no normalized form, or is malformed, is kept verbatim as a native block of its provider and model."""
    session = Session()
    session.fragment("m", text("a"), block)
    report = log.import_claude_code(session.file(tmp_path))
    native = {
        "type": "native",
        "provider": "anthropic",
        "api": "messages",
        "model": "claude-x",
        "block": block,
    }
    assert window(log, report.heads[0]) == [[text("a"), native]]
    assert type(log.context(report.heads[0]).messages[0].content[1]).__name__ == "Native"


@pytest.mark.parametrize("data", ["***not base64***", "AAA", 7])
@pytest.mark.parametrize("kind", ["image", "document"])
def test_document_whose_bytes_are_no_base64_is_told(tmp_path: Path, log: TurnLog, kind: str, data: object) -> None:
    """With its line, inside a tool_result as well; what is told stays native."""
    damaged = {"type": kind, "source": {"type": "base64", "media_type": "image/png", "data": data}}
    session = Session()
    session.user([IMAGE, URL_IMAGE, tool_result("t", [IMAGE])])
    session.user([damaged, damaged])
    session.user([tool_result("t", [text("see"), damaged])])
    for _ in range(2):
        report = log.import_claude_code(session.file(tmp_path))
        assert problems(report) == [(line, NOT_BASE64) for line in (2, 3)]
    native = {"type": "native", "provider": "anthropic", "api": "messages", "block": damaged}
    assert window(log, report.heads[0])[1:] == [[native, native], [tool_result("t", [text("see"), native])]]


def test_other_block_in_a_tool_result_becomes_native(tmp_path: Path, log: TurnLog) -> None:
    """A tool_result keeps its keys and their order around nested blocks that are native."""
    session = Session()
    session.user([tool_result("t", [URL_IMAGE, text("b"), tool_use("x")])])
    report = log.import_claude_code(session.file(tmp_path))
    native = {"type": "native", "provider": "anthropic", "api": "messages"}
    nested = [native | {"block": URL_IMAGE}, text("b"), native | {"block": tool_use("x")}]
    assert log.payload(report.heads[0]) == _json([tool_result("t", nested)])
    assert type(log.context(report.heads[0]).messages[0].content[0]).__name__ == "ToolResult"


# Lines


def test_line_event_has_the_row_without_the_content(tmp_path: Path, log: TurnLog) -> None:
    """The payload of a message's line is the row in its order and spelling, without what the turn has."""
    session = Session()
    session.raw(
        b'{ "z":1.0, "type":"user","uuid":"u","message":{"role":"user","content":"hi","id":7},'
        b'"sessionId":"s","toolUseResult":{"b":"\\u0041","a":[ ]}}'
    )
    log.import_claude_code(session.file(tmp_path))
    [(topic, meta, payload)] = lines_in(log)
    assert payload == (
        b'{"z":1.0,"type":"user","uuid":"u","message":{"role":"user","id":7},'
        b'"sessionId":"s","toolUseResult":{"b":"\\u0041","a":[]}}'
    )
    assert (topic, meta) == ("claude-code.user", {"session": "s", "turn": turn_of(log, "u").id, "uuid": "u"})


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user","uuid":"u","message":{"content":"a"},"n":1,"n":2}',
        b'{"type":"user","uuid":"u","message":{"content":"a","content":"b"}}',
        b'{"type":"user","\\u0075uid":"u","message":{"content":"a"}}',
    ],
)
def test_row_that_cannot_be_rebuilt_is_kept_whole(tmp_path: Path, log: TurnLog, line: bytes) -> None:
    """A row with a key twice, or with a key in escapes, keeps its content in the line event too."""
    session = Session()
    session.raw(line)
    report = log.import_claude_code(session.file(tmp_path))
    assert [payload for _, _, payload in lines_in(log)] == [line]
    assert report.turns_added == 1


def test_row_without_uuid_is_kept(tmp_path: Path, log: TurnLog) -> None:
    """Rows outside the chain are events of their own topic, counted by type."""
    session = Session()
    session.raw({"type": "summary", "summary": "All about it", "leafUuid": "elsewhere"})
    session.user("q")
    session.raw({"type": "queue-operation", "operation": "dequeue", "sessionId": "session-1"})
    report = log.import_claude_code(session.file(tmp_path))
    assert report.pieces == {"queue-operation": 1, "summary": 1, "user": 1}
    assert [(topic, payload) for topic, _, payload in lines_in(log)][::2] == [
        ("claude-code.summary", session.lines[0]),
        ("claude-code.queue-operation", session.lines[2]),
    ]
    assert [meta for _, meta, _ in lines_in(log)][::2] == [{}, {"session": "session-1"}]


def test_row_without_type_is_unknown(tmp_path: Path, log: TurnLog) -> None:
    """A row without a type is kept under the topic `claude-code.unknown`."""
    session = Session()
    session.user("q")
    session.row(None)
    report = log.import_claude_code(session.file(tmp_path))
    assert report.pieces == {"unknown": 1, "user": 1}
    assert lines_in(log)[1][0] == "claude-code.unknown"


def test_type_that_is_no_topic_is_kept_in_the_metadata(tmp_path: Path, log: TurnLog) -> None:
    """Where the topic cannot spell the type of a row, the metadata does."""
    session = Session()
    session.user("q")
    session.row("Ünusual Type/2")
    report = log.import_claude_code(session.file(tmp_path))
    assert report.pieces == {"user": 1, "Ünusual Type/2": 1}
    topic, meta, _ = lines_in(log)[1]
    assert (topic, meta["line_type"]) == ("claude-code.nusual-type-2", "Ünusual Type/2")


@pytest.mark.parametrize(
    ("type_", "name"), [("file-history-snapshot", "file-history-snapshot"), ("", "unknown"), ("é", "unknown")]
)
def test_topic_name_has_plain_characters_only(type_: str, name: str) -> None:
    """The name of a topic is of a-z, 0-9 and the hyphen."""
    assert topic_name(type_) == name


def test_every_line_is_accounted_for(tmp_path: Path, log: TurnLog) -> None:
    """Lines of the file are blank, damaged, or counted by type; every row is an event."""
    session = Session()
    session.user("q")
    session.lines += [b"", b"   ", b"damaged", b"\r"]
    session.row("system")
    report = log.import_claude_code(session.file(tmp_path))
    assert (report.places, report.blank, report.damaged) == (6, 3, 1)
    assert report.pieces == {"system": 1, "user": 1}
    assert (report.events_added, report.sessions) == (2, ("session-1",))


@pytest.mark.parametrize(
    ("start", "end", "last"), [(b"", b"\r\n", b"\r\n"), (b"", b"\n", b""), (b"\xef\xbb\xbf", b"\n", b"\n")]
)
def test_line_ends_do_not_matter(tmp_path: Path, log: TurnLog, start: bytes, end: bytes, last: bytes) -> None:
    """CRLF, a last line without an end and a byte order mark give the same events as plain lines."""
    session = Session()
    session.user("q")
    session.fragment("m", text("a"))
    log.import_claude_code(session.file(tmp_path))
    other = tmp_path / "other.jsonl"
    other.write_bytes(start + end.join(session.lines) + last)
    report = log.import_claude_code(other)
    assert (report.places, report.turns_added, report.events_added, report.turns_known) == (2, 0, 0, 2)


def test_progress_ends_at_the_last_line(tmp_path: Path, log: TurnLog) -> None:
    """Progress is told in lines, never backwards, and ends with all of them."""
    session = Session()
    lines = 2 * GROUP_STEPS_MAX
    for number in range(lines):
        session.user(f"q {number}")
    told: list[tuple[int, int]] = []
    log.import_claude_code(session.file(tmp_path), progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert len(told) > 3
    assert told[0][0] < lines
    assert {total for _, total in told} == {lines}
    assert told[-1] == (lines, lines)


# Damage


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"type":"user","uuid":"x","message":{"con', "not JSON: input data was truncated; the line was left out"),
        (b"[1,2]", "not a JSON object; the line was left out"),
        (b"{'a':1}", "not JSON: expected '\"' (byte 1); the line was left out"),
        (b'{"a":NaN}', "not JSON: invalid character (byte 5); the line was left out"),
        (b'{"a":"\xff"}', "not UTF-8 (invalid start byte at byte 6); the line was left out"),
        (b"\x00\x00\x00", "not JSON: invalid character (byte 0); the line was left out"),
        (b'{"a":' + b"[" * 600 + b"]" * 600 + b"}", "nested deeper than 496 levels; the line was left out"),
    ],
    ids=["cut", "list", "python", "nan", "latin", "nul", "deep"],
)
def test_damaged_line_is_reported_and_the_rest_goes_in(tmp_path: Path, log: TurnLog, line: bytes, what: str) -> None:
    """A line that is not a JSON object in UTF-8 is named by number and reason."""
    session = Session()
    session.user("q")
    session.raw(line)
    session.fragment("m", text("a"))
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report) == [(2, what)]
    assert (report.damaged, report.turns_added, report.events_added) == (1, 2, 2)
    assert texts(log, report.heads[0]) == ["q", "a"]


def test_brackets_in_strings_are_not_depth(tmp_path: Path, log: TurnLog) -> None:
    """Text full of brackets and quotes is not taken for deep nesting."""
    session = Session()
    session.user('["\\' * 2000)
    report = log.import_claude_code(session.file(tmp_path))
    assert texts(log, report.heads[0]) == ['["\\' * 2000]
    assert report.problems == ()


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({"uuid": None}, "uuid"),
        ({"uuid": "x" * 501}, "uuid"),
        ({"message": None}, "message"),
        ({"message": "hi"}, "message"),
        ({"message": {"role": "user"}}, "message.content"),
        ({"message": {"role": "user", "content": {"type": "text"}}}, "message.content"),
    ],
)
def test_message_row_with_a_part_missing_is_reported_and_kept(
    tmp_path: Path, log: TurnLog, fields: dict[str, Any], lacks: str
) -> None:
    """A user row that cannot be a turn is an event with the whole line, and what hangs on it goes through it."""
    session = Session()
    session.user("q")
    session.user("lost", **fields)
    session.fragment("m", text("a"), parent="uuid-1" if "uuid" not in fields else "uuid-0")
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report)[-1] == (2, f"user row without a usable {lacks}: kept as an event, it became no turn")
    assert {line for line, _ in problems(report)} == {2}
    assert lines_in(log)[1][2] == session.lines[1]
    assert texts(log, report.heads[0]) == ["q", "a"]


def test_unknown_role_is_reported(tmp_path: Path, log: TurnLog) -> None:
    """A role that turnlog does not know is taken for that of the row."""
    session = Session()
    session.fragment("m", text("a"), message={"role": "model"})
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report) == [(1, "message.role: 'model' is unknown, taken as 'assistant'")]
    assert log.turn(report.heads[0]).meta.role == "assistant"


def test_parent_that_is_no_uuid_is_reported(tmp_path: Path, log: TurnLog) -> None:
    """A parentUuid of another type is taken as null."""
    session = Session()
    session.user("q", parentUuid=7)
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report) == [(1, "parentUuid is not a uuid: taken as null")]
    assert report.roots == report.heads


def test_unpaired_surrogate_is_replaced_in_the_turn_and_kept_in_the_event(tmp_path: Path, log: TurnLog) -> None:
    """A cut emoji does not cost the line: the turn has U+FFFD in its place, the event the exact line."""
    session = Session()
    session.user("q")
    line = b'{"type":"user","uuid":"u","parentUuid":"uuid-0","message":{"role":"user","content":"%s"}}'
    session.raw(line % rb"cut \ud83d, \uDE00, \\ud83d, \ud83d\ude00")
    session.user("next", parent="u")
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report) == [(2, "an unpaired surrogate is not text: read as U+FFFD, the line is kept as it is")]
    assert log.payload(turn_of(log, "u").id) == rb'[{"type":"text","text":"cut \ufffd, \ufffd, \\ud83d, \ud83d\ude00"}]'
    assert lines_in(log)[1][2] == session.lines[1]
    assert texts(log, report.heads[0]) == ["q", "cut �, �, \\ud83d, 😀", "next"]
    assert log.verify().clean
    assert log.import_claude_code(session.file(tmp_path)).events_added == 0


def test_missing_parent_makes_a_root_and_is_reported(tmp_path: Path, log: TurnLog) -> None:
    """A row whose parent is nowhere starts a thread."""
    session = Session()
    session.user("q")
    session.user("lost", parent="nowhere")
    session.row("system", parent="nowhere-else")
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report) == [
        (2, "parentUuid 'nowhere' is neither in the file nor in the log: its turn starts a thread"),
        (3, "parentUuid 'nowhere-else' is neither in the file nor in the log: it belongs to no turn"),
    ]
    assert [texts(log, head) for head in report.heads] == [["q"], ["lost"]]
    assert "turn" not in lines_in(log)[2][1]


def test_cycle_is_reported_and_broken_at_its_first_row(tmp_path: Path, log: TurnLog) -> None:
    """The row of a circle that comes first becomes a root; rows that hang on the circle stay there."""
    session = Session()
    session.user("on the circle's end", uuid="x", parent="c")
    session.user("a", uuid="a", parent="c")
    session.user("b", uuid="b", parent="a")
    session.user("c", uuid="c", parent="b")
    session.user("self", uuid="self", parent="self")
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report) == [
        (2, "parentUuid 'c' leads in a circle back to this row: taken as null"),
        (5, "parentUuid 'self' leads in a circle back to this row: taken as null"),
    ]
    assert [texts(log, head) for head in report.heads] == [["a", "b", "c", "on the circle's end"], ["self"]]


def test_uuid_with_other_content_is_reported_and_means_the_latest_above(tmp_path: Path, log: TurnLog) -> None:
    """Of two rows with one uuid both are kept, and rows continue the one that was last before them."""
    session = Session()
    session.user("first", uuid="same", parent=None)
    session.user("after first", parent="same")
    session.user("second", uuid="same", parent=None)
    session.user("after second", parent="same")
    report = log.import_claude_code(session.file(tmp_path))
    assert problems(report) == [
        (3, "uuid 'same' is that of line 1 too, with other content: both are kept, rows below mean this one")
    ]
    assert [texts(log, head) for head in report.heads] == [["first", "after first"], ["second", "after second"]]


def test_repeated_row_is_the_same_turn(tmp_path: Path, log: TurnLog) -> None:
    """A fragment that comes twice adds its block once; both lines are events."""
    session = Session()
    session.user("q")
    session.fragment("m", text("a"))
    session.raw(session.lines[1])
    session.raw({**json.loads(session.lines[1]), "slug": "added later"})
    session.fragment("m", text("b"))
    report = log.import_claude_code(session.file(tmp_path))
    assert texts(log, report.heads[0]) == ["q", "a+b"]
    assert (report.turns_added, report.events_added, report.problems) == (2, 5, ())
    assert (log.stats().turns, log.stats().events) == (2, 8)
    assert log.import_claude_code(session.file(tmp_path)).events_added == 0


CODEX = b'{"timestamp":"2026-02-10T17:24:23.778Z","type":"session_meta","payload":{"id":"1"}}\n'
CURSOR = b'{"role":"user","message":{"content":[{"type":"text","text":"q"}]}}\n'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"\n \r\n", "is empty"),
        (CODEX, "is not a Claude Code session file: no line of it is one"),
        (CURSOR, "is not a Claude Code session file: no line of it is one"),
        (
            b"\n{\n",
            "is not a Claude Code session file: no line of it is one (line 2: not JSON: input data was truncated)",
        ),
    ],
)
def test_file_that_is_no_session_is_refused(tmp_path: Path, log: TurnLog, content: bytes, what: str) -> None:
    """A file without a line of a session is refused with one line that says so, and nothing is written."""
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        log.import_claude_code(path)
    assert str(caught.value) == f"{str(path)!r} {what}; nothing was imported"
    assert log.stats().events == 0


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("", "is a folder: name a session file in it"),
        ("missing.jsonl", "cannot be read: no such file or directory"),
        ("nul\0", "cannot be read: "),
    ],
)
def test_file_that_cannot_be_read_is_refused(tmp_path: Path, log: TurnLog, name: str, what: str) -> None:
    """A folder and a missing file are refused with one line that says so."""
    with pytest.raises(FormatError) as caught:
        log.import_claude_code(tmp_path / name)
    assert str(caught.value).startswith(f"{str(tmp_path / name)!r} {what}")


# Again, and longer


def test_import_again_adds_nothing(tmp_path: Path, log: TurnLog) -> None:
    """The same file again is known in every line."""
    session = rich_session()
    first = log.import_claude_code(session.file(tmp_path))
    size = log.stats().events
    again = log.import_claude_code(session.file(tmp_path))
    assert (again.turns_added, again.events_added, again.turns_known) == (0, 0, first.turns_added)
    assert (again.heads, again.roots, again.problems) == (first.heads, first.roots, first.problems)
    assert log.stats().events == size


def test_rest_of_a_message_continues_what_was_imported_of_it(tmp_path: Path, log: TurnLog) -> None:
    """Fragments that come after an import are a turn that continues that of the earlier ones, and it is reported."""
    session = Session()
    session.user("q")
    session.fragment("m", text("a"))
    session.fragment("m", text("b"))
    session.fragment("m", text("c"))
    session.user("next")
    assert log.import_claude_code(session.file(tmp_path, lines=2)).continued == ()
    report = log.import_claude_code(session.file(tmp_path))
    going_on = log.turn(report.heads[0]).continues
    assert (report.turns_added, report.turns_known, report.continued) == (2, 2, going_on)
    assert texts(log, report.heads[0]) == ["q", "a", "b+c", "next"]
    assert turn_of(log, "uuid-2").meta.origin.message_id == "m"
    assert log.import_claude_code(session.file(tmp_path)).continued == ()


@pytest.mark.parametrize("cuts", [[4], [2, 4], [2, 3, 4]])
def test_usage_of_a_message_is_the_same_however_it_was_imported(tmp_path: Path, log: TurnLog, cuts: list[int]) -> None:
    """What comes later has what was not counted yet, and no usage where that is nothing."""
    session = Session()
    session.user("q")
    for output, said in ((1, "a"), (1, "b"), (30, "c")):
        session.fragment("m", text(said), message={"usage": {"input_tokens": 500, "output_tokens": output}})
    for cut in cuts:
        report = log.import_claude_code(session.file(tmp_path, lines=cut))
    total = log.feeds.total_usage()
    assert (total.usage, total.replies) == (Usage(input_tokens=500, output_tokens=30), len(cuts))
    found = [turn.meta.usage for turn in log.ancestry(report.heads[0])[2:]]
    assert found == [None, Usage(output_tokens=29)][3 - len(cuts) :]


def test_usage_of_messages_that_did_not_end_is_told(tmp_path: Path, log: TurnLog) -> None:
    """Claude Code can write no more of one than its beginning; the last of its rows has the reason, and all tokens."""
    usage = {"usage": {"input_tokens": 500, "output_tokens": 1}}
    session = Session()
    session.user("q")
    session.fragment("a", text("a"), message=usage)
    session.fragment("a", text("b"), message=usage | {"stop_reason": "end_turn"})
    assert problems(log.import_claude_code(session.file(tmp_path))) == []
    session.fragment("b", text("c"), message=usage)
    session.fragment("b", text("d"), message=usage)
    session.fragment("c", text("without usage"))
    what = "stopped: the output tokens can be those of the beginning, and too few"
    found = problems(log.import_claude_code(session.file(tmp_path)))
    assert found == [(0, f"1 reply says what it took, and not why it {what}")]
    session.fragment(None, text("e"), message=usage)
    found = problems(log.import_claude_code(session.file(tmp_path)))
    assert found == [(0, f"2 replies say what they took, and not why they {what}")]


def test_rest_of_a_message_after_its_recorded_tool_result_continues_the_result(tmp_path: Path, log: TurnLog) -> None:
    """The recorded turn cannot take it, and beside the result it would be in no window of what follows."""
    session = Session()
    session.fragment("m", tool_use("t1"))
    session.user([tool_result("t1")])
    session.fragment("m", text("b"))
    log.import_claude_code(session.file(tmp_path, lines=2))
    report = log.import_claude_code(session.file(tmp_path))
    assert turn_of(log, "uuid-2").continues == (turn_of(log, "uuid-1").id,)
    assert [texts(log, head) for head in report.heads] == [["tool_use", "tool_result", "b"]]


def test_tool_result_of_a_known_fragment_continues_all_of_its_message(tmp_path: Path, log: TurnLog) -> None:
    """The model had said all of it by then, also where only a part was imported before."""
    session = Session()
    first = session.fragment("m", tool_use("t1"))
    session.fragment("m", tool_use("t2"))
    session.user([tool_result("t1")], parent=first)
    log.import_claude_code(session.file(tmp_path, lines=1))
    log.import_claude_code(session.file(tmp_path))
    assert turn_of(log, "uuid-1").continues == (turn_of(log, first).id,)
    assert turn_of(log, "uuid-2").continues == (turn_of(log, "uuid-1").id,)
    assert turn_of(log, "uuid-1").continues == (turn_of(log, first).id,)


def test_new_fragments_on_several_known_ones_are_one_turn(tmp_path: Path, log: TurnLog) -> None:
    """The rest of a message is one turn, whichever of the known fragments its rows hang on."""
    session = Session()
    first = session.fragment("m", text("a"))
    session.fragment("m", text("b"))
    session.fragment("m", text("c"))
    session.fragment("m", text("d"), parent=first)
    log.import_claude_code(session.file(tmp_path, lines=2))
    report = log.import_claude_code(session.file(tmp_path))
    assert texts(log, report.heads[0]) == ["a+b", "c+d"]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_rest_of_a_message_continues_the_part_that_it_hangs_on(
    tmp_path: Path, log: TurnLog, order: tuple[int, ...]
) -> None:
    """Where a message came in several imports, what is new continues the part that its parent is in."""
    session = Session()
    first = session.fragment("m", text("a"))
    session.fragment("m", text("b"))
    session.fragment("m", text("c"), parent=first)
    log.import_claude_code(session.file(tmp_path, lines=1))
    log.import_claude_code(session.file(tmp_path, lines=2))
    session.lines = [session.lines[number] for number in order]
    report = log.import_claude_code(session.file(tmp_path))
    assert sorted(texts(log, head) for head in report.heads) == [["a", "b"], ["a", "c"]]


def test_line_that_was_cut_goes_in_when_it_is_whole(tmp_path: Path, log: TurnLog) -> None:
    """A file that was read while its last line was being written is completed by the next import."""
    session = Session()
    session.user("q")
    session.fragment("m", text("a"))
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\n".join(session.lines)[:-20])
    assert log.import_claude_code(path).damaged == 1
    report = log.import_claude_code(session.file(tmp_path))
    assert (report.turns_added, report.events_added, report.problems) == (1, 1, ())
    assert texts(log, report.heads[0]) == ["q", "a"]


def test_copy_under_another_session_is_the_same_turns(tmp_path: Path, log: TurnLog) -> None:
    """A resumed session repeats rows under its own id: the turns are known, the lines are new, and it goes on there."""
    session, resumed = Session(), Session("session-2")
    for each in (session, resumed):
        each.user("q")
        each.fragment("m", text("a"))
    resumed.user("next")
    first = log.import_claude_code(session.file(tmp_path))
    report = log.import_claude_code(resumed.file(tmp_path, name="resumed.jsonl"))
    assert (report.turns_known, report.turns_added, report.events_added) == (2, 1, 3)
    assert log.turn(report.heads[0]).continues == first.heads
    assert turn_of(log, "uuid-1").meta.origin.session == "session-1"


def test_session_that_continues_another_file_continues_its_turns(tmp_path: Path, log: TurnLog) -> None:
    """A parent that the file lacks is found among the rows of files that were imported before."""
    session, resumed = Session(), Session("session-2")
    session.user("q")
    session.row("system", uuid="note")
    resumed.user("next", uuid="n", parent="note")
    log.import_claude_code(session.file(tmp_path))
    report = log.import_claude_code(resumed.file(tmp_path, name="resumed.jsonl"))
    assert texts(log, report.heads[0]) == ["q", "next"]
    assert (report.problems, report.roots, report.turns_known) == ((), (), 0)


def test_turn_of_another_file_is_none_of_this_one(tmp_path: Path, log: TurnLog) -> None:
    """A row that only hangs on another file's turn does not make it a turn of its own file, now or later."""
    session, resumed = Session(), Session("session-2")
    session.user("q")
    resumed.row("progress", uuid="p", parent="uuid-0")
    resumed.user("next")
    log.import_claude_code(session.file(tmp_path))
    path = resumed.file(tmp_path, name="resumed.jsonl")
    first, again = log.import_claude_code(path), log.import_claude_code(path)
    assert (first.turns_known, again.turns_known, again.events_added) == (0, 1, 0)
    assert first.heads == again.heads == (turn_of(log, "uuid-1").id,)


def test_edited_message_is_a_sibling(tmp_path: Path, log: TurnLog) -> None:
    """A row whose content changed is another turn beside the first; one whose other fields changed is the same turn."""
    session = Session()
    root = session.user("q")
    session.fragment("m", text("a"))
    session.user("next")
    log.import_claude_code(session.file(tmp_path))
    session.lines[1] = session.lines[1].replace(b'"version":"2.1.34"', b'"version":"2.1.35"')
    session.lines[2] = session.lines[2].replace(b'"next"', b'"edited"')
    report = log.import_claude_code(session.file(tmp_path))
    assert (report.turns_added, report.turns_known, report.events_added) == (1, 2, 2)
    answer = log.children(turn_of(log, root).id)
    assert [texts(log, child.id)[-1] for child in log.children(answer[0].id)] == ["next", "edited"]


def test_rows_below_an_edited_message_follow_it(tmp_path: Path, log: TurnLog) -> None:
    """A turn is the same only if what it continues is: below an edited message all turns are others."""
    session, edited = Session(), Session("session-2")
    for each, question in ((session, "q"), (edited, "edited")):
        each.user(question)
        each.fragment("m", text("a"))
    log.import_claude_code(session.file(tmp_path))
    report = log.import_claude_code(edited.file(tmp_path, name="edited.jsonl"))
    assert (report.turns_added, report.turns_known) == (2, 0)
    assert texts(log, report.heads[0]) == ["edited", "a"]


def test_import_that_another_process_overtakes_records_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When another process imports a part of the file between look-up and write, the import looks again."""
    session = Session()
    session.user("q")
    session.fragment("m", text("a"))
    session.fragment("m", text("b"))
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log, TurnLog.open(url) as other:
        place, overtaken = log.store.place, []

        def overtaken_place(payload: bytes | None) -> object:
            if not overtaken:
                overtaken.append(other.import_claude_code(session.file(tmp_path, lines=2, name="part.jsonl")))
            return place(payload)

        path = session.file(tmp_path)
        monkeypatch.setattr(log.store, "place", overtaken_place)
        report = log.import_claude_code(path)
        assert (overtaken[0].turns_added, overtaken[0].events_added) == (2, 2)
        assert (report.turns_added, report.events_added, report.continued) == (1, 1, report.heads)
        assert texts(log, report.heads[0]) == ["q", "a", "b"]
        assert log.stats().events == 7
        assert log.verify().clean


def test_imports_at_the_same_time_record_once(tmp_path: Path) -> None:
    """Threads that import one file at once record each turn and each line once between them."""
    path = rich_session().file(tmp_path)
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        reports: list[TranscriptReport] = []
        threads = [threading.Thread(target=lambda: reports.append(log.import_claude_code(path))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(report.events_added for report in reports) == reports[0].places
        assert {report.turns_added + report.turns_known for report in reports} == {log.stats().turns}
        assert len({report.heads for report in reports}) == 1
        assert log.verify().clean


def rich_session() -> Session:
    """Build a session with all that real ones have."""
    session = Session()
    session.raw({"type": "queue-operation", "timestamp": "2026-02-10T17:00:00.000Z", "sessionId": "session-1"})
    session.user("first question")
    session.row("progress", data={"percent": 50})
    thought = session.fragment("m1", {"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    one = session.fragment("m1", tool_use("t1"))
    session.user([tool_result("t1")], parent=one)
    two = session.fragment("m1", tool_use("t2"), parent=one)
    session.user([tool_result("t2", [text("nested")])], parent=two)
    session.row("attachment", attachment={"type": "note"})
    session.fragment("m2", text("an answer"))
    session.fragment("m2", text("and more of it"))
    session.user("another way", parent=thought)
    session.user("aside", parent=None, isSidechain=True)
    session.fragment("m3", text("aside answer"), isSidechain=True)
    session.fragment("m4", text("the other way"), parent="uuid-11")
    session.raw({"type": "summary", "summary": "s", "leafUuid": "uuid-10"})
    session.user([text("last words")])
    return session


def blocks_of_file(session: Session) -> set[bytes]:
    contents = [json.loads(line).get("message", {}).get("content", []) for line in session.lines]
    return {
        _json(block) for content in contents for block in ([text(content)] if isinstance(content, str) else content)
    }


@pytest.mark.parametrize("cut", range(1, 18))
def test_longer_file_adds_what_is_new(tmp_path: Path, cut: int) -> None:
    """Wherever a session was cut at its first import, the second one adds the rest and loses no block."""
    session = rich_session()
    assert len(session.lines) == 17
    with TurnLog.open("memory://") as log:
        first = log.import_claude_code(session.file(tmp_path, lines=cut))
        size = log.stats().events
        report = log.import_claude_code(session.file(tmp_path))
        assert report.events_added == 17 - cut
        assert report.turns_known == first.turns_added
        assert log.stats().events == size + report.events_added + report.turns_added
        assert blocks_of_file(session) <= blocks_in_heads(log)
        assert report.problems == ()
        assert log.verify().clean


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    """Draw sessions whose rows hang on any other row, or on none, with messages in any number of fragments."""
    session = Session()
    count = draw(st.integers(1, 14))
    uuids = st.sampled_from([f"uuid-{number}" for number in range(count)])
    for number in range(count):
        parent = draw(st.one_of(st.just(LAST), st.just(LAST), uuids, st.none()))
        match draw(st.sampled_from(["user", "fragment", "fragment", "other"])):
            case "user":
                session.user(f"text {number}", parent=parent)
            case "fragment":
                session.fragment(draw(st.sampled_from(["m1", "m2", None])), text(f"text {number}"), parent=parent)
            case _:
                session.row("progress", parent=parent)
    return session


@given(session=sessions(), cuts=st.lists(st.integers(1, 14), max_size=3).map(sorted))
def test_any_session_in_any_steps_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, session: Session, cuts: list[int]
) -> None:
    """Whatever hangs on what, and however often the file had grown between imports: each line is one event, each block
    is in the window of some head once, and another import adds nothing.
    """
    folder = tmp_path_factory.mktemp("session")
    with TurnLog.open("memory://") as log:
        added = [log.import_claude_code(session.file(folder, lines=cut)).events_added for cut in (*cuts, None)]
        assert sum(added) == len(session.lines)
        again = log.import_claude_code(session.file(folder))
        assert (again.turns_added, again.events_added, again.turns_known) == (0, 0, log.stats().turns)
        assert blocks_of_file(session) == blocks_in_heads(log)
        stored = [log.payload(r.header.id) for r in log.events(topics=["gpt.turn"])]
        assert sum(payload.count(b'"text":"') for payload in stored) == sum(b'"message"' in x for x in session.lines)
        assert log.verify().clean
