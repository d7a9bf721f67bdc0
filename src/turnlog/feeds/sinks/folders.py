"""A folder that a sink fills with files: locked while it does, and each file whole or not there."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from turnlog.errors import MetaError, SinkError, os_reason
from turnlog.feeds.sinks.interface import Sink
from turnlog.store.files import FILE_MODE, OWN, make_file, make_folders, sync_folder, write_file

_LOCK = ".turnlog-feed.lock"
_NEW = ".turnlog-new"
"""What the name of a file ends in while it is written; it begins with a dot."""


def folder_path(folder: str | Path) -> Path:
    """Return the absolute path of a folder, as it is named, and not where a link leads.

    Raises:
        MetaError: it has no name.
    """
    if not str(folder):
        raise MetaError("the folder has no name: give one, or '.' for the one that you are in", field="folder")
    return Path(os.path.abspath(folder))  # noqa: PTH100 - a link stays a link


def is_same(folder: str | Path, other: str | Path) -> bool:
    """Tell whether two paths lead to the same folder, which need not be there."""
    return os.path.realpath(folder) == os.path.realpath(other)


_LATER = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT, errno.ENOENT})
"""What may go away by itself, or when it is tried again: a folder that is taken away is made anew."""


class Folder:
    """A folder of files, for its owner alone."""

    def __init__(self, sink: Sink, path: Path) -> None:
        """Take the sink that fills it, and its path."""
        self.path = path
        self._sink = sink
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder where there is none, lock it, and remove what a killed process left half-written.

        Raises:
            SinkError: it cannot be used, or another feed fills it.
        """
        with self.errors():
            make_folders(self.path, OWN.of_folders)
            lock = self.path / _LOCK
            self._lock = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self.close()
                raise self._sink.failed("another feed fills this folder") from error
            for left in self.path.rglob(f".*{_NEW}"):
                left.unlink()

    def keep(self) -> bool:
        """Open it again where it was taken away since, as `open` does, and tell whether it was not.

        Raises:
            SinkError: it cannot be used, or another feed fills it.
        """
        with self.errors():
            if self._lock is not None and is_at(self._lock, self.path / _LOCK):
                return True
        self.close()
        self.open()
        return False

    def close(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, path: Path, content: bytes) -> None:
        """Make a file with a content, in the place of one that may be there, durably.

        Raises:
            OSError: it cannot be written. What was there is there.
        """
        self.replace(path, lambda new: write_file(new, content))

    def replace(self, path: Path, make: Callable[[Path], None]) -> None:
        """Have a file made and put it in the place of one that may be there, durably. Who may read that may read this.

        Args:
            path: the file.
            make: makes a file, which is on disk when it returns.

        Raises:
            OSError: it cannot be written. What was there is there.
        """
        make_folders(path.parent, OWN.of_folders)
        new = path.with_name(f".{path.name}{_NEW}")
        with suppress(FileNotFoundError):
            new.unlink()
        try:
            make(new)
            with suppress(FileNotFoundError):
                _allow(new, path.lstat())
            new.replace(path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
        sync_folder(path.parent)

    def each(self, paths: Iterable[Path], do: Callable[[Path], None]) -> None:
        """Do something with each file, also when it has failed with one before.

        Raises:
            SinkError: it failed, with what it says of each such file.
        """
        failed: list[SinkError] = []
        for path in paths:
            try:
                with self.errors():
                    do(path)
            except SinkError as error:
                failed.append(error)
        if len(failed) == 1:
            raise failed[0]
        if failed:
            is_retryable = all(error.retryable for error in failed)
            raise SinkError("; ".join(map(str, failed)), sink=self._sink.kind, retryable=is_retryable) from failed[0]

    def remove(self, path: Path) -> None:
        """Remove a file, durably."""
        path.unlink()
        sync_folder(path.parent)

    def append(self, path: Path) -> int:
        """Return a handle that appends to a file, which is made where there is none."""
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            os.close(make_file(path))
            sync_folder(path.parent)
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    @contextmanager
    def errors(self) -> Generator[None]:
        """Raise errors of the system as those of the sink."""
        try:
            yield
        except OSError as error:
            what = "the folder cannot be written" if error.filename is None else f"{str(error.filename)!r}"
            raise self._sink.failed(f"{what}: {os_reason(error)}", retryable=error.errno in _LATER) from error


def _allow(path: Path, was: os.stat_result) -> None:
    """Give a file the owner, the group and the permissions of another one, as far as that is allowed."""
    mode = stat.S_IMODE(was.st_mode) & 0o777
    with suppress(OSError):
        os.chown(path, was.st_uid, -1)
    try:
        os.chown(path, -1, was.st_gid)
    except OSError:
        mode &= ~0o070  # they would be those of another group
    path.chmod(mode)


def is_at(handle: int, path: Path) -> bool:
    """Tell whether a path leads to the file of a handle."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return False
