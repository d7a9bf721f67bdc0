"""`turnlog mcp login` and `logout`, with an authorization server on this machine and a browser that is a program."""

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from tests.agent.login_server import LoginServer
from tests.agent.servers import HttpServer
from tests.cli.command import Command
from tests.cli.forked import Begun
from tests.wires.server import Answer, WireServer, whole

from turnlog import TurnLog
from turnlog.cli.login import Browser

ROOT = Path(__file__).parents[2]
BROWSER = f'{sys.executable} -c "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()" %s'
"""What stands in for a browser: it follows where it is sent."""


@dataclass(frozen=True, kw_only=True)
class KeyringCommand(Command):
    """The command with a keyring of its own."""

    def environment(self, **changes: str) -> dict[str, str]:
        mine = {
            "PYTHON_KEYRING_BACKEND": "tests.keyrings.FileKeyring",
            "TEST_KEYRING": str(self.keyring),
            "PYTHONPATH": str(ROOT),
            "BROWSER": BROWSER,
        }
        return super().environment(**{**mine, **changes})

    @property
    def keyring(self) -> Path:
        """The file of the keyring."""
        return self.store.parent / "keyring.json"


@pytest.fixture
def turnlog(tmp_path: Path) -> KeyringCommand:
    """Give the command, with a store that does not exist yet."""
    return KeyringCommand(store=tmp_path / "log.db")


@pytest.fixture
def server(turnlog: KeyringCommand) -> Iterator[HttpServer]:
    """Give a server that wants a login and is registered as `s`. Its tokens are good for an hour."""
    with HttpServer(MCP_TEST_LOGIN="1") as server:
        turnlog("mcp", "register", "s", "--url", server.url)
        yield server


def echo(turnlog: KeyringCommand, text: str = "hello", **environment: str):
    """Call a tool of the server."""
    return turnlog("mcp", "call", "s", "echo", json.dumps({"text": text}), **environment)


def test_a_server_that_wants_a_login_is_used_after_it(turnlog: KeyringCommand, server: HttpServer) -> None:
    """Before, its error says what to do. Tokens are in the keyring, and not in the log."""
    before = echo(turnlog)
    assert before.status != 0
    assert "`turnlog mcp login s`" in before.stderr + before.text
    outcome = turnlog("mcp", "login", "s")
    assert (outcome.status, outcome.text.split(":")[0]) == (0, "logged in at s")
    assert outcome.stderr.startswith(f"turnlog: log in here: {server.url.removesuffix('/mcp')}/authorize?")
    assert echo(turnlog).text == "hello\n"
    assert '\\"access_token\\":\\"access-1\\"' in turnlog.keyring.read_text()
    assert b"access-1" not in turnlog.store.read_bytes()


def test_a_token_that_a_tool_prints_is_masked(turnlog: KeyringCommand, server: HttpServer) -> None:
    """As secrets of the environment are."""
    turnlog("mcp", "login", "s")
    assert "access-1" not in echo(turnlog, "it is access-1!").text


def test_logout_takes_the_tokens_away(turnlog: KeyringCommand, server: HttpServer) -> None:
    """A second time there is nothing to take."""
    turnlog("mcp", "login", "s")
    assert turnlog("mcp", "logout", "s").text == "logged out of s\n"
    assert turnlog.keyring.read_text() == "{}"
    assert turnlog("mcp", "logout", "s").stderr == "turnlog: the keyring has no login at s\n"
    assert "`turnlog mcp login s`" in "".join((outcome := echo(turnlog)).stderr + outcome.text)


def test_tokens_are_of_one_address(turnlog: KeyringCommand, server: HttpServer) -> None:
    """A server that is registered elsewhere under the same name gets none of them."""
    turnlog("mcp", "login", "s")
    with HttpServer(MCP_TEST_LOGIN="1") as other:
        turnlog("mcp", "register", "s", "--url", other.url)
        assert "`turnlog mcp login s`" in (outcome := echo(turnlog)).stderr + outcome.text


