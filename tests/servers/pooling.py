"""A pooler before a PostgreSQL server, in one thread for each client: it lends sessions of the server to clients.

As PgBouncer does: for one transaction (`pool_mode = transaction`), or until the client leaves (`session`). The messages
are those of `cutting.py`.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from threading import Lock, Semaphore, Thread
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tests.servers.cutting import message_of

_KEY = b"K\0\0\0\x0c" + 8 * b"\x07"
"""BackendKeyData, of no session of the server."""

_SYNC = b"QS"
"""Messages of a client that are answered with ReadyForQuery: Query, Sync."""


class Pooler:
    """Listens on a port of its own. Of the sessions that are free it lends the one that was used last."""

    def __init__(self, url: str, *, keeps_sessions: bool, sessions_max: int = 100) -> None:
        """Take the URL of a database, whether a client keeps its session, and how many there are at most."""
        self._parts = urlsplit(url)
        self._target = (self._parts.hostname or "127.0.0.1", self._parts.port or 5432)
        self._keeps = keeps_sessions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._free: deque[socket.socket] = deque()
        self._open: list[socket.socket] = []
        self._lock = Lock()
        self._places = Semaphore(sessions_max)

    @property
    def url(self) -> str:
        """The URL of the database through the pooler."""
        port = self._listener.getsockname()[1]
        return urlunsplit(
            self._parts._replace(
                netloc=f"{self._parts.username}@127.0.0.1:{port}", query="sslmode=disable&gssencmode=disable"
            )
        )

    def __enter__(self) -> Self:
        """Begin to listen."""
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all connections."""
        for each in [self._listener, *self._open]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(client)
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        lent: socket.socket | None = None
        is_free = True
        with suppress(OSError):
            begin = message_of(client, has_type=False)
            session, said = self._begun(begin)
            session.close()
            client.sendall(said)
            while message := message_of(client, has_type=True):
                if message[:1] == b"X":
                    break
                lent = lent or self._borrow(begin)
                is_free = False
                lent.sendall(message)
                while message[:1] in _SYNC and not is_free:
                    answer = message_of(lent, has_type=True)
                    client.sendall(answer)
                    if answer[:1] == b"Z":
                        is_free = answer[5:] == b"I"
                        break
                if is_free and not self._keeps:
                    self._give_back(lent, is_free=True)
                    lent = None
        if lent is not None:
            self._give_back(lent, is_free=is_free and not self._keeps)
        client.close()

    def _give_back(self, lent: socket.socket, *, is_free: bool) -> None:
        if is_free:
            self._free.append(lent)
        else:
            lent.close()
        self._places.release()

    def _borrow(self, begin: bytes) -> socket.socket:
        self._places.acquire()
        with self._lock:
            return self._free.pop() if self._free else self._begun(begin)[0]

    def _begun(self, begin: bytes) -> tuple[socket.socket, bytes]:
        """Begin a session, and return what the server says to it, with another key."""
        server = socket.create_connection(self._target)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.append(server)
        server.sendall(begin)
        said = b""
        while (answer := message_of(server, has_type=True))[:1] not in (b"Z", b""):
            said += _KEY if answer[:1] == b"K" else answer
        return server, said + answer
