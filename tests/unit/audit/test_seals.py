"""The keys of sealing: a folder with a file for each."""

import json
import os
import re
import signal
import stat
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sealed_log import seals_in

from turnlog.audit.masters import FileMaster
from turnlog.audit.seals import SealFolder
from turnlog.errors import SealError, UnusableKeyError
from turnlog.events import DataKey, Seals
from turnlog.testing.faults import ProcessFailedError, run_process, run_processes

SUBJECTS = ["patient 17", "", "a/b", "..", "Ärger 日本", "x" * 5000, "\udc80", "a\x00b", "general", "names"]


def file_of(folder: Path, key: DataKey) -> Path:
    """Return the file of a key."""
    [file] = folder.glob(f"*.{key.id}.key")
    return file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------------------------------------------------- what it is


def test_each_subject_has_a_key_of_its_own(seals: Seals, folder: Path) -> None:
    """And what has no subject; the same one each time; also for another process, and by its id."""
    made = {subject: seals.make(subject) for subject in [None, *SUBJECTS]}
    assert len({key.secret for key in made.values()}) == len(made)
    for other in (seals, seals_in(folder)):
        for subject, key in made.items():
            assert other.of_subject(subject) == key
            assert other.make(subject) == key
            assert other.get(key.id) == key
        assert other.of_subject("somebody else") is None
        assert other.get("AAAAAAAAAAAAAAAAAAAAAA") is None


def test_nothing_is_made_before_a_key_is(seals: SealFolder, tmp_path: Path) -> None:
    """No question makes anything, not even a folder."""
    assert seals.get("AAAAAAAAAAAAAAAAAAAAAA") is None
    assert seals.of_subject(None) is None
    assert seals.of_subject("patient 17") is None
    assert seals.destroy("patient 17") == ()
    assert seals.list_keys() == []
    with pytest.raises(SealError, match="there are no keys of sealing in"):
        seals.tag("subject", "patient 17")
    assert list(tmp_path.iterdir()) == []
    assert not seals.made_master


def test_no_name_is_in_the_folder(seals: Seals, folder: Path) -> None:
    """Neither in names of files nor in them, nor base64 of it; and tags do not tell by themselves whose they are."""
    seals.make("Mrs. Keller")
    tag = seals.tag("bookmark", "Mrs. Keller")
    for path in folder.iterdir():
        for form in (b"Keller", b64encode(b"Mrs. Keller")[:14]):
            assert form not in path.name.encode() + path.read_bytes()
    other = seals_in(folder.parent / "other")
    other.make("Mrs. Keller")
    assert other.tag("bookmark", "Mrs. Keller") != tag


def test_tags_are_the_same_for_the_same_name_of_a_kind(seals: Seals, folder: Path) -> None:
    """And for nothing else."""
    seals.make(None)
    names = [("bookmark", "a"), ("subject", "a"), ("bookmark", ""), ("bookmark", "b"), ("bookmark", "\udc80")]
    tags = [seals.tag(kind, name) for kind, name in names]
    assert len(set(tags)) == len(tags)
    assert {len(tag) for tag in tags} == {22}
    assert [seals_in(folder).tag(kind, name) for kind, name in names] == tags


def test_files_are_their_owners_alone(seals: Seals, folder: Path) -> None:
    """The folder, too; and nothing else is left in it."""
    general, subject = seals.make(None), seals.make("patient 17")
    names = {path.name for path in folder.iterdir()}
    tag = seals.tag("subject", "patient 17")
    assert names == {
        "lock",
        "master",
        "names.key",
        f"general.{general.id}.key",
        f"subject.{tag}.{subject.id}.key",
    }
    assert mode_of(folder) == 0o700
    assert {mode_of(path) for path in folder.iterdir()} == {0o600}


def test_keys_are_listed_without_names(folder: Path) -> None:
    """By when they were made. The master key is not needed for that."""
    start = datetime(2026, 5, 1, 12, tzinfo=UTC)
    times = iter([start, start, start + timedelta(days=2), start + timedelta(days=1)])
    seals = SealFolder(folder, FileMaster(folder / "master"), now=lambda: next(times))
    general, late, early = seals.make(None), seals.make("late"), seals.make("early")
    (folder / "master").unlink()
    found = seals_in(folder).list_keys()
    assert [(entry.key_id, entry.tag, entry.made) for entry in found] == [
        (general.id, None, start),
        (early.id, seals.tag("subject", "early"), start + timedelta(days=1)),
        (late.id, seals.tag("subject", "late"), start + timedelta(days=2)),
    ]
    assert {entry.master for entry in found} == {str(folder / "master")}
    file_of(folder, early).write_text("{}")
    [problem] = [entry for entry in seals.list_keys() if entry.problem is not None]
    assert (problem.key_id, problem.made) == (early.id, None)
    assert "not as it was written" in (problem.problem or "")


