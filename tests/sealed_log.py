"""A sealed log for tests, and keys of what is sealed that are in memory."""

import hmac
import json
import threading
from hashlib import sha256
from pathlib import Path

from turnlog import TurnLog
from turnlog.audit.masters import FileMaster
from turnlog.audit.seals import SealFolder
from turnlog.events import DataKey
from turnlog.events.sealing import short
from turnlog.providers import get


def seals_in(folder: Path) -> SealFolder:
    """Return the keys of a folder as another process would have them: nothing is in memory."""
    return SealFolder(folder, FileMaster(folder / "master"))


class SealsInMemory:
    """Keys that are the same in each run, by subject."""

    def __init__(self) -> None:
        """Begin without any."""
        self._keys: dict[str | None, DataKey] = {}
        self._lock = threading.Lock()

    def get(self, key_id: str) -> DataKey | None:
        """Return a key by its id."""
        with self._lock:
            return next((key for key in self._keys.values() if key.id == key_id), None)

    def of_subject(self, subject: str | None) -> DataKey | None:
        """Return the key of a subject."""
        return self._keys.get(subject)

    def make(self, subject: str | None) -> DataKey:
        """Return the key of a subject, made if there is none."""
        with self._lock:
            return self._keys.setdefault(subject, DataKey.of(sha256(f"key of {subject}".encode()).digest()))

    def ids_of(self, subject: str) -> tuple[str, ...]:
        """Return the id of the key of a subject."""
        key = self._keys.get(subject)
        return () if key is None else (key.id,)

    def destroy(self, subject: str) -> tuple[str, ...]:
        """Forget the key of a subject."""
        with self._lock:
            key = self._keys.pop(subject, None)
        return () if key is None else (key.id,)

    def tag(self, kind: str, name: str) -> str:
        """Return what stands for a name."""
        return short(hmac.digest(b"names", f"{kind}\x00{name}".encode(), "sha256"))


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
