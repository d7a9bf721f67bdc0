"""Keys of what is sealed that are in memory, for tests of what is sealed with them."""

from __future__ import annotations

import hmac
import threading
from hashlib import sha256

from turnlog.events import DataKey
from turnlog.events.sealing import short


class SealsInMemory:
    """Keys that are the same in each run, by subject: one that was destroyed and is made again opens what it sealed."""

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
