"""Events that were written by other hands, consistent in themselves: verifying and reading them does no harm.

`test_tamper` has what is found of them. Here it is shown that nothing else comes of them, whatever is in them.
"""

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.faults.asking import ask_all, questions
from tests.faults.hostile import payload_of, rewrite
from tests.faults.rich_store import AT, NAMES, build
from tests.faults.tampering import FOUND, Edit
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.errors import TurnlogError
from turnlog.testing.faults import facts

SEEDS = range(3000) if SOAK else (*range(16), 478)
READ = [edit for edit in FOUND if edit.kind not in ("index tables", "schema", "engine")]

VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1 << 31,
    1 << 63,
    1 << 64,
    10**30,
    1e308,
    -0.0,
    "",
    "x",
    "\x00",
    "\ud7ff🌿",
    "x" * 100_000,
    "sha256-" + "A" * 43 + "=",
    [],
    {},
    [[]],
    {"": None},
    [{"as": "parent", "digest": "x", "id": "y"}],
    {"hash": "x", "size": -1},
]
"""What is put in the place of others."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with one of everything, and return its folder."""
    folder = tmp_path_factory.mktemp("sound")
    build(folder / "log.db")
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """Give a copy of the store."""
    return shutil.copytree(sound, tmp_path / "copy") / "log.db"


def test_every_question_about_a_sound_store_is_answered(store: Path) -> None:
    """The control of the tests below, but for calls of conversations that have none."""
    with TurnLog.open(f"sqlite:///{store}") as log:
        assert ask_all(log) > 0.6 * len(questions(log))


@pytest.mark.parametrize("name", NAMES)
def test_event_that_was_written_anew_without_a_change_is_sound(store: Path, name: str) -> None:
    """The same event, written the same way by other hands, is no damage: what it says is what counts."""
    with TurnLog.open(f"sqlite:///{store}") as log:
        before = facts(log)
    rewrite(store, AT[name])
    with TurnLog.open(f"sqlite:///{store}") as log:
        assert log.verify().damage == ()
        assert facts(log) == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("edit", READ, ids=lambda edit: f"{edit.kind}: {edit.name}")
def test_reading_an_edited_store_does_no_harm(store: Path, edit: Edit) -> None:
    """Each question is answered, or refused with an error of turnlog; none takes for ever."""
    edit.apply(store)
    try:
        with TurnLog.open(f"sqlite:///{store}") as log:
            ask_all(log)
    except TurnlogError:
        return


@pytest.mark.timeout(7200 if SOAK else 120)
@pytest.mark.parametrize("seed", SEEDS)
def test_event_with_anything_in_it_does_no_harm(store: Path, seed: int) -> None:
    """Any value anywhere in headers, private parts and payloads: verifying ends with a report, reading with errors."""
    source = random.Random(seed)
    for _ in range(source.choice([1, 1, 1, 3])):
        at = source.randrange(1, len(NAMES) + 1)
        parts = source.choice(["header", "private", "payload", "both"])
        try:
            rewrite(
                store,
                at,
                header=(lambda header: _spoil(source, header)) if parts in ("header", "both") else None,
                private=(lambda private: _spoil(source, private)) if parts in ("private", "both") else None,
                payload=_spoiled_payload(source, payload_of(store, at)) if parts == "payload" else None,
                follow=source.random() < 0.5,
            )
        except (TypeError, KeyError, AttributeError, ValueError, sqlite3.IntegrityError):
            continue  # nothing that could be written
    with TurnLog.open(f"sqlite:///{store}") as log:
        report = log.verify()
        assert report.events == len(NAMES)
        ask_all(log)


def _spoil(source: random.Random, record: dict[str, Any]) -> None:
    """Put some value in the place of another, or take one away, anywhere in a record."""
    place: Any = record
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = source.choice(keys)
        if isinstance(place[key], dict | list) and source.random() < 0.7:
            place = place[key]
            continue
        if source.random() < 0.2:
            del place[key]
        else:
            place[key] = source.choice(VALUES)
        return


def _spoiled_payload(source: random.Random, payload: bytes | None) -> bytes | None:
    if payload is None:
        return None
    content = bytearray(payload)
    match source.randrange(4):
        case 0:
            return bytes(content[: source.randrange(len(content) + 1)])
        case 1:
            at = source.randrange(len(content) + 1)
            content[at:at] = source.choice([b"[" * 50_000, b"\x1e", b"\n", b"\xff", b'{"$extra":1},', b"null"])
        case 2 if content:
            content[source.randrange(len(content))] ^= 1 << source.randrange(8)
        case _:
            return source.choice([b"", b"null", b"[]", b"{}", b"[null]", b'"text"', b"[1e999]", b"\xef\xbb\xbf[]"])
    return bytes(content)
