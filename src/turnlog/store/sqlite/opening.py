"""Looking at a place before a store is opened there, without changing what is there."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

from msgspec import Struct

from turnlog.errors import StoreError, StoreOpenError, StoreReadOnlyError, os_reason
from turnlog.store.files import (
    OWN,
    Access,
    access_like,
    file_error,
    make_folders,
    sync_folder,
)
from turnlog.store.sqlite.errors import converted
from turnlog.store.sqlite.handles import FileId, connect, file_id, first_bytes, make, unconnected
from turnlog.store.sqlite.journal import BUSY_SLEEP_S, write_ahead
from turnlog.store.sqlite.mounts import is_mount_point
from turnlog.store.sqlite.schema import APPLICATION_ID, PAGE_BYTES, VERSION, VERSION_MIN

SQLITE_MAGIC = b"SQLite format 3\0"
"""What every SQLite database begins with (SQLite, "Database File Format", §1.3)."""

BUSY_TIMEOUT_S = 60.0

_APPEARING_S = 1.0
"""How long the files beside a database may take to appear, once the first of them is there."""

IMMUTABLE = "mode=ro&immutable=1"
"""How SQLite reads a file without locks, as if it never changed."""

_ENDING_BYTES = len("-projections-search-0123456789ab-journal")
"""So much the names of what is made beside a store's file add to that of it, at most."""

_PATH_BYTES_MAX = 512
"""SQLite opens no file whose path is longer (`MAX_PATHNAME` of its VFS for Unix)."""

BESIDE_S = 0.1
"""How long the files beside a database are taken for what they were. To look at both takes a sixth of an append."""

Signature = tuple[int, int, int, bool]
"""Of a database file: time of its last change (ns), bytes, inode; and whether a write-ahead log is beside it."""


class Beside:
    """The write-ahead log of a database and its index, as long as this process has them open.

    SQLite opens them by name. Where somebody removes them meanwhile, whoever comes next makes others: both go on, each
    sees the turns of its own, and those of one of them are lost without a word when the files are closed.
    """

    def __init__(self, path: Path) -> None:
        """Take the path of the database; nothing is known yet of what is beside it."""
        self._names = (f"{path}-wal", f"{path}-shm")
        self._files: tuple[FileId | None, ...] | None = None
        self._next_s = 0.0

    def look(self) -> None:
        """Note which files they are, if that is not known. A connection MUST be in a transaction: it has them open."""
        if self._files is None:
            self._files = tuple(map(file_id, self._names))

    def forget(self) -> None:
        """Know nothing of them any more: whoever closed its connections has others by the next time."""
        self._files = None

    def replaced(self) -> str | None:
        """Return the name of one that is not the file any more that is open. Files are looked at now and then."""
        if self._files is None or (now_s := monotonic()) < self._next_s:
            return None
        for name, file in zip(self._names, self._files, strict=True):
            if file_id(name) != file:
                return name
        self._next_s = now_s + BESIDE_S
        return None


class Place(Struct, frozen=True, kw_only=True):
    """What there is at a place.

    Attributes:
        is_store: whether there is a store, so that no tables need to be made.
        uri: the SQLite URI to open it with.
        path: the file itself, behind all symbolic links: what is beside a store is beside this. None in memory.
        access: who may use its file, and so all that is made beside it.
        read_only: whether it can be read and not written.
        immutable: whether SQLite reads it without locks, as if it never changed. Whoever reads it MUST ask for its
            `signature` before and after, and look again when that is not the one here.
        signature: of a file that cannot be written, as it was before it was decided how to read it; else None.
        file_name: `path` as a string; empty in memory.
        file: which file it is, by device and number; None in memory.
        beside: the files beside it that SQLite has open; None in memory, and where it can only be read.
    """

    is_store: bool
    uri: str
    path: Path | None = None
    access: Access = OWN
    read_only: bool = False
    immutable: bool = False
    signature: Signature | None = None
    file_name: str = ""
    file: FileId | None = None
    beside: Beside | None = None


