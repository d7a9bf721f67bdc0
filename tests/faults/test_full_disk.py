"""A full disk refuses an append with a clear error, keeps nothing of it, and does no harm to what was there."""

import os
import random
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.errors import TurnlogError
from turnlog.testing.faults import run_process

SOAK = os.environ.get("TURNLOG_SOAK") == "1"
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


def _fill(log: TurnLog, size: int) -> tuple[list[str], list[str]]:
    """Append until it fails ten times; return the ids of the turns that were recorded, and the errors."""
    kept: list[str] = []
    errors: list[str] = []
    for number in range(100_000):
        try:
            kept.append(log.add_turn(_text(number, size), continues="main").id)
        except TurnlogError as error:
            errors.append(type(error).__name__)
            if len(errors) == 10:
                return kept, errors
    raise AssertionError("the disk was never full")


def _fill_up(url: str, limit: int, size: int) -> dict[str, Any]:
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        with _file_bytes_max(limit):
            kept, errors = _fill(log, size)
            seen = [turn.id for turn in log.ancestry("main")][1:]
            clean_full = log.verify().damage
        clean_after = log.verify().damage
        again = log.add_turn(_text(1, size), continues="main").id
    return {
        "kept": kept,
        "errors": errors,
        "seen": seen,
        "damage": [damage.what for damage in (*clean_full, *clean_after)],
        "again": again,
    }


@pytest.mark.parametrize(
    ("limit", "size"),
    [(300 * KIB, 2 * KIB), (1200 * KIB, 40 * KIB), (5000 * KIB, 60 * KIB), (100 * KIB, 400 * KIB)],
    ids=["small turns", "large turns", "past a checkpoint", "payload file"],
)
def test_append_to_a_full_disk_raises(tmp_path: Path, limit: int, size: int) -> None:
    """When files cannot grow an append raises `StoreFullError`; the turns before it stay, none is there in part."""
    url = f"sqlite:///{tmp_path}/log.db"
    found = run_process(_fill_up, url, limit, size)
    assert set(found["errors"]) == {"StoreFullError"}
    assert found["seen"] == found["kept"]
    assert found["damage"] == []
    with TurnLog.open(url) as log:
        turns = [turn.id for turn in log.ancestry("main")][1:]
        assert turns[-1] == found["again"]
        # A turn that was refused while others were recorded is not there either: the run is what was acknowledged.
        assert turns[:-1] == found["kept"]
        assert log.verify().damage == ()


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
        assert log.turn(last).global_position == 50
        assert log.verify().damage == ()


def _fill_mounted(folder: str) -> dict[str, Any]:
    url = f"sqlite:///{folder}/log.db"
    ballast = Path(folder) / "ballast"
    ballast.write_bytes(bytes(256 * KIB))
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        kept, errors = _fill(log, 20 * KIB)
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
