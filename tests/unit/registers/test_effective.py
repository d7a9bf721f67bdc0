"""What holds of a register is read once, and brought up to date: it is never anything else than the log says."""

from pathlib import Path

import pytest
from tests.faults import hostile
from tests.rewriting import position
from tests.sealed_log import SealsInMemory

from turnlog import TurnLog, UnknownPointerError
from turnlog.errors import CorruptionError, SealedError
from turnlog.events import DataKey
from turnlog.model import PointerMeta
from turnlog.record import EventDraft, plan_event
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, WriteTransaction
from turnlog.testing.store_erasing import erase


def models(log: TurnLog) -> dict[str, str]:
    """Return the models of a log's pointers."""
    return {pointer.name: pointer.model for pointer in log.pointers.all()}


def test_what_was_read_is_not_read_again(file_log: TurnLog, store_path: Path) -> None:
    """Once it is known what holds, only events that have come since are read, also where one is written."""
    for name in "abc":
        file_log.pointers.set(name, "p", "m")
    assert file_log.pointers.get("a").model == "m"
    *_, first, _, _ = file_log.events()
    at = position(store_path, first.header.id)
    hostile.run_sql(store_path, f"UPDATE stored_events SET private = X'00' WHERE notification_id = {at}")
    file_log.pointers.set("b", "p", "other")
    file_log.pointers.delete("c")
    assert file_log.pointers.get("b").model == "other"
    with TurnLog.open(f"sqlite:///{store_path}") as anew, pytest.raises(CorruptionError):
        anew.pointers.get("b")


def test_setting_a_name_reads_no_other(file_log: TurnLog, store_path: Path) -> None:
    """What is set holds, whatever was said before: nobody waits for that to be read."""
    file_log.pointers.set("a", "p", "m")
    *_, first = file_log.events()
    at = position(store_path, first.header.id)
    hostile.run_sql(store_path, f"UPDATE stored_events SET private = X'00' WHERE notification_id = {at}")
    file_log.pointers.set("b", "p", "m")
    assert file_log.wait(0, 0) == 3


def test_what_others_record_is_seen(file_log: TurnLog, store_path: Path) -> None:
    """Two who have the log open, in turns."""
    with TurnLog.open(f"sqlite:///{store_path}") as other:
        for number, (one, two) in enumerate([(file_log, other), (other, file_log)] * 2):
            one.pointers.set("a", "p", f"m-{number}")
            assert models(two) == models(one) == {"a": f"m-{number}"}
        other.pointers.delete("a")
        with pytest.raises(UnknownPointerError):
            file_log.pointers.delete("a")
        assert models(file_log) == {}


def test_what_came_to_nothing_has_no_effect(log: TurnLog) -> None:
    """A transaction that looked at its own event, and was taken back."""
    log.pointers.set("a", "p", "m")

    def plan(transaction: WriteTransaction) -> None:
        meta = PointerMeta(action="set", name="a", provider="p", model="other")
        plan_event(transaction, EventDraft(topic="gpt.pointer", meta=meta), NO_PAYLOAD, Sources())
        raise InterruptedError

    for _ in range(2):
        with pytest.raises(InterruptedError):
            log.store.write(plan)
        assert models(log) == {"a": "m"}
    log.pointers.set("b", "p", "m")
    assert models(log) == {"a": "m", "b": "m"}


def test_erased_event_holds_no_more(file_log: TurnLog, store_path: Path) -> None:
    """What it replaced holds again, for those who had read it too."""
    with TurnLog.open(f"sqlite:///{store_path}") as other:
        file_log.pointers.set("a", "p", "old")
        file_log.pointers.set("a", "p", "new")
        assert models(file_log) == models(other) == {"a": "new"}
        *_, last = file_log.events()
        erase(file_log.store, last)
        assert models(file_log) == models(other) == {"a": "old"}


def test_log_that_was_cut_is_read_again(file_log: TurnLog, store_path: Path) -> None:
    """It says what it says now."""
    file_log.pointers.set("a", "p", "old")
    file_log.pointers.set("a", "p", "new")
    assert models(file_log) == {"a": "new"}
    hostile.run_sql(store_path, "DELETE FROM stored_events WHERE notification_id = 3")
    assert models(file_log) == {"a": "old"}


def test_key_that_comes_later_opens_what_was_confirmed(tmp_path: Path) -> None:
    """What a register says that came sealed and was confirmed holds whenever its key is here."""

    class Lent(SealsInMemory):
        is_here = True

        def get(self, key_id: str) -> DataKey | None:
            return super().get(key_id) if self.is_here else None

    seals = Lent()
    with TurnLog.open("memory://", seals=seals) as theirs:
        theirs.seal()
        theirs.pointers.set("a", "p", "m")
        *_, sealed = theirs.events()
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db", seals=seals) as log:
        log.add_turn("Here before")
        log.store.write(lambda transaction: transaction.append(sealed, NO_PAYLOAD, sealed.arrival.GUEST))
        log.registers.trust([sealed.header.id])
        seals.is_here = False
        assert models(log) == {}
        seals.is_here = True
        assert models(log) == {"a": "m"}


def test_register_that_cannot_be_read_is_no_other(tmp_path: Path) -> None:
    """Without its key it is not known what holds, and that is said each time."""
    seals = SealsInMemory()
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url, seals=seals) as log:
        log.pointers.set("a", "p", "plain")
        log.seal()
        log.pointers.set("a", "p", "sealed")
    with TurnLog.open(url) as closed:
        for _ in range(2):
            with pytest.raises(SealedError):
                closed.pointers.get("a")
