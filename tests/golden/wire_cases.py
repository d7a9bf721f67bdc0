"""The golden cases of the wires: what they are given, and what comes of it. `make golden` writes the latter anew.

`wires/requests/CASE` holds a window, and may hold tools and what is asked (`params.json`: `params`, `on_loss`,
`stream`); of each adapter there is the body that it becomes and what that does not carry, or the message of the
refusal. A body is written part by part, a line each: without the line ends it is the exact body.

`wires/replies/ADAPTER/CASE` holds the raw events of a reply, and may hold the same reply unstreamed (`whole.json`) and
what was asked (`params.json`: `model`). What comes of them: the response that they add up to, the deltas to show, and
the body that asks the same model to go on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from turnlog.errors import TurnlogError
from turnlog.model import (
    ContextWindow,
    Delta,
    Message,
    Response,
    ToolResult,
    ToolUse,
    content_bytes,
    parse_tools,
    parse_window,
)
from turnlog.providers import PreparedRequest, get

WIRES = Path(__file__).parent / "wires"
MODELS = {
    "anthropic": "claude-sonnet-4-5-20250929",
    "bedrock": "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "cerebras": "gpt-oss-120b",
    "cohere": "command-a-reasoning-08-2025",
    "gemini": "gemini-2.5-pro",
    "openai_chat": "gpt-5-mini-2025-08-07",
    "openai_responses": "gpt-5-2025-08-07",
}
"""The adapters, and the model that each is asked for."""


def request_cases() -> list[Path]:
    """Return the folders of all windows."""
    return sorted(path.parent for path in WIRES.glob("requests/*/window.json"))


def reply_cases() -> list[Path]:
    """Return the folders of all replies."""
    return sorted(path.parent for path in WIRES.glob("replies/*/*/events.jsonl"))


def request_outputs(case: Path, adapter: str) -> dict[str, bytes]:
    """Return what an adapter makes of a window, by the name of the file."""
    asked = _json(case / "params.json", {})
    tools = case / "tools.json"
    try:
        request = get(adapter).prepare_request(
            parse_window((case / "window.json").read_bytes()),
            parse_tools(tools.read_bytes()) if tools.exists() else (),
            model=MODELS[adapter],
            params=asked.get("params"),
            on_loss=asked.get("on_loss"),
            stream=asked.get("stream", True),
        )
    except TurnlogError as error:
        return {f"{adapter}.err": f"{type(error).__name__}: {error}\n".encode()}
    outputs = {f"{adapter}.body.json": _lines_of(request)}
    if request.loss_report:
        outputs[f"{adapter}.losses.jsonl"] = _jsonl(request.loss_report.entries)
    return outputs


def _lines_of(request: PreparedRequest) -> bytes:
    return b"".join(part + b"\n" for part in request.parts if part)


def body_of(text: bytes) -> bytes:
    """Return the exact body behind the text of its file."""
    return text.replace(b"\n", b"")


def reply_outputs(case: Path) -> dict[str, bytes]:
    """Return what an adapter makes of the events of a reply, by the name of the file."""
    adapter = get(case.parent.name)
    events = events_of(case)
    response = adapter.aggregate(events, model=asked_model(case))
    record = msgspec.json.format(msgspec.json.encode(response.to_record()), indent=1) + b"\n"
    onward = adapter.prepare_request(_window_after(response), model=response.model, on_loss="report")
    losses = _jsonl(onward.loss_report.entries)
    return {
        "expected-response.json": record,
        "expected-deltas.jsonl": _jsonl(deltas_of(adapter.name, events)),
        "expected-onward.body.json": _lines_of(onward),
    } | ({"expected-onward.losses.jsonl": losses} if losses else {})


def _window_after(response: Response) -> ContextWindow:
    """Return the window of a question, a reply as it is recorded, and the results of its calls."""
    results = [
        ToolResult(tool_use_id=block.id, name=block.name, content="done")
        for block in response.content
        if isinstance(block, ToolUse)
    ]
    reply = Message(
        turn="reply",
        role="assistant",
        content_json=content_bytes(response.content),
        provider=response.provider,
        api=response.api,
        model=response.model,
    )
    return ContextWindow(
        messages=(
            Message(turn="question", role="user", content_json=content_bytes("Go.")),
            reply,
            Message(turn="results", role="user", content_json=content_bytes([*results, "Go on."])),
        ),
        options={},
    )


def asked_model(case: Path) -> str:
    """Return the model that was asked for a reply."""
    return _json(case / "params.json", {}).get("model", MODELS[case.parent.name])


def events_of(case: Path) -> list[bytes]:
    """Return the raw events of a case."""
    return (case / "events.jsonl").read_bytes().splitlines()


def deltas_of(adapter: str, events: Sequence[bytes]) -> list[Delta]:
    """Return what to show of events; of one that cannot be read, nothing."""
    reader = get(adapter).reader()
    return [delta for event in events for delta in reader.add(event)]


def write() -> int:
    """Write what comes of all cases anew, and return how many files that are."""
    for pattern in (
        "requests/*/*.err",
        "requests/*/*.body.json",
        "requests/*/*.losses.jsonl",
        "replies/*/*/expected-*",
    ):
        for path in WIRES.glob(pattern):
            path.unlink()
    outputs = [(case, request_outputs(case, adapter)) for case in request_cases() for adapter in MODELS]
    outputs += [(case, reply_outputs(case)) for case in reply_cases()]
    for case, files in outputs:
        for name, text in files.items():
            (case / name).write_bytes(text)
    return sum(len(files) for _, files in outputs)


def _jsonl(values: Sequence[object]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


def _json(path: Path, otherwise: Any) -> Any:
    return msgspec.json.decode(path.read_bytes()) if path.exists() else otherwise


if __name__ == "__main__":
    print(f"wrote {write()} files")
