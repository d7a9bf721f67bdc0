"""What every format of transcripts promises, checked on a file: used by the test of each format."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anthropic.types import MessageParam
from pydantic import TypeAdapter

from turnlog import TurnLog, providers
from turnlog.errors import FormatError, TurnlogError
from turnlog.interop.marked import Marks
from turnlog.interop.transcripts import TranscriptReport
from turnlog.model import ContextWindow, Document, Native, Text, Thinking, ToolResult, ToolUse
from turnlog.record.findings import Hook

Said = tuple[str, ...]

_anthropic_messages = TypeAdapter(list[MessageParam])


def take(log: TurnLog, format: str, path: Path) -> TranscriptReport:
    """Import a file."""
    return log.import_transcript(format, path)


def blocks_of(log: TurnLog, turn: str) -> Iterator[tuple[str, ...]]:
    """Give what each block of a turn says: kind, and texts."""
    for message in log.context(turn, include_failed=True).messages[-1:]:
        for block in message.content:
            match block:
                case Text(text=text):
                    yield "text", text
                case Thinking(thinking=text):
                    yield "thinking", text
                case ToolUse(name=name, input=given):
                    yield "call", name, canonical(bytes(given))
                case ToolResult(content=str(text)):
                    yield "result", text
                case ToolResult(content=nested):
                    yield "result", *(block.text if isinstance(block, Text) else "…" for block in nested)
                case Document(source=source):
                    yield "document", source.data
                case Native(block=raw):
                    yield "native", canonical(bytes(raw))
                case _:
                    raise AssertionError(block)


def canonical(text: bytes | str) -> str:
    """Return a JSON text with sorted keys."""
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()


def said(log: TurnLog) -> Counter[Said]:
    """Return what all turns of a log say."""
    turns = [recorded.header.id for recorded in log.events(topics=["gpt.turn"])]
    return Counter(block for turn in turns for block in blocks_of(log, turn))


def check_importing(format: str, path: Path) -> tuple[TranscriptReport, Counter[Said]]:
    """Import a file, and again: nothing is added, and the log is clean. Return its report, and what was said."""
    with TurnLog.open("memory://") as log:
        report = take(log, format, path)
        again = take(log, format, path)
        assert (again.turns_added, again.events_added) == (0, 0)
        assert again.turns_known == report.turns_added
        assert (again.roots, again.heads) == (report.roots, report.heads)
        assert report.events_added == sum(report.pieces.values())
        assert log.verify().clean
        check_windows(log, report.heads)
        check_marks(log, format, path, report)
        return report, said(log)


def check_marks(log: TurnLog, format: str, path: Path, report: TranscriptReport) -> None:
    """Import the file of a log as if strings of more than 40 bytes were long: nobody sees a difference."""
    with pytest.MonkeyPatch.context() as patch, TurnLog.open("memory://") as other:
        patch.setattr(Marks, "json_bytes_max", 40)
        # Marks are numbered all through a process: from the hundredth import on they would be long strings themselves.
        patch.setattr("turnlog.model.long_strings._numbers", count())
        assert take(other, format, path) == report
        assert list(events(other)) == list(events(log))


def events(log: TurnLog) -> Iterator[tuple[object, ...]]:
    """Give what events are, but for the one that begins the log: id, topic, what they cite, metadata, payload."""
    with log.store.read() as transaction:
        for recorded in transaction.log():
            if recorded.private is not None:
                cited = [each.id for each in recorded.header.citations]
                meta = bytes(recorded.private.meta)
                yield recorded.header.id, recorded.header.topic, cited, meta, transaction.payload(recorded)


def check_growing(format: str, wholes: Sequence[bytes], path: Path) -> None:
    """Import a file each time that it has grown: nothing of what it says is lost, or there twice."""
    path.write_bytes(wholes[-1])
    _, whole = check_importing(format, path)
    with TurnLog.open("memory://") as log:
        for content in wholes:
            path.write_bytes(content)
            take(log, format, path)
        assert said(log) == whole
        assert log.verify().clean


def check_erasing(format: str, path: Path, text: str, folder: Path) -> None:
    """Import a file, erase its threads, and look for a text of it in all that the store has."""
    url = f"sqlite:///{folder}/erased.db"
    with TurnLog.open(url) as log:
        for root in take(log, format, path).roots:
            log.erase(thread=root, reason="asked for")
        log.finish_erasing()
    with TurnLog.open(url) as log, log.store.read() as transaction:
        for recorded in transaction.log():
            assert text.encode() not in (transaction.payload(recorded) or b""), recorded.header.topic
            assert recorded.private is None or text.encode() not in bytes(recorded.private.meta)
            if recorded.header.cited("turn") is not None:
                assert recorded.erased, f"{recorded.header.topic} is not erased with its turn"


def check_windows(log: TurnLog, heads: Sequence[str]) -> None:
    """Send the windows of heads to two providers: the bodies are valid, and each call has its result behind it."""
    for head in heads:
        window = log.context(head)
        messages = _body("anthropic", window, "claude-opus-4-5")["messages"]
        _anthropic_messages.validate_python(messages)
        for message, following in pairwise([*messages, {"content": []}]):
            assert _ids(message, "tool_use", "id") == _ids(following, "tool_result", "tool_use_id")
        items = _body("openai_responses", window, "gpt-5.2")["input"]
        called = [each["call_id"] for each in items if each.get("type") == "function_call"]
        answered = [each["call_id"] for each in items if each.get("type") == "function_call_output"]
        assert sorted(called) == sorted(answered)
        assert len(set(called)) == len(called)


def _body(provider: str, window: ContextWindow, model: str) -> dict[str, Any]:
    request = providers.get(provider).prepare_request(window, model=model, on_loss="report")
    return json.loads(request.body)


def _ids(message: dict[str, Any], kind: str, key: str) -> list[str]:
    blocks = message["content"] if isinstance(message["content"], list) else []
    return sorted(block[key] for block in blocks if block["type"] == kind)


def check_damaged(format: str, path: Path) -> None:
    """Import a damaged file: what can be read of it goes in, again adds nothing, and the log is clean. Or none does."""
    with TurnLog.open("memory://") as log:
        try:
            report = take(log, format, path)
        except FormatError as error:
            assert log.id is None, error  # noqa: PT017 - nothing was imported
            return
        assert report.events_added == sum(report.pieces.values())
        check_marks(log, format, path, report)
        again = take(log, format, path)
        assert (again.turns_added, again.events_added, again.heads) == (0, 0, report.heads)
        assert log.verify().clean
        for recorded in log.events(topics=["gpt.turn"]):
            log.context(recorded.header.id, include_failed=True)
        check_windows(log, report.heads[:3])


def check_nothing_of(
    secret: str, format: str, path: Path, store: Path | None, hooks: Sequence[Hook], where: str
) -> None:
    """Import a file with redaction hooks: a secret that it has is nowhere in the store, nor in what is told.

    Args:
        secret: what the hooks take out.
        format: that of the file.
        path: the file.
        store: the folder of the store, which is made; None for one in memory, which takes half the time.
        hooks: the redaction hooks.
        where: the place of the secret, for the message.
    """
    if store is not None:
        store.mkdir()
    told = ""
    with TurnLog.open("memory://" if store is None else f"sqlite:///{store}/log.db", redact=hooks) as log:
        try:
            told = str(take(log, format, path))
        except TurnlogError as error:
            told = str(error)
        read: list[bytes] = []
        with log.store.read() as transaction:
            for recorded in transaction.log():
                read += [recorded.state, recorded.private_state or b"", transaction.payload(recorded) or b""]
            for (table,) in transaction.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
                read += map(_spelled, chain.from_iterable(transaction.rows(f'SELECT * FROM "{table}"')))
        if store is not None:
            read += [file.read_bytes() for file in store.rglob("*") if file.is_file()]
    assert not [each for each in read if secret.encode() in each], where
    assert secret not in told, where


def _spelled(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
