"""Tokens of OAuth 2.1, as authorization servers give them, and what is asked for them. Messages repeat no value.

Sources: RFC 6749 (5 and 6), RFC 7591 (3.2), RFC 8707, and Model Context Protocol 2025-11-25, Authorization. This module
imports the SDK, which is an extra.
"""

from __future__ import annotations

import time
from typing import NamedTuple, cast

import httpx2
import msgspec
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from turnlog.agent.mcp.grants import Grant, unreadable
from turnlog.agent.mcp.signals import MisbehaviourError

_HERE = ("localhost", "127.0.0.1", "::1")
"""What is on this machine needs no encryption."""

_LIFE_S_MAX = 10 * 365 * 86_400

_CODES = frozenset({
    "invalid_client", "invalid_client_metadata", "invalid_grant", "invalid_redirect_uri", "invalid_request",
    "invalid_scope", "invalid_target", "server_error", "temporarily_unavailable", "unauthorized_client",
    "unsupported_grant_type",
})  # fmt: skip
"""What an authorization server may say in `error`. Anything else is not repeated: it may be a secret."""


class AnswerError(Exception):
    """Say in words that follow "the authorization server" what it answered in place of what it was asked for.

    Attributes:
        status: the status of its answer.
        code: what it says in `error`; empty for nothing that is known.
    """

    def __init__(self, message: str, *, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Models(NamedTuple):
    """A grant as the SDK has it."""

    tokens: OAuthToken
    client: OAuthClientInformationFull | None
    issuer: OAuthMetadata | None
    resource: ProtectedResourceMetadata | None


def models(name: str, grant: Grant) -> Models:
    """Return a grant with tokens as the SDK has it.

    Raises:
        ToolServerError: it is none.
    """
    try:
        return Models(
            tokens=_usable(OAuthToken.model_validate(grant.tokens)),
            client=OAuthClientInformationFull.model_validate(grant.client) if grant.client else None,
            issuer=OAuthMetadata.model_validate(grant.issuer) if grant.issuer else None,
            resource=ProtectedResourceMetadata.model_validate(grant.resource) if grant.resource else None,
        )
    except ValueError:
        raise unreadable(name) from None  # which would repeat the values


def client_metadata(redirect_uri: str) -> OAuthClientMetadata:
    """Return what turnlog says of itself when it is registered."""
    return OAuthClientMetadata(
        client_name="turnlog",
        redirect_uris=[AnyUrl(redirect_uri)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )


def refresh_request(grant: Models, context: OAuthContext) -> httpx2.Request | None:
    """Return the request for tokens in place of those that a grant has; None where it has nothing to ask with.

    Raises:
        MisbehaviourError: they would cross a network without encryption.
        OAuthFlowError: the authorization server wants to be asked in a way that the SDK does not know.
    """
    context.client_info, context.oauth_metadata, context.protected_resource_metadata = grant[1:]
    if not grant.tokens.refresh_token or grant.client is None or grant.issuer is None:
        return None
    form = {
        "grant_type": "refresh_token",
        "refresh_token": grant.tokens.refresh_token,
        "client_id": grant.client.client_id,
    }
    if grant.resource is not None:
        form["resource"] = context.get_resource_url()
    form, headers = context.prepare_token_auth(form, {})
    check_encrypted("tokens", str(grant.issuer.token_endpoint))
    return httpx2.Request("POST", str(grant.issuer.token_endpoint), data=form, headers=headers)


def renewed(before: Grant, tokens: OAuthToken) -> Grant:
    """Return a grant with new tokens. What an answer leaves out stays as it was (RFC 6749, 6)."""
    kept = {name: before.tokens[name] for name in ("refresh_token", "scope") if name in before.tokens}
    given = {name: value for name, value in fields(tokens).items() if value != ""}
    return msgspec.structs.replace(before, tokens=kept | given, expires_s=expiry(tokens))


def expiry(tokens: OAuthToken) -> float | None:
    """Return when an access token expires that was just given, in seconds since 1970; None where that is not said."""
    return None if tokens.expires_in is None else time.time() + min(tokens.expires_in, _LIFE_S_MAX)


def tokens_of(status: int, body: bytes) -> OAuthToken:
    """Return the tokens that an authorization server gave.

    Raises:
        AnswerError: it gave none that can be used.
    """
    _check(status, body)
    try:
        return _usable(OAuthToken.model_validate_json(body))
    except ValueError:
        raise AnswerError("gave no tokens that can be used", status=status) from None  # which would repeat them


def check_registration(status: int, body: bytes) -> None:
    """Check that an authorization server has registered turnlog.

    Raises:
        AnswerError: it has not.
    """
    _check(status, body)
    try:
        OAuthClientInformationFull.model_validate_json(body)
    except ValueError:
        raise AnswerError("did not register turnlog in a way that can be read", status=status) from None


def check_encrypted(what: str, url: str) -> None:
    """Check that nobody on the way can read what is sent to an address.

    Raises:
        MisbehaviourError: it is not encrypted, and not on this machine.
    """
    place = httpx2.URL(url)
    if place.scheme != "https" and place.host not in _HERE:
        raise MisbehaviourError(f"has its {what} at {url}, which is not encrypted: they must be at https://")


def fields(model: BaseModel | None) -> dict[str, object]:
    """Return what there is in a model of the SDK."""
    return {} if model is None else model.model_dump(mode="json", exclude_none=True)


def _check(status: int, body: bytes) -> None:
    try:
        said = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        said = None
    error = cast("dict[str, object]", said).get("error") if isinstance(said, dict) else None
    code = error if isinstance(error, str) and error in _CODES else ""
    if status not in (200, 201) or error is not None:
        raise AnswerError(f"answered with HTTP {status}{code and f' ({code})'}", status=status, code=code)


def _usable(tokens: OAuthToken) -> OAuthToken:
    """Return tokens that can be sent in a header (RFC 6749, A.12).

    Raises:
        ValueError: they cannot.
    """
    token = tokens.access_token
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError("access_token")
    return tokens
