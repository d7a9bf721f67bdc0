"""Payload files on their way in: on disk before the write lock is taken, and collected when their process died.

```
<store>-payloads/
  ab/cdef…[.zst]                 payload files, named by the SHA-256 of the payload: two hexadecimal digits, then 62
  .incoming/<token>/             what one process is about to record
  .incoming/<token>/lock         locked (flock) for as long as that process lives and has the store open
  .incoming/<token>/<n>-abcdef…  a payload file under a name of its own
```

A payload file is written in `.incoming`, linked to its last name inside the write transaction, and leaves `.incoming`
when that is committed. So a file that a crash left under its last name, without an event that needs it, still has a
name in the folder of a process that is dead: whoever opens the store next finds it there, and need not look through all
payload files.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import stat
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from secrets import token_hex

from turnlog.store.files import (
    NO_LINKS,
    Access,
    is_file_of,
    make_file,
    make_folder,
    make_folders,
    open_file,
    sync_folder,
    write_file,
)

INCOMING = ".incoming"
LOCK = "lock"
_TOKEN = re.compile(r"[0-9a-f]{16}")
_PENDING = re.compile(r"[0-9]+-([0-9a-f]{64}(?:\.zst)?)")
_HASH_DIGITS = 64
_COMPARED_BYTES = 1024 * 1024
_ATTEMPTS_MAX = 100


def final_path(folder: Path, name: str) -> Path:
    """Return where a payload file is kept whose whole name is 64 hexadecimal digits and perhaps `.zst`."""
    return folder / name[:2] / name[2:]


class PendingFile:
    """A payload file that may be about to be recorded: on disk in `.incoming`, or there already under its last name.

    Or it is still to be written.

    When this value goes, so does the name in `.incoming`, unless the file was published and not released.
    """

    def __init__(self, name: str, content: bytes, *, replaces: bool) -> None:
        """Take the file's whole name and content, and whether what has its last name now is something else."""
        self.name = name
        self.content = content
        self.replaces = replaces
        self.path: Path | None = None
        """The file in `.incoming`, or None where there is none with the content."""
        self.mark: Path | None = None
        """The name in `.incoming`, which says after a crash at which last name to look."""
        self.pid = os.getpid()
        self._removal: weakref.finalize[[Path, int], PendingFile] | None = None

    def written(self, path: Path) -> None:
        """Note that the file is in `.incoming`, from where it goes when this value does."""
        self.path = self.mark = path
        self.pid = os.getpid()
        self._removal = weakref.finalize(self, _remove, path, self.pid)

    def moved(self, mark: Path) -> None:
        """Note that the file has moved to its last name, and that an empty one marks it."""
        self.path, self.mark, self.replaces = None, mark, False

    def keep(self) -> None:
        """Let the name in `.incoming` outlive this value."""
        if self._removal is not None:
            self._removal.detach()
            self._removal = None

    def discard_unpublished(self) -> None:
        """Remove the name in `.incoming`, unless the file was published."""
        if self._removal is not None:
            self.discard()

    def discard(self) -> None:
        """Remove the name in `.incoming`."""
        self.keep()
        if self.mark is not None:
            _remove(self.mark, self.pid)
        self.path = self.mark = None


