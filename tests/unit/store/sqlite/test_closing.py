"""Closing a SQLite store: it waits for those at work, and says to all others that it is closed."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreClosedError
from turnlog.events import TURN, Recorded
from turnlog.store import NO_PAYLOAD, Store, WriteTransaction
from turnlog.testing.harness import WAIT_S, new_event, recorded_or_raise

Pause = Callable[[], None]
"""Waits until somebody closes the store, and notes that the work goes on then."""


def _append() -> Callable[[WriteTransaction], Recorded]:
    event = new_event(topic=TURN, public={"role": "user"})
    return lambda transaction: recorded_or_raise(event, transaction.append(event, NO_PAYLOAD))


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, store_path: Path) -> Iterator[Store]:
    """Give an empty store, once in memory and once in a file. Closing it waits for long, if it has to."""
    with TurnLog.open("memory://" if request.param == "memory" else f"sqlite:///{store_path}") as log:
        yield log.store


def _close_while(store: Store, work: Callable[[Pause], object]) -> list[str]:
    """Close a store while some work is in the middle of it; return what ended in which order."""
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert go_on.wait(WAIT_S)
        order.append("worked")

    def close() -> None:
        store.close()
        order.append("closed")

    threads = [threading.Thread(target=work, args=(pause,)), threading.Thread(target=close)]
    threads[0].start()
    assert inside.wait(WAIT_S)
    threads[1].start()
    refused = False
    while not refused:
        try:
            store.place(b"")
        except StoreClosedError:
            refused = True
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    return order


def test_closing_waits_for_a_plan(store: Store, store_path: Path) -> None:
    """A plan that runs when the store is closed comes to its end, and is recorded before `close` returns."""
    append = _append()
    found: list[Recorded] = []

    def work(pause: Pause) -> None:
        def plan(transaction: WriteTransaction) -> Recorded:
            pause()
            return append(transaction)

        found.append(store.write(plan))

    assert _close_while(store, work) == ["worked", "closed"]
    assert found[0].global_position == 1
    if store_path.exists():
        with TurnLog.open(f"sqlite:///{store_path}") as again:
            assert again.event(found[0].header.id) == found[0]


def test_closing_waits_for_a_reader(store: Store) -> None:
    """A reader in the middle of the log reads it to its end before the store is gone."""
    store.write(lambda transaction: [_append()(transaction) for _ in range(3000)])
    seen: list[int] = []

    def work(pause: Pause) -> None:
        with store.read() as transaction:
            for recorded in transaction.log():
                seen.append(recorded.global_position)
                if len(seen) == 10:
                    pause()

    assert _close_while(store, work) == ["worked", "closed"]
    assert seen == list(range(1, 3001))


def test_reader_that_closes_its_store_reads_on(store: Store) -> None:
    """Closing from inside a read does not wait for itself: what is open is read to its end, and nothing more."""
    recorded = store.write(_append())
    with store.read() as transaction:
        store.close()
        assert transaction.event(recorded.header.id) == recorded
    with pytest.raises(StoreClosedError), store.read():
        pass


def test_plan_that_closes_its_store_is_not_recorded(file_log: TurnLog, store_path: Path) -> None:
    """A plan that closes its own store is told so, and nothing of what it appended is kept."""
    store = file_log.store

    def plan(transaction: WriteTransaction) -> None:
        _append()(transaction)
        store.close()
        _append()(transaction)

    with pytest.raises(StoreClosedError):
        store.write(plan)
    with TurnLog.open(f"sqlite:///{store_path}") as again:
        assert list(again.events()) == []
        assert again.verify().clean


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_every_call_after_closing_is_refused(request: pytest.FixtureRequest, kind: str) -> None:
    """Closing twice is allowed; any other call says that the store is closed."""
    log: TurnLog = request.getfixturevalue("log" if kind == "memory" else "file_log")
    store = log.store
    append = _append()
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.place(b"x"),
        lambda: store.write(append),
        lambda: store.read().__enter__(),
        lambda: list(store.check()),
        store.stats,
        store.check_schema,
        store.rebuild,
        lambda: store.wait(0),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="closed"):
            call()


def test_last_to_close_leaves_one_file(store_path: Path) -> None:
    """After closing, the log is in its file alone."""
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        log.add_turn("x")
    assert [path.name for path in store_path.parent.iterdir()] == [store_path.name]
