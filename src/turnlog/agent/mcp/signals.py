"""What the parts that speak MCP tell each other. None of these leaves turnlog."""

from __future__ import annotations

from turnlog.model import ServerMeta


def label(meta: ServerMeta) -> str:
    """Return what messages call a server: by its name, and by its address if it has one."""
    where = f" at {meta.url}" if isinstance(meta.url, str) else ""
    return f"MCP server {meta.name!r}{where}"


class CallRefusedError(Exception):
    """Say that a server refused a request, or answered it with an error of the protocol, or that it cannot be sent."""


class ConnectionGoneError(Exception):
    """Say that a server went away, or forgot the session, before it did anything of a request."""


class EndUnknownError(Exception):
    """Say that a request was sent, and that nothing came which says what became of it."""


class MisbehaviourError(Exception):
    """Say what a server did against the protocol, in words that follow its name."""


class LoginError(Exception):
    """Say why there is no login to use a server with, in words that follow its name. A request was not made then."""


class KeyringUnusableError(Exception):
    """Say why the keyring cannot be used: it is locked, or there is none."""
