"""Running feeds: what is delivered, how far that is, what is tried again, and what is not."""

import fcntl
import json
import os
import sqlite3
import stat
import threading
import time
from base64 import b64decode
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.agent.running import run
from tests.agent.scripted import Scripted, say
from tests.faults.hostile import run_sql
from tests.sealed_log import seals_in

from turnlog import TurnLog
from turnlog.errors import ConflictError, MetaError, NotFoundError, SinkError, StoreCutError, StoreError
from turnlog.feeds.erasures import FORGOTTEN
from turnlog.feeds.sinks import Batch, Choice, FeedStates, JSONLines, Place, Sink, SinkRecord
from turnlog.feeds.sinks.feed import ATTEMPTS, Feed
from turnlog.feeds.sinks.running import Running
from turnlog.ids import new_id
from turnlog.model import Origin
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import Store, open_store


class Shelf(Sink):
    """A sink of a user's own: keeps batches in memory, and fails as it is told."""

    kind = "shelf"
    keeps_batches = True

    def __init__(self, *failures: SinkError | None) -> None:
        """Take what the deliveries fail with, one after the other."""
        self.batches: list[Batch] = []
        self.failures = list(failures)
        self.tried = 0
        self.opened = 0
        self.delivered = threading.Event()

    @property
    def destination(self) -> str:
        """A name."""
        return "here"

    def open(self, store: Store) -> Place | None:
        """Count."""
        self.opened += 1
        return None

    def deliver(self, batch: Batch) -> None:
        """Keep a batch."""
        self.tried += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.batches.append(batch)
        self.delivered.set()

    def close(self) -> None:
        """Count back."""
        self.opened -= 1

    @property
    def records(self) -> list[SinkRecord]:
        """All that it has."""
        return [record for batch in self.batches for record in batch.records]

    @property
    def positions(self) -> list[int]:
        """The global positions of all that it has."""
        return [record.position for record in self.records]


def spans(shelf: Shelf) -> list[str]:
    """Return which global positions each batch has, by its key."""
    return [batch.key.split(":")[1] for batch in shelf.batches]


