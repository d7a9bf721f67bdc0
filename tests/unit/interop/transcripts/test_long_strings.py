"""What is long in a transcript is recorded as what is short is: the same turns of the same bytes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import check_marks, take

from turnlog import TurnLog
from turnlog.errors import InputError
from turnlog.interop.texts import file_lines
from turnlog.interop.transcripts.documents import documents_of
from turnlog.model.pieces import PIECE
from turnlog.store import payloads

LONG = "x" * PIECE


def lines(path: Path, *records: dict[str, Any] | str) -> Path:
    """Write JSON lines."""
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records))
    return path


def contents(log: TurnLog) -> list[bytes]:
    """Return the content of each turn."""
    with log.store.read() as transaction:
        return [transaction.payload(each) or b"" for each in transaction.log(topics=["gpt.turn"])]


def codex(*content: str) -> str:
    """Return a line with what a model said, given as JSON of its parts."""
    return (
        f'{{"type":"response_item","payload":{{"type":"message","role":"assistant","content":[{",".join(content)}]}}}}'
    )


DATA = "aGk\\/" + "QUJD" * 20
SPELLED = {
    "codex": codex(f'{{"type":"output_text","text":"\\u00e9\\/\\u001F{DATA}"}}'),
    "codex image": codex(f'{{"type":"input_image","image_url":"data:image\\/png;base64,{DATA}"}}'),
    "cursor": '{"role":"user","message":{"content":[{"type":"image","source":'
    f'{{"type":"base64","media_type":"image/png","data":"{DATA}"}}}}]}}}}',
    "claude-code": '{"type":"user","uuid":"u","sessionId":"s",'
    f'"message":{{"role":"user","content":"\\u00e9{DATA}"}}}}',
}


@pytest.mark.parametrize("name", SPELLED)
def test_spelling_of_a_text_does_not_depend_on_its_length(tmp_path: Path, name: str) -> None:
    """Some readers keep the spelling of a file, some have that of the codec: short or long."""
    path = lines(tmp_path / "a.jsonl", SPELLED[name])
    with TurnLog.open("memory://") as log:
        check_marks(log, name.partition(" ")[0], path, take(log, name.partition(" ")[0], path))
        assert len(contents(log)[0]) > len(DATA)


def test_long_spelling_of_the_codec_is_kept_by_who_reads_it(tmp_path: Path) -> None:
    """Codex's texts are read; Claude Code's stay as they stand."""
    said = f'"\\u00e9\\/{LONG}"'
    session = lines(tmp_path / "a.jsonl", codex(f'{{"type":"output_text","text":{said}}}'))
    with TurnLog.open("memory://") as log:
        take(log, "codex", session)
        assert contents(log) == [f'[{{"type":"text","text":"é/{LONG}"}}]'.encode()]
    row = f'{{"type":"user","uuid":"u","sessionId":"s","message":{{"role":"user","content":{said}}}}}'
    with TurnLog.open("memory://") as log:
        take(log, "claude-code", lines(tmp_path / "b.jsonl", row))
        assert contents(log) == [f'[{{"type":"text","text":{said}}}]'.encode()]


def test_text_beside_half_of_a_pair_is_the_same_text(tmp_path: Path) -> None:
    """Gemini CLI writes a message again with what its calls gave, and some of that can be cut in a pair."""
    message = {"id": "m", "type": "gemini", "content": LONG, "toolCalls": []}
    result = [{"functionResponse": {"id": "c", "name": "ls", "response": {"output": "cut \ud83d"}}}]
    call = {"id": "c", "name": "ls", "args": {}, "status": "success", "result": result}
    session = {"sessionId": "s", "projectHash": "h"}
    path = lines(tmp_path / "session.jsonl", session, message, {**message, "toolCalls": [call]})
    with TurnLog.open("memory://") as log:
        report = take(log, "gemini-cli", path)
        assert b"".join(contents(log)).count(LONG.encode()) == 1
        assert [problem.place for problem in report.problems] == [3]
        assert "unpaired surrogate" in report.problems[0].what


def test_long_ids_of_calls_are_told_apart(tmp_path: Path) -> None:
    """However they are spelled; and they are told of as they are."""
    rows = [
        *(("user", "u0", None, "Hi"), ("assistant", "a0", "u0", [{"type": "tool_use", "id": LONG, "name": "ls"}])),
        *(("user", "u1", "a0", "Go on"), ("user", "r0", "a0", [{"type": "tool_result", "tool_use_id": LONG}])),
    ]
    records: list[dict[str, Any]] = [
        {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": {"role": kind, "content": said}}
        for kind, uuid, parent, said in rows
    ]
    path = tmp_path / "session.jsonl"
    with TurnLog.open("memory://") as log:
        take(log, "claude-code", lines(path, *records[:3]))
        answer = json.dumps(records[3]).replace(LONG, "\\u0078" + LONG[1:])
        report = take(log, "claude-code", lines(path, *records[:3], answer))
    assert [LONG in problem.what for problem in report.problems] == [True]


def test_what_no_block_is_called_is_shown_shortened(tmp_path: Path) -> None:
    """And no mark is."""
    block = {"type": LONG, "text": "a"}
    with TurnLog.open("memory://") as log:
        path = lines(tmp_path / "a.jsonl", {"role": "user", "message": {"content": [block]}})
        take(log, "cursor", path)
        assert contents(log) == [
            json.dumps([{"type": "native", "provider": "cursor", "block": block}], separators=(",", ":")).encode()
        ]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_file_that_is_written_meanwhile_is_read_as_far_as_it_was(tmp_path: Path, mark: str) -> None:
    """Else what is behind a torn line would be recorded without it, and for ever."""
    path = tmp_path / "a.jsonl"
    path.write_text(mark + '{"a":1}\n{"b":')
    read: Iterator[bytes]
    for read, rest in ((file_lines(path), [b'{"b":']), (documents_of(path), [b'{"b":'])):
        path.write_text(mark + '{"a":1}\n{"b":')
        assert next(read) == b'{"a":1}'
        with path.open("a") as file:
            file.write('2}\n{"c":3}\n')
        assert list(read) == rest


def test_payload_that_is_too_large_is_found_before_anything_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is half-written, in as many groups as it may be."""
    monkeypatch.setattr(payloads, "PAYLOAD_BYTES_MAX", 100_000)
    said = [{"role": "user", "message": {"content": f"{number}"}} for number in range(600)]
    large = {"role": "assistant", "message": {"content": "x" * 101_000}}
    rows = [
        {"type": "user", "uuid": f"u{number}", "sessionId": "s", "message": {"role": "user", "content": text}}
        for number, text in enumerate(["a"] * 600 + ["x" * 101_000])
    ]
    for format, records in {"cursor": [*said, large], "claude-code": rows}.items():
        with TurnLog.open("memory://") as log:
            path = lines(tmp_path / format, *records)
            with pytest.raises(InputError, match="more than the limit of 100,000"):
                take(log, format, path)
            assert log.id is None
