"""A local HTTP server that speaks the wires of providers: it answers what a test scripts, faults included."""

from __future__ import annotations

import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import msgspec


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request as the server got it. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to answer: `chunks`, one by one. `cut` breaks the connection off after them, `hang` keeps it open."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes] = ()
    cut: bool = False
    hang: bool = False


def whole(body: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """Return the answer of a JSON body in one piece."""
    return Answer(status=status, headers={"content-type": "application/json", **(headers or {})}, chunks=[body])


def stream(
    events: Sequence[bytes], *, names: bool = False, done: bool = False, cut: bool = False, hang: bool = False
) -> Answer:
    """Return the answer of a stream of server-sent events.

    Args:
        events: the data of each event.
        names: send an `event:` line with the event's `type`, as Anthropic, Cohere and Responses do.
        done: end with `data: [DONE]`, as Chat Completions does.
        cut: break the connection off after the last event.
        hang: send nothing more after the last event, and keep the connection open.
    """
    chunks: list[bytes] = []
    for event in events:
        name = b""
        if names:
            try:
                name = b"event: " + msgspec.json.decode(event)["type"].encode() + b"\n"
            except (msgspec.DecodeError, KeyError, TypeError):
                name = b"event: unknown\n"
        chunks.append(name + b"data: " + event + b"\n\n")
    if done:
        chunks.append(b"data: [DONE]\n\n")
    return Answer(headers={"content-type": "text/event-stream"}, chunks=chunks, cut=cut, hang=hang)


_NOTHING_SCRIPTED = whole(b'{"error":"nothing scripted"}', status=500)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over clients that hang up: they have what they wanted, or gave up as a test wants them to."""
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]


class WireServer:
    """A server on loopback. Each request gets the next scripted answer; without one, 500.

    Attributes:
        answers: what is still to be answered, in order.
        received: the requests so far.
    """

    def __init__(self, *answers: Answer) -> None:
        """Script the first answers."""
        self.answers = deque(answers)
        self.received: list[Received] = []
        self._over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The server's base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; answers that hang are let go."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer_to(self, request: Received) -> Answer:
        """Return what to answer to a request: the next scripted answer. A subclass may go by the request."""
        return self.answers.popleft() if self.answers else _NOTHING_SCRIPTED

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(method=self.command, path=self.path, headers=headers, body=body)
                outer.received.append(request)
                answer = outer.answer_to(request)
                try:
                    self._send(answer)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client gave up, as a test of time-outs wants it to

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for chunk in answer.chunks:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                if answer.hang:
                    outer._over.wait()
                if answer.hang or answer.cut:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.wfile.write(b"0\r\n\r\n")

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that http.server looks for

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
