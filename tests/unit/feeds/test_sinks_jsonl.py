"""JSON lines in a folder: rotation, recovery, erasing."""

import errno
import json
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from turnlog import TurnLog
from turnlog.errors import ConflictError, MetaError, SinkError, StoreCutError
from turnlog.feeds.sinks import Batch, FeedState, FeedStates, JSONLines, ParquetFiles, Place, SinkRecord
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import Store, files, open_store


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return all lines of a folder, file by file."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def positions(folder: Path) -> list[int]:
    """Return the global positions of all lines."""
    return [line["global_position"] for line in lines(folder)]


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return all that a folder of either kind has, by its global position."""
    table = [row for path in folder.glob("day=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(table or lines(folder), key=itemgetter("global_position"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the path of a folder that is not there yet."""
    return tmp_path / "out" / "lines"


def fill(log: TurnLog, count: int, text: str = "turn") -> list[str]:
    """Record turns, and return their ids."""
    return [log.add_turn(f"{text} {number}").id for number in range(count)]


def test_each_event_is_a_line(filed: TurnLog, folder: Path) -> None:
    """In one file, named by the first."""
    fill(filed, 3)
    filed.feeds.feed(JSONLines(folder), batch=2).run()
    assert [path.name for path in folder.glob("*.jsonl")] == ["events-00000000000000000001.jsonl"]
    assert positions(folder) == [1, 2, 3, 4]
    assert [line["id"] for line in lines(folder)] == [event.header.id for event in filed.events()]


def test_files_are_rotated_by_size(filed: TurnLog, folder: Path) -> None:
    """A line goes into a new file where the last one is full; also after a restart."""
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder, file_bytes_max=740)).run()
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder, file_bytes_max=740)).run()
    names = [int(path.stem.removeprefix("events-")) for path in sorted(folder.glob("*.jsonl"))]
    assert names == [1, 3, 5]
    assert positions(folder) == [1, 2, 3, 4, 5]


def test_files_are_rotated_by_day(tmp_path: Path, folder: Path) -> None:
    """Of the events, in UTC; also after a restart."""
    times = [datetime(2026, 1, 2, 23, 59, tzinfo=UTC), datetime(2026, 1, 3, 0, 0, tzinfo=UTC)]
    now = [int(times[0].timestamp() * 1000)]
    store = open_store(f"sqlite:///{tmp_path}/clocked.db", projections=synchronous())
    with TurnLog(store, sources=Sources(time_ms=lambda: now[0])) as log:
        fill(log, 2)
        now[0] = int(times[1].timestamp() * 1000)
        fill(log, 1)
        log.feeds.feed(JSONLines(folder, by_day=True)).run()
        assert [path.name[-7:] for path in sorted(folder.glob("*.jsonl"))] == ["1.jsonl", "4.jsonl"]
        fill(log, 1)
        log.feeds.feed(JSONLines(folder, by_day=True)).run()
        assert [path.name[-7:] for path in sorted(folder.glob("*.jsonl"))] == ["1.jsonl", "4.jsonl"]
        now[0] += 24 * 3600 * 1000
        fill(log, 1)
        log.feeds.feed(JSONLines(folder, by_day=True)).run()
    assert positions(folder) == [1, 2, 3, 4, 5, 6]
    assert len(list(folder.glob("*.jsonl"))) == 3


@pytest.mark.parametrize("cut", [1, 5, 300])
def test_torn_line_is_cut_off(filed: TurnLog, folder: Path, tmp_path: Path, cut: int) -> None:
    """And delivered again: what the folder says counts, also where the state was lost, or is of before."""
    fill(filed, 3)
    filed.feeds.feed(JSONLines(folder)).run()
    whole = lines(folder)
    [file] = folder.glob("*.jsonl")
    for state in ("kept", "lost"):
        file.write_bytes(file.read_bytes()[:-cut])
        name = f"jsonl:{folder}"
        if state == "lost":
            filed.feeds.remove(name)
        else:
            states = FeedStates(tmp_path / "log.db-feeds")
            states.save(replace(states.all()[0], position=1, event_id=None))
        filed.feeds.feed(JSONLines(folder)).run()
        assert lines(folder) == whole
    assert filed.feeds.all()[0].position == 4


@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
def test_folder_that_was_put_back_is_delivered_what_it_lacks(
    filed: TurnLog, folder: Path, kind: type[JSONLines] | type[ParquetFiles]
) -> None:
    """Which is told, once; what was erased since goes from what was put back."""
    ids = fill(filed, 2)
    filed.feeds.feed(kind(folder)).run()
    shutil.copytree(folder, folder.with_name("backup"))
    ids += fill(filed, 2)
    filed.erase(turn=ids[0], reason="asked")
    filed.feeds.feed(kind(folder)).run()
    before = rows(folder)
    shutil.rmtree(folder)
    folder.with_name("backup").rename(folder)
    told: list[str] = []
    for _ in range(2):
        assert filed.feeds.feed(kind(folder)).run(on_back=told.append).position == 6
        assert rows(folder) == before
    assert told == [
        f"{kind.kind} {str(folder)!r} ends at global position 3, and had come to 6: what it lacks is delivered again"
    ]


