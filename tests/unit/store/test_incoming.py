"""Payload files on their way in, and what is left of them when their process dies."""

import errno
import fcntl
import gc
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from turnlog.digest import payload_hash, sri_bytes
from turnlog.errors import StoreError, StoreFullError, StoreReadOnlyError
from turnlog.store import incoming
from turnlog.store.files import Access
from turnlog.store.payloads import FILE_BYTES_MIN, PayloadPlacer
from turnlog.store.values import NewPayload, Placement

NOISE = random.Random(1).randbytes(FILE_BYTES_MIN)
OTHER = random.Random(2).randbytes(FILE_BYTES_MIN)
HASH = sri_bytes(payload_hash(NOISE))
NAME = HASH.hex()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the path of a payload folder that does not exist yet."""
    return tmp_path / "log.db-payloads"


@pytest.fixture
def placer(folder: Path) -> Iterator[PayloadPlacer]:
    """Give a placer on that folder."""
    opened = PayloadPlacer(folder)
    yield opened
    opened.close()


@pytest.fixture
def other(folder: Path) -> Iterator[PayloadPlacer]:
    """Give another one, as another process has it."""
    opened = PayloadPlacer(folder)
    yield opened
    opened.close()


def final(folder: Path) -> Path:
    """Return where the payload file belongs."""
    return folder / NAME[:2] / NAME[2:]


def on_their_way(folder: Path) -> list[Path]:
    """Return the files in `.incoming` but for the locks."""
    return [path for path in sorted(folder.glob(".incoming/*/*")) if path.name != "lock"]


def nothing_incoming(folder: Path) -> bool:
    """Tell whether `.incoming` is empty, of folders and locks too."""
    return list(folder.glob(".incoming/*")) == []


def record(placer: PayloadPlacer, payload: bytes) -> NewPayload:
    """Place a payload and record it, as an append does."""
    placed = placer.place(payload)
    placer.publish(placed)
    placer.release(placed)
    return placed


def is_sound(placer: PayloadPlacer) -> bool:
    """Tell whether the payload can be loaded."""
    found = placer.load(payload_hash(NOISE), len(NOISE), Placement.FILE, HASH, event_id="e", global_position=1)
    return found == NOISE


@contextmanager
def process(work: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run code in a process until it prints a line, and then kill it. It has `placer` and `NOISE`."""
    code = (
        "import os, random, sys\n"
        "from pathlib import Path\n"
        "from turnlog.store.payloads import PayloadPlacer\n"
        f"NOISE = random.Random(1).randbytes({FILE_BYTES_MIN})\n"
        "placer = PayloadPlacer(Path(sys.argv[1]))\n"
        f"{work}\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
        running.kill()


def kill_after(work: str, folder: Path) -> None:
    """Run code in a process and kill it with SIGKILL."""
    with process(work, folder):
        pass


# Placing


def test_placed_payload_is_on_disk_without_its_last_name(placer: PayloadPlacer, folder: Path) -> None:
    """On return of `place` the bytes are in `.incoming`, and nothing is where they belong."""
    placed = placer.place(NOISE)
    [file] = on_their_way(folder)
    assert file.read_bytes() == NOISE
    assert not final(folder).exists()
    assert placer.pending_hashes() == {HASH}
    assert placed.file is not None


def test_published_payload_has_both_names_until_it_is_released(placer: PayloadPlacer, folder: Path) -> None:
    """Publishing links and copies nothing; releasing leaves the last name alone. Both may be done twice."""
    placed = placer.place(NOISE)
    [file] = on_their_way(folder)
    for _ in range(2):
        placer.publish(placed)
        assert final(folder).samefile(file)
    for _ in range(2):
        placer.release(placed)
        assert on_their_way(folder) == []
    assert placer.pending_hashes() == set()
    assert is_sound(placer)


def test_bytes_are_durable_when_placed_and_names_when_published(
    placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placing syncs the bytes and the folders that it makes; publishing syncs folders, and writes not one byte."""
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink()))
    placed = placer.place(NOISE)
    [file] = on_their_way(folder)
    assert {folder.parent, folder, folder / ".incoming", file.parent, file} == set(synced)
    assert synced.index(folder / ".incoming") < synced.index(file) < synced.index(file.parent)
    synced.clear()
    monkeypatch.setattr(incoming, "write_file", None)
    placer.publish(placed)
    assert set(synced) == {folder, final(folder).parent}
    synced.clear()
    placer.publish(placed)
    assert synced == [final(folder).parent]


def test_folders_of_others_are_made_durable_too(
    placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that a process made, and died before it synced its name, is synced by the next one that uses it."""
    final(folder).parent.mkdir(parents=True)
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink()))
    placed = placer.place(NOISE)
    assert folder.parent in synced
    synced.clear()
    placer.publish(placed)
    assert set(synced) == {folder, final(folder).parent}


