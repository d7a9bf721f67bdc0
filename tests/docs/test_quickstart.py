"""The quick start, which `make run` runs: it works, works again, and notices damage."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    program = ROOT / "examples" / "quickstart.py"
    return subprocess.run([sys.executable, program], cwd=folder, capture_output=True, text=True, check=False)


def test_quickstart_records_forks_replays_and_verifies(tmp_path: Path) -> None:
    """The quick start ends well, says what it recorded, and that both windows begin with the same messages."""
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 turns, 10 of them new" in done.stdout
    assert "main: 7 messages" in done.stdout
    assert "cheaper: 7 messages" in done.stdout
    assert "The first 5 messages of both are the same" in done.stdout
    assert "11 events and 10 payloads read again; damage found: 0" in done.stdout


def test_quickstart_runs_again_after_its_commands(tmp_path: Path) -> None:
    """The commands that the quick start names work as printed; a second run adds nothing and keeps what they added."""
    first = run(tmp_path).stdout
    [store] = re.findall(r"^ +export TURNLOG_STORE=(\S+)$", first, re.MULTILINE)
    commands = re.findall(r"^ +\S*turnlog (\S.*)$", first, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["log", "context", "show", "add", "verify", "--help"]
    variables = os.environ | {"TURNLOG_STORE": store, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", f"turnlog {command}"], cwd=tmp_path, env=variables, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), command
        assert done.stdout, command
    again = run(tmp_path)
    assert again.returncode == 0
    assert "10 turns, 0 of them new" in again.stdout
    assert "12 events and 11 payloads read again" in again.stdout


def test_quickstart_fails_on_damage(tmp_path: Path) -> None:
    """The quick start ends with a failure if an index of the store that it made was changed, and says so."""
    run(tmp_path)
    database = sqlite3.connect(tmp_path / ".turnlog-demo" / "log.db")
    database.execute("DELETE FROM threads")
    database.commit()
    database.close()
    done = run(tmp_path)
    assert done.returncode == 1
    assert "damage found: 1" in done.stdout


def test_quickstart_does_not_use_what_was_edited(tmp_path: Path) -> None:
    """The quick start ends with one line if a turn that it needs was edited."""
    run(tmp_path)
    database = sqlite3.connect(tmp_path / ".turnlog-demo" / "log.db")
    database.execute("DROP TRIGGER stored_events_no_update")
    database.execute("UPDATE stored_events SET leaf_hash = zeroblob(32) WHERE notification_id = 3")
    database.commit()
    database.close()
    done = run(tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("quickstart: ")
