"""Locks of a store that is a file."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnlog.errors import StoreError
from turnlog.store.locks import FileLocks


def test_a_lock_is_taken_while_others_take_the_folder_away(tmp_path: Path) -> None:
    """The folder goes with the last lock, and comes with the next one, from whatever process or thread."""
    folder = tmp_path / "locks"

    def take_often(name: str) -> int:
        locks, taken = FileLocks(folder), 0
        for _ in range(200):
            release = locks.take(name)
            if release is not None:
                taken += 1
                release()
        return taken

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(take_often, "abcd")) > 0
    assert not folder.exists()


def test_a_lock_beside_nothing_cannot_be_taken(tmp_path: Path) -> None:
    """The folder above the folder is missing."""
    with pytest.raises(StoreError, match="cannot be taken"):
        FileLocks(tmp_path / "missing" / "locks").take("a")
