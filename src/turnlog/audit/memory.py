"""What was signed last of each log: a file for each, which one at a time replaces, durably."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from turnlog.store.files import FILE_MODE, sync_folder, write_file


def file_of(folder: Path, origin: str) -> Path:
    """Return the file of a log. Origins can be of any characters and any length."""
    return folder / f"{sha256(origin.encode()).hexdigest()}.checkpoint"


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Be the only one, of all threads and processes, that has a lock file.

    Raises:
        OSError: it cannot be made or opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def replace(path: Path, content: bytes) -> None:
    """Write a file in the place of what it was, under its lock. On return it is on disk; until then the old one is.

    Raises:
        OSError: it cannot be written; it is as it was.
    """
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)  # of a process that was killed: whoever is here has the lock
    write_file(temporary, content, FILE_MODE)
    temporary.replace(path)
    sync_folder(path.parent)
