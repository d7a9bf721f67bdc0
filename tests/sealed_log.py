"""A sealed log for tests."""

import json
from pathlib import Path

from turnlog import TurnLog
from turnlog.audit.masters import FileMaster
from turnlog.audit.seals import SealFolder
from turnlog.providers import get
from turnlog.testing.seals import SealsInMemory

__all__ = ["SealsInMemory", "fill", "seals_in"]


def seals_in(folder: Path) -> SealFolder:
    """Return the keys of a folder as another process would have them: nothing is in memory."""
    return SealFolder(folder, FileMaster(folder / "master"))


def fill(path: Path, seals: SealsInMemory) -> None:
    """Record a sealed log: a plain turn before, a subject's turns with calls, somebody else's, and a document."""
    adapter = get("openai_chat")
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        log.add_turn("You answer in one word.", role="system", bookmark="main")
        log.seal()
        log.add_turn("Name a river." + " Any river." * 50, continues="main", subject="Ada")
        for name in ("The Loire", "The Elbe"):
            request = adapter.prepare_request(log.context("main"), model="m-1", stream=False)
            call = log.calls.record(log.turn("main").id, request)
            reply = json.dumps(
                {
                    "id": name,
                    "object": "chat.completion",
                    "model": "m-1",
                    "choices": [
                        {"index": 0, "message": {"role": "assistant", "content": name}, "finish_reason": "stop"}
                    ],
                }
            ).encode()
            log.calls.record_reply(call, [reply], adapter.aggregate([reply]))
            log.add_turn("Another one.", continues="main")
        (path.parent / "note.txt").write_bytes(b"a note, " * 100)
        log.add_document(path.parent / "note.txt", continues="main")
        log.add_turn("Mine.", bookmark="other", subject="Bob")
        log.add_turn("Both.", continues=["main", "other"], bookmark="both", subject=False)
        log.add_turn("A draft.", bookmark="draft")
        log.bookmarks.set("again", "draft")
        log.bookmarks.rename("draft", "final")
        log.bookmarks.set("gone", "final")
        log.bookmarks.delete("gone")
