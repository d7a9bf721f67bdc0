"""What is registered by name in the log: pointers, providers and MCP servers. The last event of a name holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import UNSET, Struct

from turnlog.errors import MetaError, NotFoundError, UnknownPointerError, UnknownProviderError, UnknownServerError
from turnlog.events import POINTER, PROVIDER, SERVER, meta_of
from turnlog.model import PointerMeta, ProviderMeta, ServerMeta
from turnlog.model.plain import plain_json
from turnlog.providers import ALIASES
from turnlog.record import EventDraft, plan_event
from turnlog.record.fields import check_bookmark_name
from turnlog.record.secrets import refuse_secrets
from turnlog.store import NO_PAYLOAD, ReadTransaction, Store, WriteTransaction

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_M = TypeVar("_M", PointerMeta, ProviderMeta, ServerMeta)

SERVER_SEPARATOR = "___"
"""What stands between the name of an MCP server and that of its tool, in the name that a model sees."""


class Pointer(Struct, frozen=True, kw_only=True):
    """A name for a provider and a model. `params` are parameters of every call by this name."""

    name: str
    provider: str
    model: str
    params: dict[str, Any] = {}


class _Register(Generic[_M]):
    """Events of one topic, of which the last one of a name holds."""

    _topic: str
    _kind: type[_M]
    _gone: str
    """The action that takes a name away."""

    def __init__(self, store: Store, fresh_id: Callable[[], str]) -> None:
        """Take the parts of a log."""
        self._store = store
        self._fresh_id = fresh_id

    def _all(self, transaction: ReadTransaction) -> dict[str, _M]:
        """Return what holds of each name, in the order of the names."""
        found: dict[str, _M] = {}
        for recorded in transaction.log(topics=[self._topic]):
            meta = meta_of(recorded.event, self._kind)
            found[meta.name] = meta
        return dict(sorted(found.items()))

    def _held(self) -> dict[str, _M]:
        with self._store.read() as transaction:
            return {name: meta for name, meta in self._all(transaction).items() if meta.action != self._gone}

    def _write(self, meta: _M, check: Callable[[dict[str, _M]], None] | None = None) -> None:
        check_bookmark_name(meta.name, field="name")
        self._refuse_secrets(meta)
        fresh_id = self._fresh_id()

        def plan(transaction: WriteTransaction) -> None:
            if check is not None:
                check(self._all(transaction))
            plan_event(transaction, EventDraft(topic=self._topic, meta=meta), NO_PAYLOAD, fresh_id)

        self._store.write(plan)

    def _delete(self, meta: _M, unknown: NotFoundError) -> None:
        """Take a name away; raise what is given if nothing has it."""

        def check(found: dict[str, _M]) -> None:
            if meta.name not in found or found[meta.name].action == self._gone:
                raise unknown

        self._write(meta, check)

    def _refuse_secrets(self, meta: _M) -> None:
        refuse_secrets(msgspec.to_builtins(meta), field=self._topic)


class Pointers(_Register[PointerMeta]):
    """Named aliases for a provider and a model. `TurnLog.pointers` is one."""

    _topic = POINTER
    _kind = PointerMeta
    _gone = "delete"

    def set(self, name: str, provider: str, model: str, *, params: Mapping[str, Any] | None = None) -> Pointer:
        """Set a pointer, or point it elsewhere. On return the event is on disk.

        Args:
            name: `nano`, `milli`, `kilo`, `mega`, `giga`, or any other.
            provider: a provider's name.
            model: the model, as the provider names it.
            params: parameters of every call by this pointer, such as `max_tokens`.

        Raises:
            MetaError: the name, the provider or the model cannot be one.
            SecretError: a parameter looks like a secret.
        """
        for field, value in (("provider", provider), ("model", model)):
            if not value or value != value.strip() or not value.isprintable():
                raise MetaError(f"{field}: {value!r} cannot be the name of one", field=field)
        given = plain_json(params or {}, "params", MetaError)
        refuse_secrets(given, field="params")
        text = msgspec.json.encode(given).decode()
        self._write(PointerMeta(action="set", name=name, provider=provider, model=model, params=text))
        return Pointer(name=name, provider=provider, model=model, params=dict(params or {}))

    def delete(self, name: str) -> None:
        """Delete a pointer. On return the event is on disk.

        Raises:
            UnknownPointerError: there is none of this name.
        """
        unknown = UnknownPointerError(f"no pointer {name!r}", name=name)
        self._delete(PointerMeta(action="delete", name=name), unknown)

    def get(self, name: str) -> Pointer:
        """Return a pointer.

        Raises:
            UnknownPointerError: there is none of this name.
        """
        found = {pointer.name: pointer for pointer in self.all()}
        if name not in found:
            known = f" (one of {', '.join(found)})" if found else ""
            raise UnknownPointerError(
                f"no pointer {name!r}{known}: set it with `turnlog pointer set {name} PROVIDER MODEL`", name=name
            )
        return found[name]

    def all(self) -> list[Pointer]:
        """Return all pointers, by name."""
        return [
            Pointer(
                name=meta.name,
                provider=meta.provider or "",
                model=meta.model or "",
                params=msgspec.json.decode(meta.params, type=dict[str, Any]),
            )
            for meta in self._held().values()
        ]


class Providers(_Register[ProviderMeta]):
    """Which providers may be called, and where they are. `TurnLog.providers` is one.

    A provider that was never named here may be called as it is. `openai` is another name of `openai_chat`.
    """

    _topic = PROVIDER
    _kind = ProviderMeta
    _gone = "disable"

    def enable(
        self, name: str, *, adapter: str | None = None, base_url: str | None = None, key_variable: str | None = None
    ) -> ProviderMeta:
        """Allow calls to a provider from now on. On return the event is on disk. Nothing is asked of the provider.

        Args:
            name: the provider's name: that of an adapter, or any other with `adapter`.
            adapter: the adapter that speaks its wire.
            base_url: another endpoint than the adapter's own.
            key_variable: the environment variable that holds the key.

        Raises:
            MetaError: the base URL is none, or has a user name or password in it.
        """
        if base_url is not None:
            check_url(base_url, field="base_url")
        meta = ProviderMeta(
            action="enable",
            name=ALIASES.get(name, name),
            adapter=UNSET if adapter is None else adapter,
            base_url=UNSET if base_url is None else base_url,
            key_variable=UNSET if key_variable is None else key_variable,
        )
        self._write(meta)
        return meta

    def disable(self, name: str) -> None:
        """Refuse calls to a provider from now on. On return the event is on disk."""
        self._write(ProviderMeta(action="disable", name=ALIASES.get(name, name)))

    def get(self, name: str) -> ProviderMeta:
        """Return what was last said of a provider; for one that was never named, that it may be called as it is.

        Raises:
            UnknownProviderError: it was disabled.
        """
        with self._store.read() as transaction:
            meta = self._all(transaction).get(ALIASES.get(name, name))
        if meta is not None and meta.action == self._gone:
            raise UnknownProviderError(
                f"provider {name!r} is disabled: allow it with `turnlog provider enable {name}`", name=name
            )
        return meta or ProviderMeta(action="enable", name=ALIASES.get(name, name))

    def all(self) -> list[ProviderMeta]:
        """Return what was last said of each provider, by name, the disabled ones included."""
        with self._store.read() as transaction:
            return list(self._all(transaction).values())


class Servers(_Register[ServerMeta]):
    """MCP servers by name. `TurnLog.servers` is one."""

    _topic = SERVER
    _kind = ServerMeta
    _gone = "delete"

    def register(
        self,
        name: str,
        command: Sequence[str] = (),
        *,
        url: str | None = None,
        cwd: str | None = None,
        env: Sequence[str] = (),
        header_env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ServerMeta:
        """Register an MCP server, or register it anew. On return the event is on disk. It is not started yet.

        Args:
            name: its name: the part of tool names before `___`.
            command: program and arguments of a server that is run here (stdio).
            url: address of a server over streamable HTTP. Either this or `command`.
            cwd: the folder to run it in; by default where turnlog runs.
            env: names of environment variables to hand on to it. Values never enter the log.
            header_env: HTTP header to the name of the environment variable that holds its value.
            timeout_s: how long one call may take, in seconds.

        Raises:
            MetaError: the name cannot be one, or there is not exactly one of command and URL.
            SecretError: an argument looks like a secret.
        """
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii() or SERVER_SEPARATOR in name:
            raise MetaError(f"name: {name!r} cannot be a server's (letters, digits, - and _, and no ___)", field="name")
        if bool(command) == (url is not None):
            raise MetaError("server: give a command to run, or a URL", field="command")
        if url is not None:
            check_url(url, field="url")
        if timeout_s is not None and not 0 < timeout_s < math.inf:
            raise MetaError(f"timeout_s: {timeout_s} is not a number of seconds above 0", field="timeout_s")
        for variable in (*env, *(header_env or {}).values()):
            if not _VARIABLE.fullmatch(variable):
                raise MetaError("env: give the name of an environment variable, never its value", field="env")
        meta = ServerMeta(
            action="register",
            name=name,
            command=tuple(command),
            cwd=UNSET if cwd is None else cwd,
            env=tuple(env),
            url=UNSET if url is None else url,
            header_env=dict(header_env or {}),
            timeout_s=UNSET if timeout_s is None else timeout_s,
        )
        self._write(meta)
        return meta

    def _refuse_secrets(self, meta: ServerMeta) -> None:
        # Headers that hold secrets are named as such: here they say where the secret is, and not what it is.
        refuse_secrets(msgspec.to_builtins(msgspec.structs.replace(meta, header_env={})), field=self._topic)

    def delete(self, name: str) -> None:
        """Take a server away. On return the event is on disk.

        Raises:
            UnknownServerError: there is none of this name.
        """
        unknown = UnknownServerError(f"no MCP server {name!r}", name=name)
        self._delete(ServerMeta(action="delete", name=name), unknown)

    def get(self, name: str) -> ServerMeta:
        """Return a server.

        Raises:
            UnknownServerError: there is none of this name.
        """
        held = self._held()
        if name not in held:
            known = f" (one of {', '.join(held)})" if held else ""
            raise UnknownServerError(
                f"no MCP server {name!r}{known}: register it with `turnlog mcp register {name} -- COMMAND…`", name=name
            )
        return held[name]

    def all(self) -> list[ServerMeta]:
        """Return all servers, by name."""
        return list(self._held().values())


def check_url(url: str, *, field: str) -> None:
    """Check that a text is an HTTP address without a user name or password in it.

    Raises:
        MetaError: it is not.
        SecretError: a part of its query looks like a secret.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise MetaError(f"{field}: {url!r} is not a URL: {error}", field=field) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise MetaError(f"{field}: {url!r} is not an address such as https://example.org/v1", field=field)
    if parts.username or parts.password:
        raise MetaError(f"{field}: has a user name or password in it, and secrets never enter the log", field=field)
    refuse_secrets(dict(parse_qsl(parts.query)), field=field)
