"""An MCP server that misbehaves when its tool `go` is called for the first time, to be run as a program over stdio.

Arguments: how it misbehaves, and a file for the id of the process that did. It does so once: the next call is answered
with whether that is still the same process.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]

HUGE_CHARACTERS = 20_000_000
PIECE = b"x" * 1024
PIECE_EVERY_S = 0.01

tools = ["go"]
late: list[Message] = []


def send(message: Message) -> None:
    """Write a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(message: Message, text: str) -> None:
    """Answer a call with a text."""
    send({"id": message["id"], "result": {"content": [{"type": "text", "text": text}]}})


def nothing(message: Message) -> None:
    """Answer nothing."""


def late_answer(message: Message) -> None:
    """Answer when the next message arrives: when the client has given the call up."""
    late.append(message)


def forever(message: Message) -> None:
    """Begin an answer, and go on with it for ever."""
    os.write(1, b'{"jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": "')
    pause = threading.Event()
    while not pause.wait(PIECE_EVERY_S):
        os.write(1, PIECE)


def progress(message: Message) -> None:
    """Say for ever how far it has come, and answer other messages meanwhile."""
    token = message["params"].get("_meta", {}).get("progressToken")

    def tell() -> None:
        done, pause = 0, threading.Event()
        while not pause.wait(PIECE_EVERY_S):
            done += 1
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": done}})

    threading.Thread(target=tell, daemon=True).start()


def huge(message: Message) -> None:
    """Answer with 20 MB."""
    say(message, "x" * HUGE_CHARACTERS)


def wrong_json(message: Message) -> None:
    """Answer with what is not JSON."""
    sys.stdout.write('{"jsonrpc": "2.0", "result": {"content": [\n')
    sys.stdout.flush()


def secret(message: Message) -> None:
    """Answer with the value of the variable that it was given."""
    say(message, f"the token is {os.environ['SERVER_TOKEN']}")


def changing_tools(message: Message) -> None:
    """Have another tool from here on, and no longer this one."""
    tools[:] = ["other"]
    send({"method": "notifications/tools/list_changed"})
    say(message, "changed")


def crash(message: Message) -> None:
    """End, with a last word."""
    os.write(2, b"out of memory\n")
    os._exit(1)


BEHAVIOURS: dict[str, Callable[[Message], None]] = {
    each.__name__: each
    for each in (nothing, late_answer, forever, progress, huge, wrong_json, secret, changing_tools, crash)
}


def answer(message: Message, behaviour: str, note: Path) -> None:
    """Answer a request."""
    match message["method"]:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "misbehaving", "version": "1"}
            about = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            send({"id": message["id"], "result": about})
        case "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
            send({"id": message["id"], "result": {"tools": listed}})
        case "tools/call" if not note.exists():
            note.write_text(str(os.getpid()))
            BEHAVIOURS[behaviour](message)
        case "tools/call":
            say(message, "the same process" if note.read_text() == str(os.getpid()) else "a new process")
        case _:
            send({"id": message["id"], "result": {}})


def main() -> None:
    """Answer one message after the other."""
    behaviour, note = sys.argv[1], Path(sys.argv[2])
    for line in sys.stdin:
        message = json.loads(line)
        while late:
            say(late.pop(), "here I am")
        if "id" in message:
            answer(message, behaviour, note)


if __name__ == "__main__":
    main()