def test_payload_that_is_there_is_not_written_again(placer: PayloadPlacer, folder: Path) -> None:
    """A payload whose file is there already writes nothing."""
    record(placer, NOISE)
    inode = final(folder).stat().st_ino
    placed = placer.place(NOISE)
    assert on_their_way(folder) == []
    placer.publish(placed)
    placer.release(placed)
    assert final(folder).stat().st_ino == inode


def test_payload_that_vanished_meanwhile_is_written(placer: PayloadPlacer, folder: Path) -> None:
    """A file that was there when its payload was placed, and is gone when it is published, is written then."""
    record(placer, NOISE)
    placed = placer.place(NOISE)
    final(folder).unlink()
    final(folder).parent.rmdir()
    placer.publish(placed)
    assert is_sound(placer)
    assert len(on_their_way(folder)) == 1
    placer.release(placed)
    assert on_their_way(folder) == []


def test_payload_that_appeared_meanwhile_is_kept(placer: PayloadPlacer, other: PayloadPlacer, folder: Path) -> None:
    """Of two processes that record the same payload the second one keeps the file of the first."""
    placed = placer.place(NOISE)
    record(other, NOISE)
    inode = final(folder).stat().st_ino
    placer.publish(placed)
    placer.release(placed)
    assert final(folder).stat().st_ino == inode


@pytest.mark.parametrize("damage", [b"", NOISE[:-1], NOISE + b"x", NOISE[:-1] + b"x", None])
def test_damaged_file_is_replaced(placer: PayloadPlacer, folder: Path, damage: bytes | None) -> None:
    """Recording a payload again mends its file, whether it is cut, changed, or no file at all."""
    record(placer, NOISE)
    final(folder).unlink()
    if damage is None:
        os.mkfifo(final(folder))
    else:
        final(folder).write_bytes(damage)
    placed = placer.place(NOISE)
    placer.publish(placed)
    assert is_sound(placer)
    placer.publish(placed)
    placer.release(placed)
    assert is_sound(placer)
    assert on_their_way(folder) == []


