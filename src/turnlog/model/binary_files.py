"""Files that callers give to be read or written: open for bytes, and with all of what is written."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable
from typing import BinaryIO, Literal, cast

from turnlog.errors import MetaError


def check_binary(file: object, method: Literal["read", "write"]) -> None:
    """Refuse what is no file that is open for bytes, such as the name of one.

    Raises:
        MetaError: it has no such method, or is a file for text.
    """
    inner = getattr(file, "file", file)  # of a named temporary file
    if not callable(getattr(file, method, None)) or isinstance(inner, io.TextIOBase):
        raise MetaError(
            f"file: expected a file that is open for bytes, as of open(…, {method[0] + 'b'!r}),"
            f" got {type(file).__name__}",
            field="file",
        )


def whole_writes(file: BinaryIO) -> BinaryIO:
    """Return a file that writes all that it is given to another one, which may take less at a time.

    A file with a buffer does so itself. One without may not: as a pipe or a socket, or where a disk becomes full. What
    is returned has `write` and `writelines`. Beside what the file raises, they raise `BlockingIOError` where it does
    not block and takes nothing; its `characters_written` are those of that call.

    Raises:
        MetaError: it is no file that is open for bytes.
    """
    check_binary(file, "write")
    return file if isinstance(file, io.BufferedIOBase) else cast("BinaryIO", _WholeWrites(file))


class _WholeWrites:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = 0

    def write(self, content: bytes | bytearray | memoryview) -> int:
        rest, left = content, memoryview(content).nbytes
        size = left
        while left > 0:
            taken = cast("int | None", self._file.write(rest))
            # None is said by files without a buffer that do not block, and by objects that do not count.
            if taken is None and not isinstance(self._file, io.RawIOBase):
                taken = left
            if not taken:
                raise BlockingIOError(
                    errno.EAGAIN,
                    f"the file took {self._written} bytes and no more, for now: give one that blocks",
                    size - left,
                )
            left -= taken
            self._written += taken
            rest = memoryview(content).cast("B")[size - left :]
        return size

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        for piece in pieces:
            self.write(piece)
