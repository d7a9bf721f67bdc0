"""The SQLite store: opening, transactions, large payloads, durability settings, closing."""

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.errors import (
    CorruptionError,
    StoreBusyError,
    StoreError,
    StoreOpenError,
    TurnlogError,
)
from turnlog.events import TURN, Recorded
from turnlog.ids import new_id
from turnlog.projections import synchronous
from turnlog.store import NO_PAYLOAD, Store, Taken, WriteTransaction, open_store
from turnlog.store.sqlite.schema import APPLICATION_ID, VERSION
from turnlog.testing.harness import new_event, recorded_or_raise


def _append(**changes: Any) -> Callable[[WriteTransaction], Recorded]:
    event = new_event(**{"topic": TURN, "public": {"role": "user"}, **changes})
    return lambda transaction: recorded_or_raise(event, transaction.append(event, NO_PAYLOAD))


def _count(store: Store) -> int:
    with store.read() as transaction:
        return len(list(transaction.log()))


class TestOpening:
    """What can be opened, and what cannot."""

    def test_new_store_is_marked_as_one(self, file_log: TurnLog, store_path: Path) -> None:
        """A store says that it is one, and of which version."""
        connection = sqlite3.connect(store_path)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()

    def test_log_is_there_when_opened_again(self, store_path: Path) -> None:
        """What was recorded is read by the next who opens the file."""
        url = f"sqlite:///{store_path}"
        with TurnLog.open(url) as log:
            turn = log.add_turn("x", bookmark="main")
        with TurnLog.open(url, create=False) as log:
            assert log.turn("main") == turn
            assert log.verify().clean

    def test_relative_path_stays_the_same_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that was opened by a relative path is not lost when the working folder changes."""
        (tmp_path / "a").mkdir()
        monkeypatch.chdir(tmp_path / "a")
        (tmp_path / "noise").write_bytes(os.urandom(70_000))
        with TurnLog.open("sqlite:///log.db") as log:
            monkeypatch.chdir(tmp_path)
            document = log.add_document(tmp_path / "noise")
            assert log.payload(document.id) == (tmp_path / "noise").read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "noise"]
        assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["log.db", "log.db-payloads"]

    @pytest.mark.parametrize("name", ["a b", "a%20b", "a?b#c", "é🦊", "a'b\"c", "a;b"])
    def test_any_file_name_is_a_store(self, tmp_path: Path, name: str) -> None:
        """Characters that mean something in URLs or SQL are part of the name."""
        store = open_store(
            "sqlite:///" + str(tmp_path / name).replace("%", "%25").replace("?", "%3F").replace("#", "%23"),
            projections=synchronous(),
        )
        store.write(_append())
        store.close()
        assert [path.name for path in tmp_path.iterdir()] == [name]

    @pytest.mark.parametrize(
        "content", [b"just a text file, and no store at all\n" * 100, b"x", b"SQLite format 3\x00"]
    )
    def test_other_file_is_refused_and_left_as_it_is(self, store_path: Path, content: bytes) -> None:
        """A file that is no database is neither opened nor changed."""
        store_path.write_bytes(content)
        with pytest.raises(StoreError) as caught:
            TurnLog.open(f"sqlite:///{store_path}")
        assert isinstance(caught.value, StoreOpenError | CorruptionError)
        assert store_path.read_bytes() == content
        assert [path.name for path in store_path.parent.iterdir()] == [store_path.name]

    def test_other_database_is_refused_and_left_as_it_is(self, store_path: Path) -> None:
        """A database of another program is neither opened nor changed."""
        connection = sqlite3.connect(store_path)
        connection.execute("CREATE TABLE mine (a)")
        connection.close()
        before = store_path.read_bytes()
        with pytest.raises(StoreOpenError, match="not a turnlog store"):
            TurnLog.open(f"sqlite:///{store_path}")
        assert store_path.read_bytes() == before

    def test_newer_version_is_refused(self, file_log: TurnLog, store_path: Path) -> None:
        """A store of a later turnlog is not guessed at."""
        file_log.close()
        connection = sqlite3.connect(store_path)
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.close()
        with pytest.raises(StoreOpenError, match=rf"version {VERSION + 1}.*upgrade turnlog"):
            TurnLog.open(f"sqlite:///{store_path}")

    def test_folder_is_refused(self, tmp_path: Path) -> None:
        """A folder is no store."""
        with pytest.raises(StoreOpenError, match="is a folder"):
            TurnLog.open(f"sqlite:///{tmp_path}")

    @pytest.mark.parametrize("create", [True, False])
    def test_file_where_a_folder_should_be_is_refused(self, tmp_path: Path, *, create: bool) -> None:
        """It is named: neither is there a store, nor can one be made."""
        (tmp_path / "log.db").touch()
        with pytest.raises(StoreOpenError, match=r"there can be no store at '.*log\.db/a/b': '.*log\.db' is a file"):
            open_store(f"sqlite:///{tmp_path}/log.db/a/b", projections=(), create=create)

    def test_empty_file_becomes_a_store(self, store_path: Path) -> None:
        """An empty file, as a temporary file is made, is a place for a store."""
        store_path.write_bytes(b"")
        with TurnLog.open(f"sqlite:///{store_path}") as log:
            assert log.turn(log.add_turn("x").id).position == 0

    def test_two_stores_in_memory_are_two(self) -> None:
        """Each `memory://` is a log of its own."""
        with TurnLog.open("memory://") as one, TurnLog.open("memory://") as two:
            one.add_turn("x")
            assert two.threads() == []


class TestTransactions:
    """Writes are one transaction each."""

    @pytest.fixture(params=["memory", "file"])
    def store(self, request: pytest.FixtureRequest) -> Store:
        """Give an empty store, once in memory and once in a file."""
        log: TurnLog = request.getfixturevalue("log" if request.param == "memory" else "file_log")
        return log.store

    def test_plan_that_raises_keeps_nothing(self, store: Store) -> None:
        """What a plan appended before it raised is gone, in the log and in the projections."""
        first, second = _append(), _append()

        def plan(transaction: WriteTransaction) -> None:
            first(transaction)
            second(transaction)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.write(plan)
        assert _count(store) == 0
        with store.read() as transaction:
            assert transaction.rows("SELECT COUNT(*) FROM threads") == [(0,)]

    def test_global_positions_have_no_gap_after_a_rollback(self, store: Store) -> None:
        """A position that was rolled back is given to the next event."""
        store.write(_append())
        append = _append()

        def plan(transaction: WriteTransaction) -> None:
            assert append(transaction).global_position == 2
            raise TurnlogError("no")

        with pytest.raises(TurnlogError):
            store.write(plan)
        assert store.write(_append()).global_position == 2

    def test_plan_sees_what_it_appended(self, store: Store) -> None:
        """Within a plan, reads see the events before."""
        append = _append()

        def plan(transaction: WriteTransaction) -> bool:
            recorded = append(transaction)
            return transaction.event(recorded.header.id) == recorded == transaction.last(TURN)

        assert store.write(plan) is True

    def test_taken_id_and_taken_position_are_outcomes(self, store: Store) -> None:
        """The keys of the log settle who was first, and `append` says what is taken."""
        first = store.write(_append())
        for changes, expected in (
            ({"id": first.header.id}, Taken.ID),
            ({"id": first.header.id, "stream": new_id(), "position": 1}, Taken.ID),
            ({"stream": first.header.id}, Taken.POSITION),
        ):
            event = new_event(topic=TURN, **changes)
            outcome = store.write(lambda transaction, event=event: transaction.append(event, NO_PAYLOAD))
            assert outcome is expected
        assert _count(store) == 1

    def test_log_cannot_be_changed_or_cut(self, store: Store) -> None:
        """SQL that would change an event is refused by the store itself."""
        store.write(_append(private={"n": 1}))
        for statement in (
            "DELETE FROM stored_events",
            "UPDATE stored_events SET state = x'00'",
            "UPDATE stored_events SET topic = 'x'",
            "UPDATE stored_events SET notification_id = 9",
            "UPDATE stored_events SET event_id = 'x'",
            "UPDATE stored_events SET leaf_hash = x'00'",
            "UPDATE stored_events SET arrival = 2",
            "UPDATE stored_events SET originator_id = 'x'",
            "UPDATE stored_events SET originator_version = 7",
        ):
            with pytest.raises(StoreError, match="append-only"):
                store.write(lambda transaction, statement=statement: transaction.run(statement))
        assert _count(store) == 1

    def test_private_part_can_be_erased_and_not_changed(self, store: Store) -> None:
        """SQL can set a private part and a payload aside, as erasing does, and not put another in its place."""
        recorded = store.write(_append(private={"n": 1}))
        for statement in (
            "UPDATE stored_events SET private = x'00'",
            "UPDATE stored_events SET private = private",
            "UPDATE stored_events SET private = x'7b7d', payload_placement = 5",
        ):
            with pytest.raises(StoreError, match="erased, not changed"):
                store.write(lambda transaction, statement=statement: transaction.run(statement))
        erase = "UPDATE stored_events SET private = NULL, payload = NULL, payload_placement = 5"
        store.write(lambda transaction: transaction.run(erase))
        with store.read() as transaction:
            found = transaction.event(recorded.header.id)
        assert found is not None
        assert found.erased
        assert found.digest == recorded.digest

    def test_plans_of_many_threads_that_fail_or_not_do_not_mix(self, store: Store) -> None:
        """In shared transactions, each caller gets its own outcome, and only what succeeded is kept."""
        outcomes: dict[int, object] = {}
        barrier = threading.Barrier(8)

        failures: dict[int, Callable[[int], Exception]] = {
            1: lambda number: TurnlogError(f"before {number}"),
            2: lambda number: TurnlogError(f"after {number}"),
            3: lambda number: ZeroDivisionError(f"bare {number}"),
        }

        def plan(number: int) -> Callable[[WriteTransaction], str]:
            append = _append()

            def run(transaction: WriteTransaction) -> str:
                if number % 4 == 1:
                    raise failures[1](number)
                recorded = append(transaction)
                if number % 4:
                    raise failures[number % 4](number)
                return recorded.header.id

            return run

        def call(name: int) -> None:
            barrier.wait()
            for number in range(name * 20, name * 20 + 20):
                try:
                    outcomes[number] = store.write(plan(number))
                except (TurnlogError, ZeroDivisionError) as error:
                    outcomes[number] = str(error)

        threads = [threading.Thread(target=call, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failed = {number: outcome for number, outcome in outcomes.items() if number % 4}
        assert failed == {number: str(failures[number % 4](number)) for number in range(160) if number % 4}
        with store.read() as transaction:
            recorded = list(transaction.log())
        assert [r.global_position for r in recorded] == list(range(1, 41))
        assert {r.header.id for r in recorded} == {outcome for number, outcome in outcomes.items() if number % 4 == 0}


class TestReading:
    """Reads are snapshots."""

    def test_snapshot_does_not_see_later_writes(self, file_log: TurnLog) -> None:
        """What is recorded while a read is open is seen by the next read."""
        file_log.add_turn("a")
        with file_log.store.read() as transaction:
            assert len(list(transaction.log())) == 2
            file_log.add_turn("b")
            assert len(list(transaction.log())) == 2
        assert _count(file_log.store) == 3

    def test_log_is_paged_without_loss(self, log: TurnLog) -> None:
        """More events than a page holds come in order, once each, from any point on, by topic too."""
        append = [_append() for _ in range(2500)]
        log.store.write(lambda transaction: [run(transaction) for run in append])
        with log.store.read() as transaction:
            assert [r.global_position for r in transaction.log()] == list(range(1, 2501))
            assert [r.global_position for r in transaction.log(999)] == list(range(1000, 2501))
            assert sum(1 for _ in transaction.log(topics=[TURN])) == 2500
            assert list(transaction.log(2500)) == []
            assert list(transaction.log(topics=["nope"])) == []

    def test_events_can_be_read_while_they_are_followed(self, log: TurnLog) -> None:
        """Other calls go on while a caller iterates over the events, which end where the log ended at the start."""
        for text in "abc":
            log.add_turn(text)
        seen: list[str] = []
        for recorded in log.events(topics=[TURN]):
            seen.append(log.turn(recorded.header.id).id)
            log.add_turn("more")
        assert len(seen) == 3
        assert _count(log.store) == 7

    def test_at_stream_and_last_find_events(self, log: TurnLog) -> None:
        """Events are found by place in a stream, by range, and as the last of a topic before a position."""
        a = log.add_turn("a")
        b = log.add_turn("b", continues=a.id)
        log.bookmarks.set("x", a.id)
        with log.store.read() as transaction:
            one = transaction.at(a.stream, 1)
            assert one is not None
            assert one.header.id == b.id
            assert transaction.at(a.stream, 2) is None
            assert transaction.at("nope", 0) is None
            assert [r.header.id for r in transaction.stream(a.stream, 0, 9)] == [a.id, b.id]
            assert transaction.stream(a.stream, 2, 1) == []
            assert [payload for _, payload in transaction.stream_payloads(a.stream, 1, 1)] == [
                b'[{"type":"text","text":"b"}]'
            ]
            last = transaction.last(TURN)
            assert last is not None
            assert last.header.id == b.id
            before = transaction.last(TURN, before=3)
            assert before is not None
            assert before.header.id == a.id
            assert transaction.last(TURN, before=2) is None

    def test_scratch_is_empty_and_apart(self, log: TurnLog) -> None:
        """The scratch database has the tables of the projections and none of their rows."""
        log.add_turn("x", bookmark="main")
        with log.store.scratch() as scratch:
            for projection in log.store.projections:
                for table in projection.tables:
                    assert scratch.rows(f"SELECT COUNT(*) FROM {table}") == [(0,)]
            scratch.run("INSERT INTO threads VALUES ('x')")
        assert log.verify().clean


class TestDurability:
    """What a connection is set to."""

    def test_every_connection_syncs_on_commit(self, file_log: TurnLog) -> None:
        """Writer and readers have `synchronous` at FULL or above, and the writer a write-ahead log."""

        def settings(transaction: WriteTransaction) -> tuple[int, str]:
            [(synchronous_,)] = transaction.rows("PRAGMA synchronous")
            [(mode,)] = transaction.rows("PRAGMA journal_mode")
            return synchronous_, mode

        synchronous_, mode = file_log.store.write(settings)
        assert synchronous_ >= 2
        assert mode == "wal"
        with file_log.store.read() as transaction:
            assert transaction.rows("PRAGMA synchronous")[0][0] >= 2

    def test_write_that_another_connection_blocks_is_busy(self, store_path: Path) -> None:
        """When another process holds the write lock for too long, nothing is written and the caller is told."""
        with TurnLog.open(f"sqlite:///{store_path}", busy_timeout_s=0.05) as log:
            other = sqlite3.connect(store_path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError, match="try again later"):
                log.add_turn("x")
            assert log.threads() == []
            other.execute("ROLLBACK")
            other.close()
            assert log.add_turn("x").global_position == 2

    @pytest.mark.parametrize("timeout_s", [0, 0.5, 1.5])
    def test_another_process_is_waited_for_as_long_as_was_said(self, store_path: Path, timeout_s: float) -> None:
        """Not less: what is waited for may come in the last moment."""
        with TurnLog.open(f"sqlite:///{store_path}", busy_timeout_s=timeout_s) as log:
            log.add_turn("x")
            with closing(sqlite3.connect(store_path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                begin = monotonic()
                with pytest.raises(StoreBusyError, match="try again later"):
                    log.add_turn("y")
                assert timeout_s - 0.1 <= monotonic() - begin
                other.execute("ROLLBACK")
            assert log.stats().turns == 1

    def test_whoever_waits_for_another_process_is_told(self, store_path: Path) -> None:
        """A store that is busy says so now and then, with the seconds that it has waited, and then goes on."""
        waited: list[float] = []

        def on_busy(seconds: float) -> None:
            waited.append(seconds)
            other.execute("ROLLBACK")

        log = TurnLog.open(f"sqlite:///{store_path}", on_busy=on_busy)
        other = sqlite3.connect(store_path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert log.add_turn("x").global_position == 2
        assert len(waited) == 1
        assert 0 < waited[0] < 60
        other.close()
        log.close()


def test_stats_measure_the_files(file_log: TurnLog, store_path: Path, tmp_path: Path) -> None:
    """Sizes are those of what was given, of what is stored, and of the files on the disk."""
    noise = os.urandom(70_000)
    (tmp_path / "noise").write_bytes(noise)
    document = file_log.add_document(tmp_path / "noise")
    file_log.add_document(tmp_path / "noise", continues=document.id)
    text = file_log.add_turn("x" * 1000)
    stats = file_log.store.stats()
    assert (stats.events, stats.payload_bytes) == (4, 140_000 + text.size)
    assert (stats.file_count, stats.file_bytes) == (1, 70_000)
    assert 0 < stats.stored_payload_bytes < 200
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("log.db*") if path.is_file())
    assert stats.disk_bytes == on_disk + 70_000
