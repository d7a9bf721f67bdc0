"""MCP servers by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from turnlog.errors import MetaError, SecretError, UnknownServerError
from turnlog.events import SERVER
from turnlog.model import ServerMeta
from turnlog.model.kinds import check_each, check_fields, check_record, check_texts
from turnlog.record.secret_names import is_secret
from turnlog.record.secrets import refuse_secrets, refuse_secrets_in_command, refuse_secrets_in_url
from turnlog.registers.checks import check_server
from turnlog.registers.register import Register
from turnlog.registers.variables import defaults_in

_KEYS = frozenset({"auth", "credential", "credentials", "key", "pass", "pat", "pwd"})
"""Last words of the names of variables that hold secrets, also such as do not look like one."""

_ASSIGNED = re.compile(r"(?<![\w$-])(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>[^\s;&|]+)", re.ASCII)
"""A variable that is set for a program, in an argument or in shell text."""

_COMMAND = "['python', 'notes_server.py']"
"""What a command looks like."""


class Servers(Register[ServerMeta]):
    """MCP servers by name. `TurnLog.servers` is one."""

    _topic = SERVER
    _kind = ServerMeta
    _gone = "delete"
    _what = "server"

    def set(  # noqa: PLR0913 - one argument for each thing that can be said of a server
        self,
        name: str,
        command: Sequence[str] = (),
        *,
        url: str | None = None,
        cwd: str | None = None,
        env: Sequence[str] = (),
        header_env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        start_timeout_s: float | None = None,
        env_values: Mapping[str, str] | None = None,
        header_values: Mapping[str, str] | None = None,
        roots: Sequence[str] = (),
        expands: bool = False,
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
            start_timeout_s: how long it may take to start, or to be reached, and to list its tools, in seconds.
            env_values: variable of the program to its value, which is no secret. In it `${NAME}` and
                `${NAME:-default}` stand for variables of the environment when the program is started.
            header_values: HTTP header to its value, as in `env_values`: `Bearer ${NAME}`.
            roots: folders that it is told of when it asks for roots: absolute paths.
            expands: whether `${NAME}` stands for a variable in `command`, `cwd` and `url` too.

        Raises:
            MetaError: the name cannot be one, there is not exactly one of command and URL, or something is of another
                type.
            SecretError: an argument looks like a secret.
        """
        meta = ServerMeta(
            action="register",
            name=name,
            command=check_texts(command, "command", _COMMAND),
            cwd=cwd,
            env=check_texts(env, "env", "['API_KEY']"),
            url=url,
            header_env=dict(check_record(header_env, "header_env")),
            timeout_s=timeout_s,
            start_timeout_s=start_timeout_s,
            env_values=dict(check_record(env_values, "env_values")),
            header_values=dict(check_record(header_values, "header_values")),
            roots=check_texts(roots, "roots", "['/home/me/notes']"),
            expands=expands,
        )
        check_server(check_fields(meta, ServerMeta, self._what))
        self._write(meta)
        return meta

    def set_all(self, servers: Sequence[ServerMeta]) -> list[ServerMeta]:
        """Register several servers together, or none of them. On return the events are on disk.

        One that is registered in just this way already is left as it is.

        Args:
            servers: what `set` would record, such as the servers of a file: `read_mcp_config(path).servers`.

        Returns:
            Those that were recorded.

        Raises:
            MetaError: one cannot be registered, or two have one name; nothing was recorded.
            SecretError: something looks like a secret; nothing was recorded.
        """
        metas = check_each(servers, ServerMeta, "servers", "servers, as ServerMeta")
        for meta in metas:
            check_server(check_fields(meta, ServerMeta, self._what))
        names = [meta.name for meta in metas]
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise MetaError(f"two MCP servers are called {twice!r}: rename one of them", field="name")
        return list(self._write_all(metas, lambda look: [meta for meta in metas if look(meta.name) != meta]))

    def _refuse_secrets(self, meta: ServerMeta) -> None:
        refuse_secrets_in_server(meta, field=self._topic)

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
            UntrustedRegisterError: it came with an import, and nobody has confirmed it, or it cannot be used.
        """
        meta = self._get(name)
        if meta is None or meta.action == self._gone:
            self._check_imported(name)
            there = [meta.name for meta in self._there()]
            known = f" (one of {', '.join(there)})" if there else ""
            raise UnknownServerError(
                f"no MCP server {name!r}{known}: register it with `turnlog mcp register {name} -- COMMAND…`", name=name
            )
        return meta

    def all(self) -> list[ServerMeta]:
        """Return all servers, by name."""
        return self._there()


def refuse_secrets_in_server(meta: ServerMeta, *, field: str) -> None:
    """Raise if a registration has a secret in it: in the command, the address, or a value of a variable or header.

    Raises:
        SecretError: names the field; the value is not repeated.
    """
    refuse_secrets_in_argv(meta.command, field="command")
    if isinstance(meta.url, str):
        refuse_secrets_in_url(meta.url, field="url")
    for kind, values in (("env_values", meta.env_values), ("header_values", meta.header_values)):
        for name, value in values.items():
            refuse_secret_value(name, value, field=f"{kind}.{name}")
    # Headers that hold secrets are named as such: here they say where the secret is, and not what it is.
    named = msgspec.structs.replace(meta, header_env={}, env_values={}, header_values={})
    refuse_secrets([*meta.env_values, *meta.header_values], field=field)
    refuse_secrets(msgspec.to_builtins(named), field=field)


def refuse_secrets_in_argv(command: Sequence[str], *, field: str) -> None:
    """Raise if a command has a secret in it: as `refuse_secrets_in_command`, and a variable `…_KEY` with any value.

    The default of a variable is a value of it.

    Raises:
        SecretError: names the argument by its index, such as `command[3]`; the value is not repeated.
    """
    refuse_secrets_in_command(command, field=field)
    for index, argument in enumerate(command):
        assigned = [(found["name"], found["value"]) for found in _ASSIGNED.finditer(argument)]
        defaults = defaults_in(argument)
        if any(_is_key(*pair) for pair in (*assigned, *defaults)) or any(is_secret(*pair) for pair in defaults):
            raise _secret(f"{field}[{index}]")


def refuse_secret_value(name: str, value: str, *, field: str) -> None:
    """Raise if the value of a variable or of a header is a secret, and not only where to find one.

    The value of a variable that is called `…_KEY` is taken for one, whatever it looks like.

    Raises:
        SecretError: names the field; the value is not repeated.
    """
    if is_secret(name, value) or _is_key(name, value):
        raise _secret(field)
    try:
        refuse_secrets_in_argv([value], field=field)
    except SecretError as error:
        raise _secret(field) from error


def _is_key(name: str, value: str) -> bool:
    return re.split(r"[^a-z0-9]+", name.lower())[-1] in _KEYS and is_secret("token", value)


def _secret(field: str) -> SecretError:
    return SecretError(
        f"{field}: looks like a secret, and secrets never enter the log: keep it in the environment or the keyring",
        field=field,
    )
