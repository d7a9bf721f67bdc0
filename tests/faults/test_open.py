"""What is not a store, cannot be read or cannot be written is refused with a clear error, and is left as it was."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreOpenError, StoreReadOnlyError, TurnlogError
from turnlog.feeds.sinks import JSONLines
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


def _older(path: Path) -> None:
    TurnLog.open(f"sqlite:///{path}").close()
    _database(path, "PRAGMA user_version = 1")


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "content").write_text("keep me")


@pytest.mark.parametrize(
    "make",
    [_garbage, _text, _other_application, _other_application_with_an_id, _newer, _older, _folder],
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


def test_store_of_format_1_is_refused_in_one_line(tmp_path: Path) -> None:
    """Format 1 was never released: its stores are refused, and the error says so."""
    _older(tmp_path / "log.db")
    with pytest.raises(StoreOpenError, match=r"of version 1, which was never released: .* version 2 on$") as caught:
        TurnLog.open(f"sqlite:///{tmp_path}/log.db")
    assert "\n" not in str(caught.value)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("create", [True, False])
def test_fifo_is_refused_at_once(tmp_path: Path, create: bool) -> None:
    """Opening a FIFO would wait for somebody to write to it: it is refused instead."""
    os.mkfifo(tmp_path / "log.db")
    with pytest.raises(StoreOpenError, match="is not a regular file"):
        TurnLog.open(f"sqlite:///{tmp_path}/log.db", create=create)


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


@pytest.mark.parametrize("letters", [213, 244, 252])
def test_name_that_is_too_long_for_what_is_beside_leaves_nothing(tmp_path: Path, letters: int) -> None:
    """SQLite could not make its write-ahead log, the store its folder, or search its index: that is known before."""
    with pytest.raises(StoreOpenError, match=r"give it one of at most 215 bytes$"):
        TurnLog.open(f"sqlite:///{tmp_path}/folder/{letters * 'x'}.db")
    assert list(tmp_path.iterdir()) == []
    with TurnLog.open(f"sqlite:///{tmp_path}/folder/{212 * 'x'}.db") as log:
        log.add_turn(f"{letters}" * 200_000)
        assert log.verify().damage == ()


def test_empty_file_becomes_a_store_only_when_asked(tmp_path: Path) -> None:
    """An empty file may be made a store; with `create=False` it is refused, for it may be one that was lost."""
    path = tmp_path / "log.db"
    path.touch()
    with pytest.raises(StoreOpenError):
        TurnLog.open(f"sqlite:///{path}", create=False)
    assert path.read_bytes() == b""
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert log.add_turn("x").global_position == 2


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


# One store, whatever it is called


def test_store_behind_links_has_one_payload_folder(tmp_path: Path) -> None:
    """A store that is opened through links, to it and to its folder, keeps its payloads in one place."""
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "link.db").symlink_to(tmp_path / "folder" / "log.db")
    for number, name in enumerate(("link.db", "real/log.db", "folder/log.db")):
        with TurnLog.open(f"sqlite:///{tmp_path}/{name}") as log:
            log.add_turn(f"{number}" * 200_000, bookmark=f"b{number}")
            for known in range(number + 1):
                assert len(log.payload(f"b{known}")) == 200_027
            assert log.verify().clean
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link.db", "real"]
    assert [path.name for path in (tmp_path / "real").iterdir() if path.is_dir()] == ["log.db-payloads"]


# Permissions of what is made


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_new_store_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    """Nothing of a new store can be read by others, whatever the umask."""
    old = os.umask(umask)
    try:
        with TurnLog.open(f"sqlite:///{tmp_path}/new/log.db") as log:
            log.add_turn("x" * 200_000)
            found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")}
    finally:
        os.umask(old)
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert {"log.db", "log.db-wal", "log.db-shm", "log.db-payloads"} <= {path.name for path in found}


def test_store_of_a_group_stays_the_groups(tmp_path: Path) -> None:
    """What is made beside a store that others may use, they may use too."""
    TurnLog.open(f"sqlite:///{tmp_path}/log.db").close()
    (tmp_path / "log.db").chmod(0o660)
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.add_turn("x" * 200_000)
        found = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o660}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o770}


# What a process that was killed has left

_CRASH = """
import os, signal, sys
from pathlib import Path
from turnlog.store.payloads import PayloadPlacer

