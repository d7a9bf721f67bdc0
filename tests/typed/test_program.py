"""A user's program: it runs, and pyright finds nothing in it, however strict."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("program.py")
ROLLOUT = Path(__file__).parents[2] / "examples" / "rollout.jsonl"


def test_program_of_a_user_runs() -> None:
    """It says what it is meant to say."""
    command = [sys.executable, str(PROGRAM), "memory://", str(ROLLOUT)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.splitlines() == [
        "user main - 0 [] What is the capital of France?",
        "assistant main m 2 [] Paris.",
        "user main - 0 [] And of Spain?",
        "assistant main - 0 [] Madrid.",
        "['main'] 1 None",
        "['None', '[]'] [] unsigned",
        "None b''",
        "['aside', 'milli', 'fs', 'local', 'case 7']",
        "['user', 'm', 'user', 'assistant']",
        "5 1 []",
        "And of Italy? ['main'] '' 0",
    ]
    assert found.stderr == ""


def test_pyright_finds_nothing_in_it(tmp_path: Path) -> None:
    """Strictly, away from this project and its settings, with the package as it is installed."""
    shutil.copy(PROGRAM, tmp_path)
    settings = {"typeCheckingMode": "strict", "include": ["program.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    told = json.loads(found.stdout)
    assert told["generalDiagnostics"] == []
    assert told["summary"]["filesAnalyzed"] == 1
