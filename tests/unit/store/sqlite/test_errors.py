"""Errors of SQLite and what they become."""

import errno
import os
import resource
import sqlite3
from pathlib import Path
from unittest.mock import Mock

import pytest

from turnlog import TurnLog
from turnlog.errors import (
    CorruptionError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreOpenError,
    StoreReadOnlyError,
    TurnlogError,
    UncertainError,
)
from turnlog.store.sqlite.errors import converted, lacking, store_error
from turnlog.testing.faults import run_process


def _error(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("what SQLite says")
    error.sqlite_errorcode = code
    return error


TABLE: dict[str, type[StoreError]] = {
    "SQLITE_ERROR": StoreError,
    "SQLITE_INTERNAL": StoreError,
    "SQLITE_PERM": StoreReadOnlyError,
    "SQLITE_ABORT": StoreError,
    "SQLITE_BUSY": StoreBusyError,
    "SQLITE_BUSY_RECOVERY": StoreBusyError,
    "SQLITE_BUSY_SNAPSHOT": StoreBusyError,
    "SQLITE_BUSY_TIMEOUT": StoreBusyError,
    "SQLITE_LOCKED": StoreBusyError,
    "SQLITE_LOCKED_SHAREDCACHE": StoreBusyError,
    "SQLITE_NOMEM": StoreError,
    "SQLITE_READONLY": StoreReadOnlyError,
    "SQLITE_READONLY_DIRECTORY": StoreReadOnlyError,
    "SQLITE_READONLY_DBMOVED": StoreReadOnlyError,
    "SQLITE_INTERRUPT": StoreError,
    "SQLITE_IOERR": StoreFullError,
    "SQLITE_IOERR_WRITE": StoreFullError,
    "SQLITE_IOERR_FSYNC": StoreFullError,
    "SQLITE_IOERR_TRUNCATE": StoreFullError,
    "SQLITE_IOERR_SHMSIZE": StoreFullError,
    "SQLITE_CORRUPT": CorruptionError,
    "SQLITE_CORRUPT_INDEX": CorruptionError,
    "SQLITE_FULL": StoreFullError,
    "SQLITE_CANTOPEN": StoreOpenError,
    "SQLITE_CANTOPEN_ISDIR": StoreOpenError,
    "SQLITE_SCHEMA": StoreError,
    "SQLITE_TOOBIG": StoreError,
    "SQLITE_CONSTRAINT": StoreError,
    "SQLITE_CONSTRAINT_TRIGGER": StoreError,
    "SQLITE_MISMATCH": StoreError,
    "SQLITE_MISUSE": StoreError,
    "SQLITE_AUTH": StoreOpenError,
    "SQLITE_RANGE": StoreError,
    "SQLITE_NOTADB": StoreOpenError,
}


@pytest.mark.parametrize(("name", "expected"), TABLE.items(), ids=TABLE)
def test_each_result_code_has_its_error(name: str, expected: type[StoreError]) -> None:
    """Every result code of SQLite, extended ones too, becomes exactly one kind of turnlog error."""
    error = store_error(_error(getattr(sqlite3, name)), "log.db")
    assert type(error) is expected
    assert "'log.db'" in str(error)
    assert not str(error).endswith(".")


@pytest.mark.parametrize("name", sorted({"SQLITE_NOLFS", "SQLITE_NOTFOUND", "SQLITE_PROTOCOL", "SQLITE_FORMAT"}))
def test_rare_codes_are_store_errors(name: str) -> None:
    """A code without a kind of its own is a plain store error with SQLite's message."""
    error = store_error(_error(getattr(sqlite3, name)), "log.db")
    assert type(error) is StoreError
    assert str(error) == "store 'log.db': what SQLite says"


@pytest.mark.parametrize("name", ["SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMOPEN", "SQLITE_IOERR_SHMMAP"])
def test_index_that_has_no_room_is_told_to_who_only_reads(name: str) -> None:
    """Reading needs it too."""
    error = store_error(_error(getattr(sqlite3, name)), "log.db")
    assert type(error) is StoreFullError
    assert str(error).startswith("store 'log.db' can be neither read nor written (what SQLite says): the index that")
    assert "free some space" in str(error)


def test_error_without_a_code_is_a_store_error() -> None:
    """Errors that the driver itself raises have no code."""
    assert type(store_error(sqlite3.ProgrammingError("misused"), "log.db")) is StoreError


def test_closed_connection_is_a_closed_store() -> None:
    """A driver error about a closed connection says that the store is closed."""
    connection = sqlite3.connect(":memory:")
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError) as caught:
        connection.execute("SELECT 1")
    assert type(store_error(caught.value, "log.db")) is StoreClosedError


def test_conversion_keeps_the_cause_and_lets_others_pass() -> None:
    """A converted error has the driver's as its cause; errors of no driver pass as they are."""
    original = _error(sqlite3.SQLITE_BUSY)
    with pytest.raises(StoreBusyError) as caught, converted("log.db"):
        raise original
    assert caught.value.__cause__ is original
    for other in (ValueError("x"), TurnlogError("y")):
        with pytest.raises(type(other)) as passed, converted("log.db"):
            raise other
        assert passed.value is other


_CERTAIN = {"SQLITE_FULL", "SQLITE_BUSY", "SQLITE_BUSY_RECOVERY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY_TIMEOUT"}
"""What a COMMIT fails with that has certainly recorded nothing."""


@pytest.mark.parametrize(("name", "expected"), TABLE.items(), ids=TABLE)
def test_failed_commit_is_uncertain(name: str, expected: type[StoreError]) -> None:
    """Where a COMMIT failed, only a full disk and a busy store say that nothing was recorded; else it may have been."""
    error = store_error(_error(getattr(sqlite3, name)), "log.db", committing=True)
    if name in _CERTAIN:
        assert type(error) is expected
        assert type(error) is not UncertainError
    else:
        assert type(error) is UncertainError
        assert "it may be recorded or not" in str(error)
        assert "nothing was recorded" not in str(error)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_file_that_can_no_longer_be_made_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As where no inodes are left: SQLite says no more than that it cannot open the database."""
    unopened = _error(sqlite3.SQLITE_CANTOPEN)
    name = str(tmp_path / "log.db")
    assert lacking(unopened, "it", Path(name)) is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("tempfile.TemporaryFile", Mock(side_effect=OSError(code, os.strerror(code))))
    error = store_error(unopened, name)
    assert type(error) is StoreFullError
    assert str(error).startswith(f"no space left for another file beside store {name!r}: free some (`df -i` ")


def _opened_with_few_handles(url: str) -> str:
    with TurnLog.open(url) as log:
        log.add_turn("x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 2, hard))
    os.close(spare)
    try:
        with pytest.raises(StoreOpenError) as caught:
            TurnLog.open(url)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return str(caught.value)


def test_too_few_handles_are_told(tmp_path: Path) -> None:
    """With what to do, and not as a store that cannot be opened."""
    said = run_process(_opened_with_few_handles, f"sqlite:///{tmp_path}/log.db")
    assert said.startswith(f"too many files are open to use store '{tmp_path}/log.db': close some, or allow more")


def test_store_that_finds_no_space_for_its_index_can_be_read_elsewhere() -> None:
    """Its message says so; that of other databases beside it does not."""
    error = _error(sqlite3.SQLITE_IOERR_SHMSIZE)
    way = "free some space, or copy the store, with its '-wal' file and its folder of payloads, to another disk"
    assert str(store_error(error, "log.db")).endswith(f"{way}; nothing was recorded")
    assert str(lacking(error, "it", Path("log.db"))).endswith("free some space")
