"""Secrets in URLs."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_plus, urlsplit

from turnlog.record.secret_forms import IMAGE_SCHEMES, has_form
from turnlog.record.secret_names import REFERENCE, is_literal, is_secret, looks_random

_URL = re.compile(r"(?<![A-Za-z0-9+.])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s'\"<>|`\\]+")
_HTTP = ("http", "https", "ws", "wss")


def urls_in(text: str) -> list[str]:
    """Return the URLs that stand in a text."""
    return _URL.findall(text) if "://" in text else []


def is_secret_url(url: str) -> bool:
    """Tell whether a URL has a secret in its user name or password, in its query or its fragment, or in any form."""
    if has_form(unquote(url)):
        return True
    try:
        parts = urlsplit(url)
    except ValueError:  # the host is malformed, and what stands before it may be a secret
        return "@" in url
    user_and_password, found, _ = parts.netloc.rpartition("@")
    if found and f"{parts.scheme}://" not in IMAGE_SCHEMES:
        user, _, password = user_and_password.partition(":")
        if any(map(_is_secret_part, (password, user) if parts.scheme in _HTTP else (password,))):
            return True
    return any(
        is_secret(unquote_plus(name), value) and _is_secret_part(value)
        for pairs in (parts.query, parts.fragment)
        for name, _, value in (pair.partition("=") for pair in pairs.split("&"))
    )


def has_random_part(url: str) -> bool:
    """Tell whether a URL has a part that looks random behind its host, as addresses that are secrets have."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    text = f"{parts.path}/{parts.query}/{parts.fragment}"
    return any(map(looks_random, re.split("[/&=]", REFERENCE.sub("/", unquote(text)))))


def _is_secret_part(text: str) -> bool:
    # `%DATABASE%` is the name of a variable before it is a text with escapes.
    return is_literal(text) and is_literal(unquote(text))
