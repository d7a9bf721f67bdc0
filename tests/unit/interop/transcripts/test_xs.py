"""Exports of cross.stream with gpt2099's turns."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import check_erasing, check_importing, take

from turnlog import TurnLog
from turnlog.digest import payload_hash
from turnlog.errors import FormatError
from turnlog.interop.finding import formats_of
from turnlog.interop.transcripts import Problem
from turnlog.model import Usage

IDS = [f"03DXL6W8Q53VJHS6I91Q9R7M{letter}" for letter in "0123456789"]


class Export:
    """Writes an export, frame by frame."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "cas").mkdir(parents=True)
        (folder / "frames.jsonl").touch()

    def add(self, number: int, content: bytes | None, topic: str = "gpt.turn", **meta: Any) -> str:
        """Add a frame with its content, and return its id."""
        frame: dict[str, Any] = {"topic": topic, "id": IDS[number], "meta": meta, "ttl": "forever"}
        if content is not None:
            frame["hash"] = payload_hash(content)
            (self.folder / "cas" / b64encode(frame["hash"].encode()).decode()).write_bytes(content)
        with (self.folder / "frames.jsonl").open("a") as file:
            file.write(json.dumps(frame) + "\n")
        return IDS[number]


def blocks(*given: dict[str, Any]) -> bytes:
    """Return content blocks as gpt2099 stores them."""
    return json.dumps(list(given)).encode()


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """Give an export of a thread with a document, a bookmark, options and a reply."""
    return sample(tmp_path)


