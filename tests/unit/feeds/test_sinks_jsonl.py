"""JSON lines in a folder: rotation, recovery, erasing."""

import errno
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.errors import ConflictError, SinkError, StoreCutError
from turnlog.feeds.sinks import FeedState, FeedStates, JSONLines
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import files, open_store


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return all lines of a folder, file by file."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def positions(folder: Path) -> list[int]:
    """Return the global positions of all lines."""
    return [line["global_position"] for line in lines(folder)]


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
    filed.feeds.feed(JSONLines(folder, file_bytes_max=600)).run()
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder, file_bytes_max=600)).run()
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
def test_torn_line_is_cut_off(filed: TurnLog, folder: Path, cut: int) -> None:
    """And delivered again: what the folder says counts, also where the state was lost, or is of before."""
    fill(filed, 3)
    filed.feeds.feed(JSONLines(folder)).run()
    whole = lines(folder)
    [file] = folder.glob("*.jsonl")
    for state in ("kept", "lost"):
        file.write_bytes(file.read_bytes()[:-cut])
        name = f"jsonl:{folder}"
        if state == "lost":
            filed.feeds.remove_feed(name)
        else:
            filed.feeds.move_feed(name, 1)
        filed.feeds.feed(JSONLines(folder)).run()
        assert lines(folder) == whole
    assert filed.feeds.feeds()[0].position == 4


def test_long_torn_line_is_cut_off(filed: TurnLog, folder: Path) -> None:
    """However long it and the line before it are."""
    for size in (300_000, 500_000):
        filed.add_turn("x" * size)
    filed.feeds.feed(JSONLines(folder)).run()
    [file] = folder.glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-1000])
    filed.feeds.remove_feed(f"jsonl:{folder}")
    filed.feeds.feed(JSONLines(folder)).run()
    assert positions(folder) == [1, 2, 3]


def test_file_without_a_whole_line_goes(filed: TurnLog, folder: Path) -> None:
    """It was begun when the process was killed."""
    fill(filed, 2)
    filed.feeds.feed(JSONLines(folder, file_bytes_max=1)).run()
    last = max(folder.glob("*.jsonl"))
    last.write_bytes(b'{"idempotency')
    filed.feeds.remove_feed(f"jsonl:{folder}")
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


def test_folder_of_another_log_is_refused(filed: TurnLog, folder: Path, tmp_path: Path) -> None:
    """Nothing is written into it."""
    fill(filed, 1)
    filed.feeds.feed(JSONLines(folder)).run()
    with TurnLog.open(f"sqlite:///{tmp_path}/other.db") as other:
        fill(other, 1)
        with pytest.raises(StoreCutError, match="the feed is of log"):
            other.feeds.feed(JSONLines(folder)).run()
        other.feeds.remove_feed(f"jsonl:{folder}")
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
    filed.feeds.remove_feed(f"jsonl:{folder}")
    with pytest.raises(StoreCutError, match="rolled back"):
        filed.feeds.feed(JSONLines(folder)).run()


def test_what_is_no_event_is_refused(filed: TurnLog, folder: Path) -> None:
    """In one line that says which file."""
    fill(filed, 1)
    folder.mkdir(parents=True)
    (folder / "events-00000000000000000001.jsonl").write_text("hello\n")
    with pytest.raises(SinkError, match=r"events-00000000000000000001.jsonl' has a line that is no event"):
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
    assert [what for what in after if what.startswith("save")] == ["save 2", "save 4"]
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
    filed.feeds.feed(JSONLines(folder, file_bytes_max=600)).run()
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
    filed.feeds.feed(JSONLines(folder, file_bytes_max=600)).run()
    assert [line["topic"] for line in lines(folder)][-1] == "gpt.erasure"
    assert positions(folder) == list(range(1, 8))


def test_erasure_waits_for_its_turn_where_the_folder_is_gone(filed: TurnLog, folder: Path) -> None:
    """Nothing is made, nothing remains."""
    ids = fill(filed, 1)
    filed.feeds.feed(JSONLines(folder)).run()
    folder.rename(folder.with_name("away"))
    assert filed.erase(turn=ids, reason="asked").remains is None
    assert not folder.exists()
    folder.with_name("away").rename(folder)
    assert filed.finish_erasing() is None
    assert [line["erased"] for line in lines(folder)] == [False, True]


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
    filed.feeds.remove_feed(f"jsonl:{folder}")
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
