"""Chat messages of applications of one's own."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import check_erasing, check_growing, check_importing, said, take

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop.exports import export
from turnlog.interop.finding import find
from turnlog.interop.transcripts.chat_messages import ChatMessages

Message = dict[str, Any]


def call(id: str, arguments: str, name: str = "ls") -> Message:
    """Return a call of a tool."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


MESSAGES: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How many files?", "timestamp": "2026-03-01T10:00:00Z", "name": "ann"},
    {
        "role": "assistant",
        "content": "Looking.",
        "reasoning_content": "I count.",
        "created_at": 1772359202,
        "tool_calls": [call("c1", '{"path":"a"}'), call("c2", '{ "path": "b" }')],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "x y"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "none"}]},
    {"role": "assistant", "content": "Two, in the first of both folders.", "model": "gpt-5", "id": "m9"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGkh", "detail": "high"}},
            {"type": "mention", "who": "bob"},
        ],
    },
    {"role": "assistant", "content": None, "refusal": "No."},
]

EXPECTED = Counter(
    {
        ("text", "Be brief."): 1,
        ("text", "How many files?"): 1,
        ("thinking", "I count."): 1,
        ("text", "Looking."): 1,
        ("call", "ls", '{"path":"a"}'): 1,
        ("call", "ls", '{"path":"b"}'): 1,
        ("result", "x y"): 1,
        ("result", "none"): 1,
        ("text", "Two, in the first of both folders."): 1,
        ("text", "And this?"): 1,
        ("document", "aGk="): 1,
        ("document", "aGkh"): 1,
        ("native", '{"type":"mention","who":"bob"}'): 1,
        ("native", '{"image_url":{"url":"https://example.org/x.png"},"type":"image_url"}'): 1,
        ("text", "No."): 1,
    }
)

ANTHROPIC = {
    "model": "claude-opus-4-5",
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "How many files?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I count.", "signature": "c2ln"},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "a"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x y"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Two."}]},
    ],
}


def listed(messages: Sequence[Message]) -> bytes:
    """Return a list of messages."""
    return json.dumps(messages).encode()


def indented(messages: Sequence[Message]) -> bytes:
    """Return a list of messages as people read it."""
    return json.dumps(messages, indent=2).encode()


def lines(messages: Sequence[Message]) -> bytes:
    """Return a line for each message."""
    return b"\n".join(json.dumps(each).encode() for each in messages)


def whole(messages: Sequence[Message]) -> bytes:
    """Return an object with messages."""
    return json.dumps({"id": "chat-7", "messages": messages, "owner": "ann"}).encode()


