"""Payloads that become files: on disk before the write lock is taken, there once, and gone where nobody needs them."""

import gc
import os
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import TurnlogError
from turnlog.events import TURN
from turnlog.ids import new_id
from turnlog.store import WriteTransaction
from turnlog.testing.harness import WAIT_S, new_event
from turnlog.turn import turn_of

PAYLOAD = os.urandom(1 << 20)


@pytest.fixture
def folder(store_path: Path) -> Path:
    """Give the payload folder."""
    return store_path.with_name(store_path.name + "-payloads")


def _files(folder: Path) -> dict[str, int]:
    """Return the names of all files in the payload folder but locks, and their bytes."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def test_small_append_passes_a_large_one(file_log: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a large payload is on its way to the disk others append: it needs no lock until it is there."""
    document = folder.with_name("document.bin")
    document.write_bytes(PAYLOAD)
    file_log.add_turn("first")
    order: list[str] = []
    writing, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow_fsync(handle: int) -> None:
        if threading.current_thread() is large and os.fstat(handle).st_size == len(PAYLOAD):
            writing.set()
            assert go_on.wait(WAIT_S)
        fsync(handle)

    def add_large() -> None:
        file_log.add_document(document)
        order.append("large")

    large = threading.Thread(target=add_large)
    monkeypatch.setattr(os, "fsync", slow_fsync)
    large.start()
    assert writing.wait(WAIT_S)
    for text in ("small", "smaller"):
        file_log.add_turn(text)
        order.append(text)
    go_on.set()
    large.join()
    assert order == ["small", "smaller", "large"]
    assert [turn.meta.type for turn in map(turn_of, file_log.events(topics=[TURN]))][-1] == "document"
    assert file_log.verify().clean


def test_large_payload_is_whole_before_the_plan_runs(file_log: TurnLog, folder: Path) -> None:
    """In the plan nothing is left to be written: the file is there, and gets its name."""
    placed = file_log.store.place(PAYLOAD)
    before = _files(folder)
    assert list(before.values()) == [len(PAYLOAD)]
    event = new_event(payload=PAYLOAD)

    def plan(transaction: WriteTransaction) -> dict[str, int]:
        transaction.append(event, placed)
        return _files(folder)

    assert file_log.store.write(plan) == before
    digest = sha256(PAYLOAD).hexdigest()
    assert _files(folder) == {f"{digest[:2]}/{digest[2:]}": len(PAYLOAD)}


def test_failed_plan_leaves_no_file(file_log: TurnLog, folder: Path) -> None:
    """A payload that was placed and not recorded goes with the value that stands for it."""
    event = new_event(payload=PAYLOAD)

    def fail() -> None:
        placed = file_log.store.place(PAYLOAD)

        def plan(transaction: WriteTransaction) -> None:
            transaction.append(event, placed)
            raise TurnlogError("no")

        with pytest.raises(TurnlogError, match="no"):
            file_log.store.write(plan)

    fail()
    gc.collect()
    assert _files(folder) == {}


def test_taken_event_leaves_no_file(file_log: TurnLog, folder: Path) -> None:
    """A large turn under an id that is known, or that is refused, leaves no file."""
    text = PAYLOAD.hex()
    turn = file_log.add_turn("x", id=new_id())
    for given in ({"id": turn.id}, {"continues": "nowhere"}, {"bookmark": "x", "expected_head": turn.id}):
        with pytest.raises(TurnlogError):
            file_log.add_turn(text, **given)
    gc.collect()
    assert _files(folder) == {}


def test_same_payload_twice_is_one_file(file_log: TurnLog, folder: Path) -> None:
    """Two events with one payload share its file, also where both were placed before either was recorded."""
    placed = [file_log.store.place(PAYLOAD) for _ in range(2)]
    for one in placed:
        event = new_event(payload=PAYLOAD)
        file_log.store.write(lambda transaction, event=event, one=one: transaction.append(event, one))
    del placed, one
    gc.collect()
    assert list(_files(folder).values()) == [len(PAYLOAD)]


def test_closing_leaves_no_file_that_was_not_recorded(file_log: TurnLog, folder: Path) -> None:
    """What was placed and not recorded when the store is closed is gone, though somebody still holds it."""
    placed = file_log.store.place(PAYLOAD)
    file_log.close()
    assert placed.size == len(PAYLOAD)
    assert _files(folder) == {}
