"""Recorded traffic of real providers, cut and damaged at its events: never an exception, never another whole.

`../shared/replies` has it, with a check that reads every reply a second time, without turnlog.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.soak import SOAK

from turnlog.model import Response, Text, Thinking, content_bytes, parse_content
from turnlog.providers import Provider, get
from turnlog.providers.registry import adapter_class
from turnlog.providers.wire import EventBytes, events_in

CUTS = 10
"""Of a long stream so many cuts are tried at its beginning, and as many in the rest; with `TURNLOG_SOAK=1` all."""
WIRES = ("anthropic", "cerebras", "cohere", "gemini", "openai_chat", "openai_responses")
NOT_RECORDED = ("bedrock",)
"""Adapters of which there is no recorded traffic."""

EXPLAINED = 31
"""Findings of the check that are the check's own: in four replies it wants arguments that came in pieces
(`partialArgs`) back in pieces, which no request can have; it takes a numeric finish reason, 2, for an error, where the
API's own enum has it as MAX_TOKENS; in three it does not know custom tool calls, which end a reply as calls of
functions do, and which the API wants answered; in twelve of Anthropic it does not count what compacting and an advisor
took, which the API documents as billed, and as left out of the counts that the check adds up; and eleven of Anthropic
are halves of a turn that paused, which end in a call of a server tool or begin with the result of one: by themselves,
before another question, the API refuses that half, so that it is left out and reported."""


Cases = list[tuple[Provider, dict[str, Any]]]
"""Recorded replies, and the adapter that reads each."""


@pytest.fixture(scope="module", params=WIRES)
def cases(request: pytest.FixtureRequest, shared: Path) -> Cases:
    """Return the recorded replies of a wire, and the adapter that reads each."""
    file = shared / "replies" / "cases" / f"{request.param}.json"
    return [(_adapter(case), case) for case in json.loads(file.read_bytes())]


def _adapter(case: dict[str, Any]) -> Provider:
    name, provider = case["wire"], case["provider"]
    if name == "openai_chat" and provider not in ("openai", "azure"):
        return adapter_class(name)(provider=provider, key_variable="")
    return get(name)


def _events(case: dict[str, Any]) -> list[bytes]:
    return [event.encode() for event in case["events"]]


def test_a_cut_stream_keeps_what_came_and_its_whole_stays_the_same(
    cases: Cases,
) -> None:
    """A reader may be asked at any event, and goes on: what it says then is what those events alone add up to."""
    for adapter, case in cases:
        events, model = _events(case), case["model"]
        whole = adapter.aggregate(events, model=model)
        reader = adapter.reader(model=model)
        step = 1 if SOAK else max(1, len(events) // CUTS)
        for place, event in enumerate(events):
            if place < CUTS or place % step == 0:
                _check_cut(adapter, reader.response(), events[:place], case)
            reader.add(event)
        assert reader.response() == whole, case["id"]


def _check_cut(adapter: Provider, found: Response, events: list[bytes], case: dict[str, Any]) -> None:
    assert found == adapter.aggregate(events, model=case["model"]), case["id"]
    assert (found.error is not None) == (found.stop_reason in ("error", "aborted")), case["id"]
    content = content_bytes(found.content)
    assert parse_content(content) == content, case["id"]


def test_what_is_shown_is_what_is_recorded(cases: Cases) -> None:
    """Text and thinking, piece by piece, are those of the turn; so is a reply with an unknown event anywhere in it."""
    for adapter, case in cases:
        events, model = _events(case), case["model"]
        reader = adapter.reader(model=model)
        shown = {"text": "", "thinking": ""}
        kind = ""
        for event in events:
            for delta in reader.add(event):
                kind = kind if delta.type is None else delta.type
                if isinstance(delta.content, str) and kind in shown:
                    shown[kind] += delta.content
        response = reader.response()
        said = {
            "text": "".join(block.text for block in response.content if isinstance(block, Text)),
            "thinking": "".join(block.thinking for block in response.content if isinstance(block, Thinking)),
        }
        assert shown == said, case["id"]


def test_events_are_the_same_however_their_bytes_are_cut(cases: Cases) -> None:
    """Bytes of a stream come in any pieces: whole, one by one, and cut in the middle of each line end."""
    streams = [(adapter, case) for adapter, case in cases if case["stream"]]
    for place, (adapter, case) in enumerate(streams):
        events = _events(case)
        sent = b"".join(b"data: " + event.replace(b"\n", b"\ndata: ") + b"\r\n\r\n" for event in events)
        # One by one they take long: of a long stream, and of most others, only with `TURNLOG_SOAK=1`.
        sizes = (1, 7, 4096, len(sent)) if SOAK or (len(sent) < 20_000 and place % 4 == 0) else (7, 4096, len(sent))
        for size in sizes:
            chunks = [sent[start : start + size] for start in range(0, len(sent), size)]
            assert list(events_in(chunks, EventBytes())) == events, (adapter.name, case["id"], size)


@pytest.mark.parametrize("broken", [b"", b"nope", b"\xff\xfe", b'{"type":[]}', b"[]", b'{"error":{"message":"down"}}'])
def test_damage_never_raises_and_keeps_what_came(cases: Cases, broken: bytes) -> None:
    """An event that cannot be read, or an error, in the middle of a stream, and each event cut in half."""
    for adapter, case in cases[:: 1 if SOAK else 5]:
        events, model = _events(case), case["model"]
        middle = len(events) // 2
        found = adapter.aggregate([*events[:middle], broken, *events[middle:]], model=model)
        assert found.stop_reason != "error" or found.error is not None, case["id"]
        halved = events[middle][: len(events[middle]) // 2]
        assert adapter.aggregate([*events[:middle], halved], model=model).stop_reason == "error", case["id"]


def test_tokens_add_up_to_the_total_that_came_with_them(cases: Cases) -> None:
    """Of each recorded reply that gives a total, whichever of its counts stand in others."""
    for adapter, case in cases:
        response = adapter.aggregate(_events(case), model=case["model"])
        reported = json.loads(bytes(response.raw_usage or b"null")) or {}
        total = reported.get("total_tokens") or reported.get("totalTokenCount")
        if total:
            assert response.usage is not None, case["id"]
            assert response.usage.total_tokens == total, case["id"]


@pytest.mark.timeout(300)
def test_recorded_traffic_is_read_without_loss(shared: Path) -> None:
    """The check finds nothing but what is explained above."""
    replies = shared / "replies"
    done = subprocess.run(
        [sys.executable, str(replies / "check.py"), str(replies / "cases")],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    found = re.search(r"recorded-traffic: (\d+)/(\d+) replies clean", done.stdout)
    assert found is not None, done.stdout
    assert int(found[2]) - int(found[1]) <= EXPLAINED, done.stdout
