"""Tokens, however a wire and its endpoints count them: none twice, and none left out for another that is malformed."""

import json
from typing import Any

import pytest
from msgspec import Raw

from turnlog.model import Response, Usage
from turnlog.providers import get
from turnlog.providers.usage import COUNT_MAX, Counts, count_of, usage_of


@pytest.mark.parametrize(
    ("spelled", "count"),
    [
        *(("7", 7), ("7.0", 7), ('"7"', 7), ("7e2", 700), ("0", 0), (str(COUNT_MAX), COUNT_MAX)),
        *((odd, None) for odd in ("-1", "7.5", '"many"', '""', "true", "null", "[]", "{}", "1e999")),
        *((huge, None) for huge in (str(COUNT_MAX + 1), "9223372036854775808", "1" * 40)),
        (None, None),
    ],
)
def test_count_is_a_whole_number_in_any_spelling(spelled: str | None, count: int | None) -> None:
    """Some endpoints write floats, or texts. What is negative, no number or far too large counts nothing."""
    assert count_of(None if spelled is None else Raw(spelled.encode())) == count


WAYS: dict[str, tuple[dict[str, int], dict[str, bool], Usage | None]] = {
    "the wire's way comes first": (
        {"prompt": 100, "output": 50, "read": 0, "reasoning": 30, "total": 150},
        {},
        Usage(input_tokens=100, output_tokens=20, reasoning_tokens=30),
    ),
    "both parts beside": (
        {"prompt": 20, "output": 50, "read": 70, "written": 10, "reasoning": 30, "total": 180},
        {},
        Usage(
            input_tokens=20,
            output_tokens=50,
            cache_read_input_tokens=70,
            cache_creation_input_tokens=10,
            reasoning_tokens=30,
        ),
    ),
    "either could be beside: it is reasoning": (
        {"prompt": 100, "output": 50, "read": 30, "reasoning": 30, "total": 180},
        {},
        Usage(input_tokens=70, output_tokens=50, cache_read_input_tokens=30, reasoning_tokens=30),
    ),
    "both parts within": (
        {"prompt": 100, "output": 50, "read": 80, "reasoning": 30, "total": 150},
        {"cached_beside": True, "reasoning_beside": True},
        Usage(input_tokens=20, output_tokens=20, cache_read_input_tokens=80, reasoning_tokens=30),
    ),
    "no part of less than it is": (
        {"prompt": 5, "output": 2, "read": 80, "reasoning": 9, "total": 7},
        {"cached_beside": True, "reasoning_beside": True},
        Usage(input_tokens=5, output_tokens=2, cache_read_input_tokens=80, reasoning_tokens=9),
    ),
    "no way adds up": (
        {"prompt": 100, "output": 50, "read": 80, "reasoning": 30, "total": 140},
        {},
        Usage(input_tokens=20, output_tokens=20, cache_read_input_tokens=80, reasoning_tokens=30),
    ),
    "no total": (
        {"prompt": 100, "output": 50, "read": 80, "reasoning": 30},
        {"cached_beside": True},
        Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=80, reasoning_tokens=30),
    ),
    "no total, and more than the whole": (
        {"prompt": 20, "output": 5, "read": 80, "reasoning": 30},
        {},
        Usage(input_tokens=20, output_tokens=5, cache_read_input_tokens=80, reasoning_tokens=30),
    ),
    "the prompt is not told": (
        {"output": 50, "read": 80, "total": 150},
        {},
        Usage(input_tokens=20, output_tokens=50, cache_read_input_tokens=80),
    ),
    "the output is not told": ({"prompt": 100, "total": 150}, {}, Usage(input_tokens=100, output_tokens=50)),
    "the total alone": ({"total": 150}, {}, Usage(input_tokens=150)),
    "reasoning in the total only": (
        {"prompt": 100, "output": 50, "total": 180},
        {},
        Usage(input_tokens=100, output_tokens=50, reasoning_tokens=30),
    ),
    "zeros": ({"prompt": 0, "total": 0}, {}, Usage()),
    "nothing": ({}, {}, None),
}


@pytest.mark.parametrize("name", WAYS)
def test_total_decides_what_is_part_of_what(name: str) -> None:
    """Cached tokens are of the prompt or beside it, and reasoning of the output or beside it."""
    counts, of_the_wire, expected = WAYS[name]
    assert usage_of(Counts(**counts), **of_the_wire) == expected


REPLIES: dict[str, bytes] = {
    "anthropic": b'{"type":"message","content":[],"stop_reason":"end_turn","usage":%s}',
    "bedrock": b'{"output":{"message":{"content":[]}},"stopReason":"end_turn","usage":%s}',
    "cohere": b'{"message":{"content":[]},"finish_reason":"COMPLETE","usage":%s}',
    "gemini": b'{"candidates":[{"finishReason":"STOP"}],"usageMetadata":%s}',
    "openai_chat": b'{"choices":[{"index":0,"message":{},"finish_reason":"stop"}],"usage":%s}',
    "openai_responses": b'{"object":"response","status":"completed","output":[],"usage":%s}',
}
"""A whole reply of each wire, but for its usage."""


