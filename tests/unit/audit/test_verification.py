"""Verification: every kind of damage is found, and nothing else."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnlog import TurnLog
from turnlog.audit import Damage, VerifyReport
from turnlog.digest import leaf_hash
from turnlog.ids import new_id

Poke = Callable[..., None]

NOISE = os.urandom(70_000)
TEXT = "to be or not to be " * 5_000


@pytest.fixture
def story(file_log: TurnLog, store_path: Path, tmp_path: Path) -> TurnLog:
    """Give a log with a run, a fork, a merge, documents, options, bookmarks and every placement of payloads."""
    (tmp_path / "noise.bin").write_bytes(NOISE)
    root = file_log.add_turn("root " + "x" * 200, bookmark="main", servers=["a"])
    second = file_log.add_turn("second", role="assistant", continues="main")
    fork = file_log.add_turn("fork", continues=root.id, search=True)
    file_log.add_turn("merge", continues=[second.id, fork.id])
    file_log.add_document(tmp_path / "noise.bin", continues="main")
    file_log.add_turn(TEXT, bookmark="text")
    file_log.set_bookmark("side", fork.id)
    file_log.rename_bookmark("side", "aside")
    return file_log


def _whats(report: VerifyReport) -> str:
    return "\n".join(damage.what for damage in report.damage)


def _state(path: Path, position: int) -> dict[str, Any]:
    connection = sqlite3.connect(path)
    try:
        [(state,)] = connection.execute(
            "SELECT state FROM stored_events WHERE notification_id = ?", (position,)
        ).fetchall()
    finally:
        connection.close()
    return msgspec.json.decode(state)


def _forge(poke: Poke, path: Path, position: int, change: Callable[[dict[str, Any]], None], *, leaf: bool) -> None:
    """Rewrite the bytes of an event, and its leaf hash too if asked for: what only its children can tell."""
    event = _state(path, position)
    change(event)
    state = msgspec.json.Encoder(order="sorted").encode(event)
    poke(f"UPDATE stored_events SET state = x'{state.hex()}' WHERE notification_id = {position}")
    if leaf:
        poke(f"UPDATE stored_events SET leaf_hash = x'{leaf_hash(state).hex()}' WHERE notification_id = {position}")


def test_empty_log_is_clean(log: TurnLog) -> None:
    """There is nothing wrong with nothing."""
    assert log.verify() == VerifyReport(events=0, payloads=0, payload_bytes=0, damage=())
    assert log.verify().clean


def test_sound_log_is_clean_and_counted(story: TurnLog) -> None:
    """Every event and every payload byte is read."""
    report = story.verify()
    assert report.damage == ()
    assert report.clean
    sizes = [recorded.event.size for recorded in story.events() if recorded.event.size is not None]
    assert (report.events, report.payloads, report.payload_bytes) == (8, 6, sum(sizes))


def test_progress_ends_with_everything_done(story: TurnLog) -> None:
    """Progress counts events up to all of them."""
    calls: list[tuple[int, int]] = []
    story.verify(progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (8, 8)
    assert calls == sorted(calls)


def test_verification_writes_nothing(story: TurnLog, store_path: Path) -> None:
    """The events are the same before and after."""
    before = [recorded.state for recorded in story.events()]
    story.verify()
    assert [recorded.state for recorded in story.events()] == before


ONE_EVENT: dict[str, tuple[str, int, str]] = {
    "changed state": (
        "UPDATE stored_events SET state = CAST(replace(state, 'assistant', 'assistent') AS BLOB)"
        " WHERE notification_id = 2",
        2,
        "leaf hash",
    ),
    "cut state": (
        "UPDATE stored_events SET state = substr(state, 1, length(state) - 1) WHERE notification_id = 2",
        2,
        "leaf hash",
    ),
    "empty state": ("UPDATE stored_events SET state = x'' WHERE notification_id = 2", 2, "leaf hash"),
    "state as text": (
        "UPDATE stored_events SET state = CAST(state AS TEXT) WHERE notification_id = 2",
        2,
        "not stored as bytes",
    ),
    "state as number": ("UPDATE stored_events SET state = 5 WHERE notification_id = 2", 2, "not stored as bytes"),
    "changed leaf": ("UPDATE stored_events SET leaf_hash = zeroblob(32) WHERE notification_id = 3", 3, "leaf hash"),
    "cut leaf": (
        "UPDATE stored_events SET leaf_hash = substr(leaf_hash, 1, 31) WHERE notification_id = 3",
        3,
        "leaf hash",
    ),
    "changed topic column": ("UPDATE stored_events SET topic = 'gpt.call' WHERE notification_id = 3", 3, "beside"),
    "changed stream column": ("UPDATE stored_events SET originator_id = 'x' WHERE notification_id = 3", 3, "beside"),
    "changed position column": (
        "UPDATE stored_events SET originator_version = 7 WHERE notification_id = 3",
        3,
        "beside",
    ),
    "changed id column": ("UPDATE stored_events SET event_id = 'x' WHERE notification_id = 3", 3, "beside"),
    "changed inline payload": (
        "UPDATE stored_events SET payload = CAST(replace(payload, 'second', 'sceond') AS BLOB)"
        " WHERE notification_id = 2",
        2,
        "hash differs",
    ),
    "changed compressed payload": (
        "UPDATE stored_events SET payload = CAST(substr(payload, 1, 20) || zeroblob(length(payload) - 20) AS BLOB)"
        " WHERE notification_id = 1",
        1,
        "payload",
    ),
    "no payload": ("UPDATE stored_events SET payload = NULL WHERE notification_id = 2", 2, "payload"),
    "payload as text": (
        "UPDATE stored_events SET payload = CAST(payload AS TEXT) WHERE notification_id = 2",
        2,
        "payload",
    ),
    "payload as number": ("UPDATE stored_events SET payload = 5 WHERE notification_id = 1", 1, "payload"),
    "changed placement": (
        "UPDATE stored_events SET payload_placement = 2 WHERE notification_id = 2",
        2,
        "payload",
    ),
    "unknown placement": (
        "UPDATE stored_events SET payload_placement = 99 WHERE notification_id = 2",
        2,
        "payload",
    ),
}


@pytest.mark.parametrize(("statement", "position", "what"), ONE_EVENT.values(), ids=ONE_EVENT)
def test_damage_to_one_event_is_found_where_it_is(
    story: TurnLog, poke: Poke, statement: str, position: int, what: str
) -> None:
    """Each column of an event's row is checked, and the damage names the event's global position."""
    poke(statement)
    report = story.verify()
    assert not report.clean
    assert report.events == 8
    found = [damage for damage in report.damage if damage.global_position == position]
    assert any(what in damage.what for damage in found), report.damage


FORGERIES: dict[str, tuple[int, Callable[[dict[str, Any]], object], str]] = {
    "role": (2, lambda e: e["meta"].update(role="user"), "digest of parent"),
    "hash": (2, lambda e: e.update(hash="sha256-" + "A" * 43 + "="), "payload"),
    "malformed hash": (2, lambda e: e.update(hash="md5-x"), "payload"),
    "size": (2, lambda e: e.update(size=1), "1"),
    "hash without size": (2, lambda e: e.update(size=None), "size"),
    "no payload": (2, lambda e: e.update(size=None, hash=None), "digest of parent"),
    "position": (2, lambda e: e.update(position=2), "position 2"),
    "negative position": (3, lambda e: e.update(position=-1), "position -1"),
    "stream": (3, lambda e: e.update(stream=new_id()), "stream"),
    "topic": (2, lambda e: e.update(topic="gpt.call"), "only turns"),
    "unknown parent": (3, lambda e: e["parents"][0].update(id=new_id()), "not among the earlier events"),
    "own parent": (3, lambda e: e["parents"][0].update(id=e["id"]), "not among the earlier events"),
    "parent's digest": (3, lambda e: e["parents"][0].update(digest="sha256-" + "A" * 43 + "="), "digest of parent"),
    "malformed digest": (3, lambda e: e["parents"][0].update(digest="x"), "digest of parent"),
    "no parents": (2, lambda e: e.update(parents=[]), "parent"),
    "parent twice": (4, lambda e: e["parents"].append(e["parents"][0]), "twice"),
    "other parent first": (4, lambda e: e["parents"].reverse(), "first parent"),
    "id": (3, lambda e: e.update(id=new_id()), "beside"),
    "id in capitals": (3, lambda e: e.update(id=e["id"].upper()), "stored form"),
    "no id at all": (3, lambda e: e.update(id="x"), "not an id"),
    "format": (3, lambda e: e.update(format=2), "format version 2"),
    "malformed metadata": (3, lambda e: e["meta"].update(role="robot"), "role"),
    "malformed bookmark event": (7, lambda e: e["meta"].update(action="x"), "action"),
    "missing field": (3, lambda e: e.pop("parents"), "parents"),
    "bookmark name": (7, lambda e: e["meta"].update(name="forged"), "bookmark heads"),
    "head of a turn": (6, lambda e: e["meta"].update(head="forged"), "bookmark heads"),
}


@pytest.mark.parametrize(("position", "change", "what"), FORGERIES.values(), ids=FORGERIES)
def test_forged_event_is_found(
    story: TurnLog,
    store_path: Path,
    poke: Poke,
    position: int,
    change: Callable[[dict[str, Any]], None],
    what: str,
) -> None:
    """An event that was rewritten with the right leaf hash is found by what it cites, or by what cites it."""
    _forge(poke, store_path, position, change, leaf=True)
    report = story.verify()
    assert what in _whats(report)


def test_event_in_another_spelling_is_found(story: TurnLog, store_path: Path, poke: Poke) -> None:
    """Bytes that decode to the same event and are not in the form of the log are damage, leaf hash or not."""
    for position, spelling in ((6, b'{"format": 1'), (7, b'{"format" :1')):
        event = _state(store_path, position)
        state = msgspec.json.Encoder(order="sorted").encode(event).replace(b'{"format":1', spelling)
        poke(
            f"UPDATE stored_events SET state = x'{state.hex()}', leaf_hash = x'{leaf_hash(state).hex()}'"
            f" WHERE notification_id = {position}"
        )
        report = story.verify()
        assert any(d.global_position == position and "form of the log" in d.what for d in report.damage)


def test_metadata_in_another_order_is_found(story: TurnLog, store_path: Path, poke: Poke) -> None:
    """Keys of metadata are sorted too."""
    event = _state(store_path, 6)
    meta = dict(reversed(event["meta"].items()))
    assert list(meta) != sorted(meta)
    state = msgspec.json.encode({**event, "meta": meta})
    poke(
        f"UPDATE stored_events SET state = x'{state.hex()}', leaf_hash = x'{leaf_hash(state).hex()}'"
        " WHERE notification_id = 6"
    )
    assert "form of the log" in _whats(story.verify())


LOGS: dict[str, tuple[str, str]] = {
    "deleted in the middle": ("DELETE FROM stored_events WHERE notification_id = 3", "global positions 3 to 3"),
    "deleted at the start": ("DELETE FROM stored_events WHERE notification_id = 1", "global positions 1 to 1"),
    "deleted at the end": ("DELETE FROM stored_events WHERE notification_id = 8", "bookmark heads"),
    "all deleted": ("DELETE FROM stored_events", "differs from its rebuild"),
    "moved to a later position": (
        "UPDATE stored_events SET notification_id = 100 WHERE notification_id = 8",
        "global positions 8 to 99",
    ),
}


@pytest.mark.parametrize(("statement", "what"), LOGS.values(), ids=LOGS)
def test_gap_in_the_log_is_found(story: TurnLog, poke: Poke, statement: str, what: str) -> None:
    """A row that is gone or moved is missed: in the global order, or by the projections."""
    poke(statement)
    assert what in _whats(story.verify())


def test_swapped_global_positions_are_found(story: TurnLog, poke: Poke) -> None:
    """A turn that stands before its parent is found."""
    poke(
        "UPDATE stored_events SET notification_id = -1 WHERE notification_id = 1",
        "UPDATE stored_events SET notification_id = 1 WHERE notification_id = 2",
        "UPDATE stored_events SET notification_id = 2 WHERE notification_id = -1",
    )
    assert "not among the earlier events" in _whats(story.verify())


def test_swapped_positions_in_a_stream_are_found(story: TurnLog, poke: Poke) -> None:
    """Two turns of one stream that changed places are found."""
    poke(
        "UPDATE stored_events SET originator_version = -1 WHERE notification_id = 2",
        "UPDATE stored_events SET originator_version = 1 WHERE notification_id = 4",
        "UPDATE stored_events SET originator_version = 2 WHERE notification_id = 2",
    )
    report = story.verify()
    assert {damage.global_position for damage in report.damage} >= {2, 4}


def test_swapped_payloads_are_found(story: TurnLog, poke: Poke) -> None:
    """Two payloads that changed places are found at both events."""
    poke(
        "CREATE TABLE kept AS SELECT notification_id AS id, payload FROM stored_events",
        "UPDATE stored_events SET payload = (SELECT payload FROM kept WHERE id = 5 - notification_id)"
        " WHERE notification_id IN (2, 3)",
        "DROP TABLE kept",
    )
    report = story.verify()
    assert {damage.global_position for damage in report.damage} == {2, 3}


def test_second_event_under_an_id_is_found(story: TurnLog, store_path: Path, poke: Poke) -> None:
    """An event that was copied to the end of the log is found."""
    event = _state(store_path, 6)
    poke(
        "INSERT INTO stored_events (originator_id, originator_version, topic, event_id, state, leaf_hash,"
        " payload_placement, payload) SELECT originator_id, originator_version + 1, topic, 'copy', state, leaf_hash,"
        f" payload_placement, payload FROM stored_events WHERE event_id = '{event['id']}'"
    )
    report = story.verify()
    assert any(d.global_position == 9 and "same id" in d.what for d in report.damage)


PROJECTIONS: dict[str, tuple[str, str]] = {
    "moved bookmark": ("UPDATE bookmarks SET turn_id = 'x' WHERE name = 'main'", "bookmark heads"),
    "renamed bookmark": ("UPDATE bookmarks SET name = 'x' WHERE name = 'main'", "bookmark heads"),
    "bookmark's time": ("UPDATE bookmarks SET moved_at = moved_at + 1 WHERE name = 'main'", "bookmark heads"),
    "deleted bookmark": ("DELETE FROM bookmarks WHERE name = 'main'", "bookmark heads"),
    "added bookmark": ("INSERT INTO bookmarks SELECT 'new', turn_id, 1, 1 FROM bookmarks LIMIT 1", "bookmark heads"),
    "deleted link": (
        "DELETE FROM turn_links WHERE child_position = 0",
        "turn index",
    ),
    "changed link": ("UPDATE turn_links SET child_position = child_position + 9", "turn index"),
    "added link": ("INSERT INTO turn_links VALUES ('x', 0, 'y', 0)", "turn index"),
    "deleted thread": (
        "DELETE FROM threads WHERE thread = (SELECT originator_id FROM stored_events WHERE notification_id = 1)",
        "thread index",
    ),
    "added thread": ("INSERT INTO threads VALUES ('x')", "thread index"),
    "thread of another type": (
        "UPDATE threads SET thread = x'00'"
        " WHERE thread = (SELECT originator_id FROM stored_events WHERE notification_id = 1)",
        "thread index",
    ),
}


@pytest.mark.parametrize(("statement", "what"), PROJECTIONS.values(), ids=PROJECTIONS)
def test_changed_projection_is_found(story: TurnLog, poke: Poke, statement: str, what: str) -> None:
    """A projection that differs from its rebuild is named, and it alone."""
    poke(statement)
    report = story.verify()
    assert report.damage
    assert all(f"the {what} differs from its rebuild" in damage.what for damage in report.damage)


def test_dropped_projection_is_found(story: TurnLog, poke: Poke) -> None:
    """A table that is gone is damage, not a failure of the verification."""
    poke("DROP TABLE turn_links")
    assert "turn_links" in _whats(story.verify())


def _payload_files(path: Path) -> list[Path]:
    return sorted(file for file in path.with_name(path.name + "-payloads").rglob("*") if file.is_file())


@pytest.mark.parametrize("offset", [0, 1, 10, -1])
def test_flipped_byte_in_a_payload_file_is_found(story: TurnLog, store_path: Path, offset: int) -> None:
    """Every payload file is read: a changed byte shows at the file and at its event."""
    files = _payload_files(store_path)
    assert len(files) == 2
    for file in files:
        whole = file.read_bytes()
        content = bytearray(whole)
        content[offset] ^= 0xFF
        file.write_bytes(content)
        report = story.verify()
        assert any(file.name in damage.what for damage in report.damage)
        assert any(damage.global_position in {5, 6} for damage in report.damage)
        file.write_bytes(whole)
    assert story.verify().clean


def test_missing_payload_file_is_found(story: TurnLog, store_path: Path) -> None:
    """A payload whose file is gone is reported at its event."""
    for file in _payload_files(store_path):
        file.unlink()
    assert [damage.global_position for damage in story.verify().damage] == [5, 6]


def test_file_that_no_event_has_is_checked_too(story: TurnLog, store_path: Path) -> None:
    """A stray file in the payload folder is reported if its name is not its hash."""
    [file, _] = _payload_files(store_path)
    (file.parent / ("0" * 62)).write_bytes(b"stray")
    report = story.verify()
    assert [damage.global_position for damage in report.damage] == [None]
    assert "0" * 62 in report.damage[0].what


def test_folder_among_the_payload_files_is_reported(story: TurnLog, store_path: Path) -> None:
    """What cannot be read as a file is damage, not a failure of the verification."""
    [file, _] = _payload_files(store_path)
    (file.parent / ("1" * 62)).mkdir()
    assert "1" * 62 in _whats(story.verify())


def test_damage_has_its_event_and_place(story: TurnLog, store_path: Path, poke: Poke) -> None:
    """Damage to a readable event names its id."""
    event_id = _state(store_path, 2)["id"]
    poke("UPDATE stored_events SET payload = x'00' WHERE notification_id = 2")
    assert story.verify().damage == (
        Damage(
            what=f"payload of event {event_id!r} is not the one that was stored: its hash differs",
            global_position=2,
            event_id=event_id,
        ),
    )


def test_every_damage_is_reported(story: TurnLog, poke: Poke) -> None:
    """One kind of damage does not hide another."""
    poke(
        "UPDATE stored_events SET payload = x'00' WHERE notification_id = 2",
        "UPDATE stored_events SET leaf_hash = x'00' WHERE notification_id = 6",
        "UPDATE bookmarks SET turn_id = 'x' WHERE name = 'main'",
    )
    report = story.verify()
    assert [damage.global_position for damage in report.damage] == [2, 6, None]


def test_damaged_pages_are_found(story: TurnLog, store_path: Path) -> None:
    """Bytes flipped in the pages of the file, past its header, are reported or raise a corruption error."""
    story.close()
    connection = sqlite3.connect(store_path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    [(page_size,)] = connection.execute("PRAGMA page_size").fetchall()
    [(root_page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'bookmarks'").fetchall()
    connection.close()
    content = bytearray(store_path.read_bytes())
    start = (root_page - 1) * page_size
    content[start : start + 200] = b"\xa5" * 200
    store_path.write_bytes(content)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        report = log.verify()
    assert not report.clean
