"""Data exports of ChatGPT."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from tests.unit.interop.transcripts.promises import check_erasing, check_growing, check_importing, said, take

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop import formats
from turnlog.interop.transcripts import Problem, TranscriptReport
from turnlog.model import Document, Text
from turnlog.record.findings import Found, Place


def node(id: str, parent: str | None, role: str | None = None, content: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a node of the tree; without a role it has no message."""
    message = None
    if role is not None:
        author = {"role": role, "name": fields.pop("name", None), "metadata": {}}
        if isinstance(content, str):
            content = {"content_type": "text", "parts": [content]}
        metadata = fields.pop("metadata", {})
        message = {"id": id, "author": author, "create_time": 1770000000.5, "content": content}
        message |= {"recipient": "all", "metadata": metadata, **fields}
    return {"id": id, "message": message, "parent": parent, "children": []}


NODES = [
    node("r", None),
    node("s", "r", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
    node(
        "c",
        "s",
        "user",
        {"content_type": "user_editable_context", "user_profile": "A baker.", "user_instructions": "Be brief."},
    ),
    node("u", "c", "user", "How many loaves?"),
    node(
        "t",
        "u",
        "assistant",
        {"content_type": "thoughts", "thoughts": [{"summary": "Counting", "content": "I count them."}]},
        metadata={"model_slug": "example-1"},
    ),
    node("p", "t", "assistant", {"content_type": "code", "language": "python", "text": "1+2"}, recipient="python"),
    node("x", "p", "tool", {"content_type": "execution_output", "text": "3"}, name="python"),
    node("k", "x", "assistant", {"content_type": "reasoning_recap", "content": "Thought for 2s"}),
    node(
        "a",
        "k",
        "assistant",
        "Three loaves.",
        metadata={"model_slug": "example-1", "finish_details": {"type": "stop"}},
    ),
    node("u2", "c", "user", "How many rolls?"),
    node("a2", "u2", "assistant", '{"queries":["rolls"]}', recipient="file_search"),
    node(
        "x2",
        "a2",
        "tool",
        {"content_type": "tether_quote", "url": "https://example.com", "text": "Nine", "title": "T"},
        name="file_search",
    ),
    node("x3", "x2", "tool", {"content_type": "text", "parts": ["and one"]}, name="file_search"),
]


def conversation(nodes: list[dict[str, Any]], id: str = "c-1") -> dict[str, Any]:
    """Return a conversation."""
    return {
        "title": "Bread and rolls",
        "create_time": 1770000000.0,
        "mapping": {each["id"]: each for each in nodes},
        "current_node": nodes[-1]["id"],
        "conversation_id": id,
    }


def written(*conversations: dict[str, Any]) -> bytes:
    """Return the file."""
    return json.dumps(conversations).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give an export."""
    path = tmp_path / "conversations.json"
    path.write_bytes(written(conversation(NODES)))
    return path


def test_branches_are_branches(path: Path) -> None:
    """Each leaf of the tree is a head."""
    with TurnLog.open("memory://") as log:
        report = take(log, "openai-export", path)
        windows = [log.context(head).messages for head in report.heads]
        meta = log.turn(report.heads[0]).meta
    assert [[message.role for message in window] for window in windows] == [
        ["system", "user", "assistant", "assistant", "user", "assistant"],
        ["system", "user", "assistant", "user", "user"],
    ]
    assert (meta.model, meta.provider, meta.stop_reason) == ("example-1", "openai", "stop")
    assert (report.sessions, report.problems, report.places) == (("c-1",), (), 1)
    assert report.pieces == {"conversation": 1, "message": len(NODES) - 1}


def test_all_that_is_said_is_in_the_log(path: Path) -> None:
    """Texts, thoughts, calls and results."""
    _, found = check_importing("openai-export", path)
    assert dict(found) == {
        ("text", "A baker."): 1,
        ("text", "Be brief."): 1,
        ("text", "How many loaves?"): 1,
        ("thinking", "I count them."): 1,
        ("call", "python", '{"input":"1+2"}'): 1,
        ("result", "3"): 1,
        ("text", "Three loaves."): 1,
        ("text", "How many rolls?"): 1,
        ("call", "file_search", '{"queries":["rolls"]}'): 1,
        ("result", "Nine"): 1,
        ("text", "and one"): 1,
    }


def test_conversation_that_goes_on_adds_what_is_new(path: Path) -> None:
    """Whatever message it ended at."""
    check_growing("openai-export", [written(conversation(NODES[:end])) for end in range(4, len(NODES) + 1)], path)


def test_erased_thread_is_gone_with_its_title(path: Path, tmp_path: Path) -> None:
    """And with the message itself."""
    check_erasing("openai-export", path, "Bread and rolls", tmp_path)


def test_file_that_breaks_off_is_read_as_far_as_it_goes(path: Path) -> None:
    """The conversation in which it does is reported by its number."""
    whole = written(conversation(NODES), conversation(NODES[:4], "c-2"), conversation(NODES, "c-3"))
    path.write_bytes(whole[: whole.index(b'"c-2"') + 20])
    report, found = check_importing("openai-export", path)
    assert (report.places, report.damaged, report.sessions) == (3, 1, ("c-1", "c-2"))
    assert [problem.place for problem in report.problems] == [3]
    assert found["text", "How many loaves?"] == 2


def test_tree_that_is_none_is_reported(path: Path) -> None:
    """A missing parent, and messages that are each other's ancestors."""
    nodes = [node("a", "gone", "user", "A"), node("b", "d", "user", "B"), node("d", "b", "user", "D")]
    path.write_bytes(written(conversation(nodes)))
    report, found = check_importing("openai-export", path)
    assert sum(found.values()) == 3
    assert [problem.what.partition(":")[0] for problem in report.problems] == [
        "the message 'a' stands under 'gone', which is not there",
        "the message 'd' is its own ancestor",
    ]


def test_images_of_the_zip_are_in_the_turn(tmp_path: Path) -> None:
    """One that is not there stays a reference, and is reported."""
    parts = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-A1", "width": 1},
        {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_gone"},
        "What is it?",
        {"content_type": "audio_transcription", "text": "Spoken."},
    ]
    nodes = [node("u", None, "user", {"content_type": "multimodal_text", "parts": parts})]
    path = tmp_path / "export.zip"
    with ZipFile(path, "w") as file:
        file.writestr("conversations.json", written(conversation(nodes)))
        file.writestr("images/file-A1-cat.png", b"png")
    report, found = check_importing("openai-export", path)
    assert (found["document", "cG5n"], found["text", "What is it?"], found["text", "Spoken."]) == (1, 1, 1)
    assert sum(count for kind, count in found.items() if kind[0] == "native") == 1
    assert report.problems == (
        Problem(place=1, what="the file 'sediment://file_gone' is not in the export: kept as a native block"),
    )
    assert report.pieces == {"conversation": 1, "file": 1, "message": 1, "transcription": 1}


def test_images_stand_where_they_stood(tmp_path: Path) -> None:
    """Between the texts that speak of them."""
    cat, dog = (
        {"content_type": "image_asset_pointer", "asset_pointer": f"file-service://file-{name}"} for name in ("A1", "B2")
    )
    parts = [cat, "what is in the first?", "Now", dog, "the second?", cat]
    nodes = [node("u", None, "user", {"content_type": "multimodal_text", "parts": parts})]
    path = tmp_path / "export.zip"
    with ZipFile(path, "w") as file:
        file.writestr("conversations.json", written(conversation(nodes)))
        file.writestr("images/file-A1-cat.png", b"cat")
        file.writestr("images/file-B2-dog.png", b"dog")
    check_importing("openai-export", path)
    with TurnLog.open("memory://") as log:
        [head] = take(log, "openai-export", path).heads
        said = [
            block.text if isinstance(block, Text) else b64decode(block.source.data).decode()
            for block in log.content(head)
            if isinstance(block, Text | Document)
        ]
    assert said == ["cat", "what is in the first?", "Now", "dog", "the second?", "cat"]


def test_message_that_is_exported_otherwise_does_not_repeat_what_it_says(tmp_path: Path) -> None:
    """Where its metadata changed, beside an image that is known, what follows goes on from the same turn."""
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-A1"}
    content = {"content_type": "multimodal_text", "parts": [image, "What is it?"]}
    path = tmp_path / "export.zip"
    with TurnLog.open("memory://") as log:
        reports: list[TranscriptReport] = []
        for metadata, more in (({}, []), ({"repos": []}, [node("a", "u", "assistant", "A cat.")])):
            with ZipFile(path, "w") as file:
                nodes = [node("u", None, "user", content, metadata=metadata), *more]
                file.writestr("conversations.json", written(conversation(nodes)))
                file.writestr("images/file-A1-cat.png", b"png")
            reports.append(take(log, "openai-export", path))
        assert (reports[1].turns_added, reports[1].continued) == (1, ())
        assert log.turn(reports[1].heads[0]).continues == reports[0].heads


def test_unknown_content_is_kept(path: Path) -> None:
    """As a native block, and reported."""
    path.write_bytes(written(conversation([node("u", None, "user", {"content_type": "new", "x": 1})])))
    report, found = check_importing("openai-export", path)
    assert dict(found) == {("native", '{"content_type":"new","x":1}'): 1}
    assert "unknown type 'new'" in report.problems[0].what


def test_zip_folder_and_file_are_the_same(path: Path, tmp_path: Path) -> None:
    """What one has brought, the others do not bring again."""
    zipped = tmp_path / "other.zip"
    with ZipFile(zipped, "w") as file:
        file.write(path, "conversations.json")
        file.writestr("user.json", "{}")
    with TurnLog.open("memory://") as log:
        take(log, "openai-export", path)
        before = said(log)
        for other, left_out in ((zipped, "user.json"), (tmp_path, "other.zip")):
            report = take(log, "openai-export", other)
            assert report.turns_added == 0
            told = f"1 files of the export are in no conversation: left out ({left_out})"
            assert report.problems == (Problem(place=0, what=told),)
        assert said(log) == before


def test_is_found_by_content(path: Path, tmp_path: Path) -> None:
    """A file, a zip or a folder."""
    importer = formats.get("openai-export")
    assert importer.recognizes(path, path.read_bytes())
    assert importer.recognizes(tmp_path, b"")
    assert not importer.recognizes(tmp_path.parent, b"")
    assert not importer.recognizes(path, b'[{"chat_messages": []}]')
    assert not importer.recognizes(tmp_path / "gone.zip", b"PK\x03\x04")


@pytest.mark.parametrize("content", [b"", b"[]", b"[{}]", b"PK\x03\x04broken", b"no"])
def test_other_file_is_refused(path: Path, content: bytes) -> None:
    """In one line."""
    path.write_bytes(content)
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="nothing was imported"):
        log.import_transcript("openai-export", path)


