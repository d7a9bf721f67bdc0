"""`turnlog mcp`: register MCP servers, see their tools, and try them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from cyclopts import App, Parameter
from msgspec import Raw, Struct

from turnlog.agent.mcp.config import read_mcp_config
from turnlog.agent.mcp.launch import unset_variables
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.toolbox import ToolOutcome
from turnlog.cli.blocks import write_blocks
from turnlog.cli.completing import SERVER
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, check_output, note, telling, write_json, write_json_lines
from turnlog.cli.parameters import seconds
from turnlog.cli.registers import tell_unusable
from turnlog.cli.text import one_line, printable, to_decide_on
from turnlog.cli.usage import STANDARD_STREAM, named_file
from turnlog.log import TurnLog
from turnlog.model import ServerMeta, Tool, content_bytes
from turnlog.model.json_text import minify
from turnlog.model.long_strings import LongStrings

T = TypeVar("T")

EXIT_TOOL_ERROR = 1
"""The tool answered that something went wrong, or did not answer."""

app = App(name="mcp", group_commands="Commands", help="Register MCP servers; list their tools and call them.")
app.command(
    "turnlog.cli.commands.mcp_login:login",
    name="login",
    help="Log in at a server over HTTP (OAuth). The tokens are kept in the keyring.",
)
app.command(
    "turnlog.cli.commands.mcp_login:logout", name="logout", help="Take the tokens of a server out of the keyring."
)


@app.default
def list_servers(*, common: Common = COMMON) -> None:
    """Register MCP servers; list their tools and call them. Without a command: list the servers."""
    with common.open_or_empty() as log:
        found = log.servers.all()
        tell_unusable(log, "MCP server")
    if common.json:
        write_json_lines(map(_record, found))
        return
    if not found:
        note(
            "no MCP servers yet: `turnlog mcp register NAME -- COMMAND…` or `… NAME --url URL` registers one,"
            " `turnlog mcp import FILE` those of an mcp.json"
        )
        return
    Screen.of_stdout().table([_row(meta) for meta in found])


@app.command(name="list")
def list_(*, common: Common = COMMON) -> None:
    """List the registered servers."""
    list_servers(common=common)


@app.command
def register(  # noqa: PLR0913 - one option for each thing that can be said of a server
    name: str,
    /,
    *command: str,
    url: Annotated[
        str | None, Parameter(help="The address of a server over streamable HTTP, in place of COMMAND.")
    ] = None,
    env: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="The name of an environment variable that the program gets too. Its value is never recorded.",
        ),
    ] = (),
    header: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="HEADER=VARIABLE: an HTTP header, and the environment variable that holds its whole value.",
        ),
    ] = (),
    cwd: Annotated[Path | None, Parameter(help="The folder to run the program in. By default the current one.")] = None,
    root: Annotated[
        tuple[Path, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="A folder that the server is told of when it asks for roots. Give it again for more.",
        ),
    ] = (),
    timeout: Annotated[float | None, Parameter(help="How long one call may take, in seconds. By default 60.")] = None,
    start_timeout: Annotated[
        float | None,
        Parameter(help="How long it may take to start, and to list its tools, in seconds. By default 30."),
    ] = None,
    common: Common = COMMON,
) -> None:
    """Register an MCP server, or register it anew: a program that is run here, or an address.

    Put -- before COMMAND: `turnlog mcp register files --env TOKEN -- npx -y some-server ~/notes`. Nothing is started
    yet: `turnlog mcp tools NAME` does that.

    Parameters
    ----------
    name
        The server: the part of the names of its tools before `___`.
    command
        The program and its arguments.
    """
    if bool(command) == (url is not None):
        what = "both" if command else "neither"
        raise UsageError(
            f"a server is a command to run or a --url, and this is {what}: see turnlog mcp register --help"
        )
    if command and not command[0].strip():
        raise UsageError("COMMAND begins with an empty word: give the program to run")
    if command and command[0].startswith(("http://", "https://")):
        raise UsageError("a program is run here, and this is an address: give it as --url URL")
    if url is not None and (env or cwd is not None):
        raise UsageError("--env and --cwd are for a program that is run here; a --url takes --header")
    if url is None and header:
        raise UsageError("--header is for a --url; a program that is run here takes --env")
    folder = None if cwd is None else str(_folder(cwd))
    variables = tuple(_variable(variable, "--env") for variable in env)
    header_env = _headers(header)
    meta = common.record(
        lambda log: log.servers.set(
            name,
            command,
            url=url,
            cwd=folder,
            env=variables,
            header_env=header_env,
            roots=[str(_folder(path, "--root")) for path in root],
            timeout_s=None if timeout is None else seconds(timeout),
            start_timeout_s=None if start_timeout is None else seconds(start_timeout, "--start-timeout"),
        )
    )
    with telling(f"MCP server {name!r} is registered, and that is recorded, but could not be printed"):
        if common.json:
            write_json(_record(meta))
            return
        shown, where, details = _row(meta)
        Screen.of_stdout().line(("registered ", "dim"), shown, "  ", where, ("  ", "dim"), details)


@app.command(name="import")
def import_(
    file: Path,
    /,
    *names: str,
    dry_run: Annotated[
        bool, Parameter(negative=(), help="Say what would be registered, and register nothing.")
    ] = False,
    common: Common = COMMON,
) -> None:
    """Register the MCP servers of another program's file: mcp.json, claude_desktop_config.json, .vscode/mcp.json.

    All of them are registered, or none; nothing is started. ${NAME} in the file stands for a variable of the
    environment, or of the keyring, each time that a server is started. A secret that is written out is refused. What
    cannot be taken over is said on standard error.

    Parameters
    ----------
    file
        The file, JSON with `mcpServers` or `servers`.
    names
        The servers to register, as the file calls them. By default all that it has.
    """
    config = read_mcp_config(named_file(file, "mcp import"), only=names)
    if dry_run:
        check_output()
        with TurnLog.open("memory://") as empty:
            empty.servers.set_all(config.servers)
        with common.open_or_empty() as log:
            held = log.servers.all()
        done = [meta for meta in config.servers if meta not in held]
    else:
        done = common.record(lambda log: log.servers.set_all(config.servers))
    unchanged = [meta.name for meta in config.servers if meta not in done]
    with telling(f"the servers of {str(file)!r} are registered, and that is recorded, but could not be printed"):
        for line in (*config.notes, *unset_variables(config.servers)):
            note(line)
        if common.json:
            write_json({"registered": [_record(meta) for meta in done], "unchanged": unchanged, "dry_run": dry_run})
            return
        said = "would register" if dry_run else "registered"
        rows: list[list[Piece]] = [[(said, "dim"), *_row(meta)] for meta in done]
        rows += [[("unchanged", "dim"), *_row(meta)] for meta in config.servers if meta not in done]
        Screen.of_stdout().table(rows)
        if not rows:
            note(f"{one_line(str(file))} has no servers to register")


@app.command
def unregister(name: Annotated[str, SERVER], /, *, common: Common = COMMON) -> None:
    """Take a server away. What was recorded of its tools stays.

    Parameters
    ----------
    name
        The server.
    """
    common.record(lambda log: log.servers.delete(name))
    with telling(f"MCP server {name!r} is unregistered, and that is recorded, but could not be printed"):
        if common.json:
            write_json({"name": name})
        else:
            Screen.of_stdout().line(("unregistered ", "dim"), (one_line(name), "bold green"))


@app.command
def tools(name: Annotated[str, SERVER], /, *, common: Common = COMMON) -> None:
    """List the tools of a server, by the names that models see. This starts the server, or connects to it.

    Parameters
    ----------
    name
        The server.
    """
    with common.open_or_empty() as log:
        meta = log.servers.get(name)
    with OwnLoop() as loop:
        found, notes = loop.run(_listed(meta))
    for line in notes:
        note(line)
    if common.json:
        write_json_lines(
            msgspec.json.decode(msgspec.json.encode(tool), type=dict[str, Raw]) | {"tool": own} for tool, own in found
        )
        return
    if not found:
        note(f"{one_line(name)} has no tools")
        return
    rows: list[list[Piece]] = [
        [
            (tool.name, "bold blue"),
            (one_line(_arguments(tool)), "cyan"),
            (one_line(("" if tool.name.endswith(own) else f"({own}) ") + _summary(tool.description)), ""),
        ]
        for tool, own in found
    ]
    Screen.of_stdout().table(rows)


@app.command
def resources(name: Annotated[str, SERVER], /, *, common: Common = COMMON) -> None:
    """List the resources of a server. `turnlog run --resource NAME/URI` puts one before a question.

    Parameters
    ----------
    name
        The server.
    """
    with common.open_or_empty() as log:
        meta = log.servers.get(name)
    with OwnLoop() as loop:
        found = loop.run(_used(meta, lambda servers: servers.resources(name)))
    if common.json:
        write_json_lines(found)
        return
    if not found:
        note(f"{one_line(name)} has no resources")
        return
    rows: list[list[Piece]] = [
        [
            (one_line(item.uri), "bold blue"),
            (one_line(f"{item.media_type} {'(a template)' if item.is_template else ''}".strip()), "cyan"),
            (one_line(f"{item.name}  {item.description}".strip()), ""),
        ]
        for item in found
    ]
    Screen.of_stdout().table(rows)


@app.command
def prompts(
    name: Annotated[str, SERVER],
    prompt: str | None = None,
    /,
    *arguments: str,
    common: Common = COMMON,
) -> None:
    """List the prompts of a server, or print one as text: `turnlog mcp prompts NAME PROMPT | turnlog run`.

    Parameters
    ----------
    name
        The server.
    prompt
        The prompt to print.
    arguments
        Its arguments, each NAME=VALUE.
    """
    given: dict[str, str] = {}
    for text in arguments:
        argument, equals, value = text.partition("=")
        if not argument or not equals or argument in given:
            raise UsageError(f"{text!r}: give each argument of a prompt once, as NAME=VALUE")
        given[argument] = value
    with common.open_or_empty() as log:
        meta = log.servers.get(name)
    with OwnLoop() as loop:
        if prompt is not None:
            said = loop.run(_used(meta, lambda servers: servers.prompt(name, prompt, given)))
            if common.json:
                write_json({"text": said})
            else:
                Screen.of_stdout().text(printable(said))
            return
        found = loop.run(_used(meta, lambda servers: servers.prompts(name)))
    if common.json:
        write_json_lines(found)
        return
    if not found:
        note(f"{one_line(name)} has no prompts")
        return
    rows: list[list[Piece]] = [
        [
            (one_line(item.name), "bold blue"),
            (one_line(" ".join(item.arguments)), "cyan"),
            (one_line(item.description), ""),
        ]
        for item in found
    ]
    Screen.of_stdout().table(rows)


@app.command
def call(
    name: Annotated[str, SERVER],
    tool: str,
    arguments: str = "{}",
    /,
    *,
    timeout: Annotated[float | None, Parameter(help="How long the call may take, in seconds.")] = None,
    common: Common = COMMON,
) -> int:
    """Call a tool of a server and print what it answers. Nothing is recorded.

    Exit status 1 when the tool answered with an error, or not at all.

    Parameters
    ----------
    name
        The server.
    tool
        The tool, by the server's name for it or by the one that models see.
    arguments
        The arguments as a JSON object; - reads them from standard input. Integers go to the tool as they are, other
        numbers as 64-bit floats; where one is another number then, the result says so.
    """
    check_output()
    given = _object(sys.stdin.buffer.read() if arguments == STANDARD_STREAM else arguments)
    with common.open_or_empty() as log:
        meta = log.servers.get(name)
    if timeout is not None:
        meta = msgspec.structs.replace(meta, timeout_s=seconds(timeout))
    with OwnLoop() as loop:
        outcome = loop.run(_called(meta, tool, given))
    if common.json:
        write_json({"content": Raw(content_bytes(outcome.content)), "is_error": outcome.is_error})
    else:
        write_blocks(Screen.of_stdout(), outcome.content, LongStrings(), whole=True)
    return EXIT_TOOL_ERROR if outcome.is_error else 0


async def _listed(meta: ServerMeta) -> tuple[list[tuple[Tool, str]], Sequence[str]]:
    """Return the tools of a server, each with the server's own name for it, and what there is to say of them."""
    async with McpTools([meta]) as toolbox:
        return [(tool, _own_name(toolbox, tool.name)) for tool in await toolbox.tools()], toolbox.notes()


