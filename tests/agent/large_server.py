"""An MCP server whose answers are large, by hand: over stdio, or over HTTP at a port that it prints.

Arguments: a case, how many, and `json` or `sse` for HTTP.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

ANY = {"type": "object"}
CASE, COUNT = sys.argv[1], int(sys.argv[2])


def tool(number: int) -> Json:
    """Return a tool with a schema of 20 properties, nested more than three deep."""
    words = {"type": "object", "properties": {"deep": {"type": "object", "properties": {"er": {"enum": [[[1]]]}}}}}
    properties = {f"p{index}": {"type": "string", "description": "x" * 50} for index in range(20)}
    return {
        "name": f"t{number}",
        "description": "d" * 200,
        "inputSchema": {**ANY, "properties": {**properties, "words": words}},
    }


def listing(cursor: int) -> Json:
    """Return the tools, or a page of them."""
    go = {"name": "go", "inputSchema": ANY}
    match CASE:
        case "tools":
            return {"tools": [go, *map(tool, range(COUNT))]}
        case "pages":
            end = min(COUNT, cursor + 100)
            more = {"nextCursor": str(end)} if end < COUNT else {}
            return {"tools": [*([] if cursor else [go]), *map(tool, range(cursor, end))], **more}
        case "schema":
            wide = {f"p{index}": {"type": "string", "description": "é"} for index in range(COUNT)}
            long = {"long": {"type": "string", "description": "y" * 20_000}}
            return {"tools": [{"name": "go", "inputSchema": {**ANY, "properties": {**wide, **long}}}]}
        case _:
            return {"tools": [go]}


def called() -> Json:
    """Return the result of the tool."""
    text = {"type": "text", "text": "gone"}
    if CASE == "asks":
        for number in range(COUNT):  # and reads no answer meanwhile
            print(json.dumps({"jsonrpc": "2.0", "id": f"a{number}", "method": "ping"}), flush=True)
    match CASE:
        case "parts":
            return {"content": [{"type": "text", "text": f"part {number}"} for number in range(COUNT)]}
        case "wide":
            return {"content": [text], "structuredContent": {"é": list(range(COUNT)), "n": [{"a": [{}]}] * 9}}
        case _:
            return {"content": [text]}


def result(method: str, params: Json) -> Json | None:
    """Return the result of a request, None for an unknown method."""
    match method:
        case "initialize":
            info = {"name": "large", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {}}, "serverInfo": info}
        case "tools/list":
            return listing(int(params.get("cursor", "0")))
        case "tools/call":
            return called()
        case "resources/list":
            many = COUNT if CASE == "resources" else 0
            return {"resources": [{"uri": f"x://{number}", "name": f"r{number}"} for number in range(many)]}
        case _:
            return None


def answer(message: Json) -> str:
    """Return the answer to a request."""
    found = result(message["method"], message.get("params") or {})
    said = {"error": {"code": -32601, "message": "no"}} if found is None else {"result": found}
    text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **said})
    return text.replace('"gone"', '"\\ud83d gone"') if CASE == "half" else text


class Handler(BaseHTTPRequestHandler):
    """Answers a request over HTTP."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer, as JSON or as an event."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message or "method" not in message:
            self._send(202, "", b"")
        elif sys.argv[3] == "sse":
            lines = "\r\n".join(f"data: {line}" for line in answer(message).splitlines())
            event = f": hello\r\n\r\nevent: message\r\nid: 1\r\n{lines}\r\n\r\n"
            self._send(200, "text/event-stream", event.encode())
        else:
            self._send(200, "application/json", answer(message).encode())

    def do_GET(self) -> None:
        """Have no stream of its own."""
        self._send(405, "", b"")

    def do_DELETE(self) -> None:
        """Have no session to end."""
        self._send(405, "", b"")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if len(sys.argv) > 3:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        print(answer(asked), flush=True)
