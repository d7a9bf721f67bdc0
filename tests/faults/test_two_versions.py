"""Processes of two versions on one store: the older one notices what the newer one did to it, and stops writing."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from turnlog import TurnLog
from turnlog.errors import SchemaError, StoreOpenError
from turnlog.events import Recorded
from turnlog.projections import BookmarkHeads, synchronous
from turnlog.store import FoldTransaction, Store, SyncProjection, open_store
from turnlog.store.postgres import store as postgres_store
from turnlog.store.sqlite import rebuild
from turnlog.store.urls import is_postgres, parse_url
from turnlog.testing.faults import ProcessFailedError, run_process, run_processes
from turnlog.testing.harness import Places, folded_anew, projected

BEFORE = 30
"""Events that the older process has appended before the newer one comes."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a store that is not there yet."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/log.db"


class LaterBookmarkHeads(BookmarkHeads):
    """A later version of a projection: it remembers one thing more."""

    version = BookmarkHeads.version + 1
    schema = (
        "CREATE TABLE bookmarks (name TEXT PRIMARY KEY, turn_id TEXT NOT NULL, moved_by TEXT NOT NULL,"
        " set_by_event INTEGER NOT NULL, moves BIGINT NOT NULL DEFAULT 1)",
        "CREATE INDEX bookmarks_set_on_turn ON bookmarks (turn_id) WHERE set_by_event = 1",
    )

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Fold as before, into the columns that were there before."""
        super().apply(_FirstColumns(transaction), recorded)


class _FirstColumns:
    def __init__(self, transaction: FoldTransaction) -> None:
        self._transaction = transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def run(self, statement: str, parameters: tuple[object, ...] = ()) -> None:
        columns = "bookmarks (name, turn_id, moved_by, set_by_event) VALUES"
        self._transaction.run(statement.replace("bookmarks VALUES", columns), parameters)


def _more() -> list[SyncProjection]:
    return [*synchronous(), Places()]


def _later() -> list[SyncProjection]:
    return [LaterBookmarkHeads() if type(each) is BookmarkHeads else each for each in synchronous()]


def _open_newer(url: str, kind: str) -> Store:
    return open_store(url, projections=_more() if kind == "more" else _later())


def _append_until_refused(url: str, process: int) -> dict[str, Any]:
    """Be of the older version: append until that is refused, and then read on."""
    acknowledged: list[str] = []
    with TurnLog.open(url) as log:
        name = f"process {process}"
        try:
            # It may come later than the newer one.
            acknowledged.append(log.add_turn("0", bookmark=name).id)
            while True:
                acknowledged.append(log.add_turn(str(len(acknowledged)), continues=name).id)
        except SchemaError as error:
            refused = str(error)
        again = None
        try:
            log.add_turn("again")
        except SchemaError as error:
            again = str(error)
        # What the newer one appends is read; its first event is waited for.
        end = log.wait(0)
        while not any(found.header.topic == "acme.newer" for found in log.events()):
            end = log.wait(end)
        return {
            "acknowledged": acknowledged,
            "refused": refused,
            "again": again,
            "texts": len(log.context(name).messages) if acknowledged else 0,
            "reopened": _reopened(url),
        }


def _reopened(url: str) -> str:
    """Tell what a process of the older version is told that opens the store now, and appends."""
    try:
        with TurnLog.open(url, create=False) as log:
            log.add_turn("later")
    except (SchemaError, StoreOpenError) as error:
        return str(error)
    return "recorded"


def _upgrade(url: str, kind: str) -> dict[str, Any]:
    """Be of the newer version: come while others append, and go on from there."""
    with TurnLog.open(url) as log:
        end = log.wait(0)
        while end < BEFORE:
            end = log.wait(end)
    store = _open_newer(url, kind)
    with TurnLog(store) as log:
        at = log.add_event("acme.newer").global_position
        return {
            "at": at,
            "same": projected(store) == folded_anew(store),
            "schema": store.check_schema(),
            "turns": [recorded.header.id for recorded in log.events(topics=["gpt.turn"])],
        }


@pytest.mark.parametrize("kind", ["more", "later"])
def test_older_processes_stop_writing_when_a_newer_one_comes(url: str, kind: str) -> None:
    """Each append of the older ones is in what the newer one built, or was refused; they read on, and write no more."""
    *older, newer = run_processes(
        [*((_append_until_refused, (url, process)) for process in range(3)), (_upgrade, (url, kind))]
    )
    acknowledged = {turn_id for found in older for turn_id in found["acknowledged"]}
    assert set(newer["turns"]) == acknowledged
    assert (newer["same"], newer["schema"]) == (True, [])
    assert newer["at"] == len(acknowledged) + 2
    for found in older:
        assert ("was written by a newer turnlog" in found["reopened"]) == (kind == "later")
        for told in (found["refused"], found["again"], *([] if kind == "later" else [found["reopened"]])):
            assert "was changed by another version of turnlog" in told
            assert "upgrade turnlog; nothing was recorded" in told
        assert found["texts"] == len(found["acknowledged"])
    store = _open_newer(url, kind)
    assert projected(store) == folded_anew(store)
    with store.read() as transaction:
        assert transaction.log_end() == newer["at"]
    store.close()


def _die_while_building(url: str) -> None:
    """Be of the newer version, and be killed when all is built but for the commit."""
    module: Any = postgres_store if is_postgres(url) else rebuild
    replace = module.replace_tables

    def replace_and_die(*arguments: Any) -> None:
        replace(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    module.replace_tables = replace_and_die
    open_store(url, projections=_more())


def test_newer_process_that_is_killed_while_it_builds_changes_nothing(url: str) -> None:
    """A projection is there as a whole or not at all: until then older processes go on."""
    with TurnLog.open(url) as log:
        log.add_turn("before", bookmark="main")
        for _ in range(2):
            with pytest.raises(ProcessFailedError, match="-9"):
                run_process(_die_while_building, url)
            log.add_turn("goes on", continues="main")
            assert log.store.check_schema() == []
            assert log.verify().damage == ()
        store = open_store(url, projections=_more())
        assert projected(store) == folded_anew(store)
        assert len(projected(store)["places"]) == 4
        store.close()
        with pytest.raises(SchemaError):
            log.add_turn("too late", continues="main")


def _migrate(url: str) -> None:
    """Do to a store what a turnlog whose tables are of the next version does."""
    if is_postgres(url):
        with psycopg.connect(url) as server:
            server.execute("ALTER TABLE turnlog.stored_events ADD COLUMN sealed_with text")
            server.execute("UPDATE turnlog.store_state SET version = 3, epoch = epoch + 1")
        return
    path = parse_url(url)
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ALTER TABLE stored_events ADD COLUMN sealed_with TEXT")
        connection.execute("PRAGMA user_version = 3")
        connection.execute("COMMIT")


def test_open_store_notices_a_migration(url: str) -> None:
    """A process that has a store open reads on after another one has migrated it, and refuses to write."""
    with TurnLog.open(url) as log:
        turn = log.add_turn("before", bookmark="main")
        run_process(_migrate, url)
        for _ in range(2):
            with pytest.raises(SchemaError, match="another version of turnlog"):
                log.add_turn("after", continues="main")
        assert log.turn("main") == turn
        assert len(log.context("main").messages) == 1
        with pytest.raises(SchemaError):
            log.bookmarks.set("other", "main")
        assert [flaw for flaw in log.store.check_schema() if "version is 3" in flaw] != []
    with pytest.raises(StoreOpenError, match=r"version 3.*upgrade turnlog"):
        TurnLog.open(url)


def _renamed(url: str) -> None:
    """Do to a store what a turnlog does whose projection is of a later version, and has other columns."""
    statements = (
        "ALTER TABLE {}bookmarks RENAME COLUMN turn_id TO id_of_turn",
        "UPDATE {}store_projections SET version = 99 WHERE name = 'bookmark heads'",
    )
    if is_postgres(url):
        with psycopg.connect(url) as server:
            for statement in statements:
                server.execute(statement.format("turnlog.").encode())
        return
    path = parse_url(url)
    assert path is not None
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement.format(""))


def test_a_store_with_a_newer_projection_is_not_opened(url: str) -> None:
    """Nor are its tables built anew: what was of a later version is as it was."""
    newer = r"was written by a newer turnlog: its bookmark heads are of version 99, .*: upgrade turnlog$"
    with TurnLog.open(url) as log:
        log.add_turn("before", bookmark="main")
        run_process(_renamed, url)
        with pytest.raises(StoreOpenError, match=newer):
            log.store.rebuild()
    for _ in range(2):
        with pytest.raises(StoreOpenError, match=newer):
            TurnLog.open(url)


def _open_and_append(url: str, process: int, kind: str) -> list[str]:
    """Open a store, of which others make or upgrade the tables at this moment, and append."""
    store = open_store(url, projections=synchronous()) if kind == "new" else _open_newer(url, kind)
    with TurnLog(store) as log:
        return [log.add_turn(f"{process}", bookmark=f"{process}").id, *store.check_schema()]


@pytest.mark.parametrize("kind", ["new", "more", "later"])
def test_many_processes_open_a_store_at_once(url: str, kind: str) -> None:
    """All make it, or bring it up to date, and it comes out right, with an event of each."""
    if kind != "new":
        with TurnLog.open(url) as log:
            for number in range(5):
                log.add_turn("before", bookmark=f"before {number}")
    found = run_processes([(_open_and_append, (url, process, kind)) for process in range(6)])
    assert [len(each) for each in found] == [1] * 6
    store = open_store(url, projections=synchronous()) if kind == "new" else _open_newer(url, kind)
    assert projected(store) == folded_anew(store)
    with TurnLog(store) as log:
        assert {turn_id for [turn_id] in found} <= {event.header.id for event in log.events(topics=["gpt.turn"])}
        assert log.verify().damage == ()
