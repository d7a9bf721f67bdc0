"""What is not a store, cannot be read or cannot be written is refused with a clear error, and is left as it was."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreOpenError, StoreReadOnlyError, TurnlogError
from turnlog.testing.faults import run_process


def _database(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00\x01 this is not a database " * 500)


def _text(path: Path) -> None:
    path.write_text('{"json": "lines"}\n')


def _other_application(path: Path) -> None:
    _database(path, "CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('keep me')")


def _other_application_with_an_id(path: Path) -> None:
    _database(path, "PRAGMA application_id = 1234", "CREATE TABLE notes (text)")


def _newer(path: Path) -> None:
    TurnLog.open(f"sqlite:///{path}").close()
    _database(path, "PRAGMA user_version = 99")


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "content").write_text("keep me")


@pytest.mark.parametrize(
    "make",
    [_garbage, _text, _other_application, _other_application_with_an_id, _newer, _folder],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("create", [True, False])
def test_what_is_not_a_store_is_refused_and_kept(tmp_path: Path, make: Callable[[Path], None], create: bool) -> None:
    """A file of another kind, a newer store and a folder are refused by name, and not one byte of them changes."""
    path = tmp_path / "log.db"
    make(path)
    before = path.read_bytes() if path.is_file() else sorted(path.iterdir())
    with pytest.raises(StoreOpenError) as caught:
        TurnLog.open(f"sqlite:///{path}", create=create)
    assert repr(str(path)) in str(caught.value)
    assert before == (path.read_bytes() if path.is_file() else sorted(path.iterdir()))


def test_newer_store_says_to_upgrade(tmp_path: Path) -> None:
    """The error for a newer store tells both versions and what to do."""
    _newer(tmp_path / "log.db")
    with pytest.raises(StoreOpenError, match=r"of version 99, .* upgrade turnlog"):
        TurnLog.open(f"sqlite:///{tmp_path}/log.db")


@pytest.mark.parametrize("name", ["missing.db", "missing/folder/log.db"])
def test_missing_store_is_not_made_unless_asked(tmp_path: Path, name: str) -> None:
    """With `create=False` a missing store raises and neither it nor its folder is made; else both are."""
    path = tmp_path / name
    with pytest.raises(StoreOpenError):
        TurnLog.open(f"sqlite:///{path}", create=False)
    assert list(tmp_path.iterdir()) == []
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("x")
    assert path.is_file()


def test_empty_file_becomes_a_store_only_when_asked(tmp_path: Path) -> None:
    """An empty file may be made a store; with `create=False` it is refused, for it may be one that was lost."""
    path = tmp_path / "log.db"
    path.touch()
    with pytest.raises(StoreOpenError):
        TurnLog.open(f"sqlite:///{path}", create=False)
    assert path.read_bytes() == b""
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert log.add_turn("x").global_position == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "log.db",
        "/tmp/log.db",
        "http://localhost/log.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://log.db",
        "sqlite://[",
        "sqlite:///log.db?mode=ro",
        "sqlite:///log.db#x",
        "sqlite:///a%00b",
        "sqlite:///a%FFb",
        "sqlite:////dev/null/log.db",
        "sqlite:////" + "x" * 300,
        "memory://name",
        "memory:///path",
    ],
)
def test_malformed_url_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A URL that names no store is refused, and no file is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreOpenError):
        TurnLog.open(url)
    assert list(tmp_path.iterdir()) == []


# Permissions bind only those who are not root: these run in a process that gives up its rights.

_NOBODY = 65534


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Give a folder that any user can enter; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def _as_nobody(url: str) -> dict[str, str]:
    """Open a log without any right to write, and tell what each call gave or raised."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    found: dict[str, str] = {}

    def ask(name: str, call: Callable[[], object]) -> None:
        try:
            found[name] = str(call())
        except TurnlogError as error:
            found[name] = type(error).__name__

    try:
        log = TurnLog.open(url)
    except TurnlogError as error:
        return {"open": type(error).__name__}
    with log:
        ask("turns", lambda: len(log.ancestry("main")))
        ask("payload", lambda: len(log.payload("main")))
        ask("context", lambda: len(log.context("main").messages))
        ask("verify", lambda: log.verify().clean)
        ask("threads", lambda: len(log.threads()))
        ask("stats", lambda: log.stats().turns)
        ask("add_turn", lambda: log.add_turn("x"))
        ask("large", lambda: log.add_turn("x" * 100_000))
        ask("set_bookmark", lambda: log.set_bookmark("other", "main"))
    return found


_READ = {"turns": "2", "payload": "200027", "context": "2", "verify": "True", "threads": "1", "stats": "2"}
_REFUSED = dict.fromkeys(("add_turn", "large", "set_bookmark"), StoreReadOnlyError.__name__)


def _make(folder: Path) -> TurnLog:
    log = TurnLog.open(f"sqlite:///{folder}/log.db")
    log.add_turn("root", bookmark="main")
    log.add_turn("x" * 200_000, continues="main")
    return log


@pytest.mark.parametrize("folder_mode", [0o555, 0o755])
def test_read_only_store_can_be_read(open_to_all: Path, folder_mode: int) -> None:
    """A store that may not be written answers every question, and refuses to record with `StoreReadOnlyError`."""
    _make(open_to_all).close()
    for path in open_to_all.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    open_to_all.chmod(folder_mode if os.geteuid() == 0 else 0o555)
    assert run_process(_as_nobody, f"sqlite:///{open_to_all}/log.db") == _READ | _REFUSED


def test_read_only_store_that_another_process_writes_can_be_read(open_to_all: Path) -> None:
    """The same holds while a writer has the store open, with turns that are not yet in its main file."""
    with _make(open_to_all) as log:
        for path in open_to_all.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        found = run_process(_as_nobody, f"sqlite:///{open_to_all}/log.db")
        assert found == _READ | _REFUSED
        assert log.verify().clean


def test_read_only_folder_refuses_a_new_store(open_to_all: Path) -> None:
    """A store cannot be made in a folder that may not be written, nor below it."""
    open_to_all.chmod(0o555)
    for name in ("log.db", "below/log.db"):
        found = run_process(_as_nobody, f"sqlite:///{open_to_all}/{name}")
        assert found["open"] in {"StoreReadOnlyError", "StoreOpenError"}
    assert list(open_to_all.iterdir()) == []


@pytest.mark.parametrize("what", ["file", "folder"])
def test_store_that_may_not_be_read_is_refused(open_to_all: Path, what: str) -> None:
    """A store, or a folder, that may not be read at all is refused with `StoreOpenError`."""
    folder = open_to_all / "closed"
    folder.mkdir()
    _make(folder).close()
    (folder if what == "folder" else folder / "log.db").chmod(0o000)
    assert run_process(_as_nobody, f"sqlite:///{folder}/log.db") == {"open": "StoreOpenError"}
