"""Logins at MCP servers that are renewed: by several at once, beside others who log in and out, and to the end."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from mcp.client.auth import AuthorizationCodeResult
from msgspec import Raw
from tests.agent.login_server import LoginServer
from tests.keyrings import MemoryKeyring

from turnlog.agent.mcp import renewal
from turnlog.agent.mcp.connection import Connection
from turnlog.agent.mcp.grants import Grant, forget_grant, keep_grant, kept_grant
from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.toolbox import ToolOutcome
from turnlog.errors import ToolServerError
from turnlog.model import Text

CALL = ("s___echo", Raw(b'{"text":"hello"}'))
HELLO = ToolOutcome(content=(Text(text="hello"),))
EXPIRED = 1.0


class Keyring(MemoryKeyring):
    """A keyring that can be logged out of."""

    def delete_password(self, service: str, username: str) -> None:
        del self.secrets[service, username]


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Keyring]:
    """Give the keyring, which is empty; locks of logins are the test's own. Renewals end before it is taken away."""
    kept = Keyring()
    monkeypatch.setattr("keyring.core._keyring_backend", kept)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield kept
    for thread in threading.enumerate():
        if thread.name == "turnlog login s":
            thread.join(30)


@pytest.fixture
def server(keyring: Keyring) -> Iterator[LoginServer]:
    """Give a server at which somebody has logged in."""
    with LoginServer() as server:
        log_in(server)
        yield server


def log_in(server: LoginServer, *, expires_s: float | None = None) -> None:
    """Keep a new login at a server."""
    grant = Grant(
        url=server.url,
        client={"client_id": "client"},
        tokens=server.issue(),
        expires_s=expires_s,
        issuer=server._get("/.well-known/oauth-authorization-server", {})[1],  # type: ignore[arg-type]
    )
    keep_grant("s", grant)


def kept_token(server: LoginServer) -> str | None:
    """Return the access token that is in the keyring."""
    grant = kept_grant("s", server.url)
    return grant and grant.tokens["access_token"]


def with_tools(server: LoginServer, use: Callable[[McpTools], Awaitable[Any]]) -> Any:
    """Return what a use of the tools of a server comes to, in an event loop of its own."""

    async def run() -> Any:
        async with McpTools([server.meta]) as tools:
            return await use(tools)

    return asyncio.run(run())


def called_after(server: LoginServer, change: Callable[[], object]) -> ToolOutcome:
    """Return what a call comes to over a connection that was there before a change, with tokens that are good no more.

    Such is a chat that is open while another command does something.
    """

    async def use(tools: McpTools) -> ToolOutcome:
        assert await tools.call(*CALL) == HELLO
        server.revoke()
        change()
        return await tools.call(*CALL)

    return with_tools(server, use)


def test_a_login_that_many_renew_at_once_is_renewed_once(server: LoginServer) -> None:
    """In several threads, each with several connections and calls."""
    log_in(server, expires_s=EXPIRED)
    outcomes: list[ToolOutcome] = []

    async def calls() -> None:
        async with McpTools([server.meta]) as one, McpTools([server.meta]) as other:
            outcomes.extend(await asyncio.gather(*(tools.call(*CALL) for tools in (one, other, one, other))))

    threads = [threading.Thread(target=asyncio.run, args=(calls(),)) for _ in range(2)]
    with server.holding_tokens():
        for thread in threads:
            thread.start()
        server.wait_until_asked()
        server.go_on_soon()
        for thread in threads:
            thread.join()
    assert outcomes == [HELLO] * 8
    assert server.renewals == ["refresh-2"]
    assert kept_token(server) == "access-3"


def test_tokens_that_are_refused_are_renewed(server: LoginServer) -> None:
    """Also where they were not to expire yet; the call is made then."""
    assert called_after(server, lambda: None) == HELLO
    assert (server.renewals, server.called) == (["refresh-1"], 2)


def test_what_another_process_has_renewed_is_used(server: LoginServer) -> None:
    """Nothing is asked for in its place."""
    assert called_after(server, lambda: log_in(server)) == HELLO
    assert server.renewals == []
    assert kept_token(server) == "access-2"


