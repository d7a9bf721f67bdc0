"""What an erasure of a log names and is there nonetheless is found, and erased again."""

import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.sealed_log import seals_in

from turnlog import TurnLog
from turnlog.errors import HoldError
from turnlog.events import ERASURE, SEAL

_BACK = "a gpt.erasure event names it, and its content is here: `turnlog erase --finish` takes it away"


@pytest.fixture
def log(file_log: TurnLog) -> TurnLog:
    """Give a log with a thread of somebody, with a bookmark event, and one of somebody else."""
    first = file_log.add_turn("The patient has a cough.", bookmark="patient", subject="patient 17")
    file_log.bookmarks.set("noted", first.id)
    file_log.add_turn("of something else", bookmark="other")
    return file_log


def found(log: TurnLog) -> list[tuple[str, str | None]]:
    """Return what verify says, and of which event."""
    return [(damage.what, damage.event_id) for damage in log.verify().damage]


@pytest.fixture
def put_back(log: TurnLog, store_path: Path, poke: Callable[..., None]) -> Callable[..., None]:
    """Give a way to put rows back as they are now."""
    with closing(sqlite3.connect(store_path)) as connection:
        kept = dict(
            connection.execute(
                "SELECT event_id, quote(private) || ', ' || payload_placement || ', ' || quote(payload)"
                " FROM stored_events"
            ).fetchall()
        )

    def run(*ids: str) -> None:
        poke(
            *(
                f"UPDATE stored_events SET (private, payload_placement, payload) = ({kept[each]})"
                f" WHERE event_id = '{each}'"
                for each in ids
            )
        )

    return run


@pytest.mark.parametrize("which", [slice(0, 1), slice(1, 2), slice(None)], ids=["turn", "bookmark event", "both"])
def test_what_is_put_back_is_found_and_erased_again(log: TurnLog, put_back: Callable[..., None], which: slice) -> None:
    """Also an event whose turn stays erased, which no turn leads to any more."""
    report = log.erase(subject="patient 17", reason="asked")
    assert log.verify().clean
    ids = [*report.turns, *report.bookmarks][which]
    assert len(ids) == len(range(2)[which])
    put_back(*ids)
    log.rebuild_projections()
    assert found(log) == [(_BACK, each) for each in ids]
    assert log.finish_erasing() is None
    assert found(log) == []
    assert all(log.event(each).erased for each in ids)
    *_, last = log.events(topics=ERASURE)
    assert [citation.id for citation in last.header.citations] == ids
    end = log.stats().events
    assert log.finish_erasing() is None
    assert log.stats().events == end


def test_what_a_restored_copy_still_has_is_found_and_erased(log: TurnLog) -> None:
    """An older export that is restored, and a later one that brings the erasure."""
    older, newer = io.BytesIO(), io.BytesIO()
    log.export(older)
    report = log.erase(subject="patient 17", reason="asked")
    log.export(newer)
    with TurnLog.open("memory://") as copy:
        for file in (older, newer):
            file.seek(0)
            copy.import_turnlog(file)
        assert found(copy) == [(_BACK, each) for each in (*report.turns, *report.bookmarks)]
        assert copy.finish_erasing() is None
        assert found(copy) == []
        assert copy.turn(report.turns[0]).erased


def test_what_another_log_erased_may_be_here(log: TurnLog) -> None:
    """A guest's erasure is no word of this log, and takes nothing away."""
    sent, back = io.BytesIO(), io.BytesIO()
    log.export(sent)
    with TurnLog.open("memory://") as theirs:
        theirs.add_turn("of their own")
        sent.seek(0)
        theirs.import_turnlog(sent)
        erased = theirs.erase(subject="patient 17", reason="theirs").turns
        theirs.export(back)
    back.seek(0)
    log.import_turnlog(back)
    assert found(log) == []
    assert log.finish_erasing() is None
    assert [log.turn(turn).erased for turn in erased] == [False]


def test_hold_refuses_what_is_put_back(log: TurnLog, put_back: Callable[..., None]) -> None:
    """It is erased once the hold is released."""
    [turn] = log.erase(subject="patient 17", reason="asked").turns
    put_back(turn)
    log.rebuild_projections()
    log.holds.set("case", turn=turn)
    with pytest.raises(HoldError, match="'case'"):
        log.finish_erasing()
    log.holds.release("case")
    assert log.finish_erasing() is None
    assert log.turn(turn).erased


def test_erasure_of_a_key_alone_names_what_stays(tmp_path: Path) -> None:
    """Where nothing of a subject is in the log, the erasure names the event that seals, which is never erased."""
    with TurnLog.open("memory://", seals=seals_in(tmp_path / "keys")) as log:
        log.seal("patient 17")
        log.erase(turn=log.add_turn("once", subject="patient 17").id, reason="asked")
        assert log.erase(subject="patient 17", reason="asked").keys
        *_, last = log.events(topics=ERASURE)
        assert log.event(last.header.citations[0].id).header.topic == SEAL
        assert found(log) == []
        assert log.finish_erasing() is None