def in_a_list(messages: Sequence[Message]) -> bytes:
    """Return a list of objects with messages."""
    return json.dumps([{"messages": messages}], indent=1).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a path for a file."""
    return tmp_path / "messages.json"


FORMS = pytest.mark.parametrize("written", [listed, indented, lines, whole, in_a_list])


@FORMS
def test_each_message_is_a_turn(path: Path, written: Callable[[Sequence[Message]], bytes]) -> None:
    """However the file has them."""
    path.write_bytes(written(MESSAGES))
    assert ChatMessages().recognizes(path, path.read_bytes())
    report, found = check_importing("chat-messages", path)
    assert (report.turns_added, len(report.roots), len(report.heads)) == (8, 1, 1)
    assert found == EXPECTED
    assert report.problems == ()


@FORMS
def test_file_that_grows_is_imported_as_it_grows(path: Path, written: Callable[[Sequence[Message]], bytes]) -> None:
    """Whatever message it ends at."""
    check_growing("chat-messages", [written(MESSAGES[:end]) for end in range(2, len(MESSAGES) + 1)], path)


def test_what_a_turn_has_of_its_message(path: Path) -> None:
    """Time, model, session; and what it has no place for stays beside it."""
    path.write_bytes(whole(MESSAGES))
    with TurnLog.open("memory://") as log:
        [head] = take(log, "chat-messages", path).heads
        turns = log.ancestry(head)
        assert [turn.role for turn in turns] == [
            *("system", "user", "assistant", "user", "user", "assistant", "user", "assistant")
        ]
        assert turns[1].said_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
        assert turns[2].said_at == datetime(2026, 3, 1, 10, 0, 2, tzinfo=UTC)
        assert turns[5].model == "gpt-5"
        assert {turn.meta.origin.session for turn in turns if turn.meta.origin} == {"chat-7"}
        pieces = b"".join(log.payload(each.header.id) for each in log.events() if each.header.topic.startswith("chat-"))
        assert b'"name":"ann"' in pieces
        assert b'"owner":"ann"' in pieces
        assert b'"detail":"high"' in pieces  # for which a document has no place
        assert b"How many files?" not in pieces


def test_what_is_said_of_a_conversation_that_grows_is_kept_once(path: Path) -> None:
    """Though there are more messages before its end."""
    with TurnLog.open("memory://") as log:
        for end in (2, 4, 8):
            path.write_bytes(whole(MESSAGES[:end]))
            take(log, "chat-messages", path)
        assert [event.header.topic for event in log.events()].count("chat-messages.conversation") == 1


def test_messages_of_anthropic(path: Path) -> None:
    """With the system prompt that stands beside them, and the model of all."""
    path.write_text(json.dumps(ANTHROPIC))
    report, found = check_importing("chat-messages", path)
    assert report.turns_added == 5
    assert found["text", "Be brief."] == found["thinking", "I count."] == found["result", "x y"] == 1
    with TurnLog.open("memory://") as log:
        [head] = take(log, "chat-messages", path).heads
        assert [turn.model for turn in log.ancestry(head)][2::2] == ["claude-opus-4-5", "claude-opus-4-5"]


@pytest.mark.parametrize("format", ["openai", "anthropic"])
def test_what_is_exported_for_an_api_can_be_taken_in(path: Path, tmp_path: Path, format: str) -> None:
    """It says the same."""
    path.write_bytes(listed(MESSAGES[:6]))
    out = tmp_path / "out.json"
    with TurnLog.open("memory://") as log, out.open("wb") as file:
        [head] = take(log, "chat-messages", path).heads
        export(log, head, format).write(file)
        before = said(log)
    with TurnLog.open("memory://") as other:
        take(other, "chat-messages", out)
        after = said(other)
    assert after - before == Counter()
    assert {kind for kind, *_ in before - after} <= {"thinking"}


def test_conversations_that_begin_alike_are_threads_of_their_own(path: Path) -> None:
    """All of an application have the same system prompt; what a user says first tells them apart, or a name."""
    path.write_bytes(
        b"\n".join(
            [whole([MESSAGES[0], {"role": "user", "content": f"Question {number}"}]) for number in range(2)]
            + [json.dumps({"session_id": f"s{number}", "messages": MESSAGES[:2]}).encode() for number in range(2)]
        )
    )
    report, _ = check_importing("chat-messages", path)
    assert (len(report.roots), len(report.heads), report.turns_added) == (4, 4, 8)


def test_old_calls_and_arguments_that_are_none(path: Path) -> None:
    """A call of before tools; text for arguments is what the tool is given; a call without a name is native."""
    path.write_bytes(
        listed(
            [
                {"role": "user", "content": "Go"},
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "done"},
                {"role": "assistant", "content": "", "tool_calls": [call("c", "{broken"), {"id": "d"}]},
            ]
        )
    )
    with TurnLog.open("memory://") as log:
        take(log, "chat-messages", path)
        found = said(log)
    assert found["call", "f", "{}"] == found["result", "done"] == 1
    assert found["call", "ls", '{"input":"{broken"}'] == found["native", '{"id":"d"}'] == 1


def test_what_is_no_message_is_told_and_kept(path: Path) -> None:
    """With its place; an unknown role is a user's."""
    path.write_bytes(
        lines([MESSAGES[1], {"role": "narrator", "content": "Later."}, {"note": 1}, MESSAGES[5]]) + b"\n{broken\n[7]\n"
    )
    report, found = check_importing("chat-messages", path)
    assert [(each.place, each.what.partition(":")[0]) for each in report.problems] == [
        (2, "a message of the unknown role 'narrator'"),
        (3, "a message without a role or content"),
        (5, "not JSON"),
        (6, "a message that is no object"),
    ]
    assert found["text", "Later."] == 1
    assert report.damaged == 1


def test_a_file_that_is_cut_is_said_to_be_damaged(path: Path) -> None:
    """And not to be something else."""
    path.write_bytes(listed(MESSAGES)[:-1])
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="1 of 1 documents are damaged"):
        log.import_transcript("chat-messages", path)


@pytest.mark.parametrize("before", [b"", b'{"id":"5973","timestamp":"2025-05-07T17:24:21Z","instructions":null}\n'])
def test_lines_of_another_format_are_left_to_it(path: Path, before: bytes) -> None:
    """Older versions of Codex CLI wrote items as the Responses API has them: with a type."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which?"}]}
    path.write_bytes(before + json.dumps(item).encode() + b"\n")
    assert [each.format for each in find([path]).files] == ["codex"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"messages":[]}', b'{"a":1}\n', b'[{"role":"user","parts":[]}]'])
def test_other_files_are_refused(path: Path, content: bytes) -> None:
    """In one line."""
    path.write_bytes(content)
    assert not ChatMessages().recognizes(path, content)
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="nothing was imported"):
        log.import_transcript("chat-messages", path)


def test_erased_thread_is_gone_from_its_events_too(path: Path, tmp_path: Path) -> None:
    """With all that was said in it."""
    path.write_bytes(whole(MESSAGES))
    check_erasing("chat-messages", path, "Looking.", tmp_path)


@pytest.mark.parametrize(
    "piece", [b'"role":"user",', b'"content":1,', b'"messages":[{"a":1},', b'"messages":[', b"{},"]
)
def test_a_beginning_is_looked_at_once(path: Path, piece: bytes) -> None:
    """However often it could go on as messages do: this would take minutes."""
    assert not ChatMessages().recognizes(path, b"{" + piece * 40_000)
