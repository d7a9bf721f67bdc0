"""Each edit of the tamper matrix is found and named, or shown to be out of reach; and nothing else is ever found."""

import shutil
from pathlib import Path

import pytest
from tests.docs.random_logs import fill
from tests.faults.rich_store import AT, NAMES, build
from tests.faults.tampering import FOUND, OUT_OF_REACH, Edit
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.audit import VerifyReport
from turnlog.errors import TurnlogError

SEEDS = range(1000) if SOAK else (*range(16), 251)
"""In 251 an export has a call that builds on an erased one."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with one of everything, and return its folder."""
    folder = tmp_path_factory.mktemp("sound")
    build(folder / "log.db")
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """Give a copy of the store."""
    return shutil.copytree(sound, tmp_path / "copy") / "log.db"


def _verified(path: Path) -> VerifyReport:
    with TurnLog.open(f"sqlite:///{path}", create=False) as log:
        return log.verify()


def _said(path: Path) -> list[str]:
    """Return all that is said to be wrong with a store."""
    try:
        return [damage.what for damage in _verified(path).damage]
    except TurnlogError as error:
        return [str(error)]


def test_store_is_sound_and_has_one_of_everything(store: Path) -> None:
    """The control of all tests below: nothing is wrong with it, and every kind of check has something to look at."""
    report = _verified(store)
    assert report.damage == ()
    assert report.events == len(NAMES)
    assert (report.requests, report.replies, report.erased) == (4, 3, 2)
    assert report.payloads == 29
    assert report.private_parts == len(NAMES) - len(("genesis", "grade", "guest genesis", "trust")) - report.erased
    assert report.others == ()


@pytest.mark.parametrize("edit", FOUND, ids=lambda edit: f"{edit.kind}: {edit.name}")
def test_edit_is_found_and_named(store: Path, edit: Edit) -> None:
    """What was done to the store is told, in words of its own."""
    edit.apply(store)
    said = _said(store)
    assert any(str(edit.finds) in line for line in said), said


@pytest.mark.parametrize("edit", OUT_OF_REACH, ids=lambda edit: edit.name)
def test_edit_that_is_out_of_reach_is_taken_for_sound(store: Path, edit: Edit) -> None:
    """What only a signed checkpoint can tell, or what says what the log said, is no damage."""
    before = _verified(store)
    edit.apply(store)
    after = _verified(store)
    assert after.damage == (), edit.why
    assert (after.others != before.others) == (edit.name == "table of one's own")


def test_matrix_is_as_large_as_it_says() -> None:
    """There are many edits, no two of one name, and each is either found or has a reason."""
    edits = [*FOUND, *OUT_OF_REACH]
    assert len(FOUND) >= 90
    assert len({(edit.kind, edit.name) for edit in edits}) == len(edits)
    assert all((edit.finds is None) != (edit.why is None) for edit in edits)


def test_damage_names_its_event(store: Path) -> None:
    """Damage of an event has its global position and its id."""
    [edit] = [edit for edit in FOUND if edit.name == "payload, one byte"]
    with TurnLog.open(f"sqlite:///{store}") as log:
        event = list(log.events())[AT["second"] - 1]
    edit.apply(store)
    [damage] = _verified(store).damage
    assert (damage.global_position, damage.event_id) == (AT["second"], event.header.id)


@pytest.mark.timeout(7200 if SOAK else 120)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_store_is_clean(tmp_path: Path, seed: int) -> None:
    """Nothing is ever found in a store that turnlog made: turns, documents, calls, imports, registers, erasures."""
    path = tmp_path / "log.db"
    fill(path, seed)
    assert _said(path) == []