def test_redaction_hooks_see_all_of_it(path: Path) -> None:
    """What they take out is nowhere, and is counted where it was."""

    def hook(text: str, place: Place) -> list[Found]:
        at = text.find("loaves")
        return [] if at < 0 else [Found(start=at, end=at + len("loaves"), kind="bread")]

    with TurnLog.open("memory://", redact=[hook]) as log:
        report = take(log, "openai-export", path)
        assert report.redacted == {"bread": 2}
        assert said(log)["text", "How many [redacted: bread]?"] == 1
        with log.store.read() as transaction:
            for recorded in transaction.log():
                assert b"loaves" not in (transaction.payload(recorded) or b""), recorded.header.topic


def test_message_of_an_unknown_author_is_told(path: Path) -> None:
    """And taken for a user's; a developer's is a system turn."""
    nodes = [
        node("r", None),
        node("d", "r", "developer", "Be brief."),
        node("x", "d", "critic", "Too long."),
        node("a", "x", "assistant", "Yes."),
    ]
    path.write_bytes(written(conversation(nodes)))
    report, _ = check_importing("openai-export", path)
    assert report.problems == (Problem(place=1, what="a message of the unknown author 'critic': taken for a user's"),)
    with TurnLog.open("memory://") as log:
        [head] = take(log, "openai-export", path).heads
        assert [turn.meta.role for turn in log.ancestry(head)] == ["system", "user", "assistant"]