def sample(folder: Path) -> Export:
    """Write such an export into a folder."""
    export = Export(folder / "export")
    document = export.add(
        0, b"# Notes", role="user", type="document", content_type="text/markdown", document_name="notes.md", cache=True
    )
    export.add(
        1,
        blocks({"type": "text", "text": "Sum it up."}),
        content_type="application/json",
        continues=[document],
        head="main",
        options={"provider_ptr": "kilo", "servers": ["filesystem"]},
    )
    export.add(
        2,
        blocks({"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}),
        content_type="application/json",
        role="assistant",
        continues="main",
        head="main",
        model="example-model-1",
        stop_reason="tool_use",
        usage={"input_tokens": 7, "output_tokens": 3},
    )
    export.add(
        3,
        blocks(
            {"type": "tool_result", "name": "read", "tool_use_id": "t1", "content": [{"type": "text", "text": "A"}]}
        ),
        content_type="application/json",
        continues=IDS[2],
    )
    export.add(4, b"a note", topic="notes")
    export.add(5, b"as older versions stored it", continues=IDS[3])
    return export


def test_turns_keep_their_ids(export: Export) -> None:
    """And what their frames say of them."""
    with TurnLog.open("memory://") as log:
        report = take(log, "xs", export.folder)
        document, asked, replied, answered, last = (log.turn(IDS[number]) for number in (0, 1, 2, 3, 5))
        assert report.problems == ()
        assert report.heads == (IDS[5].lower(),)
        assert (document.meta.type, document.meta.document_name, document.meta.cache) == ("document", "notes.md", True)
        assert log.payload(IDS[0]) == b"# Notes"
        assert asked.continues == (document.id,)
        assert asked.meta.inherited == {"provider_ptr": "kilo", "servers": ["filesystem"]}
        assert (replied.continues, replied.meta.role, replied.meta.model) == (
            (asked.id,),
            "assistant",
            "example-model-1",
        )
        assert replied.meta.usage == Usage(input_tokens=7, output_tokens=3)
        assert answered.continues == (replied.id,)
        assert (
            log.context(last.id).messages[-1].content_json == b'[{"type":"text","text":"as older versions stored it"}]'
        )
        assert [(bookmark.name, bookmark.turn) for bookmark in log.bookmarks.all()] == [("main", replied.id)]


def test_importing_again_adds_nothing(export: Export) -> None:
    """And other frames are kept with their content."""
    report, found = check_importing("xs", export.folder)
    assert report.pieces == {"content": 6, "gpt.turn": 5, "notes": 1}
    assert found["call", "read", '{"path":"a"}'] == 1
    with TurnLog.open("memory://") as log:
        take(log, "xs", export.folder)
        [content] = [
            json.loads(log.payload(event.header.id))
            for event in log.events(topics=["xs.content"])
            if event.header.cited("turn") is None
        ]
        assert content == {"hash": payload_hash(b"a note"), "topic": "notes", "text": "a note"}


def test_export_that_has_grown_adds_what_is_new(export: Export) -> None:
    """And moves its bookmark on."""
    with TurnLog.open("memory://") as log:
        take(log, "xs", export.folder)
        export.add(6, b"more", continues=[IDS[5]], head="main")
        report = take(log, "xs", export.folder)
        assert (report.turns_added, report.events_added) == (1, 2)
        assert log.turn("main").id == IDS[6].lower()


def test_bookmark_of_somebody_else_stays(export: Export) -> None:
    """And that is told."""
    with TurnLog.open("memory://") as log:
        here = log.add_turn("mine", bookmark="main")
        report = take(log, "xs", export.folder)
        assert log.turn("main").id == here.id
        assert [problem.what for problem in report.problems] == [
            "bookmark 'main' stands at another turn here, and stays there"
        ]


def test_bookmark_that_can_be_none_is_told(export: Export) -> None:
    """Its turn moves none, and turns that continue it by that name find it."""
    export.add(6, b"more", continues=[IDS[5]], head="a\x1bb ")
    export.add(7, b"and more", continues=["a\x1bb "])
    with TurnLog.open("memory://") as log:
        report = take(log, "xs", export.folder)
        assert [bookmark.name for bookmark in log.bookmarks.all()] == ["main"]
        assert log.turn(IDS[7]).continues == (IDS[6].lower(),)
        assert [(problem.place, problem.what) for problem in report.problems] == [
            (
                7,
                "bookmark: 'a\\x1bb ' cannot be a bookmark (1 to 200 printable characters, no blank at an end);"
                " it stays in the event",
            )
        ]


def test_bookmark_that_could_mean_another_turn_is_told(export: Export) -> None:
    """Whoever writes a store does not say what `main~1` means in a log."""
    export.add(6, b"more", continues=[IDS[5]], head="main~1")
    with TurnLog.open("memory://") as log:
        report = take(log, "xs", export.folder)
        assert [bookmark.name for bookmark in log.bookmarks.all()] == ["main"]
        assert [(problem.place, problem.what) for problem in report.problems] == [
            (7, "bookmark 'main~1' could mean a turn of yours; it stays in the event")
        ]


def test_what_is_missing_is_told(export: Export) -> None:
    """Content that is not there, a parent that is not there, content that is no block, and a damaged frame."""
    (export.folder / "cas" / b64encode(payload_hash(b"a note").encode()).decode()).unlink()
    export.add(6, blocks({"type": "odd"}), content_type="application/json", continues=["nobody", IDS[5]], role="bot")
    export.add(7, None)
    with (export.folder / "frames.jsonl").open("a") as file:
        file.write('\n{"topic":"gpt.turn","id":"x"}\n')
    report, found = check_importing("xs", export.folder)
    assert found["native", '{"type":"odd"}'] == 1
    assert [(problem.place, problem.what.split(":")[0]) for problem in report.problems] == [
        (5, f"content {payload_hash(b'a note')!r} is not in cas"),
        (7, "role 'bot' is unknown"),
        (7, 'continues "nobody", which is no turn before it'),
        (7, "content[0].type"),
        (8, "a turn without content"),
        (10, "no frame"),
    ]
    assert (report.places, report.blank, report.damaged) == (10, 1, 1)


def test_erased_thread_is_gone(export: Export, tmp_path: Path) -> None:
    """Also from what is kept of its frames."""
    check_erasing("xs", export.folder, "Sum it up", tmp_path)


def test_other_folder_is_refused(tmp_path: Path) -> None:
    """In one line."""
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match=r"it has no frames.jsonl; nothing"):
        log.import_transcript("xs", tmp_path)


def test_content_that_is_no_text_is_kept_as_it_is(tmp_path: Path) -> None:
    """In base64, and it is told."""
    export = Export(tmp_path / "export")
    export.add(0, b"\xff\x00hi", content_type="text/plain")
    report, found = check_importing("xs", export.folder)
    assert report.problems == (Problem(place=1, what="the content is not UTF-8: kept in base64, as a native block"),)
    assert found == {("native", '{"base64":"/wBoaQ=="}'): 1}


def test_link_out_of_an_export_is_not_followed(tmp_path: Path) -> None:
    """What an archive was unpacked to may lead to any file."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    export = Export(tmp_path / "export")
    export.add(0, b"hi", content_type="text/plain")
    [content] = (export.folder / "cas").iterdir()
    content.unlink()
    content.symlink_to(secret)
    report, found = check_importing("xs", export.folder)
    assert (found, len(report.problems)) == ({}, 1)
    assert report.problems[0].what.endswith("is a link out of the folder, not followed, kept as an event alone")
    content.unlink()
    (export.folder / "cas").rmdir()
    (export.folder / "cas").symlink_to(tmp_path)
    (tmp_path / content.name).write_bytes(b"hi")
    assert check_importing("xs", export.folder)[1] == {}


def test_frames_that_are_a_link_are_to_be_named(tmp_path: Path) -> None:
    """A folder whose frames are elsewhere is no export, unless they are named."""
    frames = tmp_path / "frames"
    export = Export(tmp_path / "export")
    export.add(0, b"hi", content_type="text/plain")
    own = export.folder / "frames.jsonl"
    own.rename(frames)
    own.symlink_to(frames)
    assert formats_of(export.folder) == []
    with (
        TurnLog.open("memory://") as log,
        pytest.raises(FormatError, match="is a link out of the folder, not followed"),
    ):
        log.import_transcript("xs", export.folder)
    assert check_importing("xs", own)[1] == {("text", "hi"): 1}
