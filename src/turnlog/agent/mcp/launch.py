"""How an MCP server is started or reached when the environment has had its say, and what of that nobody is to see."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Raw, Struct

from turnlog.agent.half_pairs import any_json
from turnlog.agent.mcp.content import base64_content
from turnlog.agent.spellings import spellings
from turnlog.agent.toolbox import ToolOutcome
from turnlog.errors import ToolServerError, TurnlogError
from turnlog.model import Document, Native, ServerMeta, Text
from turnlog.providers.keys import find_key, into_keyring
from turnlog.record.findings import Found, cut_out, marker
from turnlog.record.secret_names import is_secret
from turnlog.registers.addresses import check_address
from turnlog.registers.variables import expanded, variables_in

_BASE64 = ("blob", "data")
"""Fields of content and of resources that are base64 (MCP 2025-11-25, `ImageContent`, `BlobResourceContents`)."""

_RARE = (b"\\u", b"\\/", *(f'"{name}"'.encode() for name in _BASE64))
"""What stands in JSON text in which a secret may be and is not spelled as JSON usually is."""

_Spelled = list[tuple[str, str]]

_SECRET_CHARACTERS_MIN = 6
"""Shorter values of environment variables (`1`, `true`, `eu-1`) are no secrets, and words of messages contain them."""


class Launch(Struct, frozen=True, kw_only=True):
    """A server's registration with values in place of variables. It is never recorded, and never shown.

    Attributes:
        command: program and arguments; empty for a server over HTTP.
        cwd: the folder to run it in, None for the current one.
        url: the address; empty for a program.
        variables: what the program is given beside a few variables that every program needs.
        headers: HTTP headers.
        values: by their names, the values that came from the environment or the keyring.
        secrets: those of them that a tool must not tell.
    """

    command: tuple[str, ...] = ()
    cwd: str | None = None
    url: str = ""
    variables: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    values: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}

    def scrub(self, text: str) -> str:
        """Return text without any of the values that the server was given."""
        for value in (*self._given(), *(form for form, _ in self._spelled())):
            text = text.replace(value, "…")
        return text

    def without_rest(self, text: str) -> str:
        """Return a text that was cut at its beginning, without what is left there of a value that was given."""
        rests = (value[at:] for value in self._given() for at in range(1, len(value)) if text.startswith(value[at:]))
        return text.removeprefix(max(rests, key=len, default=""))

    def _given(self) -> list[str]:
        given = {*self.values.values(), *self.headers.values(), *map(_bare, self.headers.values())}
        long = (value for value in given if len(value) >= _SECRET_CHARACTERS_MIN)
        return sorted(long, key=len, reverse=True)  # one may be a part of another

    def masked(self, value: object) -> object:
        """Return what the server wrote, a JSON value, with marks in its texts and names: see `without_secrets`.

        A number that is spelled with a secret becomes a text with the mark.
        """
        spelled = self._spelled()
        return _masked(value, spelled) if spelled else value

    def without_secrets(self, text: str) -> str:
        """Return a text of the server in which marks stand for the secrets that it was given.

        That is a variable with the name of a secret, or one that a header was made of. Others, such as `HOME`, a tool
        may well speak of.
        """
        return _marked(text, self._spelled())

    def without_split(self, outcome: ToolOutcome) -> ToolOutcome:
        """Return the outcome of a call without secrets that are split over its texts: a model reads them as one."""
        texts = [block.text for block in outcome.content if isinstance(block, Text)]
        if len(texts) < 2:
            return outcome
        kept = deque(cut_out(texts, self._found("".join(texts))))
        if list(kept) == texts:
            return outcome
        content: list[Text | Document | Native] = []
        for block in outcome.content:
            text = kept.popleft() if isinstance(block, Text) else ""
            if not isinstance(block, Text):
                content.append(block)
            elif text or not block.text:
                content.append(msgspec.structs.replace(block, text=text))
        return msgspec.structs.replace(outcome, content=tuple(content))

    def _found(self, text: str) -> list[Found]:
        """Return where secrets stand in a text; those that overlap are one."""
        found: list[Found] = []
        for name, value in self._secrets():
            for form in spellings(value):
                places = re.finditer(re.escape(form), text) if form in text else ()
                found += [Found(start=place.start(), end=place.end(), kind=name) for place in places]
        apart: list[Found] = []
        for one in sorted(found, key=lambda one: (one.start, -one.end)):
            if not apart or one.start >= apart[-1].end:
                apart.append(one)
            elif one.end > apart[-1].end:
                apart[-1] = msgspec.structs.replace(apart[-1], end=one.end)
        return apart

    def _secrets(self) -> list[tuple[str, str]]:
        """Return the secrets that are long enough to be told from words, by their names."""
        return [(name, value) for name, value in self.secrets.items() if len(value) >= _SECRET_CHARACTERS_MIN]

    def _spelled(self) -> _Spelled:
        """Return how secrets may be spelled in a text, and the mark for each, longer ones first."""
        spelled = {form: marker(name) for name, value in self._secrets() for form in spellings(value)}
        return sorted(spelled.items(), key=lambda item: -len(item[0]))  # one may be a part of another


def _masked(value: object, spelled: _Spelled) -> object:
    match value:
        case str():
            return _marked(value, spelled)
        case Raw():
            text = bytes(value)
            return _masked(any_json(text), spelled) if _may_tell(text, spelled) else value
        case dict():
            return {
                _marked(name, spelled): _bytes_masked(inner, spelled)
                if name in _BASE64 and isinstance(inner, str)
                else _masked(inner, spelled)
                for name, inner in cast("dict[str, object]", value).items()
            }
        case list():
            return [_masked(inner, spelled) for inner in cast("list[object]", value)]
        case int() | float() if not isinstance(value, bool):
            number = json.dumps(value)
            marked = _marked(number, spelled)
            return value if marked == number else marked
        case _:
            return value


def _may_tell(text: bytes, spelled: _Spelled) -> bool:
    """Tell whether a secret may be in JSON text. It is not where neither it nor base64 is there, nor a rare escape."""
    forms = {each for form, _ in spelled for each in (form, json.dumps(form, ensure_ascii=False)[1:-1])}
    return any(form in text for form in (*(each.encode(errors="surrogateescape") for each in forms), *_RARE))


def _marked(text: str, spelled: _Spelled) -> str:
    for form, mark in spelled:
        text = text.replace(form, mark)
    return text


def _bytes_masked(text: str, spelled: _Spelled) -> str:
    """Return the base64 of a document with marks in what it stands for: it may be a text that a model reads."""
    content = masked = base64_content(text)
    if masked is not None:
        for form, mark in spelled:
            masked = masked.replace(form.encode(errors="surrogateescape"), mark.encode())
        if masked != content:
            return b64encode(masked).decode()
    return _marked(text, spelled)  # it may be shown as it is


def launch(meta: ServerMeta, environment: Mapping[str, str]) -> Launch:
    """Return how to start or to reach a server. A variable that the environment does not have may be in the keyring.

    Raises:
        ToolServerError: a variable that the server needs is not set, or its value cannot be a header or an address.
    """
    look_up = _Lookup(meta.name, environment)
    variables = {name: look_up(name) for name in meta.env}
    for name, text in meta.env_values.items():
        variables[name] = look_up.expanded(text)
    headers = {name: _header(meta.name, name, look_up(variable)) for name, variable in meta.header_env.items()}
    for name, text in meta.header_values.items():
        headers[name] = _header(meta.name, name, look_up.expanded(text))
    given = look_up.expanded if meta.expands else _as_it_is
    url = given(meta.url) if isinstance(meta.url, str) else ""
    if meta.expands and url:
        _check_url(meta.name, url)
    command = tuple(map(given, meta.command))
    cwd = given(meta.cwd) if isinstance(meta.cwd, str) else None
    named = {*meta.header_env.values(), *(name for text in meta.header_values.values() for name in variables_in(text))}
    secrets = {
        name: _bare(value) if name in named else value
        for name, value in look_up.values.items()
        if name in named or is_secret(name, value)
    }
    secrets |= {name: value for name, value in variables.items() if name not in secrets and is_secret(name, value)}
    return Launch(
        command=command,
        cwd=cwd,
        url=url,
        variables=variables,
        headers=headers,
        values={**variables, **look_up.values},
        secrets=secrets,
    )


def unset_variables(servers: Sequence[ServerMeta]) -> list[str]:
    """Return what would keep servers from being started now: for each, a variable that is not set or cannot be used."""
    found: list[str] = []
    for meta in servers:
        try:
            launch(meta, os.environ)
        except ToolServerError as error:
            found.append(str(error))
    return found


class _Lookup:
    """Variables of the environment, or else of the keyring, and which of them were asked for."""

    def __init__(self, server: str, environment: Mapping[str, str]) -> None:
        self._server = server
        self._environment = environment
        self.values: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return the value of a variable.

        Raises:
            ToolServerError: it is not set.
        """
        value = self._value(name)
        if value is None:
            raise ToolServerError(
                f"MCP server {self._server!r} needs the environment variable {name!r}, which is not set: set it, or"
                f" {into_keyring(name)}, and try again",
                server=self._server,
            )
        return value

    def expanded(self, text: str) -> str:
        """Return a text with values in place of its variables.

        Raises:
            ToolServerError: one is not set, and has no default.
        """
        try:
            return expanded(text, self._value)
        except KeyError as error:
            return self(str(error.args[0]))  # which says so

    def _value(self, name: str) -> str | None:
        value = self._environment.get(name)
        if value is None:
            value, _ = find_key(name, name, environment={})
        if value is not None:
            self.values[name] = value
        return value


def _as_it_is(text: str) -> str:
    return text


def _check_url(server: str, url: str) -> None:
    try:
        check_address(url, field="url")
    except TurnlogError:
        raise ToolServerError(
            f"MCP server {server!r}: what the environment has for its address is none, such as https://example.org/mcp",
            server=server,
        ) from None


def _header(server: str, name: str, value: str) -> str:
    """Return the value of a header if it can be one. The value is never repeated."""
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise ToolServerError(
            f"MCP server {server!r}: what the environment has for the header {name!r} cannot be the value of one"
            " (printable ASCII, no blank at an end)",
            server=server,
        )
    return value


def _bare(value: str) -> str:
    """Return the value of a header without `Bearer`."""
    return value.rpartition(" ")[2]
