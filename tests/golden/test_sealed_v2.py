"""A sealed store, as it was written once, gives what it always gave: with its keys, and without."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.golden import generate, sealed_store

from turnlog import TurnLog
from turnlog.events import HOLD, SEAL


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a copy of the golden store, so that opening it leaves the golden one as it is."""
    shutil.copytree(f"{sealed_store.STORE}-payloads", tmp_path / f"{sealed_store.STORE.name}-payloads")
    return Path(shutil.copy(sealed_store.STORE, tmp_path))


def expected() -> dict[str, Any]:
    return json.loads(sealed_store.EXPECTED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("keys", [True, False])
def test_golden_sealed_store_reads_as_it_did(store: Path, keys: bool) -> None:
    """What is sealed is opened with its keys, and a placeholder without."""
    found = sealed_store.reading(store, keys=keys)
    wanted = expected()["with keys" if keys else "without"]
    assert found.keys() == wanted.keys()
    for part in wanted:
        assert found[part] == wanted[part], part


def test_golden_sealed_store_verifies_clean(store: Path) -> None:
    """Every byte is as its hashes say, with and without keys, and the checkpoint that it keeps fits."""
    for seals in (None, sealed_store.seals()):
        with TurnLog.open(f"sqlite:///{store}", create=False, seals=seals) as log:
            report = log.verify()
        assert report.damage == ()
        assert (report.erased, report.checkpoints) == (1, 1)
        assert report.sealed > 15
        assert (report.closed > 10) == (seals is None)


def test_golden_sealed_store_has_what_came_later(store: Path) -> None:
    """The topics that the golden store of version 2 lacks; and a sealed payload in a file."""
    with TurnLog.open(f"sqlite:///{store}", create=False) as log:
        assert log.stats().topics.keys() >= {HOLD, SEAL}
        assert log.stats().file_count == 1
    with TurnLog.open(f"sqlite:///{store}", create=False, seals=sealed_store.seals()) as log:
        [document] = [turn for turn in log.ancestry("other") if turn.meta.type == "document"]
        assert log.payload(document.id) == sealed_store.noise()


def test_golden_sealed_store_takes_new_turns(store: Path) -> None:
    """They are sealed, and what it has is gone on from."""
    with TurnLog.open(f"sqlite:///{store}", create=False, seals=sealed_store.seals()) as log:
        before = log.turn("main")
        added = log.add_turn("Go on.", continues="main")
        assert added.sealed == before.sealed is not None
        assert log.turn("main") == added
        assert generate.shortened(log.context("main")).count("Which river") == 1
        assert log.verify().clean
