"""Damage of a SQLite store that cannot be seen from its events: pages, write-ahead log, schema, settings, files."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from turnlog.store.payloads import PayloadPlacer
from turnlog.store.sqlite.erasing import SCRUBS_OBJECT, scrubs_flaw
from turnlog.store.sqlite.handles import first_bytes
from turnlog.store.sqlite.opening import Place
from turnlog.store.sqlite.schema import APPLICATION_ID, OBJECTS, SCRUBS, VERSION, SchemaRow, schema_flaws
from turnlog.store.sqlite.transactions import SQLiteRead
from turnlog.store.sqlite.wal import dropped_commits, wal_state
from turnlog.store.transactions import ReadTransaction, SideTables, SQLTransaction, SyncProjection
from turnlog.store.values import Placement

_READS_MAX = 3
"""How often a finding is looked at again that somebody who writes meanwhile may explain."""

_Reading = Callable[[], AbstractContextManager[SQLiteRead]]
_UnderLock = Callable[[], AbstractContextManager[tuple[sqlite3.Cursor, SQLiteRead]]]


def engine_damage(
    path: Path | None,
    payloads: PayloadPlacer,
    reading: _Reading,
    under_lock: _UnderLock,
    place: Place,
    tables: Collection[str],
) -> Iterator[str]:
    """Iterate over damage of pages, of the write-ahead log and of the payload folder."""
    if path is not None:
        wal = path.with_name(path.name + "-wal")
        if wal.exists():
            yield from dropped_commits(wal)
        yield from _bytes_behind(path, reading)
    with reading() as transaction:
        for statement in _integrity_checks(transaction, tables):
            for (message,) in transaction.rows(statement):
                if message != "ok":
                    yield f"SQLite: {message}"
    yield from _stray_files(payloads, reading, under_lock, place)


def _bytes_behind(path: Path, reading: _Reading) -> Iterator[str]:
    for _ in range(_READS_MAX):
        before = wal_state(path)
        with reading() as transaction:
            [(pages,)] = transaction.rows("PRAGMA page_count")
            [(page_bytes,)] = transaction.rows("PRAGMA page_size")
            size = path.stat().st_size
        # A database that was written anew has fewer pages: its file is cut once all of the write-ahead log is in it.
        if not before.is_all_in_file:
            # A full disk may have broken off the last page that was written; it is written again.
            pages = _pages_said(path) if before.is_none_in_file else -(-size // page_bytes)
        behind = size - pages * page_bytes
        if behind <= 0:
            return
        if wal_state(path) == before:
            yield f"the store's file has {behind:,} bytes behind its last page"
            return


def _pages_said(path: Path) -> int:
    """Return how many pages the file of a database says it has (SQLite, "Database File Format", §1.3)."""
    return int.from_bytes(first_bytes(path, 32, path)[28:], "big")


def _integrity_checks(transaction: SQLTransaction, tables: Collection[str]) -> list[str]:
    """Return the statements that check all pages. What others say of their tables could be made to take for ever."""
    if not tables_of_others(transaction, tables):
        return ["PRAGMA integrity_check"]
    present = {row[1] for row in transaction.rows(OBJECTS) if row[0] == "table"}
    return [f"PRAGMA integrity_check('{name}')" for name in tables if name in present]


def _stray_files(payloads: PayloadPlacer, reading: _Reading, under_lock: _UnderLock, place: Place) -> Iterator[str]:
    pending = payloads.pending_hashes()  # asked for first: what is appended meanwhile is either here or in the log
    stray: list[tuple[Path, bytes | None]] = []
    for file, payload_hash in payloads.files():
        if payload_hash in pending:
            continue
        with reading() as transaction:
            if payload_hash is None or not transaction.has_file(payload_hash, _placement(file)):
                stray.append((file, payload_hash))
    if stray and not place.read_only:
        # A file has its name before its event is committed: with the write lock nobody is in between.
        with under_lock() as (_, transaction):
            stray = [
                (file, key) for file, key in stray if key is None or not transaction.has_file(key, _placement(file))
            ]
    for file, _ in stray:
        if os.path.lexists(file):
            yield f"payload file {file.parent.name}/{file.name} belongs to no event"


def _placement(file: Path) -> Placement:
    return Placement.FILE_ZSTD if file.suffix == ".zst" else Placement.FILE


def schema_damage(
    transaction: ReadTransaction,
    expected: dict[str, SchemaRow],
    projections: Sequence[SyncProjection],
    sides: Sequence[SideTables],
    path: Path | None,
) -> list[str]:
    """Return what is not as it should be of tables, indexes, triggers, version and settings."""
    objects: list[SchemaRow] = [(row[0], row[1], row[2], row[3]) for row in transaction.rows(OBJECTS)]
    names = {row[1] for row in objects}
    if SCRUBS in names:
        expected = expected | {SCRUBS: SCRUBS_OBJECT}
    flaws = [f"the store's schema: {flaw}" for flaw in schema_flaws(expected, objects, sides)]
    if SCRUBS_OBJECT in objects and (flaw := scrubs_flaw(transaction.rows(f"SELECT * FROM {SCRUBS} LIMIT 2"))):
        flaws.append(f"the store's schema: {flaw}")
    settings: list[tuple[str, object]] = [("encoding", "UTF-8"), ("application_id", APPLICATION_ID)]
    settings += [("user_version", VERSION)]
    for name, wanted in settings:
        [(actual,)] = transaction.rows(f"PRAGMA {name}")
        if actual != wanted:
            flaws.append(f"the store's settings: {name} is {actual!r}, should be {wanted!r}")
    if path is not None and _versions(path) != _WAL_VERSIONS:
        flaws.append("the store's settings: the file is not in write-ahead mode")
    if "store_projections" in names:
        built = dict(transaction.rows("SELECT name, version FROM store_projections"))
        known = {projection.name: projection.version for projection in projections}
        if built != known:
            flaws.append(f"the store says that it has the projections {built}, should have {known}")
    return flaws


_WAL_VERSIONS = b"\x02\x02"
"""Write and read version of a database in write-ahead mode (SQLite, "Database File Format", §1.3.3)."""


def _versions(path: Path) -> bytes:
    # Not by `PRAGMA journal_mode`, which tells how a connection goes about it.
    return first_bytes(path, 20, path)[18:]


def tables_of_others(transaction: SQLTransaction, tables: Collection[str]) -> list[str]:
    """Return the names of tables that are not among turnlog's."""
    names = [row[1] for row in transaction.rows(OBJECTS) if row[0] in ("table", "view")]
    return sorted(name for name in names if name not in tables and not name.startswith("sqlite_"))
