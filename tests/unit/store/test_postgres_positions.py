"""Events come out of PostgreSQL with their global positions, also those that had none yet when a plan read them."""

import asyncio
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest
from psycopg import errors

from turnlog import AsyncTurnLog, Turn, TurnLog
from turnlog.audit import verification
from turnlog.errors import IdConflictError, StoreBusyError, UncertainError, UnknownTurnError
from turnlog.events import Recorded
from turnlog.ids import new_id
from turnlog.record import plan_turn, turn_draft
from turnlog.sources import Sources
from turnlog.store import WriteTransaction

WAIT_S = 30.0


@pytest.fixture
def one(kept_postgres_url: str) -> Iterator[TurnLog]:
    """Open a log."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("root", bookmark="main")
        yield log


@pytest.fixture
def other(one: TurnLog, kept_postgres_url: str) -> Iterator[TurnLog]:
    """Open it a second time, as another process does."""
    with TurnLog.open(kept_postgres_url) as log:
        yield log


class _Held:
    """A writer that is in its transaction: what is appended behind it has no global position until it ends."""

    def __init__(self, url: str, name: str = "held") -> None:
        self.connection = psycopg.connect(url)
        self.connection.execute("SET search_path = turnlog")
        self.connection.execute("LOCK TABLE log_gate IN ROW EXCLUSIVE MODE")
        self.append(None, 0, name)

    def append(self, own: int | None, first_ordinal: int, name: str) -> int:
        """Append something, and return its number."""
        [(number,)] = self.connection.execute(
            "SELECT log_append(%s, %s, NULL, ARRAY[%s], ARRAY[%s], ARRAY[0]::bigint[], ARRAY['gpt.turn'],"
            " ARRAY['']::bytea[], ARRAY['']::bytea[], ARRAY[0]::smallint[], ARRAY[NULL]::bytea[],"
            " ARRAY[0]::smallint[], ARRAY[NULL]::bytea[])",
            (own, first_ordinal, name, name),
        ).fetchall()
        return number

    def wait_for(self, count: int) -> None:
        """Wait until so many wait for it."""
        with closing(psycopg.connect(self.connection.info.dsn, autocommit=True)) as looking:
            while looking.execute(
                "SELECT count(DISTINCT pid) < %s FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", (count,)
            ).fetchone() == (True,):
                pass

    def end(self) -> None:
        """Leave nothing behind. Twice is allowed."""
        self.connection.close()


@pytest.fixture
def held(one: TurnLog, kept_postgres_url: str) -> Iterator[_Held]:
    """Hold positions back."""
    held = _Held(kept_postgres_url)
    yield held
    held.end()


def _with(held: _Held, *calls: Callable[[], object]) -> list[object]:
    """Run calls in threads, the next one when the one before waits for its position; let them come to an end."""
    with ThreadPoolExecutor(len(calls)) as threads:
        running: list[Future[object]] = []
        for number, call in enumerate(calls, 1):
            running.append(threads.submit(call))
            held.wait_for(number)
        held.end()
        return [future.result(WAIT_S) for future in running]


def test_event_that_was_recorded_elsewhere_a_moment_ago_has_its_position(
    one: TurnLog, other: TurnLog, held: _Held
) -> None:
    """The same turn again is the stored one, also where nobody knows yet where it stands."""
    turn_id = new_id()
    first, second = _with(
        held,
        lambda: one.add_turn("same", bookmark=False, id=turn_id),
        lambda: other.add_turn("same", bookmark=False, id=turn_id),
    )
    assert first == second
    assert first.global_position == 3  # type: ignore[attr-defined]


def test_own_event_that_was_recorded_elsewhere_has_its_position(one: TurnLog, other: TurnLog) -> None:
    """An event of a topic of one's own is the same."""
    event_id = new_id()
    first = one.add_event("acme.note", b"same", id=event_id)
    again = other.add_event("acme.note", b"same", id=event_id)
    assert (first.global_position, again.global_position) == (3, 3)


def test_id_that_is_taken_elsewhere_leaves_nothing_provisional(one: TurnLog, other: TurnLog) -> None:
    """Neither in the error, nor in what the process remembers."""
    turn_id = new_id()
    one.add_turn("one", bookmark=False, id=turn_id)
    with pytest.raises(IdConflictError) as caught:
        other.add_turn("other", bookmark=False, id=turn_id)
    assert "23058" not in f"{caught.value} {vars(caught.value)}"
    assert other.add_turn("next", bookmark=False).global_position == 4


