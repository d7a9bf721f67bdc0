"""Positions on PostgreSQL against a model: random schedules of small steps of writers, settlers and followers.

The functions of the store run as they are, but for points in them where they wait until they are told to go on. One
test driver advances one connection at a time, from point to point, so that a schedule depends on a number alone. The
same schedules find functions that were made wrong on purpose.
"""

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import pq
from tests.servers.postgres import Postgres
from tests.soak import SOAK

from turnlog.store.postgres.schema import FUNCTIONS, making

SCHEDULES = 600 if SOAK else 20
WRONG_SCHEDULES_MAX = 200
WRITERS, SETTLERS = 3, 2
_POINT = "PERFORM public.point();"

_Actor = Generator[str, list[tuple[str | None, ...]], None]
"""Gives statements, and is given their rows."""
_Changes = Mapping[str, Sequence[tuple[str, str]]]
"""By function, texts and what they become."""

_POINTS: _Changes = {
    "log_append": (
        ("number := nextval('log_numbers');", f"number := nextval('log_numbers'); {_POINT}"),
        ("\n        AND number > COALESCE", "\n        AND public.point() AND number > COALESCE"),
        ("  IF cardinality(ids) = 1 THEN", f"  {_POINT} IF cardinality(ids) = 1 THEN"),
        ("  RETURN number;", f"  {_POINT} RETURN number;"),
    ),
    "log_settle_now": (
        ("  last_position := COALESCE", f"  {_POINT} last_position := COALESCE"),
        ("  FOR number IN", f"  {_POINT} FOR number IN"),
        ("      dead := number;", f"      dead := number; {_POINT}"),
        ("  IF dead > passed THEN", f"  {_POINT} IF dead > passed THEN"),
        ("  INSERT INTO log_order", f"  {_POINT} INSERT INTO log_order"),
        ("  RETURN last_position + added;", f"  {_POINT} RETURN last_position + added;"),
    ),
    "log_position": (
        ("    SELECT count(*), count(*)", f"    {_POINT} SELECT count(*), count(*)"),
        ("    IF has_waited THEN", f"    {_POINT} IF has_waited THEN"),
        ("        PERFORM pg_advisory_xact_lock_shared(", f"        {_POINT} PERFORM pg_advisory_xact_lock_shared("),
    ),
}

_ANY_ISOLATION = (
    "  IF current_setting('transaction_isolation') <> 'read committed' ",
    "  IF current_setting('transaction_isolation') = 'no such' ",
)
_LOOK = " AND number > COALESCE(pg_sequence_last_value('log_passed'), 0)"
WRONG: Mapping[str, _Changes] = {
    "who appends does not look whether its number was passed over": {
        "log_append": ((f"public.point(){_LOOK};", "true;"),)
    },
    "who appends looks before it has the lock": {
        "log_append": (
            (
                "EXIT WHEN pg_try",
                "EXIT WHEN number > COALESCE(pg_sequence_last_value('log_passed'), 0)\n"
                "        AND public.point() AND pg_try",
            ),
            (f"\n        AND public.point(){_LOOK};", ";"),
        )
    },
    "who appends takes no lock": {
        "log_append": (("EXIT WHEN pg_try_advisory_xact_lock(", "EXIT WHEN 0 <= ("),),
    },
    "who settles reads by an old snapshot": {
        "log_settle_now": (_ANY_ISOLATION,),
        "log_settle": (_ANY_ISOLATION,),
    },
    "who settles does not say what was passed over": {
        "log_settle_now": (("    PERFORM setval('log_passed', dead);", "    NULL;"),),
    },
    "who settles goes on where a writer is still at it": {
        "log_settle_now": (("      bound := (number << 20) - 1;\n      EXIT;", "      NULL;"),),
    },
    "who settles does not see to it that nobody else does": {
        "log_settle_now": (("  PERFORM pg_advisory_xact_lock(", "  PERFORM pg_advisory_xact_lock_shared("),),
    },
    "who counts a position does not look for numbers without events": {
        "log_position": (("    IF numbers = ", "    IF numbers <= "),),
    },
}


