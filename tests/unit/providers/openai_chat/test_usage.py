"""Chat Completions: tokens, which endpoints count in different ways."""

import json
from typing import Any

import pytest
from tests.unit.providers.openai_chat.wire import aggregate, chunk

from turnlog.model import Usage

CASES: dict[str, tuple[str, Usage | None]] = {
    "plain": ("prompt: 5, completion: 7, total: 12", Usage(input_tokens=5, output_tokens=7)),
    "details": (
        "prompt: 100, completion: 50, total: 150, cached: 60, cache_write: 10, audio: 0, reasoning: 30",
        Usage(
            input_tokens=30,
            output_tokens=20,
            cache_read_input_tokens=60,
            cache_creation_input_tokens=10,
            reasoning_tokens=30,
        ),
    ),
    "deepseek": (
        "prompt: 10, completion: 2, prompt_cache_hit: 4, prompt_cache_miss: 6",
        Usage(input_tokens=6, output_tokens=2, cache_read_input_tokens=4),
    ),
    "reasoning beside": (
        "prompt: 10, completion: 9, total: 27, reasoning: 8",
        Usage(input_tokens=10, output_tokens=9, reasoning_tokens=8),
    ),
    "reasoning beside, no total": (
        "prompt: 1, completion: 1, reasoning: 5",
        Usage(input_tokens=1, output_tokens=1, reasoning_tokens=5),
    ),
    "reasoning of more than the completion that it is in": (
        "prompt: 43, completion: 10, total: 53, reasoning: 11",
        Usage(input_tokens=43, reasoning_tokens=10),
    ),
    "reasoning in the total only": (
        "prompt: 35, completion: 12, total: 109",
        Usage(input_tokens=35, output_tokens=12, reasoning_tokens=62),
    ),
    "audio beside": (
        "prompt: 9, completion: 248, total: 632, cached: 0, audio: 375",
        Usage(input_tokens=384, output_tokens=248),
    ),
    "audio inside": ("prompt: 9, completion: 2, total: 11, audio: 5", Usage(input_tokens=9, output_tokens=2)),
    "more read from a cache than the prompt has": (
        "prompt: 7, completion: 1, total: 8, cached: 161",
        Usage(output_tokens=1, cache_read_input_tokens=7),
    ),
    "the same tokens read and written": (
        "prompt: 2168, completion: 100, total: 2268, cached: 2161, cache_write: 2161",
        Usage(output_tokens=100, cache_read_input_tokens=2161, cache_creation_input_tokens=7),
    ),
    "odd": ("prompt: 1, completion: -1, cached: 5", Usage(input_tokens=1, cache_read_input_tokens=5)),
    "null": ("prompt: 3, completion: null", Usage(input_tokens=3)),
    "unreadable": ('prompt: "many"', None),
}


def reported(short: str) -> dict[str, Any]:
    """Return what an endpoint reports: counts by their short names, `prompt: 5`, each where it stands on the wire."""
    counts = {name: json.loads(count) for name, _, count in (one.partition(": ") for one in short.split(", "))}
    usage: dict[str, Any] = {}
    for name, count in counts.items():
        inside = {"cached": "prompt", "cache_write": "prompt", "audio": "prompt", "reasoning": "completion"}.get(name)
        holder = usage.setdefault(f"{inside}_tokens_details", {}) if inside else usage
        holder[f"{name}_tokens"] = count
    return usage


@pytest.mark.parametrize("name", CASES)
def test_usage_counts_no_token_twice(name: str) -> None:
    """Cached tokens are taken out of the prompt's, reasoning out of the completion's; what was reported is kept."""
    short, expected = CASES[name]
    usage = reported(short)
    response = aggregate(chunk({"content": "a"}, "stop", usage=None), chunk(usage=usage))
    assert response.usage == expected
    assert bytes(response.raw_usage or b"") == json.dumps(usage, separators=(",", ":")).encode()


def test_no_usage_is_none() -> None:
    """Where nothing was reported nothing is made up."""
    response = aggregate(chunk({"content": "a"}, "stop"))
    assert (response.usage, response.raw_usage) == (None, None)


def test_last_count_of_a_stream_holds() -> None:
    """Some endpoints count in every chunk, up to there: the counts are not added, and a null one is none."""
    so_far = [{"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count} for count in (0, 1, 2)]
    pieces = [chunk({"content": "a"}, "stop" if count == 2 else None, usage=so_far[count]) for count in range(3)]
    for end in ([], [chunk(usage=so_far[2])], [chunk(usage=None)]):
        assert aggregate(*pieces, *end).usage == Usage(input_tokens=9, output_tokens=2)


TOLD = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


@pytest.mark.parametrize(
    "last",
    [
        chunk({}, "stop", x_groq={"id": "req_1", "usage": TOLD}),
        chunk({}, "stop", usage=TOLD, x_groq={"id": "req_1", "usage": TOLD}),
        json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": TOLD}]}).encode(),
    ],
    ids=["of Groq", "of Groq, twice", "of a choice"],
)
def test_usage_may_stand_in_another_place(last: bytes) -> None:
    """Groq and Moonshot have places of their own for what was not asked for; it counts once."""
    response = aggregate(chunk({"content": "a"}), last)
    assert response.usage == Usage(input_tokens=5, output_tokens=7)
    assert json.loads(bytes(response.raw_usage or b"")) == TOLD
