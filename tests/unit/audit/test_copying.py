"""Copies of a log in another store: the same bytes in the same places; what is not the beginning of it is refused."""

import io
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from itertools import count
from pathlib import Path

import psycopg
import pytest
from tests.faults.rich_store import AT, build
from tests.rewriting import without_triggers
from tests.sealed_log import SealsInMemory, fill
from tests.servers.postgres import Postgres
from tests.talk import traces

from turnlog import ConflictError, CorruptionError, TurnLog
from turnlog.audit import copying
from turnlog.audit.anchors import read_anchors
from turnlog.audit.notes import Signer
from turnlog.audit.places import Folder
from turnlog.digest import sri
from turnlog.errors import StoreOpenError
from turnlog.events import Arrival
from turnlog.feeds.sinks import JSONLines
from turnlog.projections.tree import tree_size
from turnlog.store import StoredRow

SIGNER = Signer.generate("example.com/log")
LARGE = 70_000

NewStore = Callable[[str], str]
"""Makes the URL of a new store, from the name of its engine."""


@pytest.fixture
def new_store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NewStore]:
    """Give a way to new stores of each engine."""
    made: list[str] = []
    numbers = count(1)

    def new(engine: str) -> str:
        if engine == "sqlite":
            return f"sqlite:///{tmp_path}/store-{next(numbers)}/log.db"
        server: Postgres = request.getfixturevalue("postgres")
        made.append(server.create_database())
        return made[-1]

    yield new
    for url in made:
        request.getfixturevalue("postgres").drop_database(url)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Give a log that has one of everything, with a checkpoint in it and elsewhere."""
    path = tmp_path / "source.db"
    build(path)
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.audit.checkpoint(SIGNER, to=[Folder(tmp_path / "elsewhere")])
    return f"sqlite:///{path}"


@pytest.fixture
def small(tmp_path: Path) -> str:
    """Give a log of a few turns."""
    url = f"sqlite:///{tmp_path}/small.db"
    with TurnLog.open(url) as log:
        for number in range(5):
            log.add_turn(f"turn {number}", bookmark=f"bookmark {number}")
    return url


def kept(url: str) -> list[tuple[object, ...]]:
    """Return all events of a store as they lie there, but for where their payloads are; and these, as they are kept."""
    with TurnLog.open(url, create=False) as log, log.store.read() as transaction:
        rows = [row[:9] for row in transaction.stored_rows(0, 1000)]
        payloads = [transaction.stored_payload(event) for event in transaction.log()]
    return [(*row, payload) for row, payload in zip(rows, payloads, strict=True)]


def copied(source: str, target: str, *, progress: copying.Progress | None = None) -> copying.CopyReport:
    """Copy a store."""
    with TurnLog.open(source, create=False) as log:
        return log.copy_to(target, progress=progress)


@pytest.mark.parametrize("last", ["sqlite", "postgres"])
@pytest.mark.parametrize("first", ["sqlite", "postgres"])
def test_copy_is_the_log(source: str, tmp_path: Path, new_store: NewStore, first: str, last: str) -> None:
    """Bytes, places, arrivals, erasures, checkpoints and bookmarks are the same, over whatever engines it goes."""
    between, end = new_store(first), new_store(last)
    reports = [copied(source, between), copied(between, end)]
    assert kept(source) == kept(between) == kept(end)
    anchors = read_anchors([tmp_path / "elsewhere"], [SIGNER.verifier])
    with TurnLog.open(source) as log, TurnLog.open(end, create=False) as copy:
        assert [(r.log, r.events, r.added, r.known, r.checkpoints) for r in reports] == [
            (log.id, len(AT), len(AT), 0, 1)
        ] * 2
        assert copy.bookmarks.all() == log.bookmarks.all()
        assert copy.threads() == log.threads()
        assert copy.pointers.all() == log.pointers.all()
        assert copy.audit.checkpoints() == log.audit.checkpoints()
        assert {event.arrival for event in copy.events()} == {Arrival.RECORDED, Arrival.GUEST}
        report = copy.verify(checkpoints=anchors)
        assert (report.damage, report.checkpoints) == ((), 2)
        with copy.store.read() as transaction:
            assert tree_size(transaction) == len(AT)
        assert (copy.stats().file_count > 0) == (last == "sqlite")
        assert copy.add_turn("and on", continues="main").global_position == len(AT) + 1


def test_root_is_that_of_a_checkpoint(source: str, new_store: NewStore) -> None:
    """What is reported is what a checkpoint of the log says."""
    report = copied(source, new_store("sqlite"))
    with TurnLog.open(source) as log:
        [checkpoint] = log.audit.checkpoints()
    assert (report.events, report.root) == (checkpoint.size, sri(checkpoint.root))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_sealed_log_is_copied_without_keys(tmp_path: Path, new_store: NewStore, engine: str) -> None:
    """Sealed bytes are the same there, and the keys open them."""
    seals = SealsInMemory()
    fill(tmp_path / "sealed.db", seals)
    source = f"sqlite:///{tmp_path}/sealed.db"
    target = new_store(engine)
    copied(source, target)
    back = new_store("sqlite")
    copied(target, back)
    assert kept(source) == kept(target) == kept(back)
    with TurnLog.open(source, seals=seals) as log:
        for url in (target, back):
            with TurnLog.open(url, create=False, seals=seals) as copy:
                assert copy.context("both") == log.context("both")
                assert copy.bookmarks.all() == log.bookmarks.all()
                assert copy.verify().damage == ()


def test_empty_log_is_copied(tmp_path: Path, new_store: NewStore) -> None:
    """There is nothing in it, and it makes a store."""
    TurnLog.open(f"sqlite:///{tmp_path}/empty.db").close()
    target = new_store("sqlite")
    report = copied(f"sqlite:///{tmp_path}/empty.db", target)
    assert (report.log, report.events, report.root) == (
        None,
        0,
        "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    )
    assert kept(target) == []


def test_large_payloads_change_their_place(tmp_path: Path, new_store: NewStore) -> None:
    """They are files beside SQLite and in the table on PostgreSQL, and their bytes are the same."""
    source, there, back = f"sqlite:///{tmp_path}/large.db", new_store("postgres"), new_store("sqlite")
    with TurnLog.open(source) as log:
        for content in ("x" * LARGE, sha256(b"").hexdigest() * 2000, "y" * (LARGE - 5000)):
            log.add_turn(content)
    copied(source, there)
    copied(there, back)
    assert kept(source) == kept(there) == kept(back)
    counts: list[int] = []
    for url in (source, there, back):
        with TurnLog.open(url) as log:
            counts.append(log.stats().file_count)
            assert log.verify().damage == ()
    assert counts == [2, 0, 2]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_later_copy_brings_what_has_come(small: str, new_store: NewStore, engine: str) -> None:
    """What is there is known, and only the rest is added; a copy of the same again adds nothing."""
    target = new_store(engine)
    copied(small, target)
    with TurnLog.open(small) as log:
        log.add_turn("more", continues="bookmark 1")
    assert [(r.added, r.known, r.events) for r in (copied(small, target), copied(small, target))] == [
        (1, 6, 7),
        (0, 7, 7),
    ]
    assert kept(target) == kept(small)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_source_may_grow_meanwhile(
    small: str, new_store: NewStore, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied up to where it ended at the call, and the report says how much has come since."""
    monkeypatch.setattr(copying, "GROUP_EVENTS_MAX", 2)
    target = new_store(engine)
    with TurnLog.open(small) as log:
        came = iter(range(3))

        def grow(_done: int, _all: int) -> None:
            if next(came, None) is not None:
                log.add_turn("more")

        report = log.copy_to(target, progress=grow)
    assert (report.events, report.added, report.since) == (6, 6, 3)
    assert kept(target) == kept(small)[:6]


