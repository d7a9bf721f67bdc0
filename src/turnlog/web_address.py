"""Addresses of servers: whether a text is one, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit, urlunsplit

HTTP = ("http", "https")

_LABEL_CHARACTERS_MAX = 63
"""The longest part of the name of a host (RFC 1035 §2.3.4)."""

_PASSWORD = re.compile(
    r"(?P<name>(?:pass(?!file)\w*|pwd|[?&]user|client_secret|scram_(?:client|server)_key|[?&][^=&\s]*%[^=&\s]*)\s*=\s*)"
    r"(?:.*@[^\s&]*|'(?:[^'\\]|\\.)*'?|[^\s&]*)",
    re.IGNORECASE | re.DOTALL,
)
"""Where a URL, or what somebody took for one, has a parameter that may be a secret: by its name, or as that has `%XX`.

The parameter `user` is left out as the user before the host is.

What stands behind it may have an @, which is none of those behind a user then.
"""
_ACCOUNT = re.compile(r"(?<=:)(?<!sqlite:)//[^/\s]*@(?!.*@)", re.DOTALL | re.IGNORECASE)
"""Where a URL has a user and a password."""
_DOUBTFUL = re.compile(r"(?<=:)(?<!sqlite:)/*[^/\s].*@", re.DOTALL | re.IGNORECASE)
"""Where what somebody took for a URL may have them."""
_ASKED = re.compile(r"[?#].+", re.DOTALL)
"""The query and the fragment of a URL."""


def parsed(url: str, schemes: Collection[str] = HTTP) -> SplitResult | None:
    """Return the parts of a URL that names a server; None for another text.

    It has a host, whose name can be looked up, and if it names a port, one from 1 to 65,535. There are no blanks in it,
    and nothing that cannot be printed.

    Args:
        url: the text.
        schemes: what it may begin with.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    labels = (parts.hostname or "").removesuffix(".").split(".")
    is_host = all(0 < len(label) <= _LABEL_CHARACTERS_MAX for label in labels)
    is_plain = url.isprintable() and " " not in url
    return parts if parts.scheme in schemes and is_host and port != 0 and is_plain else None


def shown(parts: SplitResult) -> str:
    """Return a URL without what may be secret in it: a user, a password, a query, a fragment."""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def shown_server(parts: SplitResult) -> str:
    """Return scheme, host and port of a URL, the rest of which may be secret."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def shown_text(text: str) -> str:
    """Return a text that is no URL as an error repeats it: without what may be secret in the URL that was meant."""
    return _ASKED.sub("…", without_secrets(text))


def without_secrets(text: str) -> str:
    """Return a URL, or a message that has one, without its user and without what could be a password."""
    text = _PASSWORD.sub(r"\g<name>…", text)
    return _DOUBTFUL.sub("…", _ACCOUNT.sub("//", text))
