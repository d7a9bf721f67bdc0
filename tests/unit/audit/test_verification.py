"""Verification: what it reads and counts, how it gets on with others, how it mends; `tests/faults` has the rest."""

import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.audit import Damage, VerifyReport
from turnlog.audit.contents import Contents
from turnlog.audit.report import DAMAGE_MAX
from turnlog.audit.verification import PAGE_EVENTS
from turnlog.store.folding import TRIES_MAX, Refolding

Poke = Callable[..., None]

TEXT = "to be or not to be " * 5_000


@pytest.fixture
def story(file_log: TurnLog, tmp_path: Path) -> TurnLog:
    """Give a log with a run, a fork, a merge, a document in a file and beside its event, options and bookmarks."""
    (tmp_path / "document.txt").write_text(TEXT)
    root = file_log.add_turn("root " + "x" * 200, bookmark="main", servers=["a"])
    second = file_log.add_turn("second", role="assistant", continues="main")
    fork = file_log.add_turn("fork", continues=root.id, search=True)
    file_log.add_turn("merge", continues=[second.id, fork.id], bookmark="main")
    file_log.add_document(tmp_path / "document.txt", continues="main")
    file_log.bookmarks.set("side", fork.id)
    return file_log


def _whats(report: VerifyReport) -> str:
    return "\n".join(damage.what for damage in report.damage)


def _long(log: TurnLog, turns: int) -> None:
    """Record a long thread."""
    log.add_turn("0", bookmark="main")
    for number in range(1, turns):
        log.add_turn(str(number), continues="main")


# What is read


def test_empty_log_is_clean(log: TurnLog) -> None:
    """There is nothing wrong with nothing."""
    assert log.verify() == VerifyReport()
    assert log.verify().clean


def test_payloads_up_to_a_position_are_not_read_again(story: TurnLog) -> None:
    """What is behind is. A log that ends before was cut, or is another one: that is damage."""
    report = story.verify(since=6)
    assert (report.clean, report.since, report.payloads, story.verify().payloads) == (True, 6, 0, 5)
    assert story.verify(since=7).clean
    assert story.verify(since=8).damage == (
        Damage(
            what="the log ends before global position 8, up to which payloads were read: it was cut or rolled back, or "
            "is another log"
        ),
    )


def test_sound_log_is_clean_and_counted(story: TurnLog) -> None:
    """Every event and every byte is read: the beginning of the log, five turns and a bookmark."""
    events = list(story.events())
    assert story.verify() == VerifyReport(
        events=7,
        payloads=5,
        payload_bytes=sum(event.size or 0 for event in events),
        private_parts=6,
        citations=sum(len(event.header.citations) for event in events),
    )


def test_log_in_memory_is_verified(log: TurnLog) -> None:
    """It has no files and no write-ahead log to look at."""
    _long(log, 3)
    assert log.verify() == VerifyReport(
        events=4, payloads=3, payload_bytes=3 * len('[{"type":"text","text":"0"}]'), private_parts=3, citations=2
    )


def test_log_of_many_pages_is_read_to_its_end(log: TurnLog) -> None:
    """Events of one page know those of the pages before."""
    count = 2 * PAGE_EVENTS + 7
    _long(log, count)
    report = log.verify()
    assert report.damage == ()
    assert (report.events, report.payloads, report.citations) == (count + 1, count, count - 1)


