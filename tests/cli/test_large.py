"""How much memory commands take for a turn that is large."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import Command

TEXT_BYTES = 200 * 1024 * 1024 if os.environ.get("TURNLOG_SOAK") == "1" else 32 * 1024 * 1024
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A large text."""
    path = tmp_path / "large.txt"
    path.write_text("More of it.\n" * (TEXT_BYTES // 12))
    return path


def peak(turnlog: Command, *arguments: str | Path, stdin: Path | None = None) -> int:
    """Run the command, and return the bytes of memory that it took at most."""
    with (stdin or Path(os.devnull)).open("rb") as source:
        process = subprocess.Popen(
            [sys.executable, "-m", "turnlog", *map(str, arguments)],
            stdin=source,
            stdout=subprocess.DEVNULL,
            env=turnlog.environment(),
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * _RSS_UNIT


def test_a_large_turn_is_held_little_more_than_twice(turnlog: Command, text: Path, tmp_path: Path) -> None:
    """What is read and what is recorded of it; an import checks it in two forms beside."""
    turnlog.ok("add", "a small one", "-b", "small")
    small = peak(turnlog, "context", "small")
    taken = {
        "add": peak(turnlog, "add", "-", "-b", "large", stdin=text),
        "context": peak(turnlog, "context", "large"),
        "log": peak(turnlog, "log", "large"),
        "export": peak(turnlog, "export", "large", "-o", tmp_path / "large.jsonl"),
    }
    imported = peak(turnlog, "--store", f"sqlite:///{tmp_path}/other.db", "import", "turnlog", tmp_path / "large.jsonl")
    times = {name: (bytes_ - small) / TEXT_BYTES for name, bytes_ in (taken | {"import": imported}).items()}
    assert all(times[name] <= 2.5 for name in taken), times
    assert times["import"] <= 3.6, times
