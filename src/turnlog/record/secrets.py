"""Secrets never enter the log: what looks like one in metadata is refused, by its key or by its form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from turnlog.errors import SecretError

_KEYS = frozenset(
    {
        "accesstoken",
        "apikey",
        "apikeys",
        "apisecret",
        "apitoken",
        "authorization",
        "authtoken",
        "bearertoken",
        "clientsecret",
        "cookie",
        "password",
        "privatekey",
        "proxyauthorization",
        "refreshtoken",
        "secret",
        "secretkey",
        "setcookie",
        "userapikey",
        "userapikeys",
        "xapikey",
        "xgoogapikey",
    }
)
_SUFFIXES = ("apikey", "apikeys", "secretkey", "accesstoken", "password")
_SEPARATORS = re.compile(r"[^a-z0-9]")
_FORMS = re.compile(
    r"^(?:(?:Bearer|Basic) [A-Za-z0-9+/=._~-]{16,}$|sk-[A-Za-z0-9_-]{16,}|AIza[A-Za-z0-9_-]{30,}"
    r"|gh[opsu]_[A-Za-z0-9]{30,}|xox[abp]-)"
)


def refuse_secrets(value: object, *, field: str) -> None:
    """Raise if a record has a key or a value that looks like a secret, at any depth.

    Raises:
        SecretError: names the field; the value is not repeated.
    """
    match value:
        case str() if _FORMS.search(value):
            raise _secret(field)
        case Mapping():
            for name, inner in cast("Mapping[str, object]", value).items():
                key = _SEPARATORS.sub("", name.lower())
                if inner is not None and (key in _KEYS or key.endswith(_SUFFIXES)):
                    raise _secret(f"{field}.{name}")
                refuse_secrets(inner, field=f"{field}.{name}")
        case list() | tuple():
            for index, inner in enumerate(cast("Sequence[object]", value)):
                refuse_secrets(inner, field=f"{field}[{index}]")
        case _:
            pass


def _secret(field: str) -> SecretError:
    return SecretError(
        f"{field}: looks like a secret, and secrets never enter the log: keep it in the environment or the keyring",
        field=field,
    )
