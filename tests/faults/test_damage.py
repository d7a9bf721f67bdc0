"""Damage to the files of a store is found by `verify`, or changed nothing; all that it ever raises is a clear error."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.errors import CorruptionError, TurnlogError
from turnlog.testing.faults import facts, flip_bits

SOAK = os.environ.get("TURNLOG_SOAK") == "1"
SEEDS = range(8)
FLIPS = 2000 if SOAK else 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with all that a store can have, and return its folder."""
    folder = tmp_path_factory.mktemp("sound")
    source = random.Random(0)
    document = folder / "document.bin"
    with TurnLog.open(f"sqlite:///{folder}/log.db") as log:
        root = log.add_turn("root", bookmark="main", servers=["fs"])
        for n in range(30):
            size = source.choice([5, 200, 3000, 20_000])
            text = source.randbytes(size).hex() if n % 2 else "the same again " * (size // 10)
            log.add_turn(text, role="assistant" if n % 2 else "user", continues="main", inherited={"n": n})
        for n in range(6):
            log.add_turn(f"fork {n}", continues=source.choice(log.ancestry("main")).id, bookmark=f"fork {n}")
        document.write_bytes(source.randbytes(90_000))
        log.add_document(document, continues="fork 1")
        document.write_bytes(b"compressible " * 9000)
        log.add_document(document, continues="fork 2")
        log.add_turn("merge", continues=["main", "fork 1", "fork 2"])
        log.add_turn("failed", role="assistant", continues=root.id, stop_reason="error", error="overloaded")
        log.set_bookmark("extra", root.id)
        log.rename_bookmark("extra", "renamed")
        log.delete_bookmark("fork 0")
    document.unlink()
    assert sorted(path.name for path in folder.iterdir()) == ["log.db", "log.db-payloads"]
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    """Copy the sound store and return the new folder."""
    return shutil.copytree(sound, tmp_path / "copy")


def _open(folder: Path) -> TurnLog:
    return TurnLog.open(f"sqlite:///{folder}/log.db", create=False)


def _examine(folder: Path) -> tuple[str, dict[str, Any] | None]:
    """Return how damage shows (`clean` if it does not), and what the log says if nothing is found.

    Whatever else a reader may ask must raise errors of turnlog or answer: anything else comes out of here.
    """
    try:
        log = _open(folder)
    except TurnlogError as error:
        return f"open: {type(error).__name__}", None
    with log:
        questions: list[Callable[[], object]] = [log.threads, log.bookmarks, log.stats, lambda: list(log.events())]
        for name in ("main", "fork 1", "fork 2", "fork 3", "renamed"):
            questions += [
                lambda name=name: log.context(name, explain=True, include_failed=True),
                lambda name=name: log.ancestry(name),
                lambda name=name: log.thread(name),
                lambda name=name: log.children(name),
            ]
        for question in questions:
            with suppress(TurnlogError):
                question()
        try:
            report = log.verify()
        except TurnlogError as error:
            return f"verify: {type(error).__name__}", None
        if report.damage:
            return "damage", None
        return "clean", facts(log)


def _refresh(folder: Path, content: bytes) -> None:
    for name in ("log.db-wal", "log.db-shm", "log.db-journal"):
        (folder / name).unlink(missing_ok=True)
    (folder / "log.db").write_bytes(content)


@pytest.mark.timeout(7200 if SOAK else 300)
@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_byte_in_the_database_is_found(copy: Path, seed: int) -> None:
    """A flipped byte anywhere in the database is reported, or every event, payload and projection reads as before."""
    content = (copy / "log.db").read_bytes()
    with _open(copy) as log:
        expected = facts(log)
    source = random.Random(seed)
    outcomes: dict[str, int] = {}
    for number in range(FLIPS):
        # The header and the schema are a small part of the file, and the one where most can go wrong.
        offset = source.randrange(len(content) if number % 3 else 4096)
        mask = 1 << source.randrange(8) if number % 2 else source.randrange(1, 256)
        _refresh(copy, content)
        flip_bits(copy / "log.db", offset, mask)
        outcome, said = _examine(copy)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome == "clean":
            assert said == expected, f"flipping offset {offset} with mask {mask} was not found"
    assert outcomes["damage"] > FLIPS // 12, outcomes


@pytest.mark.timeout(7200 if SOAK else 120)
@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_byte_in_a_payload_file_is_found(copy: Path, seed: int) -> None:
    """A flipped byte in a payload file is reported, or the payload reads as before; no window has wrong bytes."""
    files = sorted(path for path in (copy / "log.db-payloads").rglob("*") if path.is_file())
    assert len(files) == 2
    with _open(copy) as log:
        expected = facts(log)
        window = log.context("main")
    source = random.Random(seed)
    for number in range(FLIPS // 2):
        file = files[number % 2]
        content = file.read_bytes()
        offset = source.randrange(len(content) if number % 3 else 20)
        flip_bits(file, offset, source.randrange(1, 256))
        with _open(copy) as log:
            if log.verify().clean:
                assert facts(log) == expected, f"flipping offset {offset} of {file.name} was not found"
            try:
                assert log.context("main") == window
            except CorruptionError:
                assert not log.verify().clean
        file.write_bytes(content)


@pytest.mark.parametrize("change", ["missing", "empty", "short", "folder"])
def test_payload_file_that_is_gone_is_found(copy: Path, change: str) -> None:
    """A payload file that is missing, empty, cut or no file is damage; the turns that do not need it are readable."""
    [file] = (copy / "log.db-payloads").rglob("*.zst")
    content = file.read_bytes()
    file.unlink()
    match change:
        case "empty":
            file.write_bytes(b"")
        case "short":
            file.write_bytes(content[:-1])
        case "folder":
            file.mkdir()
        case _:
            pass
    with _open(copy) as log:
        report = log.verify()
        assert not report.clean
        assert report.events == len(list(log.events()))
        with pytest.raises(CorruptionError):
            log.payload("fork 2")
        with pytest.raises(CorruptionError):
            log.context("main")
        assert len(log.context("fork 1").messages) > 1


def _sql(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / "log.db")
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM stored_events WHERE notification_id = 5"],
        ["DELETE FROM stored_events WHERE notification_id = (SELECT MAX(notification_id) FROM stored_events)"],
        ["UPDATE stored_events SET leaf_hash = zeroblob(32) WHERE notification_id = 5"],
        ["UPDATE stored_events SET topic = 'gpt.other' WHERE notification_id = 5"],
        ["UPDATE stored_events SET originator_version = 99 WHERE notification_id = 5"],
        ["UPDATE stored_events SET payload = NULL WHERE notification_id = 5"],
        ["UPDATE stored_events SET payload = 'text', payload_placement = 1 WHERE notification_id = 5"],
        ["UPDATE stored_events SET payload = 12, payload_placement = 2 WHERE notification_id = 5"],
        ["UPDATE stored_events SET payload = 1.5, payload_placement = 1 WHERE notification_id = 5"],
        ["UPDATE stored_events SET payload_placement = 9 WHERE notification_id = 5"],
        ["UPDATE stored_events SET payload_placement = 'x' WHERE notification_id = 5"],
        ["UPDATE stored_events SET state = CAST(state AS TEXT) WHERE notification_id = 5"],
        ["UPDATE stored_events SET state = x'7b7d' WHERE notification_id = 5"],
        ["UPDATE stored_events SET state = replace(state, 'user', 'system') WHERE notification_id = 4"],
        ["UPDATE stored_events SET originator_id = CAST(x'ff00' AS TEXT) WHERE notification_id = 5"],
        ["UPDATE stored_events SET topic = CAST(x'ff' AS TEXT) WHERE notification_id = 5"],
        ["UPDATE stored_events SET event_id = '03dxxdbh7vsvnbuk07dz03mxs' WHERE notification_id = 5"],
        ["DROP TABLE stored_events"],
    ],
    ids=lambda statements: statements[0].replace("stored_events", "events")[:60],
)
def test_changed_row_is_found(copy: Path, statements: list[str]) -> None:
    """A row that was changed, added or removed behind turnlog's back is reported."""
    _sql(copy, *statements)
    assert _examine(copy)[0] != "clean"


