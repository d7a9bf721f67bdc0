"""Folding on PostgreSQL without waiting for each statement gives what folding with it gives, whatever a fold does."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from turnlog import TurnLog
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.postgres_ahead import AheadConnection, NotAheadError, answers, only_writes
from turnlog.feeds.postgres_target import PostgresTarget
from turnlog.feeds.projection import Projection, Status
from turnlog.feeds.runner import Runner

EVENTS = 5
NUMBERS = 4

INSERT = b"INSERT INTO numbers VALUES (%s)"
UPSERT = b"INSERT INTO numbers VALUES (%s) ON CONFLICT (n) DO UPDATE SET times = numbers.times + 1"

Cursor = psycopg.Cursor[Any]
Step = Callable[[Cursor, int], object]
"""What a fold does with a number; it returns what it learns by that."""


def _insert(db: Cursor, n: int) -> None:
    db.execute(INSERT, (n,))


def _upsert(db: Cursor, n: int) -> None:
    db.execute(UPSERT, (n,))


def _counted(db: Cursor, n: int) -> object:
    db.execute(UPSERT, (n,))
    return db.execute(b"UPDATE numbers SET times = times + 1 WHERE n <= %s", (n,)).rowcount


def _told(db: Cursor, n: int) -> object:
    db.execute(UPSERT, (n,))
    return db.execute(b"DELETE FROM numbers WHERE n < %s", (n,)).statusmessage


def _selected(db: Cursor, n: int) -> object:
    db.execute(UPSERT, (n,))
    return db.execute(b"SELECT n, times FROM numbers WHERE n >= %s ORDER BY n", (n,)).fetchall()


def _iterated(db: Cursor, n: int) -> object:
    return list(db.execute(b"WITH found AS (SELECT n FROM numbers) SELECT n + %s FROM found ORDER BY 1", (n,)))


def _returned(db: Cursor, n: int) -> object:
    db.execute(UPSERT, (n,))
    return db.execute(UPSERT + b" RETURNING times", (n,)).fetchone()


def _many(db: Cursor, n: int) -> object:
    db.execute(UPSERT, (n,))
    db.executemany(UPSERT, [(each,) for each in range(n)])
    return db.rowcount


def _elsewhere(db: Cursor, n: int) -> object:
    with db.connection.cursor() as other:
        other.execute(UPSERT, (n,))
        db.execute(UPSERT, (n + 1,))
        return other.execute(b"SELECT COUNT(*) FROM numbers").fetchone(), db.rowcount


def _composed(db: Cursor, n: int) -> None:
    db.execute(sql.SQL("UPDATE {} SET times = times + %s").format(sql.Identifier("numbers")), (n,))


def _swallowed(db: Cursor, n: int) -> object:
    try:
        db.execute(INSERT, (n,))
    except errors.UniqueViolation:
        return "it was there"
    return "it is new"


def _saved(db: Cursor, n: int) -> object:
    try:
        with db.connection.transaction():
            db.execute(INSERT, (n,))
    except errors.UniqueViolation:
        return "it was there"
    return "it is new"


def _savepoint(db: Cursor, n: int) -> object:
    db.execute(b"SAVEPOINT before")
    try:
        db.execute(INSERT, (n,))
    except errors.UniqueViolation:
        db.execute(b"ROLLBACK TO before")
        return "it was there"
    return "it is new"


def _back(db: Cursor, n: int) -> None:
    """Go back to a savepoint of another event, whoever's error it is."""
    try:
        _insert(db, n)
        db.execute(b"SAVEPOINT another")
    except psycopg.Error:
        db.execute(b"ROLLBACK TO before")


def _copied(db: Cursor, n: int) -> None:
    with db.copy(b"COPY copies FROM STDIN") as copy:
        copy.write_row((n,))


def _copied_if_it_can(db: Cursor, n: int) -> None:
    with suppress(Exception):
        _copied(db, n)


def _streamed(db: Cursor, n: int) -> object:
    return list(db.stream(b"SELECT n + %s FROM numbers ORDER BY n", (n,)))


def _two(db: Cursor, n: int) -> None:
    db.execute(f"INSERT INTO copies VALUES ({n}); INSERT INTO copies VALUES ({n + 1})".encode())


