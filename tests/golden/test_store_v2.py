"""A store of version 2, as it was written once, is read by this turnlog and gives what it always gave."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command
from tests.golden import generate

from turnlog import StoreOpenError, TurnLog
from turnlog.events import HOLD, SEAL, SHAPES, SUMMARY, TOOL_CALL, TOOL_END, Arrival, decode, flaw
from turnlog.store import Placement
from turnlog.store.sqlite import schema

FOLDER = Path(__file__).parent
PARTS = (
    "log",
    "events",
    "turns",
    "ancestries",
    "children",
    "bookmarks",
    "threads",
    "windows",
    "requests",
    "calls",
    "replies",
    "pointers",
    "providers",
    "servers",
    "imported registers",
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a copy of the golden store, so that opening it leaves the golden one as it is."""
    shutil.copytree(FOLDER / "store-v2.db-payloads", tmp_path / "store-v2.db-payloads")
    return Path(shutil.copy(FOLDER / "store-v2.db", tmp_path))


@pytest.fixture
def log(store: Path) -> Iterator[TurnLog]:
    """Give the copy as an open log."""
    with TurnLog.open(f"sqlite:///{store}", create=False) as opened:
        yield opened


def expected() -> dict[str, Any]:
    return json.loads((FOLDER / "store-v2.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("part", PARTS)
def test_golden_store_reads_as_it_did(store: Path, part: str) -> None:
    """Reading a store of version 2 gives what reading it gave when it was written."""
    assert generate.reading(store)[part] == expected()[part]


def test_all_that_is_read_is_compared() -> None:
    """The parts that these tests compare are all that was written down."""
    assert set(expected()) == set(PARTS)


def test_golden_store_verifies_clean(log: TurnLog) -> None:
    """Every byte of a store of version 2 is as its hashes say, and every projection is its rebuild."""
    report = log.verify()
    assert report.damage == ()
    assert (report.events, report.payloads, report.requests, report.erased) == (47, 31, 3, 1)


def test_golden_store_has_one_of_everything(store: Path) -> None:
    """The golden store has every topic and placement that there is, and events of each arrival but restored ones."""
    database = sqlite3.connect(store)
    topics, placements, arrivals = (
        {value for (value,) in database.execute(f"SELECT DISTINCT {column} FROM stored_events")}
        for column in ("topic", "payload_placement", "arrival")
    )
    database.close()
    # Holds and seals came later, and are in the sealed golden store; summaries and tool calls came after both.
    later = {HOLD, SEAL, SUMMARY, TOOL_CALL, TOOL_END}
    assert topics >= (set(SHAPES) - later) | {"acme.review", "claude-code.user", "claude-code.odd-type"}
    assert placements == set(Placement) - {Placement.FILE}
    assert arrivals == {Arrival.RECORDED, Arrival.GUEST}


def test_golden_store_has_a_compressed_payload_file(log: TurnLog) -> None:
    """The large document of the golden store is in a file, and comes back as it was."""
    assert log.stats().file_count == 1
    [document] = [turn for turn in log.ancestry("main") if turn.meta.type == "document"]
    assert log.payload(document.id) == generate.field_notes()


def test_golden_store_takes_new_turns(log: TurnLog) -> None:
    """A store of version 2 can be appended to, and its bookmark moves along."""
    before = log.turn("main")
    added = log.add_turn("Go on.", continues="main")
    assert (added.continues, added.stream, added.position) == ((before.id,), before.stream, before.position + 1)
    assert log.turn("main") == added
    assert log.verify().clean


def test_recording_again_gives_the_golden_events(tmp_path: Path) -> None:
    """The same calls record the same bytes as when the golden store was written."""
    generate.fill(tmp_path / "again.db")
    assert generate.reading(tmp_path / "again.db")["events"] == expected()["events"]


@pytest.mark.parametrize("name", generate.literal_events())
def test_event_has_its_golden_bytes(name: str) -> None:
    """An event is encoded to the bytes that it had when the format was fixed, has their digest, and has no flaw."""
    golden = json.loads((FOLDER / "events-v2.json").read_text(encoding="utf-8"))[name]
    event = generate.literal_events()[name]
    assert generate.event_record(event) == golden
    private = golden["private"]
    assert decode(golden["state"].encode(), None if private is None else private.encode()) == event
    assert flaw(event) is None


def test_store_of_version_1_is_refused_with_one_line(tmp_path: Path) -> None:
    """A store of version 1, which was never released, is refused with one line and left as it is."""
    path = tmp_path / "old.db"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE stored_events (notification_id INTEGER PRIMARY KEY, state BLOB NOT NULL)")
    database.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    database.execute("PRAGMA user_version = 1")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreOpenError, match=r"is of version 1, which was never released: .*version 2 on"):
        TurnLog.open(f"sqlite:///{path}")
    assert "is of version 1" in Command(store=path).refused("log")
    assert path.read_bytes() == before
