"""Checkpoints of a log that was restored, and of one whose events were made restored ones by somebody else."""

import io
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.audit import Anchor, VerifyReport
from turnlog.audit.anchors import read_anchors
from turnlog.audit.checkpoints import parse_checkpoint
from turnlog.audit.notes import Signer, parse_note
from turnlog.audit.places import Folder
from turnlog.errors import UnknownProviderError

SIGNER = Signer.generate("example.com/log")
DROPPED = "".join(f"DROP TABLE {name};" for name in ("tree_hashes", "tree_size", "tree_arrivals"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Give the folder that checkpoints go to."""
    return tmp_path / "elsewhere"


@pytest.fixture
def path(tmp_path: Path, elsewhere: Path) -> Path:
    """Make a log in which a provider is disabled, with a checkpoint elsewhere."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("first", bookmark="main")
        log.providers.disable("anthropic")
        log.add_turn("second", continues="main")
        log.audit.checkpoint(SIGNER, to=[Folder(elsewhere)])
        with pytest.raises(UnknownProviderError):
            log.providers.get("anthropic")
    return path


def _edit(path: Path, statements: str) -> None:
    """Change events as somebody who writes the file does."""
    with closing(sqlite3.connect(path)) as connection:
        [(trigger,)] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'stored_events_no_update'")
        connection.executescript(f"DROP TRIGGER stored_events_no_update; {statements}; {trigger}")


def _anchors(elsewhere: Path) -> list[Anchor]:
    return read_anchors([elsewhere], [SIGNER.verifier])


def _verified(path: Path, elsewhere: Path) -> VerifyReport:
    with TurnLog.open(f"sqlite:///{path}") as log:
        return log.verify(checkpoints=_anchors(elsewhere))


def _restored(path: Path, to: Path) -> Path:
    with TurnLog.open(f"sqlite:///{path}") as log, TurnLog.open(f"sqlite:///{to}") as copy:
        file = io.BytesIO()
        log.export(file)
        file.seek(0)
        assert copy.import_turnlog(file).whole
    return to


@pytest.mark.parametrize(
    "tree", ["DELETE FROM tree_arrivals; INSERT INTO tree_arrivals VALUES (1, 0), (3, 1), (4, 0)", DROPPED]
)
def test_register_that_is_made_a_restored_one_is_found(path: Path, elsewhere: Path, tree: str) -> None:
    """It would have no effect any more: what is kept beside the log was changed with it, and the checkpoint is not."""
    _edit(path, f"UPDATE stored_events SET arrival = 1 WHERE notification_id = 3; {tree}")
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert log.providers.get("anthropic").action == "enable"
        assert log.store.check_schema() == []
    report = _verified(path, elsewhere)
    assert [damage.what for damage in report.damage if str(elsewhere) in damage.what and "another way" in damage.what]
    assert report.anchored == 0


def test_first_event_that_came_otherwise_is_named(path: Path, elsewhere: Path) -> None:
    """Where the kept tree still says how it came."""
    _edit(path, "UPDATE stored_events SET arrival = 1 WHERE notification_id = 3")
    whats = [damage.what for damage in _verified(path, elsewhere).damage]
    assert sum("from global position 3 on" in what for what in whats) == 1
    assert sum("first of the event at global position 3" in what for what in whats) == 2


def test_kept_tree_is_not_taken_for_a_witness(path: Path, elsewhere: Path) -> None:
    """Where the events came as the checkpoint says, and the tree says otherwise, no event is named beside it."""
    _edit(path, "INSERT INTO tree_arrivals VALUES (2, 2)")
    [damage] = _verified(path, elsewhere).damage
    assert "the kept tree has other arrivals" in damage.what


def test_copy_and_its_copy_fit_what_each_log_before_has_signed(path: Path, elsewhere: Path, tmp_path: Path) -> None:
    """A restored log goes on, signs, and is restored again; then guests still cannot be made its own."""
    copy = _restored(path, tmp_path / "copy.db")
    assert _verified(copy, elsewhere).damage == ()
    with TurnLog.open(f"sqlite:///{copy}") as log:
        log.add_turn("third", continues="main")
        made = log.audit.checkpoint(SIGNER, to=[Folder(elsewhere)])
        kinds = [line.partition(" ")[0] for line in parse_checkpoint(parse_note(made.note).text).extensions]
        assert kinds == ["turnlog-arrivals", "turnlog-guests"]
    assert _verified(copy, elsewhere).damage == ()
    second = _restored(copy, tmp_path / "second.db")
    report = _verified(second, elsewhere)
    assert (report.damage, report.anchored, report.checkpoints) == ((), report.events, 2)
    with TurnLog.open(f"sqlite:///{second}") as log:
        log.add_turn("fourth", continues="main")
        log.audit.checkpoint(SIGNER, to=[Folder(elsewhere)])
    assert _verified(second, elsewhere).damage == ()
    _edit(second, f"UPDATE stored_events SET arrival = 0 WHERE notification_id = 3; {DROPPED}")
    assert _verified(second, elsewhere).anchored == 0


def test_what_a_restored_copy_has_signed_is_said_to_be_that(path: Path, elsewhere: Path, tmp_path: Path) -> None:
    """The original does not fit it, though nothing was changed there; where a guest was made its own, that is told."""
    signed_there = tmp_path / "there"
    with TurnLog.open(f"sqlite:///{_restored(path, tmp_path / 'copy.db')}") as copy:
        copy.audit.checkpoint(SIGNER, to=[Folder(signed_there)])
    cause = "was changed since, or the checkpoint was signed in a copy that was restored from an export"
    report = _verified(path, signed_there)
    assert [cause in damage.what for damage in report.damage] == [True]
    _edit(path, f"UPDATE stored_events SET arrival = 2 WHERE notification_id = 3; {DROPPED}")
    told = [damage.what for damage in _verified(path, signed_there).damage if "another way" in damage.what]
    assert ([cause in what for what in told], ["of another log" in what for what in told]) == ([False] * 2, [True] * 2)


def test_all_made_restored_ones_are_what_a_restore_makes(path: Path, elsewhere: Path) -> None:
    """That cannot be told: registers wait to be confirmed again."""
    _edit(path, f"UPDATE stored_events SET arrival = 1; {DROPPED}")
    assert _verified(path, elsewhere).damage == ()
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert len(log.registers.imported()) == 1
