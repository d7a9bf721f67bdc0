"""Serve the MCP server of a page over HTTP: `python serve_mcp.py FILE`. It prints its port when it listens."""

import runpy
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer


def serve(file: str) -> None:
    """Serve the object `server` of a file on a free port, until the process is ended."""
    server = runpy.run_path(file, run_name="page")["server"]
    assert isinstance(server, MCPServer)
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error", ws="none")).run(sockets=[listening])


if __name__ == "__main__":
    serve(sys.argv[1])
