"""A store of version 1, as it was written once, is read by this turnlog and gives what it always gave."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.golden import generate

from turnlog import TurnLog
from turnlog.digest import event_digest
from turnlog.events import decode, encode

FOLDER = Path(__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a copy of the golden store, so that opening it leaves the golden one as it is."""
    shutil.copytree(FOLDER / "store-v1.db-payloads", tmp_path / "store-v1.db-payloads")
    return Path(shutil.copy(FOLDER / "store-v1.db", tmp_path))


@pytest.fixture
def log(store: Path) -> Iterator[TurnLog]:
    """Give the copy as an open log."""
    with TurnLog.open(f"sqlite:///{store}", create=False) as opened:
        yield opened


def expected() -> dict[str, Any]:
    return json.loads((FOLDER / "store-v1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("part", ["events", "turns", "ancestries", "children", "bookmarks", "threads", "windows"])
def test_golden_store_reads_as_it_did(store: Path, part: str) -> None:
    """Reading a store of version 1 gives what reading it gave when it was written."""
    assert generate.reading(store)[part] == expected()[part]


def test_golden_store_verifies_clean(log: TurnLog) -> None:
    """Every byte of a store of version 1 is as its hashes say, and every projection is its rebuild."""
    report = log.verify()
    assert report.damage == ()
    assert (report.events, report.payloads) == (16, 12)


def test_golden_store_has_a_compressed_payload_file(log: TurnLog) -> None:
    """The large document of the golden store is in a file, and comes back as it was."""
    assert log.stats().file_count == 1
    [document] = [turn for turn in log.ancestry("main") if turn.meta.type == "document"]
    assert log.payload(document.id) == generate.field_notes()


def test_golden_store_takes_new_turns(log: TurnLog) -> None:
    """A store of version 1 can be appended to, and its bookmark moves along."""
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
    """An event is encoded to the bytes that it had when the format was fixed, and has their digest."""
    golden = json.loads((FOLDER / "events-v1.json").read_text(encoding="utf-8"))[name]
    event = generate.literal_events()[name]
    assert encode(event).decode() == golden["state"]
    assert event_digest(encode(event)) == golden["digest"]
    assert decode(golden["state"].encode()) == event
