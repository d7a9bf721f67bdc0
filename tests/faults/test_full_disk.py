"""A full disk refuses an append with a clear error, keeps nothing of it, and does no harm to what was there.

Where the disk failed when the append may have been recorded already, the error says so, and the id tells.
"""

import random
import re
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.errors import StoreError, StoreFullError, TurnlogError, UncertainError
from turnlog.feeds import sinks
from turnlog.ids import new_id
from turnlog.store.sqlite.scratch import scratch
from turnlog.testing.faults import run_process

KIB = 1024


@contextmanager
def _file_bytes_max(limit: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: writes fail as on a full disk, and only in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _text(number: int, size: int) -> str:
    return random.Random(number).randbytes(size // 2).hex()


def _fill(log: TurnLog, size: int) -> tuple[list[str], dict[str, int], list[str]]:
    """Append until it fails ten times.

    Return the ids of the turns that were recorded, those of the others with their numbers, and the errors.
    """
    kept: list[str] = []
    failed: dict[str, int] = {}
    errors: list[str] = []
    for number in range(100_000):
        turn_id = new_id()
        try:
            kept.append(log.add_turn(_text(number, size), continues="main", id=turn_id).id)
        except TurnlogError as error:
            errors.append(type(error).__name__)
            failed[turn_id] = number
            if len(errors) == 10:
                return kept, failed, errors
    raise AssertionError("the disk was never full")


def _fill_up(url: str, limit: int, size: int) -> dict[str, Any]:
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        with _file_bytes_max(limit):
            kept, failed, errors = _fill(log, size)
            seen = [turn.id for turn in log.ancestry("main")][1:]
            clean_full = log.verify().damage
        clean_after = log.verify().damage
        # The same turn under the same id: recorded now, or there already.
        again = [
            log.add_turn(_text(number, size), continues="main", id=turn_id).id for turn_id, number in failed.items()
        ]
    return {
        "kept": kept,
        "errors": errors,
        "seen": seen,
        "damage": [damage.what for damage in (*clean_full, *clean_after)],
        "failed": list(failed),
        "again": again,
    }


@pytest.mark.parametrize(
    ("limit", "size", "error"),
    [
        # SQLite cannot tell from this kind of failure whether what it wrote last will be found after a crash.
        (300 * KIB, 2 * KIB, UncertainError),
        (1200 * KIB, 40 * KIB, UncertainError),
        (5000 * KIB, 60 * KIB, UncertainError),
        (100 * KIB, 400 * KIB, StoreFullError),
    ],
    ids=["small turns", "large turns", "past a checkpoint", "payload file"],
)
def test_append_to_files_that_cannot_grow_raises(
    tmp_path: Path, limit: int, size: int, error: type[TurnlogError]
) -> None:
    """When files cannot grow an append raises; the turns before it stay, none is there in part, none twice."""
    url = f"sqlite:///{tmp_path}/log.db"
    found = run_process(_fill_up, url, limit, size)
    assert set(found["errors"]) == {error.__name__}
    assert found["seen"] == found["kept"]
    assert found["damage"] == []
    assert found["again"] == found["failed"]
    with TurnLog.open(url) as log:
        # A turn that was refused while others were recorded is not there either: the run is what was acknowledged.
        assert [turn.id for turn in log.ancestry("main")][1:] == found["kept"] + found["failed"]
        assert log.verify().damage == ()
    payload_files = [path for path in (tmp_path / "log.db-payloads").rglob("*") if path.is_file()]
    assert len(payload_files) == (len(found["kept"] + found["failed"]) if size > 64 * KIB else 0)


def _open_on_full_disk(url: str, limit: int) -> str:
    with _file_bytes_max(limit):
        try:
            TurnLog.open(url).close()
        except TurnlogError as error:
            return type(error).__name__
    return "opened"


@pytest.mark.parametrize("limit", [0, 512, 4 * KIB, 8 * KIB, 20 * KIB])
def test_new_store_on_a_full_disk_raises(tmp_path: Path, limit: int) -> None:
    """A store that cannot be made for want of space raises `StoreFullError`, and can be made once there is space."""
    url = f"sqlite:///{tmp_path}/log.db"
    assert run_process(_open_on_full_disk, url, limit) == "StoreFullError"
    with TurnLog.open(url) as log:
        log.add_turn("x")
        assert log.verify().damage == ()


def _close_on_full_disk(url: str) -> str:
    log = TurnLog.open(url)
    kept = [log.add_turn(_text(number, 2 * KIB)).id for number in range(50)]
    with _file_bytes_max(8 * KIB):
        log.close()
    return kept[-1]


def test_closing_on_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A store that is closed while its files cannot grow has every turn when it is opened again."""
    url = f"sqlite:///{tmp_path}/log.db"
    last = run_process(_close_on_full_disk, url)
    with TurnLog.open(url) as log:
        assert log.turn(last).global_position == 51
        assert log.verify().damage == ()


def _project_on_full_disk(url: str, limit: int) -> tuple[str, str]:
    with TurnLog.open(url) as log:
        for number in range(40):
            log.add_turn(_text(number, 2 * KIB))
        with _file_bytes_max(limit):
            try:
                log.feeds.run(["search"])
            except StoreError as error:
                said = str(error)
            else:
                said = "folded"
        return said, str(log.feeds.run(["search"])[0].error)


@pytest.mark.parametrize("limit", [0, 8 * KIB, *range(40 * KIB, 350 * KIB, 75 * KIB)])
def test_projection_that_does_not_fit_is_told_and_goes_on_later(tmp_path: Path, limit: int) -> None:
    """Wherever it fails: when the file is made, at what is written, or at the end of a transaction."""
    said, error = run_process(_project_on_full_disk, f"sqlite:///{tmp_path}/log.db", limit)
    name = "the database of projections '.*'"
    told = f"no space left for {name}: free some|{name} can.*: (check that the disk has space|.* free some space)"
    assert re.match(told, said)
    assert error == "None"


def _feed_on_full_disk(url: str, folder: str) -> str:
    with TurnLog.open(url) as log:
        log.add_turn("x")
        with _file_bytes_max(0), pytest.raises(StoreFullError) as caught:
            log.feeds.feed(sinks.JSONLines(folder)).run()
    return str(caught.value)


def test_states_of_feeds_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    """With what to do."""
    said = run_process(_feed_on_full_disk, f"sqlite:///{tmp_path}/log.db", f"{tmp_path}/feed")
    assert re.match("the states of feeds in '.*/log.db-feeds' cannot be .*: check that the disk has space", said)


def test_full_disk_of_a_store_is_not_that_of_temporary_files() -> None:
    """What is raised while these are open, and is not of them, goes on as it is."""
    full = sqlite3.OperationalError("database or disk is full")
    with pytest.raises(sqlite3.OperationalError) as caught, scratch(()):
        raise full
    assert caught.value is full


def test_temporary_files_that_find_no_space_are_told() -> None:
    """With what to do."""
    with scratch(()) as small:
        small.run("PRAGMA max_page_count = 8")
        small.run("CREATE TABLE x (y BLOB)")
        with pytest.raises(StoreFullError, match=r"no space left for SQLite's temporary files: .* SQLITE_TMPDIR"):
            small.run("INSERT INTO x VALUES (zeroblob(100000))")


def _fill_mounted(folder: str) -> dict[str, Any]:
    url = f"sqlite:///{folder}/log.db"
    ballast = Path(folder) / "ballast"
    ballast.write_bytes(bytes(256 * KIB))
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        kept, _, errors = _fill(log, 20 * KIB)
        damage = log.verify().damage
        ballast.unlink()
        again = log.add_turn("again", continues="main").id
        seen = [turn.id for turn in log.ancestry("main")][1:]
    return {"kept": kept, "errors": errors, "damage": list(damage), "again": again, "seen": seen}


if SOAK:  # it needs the right to mount, which few machines give

    def test_full_file_system(tmp_path: Path) -> None:
        """On a file system that is really full the same holds."""
        folder = tmp_path / "small"
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
        try:
            found = run_process(_fill_mounted, str(folder))
            assert set(found["errors"]) == {"StoreFullError"}
            assert found["damage"] == []
            assert found["seen"] == [*found["kept"], found["again"]]
        finally:
            subprocess.run(["umount", str(folder)], check=True)


def test_a_checkpoint_that_is_broken_off_within_a_page_is_no_damage(tmp_path: Path) -> None:
    """All of it is in the write-ahead log still, from where it is written again."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log, closing(sqlite3.connect(path)) as other:
        for number in range(10):
            log.add_turn(_text(number, 20 * KIB))
        [(page_bytes,)] = other.execute("PRAGMA page_size")
        whole_bytes = path.stat().st_size // page_bytes * page_bytes
        with _file_bytes_max(whole_bytes + page_bytes // 2), pytest.raises(sqlite3.OperationalError):
            other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        assert path.stat().st_size == whole_bytes + page_bytes // 2
        assert log.verify().damage == ()
