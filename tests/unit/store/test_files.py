"""Files and folders of a store."""

import errno
import os
import random
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreError, StoreFullError, StoreReadOnlyError
from turnlog.feeds.sinks import JSONLines
from turnlog.store.files import (
    OWN,
    Access,
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
from turnlog.testing.faults import run_process


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
    write_file(tmp_path / "written", b"x", Access(mode=mode))
    os.close(make_file(tmp_path / "made", Access(mode=mode)))
    make_folders(tmp_path / "a" / "b", Access(mode=mode).of_folders)
    assert {mode_of(tmp_path / "written"), mode_of(tmp_path / "made")} == {mode}
    assert {mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")} == {folder_mode(mode)}


def test_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Only what is made gets a mode."""
    (tmp_path / "there").mkdir(0o755)
    make_folders(tmp_path / "there" / "new", OWN.of_folders)
    assert (mode_of(tmp_path / "there"), mode_of(tmp_path / "there" / "new")) == (0o755, 0o700)


def test_group_is_inherited(tmp_path: Path) -> None:
    """A folder in a set-group-id folder is one too, so that a store of a group stays the group's."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2770)
    make_folder(tmp_path / "shared" / "new", Access(mode=0o770))
    assert mode_of(tmp_path / "shared" / "new") == 0o2770


def _as(user: int, groups: list[int], work: str, folder: str) -> str:
    """Do something as another user; return what it raised."""
    os.umask(0o077)
    os.setgroups(groups)
    os.setresgid(groups[0], groups[0], groups[0])
    os.setresuid(user, user, user)
    os.chdir(folder)
    with TurnLog.open("sqlite:///log.db") as log:
        if work == "write":
            log.add_turn("heron " * 30_000 + random.Random(1).randbytes(100_000).hex(), bookmark="main")
            log.feeds.run()
            log.feeds.feed(JSONLines("lines"), name="lines").run()
        else:
            assert log.verify().clean
            assert log.feeds.search("heron")
            assert [status.name for status in log.feeds.all()] == ["lines"]
            log.add_turn("More.", continues="main")
        return "\n".join(
            f"{path} {each.st_uid} {each.st_gid} {stat.S_IMODE(each.st_mode):o}"
            for path in sorted(Path().glob("log.db*"))
            for each in (path.stat(),)
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("group_of_folder", [0o2770, 0o777])
def test_what_is_beside_a_store_of_a_group_is_the_group_s(group_of_folder: int) -> None:
    """Of whatever group who made it is first of all: others of that one cannot read it, and those of the store can."""
    with TemporaryDirectory(prefix="turnlog-") as name:
        folder = Path(name)
        folder.chmod(group_of_folder)
        os.chown(folder, 2001, 3000)
        TurnLog.open(f"sqlite:///{folder}/log.db").close()
        (folder / "log.db").chmod(0o660)
        os.chown(folder / "log.db", 2001, 3000)
        told = run_process(_as, 2002, [100, 3000], "write", name)
        made = {line.split()[0]: line.split()[1:] for line in told.splitlines()}
        assert {"log.db-wal", "log.db-shm", "log.db-payloads", "log.db-projections", "log.db-feeds"} <= set(made)
        assert {group for _, group, _ in made.values()} == {"3000"}
        assert {mode[-3:] for _, _, mode in made.values()} == {"660", "770"}
        inside = {path.stat().st_gid for path in (folder / "log.db-payloads").rglob("*")}
        assert inside == {3000}
        run_process(_as, 2003, [200, 3000], "read", name)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL])
def test_what_cannot_be_given_to_a_group_is_not_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The one that it has by itself is another; also where ids are those of a namespace, which has not this one."""

    def fail(*_: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "chown", fail)
    access = Access(mode=0o664, group=os.getegid() + 1)
    os.close(make_file(tmp_path / "file", access))
    make_folder(tmp_path / "folder", access.of_folders)
    assert [mode_of(tmp_path / name) for name in ("file", "folder")] == [0o604, 0o705]


def _told_as(user: int, folder: str) -> str:
    """Record something as another user; return what is said of it."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    try:
        with TurnLog.open(f"sqlite:///{folder}/log.db") as log:
            log.add_turn("More.")
    except StoreError as error:
        return str(error)
    return "recorded"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_is_beside_a_store_and_not_for_its_owner_is_named() -> None:
    """As a reader of an earlier version left it; who opens the store as root takes it away."""
    with TemporaryDirectory(prefix="turnlog-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        with TurnLog.open(f"sqlite:///{folder}/log.db") as log:
            log.add_turn("One.")
            left = {suffix: Path(f"{folder}/log.db{suffix}").read_bytes() for suffix in ("-wal", "-shm")}
        os.chown(folder / "log.db", 2001, 2001)
        for suffix, content in left.items():
            beside = Path(f"{folder}/log.db{suffix}")
            beside.write_bytes(content)
            beside.chmod(0o644)
            os.chown(beside, 2002, 2002)
        said = run_process(_told_as, 2001, name)
        assert f"'{folder}/log.db-wal' is not for this user: let its owner, or root, open the store once" in said
        with TurnLog.open(f"sqlite:///{folder}/log.db") as log:
            log.add_turn("Two.")
        assert run_process(_told_as, 2001, name) == "recorded"


@pytest.mark.skipif(os.geteuid() != 0, reason="what root makes")
def test_what_root_makes_beside_a_store_is_its_owner_s(tmp_path: Path) -> None:
    """As SQLite has it: who looks at a store as root does not shut its owner out."""
    path = tmp_path / "log.db"
    TurnLog.open(f"sqlite:///{path}").close()
    os.chown(path, 2001, 2001)
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("heron " * 30_000 + random.Random(1).randbytes(100_000).hex())
        log.feeds.run()
        log.feeds.feed(JSONLines(tmp_path / "lines"), name="lines").run()
        made = [*tmp_path.rglob("log.db*/**/*"), *tmp_path.glob("log.db*")]
        assert len(made) > 8
        assert {(each.stat().st_uid, each.stat().st_gid) for each in made} == {(2001, 2001)}


def test_every_new_name_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each folder that is made, the folder above it is synced; of what was there, nothing."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    make_folders(tmp_path / "a" / "b", OWN.of_folders)
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    make_folders(tmp_path / "a" / "b", OWN.of_folders)
    assert len(synced) == 2


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """A file is only made where there is none, and a symbolic link is not followed."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link", "dangling"):
        with pytest.raises(FileExistsError):
            write_file(tmp_path / name, b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert not (tmp_path / "nowhere").exists()


def test_file_that_cannot_be_synced_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose bytes may not be on disk is removed."""

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_file(tmp_path / "file", b"x")
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
