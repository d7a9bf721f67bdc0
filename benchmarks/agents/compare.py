"""Run the same agent with each library, kill it in a tool, go on, and say what is left.

`python -m benchmarks.agents.compare [--write]`.

The programs are `with_*.py` beside this file. Those of other libraries need these in an environment of their own, whose
Python is named by PEERS_PYTHON; without it turnlog alone is measured. What is found is written to
`benchmarks/results/agents.json` with `--write`.
"""

from __future__ import annotations

import ast
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.agents.stand_in import StandIn

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "agents.json"
LIBRARIES = {
    "turnlog": ("with_turnlog.py", "turnlog"),
    "llm": ("with_llm.py", "llm"),
    "Agents SDK": ("with_agents_sdk.py", "openai-agents"),
    "pydantic-ai": ("with_pydantic_ai.py", "pydantic-ai-slim"),
}
SAID = {"question": "Write that down.", "call": "write_note", "arguments": "Rome: 21"}
"""What the run that is killed has said before: what can be found of it afterwards."""

_LLM_MODELS = """\
- model_id: model-1
  model_name: model-1
  api_base: {url}
  supports_tools: true
"""


def measure(library: str, python: str) -> dict[str, Any]:
    """Return what one library makes of the conversation.

    Raises:
        subprocess.CalledProcessError: a step failed that is not killed.
    """
    program, package = LIBRARIES[library]
    with StandIn() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "extra-openai-models.yaml").write_text(_LLM_MODELS.format(url=server.url))
        environment = {
            **os.environ,
            "BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "LLM_USER_PATH": name,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])] if library == "turnlog" else [str(HERE)]),
        }

        def step(command: str, **more: str) -> str:
            done = subprocess.run(
                [python, str(HERE / program), command],
                cwd=folder,
                env=environment | more,
                capture_output=True,
                text=True,
                check=not more,  # what is killed, and what reads a store that was changed, may fail
            )
            return done.stdout.strip()

        step("ask")
        step("note", KILL="1")
        left = _stored(library, folder)
        resumed = step("resume")
        step("fork")
        stored = _stored(library, folder)
        found = {
            "version": _version(python, package),
            "lines": _lines(HERE / program),
            "after_kill": {what: text in left for what, text in SAID.items()},
            "resumed": resumed,
            "effects": len((folder / "notes.txt").read_text().splitlines()),
            "requests": len(server.bodies),
            "requests_kept": _requests_kept(library, folder, stored, server.bodies),
            "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.name.startswith(("agent", "french"))),
        }
        _edit(folder)
        step("fork", EDITED="1")
        sent = b"31 " in b"".join(server.bodies[found["requests"] :])
        return found | {"edit": "sent to the model" if sent else "refused"}


def _stored(library: str, folder: Path) -> str:
    """Return all texts of a store, as its library reads them."""
    if library == "turnlog":
        from turnlog import TurnLog  # noqa: PLC0415 - other libraries are measured without it

        with TurnLog.open(f"sqlite:///{folder}/agent.db") as log:
            return "\n".join(message.content_json.decode() for message in log.context("main").messages)
    if library == "pydantic-ai":
        return "\n".join(path.read_text() for path in folder.glob("*.json"))
    with sqlite3.connect(folder / "agent.db") as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in database.execute(f'SELECT * FROM "{table}"')]
    return "\n".join(str(value) for row in rows for value in row)


def _requests_kept(library: str, folder: Path, stored: str, bodies: list[bytes]) -> int:
    """Return how many of the requests can be told afterwards, byte for byte."""
    if library != "turnlog":
        return sum(body.decode() in stored for body in bodies)
    from turnlog import TurnLog  # noqa: PLC0415

    with TurnLog.open(f"sqlite:///{folder}/agent.db") as log:
        kept = {log.calls.request(event.header.id) for event in log.events(topics="gpt.call")}
    return sum(body in kept for body in bodies)


def _edit(folder: Path) -> None:
    """Change what the assistant has said, in the store itself: 21 °C become 31 °C."""
    for file in folder.glob("*.json"):
        file.write_text(file.read_text().replace("21 °C", "31 °C"))
    if not (folder / "agent.db").exists():
        return
    with sqlite3.connect(folder / "agent.db") as database:
        found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
        for (table,) in found.fetchall():
            for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                for spelled in ("21 °C", "21 \\u00b0C"):
                    with suppress(sqlite3.Error):  # a virtual table, or a column that is made of others
                        database.execute(
                            f'UPDATE "{table}" SET "{column}" = CASE typeof("{column}") WHEN \'blob\''
                            f' THEN CAST(replace(CAST("{column}" AS TEXT), ?, ?) AS BLOB)'
                            f' ELSE replace("{column}", ?, ?) END'
                            f' WHERE instr(CAST("{column}" AS TEXT), ?) > 0',
                            (spelled, spelled.replace("21", "31")) * 2 + (spelled,),
                        )
    database.close()


def _lines(program: Path) -> int:
    """Return the lines of code of a program: no blank ones, no comments, no docstrings."""
    text = program.read_text()
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        number not in docs and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in enumerate(text.splitlines(), 1)
    )


def _version(python: str, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def table(libraries: dict[str, dict[str, Any]]) -> str:
    """Return what was found as a table in Markdown, a column a library."""
    rows: dict[str, Callable[[dict[str, Any]], object]] = {
        "lines of code": lambda found: found["lines"],
        "after the kill the store has the question": lambda found: _yes(found["after_kill"]["question"]),
        "… and the tool call with its arguments": lambda found: _yes(
            found["after_kill"]["call"] and found["after_kill"]["arguments"]
        ),
        "lines in the file after going on": lambda found: found["effects"],
        "what is said after going on": lambda found: found["resumed"],
        "requests that can be told byte for byte": lambda found: f"{found['requests_kept']} of {found['requests']}",
        "an answer that was changed in the store is": lambda found: found["edit"],
        "bytes on disk in the end": lambda found: f"{found['bytes']:,}",
    }
    lines = [
        f"| {title} | {' | '.join(str(say(found)) for found in libraries.values())} |" for title, say in rows.items()
    ]
    named = " | ".join(f"{name} {found['version']}" for name, found in libraries.items())
    return "\n".join([f"| | {named} |", "|---" * (len(libraries) + 1) + "|", *lines]) + "\n"


def _yes(truth: object) -> str:
    return "yes" if truth else "no"


def main() -> int:
    """Measure, and print what was found."""
    peers = os.environ.get("PEERS_PYTHON")
    if peers is None:
        print("PEERS_PYTHON names no Python: turnlog alone is measured", file=sys.stderr)
    found: dict[str, Any] = {}
    for library in LIBRARIES:
        python = sys.executable if library == "turnlog" else peers
        if python is not None:
            found[library] = measure(library, python)
    print(table(found), end="")
    if "--write" in sys.argv[1:]:
        date = datetime.now(UTC).date().isoformat()
        RESULTS.write_text(json.dumps({"date": date, "libraries": found}, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
