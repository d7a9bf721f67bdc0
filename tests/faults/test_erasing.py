"""A process that is killed while it erases leaves nothing erased, or all of it; and others go on meanwhile."""

import fcntl
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from tests.sealed_log import seals_in
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.audit import seals as seals_module
from turnlog.store.incoming import Incoming
from turnlog.store.sqlite.connections import Connection, Connections
from turnlog.testing.faults import ProcessFailedError, run_process, run_processes

EACH = 1 if SOAK else 3
"""A process is killed at each so many steps, the first among them."""

SECRETS = ("a secret of a few words", "another secret that is longer " * 200, "a secret in a file " * 6000)
MARKS = (b"secret of a few", b"another secret", b"in a file ")


def _fill(url: str) -> str:
    with TurnLog.open(url) as log:
        log.add_turn("not a secret", bookmark="kept")
        log.add_turn(SECRETS[0], bookmark="secret")
        for secret in SECRETS[1:]:
            log.add_turn(secret, continues="secret")
        log.add_turn("kept " * 30_000, continues="kept")
        return log.turn("secret").id


def _traces(folder: Path) -> list[bytes]:
    # Frames of what is compressed are not decoded here: none is left, or the mark of the shortest one is there too.
    raw = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return [mark for mark in MARKS if mark in raw]


def _count_steps(at_step: Callable[[], None]) -> None:
    """Call something before each statement that is run, and before and after each change of payload files."""
    connect = Connections.connect

    def traced(connections: Connections) -> Connection:
        connection = connect(connections)
        connection.set_trace_callback(lambda _: at_step())
        return connection

    Connections.connect = traced
    for name in ("mark", "remove"):
        method = getattr(Incoming, name)

        def stepping(*args: Any, method: Any = method) -> Any:
            at_step()
            result = method(*args)
            at_step()
            return result

        setattr(Incoming, name, stepping)


def _erase_and_die(url: str, head: str, die_at: int) -> int:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    log = TurnLog.open(url)
    _count_steps(step)
    log.store._connections.close()  # connections that are not counted
    log.store._connections._closed = False
    log.erase(thread=head, reason="asked")
    return steps


def _check(url: str, folder: Path, head: str) -> bool:
    """Check a store that a killed process left, and return whether it is erased."""
    with TurnLog.open(url) as log:
        assert log.verify().damage == ()
        turns = [turn.erased for turn in log.ancestry(head)]
        assert len(set(turns)) == 1, "nothing is erased, or all of it"
        if turns[0]:
            assert log.finish_erasing() is None
            assert _traces(folder) == []
            assert log.bookmarks.all()[0].name == "kept"
        else:
            assert [bookmark.name for bookmark in log.bookmarks.all()] == ["kept", "secret"]
            assert len(log.context(head).messages) == 3
        report = log.erase(thread=head, reason="asked again")
        assert (len(report.turns), report.remains) == ((0, None) if turns[0] else (3, None))
        assert _traces(folder) == []
        assert log.verify().damage == ()
        assert log.add_turn("and on", continues="kept")
        assert log.verify().damage == ()
    assert _traces(folder) == []
    return turns[0]


@pytest.mark.timeout(1800 if SOAK else 300)
def test_process_killed_at_any_step_leaves_nothing_or_all_of_it_erased(tmp_path: Path) -> None:
    """Before each statement and around each change of a file; whoever opens the store next goes on with it."""
    outcomes: list[bool] = []
    for die_at in range(1, 500, EACH):
        folder = tmp_path / str(die_at)
        folder.mkdir()
        url = f"sqlite:///{folder}/log.db"
        head = _fill(url)
        assert len(_traces(folder)) >= 2
        try:
            run_process(_erase_and_die, url, head, die_at)
            break
        except ProcessFailedError as error:
            failure = str(error)
        assert "-9" in failure
        outcomes.append(_check(url, folder, head))
    assert len(outcomes) > 20 // EACH
    assert outcomes == sorted(outcomes), "once it is erased it stays so"
    assert {True, False} == set(outcomes)


def _fill_sealed(folder: Path, subject: str | None) -> tuple[str, str]:
    """Record turns of a subject in a log where that, or all, is sealed. Return the last one, and one that is kept."""
    with TurnLog.open(f"sqlite:///{folder}/log.db", seals=seals_in(folder / "keys")) as log:
        log.seal(subject)
        log.add_turn(SECRETS[0], bookmark="secret", subject="Ada")
        for secret in SECRETS[1:]:
            log.add_turn(secret, continues="secret")
        return log.turn("secret").id, log.add_turn("kept " * 30_000, bookmark="kept", subject="Bob").id


