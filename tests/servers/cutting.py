"""A proxy before a PostgreSQL server that cuts a connection at a chosen message.

It knows the messages of the protocol 3.0 (PostgreSQL, "Message Formats"): a type of one byte, a length of four that
counts itself, and the rest. The first one of a client has no type.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["request", "answer", "half"]
"""Before a message of the client is passed on; before one of the server is; in the middle of it."""


class CuttingProxy:
    """Listens on a port of its own, and passes on everything until a connection is to be cut."""

    def __init__(self, url: str) -> None:
        """Take the URL of a database."""
        self._parts = urlsplit(url)
        self._target = (self._parts.hostname or "127.0.0.1", self._parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = Lock()
        self._cut: Cut = "request"
        self._rests: list[int] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._thread = Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        """The URL of the database through the proxy."""
        port = self._listener.getsockname()[1]
        netloc = f"{self._parts.username}@127.0.0.1:{port}"
        query = "sslmode=disable&gssencmode=disable"
        return urlunsplit(self._parts._replace(netloc=netloc, query=query))

    def arm(self, cut: Cut, *numbers: int) -> None:
        """Cut at the so-manieth message from now on, whatever connection it goes over, and so on from there."""
        with self._lock:
            self._cut, self._rests = cut, list(numbers)

    def disarm(self) -> bool:
        """Cut nothing any more, and tell whether all was cut since `arm`."""
        with self._lock:
            is_done, self._rests = not self._rests, []
        return is_done

    def cut_all(self) -> None:
        """Cut all connections that there are."""
        for pair in self._pairs:
            _close(*pair)
        self._pairs.clear()

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut everything and end."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                for side in (client, server):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pairs.append((client, server))
                for source, target, is_client in ((client, server, True), (server, client, False)):
                    Thread(target=self._pass_on, args=(source, target, is_client), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with suppress(OSError):
            has_type = not is_client
            while message := message_of(source, has_type=has_type):
                has_type = True
                if (cut := self._hit(is_client=is_client)) is not None:
                    if cut == "half":
                        target.sendall(message[: len(message) // 2])
                    break
                target.sendall(message)
        _close(source, target)

    def _hit(self, *, is_client: bool) -> Cut | None:
        """Tell whether a message is the one to cut at."""
        with self._lock:
            if not self._rests or (self._cut == "request") != is_client:
                return None
            self._rests[0] -= 1
            if self._rests[0] > 0:
                return None
            self._rests.pop(0)
            return self._cut


def message_of(source: socket.socket, *, has_type: bool) -> bytes:
    """Read one message; nothing at the end of the connection."""

    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = source.recv(count - len(data))
            if not part:
                return b""
            data += part
        return data

    head = read(5 if has_type else 4)
    if not head:
        return b""
    (length,) = struct.unpack("!i", head[-4:])
    return head + (read(length - 4) if length > 4 else b"")


def _close(*sides: socket.socket) -> None:
    for side in sides:
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        side.close()
