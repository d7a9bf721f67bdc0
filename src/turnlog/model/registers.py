"""The metadata of what is registered by name: `gpt.pointer`, `gpt.provider` and `mcp.server` events.

The last event of a name says what holds; `delete` (for providers `disable`) takes it away again.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class PointerMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.pointer` event: a name for a provider and a model.

    `params` are parameters of every call by it, a JSON object as text, because the order of its keys counts.
    """

    action: Literal["set", "delete"]
    name: str
    provider: str | None = None
    model: str | None = None
    params: str = "{}"


class ProviderMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.provider` event.

    Attributes:
        action: whether calls to it are allowed from now on.
        name: the provider's name, as pointers use it.
        adapter: the adapter that speaks its wire, where it is not the one of this name.
        base_url: another endpoint than the adapter's own.
        key_variable: the environment variable that holds its key, where it is not the adapter's.
    """

    action: Literal["enable", "disable"]
    name: str
    adapter: str | None = None
    base_url: str | None = None
    key_variable: str | None = None


class ServerMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `mcp.server` event: how to reach an MCP server. Secrets are named and never held.

    Attributes:
        action: whether it is registered or taken away.
        name: the server's name, the part of tool names before `___`.
        command: program and arguments of a server that is run here and spoken to over stdio.
        cwd: the folder to run it in.
        env: names of environment variables that it is given, beside a few that every program needs.
        url: address of a server that is spoken to over streamable HTTP.
        header_env: HTTP header to the name of the environment variable that holds its value.
        timeout_s: how long one call may take, in seconds.
        start_timeout_s: how long it may take to start, or to be reached, and to list its tools, in seconds.
        env_values: variable of the program to its value, in which `${NAME}` and `${NAME:-default}` stand for variables
            of the environment.
        header_values: HTTP header to its value, as in `env_values`.
        roots: the folders that it is told of when it asks for roots: absolute paths.
        expands: whether `${NAME}` stands for a variable in `command`, `cwd` and `url` too.
    """

    action: Literal["register", "delete"]
    name: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    env: tuple[str, ...] = ()
    url: str | None = None
    header_env: dict[str, str] = {}
    timeout_s: float | None = None
    start_timeout_s: float | None = None
    env_values: dict[str, str] = {}
    header_values: dict[str, str] = {}
    roots: tuple[str, ...] = ()
    expands: bool = False
