"""What is damaged keeps nobody's content from being erased, nor its own; and what nobody can tell is said."""

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from tests.rewriting import without_triggers
from tests.talk import Talk
from tests.unit.audit.test_erasing_lines import SESSION, imported, title

from turnlog import AsyncTurnLog, TurnLog
from turnlog.audit import Signer, retaining
from turnlog.audit.seals import SealFolder
from turnlog.errors import CorruptionError, HoldError, MetaError, SealError, UnknownTurnError
from turnlog.events import BOOKMARK, CALL, HOLD, DataKey
from turnlog.feeds.sinks import JSONLines
from turnlog.sources import Sources
from turnlog.testing.seals import SealsInMemory

SIGNER = Signer.generate("example.com/log")
Harm = Callable[[str, str], None]

_CHANGES = {
    "edited": "private = ?",
    "another's": "private = (SELECT private FROM stored_events AS other WHERE other.event_id <> stored_events.event_id"
    " AND other.private IS NOT NULL AND other.topic = 'gpt.turn' ORDER BY other.event_id LIMIT 1)",
    "missing": "private = NULL",
    "marked as erased": "payload_placement = 5",
    "text": "private = 'so'",
}
ANYWHERE = ("edited", "another's", "missing", "marked as erased")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a log in a file, and of one in a PostgreSQL database."""
    if request.param == "postgres":
        return request.getfixturevalue("kept_postgres_url")
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def log(url: str) -> Iterator[TurnLog]:
    """Give an open log."""
    with TurnLog.open(url, busy_timeout_s=2) as log:
        yield log


@pytest.fixture
def harm(url: str) -> Harm:
    """Give what damages the private part of an event, in one of the ways of `_CHANGES`."""
    return lambda event_id, kind="edited": _harm(url, event_id, kind)


def _harm(url: str, event_id: str, kind: str) -> None:
    statement = f"UPDATE stored_events SET {_CHANGES[kind]} WHERE event_id = ?"
    asked = "SELECT private FROM stored_events WHERE event_id = ?"
    if url.startswith("sqlite"):
        with without_triggers(Path(url.removeprefix("sqlite:///"))) as connection:
            [(private,)] = connection.execute(asked, (event_id,))
            given = (_flipped(private), event_id) if "?" in _CHANGES[kind] else (event_id,)
            assert connection.execute(statement, given).rowcount == 1
        return
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("SET search_path = turnlog")
        connection.execute("SET session_replication_role = replica")
        [(private,)] = connection.execute(asked.replace("?", "%s").encode(), (event_id,)).fetchall()
        given = (_flipped(private), event_id) if "?" in _CHANGES[kind] else (event_id,)
        assert connection.execute(statement.replace("?", "%s").encode(), given).rowcount == 1


def _flipped(private: bytes) -> bytes:
    at = len(private) // 2
    return private[:at] + bytes([private[at] ^ 1]) + private[at + 1 :]


def two(log: TurnLog) -> tuple[list[str], list[str]]:
    """Record a thread of Ann's and one of Bob's, and return the ids of their turns."""
    found: list[list[str]] = []
    for name in ("Ann", "Bob"):
        first = log.add_turn(f"I am {name}.", bookmark=name.lower(), subject=name)
        answer = log.add_turn(f"Hello {name}.", role="assistant", continues=name.lower())
        found.append([first.id, answer.id, log.add_turn(f"{name}: so long.", continues=name.lower()).id])
    return found[0], found[1]


@pytest.mark.parametrize(
    ("url", "kind"),
    [*((url, kind) for url in ("sqlite", "postgres") for kind in ANYWHERE), ("sqlite", "text")],
    indirect=["url"],
)
def test_damaged_turn_keeps_nobody_else_from_being_erased(log: TurnLog, harm: Harm, kind: str) -> None:
    """Nobody can tell whose it is: it stays, and is named. Who reads is refused as before."""
    ann, bob = two(log)
    harm(ann[1], kind)
    report = log.erase(subject="Bob", reason="asked", dry_run=True)
    assert (report.turns, report.damaged, report.moving_bookmarks) == (tuple(bob), (ann[1],), ("bob",))
    report = log.erase(subject="Bob", reason="asked")
    assert (report.turns, report.damaged, report.already) == (tuple(bob), (ann[1],), 0)
    assert [(moved.name, moved.after) for moved in report.moved_bookmarks] == [("bob", None)]
    assert [(bookmark.name, bookmark.turn) for bookmark in log.bookmarks.all()] == [("ann", ann[2])]
    verified = log.verify()
    assert [each.global_position for each in verified.damage] == [3]
    assert verified.erased == 3
    for event_id in (ann[1], ann[2]):
        with pytest.raises(CorruptionError):
            log.ancestry(event_id)
    assert log.erase(subject="Ann", reason="asked").turns == (ann[0], ann[2])
    assert log.erase(turn=ann[1], reason="asked").turns == (ann[1],)
    assert log.verify().clean
    assert log.bookmarks.all() == []


@pytest.mark.parametrize("scope", ["turn", "thread"])
@pytest.mark.parametrize("kind", ANYWHERE)
def test_damaged_turn_is_erased(log: TurnLog, harm: Harm, tmp_path: Path, scope: str, kind: str) -> None:
    """It is erased as any other, and from then on it is an erased event as any other."""
    ann, bob = two(log)
    note = log.audit.checkpoint(SIGNER).note
    log.copy_to(f"sqlite:///{tmp_path}/copy.db")
    harm(ann[2], kind)
    which = ann[2] if scope == "turn" else ann[0]
    assert log.erase(**{scope: which}, reason="asked", dry_run=True).turns[-1] == ann[2]
    report = log.erase(**{scope: which}, reason="asked", by="us")
    assert report.turns == ((ann[2],) if scope == "turn" else tuple(ann))
    assert report.damaged == ()
    [moved] = report.moved_bookmarks
    assert (moved.name, moved.before, moved.after) == ("ann", ann[2], ann[1] if scope == "turn" else None)
    assert log.verify().clean
    assert log.erase(turn=ann[2], reason="asked").already == 1
    assert [turn.erased for turn in log.ancestry(ann[2])] == [scope == "thread", scope == "thread", True]
    assert not log.add_turn("on", continues=ann[2], subject="Ann").erased
    assert {found.turn for found in log.feeds.search("Bob")} == {*bob}
    written = io.BytesIO()
    log.export(written)
    for target in ("memory://", f"sqlite:///{tmp_path}/other.db"):
        with TurnLog.open(target) as other:
            other.import_turnlog(io.BytesIO(written.getvalue()))
            assert other.verify().clean
            assert other.turn(ann[2]).erased
    log.rebuild_projections()
    assert log.verify().clean
    assert log.audit.checkpoint(SIGNER).size > 7
    assert [each.private for each in log.audit.prove(ann[2], note=note).events] == [None]
    assert log.copy_to(f"sqlite:///{tmp_path}/copy.db").erased == len(report.turns)
    with TurnLog.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert copy.verify().clean
        assert copy.turn(ann[2]).erased


def test_what_rests_on_a_damaged_turn_goes_with_it(log: TurnLog, harm: Harm, tmp_path: Path) -> None:
    """Headers say what that is: the request that has it in its window, and the reply; damaged or not."""
    talk = Talk(log, tmp_path, 3)
    talk.fill(subject="Ann")
    calls = [event.header.id for event in log.events(topics=CALL)]
    whole = log.erase(subject="Ann", reason="asked", dry_run=True)
    for event_id in (*whole.turns, *whole.calls, *whole.replies):
        harm(event_id, "edited")
    report = log.erase(thread=whole.turns[0], reason="asked")
    assert calls
    assert set(report.calls) == set(whole.calls)
    assert set(report.replies) == set(whole.replies)
    assert set(report.turns) <= set(whole.turns)


def test_bookmarks_of_damaged_events_stay_where_they_are(log: TurnLog, harm: Harm) -> None:
    """What a damaged event did to a bookmark nobody can fold again: the erasure of others leaves it as it is."""
    ann, _ = two(log)
    log.add_turn("gone", bookmark="gone", subject="Cid")
    log.bookmarks.delete("gone")
    kept = log.add_turn("named", bookmark="old")
    log.bookmarks.rename("old", "new")
    log.bookmarks.set("beside", ann[0])
    deleted, renamed, placed = (event.header.id for event in log.events(topics=BOOKMARK))
    before = [(each.name, each.turn) for each in log.bookmarks.all()]
    assert before == [("ann", ann[2]), ("beside", ann[0]), ("bob", before[2][1]), ("new", kept.id)]
    for event_id in (ann[2], deleted, renamed, placed):
        harm(event_id, "edited")
    report = log.erase(subject="Bob", reason="asked")
    assert [(moved.name, moved.after) for moved in report.moved_bookmarks] == [("bob", None)]
    assert report.damaged == (ann[2], deleted, renamed)
    with log.store.read() as transaction:
        rows = transaction.rows("SELECT name, turn_id FROM bookmarks ORDER BY name")
    assert [tuple(row) for row in rows] == [row for row in before if row[0] != "bob"]
    report = log.erase(turn=[ann[2], deleted, renamed, placed], reason="asked")
    assert (report.turns, report.bookmarks) == ((ann[2],), (deleted, renamed, placed))
    assert [(each.name, each.turn) for each in log.bookmarks.all()] == [
        ("ann", ann[1]),
        ("gone", log.erase(subject="Cid", reason="asked", dry_run=True).turns[0]),
        ("old", kept.id),
    ]
    assert log.verify().clean
    assert log.erase(turn=deleted, reason="asked").already == 1


def test_only_damaged_events_are_erased_by_themselves(log: TurnLog) -> None:
    """What is whole goes with the turn that it is of."""
    log.add_turn("x", bookmark="main")
    log.bookmarks.delete("main")
    [deleted] = log.events(topics=BOOKMARK)
    with pytest.raises(UnknownTurnError, match=r"is a gpt\.bookmark event"):
        log.erase(turn=deleted.header.id, reason="asked")


def test_damaged_turn_that_may_be_held_is_refused(log: TurnLog, harm: Harm, tmp_path: Path) -> None:
    """So is the request that has it in its window. What is of somebody else goes."""
    ann, bob = two(log)
    log.holds.set("case", subject="Ann")
    harm(bob[0], "edited")
    for asked in ({"turn": bob[0]}, {"thread": bob[1]}):
        with pytest.raises(HoldError, match=f"hold 'case' refuses it cannot be told.*{bob[0]!r} is damaged") as caught:
            log.erase(**asked, reason="asked")
        assert "\n" not in str(caught.value)
    talk = Talk(log, tmp_path, 4)
    talk.fill(subject="Cid")
    first = log.erase(subject="Cid", reason="asked", dry_run=True).turns[0]
    assert log.erase(turn=bob[1], reason="asked").turns == (bob[1],)
    harm(first, "edited")
    held = log.erase(turn=bob[2], reason="asked")
    assert held.turns == (bob[2],)
    with pytest.raises(HoldError, match=f"'case' refuses it cannot be told.*{first!r} is damaged"):
        log.erase(subject="Cid", reason="asked")
    log.holds.release("case")
    log.holds.set("mine", turn=bob[0])
    with pytest.raises(HoldError, match="hold 'mine' refuses it"):
        log.erase(turn=bob[0], reason="asked")
    log.holds.release("mine")
    assert log.erase(turn=[first, bob[0]], reason="asked").turns == (bob[0], first)
    assert not log.turn(ann[0]).erased


def test_damaged_hold_refuses_all_that_it_may_hold(log: TurnLog, harm: Harm) -> None:
    """Its header tells its turns, not its subject. It is listed, and released, by the id of its event."""
    ann, bob = two(log)
    log.holds.set("subject", subject="Ann")
    log.holds.set("thread", thread=ann[0])
    on_subject, on_thread = (event.header.id for event in log.events(topics=HOLD))
    harm(on_subject, "edited")
    harm(on_thread, "edited")
    first, second = log.holds.all()
    assert (first.name, first.scope, first.subject, first.damaged) == (on_subject, "subject", None, True)
    assert (second.name, second.scope, second.turns, second.damaged) == (on_thread, "thread", (ann[0],), True)
    with pytest.raises(HoldError, match=f"it is damaged.*`turnlog hold release {on_subject}`"):
        log.erase(turn=bob[0], reason="asked")
    log.holds.release(on_subject)
    with pytest.raises(HoldError, match="release it first"):
        log.erase(turn=on_thread, reason="asked")
    assert log.erase(turn=bob[0], reason="asked").turns == (bob[0],)
    with pytest.raises(HoldError, match=f"the legal hold {on_thread!r} refuses it"):
        log.erase(turn=ann[0], reason="asked")
    log.holds.release(on_thread)
    report = log.erase(subject="Ann", reason="asked")
    assert (report.turns, report.damaged) == (tuple(ann), (on_subject,))
    assert log.erase(turn=[on_subject, on_thread], reason="asked").holds == (on_subject, on_thread)
    assert log.verify().clean


def test_damaged_release_releases_what_it_cites(log: TurnLog, harm: Harm) -> None:
    """And what was released before its hold was damaged stays released."""
    turn = log.add_turn("x", bookmark="main", subject="Ann")
    for name in ("one", "two"):
        log.holds.set(name, subject="Ann")
        log.holds.release(name)
    _, released, set_, _ = (event.header.id for event in log.events(topics=HOLD))
    harm(released, "edited")
    harm(set_, "edited")
    assert log.holds.all() == []
    assert log.erase(turn=turn.id, reason="asked").turns == (turn.id,)


def test_damaged_release_is_erased_with_its_hold_alone(log: TurnLog, harm: Harm) -> None:
    """By itself it would set the hold again, and say nothing of it."""
    turn = log.add_turn("x", bookmark="main", subject="Ann")
    log.holds.set("one", subject="Ann")
    log.holds.release("one")
    set_, released = (event.header.id for event in log.events(topics=HOLD))
    harm(released, "edited")
    with pytest.raises(HoldError, match=f"releases the legal hold that event {set_!r} set, which would be set again"):
        log.erase(turn=released, reason="asked")
    assert log.holds.all() == []
    report = log.erase(subject="Ann", reason="asked")
    assert (report.turns, report.holds) == ((turn.id,), (set_, released))
    assert log.verify().clean


def test_old_threads_with_damaged_turns_are_erased(log: TurnLog, harm: Harm) -> None:
    """Where a hold may be on one, its thread is kept, and said; the others go."""
    ann, bob = two(log)
    cid = log.add_turn("I am Cid.", subject="Cid")
    harm(ann[1], "edited")
    now = datetime.now(UTC) + timedelta(days=9)
    log.holds.set("case", subject="Cid")

    def retain(*, dry_run: bool) -> retaining.RetentionReport:
        return retaining.retain(log.store, timedelta(days=7), reason="old", dry_run=dry_run, now=now, sources=Sources())

    for dry_run in (True, False):
        report = retain(dry_run=dry_run)
        assert report.erasure is not None
        assert report.erasure.turns == tuple(bob)
        assert report.held.keys() == {ann[0], cid.id}
        assert f"{ann[1]!r} is damaged" in report.held[ann[0]]
    log.holds.release("case")
    report = retain(dry_run=False)
    assert report.erasure is not None
    assert report.erasure.turns == (*ann, cid.id)
    assert log.verify().clean


@pytest.mark.parametrize("damaged", ["turn", "last-prompt", "queue-operation", "summary"])
def test_lines_beside_what_is_damaged(log: TurnLog, harm: Harm, tmp_path: Path, damaged: str) -> None:
    """The lines of a damaged turn tell of what session it is. What nobody can compare is told, and stays."""
    prompt = {"type": "last-prompt", "lastPrompt": "Another.", "sessionId": SESSION}
    queued = {"type": "queue-operation", "operation": "enqueue", "content": "Else.", "sessionId": SESSION}
    turn, _ = imported(log, tmp_path, prompt, queued, title(7))
    beside = {
        kind: next(log.events(topics=f"claude-code.{kind}")).header.id
        for kind in ("last-prompt", "queue-operation", "summary")
    }
    whole = log.erase(turn=turn, reason="asked", dry_run=True)
    assert set(whole.lines).isdisjoint(beside.values())
    harm(turn if damaged == "turn" else beside[damaged], "edited")
    report = log.erase(turn=turn, reason="asked")
    assert turn in report.turns
    assert report.lines == whole.lines
    told = {beside["last-prompt"], beside["queue-operation"]} if damaged == "turn" else {beside[damaged]}
    assert set(report.undecided) == {*whole.undecided, *told}
    if damaged != "turn":
        assert log.erase(turn=beside[damaged], reason="asked").lines == (beside[damaged],)
    assert log.verify().clean


@pytest.mark.parametrize("kind", ANYWHERE)
def test_damaged_sealed_turn_is_erased(tmp_path: Path, seals: SealFolder, kind: str) -> None:
    """Whose it is cannot be told then, with the keys or without. What is told of the erasure is sealed."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url, seals=seals) as log:
        log.seal()
        ann, bob = two(log)
        _harm(url, ann[1], kind)
        report = log.erase(subject="Bob", reason="asked")
        assert (report.turns, report.damaged, len(report.keys)) == (tuple(bob), (ann[1],), 1)
        report = log.erase(subject="Ann", reason="asked")
        assert (report.turns, report.damaged) == ((ann[0], ann[2]), (ann[1],))
        assert log.erase(turn=ann[1], reason="asked").turns == (ann[1],)
        assert log.verify().clean
        erasures = [*log.events(topics="gpt.erasure")]
        assert [event.sealed is not None for event in erasures] == [True] * 3
    with TurnLog.open(url) as closed, pytest.raises(SealError):
        closed.erase(subject="Ann", reason="asked")


