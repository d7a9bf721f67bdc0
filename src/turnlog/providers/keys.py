"""API keys: from the environment, else from the system's keyring. They are never stored, printed or logged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

from turnlog.errors import MissingKeyError, ProviderError
from turnlog.providers.interface import Connection, Provider
from turnlog.web_address import parsed

SERVICE = "turnlog"
"""The service name of keys in the keyring; the user name there is the provider's name."""

KeySource = Literal["environment", "keyring", "none"]


def find_key(
    provider: str, variable: str, *, environment: Mapping[str, str] | None = None
) -> tuple[str | None, KeySource]:
    """Return the API key of a provider, and where it is from.

    Args:
        provider: the provider's name.
        variable: the environment variable that holds the key; empty for a provider that takes none.
        environment: where to look for it; by default the process's own.
    """
    if not variable:
        return None, "none"
    value = (os.environ if environment is None else environment).get(variable, "").strip()
    if value:
        return value, "environment"
    value = _from_keyring(provider)
    return (value, "keyring") if value else (None, "none")


def connect(
    adapter: Provider,
    *,
    base_url: str | None = None,
    timeout_s: float = 600.0,
    retries_max: int = 2,
    environment: Mapping[str, str] | None = None,
) -> Connection:
    """Return how to reach the provider of an adapter.

    An endpoint of one's own may go without a key, and an adapter that names no variable for one takes none.

    Raises:
        MissingKeyError: there is no key; says where it is looked for.
        ProviderError: the environment names an endpoint that is no URL.
    """
    environment = os.environ if environment is None else environment
    variable = adapter.base_url_variable if base_url is None and adapter.base_url is None else None
    if variable is not None and (given := environment.get(variable, "").strip()) and parsed(given) is None:
        # What it says can have a password in it, and is not repeated.
        raise ProviderError(f"{variable} in the environment is not a base URL: give http(s)://…", provider=adapter.name)
    key, _ = find_key(adapter.provider, adapter.key_variable, environment=environment)
    if key is None and base_url is None and adapter.key_variable:
        raise MissingKeyError(
            f"no API key for {adapter.provider!r}: set {adapter.key_variable} in the environment, or"
            f" {into_keyring(adapter.provider)}",
            provider=adapter.name,
        )
    return Connection(api_key=key, base_url=base_url, timeout_s=timeout_s, retries_max=retries_max)


def into_keyring(name: str) -> str:
    """Return how to put a key into the keyring under a name, for a message."""
    command = f"`keyring set {SERVICE} {name}`"
    return command if find_spec("keyring") else f"{command} (after `pip install 'turnlog[keyring]'`)"


def _from_keyring(provider: str) -> str | None:
    try:
        import keyring  # noqa: PLC0415 - an extra
        from keyring.errors import KeyringError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return keyring.get_password(SERVICE, provider)
    except KeyringError:
        return None  # a keyring that is locked or absent holds no key for us
