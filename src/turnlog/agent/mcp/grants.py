"""Logins at MCP servers: what authorization servers have granted is kept in the system's keyring, and nowhere else.

An entry is of one address: a server that is registered anew under the same name, elsewhere, gets none of it. A keyring
knows no "only if it is still the same", so whoever changes an entry has a lock meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.agent.mcp.signals import KeyringUnusableError
from turnlog.errors import StoreError, ToolServerError
from turnlog.providers.keys import SERVICE
from turnlog.store.files import OWN, make_folders
from turnlog.store.home import data_folder
from turnlog.store.locks import FileLocks

_PREFIX = "mcp:"
"""What stands before the name of a server in the user name of its entry."""

_LOCKS = "login-locks"
"""The folder of the locks, in that of the data of the user whose keyring it is."""

_CHANGED_WITHIN_S = 10.0
"""How long another process may have the lock of an entry that it changes. Some keyrings ask their owner first."""

_LOOK_EVERY_S = 0.02


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

    @property
    def has_expired(self) -> bool:
        """Whether the access token is known to be of no use any more."""
        return self.expires_s is not None and self.expires_s < time.time()


def kept_grant(name: str, url: str) -> Grant | None:
    """Return what is kept for a server, None where there is nothing for this address. A keyring may take its time.

    Raises:
        ToolServerError: the entry cannot be read.
        KeyringUnusableError: it is locked, or there is none.
    """
    try:
        text = _entry(name)
    except ImportError:
        return None
    if text is None:
        return None
    try:
        grant = msgspec.json.decode(text, type=Grant)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise unreadable(name) from error
    return grant if grant.url == url else None


def unreadable(name: str) -> ToolServerError:
    """Return the error of an entry that cannot be read."""
    return ToolServerError(
        f"what the keyring has for MCP server {name!r} cannot be read: `turnlog mcp login {name}`", server=name
    )


def check_keyring(name: str) -> None:
    """Check that a login can be kept, before there is one.

    Raises:
        ToolServerError: there is no keyring, or it is locked.
    """
    with _told(name):
        _entry(name)


def keep_grant(name: str, grant: Grant) -> None:
    """Keep what was granted, in place of what was kept before.

    Raises:
        ToolServerError: there is no keyring, or it keeps nothing.
    """
    with _told(name), login_lock(f"entry of {name}", server=name, wait_s=_CHANGED_WITHIN_S):
        _write(name, grant)


def keep_renewed(name: str, before: Grant, grant: Grant) -> bool:
    """Keep what a grant was renewed to, in its place, and return whether it was still there to be replaced.

    It is not where somebody has logged out or in meanwhile: then nothing changes.

    Raises:
        ToolServerError: the keyring does not keep it, or the entry cannot be read.
    """
    with _told(name), login_lock(f"entry of {name}", server=name, wait_s=_CHANGED_WITHIN_S):
        if kept_grant(name, before.url) != before:
            return False
        _write(name, grant)
    return True


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
        with login_lock(f"entry of {name}", server=name, wait_s=_CHANGED_WITHIN_S):
            keyring.delete_password(SERVICE, f"{_PREFIX}{name}")
    except NoKeyringError:
        return False
    except KeyringError as error:
        raise ToolServerError(f"the keyring cannot be used: {_said(error)}", server=name) from error
    return True


@contextmanager
def login_lock(
    what: str, *, server: str, wait_s: float, while_waiting: Callable[[], None] = lambda: None
) -> Generator[None]:
    """Have a lock that no other process or thread of this user has at the same time. It blocks until it is free.

    Args:
        what: the name of the lock.
        server: the name of the server that it is about.
        wait_s: how long to wait for it.
        while_waiting: is called again and again meanwhile; what it raises ends that.

    Raises:
        ToolServerError: locks cannot be used, or it was not free in time.
    """
    folder = data_folder() / _LOCKS
    ends_s = time.monotonic() + wait_s
    try:
        make_folders(folder.parent, OWN.of_folders)
        locks = FileLocks(folder)
        while (release := locks.take(what)) is None:
            while_waiting()
            if time.monotonic() > ends_s:
                raise ToolServerError(
                    f"another process has been changing the login at MCP server {server!r} for {wait_s:g} s: try again",
                    server=server,
                )
            time.sleep(_LOOK_EVERY_S)
    except (OSError, StoreError) as error:
        raise ToolServerError(
            f"the login at MCP server {server!r} cannot be locked in {str(folder)!r}: {error}", server=server
        ) from error
    try:
        yield
    finally:
        release()


def _entry(name: str) -> str | None:
    """Return the entry of a server.

    Raises:
        ImportError: the package keyring is not installed.
        KeyringUnusableError: it is locked, or there is none.
    """
    import keyring  # noqa: PLC0415 - an extra
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        return keyring.get_password(SERVICE, f"{_PREFIX}{name}")
    except KeyringError as error:
        raise KeyringUnusableError(_said(error)) from error


def _write(name: str, grant: Grant) -> None:
    import keyring  # noqa: PLC0415 - an extra
    from keyring.errors import KeyringError  # noqa: PLC0415

    text = msgspec.json.encode(grant).decode()
    try:
        keyring.set_password(SERVICE, f"{_PREFIX}{name}", text)
    except KeyringError as error:
        raise KeyringUnusableError(_said(error)) from error
    if _entry(name) != text:
        raise KeyringUnusableError("it keeps nothing")


@contextmanager
def _told(name: str) -> Generator[None]:
    """Tell of a keyring that does not keep what it is given as turnlog does."""
    try:
        yield
    except ImportError as error:
        raise ToolServerError(
            f"the login at MCP server {name!r} is kept in the system's keyring, which needs the package `keyring`:"
            " install it with `pip install 'turnlog[keyring]'`",
            server=name,
        ) from error
    except KeyringUnusableError as error:
        raise ToolServerError(
            f"the login at MCP server {name!r} cannot be kept in the keyring: {error}", server=name
        ) from error


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