def test_groups_are_bounded(tmp_path: Path, new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In events and in bytes; what is larger than a group goes alone."""
    source = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(source) as log:
        for size in (10, 10, 9000, 10, 10, 10, 10):
            log.add_turn("x" * size)
    monkeypatch.setattr(copying, "GROUP_BYTES_MAX", 8000)
    monkeypatch.setattr(copying, "GROUP_EVENTS_MAX", 3)
    steps: list[int] = []
    copied(source, new_store("sqlite"), progress=lambda done, _all: steps.append(done))
    assert steps == [3, 4, 7, 8, 11, 12, 15, 16]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_same_store_is_refused(tmp_path: Path, small: str, new_store: NewStore, engine: str) -> None:
    """By whatever name."""
    if engine == "sqlite":
        (tmp_path / "other.db").symlink_to(tmp_path / "small.db")
        one, other = small, f"sqlite:///{tmp_path}/other.db"
    else:
        one = new_store("postgres")
        copied(small, one)
        other = one + ("&" if "?" in one else "?") + "connect_timeout=9"
    with pytest.raises(ConflictError, match="are the same store"):
        copied(one, other)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_other_log_is_refused(small: str, source: str, new_store: NewStore, engine: str) -> None:
    """Nothing of it is changed."""
    target = new_store(engine)
    copied(small, target)
    before = kept(target)
    with pytest.raises(ConflictError, match=r"the target has another log, '.*': nothing was copied"):
        copied(source, target)
    assert kept(target) == before


def test_empty_source_is_no_beginning_of_a_log(tmp_path: Path, small: str) -> None:
    """A log is not copied over."""
    TurnLog.open(f"sqlite:///{tmp_path}/empty.db").close()
    with pytest.raises(ConflictError, match="another log"):
        copied(f"sqlite:///{tmp_path}/empty.db", small)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_longer_target_is_refused(small: str, new_store: NewStore, engine: str) -> None:
    """Somebody has written to it, or the source was cut."""
    target = new_store(engine)
    copied(small, target)
    with TurnLog.open(target) as log:
        log.add_turn("written to the copy")
    before = kept(target)
    with pytest.raises(ConflictError, match="the target has 7 events of this log and the source 6"):
        copied(small, target)
    assert kept(target) == before


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_parted_target_is_refused(small: str, new_store: NewStore, engine: str) -> None:
    """What was written to both is two logs from there on."""
    target = new_store(engine)
    copied(small, target)
    for url in (small, target):
        with TurnLog.open(url) as log:
            log.add_turn("written here")
            log.add_turn("and here")
    before = kept(target)
    with pytest.raises(ConflictError, match="the target goes another way from global position 7 on"):
        copied(small, target)
    assert kept(target) == before


def test_restored_log_is_refused(small: str, new_store: NewStore) -> None:
    """It has the events from an import, which a copy of the source has not."""
    target, file = new_store("sqlite"), io.BytesIO()
    with TurnLog.open(small) as log, TurnLog.open(target) as other:
        log.export(file)
        file.seek(0)
        other.import_turnlog(file)
    with pytest.raises(ConflictError, match="global position 1 from an import"):
        copied(small, target)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_target_that_others_write_is_refused(
    small: str, new_store: NewStore, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as somebody does; what is in stays, and the error says how much that is."""
    monkeypatch.setattr(copying, "GROUP_EVENTS_MAX", 2)
    target = new_store(engine)

    def write(done: int, _all: int) -> None:
        if done == 4:
            with TurnLog.open(target) as other:
                other.add_turn("in between")

    with pytest.raises(ConflictError, match="somebody else has written to the target, behind its 4 events") as caught:
        copied(small, target, progress=write)
    assert caught.value.__notes__ == ["at least 4 of 6 events are in: the same copy again adds the rest"]
    with pytest.raises(ConflictError, match="goes another way from global position 5 on"):
        copied(small, target)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_two_copies_at_a_time_do_no_harm(
    small: str, new_store: NewStore, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that finds the other's events ends, and goes on when it is started again."""
    monkeypatch.setattr(copying, "GROUP_EVENTS_MAX", 2)
    target = new_store(engine)
    once = iter([small])

    def another(_done: int, _all: int) -> None:
        for url in once:
            copied(url, target)

    with pytest.raises(ConflictError, match="unless that was a copy of the same source"):
        copied(small, target, progress=another)
    assert copied(small, target).added == 0
    assert kept(target) == kept(small)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_what_was_erased_since_is_erased(tmp_path: Path, new_store: NewStore, engine: str) -> None:
    """A copy has nothing that its source has erased, and says so; its files go too."""
    source, target = f"sqlite:///{tmp_path}/log.db", new_store(engine)
    secret = "a secret " * 9000
    with TurnLog.open(source) as log:
        turn = log.add_turn(secret, bookmark="main")
        log.add_turn("stays", bookmark="other")
        copied(source, target)
        log.erase(turn=turn.id, reason="asked")
    report = copied(source, target)
    assert (report.erased, report.since) == (1, 0)
    assert kept(target) == kept(source)
    with TurnLog.open(target) as copy:
        assert copy.verify().damage == ()
        assert copy.stats().file_count == 0
        assert [bookmark.name for bookmark in copy.bookmarks.all()] == ["other"]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_what_comes_with_an_erasure_is_whole(tmp_path: Path, new_store: NewStore, engine: str) -> None:
    """A large payload that goes into a copy together with an erasure is there, and nothing is left on its way in."""
    source, target = f"sqlite:///{tmp_path}/log.db", new_store(engine)
    with TurnLog.open(source) as log:
        turn = log.add_turn("a secret", bookmark="main")
        copied(source, target)
        for number in range(2):
            log.add_turn(f"{number}" * LARGE, bookmark="large")
        log.erase(turn=turn.id, reason="asked")
    report = copied(source, target)
    assert (report.added, report.erased) == (3, 1)
    assert kept(target) == kept(source)
    with TurnLog.open(target) as copy:
        assert copy.verify().damage == ()
        assert copy.stats().file_count == (2 if engine == "sqlite" else 0)
        assert copy.store.scrub() is None
    assert not [*tmp_path.glob("store-*/log.db-payloads/.incoming/*/*-*")]


def test_what_was_erased_since_goes_from_what_the_copy_feeds(tmp_path: Path) -> None:
    """From its index of words and from its folders, with the event that says so; what is left somewhere is told."""
    source, target = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/copy.db"
    with TurnLog.open(source) as log, TurnLog.open(target) as copy:
        turn = log.add_turn("a secret river")
        copied(source, target)
        copy.feeds.feed(JSONLines(tmp_path / "lines")).run()
        assert [each.turn for each in copy.feeds.search("river")] == [turn.id]
        log.erase(turn=turn.id, reason="asked")
        with copy.store.read() as transaction:
            transaction.log_end()
            for erased in (1, 0):  # the second copy has nothing to erase, and the same is left
                report = log.copy_to(target, busy_timeout_s=0.2)
                assert report.remains is not None
                assert "somebody reads an older state" in report.remains
                assert report.erased == erased
        assert copied(source, target).remains is None
    assert traces(tmp_path, [b"secret river"]) == set()


def test_nobody_reads_what_is_about_to_be_erased(small: str, tmp_path: Path) -> None:
    """An erasure comes into a copy with what it takes away: who reads in between has both, or neither."""
    target = f"sqlite:///{tmp_path}/copy.db"
    copied(small, target)
    seen: list[tuple[bool, bool]] = []
    with TurnLog.open(small) as log, TurnLog.open(target) as copy:
        turn = log.turn("bookmark 2").id
        log.erase(turn=turn, reason="asked")

        def look(_done: int, _all: int) -> None:
            with copy.store.read() as transaction:
                event = transaction.event(turn)
                assert event is not None
                seen.append((transaction.last_erasure() > event.global_position, event.erased))

        log.copy_to(target, progress=look)
    assert seen
    assert set(seen) == {(True, True)}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.parametrize("at", [2, 4, 6, 8])
def test_what_is_erased_meanwhile_is_erased(
    small: str, new_store: NewStore, engine: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after it is copied, and the event that says so is copied too."""
    monkeypatch.setattr(copying, "GROUP_EVENTS_MAX", 2)
    target = new_store(engine)
    with TurnLog.open(small) as log:

        def erase(done: int, _all: int) -> None:
            if done == at:
                log.erase(turn="bookmark 2", reason="asked")

        log.copy_to(target, progress=erase)
        report = log.copy_to(target)
    assert report.since == 0
    assert kept(target) == kept(small)
    with TurnLog.open(target) as copy:
        assert (copy.verify().damage, copy.verify().erased) == ((), 1)


def test_damaged_source_is_not_copied(tmp_path: Path, small: str, new_store: NewStore) -> None:
    """What is not what was recorded stops the copy."""
    with without_triggers(tmp_path / "small.db") as connection:
        connection.execute(
            "UPDATE stored_events SET payload = CAST(x'00' || substr(payload, 2) AS BLOB) WHERE notification_id = 4"
        )
    target = new_store("sqlite")
    with pytest.raises(CorruptionError, match="its hash differs from the one that was recorded"):
        copied(small, target)
    assert kept(target) == []


@pytest.mark.parametrize(
    "change",
    [
        "payload = set_byte(payload, 0, 255 - get_byte(payload, 0))",
        "private = NULL",
        "arrival = 2",
        "leaf_hash = set_byte(leaf_hash, 0, 255 - get_byte(leaf_hash, 0))",
        "originator_id = 'elsewhere'",
        "event_id = 'another'",
        "topic = 'acme.topic'",
    ],
)
def test_damaged_target_is_found(small: str, new_store: NewStore, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that differs is found at the end."""
    target = new_store("postgres")

    def edit(done: int, _all: int) -> None:
        if done == 6:
            with closing(psycopg.connect(target, autocommit=True)) as connection:
                connection.execute("SET search_path TO turnlog")
                connection.execute("ALTER TABLE stored_events DISABLE TRIGGER ALL")
                edited = connection.execute(
                    b"UPDATE stored_events SET " + change.encode() + b" WHERE order_key ="
                    b" (SELECT order_key FROM log_order WHERE global_position = 4)"
                )
                assert edited.rowcount == 1

    with pytest.raises(CorruptionError, match=r"event|payload"):
        copied(small, target, progress=edit)


def test_no_store_is_made_of_a_wrong_url(small: str) -> None:
    """It is refused as everywhere."""
    with pytest.raises(StoreOpenError, match="unknown kind of store"):
        copied(small, "mysql://somewhere")


def test_log_in_memory_is_copied(tmp_path: Path) -> None:
    """A store in memory is a source like others."""
    with TurnLog.open("memory://") as log:
        log.add_turn("once", bookmark="main")
        assert log.copy_to(f"sqlite:///{tmp_path}/log.db").events == 2
        with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as copy:
            assert copy.turn("main") == log.turn("main")


def test_rows_are_compared_whole() -> None:
    """A column that rows gain must be compared as well."""
    assert StoredRow._fields == (
        "global_position",
        "stream",
        "position",
        "topic",
        "state",
        "event_id",
        "leaf_hash",
        "arrival",
        "private",
        "placement",
        "stored",
    )
