"""Import of a real Claude Code session, compared with what a plain reading of the file says must come out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop.importing import Problem, TranscriptReport
from turnlog.providers import get

KINDS = {"text", "thinking", "tool_use", "tool_result"}
LINES = 351
TURNS = 266


class _Message(msgspec.Struct):
    content: Raw
    id: str | None = None


class _Line(msgspec.Struct):
    message: _Message | None = None


@pytest.fixture(scope="module")
def session(shared: Path) -> Path:
    """Give the real session file."""
    return shared / "corpus" / "claude-opus-4-5.jsonl"


@pytest.fixture(scope="module")
def imported(session: Path) -> Iterator[tuple[TurnLog, TranscriptReport]]:
    """Give a log with the whole session, and the report of the import."""
    with TurnLog.open("memory://") as log:
        yield log, log.import_claude_code(session)


def raw_blocks(line: bytes) -> list[bytes]:
    """Return the content blocks of a line as they are spelled in the file; a string as the text block that it is."""
    message = msgspec.json.decode(line, type=_Line).message
    if message is None:
        return []
    content = bytes(message.content)
    if content.startswith(b'"'):
        return [b'{"type":"text","text":' + content + b"}"]
    return [bytes(raw) for raw in msgspec.json.decode(content, type=list[Raw])]


def window_blocks(log: TurnLog, head: str) -> list[list[bytes]]:
    """Return the raw blocks of a window, message by message."""
    return [
        [bytes(raw) for raw in msgspec.json.decode(message.content_json, type=list[Raw])]
        for message in log.context(head).messages
    ]


def blocks_in_heads(log: TurnLog) -> set[bytes]:
    """Return every raw block that is in the window of some head."""
    heads = {head for thread in log.threads() for head in thread.heads}
    return {block for head in heads for message in window_blocks(log, head) for block in message}


def expected_window(lines: list[bytes]) -> list[list[bytes]]:
    """Return the window of the session's end, read from the file alone: no code of turnlog is at work here.

    Nobody went back in it. So it is the file: one message for each user row and for each assistant message.
    """
    blocks: dict[str, list[bytes]] = {}
    for line in lines:
        row: dict[str, Any] = json.loads(line)
        if "uuid" in row:
            blocks.setdefault(row["message"].get("id") or row["uuid"], []).extend(raw_blocks(line))
    return list(blocks.values())


def test_window_of_the_head_is_the_file(session: Path, imported: tuple[TurnLog, TranscriptReport]) -> None:
    """There is one head, and its window has all messages in their order, every block byte for byte."""
    log, report = imported
    expected = expected_window(session.read_bytes().splitlines())
    assert [window_blocks(log, head) for head in report.heads] == [expected]


def test_no_window_lacks_a_result_that_the_file_has(imported: tuple[TurnLog, TranscriptReport]) -> None:
    """Results of parallel calls stand on sibling rows; the model had them all."""
    log, report = imported
    for head in report.heads:
        request = get("anthropic").prepare_request(log.context(head), model="claude-opus-4-5")
        assert [entry for entry in request.loss_report.entries if entry.kind == "synthesised"] == []


def test_every_block_is_in_the_window_of_a_head(session: Path, imported: tuple[TurnLog, TranscriptReport]) -> None:
    """No text, thinking, tool_use or tool_result of the file is out of reach, and none was changed."""
    log, _ = imported
    blocks = {block for line in session.read_bytes().splitlines() for block in raw_blocks(line)}
    assert {json.loads(block)["type"] for block in blocks} <= KINDS
    assert len(blocks) >= 300
    assert blocks_in_heads(log) == blocks


def test_report_counts_the_file(imported: tuple[TurnLog, TranscriptReport]) -> None:
    """Each line is an event, each message a turn; all that is wrong is that Claude Code wrote no stop reason at all."""
    log, report = imported
    assert (report.places, report.events_added, report.damaged, report.blank) == (LINES, LINES, 0, 0)
    assert report.pieces == {"assistant": 216, "queue-operation": 1, "user": 134}
    assert (report.turns_added, report.turns_known) == (TURNS, 0)
    what = "132 replies say what they took, and not why they stopped: the output tokens can be those of the beginning"
    assert report.problems == (Problem(place=0, what=f"{what}, and too few"),)
    assert len(report.roots) == 1
    assert log.stats().turns == report.turns_added


def test_line_events_and_turns_make_up_the_file(session: Path, imported: tuple[TurnLog, TranscriptReport]) -> None:
    """A line can be put together again from its event and from the content of its turn."""
    log, _ = imported
    turns: dict[str, list[bytes]] = {}
    for line in session.read_bytes().splitlines():
        row = json.loads(line)
        if "message" in row:
            turns.setdefault(row["message"].get("id") or row["uuid"], []).extend(raw_blocks(line))
    events = [r.header for r in log.events() if r.header.topic.startswith("claude-code.")]
    assert len(events) == LINES
    for event, line in zip(events, session.read_bytes().splitlines(), strict=True):
        row = json.loads(line)
        kept = json.loads(log.payload(event.id))
        if "message" in row:
            del row["message"]["content"]
            [turn] = [citation.id for citation in event.citations if citation.relation == "turn"]
            key = row["message"].get("id") or row["uuid"]
            assert log.payload(turn) == b"[" + b",".join(turns[key]) + b"]"
        assert kept == row


def test_log_verifies_clean(imported: tuple[TurnLog, TranscriptReport]) -> None:
    """Every hash, parent and projection is in order after the import."""
    log, report = imported
    verified = log.verify()
    assert verified.damage == ()
    assert verified.events == 1 + report.events_added + report.turns_added  # 1: the genesis


def test_import_again_adds_nothing(session: Path, tmp_path: Path) -> None:
    """Importing the session again into a store on disk, opened again, adds no event."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        first = log.import_claude_code(session)
    with TurnLog.open(url) as log:
        again = log.import_claude_code(session)
        assert (again.turns_added, again.events_added, again.turns_known) == (0, 0, first.turns_added)
        assert again.heads == first.heads
        assert log.stats().events == 1 + first.events_added + first.turns_added


