"""Looking at a place before a store is opened there."""

import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnlog.errors import StoreError, StoreFullError, StoreOpenError, StoreReadOnlyError
from turnlog.store.sqlite.opening import look, signature
from turnlog.store.sqlite.schema import APPLICATION_ID, VERSION, VERSION_MIN


def make(path: Path, *, version: int = VERSION, application_id: int = APPLICATION_ID) -> None:
    """Make a database that says it is a store, in write-ahead mode, as a store that was closed leaves it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE events (id)")
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()


def add(connection: sqlite3.Connection) -> None:
    """Write something into such a database."""
    connection.execute("INSERT INTO events VALUES (1)")
    connection.commit()


def mode_of(path: Path) -> int:
    """Return the permissions of a file or a folder."""
    return stat.S_IMODE(path.stat().st_mode)


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return all that is in a folder: names, modes, and the bytes of regular files."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
    }


# Paths


def test_all_ways_to_a_store_lead_to_one_path(tmp_path: Path) -> None:
    """Through symbolic links to the file and to the folder, and through `..`, the store has one path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "link.db").symlink_to(tmp_path / "folder" / "log.db")
    real = tmp_path / "real" / "log.db"
    ways = [real, tmp_path / "folder" / "log.db", tmp_path / "link.db", tmp_path / "real" / ".." / "folder" / "log.db"]
    # The first of them makes the store, through a link to what is not there yet.
    for way in [tmp_path / "link.db", *ways]:
        assert look(way, create=True).path == real
    assert [path.name for path in (tmp_path / "real").glob("*.db")] == ["log.db"]
    assert (tmp_path / "link.db").is_symlink()


def test_relative_path_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is relative to the working directory does not move with it."""
    monkeypatch.chdir(tmp_path)
    assert look(Path("log.db"), create=True).path == tmp_path / "log.db"


def test_links_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    """A symbolic link to itself is no store, and no error of another kind."""
    (tmp_path / "log.db").symlink_to("log.db")
    for create in (True, False):
        with pytest.raises(StoreOpenError, match=r"log\.db"):
            look(tmp_path / "log.db", create=create)


def test_dangling_link_is_a_missing_store(tmp_path: Path) -> None:
    """With `create=False` a link to nothing is refused, and nothing is made at its end."""
    (tmp_path / "link.db").symlink_to("log.db")
    with pytest.raises(StoreOpenError, match="there is no store"):
        look(tmp_path / "link.db", create=False)
    assert not (tmp_path / "log.db").exists()


# New stores


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_new_store_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    """The file, what SQLite makes beside it, and the folders that are made are closed to others, whatever the umask."""
    path = tmp_path / "a" / "b" / "log.db"
    old = os.umask(umask)
    try:
        place = look(path, create=True)
        with closing(sqlite3.connect(place.uri, uri=True)) as connection:
            connection.execute("CREATE TABLE events (id)")
            add(connection)
            modes = {file.name: mode_of(file) for file in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(["log.db", "log.db-wal", "log.db-shm"], 0o600)
    assert (mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")) == (0o700, 0o700)
    assert place.access.mode == 0o600
    assert not place.is_store
    assert not place.read_only


def test_new_store_survives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the file, and of each folder that is made for it, is synced."""
    synced: list[Path] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    look(tmp_path / "a" / "b" / "log.db", create=True)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o660])
def test_existing_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    """A store that others may read stays so, and says how what is made beside it is to be."""
    make(tmp_path / "log.db")
    (tmp_path / "empty.db").touch()
    for name in ("log.db", "empty.db"):
        (tmp_path / name).chmod(mode)
        assert look(tmp_path / name, create=True).access.mode == mode
        assert mode_of(tmp_path / name) == mode


def test_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """A new store does not close a folder that others use."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    look(tmp_path / "shared" / "log.db", create=True)
    assert mode_of(tmp_path / "shared") == 0o755


def test_store_is_made_by_whoever_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another process makes meanwhile is taken as it is."""
    path = tmp_path / "log.db"
    opened = os.open

    def first(name: Any, *arguments: Any, **options: Any) -> int:
        monkeypatch.undo()
        make(path)
        return opened(name, *arguments, **options)

    monkeypatch.setattr(os, "open", first)
    assert look(path, create=True).is_store