def _misspelt(db: Cursor, _: int) -> None:
    db.execute(b"INSERT INTO nothing VALUES (1)")


def _raised(_db: Cursor, n: int) -> None:
    raise ValueError(f"no {n}")


USUAL: tuple[Step, ...] = (_upsert, _counted, _told, _selected, _iterated, _returned, _many, _elsewhere, _composed)
"""What is done ahead."""

RARE: tuple[Step, ...] = (
    _insert,
    _swallowed,
    _saved,
    _savepoint,
    _back,
    _copied,
    _copied_if_it_can,
    _streamed,
    _two,
    _misspelt,
    _raised,
)
"""What may fail, or is refused ahead."""

Program = Mapping[int, list[tuple[Step, int]]]
"""The steps of the fold of each event, by its position."""


class Steps(Projection):
    """Does what a program says, and keeps what was learned by that."""

    name = "acme.steps"
    schema = (
        "CREATE TABLE numbers (n integer PRIMARY KEY, times integer DEFAULT 1)",
        "CREATE TABLE copies (n integer)",
        "CREATE TABLE learned (position integer, number integer, what text, PRIMARY KEY (position, number))",
    )
    tables = ("numbers", "copies", "learned")

    def __init__(self, program: Program) -> None:
        """Take the steps."""
        self._program = program
        self.modes: list[bool] = []

    def fold(self, db: Cursor, event: LogEvent) -> None:
        """Do the steps of an event."""
        assert isinstance(db.connection, AheadConnection)
        self.modes.append(db.connection.is_ahead)
        for number, (step, n) in enumerate(self._program.get(event.global_position, ())):
            learned = repr(step(db, n))
            db.execute(b"INSERT INTO learned VALUES (%s, %s, %s)", (event.global_position, number, learned))


@pytest.fixture(scope="module")
def log() -> Iterator[TurnLog]:
    """Give a log of some events."""
    with TurnLog.open("memory://") as log:
        for number in range(EVENTS - 1):
            log.add_turn(str(number))
        yield log


def fold(log: TurnLog, url: str, program: Program, *, ahead: bool) -> tuple[object, list[Status], list[bool]]:
    """Fold the log into new tables, and return what these have, how it went, and in which modes events were folded."""
    schema = f"views_{'ahead' if ahead else 'waiting'}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
    target = Ahead(url, schema) if ahead else Waiting(url, schema)
    given = Steps(program)
    # What pauses is found while tables are built as well as later.
    statuses = [*Runner(log.store, target, [given]).run(), *Runner(log.store, target, [given]).run()]
    with target.reader() as db:
        tables = [db.execute(f"SELECT * FROM {table} ORDER BY 1, 2 NULLS FIRST".encode()).fetchall() for table in WIDE]
        tables.append(db.execute(b"SELECT n FROM copies ORDER BY 1").fetchall())
    target.close()
    return tables, statuses, given.modes


WIDE = ("numbers", "learned")


class Ahead(PostgresTarget):
    """A target as it is."""


class Waiting(PostgresTarget):
    """A target that waits for each statement."""

    can_be_ahead = False


def programs(*steps: Step) -> st.SearchStrategy[Program]:
    """Make programs of steps."""
    step = st.tuples(st.sampled_from(steps), st.integers(0, NUMBERS))
    return st.dictionaries(st.integers(1, EVENTS), st.lists(step, max_size=4))


@settings(max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(*USUAL))
def test_what_is_folded_ahead_is_what_is_folded_statement_by_statement(
    log: TurnLog, kept_postgres_url: str, program: Program
) -> None:
    """Whoever asks for rows, or how many there were, has them; and each event is folded once."""
    ahead = fold(log, kept_postgres_url, program, ahead=True)
    assert ahead[:2] == fold(log, kept_postgres_url, program, ahead=False)[:2]
    assert ahead[2] == [True] * EVENTS


