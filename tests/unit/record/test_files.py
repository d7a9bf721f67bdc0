"""Files that people name."""

import os
from pathlib import Path

import pytest

from turnlog.errors import DocumentError, FormatError
from turnlog.record.files import open_regular


def test_regular_file_is_read(tmp_path: Path) -> None:
    """A file, or a link to one, gives its bytes."""
    (tmp_path / "file").write_bytes(b"\x00x")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "file", FormatError) as file, open_regular(tmp_path / "link", FormatError) as linked:
        assert (file.read(), linked.read()) == (b"\x00x", b"\x00x")


@pytest.mark.parametrize("error", [DocumentError, FormatError])
def test_anything_else_is_the_error_that_was_asked_for(
    tmp_path: Path, error: type[DocumentError] | type[FormatError]
) -> None:
    """The error names the path and what is there, in one line."""
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "FIFO"), (tmp_path, "folder"), (Path("/dev/zero"), "device")):
        with pytest.raises(error) as caught:
            open_regular(path, error)
        assert str(caught.value) == f"{str(path)!r} is a {kind}: give a regular file"


def test_absent_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    """What is not there is left to the caller to report."""
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "absent", DocumentError)
