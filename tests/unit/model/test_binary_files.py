"""Files that callers give: what takes less at a time than it is given gets the rest."""

import io
import tempfile
from typing import Any, BinaryIO, cast

import pytest

from turnlog.errors import MetaError
from turnlog.model.binary_files import check_binary, whole_writes


class _Short(io.RawIOBase):
    """A file without a buffer that takes a few bytes at a time, and for now no more than so many."""

    def __init__(self, room: int = 1000) -> None:
        self.taken = b""
        self._room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int | None:  # type: ignore[override] # the stubs know no None
        taken = bytes(data)[: min(7, self._room - len(self.taken))]
        self.taken += taken
        return len(taken) or None


class _Uncounted:
    """What takes all, and does not say so."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.taken.append(data)


def test_rest_of_a_short_write_is_written() -> None:
    """Whatever a piece is, all of it arrives, and nothing twice."""
    short = _Short()
    file = whole_writes(cast("BinaryIO", short))
    assert file.write(b"0123456789" * 5) == 50
    file.writelines([b"", memoryview(b"abcdefghij"), bytearray(b"k")])
    assert short.taken == b"0123456789" * 5 + b"abcdefghijk"


def test_file_that_takes_nothing_more_is_told_with_the_place() -> None:
    """Where it would have to be waited for, how much it took of all and of this call is said."""
    short = _Short(room=20)
    file = whole_writes(cast("BinaryIO", short))
    file.write(b"0123456789")
    with pytest.raises(
        BlockingIOError, match="the file took 20 bytes and no more, for now: give one that blocks"
    ) as no:
        file.write(b"abcdefghijkl")
    assert no.value.characters_written == 10
    assert short.taken == b"0123456789abcdefghij"


def test_object_that_does_not_count_has_taken_all() -> None:
    """What is no file of Python's may return nothing, and gets each piece once, as it is."""
    uncounted = _Uncounted()
    whole_writes(cast("BinaryIO", uncounted)).writelines([b"a", b"b"])
    assert uncounted.taken == [b"a", b"b"]


def test_file_with_a_buffer_is_used_as_it_is() -> None:
    """It writes all by itself."""
    file = io.BytesIO()
    assert whole_writes(file) is file


def test_what_is_not_open_for_bytes_is_refused() -> None:
    """A name, no file at all, and files for text."""
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as named:
        for file in ("out.jsonl", None, io.StringIO(), named):
            for method, mode in (("read", "'rb'"), ("write", "'wb'")):
                with pytest.raises(MetaError, match=rf"file: expected .* open for bytes, as of open\(…, {mode}\), got"):
                    check_binary(file, cast("Any", method))
    with tempfile.NamedTemporaryFile() as named_bytes:
        check_binary(named_bytes, "write")
