"""Addresses of endpoints and servers."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from turnlog.errors import MetaError
from turnlog.record.secrets import refuse_secrets_in_url


def check_url(url: str, *, field: str) -> None:
    """Check that a text is an HTTP address without a user name, a password or a key in it.

    Raises:
        MetaError: it is not an address.
        SecretError: a part of it looks like a secret.
    """
    _parts(url, field)
    refuse_secrets_in_url(url, field=field)
    check_address(url, field=field)


def check_address(url: str, *, field: str) -> None:
    """Check that a text is an HTTP address, whatever is in it.

    Raises:
        MetaError: it is not an address.
    """
    parts = _parts(url, field)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise MetaError(f"{field}: {url!r} is not an address such as https://example.org/v1", field=field)


def _parts(url: str, field: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise MetaError(f"{field}: {url!r} is not a URL: {error}", field=field) from error