async def _used(meta: ServerMeta, use: Callable[[McpTools], Coroutine[Any, Any, T]]) -> T:
    async with McpTools([meta]) as servers:
        return await use(servers)


async def _called(meta: ServerMeta, tool: str, arguments: Raw) -> ToolOutcome:
    async with McpTools([meta]) as toolbox:
        own = {_own_name(toolbox, listed.name): listed.name for listed in await toolbox.tools()}
        full = tool if tool in own.values() else own.get(tool)
        if full is None:
            close = get_close_matches(tool, [*own, *own.values()], n=1)
            hint = f", did you mean {close[0]!r}" if close else ""
            raise UsageError(f"MCP server {meta.name!r} has no tool {tool!r}{hint}: see turnlog mcp tools {meta.name}")
        return await toolbox.call(full, arguments)


def _own_name(toolbox: McpTools, name: str) -> str:
    origin = toolbox.origin(name)
    return name if origin is None else origin.tool


def _object(text: str | bytes) -> Raw:
    """Return the arguments of a call, spelled as they were given but for whitespace outside strings."""
    given = minify(text, field="arguments")
    if given[:1] != b"{":
        raise UsageError("""arguments: expected a JSON object, such as '{"path": "."}'""")
    return Raw(given)


def _folder(path: Path, option: str = "--cwd") -> Path:
    if not path.is_dir():
        raise UsageError(f"{option}: there is no folder {str(path)!r}")
    return path.resolve()