MEMORY = Place(is_store=False, uri=":memory:")


def look(path: Path, *, create: bool) -> Place:
    """Look at a path. A missing file, and missing folders, are made if the store may be, for their owner alone.

    Raises:
        StoreOpenError: there is no store, and `create` is false; or what is there is none that can be opened.
        StoreReadOnlyError: a store would have to be made where nothing can be written.
        StoreFullError: there is no space to make one.
    """
    name = str(path)
    try:
        real = path.resolve()
        _refuse_bytes(real, name)
        found = _found(real)
        if found is None and (above := file_above(real)) is not None:
            raise StoreOpenError(f"there can be no store at {name!r}: {str(above)!r} is a file and no folder")
        if found is None and not create:
            raise StoreOpenError(f"there is no store at {name!r}")
        if found is None:
            _refuse_left_behind(real, name)
            _refuse_long(real, name)
            _make_file(real, name)
            found = real.stat()
        _refuse_other_kinds(real, found, name)
        size = found.st_size
        if size and first_bytes(real, len(SQLITE_MAGIC), real) != SQLITE_MAGIC:
            raise StoreOpenError(f"{name!r} is not a turnlog store, nor any SQLite database")
    except (OSError, RuntimeError) as error:
        # `resolve` raises RuntimeError for symbolic links that lead in a circle.
        because = os_reason(error) if isinstance(error, OSError) else "its symbolic links lead in a circle"
        raise StoreOpenError(f"store {name!r} cannot be opened: {because}") from error
    read_only = not can_be_written(real)
    if size == 0 and not create:
        raise StoreOpenError(f"{name!r} is empty: there is no store in it")
    if size == 0 and read_only:
        raise StoreReadOnlyError(f"no store can be made at {name!r}: it cannot be written")
    if size == 0:
        _make(real, name)
    seen = signature(real)
    if not read_only:
        _refuse_other_names(real, found, name)
    mode = reading_mode(real, name) if read_only else "mode=rw"
    is_store = size > 0 and _is_store(real, mode, name)
    if not is_store and read_only:
        raise StoreReadOnlyError(f"no store can be made at {name!r}: it cannot be written")
    return Place(
        is_store=is_store,
        uri=uri_of(real, mode),
        path=real,
        access=access_like(found),
        read_only=read_only,
        immutable=mode == IMMUTABLE,
        signature=seen if read_only else None,
        file_name=str(real),
        file=file_id(real),
        beside=None if read_only else Beside(real),
    )


def file_above(path: Path) -> Path | None:
    """Return a file that stands where a folder above a path would have to be; None where there is none."""
    return next((each for each in path.parents if each.is_file()), None)


def check_file(place: Place, name: str) -> None:
    """Refuse to go on with a file that is no longer at its path: what is recorded in it is lost.

    Raises:
        StoreError: it, or a file beside it, was moved or deleted, or another one was put in its place.
    """
    if place.path is None or place.read_only:
        return
    beside = None if place.beside is None else place.beside.replaced()
    found = file_id(place.file_name)  # behind the others: with their folder all of them are moved
    if found != place.file:
        what = "was moved or deleted" if found is None else "was replaced by another one"
        raise StoreError(f"the file of store {name!r} {what} while it was open: open the store again; nothing was done")
    if beside is not None:
        raise StoreError(
            f"{beside!r} was removed or replaced while store {name!r} was open, so that others may not see its last "
            "turns, nor it theirs: end all that use the store, and look at what its last turns are; nothing was done"
        )


def signature(path: Path) -> Signature:
    """Return what changes of a database file when anything in it does. A file that is gone has zeros."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0, False
    return found.st_mtime_ns, found.st_size, found.st_ino, os.path.lexists(_beside(path, "-wal"))


def _refuse_bytes(path: Path, name: str) -> None:
    """Refuse a path with bytes that are no UTF-8, which are halves of surrogate pairs for Python (PEP 383)."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise StoreOpenError(
            f"there can be no store at {name!r}: the name of a folder in {str(path)!r} is not valid UTF-8"
        ) from error