def test_plan_reads_events_of_others_in_the_order_of_the_log(one: TurnLog, other: TurnLog) -> None:
    """Those that have no position yet, and those that this process knows the position of, can be compared."""
    turns = [one.add_turn("0", bookmark=False)]
    for number in range(1, 6):
        log = (one, other)[number % 2]
        turns.append(log.add_turn(str(number), continues=turns[-1].id, bookmark=False))

    def plan(transaction: WriteTransaction) -> list[int]:
        found = [transaction.event(turn.id) for turn in turns]
        found += transaction.stream(turns[0].id, 0, 10)
        return [event.global_position for event in found if event is not None]

    for log in (one, other):
        places = log.store.write(plan)
        assert len(places) == 12
        assert places[:6] == sorted(places[:6]) == places[6:]
    assert [turn.global_position for turn in turns] == [3, 4, 5, 6, 7, 8]


def test_what_plans_return_has_positions_in_a_group(one: TurnLog, other: TurnLog, held: _Held) -> None:
    """Several callers share a transaction; each gets events of its own, and of others that it has read."""
    sources = Sources()
    elsewhere = new_id()

    def plan(number: int) -> Callable[[WriteTransaction], list[Recorded]]:
        draft = turn_draft(str(number), bookmark=False)

        def append(transaction: WriteTransaction) -> list[Recorded]:
            found = transaction.event(elsewhere)
            assert found is not None
            placed = transaction.placed(draft.payload)
            return [plan_turn(transaction, draft, placed, sources), found]

        return append

    def append_together() -> list[list[Recorded]]:
        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(lambda number: one.store.write(plan(number)), range(24)))

    first, together = _with(held, lambda: other.add_turn("elsewhere", bookmark=False, id=elsewhere), append_together)
    assert first.global_position == 3  # type: ignore[attr-defined]
    assert {found.global_position for _, found in together} == {3}  # type: ignore[attr-defined]
    assert sorted(turn.global_position for turn, _ in together) == list(range(4, 28))  # type: ignore[attr-defined]


def test_import_beside_another_one_knows_its_events(one: TurnLog, other: TurnLog, kept_postgres_url: str) -> None:
    """Both take over the same export, and what is there then has positions without gaps."""
    file = io.BytesIO()
    with TurnLog.open("memory://") as source:
        head = source.add_turn("0")
        for number in range(1, 300):
            head = source.add_turn(str(number), continues=head.id)
        source.export(file)
    exported = file.getvalue()
    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(lambda log: log.import_turnlog(io.BytesIO(exported)), (one, other)))
    # The genesis is a guest too.
    assert sum(report.added for report in reports) == 301
    assert [event.global_position for event in one.events()] == list(range(1, 304))
    assert one.verify().clean


def test_async_log_gives_positions(one: TurnLog, other: TurnLog) -> None:
    """Many calls at once, and the same turns again by another process."""
    ids = [new_id() for _ in range(20)]

    async def record(log: TurnLog) -> list[int]:
        appending = [AsyncTurnLog(log).add_turn(turn_id, bookmark=False, id=turn_id) for turn_id in ids]
        return [turn.global_position for turn in await asyncio.gather(*appending)]

    first, again = asyncio.run(record(one)), asyncio.run(record(other))
    assert sorted(first) == list(range(3, 23))
    assert again == first


def test_append_whose_position_stays_unknown_says_that_it_is_recorded(
    one: TurnLog, kept_postgres_url: str, held: _Held
) -> None:
    """Nothing comes back with a position that is none."""
    turn_id = new_id()
    with (
        TurnLog.open(kept_postgres_url, busy_timeout_s=0.5) as log,
        pytest.raises(UncertainError, match=f"{turn_id}.* is recorded"),
    ):
        log.add_turn("waits", bookmark=False, id=turn_id)
    held.end()
    assert one.turn(turn_id).global_position == 3