@settings(max_examples=settings().max_examples * 2 // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(*USUAL, *RARE))
def test_what_fails_ahead_is_folded_statement_by_statement(
    log: TurnLog, kept_postgres_url: str, program: Program
) -> None:
    """The tables are those of before the event that cannot be folded, which is named."""
    ahead = fold(log, kept_postgres_url, program, ahead=True)
    assert ahead[:2] == fold(log, kept_postgres_url, program, ahead=False)[:2]


@pytest.mark.parametrize("step", RARE, ids=lambda step: step.__name__)
def test_step_that_cannot_be_done_ahead(log: TurnLog, kept_postgres_url: str, step: Step) -> None:
    """Twice, so that an insert fails, and behind a statement that fails."""
    for first in (_upsert, _savepoint, _misspelt):
        program: Program = {2: [(first, 1)], 3: [(_insert, 2), (step, 1)], 4: [(step, 1), (_selected, 0)]}
        ahead = fold(log, kept_postgres_url, program, ahead=True)
        assert ahead[:2] == fold(log, kept_postgres_url, program, ahead=False)[:2], first
        assert ahead[2][0] is True
        assert False in ahead[2]


def test_error_is_found_behind_a_thousand_rows(kept_postgres_url: str) -> None:
    """The event is named that it is of, and all before it is kept."""
    with TurnLog.open("memory://") as log:
        with log.group() as group:
            turns = [group.add_turn(str(number)) for number in range(1_500)]
        program: Program = {position: [(_insert, position)] for position in range(1, 1_501)} | {1_300: [(_insert, 7)]}
        (numbers, _, _), [status, _], modes = fold(log, kept_postgres_url, program, ahead=True)
    assert isinstance(numbers, list)
    assert (len(numbers), status.position, status.paused_event) == (1_299, 1_299, turns[1_298])
    assert status.error is not None
    assert "duplicate key" in status.error
    # The first page went ahead, and only the second was folded again.
    assert modes[:1_000] == [True] * 1_000
    assert modes.count(False) == 300 + 299


def test_rows_are_those_of_the_last_statement(kept_postgres_url: str) -> None:
    """Though answers to what was written before come in just then: the server sends them when it has many."""
    target = PostgresTarget(kept_postgres_url, "many")
    with target.transaction() as db:
        db.execute(b"CREATE TEMP TABLE numbers (n integer)")
        with target.ahead(db):
            db.execute(b"INSERT INTO numbers SELECT 0 FROM pg_sleep(0.3)")
            for number in range(1, 1_000):
                db.execute(INSERT, (number,))
            time.sleep(0.6)
            assert db.execute(b"SELECT COUNT(*) FROM numbers").fetchall() == [(1_000,)]
    target.close()


def test_nothing_can_end_the_transaction_ahead(kept_postgres_url: str) -> None:
    """Whoever swallows that has refused all the same."""
    target = PostgresTarget(kept_postgres_url, "refused")
    connection = target.connect()
    tries: list[Callable[[], object]] = [
        connection.commit,
        connection.rollback,
        lambda: connection.transaction().__enter__(),
        *(
            lambda statement=statement: connection.execute(statement)
            for statement in (b"COMMIT", b" -- x\nCOMMIT", b"end", b"SAVEPOINT s", b"ROLLBACK TO s", b"CALL p()", b"")
        ),
        lambda: connection.cursor().executemany(b"SELECT %s", [(1,)]),
    ]
    for attempt in tries:
        connection.execute(b"BEGIN")
        with pytest.raises(NotAheadError), connection.ahead():  # noqa: PT012 - it is raised on leaving, too
            with pytest.raises(NotAheadError):
                attempt()
            connection.execute(b"SELECT 1")
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        connection.execute(b"ROLLBACK")
    connection.close()
    target.close()


@pytest.mark.parametrize(
    ("statement", "writes", "is_answered"),
    [
        ("INSERT INTO t VALUES (1)", True, True),
        (b"\n update t SET x = 1", True, True),
        ("DELETE FROM t", True, True),
        ("MERGE INTO t USING u ON true WHEN MATCHED THEN DO NOTHING", True, True),
        ("INSERT INTO t VALUES (1)\nreturning x", False, True),
        ("INSERTED", False, False),
        ("SELECT 1", False, True),
        ("WITH x AS (DELETE FROM t RETURNING 1) SELECT 1", False, True),
        ("COMMIT", False, False),
        ("/* */ INSERT INTO t VALUES (1)", False, False),
        (None, False, False),
    ],
)
def test_statements_are_told_apart_by_how_they_begin(statement: object, writes: bool, is_answered: bool) -> None:
    """What is not known is refused, and then done without."""
    assert (only_writes(statement), answers(statement)) == (writes, is_answered)
