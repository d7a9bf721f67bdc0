"""Files and folders of a store: made with exactly the permissions asked for, durable, and opened without waiting.

All functions raise `OSError` as the system gives it; `file_error` and `looking` make it turnlog's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from turnlog.errors import (
    NO_SPACE,
    StoreBusyError,
    StoreDeniedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    os_reason,
)

FILE_MODE = 0o600
"""The permissions of a new store: its owner's alone."""

NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""What the system says of a place where nothing may be written."""

NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})
"""What a file system says that has no hard links, or no more of them for a file."""

NOT_DAMAGE = {
    errno.EACCES: StoreDeniedError,
    errno.EPERM: StoreDeniedError,
    errno.EMFILE: StoreBusyError,
    errno.ENFILE: StoreBusyError,
    errno.ENOMEM: StoreBusyError,
}
"""Why a file may not be readable now, and sound nonetheless; and what is raised then."""


class Access(Struct, frozen=True, kw_only=True):
    """Who may use what is made, and whose it is.

    Attributes:
        mode: its permissions.
        user: its owner's id; None for whoever makes it.
        group: its group's id; None for the one that it gets by itself.
    """

    mode: int = FILE_MODE
    user: int | None = None
    group: int | None = None

    @property
    def of_folders(self) -> Access:
        """The same for folders of such files."""
        return replace(self, mode=folder_mode(self.mode))


OWN = Access()
"""What is its maker's alone."""


def access_like(found: os.stat_result) -> Access:
    """Return the access that whoever may use a file has to what is made beside it.

    What root makes is the file's owner's, as SQLite has it with its own files. What is for a group is that of the file.
    """
    mode = stat.S_IMODE(found.st_mode) & 0o666 | FILE_MODE
    is_root = os.geteuid() == 0
    has_group = is_root or mode & 0o070
    return Access(mode=mode, user=found.st_uid if is_root else None, group=found.st_gid if has_group else None)


def access_beside(path: str | Path | None) -> Access:
    """Return who may use what is made beside a file; its maker alone, where there is none."""
    if path is None:
        return OWN
    try:
        return access_like(Path(path).stat())
    except OSError:
        return OWN


def _give(target: int | Path, access: Access, inherited: int = 0) -> None:
    """Give something that was just made to those who are to use it, and to nobody else on the way."""
    found = os.stat(target)  # noqa: PTH116 - a handle too
    user = -1 if access.user in (None, found.st_uid) else access.user
    group = -1 if access.group in (None, found.st_gid) else access.group
    mode = access.mode
    if (user, group) != (-1, -1):
        try:
            os.chown(target, user, group)
        except OSError:  # it may not, or there is no such id in this user's namespace, as in containers without root
            mode &= ~0o070  # the group that it has is another one
    os.chmod(target, inherited | mode)  # noqa: PTH101 - likewise


def folder_mode(file_mode: int) -> int:
    """Return the permissions of a folder for files of some permissions: who may read these may enter it."""
    return file_mode | (file_mode & 0o444) >> 2


def make_folders(folder: Path, access: Access) -> None:
    """Make a folder and what is missing above it, durably. What is there keeps its permissions."""
    missing: list[Path] = []
    for above in (folder, *folder.parents):
        if above.is_dir():
            break
        missing.append(above)
    for made in reversed(missing):
        try:
            make_folder(made, access)
        except FileExistsError:
            if not made.is_dir():
                raise
        sync_folder(made.parent)


def make_folder(folder: Path, access: Access) -> None:
    """Make one folder, with a mode that no umask changes. It is not durable yet.

    Raises:
        FileExistsError: something of that name is there.
    """
    folder.mkdir(access.mode & 0o700)
    # A set-group-id bit is inherited from the folder above, and is meant to be.
    _give(folder, access, stat.S_IMODE(folder.stat().st_mode) & ~0o777)


def lock_file(path: Path, access: Access = OWN) -> int | None:
    """Return a handle that has a file locked, which is made where it is not there; None where somebody has it locked.

    Whoever has it may remove the file. The lock goes with the handle.

    Raises:
        FileNotFoundError: its folder is not there.
    """
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        try:
            if os.fstat(handle).st_uid == os.geteuid():
                _give(handle, access)  # whatever the umask
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), path.stat()):
                return os.dup(handle)
        except FileNotFoundError:
            continue  # whoever had it has removed it
        except BlockingIOError:
            return None
        finally:
            os.close(handle)


def is_locked(path: Path) -> bool:
    """Tell whether somebody has a file locked. Who looks shares the lock for a moment with all who look.

    Raises:
        OSError: it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def make_file(path: Path, access: Access = OWN) -> int:
    """Make an empty file, with a mode that no umask changes, and return a handle to write to it.

    Raises:
        FileExistsError: something of that name is there.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        _give(handle, access)
    except BaseException:
        os.close(handle)
        path.unlink()
        raise
    return handle


def write_file(path: Path, content: bytes | Iterable[bytes | memoryview], access: Access = OWN) -> None:
    """Make a file with a content, or the pieces of one, which is on disk on return.

    Its name is not: sync its folder for that.

    Nothing is left if that fails.
    """
    with os.fdopen(make_file(path, access), "wb") as file:
        try:
            file.writelines((content,) if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems have nothing to sync for a folder, and say so.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(handle)


def take_name(path: Path, name: Path) -> None:
    """Give a file a name that nothing has, in the place of its own, whoever comes in between. It is not synced.

    Raises:
        FileExistsError: something has the name.
        OSError: it cannot be given.
    """
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # The name is taken first, with an empty file: only then is nobody's file replaced.
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        path.replace(name)
    else:
        path.unlink()


def open_file(path: Path) -> BinaryIO:
    """Open a regular file to read it. Whatever else has the name is refused at once: nothing here waits.

    Raises:
        OSError: it cannot be opened, or is a symbolic link, a folder, a FIFO or a device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise not_a_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise not_a_file(path)
    return os.fdopen(handle, "rb")


def not_a_file(path: Path) -> OSError:
    """Return the error for a name that should be a regular file's."""
    return OSError(errno.EINVAL, "not a regular file", str(path))


def is_file_of(path: Path, size: int) -> bool:
    """Tell whether a name is that of a regular file of some bytes, not of a symbolic link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


@contextmanager
def looking(place: str | Path) -> Generator[None]:
    """Raise what the system says of files that are looked at as turnlog's own.

    Args:
        place: what is named where the system names no file.

    Raises:
        StoreDeniedError, StoreBusyError: one cannot be read by this user, or now.
        StoreError: one cannot be read.
    """
    try:
        yield
    except OSError as error:
        kind = NOT_DAMAGE.get(error.errno or 0, StoreError)
        raise kind(f"{str(error.filename or place)!r} cannot be read: {os_reason(error)}") from error


def file_error(error: OSError, path: Path) -> StoreError:
    """Return the turnlog error for a file that cannot be written. Nothing of the append was recorded by then."""
    if error.errno in NO_SPACE:
        return StoreFullError(f"no space left for {str(path)!r}: free some and try again; nothing was recorded")
    if error.errno in NOT_WRITABLE:
        return StoreReadOnlyError(f"{str(path.parent)!r} cannot be written: {os_reason(error)}; nothing was recorded")
    return StoreError(f"{str(path)!r} cannot be written: {os_reason(error)}; nothing was recorded")
