"""The store suite fails engines that break a promise: each of these does so in one way, and a test finds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from tests.conformance.test_sqlite import TestSQLiteStore as SQLiteSuite

from turnlog.events import Recorded, Seal, Seals
from turnlog.store import ErasedFiles, NewPayload, Payload, Store, SyncProjection, WriteTransaction
from turnlog.store.gate import Gate
from turnlog.store.locks import MemoryLocks
from turnlog.store.payloads import PayloadPlacer
from turnlog.store.sqlite import SQLiteStore
from turnlog.store.waiting import Watch
from turnlog.testing.harness import Tally
from turnlog.testing.store_erasing import Names

T = TypeVar("T")


class Keeping(SQLiteStore):
    """Records what a plan appended before it raised."""

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        def kept(transaction: WriteTransaction) -> tuple[Any, Exception | None]:
            try:
                return plan(transaction), None
            except Exception as error:  # noqa: BLE001 - raised once it is recorded
                return None, error

        found, error = super().write(kept)
        if error is not None:
            raise error
        return found


class Sparing(SQLiteStore):
    """Says that it has erased, and leaves all as it was."""

    def erase(
        self, plan: Callable[[WriteTransaction], Sequence[Recorded]], *, foreseen: object = (), until: int = 0
    ) -> ErasedFiles:
        self.write(plan)
        return ErasedFiles()


class Mute(SQLiteStore):
    """Tells nobody who watches."""

    def watch(self, after: int, tell: Callable[[], None], *, backwards: bool = False) -> Watch:
        return super().watch(after, lambda: None, backwards=backwards)


class Forward(SQLiteStore):
    """Does not tell that the log ends before what was read."""

    def watch(self, after: int, tell: Callable[[], None], *, backwards: bool = False) -> Watch:
        return super().watch(after, tell)


class Insisting(SQLiteStore):
    """Tells those who watch no more."""

    def unwatch(self, watch: Watch) -> None:
        return None


class Lonely(SQLiteStore):
    """Has locks of its own, whoever else has the log open."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.locks = MemoryLocks()


class Clinging(SQLiteStore):
    """Keeps its locks when it is closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.locks.close = lambda: None


class Believing(SQLiteStore):
    """Takes what is in a payload file for the payload."""

    class Payloads(PayloadPlacer):
        def pieces(self, *where: Any, event_id: str, global_position: int | None) -> Iterator[bytes]:
            return self._pieces(*where, event_id)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._payloads.__class__ = self.Payloads


class Content(SQLiteStore):
    """Finds nothing wrong."""

    def check(self) -> Iterator[tuple[int | None, str]]:
        return iter(())


class Forked(SQLiteStore):
    """Goes on in a process that was forked."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gate = Ajar("log.db")


class Ajar(Gate):
    """Does not see that its process was forked."""

    def _after_fork(self) -> None:
        return None


class Plain(SQLiteStore):
    """Places nothing sealed."""

    def place(self, payload: Payload | None, seal: Seal | None = None, *, is_written: bool = True) -> NewPayload:
        return super().place(payload, is_written=is_written)


class Altered(SQLiteStore):
    """Has transactions that do one thing otherwise."""

    otherwise: ClassVar[dict[str, Callable[..., Any]]]

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        return super().write(lambda transaction: plan(self._altered(transaction)))

    @contextmanager
    def read(self) -> Generator[Any]:
        with super().read() as transaction:
            yield self._altered(transaction)

    def _altered(self, transaction: Any) -> Any:
        vars(transaction).update({name: partial(do, transaction) for name, do in self.otherwise.items()})
        return transaction


class Unsealing(Altered):
    """Seals nothing in a plan."""

    otherwise: ClassVar = {"seal": lambda _, payload, __: payload}


class Shut(Altered):
    """Does not open what was read without its key."""

    otherwise: ClassVar = {"opened": lambda _, event: event}


class Careless(Altered):
    """Does not know what is sealed."""

    otherwise: ClassVar = {"seal_policy": lambda _: None}


class Adopting(Altered):
    """Takes all events for its own."""

    otherwise: ClassVar = {
        "leaves": lambda self, first, count: [(leaf, 0) for leaf, _ in type(self).leaves(self, first, count)]
    }