def test_what_gets_in_the_way_is_replaced(placer: PayloadPlacer, folder: Path) -> None:
    """What appears at the last name between placing and publishing, and is not the payload, does not stay."""
    placed = placer.place(NOISE)
    final(folder).parent.mkdir()
    final(folder).write_bytes(b"not the payload")
    placer.publish(placed)
    assert is_sound(placer)
    placer.release(placed)
    assert is_sound(placer)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_file_system_without_links_is_enough(
    placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Where a file cannot have two names it is moved, and a mark in `.incoming` says so until it is released."""

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    placed = placer.place(NOISE)
    placer.publish(placed)
    assert is_sound(placer)
    assert [file.stat().st_size for file in on_their_way(folder)] == [0]
    assert placer.pending_hashes() == {HASH}
    final(folder).unlink()
    placer.publish(placed)
    assert is_sound(placer)
    placer.release(placed)
    placer.close()
    assert is_sound(placer)


def test_crash_without_links_is_collected(
    placer: PayloadPlacer, other: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file was moved to its last name it is found by its mark."""

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    placer.publish(placer.place(NOISE))
    placer.close()
    assert final(folder).exists()
    assert other.collect(lambda _: False) == 2
    assert not final(folder).exists()


# Letting go


def test_payload_that_is_not_recorded_goes_with_its_value(placer: PayloadPlacer, folder: Path) -> None:
    """A placed payload that nobody keeps is removed; one that is kept is not."""
    placed = placer.place(NOISE)
    placer.place(OTHER)
    gc.collect()
    [file] = on_their_way(folder)
    assert file.name.endswith(NAME)
    placed = None
    gc.collect()
    assert on_their_way(folder) == []
    assert placed is None


def test_published_payload_outlives_its_value(placer: PayloadPlacer, folder: Path) -> None:
    """What was published may be recorded: its name in `.incoming` stays, for whoever has to find out."""
    placer.publish(placer.place(NOISE))
    gc.collect()
    assert len(on_their_way(folder)) == 1
    assert is_sound(placer)


def test_closing_removes_what_was_not_published(placer: PayloadPlacer, folder: Path) -> None:
    """After closing nothing is left in `.incoming`, though the values are still there. Closing twice is allowed."""
    placed = [placer.place(NOISE), placer.place(OTHER)]
    assert len(on_their_way(folder)) == 2
    placer.close()
    placer.close()
    assert nothing_incoming(folder)
    assert len(placed) == 2


def test_placer_can_be_used_after_closing(placer: PayloadPlacer, folder: Path) -> None:
    """A placer that was closed makes its folder again."""
    record(placer, OTHER)
    placer.close()
    record(placer, NOISE)
    assert is_sound(placer)
    placer.close()
    assert nothing_incoming(folder)


def test_closing_leaves_what_may_be_recorded(placer: PayloadPlacer, other: PayloadPlacer, folder: Path) -> None:
    """What was published and not released is left for the next process, which asks the log."""
    placed = placer.place(NOISE)
    placer.publish(placed)
    assert not other.needs_collecting()
    placer.close()
    assert other.needs_collecting()
    assert other.pending_hashes() == {HASH}
    assert placed.file is not None


def test_process_that_ends_leaves_nothing(folder: Path) -> None:
    """A process that ends without closing, in whatever way it can run its last code, removes what it did not record."""
    with process("placed = placer.place(NOISE)", folder) as running:
        assert len(on_their_way(folder)) == 1
        assert running.stdin is not None
        running.stdin.close()
        assert running.wait() == 0
    assert nothing_incoming(folder)


# Collecting


def test_nothing_is_to_be_collected_of_a_new_store(placer: PayloadPlacer, folder: Path) -> None:
    """Looking for leftovers makes no folder."""
    assert not placer.needs_collecting()
    assert placer.collect(lambda _: False) == 0
    assert not folder.exists()


def test_crash_before_publishing_is_collected(placer: PayloadPlacer, folder: Path) -> None:
    """What a killed process had placed is removed by the next one."""
    kill_after("placed = placer.place(NOISE)", folder)
    assert placer.needs_collecting()
    asked: list[bytes] = []
    assert placer.collect(lambda key: bool(asked.append(key))) == 1
    assert nothing_incoming(folder)
    assert not placer.needs_collecting()
    assert asked == []


def test_crash_between_publishing_and_commit_is_collected(placer: PayloadPlacer, folder: Path) -> None:
    """A file that has its last name, and that no event needs, is removed; the log is asked by its hash."""
    kill_after("placed = placer.place(NOISE); placer.publish(placed)", folder)
    asked: list[bytes] = []
    assert final(folder).exists()
    assert placer.collect(lambda key: bool(asked.append(key))) == 2
    assert asked == [HASH]
    assert nothing_incoming(folder)
    assert list(placer.files()) == []


def test_crash_after_commit_loses_nothing(placer: PayloadPlacer, folder: Path) -> None:
    """A file that an event needs stays, and loses its other name."""
    kill_after("placed = placer.place(NOISE); placer.publish(placed)", folder)
    assert placer.collect(lambda key: key == HASH) == 1
    assert nothing_incoming(folder)
    assert is_sound(placer)


def test_crash_of_the_collector_is_collected(
    placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies while it collects leaves it to the next one, at whatever file that was."""
    kill_after("kept = [placer.place(bytes([n]) + NOISE) for n in range(3)]\nfor p in kept: placer.publish(p)", folder)
    left = 6
    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        monkeypatch.setattr(Path, "unlink", unlink)
        unlink(path)
        raise KeyboardInterrupt

    while left:
        monkeypatch.setattr(Path, "unlink", fail)
        with pytest.raises(KeyboardInterrupt):
            placer.collect(lambda _: False)
        left -= 1
        assert len(on_their_way(folder)) + len(list(placer.files())) == left
    monkeypatch.setattr(Path, "unlink", unlink)
    assert placer.collect(lambda _: False) == 0
    assert nothing_incoming(folder)


def test_process_that_lives_is_left_alone(placer: PayloadPlacer, folder: Path) -> None:
    """Collecting beside a process that has placed and published something removes nothing of it."""
    with process("a = placer.place(NOISE); b = placer.place(NOISE + b'x'); placer.publish(a)", folder):
        kept = on_their_way(folder)
        assert not placer.needs_collecting()
        assert placer.collect(lambda _: False) == 0
        assert on_their_way(folder) == kept
        assert len(kept) == 2
        assert final(folder).exists()
    assert placer.needs_collecting()
    assert placer.collect(lambda _: False) == 3


def test_own_files_are_left_alone(placer: PayloadPlacer, other: PayloadPlacer, folder: Path) -> None:
    """A process that has the store open twice does not take itself for dead."""
    placed = [placer.place(NOISE), other.place(OTHER)]
    assert not placer.needs_collecting()
    assert placer.collect(lambda _: False) == 0
    assert len(on_their_way(folder)) == len(placed)


def test_orphan_that_is_about_to_be_recorded_survives(placer: PayloadPlacer, folder: Path) -> None:
    """A payload that was placed beside a dead process's file is recorded though that is collected meanwhile."""
    kill_after("placed = placer.place(NOISE); placer.publish(placed)", folder)
    placed = placer.place(NOISE)
    assert placer.collect(lambda _: False) == 2
    assert not final(folder).exists()
    placer.publish(placed)
    assert is_sound(placer)


def test_dead_process_that_made_no_lock_is_collected(placer: PayloadPlacer, folder: Path) -> None:
    """A folder without a lock is a dead process's: one that lives makes its lock first."""
    token = folder / ".incoming" / ("0" * 16)
    token.mkdir(parents=True)
    assert placer.needs_collecting()
    (token / f"1-{NAME}").write_bytes(NOISE)
    assert placer.collect(lambda _: False) == 1
    assert nothing_incoming(folder)


@pytest.mark.parametrize("moment", ["before the lock is made", "before it is locked"])
def test_folder_that_is_taken_for_a_dead_process_is_made_again(
    placer: PayloadPlacer, other: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A process whose folder is collected while it makes it makes another one."""
    calls: list[int] = []
    make_file, flock = incoming.make_file, fcntl.flock

    def meddle() -> None:
        calls.append(1)
        monkeypatch.undo()
        assert other.needs_collecting()
        other.collect(lambda _: False)

    def make_after(path: Path, access: Access) -> int:
        meddle()
        return make_file(path, access)

    def lock_after(handle: int, how: int) -> None:
        meddle()
        flock(handle, how)

    if moment == "before it is locked":
        monkeypatch.setattr(fcntl, "flock", lock_after)
    else:
        monkeypatch.setattr(incoming, "make_file", make_after)
    placed = placer.place(NOISE)
    assert calls == [1]
    assert len(list(folder.glob(".incoming/*"))) == 1
    assert not other.needs_collecting()
    placer.publish(placed)
    placer.release(placed)
    assert is_sound(placer)


def test_links_lead_no_collector_out_of_the_store(placer: PayloadPlacer, folder: Path, tmp_path: Path) -> None:
    """Symbolic links in a store of somebody else's make nothing be removed elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in (f"1-{NAME}", "lock"):
        (elsewhere / name).write_bytes(b"keep me")
    inside = folder / ".incoming" / ("0" * 16)
    inside.parent.mkdir(parents=True)
    inside.symlink_to(elsewhere)
    assert placer.collect(lambda _: False) == 0
    inside.unlink()
    inside.parent.rmdir()
    (elsewhere / ("0" * 16)).mkdir()
    (elsewhere / ("0" * 16) / f"1-{NAME}").write_bytes(b"keep me")
    inside.parent.symlink_to(elsewhere)
    assert placer.collect(lambda _: False) == 0
    assert len(list(elsewhere.rglob("*"))) == 4


@pytest.mark.timeout(10)
def test_what_is_not_turnlogs_is_not_removed(placer: PayloadPlacer, folder: Path) -> None:
    """A folder in `.incoming` with other files in it, or with a lock that is none, is left as it is."""
    for number, name in enumerate(("notes", "1-" + NAME.upper(), f"1-{NAME}.gz")):
        token = folder / ".incoming" / f"{number:016}"
        token.mkdir(parents=True)
        (token / name).write_bytes(b"keep me")
        (token / "lock").touch()
    token = folder / ".incoming" / ("f" * 16)
    token.mkdir()
    os.mkfifo(token / "lock")
    (token / f"1-{NAME}").write_bytes(b"keep me")
    before = sorted(folder.rglob("*"))
    assert not placer.needs_collecting()
    assert placer.collect(lambda _: False) == 0
    assert sorted(folder.rglob("*")) == before


# Forks


def test_child_removes_nothing_of_its_parent(placer: PayloadPlacer, folder: Path) -> None:
    """A forked child that lets everything go, closes, and ends leaves its parent's files and lock as they are."""
    work = (
        "a = placer.place(NOISE); b = placer.place(NOISE + b'x'); placer.publish(b)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    placer.release(a); placer.release(b)\n"
        "    placer.close()\n"
        "    del a, b, placer\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)"
    )
    with process(work, folder):
        assert len(on_their_way(folder)) == 2
        assert not placer.needs_collecting()
        assert placer.collect(lambda _: False) == 0
    assert placer.collect(lambda _: False) == 3


def test_child_has_a_folder_of_its_own(placer: PayloadPlacer, folder: Path) -> None:
    """What a forked child places is not in its parent's folder, and is collected when the child is dead."""
    work = (
        "kept = placer.place(NOISE + b'x')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    placed = placer.place(NOISE); placer.publish(placed); placer.publish(kept)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)"
    )
    with process(work, folder):
        assert len({path.parent for path in on_their_way(folder)}) == 2
        assert len(on_their_way(folder)) == 3
        assert placer.collect(lambda _: False) == 4
        assert len(on_their_way(folder)) == 1


# Failures and permissions


def test_full_disk_when_placing(placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space for the bytes is `StoreFullError`, and no file is left. With space it works."""

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    placer.place(OTHER)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StoreFullError, match="nothing was recorded"):
            placer.place(NOISE)
    assert on_their_way(folder) == []
    record(placer, NOISE)
    assert is_sound(placer)


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, StoreFullError), (errno.EROFS, StoreReadOnlyError), (errno.EIO, StoreError)]
)
def test_failed_publishing_leaves_nothing(
    placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[StoreError]
) -> None:
    """A file that could not be published can be again, and goes with its value when it is not."""

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    placed = [placer.place(NOISE)]
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", fail)
        with pytest.raises(kind) as caught:
            placer.publish(placed[0])
        assert type(caught.value) is kind
    assert not final(folder).exists()
    placer.publish(placed[0])
    assert is_sound(placer)
    placer.release(placed[0])
    placed[0] = placer.place(OTHER)
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", fail)
        with pytest.raises(kind):
            placer.publish(placed[0])
    placed.clear()
    gc.collect()
    assert on_their_way(folder) == []


def test_failed_collecting_is_a_store_error(
    placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be removed is a turnlog error and not a bare one."""
    kill_after("placed = placer.place(NOISE)", folder)

    def fail(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fail)
        with pytest.raises(StoreReadOnlyError, match="cannot be written"):
            placer.collect(lambda _: False)
    assert placer.collect(lambda _: False) == 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o600, 0o700), (0o644, 0o755), (0o660, 0o770)])
def test_modes_are_those_of_the_store(tmp_path: Path, umask: int, file_mode: int, folder_mode: int) -> None:
    """Files and folders, on their way in and where they belong, have the store's permissions, whatever the umask."""
    placer = PayloadPlacer(tmp_path / "payloads", access=Access(mode=file_mode))
    old = os.umask(umask)
    try:
        placer.publish(placer.place(NOISE))
        found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "payloads").rglob("*")}
        top = stat.S_IMODE((tmp_path / "payloads").stat().st_mode)
    finally:
        os.umask(old)
        placer.close()
    assert {mode for path, mode in found.items() if path.is_dir()} == {folder_mode} == {top}
    assert {mode for path, mode in found.items() if path.is_file()} == {file_mode}
    assert len(found) == 6


@pytest.mark.parametrize("use", [PayloadPlacer.needs_collecting, PayloadPlacer.pending_hashes, PayloadPlacer.files])
def test_payload_files_are_not_looked_through(
    placer: PayloadPlacer, folder: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[PayloadPlacer], object]
) -> None:
    """Finding leftovers lists `.incoming` and what is in it; only `files` lists the rest."""
    record(placer, NOISE)
    listed: list[Path] = []
    iterdir = Path.iterdir

    def note(path: Path) -> Iterator[Path]:
        listed.append(path)
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", note)
    found = use(placer)
    if use is PayloadPlacer.files:
        assert list(found)  # type: ignore[call-overload]
    assert (final(folder).parent in listed) == (use is PayloadPlacer.files)
    assert folder / ".incoming" in listed
