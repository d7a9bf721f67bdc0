"""What a register may say: the rules for what is set here, and for what came with an import."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.errors import MetaError
from turnlog.model import PointerMeta, ProviderMeta, ServerMeta
from turnlog.model.json_text import UNREADABLE
from turnlog.record.fields import check_bookmark_name, may_be_name
from turnlog.record.media import TOKEN
from turnlog.registers.addresses import check_address, check_url

SERVER_SEPARATOR = "___"
"""What stands between the name of an MCP server and that of its tool, in the name that a model sees."""

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(TOKEN)
_NOT_IN_HEADERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Control characters but the tab (RFC 9110 §5.5)."""

_GONE = ("delete", "disable")
"""Actions that take a name away, and say nothing else of it."""


def refusal(meta: PointerMeta | ProviderMeta | ServerMeta) -> str:
    """Return why what came with an import cannot be used: it breaks a rule of `set`. Empty where it does not.

    Secrets are no matter here: what has come in is in the log.
    """
    try:
        check_bookmark_name(meta.name, field="name")
        match meta:
            case _ if meta.action in _GONE:
                pass
            case PointerMeta():
                check_model(meta.provider or "", meta.model or "")
                _check_parameters(meta.params)
            case ProviderMeta():
                if meta.base_url is not None:
                    check_address(meta.base_url, field="base_url")
            case ServerMeta():
                check_server(meta, address=check_address)
    except MetaError as error:
        return str(error)
    return ""


def check_model(provider: str, model: str) -> None:
    """Check the names of a provider and of a model.

    Raises:
        MetaError: one cannot be the name of one.
    """
    for field, value in (("provider", provider), ("model", model)):
        if not may_be_name(value):
            raise MetaError(f"{field}: {value!r} cannot be the name of one", field=field)


def _check_parameters(params: str) -> None:
    try:
        msgspec.json.decode(params, type=dict[str, Any])
    except UNREADABLE as error:
        raise MetaError(f"params: expected a JSON object: {error}", field="params") from error


def check_server(meta: ServerMeta, *, address: Callable[..., None] = check_url) -> None:
    """Check what is said of a server, but for secrets other than in its address.

    Args:
        meta: what is said.
        address: checks its address: `check_address`, where secrets in that are no matter any more.

    Raises:
        MetaError: it cannot be registered.
        SecretError: its address looks like it has a secret in it.
    """
    name = meta.name
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii() or SERVER_SEPARATOR in name:
        raise MetaError(f"name: {name!r} cannot be a server's (letters, digits, - and _, and no ___)", field="name")
    url = meta.url
    if bool(meta.command) == isinstance(url, str):
        raise MetaError("server: give a command to run, or a URL", field="command")
    if isinstance(url, str) and not (meta.expands and url.startswith("${")):  # what comes of it is known at the start
        address(url, field="url")
    for field, seconds in (("timeout_s", meta.timeout_s), ("start_timeout_s", meta.start_timeout_s)):
        if seconds is not None and not 0 < seconds < math.inf:
            raise MetaError(f"{field}: {seconds} is not a number of seconds above 0", field=field)
    _check_names(meta)
    for root in meta.roots:
        if not root.startswith("/") or "\0" in root:
            raise MetaError(f"roots: {root!r} is not the absolute path of a folder", field="roots")


def _check_names(meta: ServerMeta) -> None:
    for variable in (*meta.env, *meta.header_env.values()):
        if not _VARIABLE.fullmatch(variable):
            raise MetaError("env: give the name of an environment variable, never its value", field="env")
    for variable in meta.env_values:
        if not variable or "=" in variable or "\0" in variable:
            raise MetaError(f"env_values: {variable!r} cannot be the name of a variable", field="env_values")
    for field, headers in (("header_env", meta.header_env), ("header_values", meta.header_values)):
        for header in headers:
            if not _HEADER.fullmatch(header):
                raise MetaError(f"{field}: {header!r} cannot be the name of a header", field=field)
    _check_texts(meta)


def _check_texts(meta: ServerMeta) -> None:
    """Check that no program and no server would be given what it cannot be."""
    for_programs = {f"command[{index}]": text for index, text in enumerate(meta.command)}
    for_programs |= {"cwd": meta.cwd or ""} | {f"env_values.{name}": text for name, text in meta.env_values.items()}
    for field, text in for_programs.items():
        if "\0" in text:
            raise MetaError(f"{field}: a program cannot be given a NUL character", field=field)
    for header, text in meta.header_values.items():
        if _NOT_IN_HEADERS.search(text):
            field = f"header_values.{header}"
            raise MetaError(f"{field}: a header is one line, without control characters", field=field)