def test_nothing_comes_back_after_a_logout(server: LoginServer) -> None:
    """The call is not made, and says what to do."""
    outcome = called_after(server, lambda: forget_grant("s"))
    assert outcome == ToolOutcome.error(
        f"MCP server 's' at {server.url} wants a login (there is none any more): `turnlog mcp login s`"
    )
    assert (server.renewals, kept_token(server), server.called) == ([], None, 1)


@pytest.mark.parametrize("meanwhile", ["logout", "login"])
def test_a_renewal_replaces_only_what_it_renewed(server: LoginServer, meanwhile: str) -> None:
    """Also where somebody logs out, or in, while the authorization server answers."""
    log_in(server, expires_s=EXPIRED)

    async def use(tools: McpTools) -> ToolOutcome:
        with server.holding_tokens():
            calling = asyncio.create_task(tools.call(*CALL))
            await asyncio.to_thread(server.wait_until_asked)
            forget_grant("s")
            if meanwhile == "login":
                log_in(server)
        return await calling

    outcome = with_tools(server, use)
    if meanwhile == "login":
        assert (outcome, kept_token(server)) == (HELLO, "access-4")
    else:
        assert "wants a login (there is none any more)" in str(outcome.content)
        assert kept_token(server) is None


def test_a_renewal_that_was_sent_is_kept_when_nobody_waits_for_it(server: LoginServer) -> None:
    """Whoever called is gone, and the tools are left."""
    log_in(server, expires_s=EXPIRED)

    async def use(tools: McpTools) -> None:
        calling = asyncio.create_task(tools.call(*CALL))
        await asyncio.to_thread(server.wait_until_asked)
        calling.cancel()
        server.go_on_soon()

    server._goes_on.clear()
    with_tools(server, use)
    assert kept_token(server) == "access-3"


