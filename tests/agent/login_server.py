"""An MCP server over HTTP with its own authorization server (OAuth 2.1), in a thread: tests say what it answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from turnlog.model import ServerMeta

Answer = tuple[int, bytes]


class LoginServer:
    """A server whose refresh tokens can be used once, as RFC 9700 (4.14.2) wants it. Its tool `echo` says `text`.

    Attributes:
        registration: what is answered when turnlog is registered, in place of that it is.
        tokens: what is answered when tokens are asked for, in place of tokens.
        metadata: what the authorization server says otherwise of itself; None where it says nothing at all.
        renewals: the refresh tokens that came, in their order.
        called: how often the tool was called.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        """Listen. Nothing is answered yet."""
        self._server = ThreadingHTTPServer((host, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.base = f"http://{host}:{self._server.server_address[1]}"
        self.registration: Answer | None = None
        self.tokens: Answer | None = None
        self.metadata: dict[str, Any] | None = {}
        self.renewals: list[str] = []
        self.called = 0
        self._issued = 0
        self._good: set[str] = set()
        self._asked = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._mutex = threading.Lock()

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._goes_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The address of its endpoint."""
        return f"{self.base}/mcp"

    @property
    def meta(self) -> ServerMeta:
        """Its registration."""
        return ServerMeta(action="register", name="s", url=self.url)

    def revoke(self) -> None:
        """Take all access tokens back."""
        self._good.clear()

    def issue(self) -> dict[str, Any]:
        """Give tokens in place of the last ones."""
        with self._mutex:
            self._issued += 1
            self._good.add(f"access-{self._issued}")
            return {
                "access_token": f"access-{self._issued}",
                "refresh_token": f"refresh-{self._issued}",
                "token_type": "Bearer",
                "expires_in": 3600,
            }

    @contextmanager
    def holding_tokens(self) -> Iterator[None]:
        """Keep whoever asks for tokens waiting, who has them already as far as the server knows, until the end."""
        self._asked.clear()
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()

    def wait_until_asked(self) -> None:
        """Wait until somebody asks for tokens."""
        assert self._asked.wait(30)

    def go_on_soon(self, after_s: float = 0.3) -> None:
        """Let those go on that wait for tokens, when others have had a moment to ask too."""
        threading.Timer(after_s, self._goes_on.set).start()

    def _get(self, path: str, query: dict[str, str]) -> tuple[int, object, dict[str, str]]:
        if path.startswith("/.well-known/oauth-protected-resource"):
            return 200, {"resource": self.url, "authorization_servers": [self.base]}, {}
        if path.startswith("/.well-known/oauth-authorization-server") and self.metadata is not None:
            places = {"authorization": "authorize", "token": "token", "registration": "register"}
            said = {f"{what}_endpoint": f"{self.base}/{place}" for what, place in places.items()}
            known = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
            return 200, {"issuer": self.base, **said, **known, **self.metadata}, {}
        if path == "/authorize":
            back = urlencode({"state": query["state"], "code": "code"})
            return 302, {}, {"location": f"{query['redirect_uri']}?{back}"}
        return 404, {}, {}

    def _token(self, form: dict[str, str]) -> Answer:
        if form["grant_type"] == "refresh_token":
            self.renewals.append(form["refresh_token"])
        given = self.tokens
        if given is None:
            good = form.get("refresh_token", f"refresh-{self._issued}") == f"refresh-{self._issued}"
            given = (200, json.dumps(self.issue()).encode()) if good else (400, b'{"error": "invalid_grant"}')
        self._asked.set()
        assert self._goes_on.wait(30)
        return given

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                about = {"name": "s", "version": "1"}
                return {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": about}
            case "tools/list":
                return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case _:
                self.called += 1
                return {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                place = urlsplit(self.path)
                status, said, headers = outer._get(place.path, _first(place.query))
                self._send(status, json.dumps(said).encode(), headers)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/register":
                    said = json.dumps({**json.loads(body), "client_id": "client"}).encode()
                    return self._send(*(outer.registration or (201, said)))
                if self.path == "/token":
                    return self._send(*outer._token(_first(body.decode())))
                if (self.headers.get("authorization") or "").removeprefix("Bearer ") not in outer._good:
                    return self._send(401, b"{}")
                message = json.loads(body)
                if "id" not in message:
                    return self._send(202, b"")
                said = {"jsonrpc": "2.0", "id": message["id"], "result": outer._result(message)}
                return self._send(200, json.dumps(said).encode())

            def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def _first(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