class _FoundError(Exception):
    """Something is not as the model says."""


def _changed(functions: dict[str, str], changes: _Changes) -> dict[str, str]:
    for name, pairs in changes.items():
        for text, new in pairs:
            assert functions[name].count(text) == 1, (name, text)
            functions[name] = functions[name].replace(text, new)
    return functions


_PREPARE = """\
CREATE FUNCTION public.point() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  actor integer := NULLIF(current_setting('point.actor'), '')::integer;
  side integer;
BEGIN
  IF actor IS NULL THEN
    RETURN true;
  END IF;
  side := nextval('public.points_' || actor) % 2;
  PERFORM pg_advisory_lock_shared(7000 + actor, side);
  PERFORM pg_advisory_unlock_shared(7000 + actor, side);
  RETURN true;
END $$"""


class _Runner:
    """One connection, and what it is to do. It stands still at points, until `advance`."""

    def __init__(self, url: str, number: int, driver: psycopg.Connection[Any]) -> None:
        self._number = number
        self._driver = driver
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(f"SET point.actor = {number}".encode())
        self._connection.execute("SET search_path = turnlog")
        self._pid = self._connection.info.backend_pid
        self._pg = self._connection.pgconn
        driver.execute(f"CREATE SEQUENCE public.points_{number} MINVALUE 0 START 0".encode())
        driver.execute("SELECT pg_advisory_lock(%s, 0)", (7000 + number,))
        self._side = 0
        self._actor: _Actor | None = None
        self._next = ""
        self._is_running = False

    def begin(self, actor: _Actor) -> None:
        self._actor, self._next = actor, next(actor)

    @property
    def is_done(self) -> bool:
        return self._actor is None

    def advance(self) -> bool:
        """Go on to the next point, or to the end of a statement. False: it waits for others."""
        if not self._is_running:
            self._pg.send_query(self._next.encode())
            self._is_running = True
        elif self._comes_to_rest():
            self._take()
            return True
        elif self._waits_at_point():
            kept, self._side = self._side, 1 - self._side
            self._driver.execute(
                "SELECT pg_advisory_lock(%s, %s), pg_advisory_unlock(%s, %s)",
                (7000 + self._number, self._side, 7000 + self._number, kept),
            )
        else:
            return False
        if self._comes_to_rest():
            self._take()
        return True

    def _comes_to_rest(self) -> bool:
        """Let it run until its statement has ended (true), or it waits at a point or for others."""
        while not self._has_ended():
            if self._waits():
                return False
        return True

    def _waits(self) -> bool:
        """Tell whether it waits for a lock: a point is one too."""
        return bool(
            self._driver.execute("SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", (self._pid,)).fetchall()
        )

    def _waits_at_point(self) -> bool:
        return bool(
            self._driver.execute(
                "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted AND locktype = 'advisory' AND classid = %s"
                " AND objid = %s",
                (self._pid, 7000 + self._number, self._side),
            ).fetchall()
        )

    def _has_ended(self) -> bool:
        self._pg.consume_input()
        return not self._pg.is_busy()

    def _take(self) -> None:
        rows: list[tuple[str | None, ...]] = []
        while (result := self._pg.get_result()) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise _FoundError(f"{self._next}: {result.get_error_message()}")
            rows = [
                tuple(
                    None if (value := result.get_value(row, column)) is None else value.decode()
                    for column in range(result.nfields)
                )
                for row in range(result.ntuples)
            ]
        self._is_running = False
        assert self._actor is not None
        try:
            self._next = self._actor.send(rows)
        except StopIteration:
            self._actor = None

    def close(self) -> None:
        self._connection.close()


