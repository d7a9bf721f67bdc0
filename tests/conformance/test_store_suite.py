"""The store suite fails engines that break a promise: each of these does so in one way, and a test finds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.conformance.test_sqlite import TestSQLiteStore as SQLiteSuite

from turnlog.events import Recorded
from turnlog.store import ErasedFiles, Store, SyncProjection, WriteTransaction
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
]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for what will not come."""
    monkeypatch.setattr("turnlog.testing.store_waiting.WAIT_S", 1.0)


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