def test_append_that_is_gone_behind_its_commit_says_so(one: TurnLog, kept_postgres_url: str) -> None:
    """As where the tables are put back in this moment, which is done here to the function that is asked."""
    turn_id = new_id()
    with psycopg.connect(kept_postgres_url, options="-c search_path=turnlog") as connection:
        [(asked,)] = connection.execute("SELECT pg_get_functiondef('log_position'::regproc)").fetchall()
        connection.execute(
            "CREATE OR REPLACE FUNCTION log_position(id text) RETURNS bigint AS 'SELECT NULL::bigint' LANGUAGE sql"
        )
        connection.commit()
        with pytest.raises(UncertainError, match=f"{turn_id}.* was recorded .* is not there any more"):
            one.add_turn("gone", bookmark=False, id=turn_id)
        connection.execute(asked)
    assert one.add_turn("on", bookmark=False).global_position == 4


def test_what_has_no_place_yet_is_not_shown(
    one: TurnLog, other: TurnLog, kept_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what comes of it: bookmarks, threads and heads are as the events that are in the log have left them."""
    monkeypatch.setattr(verification, "SETTLED_TRIES_MAX", 3)

    def shown(log: TurnLog) -> list[object]:
        return [
            log.turn("main"),
            log.children("main"),
            log.bookmarks.all(),
            log.threads(),
            log.stats().threads,
            [log.turn(name).id for name in ("set", "second")],
            log.context("main").messages,
        ]

    with ExitStack() as stack:
        reader, third, fourth = (stack.enter_context(TurnLog.open(kept_postgres_url)) for _ in range(3))
        root = reader.turn("main")
        forked = other.add_turn("fork", continues=root.id, bookmark="set")
        second = reader.add_turn("another root", bookmark="second")
        before = shown(reader)
        held = _Held(kept_postgres_url)
        calls = [
            lambda: one.add_turn("next", continues="main"),
            lambda: other.add_turn("fork again", continues=root.id, bookmark="set"),
            lambda: third.add_turn("a third root", bookmark="second"),
            lambda: fourth.add_turn("new", continues="set", bookmark="new"),
        ]
        with ThreadPoolExecutor(len(calls)) as threads:
            try:
                running: list[Future[Turn]] = []
                for number, call in enumerate(calls, 1):
                    running.append(threads.submit(call))
                    held.wait_for(number)
                assert shown(reader) == before
                with pytest.raises(UnknownTurnError):
                    reader.turn("new")
                with pytest.raises(StoreBusyError, match="have no place in the log yet"):
                    reader.verify()
            finally:
                held.end()
            turns = [future.result(WAIT_S) for future in running]
        assert [reader.turn(name) for name in ("main", "set", "second", "new")] == turns
        assert {child.id for child in reader.children(root.id)} == {forked.id, turns[0].id, turns[1].id}
        assert {thread.id for thread in reader.threads()} == {root.id, second.id, turns[2].id}


def test_who_waits_for_a_position_holds_nobody_up(
    one: TurnLog, other: TurnLog, held: _Held, kept_postgres_url: str
) -> None:
    """Behind a writer that is at it, and one that ended without events: others read, and it waits for the first one."""
    _Held(kept_postgres_url, "ended").end()
    with ThreadPoolExecutor(1) as threads:
        try:
            running = threads.submit(lambda: one.add_turn("behind", bookmark=False))
            held.wait_for(1)
            assert [event.global_position for event in other.events()] == [1, 2]
            assert not running.done()
        finally:
            held.end()
        assert running.result(WAIT_S).global_position == 3


@pytest.mark.parametrize(("own", "ordinal"), [("new", 1), ("new", -1), ("new", 1 << 62), ("settled", 1), ("other", 1)])
def test_number_of_somebody_else_is_refused(one: TurnLog, kept_postgres_url: str, own: str, ordinal: int) -> None:
    """Also those whose transaction has ended, and has no positions yet; and ordinals that are another number's."""
    one.add_turn("next", bookmark=False)
    mine, theirs = _Held(kept_postgres_url, "mine"), _Held(kept_postgres_url, "theirs")
    number = theirs.append(None, 0, "more")
    theirs.connection.commit()
    numbers = {"new": None, "settled": 1, "other": number}
    with closing(mine.connection), closing(theirs.connection):
        with pytest.raises(errors.InvalidParameterValue, match="are not this transaction's"):
            mine.append(numbers[own], ordinal, "forged")
        mine.connection.rollback()
        again = _Held(kept_postgres_url, "again")
        with closing(again.connection):
            assert again.append(again.append(None, 0, "first"), 1, "second") > number