placer = PayloadPlacer(Path(sys.argv[1] + "-payloads"))
placed = [placer.place(letter * 200_000) for letter in (b"a", b"b")]
placer.publish(placed[0])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_files_of_a_killed_process_are_collected(tmp_path: Path) -> None:
    """Opening a store removes what a process left that died between publishing a payload and its commit."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("x" * 200_000, bookmark="main")
    folder = tmp_path / "log.db-payloads"
    before = sorted(folder.rglob("*"))
    assert subprocess.run([sys.executable, "-c", _CRASH, str(path)], check=False).returncode == -9
    assert len(sorted(folder.rglob("*"))) == len(before) + 6
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert [file for file in sorted(folder.rglob("*")) if file.is_file()] == [
            file for file in before if file.is_file()
        ]
        assert len(log.payload("main")) == 200_027
        assert log.verify().clean


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
        ask("set_bookmark", lambda: log.bookmarks.set("other", "main"))
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


def test_who_may_only_read_leaves_nothing_beside_a_store(open_to_all: Path) -> None:
    """Where they may make files: what SQLite makes of theirs, its owner could not write."""
    path = open_to_all / "log.db"
    _make(open_to_all).close()
    for each in open_to_all.rglob("*"):
        each.chmod(0o755 if each.is_dir() else 0o644)
    if os.geteuid() == 0:
        open_to_all.chmod(0o777)
    before = sorted(open_to_all.rglob("*"))
    assert run_process(_as_nobody, f"sqlite:///{path}") == _READ | _REFUSED
    assert sorted(open_to_all.rglob("*")) == before
    # A crash leaves a write-ahead log, and may leave it without its index.
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("late", continues="main")
        left = path.with_name("log.db-wal").read_bytes()
    path.with_name("log.db-wal").write_bytes(left)
    path.with_name("log.db-wal").chmod(0o644)
    before = sorted(open_to_all.rglob("*"))
    found = run_process(_as_nobody, f"sqlite:///{path}")
    if os.geteuid() == 0:
        assert found == {"open": StoreOpenError.__name__}
        assert sorted(open_to_all.rglob("*")) == before
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert len(log.ancestry("main")) == 3
        log.add_turn("more", continues="main")


def test_who_may_only_search_leaves_nothing_beside_the_projections(open_to_all: Path) -> None:
    """They have the mode of the store, and whoever brings them up to date has to be able to write them."""
    url = f"sqlite:///{open_to_all}/log.db"
    _make(open_to_all).close()
    (open_to_all / "log.db").chmod(0o644)
    with TurnLog.open(url) as log:
        log.feeds.run()
    for each in open_to_all.rglob("*"):
        each.chmod(0o755 if each.is_dir() else 0o644)
    open_to_all.chmod(0o777 if os.geteuid() == 0 else 0o755)
    before = sorted(open_to_all.rglob("*"))
    assert run_process(_search_as_nobody, url) == ({"root": "1", "later": "0"}, [0] * 4)
    assert sorted(open_to_all.rglob("*")) == before
    with TurnLog.open(url) as log:
        log.add_turn("later", continues="main")
        assert len(log.feeds.search("later")) == 1


def test_read_only_store_that_another_process_writes_can_be_read(open_to_all: Path) -> None:
    """The same holds while a writer has the store open, with turns that are not yet in its main file."""
    with _make(open_to_all) as log:
        for path in open_to_all.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        found = run_process(_as_nobody, f"sqlite:///{open_to_all}/log.db")
        assert found == _READ | _REFUSED
        assert log.verify().clean


def _search_as_nobody(url: str) -> tuple[dict[str, str], list[int]]:
    """Search where nothing can be written; tell what each word gave or raised, and how many events each lacks."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    found: dict[str, str] = {}
    with TurnLog.open(url) as log:
        for word in ("root", "later"):
            try:
                found[word] = str(len(log.feeds.search(word)))
            except StoreReadOnlyError as error:
                found[word] = str(error)
        with suppress(StoreReadOnlyError):
            log.feeds.target.scrub(log.feeds.projections[0])
        return found, [status.lag for status in log.feeds.status()]


def test_projections_that_cannot_be_written_are_read(open_to_all: Path) -> None:
    """As long as they are up to date; and where they are not, or not there, what to do is said."""
    url = f"sqlite:///{open_to_all}/log.db"
    place = f"{open_to_all}/log.db-projections"
    advice = f"and '{place}' cannot be written: copy the store to where you can write, with `turnlog copy`"

    def search() -> tuple[dict[str, str], list[int]]:
        for path in (*open_to_all.rglob("*"), open_to_all):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            return run_process(_search_as_nobody, url)
        finally:
            for path in (open_to_all, *open_to_all.rglob("*")):
                path.chmod(0o755)

    with _make(open_to_all) as log:
        end = log.store.stats().events
    assert search() == (dict.fromkeys(("root", "later"), f"projection 'search' is not built, {advice}"), [end] * 4)
    assert not Path(place).exists()
    with TurnLog.open(url) as log:
        log.feeds.run()
        log.bookmarks.set("other", "main")
    assert search() == ({"root": "1", "later": "0"}, [1] * 4)
    with TurnLog.open(url) as log:
        log.add_turn("later", continues="main")
        end = log.store.stats().events
    said = f"projection 'search' is behind the log, which goes on to {end}, {advice}"
    assert search() == (dict.fromkeys(("root", "later"), said), [2] * 4)


