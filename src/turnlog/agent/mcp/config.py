"""The files in which other programs keep their MCP servers, read as registrations.

That is `mcp.json` and `claude_desktop_config.json` (`mcpServers`), and `.vscode/mcp.json` (`servers`, `inputs`). What a
file holds becomes registrations in which secrets are named and never held: `${NAME}` stands for a variable of the
environment, or of the keyring, when the server is started.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from turnlog.agent.mcp.config_text import Texts, inputs_of
from turnlog.errors import MetaError, SecretError, os_reason
from turnlog.home import in_home
from turnlog.model import ServerMeta
from turnlog.record.secret_forms import masked_forms
from turnlog.record.secrets import refuse_secrets_in_url
from turnlog.registers.addresses import check_address
from turnlog.registers.servers import refuse_secret_value, refuse_secrets_in_argv
from turnlog.registers.variables import only_variable, variables_in

BYTES_MAX = 4 * 1024 * 1024
"""The largest file that is read."""
MILLISECONDS_MIN = 1000.0
"""From here on a `timeout` without a unit is in milliseconds: programs differ, and nobody waits for 1000 s."""
MILLISECONDS_MAX = 1e9
"""The largest number that can be a time-out: eleven days."""

_PLACES = ("mcpServers", "servers")
_URLS = ("url", "serverUrl", "httpUrl")
_HTTP = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})
_STDIO = frozenset({"stdio", "local"})
_TIMEOUTS: Mapping[str, tuple[str, float | None]] = {
    "timeout": ("timeout_s", None),
    "timeout_s": ("timeout_s", 1.0),
    "start_timeout_s": ("start_timeout_s", 1.0),
    "initTimeout": ("start_timeout_s", 0.001),
}
_READ = frozenset(
    {"type", "transport", "command", "args", "env", "cwd", "headers", "disabled", "enabled", *_URLS, *_TIMEOUTS}
)
_INSTEAD = {
    "envFile": "set the variables in the environment, and name them in `env`",
    "alwaysAllow": "`--allow` says what may run",
    "autoApprove": "`--allow` says what may run",
    "trust": "`--allow` and `--approve` say what may run",
    "oauth": "a token goes into `headers`, by the name of its variable",
    "auth": "a token goes into `headers`, by the name of its variable",
}
_COMMENTED = re.compile(r"^\s*//|/\*|,\s*[}\]]|[,{\[]\s*//", re.MULTILINE)


class McpConfig(Struct, frozen=True, kw_only=True):
    """The servers of a file.

    Attributes:
        path: the file.
        servers: the registrations, in the order of the file, as `log.servers.set_all` takes them.
        notes: what of the file was not taken over as it stands, one sentence each.
    """

    path: str
    servers: tuple[ServerMeta, ...]
    notes: tuple[str, ...] = ()


def read_mcp_config(path: str | Path, *, only: Sequence[str] = ()) -> McpConfig:
    """Read the MCP servers of a file. Nothing is started or recorded.

    Relative folders are seen from `${workspaceFolder}`: the folder that has the file's `.vscode` or `.cursor`, else the
    folder that the file is in.

    Args:
        path: the file.
        only: the servers to read, as the file calls them; by default all that it has.

    Raises:
        MetaError: the file cannot be read, or a server cannot be registered; says which, and what to do.
        SecretError: a value looks like a secret: says which, and how to name it instead. It is not repeated.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise MetaError(f"{str(file)!r}: {os_reason(error)}", field="mcp_config") from error
    if len(content) > BYTES_MAX:
        raise MetaError(f"{str(file)!r} is larger than {BYTES_MAX} bytes: it is no list of servers", field="mcp_config")
    folder = file.absolute().parent
    try:
        return parse_mcp_config(
            content,
            path=str(file),
            workspace=folder.parent if folder.name in (".vscode", ".cursor") else folder,
            only=only,
        )
    except MetaError as error:
        raise MetaError(masked_forms(f"{str(file)!r}: {error}"), field=error.field) from error
    except SecretError as error:
        raise SecretError(masked_forms(f"{str(file)!r}: {error}"), field=error.field) from error


def parse_mcp_config(content: bytes | str, *, path: str, workspace: Path, only: Sequence[str] = ()) -> McpConfig:
    """Read the MCP servers of the content of a file: see `read_mcp_config`.

    Args:
        content: the JSON.
        path: what to call it.
        workspace: what `${workspaceFolder}` stands for.
        only: the servers to read.
    """
    given = _decoded(content)
    found = [place for place in _PLACES if place in given]
    if len(found) != 1:
        what = "both " + " and ".join(found) if found else "no `mcpServers` or `servers`"
        raise MetaError(f"it has {what}: expected one of them", field="mcp_config")
    [place] = found
    notes: list[str] = []
    extra = [name for name in given if name not in (place, "inputs", "$schema")]
    if extra and path.rpartition("/")[2] != "claude_desktop_config.json":  # which has the other settings too
        notes.append(f"not read: {', '.join(extra)}")
    texts = Texts(workspace=workspace, inputs=inputs_of(given.get("inputs", [])))
    servers: list[ServerMeta] = []
    named = _record(given[place], place)
    unknown = next((name for name in only if name not in named), None)
    if unknown is not None:
        raise MetaError(f"{place}: there is no {unknown!r} (one of {', '.join(map(repr, named))})", field=place)
    for name, fields in named.items():
        if only and name not in only:
            continue
        server = _Server(f"{place}.{name}", name, _record(fields, f"{place}.{name}"), texts)
        meta = server.meta()
        notes += server.notes
        if meta is not None:
            servers.append(meta)
    _refuse_twins(servers)
    return McpConfig(path=path, servers=tuple(servers), notes=tuple(map(masked_forms, (*notes, *texts.notes))))