def _reply(wire: str, spelled: str) -> Response:
    return get(wire).aggregate([REPLIES[wire] % spelled.encode()], model="m")


OTHER_WAYS: list[tuple[str, dict[str, Any], Usage]] = [
    (
        "bedrock",
        {"inputTokens": 100, "outputTokens": 50, "cacheReadInputTokens": 80, "totalTokens": 150},
        Usage(input_tokens=20, output_tokens=50, cache_read_input_tokens=80),
    ),
    (
        "gemini",
        {"promptTokenCount": 100, "candidatesTokenCount": 80, "thoughtsTokenCount": 30, "totalTokenCount": 180},
        Usage(input_tokens=100, output_tokens=50, reasoning_tokens=30),
    ),
    (
        "gemini",
        {"promptTokenCount": 20, "candidatesTokenCount": 50, "cachedContentTokenCount": 80, "totalTokenCount": 150},
        Usage(input_tokens=20, output_tokens=50, cache_read_input_tokens=80),
    ),
    (
        "openai_chat",
        {
            "prompt_tokens": 20,
            "completion_tokens": 50,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 80},
        },
        Usage(input_tokens=20, output_tokens=50, cache_read_input_tokens=80),
    ),
    (
        "openai_responses",
        {"input_tokens": 20, "output_tokens": 50, "total_tokens": 150, "input_tokens_details": {"cached_tokens": 80}},
        Usage(input_tokens=20, output_tokens=50, cache_read_input_tokens=80),
    ),
    (
        "openai_responses",
        {
            "input_tokens": 100,
            "output_tokens": 50,
            "total_tokens": 180,
            "output_tokens_details": {"reasoning_tokens": 30},
        },
        Usage(input_tokens=100, output_tokens=50, reasoning_tokens=30),
    ),
]


@pytest.mark.parametrize(("wire", "told", "usage"), OTHER_WAYS)
def test_endpoint_that_counts_otherwise_than_its_wire(wire: str, told: dict[str, Any], usage: Usage) -> None:
    """The parts add up to the total that it gives."""
    assert _reply(wire, json.dumps(told)).usage == usage


ODD: list[tuple[str, str, Usage]] = [
    *(
        (wire, spelled, usage)
        for wire in ("anthropic", "openai_responses")
        for spelled, usage in (
            ('{"input_tokens":3.0,"output_tokens":-2,"output_tokens_details":[]}', Usage(input_tokens=3)),
            ('{"output_tokens":"2","output_tokens_details":{"thinking_tokens":true}}', Usage(output_tokens=2)),
            ('{"input_tokens":"many","output_tokens":2,"iterations":[null]}', Usage(output_tokens=2)),
        )
    ),
    ("bedrock", '{"inputTokens":3.0,"outputTokens":2.5,"cacheReadInputTokens":-1}', Usage(input_tokens=3)),
    ("bedrock", '{"inputTokens":true,"outputTokens":2,"totalTokens":1e999}', Usage(output_tokens=2)),
    ("cohere", '{"billed_units":{"input_tokens":-3,"output_tokens":2.0},"tokens":[]}', Usage(output_tokens=2)),
    ("cohere", '{"billed_units":[],"tokens":{"input_tokens":3},"cached_tokens":"x"}', Usage(input_tokens=3)),
    ("cohere", '{"tokens":{"input_tokens":1e999,"output_tokens":2}}', Usage(output_tokens=2)),
    ("gemini", '{"promptTokenCount":"3","candidatesTokenCount":{}}', Usage(input_tokens=3)),
    ("gemini", '{"promptTokenCount":-3,"candidatesTokenCount":2.0}', Usage(output_tokens=2)),
    ("openai_chat", '{"prompt_tokens":3.0,"prompt_tokens_details":[]}', Usage(input_tokens=3)),
    ("openai_chat", '{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2.5}}', Usage(input_tokens=3)),
    ("openai_chat", f'{{"prompt_tokens":{1 << 63},"completion_tokens":2}}', Usage(output_tokens=2)),
]


@pytest.mark.parametrize(("wire", "spelled", "usage"), ODD)
def test_malformed_count_costs_itself_alone(wire: str, spelled: str, usage: Usage) -> None:
    """The others count, and what came is kept as it came."""
    response = _reply(wire, spelled)
    assert (response.usage, response.raw_usage, response.error) == (usage, Raw(spelled.encode()), None)


@pytest.mark.parametrize("wire", REPLIES)
def test_usage_without_a_count_is_none(wire: str) -> None:
    """Nothing is made up where nothing can be read."""
    for spelled in ("[]", "7", '{"input_tokens":"many"}', '{"service_tier":"standard"}'):
        response = _reply(wire, spelled)
        assert (response.usage, response.error) == (None, None), spelled
