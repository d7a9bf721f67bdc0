"""The proxies that the environment names, as HTTP clients find them: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`.

A client cannot be made where one of them cannot be used. What is wrong is said here, before one is made.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from turnlog.errors import ProviderError

_SCHEMES = ("http", "https", "all")
_KINDS = ("http", "https", "socks5", "socks5h")


def check_proxies(adapter: str) -> None:
    """Check that each proxy which the environment names can be used. Its address may have a password: it is not shown.

    Raises:
        ProviderError: one cannot.
    """
    named = getproxies()
    for scheme in _SCHEMES:
        if not (address := named.get(scheme)):
            continue
        where = _variable(scheme)
        kind = _kind(address)
        if kind not in _KINDS:
            said = f"the proxy of {where} cannot be used: give http://HOST:PORT, or socks5://HOST:PORT"
            raise ProviderError(said, provider=adapter)
        if kind.startswith("socks") and find_spec("socksio") is None:
            said = (
                f"the proxy of {where} is a SOCKS proxy, for which the package socksio is needed: pip install socksio"
            )
            raise ProviderError(said, provider=adapter)


def proxy_of(url: str) -> str:
    """Return the proxy that a URL is asked for through, as people call it; empty where there is none."""
    asked = urlsplit(url)
    named = getproxies()
    scheme = asked.scheme if named.get(asked.scheme) else "all"
    if not named.get(scheme) or not asked.hostname or proxy_bypass(asked.hostname):
        return ""
    return f"the proxy of {_variable(scheme)}"


def _kind(address: str) -> str:
    """Return the scheme of the address of a proxy, empty where it is no address."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        _ = parts.port
    except ValueError:
        return ""
    return parts.scheme if parts.hostname else ""


def _variable(scheme: str) -> str:
    """Return the variable that names a proxy, or where else it is set."""
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    return next((name for name in names if os.environ.get(name)), "the system's settings")
