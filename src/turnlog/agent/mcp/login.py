"""Logging in at an MCP server over HTTP, by the SDK's OAuth 2.1: tokens are used, renewed and kept.

Source: Model Context Protocol 2025-11-25, Authorization. This module imports the SDK, which is an extra.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken

from turnlog.agent.mcp.grants import Grant, check_keyring, keep_grant
from turnlog.agent.mcp.renewal import Renewal
from turnlog.agent.mcp.signals import LoginError, MisbehaviourError
from turnlog.agent.mcp.tokens import (
    AnswerError,
    check_encrypted,
    check_registration,
    client_metadata,
    expiry,
    fields,
    models,
    tokens_of,
)
from turnlog.errors import ToolServerError
from turnlog.executors import of_process

_NOWHERE = "http://127.0.0.1/callback"

_FORM = "application/x-www-form-urlencoded"


class Person(Protocol):
    """Somebody who can log in, with a browser.

    Attributes:
        redirect_uri: where the browser is sent in the end.
    """

    redirect_uri: str

    async def visit(self, url: str) -> None:
        """Have an address opened."""
        ...

    async def came_back(self) -> AuthorizationCodeResult:
        """Wait until the browser is sent back, and return what with."""
        ...


class ServerLogin(httpx2.Auth):
    """The login at one server: what has been granted, and how HTTP requests use it. The SDK keeps its tokens here."""

    def __init__(
        self, name: str, grant: Grant, on_secrets: Callable[[dict[str, str]], None], person: Person | None = None
    ) -> None:
        """Begin with what has been granted so far.

        Args:
            name: the server's name.
            grant: what is kept for it; with nothing but the address before the first login.
            on_secrets: is given what nobody is to see, now and whenever that changes.
            person: who logs in where nothing has been granted.

        Raises:
            ToolServerError: what is kept cannot be read.
        """
        self._name = name
        self._on_secrets = on_secrets
        self._person = person
        self._renewal: Renewal | None = None
        self._take(grant)

    @property
    def was_granted(self) -> bool:
        """Whether there are tokens."""
        return bool(self._grant.tokens)

    def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with what was granted, for HTTP.

        Raises:
            LoginError: there is no login to send it with. It was not done.
            MisbehaviourError: somebody could steal the login that there would be.
        """
        return self._use(request) if self.was_granted else self._log_in(request)

    async def close(self) -> None:
        """Wait for a renewal that was sent, though not for long."""
        if self._renewal is not None:
            await self._renewal.end()

    async def _use(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the tokens that there are, and again with others where those are of no use."""
        check_encrypted("tools", self._grant.url)
        if self._grant.has_expired and request.method != "DELETE":  # the end of a session is worth no renewal
            await self._renew(self._grant)
        used = self._grant
        response = yield _with_tokens(request, used)
        if response.status_code != 401 or request.method == "DELETE":
            return
        await self._renew(used)
        response = yield _with_tokens(request, self._grant)
        if response.status_code == 401:
            raise LoginError(f"wants a login (it refuses the last one): `turnlog mcp login {self._name}`")

    async def _renew(self, used: Grant) -> None:
        """Have another grant in place of one that is of no use. All who need that at a time wait for one renewal."""
        if self._grant is not used:
            return
        if self._renewal is None:
            self._renewal = Renewal(self._name, used, self._provider(_NOWHERE).context)
        renewal = self._renewal
        try:
            self._take(await renewal.result())
        finally:
            if renewal.is_over and self._renewal is renewal:
                self._renewal = None

    def _take(self, grant: Grant) -> None:
        if grant.tokens:
            models(self._name, grant)
        self._grant = grant
        self._on_secrets(grant.secrets)

    # The first login

    async def _log_in(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request as the SDK has a person log in for it.

        What an authorization server answers is read here first: the SDK repeats it, with its secrets, in its errors and
        where it logs.
        """
        assert self._person is not None
        provider = self._provider(self._person.redirect_uri)
        self._context = provider.context
        flow, checked = provider.async_auth_flow(request), False
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    self._check_request(outgoing)
                    if not checked:
                        await self._check_keyring()
                        checked = True
                response = yield outgoing
                if outgoing is not request and outgoing.method == "POST":
                    _check_answer(outgoing, response.status_code, await response.aread())
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _provider(self, redirect_uri: str) -> OAuthClientProvider:
        return OAuthClientProvider(self._grant.url, client_metadata(redirect_uri), self, self._visit, self._came_back)

    def _check_request(self, request: httpx2.Request) -> None:
        """Check that what belongs to a login could not be stolen, before it is sent.

        Raises:
            MisbehaviourError: it could.
        """
        check_encrypted("tools", self._grant.url)
        if request.method == "POST":
            _check_metadata(self._context.oauth_metadata)
        check_encrypted("metadata" if request.method == "GET" else "tokens", str(request.url))

    async def _check_keyring(self) -> None:
        """Check that what would be granted can be kept, before anybody is asked for it.

        Raises:
            LoginError: it cannot.
        """
        try:
            await of_process().run_wait(check_keyring, self._name)
        except ToolServerError as error:
            raise LoginError(f"wants a login, but {error}") from error

    async def _visit(self, url: str) -> None:
        assert self._person is not None
        _check_metadata(self._context.oauth_metadata)
        await self._person.visit(url)

    async def _came_back(self) -> AuthorizationCodeResult:
        assert self._person is not None
        return await self._person.came_back()

    # What the SDK asks for and gives

    async def get_tokens(self) -> OAuthToken | None:
        """Return that there are no tokens yet, for the SDK."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens of a first login, for the SDK. On return they are in the keyring.

        Raises:
            LoginError: the keyring does not keep them.
        """
        grant = msgspec.structs.replace(
            self._grant,
            tokens=fields(tokens),
            expires_s=expiry(tokens),
            issuer=fields(self._context.oauth_metadata),
            resource=fields(self._context.protected_resource_metadata),
        )
        self._take(grant)
        try:
            await of_process().run_append(keep_grant, self._name, grant)
        except ToolServerError as error:
            raise LoginError(f"has let you in, but {error}") from error

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return that turnlog is not registered with the authorization server yet, for the SDK."""
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Note how it is registered, for the SDK. It is kept with the tokens that follow."""
        self._take(msgspec.structs.replace(self._grant, client=fields(client_info)))


def _with_tokens(request: httpx2.Request, grant: Grant) -> httpx2.Request:
    request.headers["Authorization"] = f"Bearer {grant.tokens['access_token']}"
    return request


def _check_answer(request: httpx2.Request, status: int, body: bytes) -> None:
    """Check what an authorization server answers when it is asked to register turnlog, or for tokens.

    Raises:
        LoginError: it does neither.
    """
    try:
        if request.headers.get("content-type") == _FORM:
            tokens_of(status, body)
        else:
            check_registration(status, body)
    except AnswerError as error:
        raise LoginError(f"wants a login, but the authorization server {error}") from None


def _check_metadata(metadata: OAuthMetadata | None) -> None:
    """Check that nobody on the way can log in with what a login gives, before there is one.

    Source: Model Context Protocol 2025-11-25, Authorization, "Communication Security" and "Authorization Code
    Protection". The SDK checks neither.

    Raises:
        MisbehaviourError: an address is not encrypted, a code that is stolen can be used, or nothing of it is known.
    """
    if metadata is None:
        raise MisbehaviourError(
            "does not say how to log in: there are no metadata of an authorization server that can be read (RFC 8414),"
            " so that nobody knows whether it knows PKCE"
        )
    places = {
        "logins": metadata.authorization_endpoint,
        "tokens": metadata.token_endpoint,
        "registrations": metadata.registration_endpoint,
    }
    for what, url in places.items():
        if url is not None:
            check_encrypted(what, str(url))
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise MisbehaviourError(
            "has an authorization server that does not say that it knows PKCE (code_challenge_methods_supported: "
            '["S256"]): whoever got hold of its answer could log in'
        )
