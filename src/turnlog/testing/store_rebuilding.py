"""What an engine promises about projections: folded as events are recorded, or built anew, they have the same rows."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnlog.errors import SchemaError
from turnlog.events import Arrival
from turnlog.ids import new_id
from turnlog.store import Store
from turnlog.testing.harness import (
    Places,
    StoreHarness,
    Tally,
    append,
    erased,
    folded_anew,
    new_event,
    projected,
    tally,
)


def fill(store: Store, count: int = 50) -> None:
    """Append so many events of several topics and streams, some erased, some guests."""
    source = random.Random(count)
    stream, position = new_id(), 0
    for number in range(count):
        event = new_event(
            id=stream if position == 0 else None,
            stream=stream,
            position=position,
            topic=source.choice(["a", "b", "gpt.turn"]),
            private={"n": number},
        )
        append(store, erased(event) if source.random() < 0.2 else event, arrival=source.choice(list(Arrival)))
        stream, position = (new_id(), 0) if source.random() < 0.2 else (stream, position + 1)


class StoreRebuilding(StoreHarness):
    """Tests of `Store.rebuild`."""

    @pytest.fixture
    def both(self, tmp_path: Path) -> Store:
        """Open a store with two projections."""
        return self.open_store(tmp_path / "both", [Tally(), Places()])

    @pytest.mark.parametrize("count", [0, 1, 50])
    def test_rebuilt_rows_are_those_that_were_folded(self, both: Store, count: int) -> None:
        """Projections that are built anew have the rows that they had, in a log of any length."""
        fill(both, count)
        before = projected(both)
        assert before == folded_anew(both)
        assert both.rebuild() == ["tally", "places"]
        assert projected(both) == before
        assert both.check_schema() == []
        both.close()

    def test_long_log_is_rebuilt_whole(self, both: Store) -> None:
        """A log longer than any page that an engine reads at once is folded whole."""
        append(both, *(new_event() for _ in range(2501)))
        before = projected(both)
        both.write(lambda transaction: transaction.run("DELETE FROM places"))
        both.rebuild()
        assert projected(both) == before
        assert len(before["places"]) == 2501
        both.close()

    def test_damaged_rows_are_mended(self, both: Store) -> None:
        """Rows that are missing, changed or too many are as they should be after a rebuild; the log stays as it is."""
        fill(both)
        before = projected(both)
        for statement in (
            "DELETE FROM tally",
            "UPDATE tally SET events = events + 1",
            "INSERT INTO tally VALUES ('x', 1)",
            "UPDATE places SET position = 7 WHERE position = 0",
        ):
            both.write(lambda transaction, statement=statement: transaction.run(statement))
            assert projected(both) != before
            both.rebuild()
            assert projected(both) == before
        append(both, new_event())
        assert projected(both) == folded_anew(both)
        both.close()

    def test_one_projection_is_rebuilt_alone(self, both: Store) -> None:
        """Only the projections that are named are built anew."""
        fill(both)
        before = projected(both)
        for table in ("tally", "places"):
            both.write(lambda transaction, table=table: transaction.run(f"DELETE FROM {table}"))
        assert both.rebuild(["places"]) == ["places"]
        assert projected(both) == {"tally": [], "places": before["places"]}
        both.close()

    def test_unknown_projection_is_refused(self, store: Store) -> None:
        """There is nothing to rebuild of a name that no projection has."""
        append(store, new_event())
        with pytest.raises(SchemaError, match="nope"):
            store.rebuild(["tally", "nope"])
        assert tally(store) == {"test.event": 1}

    def test_progress_is_told(self, store: Store) -> None:
        """Long work says how far it is: it never goes back, and ends where the log ended when it began."""
        append(store, *(new_event() for _ in range(2100)))
        seen: list[tuple[int, int]] = []
        store.rebuild(progress=lambda done, whole: seen.append((done, whole)))
        assert seen == sorted(seen)
        assert seen[-1] == (2100, 2100)
        assert {whole for _, whole in seen} == {2100}

    def test_others_append_meanwhile(self, both: Store) -> None:
        """While projections are rebuilt again and again other threads append, and nothing of either is lost."""
        rebuilt = threading.Event()

        def add(_: int) -> int:
            count = 0
            while not rebuilt.is_set() or count < 20:
                fill(both, 5)
                count += 5
            return count

        with ThreadPoolExecutor(3) as pool:
            adding = pool.map(add, range(3))
            try:
                for _ in range(5):
                    both.rebuild()
            finally:
                rebuilt.set()
            counts = list(adding)
        assert projected(both) == folded_anew(both)
        assert len(projected(both)["places"]) == sum(counts)
        both.close()
