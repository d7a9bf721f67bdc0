"""Logging in at an MCP server over HTTP, by the SDK's OAuth 2.1: tokens are used, renewed and kept.

Source: Model Context Protocol 2025-11-25, Authorization. This module imports the SDK, which is an extra.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from turnlog.agent.mcp_grants import Grant, keep_grant
from turnlog.agent.mcp_signals import MisbehaviourError

_HERE = ("localhost", "127.0.0.1", "[::1]")
"""What is on this machine needs no encryption."""

_NOWHERE = "http://127.0.0.1/callback"


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


class ServerLogin:
    """The login at one server: what has been granted, and how HTTP requests use it. The SDK keeps its tokens here."""

    def __init__(
        self, name: str, grant: Grant, on_secrets: Callable[[dict[str, str]], None], person: Person | None = None
    ) -> None:
        """Begin with what has been granted so far.

        Args:
            name: the server's name.
            grant: what is kept for it; with nothing but the address before the first login.
            on_secrets: is given what nobody is to see, now and whenever that changes.
            person: who logs in where that is needed; without one it is an error then.
        """
        self._name = name
        self._grant = grant
        self._on_secrets = on_secrets
        self._person = person
        uri = _NOWHERE if person is None else person.redirect_uri
        about = OAuthClientMetadata(
            client_name="turnlog",
            redirect_uris=[AnyUrl(uri)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        self.auth = OAuthClientProvider(grant.url, about, self, self._visit, self._came_back)
        context = self.auth.context
        context.token_expiry_time = grant.expires_s
        if grant.issuer:
            context.oauth_metadata = OAuthMetadata.model_validate(grant.issuer)
        if grant.resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(grant.resource)
        on_secrets(grant.secrets)

    @property
    def was_granted(self) -> bool:
        """Whether there are tokens."""
        return bool(self._grant.tokens)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, for the SDK."""
        return OAuthToken.model_validate(self._grant.tokens) if self._grant.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens, for the SDK. On return they are in the keyring.

        Raises:
            ToolServerError: the keyring does not keep them.
        """
        context = self.auth.context
        self._grant = msgspec.structs.replace(
            self._grant,
            tokens=_fields(tokens),
            expires_s=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            issuer=_fields(context.oauth_metadata),
            resource=_fields(context.protected_resource_metadata),
        )
        self._on_secrets(self._grant.secrets)
        await asyncio.to_thread(keep_grant, self._name, self._grant)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return how turnlog is registered with the authorization server, for the SDK."""
        return OAuthClientInformationFull.model_validate(self._grant.client) if self._grant.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Note how it is registered, for the SDK. It is kept with the tokens that follow."""
        self._grant = msgspec.structs.replace(self._grant, client=_fields(client_info))
        self._on_secrets(self._grant.secrets)

    async def _visit(self, url: str) -> None:
        if self._person is None:
            raise OAuthFlowError("the login has expired")
        if self.auth.context.oauth_metadata is not None:
            _check(self.auth.context.oauth_metadata)
        await self._person.visit(url)

    async def _came_back(self) -> AuthorizationCodeResult:
        assert self._person is not None
        return await self._person.came_back()


def _check(metadata: OAuthMetadata) -> None:
    """Check that nobody on the way can log in with what a login gives, before there is one.

    Source: Model Context Protocol 2025-11-25, Authorization, "Communication Security" and "Authorization Code
    Protection". The SDK checks neither.

    Raises:
        MisbehaviourError: an address is not encrypted, or a code that is stolen can be used.
    """
    for what, url in (("logins", metadata.authorization_endpoint), ("tokens", metadata.token_endpoint)):
        if url.scheme != "https" and url.host not in _HERE:
            raise MisbehaviourError(f"has its {what} at {url}, which is not encrypted: they must be at https://")
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise MisbehaviourError(
            "has an authorization server that does not say that it knows PKCE (code_challenge_methods_supported: "
            '["S256"]): whoever got hold of its answer could log in'
        )


def _fields(model: BaseModel | None) -> dict[str, object]:
    return {} if model is None else model.model_dump(mode="json", exclude_none=True)