def again(message: str = "busy", retry_after_s: float | None = 0.0) -> SinkError:
    """Return an error that may pass."""
    return SinkError(message, sink="shelf", retryable=True, retry_after_s=retry_after_s)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Take out the pauses between attempts, and give what they would have been."""
    pauses: list[float] = []

    monkeypatch.setattr(Feed, "_sleep", lambda _, seconds: pauses.append(seconds))  # type: ignore[misc]
    return pauses


# -------------------------------------------------------------------------------------------------------- what is given


async def _later(*_: object) -> None:
    """Do nothing yet."""


@pytest.mark.parametrize(
    "method", ["is_at", "open", "deliver", "is_emptied", "lost_from", "forget", "close", "failed", "destination"]
)
def test_sink_with_an_async_method_is_refused(method: str) -> None:
    """Where it is made: nobody would await what it gives."""
    said = f"{method} of sink 'Late': expected a plain function, got an async one, which nobody would await: let it "
    with pytest.raises(MetaError, match=said):
        type("Late", (Shelf,), {method: property(_later) if method == "destination" else _later})


@pytest.mark.parametrize("method", ["open", "is_emptied", "forget", "deliver"])
def test_sink_that_has_done_nothing_yet_ends_its_feed(filed: TurnLog, method: str) -> None:
    """It has returned what is to be awaited: nothing of it counts as delivered, or as taken back."""
    turn = filed.add_turn("one")
    members = {"takes_back": True, "forget": lambda *_: None}
    filed.feeds.feed(type("Done", (Shelf,), members)(), name="it").run()
    filed.erase(turn=turn.id, reason="asked")
    late = type("Late", (Shelf,), members | {method: lambda *_: _later()})()
    said = f"{method} of sink 'Late' returned 'coroutine', which nobody awaits or goes through: let it return when"
    with pytest.raises(MetaError, match=said):
        filed.feeds.feed(late, name="it").run()
    [status] = filed.feeds.all()
    assert (status.position, status.delivered, (status.error or "").partition(" returned")[0]) == (
        2,
        2,
        f"{method} of sink 'Late'",
    )


def test_sink_that_wants_no_content_is_given_none(filed: TurnLog) -> None:
    """All else is as it is for others."""

    class Bare(Shelf):
        reads_content = False

    filed.add_turn("one")
    full, bare = Shelf(), Bare()
    filed.feeds.feed(full, name="full").run()
    filed.feeds.feed(bare, name="bare").run()
    assert [record.fields["content"] is not None for record in full.records] == [False, True]
    assert [record.fields for record in bare.records] == [{**record.fields, "content": None} for record in full.records]


def test_all_is_delivered_once(filed: TurnLog) -> None:
    """In order, with what came since in the next run; the state says how far that is."""
    shelf = Shelf()
    turn = filed.add_turn("one", bookmark="main")
    status = filed.feeds.feed(shelf).run()
    assert (status.name, status.kind, status.destination) == ("shelf:here", "shelf", "here")
    assert (status.position, status.lag, status.lag_s, status.delivered, status.error) == (2, 0, 0.0, 2, None)
    filed.add_turn("two", continues="main")
    [behind] = filed.feeds.all()
    assert (behind.lag, behind.running) == (1, False)
    assert behind.lag_s >= 0
    filed.feeds.feed(shelf).run()
    filed.feeds.feed(shelf).run()
    assert shelf.positions == [1, 2, 3]
    fields = shelf.records[1].fields
    assert (fields["id"], fields["global_position"], fields["topic"]) == (turn.id, 2, "gpt.turn")
    digest = b64decode(turn.digest.removeprefix("sha256-")).hex()
    assert (fields["log"], fields["idempotency_key"]) == (filed.id, f"{filed.id}:2:{digest[:16]}")
    assert bytes(fields["content"]) == b'[{"type":"text","text":"one"}]'
    assert fields["meta"] == {"role": "user", "head": "main"}
    assert shelf.opened == 0


def test_empty_log_is_delivered(filed: TurnLog) -> None:
    """As nothing; and the feed is there."""
    shelf = Shelf()
    assert filed.feeds.feed(shelf).run().position == 0
    assert (shelf.tried, [feed.name for feed in filed.feeds.all()]) == (0, ["shelf:here"])


def test_batches_are_bounded(filed: TurnLog) -> None:
    """By events, and by bytes of content; one event may have more."""
    for text in ("one", "two", "three"):
        filed.add_turn(text)
    last = filed.add_turn("four")
    shelf = Shelf()
    filed.feeds.feed(shelf, batch=2).run()
    assert [len(batch.records) for batch in shelf.batches] == [2, 2, 1]
    assert spans(shelf) == ["1-2", "3-4", "5-5"]
    text = json.dumps([{"topics": [], "public": False, "unseal": False}, last.digest], separators=(",", ":"))
    assert shelf.batches[-1].key == f"{filed.id}:5-5:{sha256(text.encode()).hexdigest()[:16]}"
    small = Shelf()
    small.batch_bytes = 10
    filed.feeds.feed(small, name="small").run()
    assert [len(batch.records) for batch in small.batches] == [1, 1, 1, 1, 1]


def test_batches_of_other_events_have_other_keys(filed: TurnLog) -> None:
    """Whichever of them is another one, and where other parts of the same are delivered."""
    for text in ("one", "two"):
        filed.add_turn(text)
    shelf = Shelf()
    filed.feeds.feed(shelf).run()
    [batch] = shelf.batches
    others = [replace(batch, records=batch.records[1:]), replace(batch, choice=Choice(public=True))]
    assert len({each.key for each in (batch, *others)}) == 3


def test_topics_are_picked(filed: TurnLog) -> None:
    """What is not wanted counts as delivered."""
    filed.add_turn("one", bookmark="main")
    filed.bookmarks.set("aside", "main")
    shelf = Shelf()
    status = filed.feeds.feed(shelf, topics="gpt.turn").run()
    assert (shelf.positions, status.position, status.delivered, status.lag) == ([2], 3, 1, 0)


def test_new_feed_begins_where_it_is_told(filed: TurnLog) -> None:
    """Only a new one."""
    for text in ("one", "two"):
        filed.add_turn(text)
    shelf = Shelf()
    filed.feeds.feed(shelf, after=2).run()
    filed.feeds.feed(shelf, after=1).run()
    assert shelf.positions == [3]


def test_public_part_alone_is_delivered(filed: TurnLog) -> None:
    """No content, no names; it is not called erased or closed for it."""
    filed.add_turn("secret", bookmark="private name")
    shelf = Shelf()
    filed.feeds.feed(shelf, public=True).run()
    fields = shelf.records[1].fields
    assert (fields["meta"], fields["content"], fields["hash"]) == ({"role": "user"}, None, None)
    assert (fields["erased"], fields["closed"]) == (False, False)
    assert b"secret" not in shelf.records[1].to_json()
    assert b"private name" not in shelf.records[1].to_json()


def test_records_say_which_threads_they_are_of_and_when_a_turn_was_said(filed: TurnLog) -> None:
    """A call, its reply and a bookmark that is set on a turn are of its thread; what is about no turn is of none."""
    said = "2025-03-04T05:06:07.000008+00:00"
    origin = Origin(format="codex", ids=["x"], timestamp=said)
    first = filed.add_turn("one", bookmark="main", origin=origin).id
    other = filed.add_turn("two").id
    answer = run(filed, Scripted(say("three")), "And?", continues="main").head.id
    joined = filed.add_turn("both", continues=[first, other]).id
    filed.bookmarks.set("aside", other)
    shelf, public = Shelf(), Shelf()
    filed.feeds.feed(shelf).run()
    filed.feeds.feed(public, public=True, name="public").run()
    found = {record.id: record.fields for record in shelf.records}
    assert [found[turn]["threads"] for turn in (first, other, joined)] == [[first], [other], sorted([first, other])]
    assert (found[first]["said_at"], found[other]["said_at"]) == (said, found[other]["time"])
    rest = [(fields["topic"], fields["threads"]) for id, fields in found.items() if id not in (first, other, joined)]
    assert rest == [
        ("log.genesis", []),
        ("gpt.turn", [first]),
        ("gpt.call", [first]),
        ("gpt.reply", [first]),
        ("gpt.turn", [first]),
        ("gpt.bookmark", [other]),
    ]
    assert found[answer]["threads"] == [first]
    assert {fields["said_at"] for fields in found.values() if fields["topic"] != "gpt.turn"} == {None}
    # A private part may say when a turn was said: without it nobody can tell.
    assert {record.fields["said_at"] for record in public.records} == {None}
    assert [record.fields["threads"] for record in public.records] == [fields["threads"] for fields in found.values()]


def test_what_is_about_a_damaged_turn_is_delivered_without_its_threads(filed: TurnLog, tmp_path: Path) -> None:
    """By a feed that begins behind the damage: nobody can tell the threads, and that is null."""
    turn = run(filed, Scripted(say("two")), "one").turns[0].id
    run_sql(
        tmp_path / "log.db", "UPDATE stored_events SET state = CAST(state || ' ' AS BLOB) WHERE notification_id = 2"
    )
    shelf = Shelf()
    filed.feeds.feed(shelf, after=2).run()
    assert [(record.fields["topic"], record.fields["threads"]) for record in shelf.records] == [
        ("gpt.call", None),
        ("gpt.reply", None),
        ("gpt.turn", [turn]),
    ]


def test_sealed_events_go_as_they_are_without_keys(url: str, tmp_path: Path) -> None:
    """Unless it is asked for what is in them."""
    with TurnLog.open(url, seals=seals_in(tmp_path / "keys")) as log:
        log.seal()
        turn = log.add_turn("confidential", bookmark="main")
        shelf, opened = Shelf(), Shelf()
        log.feeds.feed(shelf, topics=["gpt.turn"]).run()
        log.feeds.feed(opened, topics=["gpt.turn"], name="opened", unseal=True).run()
        [closed], [open_] = shelf.records, opened.records
        assert (closed.fields["closed"], closed.fields["content"], closed.fields["meta"]) == (
            True,
            None,
            {"role": "user"},
        )
        assert closed.fields["sealed"] == open_.fields["sealed"]
        assert isinstance(closed.fields["sealed"], str)
        assert (open_.fields["closed"], bytes(open_.fields["content"])) == (
            False,
            b'[{"type":"text","text":"confidential"}]',
        )
        assert turn.id == closed.id


# ------------------------------------------------------------------------------------------------------------- failures


def test_what_may_pass_is_tried_again(filed: TurnLog, no_pause: list[float]) -> None:
    """After what the destination asks for, within bounds; with the same batch, though more was recorded."""
    filed.add_turn("one")

    def note(error: Exception, seconds: float) -> None:
        told.append(str(error))
        filed.add_turn("more")
        [status] = filed.feeds.all()
        assert (status.error, status.running) == (str(error), True)

    told: list[str] = []
    shelf = Shelf(again("busy", 3.0), again("still busy", 1e9))
    status = filed.feeds.feed(shelf).run(on_retry=note)
    assert told == ["busy", "still busy"]
    assert (no_pause[0] >= 3.0, no_pause[1]) == (True, 60.0)
    assert spans(shelf) == ["1-2", "3-4"]
    assert (status.error, status.error_time, status.position) == (None, None, 4)


def test_attempts_end(filed: TurnLog, no_pause: list[float]) -> None:
    """A feed that does not follow gives up, and says so; the next run goes on."""
    filed.add_turn("one")
    shelf = Shelf(*[again() for _ in range(ATTEMPTS)])
    with pytest.raises(SinkError, match="busy"):
        filed.feeds.feed(shelf).run()
    [status] = filed.feeds.all()
    assert (shelf.tried, status.position, status.error) == (ATTEMPTS, 0, "busy")
    shelf = Shelf(again(), again())
    with pytest.raises(SinkError, match="busy"):
        filed.feeds.feed(shelf, attempts=2).run()
    assert filed.feeds.feed(shelf).run().error is None
    assert shelf.positions == [1, 2]


def test_refusal_is_not_tried_again(filed: TurnLog) -> None:
    """It stops the feed, with what came before delivered; it can be moved over it, or back."""
    for text in ("one", "two"):
        filed.add_turn(text)
    shelf = Shelf(None, SinkError("no", sink="shelf"))
    with pytest.raises(SinkError, match="no"):
        filed.feeds.feed(shelf, batch=1).run()
    [status] = filed.feeds.all()
    assert (shelf.tried, status.position, status.delivered, status.error) == (2, 1, 1, "no")
    moved = filed.feeds.move("shelf:here", 2)
    assert (moved.position, moved.error, moved.lag) == (2, None, 1)
    filed.feeds.feed(shelf).run()
    assert shelf.positions == [1, 3]
    filed.feeds.move("shelf:here", 0)
    filed.feeds.feed(shelf).run()
    assert shelf.positions == [1, 3, 1, 2, 3]
    with pytest.raises(MetaError, match="from 0 to 3"):
        filed.feeds.move("shelf:here", 4)


def test_feed_that_was_moved_does_not_go_back(filed: TurnLog) -> None:
    """To the batch that had failed, with the same object."""
    for text in ("one", "two", "three"):
        filed.add_turn(text)
    shelf = Shelf(SinkError("no", sink="shelf"))
    feed = filed.feeds.feed(shelf, batch=2)
    with pytest.raises(SinkError, match="no"):
        feed.run()
    filed.feeds.move(feed.name, 3)
    assert feed.run().position == 4
    assert shelf.positions == [4]


def test_batch_of_a_killed_feed_keeps_its_bounds(filed: TurnLog) -> None:
    """What may have been delivered is delivered again as the same batch, where the sink wants that."""
    filed.add_turn("one")
    killed = Shelf()

    def die(batch: Batch) -> None:
        killed.batches.append(batch)
        raise KeyboardInterrupt

    killed.deliver = die
    with pytest.raises(KeyboardInterrupt):
        filed.feeds.feed(killed).run()
    filed.add_turn("two")
    shelf = Shelf()
    filed.feeds.feed(shelf).run()
    assert [batch.key for batch in shelf.batches[:1]] == [batch.key for batch in killed.batches]
    assert spans(shelf) == ["1-2", "3-3"]


def test_what_is_erased_between_attempts_is_not_delivered(filed: TurnLog, no_pause: list[float]) -> None:
    """Each attempt reads the log anew."""
    turn = filed.add_turn("said in private")
    shelf = Shelf(again())

    def erase(_error: Exception, _seconds: float) -> None:
        filed.erase(turn=turn.id, reason="asked")

    filed.feeds.feed(shelf).run(on_retry=erase)
    assert [record.fields["erased"] for record in shelf.records] == [False, True, False]
    assert not any(b"private" in record.to_json() for record in shelf.records)
    assert shelf.records[2].recorded.header.topic == "gpt.erasure"


def test_cut_log_is_told(filed: TurnLog, tmp_path: Path) -> None:
    """Another log under the same name, or one that is shorter."""
    filed.add_turn("one")
    filed.feeds.feed(Shelf()).run()
    states = tmp_path / "log.db-feeds"
    with TurnLog.open(f"sqlite:///{tmp_path}/other.db") as other:
        other.add_turn("one")
        (tmp_path / "other.db-feeds").write_bytes(states.read_bytes())
        with pytest.raises(StoreCutError, match="the feed is of log"):
            other.feeds.feed(Shelf()).run()
        [status] = other.feeds.all()
        assert status.error is not None
        assert "the feed is of log" in status.error


def test_webhook_of_a_log_that_was_rolled_back_is_told_how_to_go_on(filed: TurnLog, tmp_path: Path) -> None:
    """What does not know how far it is can be moved."""
    turns = [filed.add_turn(text) for text in ("one", "two")]
    filed.feeds.feed(Shelf()).run()
    states = FeedStates(tmp_path / "log.db-feeds")
    [state] = states.all()
    assert [feed.error for feed in filed.feeds.all()] == [None]
    states.save(replace(state, event_id=turns[0].id))
    [listed] = filed.feeds.all()
    with pytest.raises(
        StoreCutError,
        match=r"rolled back.*`turnlog feeds move shelf:here --to POSITION` says where.* and it is to put that away$",
    ) as refused:
        filed.feeds.feed(Shelf()).run()
    assert listed.error == str(refused.value)
    filed.feeds.move("shelf:here", 2)
    shelf = Shelf()
    filed.feeds.feed(shelf).run()
    assert shelf.positions == [3]


def test_feed_beyond_the_end_of_the_log_is_listed_as_one_that_does_not_go_on(filed: TurnLog, tmp_path: Path) -> None:
    """Before it runs again: as where a server took over that lacks the end."""
    filed.add_turn("one")
    filed.feeds.feed(JSONLines(tmp_path / "lines")).run()
    states = FeedStates(tmp_path / "log.db-feeds")
    [state] = states.all()
    states.save(replace(state, position=9))
    [listed] = filed.feeds.all()
    assert listed.lag == 0
    assert listed.error == (
        "the log ends at global position 2, and the feed had come to 9: it was cut or rolled back, or is another log; "
        f"'{tmp_path / 'lines'}' keeps what it has: begin a feed of another name that delivers elsewhere"
    )


def test_other_events_in_the_places_of_lost_ones_have_other_keys(tmp_path: Path) -> None:
    """Also under the same id, as of an interaction that is tried again behind a lost end."""
    ids = [new_id() for _ in range(2)]
    shelf = Shelf()
    for text in ("An answer.", "Another one."):
        given = iter(ids)
        own = tmp_path / f"{len(shelf.batches)}.db"
        with TurnLog(
            open_store(f"sqlite:///{own}", projections=synchronous()), sources=Sources(new_id=partial(next, given))
        ) as log:
            log.add_turn(text)
            log.feeds.feed(shelf).run()
    lost, came = shelf.batches
    assert [record.id for record in lost.records] == [record.id for record in came.records]
    assert lost.log == came.log
    assert lost.records[1].key != came.records[1].key
    assert lost.key != came.key


def test_feed_does_not_go_on_behind_another_event_of_the_same_id(tmp_path: Path) -> None:
    """It was not delivered: that of before was, which the log has lost."""
    ids = [new_id() for _ in range(2)]
    own = tmp_path / "log.db"
    for text in ("An answer.", "Another one."):
        own.unlink(missing_ok=True)
        given = iter(ids)
        with TurnLog(
            open_store(f"sqlite:///{own}", projections=synchronous()), sources=Sources(new_id=partial(next, given))
        ) as log:
            log.add_turn(text)
            if text == "An answer.":
                log.feeds.feed(Shelf()).run()
                log.feeds.run(["usage"])
            else:
                with pytest.raises(StoreCutError, match=r"was rolled back or written anew.* two stores of this log"):
                    log.feeds.feed(Shelf()).run()
                with pytest.raises(StoreCutError, match=r"2 has event .* with another digest, and had event"):
                    log.feeds.run(["usage"])


def test_feed_of_another_log_is_not_moved(filed: TurnLog, tmp_path: Path) -> None:
    """It could not go on anyway."""
    filed.add_turn("one")
    filed.feeds.feed(Shelf()).run()
    with TurnLog.open(f"sqlite:///{tmp_path}/other.db") as other:
        other.add_turn("one")
        (tmp_path / "other.db-feeds").write_bytes((tmp_path / "log.db-feeds").read_bytes())
        with pytest.raises(ConflictError, match="is of log"):
            other.feeds.move("shelf:here", 1)


class Unusable(Shelf):
    """One that cannot be opened."""

    def open(self, store: Store) -> Place | None:
        """Fail."""
        raise self.failed("not here")


def test_feed_that_cannot_begin_leaves_nothing(filed: TurnLog, tmp_path: Path) -> None:
    """Neither a feed in the list nor a file; one that has begun once stays, with what keeps it."""
    turn = filed.add_turn("one")
    filed.erase(turn=turn.id, reason="asked")
    with pytest.raises(StoreCutError, match="the log has 3 events: a feed cannot begin after global position 99"):
        filed.feeds.feed(JSONLines(tmp_path / "lines"), after=99).run()
    assert not (tmp_path / "lines").exists()
    with pytest.raises(SinkError, match="not here"):
        filed.feeds.feed(Unusable()).run()
    with pytest.raises(SinkError, match="not here"):
        filed.feeds.feed(Unusable()).follow()
    assert filed.feeds.all() == []
    assert not list(tmp_path.glob("log.db-feeds*"))
    filed.feeds.feed(Shelf()).run()
    with pytest.raises(SinkError, match="not here"):
        filed.feeds.feed(Unusable()).run()
    assert [feed.error for feed in filed.feeds.all()] == ["shelf 'here': not here"]


# -------------------------------------------------------------------------------------------------------------- running


def test_following_delivers_what_comes(filed: TurnLog) -> None:
    """Until it is stopped."""
    shelf = Shelf()
    feed = filed.feeds.feed(shelf)
    thread = threading.Thread(target=feed.follow)
    thread.start()
    try:
        for number in range(3):
            shelf.delivered.clear()
            filed.add_turn(str(number))
            assert shelf.delivered.wait(30)
    finally:
        feed.stop()
        thread.join(30)
    assert not thread.is_alive()
    assert shelf.positions == [1, 2, 3, 4]
    assert shelf.opened == 0


def test_what_is_no_sink_is_refused_at_once(filed: TurnLog) -> None:
    """With what to give."""
    given: Any = "lines"
    with pytest.raises(MetaError, match=r"sink: str is no Sink: give such as JSONLines\(folder\)"):
        filed.feeds.feed(given)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", None),
        ("kind", ""),
        ("destination", 5),
        ("takes_back", 1),
        ("batch_events", 0),
        ("batch_bytes", 1.5),
        ("linger_s", -1),
        ("topics", ["gpt.turn"]),
        ("topics", (5,)),
        ("takes_back", True),
    ],
)
def test_sink_whose_attributes_no_feed_can_go_by_is_refused_at_once(filed: TurnLog, field: str, value: object) -> None:
    """What a feed keeps of it would be unreadable for all feeds; one that takes back has to have a way to."""
    healthy = filed.feeds.feed(Shelf(), name="healthy")
    filed.add_turn("a")
    healthy.run()
    odd = type("Odd", (Shelf,), {field: value})
    with pytest.raises(MetaError, match=rf"^sink 'Odd': its {field} (is|are) "):
        filed.feeds.feed(odd(), name="odd")
    assert [status.name for status in filed.feeds.all()] == ["healthy"]


def test_what_goes_wrong_first_is_what_is_raised(filed: TurnLog) -> None:
    """Also where the sink cannot be closed then, which is told beside."""

    class Odd(Shelf):
        def close(self) -> None:
            raise ValueError("stuck")

    filed.add_turn("a")
    with pytest.raises(SinkError, match="full") as caught:
        filed.feeds.feed(Odd(SinkError("full", sink="odd"))).run()
    assert caught.value.__notes__ == ["and it could not be closed: ValueError: stuck"]
    with pytest.raises(ValueError, match="stuck"):
        filed.feeds.feed(Odd()).run()


def test_sink_that_opens_at_no_place_is_refused(filed: TurnLog) -> None:
    """With what to return."""
    filed.add_turn("a")
    odd = type("Odd", (Shelf,), {"open": lambda _self, _store: "here"})
    with pytest.raises(MetaError, match=r"^open of sink 'Odd' returned 'str': return a Place, or None$"):
        filed.feeds.feed(odd()).run()


def test_stopped_feed_can_be_begun_again(filed: TurnLog) -> None:
    """It runs, and follows until it is stopped again."""
    shelf = Shelf()
    feed = filed.feeds.feed(shelf)
    for number in range(2):
        filed.add_turn(str(number))
        shelf.delivered.clear()
        thread = threading.Thread(target=feed.follow)
        thread.start()
        assert shelf.delivered.wait(30)
        feed.stop()
        thread.join(30)
        assert not thread.is_alive()
    filed.add_turn("more")
    assert (feed.run().lag, shelf.positions) == (0, [1, 2, 3, 4])


def test_feed_that_is_stopped_before_it_follows_returns(filed: TurnLog) -> None:
    """A thread that is started and stopped at once ends; the request holds for no run, and for one time."""
    shelf = Shelf()
    feed = filed.feeds.feed(shelf)
    filed.add_turn("one")
    feed.stop()
    assert feed.run().lag == 0
    filed.add_turn("two")
    feed.follow()
    assert shelf.positions == [1, 2]
    told: list[int] = []
    feed.follow(told=lambda status: (told.append(status.lag), feed.stop())[0])
    assert told == [0]


def test_feed_that_waits_for_its_next_try_is_stopped(filed: TurnLog) -> None:
    """However long the destination asked it to wait."""
    shelf = Shelf(again(retry_after_s=3600.0))
    feed = filed.feeds.feed(shelf)
    filed.add_turn("one")
    feed.follow(on_retry=lambda _error, _seconds: feed.stop())
    assert (shelf.tried, shelf.batches) == (1, [])


def test_following_waits_for_a_batch_to_fill(filed: TurnLog) -> None:
    """Where the sink wants that."""
    shelf = Shelf()
    shelf.linger_s = 3600.0
    filed.add_turn("one")
    caught_up = threading.Semaphore(0)
    feed = filed.feeds.feed(shelf, batch=3)
    thread = threading.Thread(target=feed.follow, kwargs={"told": lambda _: caught_up.release()})
    thread.start()
    try:
        assert caught_up.acquire(timeout=30)
        for number in range(3):
            filed.add_turn(str(number))
        assert caught_up.acquire(timeout=30)
    finally:
        feed.stop()
        thread.join(30)
    assert [len(batch.records) for batch in shelf.batches] == [2, 3]


def test_feed_runs_once_at_a_time(filed: TurnLog, tmp_path: Path) -> None:
    """Whoever runs it; and two feeds do not fill one folder."""

    def told(status: Any) -> None:
        with pytest.raises(ConflictError, match="running already"):
            filed.feeds.feed(JSONLines(tmp_path / "lines")).run()
        with (
            TurnLog.open(filed.store.url) as same,
            pytest.raises(ConflictError, match="running already"),
        ):
            same.feeds.feed(JSONLines(tmp_path / "lines")).run()
        with pytest.raises(ConflictError, match="a folder of its own"):
            filed.feeds.feed(JSONLines(tmp_path / "lines"), name="other").run()
        with (
            TurnLog.open(f"sqlite:///{tmp_path}/other.db") as other,
            pytest.raises(SinkError, match="another feed fills this folder"),
        ):
            other.feeds.feed(JSONLines(tmp_path / "lines")).run()
        with pytest.raises(ConflictError, match="running already"):
            filed.feeds.remove(feed.name)
        seen.append(status.running)
        feed.stop()

    seen: list[bool] = []
    filed.add_turn("one")
    feed = filed.feeds.feed(JSONLines(tmp_path / "lines"))
    feed.follow(told=told)
    assert seen == [True]
    feed = filed.feeds.feed(JSONLines(tmp_path / "lines"))
    assert feed.run().position == 2


def test_feed_begins_behind_an_erasure_that_has_it(
    filed: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service is not to end because something is erased as it starts; what a killed erasure left is nothing."""
    states = FeedStates(tmp_path / "log.db-feeds")
    filed.feeds.feed(Shelf()).run()
    filed.add_turn("one")
    held, pauses = ExitStack(), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        held.close()

    with held:
        held.enter_context(states.held("shelf:here", delivers=False))
        monkeypatch.setattr("turnlog.feeds.sinks.states.sleep", pause)
        filed.feeds.feed(Shelf()).run()
        assert len(pauses) == 1
    [lock] = tmp_path.glob("log.db-feeds-*.lock")
    lock.write_bytes(b"takes back")
    with states.held("shelf:here"), pytest.raises(ConflictError, match="running already"):
        filed.feeds.feed(Shelf()).run()