def _variable(name: str, option: str) -> str:
    """Return the name of an environment variable. What cannot be one may be a secret, and is not repeated."""
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"{option} takes the name of an environment variable, such as API_TOKEN, and never its value")
    return name


def _headers(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        header, equals, variable = text.partition("=")
        if not equals or not header.replace("-", "").replace("_", "").isalnum() or not header.isascii():
            raise UsageError("--header takes HEADER=VARIABLE, such as Authorization=API_TOKEN")
        if header.lower() in map(str.lower, found):
            raise UsageError(f"--header {header} is given twice")
        found[header] = _variable(variable, f"--header {header}")
    return found


def _record(meta: ServerMeta) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(meta)
    del record["action"]
    return record


def _row(meta: ServerMeta) -> list[Piece]:
    """Return what is shown of a server. Nothing in it is unseen: it says what runs here."""
    name, where, details = (to_decide_on(one_line(text)) for text in (meta.name, _where(meta), _details(meta)))
    return [(name, "bold green"), where, (details, "dim")]


def _where(meta: ServerMeta) -> str:
    return shlex.join(meta.command) if meta.url is None else meta.url


def _details(meta: ServerMeta) -> str:
    details = [f"env {name}" for name in meta.env]
    details += [f"{name}={value}" for name, value in meta.env_values.items()]
    details += [f"{header} from {name}" for header, name in meta.header_env.items()]
    details += [f"{header}: {value}" for header, value in meta.header_values.items()]
    details += [] if meta.cwd is None else [f"in {meta.cwd}"]
    details += [f"root {path}" for path in meta.roots]
    details += [] if meta.timeout_s is None else [f"up to {meta.timeout_s:g} s a call"]
    details += [] if meta.start_timeout_s is None else [f"up to {meta.start_timeout_s:g} s to start"]
    return ", ".join(details)


class _Schema(Struct):
    properties: dict[str, Raw] = {}
    required: tuple[str, ...] = ()


def _summary(description: str) -> str:
    """Return the first line of a description, without a sentence at its end that only leads to the next one."""
    line = description.strip().split("\n")[0].rstrip()
    before, end, _ = line.rpartition(". ")
    return f"{before}." if end and line.endswith(":") else line


def _arguments(tool: Tool) -> str:
    """Return the names of a tool's arguments; the optional ones end with a question mark."""
    try:
        schema = msgspec.json.decode(tool.input_schema, type=_Schema)
    except msgspec.ValidationError:
        return ""
    return " ".join(name if name in schema.required else f"{name}?" for name in schema.properties)