def test_what_is_told_of_a_damaged_event_is_sealed_where_that_may_have_been(tmp_path: Path, seals: SealFolder) -> None:
    """A subject's turns are sealed here, and nobody else's."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url, seals=seals) as log:
        log.seal("Ann")
        ann, bob = two(log)
        for turn in (ann[1], bob[1]):
            _harm(url, turn, "edited")
            log.erase(turn=turn, reason="asked")
        log.erase(turn=bob[2], reason="asked")
        assert [event.sealed is not None for event in log.events(topics="gpt.erasure")] == [True, True, False]


class _Wrong(SealsInMemory):
    """Keys of which each has the name of another one."""

    def get(self, key_id: str) -> DataKey | None:
        """Return one that opens nothing."""
        return None if super().get(key_id) is None else DataKey(id=key_id, secret=bytes(32))


def test_what_its_key_does_not_open_is_told_by_its_tags(tmp_path: Path) -> None:
    """Its private part is the one that was recorded."""
    url = f"sqlite:///{tmp_path}/log.db"
    seals = _Wrong()
    with TurnLog.open(url, seals=seals) as log:
        log.seal()
        log.seal("Ann")
    with TurnLog.open(url, seals=seals) as log:
        turn = log.add_turn("I am Ann.", subject="Ann")
        with pytest.raises(CorruptionError):
            log.turn(turn.id)
        report = log.erase(subject="Ann", reason="asked")
        assert (report.turns, report.damaged, report.unseen) == ((turn.id,), (), ())


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_delivered", [False, True])
def test_erasures_reach_what_was_made_of_the_log_before_the_damage(
    log: TurnLog, harm: Harm, tmp_path: Path, *, is_delivered: bool
) -> None:
    """Projections and feeds cannot go on at damage. What they have of what is erased goes all the same."""

    def left(word: bytes) -> list[str]:
        return [path.name for path in tmp_path.rglob("*") if path.is_file() and word in path.read_bytes()]

    bob = log.add_turn("Zebulon", bookmark="bob", subject="Bob")
    cid = log.add_turn("Yggdrasil", subject="Cid")
    feed = log.feeds.feed(JSONLines(tmp_path / "out"))
    damaged = log.add_turn("damaged", subject="Ann") if is_delivered else None
    feed.run()
    assert [found.turn for found in log.feeds.search("Zebulon")] == [bob.id]
    assert len(log.feeds.usage()) == 0
    damaged = damaged or log.add_turn("damaged", subject="Ann")
    harm(damaged.id, "edited")
    assert len(log.feeds.delivered_to([damaged.id])) == is_delivered
    report = log.erase(subject="Bob", reason="asked")
    assert (report.turns, report.damaged, report.remains) == ((bob.id,), (damaged.id,), None)
    assert left(b"ebulon") == []
    with pytest.raises(CorruptionError):
        log.feeds.search("Zebulon")
    # What says so can be damaged too, and what it names be put back.
    harm(report.erasures[0], "edited")
    harm(bob.id, "another's")
    assert log.erase(subject="Cid", reason="asked").remains is None
    assert left(b"ggdrasil") == []
    assert log.erase(turn=[damaged.id, bob.id], reason="asked").turns == (bob.id, damaged.id)
    assert [each.global_position for each in log.verify().damage] == [5]
    assert log.turn(cid.id).erased


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_was_made_of_the_log_goes_on_behind_erased_damage(log: TurnLog, harm: Harm, tmp_path: Path) -> None:
    """As behind anything that was erased."""
    first = log.add_turn("first")
    feed = log.feeds.feed(JSONLines(tmp_path / "out"))
    feed.run()
    assert [found.turn for found in log.feeds.search("first")] == [first.id]
    damaged = log.add_turn("damaged")
    harm(damaged.id, "edited")
    later = log.add_turn("later")
    with pytest.raises(CorruptionError):
        log.feeds.search("later")
    log.erase(turn=damaged.id, reason="asked")
    assert [found.turn for found in log.feeds.search("later")] == [later.id]
    assert log.feeds.search("damaged") == []
    assert feed.run().position == 5
    assert [status.paused_at for status in log.feeds.status()] == [None] * 4


def test_finishing_takes_what_came_back_damaged(log: TurnLog, harm: Harm) -> None:
    """As an older row that was put back, and edited."""
    ann, _ = two(log)
    log.erase(turn=ann[1], reason="asked")
    harm(ann[1], "another's")
    assert not log.verify().clean
    log.finish_erasing()
    assert log.verify().clean
    assert log.turn(ann[1]).erased


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_damaged_header_refuses_and_says_where(log: TurnLog, url: str) -> None:
    """Nobody can tell of what it is. A dry run says what the erasure will."""
    ann, bob = two(log)
    with without_triggers(Path(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("UPDATE stored_events SET state = x'7b' WHERE event_id = ?", (ann[1],))
    for erase in (
        lambda: log.erase(subject="Bob", reason="asked"),
        lambda: log.erase(thread=ann[0], reason="asked"),
        lambda: log.erase(turn=bob[2], reason="asked"),
        lambda: log.erase(turn=bob[2], reason="asked", dry_run=True),
        lambda: log.erase(subject="Bob", reason="asked", dry_run=True),
        lambda: log.retain(timedelta(microseconds=1), reason="old", dry_run=False),
    ):
        with pytest.raises(CorruptionError, match="event at global position 3 cannot be read") as caught:
            erase()
        assert "nothing was erased, for nobody can tell what that was: restore the store from a copy" in str(
            caught.value
        )
        assert str(caught.value).count("nothing was erased") == 1


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_subject_is_asked_for_behind_what_was_damaged(log: TurnLog, harm: Harm, damaged: int) -> None:
    """Where an erased turn, or the one before it, was damaged, nothing tells whose it was."""
    first = log.add_turn("first", bookmark="main", subject="Ann")
    second = log.add_turn("second", continues="main", subject=False)
    harm((first.id, second.id)[damaged], "edited")
    for turn in (second, first):
        log.erase(turn=turn.id, reason="asked")
    with pytest.raises(MetaError, match="with it whose it was"):
        log.add_turn("third", continues=second.id)
    third = log.add_turn("third", continues=second.id, subject="Ann")
    assert third.meta.subject == "Ann"


def test_async_logs_erase_past_damage(tmp_path: Path) -> None:
    """The report is the same."""
    url = f"sqlite:///{tmp_path}/log.db"

    async def erase() -> None:
        async with await AsyncTurnLog.open(url) as log:
            kept = await log.add_turn("Ann", subject="Ann")
            gone = await log.add_turn("Bob", subject="Bob")
            _harm(url, kept.id, "edited")
            report = await log.erase(subject="Bob", reason="asked")
            assert (report.turns, report.damaged) == ((gone.id,), (kept.id,))

    asyncio.run(erase())
