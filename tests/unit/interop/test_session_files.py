"""Session files of Claude Code, before the first line is read."""

import os
from pathlib import Path

import pytest

from turnlog.errors import FormatError
from turnlog.interop.claude_code.lines import read_session_file


def test_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A FIFO that nobody writes to is a format error at once."""
    os.mkfifo(tmp_path / "session.jsonl")
    with pytest.raises(FormatError) as caught:
        read_session_file(tmp_path / "session.jsonl")
    assert str(caught.value) == f"{str(tmp_path / 'session.jsonl')!r} is a FIFO: give a regular file"


def test_device_without_end_is_refused() -> None:
    """A device is a format error, and not read until the memory is full."""
    with pytest.raises(FormatError, match="'/dev/zero' is a device"):
        read_session_file(Path("/dev/zero"))


def test_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A folder is a format error that asks for a file of it."""
    with pytest.raises(FormatError, match="is a folder: name a session file in it"):
        read_session_file(tmp_path)


def test_absent_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there is a format error that says so."""
    with pytest.raises(FormatError, match="cannot be read: no such file"):
        read_session_file(tmp_path / "absent.jsonl")
