"""Every golden case of a wire gives, byte for byte, what it gave when it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden import wire_cases
from tests.wires.typed_bodies import check_body

from turnlog.providers import get

REQUESTS = [
    pytest.param(case, adapter, id=f"{case.name}-{adapter}")
    for case in wire_cases.request_cases()
    for adapter in wire_cases.MODELS
]
REPLIES = [pytest.param(case, id=f"{case.parent.name}-{case.name}") for case in wire_cases.reply_cases()]
NOT_TYPED = {
    "asked-anthropic": "sampling, which the newest Messages API has no more",
    "later-version": "blocks that no SDK knows yet",
}
"""Cases whose bodies the types of the SDKs do not describe, and why."""

BODIES = [
    pytest.param(adapter, path, id=f"{path.parent.name}-{adapter}")
    for path in sorted(wire_cases.WIRES.glob("*/**/*.body.json"))
    for adapter in [path.parents[1].name if path.parents[2].name == "replies" else path.name.split(".")[0]]
    if NOT_TYPED.keys().isdisjoint({path.parent.name, f"{path.parent.name}-{adapter}"})
]


def _golden(case: Path, adapter: str) -> dict[str, bytes]:
    golden = {path.name: path.read_bytes() for path in case.iterdir() if path.name.split(".")[0] == adapter}
    assert golden, f"there is nothing of {adapter} in {case}: `make golden` makes it"
    return golden


@pytest.mark.parametrize(("case", "adapter"), REQUESTS)
def test_window_becomes_the_golden_body(case: Path, adapter: str) -> None:
    """A window becomes the golden body with the golden losses, or is refused with the golden message."""
    assert wire_cases.request_outputs(case, adapter) == _golden(case, adapter)


@pytest.mark.parametrize(("adapter", "path"), BODIES)
def test_golden_body_is_valid(adapter: str, path: Path) -> None:
    """A golden body, also one in which a golden reply goes back, is one that the SDK has types for."""
    check_body(adapter, wire_cases.body_of(path.read_bytes()))


@pytest.mark.parametrize("case", REPLIES)
def test_events_give_the_golden_response(case: Path) -> None:
    """The events of a reply add up to the golden response, and show the golden deltas."""
    golden = {path.name: path.read_bytes() for path in case.glob("expected-*")}
    assert golden, f"there is nothing of what is expected in {case}: `make golden` makes it"
    assert wire_cases.reply_outputs(case) == golden


@pytest.mark.parametrize("case", [param for param in REPLIES if (param.values[0] / "whole.json").exists()])
def test_whole_reply_gives_the_golden_response(case: Path) -> None:
    """The same reply unstreamed gives the same response."""
    adapter = get(case.parent.name)
    response = adapter.aggregate([(case / "whole.json").read_bytes()], model=wire_cases.asked_model(case))
    golden: Any = msgspec.json.decode((case / "expected-response.json").read_bytes())
    assert msgspec.json.decode(msgspec.json.encode(response.to_record())) == golden


def test_every_wire_has_its_cases() -> None:
    """Each adapter has cases of what a reply can come to: calls, a refusal, an error in the middle."""
    names = {
        adapter: {case.name for case in wire_cases.reply_cases() if case.parent.name == adapter}
        for adapter in wire_cases.MODELS
    }
    wanted = {"parallel-calls", "refusal", "error-event"}
    missing = [f"{adapter}/{name}" for adapter, found in names.items() for name in sorted(wanted - found)]
    assert not missing, f"add events.jsonl in tests/golden/wires/replies for {', '.join(missing)}, then `make golden`"