def test_changed_projection_is_found(copy: Path) -> None:
    """A row of a projection that was added, removed or changed in any column is reported, and so is a missing table."""
    content = (copy / "log.db").read_bytes()
    with _open(copy) as log, log.store.read() as transaction:
        tables = [table for projection in log.store.projections for table in projection.tables]
        columns = {table: [name for _, name, *_ in transaction.rows(f"PRAGMA table_info({table})")] for table in tables}
    tried = 0
    for table in tables:
        names = columns[table]
        row = f"({', '.join(names)}) = (SELECT {', '.join(names)} FROM {table} LIMIT 1)"
        statements = [f"DELETE FROM {table} WHERE {row}", f"DELETE FROM {table}", f"DROP TABLE {table}"]
        statements += [f"UPDATE {table} SET {name} = {value} WHERE {row}" for name in names for value in ("'x'", "77")]
        values = ", ".join("'x'" for _ in names)
        statements.append(f"INSERT INTO {table} VALUES ({values})")
        for statement in statements:
            _refresh(copy, content)
            _sql(copy, statement)
            assert _examine(copy)[0] != "clean", statement
            tried += 1
    assert tried > 6 * len(tables)


def test_removed_triggers_alone_are_no_lie(copy: Path) -> None:
    """The control of the test above: without a changed row the store says what it said."""
    with _open(copy) as log:
        expected = facts(log)
    _sql(copy)
    with _open(copy) as log:
        assert facts(log) == expected


def test_events_cannot_be_changed_by_accident(copy: Path) -> None:
    """SQL that would change or delete an event is refused by the store itself."""
    connection = sqlite3.connect(copy / "log.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("DELETE FROM stored_events WHERE notification_id = 1")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("UPDATE stored_events SET state = x'00'")
    connection.close()


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.5, 0.9, 0.99])
def test_cut_database_is_found(copy: Path, part: float) -> None:
    """A database that was cut short, be it to nothing, is refused or reported."""
    content = (copy / "log.db").read_bytes()
    _refresh(copy, content[: int(len(content) * part)])
    assert _examine(copy)[0] != "clean"


@pytest.mark.parametrize("page", range(8))
def test_page_of_noise_is_found(copy: Path, page: int) -> None:
    """A page that was overwritten, header included, is refused or reported."""
    with _open(copy) as log:
        expected = facts(log)
    content = bytearray((copy / "log.db").read_bytes())
    at = 4096 * random.Random(page).randrange(len(content) // 4096) if page else 0
    content[at : at + 4096] = random.Random(page).randbytes(4096)
    _refresh(copy, bytes(content))
    outcome, said = _examine(copy)
    assert outcome != "clean" or said == expected