def _feeds_as_nobody(url: str) -> list[str]:
    """List the feeds of a log where nothing can be written."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    with TurnLog.open(url) as log:
        return [f"{status.name} {status.position} {status.running}" for status in log.feeds.all()]


@pytest.mark.parametrize("is_open", [False, True])
def test_feeds_are_listed_where_nothing_can_be_written(open_to_all: Path, *, is_open: bool) -> None:
    """Also while another process has their states open."""
    with _make(open_to_all) as log, ExitStack() as stack:
        end = log.feeds.feed(JSONLines(open_to_all / "lines"), name="lines").run().position
        if is_open:
            other = stack.enter_context(closing(sqlite3.connect(open_to_all / "log.db-feeds")))
            other.execute("SELECT COUNT(*) FROM turnlog_feeds").fetchall()
        for path in (*open_to_all.rglob("*"), open_to_all):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = sorted(open_to_all.rglob("*"))
        assert run_process(_feeds_as_nobody, f"sqlite:///{open_to_all}/log.db") == [f"lines {end} False"]
        assert sorted(open_to_all.rglob("*")) == before


def test_read_only_folder_refuses_a_new_store(open_to_all: Path) -> None:
    """A store cannot be made in a folder that may not be written, nor below it."""
    open_to_all.chmod(0o555)
    for name in ("log.db", "below/log.db"):
        found = run_process(_as_nobody, f"sqlite:///{open_to_all}/{name}")
        assert found["open"] in {"StoreReadOnlyError", "StoreOpenError"}
    assert list(open_to_all.iterdir()) == []


@pytest.mark.parametrize("what", ["file", "folder"])
def test_payload_that_may_not_be_read_is_no_damage(open_to_all: Path, what: str) -> None:
    """Who verifies is told so with `StoreDeniedError`; what is not in it can be read."""
    _make(open_to_all).close()
    for path in open_to_all.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    [file] = (path for path in (open_to_all / "log.db-payloads").rglob("??/*") if path.is_file())
    (file if what == "file" else file.parent).chmod(0o000)
    found = run_process(_as_nobody, f"sqlite:///{open_to_all}/log.db")
    assert (found["verify"], found["payload"], found["turns"]) == ("StoreDeniedError", "StoreDeniedError", "2")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_store_that_may_not_be_read_is_refused(open_to_all: Path, what: str) -> None:
    """A store, or a folder, that may not be read at all is refused with `StoreOpenError`."""
    folder = open_to_all / "closed"
    folder.mkdir()
    _make(folder).close()
    (folder if what == "folder" else folder / "log.db").chmod(0o000)
    assert run_process(_as_nobody, f"sqlite:///{folder}/log.db") == {"open": "StoreOpenError"}


# A store that is read without locks, and changes

_READER = """
import os, sys
from turnlog import TurnLog
from turnlog.errors import TurnlogError

TurnLog.open("memory://").verify()  # what is imported when it is needed: the modules may be root's alone to read
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
log = TurnLog.open(sys.argv[1])
for line in sys.stdin:
    try:
        if line == "read\\n":
            print(len(log.ancestry("main")), log.verify().clean, flush=True)
        else:
            with log.store.read() as transaction:
                print(transaction.log_end(), flush=True)
                sys.stdin.readline()
                count = len(list(transaction.log()))
            print(count, flush=True)
    except TurnlogError as error:
        print(type(error).__name__, flush=True)
"""


@contextmanager
def _reader(url: str) -> Iterator[Callable[[str], str]]:
    """Open a log in a process without any right to write it. It answers "read" with its turns."""
    with subprocess.Popen(
        [sys.executable, "-c", _READER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:

        def ask(line: str) -> str:
            assert running.stdin is not None
            assert running.stdout is not None
            running.stdin.write(line + "\n")
            running.stdin.flush()
            return running.stdout.readline().strip()

        yield ask
        running.kill()


@pytest.fixture
def read_only_url(open_to_all: Path) -> str:
    """Give a store of two turns, closed, that only root can write."""
    if os.geteuid() != 0:
        pytest.skip("the store would have to be another user's")
    _make(open_to_all).close()
    for path in open_to_all.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    open_to_all.chmod(0o555)
    return f"sqlite:///{open_to_all}/log.db"


def test_reader_without_rights_sees_what_a_writer_records(read_only_url: str) -> None:
    """A reader that opened the store before any writer came sees each turn, while the writer is there and after."""
    with _reader(read_only_url) as ask:
        assert ask("read") == "2 True"
        with TurnLog.open(read_only_url) as log:
            log.add_turn("three", continues="main")
            assert ask("read") == "3 True"
            log.add_turn("four", continues="main")
            assert ask("read") == "4 True"
        assert ask("read") == "4 True"
        with TurnLog.open(read_only_url) as log:
            log.add_turn("five", continues="main")
        assert ask("read") == "5 True"


def test_reader_without_rights_is_told_of_a_change_under_it(read_only_url: str) -> None:
    """What is read without locks, and changes meanwhile, is not passed off as one moment; read again, it is sound."""
    with _reader(read_only_url) as ask:
        assert ask("begin") == ask("go on") != "0"
        assert int(ask("begin")) > 0
        with TurnLog.open(read_only_url) as log:
            log.add_turn("three", continues="main")
        assert ask("go on") == "StoreBusyError"
        assert ask("read") == "3 True"