def _refuse_left_behind(path: Path, name: str) -> None:
    """Refuse to make a store where the write-ahead log of another one is: SQLite would remove its last turns."""
    wal = str(_beside(path, "-wal"))
    # Who makes a store at this moment makes that behind the file.
    if _logged_bytes(path) and _found(path) is None:
        raise StoreOpenError(
            f"there is no store at {name!r}, and {wal!r} has the last turns of one that was there: put that one back, "
            "or remove this file"
        )


def _refuse_other_names(path: Path, found: os.stat_result, name: str) -> None:
    """Refuse to write a file that has another name: SQLite keeps its write-ahead log beside the one that is used."""
    if found.st_nlink > 1:
        raise StoreOpenError(
            f"{name!r} has {found.st_nlink} names (hard links), and who writes by one is not seen by the others: "
            "copy the file, and open the copy"
        )
    if is_mount_point(path):
        raise StoreOpenError(
            f"{name!r} is mounted as a file of its own, and who writes it elsewhere is not seen here: mount the folder "
            "that it is in, or copy the file, and open the copy"
        )


def _refuse_long(path: Path, name: str) -> None:
    """Refuse a name that is too long for the files beside it."""
    folder = next(each for each in path.parents if each.is_dir())
    name_bytes_max = os.pathconf(folder, "PC_NAME_MAX") - _ENDING_BYTES
    if name_bytes_max < len(os.fsencode(path.name)):
        raise StoreOpenError(
            f"there can be no store at {name!r}: the files beside it could have no names, give it one of at most "
            f"{name_bytes_max} bytes"
        )
    if len(os.fsencode(path)) > _PATH_BYTES_MAX - _ENDING_BYTES:
        raise StoreOpenError(
            f"there can be no store at {name!r}: SQLite opens no path of more than {_PATH_BYTES_MAX} bytes, and beside "
            f"it are others, give it one of at most {_PATH_BYTES_MAX - _ENDING_BYTES}"
        )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _found(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _refuse_other_kinds(path: Path, found: os.stat_result, name: str) -> None:
    """Refuse what is no regular file, of the database and of what SQLite opens with it: to open a FIFO is to wait."""
    if stat.S_ISDIR(found.st_mode):
        raise StoreOpenError(f"{name!r} is a folder, name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise StoreOpenError(f"{name!r} is not a regular file: there is no store in it")
    for suffix in ("-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(_beside(path, suffix).lstat().st_mode):
                beside = str(_beside(path, suffix))
                raise StoreOpenError(f"store {name!r} cannot be opened: {beside!r} beside it is not a regular file")


def _make_file(path: Path, name: str) -> None:
    """Make an empty file, and the folders above it, so that they survive a loss of power."""
    try:
        make_folders(path.parent, OWN.of_folders)
        make(path)
        sync_folder(path.parent)
    except (NotADirectoryError, FileExistsError):
        raise
    except OSError as error:
        made = file_error(error, path)
        if isinstance(made, StoreReadOnlyError):
            raise StoreReadOnlyError(f"no store can be made at {name!r}: {os_reason(error)}") from error
        raise made from error


def _make(path: Path, name: str) -> None:
    """Make an empty database of an empty file. Its page size can only be chosen now."""
    with converted(name), closing(_connect(path, "mode=rw")) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        write_ahead(connection, BUSY_TIMEOUT_S)


def _is_store(path: Path, mode: str, name: str) -> bool:
    """Tell whether a database is a turnlog store; False means that it is an empty database.

    Raises:
        StoreOpenError: it is another application's, of a version that is not known, or no database.
    """
    with converted(name):
        application_id, version, tables = _identity(path, mode, name)
    if application_id == APPLICATION_ID and version > VERSION:
        raise StoreOpenError(
            f"store {name!r} is of version {version}, this turnlog knows {VERSION_MIN} to {VERSION}: upgrade turnlog"
        )
    if application_id == APPLICATION_ID and version < VERSION_MIN:
        raise StoreOpenError(
            f"store {name!r} is of version {version}, which was never released: "
            f"this turnlog reads stores of version {VERSION_MIN} on"
        )
    if application_id != APPLICATION_ID and (tables or application_id or version):
        raise StoreOpenError(f"{name!r} is a SQLite database, but not a turnlog store")
    return application_id == APPLICATION_ID


def _identity(path: Path, mode: str, name: str) -> tuple[int, int, int]:
    """Return the application id and the version of a database, and the number of its tables, as of one moment."""
    if not _logged_bytes(path):
        # Read so it leaves no files beside a database that is not turnlog's. What a writer that comes meanwhile makes
        # of that is read again.
        with unconnected(path) as alone, suppress(sqlite3.DatabaseError):
            if alone:
                return _read_identity(path, IMMUTABLE)
    until = monotonic() + _APPEARING_S
    while True:
        try:
            return _read_identity(path, "mode=ro" if mode == "mode=rw" else mode)
        except sqlite3.OperationalError as error:
            code = error.sqlite_errorcode & 0xFF
            if mode == "mode=rw" and code == sqlite3.SQLITE_READONLY:
                # What a crash left beside the file has to be taken in first, and that is a write.
                return _read_identity(path, mode)
            if mode != "mode=ro" or code != sqlite3.SQLITE_CANTOPEN or _beside(path, "-shm").exists():
                raise
            # A process that opens the store makes the one and then the other.
            if monotonic() > until:
                raise _not_closed(name) from error
            sleep(BUSY_SLEEP_S)


def _wait_for_index(path: Path, name: str) -> None:
    """Wait until the write-ahead log of a database has its index: who cannot write the database makes none.

    Raises:
        StoreOpenError: none comes.
    """
    until = monotonic() + _APPEARING_S
    while _logged_bytes(path) and not _beside(path, "-shm").exists():
        if monotonic() > until:
            raise _not_closed(name)
        sleep(BUSY_SLEEP_S)


def _not_closed(name: str) -> StoreOpenError:
    """Return the error of a write-ahead log without the file by which its readers and writers agree."""
    return StoreOpenError(
        f"store {name!r} was not closed, and its write-ahead log cannot be taken in where nothing can be written: "
        "open it once where it can, or copy it with its '-wal' to where it can"
    )


def _read_identity(path: Path, mode: str) -> tuple[int, int, int]:
    with closing(_connect(path, mode)) as connection:
        connection.execute("BEGIN")
        [tables] = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        [application_id] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        return application_id, version, tables


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return connect(uri_of(path, mode), path, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S)


def can_be_written(path: Path) -> bool:
    """Tell whether a database can be written, or made: the file, and what SQLite makes beside it."""
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def reading_mode(path: Path, name: str) -> str:
    """Return the mode in which a database that cannot be written is read, so that nothing is left beside it.

    Raises:
        StoreOpenError: it was not closed, and its write-ahead log has no index.
    """
    if must_be_immutable(path):
        return IMMUTABLE
    _wait_for_index(path, name)
    return "mode=ro"


def must_be_immutable(path: Path) -> bool:
    """Tell whether a store that cannot be written has to be read as if it never changed.

    SQLite coordinates readers and writers by two files beside the database, and makes what is missing of them. Where
    nothing can be made, it refuses; and who may make files there, and not write the database, would make such as its
    owner cannot write. That is right only while there is something in the write-ahead log: reading without the log
    would leave out what was recorded last.
    """
    if not _beside(path, "-wal").exists():
        return True
    if _logged_bytes(path):
        return False
    never_changes = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    return never_changes or not _beside(path, "-shm").exists()


def _logged_bytes(path: Path) -> int:
    try:
        return _beside(path, "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def uri_of(path: Path, mode: str) -> str:
    """Return the URI of a database: of the very bytes of its path, which SQLite would spell in UTF-8 in any locale."""
    return f"file:{quote(os.fsencode(path))}?{mode}"