def test_newest_key_of_a_subject_seals_and_all_open(folder: Path, tmp_path: Path) -> None:
    """A subject has several where a copy of the folder was put back."""
    at = datetime(2026, 5, 1, tzinfo=UTC)
    older = SealFolder(folder, FileMaster(folder / "master"), now=lambda: at)
    old = older.make("patient 17")
    content, place = file_of(folder, old).read_bytes(), file_of(folder, old)
    older.destroy("patient 17")
    new = SealFolder(folder, FileMaster(folder / "master"), now=lambda: at + timedelta(seconds=1)).make("patient 17")
    place.write_bytes(content)
    for seals in (older, seals_in(folder)):
        assert seals.of_subject("patient 17") == new
        assert seals.make("patient 17") == new
        assert seals.get(old.id) == old
    assert older.destroy("patient 17") == tuple(sorted([old.id, new.id]))
    assert [seals_in(folder).get(key.id) for key in (old, new)] == [None, None]


# ---------------------------------------------------------------------------------------------------------- destroying


def test_destroyed_key_is_gone(seals: Seals, folder: Path) -> None:
    """From memory and from the folder; the others stay; the next key of the subject is another one."""
    key, general, other = seals.make("patient 17"), seals.make(None), seals.make("patient 18")
    tag = seals.tag("subject", "patient 17")
    assert seals.destroy("patient 17") == (key.id,)
    assert seals.get(key.id) is None
    assert seals.of_subject("patient 17") is None
    assert not any(key.id in path.name for path in folder.iterdir())
    assert seals.destroy("patient 17") == ()
    assert (seals.get(general.id), seals.get(other.id)) == (general, other)
    assert seals.tag("subject", "patient 17") == tag
    again = seals.make("patient 17")
    assert again.id != key.id


def _make(folder: Path, subject: str | None) -> DataKey:
    return seals_in(folder).make(subject)


def _destroy(folder: Path, subject: str) -> tuple[str, ...]:
    return seals_in(folder).destroy(subject)


def test_key_that_another_process_destroyed_is_not_used(seals: Seals, folder: Path) -> None:
    """Though it was in memory; and one that another process made is found."""
    key, general = seals.make("patient 17"), seals.make(None)
    assert run_process(_destroy, folder, "patient 17") == (key.id,)
    assert seals.get(key.id) is None
    assert seals.of_subject("patient 17") is None
    made = run_process(_make, folder, "patient 17")
    assert seals.get(made.id) == made
    assert seals.of_subject("patient 17") == made
    assert seals.of_subject(None) == general