@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
def test_erasure_reaches_a_folder_that_was_put_back(
    filed: TurnLog, folder: Path, kind: type[JSONLines] | type[ParquetFiles]
) -> None:
    """With all erasures before it, and before the feed has gone on."""
    ids = fill(filed, 2)
    filed.feeds.feed(kind(folder)).run()
    shutil.copytree(folder, folder.with_name("backup"))
    filed.erase(turn=ids[0], reason="asked")
    filed.feeds.feed(kind(folder)).run()
    shutil.rmtree(folder)
    folder.with_name("backup").rename(folder)
    assert filed.erase(turn=ids[1], reason="asked").remains is None
    assert [row["erased"] for row in rows(folder)] == [False, True, True]
    told: list[str] = []
    assert filed.feeds.feed(kind(folder)).run(on_back=told.append).lag == 0
    assert (len(told), [row["global_position"] for row in rows(folder)]) == (1, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("cut", [1, 5, 300])
def test_line_that_was_cut_since_is_delivered_again(filed: TurnLog, folder: Path, cut: int) -> None:
    """Though it counts as delivered."""
    fill(filed, 3)
    filed.feeds.feed(JSONLines(folder)).run()
    whole = lines(folder)
    [file] = folder.glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-cut])
    fill(filed, 1)
    filed.feeds.feed(JSONLines(folder)).run()
    assert (lines(folder)[:-1], positions(folder)[-1]) == (whole, 5)


def test_folder_lacks_nothing_where_nothing_was_wanted(filed: TurnLog, folder: Path) -> None:
    """The feed has come further than its last line, or was moved there."""
    fill(filed, 1)
    filed.bookmarks.set("main", filed.latest(1)[0].id)
    told: list[str] = []
    for _ in range(2):
        filed.feeds.feed(JSONLines(folder), name="out", topics="gpt.turn").run(on_back=told.append)
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder), name="out", topics="gpt.turn").run()
    [file] = folder.glob("*.jsonl")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:1]))
    filed.feeds.move("out", 4)
    filed.feeds.feed(JSONLines(folder), name="out", topics="gpt.turn").run(on_back=told.append)
    assert (told, positions(folder)) == ([], [2, 5])


@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
def test_feed_that_finds_files_says_where_it_begins(
    filed: TurnLog, folder: Path, kind: type[JSONLines] | type[ParquetFiles]
) -> None:
    """Once, and not where it was to begin further on anyway."""
    fill(filed, 2)
    told: list[str] = []
    for name, after in (("first", 0), ("second", 0), ("third", 4)):
        for _ in range(2):
            filed.feeds.feed(kind(folder), name=name, after=after).run(on_back=told.append)
        filed.feeds.remove(name)
        fill(filed, 1)
    begins = "has events up to global position 3: feed 'second' begins behind them"
    assert told == [f"{kind.kind} {str(folder)!r} {begins}"]
    assert [row["global_position"] for row in rows(folder)] == [1, 2, 3, 4, 5]


def test_two_feeds_of_one_folder_are_refused_until_one_is_forgotten(
    filed: TurnLog, folder: Path, tmp_path: Path
) -> None:
    """As an earlier version has let them begin. Erasures reach the folder all the same."""
    ids = fill(filed, 2)
    filed.feeds.feed(JSONLines(folder), name="one").run()
    states = FeedStates(tmp_path / "log.db-feeds")
    states.save(replace(states.all()[0], name="two"))
    for name, other in (("one", "two"), ("two", "one")):
        with pytest.raises(ConflictError, match=f"feed '{other}' fills "):
            filed.feeds.feed(JSONLines(folder), name=name).run()
    assert filed.erase(turn=ids[0], reason="asked").remains is None
    assert [line["erased"] for line in lines(folder)] == [False, True, False]
    filed.feeds.remove("two")
    assert filed.feeds.feed(JSONLines(folder), name="one").run().lag == 0


def test_feed_that_has_begun_in_the_same_folder_meanwhile_is_seen(filed: TurnLog, folder: Path) -> None:
    """It has delivered between a look and the opening of the folder."""

    class Late(JSONLines):
        def open(self, store: Store) -> Place | None:
            filed.feeds.feed(JSONLines(folder), name="first").run()
            return super().open(store)

    fill(filed, 1)
    with pytest.raises(ConflictError, match="feed 'first' fills"):
        filed.feeds.feed(Late(folder), name="second").run()
    assert [feed.name for feed in filed.feeds.all()] == ["first"]


def test_long_torn_line_is_cut_off(filed: TurnLog, folder: Path) -> None:
    """However long it and the line before it are."""
    for size in (300_000, 500_000):
        filed.add_turn("x" * size)
    filed.feeds.feed(JSONLines(folder)).run()
    [file] = folder.glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-1000])
    filed.feeds.remove(f"jsonl:{folder}")
    filed.feeds.feed(JSONLines(folder)).run()
    assert positions(folder) == [1, 2, 3]


def test_file_without_a_whole_line_goes(filed: TurnLog, folder: Path) -> None:
    """It was begun when the process was killed."""
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder, file_bytes_max=1)).run()
    last = max(folder.glob("*.jsonl"))
    last.write_bytes(b'{"idempotency')
    filed.feeds.remove(f"jsonl:{folder}")
    filed.feeds.feed(JSONLines(folder)).run()
    assert positions(folder) == [1, 2, 3]


