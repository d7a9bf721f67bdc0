"""Secrets never enter the log: what looks like one is refused, by the name that it has or by its form.

What says only where a secret is may be recorded: `$TOKEN`, `${TOKEN}`, `%TOKEN%`, `$(pass show x)`, the path of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import MetaError, SecretError
from turnlog.record.secret_commands import secret_word
from turnlog.record.secret_forms import has_form
from turnlog.record.secret_names import SEPARATORS
from turnlog.record.secret_urls import has_random_part, is_secret_url, urls_in

_KEYS = frozenset(
    {
        "accesstoken",
        "apikey",
        "apikeys",
        "apisecret",
        "apitoken",
        "authorizationtoken",
        "authorization",
        "authtoken",
        "bearer",
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
_SUFFIXES = ("apikey", "apikeys", "secretkey", "secretaccesskey", "accesstoken", "sessiontoken", "password", "passwd")


def refuse_secrets(value: object, *, field: str) -> None:
    """Raise if a record has a key that names a secret, or a text with a secret anywhere in it, at any depth.

    Raises:
        MetaError: raw JSON text in it is nested too deeply.
        SecretError: names the field; the value is not repeated.
    """
    pending: list[tuple[object, str]] = [(value, field)]
    while pending:  # a stack and no recursion, so that any depth is read
        inner, place = pending.pop()
        match inner:
            case str():
                if has_form(inner):
                    raise _secret(place)
            case Mapping():
                pending += reversed(list(_members(cast("Mapping[str, object]", inner), place)))
            case list() | tuple():
                items = cast("Sequence[object]", inner)
                pending += [(items[index], f"{place}[{index}]") for index in reversed(range(len(items)))]
            case Raw() | Struct():
                pending.append((_values(inner, place), place))
            case _:
                pass


def _values(given: Raw | Struct, field: str) -> object:
    """Return what raw JSON text or a struct says; a record that has a key twice as a list of records.

    Raises:
        MetaError: it is nested too deeply.
    """
    import json  # noqa: PLC0415 - few need it

    def record(members: list[tuple[str, object]]) -> object:
        said = dict(members)
        return said if len(said) == len(members) else [{name: value} for name, value in members]

    try:
        return json.loads(msgspec.json.encode(given), object_pairs_hook=record, parse_int=str, parse_float=str)
    except RecursionError as error:
        raise MetaError(f"{field}: nested too deeply", field=field) from error


def _members(record: Mapping[str, object], field: str) -> Iterator[tuple[object, str]]:
    for name, value in record.items():
        if has_form(name):
            raise _secret(field)  # the name is the secret, and is not repeated either
        key = SEPARATORS.sub("", name.lower())
        if value is not None and (key in _KEYS or key.endswith(_SUFFIXES)):
            raise _secret(f"{field}.{name}")
        yield value, f"{field}.{name}"


def refuse_secrets_in_url(url: str, *, field: str) -> None:
    """Raise if a URL has a secret in it: in its user name or password, its path, its query or its fragment.

    A user name alone is a secret where it goes with HTTP, and none in `ssh://git@example.org` or `postgresql://me@host`.
    Behind the host, a part of 20 characters or more that looks random is one.
    Names of variables in the place of a secret are fine.

    Raises:
        SecretError: names the field; the value is not repeated.
    """
    if has_form(url) or any(is_secret_url(each) or has_random_part(each) for each in urls_in(url)):
        raise _secret(field)


def refuse_secrets_in_command(command: Sequence[str], *, field: str) -> None:
    """Raise if a command line has a secret in it.

    Found are, in arguments and in shell text within them: options and assignments that are named like a secret and have
    a value (`--api-key x`, `--token=x`, `API_KEY=x`), HTTP headers, URLs as `refuse_secrets_in_url` does, and texts of
    the form of a known kind of token. Options that name a variable or a file (`--api-key-env NAME`, `--token-file x`)
    are fine, and so are values that do.

    Raises:
        SecretError: names the argument by its index, such as `command[3]`; the value is not repeated.
    """
    index = secret_word(command, shell=True, depth=0)
    if index is not None:
        raise _secret(f"{field}[{index}]")


def _secret(field: str) -> SecretError:
    return SecretError(
        f"{field}: looks like a secret, and secrets never enter the log: keep it in the environment or the keyring",
        field=field,
    )