def expire(turnlog: KeyringCommand, **changed: str) -> None:
    """Have the token expired that is kept, and change others."""
    entries = json.loads(turnlog.keyring.read_text())
    (name,) = entries
    grant = json.loads(entries[name])
    grant = {**grant, "expires_s": 1.0, "tokens": grant["tokens"] | changed}
    turnlog.keyring.write_text(json.dumps({name: json.dumps(grant)}))


def test_tokens_are_renewed(turnlog: KeyringCommand, server: HttpServer) -> None:
    """Once they have expired, with nobody asked; the new ones are kept."""
    turnlog("mcp", "login", "s")
    expire(turnlog)
    assert echo(turnlog).text == "hello\n"
    assert '\\"access_token\\":\\"access-2\\"' in turnlog.keyring.read_text()


@pytest.fixture
def expired(turnlog: KeyringCommand) -> Iterator[LoginServer]:
    """Give a server at which somebody has logged in, as `s`, whose token has expired."""
    with LoginServer() as server:
        turnlog("mcp", "register", "s", "--url", server.url)
        assert turnlog("mcp", "login", "s").text == "logged in at s: 1 tool\n"
        expire(turnlog)
        yield server


def calling(turnlog: KeyringCommand) -> Begun | subprocess.Popen[bytes]:
    """Begin to call a tool of the server."""
    return turnlog.begin("mcp", "call", "s", "echo", '{"text": "hello"}', is_joined=True)


def test_commands_that_renew_a_login_at_once_renew_it_once(turnlog: KeyringCommand, expired: LoginServer) -> None:
    """The server takes a refresh token once only."""
    with expired.holding_tokens(), calling(turnlog) as one:
        expired.wait_until_asked()
        expired.go_on_soon()
        assert echo(turnlog).text == "hello\n"
        assert one.communicate(timeout=30)[0] == b"hello\n"
    assert expired.renewals == ["refresh-1"]
    assert echo(turnlog).text == "hello\n"


@pytest.mark.parametrize(
    ("number", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_an_interrupt_does_not_lose_a_login(
    turnlog: KeyringCommand, expired: LoginServer, number: int, status: int, word: str
) -> None:
    """What the authorization server is about to give is kept before the command ends."""
    with expired.holding_tokens(), calling(turnlog) as command:
        expired.wait_until_asked()
        command.send_signal(number)
        expired.go_on_soon()
        assert (command.communicate(timeout=30)[0], command.returncode) == (f"turnlog: {word}\n".encode(), status)
    assert '\\"access_token\\":\\"access-2\\"' in turnlog.keyring.read_text()


def test_a_time_out_does_not_lose_a_login(turnlog: KeyringCommand, expired: LoginServer) -> None:
    """The server was not reached in time, and can be the next time."""
    turnlog("mcp", "register", "s", "--url", expired.url, "--start-timeout", "1")
    with expired.holding_tokens(), calling(turnlog) as command:
        expired.wait_until_asked()
        expired.go_on_soon(after_s=1.2)
        assert command.communicate(timeout=30)[0].endswith(b"did not answer within 1 s\n")
    assert '\\"access_token\\":\\"access-2\\"' in turnlog.keyring.read_text()


def test_tokens_that_cannot_be_renewed_ask_for_a_login(turnlog: KeyringCommand, server: HttpServer) -> None:
    """The error says so, and no browser is opened by a run."""
    turnlog("mcp", "login", "s")
    expire(turnlog, refresh_token="gone")
    outcome = echo(turnlog)
    assert "wants a login (the login has expired): `turnlog mcp login s`" in outcome.stderr + outcome.text


def test_a_person_who_is_not_let_in_is_told_why(turnlog: KeyringCommand) -> None:
    """In the words of the authorization server; nothing is kept."""
    with HttpServer(MCP_TEST_LOGIN="refused") as server:
        turnlog("mcp", "register", "s", "--url", server.url)
        outcome = turnlog("mcp", "login", "s")
    assert outcome.status == 2
    assert outcome.stderr.splitlines()[-1].endswith("cannot be logged in to: the browser came back with 'not you'")
    assert not turnlog.keyring.exists()


REFUSES, FAILS = whole(b"{}", status=403), whole(b"{}", status=500)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            [REFUSES],
            "it answered with HTTP 403 (Server returned an error response); "
            "register it with --header NAME=VARIABLE if it asks for something else",
        ),
        ([whole(b"{}", status=401), FAILS, FAILS], "Protected resource metadata request failed: HTTP 500"),
    ],
)
def test_who_logs_in_is_not_told_to_log_in(turnlog: KeyringCommand, answers: list[Answer], said: str) -> None:
    """But why that is not possible."""
    with WireServer(*answers) as server:
        turnlog("mcp", "register", "s", "--url", f"{server.url}/mcp")
        line = turnlog.refused("mcp", "login", "s")
        assert line == f"MCP server 's' at {server.url}/mcp cannot be logged in to: {said}"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"token_endpoint": "http://login.example/token"},
            "has its tokens at http://login.example/token, which is not encrypted: they must be at https://",
        ),
        (
            {"authorization_endpoint": "http://login.example/authorize"},
            "has its logins at http://login.example/authorize, which is not encrypted: they must be at https://",
        ),
        (
            {"registration_endpoint": "http://login.example/register"},
            "has its registrations at http://login.example/register, which is not encrypted: they must be at https://",
        ),
        (
            {"code_challenge_methods_supported": None},
            "has an authorization server that does not say that it knows PKCE",
        ),
        (
            {"code_challenge_methods_supported": ["plain"]},
            "has an authorization server that does not say that it knows",
        ),
    ],
)
def test_a_login_that_somebody_could_steal_is_refused(
    turnlog: KeyringCommand, changed: dict[str, object], said: str
) -> None:
    """Before a browser is opened."""
    with HttpServer(MCP_TEST_LOGIN="1", MCP_TEST_METADATA=json.dumps(changed)) as server:
        turnlog("mcp", "register", "s", "--url", server.url)
        outcome = turnlog("mcp", "login", "s")
    [line] = outcome.stderr.splitlines()
    assert outcome.status == 2
    assert said in line
    assert not turnlog.keyring.exists()