def test_files_may_be_taken_away(filed: TurnLog, folder: Path) -> None:
    """Whoever ships them removes them: then the state says where to go on."""
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder)).run()
    for file in folder.glob("*.jsonl"):
        file.unlink()
    fill(filed, 1)
    filed.feeds.feed(JSONLines(folder)).run()
    assert positions(folder) == [4]


@pytest.mark.parametrize("by_erasure", [False, True])
def test_files_that_lost_all_their_lines_are_delivered_again(filed: TurnLog, folder: Path, by_erasure: bool) -> None:
    """They are there, so nobody has shipped them; and it is told. An erasure that comes before waits for that."""
    ids = fill(filed, 3)
    told: list[str] = []
    filed.feeds.feed(JSONLines(folder), name="out").run()
    empty_file(folder)
    if by_erasure:
        assert EMPTIED in str(filed.erase(turn=ids[0], reason="asked").remains)
    fill(filed, 1)
    for _ in range(2):
        filed.feeds.feed(JSONLines(folder), name="out").run(on_back=told.append)
    assert positions(folder) == list(range(1, 6 + by_erasure))
    assert [line["global_position"] for line in lines(folder) if line["erased"]] == [2] * by_erasure
    assert told == [
        f"jsonl {str(folder)!r} ends at global position 0, and had come to 4: what it lacks is delivered again"
    ]
    assert filed.finish_erasing() is None


def test_file_that_a_kill_left_empty_is_filled(filed: TurnLog, folder: Path) -> None:
    """What it was to have was not delivered, so nothing is told; and a feed that is moved goes where it is moved to."""
    fill(filed, 3)
    told: list[str] = []
    filed.feeds.feed(JSONLines(folder), name="out").run()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "events-00000000000000000005.jsonl").write_bytes(b"")
    filed.feeds.feed(JSONLines(folder), name="out").run(on_back=told.append)
    filed.feeds.move("out", 2)
    filed.feeds.feed(JSONLines(folder), name="out").run(on_back=told.append)
    assert positions(folder) == [3, 4]
    assert told == []


def test_blank_line_is_named_with_what_to_do(filed: TurnLog, folder: Path) -> None:
    """Of whoever has edited a file: by the feed, and by an erasure that goes through it."""
    turn = fill(filed, 2)[0]
    filed.feeds.feed(JSONLines(folder), name="out").run()
    [file] = folder.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole + b"\n")
    what = f"of {file.name!r} is no event (it is blank): put back what it was, or take it out"
    with pytest.raises(SinkError) as raised:
        filed.feeds.feed(JSONLines(folder), name="out").run()
    assert str(raised.value).endswith(f": the last line {what}")
    first, rest = whole.split(b"\n", 1)
    file.write_bytes(first + b"\n \n" + rest)
    assert f": line 2 {what})" in str(filed.erase(turn=turn, reason="asked").remains)
    file.write_bytes(whole)
    assert filed.finish_erasing() is None


Take = Callable[[Path], None]


def remove_file(folder: Path) -> None:
    """Remove the last file."""
    max(folder.glob("*.jsonl")).unlink()


def move_file(folder: Path) -> None:
    """Move the last file elsewhere."""
    last = max(folder.glob("*.jsonl"))
    last.rename(folder.parent / f"shipped-{last.name}")


def move_folder(folder: Path) -> None:
    """Move the folder elsewhere."""
    folder.rename(folder.with_name("shipped"))


def empty_file(folder: Path) -> None:
    """Copy the last file elsewhere and empty it, as logrotate does with copytruncate."""
    last = max(folder.glob("*.jsonl"))
    (folder.parent / f"shipped-{last.name}").write_bytes(last.read_bytes())
    last.write_bytes(b"")


def write_anew(folder: Path) -> None:
    """Put a copy of the last file in its place, as `sed -i` does."""
    last = max(folder.glob("*.jsonl"))
    (folder / "copy").write_bytes(last.read_bytes())
    (folder / "copy").rename(last)


@pytest.mark.parametrize(
    ("take", "left"),
    [
        (remove_file, [3, 4, 5]),
        (move_file, [3, 4, 5]),
        (move_folder, [3, 4, 5]),
        (empty_file, [3, 4, 5]),
        (write_anew, [1, 2, 3, 4, 5]),
    ],
)
def test_files_may_be_taken_away_while_it_follows(filed: TurnLog, folder: Path, take: Take, left: list[int]) -> None:
    """What comes then goes into a new one; nothing is appended to what was moved."""
    fill(filed, 1)
    caught_up = threading.Semaphore(0)
    feed = filed.feeds.feed(JSONLines(folder))
    thread = threading.Thread(target=feed.follow, kwargs={"told": lambda _: caught_up.release()})
    thread.start()
    try:
        assert caught_up.acquire(timeout=30)
        take(folder)
        shipped = {path: path.read_bytes() for path in folder.parent.rglob("*.jsonl") if path.parent != folder}
        for _ in range(3):
            fill(filed, 1)
            assert caught_up.acquire(timeout=30)
    finally:
        feed.stop()
        thread.join(30)
    assert positions(folder) == left
    assert {path: path.read_bytes() for path in shipped} == shipped
    assert filed.feeds.feed(JSONLines(folder)).run().position == 5
    assert positions(folder) == left


