"""A pooler before PostgreSQL: one that gives each transaction another session is refused, with nothing changed."""

from contextlib import closing

import psycopg
import pytest
from tests.servers.pooling import Pooler

from turnlog import StoreOpenError, TurnLog
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.locks import PostgresLocks
from turnlog.store.urls import is_log_there


def test_a_log_behind_a_pooler_that_changes_sessions_is_refused(postgres_url: str) -> None:
    """Two runs could both have one lock there. The sessions of others are left as they were."""
    with Pooler(postgres_url, keeps_sessions=False) as pooler:
        for _ in range(2):
            with pytest.raises(StoreOpenError, match="gives each transaction another session of the server"):
                TurnLog.open(pooler.url)
        with pytest.raises(StoreOpenError, match="pool_mode = session"):
            PostgresLocks(Address(pooler.url)).take("turn")
        with closing(psycopg.connect(pooler.url, autocommit=True)) as connection:
            assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',)
    assert not is_log_there(postgres_url)


def test_a_log_behind_a_pooler_with_one_session_is_refused(postgres_url: str) -> None:
    """Nothing waits for an answer on the connection whose session another one has."""
    said = "gives each transaction another session of the server"
    with (
        Pooler(postgres_url, keeps_sessions=False, sessions_max=1) as pooler,
        pytest.raises(StoreOpenError, match=said),
    ):
        TurnLog.open(pooler.url)
    assert not is_log_there(postgres_url)


def test_a_log_behind_a_pooler_that_keeps_sessions_works(postgres_url: str) -> None:
    """As if there were none."""
    with Pooler(postgres_url, keeps_sessions=True) as pooler, TurnLog.open(pooler.url) as log:
        turn = log.add_turn("root", bookmark="main")
        assert log.turn("main").id == turn.id
        release = log.store.locks.take("turn")
        with TurnLog.open(postgres_url) as other:
            assert other.store.locks.take("turn") is None
            assert release is not None
            release()
            assert other.store.locks.take("turn") is not None
        assert log.verify().clean