def test_a_renewal_without_an_answer_is_not_waited_for_for_ever(
    server: LoginServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools are left before the authorization server has answered."""
    monkeypatch.setattr(renewal, "SENT_WAIT_S", 0.05)
    log_in(server, expires_s=EXPIRED)

    async def use(tools: McpTools) -> None:
        calling = asyncio.create_task(tools.call(*CALL))
        await asyncio.to_thread(server.wait_until_asked)
        calling.cancel()

    with server.holding_tokens():
        with_tools(server, use)
        assert kept_token(server) == "access-2"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((503, b""), "answered with HTTP 503: try again later"),
        ((429, b'{"error": "SECRET"}'), "answered with HTTP 429: try again later"),
        ((401, b'{"error": "invalid_client"}'), "answered with HTTP 401 (invalid_client): `turnlog mcp login s`"),
        ((200, b'{"refresh_token": "SECRET"}'), "gave no tokens that can be used: `turnlog mcp login s`"),
        ((200, b'{"access_token": "SECRET\\r\\nX: 1"}'), "gave no tokens that can be used: `turnlog mcp login s`"),
    ],
)
def test_what_failed_in_a_renewal_is_said(
    server: LoginServer, caplog: pytest.LogCaptureFixture, answer: tuple[int, bytes], said: str
) -> None:
    """The call was not made, the login is kept, and works again when the authorization server does."""
    server.tokens = answer
    outcomes: list[ToolOutcome] = []

    async def use(tools: McpTools) -> ToolOutcome:
        assert await tools.call(*CALL) == HELLO
        server.revoke()
        outcomes.append(await tools.call(*CALL))
        server.tokens = None
        return await tools.call(*CALL)

    with caplog.at_level(logging.DEBUG):
        assert with_tools(server, use) == HELLO
    assert outcomes == [
        ToolOutcome.error(
            f"MCP server 's' at {server.url} has a login that could not be renewed: the authorization server {said}"
        )
    ]
    assert server.called == 2
    assert "SECRET" not in caplog.text


def test_a_login_that_is_refused_is_told_of(server: LoginServer) -> None:
    """The refresh token is good no more either."""
    outcome = called_after(server, lambda: setattr(server, "tokens", (400, b'{"error": "invalid_grant"}')))
    assert outcome == ToolOutcome.error(
        f"MCP server 's' at {server.url} wants a login (the login has expired): `turnlog mcp login s`"
    )


@pytest.mark.parametrize(
    "entry",
    [
        "no JSON",
        pytest.param("[" * 100_000, id="deep"),
        '{"url": "URL", "tokens": {"token_type": "Bearer", "refresh_token": "SECRET"}}',
        '{"url": "URL", "tokens": {"access_token": "SECRET\\r\\nX: 1"}}',
        '{"url": "URL", "tokens": {"access_token": "a"}, "client": {"client_secret": "SECRET"}}',
        '{"url": "URL", "tokens": {"access_token": "a"}, "issuer": {"issuer": "SECRET"}}',
    ],
)
def test_an_entry_that_is_damaged_is_told_of(server: LoginServer, keyring: Keyring, entry: str) -> None:
    """In one line, which repeats nothing of it."""
    keyring.secrets["turnlog", "mcp:s"] = entry.replace("URL", server.url)
    with pytest.raises(ToolServerError) as caught:
        with_tools(server, lambda tools: tools.tools())
    assert str(caught.value) == "what the keyring has for MCP server 's' cannot be read: `turnlog mcp login s`"


# --------------------------------------------------------------------------------------------------------- first logins


class Person:
    """Somebody who lets turnlog in."""

    redirect_uri = "http://127.0.0.1:9/callback"

    def __init__(self) -> None:
        self.visited: list[str] = []

    async def visit(self, url: str) -> None:
        self.visited.append(url)

    async def came_back(self) -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(self.visited[-1]).query)
        return AuthorizationCodeResult(code="code", state=query["state"][0])


def first_login(server: LoginServer, person: Person) -> str:
    """Log in at a server, and return why that failed."""

    async def run() -> None:
        grant, given = Grant(url=server.url), Launch(url=server.url)
        connection = Connection(server.meta, given, start_timeout_s=30, grant=grant, person=person)
        try:
            await connection.open()
        finally:
            await connection.close()

    with pytest.raises(ToolServerError) as caught:
        asyncio.run(run())
    return str(caught.value).removeprefix(f"MCP server 's' at {server.url} ")


@pytest.mark.parametrize(
    ("registration", "tokens", "said"),
    [
        ((201, b'{"client_secret": "SECRET"}'), None, "did not register turnlog in a way that can be read"),
        ((400, b'{"error": "SECRET"}'), None, "answered with HTTP 400"),
        (None, (200, b'{"access_token": "SECRET", "refresh_token": "SEC'), "gave no tokens that can be used"),
        (None, (200, b"access_token=SECRET&token_type=bearer"), "gave no tokens that can be used"),
        (None, (203, b'{"access_token": "SECRET"}'), "answered with HTTP 203"),
        (None, (400, b'{"error": "invalid_grant", "x": "SECRET"}'), "answered with HTTP 400 (invalid_grant)"),
    ],
)
def test_no_secret_is_told_where_a_login_fails(
    keyring: Keyring,
    caplog: pytest.LogCaptureFixture,
    registration: tuple[int, bytes] | None,
    tokens: tuple[int, bytes] | None,
    said: str,
) -> None:
    """Neither in the message nor where libraries log."""
    with LoginServer() as server, caplog.at_level(logging.DEBUG):
        server.registration, server.tokens = registration, tokens
        assert first_login(server, Person()) == f"wants a login, but the authorization server {said}"
    assert "SECRET" not in caplog.text
    assert keyring.secrets == {}


def test_a_server_that_says_nothing_of_its_login_is_refused(keyring: Keyring) -> None:
    """For all that is known it does not know PKCE."""
    person = Person()
    with LoginServer() as server:
        server.metadata = None
        assert first_login(server, person).startswith("does not say how to log in: there are no metadata")
    assert person.visited == []


def test_no_token_is_asked_for_or_sent_without_encryption(keyring: Keyring) -> None:
    """Also where the server itself is elsewhere, or a login there was kept once."""
    person = Person()
    try:
        other = LoginServer("127.0.0.2")
    except OSError:
        pytest.skip("this machine has no second address of its own")
    with other as server:
        said = f"has its tools at {server.url}, which is not encrypted: they must be at https://"
        assert first_login(server, person) == said
        log_in(server)
        with pytest.raises(ToolServerError) as caught:
            with_tools(server, lambda tools: tools.tools())
        assert str(caught.value) == f"MCP server 's' at {server.url} {said}"
    assert person.visited == []
