"""Addresses of endpoints and servers."""

from __future__ import annotations

from turnlog.errors import MetaError
from turnlog.record.secrets import refuse_secrets_in_url
from turnlog.registers.variables import filled
from turnlog.web_address import parsed, shown_text


def check_url(url: str, *, field: str) -> None:
    """Check that a text is an HTTP address without a user name, a password or a key in it.

    Raises:
        MetaError: it is not an address.
        SecretError: a part of it looks like a secret.
    """
    refuse_secrets_in_url(url, field=field)
    check_address(url, field=field)


def check_address(url: str, *, field: str) -> None:
    """Check that a text is an HTTP address, whatever is in it; a variable of the environment stands for what fits.

    Raises:
        MetaError: it is not an address.
    """
    if parsed(filled(url, "1")) is None:
        raise MetaError(f"{field}: {shown_text(url)!r} is not an address such as https://example.org/v1", field=field)
