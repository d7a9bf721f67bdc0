"""Small files outside the store that many processes share: made once, or replaced by one at a time; always durable.

What was signed last of each log is kept so, and keys are.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from turnlog.store.files import FILE_MODE, sync_folder, take_name, write_file


def file_of(folder: Path, origin: str) -> Path:
    """Return the file of a log. Origins can be of any characters and any length."""
    return folder / f"{sha256(origin.encode()).hexdigest()}.checkpoint"


@contextmanager
def locked(path: Path) -> Generator[int]:
    """Be the only one, of all threads and processes, that has a lock file; give a handle to it.

    Raises:
        OSError: it cannot be made or opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def replace(path: Path, content: bytes) -> None:
    """Write a file in the place of what it was, under its lock. On return it is on disk; until then the old one is.

    Raises:
        OSError: it cannot be written; it is as it was.
    """
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)  # of a process that was killed: whoever is here has the lock
    write_file(temporary, content)
    temporary.replace(path)
    sync_folder(path.parent)


def append_at(path: Path, at: int, content: bytes) -> None:
    """Write bytes into a file from an offset on, in the place of all that stood there. On return they are on disk.

    Call it under the lock of the file. It costs one sync, half of what `replace` does.

    Raises:
        OSError: they cannot be written; some of them may be.
    """
    handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(handle, at)
        while content:
            written = os.pwrite(handle, content, at)
            at, content = at + written, content[written:]
        os.fdatasync(handle)
    finally:
        os.close(handle)


def write_new(path: Path, content: bytes) -> None:
    """Make a file of a name that nothing has, whole and durable. It needs no lock.

    Raises:
        FileExistsError: something has the name.
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{token_hex(8)}.tmp")
    write_file(temporary, content)
    try:
        take_name(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
