"""Temporary files and folders beside what a command makes: its owner's alone, and gone when the command ends.

A process that is killed leaves them. They are locked for as long as somebody uses them, and the next command that makes
the same thing removes those that are not. Where a file system has no locks, they stay.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from turnlog.errors import NO_SPACE

_NAME_BYTES_MAX = 100


@contextmanager
def temporary_file(real: Path) -> Generator[tuple[Path, BinaryIO]]:
    """Give a new file beside a path, which is removed at the end unless it got another name.

    Raises:
        OSError: it cannot be made.
    """
    with _swept(real):
        while True:
            with _nameless():
                handle, name = tempfile.mkstemp(dir=real.parent, prefix=_prefix(real))
            path = Path(name)
            with os.fdopen(handle, "wb") as file:
                try:
                    if _is_mine(handle, path):
                        yield path, file
                        return
                finally:
                    with suppress(OSError):
                        path.unlink()


@contextmanager
def temporary_folder(real: Path) -> Generator[Path]:
    """Give a new folder beside a path, which is removed at the end with all that is in it.

    Raises:
        OSError: it cannot be made.
    """
    with _swept(real):
        while True:
            with _nameless():
                path = Path(tempfile.mkdtemp(dir=real.parent, prefix=_prefix(real)))
            handle = None
            try:
                handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                if _is_mine(handle, path):
                    yield path
                    return
            except FileNotFoundError:
                if handle is not None:
                    raise
            finally:
                with suppress(OSError):
                    _clear(path, real)
                if handle is not None:
                    os.close(handle)


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Raise what the system says while a file or a folder is written with its name: a handle has none.

    Nobody has heard of a temporary one either.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None or error.errno in NO_SPACE:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


@contextmanager
def _nameless() -> Generator[None]:
    """Raise what the system says without the name that nobody has heard of: `naming` tells another one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror) from error


@contextmanager
def _swept(real: Path) -> Generator[None]:
    """Remove what an interrupt leaves: it may fall between making something and the line that sees to its end."""
    try:
        yield
    except KeyboardInterrupt:
        remove_leftovers(real)
        raise


def replace_folder(new: Path, real: Path, temporary: Path) -> None:
    """Give a folder the name of one that may be there, which goes into the temporary folder.

    Where it comes to no end, the temporary folder puts back what was there.

    Raises:
        OSError: it cannot be done.
    """
    if real.exists():
        old = _old(temporary, real)
        old.parent.mkdir()
        real.rename(old)
    new.rename(real)


def remove_leftovers(real: Path) -> None:
    """Remove temporary files and folders for a path that nobody uses any more. What cannot be removed stays.

    Where a process was killed between taking a folder away and putting a new one there, the old one is put back.
    """
    pattern = re.compile(re.escape(_prefix(real)) + "[a-z0-9_]{8}")
    with suppress(OSError):
        for path in [one for one in real.parent.iterdir() if pattern.fullmatch(one.name)]:
            with suppress(OSError):
                _remove(path, real)


def _remove(path: Path, real: Path) -> None:
    found = path.lstat()
    is_folder = stat.S_ISDIR(found.st_mode)
    if found.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(found.st_mode)):
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(handle), path.lstat()):
            return
        if is_folder:
            _clear(path, real)
        else:
            path.unlink()
    finally:
        os.close(handle)


def _clear(temporary: Path, real: Path) -> None:
    old = _old(temporary, real)
    if old.is_dir() and not os.path.lexists(real):
        old.rename(real)
    shutil.rmtree(temporary)


def _old(temporary: Path, real: Path) -> Path:
    # Under its whole name: that of the temporary folder may be cut.
    return temporary / "old" / real.name


def _is_mine(handle: int, path: Path) -> bool:
    """Lock what was just made, and tell whether nobody was faster, who took it for a leftover."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # there are no locks here, so nobody has it
        return True
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _prefix(real: Path) -> str:
    # As short as fits with what is added to it, whatever the name is.
    name = os.fsencode(real.name)[:_NAME_BYTES_MAX].decode(errors="ignore")
    return f".{name}.turnlog-"
