"""A server that answers each request in a way that does not end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Literal, Self

Way = Literal["silent", "header", "body", "endless", "refusing", "packed"]
"""Nothing; a line of its header now and then; so its body; bytes without end, of status 200 or 400; packed ones."""

_LINES = 40
_PAUSE_S = 0.05
_CHUNKS = 4000
_CHUNK = bytes(64 * 1024)


class TediousServer:
    """Listens on a port of its own. What it sends ends after some time, as a good answer."""

    def __init__(self, way: Way) -> None:
        """Take how it is to answer."""
        self.sent = 0
        """How many bytes of bodies were taken from it."""
        self.gone = Event()
        """Whether a client has closed its connection."""
        self._way: Way = way
        self._ended = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = Thread(target=self._accept)

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._ended.is_set():
                client, _ = self._listener.accept()
                with client, suppress(OSError):
                    client.recv(1024 * 1024)
                    for part in self._answer():
                        client.sendall(part)
                        self.sent += len(part)
                    client.settimeout(10)
                    while client.recv(1024 * 1024):
                        pass
                self.gone.set()

    def _answer(self) -> Iterator[bytes]:
        match self._way:
            case "silent":
                self._ended.wait(_LINES * _PAUSE_S)
                yield b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
            case "header":
                yield b"HTTP/1.1 200 OK\r\n"
                yield from self._now_and_then(b"x-more: yes\r\n")
                yield b"content-length: 0\r\n\r\n"
            case "body":
                yield b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % _LINES
                yield from self._now_and_then(b"x")
            case "endless" | "refusing" | "packed":
                yield b"HTTP/1.1 400 No\r\n" if self._way == "refusing" else b"HTTP/1.1 200 OK\r\n"
                yield b"content-encoding: gzip\r\n\r\n" if self._way == "packed" else b"\r\n"
                yield from [b"no, thanks\n" * 4096 if self._way == "refusing" else _CHUNK] * _CHUNKS

    def _now_and_then(self, part: bytes) -> Iterator[bytes]:
        for _ in range(_LINES):
            if not self._ended.wait(_PAUSE_S):
                yield part