class _Server:
    """One server of a file on its way to a registration."""

    def __init__(self, place: str, own_name: str, fields: Mapping[str, object], texts: Texts) -> None:
        self._place = place
        self._own_name = own_name
        self._fields = fields
        self._texts = texts
        self.notes: list[str] = []

    def meta(self) -> ServerMeta | None:
        """Return the registration; None for a server that the file turns off.

        Raises:
            MetaError: there is none.
            SecretError: it would hold a secret.
        """
        if self._is_off():
            self.notes.append(f"{self._own_name!r} is turned off in the file, and left out")
            return None
        self._note_unknown()
        url, command = self._address(), self._text("command")
        if (command is None) == (url is None):
            what = "neither" if url is None else "both"
            raise self._wrong("", f"a server has a `command` or a `url`, and this is {what}")
        meta = ServerMeta(
            action="register",
            name=self._name(),
            timeout_s=self._seconds("timeout_s"),
            start_timeout_s=self._seconds("start_timeout_s"),
        )
        return self._program(meta, command or "") if url is None else self._remote(meta, url)

    def _program(self, meta: ServerMeta, program: str) -> ServerMeta:
        self._refuse_fields("headers", "is for a `url`; a program takes `env`")
        command = (program, *self._arguments())
        try:
            refuse_secrets_in_argv(command, field="command")
        except SecretError as error:
            # `command[2]` of the registration is `args[1]` of the file.
            index = int(error.field.partition("[")[2].rstrip("]")) - 1
            raise self._secret("command" if index < 0 else f"args[{index}]") from error
        env: list[str] = []
        env_values: dict[str, str] = {}
        for name, value in self._values("env").items():
            if only_variable(value) == name:
                env.append(name)
            else:
                env_values[name] = value
        cwd = self._text("cwd")
        if cwd is not None and not cwd.startswith(("/", "${")):
            cwd = str(self._texts.workspace / in_home(cwd, partial(self._wrong, "cwd")))
        return msgspec.structs.replace(
            meta,
            command=command,
            cwd=cwd,
            env=tuple(env),
            env_values=env_values,
            expands=any(map(variables_in, (*command, cwd or ""))),
        )

    def _remote(self, meta: ServerMeta, url: str) -> ServerMeta:
        for key in ("args", "env", "cwd"):
            self._refuse_fields(key, "is for a `command`; a `url` takes `headers`")
        try:
            refuse_secrets_in_url(url, field="url")
        except SecretError as error:
            raise self._secret("url") from error
        if not url.startswith("${"):
            check_address(url, field=f"{self._place}.url")
        header_env: dict[str, str] = {}
        header_values: dict[str, str] = {}
        for name, value in self._values("headers").items():
            variable = only_variable(value)
            if variable is None:
                header_values[name] = value
            else:
                header_env[name] = variable
        return msgspec.structs.replace(
            meta, url=url, header_env=header_env, header_values=header_values, expands=bool(variables_in(url))
        )

    # What the file has

    def _is_off(self) -> bool:
        for key, off in (("disabled", True), ("enabled", False)):
            value = self._fields.get(key, not off)
            if not isinstance(value, bool):
                raise self._wrong(key, "expected true or false")
            if value is off:
                return True
        return False

    def _note_unknown(self) -> None:
        for key in self._fields:
            if key not in _READ:
                self.notes.append(
                    f"{self._place}.{key} is not read" + (f": {_INSTEAD[key]}" if key in _INSTEAD else "")
                )

    def _name(self) -> str:
        name = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", self._own_name)).strip("_")
        if not any(map(str.isalnum, name)):
            raise self._wrong("", "the name of a server has letters, digits, - and _")
        if name != self._own_name:
            self.notes.append(f"{self._own_name!r} is called {name!r} here: names have letters, digits, - and _ only")
        return name

    def _address(self) -> str | None:
        """Return the address, None for a server without one."""
        kinds = [value for key in ("type", "transport") if (value := self._fields.get(key)) is not None]
        found = [key for key in _URLS if self._fields.get(key) is not None]
        if any(kind == "sse" for kind in kinds):
            raise self._wrong(
                "type",
                "turnlog does not speak the old transport `sse`: give the server's address for streamable HTTP with"
                ' "type": "http", which most have (often it ends with /mcp in place of /sse), or run a bridge as'
                " `command`, such as `npx mcp-remote URL`",
            )
        for kind in kinds:
            if not isinstance(kind, str) or kind not in (_HTTP if found else _STDIO):
                expected = "http" if found else "stdio"
                raise self._wrong("type", f"{kind!r} is not what it can be here: expected {expected!r}")
        if len(found) > 1:
            raise self._wrong(found[1], f"it has {found[0]} too: leave one of them out")
        return self._text(found[0]) if found else None

    def _text(self, key: str) -> str | None:
        value = self._fields.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "expected a text")
        return self._texts.rewritten(value, f"{self._place}.{key}")

    def _arguments(self) -> list[str]:
        given = self._fields.get("args")
        if given is None:
            return []
        if not isinstance(given, list):
            raise self._wrong("args", "expected an array of texts")
        found: list[str] = []
        for index, value in enumerate(cast("list[object]", given)):
            if not isinstance(value, str):
                raise self._wrong(f"args[{index}]", "expected a text")
            found.append(self._texts.rewritten(value, f"{self._place}.args[{index}]"))
        return found

    def _values(self, key: str) -> dict[str, str]:
        """Return variables or headers: names and values, none of which is a secret."""
        given = self._fields.get(key)
        if given is None:
            return {}
        found: dict[str, str] = {}
        for name, value in _record(given, f"{self._place}.{key}").items():
            place = f"{key}.{name}"
            twin = next((other for other in found if key == "headers" and other.lower() == name.lower()), None)
            if twin is not None:
                raise self._wrong(place, f"it has {twin!r} too, which is the same header: leave one of them out")
            match value:
                case str():
                    text = self._texts.rewritten(value, f"{self._place}.{place}")
                case bool() | int() | float():
                    text = json.dumps(value)
                case None:
                    self.notes.append(f"{self._place}.{place} is null, and left out")
                    continue
                case _:
                    raise self._wrong(place, "expected a text")
            try:
                refuse_secret_value(name, text, field=place)
            except SecretError as error:
                raise self._secret(place, name if key == "env" else None) from error
            found[name] = text
        return found

    def _seconds(self, field: str) -> float | None:
        """Return a time-out in seconds, None where the file has none."""
        for key, (of, factor) in _TIMEOUTS.items():
            value = self._fields.get(key)
            if of != field or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MILLISECONDS_MAX:
                raise self._wrong(key, f"expected a number above 0, up to {MILLISECONDS_MAX:,.0f}")
            if factor is not None:
                return value * factor
            seconds = value / 1000 if value >= MILLISECONDS_MIN else float(value)
            self.notes.append(f"{self._place}.timeout is read as {seconds:g} s")
            return seconds
        return None

    def _refuse_fields(self, key: str, why: str) -> None:
        if self._fields.get(key):
            raise self._wrong(key, why)

    def _wrong(self, key: str, why: str) -> MetaError:
        place = f"{self._place}.{key}" if key else self._place
        return MetaError(f"{place}: {why}", field=place)

    def _secret(self, key: str, variable: str | None = None) -> SecretError:
        """Return what to say of a literal secret. It is not repeated."""
        place = f"{self._place}.{key}"
        if variable is None or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", variable):
            variable = re.sub("[^A-Z0-9]+", "_", self._own_name.upper()).strip("_") + "_TOKEN"
        return SecretError(
            f"{place}: looks like a secret, and secrets never enter the log: write ${{{variable}}} in its place, and"
            f" set {variable} in the environment or with `keyring set turnlog {variable}`",
            field=place,
        )


