"""Logins at MCP servers: what authorization servers have granted is kept in the system's keyring, and nowhere else.

An entry is of one address: a server that is registered anew under the same name, elsewhere, gets none of it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from turnlog.errors import ToolServerError
from turnlog.model import ServerMeta
from turnlog.providers.keys import SERVICE

_PREFIX = "mcp:"
"""What stands before the name of a server in the user name of its entry."""


class Grant(Struct, frozen=True, kw_only=True):
    """What has been granted for a server. It is never recorded, and never shown.

    Attributes:
        url: the address of the server.
        client: how turnlog is registered with the authorization server (RFC 7591), empty before it is.
        tokens: the tokens (RFC 6749, 5.1), empty before there are some.
        expires_s: when the access token expires, in seconds since 1970; None where that is not known.
        issuer: what the authorization server says of itself (RFC 8414), empty where it says nothing.
        resource: what the server says of who protects it (RFC 9728), empty where it says nothing.
    """

    url: str
    client: dict[str, Any] = {}
    tokens: dict[str, Any] = {}
    expires_s: float | None = None
    issuer: dict[str, Any] = {}
    resource: dict[str, Any] = {}

    @property
    def secrets(self) -> dict[str, str]:
        """What of it nobody is to see, by what it is."""
        named = {
            "access_token": self.tokens.get("access_token"),
            "refresh_token": self.tokens.get("refresh_token"),
            "client_secret": self.client.get("client_secret"),
        }
        return {name: value for name, value in named.items() if isinstance(value, str) and value}


def kept_grant(meta: ServerMeta, url: str) -> Grant | None:
    """Return what is kept for a server, None where there is nothing for this address. A keyring may take its time.

    Raises:
        ToolServerError: the entry cannot be read.
    """
    try:
        import keyring  # noqa: PLC0415 - an extra
        from keyring.errors import KeyringError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        text = keyring.get_password(SERVICE, f"{_PREFIX}{meta.name}")
    except KeyringError:
        return None  # a keyring that is locked or absent holds nothing for us
    if text is None:
        return None
    try:
        grant = msgspec.json.decode(text, type=Grant)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ToolServerError(
            f"what the keyring has for MCP server {meta.name!r} cannot be read: `turnlog mcp login {meta.name}`",
            server=meta.name,
        ) from error
    return grant if grant.url == url else None


def keep_grant(name: str, grant: Grant) -> None:
    """Keep what was granted, in place of what was kept before.

    Raises:
        ToolServerError: there is no keyring, or it keeps nothing.
    """
    text = msgspec.json.encode(grant).decode()
    try:
        import keyring  # noqa: PLC0415 - an extra
        from keyring.errors import KeyringError  # noqa: PLC0415
    except ImportError as error:
        raise ToolServerError(
            f"the login at MCP server {name!r} is kept in the system's keyring, which needs the package `keyring`:"
            " install it with `pip install 'turnlog[keyring]'`",
            server=name,
        ) from error
    try:
        keyring.set_password(SERVICE, f"{_PREFIX}{name}", text)
        if keyring.get_password(SERVICE, f"{_PREFIX}{name}") == text:
            return
        why = "it keeps nothing"
    except KeyringError as error:
        why = str(error) or type(error).__name__
    raise ToolServerError(f"the login at MCP server {name!r} cannot be kept in the keyring: {why}", server=name)


def forget_grant(name: str) -> bool:
    """Take away what is kept for a server, and return whether there was something.

    Raises:
        ToolServerError: the keyring cannot be used.
    """
    try:
        import keyring  # noqa: PLC0415 - an extra
        from keyring.errors import KeyringError, NoKeyringError  # noqa: PLC0415
    except ImportError:
        return False
    try:
        if keyring.get_password(SERVICE, f"{_PREFIX}{name}") is None:
            return False
        keyring.delete_password(SERVICE, f"{_PREFIX}{name}")
    except NoKeyringError:
        return False
    except KeyringError as error:
        why = str(error) or type(error).__name__
        raise ToolServerError(f"the keyring cannot be used: {why}", server=name) from error
    return True