class Incoming:
    """This process's part of `.incoming`, which is made with the first file. Safe to use from many threads."""

    def __init__(self, folder: Path, *, access: Access) -> None:
        """Take the payload folder, and who may use the files in it."""
        self._folder = folder
        self._access = access
        self._mutex = threading.Lock()
        self._held: _HeldFolder | None = None
        self._pending: weakref.WeakSet[PendingFile] = weakref.WeakSet()
        self._named: set[str] = set()
        """The folders of payload files whose own names this process knows to be durable."""

    def place(self, name: str, content: bytes, *, is_written: bool = True) -> PendingFile:
        """Write a payload file in `.incoming`, durably, unless it has its last name already.

        One that is not to be written is not before it is published.
        """
        final = final_path(self._folder, name)
        there = os.path.lexists(final)
        whole = there and _holds(final, content)
        pending = PendingFile(name, content, replaces=there and not whole)
        if is_written and not whole:
            self._write(pending)
        return pending

    def publish(self, pending: PendingFile) -> None:
        """Give a payload file its last name, durably. It keeps the one in `.incoming` until it is released."""
        final = final_path(self._folder, pending.name)
        if pending.replaces or not is_file_of(final, len(pending.content)):
            path = pending.path if pending.pid == os.getpid() else None
            # Without one it was there when it was placed, and somebody has removed it since; or it waited for this.
            self._name(pending, path or self._write(pending), final)
        sync_folder(final.parent)
        if final.parent.name not in self._named:
            sync_folder(self._folder)
            self._named.add(final.parent.name)

    def mark(self, name: str) -> Path:
        """Make an empty name in `.incoming`, durably: should this process die, the file it names is looked at.

        What no event needs then is removed, as what a crash left behind.
        """
        mark = self._own_name(name)
        os.close(make_file(mark, self._access))
        sync_folder(mark.parent)
        return mark

    def remove(self, mark: Path, name: str) -> None:
        """Remove a payload file for good, and then its mark. Hold the write lock."""
        final = final_path(self._folder, name)
        if os.path.lexists(final):
            _remove_for_good(self._folder, final)
        mark.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove what was not published, and let go. What was published and not released is left to be collected."""
        held, self._held = self._held, None
        if held is None or held.pid != os.getpid():
            # After a fork the mutex may be locked for ever, and the folder is the parent's.
            return
        with self._mutex:
            for pending in self._pending:
                pending.discard_unpublished()
        held.let_go()

    def _write(self, pending: PendingFile) -> Path:
        path = self._own_name(pending.name)
        write_file(path, pending.content, self._access)
        pending.written(path)
        with self._mutex:
            self._pending.add(pending)
        sync_folder(path.parent)
        return path

    def _name(self, pending: PendingFile, path: Path, final: Path) -> None:
        # From here on the name in `.incoming` has to stay, whatever happens.
        pending.keep()
        try:
            make_folders(final.parent, self._access.of_folders)
            if pending.replaces or not _linked(path, final, len(pending.content)):
                # It cannot have two names, or something else is in its place.
                mark = self._own_name(pending.name)
                os.close(make_file(mark, self._access))
                path.replace(final)
                pending.moved(mark)
        except OSError:
            pending.written(path)
            raise

    def _own_name(self, name: str) -> Path:
        with self._mutex:
            held = self._held
            if held is None or held.pid != os.getpid():
                make_folders(self._folder / INCOMING, self._access.of_folders)
                sync_folder(self._folder.parent)
                held = self._held = _hold(self._folder / INCOMING, self._access)
            return held.path / f"{next(held.numbers)}-{name}"


class _HeldFolder:
    """A folder in `.incoming` with a lock that says that its process lives. It goes with the value, or on exit."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.pid = os.getpid()
        self.numbers = itertools.count(1)
        self.let_go = weakref.finalize(self, _let_go, path, handle, self.pid)


def _hold(incoming: Path, access: Access) -> _HeldFolder:
    """Make a folder and lock it. Another process may take it for a dead one's before it is locked: then make another.

    Raises:
        OSError: it cannot be made.
    """
    for _ in range(_ATTEMPTS_MAX):
        path = incoming / token_hex(8)
        make_folder(path, access.of_folders)
        try:
            handle = make_file(path / LOCK, access)
        except FileNotFoundError:
            continue
        held = _HeldFolder(path, handle)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_name_of(path / LOCK, handle):
            sync_folder(incoming)
            return held
        held.let_go()
    raise OSError(errno.EBUSY, "other processes remove what this one makes", str(incoming))


def _let_go(path: Path, handle: int, pid: int) -> None:
    # After a fork both processes have the lock: only the one that made the folder gives it up.
    if os.getpid() == pid:
        # Whatever cannot be removed now is collected later.
        with suppress(OSError):
            if _names(path) == [LOCK]:
                (path / LOCK).unlink()
                path.rmdir()
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:
        # Whatever cannot be removed now is collected later.
        with suppress(OSError):
            path.unlink()