def cuts(lines: list[bytes]) -> list[int]:
    """Return where to cut: at regular places, and before and after each fragment that goes on a message."""
    ids = [(json.loads(line).get("message") or {}).get("id") for line in lines]
    inside = [n for n in range(1, len(lines)) if ids[n] is not None and ids[n] in ids[:n]]
    return sorted({1, *range(2, len(lines), 45), *inside[::12], *(n + 1 for n in inside[::20]), len(lines) - 1})


def test_longer_file_adds_only_what_is_new(session: Path, tmp_path: Path) -> None:
    """Cut anywhere, also inside a message, the first part and then the whole give each line once and lose no block."""
    lines = session.read_bytes().splitlines(keepends=True)
    blocks = {block for line in lines for block in raw_blocks(line)}
    part = tmp_path / "part.jsonl"
    continued = 0
    for cut in cuts(lines):
        part.write_bytes(b"".join(lines[:cut]))
        with TurnLog.open("memory://") as log:
            added = log.import_claude_code(part).events_added
            known = log.stats().turns
            report = log.import_claude_code(session)
            assert (added + report.events_added, report.turns_known) == (LINES, known), cut
            assert report.turns_added == TURNS - known + len(report.continued), cut
            assert blocks_in_heads(log) == blocks, cut
            assert log.verify().clean, cut
            continued += len(report.continued)
    assert continued >= 5


def test_session_imported_line_by_line_loses_nothing(session: Path, tmp_path: Path) -> None:
    """A session that is imported again whenever it has grown by a few lines ends with every block in reach."""
    lines = session.read_bytes().splitlines(keepends=True)
    part = tmp_path / "part.jsonl"
    with TurnLog.open("memory://") as log:
        added = 0
        for cut in range(3, len(lines) + 3, 3):
            part.write_bytes(b"".join(lines[:cut]))
            added += log.import_claude_code(part).events_added
        assert added == LINES
        assert blocks_in_heads(log) == {block for line in lines for block in raw_blocks(line)}
        assert log.verify().clean


def test_damaged_line_in_the_middle_is_reported(session: Path, tmp_path: Path) -> None:
    """A line that is cut is named by its number, all others go in, and what hangs on it is reported as well."""
    lines = session.read_bytes().splitlines(keepends=True)
    lines[199] = lines[199][:100] + b"\n"
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"".join(lines))
    with TurnLog.open("memory://") as log:
        report = log.import_claude_code(broken)
        assert (report.events_added, report.damaged) == (LINES - 1, 1)
        assert [problem.place for problem in report.problems if "not JSON" in problem.what] == [200]
        assert any("neither in the file nor in the log" in problem.what for problem in report.problems)
        assert blocks_in_heads(log) == {b for n, line in enumerate(lines) if n != 199 for b in raw_blocks(line)}
        assert log.verify().clean


@pytest.mark.parametrize("name", ["codex-gpt-5-2", "cursor-opus-4-6", "gemini-gemini-3-pro-preview"])
def test_transcript_of_another_tool_is_refused(shared: Path, name: str) -> None:
    """Transcripts of other tools are refused in one line, and nothing is written."""
    with TurnLog.open("memory://") as log:
        with pytest.raises(FormatError, match="not a Claude Code session") as caught:
            log.import_claude_code(shared / "corpus" / f"{name}.jsonl")
        assert "\n" not in str(caught.value)
        assert log.stats().events == 0
