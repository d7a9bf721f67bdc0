"""Locks by name for those who work on a log, such as the run that is at work on a turn.

They are no part of the log. A lock is given back when its holder ends, however it ends: then nobody works there any
more. Where a store is a file, a lock is a file in a folder beside it (`log.db-locks`) that its holder has locked
(flock); the file goes with the lock, and one that a killed process has left goes when the next lock is taken.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Lock
from weakref import WeakSet

from turnlog.errors import StoreError
from turnlog.store.files import OWN, Access, is_locked, lock_file, make_folder

LOCKS_SUFFIX = "-locks"

_TRIES = 5
_TRY_EVERY_S = 0.01
"""Whoever looks at a lock has it for a moment."""

Release = Callable[[], None]
"""Gives a lock back. A second call does nothing."""


class Locks(ABC):
    """The locks of a store. Safe to use from many threads."""

    @abstractmethod
    def take(self, name: str) -> Release | None:
        """Take a lock; None where somebody has it, in whatever process or thread.

        Raises:
            StoreError: locks cannot be used.
        """

    @abstractmethod
    def is_taken(self, name: str) -> bool:
        """Tell whether somebody has a lock.

        Raises:
            StoreError: locks cannot be used.
        """

    @abstractmethod
    def taken(self, names: Iterable[str]) -> list[str]:
        """Return which of many locks somebody has, in their order, in one look at all that are taken.

        Raises:
            StoreError: locks cannot be used.
        """

    @abstractmethod
    def close(self) -> None:
        """Give all of them back."""


class MemoryLocks(Locks):
    """Those of a store that one process alone has."""

    def __init__(self) -> None:
        """Begin with none."""
        self._taken: set[str] = set()
        self._lock = Lock()

    def take(self, name: str) -> Release | None:
        """Take a lock: see `Locks.take`."""
        with self._lock:
            if name in self._taken:
                return None
            self._taken.add(name)
        return Once(lambda: self._taken.discard(name))

    def is_taken(self, name: str) -> bool:
        """Tell whether somebody has a lock."""
        return name in self._taken

    def taken(self, names: Iterable[str]) -> list[str]:
        """Return which locks somebody has."""
        return [name for name in names if name in self._taken]

    def close(self) -> None:
        """Give all of them back."""
        self._taken.clear()


class FileLocks(Locks):
    """Those of a store that is a file."""

    def __init__(self, folder: Path, *, access: Access = OWN) -> None:
        """Take the folder, which is there while there are locks, and who may use the store."""
        self._folder = folder
        self._access = access
        self._handles: dict[int, Path] = {}
        _file_locks.add(self)

    def take(self, name: str) -> Release | None:
        """Take a lock: see `Locks.take`."""
        path = self._path(name)
        try:
            for _ in range(_TRIES):
                handle = self._locked(path)
                if handle is not None:
                    self._handles[handle] = path
                    self._sweep()
                    return Once(partial(self._release, handle))
                time.sleep(_TRY_EVERY_S)
        except OSError as error:
            raise StoreError(f"a lock in {str(self._folder)!r} cannot be taken: {error}") from error
        return None

    def is_taken(self, name: str) -> bool:
        """Tell whether somebody has a lock."""
        try:
            return is_locked(self._path(name))
        except OSError as error:
            raise StoreError(f"a lock in {str(self._folder)!r} cannot be read: {error}") from error

    def taken(self, names: Iterable[str]) -> list[str]:
        """Return which locks somebody has. Without a folder that is none."""
        try:
            files = set(self._folder.iterdir())
        except OSError:
            return []
        return [name for name in names if self._path(name) in files and self.is_taken(name)] if files else []

    def close(self) -> None:
        """Give all of them back."""
        for handle in list(self._handles):
            self._release(handle)

    def _after_fork(self) -> None:
        """Let go of the parent's files, which stay locked for as long as one of the two has them open."""
        handles, self._handles = self._handles, {}
        for handle in handles:
            os.close(handle)

    def _path(self, name: str) -> Path:
        return self._folder / sha256(name.encode()).hexdigest()[:32]

    def _locked(self, path: Path) -> int | None:
        """Return a handle that has a file locked; None where somebody else has it locked."""
        while True:
            try:
                make_folder(self._folder, self._access.of_folders)
            except FileExistsError:
                if self._folder.is_symlink() and not self._folder.exists():
                    raise  # there is no folder at its end, and none comes of waiting
            except FileNotFoundError:
                if not self._folder.parent.exists():
                    raise
                continue  # somebody took it away before it had its permissions
            try:
                return lock_file(path, self._access)
            except FileNotFoundError:  # somebody gave the last lock back, and took the folder away
                continue

    def _release(self, handle: int) -> None:
        path = self._handles.pop(handle, None)
        if path is not None:
            path.unlink(missing_ok=True)
            os.close(handle)
            with suppress(OSError):
                self._folder.rmdir()

    def _sweep(self) -> None:
        """Remove what killed processes have left."""
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path not in self._handles.values() and (handle := self._locked(path)) is not None:
                    path.unlink(missing_ok=True)
                    os.close(handle)


class Once:
    """A function that is called once at most."""

    def __init__(self, act: Release) -> None:
        self._act: Release | None = act
        self._process = os.getpid()

    def __call__(self) -> None:
        """Call it, if it was not called; never in a process that was forked, whose parent has what it is about."""
        act, self._act = self._act, None
        if act is not None and self._process == os.getpid():
            act()


_file_locks: WeakSet[FileLocks] = WeakSet()


def _after_fork() -> None:
    for locks in list(_file_locks):
        locks._after_fork()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