def _erase_sealed_and_die(folder: Path, die_at: int) -> int:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            step()
            result = function(*args, **kwargs)
            step()
            return result

        return stepped

    log = TurnLog.open(f"sqlite:///{folder}/log.db", seals=seals_in(folder / "keys"))
    _count_steps(step)
    # Before and after a key file is removed, and after that is on disk.
    Path.unlink = stepping(Path.unlink)
    seals_module.sync_folder = stepping(seals_module.sync_folder)
    log.store._connections.close()
    log.store._connections._closed = False
    assert log.erase(subject="Ada", reason="asked").keys
    return steps


@pytest.mark.timeout(1800 if SOAK else 300)
@pytest.mark.parametrize("subject", [None, "Ada"])
def test_process_killed_while_it_erases_a_sealed_subject_leaves_what_can_be_finished(
    tmp_path: Path, subject: str | None
) -> None:
    """The key goes first. To ask again erases in the store what that was not come to, by its tags."""
    outcomes: list[tuple[bool, bool]] = []
    for die_at in range(1, 500, EACH):
        folder = tmp_path / str(die_at)
        folder.mkdir()
        head, kept = _fill_sealed(folder, subject)
        copy = folder / "copy.db"
        with TurnLog.open(f"sqlite:///{folder}/log.db") as log, (folder / "export").open("wb") as file:
            log.export(file)
        try:
            run_process(_erase_sealed_and_die, folder, die_at)
            break
        except ProcessFailedError as error:
            failure = str(error)
        assert "-9" in failure
        assert _traces(folder) == []
        with TurnLog.open(f"sqlite:///{folder}/log.db", seals=seals_in(folder / "keys")) as log:
            assert log.verify().damage == ()
            erased = {turn.erased for turn in log.ancestry(head)}
            assert len(erased) == 1, "nothing is erased, or all of it"
            had_key = seals_in(folder / "keys").of_subject("Ada") is not None
            outcomes.append((erased == {True}, not had_key))
            report = log.erase(subject="Ada", reason="asked again")
            assert (len(report.turns), report.remains) == (0 if erased == {True} else 3, None)
            assert bool(report.keys) == had_key
            assert seals_in(folder / "keys").of_subject("Ada") is None
            assert [bookmark.name for bookmark in log.bookmarks.all()] == ["kept"]
            assert log.payload(kept)
            assert log.add_turn("and on", subject="Ada").sealed
            assert log.verify().damage == ()
        with TurnLog.open(f"sqlite:///{copy}", seals=seals_in(folder / "keys")) as log:
            with (folder / "export").open("rb") as file:
                log.import_turnlog(file)
            assert all(turn.closed for turn in log.ancestry(head))
            assert log.verify().damage == ()
    assert len(outcomes) > 20 // EACH
    assert outcomes == sorted(outcomes), "once the key is gone it stays so, and what it sealed is erased after it"
    assert set(outcomes) == {(False, False), (False, True), (True, True)}


def _erase_later(url: str, head: str, delay_s: float) -> None:
    threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    with TurnLog.open(url) as log:
        log.erase(thread=head, reason="asked")
    threading.Event().wait()


