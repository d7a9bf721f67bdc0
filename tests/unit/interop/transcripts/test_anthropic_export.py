"""Data exports of claude.ai."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from tests.unit.interop.transcripts.promises import check_erasing, check_growing, check_importing, take

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop import formats

ROOT = "00000000-0000-4000-8000-000000000000"


def message(id: str, sender: str, content: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a message; its text is that of its content."""
    text = "\n\n".join(block["text"] for block in content if block["type"] == "text")
    time = "2026-02-10T17:24:01.000000Z"
    record = {"uuid": id, "text": text, "content": content, "sender": sender, "created_at": time}
    return record | {"attachments": [], "files": []} | fields


def text(told: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"start_timestamp": "2026-02-10T17:24:01Z", "type": "text", "text": told, "citations": []}


MESSAGES = [
    message(
        "m1",
        "human",
        [text("How many loaves?")],
        parent_message_uuid=ROOT,
        attachments=[{"file_name": "list.txt", "file_size": 4, "extracted_content": "one, two"}],
        files=[{"file_name": "a.png"}],
    ),
    message(
        "m2",
        "assistant",
        [
            {"type": "thinking", "thinking": "I look.", "summaries": [{"summary": "Looking"}]},
            text("Let me look."),
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "shelf"}},
            {"type": "tool_use", "id": "t2", "name": "look", "input": {"at": "oven"}},
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "two", "uuid": "z"}]},
            {"type": "tool_result", "tool_use_id": "t2", "content": "none", "is_error": True},
            text("Two loaves."),
        ],
        parent_message_uuid="m1",
    ),
    message("m3", "human", [text("And rolls?")], parent_message_uuid="m2"),
    message("m4", "human", [text("And cakes?")], parent_message_uuid="m2"),
]
SAID = {
    ("text", "How many loaves?"): 1,
    ("text", "one, two"): 1,
    ("thinking", "I look."): 1,
    ("text", "Let me look."): 1,
    ("call", "look", '{"at":"shelf"}'): 1,
    ("call", "look", '{"at":"oven"}'): 1,
    ("result", "two"): 1,
    ("result", "none"): 1,
    ("text", "Two loaves."): 1,
    ("text", "And rolls?"): 1,
    ("text", "And cakes?"): 1,
}


def written(messages: list[dict[str, Any]]) -> bytes:
    """Return the file."""
    head = {"uuid": "c-1", "name": "Bread of today", "created_at": "2026-02-10T17:24:00Z", "account": {"uuid": "x"}}
    return json.dumps([head | {"chat_messages": messages}]).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give an export."""
    path = tmp_path / "conversations.json"
    path.write_bytes(written(MESSAGES))
    return path


def test_results_in_a_message_of_a_model_are_turns_that_answer(path: Path) -> None:
    """And what was asked again is a branch."""
    with TurnLog.open("memory://") as log:
        report = take(log, "anthropic-export", path)
        windows = [log.context(head).messages for head in report.heads]
    shape = [("user", 2), ("assistant", 4), ("user", 2), ("assistant", 1), ("user", 1)]
    assert [[(message.role, len(message.content)) for message in window] for window in windows] == [shape, shape]
    assert (report.sessions, report.problems, len(report.roots)) == (("c-1",), (), 1)
    assert (report.pieces["tool_result"], report.pieces["tool_result_part"]) == (2, 1)


def test_all_that_is_said_is_in_the_log(path: Path) -> None:
    """Also the text of what was attached."""
    _, found = check_importing("anthropic-export", path)
    assert dict(found) == SAID


def test_conversation_that_goes_on_adds_what_is_new(path: Path) -> None:
    """Whatever message it ended at, and where the last one was longer the next time."""
    shorter = MESSAGES[1] | {"content": MESSAGES[1]["content"][:5]}
    wholes = [written(MESSAGES[:1]), written([MESSAGES[0], shorter]), *(written(MESSAGES[:end]) for end in (2, 3, 4))]
    check_growing("anthropic-export", wholes, path)


def test_erased_thread_is_gone(path: Path, tmp_path: Path) -> None:
    """Also the name of the conversation."""
    check_erasing("anthropic-export", path, "Bread of today", tmp_path)


def test_texts_are_gone_from_the_messages_that_repeat_them(path: Path, tmp_path: Path) -> None:
    """A message says its content twice."""
    check_erasing("anthropic-export", path, "Two loaves", tmp_path)


def test_messages_of_older_exports_follow_each_other(path: Path) -> None:
    """They have a text and no content, or calls without ids, and do not say what they answer."""
    messages = [
        {"uuid": "m1", "text": "Hi", "sender": "human", "created_at": "2024-02-10T17:24:01Z"},
        message(
            "m2",
            "assistant",
            [
                {"type": "tool_use", "name": "look", "input": {}},
                {"type": "tool_result", "name": "look", "content": []},
                text("Hello"),
            ],
        ),
    ]
    path.write_bytes(written(messages))
    report, found = check_importing("anthropic-export", path)
    assert dict(found) == {
        ("text", "Hi"): 1,
        ("call", "look", "{}"): 1,
        ("result",): 1,
        ("text", "Hello"): 1,
    }
    assert (len(report.roots), len(report.heads), report.problems) == (1, 1, ())


def test_what_is_unknown_is_kept_and_reported(path: Path) -> None:
    """A block, a sender and a parent."""
    messages = [
        message("m0", "bot", [{"type": "new", "x": 1}], parent_message_uuid="gone"),
        7,
        MESSAGES[0],
        MESSAGES[0],
    ]
    path.write_bytes(written(messages))
    report, found = check_importing("anthropic-export", path)
    assert found["native", '{"type":"new","x":1}'] == 1
    assert [problem.what.partition(":")[0] for problem in report.problems] == [
        "message 2 is no object",
        "message 4 comes twice",
        "the message 'm0' answers 'gone', which is not there",
        "a message of the unknown sender 'bot'",
        "a block of the unknown type 'new'",
    ]
    assert report.pieces["message"] == 4


def test_zip_is_read(path: Path, tmp_path: Path) -> None:
    """As the file is."""
    zipped = tmp_path / "data.zip"
    with ZipFile(zipped, "w") as file:
        file.write(path, "conversations.json")
        file.writestr("users.json", "[]")
    _, found = check_importing("anthropic-export", zipped)
    assert dict(found) == SAID


def test_is_found_by_content(path: Path) -> None:
    """An export of ChatGPT is none of it."""
    importer = formats.get("anthropic-export")
    assert importer.recognizes(path, path.read_bytes())
    assert not importer.recognizes(path, b'[{"mapping": {}}]')


def test_other_file_is_refused(path: Path) -> None:
    """In one line."""
    path.write_text('[{"mapping": {}}]')
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="has no conversation; nothing was"):
        log.import_transcript("anthropic-export", path)
