"""Where a store is, and what is beside it: whatever the process, the locale or the disk does."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from turnlog import TurnLog
from turnlog.errors import StoreBusyError, StoreFullError, StoreOpenError
from turnlog.feeds.sinks import JSONLines
from turnlog.store import incoming
from turnlog.store.sqlite.opening import uri_of


def test_what_is_beside_a_store_is_there_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon goes to another folder once it has opened its log. What is erased is taken out of all of it."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with TurnLog.open("sqlite:///log.db") as log:
        log.add_turn("xylophone", bookmark="main")
        monkeypatch.chdir("elsewhere")
        assert len(log.feeds.search("xylophone")) == 1
        log.feeds.feed(JSONLines(tmp_path / "lines"), name="lines").run()
    assert [*Path().iterdir()] == []
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert {"log.db", "log.db-projections", "log.db-feeds"} <= names
    monkeypatch.chdir(tmp_path)
    with TurnLog.open("sqlite:///log.db") as log:
        log.erase(turn="main", reason="asked")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"xylophone" in path.read_bytes()] == []


def test_a_database_is_opened_by_the_bytes_of_its_path() -> None:
    """SQLite spells a path in UTF-8, which in another locale is another file."""
    assert uri_of(Path(os.fsdecode(b"/a b/\xfc?.db")), "mode=rw") == "file:/a%20b/%FC%3F.db?mode=rw"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_what_cannot_be_taken_away_keeps_nobody_from_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Of a payload that a process was placing as it was killed: a store must be there when the disk fails."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        log.add_turn("x" * 100_000, bookmark="main")
    (tmp_path / "log.db-payloads" / ".incoming" / "0123456789abcdef").mkdir(parents=True)
    assert incoming.needs_collecting(tmp_path / "log.db-payloads")

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number), "a file")

    monkeypatch.setattr(incoming, "collect", fail)
    with TurnLog.open(url) as log:
        assert len(log.text("main")) == 100_000
        assert log.verify().clean


def test_no_index_is_made_that_a_full_disk_has_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of less than a page SQLite makes sure of a part of it, and the rest would kill the process."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        log.add_turn("one", bookmark="main")
    system = SimpleNamespace(f_frsize=1024, f_bavail=100)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: system)
        with pytest.raises(StoreFullError, match="the index that SQLite makes beside it while it is open takes 32 KiB"):
            TurnLog.open(url)
        for enough in ({"f_frsize": 4096}, {"f_bavail": 128}):
            patch.setattr(os, "statvfs", lambda _, enough=enough: SimpleNamespace(**(vars(system) | enough)))
            with TurnLog.open(url) as log:
                log.add_turn("two", continues="main")


def test_who_reads_in_memory_reads_on_and_writes_behind_it() -> None:
    """There is one connection: a condition that looks into the log is given it, and nobody waits for oneself."""
    with TurnLog.open("memory://") as log:
        for text in ("one", "two", "three"):
            log.add_turn(text, bookmark=text)
        found = log.latest(5, wanted=lambda turn: "t" in log.text(turn))
        assert [log.text(turn) for turn in found] == ["two", "three"]
        assert len(log.threads(among=lambda thread: log.text(thread.id) == "one")) == 1
        with pytest.raises(StoreBusyError, match="in memory that is one at a time: write when it is read"):
            log.latest(5, wanted=lambda _: bool(log.add_turn("four")))
        log.add_turn("four")
        assert len(log.latest(None)) == 4
        assert log.verify().clean


@pytest.mark.parametrize(
    ("folder", "name", "why"), [(0, 216, "at most 215 bytes"), (150, 180, "give it one of at most")]
)
def test_no_store_is_made_where_what_belongs_beside_it_could_not_be(
    tmp_path: Path, folder: int, name: int, why: str
) -> None:
    """Search and feeds are files beside it, and SQLite has more of its own beside these."""
    place = tmp_path / ("d" * folder) / ("e" * folder) / ("n" * name)
    place.parent.mkdir(parents=True, exist_ok=True)
    with pytest.raises(StoreOpenError, match=why):
        TurnLog.open(f"sqlite:///{place}")
    assert [*place.parent.iterdir()] == []
    shorter = place.with_name("n" * (name - 1 if not folder else 30))
    with TurnLog.open(f"sqlite:///{shorter}") as log:
        log.add_turn("one", bookmark="main")
        assert len(log.feeds.search("one")) == 1
        log.feeds.feed(JSONLines(tmp_path / "lines"), name="lines").run()
