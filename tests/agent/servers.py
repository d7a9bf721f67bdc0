"""MCP servers for tests. Those that can crash or hang are in a process of their own."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from tests.agent.forked_servers import command
from tests.wires.server import Answer, Received, WireServer, whole

from turnlog.model import ServerMeta

_HERE = Path(__file__).parent
COMMAND = command()
"""The server of the SDK, over stdio."""


def stdio(name: str = "s", *, timeout_s: float | None = None, cwd: str | None = None, env: tuple[str, ...] = ()):
    """Return the registration of the server of the SDK, over stdio."""
    return ServerMeta(
        action="register",
        name=name,
        command=COMMAND,
        env=env,
        cwd=cwd,
        timeout_s=timeout_s,
    )


def odd(behaviour: str, *arguments: str, name: str = "odd", env: tuple[str, ...] = ()) -> ServerMeta:
    """Return the registration of a server that behaves in an odd way: see `mcp_odd_server.py`."""
    command = (sys.executable, str(_HERE / "mcp_odd_server.py"), behaviour, *arguments)
    return ServerMeta(action="register", name=name, command=command, env=env)


class HttpServer:
    """The server of the SDK, over streamable HTTP. It can be killed, and started again on the same port."""

    def __init__(self, **environment: str) -> None:
        """Prepare it. Nothing is started yet."""
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The address of its endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def meta(
        self, name: str = "s", *, timeout_s: float | None = None, header_env: dict[str, str] | None = None
    ) -> ServerMeta:
        """Return its registration."""
        return ServerMeta(
            action="register",
            name=name,
            url=self.url,
            header_env=header_env or {},
            timeout_s=timeout_s,
        )

    def start(self) -> None:
        """Start it, on the port that it had before if it had one. On return it listens."""
        self._process = subprocess.Popen(
            [*COMMAND, "http", str(self.port)], stdout=subprocess.PIPE, text=True, env=self._environment
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            assert self._process.stdout is not None
            self._process.kill()
            self._process.stdout.read()  # until nothing has its port any more
            self._process.stdout.close()
            self._process.wait()

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.kill()


class JsonServer:
    """A server over HTTP that answers with plain JSON and has no streams, as small ones do, in a thread.

    Its tool `refuse` answers with an error of the protocol, `break` with status 500, and `forget` makes it refuse all
    sessions so far with status 400. `count` says how many sessions there were.
    """

    def __init__(self) -> None:
        """Begin without sessions."""
        self._sessions = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def meta(self) -> ServerMeta:
        """Its registration."""
        return ServerMeta(action="register", name="j", url=f"http://127.0.0.1:{self._server.server_address[1]}/")

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, message: dict[str, Any], session: str | None) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer to a request."""
        if message["method"] == "initialize":
            self._sessions += 1
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "j", "version": "1"}}
            return 200, {"result": result}
        if session != str(self._sessions):
            return 400, {"error": {"code": -32000, "message": "No valid session"}}
        if message["method"] == "tools/list":
            names = ("refuse", "break", "forget", "count")
            return 200, {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}}
        match (message.get("params") or {}).get("name"):
            case "refuse":
                return 200, {"error": {"code": -32602, "message": "no"}}
            case "break":
                return 500, {}
            case "forget":
                self._sessions += 1
        return 200, {"result": {"content": [{"type": "text", "text": str(self._sessions)}]}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if "id" not in message:
                    return self._send(202, b"")
                status, body = outer._answer(message, self.headers.get("mcp-session-id"))
                return self._send(status, json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode())

            def do_GET(self) -> None:
                self._send(405, b"")

            do_DELETE = do_GET  # noqa: N815 - the name that http.server looks for

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.send_header("mcp-session-id", str(outer._sessions))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


class OneToolServer(WireServer):
    """A server over HTTP, in a thread, whose one tool `go` is answered as a test wants it.

    Attributes:
        calls: how often the tool was called.
    """

    def __init__(self, answer: Answer) -> None:
        """Take the answer to all calls of the tool. Its body may have `ID` for the id of the request."""
        super().__init__()
        self._answer = answer
        self.calls = 0

    def answer_to(self, request: Received) -> Answer:
        """Return what to answer."""
        if request.method != "POST":
            return Answer(status=405)
        message = json.loads(request.body)
        match message["method"]:
            case "initialize":
                version = message["params"]["protocolVersion"]
                information = {"name": "s", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": information}
            case "tools/list":
                result = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                self.calls += 1
                chunks = [chunk.replace(b"ID", str(message["id"]).encode()) for chunk in self._answer.chunks]
                return replace(self._answer, chunks=chunks)
            case _:
                return Answer(status=202)
        return whole(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


class ListeningServer(OneToolServer):
    """A server over HTTP whose tool `go` answers on the stream that the client listens to, and not to the request."""

    def __init__(self, result: bytes) -> None:
        """Take the JSON of the result of each call."""
        super().__init__(Answer(headers={"content-type": "text/event-stream"}, chunks=[b": ID\n\n"], hang=True))
        self._result = result
        self._waiting: queue.Queue[bytes] = queue.Queue()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._waiting.put(b"")
        super().__exit__(kind, error, trace)

    def answer_to(self, request: Received) -> Answer:
        """Return what to answer."""
        if request.method == "GET":
            chunks = cast("Sequence[bytes]", iter(self._waiting.get, b""))
            return Answer(headers={"content-type": "text/event-stream"}, chunks=chunks)
        answer = super().answer_to(request)
        message = json.loads(request.body or b"{}")
        match message.get("method"):
            case "initialize":
                return replace(answer, headers={**answer.headers, "mcp-session-id": "s"})
            case "tools/call":
                self._waiting.put(b'data: {"jsonrpc":"2.0","id":%d,"result":%b}\n\n' % (message["id"], self._result))
        return answer
