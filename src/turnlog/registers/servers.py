"""MCP servers by name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from turnlog.errors import MetaError, UnknownServerError
from turnlog.events import SERVER
from turnlog.model import ServerMeta
from turnlog.record.secrets import refuse_secrets, refuse_secrets_in_command
from turnlog.registers.addresses import check_url
from turnlog.registers.register import Register

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")

SERVER_SEPARATOR = "___"
"""What stands between the name of an MCP server and that of its tool, in the name that a model sees."""


class Servers(Register[ServerMeta]):
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
        refuse_secrets_in_command(meta.command, field="command")
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
            self._check_imported(name)
            known = f" (one of {', '.join(held)})" if held else ""
            raise UnknownServerError(
                f"no MCP server {name!r}{known}: register it with `turnlog mcp register {name} -- COMMAND…`", name=name
            )
        return held[name]

    def all(self) -> list[ServerMeta]:
        """Return all servers, by name."""
        return list(self._held().values())