def test_a_server_without_a_login_says_so(turnlog: KeyringCommand) -> None:
    """It has listed its tools."""
    with HttpServer() as server:
        turnlog("mcp", "register", "s", "--url", server.url)
        outcome = turnlog("mcp", "login", "s")
    assert outcome.stderr.startswith("turnlog: s wants no login: it has listed ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("login", "p"), "p is a program that is run here: it takes no login"),
        (("login", "h"), "h is registered with a header Authorization: that is how it is logged in to"),
        (("login", "none"), "no MCP server 'none'"),
        (("login", "s", "--port", "70000"), "--port 70000 cannot be listened on: there is no such port"),
        (("login", "s", "--wait", "0"), "--wait 0 is not a number of seconds above 0"),
    ],
)
def test_what_cannot_be_logged_in_to_is_refused(
    turnlog: KeyringCommand, arguments: tuple[str, ...], message: str
) -> None:
    """In one line."""
    with TurnLog.open(turnlog.url) as log:
        log.servers.set("p", ["program"])
        log.servers.set("s", url="http://127.0.0.1:9/mcp")
        log.servers.set("h", url="http://127.0.0.1:9/mcp", header_env={"Authorization": "KEY"})
    outcome = turnlog("mcp", *arguments, KEY="Bearer x")
    assert outcome.status == 2
    assert outcome.stderr.startswith(f"turnlog: {message}")


def test_a_login_that_cannot_be_kept_is_an_error(turnlog: KeyringCommand, server: HttpServer) -> None:
    """Where there is no keyring."""
    outcome = turnlog("mcp", "login", "s", PYTHON_KEYRING_BACKEND="keyring.backends.null.Keyring")
    assert outcome.status == 2
    assert "the login at MCP server 's' cannot be kept in the keyring: it keeps nothing" in outcome.stderr


