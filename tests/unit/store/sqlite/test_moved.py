"""A store whose file is moved, deleted or replaced while it is open."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreError


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


WAYS: dict[str, tuple[Callable[[Path], None], str]] = {
    "deleted": (_delete, "was moved or deleted"),
    "replaced": (_replace, "was replaced by another one"),
    "folder moved": (_move_folder, "was moved or deleted"),
    "copy put in its place": (_restore_copy, "was replaced by another one"),
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
        assert said in told[0]