@pytest.mark.parametrize(
    ("code", "kind"), [(28, StoreFullError), (30, StoreReadOnlyError), (13, StoreReadOnlyError), (5, StoreError)]
)
def test_store_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[StoreError]
) -> None:
    """No space, no permission and a broken disk are errors of turnlog."""

    def fail(*arguments: object, **options: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(kind, match=r"log\.db"):
        look(tmp_path / "log.db", create=True)


# What is no store


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("make_it", [_fifo, _socket, _device, _terminal], ids=lambda f: f.__name__)
@pytest.mark.parametrize("create", [True, False])
def test_what_is_not_a_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_it: Callable[[Path], None], create: bool
) -> None:
    """A FIFO, a socket and a device are refused in one line, without being opened."""
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    make_it(Path("log.db"))
    with pytest.raises(StoreOpenError) as caught:
        look(Path("log.db"), create=create)
    assert str(caught.value) == "'log.db' is not a regular file: there is no store in it"


def _link(path: Path) -> None:
    path.with_name("target").touch()
    path.symlink_to("target")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("make_it", [_fifo, _socket, _device, _link, Path.mkdir], ids=lambda f: f.__name__)
def test_what_is_not_a_file_beside_a_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_it: Callable[[Path], None], suffix: str
) -> None:
    """SQLite opens the files beside a database too, and would wait for them."""
    monkeypatch.chdir(tmp_path)
    make(Path("log.db"))
    make_it(Path(f"log.db{suffix}"))
    with pytest.raises(StoreOpenError, match=f"log.db{suffix}' beside it is not a regular file"):
        look(Path("log.db"), create=True)


@pytest.mark.parametrize("version", [1, 0, VERSION_MIN - 1])
def test_version_that_was_never_released_is_refused(tmp_path: Path, version: int) -> None:
    """A store of format 1 is refused in one line, and is left as it is."""
    make(tmp_path / "log.db", version=version)
    before = tree(tmp_path)
    with pytest.raises(StoreOpenError) as caught:
        look(tmp_path / "log.db", create=True)
    assert str(caught.value) == (
        f"store {str(tmp_path / 'log.db')!r} is of version {version}, which was never released: "
        "this turnlog reads stores of version 2 on"
    )
    assert tree(tmp_path) == before


