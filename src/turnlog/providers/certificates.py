"""The certificate authorities that providers' servers are checked against. To read them takes longer than a request."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
_PLACES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where httpx2 looks when OpenSSL's own places are not there: `httpcore2._ssl.CA_FILE_CANDIDATES`."""

_made: tuple[object, ssl.SSLContext] | None = None


def tls_context() -> ssl.SSLContext:
    """Return the TLS settings that a client of httpx2 makes for itself, once for all clients, threads and event loops.

    They are made anew when the environment names other authorities, or what it names has changed on disk. Two threads
    may make them at the same time; either will do.

    Raises:
        OSError: what the environment names cannot be read.
    """
    global _made  # noqa: PLW0603 - of the process
    made_of = _made_of()
    made = _made
    if made is None or made[0] != made_of:
        made = _made = (made_of, _new())
    return made[1]


def _new() -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415 - it takes a while to import, and most commands call no one

    context: Any = httpx2.create_ssl_context()
    # Each connection sets these, all the same. To do so while another thread begins one is not safe in OpenSSL.
    context.set_alpn_protocols(["http/1.1"])
    context.set_alpn_protocols = _leave
    return context


def _leave(protocols: list[str]) -> None:
    assert protocols == ["http/1.1"], protocols


def _made_of() -> object:
    """Return what tells whether the authorities are still those that were read."""
    named = [os.environ.get(name) for name in _VARIABLES]
    usual = ssl.get_default_verify_paths()
    places = (*named[:2], usual.openssl_cafile, usual.openssl_capath, *_PLACES)
    return named, [_state(place) for place in places if place]


def _state(place: str) -> object:
    try:
        found = Path(place).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