def _decoded(content: bytes | str) -> Mapping[str, object]:
    """Return the JSON object of a file.

    Raises:
        MetaError: it is none, or has a key twice.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MetaError(f"it is not UTF-8 (byte {error.start})", field="mcp_config") from error
    try:
        found: object = json.loads(text, object_pairs_hook=_pairs)
    except RecursionError as error:
        raise MetaError("it is nested too deeply", field="mcp_config") from error
    except json.JSONDecodeError as error:
        hint = ": take comments and commas before a closing bracket out" if _COMMENTED.search(text) else ""
        raise MetaError(
            f"it is no JSON ({error.msg.lower()}, line {error.lineno} column {error.colno}){hint}", field="mcp_config"
        ) from error
    except ValueError as error:  # Python reads no number of thousands of digits
        raise MetaError("a number in it has too many digits", field="mcp_config") from error
    return _record(found, "the file")


def _pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise MetaError(f"it has {name!r} twice in one object: rename one of them", field=name)
        found[name] = value
    return found


def _record(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise MetaError(f"{place}: expected an object", field=place)
    return cast("dict[str, object]", value)


def _refuse_twins(servers: Sequence[ServerMeta]) -> None:
    names = [meta.name for meta in servers]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise MetaError(f"two servers would be called {name!r}: rename one of them", field="name")
