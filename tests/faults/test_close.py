"""Closing a log while it is used: everybody comes to an end, nothing is lost, and the interpreter survives it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.soak import SOAK

ROUNDS = 2000 if SOAK else 30
WAIT_S = 7200 if SOAK else 240

_ROOT = Path(__file__).resolve().parents[2]


def _run(program: str, folder: Path, *, url: str = "", rounds: int = ROUNDS) -> dict[str, Any]:
    """Run a program of `closing` in an interpreter of its own, to that one's very end, and return what it saw."""
    answer = folder / "answer.json"
    ended = subprocess.run(
        [
            *(sys.executable, "-X", "faulthandler", "-W", "error", "-m", "tests.faults.closing"),
            *(program, url or f"sqlite:///{folder}/log.db", str(rounds), str(answer)),
        ],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    return json.loads(answer.read_text())


@pytest.mark.timeout(WAIT_S + 60)
def test_close_under_sixteen_threads(tmp_path: Path) -> None:
    """Closed 200 times while sixteen threads append, read, follow, measure and rebuild, a log just closes."""
    found = _run("threads", tmp_path)
    assert set(found["ended"]) == {"StoreClosedError"}
    assert found["ended"]["StoreClosedError"] >= 14 * ROUNDS
    assert found["acknowledged"] > ROUNDS
    assert (found["lost"], found["damage"]) == (0, [])


@pytest.mark.timeout(WAIT_S + 60)
def test_close_with_cancelled_tasks(tmp_path: Path) -> None:
    """Closed 200 times while tasks use it, of which some are cancelled, a log in an event loop just closes."""
    found = _run("tasks", tmp_path)
    assert set(found["ended"]) == {"StoreClosedError", "CancelledError: "}
    assert found["acknowledged"] > 1
    assert (found["lost"], found["damage"]) == (0, [])


@pytest.mark.timeout(WAIT_S + 60)
def test_end_of_a_program_that_closes_nothing(tmp_path: Path) -> None:
    """An event loop, and an interpreter, that end with a log open and in use take no harm, and nor does the log."""
    found = _run("abandon", tmp_path, rounds=ROUNDS // 10)
    assert found["ended"] == {}
    assert found["acknowledged"] >= ROUNDS // 10
    assert (found["lost"], found["damage"]) == (0, [])
