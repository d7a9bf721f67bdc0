"""What turnlog is compared with: raw sqlite3 at the same durability, and a file of JSON lines that is synced.

Both are floors and no rivals: they are given finished bytes, and neither checks, hashes, compresses or indexes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Raw, Struct


class Line(Struct, frozen=True, kw_only=True):
    """A turn as a line of JSON: what a plain chat log keeps of it, and the parents that make it a tree."""

    id: str
    role: str
    continues: list[str]
    content: Raw


_encoder = msgspec.json.Encoder()

_PRIVATE_BYTES = 120
"""About what a private part without metadata has."""


def json_line(turn_id: str, role: str, continues: Sequence[str], payload: bytes) -> bytes:
    """Return a turn as a line: `{"id":…,"role":…,"continues":[…],"content":[blocks]}` and a line feed."""
    line = Line(id=turn_id, role=role, continues=list(continues), content=Raw(payload))
    return _encoder.encode(line) + b"\n"


class RawSQLite:
    """One table, in WAL mode with `synchronous=FULL`. An append is one row and one commit, by autocommit."""

    def __init__(self, path: Path) -> None:
        """Make the database."""
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE turns (position INTEGER PRIMARY KEY, state BLOB NOT NULL, payload BLOB NOT NULL)"
        )

    def append(self, state: bytes, payload: bytes) -> None:
        """Insert one row. It is on disk on return."""
        self._connection.execute("INSERT INTO turns (state, payload) VALUES (?, ?)", (state, payload))

    def append_all(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Insert many rows in one transaction."""
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO turns (state, payload) VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Return the database itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database."""
        self.close()


class JSONLines:
    """A file that grows by one line a turn, with one fsync a line."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, line: bytes) -> None:
        """Write one line. It is on disk on return."""
        os.write(self._handle, line)
        os.fsync(self._handle)

    def append_all(self, lines: Sequence[bytes]) -> None:
        """Write many lines and sync once."""
        written = memoryview(b"".join(lines))
        while written:
            written = written[os.write(self._handle, written) :]
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


class Statements:
    """What turnlog runs on SQLite for an append, and nothing else: the rest of its time is not the database's.

    The rows are finished, each with an id of its own, in a stream of their own, in the tables and with the page size of
    a store that turnlog made.
    """

    _INSERT = (
        "INSERT INTO stored_events (originator_id, originator_version, topic, state, event_id, leaf_hash, arrival,"
        " private, payload_placement, payload) VALUES (?, ?, 'gpt.turn', ?, ?, ?, 0, ?, 2, ?) ON CONFLICT DO NOTHING"
    )

    def __init__(self, path: Path, new_id: Callable[[], str]) -> None:
        """Open the file of a store, to be written to by nobody else."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._cursor = self._connection.cursor()
        self._new_id = new_id
        self._stream, self._position = new_id(), 0

    def append(self, state: bytes, payload: bytes) -> None:
        """Insert one event in a transaction. It is on disk on return."""
        cursor, own_id = self._cursor, self._new_id()
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("PRAGMA data_version").fetchall()
        header, private = state[:-_PRIVATE_BYTES], state[-_PRIVATE_BYTES:]
        row = (self._stream, self._position, header, own_id, bytes(32), private, payload)
        cursor.execute(self._INSERT, row)
        cursor.execute("COMMIT")
        self._position += 1

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Use it in a `with` statement."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the database."""
        self.close()
