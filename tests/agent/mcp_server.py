"""An MCP server made with the official SDK, to be run as a program: over stdio, or with `http [PORT]` over HTTP.

With `program FILE ARGUMENT…` it is the server that is in a file: the SDK is imported by then (see `forked_servers.py`).

Over HTTP it prints its port when it listens. With MCP_TEST_TOKEN in its environment it wants that as a bearer token,
and with MCP_TEST_LOGIN a login, which nobody gets where that is `refused`; MCP_TEST_METADATA is JSON of what its
authorization server says otherwise of itself.
"""

import json
import os
import runpy
import socket
import sys
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.agent.oauth import Protected

PNG = b"\x89PNG\r\n\x1a\n\x00"
PDF = b"%PDF-1.7\n"
WAV = b"RIFF\x00\x00\x00\x00WAVE"

server = MCPServer("test", log_level="CRITICAL")
process_id = os.getpid()
"""The process that was started as a server: see `forked_servers.py`."""

waiting: dict[str, list[anyio.Event]] = {}


class Weather(BaseModel):
    """What `weather` returns."""

    city: str
    degrees: float


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool(structured_output=False)
def arguments(given: dict[str, Any]) -> str:
    """Return what was given, as Python has it."""
    return repr(given)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def words(text: str) -> list[str]:
    """Split text into words."""
    return text.split()


@server.tool()
def weather(city: str) -> Weather:
    """Tell the weather."""
    return Weather(city=city, degrees=21.5)


@server.tool()
def only_structured() -> CallToolResult:
    """Return structured content without any other."""
    return CallToolResult(content=[], structured_content={"b": 1, "a": [1.5, None, "é"]})


@server.tool()
def everything() -> CallToolResult:
    """Return content of every kind."""
    return CallToolResult(
        content=[
            TextContent(text="Hello"),
            ImageContent(data=b64encode(PNG).decode(), mime_type="image/png"),
            AudioContent(data=b64encode(WAV).decode(), mime_type="audio/wav"),
            EmbeddedResource(
                resource=TextResourceContents(uri="file:///notes.md", mime_type="text/markdown", text="# Notes")
            ),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///paper.pdf", blob=b64encode(PDF).decode())),
            ResourceLink(
                uri="file:///big.csv", name="big.csv", description="All rows", mime_type="text/csv", size=12345
            ),
        ]
    )


@server.tool(structured_output=False)
def fail(message: str) -> str:
    """Fail."""
    raise ToolError(message)


@server.tool(structured_output=False)
def huge(characters: int) -> str:
    """Return much text."""
    return "x" * characters


@server.tool(structured_output=False)
def process() -> str:
    """Return the id of the process."""
    return str(process_id)


@server.tool(structured_output=False)
def variables() -> str:
    """Return the names of the environment variables."""
    return " ".join(sorted(os.environ))


@server.tool(structured_output=False)
def folder() -> str:
    """Return the folder that the server runs in."""
    return os.getcwd()  # noqa: PTH109 - text


@server.tool(structured_output=False)
def crash(message: str) -> str:
    """End the process at once."""
    print(message, file=sys.stderr, flush=True)
    os._exit(3)


@server.tool(structured_output=False)
async def wait() -> str:
    """Wait for ever, while other requests are answered."""
    await anyio.sleep_forever()
    return ""


@server.tool(structured_output=False)
async def hang() -> str:
    """Hang, so that nothing is answered any more."""
    threading.Event().wait()
    return ""


@server.tool(structured_output=False)
async def meet(place: str, people: int) -> str:
    """Return when so many calls wait at a place."""
    here = waiting.setdefault(place, [])
    here.append(anyio.Event())
    if len(here) == people:
        for event in here:
            event.set()
    await here[-1].wait()
    return "met"


@server.tool(structured_output=False)
async def steps(count: int, ends: bool, context: Context) -> str:
    """Take steps and say so, then end, or not."""
    for step in range(1, count + 1):
        await context.report_progress(step, count, f"step {step}")
    if not ends:
        await anyio.sleep_forever()
    return "walked"


@server.tool(structured_output=False)
async def learn(name: str, context: Context) -> str:
    """Add a tool, or put it in the place of another, and say so."""
    with suppress(ToolError):
        server.remove_tool(name)
    server.add_tool(echo, name=name, description="Learnt.", structured_output=False)
    await context.session.send_tool_list_changed()
    return "learnt"


@server.resource("notes://todo.md", mime_type="text/markdown", description="What is to do.")
def todo() -> str:
    """Return text."""
    return "# Milk"


@server.resource("notes://logo", mime_type="image/png")
def logo() -> bytes:
    """Return bytes."""
    return PNG


@server.resource("notes://{day}/diary")
def diary(day: str) -> str:
    """Return text of a template."""
    return f"On {day} it rained."


@server.prompt(description="Ask for a summary.")
def summarize(text: str, style: str = "brief") -> str:
    """Return a question."""
    return f"Summarize, {style}: {text}"


def guarded(app: Callable[..., Awaitable[None]], token: str | None) -> Callable[..., Awaitable[None]]:
    """Return an app that answers 401 to requests without the token."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and token and dict(scope["headers"]).get(b"authorization") != token.encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await app(scope, receive, send)

    return guard


def serve_http(port: int) -> None:
    """Serve on a port, or with 0 on a free one, and print which as soon as connections are taken."""
    listening = socket.create_server(("127.0.0.1", port), backlog=64)
    app = guarded(server.streamable_http_app(), os.environ.get("MCP_TEST_TOKEN"))
    if "MCP_TEST_LOGIN" in os.environ:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        changed = json.loads(os.environ.get("MCP_TEST_METADATA", "{}"))
        app = Protected(app, base, refuses=os.environ["MCP_TEST_LOGIN"] == "refused", changed=changed)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none")).run(sockets=[listening])


def main(given: Sequence[str]) -> None:
    """Serve as the arguments say."""
    if given[:1] == ["program"]:
        sys.argv[:] = given[1:]
        sys.path.insert(0, str(Path(given[1]).parent))
        runpy.run_path(given[1], run_name="__main__")
    elif given[:1] == ["http"]:
        serve_http(int(given[1]) if len(given) > 1 else 0)
    else:
        server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