def test_changes_within_one_tick_of_the_clock_are_seen(
    seals: Seals, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of a folder may be coarse: that is as if they stood still."""
    lstat = os.lstat

    def without_times(path: Any) -> SimpleNamespace:
        found = lstat(path)
        same = {name: getattr(found, name) for name in ("st_mode", "st_dev", "st_ino", "st_size")}
        return SimpleNamespace(**same, st_mtime_ns=0, st_ctime_ns=0)

    monkeypatch.setattr(os, "lstat", without_times)
    other = seals_in(folder)
    for number in range(20):
        made = other.make(f"{number}")
        assert seals.of_subject(f"{number}") == made
        assert other.destroy(f"{number}") == (made.id,)
        assert seals.of_subject(f"{number}") is None
        assert seals.get(made.id) is None


def test_key_that_was_removed_by_hand_is_not_used(seals: Seals, folder: Path) -> None:
    """And one that was put back by hand is."""
    key = seals.make("patient 17")
    file = file_of(folder, key)
    file.rename(folder.parent / "moved")
    assert seals.get(key.id) is None
    (folder.parent / "moved").rename(file)
    assert seals.get(key.id) == key
    file.unlink()
    file.symlink_to(folder.parent / "moved")
    assert seals.get(key.id) is None
    with pytest.raises(UnusableKeyError, match="not a regular file"):
        seals.of_subject("patient 17")


def test_folder_that_is_removed_has_no_keys(seals: Seals, folder: Path) -> None:
    """None is used from memory, and a new one is made with other tags."""
    key = seals.make("patient 17")
    tag = seals.tag("subject", "patient 17")
    folder.rename(folder.parent / "elsewhere")
    assert seals.get(key.id) is None
    assert seals.of_subject("patient 17") is None
    with pytest.raises(SealError, match="there are no keys of sealing"):
        seals.tag("subject", "patient 17")
    (folder.parent / "elsewhere").rename(folder)
    assert seals.get(key.id) == key
    assert seals.tag("subject", "patient 17") == tag


# ------------------------------------------------------------------------------------------------------ many at a time


def _make_all(folder: Path, number: int) -> list[DataKey]:
    seals = seals_in(folder)
    return [seals.make(None), *(seals.make(f"{each}") for each in range(number))]


def test_processes_that_make_a_key_at_once_get_the_same(folder: Path) -> None:
    """Also the first ever, with names key and master key."""
    first, *others = run_processes([(_make_all, (folder, 10))] * 4)
    assert others == [first] * 3
    assert len({key.id for key in first}) == 11
    assert len(list(folder.glob("*.key"))) == 12
    assert seals_in(folder).make("3") == first[4]


def test_threads_that_make_a_key_at_once_get_the_same(folder: Path) -> None:
    """With one object, and with one each."""
    shared = seals_in(folder)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: (shared if n % 2 else seals_in(folder)).make(f"{n % 5}"), range(80)))
    assert [key.id for key in made] == [made[n % 5].id for n in range(80)]
    assert len(list(folder.glob("subject.*"))) == 5


def test_keys_are_made_and_destroyed_at_once(folder: Path) -> None:
    """Whoever gets a key can use it; at the end what is there opens."""
    shared = seals_in(folder)

    def work(number: int) -> None:
        seals = shared if number % 2 else seals_in(folder)
        key = seals.make("patient 17")
        assert DataKey.of(key.secret) == key
        if number % 3 == 0:
            seals.destroy("patient 17")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(120)))
    left = shared.make("patient 17")
    assert seals_in(folder).of_subject("patient 17") == left
    assert len(list(folder.glob("subject.*"))) == 1


_STEPS = ("open", "fchmod", "fsync", "link", "replace", "unlink", "ftruncate", "mkdir")


def _die_at(folder: Path, number: int, *, destroy: bool) -> None:
    """Make and destroy keys, and be killed at the n-th step that changes something: before it, or right after it."""
    left = number

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            for do in (lambda: None, lambda: step(*arguments, **named)):
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                done = do()
            return done

        return run

    for step in _STEPS:
        setattr(os, step, dying(getattr(os, step)))
    seals = seals_in(folder)
    if destroy:
        seals.destroy("patient 17")
    else:
        seals.make("patient 17")


def _die_making(folder: Path, number: int) -> None:
    _die_at(folder, number, destroy=False)


def _die_destroying(folder: Path, number: int) -> None:
    _die_at(folder, number, destroy=True)


@pytest.mark.parametrize("die", [_die_making, _die_destroying])
def test_killed_process_leaves_keys_that_can_be_used(tmp_path: Path, die: Callable[[Path, int], None]) -> None:
    """At any step: what was kept before is there, the key is whole or not there, and nothing half made stays."""
    destroy = die is _die_destroying
    for number in range(300):
        folder = tmp_path / f"{number}" / "sealed"
        before = [seals_in(folder).make(subject) for subject in ("patient 17", None)] if destroy else []
        try:
            run_process(die, folder, number)
        except ProcessFailedError:
            pass
        else:
            break
        seals = seals_in(folder)
        found = seals.of_subject("patient 17")
        made = seals.make("patient 17")
        assert found in (made, None)
        if destroy:
            assert found in (before[0], None)
            assert seals.of_subject(None) == before[1]
        general = seals.make(None)
        seals.make("another")  # what was half made goes with the next one that is made
        assert seals_in(folder).of_subject("patient 17") == made
        assert seals_in(folder).of_subject(None) == general
        assert not [path for path in folder.iterdir() if path.suffix == ".tmp"]
    else:
        pytest.fail("it never came to the end")
    assert number > (5 if destroy else 30)


# ------------------------------------------------------------------------------------------------- what was not written


CONTENTS: list[bytes] = [
    b"",
    b"{}",
    b"null",
    b"\xff\xfe",
    b"[" * 50_000,
    b'{"form":' * 5000,
    b"x" * 200_000,
    b'{"form":"seal-key-2","id":"a","made":"2026-11-22T04:24:12Z","master":"a","wrapped":"AAAA"}',
    b'{"form":"seal-key-1\\u001b[31m\\n","id":"a"}',
]


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_file_with_something_else_is_refused(seals: Seals, folder: Path, content: bytes) -> None:
    """With one line that names it."""
    key = seals.make("patient 17")
    for file in (file_of(folder, key), folder / "names.key"):
        before = file.read_bytes()
        file.write_bytes(content)
        other = seals_in(folder)
        for ask in (other.of_subject, other.make):
            with pytest.raises(SealError, match="not as it was written, or of a newer turnlog") as caught:
                ask("patient 17")
            assert file.name in str(caught.value)
            assert str(caught.value).isprintable()
        file.write_bytes(before)
    assert seals_in(folder).make("patient 17") == key


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("id", 1),
        ("made", "2026-11-22T04:24:12"),
        ("made", "soon"),
        ("made", None),
        ("wrapped", ""),
        ("wrapped", "AAAA"),
        ("wrapped", "%"),
        ("wrapped", b64encode(bytes(60)).decode()),
        ("form", "seal-key-0"),
        ("master", ["a"]),
    ],
)
def test_file_that_was_changed_is_refused(seals: Seals, folder: Path, field: str, value: object) -> None:
    """Each field of it, of each kind of file. No part of the secret is repeated."""
    key, general = seals.make("patient 17"), seals.make(None)
    for file, asked in (
        (file_of(folder, key), "patient 17"),
        (file_of(folder, general), None),
        (folder / "names.key", "patient 17"),
    ):
        before = file.read_bytes()
        file.write_text(json.dumps(json.loads(before) | {field: value}))
        with pytest.raises(SealError) as caught:
            seals_in(folder).of_subject(asked)
        assert file.name in str(caught.value)
        assert str(caught.value).isprintable()
        file.write_bytes(before)


def test_hostile_name_of_a_master_key_is_told_on_one_line(seals: Seals, folder: Path) -> None:
    """It stands in the file, and anybody could have written it."""
    file = file_of(folder, seals.make(None))
    (folder / "master").write_text(b64encode(bytes(32)).decode())
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"master": "\x1b[31m\n" + "x" * 20_000}))
    with pytest.raises(SealError, match="wrapped with") as caught:
        seals_in(folder).of_subject(None)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert [entry.master for entry in seals_in(folder).list_keys()] == ["[31m " + "x" * 194]


def test_file_of_another_subject_does_not_open_under_this_name(seals: Seals, folder: Path) -> None:
    """So nobody has the wrong key destroyed by swapping names of files."""
    one, two = seals.make("one"), seals.make("two")
    renamed = folder / f"subject.{seals.tag('subject', 'one')}.{two.id}.key"
    file_of(folder, two).rename(renamed)
    file_of(folder, one).unlink()
    with pytest.raises(SealError, match="is not the one that wrapped it, or it was changed or renamed since"):
        seals_in(folder).of_subject("one")


def test_what_is_no_regular_file_is_refused(seals: Seals, folder: Path) -> None:
    """A symbolic link, even to a good key, a folder, a FIFO: at once."""
    key = seals.make("patient 17")
    file = file_of(folder, key)
    good = file.rename(folder.parent / "good")
    makers: list[Callable[[], object]] = [
        lambda: file.symlink_to(good),
        lambda: file.symlink_to(folder / "nowhere"),
        lambda: os.mkfifo(file, 0o600),
    ]
    for make in makers:
        make()
        with pytest.raises(SealError, match="not a regular file"):
            seals_in(folder).of_subject("patient 17")
        with pytest.raises(SealError, match="not a regular file"):
            seals_in(folder).destroy("patient 17")
        file.unlink()
    assert good.exists()
    file.mkdir()
    with pytest.raises(SealError, match="not a regular file"):
        seals_in(folder).of_subject("patient 17")
    with pytest.raises(SealError, match="not a regular file"):
        seals_in(folder).destroy("patient 17")


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_folder_that_is_none_is_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    """A file of its name, or a symbolic link, even to a folder with keys."""
    seals_in(tmp_path / "real").make(None)
    folder.parent.mkdir()
    if kind == "file":
        folder.write_text("x")
    else:
        folder.symlink_to(tmp_path / ("real" if kind == "link" else "nowhere"))
    seals = seals_in(folder)
    for ask in (seals.of_subject, seals.get, seals.destroy, seals.make):
        with pytest.raises(SealError, match="not a folder"):
            ask("patient 17")
    assert not (tmp_path / "nowhere").exists()


def test_path_below_a_file_is_refused(tmp_path: Path) -> None:
    """With what the system says."""
    (tmp_path / "file").write_text("x")
    seals = seals_in(tmp_path / "file" / "sealed")
    for ask in (seals.of_subject, seals.get, seals.make):
        with pytest.raises(SealError, match="not a directory"):
            ask("patient 17")


def test_lock_that_is_a_link_is_not_followed(seals: Seals, folder: Path, tmp_path: Path) -> None:
    """What it points at stays as it is."""
    seals.make(None)
    (folder / "lock").unlink()
    (tmp_path / "other").write_text("x")
    (folder / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(SealError, match="keys cannot be kept in"):
        seals.make("patient 17")
    assert (tmp_path / "other").read_text() == "x"


def test_files_of_other_names_are_left_alone(seals: SealFolder, folder: Path) -> None:
    """What was not written here, and names that are almost those of keys."""
    key = seals.make("patient 17")
    others = ["README", "general.key", f"general.{key.id}", f"x.{key.id}.key", "general.short.key", f"{key.id}.key"]
    for name in others:
        (folder / name).write_text("x")
    (folder / os.fsdecode(b"\xff.key")).write_text("x")
    assert seals.make("patient 17") == key
    seals.make(None)
    assert len(seals.list_keys()) == 2
    assert all((folder / name).read_text() == "x" for name in others)


def test_missing_names_key_is_told_of(seals: Seals, folder: Path) -> None:
    """No other one is made: the key of a subject would not be found when it is erased."""
    seals.make("patient 17")
    general = seals.make(None)
    (folder / "names.key").unlink()
    for other in (seals, seals_in(folder)):
        for ask in (other.of_subject, other.make, other.destroy, lambda name, o=other: o.tag("bookmark", name)):
            with pytest.raises(SealError, match=r"names\.key' is missing, .* put it back from your copy"):
                ask("patient 17")
        assert other.get(general.id) == general
        assert other.of_subject(None) == general


def _garbage(file: Path) -> None:
    file.write_bytes(b"x")


def _other_wrapping(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"wrapped": b64encode(bytes(60)).decode()}))


def _no_file(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [_garbage, _other_wrapping, _no_file], ids=lambda damage: damage.__name__)
def test_key_whose_file_is_damaged_is_as_one_that_is_not_here(
    seals: Seals, folder: Path, damage: Callable[[Path], None]
) -> None:
    """What other keys open can be read. Nothing is sealed or erased of whom it is of, before it is put back."""
    one, two = seals.make("one"), seals.make("two")
    file = file_of(folder, one)
    good = file.read_bytes()
    damage(file)
    other = seals_in(folder)
    for _ in range(2):
        assert other.get(one.id) is None
        assert other.get(two.id) == two
    with pytest.raises(UnusableKeyError, match=re.escape(file.name)):
        other.make("one")
    for ask in (seals.destroy, other.destroy, other.ids_of):
        with pytest.raises(UnusableKeyError, match=re.escape(file.name)):
            ask("one")
    (file.rmdir if file.is_dir() else file.unlink)()
    file.write_bytes(good)
    assert other.get(one.id) == seals_in(folder).get(one.id) == one


def test_no_key_is_destroyed_in_the_file_of_another_subject(seals: Seals, folder: Path) -> None:
    """Nor a good one beside it: what it opens is told, and what to do."""
    one, two = seals.make("one"), seals.make("two")
    files = file_of(folder, one), file_of(folder, two)
    contents = [file.read_bytes() for file in files]
    files[0].write_bytes(contents[1])
    files[1].write_bytes(contents[0])
    for other in (seals, seals_in(folder)):
        with pytest.raises(UnusableKeyError, match=r"is not as it was written.*; no key is destroyed"):
            other.destroy("one")
    assert [file.read_bytes() for file in files] == contents[::-1]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    assert seals_in(folder).destroy("one") == (one.id,)
    assert seals_in(folder).of_subject("two") == two


def test_no_key_is_taken_for_absent_where_the_master_key_is_another(seals: Seals, folder: Path) -> None:
    """All of them fail then, and it is the master key that is told."""
    key = seals.make("one")
    (folder / "master").write_text(b64encode(bytes(32)).decode())
    with pytest.raises(UnusableKeyError, match=r"names\.key' does not open: .* is not the one that wrapped it"):
        seals_in(folder).get(key.id)


def test_no_key_is_taken_for_absent_where_the_master_key_cannot_be_asked(folder: Path) -> None:
    """What fails may do the next time."""

    class Moody:
        name = "moody"
        fails = False

        def wrap(self, secret: bytes, context: bytes) -> bytes:
            return bytes(byte ^ 1 for byte in secret)

        def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
            if self.fails:
                raise TimeoutError("no answer")
            return bytes(byte ^ 1 for byte in wrapped)

    master = Moody()
    key = SealFolder(folder, master).make("one")
    again = SealFolder(folder, master)
    assert again.tag("subject", "one")
    master.fails = True
    with pytest.raises(SealError, match="no answer") as caught:
        again.get(key.id)
    assert not isinstance(caught.value, UnusableKeyError)
    master.fails = False
    assert again.get(key.id) == key
