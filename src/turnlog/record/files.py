"""Files that people name: opened only if they are regular ones, which end and can be read again."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from turnlog.errors import DocumentError, FormatError

DOCUMENT_BYTES_MAX = 100 * 1000 * 1000
"""The largest document, in bytes, unless the caller allows more: 100 MB."""

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)

# A FIFO that took the place of a file after it was looked at does not hold the caller up, and a terminal is not taken.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def open_regular(path: Path, error: type[DocumentError] | type[FormatError]) -> BinaryIO:
    """Open a regular file to read. Nothing else is opened: a FIFO waits for a writer, a device may act or never end.

    Args:
        path: the file, or a link to it.
        error: what to raise for anything else.

    Raises:
        DocumentError, FormatError: it is no regular file.
        OSError: it is not there, or may not be read.
        ValueError: no file can have this path.
    """
    _refuse_others(path.stat().st_mode, path, error)
    descriptor = os.open(path, _FLAGS)
    try:
        _refuse_others(os.fstat(descriptor).st_mode, path, error)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_others(mode: int, path: Path, error: type[DocumentError] | type[FormatError]) -> None:
    if not stat.S_ISREG(mode):
        kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else")
        raise error(f"{str(path)!r} is {kind}: give a regular file")
