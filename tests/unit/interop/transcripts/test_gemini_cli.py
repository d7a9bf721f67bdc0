"""Sessions and saved chats of Gemini CLI."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import (
    Said,
    canonical,
    check_erasing,
    check_growing,
    check_importing,
    take,
)

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop.transcripts import Problem
from turnlog.interop.transcripts.gemini_cli import GeminiCli
from turnlog.model import Usage

WHEN = "2026-02-10T17:28:05.832Z"


def call(id: str, output: str | None, **more: Any) -> dict[str, Any]:
    """Return a call of a tool as a session has it, with what it gave."""
    answer = {"functionResponse": {"id": id, "name": "ls", "response": {"output": output}}}
    result = {} if output is None else {"result": [answer], "resultDisplay": f"shown: {output}"}
    state = {"status": "executing" if output is None else "success", "timestamp": WHEN}
    return {"id": id, "name": "ls", "args": {"path": id}, **result, **state, **more}


def message(kind: str, id: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a message of a session."""
    return {"id": id, "timestamp": WHEN, "type": kind, "content": content, **more}


THOUGHT = {"subject": "Counting", "description": "I count.", "timestamp": WHEN}
TOKENS = {"input": 100, "output": 20, "cached": 60, "thoughts": 5, "tool": 0, "total": 125}


def looked(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the reply that calls tools."""
    return message("gemini", "m2", "", thoughts=[THOUGHT], model="example-model-1", toolCalls=list(calls), **more)


MESSAGES = [
    message("user", "m1", "How many files?"),
    looked(call("a", "x y"), call("b", "z"), tokens=TOKENS),
    message("info", "m3", "Update available"),
    message("gemini", "m4", "Three files.", model="example-model-1"),
]


def written(messages: list[dict[str, Any]]) -> bytes:
    """Return a session as its file has it."""
    whole = {"sessionId": "s-1", "projectHash": "h", "startTime": WHEN, "lastUpdated": WHEN, "messages": messages}
    return json.dumps(whole, indent=2).encode()


def before(log: TurnLog, turn: str, steps: int) -> str:
    """Return the id of a turn so many steps before another."""
    for _ in range(steps):
        [turn] = log.turn(turn).continues
    return turn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a session."""
    path = tmp_path / "session-1.json"
    path.write_bytes(written(MESSAGES))
    return path


def test_session_becomes_a_thread(path: Path) -> None:
    """What parallel calls gave is one turn behind them."""
    with TurnLog.open("memory://") as log:
        report = take(log, "gemini-cli", path)
        [head] = report.heads
        window = log.context(head)
        assert [(each.role, len(each.content)) for each in window.messages] == [
            ("user", 1),
            ("assistant", 3),
            ("user", 2),
            ("assistant", 1),
        ]
        meta = log.turn(before(log, head, 2)).meta
        assert (meta.model, meta.provider, meta.api) == ("example-model-1", "gemini", "generate_content")
        assert meta.usage == Usage(input_tokens=40, cache_read_input_tokens=60, output_tokens=20, reasoning_tokens=5)
    assert (report.sessions, report.places, report.problems) == (("s-1",), 4, ())


def test_importing_again_adds_nothing(path: Path) -> None:
    """And what was said is there once."""
    report, found = check_importing("gemini-cli", path)
    assert found["thinking", "**Counting**\n\nI count."] == 1
    assert found["call", "ls", '{"path":"a"}'] == 1
    assert found["result", "z"] == 1
    assert report.pieces["info"] == 1


def test_session_that_is_written_again_adds_what_is_new(path: Path) -> None:
    """Tokens, calls and what they gave come to a message later."""
    wholes = [
        written(MESSAGES[:1]),
        written([MESSAGES[0], looked()]),
        written([MESSAGES[0], looked(tokens=TOKENS)]),
        written([MESSAGES[0], looked(call("a", None), tokens=TOKENS)]),
        written([MESSAGES[0], looked(call("a", "x y"), call("b", None), tokens=TOKENS)]),
        written(MESSAGES[:2]),
        written(MESSAGES),
    ]
    check_growing("gemini-cli", wholes, path)


def test_failed_call_is_an_error(path: Path) -> None:
    """As its status or its answer says."""
    answer = {"functionResponse": {"id": "a", "name": "ls", "response": {"error": "no such folder"}}}
    path.write_bytes(written([MESSAGES[0], looked(call("a", None, result=[answer], status="error"))]))
    with TurnLog.open("memory://") as log:
        [head] = take(log, "gemini-cli", path).heads
        [block] = log.context(head).messages[-1].content
        assert (getattr(block, "content", None), getattr(block, "is_error", None)) == ("no such folder", True)


def test_unknown_messages_are_reported(path: Path) -> None:
    """And kept."""
    path.write_bytes(written([*MESSAGES, message("new", "m9", "?")]))
    report, _ = check_importing("gemini-cli", path)
    [problem] = report.problems
    assert (problem.place, "unknown type 'new'" in problem.what) == (5, True)
    assert report.pieces["new"] == 1


def test_other_file_is_refused(tmp_path: Path) -> None:
    """And a broken one."""
    other = tmp_path / "other.json"
    with TurnLog.open("memory://") as log:
        for content in ('{"a":1}', '{"sessionId":"s","messages":[', "[]"):
            other.write_text(content)
            with pytest.raises(FormatError, match="nothing was imported"):
                log.import_transcript("gemini-cli", other)


def test_erased_thread_is_gone_from_its_pieces_too(path: Path, tmp_path: Path) -> None:
    """Also from what repeats it for the screen."""
    check_erasing("gemini-cli", path, "x y", tmp_path)


# --------------------------------------------------------------------------------------------------------- saved chats

CHAT: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "Look."}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
    {
        "role": "model",
        "parts": [
            {"text": "Hm.", "thought": True},
            {"functionCall": {"name": "ls", "args": {"path": "a"}}, "thoughtSignature": "s1"},
            {"functionCall": {"name": "ls", "args": {"path": "b"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "ls", "response": {"output": "x"}}},
            {"functionResponse": {"name": "ls", "response": {"files": []}}},
        ],
    },
    {"role": "model", "parts": [{"text": "Two."}, {"executableCode": {"code": "1+1"}}]},
]


