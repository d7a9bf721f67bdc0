"""The tamper matrix again, with a checkpoint that whoever edits the store does not have: nothing is out of reach."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.docs.random_logs import fill
from tests.faults.rich_store import build
from tests.faults.tampering import FOUND, OUT_OF_REACH, THE_SAME, TOLD, Edit
from tests.faults.test_tamper import SEEDS

from turnlog import TurnLog
from turnlog.audit import Anchor, VerifyReport
from turnlog.audit.anchors import read_anchors
from turnlog.audit.notes import Signer
from turnlog.audit.places import Folder
from turnlog.errors import TurnlogError

BY_CHECKPOINT = [edit for edit in OUT_OF_REACH if edit.name not in (*TOLD, *THE_SAME, "older copy put back")]


class Kept(NamedTuple):
    """A store, and the folder elsewhere that its checkpoints went to."""

    path: Path
    anchors: list[Anchor]


SIGNER = Signer.generate("example.com/log")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Make a store with one of everything, with a checkpoint in the middle and one at its end."""
    folder = tmp_path_factory.mktemp("signed")
    build(folder / "store" / "log.db")
    with TurnLog.open(f"sqlite:///{folder}/store/log.db") as log:
        log.audit.checkpoint(SIGNER, to=[Folder(folder / "elsewhere")])
    return Kept(folder / "store" / "log.db", read_anchors([folder / "elsewhere"], [SIGNER.verifier]))


@pytest.fixture
def kept(signed: Kept, tmp_path: Path) -> Kept:
    """Give a copy of the store, and the checkpoint."""
    return Kept(shutil.copytree(signed.path.parent, tmp_path / "copy") / "log.db", signed.anchors)


def _verified(kept: Kept) -> VerifyReport:
    with TurnLog.open(f"sqlite:///{kept.path}", create=False) as log:
        return log.verify(checkpoints=kept.anchors)


def test_sound_store_is_anchored(kept: Kept) -> None:
    """The control of all tests below."""
    report = _verified(kept)
    assert report.damage == ()
    assert (report.anchored, report.checkpoints) == (report.events, 2)


@pytest.mark.parametrize("edit", BY_CHECKPOINT, ids=lambda edit: edit.name)
def test_what_was_out_of_reach_is_named_by_the_checkpoint(kept: Kept, edit: Edit) -> None:
    """What agrees with itself does not agree with what was signed before."""
    edit.apply(kept.path)
    report = _verified(kept)
    assert any(kept.anchors[0].place in damage.what for damage in report.damage), report.damage
    assert report.anchored == 0


def test_older_copy_put_back_is_named_by_the_checkpoint(kept: Kept, tmp_path: Path) -> None:
    """A checkpoint of what came since is of more events than the copy has."""
    older = shutil.copytree(kept.path.parent, tmp_path / "older") / "log.db"
    with TurnLog.open(f"sqlite:///{kept.path}") as log:
        log.add_turn("recorded since", continues="main")
        log.audit.checkpoint(SIGNER, to=[Folder(tmp_path / "elsewhere")])
    report = _verified(Kept(older, read_anchors([tmp_path / "elsewhere"], [SIGNER.verifier])))
    assert [damage.what for damage in report.damage if "an older copy was put in its place" in damage.what]


@pytest.mark.parametrize("edit", [edit for edit in OUT_OF_REACH if edit.name in TOLD], ids=lambda edit: edit.name)
def test_what_is_new_is_told_and_not_anchored(kept: Kept, edit: Edit) -> None:
    """What a log may do is no damage. What no checkpoint from outside covers is said to be so."""
    edit.apply(kept.path)
    report = _verified(kept)
    assert report.damage == ()
    assert report.others or report.anchored == kept.anchors[0].size < report.events


@pytest.mark.parametrize("edit", [edit for edit in OUT_OF_REACH if edit.name in THE_SAME], ids=lambda edit: edit.name)
def test_what_changes_nothing_is_still_anchored(kept: Kept, edit: Edit) -> None:
    """The checkpoint is over what events say, not over how a database keeps them."""
    edit.apply(kept.path)
    report = _verified(kept)
    assert (report.damage, report.anchored) == ((), report.events)


@pytest.mark.parametrize("edit", FOUND, ids=lambda edit: f"{edit.kind}: {edit.name}")
def test_what_is_found_without_a_checkpoint_is_found_with_one(kept: Kept, edit: Edit) -> None:
    """In the same words."""
    edit.apply(kept.path)
    try:
        said = [damage.what for damage in _verified(kept).damage]
    except TurnlogError as error:
        said = [str(error)]
    assert any(str(edit.finds) in line for line in said), said


@pytest.mark.parametrize("seed", SEEDS)
def test_random_log_with_checkpoints_is_clean(tmp_path: Path, seed: int) -> None:
    """Nothing is found in a log that nobody touched, and all of it is anchored."""
    fill(tmp_path / "log.db", seed)
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.audit.checkpoint(SIGNER, to=[Folder(tmp_path / "elsewhere")])
        for _ in range(seed):
            log.add_turn("more")
        log.audit.checkpoint(SIGNER, to=[Folder(tmp_path / "elsewhere")])
        anchors = read_anchors([tmp_path / "elsewhere"], [SIGNER.verifier])
        report = log.verify(checkpoints=anchors)
        assert (report.damage, report.anchored, len(anchors)) == ((), report.events, 1 + bool(seed))