@pytest.mark.parametrize(
    ("backend", "why"),
    [("tests.keyrings.LockedKeyring", "the collection is locked"), ("keyring.backends.fail.Keyring", "No recommended")],
)
def test_a_keyring_that_cannot_be_used_is_told_of_before_the_login(
    turnlog: KeyringCommand, server: HttpServer, backend: str, why: str
) -> None:
    """No browser is opened; and whoever uses the server is told why there is no login."""
    line = turnlog.refused("mcp", "login", "s", PYTHON_KEYRING_BACKEND=backend)
    assert f"wants a login, but the login at MCP server 's' cannot be kept in the keyring: {why}" in line
    used = turnlog.refused("mcp", "tools", "s", PYTHON_KEYRING_BACKEND=backend)
    assert f"the keyring, where its login would be, cannot be used: {why}" in used


def test_logout_without_a_keyring_has_nothing_to_take(turnlog: KeyringCommand) -> None:
    """It is no error."""
    outcome = turnlog("mcp", "logout", "s", PYTHON_KEYRING_BACKEND="keyring.backends.fail.Keyring")
    assert (outcome.status, outcome.stderr) == (0, "turnlog: the keyring has no login at s\n")


def test_a_login_waits_no_longer_than_it_was_told(turnlog: KeyringCommand, server: HttpServer) -> None:
    """Where the browser never comes back."""
    outcome = turnlog("mcp", "login", "s", "--no-browser", "--wait", "0.5")
    assert outcome.status == 2
    assert "did not answer within 0.5 s" in outcome.stderr


def test_a_browser_that_stays_keeps_nobody_waiting(turnlog: KeyringCommand, server: HttpServer, tmp_path: Path) -> None:
    """Some programs that open one end with it."""
    stays = tmp_path / "stays"
    os.mkfifo(stays)
    ends = os.open(stays, os.O_RDWR)  # which waits for nobody: the browser may not even have begun when it is over
    browser = f"sh -c 'exec >/dev/null 2>&1; read line < {stays}' %s"
    try:
        outcome = turnlog("mcp", "login", "s", "--wait", "0.5", BROWSER=browser)
    finally:
        os.write(ends, b"\n")
        os.close(ends)
    assert "did not answer within 0.5 s" in outcome.stderr


def test_a_connection_that_says_nothing_keeps_nobody_waiting() -> None:
    """Browsers open some ahead of need: the one that comes back with a code is heard beside it, and so is the end."""

    async def comes_back() -> str:
        with Browser(0, opens=False) as person:
            await person.visit("http://127.0.0.1/authorize?state=s")
            address = urlsplit(person.redirect_uri)
            with socket.create_connection((address.hostname, address.port)):
                answer = asyncio.create_task(person.came_back())
                with await asyncio.to_thread(urlopen, f"{person.redirect_uri}?code=c&state=s", timeout=10) as said:
                    assert said.status == 200
                return (await asyncio.wait_for(answer, 10)).code

    assert asyncio.run(asyncio.wait_for(comes_back(), 20)) == "c"


def test_what_is_no_browser_is_answered_or_dropped_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """A connection that breaks off, and an address that is none: the port is there for any program of this machine."""

    def asked(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address) as dropped:
            dropped.sendall(b"GET /callb")
            dropped.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with socket.create_connection(address) as odd:
            odd.sendall(b"GET http://[ HTTP/1.0\r\n\r\n")
            return odd.makefile("rb").read()

    async def serve() -> bytes:
        with Browser(0, opens=False) as person:
            address = urlsplit(person.redirect_uri)
            return await asyncio.to_thread(asked, (address.hostname or "", address.port or 0))

    assert asyncio.run(asyncio.wait_for(serve(), 20)).startswith(b"HTTP/1.0 404 ")
    assert capfd.readouterr() == ("", "")


def test_nothing_in_the_address_to_open_is_unseen(capsys: pytest.CaptureFixture[str]) -> None:
    """The server says where a person is to log in."""

    async def visit() -> None:
        with Browser(0, opens=False) as person:
            await person.visit("https://exa\u00admple.org/\u200d?a\x1b")

    asyncio.run(visit())
    assert capsys.readouterr().err == "turnlog: log in here: https://exa\\xadmple.org/\\u200d?a\\x1b\n"
