"""What a path is mounted from, and what follows on file systems that give what is written again another place."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreFullError
from turnlog.store.sqlite.mounts import file_system
from turnlog.testing.faults import run_process

TOLD = """\
22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
36 22 0:39 / {0}/a\\040b rw,relatime - btrfs /dev/vdb rw,subvol=/
37 36 0:40 / {0}/a\\040b/c rw - tmpfs tmpfs rw
38 36 7:1 / {0}/a\\040b/c rw - xfs /dev/loop1 rw
"""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("a b", "btrfs"), ("a b/x", "btrfs"), ("a b/c/d", "xfs"), ("a b/cc", "btrfs"), ("a bc", "ext4")],
)
def test_file_system_is_that_of_what_is_mounted_last_and_lowest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, expected: str
) -> None:
    """A name that only begins like a mount point is not below it."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: TOLD.format(tmp_path))
    assert file_system(tmp_path / folder) == expected


def test_file_system_is_not_known_where_nobody_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on other systems than Linux."""

    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert file_system(tmp_path) is None


def _fill(folder: str) -> tuple[list[str], list[bool]]:
    """Use a log whose disk is full for a while; return what is said meanwhile, and whether its log is there behind."""
    read, measure = Path.read_text, os.statvfs
    told = f"36 22 0:39 / {folder} rw - btrfs /dev/vdb rw\n"
    Path.read_text = lambda self, *given, **how: told if self.parts[1] == "proc" else read(self, *given, **how)
    full = SimpleNamespace(f_frsize=4096, f_bavail=4095)
    wal = Path(folder, "log.db-wal")
    said: list[str] = []
    there: list[bool] = []
    log = TurnLog.open(f"sqlite:///{folder}/log.db")
    log.add_turn("one", bookmark="main")
    os.statvfs = lambda _: full
    for use in (lambda: log.add_turn("lost", continues="main"), lambda: log.text("main"), log.verify):
        with pytest.raises(StoreFullError) as caught:
            use()
        said.append(str(caught.value))
    os.statvfs = measure
    log.add_turn("two", continues="main")
    for state in (lambda _: full, measure):
        os.statvfs = state
        log.close()
        there.append(wal.exists())
        os.statvfs = measure
        log = TurnLog.open(f"sqlite:///{folder}/log.db")
    log.close()
    return said, there


def test_store_on_btrfs_is_left_alone_while_its_disk_is_full(tmp_path: Path) -> None:
    """Whoever wrote to the index of its log, be it to read or to close it, would be killed."""
    said, there = run_process(_fill, str(tmp_path))
    assert len(said) == 3
    for each in said:
        assert "can be neither read nor written (less than 16 MiB is free on btrfs): the index" in each
        assert each.endswith("nothing was recorded")
    assert there == [True, True]
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        assert [log.text(turn) for turn in log.ancestry("main")] == ["one", "two"]
        assert log.verify().clean
    assert not (tmp_path / "log.db-wal").exists()
