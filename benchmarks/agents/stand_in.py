"""A stand-in for Chat Completions on loopback: it answers what the conversation needs, and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_CALLS = {
    "Rome": [("weather", {"city": "Rome"}), ("add", {"a": 2, "b": 3})],
    "Write": [("write_note", {"text": "Rome: 21 °C"})],
}
_SAID = {"Rome": "It is 21 °C and clear in Rome, and 2 + 3 is 5.", "Write": "Noted.", "French": "Il fait 21 °C à Rome."}


class StandIn:
    """The server. Use it with `with`.

    Attributes:
        bodies: the bodies of all requests, as they came.
    """

    def __init__(self) -> None:
        """Listen on a free port."""
        self.bodies: list[bytes] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        """Begin to serve."""
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Serve no longer."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.bodies.append(body)
                asked = json.loads(body)
                message = _reply(asked["messages"], len(outer.bodies))
                sent, kind = (_stream(message), "text/event-stream") if asked.get("stream") else _whole(message)
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def _reply(messages: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """Return the next message of the assistant: it calls tools until there are results behind the last question."""
    place = max(index for index, message in enumerate(messages) if message["role"] == "user")
    said = json.dumps(messages[place]["content"])
    topic = next(topic for topic in _SAID if topic in said)
    if topic not in _CALLS or any(message["role"] == "tool" for message in messages[place:]):
        return {"role": "assistant", "content": _SAID[topic]}
    calls = [
        {
            "index": index,
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for index, (name, given) in enumerate(_CALLS[topic])
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _whole(message: dict[str, Any]) -> tuple[bytes, str]:
    choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
    reply = {
        "id": "r", "object": "chat.completion", "created": 0, "model": "model-1", "choices": [choice], "usage": _USAGE,
    }  # fmt: skip
    return json.dumps(reply).encode(), "application/json"


def _stream(message: dict[str, Any]) -> bytes:
    head = {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "model-1"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(message)}]},
        {**head, "choices": [], "usage": _USAGE},
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def _finish(message: dict[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"