class Weightless(Altered):
    """Does not count what stands beside events."""

    otherwise: ClassVar = {"stored_payload_bytes": lambda _: 0}


BROKEN: list[tuple[type[SQLiteStore], str, dict[str, Any]]] = [
    (Keeping, "test_failed_plans_leave_no_gap", {}),
    (Keeping, "test_projection_that_raises_undoes_the_append", {"topic": "test.broken", "error": ZeroDivisionError}),
    (Sparing, "test_private_part_and_payload_are_gone", {"size": 300}),
    (Sparing, "test_nothing_is_left_in_the_files", {}),
    (Sparing, "test_payload_that_others_have_stays", {}),
    (Sparing, "test_projections_are_as_if_there_had_been_nothing", {"is_foreseen": True}),
    (Sparing, "test_what_others_than_the_foreseen_events_have_folded_is_gone", {}),
    (Sparing, "test_what_is_appended_next_sees_it_erased", {}),
    (Sparing, "test_what_has_nothing_to_erase_is_refused", {}),
    (Sparing, "test_what_one_store_erases_no_other_one_has", {}),
    (Mute, "test_who_watches_is_told_once", {}),
    (Forward, "test_who_watches_backwards_is_told_that_the_log_ends_before", {}),
    (Mute, "test_closing_tells_those_who_watch", {}),
    (Insisting, "test_who_watches_no_more_is_not_told", {}),
    (Lonely, "test_lock_is_of_the_log_and_not_of_a_store", {}),
    (Clinging, "test_lock_is_of_the_log_and_not_of_a_store", {}),
    (Believing, "test_changed_large_payload_is_refused", {}),
    (Content, "test_check_tells_of_what_no_event_shows", {}),
    (Forked, "test_forked_process_is_refused", {}),
    (Plain, "test_payload_that_is_placed_with_a_seal_is_kept_sealed", {}),
    (Unsealing, "test_plan_seals_what_was_placed_plain", {}),
    (Shut, "test_what_is_sealed_opens_with_its_key_alone", {}),
    (Careless, "test_what_is_sealed_is_what_the_log_says", {}),
    (Careless, "test_what_one_store_says_is_sealed_the_other_one_seals", {}),
    (Adopting, "test_leaves_are_leaf_hashes_and_arrivals_in_global_order", {}),
    (Weightless, "test_payload_bytes_are_counted_as_given", {}),
]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for what will not come."""
    monkeypatch.setattr("turnlog.testing.store_waiting.WAIT_S", 1.0)
    monkeypatch.setattr("turnlog.testing.store_durability.WAIT_S", 1.0)


@pytest.mark.parametrize(("broken", "name", "arguments"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_suite_fails_an_engine_that_breaks_a_promise(
    broken: type[SQLiteStore], name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """A test of the suite passes the SQLite engine, and fails the same engine broken in one way."""
    _run(SQLiteStore, name, arguments, tmp_path / "sound")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        _run(broken, name, arguments, tmp_path / "broken")


def _run(engine: type[SQLiteStore], name: str, arguments: dict[str, Any], folder: Path) -> None:
    """Run one test of the suite on an engine, with what its fixtures give."""

    class Suite(SQLiteSuite):
        def open_store(self, folder: Path, projections: Sequence[SyncProjection]) -> Store:
            path = folder / "log.db"
            return engine(path, url=f"sqlite:///{path}", projections=projections)

        def open_sealed(self, folder: Path, projections: Sequence[SyncProjection], seals: Seals) -> Store:
            path = folder / "log.db"
            return engine(path, url=f"sqlite:///{path}", projections=projections, seals=seals)

    suite = Suite()
    test = getattr(suite, name)
    wanted = inspect.signature(test).parameters
    given: dict[str, Any] = {"tmp_path": folder} | arguments
    if "store" in wanted:
        given["store"] = suite.open_store(folder, [Tally()])
    if "names" in wanted:
        given["names"] = suite.open_store(folder / "names", [Names()])
    try:
        test(**{key: value for key, value in given.items() if key in wanted})
    finally:
        for store in (given.get("store"), given.get("names")):
            if store is not None:
                store.close()
