"""`turnlog mcp login` and `logout`: OAuth at MCP servers over HTTP."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from turnlog.agent.mcp.grants import forget_grant
from turnlog.agent.own_loop import OwnLoop
from turnlog.cli.completing import SERVER
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json
from turnlog.cli.parameters import seconds
from turnlog.cli.text import count, one_line
from turnlog.errors import ToolServerError
from turnlog.model import ServerMeta


def login(
    name: Annotated[str, SERVER],
    /,
    *,
    browser: Annotated[bool, Parameter(help="Open a browser. Without it the address to open is only printed.")] = True,
    port: Annotated[
        int, Parameter(help="The port of this machine that the browser comes back to. By default any that is free.")
    ] = 0,
    wait: Annotated[float, Parameter(help="How long to wait for you, in seconds.")] = 300.0,
    common: Common = COMMON,
) -> None:
    """Log in at a server over HTTP (OAuth). The tokens are kept in the keyring, and renewed when runs use the server.

    Parameters
    ----------
    name
        The server.
    """
    wait_s = seconds(wait, "--wait")
    with common.open_or_empty() as log:
        meta = log.servers.get(name)
    with OwnLoop() as loop:
        wanted, found = loop.run(_logged_in(meta, port=port, opens=browser, wait_s=wait_s))
    done = "you are logged in at" if wanted else "nobody need log in at"
    with telling(f"{done} MCP server {name!r}, but that could not be printed"):
        if common.json:
            write_json({"name": name, "logged_in": wanted, "tools": found})
        elif wanted:
            Screen.of_stdout().line(
                ("logged in at ", "dim"), (one_line(name), "bold green"), (f": {count(found, 'tool')}", "")
            )
        else:
            note(f"{one_line(name)} wants no login: it has listed {count(found, 'tool')} without one")


def logout(name: Annotated[str, SERVER], /, *, common: Common = COMMON) -> None:
    """Take the tokens of a server out of the keyring.

    Parameters
    ----------
    name
        The server.
    """
    done = forget_grant(name)
    with telling(f"the keyring has no login at MCP server {name!r} any more, but that could not be printed"):
        if common.json:
            write_json({"name": name, "logged_out": done})
        elif done:
            Screen.of_stdout().line(("logged out of ", "dim"), (one_line(name), "bold green"))
        else:
            note(f"the keyring has no login at {one_line(name)}")


async def _logged_in(meta: ServerMeta, *, port: int, opens: bool, wait_s: float) -> tuple[bool, int]:
    try:
        from turnlog.cli.login import log_in  # noqa: PLC0415 - it imports the SDK, an extra
    except ImportError as error:
        raise ToolServerError(
            f"MCP server {meta.name!r} needs the package `mcp`: install it with `pip install 'turnlog[mcp]'`",
            server=meta.name,
        ) from error
    return await log_in(meta, port=port, opens=opens, wait_s=wait_s)