def test_feed_begins_while_somebody_looks_whether_it_runs(
    filed: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks has the lock for a moment, together with others who look: it is waited for, and not long."""
    filed.feeds.feed(Shelf()).run()
    [lock] = tmp_path.glob("log.db-feeds-*.lock")
    handle = os.open(lock, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        assert not filed.feeds.get("shelf:here").running
        with monkeypatch.context() as patch:
            patch.setattr("turnlog.feeds.sinks.states._PATIENCE_S", 0.0)
            with pytest.raises(ConflictError, match="running already"):
                filed.feeds.feed(Shelf()).run()
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            fcntl.flock(handle, fcntl.LOCK_UN)

        monkeypatch.setattr("turnlog.feeds.sinks.states.sleep", pause)
        filed.feeds.feed(Shelf()).run()
        assert len(pauses) == 1
    finally:
        os.close(handle)


def test_name_is_of_one_destination(filed: TurnLog, tmp_path: Path) -> None:
    """Until it is forgotten."""
    filed.feeds.feed(Shelf(), name="mine").run()
    with pytest.raises(ConflictError, match="'mine' delivers to shelf 'here'"):
        filed.feeds.feed(JSONLines(tmp_path / "lines"), name="mine").run()
    assert [filed.feeds.get("mine")] == filed.feeds.all()
    filed.feeds.remove("mine")
    assert filed.feeds.all() == []
    filed.feeds.feed(JSONLines(tmp_path / "lines"), name="mine").run()
    with pytest.raises(NotFoundError, match="no feed 'other' \\(one of 'mine'\\)"):
        filed.feeds.remove("other")
    with pytest.raises(NotFoundError, match="no feed 'other'"):
        filed.feeds.get("other")


BEGUN: list[tuple[dict[str, Any], str]] = [
    ({}, "without --topic, --public and --unseal"),
    ({"public": True}, "with --public"),
    ({"unseal": True}, "with --unseal"),
    ({"topics": ["gpt.turn", "gpt.my own"]}, "with --topic gpt.turn --topic 'gpt.my own'"),
    ({"topics": "gpt.turn", "public": True, "unseal": True}, "with --topic gpt.turn --public --unseal"),
]


@pytest.mark.parametrize(("begun", "said"), BEGUN)
def test_feed_delivers_what_it_was_begun_with(filed: TurnLog, tmp_path: Path, begun: dict[str, Any], said: str) -> None:
    """Another choice is refused, with what it was begun with; what the destination has is of one choice."""
    filed.add_turn("one")
    sinks: list[tuple[Sink, str]] = [
        (Shelf(), "with --after 2 to go on from there"),
        (JSONLines(tmp_path / "lines"), "where its files end"),
    ]
    for sink, where in sinks:
        filed.feeds.feed(sink, name="a feed", **begun).run()
        for other in (other for other, _ in BEGUN if other != begun):
            feed = filed.feeds.feed(sink, name="a feed", **other)
            for deliver in (feed.run, feed.follow):
                with pytest.raises(ConflictError) as raised:
                    deliver()
                assert str(raised.value) == (
                    f"feed 'a feed' was begun {said}: give it the same, or forget it with "
                    f"`turnlog feeds remove 'a feed'` and begin it again, {where}"
                )
        assert filed.feeds.get("a feed").error is None
        same = {**begun, "topics": begun["topics"][::-1]} if isinstance(begun.get("topics"), list) else begun
        assert filed.feeds.feed(sink, name="a feed", **same).run().position == 2
        filed.feeds.remove("a feed")


def test_what_a_sink_wants_itself_was_not_given_for_it(filed: TurnLog) -> None:
    """Its own topics, and erasures beside those that were given."""

    class Wants(Shelf):
        wants_erasures = True
        topics = ("gpt.turn", "gpt.erasure")

    for given, said in (
        ((), "without --topic,"),
        (("gpt.call", "gpt.turn"), "with --topic gpt.call --topic gpt.turn:"),
        (("gpt.erasure",), "with --topic gpt.erasure:"),
    ):
        filed.feeds.feed(Wants(), topics=given).run()
        with pytest.raises(ConflictError, match=f"was begun {said}"):
            filed.feeds.feed(Wants(), topics=given, public=True).run()
        filed.feeds.remove("shelf:here")


def test_feed_of_an_earlier_version_takes_what_the_next_call_says(filed: TurnLog, tmp_path: Path) -> None:
    """Its state does not say that it was begun with what it last delivered. From then on it does."""
    filed.add_turn("one")
    filed.feeds.feed(Shelf()).run()
    with closing(sqlite3.connect(tmp_path / "log.db-feeds")) as connection, connection:
        connection.execute("UPDATE turnlog_feeds SET state = json_remove(state, '$.keeps_choice')")
    assert [feed.position for feed in filed.feeds.all()] == [2]
    filed.feeds.feed(Shelf(), public=True).run()
    with pytest.raises(ConflictError, match="was begun with --public"):
        filed.feeds.feed(Shelf()).run()
    assert filed.feeds.feed(Shelf(), public=True).run().position == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": -1},
        {"batch": 0},
        {"attempts": 0},
        {"name": "a\nb"},
        {"name": ""},
        {"name": 5},
        {"name": "x" * 201},
    ],
)
def test_what_is_asked_for_is_checked(filed: TurnLog, wrong: dict[str, Any]) -> None:
    """Before anything is kept."""
    with pytest.raises(MetaError):
        filed.feeds.feed(Shelf(), **wrong)
    assert filed.feeds.all() == []


def test_name_that_a_feed_has_already_may_be_longer(filed: TurnLog, tmp_path: Path) -> None:
    """It is that of a destination, or of before: such a feed goes on, and erasures reach what it has delivered."""
    turn = filed.add_turn("a word of theirs")
    folder = tmp_path / ("x" * 200)
    name = filed.feeds.feed(JSONLines(folder)).run().name
    assert len(name) > 200
    assert filed.feeds.feed(JSONLines(folder), name=name).run().position == 2
    assert filed.erase(turn=turn.id, reason="asked").remains is None
    filed.feeds.remove(name)


def test_files_are_their_owners_alone(filed: TurnLog, tmp_path: Path) -> None:
    """As those of the log are."""
    filed.add_turn("one")
    filed.feeds.feed(JSONLines(tmp_path / "lines")).run()
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (*tmp_path.glob("log.db-feeds*"), *(tmp_path / "lines").iterdir())
    }
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "lines").stat().st_mode) == 0o700


def test_log_in_memory_has_feeds_too() -> None:
    """Until it is closed."""
    with TurnLog.open("memory://") as log:
        log.add_turn("one")
        shelf = Shelf()
        assert log.feeds.feed(shelf).run().position == 2
        assert [feed.position for feed in log.feeds.all()] == [2]
        log.feeds.remove("shelf:here")
        assert log.feeds.all() == []


# -------------------------------------------------------------------------------------------------------------- erasing


def test_feeds_beyond_reach_are_named(filed: TurnLog) -> None:
    """Those that delivered content of what is erased, and cannot take it back."""
    early = filed.add_turn("one")
    for name, public in (("full", False), ("public", True)):
        filed.feeds.feed(Shelf(), name=name, public=public).run()
    late = filed.add_turn("two")
    report = filed.erase(turn=late.id, reason="asked")
    assert filed.feeds.delivered_to(report.erasures) == []
    report = filed.erase(turn=early.id, reason="asked")
    assert [feed.name for feed in filed.feeds.delivered_to(report.erasures)] == ["full"]
    assert report.remains is None


def beyond(log: TurnLog, turn: str) -> list[str]:
    """Erase a turn, and return the names of feeds that were sent it and cannot take it back."""
    report = log.erase(turn=turn, reason="asked")
    return [feed.name for feed in log.feeds.delivered_to(report.erasures)]


def test_what_was_ever_sent_is_beyond_reach(filed: TurnLog, tmp_path: Path) -> None:
    """Also when the feed was moved back since, or delivers less now; but not what went without content."""
    states = FeedStates(tmp_path / "log.db-feeds")

    def deliver_other(**choice: Any) -> None:
        states.save(replace(states.all()[0], keeps_choice=False))  # as an earlier version has let it change
        filed.feeds.feed(Shelf(), **choice).run()

    ids = [filed.add_turn(str(number)).id for number in range(5)]
    filed.feeds.feed(Shelf()).run()
    filed.feeds.move("shelf:here", 0)
    assert beyond(filed, ids[4]) == ["shelf:here"]
    late = filed.add_turn("late").id
    deliver_other(public=True)
    assert beyond(filed, late) == []
    assert beyond(filed, ids[3]) == ["shelf:here"]
    deliver_other(topics="gpt.pointer")
    assert beyond(filed, ids[2]) == ["shelf:here"]
    states.save(replace(states.all()[0], sent_to=None))  # as an earlier version has kept it
    filed.feeds.move("shelf:here", 0)
    assert beyond(filed, ids[1]) == ["shelf:here"]


def test_what_was_refused_is_beyond_reach(filed: TurnLog) -> None:
    """The destination may have kept some of it, wherever the feed goes on."""
    ids = [filed.add_turn(str(number)).id for number in range(4)]
    with pytest.raises(SinkError, match="no"):
        filed.feeds.feed(Shelf(SinkError("no", sink="shelf")), batch=3).run()
    filed.feeds.move("shelf:here", 0)
    assert beyond(filed, ids[3]) == []
    assert beyond(filed, ids[1]) == ["shelf:here"]


def test_batch_that_may_have_been_delivered_is_beyond_reach(filed: TurnLog) -> None:
    """The feed was killed before it knew."""
    turn = filed.add_turn("one")
    killed = Shelf()

    def die(_batch: Batch) -> None:
        raise KeyboardInterrupt

    killed.deliver = die
    with pytest.raises(KeyboardInterrupt):
        filed.feeds.feed(killed).run()
    report = filed.erase(turn=turn.id, reason="asked")
    assert [feed.name for feed in filed.feeds.delivered_to(report.erasures)] == ["shelf:here"]


def test_feed_whose_sink_cannot_be_opened_can_be_run_again(filed: TurnLog, tmp_path: Path) -> None:
    """Nothing of the first time is held."""
    filed.add_turn("one")
    folder = tmp_path / "lines"
    folder.mkdir()
    bad = folder / "events-00000000000000000001.jsonl"
    bad.write_text("hello\n")
    sink = JSONLines(folder)
    with pytest.raises(SinkError, match="no event"):
        filed.feeds.feed(sink).run()
    bad.unlink()
    assert filed.feeds.feed(sink).run().position == 2


def test_states_that_cannot_be_read_are_told(filed: TurnLog, tmp_path: Path) -> None:
    """As an error of the store, whatever is wrong with them, with what to do: an erasure then reaches folders again."""
    turn = filed.add_turn("a word of theirs")
    filed.feeds.feed(JSONLines(tmp_path / "lines"), name="lines").run()
    with closing(sqlite3.connect(tmp_path / "log.db-feeds")) as connection, connection:
        connection.execute("UPDATE turnlog_feeds SET state = '{}'")
    with pytest.raises(StoreError, match=r"cannot be used: .*missing required field.*; remove that file and run each"):
        filed.feeds.all()
    (tmp_path / "log.db-feeds").write_bytes(b"nothing" * 100)
    with pytest.raises(StoreError, match="cannot be used: file is not a database; remove that file and run each feed"):
        filed.feeds.all()
    remains = filed.erase(turn=turn.id, reason="asked").remains
    assert remains is not None
    assert "where feeds have delivered it" in remains
    (tmp_path / "log.db-feeds").unlink()
    filed.feeds.feed(JSONLines(tmp_path / "lines"), name="lines").run()
    assert "theirs" not in "".join(path.read_text() for path in (tmp_path / "lines").glob("*.jsonl"))
    (tmp_path / "log.db-feeds").unlink()
    (tmp_path / "log.db-feeds").mkdir()
    with pytest.raises(StoreError, match="cannot be used") as raised:
        filed.feeds.all()
    assert "remove" not in str(raised.value)


class Taking(Shelf):
    """One that takes back."""

    kind = "taking"
    takes_back = True

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[list[int]] = []

    def forget(self, records: Sequence[SinkRecord]) -> None:
        """Note what."""
        assert all(record.fields["erased"] for record in records)
        self.forgotten.append([record.position for record in records])


def test_erasures_reach_what_was_delivered(filed: TurnLog) -> None:
    """Once, before what came after them is delivered; whatever topics are delivered."""
    ids = [filed.add_turn(text).id for text in ("one", "two", "three")]
    taking = Taking()
    filed.feeds.feed(taking, topics="gpt.turn", batch=2).run()
    filed.erase(turn=ids[0], reason="asked")
    filed.erase(turn=ids[2], reason="asked")
    filed.feeds.feed(taking, topics="gpt.turn").run()
    filed.feeds.feed(taking, topics="gpt.turn").run()
    assert taking.forgotten == [[2, 4]]
    assert taking.positions == [2, 3, 4]


def test_sink_of_ones_own_that_takes_back_is_named_until_its_feed_runs(filed: TurnLog) -> None:
    """Only where it was delivered content of what is erased."""
    ids = [filed.add_turn(text).id for text in ("one", "two")]
    taking = Taking()
    filed.feeds.feed(taking, name="own").run()
    filed.feeds.feed(Taking(), name="bare", public=True).run()
    later = filed.add_turn("three").id
    assert filed.erase(turn=later, reason="asked").remains is None
    assert not any(status.owes for status in filed.feeds.all())
    remains = filed.erase(turn=ids[0], reason="asked").remains
    assert remains is not None
    assert "feed 'own': its sink is none of turnlog's, and takes back when the feed runs: run it" in remains
    assert "bare" not in remains
    assert filed.finish_erasing() == remains
    assert {status.name: status.owes for status in filed.feeds.all()} == {"own": True, "bare": False}
    assert not filed.feeds.feed(taking, name="own").run().owes
    assert taking.forgotten == [[2]]
    assert filed.finish_erasing() is None


def test_sink_of_ones_own_is_reached_by_the_feed_that_runs(filed: TurnLog) -> None:
    """An erasure waits for that, for a moment."""
    turn = filed.add_turn("one")
    taking = Taking()
    feed = filed.feeds.feed(taking, name="own")
    following = threading.Thread(target=feed.follow)
    following.start()
    while not taking.positions:
        time.sleep(0.001)
    assert filed.erase(turn=turn.id, reason="asked").remains is None
    assert taking.forgotten == [[2]]
    feed.stop()
    following.join(30)


@pytest.mark.parametrize("place", ["file", "memory"])
def test_erasure_takes_what_feeds_have_failed_with(url: str, tmp_path: Path, place: str) -> None:
    """A destination may repeat what it was sent. That the feed failed, and since when, stays."""
    with TurnLog.open(url if place == "file" else "memory://") as log:
        turn = log.add_turn("a word of theirs")
        for name in ("one", "two"):
            with pytest.raises(SinkError, match="theirs"):
                log.feeds.feed(Shelf(SinkError("what is 'a word of theirs'?", sink="shelf")), name=name).run()
        before = log.feeds.all()
        assert log.finish_erasing() is None
        assert [feed.error for feed in log.feeds.all()] == [feed.error for feed in before]
        assert log.erase(turn=turn.id, reason="asked").remains is None
        after = log.feeds.all()
        assert {feed.error for feed in after} == {"what it failed with is not kept: something was erased since"}
        assert [feed.error_time for feed in after] == [feed.error_time for feed in before]
        assert not [path for path in tmp_path.glob("log.db*") if b"theirs" in path.read_bytes()]
        with pytest.raises(SinkError, match="no"):
            log.feeds.feed(Shelf(SinkError("no", sink="shelf")), name="one").run()
        assert log.finish_erasing() is None
        assert log.feeds.get("one").error == "no"


def test_erasure_takes_what_a_feed_that_runs_has_failed_with(filed: TurnLog, no_pause: list[float]) -> None:
    """It does not write it again."""
    turn = filed.add_turn("a word of theirs")
    kept: list[str | None] = []

    class Looking(Shelf):
        def deliver(self, batch: Batch) -> None:
            kept.append(filed.feeds.get("shelf:here").error)
            super().deliver(batch)

    def erase(_error: Exception, _seconds: float) -> None:
        filed.erase(turn=turn.id, reason="asked")
        kept.append(filed.feeds.get("shelf:here").error)

    filed.feeds.feed(Looking(again("what is 'a word of theirs'?"))).run(on_retry=erase)
    assert kept[:3] == [None, FORGOTTEN, FORGOTTEN]


@pytest.mark.parametrize("is_at_once", [False, True])
def test_erasure_reaches_a_feed_that_waits_for_a_batch(
    filed: TurnLog, monkeypatch: pytest.MonkeyPatch, *, is_at_once: bool
) -> None:
    """At once, however long it would wait, and also if it comes just after another one was carried out."""
    first, second = (filed.add_turn(text).id for text in ("one", "two"))
    taking = Taking()
    taking.linger_s = 3600.0
    caught_up = threading.Event()
    note = Running.note

    def then_erase(running: Running, **changes: object) -> None:
        note(running, **changes)
        if is_at_once and len(taking.forgotten) == 1:
            filed.erase(turn=second, reason="asked")

    monkeypatch.setattr(Running, "note", then_erase)
    feed = filed.feeds.feed(taking, batch=100)
    thread = threading.Thread(target=feed.follow, kwargs={"told": lambda _: caught_up.set()})
    thread.start()
    try:
        assert caught_up.wait(30)
        for number, turn in enumerate((first, second), 1):
            if number == 1 or not is_at_once:
                filed.erase(turn=turn, reason="asked")
            until = time.monotonic() + 30
            while len(taking.forgotten) < number and time.monotonic() < until:
                filed.wait(filed.wait(0, 0), 0.01)
    finally:
        feed.stop()
        thread.join(30)
    assert taking.forgotten == [[2], [3]]
    assert len(taking.batches) == 1


def test_a_feed_that_fails_in_an_unforeseen_way_says_so(filed: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lists feeds sees that it does not go on, and why; when it does, nothing of it is left."""
    shelf = Shelf()
    feed = filed.feeds.feed(shelf)
    filed.add_turn("one")
    feed.run()
    filed.add_turn("two")
    monkeypatch.setattr(shelf, "failures", [OverflowError("too large")])
    with pytest.raises(OverflowError):
        feed.run()
    assert (feed.status().error, feed.status().lag) == ("OverflowError: too large", 1)
    feed.run()
    assert (feed.status().error, feed.status().lag) == (None, 0)