def test_saved_chat_becomes_a_thread(tmp_path: Path) -> None:
    """Calls without ids are paired in their order."""
    path = tmp_path / "checkpoint-a.json"
    path.write_text(json.dumps(CHAT))
    assert GeminiCli().recognizes(path, path.read_bytes())
    report, found = check_importing("gemini-cli", path)
    assert (report.turns_added, report.problems) == (4, ())
    assert found == Counter(
        [
            ("text", "Look."),
            ("document", "aGk="),
            ("thinking", "Hm."),
            ("call", "ls", '{"path":"a"}'),
            ("call", "ls", '{"path":"b"}'),
            ("result", "x"),
            ("result", '{"files":[]}'),
            ("text", "Two."),
            ("native", '{"executableCode":{"code":"1+1"}}'),
        ]
    )


def test_saved_chat_grows_and_can_be_wrapped(tmp_path: Path) -> None:
    """Newer versions have it under `history`."""
    path = tmp_path / "checkpoint-b.json"
    check_growing("gemini-cli", [json.dumps({"history": CHAT[:end]}).encode() for end in range(1, 5)], path)
    assert GeminiCli().recognizes(path, path.read_bytes())
    check_erasing("gemini-cli", path, "Look.", tmp_path)


# ------------------------------------------------------------------------------------------------------- a real session


def independent(path: Path) -> Counter[Said]:
    """Read what a session says, in another way than the importer."""
    found: Counter[Said] = Counter()
    for each in json.loads(path.read_text())["messages"]:
        if each["content"]:
            found["text", each["content"]] += 1
        for thought in each.get("thoughts", ()):
            found["thinking", f"**{thought['subject']}**\n\n{thought['description']}"] += 1
        for called in each.get("toolCalls", ()):
            found["call", called["name"], canonical(json.dumps(called["args"]))] += 1
            [answer] = called["result"]
            found["result", answer["functionResponse"]["response"]["output"]] += 1
    return found


def test_all_of_a_real_session_is_in_the_log(shared: Path) -> None:
    """Every text, thought, call and result; and its window goes to providers."""
    path = shared / "corpus" / "gemini-gemini-3-pro-preview.jsonl"
    assert GeminiCli().recognizes(path, path.read_bytes()[: 64 * 1024])
    _, found = check_importing("gemini-cli", path)
    assert found == independent(path)


def test_message_that_repeats_the_id_of_another_type_is_one_of_its_own(path: Path) -> None:
    """It is told, and nothing that a model said is put into a user's mouth."""
    messages = [message("user", "m1", "How many?"), message("gemini", "m1", "Three.", model="example-model-1")]
    path.write_bytes(written(messages))
    report, said = check_importing("gemini-cli", path)
    what = "a message of the type 'gemini' has the id 'm1' of one of another type: taken for a message of its own"
    assert report.problems == (Problem(place=2, what=what),)
    assert said == {("text", "How many?"): 1, ("text", "Three."): 1}
    with TurnLog.open("memory://") as log:
        [head] = take(log, "gemini-cli", path).heads
        assert [turn.meta.role for turn in log.ancestry(head)] == ["user", "assistant"]


def test_message_that_is_in_a_session_twice_is_told(path: Path) -> None:
    """One turn has what both say."""
    path.write_bytes(written([message("user", "m1", "One?"), message("user", "m1", "Two?")]))
    report, said = check_importing("gemini-cli", path)
    what = "the message 'm1' is there twice: one turn has what both say"
    assert report.problems == (Problem(place=2, what=what),)
    assert (said, report.turns_added) == ({("text", "One?"): 1, ("text", "Two?"): 1}, 1)
