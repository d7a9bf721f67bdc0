"""Files that commands write: whole or not at all, never over another file unasked, and never over the store."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from turnlog.cli.failures import UsageError
from turnlog.cli.leftovers import naming, remove_leftovers, temporary_file
from turnlog.cli.options import Common
from turnlog.home import in_home
from turnlog.store import parse_url
from turnlog.store.files import FILE_MODE, sync_folder, take_name
from turnlog.store.sqlite.store import PAYLOAD_FOLDER_SUFFIX

_BESIDE = ("", "-wal", "-shm", "-journal")
"""What SQLite adds to the name of a database, for files beside it."""


@contextmanager
def new_file(path: Path, common: Common, *, force: bool) -> Generator[BinaryIO]:
    """Give a file to write, which gets its name when all is written and on disk. It is its owner's alone.

    What a killed process left of such a file is removed. What is no regular file, such as a pipe or a terminal, is
    written as it comes.

    Args:
        path: where the file is to be.
        common: the options that say which store is in use.
        force: whether a file that is there may be replaced. One of the store never is.

    Raises:
        UsageError: there is a file, and `force` is false; or it is one of the store.
        OSError: it cannot be written. What was there is as it was.
    """
    real = _check(path, common, force=force)
    if real is None:
        with naming(path), path.open("wb") as file:
            yield file
        return
    remove_leftovers(real)
    with naming(path), temporary_file(real) as (temporary, file):
        yield file
        file.flush()
        os.fchmod(file.fileno(), FILE_MODE)
        os.fsync(file.fileno())
        _name(temporary, real, path, force=force)
    sync_folder(real.parent)


def check_place(text: str, common: Common) -> None:
    """Check that a place for checkpoints is none of the store's own files.

    Raises:
        UsageError: it is one, or in the home folder of nobody.
    """
    if not text.startswith("command:") and "://" not in text:
        _check_outside(in_home(text, UsageError), text, common)


def check_folder(folder: str, common: Common) -> None:
    """Check that a folder that is to be filled is none of the store's own files, and not among them.

    Raises:
        UsageError: it is.
    """
    _check_outside(Path(folder), folder, common)


def _check_outside(path: Path, name: str, common: Common) -> None:
    if _find(path, common)[2]:
        raise UsageError(f"{name!r} is a file of the store itself: name a place outside it")


def _find(path: Path, common: Common) -> tuple[Path, os.stat_result | None, bool]:
    """Return the path behind all symbolic links, what is there, and whether that is a file of the store.

    Raises:
        UsageError: the links lead nowhere.
    """
    real, found = behind_links(path)
    store = parse_url(common.url)
    return real, found, store is not None and _is_of_store(real, found, behind_links(store)[0])


def behind_links(path: Path) -> tuple[Path, os.stat_result | None]:
    """Return the path behind all symbolic links, and what is there.

    Raises:
        UsageError: the links lead in a circle.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(f"{str(path)!r}: the symbolic links lead in a circle") from error
        raise
    # Not `Path.resolve`: what that does about a circle is another thing in each version of Python.
    return Path(os.path.realpath(path)), found


def _check(path: Path, common: Common, *, force: bool) -> Path | None:
    """Return the path behind all symbolic links, if a file can be written there; None for what is no regular file.

    Raises:
        UsageError: it cannot.
    """
    real, found, of_store = _find(path, common)
    if of_store:
        raise UsageError(f"{str(path)!r} is a file of the store itself: write to another one")
    if found is None and not real.parent.is_dir():
        raise UsageError(f"{str(path)!r} cannot be written: there is no folder {str(real.parent)!r}")
    if found is None:
        return real
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{str(path)!r} is a folder: name a file in it")
    if not stat.S_ISREG(found.st_mode):
        return None
    if not force:
        raise _taken(path)
    return real


def _taken(path: Path) -> UsageError:
    return UsageError(f"there is a file {str(path)!r} already: name another one, or replace it with --force")


def _is_of_store(real: Path, found: os.stat_result | None, store: Path) -> bool:
    """Tell whether a path is that of a file of the store, or another name of one."""
    folder = store.with_name(store.name + PAYLOAD_FOLDER_SUFFIX)
    files = [store.with_name(store.name + end) for end in _BESIDE]
    if real in files or real == folder or folder in real.parents:
        return True
    if found is None or not stat.S_ISREG(found.st_mode):
        return False
    with_links = _files_below(folder) if found.st_nlink > 1 else ()
    return any(_is_same(found, file) for file in (*files, *with_links))


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent) / name for name in names)


def _is_same(found: os.stat_result, file: Path) -> bool:
    try:
        return os.path.samestat(found, file.stat())
    except OSError:
        return False


def _name(temporary: Path, real: Path, path: Path, *, force: bool) -> None:
    """Give a file its name; without `force` only if nothing has it, whoever comes in between.

    Raises:
        UsageError: something has it.
    """
    if force:
        temporary.replace(real)
        return
    try:
        take_name(temporary, real)
    except FileExistsError as error:
        raise _taken(path) from error
