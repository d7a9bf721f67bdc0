"""Files and folders of a store."""

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from turnlog.errors import StoreError, StoreFullError, StoreReadOnlyError
from turnlog.store.files import (
    file_error,
    folder_mode,
    is_file_of,
    make_file,
    make_folder,
    make_folders,
    open_file,
    sync_folder,
    write_file,
)


def mode_of(path: Path) -> int:
    """Return the permissions of a file or a folder."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> object:
    """Set a umask, and the old one again."""
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


@pytest.mark.parametrize(
    ("file_mode", "expected"), [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755), (0o660, 0o770), (0o666, 0o777)]
)
def test_folder_can_be_entered_by_those_who_read(file_mode: int, expected: int) -> None:
    """A folder has an x for each r of its files."""
    assert folder_mode(file_mode) == expected


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660])
def test_modes_are_independent_of_the_umask(tmp_path: Path, mode: int) -> None:
    """Files and folders have the permissions that were asked for, whatever the umask."""
    write_file(tmp_path / "written", b"x", mode)
    os.close(make_file(tmp_path / "made", mode))
    make_folders(tmp_path / "a" / "b", folder_mode(mode))
    assert {mode_of(tmp_path / "written"), mode_of(tmp_path / "made")} == {mode}
    assert {mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")} == {folder_mode(mode)}


def test_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Only what is made gets a mode."""
    (tmp_path / "there").mkdir(0o755)
    make_folders(tmp_path / "there" / "new", 0o700)
    assert (mode_of(tmp_path / "there"), mode_of(tmp_path / "there" / "new")) == (0o755, 0o700)


def test_group_is_inherited(tmp_path: Path) -> None:
    """A folder in a set-group-id folder is one too, so that a store of a group stays the group's."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2770)
    make_folder(tmp_path / "shared" / "new", 0o770)
    assert mode_of(tmp_path / "shared" / "new") == 0o2770


def test_every_new_name_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each folder that is made, the folder above it is synced; of what was there, nothing."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    make_folders(tmp_path / "a" / "b", 0o700)
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    make_folders(tmp_path / "a" / "b", 0o700)
    assert len(synced) == 2


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """A file is only made where there is none, and a symbolic link is not followed."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link", "dangling"):
        with pytest.raises(FileExistsError):
            write_file(tmp_path / name, b"new", 0o600)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert not (tmp_path / "nowhere").exists()


def test_file_that_cannot_be_synced_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose bytes may not be on disk is removed."""

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_file(tmp_path / "file", b"x", 0o600)
    assert list(tmp_path.iterdir()) == []


def test_file_system_without_sync_of_folders_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a folder cannot be synced there is nothing to sync; any other failure is one."""

    def fail_with(code: int) -> Callable[[int], None]:
        def fail(handle: int) -> None:
            raise OSError(code, os.strerror(code))

        return fail

    monkeypatch.setattr(os, "fsync", fail_with(errno.EINVAL))
    sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", fail_with(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.with_name("target").write_bytes(b"x")
    path.symlink_to("target")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.timeout(10)
@pytest.mark.parametrize("make", [_fifo, _link, _socket, Path.mkdir], ids=lambda f: f.__name__)
def test_only_a_regular_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """A FIFO, a symbolic link, a socket and a folder are refused at once."""
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    make(Path("x"))
    with pytest.raises(OSError, match="not a regular file"):
        open_file(Path("x"))
    assert not is_file_of(Path("x"), Path("x").stat().st_size)


def test_device_is_not_opened() -> None:
    """A device is refused."""
    with pytest.raises(OSError, match="not a regular file"):
        open_file(Path("/dev/zero"))


def test_regular_file_is_opened(tmp_path: Path) -> None:
    """A regular file is, and is known by its size."""
    (tmp_path / "x").write_bytes(b"abc")
    with open_file(tmp_path / "x") as file:
        assert file.read() == b"abc"
    assert is_file_of(tmp_path / "x", 3)
    assert not is_file_of(tmp_path / "x", 4)
    assert not is_file_of(tmp_path / "none", 0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EFBIG, StoreFullError),
        (errno.EACCES, StoreReadOnlyError),
        (errno.EPERM, StoreReadOnlyError),
        (errno.EROFS, StoreReadOnlyError),
        (errno.EIO, StoreError),
        (errno.EEXIST, StoreError),
    ],
)
def test_errors_are_turnlogs(code: int, kind: type[StoreError]) -> None:
    """Each failure has its class, names the place, and says that nothing was recorded."""
    error = file_error(OSError(code, os.strerror(code)), Path("/a/b"))
    assert type(error) is kind
    assert "'/a" in str(error)
    assert str(error).endswith("nothing was recorded")