def test_progress_ends_with_everything_done(log: TurnLog) -> None:
    """Progress counts events up to all of them."""
    _long(log, PAGE_EVENTS + 10)
    calls: list[tuple[int, int]] = []
    log.verify(progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (PAGE_EVENTS, PAGE_EVENTS + 11)
    assert calls[-1] == (PAGE_EVENTS + 11, PAGE_EVENTS + 11)
    assert calls == sorted(calls)


def test_verification_writes_nothing(story: TurnLog, store_path: Path) -> None:
    """The store has the same bytes before and after, damage or none."""
    story.close()
    before = store_path.read_bytes()
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        assert log.verify().clean
    assert store_path.read_bytes() == before


def test_document_that_many_turns_share_is_counted_for_each(file_log: TurnLog, tmp_path: Path) -> None:
    """Its file is read once; a file that is damaged is told of at each turn."""
    (tmp_path / "document.txt").write_text(TEXT)
    for _ in range(5):
        file_log.add_document(tmp_path / "document.txt")
    report = file_log.verify()
    assert (report.damage, report.payloads, report.payload_bytes) == ((), 5, 5 * len(TEXT))
    [file] = tmp_path.rglob("*.zst")
    file.write_bytes(b"\x00" + file.read_bytes()[1:])
    assert [damage.global_position for damage in file_log.verify().damage] == [2, 3, 4, 5, 6]


def test_same_file_as_a_document_and_as_content(file_log: TurnLog, tmp_path: Path) -> None:
    """A payload that was found sound as a document is still looked at where it should be content blocks."""
    (tmp_path / "document.txt").write_text(TEXT)
    file_log.add_document(tmp_path / "document.txt")
    turn = file_log.add_turn(TEXT)
    assert file_log.verify().clean
    assert turn.size > len(TEXT)


def test_tables_of_others_are_told(story: TurnLog, poke: Poke) -> None:
    """They are no damage."""
    poke("CREATE TABLE notes (text)", "CREATE TABLE notification_tracking (id INTEGER)")
    report = story.verify()
    assert (report.clean, report.others) == (True, ("notes", "notification_tracking"))


# Damage


def test_damage_has_its_event_and_place(story: TurnLog, poke: Poke) -> None:
    """Damage to a readable event names its id, and its payload's is told once."""
    event = list(story.events())[2]
    poke("UPDATE stored_events SET payload = zeroblob(length(payload)) WHERE notification_id = 3")
    assert story.verify().damage == (
        Damage(
            what=f"payload of event {event.header.id!r} cannot be read: "
            "its hash differs from the one that was recorded",
            global_position=3,
            event_id=event.header.id,
        ),
    )


def test_every_damage_is_reported_in_the_order_of_the_log(story: TurnLog, poke: Poke) -> None:
    """One kind of damage does not hide another."""
    poke(
        "UPDATE stored_events SET payload = x'00' WHERE notification_id = 4",
        "UPDATE stored_events SET arrival = 9 WHERE notification_id = 3",
        "UPDATE stored_events SET leaf_hash = x'00' WHERE notification_id = 5",
        "UPDATE bookmarks SET turn_id = 'x' WHERE name = 'side'",
    )
    assert [damage.global_position for damage in story.verify().damage] == [3, 4, 5, None]


def test_more_damage_than_is_listed_is_counted(log: TurnLog) -> None:
    """What is wrong with a log of millions takes bounded memory to tell."""
    _long(log, 3)
    with log.store.read() as transaction:
        transaction.run("DROP TRIGGER stored_events_no_update")
        transaction.run("UPDATE stored_events SET arrival = 9")
        rows = DAMAGE_MAX + 5
        transaction.run(
            "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n LIMIT ?) INSERT INTO stored_events"
            " SELECT i, i, 0, '', x'', i, x'', 0, NULL, 0, NULL FROM n",
            (rows,),
        )
        transaction.run("COMMIT")
        transaction.run("BEGIN")
    report = log.verify()
    assert len(report.damage) == DAMAGE_MAX
    assert report.more > 5
    assert not report.clean


def test_long_text_in_damage_is_shortened(story: TurnLog, poke: Poke) -> None:
    """A line about a damaged value is a line, however large the value is."""
    poke("UPDATE bookmarks SET turn_id = printf('%.*c', 1000000, 'x') WHERE name = 'main'")
    [damage] = story.verify().damage
    assert len(damage.what) < 1000


def test_events_behind_pages_that_cannot_be_read_are_read(file_log: TurnLog, store_path: Path) -> None:
    """A page of noise within the log is told of with the global positions that are lost, and what is behind it read."""
    _long(file_log, 600)
    file_log.close()
    with closing(sqlite3.connect(store_path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(page_bytes,)] = connection.execute("PRAGMA page_size")
        [(text,)] = connection.execute("SELECT payload FROM stored_events WHERE notification_id = 302")
    content = bytearray(store_path.read_bytes())
    start = content.index(text) // page_bytes * page_bytes
    content[start : start + page_bytes] = b"\xa5" * page_bytes
    store_path.write_bytes(content)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        report = log.verify()
    lost = [damage for damage in report.damage if "cannot be read" in damage.what]
    assert lost
    assert 560 < report.events < 601


_GONE = "cannot be read: input/output error"
_STRAY = "payload file log.db-payloads/stray belongs to no event"


@pytest.mark.parametrize(
    ("place", "step", "of", "whats"),
    [
        (Path, "iterdir", "log.db-payloads/.incoming", [f"'log.db-payloads/.incoming' {_GONE}"]),
        (Path, "exists", "log.db-wal", [f"'log.db-wal' {_GONE}"]),
        (os, "pread", "log.db", [f"'log.db' {_GONE}"] * 2),  # where the schema is looked at, and the end of the file
        (os, "open", "log.db-wal", [f"write-ahead log: it {_GONE}", _STRAY]),
    ],
)
def test_file_that_the_disk_does_not_give_is_damage(
    story: TurnLog, monkeypatch: pytest.MonkeyPatch, place: object, step: str, of: str, whats: list[str]
) -> None:
    """It is told with its name, and with what was found before; no error of Python ends the verification."""
    above = Path(story.store.file or "").parent
    (above / "log.db-payloads" / "stray").touch()
    read_: Callable[..., Any] = getattr(place, step)

    def read(file: Path | str | int, *rest: Any, **options: Any) -> Any:
        name = str(Path(f"/proc/self/fd/{file}").readlink() if isinstance(file, int) else file)
        if name == str(above / of):
            raise OSError(errno.EIO, "Input/output error", name)
        return read_(file, *rest, **options)

    monkeypatch.setattr(place, step, read)
    assert [damage.what.replace(f"{above}/", "") for damage in story.verify().damage] == whats


def test_one_unreadable_event_does_not_hide_others(story: TurnLog, poke: Poke) -> None:
    """What cites it cannot be followed, and the rest is checked as ever."""
    poke("UPDATE stored_events SET state = x'7b' WHERE notification_id = 4")
    report = story.verify()
    assert {damage.global_position for damage in report.damage} == {4, 5, 7, None}
    assert report.payloads == 4


# With others


def test_others_can_append_while_a_log_is_verified(file_log: TurnLog, store_path: Path) -> None:
    """What they append is verified too, and nothing of it is taken for damage."""
    _long(file_log, PAGE_EVENTS)
    stop = threading.Event()

    def append() -> None:
        with TurnLog.open(f"sqlite:///{store_path}") as other:
            while not stop.is_set():
                other.add_turn("appended", continues="main")
                other.add_turn("fork", continues=other.turn("main").continues[0], bookmark="fork")

    thread = threading.Thread(target=append)
    thread.start()
    try:
        reports = [file_log.verify()]
        while len(reports) < 5 or reports[-1].events == reports[0].events:  # a sync may take as long as all of these
            reports.append(file_log.verify())
    finally:
        stop.set()
        thread.join()
    assert [report.damage for report in reports] == [()] * len(reports)
    assert [report.events for report in reports] == sorted(report.events for report in reports)


def test_no_snapshot_is_held_from_page_to_page(file_log: TurnLog, store_path: Path) -> None:
    """Between two pages the write-ahead log can be taken in whole: no reader stands in the way."""
    _long(file_log, 3 * PAGE_EVENTS)
    busy: list[int] = []

    def checkpoint(done: int, total: int) -> None:
        file_log.add_turn("meanwhile", bookmark=False)
        with closing(sqlite3.connect(store_path)) as connection:
            busy.append(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])

    assert file_log.verify(progress=checkpoint).clean
    assert busy == [0] * len(busy)
    assert len(busy) > 3


def test_progress_may_read_and_write_a_log_in_memory(log: TurnLog) -> None:
    """It has one connection, which is free while progress is told."""
    _long(log, PAGE_EVENTS + 1)

    def append(done: int, total: int) -> None:
        log.add_turn(f"meanwhile {done} of {total}")

    assert log.verify(progress=append).clean


@pytest.fixture(params=["sqlite", "postgres"])
def marked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TurnLog]:
    """Give a log of more than a page, of which the first turn has a bookmark `early`, and the last one `late`."""
    url = f"sqlite:///{tmp_path}/log.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with TurnLog.open(url) as log:
        log.add_turn("bye", bookmark="early")
        with log.group() as group:
            for number in range(PAGE_EVENTS):
                group.add_turn(f"turn {number}", bookmark=False)
        log.add_turn("see you", bookmark="late")
        yield log