def test_newer_version_is_refused(tmp_path: Path) -> None:
    """A store of a newer turnlog is refused, and is left as it is."""
    make(tmp_path / "log.db", version=VERSION + 1)
    before = tree(tmp_path)
    with pytest.raises(StoreOpenError, match=f"is of version {VERSION + 1}, .* knows 2 to {VERSION}: upgrade turnlog"):
        look(tmp_path / "log.db", create=True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("version", range(VERSION_MIN, VERSION + 1))
def test_known_versions_are_opened(tmp_path: Path, version: int) -> None:
    """A store of each released version is one."""
    make(tmp_path / "log.db", version=version)
    place = look(tmp_path / "log.db", create=False)
    assert (place.is_store, place.read_only, place.immutable, place.signature) == (True, False, False, None)


def test_database_of_another_application_is_refused(tmp_path: Path) -> None:
    """A database that is not turnlog's is refused, whatever its version."""
    make(tmp_path / "log.db", application_id=1234)
    make(tmp_path / "none.db", application_id=0)
    for name in ("log.db", "none.db"):
        with pytest.raises(StoreOpenError, match="not a turnlog store"):
            look(tmp_path / name, create=True)


def test_error_names_what_was_asked_for(tmp_path: Path) -> None:
    """A message has the path that was given, and not the one behind the links."""
    make(tmp_path / "log.db", version=99)
    (tmp_path / "link.db").symlink_to("log.db")
    with pytest.raises(StoreOpenError, match=r"link\.db"):
        look(tmp_path / "link.db", create=True)


# Signatures


def test_signature_changes_with_the_file(tmp_path: Path) -> None:
    """Whatever happens to a database is seen: a writer that comes, writes and goes, a copy, a removal."""
    path = tmp_path / "log.db"
    assert signature(path) == (0, 0, 0, False)
    make(path)
    seen = [signature(path)]
    with closing(sqlite3.connect(path)) as connection:
        add(connection)
        seen.append(signature(path))
        connection.execute("CREATE TABLE more (id)")
    seen.append(signature(path))
    shutil.copy2(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    seen.append(signature(path))
    path.unlink()
    seen.append(signature(path))
    assert len(set(seen)) == 5
    assert [wal for *_, wal in seen] == [False, True, False, False, False]


def test_signature_of_what_is_only_read_stays(tmp_path: Path) -> None:
    """Looking at a store, and reading it without locks, change nothing."""
    make(tmp_path / "log.db")
    before = signature(tmp_path / "log.db")
    with closing(sqlite3.connect(f"file:{tmp_path}/log.db?mode=ro&immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM events").fetchone() == (0,)
        assert signature(tmp_path / "log.db") == before
    assert signature(tmp_path / "log.db") == before


# Stores that can be read only. Permissions bind only those who are not root: these look in a process that gives up its
# rights, after it has imported what it needs.

_LOOK = """
import json, os, sqlite3, sys, tempfile
from pathlib import Path
from turnlog.errors import TurnlogError
from turnlog.store.sqlite import opening

if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)

def wait(seconds):
    print("waiting", flush=True)
    sys.stdin.readline()

if "wait" in sys.argv[2:]:
    opening.sleep = wait
if "read-only" in sys.argv[2:]:
    class Found:
        f_flag = os.ST_RDONLY
    os.statvfs = lambda path: Found()
try:
    place = opening.look(Path(sys.argv[1]), create=True)
    connection = sqlite3.connect(place.uri, uri=True)
    found = {
        "rows": connection.execute("SELECT COUNT(*) FROM events").fetchone()[0],
        "read_only": place.read_only,
        "immutable": place.immutable,
        "signature": place.signature == opening.signature(place.path) if place.immutable else None,
    }
    connection.close()
except TurnlogError as error:
    found = {"error": type(error).__name__, "message": str(error)}
print(json.dumps(found))
"""


@pytest.fixture
def shelf() -> Iterator[Path]:
    """Give a folder that any user can enter; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def looking(path: Path, *how: str) -> Iterator[subprocess.Popen[str]]:
    """Look at a path in a process that may not write it."""
    with subprocess.Popen(
        [sys.executable, "-c", _LOOK, str(path), *how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running
        running.kill()


def seen_by_a_reader(path: Path, *how: str) -> dict[str, Any]:
    """Return what a process finds that may not write: of its place, and the rows that it reads there."""
    with looking(path, *how) as running:
        assert running.stdout is not None
        return json.loads(running.stdout.read())


def _close_to_writers(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)


_FROZEN = {"read_only": True, "immutable": True, "signature": True}
_LOCKED = {"read_only": True, "immutable": False, "signature": None}


def test_closed_store_is_read_as_if_it_never_changed(shelf: Path) -> None:
    """Where SQLite cannot make its files, and has nothing in them, it reads without; the place has the signature."""
    make(shelf / "log.db")
    _close_to_writers(shelf)
    assert seen_by_a_reader(shelf / "log.db") == _FROZEN | {"rows": 0}


def test_store_that_is_written_is_read_with_locks(shelf: Path) -> None:
    """Beside a writer a reader uses the writer's files, and sees what is only in the write-ahead log."""
    make(shelf / "log.db")
    with closing(sqlite3.connect(shelf / "log.db")) as connection:
        add(connection)
        _close_to_writers(shelf)
        assert seen_by_a_reader(shelf / "log.db") == _LOCKED | {"rows": 1}


def test_who_cannot_write_the_file_leaves_nothing_in_the_folder(shelf: Path) -> None:
    """Where only the folder can be written: what SQLite would make there, the owner of the file could not write."""
    make(shelf / "log.db")
    _close_to_writers(shelf)
    shelf.chmod(0o777)
    if os.geteuid() != 0:
        pytest.skip("the file would have to be another user's")
    assert seen_by_a_reader(shelf / "log.db") == _FROZEN | {"rows": 0}
    assert [path.name for path in shelf.iterdir()] == ["log.db"]


def test_rest_without_a_log_is_no_hindrance(shelf: Path) -> None:
    """Where a crash, or another reader, left the one file or the other with nothing in it, the store is read."""
    for number, (wal, shm) in enumerate([(b"", None), (None, bytes(32768))]):
        folder = shelf / str(number)
        folder.mkdir()
        make(folder / "log.db")
        for suffix, content in (("-wal", wal), ("-shm", shm)):
            if content is not None:
                (folder / f"log.db{suffix}").write_bytes(content)
        _close_to_writers(folder)
        assert seen_by_a_reader(folder / "log.db") == _FROZEN | {"rows": 0}


def test_medium_that_never_changes_needs_no_locks(shelf: Path) -> None:
    """On a file system that is mounted read-only nobody writes, whatever files a reader left there."""
    make(shelf / "log.db")
    with closing(sqlite3.connect(shelf / "log.db")) as connection:
        add(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _close_to_writers(shelf)
        assert seen_by_a_reader(shelf / "log.db") == _LOCKED | {"rows": 1}
        assert seen_by_a_reader(shelf / "log.db", "read-only") == _FROZEN | {"rows": 1}


def _with_log_only(folder: Path) -> None:
    """Make a store as a copy of a file and its write-ahead log, without what coordinates their readers."""
    make(folder / "source.db")
    with closing(sqlite3.connect(folder / "source.db")) as connection:
        add(connection)
        for suffix in ("", "-wal"):
            shutil.copy(folder / f"source.db{suffix}", folder / f"log.db{suffix}")
    (folder / "source.db").unlink()


def test_log_that_cannot_be_taken_in_is_refused(shelf: Path) -> None:
    """A store whose last events are in a log that cannot be read there is refused: without them it would be cut."""
    _with_log_only(shelf)
    _close_to_writers(shelf)
    found = seen_by_a_reader(shelf / "log.db")
    assert found["error"] == "StoreOpenError"
    assert "was not closed" in found["message"]
    assert "open it once where it can" in found["message"]


def test_files_that_may_not_be_read_are_no_rest(shelf: Path) -> None:
    """A store whose files beside it may not be read is refused for that."""
    make(shelf / "log.db")
    with closing(sqlite3.connect(shelf / "log.db")) as connection:
        add(connection)
        _close_to_writers(shelf)
        (shelf / "log.db-wal").chmod(0o000)
        (shelf / "log.db-shm").chmod(0o000)
        found = seen_by_a_reader(shelf / "log.db")
    assert found["error"] == "StoreOpenError"
    assert "was not closed" not in found["message"]


def test_reader_waits_for_a_writer_that_is_just_opening(shelf: Path) -> None:
    """A writer makes the write-ahead log first and the other file then: a reader between the two comes again."""
    if os.geteuid() != 0:
        pytest.skip("the writer would have to be another user")
    _with_log_only(shelf)
    _close_to_writers(shelf)
    with looking(shelf / "log.db", "wait") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == "waiting\n"
        with closing(sqlite3.connect(shelf / "log.db")) as connection:
            connection.execute("SELECT * FROM events").fetchall()
            (shelf / "log.db-shm").chmod(0o444)
            running.stdin.write("go on\n")
            running.stdin.flush()
            assert json.loads(running.stdout.readline()) == _LOCKED | {"rows": 1}


def test_store_is_not_made_where_nothing_can_be_written(shelf: Path) -> None:
    """A missing store, and one in an empty file, are refused in a folder that cannot be written."""
    (shelf / "empty.db").touch()
    make(shelf / "tables.db", application_id=0, version=0)
    with closing(sqlite3.connect(shelf / "tables.db")) as connection:
        connection.execute("DROP TABLE events")
    _close_to_writers(shelf)
    for name in ("log.db", "below/log.db", "empty.db", "tables.db"):
        found = seen_by_a_reader(shelf / name)
        assert found["error"] == StoreReadOnlyError.__name__
        assert "no store can be made" in found["message"]
    assert sorted(path.name for path in shelf.iterdir()) == ["empty.db", "tables.db"]
