"""Damage to the files of a store is found by `verify`, or changed nothing; all that it ever raises is a clear error."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.faults.asking import ask_all
from tests.faults.hostile import payload_file, run_sql_as_it_is
from tests.faults.rich_store import AT, build
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.errors import CorruptionError, TurnlogError
from turnlog.store.sqlite.schema import PAGE_BYTES
from turnlog.testing.faults import facts, flip_bits

SEEDS = range(8 if SOAK else 5)
FLIPS = 2000 if SOAK else 24


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with all that a store can have, and return its folder."""
    folder = tmp_path_factory.mktemp("sound")
    build(folder / "log.db")
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

    Whatever a reader may ask must raise errors of turnlog or answer: anything else comes out of here.
    """
    try:
        log = _open(folder)
    except TurnlogError as error:
        return f"open: {type(error).__name__}", None
    with log:
        ask_all(log)
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
    assert outcomes.get("damage", 0) >= FLIPS // 24, outcomes


@pytest.mark.timeout(7200 if SOAK else 120)
@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_byte_in_a_payload_file_is_found(copy: Path, seed: int) -> None:
    """A flipped byte in a payload file is reported, or the payload reads as before; no window has wrong bytes."""
    files = [payload_file(copy / "log.db", AT[name]) for name in ("noise", "table", "story")]
    with _open(copy) as log:
        expected = facts(log)
        window = log.context("main")
    source = random.Random(seed)
    for number in range(FLIPS // 2):
        file = files[number % len(files)]
        content = file.read_bytes()
        offset = source.randrange(len(content) if number % 2 else 20)
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
    file = payload_file(copy / "log.db", AT["noise"])
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
        # Both documents that are kept in it.
        assert {damage.global_position for damage in report.damage} >= {AT["noise"], AT["noise again"]}
        assert report.events == len(list(log.events()))
        with pytest.raises(CorruptionError):
            log.payload(list(log.events())[AT["noise"] - 1].header.id)
        with pytest.raises(CorruptionError):
            log.context("main")
        assert len(log.context("talk").messages) > 1


def test_removed_triggers_alone_are_no_lie(copy: Path) -> None:
    """Without a changed row the store says what it said, and `verify` that they are missing."""
    with _open(copy) as log:
        expected = facts(log)
    with closing(sqlite3.connect(copy / "log.db")) as connection:
        triggers = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    assert len(triggers) == 3
    run_sql_as_it_is(copy / "log.db", *(f"DROP TRIGGER {name}" for name in triggers))
    with _open(copy) as log:
        assert facts(log) == expected
        assert sorted(damage.what for damage in log.verify().damage) == [
            f"the store's schema: trigger {name!r} is missing" for name in sorted(triggers)
        ]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM stored_events WHERE notification_id = 2",
        "UPDATE stored_events SET state = x'00'",
        "UPDATE stored_events SET leaf_hash = x'00'",
        "UPDATE stored_events SET arrival = 0",
        "UPDATE stored_events SET private = x'00'",
    ],
)
def test_events_cannot_be_changed_by_accident(copy: Path, statement: str) -> None:
    """SQL that would change or delete an event is refused by the store itself."""
    with (
        closing(sqlite3.connect(copy / "log.db")) as connection,
        pytest.raises(sqlite3.IntegrityError, match=r"append-only|erased, not changed"),
    ):
        connection.execute(statement)


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
    at = PAGE_BYTES * random.Random(page).randrange(len(content) // PAGE_BYTES) if page else 0
    content[at : at + PAGE_BYTES] = random.Random(page).randbytes(PAGE_BYTES)
    _refresh(copy, bytes(content))
    outcome, said = _examine(copy)
    assert outcome != "clean" or said == expected