def test_what_was_said_aloud_keeps_all_that_is_known_of_it(path: Path) -> None:
    """The text is in the turn, the rest an event of it."""
    spoken = {"content_type": "audio_transcription", "text": "How many?", "direction": "in", "decoding_id": None}
    content = {"content_type": "multimodal_text", "parts": [spoken]}
    path.write_bytes(written(conversation([node("r", None), node("u", "r", "user", content)])))
    report, found = check_importing("openai-export", path)
    assert (report.problems, found) == ((), {("text", "How many?"): 1})
    with TurnLog.open("memory://") as log:
        [head] = take(log, "openai-export", path).heads
        [event] = [each for each in log.events() if each.header.topic == "openai-export.transcription"]
        assert json.loads(log.payload(event.header.id)) == {
            "part": {"content_type": "audio_transcription", "direction": "in", "decoding_id": None}
        }
        assert [citation.id for citation in event.header.citations] == [head]


@pytest.mark.parametrize("time", ["yesterday", [], 1e300])
def test_time_that_is_none_is_told(path: Path, time: object) -> None:
    """With the message that it is of."""
    nodes = [node("r", None), node("u", "r", "user", "How many?", create_time=time)]
    path.write_bytes(written(conversation(nodes)))
    report, _ = check_importing("openai-export", path)
    what = "the time of the message 'u' is none: the turn is without one"
    assert report.problems == (Problem(place=1, what=what),)
