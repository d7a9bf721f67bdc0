"""Looking at a place before a store is opened there, without changing what is there."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

from msgspec import Struct

from turnlog.errors import StoreOpenError, StoreReadOnlyError
from turnlog.store.sqlite.errors import converted
from turnlog.store.sqlite.schema import APPLICATION_ID, PAGE_BYTES, VERSION

SQLITE_MAGIC = b"SQLite format 3\0"
"""What every SQLite database begins with (SQLite, "Database File Format", §1.3)."""


BUSY_TIMEOUT_S = 60.0
BUSY_SLEEP_S = 0.005


class Place(Struct, frozen=True, kw_only=True):
    """What there is at a place.

    Attributes:
        is_store: whether there is a store, so that no tables need to be made.
        uri: the SQLite URI to open it with.
        read_only: whether it can be read and not written.
    """

    is_store: bool
    uri: str
    read_only: bool = False


MEMORY = Place(is_store=False, uri=":memory:")


def look(path: Path, *, create: bool) -> Place:
    """Look at a path. A missing folder is made if the store may be.

    Raises:
        StoreOpenError: there is no store, and `create` is false; or what is there is none that can be opened.
        StoreReadOnlyError: a store would have to be made where nothing can be written.
    """
    name = str(path)
    try:
        if path.is_dir():
            raise StoreOpenError(f"{name!r} is a folder, name a file in it")
        exists = path.exists()
        if not exists and not create:
            raise StoreOpenError(f"there is no store at {name!r}")
        if not exists:
            path.parent.mkdir(parents=True, exist_ok=True)
        size = path.stat().st_size if exists else 0
        if size and _first_bytes(path) != SQLITE_MAGIC:
            raise StoreOpenError(f"{name!r} is not a turnlog store, nor any SQLite database")
    except OSError as error:
        raise StoreOpenError(f"store {name!r} cannot be opened: {(error.strerror or str(error)).lower()}") from error
    read_only = not (os.access(path.parent, os.W_OK) and (not exists or os.access(path, os.W_OK)))
    if exists and size == 0 and not create:
        raise StoreOpenError(f"{name!r} is empty: there is no store in it")
    if size == 0 and read_only:
        raise StoreReadOnlyError(f"no store can be made at {name!r}: it cannot be written")
    if size == 0:
        _make(path)
        return Place(is_store=False, uri=_uri(path, "mode=rw"))
    mode = _read_mode(path) if read_only else "mode=rw"
    is_store = _is_store(path, mode)
    if not is_store and read_only:
        raise StoreReadOnlyError(f"no store can be made at {name!r}: it cannot be written")
    return Place(is_store=is_store, uri=_uri(path, mode), read_only=read_only)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC))


def _make(path: Path) -> None:
    """Make an empty database. Its page size can only be chosen now."""
    until = monotonic() + BUSY_TIMEOUT_S
    with converted(str(path)), closing(_connect(_uri(path, "mode=rwc"))) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        while True:
            # SQLite does not wait for others when it changes the journal mode.
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > until:
                    raise
                sleep(BUSY_SLEEP_S)


def _is_store(path: Path, mode: str) -> bool:
    """Tell whether a database is a turnlog store; False means that it is an empty database.

    Raises:
        StoreOpenError: it is another application's, of a newer version, or no database.
    """
    with converted(str(path)):
        try:
            application_id, version, tables = _identity(_uri(path, "mode=ro" if mode == "mode=rw" else mode))
        except sqlite3.OperationalError as error:
            if mode != "mode=rw" or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise
            # What a crash left beside the file has to be taken in first, and that is a write.
            application_id, version, tables = _identity(_uri(path, mode))
    if application_id == APPLICATION_ID and version > VERSION:
        raise StoreOpenError(
            f"store {str(path)!r} is of version {version}, this turnlog knows 1 to {VERSION}: upgrade turnlog"
        )
    if application_id != APPLICATION_ID and (tables or application_id or version):
        raise StoreOpenError(f"{str(path)!r} is a SQLite database, but not a turnlog store")
    return application_id == APPLICATION_ID


def _identity(uri: str) -> tuple[int, int, int]:
    """Return the application id and the version of a database, and the number of its tables, as of one moment."""
    with closing(_connect(uri)) as connection:
        connection.execute("BEGIN")
        [tables] = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        [application_id] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        return application_id, version, tables


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S)


def _read_mode(path: Path) -> str:
    if not path.with_name(path.name + "-wal").exists():
        # Without a write-ahead log beside it the file is all there is. SQLite could not make the shared-memory file
        # that it coordinates readers and writers with, and nobody who could write is expected.
        return "mode=ro&immutable=1"
    return "mode=ro"


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?{mode}"
