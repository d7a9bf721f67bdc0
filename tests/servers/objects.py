"""An S3-compatible server for tests: moto's, on loopback, in a process of its own."""

import os
import socket
import subprocess
import sys
from contextlib import closing, suppress
from importlib.util import find_spec
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import httpx2

WAIT_S = 60.0
BUCKET = "payloads"


def missing() -> str | None:
    """Return why there can be no server; None if there can."""
    return None if find_spec("moto") and find_spec("obstore") else "moto or obstore is not installed (`make install`)"


class ObjectServer:
    """A running server with an empty bucket. It is a context manager."""

    def __init__(self) -> None:
        """Choose a port."""
        with closing(socket.socket()) as chosen:
            chosen.bind(("127.0.0.1", 0))
            self.port = chosen.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its users."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "a secret",
            "AWS_REGION": "us-east-1",
        }

    def __enter__(self) -> Self:
        """Start it, and make the bucket."""
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.variables},
        )
        until = monotonic() + WAIT_S
        while True:
            with suppress(httpx2.HTTPError):
                httpx2.put(f"{self.url}/{BUCKET}", timeout=5).raise_for_status()
                return self
            if monotonic() > until or self._process.poll() is not None:
                self._stop()
                raise RuntimeError("the server of objects does not start")
            sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