def test_what_is_erased_while_a_log_is_verified_is_no_damage(marked: TurnLog) -> None:
    """The bookmark of a turn that was read before its erasure was folded by then, and goes with the turn."""
    erased: list[int] = []

    def erase(done: int, _total: int) -> None:
        if not erased:
            erased.append(done)
            marked.erase(turn="early", reason="asked")

    assert marked.verify(progress=erase).clean
    assert erased == [PAGE_EVENTS]


def test_file_that_goes_while_a_log_is_verified_is_no_damage(
    story: TurnLog, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure that waits no longer for a reader of an older state takes the file away that this one looks for."""
    document, other = story.turn("main"), story.add_turn(TEXT + "other")
    folder = store_path.with_name("log.db-payloads")
    remains: list[str | None] = []
    check = Contents.check

    def erase_first(*args: Any, **options: Any) -> None:
        if not remains:
            with TurnLog.open(f"sqlite:///{store_path}", busy_timeout_s=0.1) as again:
                remains.append(again.erase(turn=document.id, reason="asked").remains)
            shutil.rmtree(folder)
        check(*args, **options)

    monkeypatch.setattr(Contents, "check", erase_first)
    damage = story.verify().damage
    assert "older state" in (remains[0] or "")
    assert [(each.event_id, "no such file" in each.what) for each in damage] == [(other.id, True)]


def test_what_is_erased_while_tables_are_made_anew_does_not_come_back(marked: TurnLog) -> None:
    """Each time that they are folded something is erased, and then they are folded while nobody can."""
    erased: list[str] = []

    def erase(_done: int, _total: int) -> None:
        marked.erase(turn=erased[-1] if erased else "early", reason="asked")
        erased.append(f"round {len(erased)}")
        marked.add_turn("after", bookmark=erased[-1])

    marked.rebuild_projections(["bookmark heads"], progress=erase)
    assert len(erased) == TRIES_MAX
    assert {bookmark.name for bookmark in marked.bookmarks.all()} == {"late", erased[-1]}
    assert marked.verify().clean


def test_two_erasures_at_once_leave_nothing_of_the_other(marked: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was folded ahead of one still has what the other erases before it."""
    fold_ahead = Refolding[Any].fold_ahead

    def fold_and_wait(refolding: Refolding[Any], reading: Any) -> None:
        fold_ahead(refolding, reading)
        monkeypatch.undo()
        marked.erase(turn="early", reason="asked")

    monkeypatch.setattr(Refolding, "fold_ahead", fold_and_wait)
    marked.erase(turn="late", reason="asked")
    assert marked.bookmarks.all() == []
    assert marked.verify().clean


# Repair

DAMAGED = {
    "moved bookmark": ("UPDATE bookmarks SET turn_id = 'x'", ("bookmark heads",)),
    "lost bookmarks": ("DELETE FROM bookmarks", ("bookmark heads",)),
    "added link": ("INSERT INTO turn_links VALUES ('x', 0, 'y', 0)", ("turn index",)),
    "lost thread": ("DELETE FROM threads", ("thread index",)),
    "dropped table": ("DROP TABLE turn_links", ("turn index", "schema")),
    "dropped index": ("DROP INDEX turn_links_by_child", ("schema",)),
    "dropped trigger": ("DROP TRIGGER stored_events_no_delete", ("schema",)),
    "dropped index of the log": ("DROP INDEX stored_events_rare", ("schema",)),
    "trigger on a projection": (
        "CREATE TRIGGER evil BEFORE INSERT ON bookmarks BEGIN SELECT RAISE(IGNORE); END",
        ("schema",),
    ),
    "column too many": ("ALTER TABLE threads ADD COLUMN note TEXT", ("thread index", "schema")),
}


@pytest.mark.parametrize(("statement", "repaired"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_projection_is_repaired(story: TurnLog, poke: Poke, statement: str, repaired: tuple[str, ...]) -> None:
    """What is derived from the log is built anew in place, and named; the log answers as before."""
    before = (story.bookmarks.all(), story.threads())
    poke(statement)
    assert not story.verify().clean
    report = story.verify(repair_projections=True)
    assert (report.damage, set(report.repaired)) == ((), set(repaired))
    assert (story.bookmarks.all(), story.threads()) == before
    assert story.verify().clean
    assert story.add_turn("goes on", continues="main").position > 0


def test_sound_log_is_not_repaired(story: TurnLog) -> None:
    """There is nothing to do, and nothing is written."""
    with story.store.read() as transaction:
        [(before,)] = transaction.rows("PRAGMA schema_version")
    assert story.verify(repair_projections=True) == story.verify()
    with story.store.read() as transaction:
        assert transaction.rows("PRAGMA schema_version") == [(before,)]


def test_damage_of_the_log_itself_is_not_repaired(story: TurnLog, poke: Poke) -> None:
    """Projections cannot be built from a log that cannot be read: both are told."""
    poke("UPDATE stored_events SET state = x'7b' WHERE notification_id = 4", "DELETE FROM bookmarks")
    report = story.verify(repair_projections=True)
    assert report.repaired == ()
    assert "cannot be built anew" in _whats(report)
    assert "the bookmark heads differs" in _whats(report)