@pytest.mark.parametrize("file_bytes_max", [600, 1_000_000])
@pytest.mark.parametrize("take", [remove_file, move_file, empty_file, write_anew])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_file_that_is_taken_away_while_it_is_written_does_not_count(
    filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch, take: Take, file_bytes_max: int, at: int
) -> None:
    """What of the batch was in it is written again."""
    fill(filed, 1)
    feed = filed.feeds.feed(JSONLines(folder, file_bytes_max=file_bytes_max))
    feed.run()
    fill(filed, 5)
    sync, synced = os.fsync, [0]

    def taken(handle: int) -> None:
        sync(handle)
        synced[0] += stat.S_ISREG(os.fstat(handle).st_mode)
        if synced[0] == at:
            synced[0] += 1
            take(folder)

    with monkeypatch.context() as patch:
        patch.setattr("turnlog.feeds.sinks.jsonl.os.fsync", taken)
        assert feed.run().position == 7
    assert positions(folder) == sorted(set(positions(folder)))
    assert {3, 4, 5, 6, 7} <= set(positions(folder))


def test_files_that_are_taken_away_all_the_time_are_told(
    filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again later, and nothing counts as delivered."""
    fill(filed, 1)
    sync = os.fsync

    def taken(handle: int) -> None:
        sync(handle)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            remove_file(folder)

    with monkeypatch.context() as patch:
        patch.setattr("turnlog.feeds.sinks.jsonl.os.fsync", taken)
        with pytest.raises(SinkError, match="taken away while they are written") as raised:
            filed.feeds.feed(JSONLines(folder), attempts=1).run()
    assert raised.value.retryable
    assert filed.feeds.all()[0].position == 0
    filed.feeds.feed(JSONLines(folder)).run()
    assert positions(folder) == [1, 2]


def test_folder_has_a_name() -> None:
    """An empty one is not the current folder."""
    with pytest.raises(MetaError, match="no name"):
        JSONLines("")


def test_folder_of_another_log_is_refused(filed: TurnLog, folder: Path, tmp_path: Path) -> None:
    """Nothing is written into it."""
    fill(filed, 1)
    filed.feeds.feed(JSONLines(folder)).run()
    with TurnLog.open(f"sqlite:///{tmp_path}/other.db") as other:
        other.erase(turn=fill(other, 1), reason="asked")
        with pytest.raises(StoreCutError, match="the feed is of log"):
            other.feeds.feed(JSONLines(folder)).run()
        assert other.feeds.all() == []
        other.feeds.feed(JSONLines(tmp_path / "empty"), name="mine").run()
        (tmp_path / "empty" / "events-00000000000000000001.jsonl").write_bytes(
            (folder / "events-00000000000000000001.jsonl").read_bytes()
        )
        with pytest.raises(ConflictError, match="its destination of"):
            other.feeds.feed(JSONLines(tmp_path / "empty"), name="mine").run()
    assert positions(folder) == [1, 2]


def test_rolled_back_log_is_told(filed: TurnLog, folder: Path) -> None:
    """By the last line: another event is there now."""
    fill(filed, 1)
    filed.feeds.feed(JSONLines(folder)).run()
    file = folder / "events-00000000000000000001.jsonl"
    other = file.read_text().replace(list(filed.events())[-1].header.id, "03fr9cxksbd0ufbbn4sb2e5pj")
    file.write_text(other)
    filed.feeds.remove(f"jsonl:{folder}")
    with pytest.raises(StoreCutError, match="rolled back"):
        filed.feeds.feed(JSONLines(folder)).run()


def copy_of(path: Path) -> Path:
    """Return a copy of a log, which is in use."""
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(copy)) as then:
        now.backup(then)
    return copy


def put_back(copy: Path, path: Path) -> None:
    """Put a copy of a log in its place. Nobody uses it."""
    for left in path.parent.glob(f"{path.name}-[ws][ah][lm]"):
        left.unlink()
    copy.replace(path)


@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
def test_feed_of_a_log_that_was_rolled_back_can_go_on(
    tmp_path: Path, folder: Path, kind: type[JSONLines] | type[ParquetFiles]
) -> None:
    """Elsewhere, as is said; or from an earlier place, when the files are taken away. Nothing else is offered."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        fill(log, 2)
        copy = copy_of(path)
        fill(log, 2)
        log.feeds.feed(kind(folder), name="out").run()
    put_back(copy, path)
    with TurnLog.open(f"sqlite:///{path}") as log:
        fill(log, 2)
        with pytest.raises(StoreCutError, match="begin a feed of another name that delivers elsewhere"):
            log.feeds.feed(kind(folder), name="out").run()
        with pytest.raises(ConflictError, match="go to global position 5, and feed 'out' goes on where they end"):
            log.feeds.move("out", 3)
        assert log.feeds.feed(kind(folder.with_name("elsewhere")), name="new", after=3).run().delivered == 2
        folder.rename(folder.with_name("away"))
        assert log.feeds.move("out", 3).position == 3
        assert log.feeds.feed(kind(folder), name="out").run().position == 5


def test_what_is_no_event_is_refused(filed: TurnLog, folder: Path) -> None:
    """In one line that says which file."""
    fill(filed, 1)
    folder.mkdir(parents=True)
    (folder / "events-00000000000000000001.jsonl").write_text("hello\n")
    with pytest.raises(SinkError, match=r"the last line of 'events-00000000000000000001.jsonl' is no event \("):
        filed.feeds.feed(JSONLines(folder)).run()


def test_folder_that_cannot_be_made_is_told(filed: TurnLog, tmp_path: Path) -> None:
    """As an error of the sink."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"not a directory|file exists"):
        filed.feeds.feed(JSONLines(tmp_path / "file")).run()


@pytest.mark.parametrize("written", [0, 100, 700, 2000])
def test_full_disk_doubles_nothing(filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    """Some lines of a batch are there, and a part of one, when it fails: it goes on behind them."""
    fill(filed, 5)
    left = [written]
    write = os.write

    def full(handle: int, content: bytes) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(handle, bytes(content)[: left[0]])
        left[0] -= done
        return done

    sink = JSONLines(folder)
    told: list[str] = []

    def free(error: Exception, _seconds: float) -> None:
        told.append(str(error))
        left[0] = 1_000_000

    monkeypatch.setattr("turnlog.feeds.sinks.jsonl.os.write", full)
    filed.feeds.feed(sink).run(on_retry=free)
    assert told == [f"jsonl '{folder}': the folder cannot be written: no space left on device"]
    assert positions(folder) == [1, 2, 3, 4, 5, 6]


def test_lines_are_synced_before_they_count(filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the name of a new file, too."""
    fill(filed, 3)
    happened: list[str] = []
    sync, sync_folder, save = os.fsync, files.sync_folder, FeedStates.save

    def syncs(handle: int) -> None:
        happened.append("sync")
        sync(handle)

    def syncs_folder(path: Path) -> None:
        happened.append("sync folder")
        sync_folder(path)

    def saves(self: FeedStates, state: FeedState) -> None:
        happened.append(f"save {state.position}")
        save(self, state)

    sink = JSONLines(folder)
    monkeypatch.setattr("turnlog.feeds.sinks.jsonl.os.fsync", syncs)
    monkeypatch.setattr("turnlog.feeds.sinks.folders.sync_folder", syncs_folder)
    monkeypatch.setattr(FeedStates, "save", saves)
    filed.feeds.feed(sink, batch=2).run()
    after = [what for what in happened if what != "sync folder"]
    assert [what for what in after if what.startswith("save")] == ["save 0", "save 2", "save 4"]
    assert after.index("save 2") > after.index("sync")
    assert "sync" in after[after.index("save 2") : after.index("save 4")]
    assert "sync folder" in happened[: happened.index("save 2")]


# -------------------------------------------------------------------------------------------------------------- erasing


def text_of(folder: Path) -> bytes:
    """Return all bytes of the files below a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_erasing_rewrites_lines(filed: TurnLog, folder: Path) -> None:
    """In all files, before `erase` returns; the others stay, byte for byte; the erasure comes with the next run."""
    ids = fill(filed, 5, "a word of theirs")
    filed.feeds.feed(JSONLines(folder, file_bytes_max=740)).run()
    assert len(list(folder.glob("*.jsonl"))) > 1
    before = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    report = filed.erase(turn=[ids[0], ids[4]], reason="asked")
    assert report.remains is None
    assert b"theirs 0" not in text_of(folder)
    assert b"theirs 4" not in text_of(folder)
    after = lines(folder)
    assert [line["global_position"] for line in after] == [1, 2, 3, 4, 5, 6]
    assert [line["erased"] for line in after] == [False, True, False, False, False, True]
    assert (after[1]["content"], after[1]["meta"], after[1]["hash"]) == (None, {"role": "user"}, None)
    changed = [name for name, content in before.items() if (folder / name).read_bytes() != content]
    assert (len(before), len(changed)) == (3, 2)
    filed.feeds.feed(JSONLines(folder, file_bytes_max=740)).run()
    assert [line["topic"] for line in lines(folder)][-1] == "gpt.erasure"
    assert positions(folder) == list(range(1, 8))


def test_erasing_keeps_the_key_that_a_line_was_delivered_with(filed: TurnLog, folder: Path) -> None:
    """Early versions had another form of keys: who knows events by them has seen this one."""
    ids = fill(filed, 2, "a word of theirs")
    filed.feeds.feed(JSONLines(folder)).run()
    [path] = folder.glob("*.jsonl")
    keys = [line["idempotency_key"] for line in lines(folder)]
    early = keys[1].rpartition(":")[0]
    path.write_bytes(path.read_bytes().replace(keys[1].encode(), early.encode()))
    assert filed.erase(turn=ids, reason="asked").remains is None
    assert b"theirs" not in text_of(folder)
    assert [line["idempotency_key"] for line in lines(folder)] == [keys[0], early, keys[2]]


@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
def test_erasure_in_a_log_that_was_rolled_back_reaches_the_folder(
    tmp_path: Path, folder: Path, kind: type[JSONLines] | type[ParquetFiles]
) -> None:
    """The last one that was carried out there is not in the log. What the folder has of other events stays."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        [early] = fill(log, 1)
        copy = copy_of(path)
        late = fill(log, 4)
        log.feeds.feed(kind(folder), name="out").run()
        log.erase(turn=late[3], reason="asked")
    put_back(copy, path)
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert log.erase(turn=[early, *fill(log, 1)], reason="asked").remains is None
    assert [(row["global_position"], row["id"], row["erased"]) for row in rows(folder)][1:] == [
        (2, early, True),
        *((position, id, position == 6) for position, id in enumerate(late, 3)),
    ]


@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_file_that_is_rewritten_can_be_read_by_whoever_could(
    filed: TurnLog, folder: Path, kind: type[JSONLines] | type[ParquetFiles], mode: int
) -> None:
    """Its mode and its owner stay."""
    ids = fill(filed, 1)
    filed.feeds.feed(kind(folder)).run()
    [file] = (path for path in folder.rglob("events-*") if path.is_file())
    other = next((group for group in os.getgroups() if group != file.stat().st_gid), -1)
    os.chown(file, -1, other)
    file.chmod(mode)
    before = file.stat()
    assert filed.erase(turn=ids, reason="asked").remains is None
    after = file.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_group_that_cannot_be_given_is_not_replaced_by_another(
    filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it might read is its owner's alone."""
    ids = fill(filed, 1)
    filed.feeds.feed(JSONLines(folder)).run()
    [file] = folder.glob("*.jsonl")
    file.chmod(0o664)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("turnlog.feeds.sinks.folders.os.chown", refuse)
    assert filed.erase(turn=ids, reason="asked").remains is None
    assert stat.S_IMODE(file.stat().st_mode) == 0o604


EMPTIED = "its folder is empty or not there, and its files may come back; else `turnlog feeds remove` forgets it"


@pytest.mark.parametrize("by", ["finishing", "running"])
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
def test_erasure_waits_for_a_folder_whose_files_are_away(
    filed: TurnLog, folder: Path, kind: type[JSONLines] | type[ParquetFiles], by: str, *, is_there: bool
) -> None:
    """As on a disk that is not mounted: nothing is made, the folder is named, and reached when it is back."""
    ids = fill(filed, 2)
    filed.feeds.feed(kind(folder), name="out").run()
    folder.rename(folder.with_name("away"))
    if is_there:
        folder.mkdir()
    remains = filed.erase(turn=ids[0], reason="asked").remains
    where = f"in {str(folder)!r} (feed 'out': {EMPTIED})"
    assert remains == f"what was erased may still be {where}: `turnlog erase --finish`"
    assert filed.finish_erasing() == remains
    assert not list(folder.parent.glob("lines/*"))
    if is_there:
        folder.rmdir()
    assert not folder.exists()
    folder.with_name("away").rename(folder)
    if by == "finishing":
        assert filed.finish_erasing() is None
    else:
        filed.feeds.feed(kind(folder), name="out").run()
    assert [row["erased"] for row in rows(folder)][:3] == [False, True, False]
    assert filed.finish_erasing() is None


@pytest.mark.parametrize("kind", [JSONLines, ParquetFiles])
def test_erasure_reaches_files_that_come_back_after_others(
    filed: TurnLog, folder: Path, kind: type[JSONLines] | type[ParquetFiles]
) -> None:
    """The feed has gone on in the empty folder meanwhile, and carried out the erasure there."""
    ids = fill(filed, 2)
    filed.feeds.feed(kind(folder), name="out").run()
    folder.rename(folder.with_name("away"))
    assert EMPTIED in str(filed.erase(turn=ids[0], reason="asked").remains)
    filed.feeds.feed(kind(folder), name="out").run()
    assert filed.finish_erasing() is None
    assert [row["global_position"] for row in rows(folder)] == [4]
    shutil.rmtree(folder)
    folder.with_name("away").rename(folder)
    filed.feeds.feed(kind(folder), name="out").run()
    assert [row["erased"] for row in rows(folder)] == [False, True, False, False]


def test_erasure_does_not_wait_for_what_was_not_delivered(filed: TurnLog, folder: Path) -> None:
    """The files were taken away, and never had what is erased, or only that it was there."""
    early = fill(filed, 1)
    filed.feeds.feed(JSONLines(folder), name="out", topics="gpt.pointer").run()
    for name, public in (("gone", False), ("public", True)):
        filed.feeds.feed(JSONLines(folder.with_name(name)), name=name, public=public).run()
        folder.with_name(name).rename(folder.with_name(f"{name} away"))
    assert filed.erase(turn=fill(filed, 1), reason="asked").remains is None
    filed.feeds.remove("gone")
    assert filed.erase(turn=early, reason="asked").remains is None
    folder.with_name("public away").rename(folder.with_name("public"))
    assert filed.finish_erasing() is None
    assert [line["erased"] for line in lines(folder.with_name("public"))] == [False, True]


def test_erasure_waits_for_a_folder_that_a_feed_found_filled(filed: TurnLog, folder: Path) -> None:
    """Though the feed has delivered nothing itself: what is known of it was lost."""
    ids = fill(filed, 1)
    filed.feeds.feed(JSONLines(folder), name="out").run()
    filed.feeds.remove("out")
    filed.feeds.feed(JSONLines(folder), name="out").run()
    assert filed.feeds.get("out").delivered == 0
    folder.rename(folder.with_name("away"))
    assert EMPTIED in str(filed.erase(turn=ids, reason="asked").remains)


def test_erasure_does_not_wait_for_a_feed_that_runs_and_whose_files_are_away(filed: TurnLog, folder: Path) -> None:
    """It is named at once."""
    ids = fill(filed, 1)
    reached = threading.Event()
    feed = filed.feeds.feed(JSONLines(folder), name="out", topics="gpt.turn")
    thread = threading.Thread(target=feed.follow, kwargs={"told": lambda _: reached.set()})
    thread.start()
    try:
        assert reached.wait(30)
        remove_file(folder)
        assert EMPTIED in str(filed.erase(turn=ids, reason="asked").remains)
    finally:
        feed.stop()
        thread.join(30)
    assert EMPTIED in str(filed.finish_erasing())


def test_erasure_reaches_a_feed_that_runs(filed: TurnLog, folder: Path) -> None:
    """It does it itself, and `erase` waits for it."""
    ids = fill(filed, 2, "a word of theirs")
    reached = threading.Event()
    feed = filed.feeds.feed(JSONLines(folder))
    thread = threading.Thread(target=feed.follow, kwargs={"told": lambda _: reached.set()})
    thread.start()
    try:
        assert reached.wait(30)
        assert filed.erase(turn=ids[0], reason="asked").remains is None
        assert b"theirs 0" not in text_of(folder)
        assert b"theirs 1" in text_of(folder)
    finally:
        feed.stop()
        thread.join(30)


@pytest.mark.parametrize("broken", ["first", "last", "both"])
def test_erasure_goes_on_past_a_folder_that_is_broken(filed: TurnLog, folder: Path, broken: str) -> None:
    """All others are reached, and all that are not are named, each with why."""
    ids = fill(filed, 1, "a word of theirs")
    folders = [folder.with_name(name) for name in ("first", "good", "last")]
    for each in folders:
        filed.feeds.feed(JSONLines(each), name=each.name).run()
    filed.feeds.feed(ParquetFiles(folder.with_name("table"))).run()
    damaged = [each for each in folders if each.name == broken or (broken == "both" and each.name != "good")]
    before: dict[Path, bytes] = {}
    for each in damaged:
        [file] = each.glob("*.jsonl")
        before[file] = file.read_bytes()
        file.write_bytes(b"garbage " + before[file])
    remains = filed.erase(turn=ids, reason="asked").remains
    assert remains is not None
    named = [each.name for each in folders if f"in {str(each)!r} (feed {each.name!r}: " in remains]
    assert named == [each.name for each in damaged]
    assert remains.count("is no event") == len(damaged)
    assert "table" not in remains
    for each in (*folders, folder.with_name("table")):
        assert (b"theirs" in text_of(each)) == (each in damaged)
    for file, content in before.items():
        file.write_bytes(content)
    assert filed.finish_erasing() is None
    assert b"theirs" not in text_of(folder.parent)
    assert [feed.error for feed in filed.feeds.all()] == [None] * 4


def test_erasure_is_not_held_up_where_nothing_was_delivered(filed: TurnLog, folder: Path) -> None:
    """The feed began with an empty log, and its folder cannot be used any more."""
    filed.feeds.feed(JSONLines(folder)).run()
    (folder / "events-00000000000000000001.jsonl").mkdir()
    ids = fill(filed, 1)
    with pytest.raises(SinkError, match="is a directory"):
        filed.feeds.feed(JSONLines(folder)).run()
    assert filed.erase(turn=ids, reason="asked").remains is None


Arrange = Callable[[list[Path]], None]


def join_in_the_last(files: list[Path]) -> None:
    """Put all lines into the file of the last name."""
    content = b"".join(path.read_bytes() for path in files)
    for path in files[:-1]:
        path.unlink()
    files[-1].write_bytes(content)


def join_in_another_order(files: list[Path]) -> None:
    """Put the lines of the first file between others, in that of the second."""
    first, second, *others = (path.read_bytes() for path in files)
    files[0].unlink()
    files[1].write_bytes(second + first + b"".join(others[:-1]))
    for path in files[2:-1]:
        path.unlink()


def copy_to_the_last(files: list[Path]) -> None:
    """Put what the first file has behind the last one, too."""
    files[-1].write_bytes(files[0].read_bytes() + files[-1].read_bytes())


def rename_behind_all(files: list[Path]) -> None:
    """Name the first file as if it were behind the others."""
    files[0].rename(files[0].with_name("events-00000000000000000100.jsonl"))


@pytest.mark.parametrize("arrange", [join_in_the_last, join_in_another_order, copy_to_the_last, rename_behind_all])
@pytest.mark.parametrize("runs", [False, True])
def test_erasure_reaches_lines_that_are_in_a_file_of_another_name(
    filed: TurnLog, folder: Path, arrange: Arrange, runs: bool
) -> None:
    """Somebody has tidied up: an erasure looks at lines, also that of a feed that has begun in such a folder."""
    ids = fill(filed, 5, "a word of theirs")
    filed.feeds.feed(JSONLines(folder, file_bytes_max=740), name="out").run()
    files = sorted(folder.glob("*.jsonl"))
    assert len(files) == 3
    arrange(files)
    if runs:
        filed.feeds.remove("out")
    assert filed.erase(turn=ids[0], reason="asked").remains is None
    if runs:
        assert b"theirs 0" in text_of(folder)
        filed.feeds.feed(JSONLines(folder), name="out").run()
    assert b"theirs 0" not in text_of(folder)
    assert b"theirs 1" in text_of(folder)


def test_erasure_names_each_file_that_cannot_be_read(filed: TurnLog, folder: Path) -> None:
    """What it has cannot be told. All others are reached."""
    ids = fill(filed, 5, "a word of theirs")
    filed.feeds.feed(JSONLines(folder, file_bytes_max=740), name="out").run()
    first, second, third = sorted(folder.glob("*.jsonl"))
    whole = first.read_bytes(), third.read_bytes()
    first.write_bytes(whole[0].replace(b"\n", b"", 1))
    third.write_bytes(b"garbage\n" + whole[1])
    remains = str(filed.erase(turn=ids[2], reason="asked").remains)
    assert [f"line 1 of {path.name!r} is no event" in remains for path in (first, second, third)] == [True, False, True]
    assert b"theirs 2" not in text_of(folder)
    for path, content in zip((first, third), whole, strict=True):
        path.write_bytes(content)
    assert filed.finish_erasing() is None


def test_many_erasures_are_looked_for_at_once(filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time all lines are looked at."""
    ids = fill(filed, 6)
    filed.feeds.feed(JSONLines(folder), name="out").run()
    filed.feeds.remove("out")
    for each in ids[:5]:
        filed.erase(turn=each, reason="asked")
    asked: list[list[int]] = []

    class Counting(JSONLines):
        def forget(self, records: Sequence[SinkRecord]) -> None:
            asked.append([record.position for record in records])
            super().forget(records)

    monkeypatch.setattr("turnlog.feeds.sinks.reading.ERASURES_AT_ONCE", 1)
    monkeypatch.setattr("turnlog.feeds.sinks.reading.ERASED_AT_ONCE", 3)
    filed.feeds.feed(Counting(folder), name="out").run()
    assert asked == [[2, 3, 4], [5, 6]]
    assert [line["erased"] for line in lines(folder)][1:7] == [True] * 5 + [False]


class Killed(JSONLines):
    """Is killed when lines are there, and before they count."""

    def deliver(self, batch: Batch) -> None:
        """Deliver, and go no further."""
        super().deliver(batch)
        raise KeyboardInterrupt


def test_erasure_reaches_a_first_batch_that_was_killed(filed: TurnLog, folder: Path) -> None:
    """The lines are there, though nothing counts as delivered."""
    ids = fill(filed, 1, "a word of theirs")
    with pytest.raises(KeyboardInterrupt):
        filed.feeds.feed(Killed(folder)).run()
    assert b"theirs" in text_of(folder)
    assert filed.erase(turn=ids, reason="asked").remains is None
    assert b"theirs" not in text_of(folder)


def test_what_was_delivered_before_a_kill_counts(filed: TurnLog, folder: Path) -> None:
    """Where nothing comes behind it, too: what is there is not delivered again when its files are taken away."""
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder)).run()
    fill(filed, 1)
    with pytest.raises(KeyboardInterrupt):
        filed.feeds.feed(Killed(folder)).run()
    [status] = filed.feeds.all()
    assert (status.position, status.lag) == (3, 1)
    assert filed.feeds.feed(JSONLines(folder)).run().lag == 0
    [status] = filed.feeds.all()
    assert (status.position, status.lag) == (4, 0)
    for file in folder.glob("*.jsonl"):
        file.unlink()
    filed.feeds.feed(JSONLines(folder)).run()
    assert not list(folder.glob("*.jsonl"))


def test_folder_that_cannot_be_rewritten_remains(filed: TurnLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said in one line, and done by `erase --finish`."""
    ids = fill(filed, 1, "a word of theirs")
    filed.feeds.feed(JSONLines(folder)).run()
    with monkeypatch.context() as patch:

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device", "file")

        patch.setattr("turnlog.feeds.sinks.jsonl.make_file", full)
        remains = filed.erase(turn=ids, reason="asked").remains
    assert remains is not None
    assert str(folder) in remains
    assert "no space left" in remains
    assert b"theirs" in text_of(folder)
    assert filed.finish_erasing() is None
    assert b"theirs" not in text_of(folder)


def test_rewriting_is_done_once(filed: TurnLog, folder: Path) -> None:
    """A file whose lines are as they should be stays the same file."""
    ids = fill(filed, 2)
    filed.feeds.feed(JSONLines(folder)).run()
    filed.erase(turn=ids[0], reason="asked")
    [file] = folder.glob("*.jsonl")
    node = file.stat().st_ino
    filed.feeds.remove(f"jsonl:{folder}")
    filed.feeds.feed(JSONLines(folder)).run()
    assert file.stat().st_ino == node


def test_what_a_killed_process_left_goes(filed: TurnLog, folder: Path) -> None:
    """A file that was being rewritten has what was to be erased."""
    fill(filed, 1)
    folder.mkdir(parents=True)
    left = folder / ".events-00000000000000000001.jsonl.turnlog-new"
    left.write_text("a word of theirs")
    filed.feeds.feed(JSONLines(folder)).run()
    assert not left.exists()
