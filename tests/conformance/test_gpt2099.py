"""The recorded cases of gpt2099, where they are at hand: request bodies, responses, deltas and refusals.

What may differ is what the README of the cases names, and what follows from the same rule: a comment says where.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnlog import UnsupportedContentError
from turnlog.model import parse_tools, parse_window
from turnlog.providers import get

CASES = Path(__file__).parents[3] / "shared" / "conformance" / "gpt2099"
ADAPTERS = {"openai": "openai_chat"}

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the recorded cases of gpt2099 are not at hand")


def _requests() -> list[Any]:
    return [
        pytest.param(path, id=f"{path.parent.name}-{path.stem.removeprefix('expected-')}")
        for path in sorted(CASES.glob("prepare-request/*/expected-*"))
    ]


def _streams() -> list[Any]:
    return [
        pytest.param(path.parent, id=f"{path.parent.parent.name}-{path.parent.name}")
        for path in sorted(CASES.glob("response-stream/*/*/events.jsonl"))
    ]


def _adapter(name: str) -> Any:
    return get(ADAPTERS.get(name, name))


def _lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if line.strip()]


def _unwrapped(text: bytes) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("expected", _requests())
def test_body_is_that_of_the_recorded_case(expected: Path) -> None:
    """A window becomes the recorded body, or has losses where the original refused it."""
    window = parse_window((expected.parent / "input.json").read_bytes())
    tools = [
        tool
        for server in window.options.get("servers", [])
        for tool in parse_tools((CASES / "tools" / f"{server}.json").read_bytes())
    ]
    adapter = _adapter(expected.stem.removeprefix("expected-"))
    if expected.suffix == ".err":
        with pytest.raises(UnsupportedContentError):
            adapter.prepare_request(window, tools, model="m", on_loss="error")
        return
    body = json.loads(adapter.prepare_request(window, tools, model="m").body)
    body.pop("model", None)  # the original adds it only when it calls
    assert body == json.loads(expected.read_bytes())


@pytest.mark.parametrize("case", _streams())
def test_events_add_up_to_the_recorded_response(case: Path) -> None:
    """Captured events aggregate to the recorded response."""
    name = case.parent.name
    response = _adapter(name).aggregate(_lines(case / "events.jsonl")).to_record()
    ours, theirs = response["message"], json.loads((case / "expected-aggregate.json").read_bytes())["message"]
    ours = json.loads(msgspec.json.encode(ours))
    # Thinking, which the original drops, is kept.
    ours["content"] = [block for block in ours["content"] if block["type"] != "thinking"]
    for message in (ours, theirs):
        for block in message["content"]:
            if name in ("openai", "cerebras", "gemini"):  # the original makes ids up
                block.pop("id", None)
    assert ours["content"] == theirs["content"]
    assert (ours["role"], ours["model"]) == (theirs["role"], theirs["model"])
    calls = any(block["type"] == "tool_use" for block in ours["content"])
    assert ours["stop_reason"] == ("tool_use" if calls else "stop")
    if name not in ("openai", "cerebras"):  # the original reports zeros
        known = set(ours["usage"]) & set(theirs["usage"])
        assert {key: ours["usage"][key] for key in known} == {key: theirs["usage"][key] for key in known}


@pytest.mark.parametrize("case", _streams())
def test_events_give_the_recorded_deltas(case: Path) -> None:
    """Captured events give the recorded deltas."""
    adapter = _adapter(case.parent.name)
    deltas = [delta for event in _lines(case / "events.jsonl") for delta in adapter.deltas(event)]
    ours = [json.loads(msgspec.json.encode(delta)) for delta in deltas]
    theirs = _unwrapped((case / "expected-streamer.jsonl").read_bytes())
    thinking = False
    kept: list[Any] = []
    for delta in ours:  # thinking, which the original drops, is shown
        thinking = delta.get("type") == "thinking" or (thinking and "type" not in delta)
        if not thinking:
            kept.append(delta)
    if case.parent.name == "cerebras":  # the original drops arguments that come with the name
        for delta in kept:
            if delta.get("type") == "tool_use":
                delta.pop("content", None)
    assert kept == theirs