@pytest.mark.timeout(1800 if SOAK else 300)
def test_process_killed_at_any_moment_leaves_nothing_or_all_of_it_erased(tmp_path: Path) -> None:
    """Also in the middle of a statement, such as the one that writes the database anew."""
    source = random.Random(1)
    for number in range(20 // EACH):
        folder = tmp_path / str(number)
        folder.mkdir()
        url = f"sqlite:///{folder}/log.db"
        head = _fill(url)
        with pytest.raises(ProcessFailedError, match="-9"):
            run_process(_erase_later, url, head, source.uniform(0.005, 0.08))
        _check(url, folder, head)


def _append(url: str, count: int) -> list[str]:
    with TurnLog.open(url) as log:
        return [log.add_turn(f"{number} " * 50, continues="kept").id for number in range(count)]


def _erase_one_by_one(url: str, turns: list[str]) -> int:
    with TurnLog.open(url) as log:
        return sum(len(log.erase(turn=turn, reason="asked").turns) for turn in turns)


def _read(url: str, head: str, count: int) -> int:
    seen = 0
    with TurnLog.open(url) as log:
        for _ in range(count):
            for message in log.context(head).messages:
                assert message.erased or message.content
                seen += 1
            assert log.turn("kept")
    return seen


@pytest.mark.timeout(1800 if SOAK else 300)
def test_others_append_and_read_while_one_erases(tmp_path: Path) -> None:
    """No append is lost, no reader fails, and what was erased is gone at the end."""
    url = f"sqlite:///{tmp_path}/store/log.db"
    head = _fill(url)
    with TurnLog.open(url) as log:
        turns = [turn.id for turn in log.ancestry(head)]
        [appended, erased, seen, also] = run_processes(
            [(_append, (url, 150)), (_erase_one_by_one, (url, turns)), (_read, (url, head, 150)), (_append, (url, 150))]
        )
        assert (erased, seen) == (3, 450)
        assert all(log.turn(turn).id == turn for turn in [*appended, *also])
        # A process that has the store open all the time goes on too.
        assert log.add_turn("and on", continues="kept")
        report = log.verify()
        assert (report.damage, report.erased) == ((), 3)
        assert log.finish_erasing() is None
    assert _traces(tmp_path) == []


_CHECKPOINT_LOCK = 121
"""The byte of the index of a write-ahead log that is locked by who brings it into the database (SQLite)."""


def _hold_checkpoint_lock(path: str, seconds: float) -> None:
    with Path(path).open("r+b") as index:
        fcntl.lockf(index, fcntl.LOCK_EX, 1, _CHECKPOINT_LOCK)
        Path(path + ".held").touch()
        sleep(seconds)


def test_erasing_waits_for_another_process_that_empties_the_write_ahead_log(tmp_path: Path) -> None:
    """SQLite does not wait for that by itself."""
    url = f"sqlite:///{tmp_path}/log.db"
    head = _fill(url)
    with TurnLog.open(url) as log:
        log.add_turn("the write-ahead log is there")
        index = f"{tmp_path}/log.db-shm"
        other = threading.Thread(target=run_process, args=(_hold_checkpoint_lock, index, 0.5))
        other.start()
        while not Path(index + ".held").exists():
            sleep(0.01)
        assert log.erase(thread=head, reason="asked").remains is None
        assert _traces(tmp_path) == []
        other.join()
        assert log.finish_erasing() is None


def test_store_that_shrinks_is_sound_while_somebody_reads_an_older_state(tmp_path: Path) -> None:
    """The file of the database is cut only once all of the write-ahead log is in it; more at its end is damage then."""
    path = tmp_path / "log.db"
    url = f"sqlite:///{path}"
    with TurnLog.open(url) as log:
        turn = log.add_turn("to be erased")
        for number in range(50):
            turn = log.add_turn(random.Random(number).randbytes(900).hex(), continues=turn.id)
        log.add_turn("kept", bookmark="kept")
    with TurnLog.open(url, busy_timeout_s=0.2) as log, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        log.add_turn("the write-ahead log is there")
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM stored_events").fetchall()
        size = path.stat().st_size
        assert "older state" in (log.erase(thread=turn.id, reason="asked").remains or "")
        assert log.verify().damage == ()
        reader.execute("COMMIT")
        assert path.stat().st_size == size
        assert log.verify().damage == ()
        assert log.finish_erasing() is None
        assert path.stat().st_size < size
        assert log.verify().damage == ()
        with path.open("ab") as file:
            file.write(b"hidden")
        assert ["bytes behind" in damage.what for damage in log.verify().damage] == [True]


def test_locked_store_is_told_and_finished_later(tmp_path: Path) -> None:
    """The erasure itself is on disk by then: the report says what remains, and finishing it works."""
    url = f"sqlite:///{tmp_path}/store/log.db"
    head = _fill(url)
    with TurnLog.open(url, busy_timeout_s=0.2) as log:
        writer = sqlite3.connect(tmp_path / "store" / "log.db", isolation_level=None)
        erase = log.store._erase

        def erase_and_lock(*args: Any) -> Any:
            done = erase(*args)
            writer.execute("BEGIN IMMEDIATE")
            return done

        log.store._erase = erase_and_lock
        report = log.erase(thread=head, reason="asked")
        assert report.remains is not None
        assert "--finish" in report.remains
        assert log.finish_erasing() is not None
        assert log.turn(head).erased
        writer.execute("ROLLBACK")
        writer.close()
        assert log.finish_erasing() is None
        assert _traces(tmp_path) == []
        assert log.verify().damage == ()
