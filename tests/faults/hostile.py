"""Stores that somebody else has been at: reading and rewriting them behind turnlog's back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from turnlog.digest import leaf_hash, payload_hash, sri

Change = Callable[[dict[str, Any]], object]
Bytes = Callable[[bytes], bytes]

_encoder = msgspec.json.Encoder(order="sorted")


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    """Give a connection to a store for as long as its triggers are away. They come back as they were."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for name, sql in triggers:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchall():
                connection.execute(sql)
        connection.execute("COMMIT")


def run_sql(path: Path, *statements: str) -> None:
    """Run statements on a store while its triggers are away."""
    with opened(path) as connection:
        for statement in statements:
            connection.execute(statement)


def run_sql_as_it_is(path: Path, *statements: str) -> None:
    """Run statements on a store, triggers and all. They may change the schema, even where SQLite forbids it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def header_of(path: Path, at: int) -> dict[str, Any]:
    """Return the header of the event at a global position, decoded."""
    with closing(sqlite3.connect(path)) as connection:
        [(state,)] = connection.execute("SELECT state FROM stored_events WHERE notification_id = ?", (at,))
    return msgspec.json.decode(state)


def payload_of(path: Path, at: int) -> bytes:
    """Return the payload of the event at a global position, wherever it is kept."""
    with closing(sqlite3.connect(path)) as connection:
        [(placement, stored)] = connection.execute(
            "SELECT payload_placement, payload FROM stored_events WHERE notification_id = ?", (at,)
        )
    if placement in (3, 4):
        stored = payload_file(path, at).read_bytes()
    return zstandard.ZstdDecompressor().decompress(stored) if placement in (2, 4) else stored


def payload_file(path: Path, at: int) -> Path:
    """Return the file that has the payload of the event at a global position."""
    with closing(sqlite3.connect(path)) as connection:
        [(placement, stored)] = connection.execute(
            "SELECT payload_placement, payload FROM stored_events WHERE notification_id = ?", (at,)
        )
    name = stored.hex() + (".zst" if placement == 4 else "")
    return path.with_name(path.name + "-payloads") / name[:2] / name[2:]


def rewrite(
    path: Path,
    at: int,
    *,
    header: Change | None = None,
    private: Change | None = None,
    payload: Bytes | bytes | None = None,
    state: Bytes | None = None,
    part: Bytes | None = None,
    follow: bool = False,
) -> None:
    """Rewrite an event so that it is consistent in itself: hashes, leaf hash and columns are made to fit.

    Args:
        path: the file of the store.
        at: the event's global position.
        header: changes the decoded header in place.
        private: changes the decoded private part in place.
        payload: the new payload, or what makes it of the old one. Its hash and size are made to fit first.
        state: makes the bytes of the header of those in the form of the log.
        part: makes the bytes of the private part of those in the form of the log.
        follow: rewrite all that cites the event too, and what cites that, so that every citation fits.
    """
    old_payload = payload_of(path, at) if callable(payload) else b""
    with opened(path) as connection:
        [(before, private_state)] = connection.execute(
            "SELECT state, private FROM stored_events WHERE notification_id = ?", (at,)
        )
        head: dict[str, Any] = msgspec.json.decode(before)
        if payload is not None:
            payload = payload(old_payload) if callable(payload) else payload
            connection.execute(
                "UPDATE stored_events SET payload_placement = 1, payload = ? WHERE notification_id = ?", (payload, at)
            )
        if private_state is not None:
            record: dict[str, Any] = msgspec.json.decode(private_state)
            if payload is not None:
                record |= {"hash": payload_hash(payload), "size": len(payload)}
            if private is not None:
                private(record)
            private_state = _encoder.encode(record)
            private_state = private_state if part is None else part(private_state)
            head["private"] = sri(sha256(private_state).digest())
        if header is not None:
            header(head)
        text = _encoder.encode(head)
        _put(connection, at, text if state is None else state(text), private_state)
        if follow:
            _follow(connection, at, head["id"], before)


def _put(connection: sqlite3.Connection, at: int, state: bytes, private_state: bytes | None) -> None:
    head: dict[str, Any] = msgspec.json.decode(state)
    texts = [head.get(name) for name in ("id", "stream", "topic")]
    position = head.get("position")
    connection.execute(
        "UPDATE stored_events SET state = ?, leaf_hash = ?, private = ?, event_id = ?, originator_id = ?, topic = ?,"
        " originator_version = ? WHERE notification_id = ?",
        (
            state,
            leaf_hash(state),
            private_state,
            # Where the header has what no column can hold, the column has something else.
            *(text if isinstance(text, str) else f"no text {at}" for text in texts),
            position if isinstance(position, int) and -1 <= position < 1 << 63 else 0,
            at,
        ),
    )


def _follow(connection: sqlite3.Connection, at: int, event_id: str, before: bytes) -> None:
    new: dict[str, str] = {}
    for row, state, private_state in connection.execute(
        "SELECT notification_id, state, private FROM stored_events WHERE notification_id >= ? ORDER BY notification_id",
        (at,),
    ).fetchall():
        head = msgspec.json.decode(state)
        changed = row == at
        for citation in head["citations"]:
            if citation["id"] in new:
                citation["digest"] = new[citation["id"]]
                changed = True
        if changed:
            text = _encoder.encode(head)
            new[head["id"]] = sri(leaf_hash(text))
            _put(connection, row, text, private_state)


def insert(
    path: Path, header: dict[str, Any], private: dict[str, Any] | None = None, payload: bytes | None = None
) -> int:
    """Append an event that is consistent in itself, and return its global position."""
    private_state = None
    if private is not None:
        if payload is not None:
            private |= {"hash": payload_hash(payload), "size": len(payload)}
        private_state = _encoder.encode(private)
        header["private"] = sri(sha256(private_state).digest())
    state = _encoder.encode(header)
    with opened(path) as connection:
        cursor = connection.execute(
            "INSERT INTO stored_events (originator_id, originator_version, topic, state, event_id, leaf_hash, arrival,"
            " private, payload_placement, payload) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
            (
                header["stream"],
                header["position"],
                header["topic"],
                state,
                header["id"],
                leaf_hash(state),
                private_state,
                0 if payload is None else 1,
                payload,
            ),
        )
        return cursor.lastrowid or 0


def citation_of(path: Path, at: int, relation: str) -> dict[str, str]:
    """Return the citation of the event at a global position as something."""
    with closing(sqlite3.connect(path)) as connection:
        [(state, leaf)] = connection.execute(
            "SELECT state, leaf_hash FROM stored_events WHERE notification_id = ?", (at,)
        )
    return {"as": relation, "digest": sri(leaf), "id": msgspec.json.decode(state)["id"]}
