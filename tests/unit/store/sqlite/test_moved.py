"""A store whose file is moved, deleted or replaced while it is open."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreError, StoreOpenError, UnknownTurnError
from turnlog.store.sqlite.opening import BESIDE_S


def _delete(path: Path) -> None:
    for file in path.parent.glob("log.db*"):
        file.unlink()


def _replace(path: Path) -> None:
    other = path.with_name("other.db")
    with TurnLog.open(f"sqlite:///{other}") as log:
        for number in range(9):
            log.add_turn(f"another log {number}")
    other.replace(path)


def _move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _restore_copy(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def _remove_wal(path: Path) -> None:
    path.with_name("log.db-wal").unlink()
    time.sleep(BESIDE_S)


def _remove_index(path: Path) -> None:
    path.with_name("log.db-shm").unlink()
    time.sleep(BESIDE_S)


def _replace_wal(path: Path) -> None:
    wal = path.with_name("log.db-wal")
    shutil.copy(wal, path.with_name("copy"))
    path.with_name("copy").replace(wal)
    time.sleep(BESIDE_S)


WAYS: dict[str, tuple[Callable[[Path], None], str]] = {
    "deleted": (_delete, "was moved or deleted"),
    "replaced": (_replace, "was replaced by another one"),
    "folder moved": (_move_folder, "was moved or deleted"),
    "copy put in its place": (_restore_copy, "was replaced by another one"),
    "write-ahead log removed": (_remove_wal, r"log\.db-wal' was removed or replaced while"),
    "write-ahead log replaced": (_replace_wal, r"log\.db-wal' was removed or replaced while"),
    "its index removed": (_remove_index, r"log\.db-shm' was removed or replaced while"),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[Callable[[Path], None], str]:
    return WAYS[request.param]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "log.db"


def test_nothing_is_recorded_into_a_file_that_is_gone(path: Path, way: tuple[Callable[[Path], None], str]) -> None:
    """What is acknowledged can be found at the path of the store."""
    move, said = way
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("before", bookmark="main")
        move(path)
        with pytest.raises(StoreError, match=said):
            log.add_turn("after", continues="main")
        with pytest.raises(StoreError, match=said):
            log.turn("main")


def test_follower_is_told_that_the_file_is_gone(path: Path, way: tuple[Callable[[Path], None], str]) -> None:
    """Though nothing is appended by this process, and the other log is longer."""
    move, said = way
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("before", bookmark="main")
        waits = threading.Event()
        told: list[str] = []

        def follow() -> None:
            try:
                for event in log.events(follow=True):
                    if event.global_position == 2:
                        waits.set()
            except StoreError as error:
                told.append(str(error))

        thread = threading.Thread(target=follow)
        thread.start()
        assert waits.wait(30)
        move(path)
        thread.join(30)
        assert len(told) == 1
        assert re.search(said, told[0])


def test_who_has_only_read_so_far_is_told_too(path: Path) -> None:
    """Else its next turn would be recorded beside those that others recorded since."""
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("before", bookmark="main")
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert len(log.ancestry("main")) == 1
        _remove_index(path)
        with TurnLog.open(f"sqlite:///{path}") as other:
            other.add_turn("between", continues="main")
        with pytest.raises(StoreError, match="was removed or replaced while"):
            log.add_turn("after", continues="main")


def test_an_error_of_an_append_hides_nothing(path: Path) -> None:
    """What is beside the file is known from before it."""
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("before", bookmark="main")
        with pytest.raises(UnknownTurnError):
            log.add_turn("of nothing", continues="nothing")
        _remove_index(path)
        for _ in range(2):
            with pytest.raises(StoreError, match="was removed or replaced while"):
                log.add_turn("after", continues="main")


def test_file_that_is_mounted_by_itself_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers do it: the write-ahead log would be beside it there, and go with the container."""
    odd = path.with_name("a log\\.db")
    for each in (path, odd):
        TurnLog.open(f"sqlite:///{quote(str(each))}").close()
    told = f"36 35 98:0 /log.db {path} rw,noatime - ext4 /dev/sda1 rw\n"
    told += f"37 35 98:0 /x {odd.parent!s}/a\\040log\\134.db rw - ext4 /dev/sda1 rw\n"
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, **how: told if self.parts[1] == "proc" else read(self, **how))
    for each in (path, odd):
        with pytest.raises(StoreOpenError, match=r"is mounted as a file of its own.*: mount the folder that it is in"):
            TurnLog.open(f"sqlite:///{quote(str(each))}")
    other = path.with_name("other.db")
    TurnLog.open(f"sqlite:///{other}").close()


def test_store_is_not_made_beside_the_last_turns_of_another(path: Path) -> None:
    """SQLite would remove them."""
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("one")
        left = path.with_name("log.db-wal").read_bytes()
    gone = path.with_name("gone.db-wal")
    gone.write_bytes(left)
    for _ in range(2):
        with pytest.raises(
            StoreOpenError, match=r"gone\.db-wal' has the last turns of one that was there: put that one"
        ):
            TurnLog.open(f"sqlite:///{gone.with_name('gone.db')}")
    assert gone.read_bytes() == left
    gone.write_bytes(b"")
    TurnLog.open(f"sqlite:///{gone.with_name('gone.db')}").close()


def test_a_file_with_two_names_is_not_opened(path: Path) -> None:
    """Each name would have a write-ahead log of its own, and what one has is lost with the other."""
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("before", bookmark="main")
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(StoreOpenError, match=rf"{name.name}' has 2 names \(hard links\).*copy the file"):
            TurnLog.open(f"sqlite:///{name}")
    other.unlink()
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert len(log.ancestry("main")) == 1


def test_many_go_on_with_what_is_beside_the_file(path: Path) -> None:
    """Opening, closing and erasing by others leaves the files that are open where they are."""
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("0", bookmark="main")
        for number in range(1, 4):
            with TurnLog.open(f"sqlite:///{path}") as other:
                other.add_turn(f"{number}", continues="main")
                other.erase(turn=other.add_turn("gone").id, reason="asked")
            log.add_turn("more", continues="main")
        assert len(log.ancestry("main")) == 7
