"""Logging in at an MCP server, with a browser that comes back to a port of this machine."""

from __future__ import annotations

import asyncio
import os
import threading
import webbrowser
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult, OAuthFlowError

from turnlog.agent.mcp.connection import Connection
from turnlog.agent.mcp.grants import Grant
from turnlog.agent.mcp.launch import launch
from turnlog.cli.failures import UsageError
from turnlog.cli.output import note
from turnlog.cli.text import one_line, to_decide_on
from turnlog.errors import os_reason
from turnlog.model import ServerMeta

_PATH = "/callback"
_SILENT_S = 30.0
"""How long to listen to a connection on which nothing comes. Browsers open some ahead of need; others go on beside."""

_SAID = b"<!doctype html><title>turnlog</title><p>You can close this window and go back to turnlog.</p>"


class _Server(ThreadingHTTPServer):
    """A server that says nothing of what comes to its port: anything on this machine may try it, and drop it again."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Browser:
    """A person's browser: it is sent to an address, and comes back with a code.

    Attributes:
        redirect_uri: where it comes back to: a port of this machine that nobody else's machine reaches (RFC 8252, 7.3).
    """

    def __init__(self, port: int, *, opens: bool) -> None:
        """Listen on a port, 0 for any that is free.

        Args:
            port: the port.
            opens: whether to open the browser; else the person does.

        Raises:
            UsageError: the port cannot be had.
        """
        try:
            self._server = _Server(("127.0.0.1", port), self._handler())
        except (OSError, OverflowError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else "there is no such port"
            raise UsageError(f"--port {port} cannot be listened on: {reason}") from error
        self.redirect_uri = f"http://127.0.0.1:{self._server.server_address[1]}{_PATH}"
        self._opens = opens
        self._state: str | None = None
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[dict[str, str]] = self._loop.create_future()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._server.server_close()

    async def visit(self, url: str) -> None:
        """Say where to log in, and open it."""
        self._answer = self._loop.create_future()
        self._state = next(iter(parse_qs(urlsplit(url).query).get("state", [])), None)
        note(f"log in here: {to_decide_on(url)}")
        if self._opens:
            # Some programs that open a browser end with it: nobody waits for them.
            threading.Thread(target=_open, args=(url,), daemon=True).start()

    async def came_back(self) -> AuthorizationCodeResult:
        """Wait until the browser comes back.

        Raises:
            OAuthFlowError: it came back without a code.
        """
        answer = await self._answer
        if "code" not in answer:
            why = answer.get("error_description") or answer.get("error") or "no code"
            raise OAuthFlowError(f"the browser came back with {one_line(why)!r}")
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    def _receive(self, answer: dict[str, str]) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _SILENT_S

            def do_GET(self) -> None:
                path, answer = _parts(self.path)
                # Any page can send a browser here: only the one that was sent to log in knows the state.
                known = path == _PATH and outer._state is not None and answer.get("state") == outer._state
                body = _SAID if known else b""
                self.send_response(200 if known else 404)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                if known:
                    outer._loop.call_soon_threadsafe(outer._receive, answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def _parts(address: str) -> tuple[str, dict[str, str]]:
    """Return the path that was asked for, and the first value of each parameter; nothing of what is no address."""
    try:
        place = urlsplit(address)
        return place.path, {name: values[0] for name, values in parse_qs(place.query).items()}
    except ValueError:
        return "", {}


def _open(url: str) -> None:
    with suppress(webbrowser.Error, OSError):  # the person opens it then
        webbrowser.open(url)


async def log_in(meta: ServerMeta, *, port: int, opens: bool, wait_s: float) -> tuple[bool, int]:
    """Log in at a server, and return whether it wanted that, and how many tools it has.

    On return the keyring has the tokens.

    Raises:
        UsageError: it takes no login, or the port cannot be had.
        ToolServerError: it cannot be reached or understood, did not let the person in, or there is no keyring.
    """
    given = launch(meta, os.environ)
    if not given.url:
        raise UsageError(f"{meta.name} is a program that is run here: it takes no login")
    if any(name.lower() == "authorization" for name in given.headers):
        raise UsageError(f"{meta.name} is registered with a header Authorization: that is how it is logged in to")
    with Browser(port, opens=opens) as person:
        connection = Connection(meta, given, start_timeout_s=wait_s, grant=Grant(url=given.url), person=person)
        try:
            await connection.open()
        finally:
            await connection.close()
        return connection.logged_in, len(connection.tools)