def _remove_for_good(folder: Path, final: Path) -> None:
    """Remove a payload file, durably, and its folder if that is empty now: its name is a part of the hash."""
    final.unlink()
    try:
        final.parent.rmdir()
    except OSError:
        sync_folder(final.parent)
    else:
        sync_folder(folder)


def _is_name_of(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _linked(path: Path, final: Path, size: int) -> bool:
    """Link a file to its last name. False says that it has to be moved there."""
    try:
        os.link(path, final)
    except FileExistsError:
        return is_file_of(final, size)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return False
    return True


def _holds(path: Path, content: bytes) -> bool:
    """Tell whether a name is that of a file with exactly this content."""
    if not is_file_of(path, len(content)):
        return False
    with open_file(path) as file:
        pieces = (content[start : start + _COMPARED_BYTES] for start in range(0, len(content), _COMPARED_BYTES))
        return all(file.read(_COMPARED_BYTES) == piece for piece in pieces) and not file.read(1)


# What dead processes have left


def collect(folder: Path, is_referenced: Callable[[bytes], bool]) -> int:
    """Remove what dead processes left in a payload folder, and return how many files that were.

    Hold the write lock: else a file may be between its last name and its commit.
    """
    removed = 0
    for path, names in _dead_folders(folder):
        for name in names:
            if (found := _PENDING.fullmatch(name)) is not None:
                final = final_path(folder, found[1])
                if os.path.lexists(final) and not is_referenced(bytes.fromhex(found[1][:_HASH_DIGITS])):
                    # Before the name that says where it was.
                    _remove_for_good(folder, final)
                    removed += 1
                (path / name).unlink()
                removed += 1
        with suppress(FileNotFoundError):
            (path / LOCK).unlink()
        # A process that has just made the folder may make its lock now.
        with suppress(OSError):
            path.rmdir()
    return removed


def needs_collecting(folder: Path) -> bool:
    """Tell whether dead processes have left anything in a payload folder."""
    with closing(_dead_folders(folder)) as found:
        return next(found, None) is not None


def pending_hashes(folder: Path) -> set[bytes]:
    """Return the payload hashes (32 bytes) of all files in `.incoming`, of processes that live and that are dead."""
    found = (_PENDING.fullmatch(name) for path in _token_folders(folder) for name in _names(path))
    return {bytes.fromhex(match[1][:_HASH_DIGITS]) for match in found if match is not None}


def strays(folder: Path) -> Iterator[Path]:
    """Iterate over what is in `.incoming` and was not put there by turnlog."""
    incoming = folder / INCOMING
    if os.path.lexists(incoming) and not _is_folder(incoming):
        yield incoming
        return
    tokens = set(_token_folders(folder))
    for path in sorted(incoming / name for name in _names(incoming)):
        if path not in tokens:
            yield path
    for token in sorted(tokens):
        yield from sorted(token / name for name in _names(token) if not _is_own(name))


def _dead_folders(folder: Path) -> Generator[tuple[Path, list[str]]]:
    """Iterate over the folders in `.incoming` of dead processes, and the names in each. It is locked meanwhile."""
    for path in _token_folders(folder):
        # A process makes its lock before anything else. So if there is none, all names that were seen before are a
        # dead one's.
        names = _names(path)
        if not all(map(_is_own, names)):
            continue
        try:
            lock = open_file(path / LOCK)
        except FileNotFoundError:
            yield path, names
            continue
        except OSError:
            # Another user's, or no lock at all: it is not this process's to remove.
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield path, _names(path)


def _token_folders(folder: Path) -> list[Path]:
    incoming = folder / INCOMING
    if not _is_folder(incoming):
        return []
    paths = (incoming / name for name in _names(incoming) if _TOKEN.fullmatch(name))
    return [path for path in paths if _is_folder(path)]


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, PermissionError):
        return []


def _is_own(name: str) -> bool:
    return name == LOCK or _PENDING.fullmatch(name) is not None


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