class _Model:
    """What must be: which events are committed, and what readers have seen."""

    def __init__(self) -> None:
        self.committed: set[str] = set()
        self.acknowledged: dict[str, int] = {}
        self.seen: list[tuple[int, str, int]] = []
        self.counts = dict.fromkeys(("events", "aborted", "passed"), 0)
        self._ids = 0

    def new_ids(self, count: int) -> list[str]:
        self._ids += count
        return [f"e{number}" for number in range(self._ids - count, self._ids)]

    def see(self, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            position, event_id, key = int(row[0]), str(row[1]), int(row[2])
            if position != len(self.seen) + 1:
                raise _FoundError(f"position {position} comes after {len(self.seen)}")
            if self.seen and key <= self.seen[-1][2]:
                raise _FoundError(f"event {event_id} comes after a later one")
            if event_id not in self.committed:
                raise _FoundError(f"event {event_id} is seen, and was never committed")
            self.seen.append((position, event_id, key))

    def check_end(self) -> None:
        at = {event_id: position for position, event_id, _ in self.seen}
        if at.keys() != self.committed:
            raise _FoundError(f"never seen: {sorted(self.committed - at.keys())}")
        wrong = {event_id for event_id, position in self.acknowledged.items() if at[event_id] != position}
        if wrong:
            raise _FoundError(f"acknowledged at other positions: {sorted(wrong)}")


def _append(ids: Sequence[str], number: str, first: int) -> str:
    quoted = [f"'{event_id}'" for event_id in ids]
    rows = [(name, name, "0", "'gpt.turn'", "''", "''", "0", "NULL", "0", "NULL") for name in quoted]
    kinds = ("text", "text", "bigint", "text", "bytea", "bytea", "smallint", "bytea", "smallint", "bytea")
    arrays = [
        f"ARRAY[{','.join(column)}]::{kind}[]" for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    return f"SELECT log_append({number}, {first}, NULL, {', '.join(arrays)})"


def _writer(source: random.Random, model: _Model) -> _Actor:
    for _ in range(source.choice([1, 2, 3])):
        if source.random() < 0.5:
            yield "BEGIN ISOLATION LEVEL REPEATABLE READ"
            yield "LOCK TABLE log_gate IN ROW EXCLUSIVE MODE"
        else:
            yield "BEGIN"
        [(before,)] = yield "SELECT COALESCE(max(order_key), 0) FROM stored_events"
        ids = model.new_ids(source.choice([1, 1, 2]))
        [(number,)] = yield _append(ids, "NULL", 0)
        if int(number or 0) <= int(before or 0) >> 20:
            raise _FoundError(f"number {number} is not above what its plan saw")
        if source.random() < 0.2:
            more = model.new_ids(1)
            yield _append(more, str(number), len(ids))
            ids += more
        if source.random() < 0.3:
            model.counts["aborted"] += 1
            yield "ROLLBACK"
            continue
        model.committed.update(ids)
        yield "COMMIT"
        if source.random() < 0.7:
            [(position,)] = yield f"SELECT log_position('{ids[0]}')"
            model.acknowledged |= {event_id: int(position or 0) + place for place, event_id in enumerate(ids)}


def _settler(source: random.Random, model: _Model, begin: str) -> _Actor:
    for _ in range(4):
        yield begin
        yield "SELECT log_settle()"
        yield "COMMIT" if source.random() < 0.8 else "ROLLBACK"


def _follower(source: random.Random, model: _Model) -> _Actor:
    for _ in range(8):
        rows = yield (
            "SELECT notification_id, event_id, order_key FROM log_events"
            f" WHERE notification_id > {len(model.seen)} ORDER BY notification_id LIMIT {source.choice([1, 3, 100])}"
        )
        model.see(rows)


@contextmanager
def _log(postgres: Postgres, changes: _Changes) -> Iterator[Callable[[int], _Model]]:
    """Give what runs the schedule of a number on a log with changed functions, and returns what the model then is."""
    url = postgres.create_database()
    changed = _changed(_changed(dict(FUNCTIONS), _POINTS), changes)
    runners: list[_Runner] = []
    with closing(psycopg.connect(url, autocommit=True)) as driver:
        try:
            driver.execute("CREATE SCHEMA turnlog")
            driver.execute("SET search_path = turnlog")
            driver.execute("SELECT set_config('point.actor', '', false)")
            driver.execute(_PREPARE)
            functions = {text: changed[name] for name, text in FUNCTIONS.items()}
            for statement in making(()):
                driver.execute(functions.get(statement, statement).encode())
            driver.execute("INSERT INTO store_state VALUES (1, 2, 0, '{}', '')")
            runners = [_Runner(url, number, driver) for number in range(WRITERS + SETTLERS + 1)]
            begin = (
                "BEGIN ISOLATION LEVEL REPEATABLE READ" if _ANY_ISOLATION in changes.get("log_settle", ()) else "BEGIN"
            )
            yield lambda number: _run(number, driver, runners, begin)
        finally:
            for runner in runners:
                runner.close()
            postgres.drop_database(url)


def _run(number: int, driver: psycopg.Connection[Any], runners: Sequence[_Runner], begin: str) -> _Model:
    source, model = random.Random(number), _Model()
    driver.execute("SET session_replication_role = replica")
    driver.execute("TRUNCATE stored_events, log_order")
    driver.execute("ALTER SEQUENCE log_numbers RESTART")
    driver.execute("ALTER SEQUENCE log_passed RESTART")
    for place, runner in enumerate(runners):
        if place < WRITERS:
            runner.begin(_writer(source, model))
        else:
            runner.begin(_settler(source, model, begin) if place < WRITERS + SETTLERS else _follower(source, model))
    while waiting := [runner for runner in runners if not runner.is_done]:
        source.shuffle(waiting)
        for runner in waiting:
            if runner.advance():
                for _ in range(source.choice([0, 1, 4, 20])):
                    if runner.is_done or not runner.advance():
                        break
                break
        else:
            raise _FoundError("all wait for each other")
    return _ended(driver, model)


def _ended(driver: psycopg.Connection[Any], model: _Model) -> _Model:
    """Settle what is left, read to the end, and compare."""
    driver.execute("SELECT log_settle()")
    model.see(
        driver.execute(
            "SELECT notification_id, event_id, order_key FROM log_events WHERE notification_id > %s ORDER BY 1",
            (len(model.seen),),
        ).fetchall()
    )
    again = driver.execute("SELECT notification_id, event_id, order_key FROM log_events ORDER BY 1").fetchall()
    if again != model.seen:
        raise _FoundError("read again, the order is another one")
    model.check_end()
    model.counts["events"] = len(again)
    [(model.counts["passed"],)] = driver.execute("SELECT COALESCE(pg_sequence_last_value('log_passed'), 0)").fetchall()
    return model


@pytest.mark.timeout(1800 if SOAK else 120)
def test_followers_miss_nothing_whatever_the_order_of_commits(postgres: Postgres) -> None:
    """Writers that commit out of order, abort and stand still; each event is seen once, and stays where it was."""
    counts: Counter[str] = Counter()
    with _log(postgres, {}) as run:
        for number in range(SCHEDULES):
            counts.update(run(number).counts)
    print(dict(counts))
    assert counts["events"] > 3 * SCHEDULES
    assert counts["aborted"] > SCHEDULES // 2
    assert counts["passed"] > 0


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_functions_are_found(postgres: Postgres, wrong: str) -> None:
    """The schedules show what is wrong, soon."""
    with _log(postgres, WRONG[wrong]) as run:
        for number in range(WRONG_SCHEDULES_MAX):
            try:
                run(number)
            except _FoundError as error:
                print(f"{wrong}: schedule {number}: {error}")
                return
    pytest.fail(f"nothing was found in {WRONG_SCHEDULES_MAX} schedules")
