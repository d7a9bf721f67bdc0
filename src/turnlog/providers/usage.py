"""Tokens as a reply tells them, and the usage behind them, which counts none twice."""

from __future__ import annotations

from itertools import product

from msgspec import Raw, Struct
from msgspec.structs import astuple

from turnlog.model import Usage
from turnlog.providers.raw_json import integer_of

COUNT_MAX = 1 << 40
"""The largest number that is taken for a count of the tokens of one call, so that sums of counts have 64 bits."""


class Counts(Struct, frozen=True, kw_only=True):
    """What a reply tells of its tokens, whichever of its counts stand in others; None for what it does not tell.

    Attributes:
        prompt: tokens of the request.
        output: tokens of the reply.
        read: tokens that were read from a cache.
        written: tokens that were written to one.
        reasoning: tokens that the model thought in.
        total: all of them.
    """

    prompt: int | None = None
    output: int | None = None
    read: int | None = None
    written: int | None = None
    reasoning: int | None = None
    total: int | None = None


def count_of(value: Raw | None) -> int | None:
    """Return a count of tokens, also one that is written as a float or as text; None where it is something else."""
    number = integer_of(value)
    return number if number is not None and 0 <= number <= COUNT_MAX else None


def usage_of(counts: Counts, *, cached_beside: bool = False, reasoning_beside: bool = False) -> Usage | None:
    """Return the usage behind counts; None where there is none of them.

    Endpoints that speak one wire count in different ways, and the total that they give decides which it is. Where no
    way adds up to the total, or there is none, that of the wire holds; but what is more than the whole that it should
    be a part of stands beside it. What only the total has is the count that is not told: the prompt, else the output,
    else reasoning.

    Args:
        counts: what the reply tells.
        cached_beside: whether the wire counts what is read from a cache, and written to it, beside the prompt.
        reasoning_beside: whether it counts reasoning beside the output.
    """
    if all(count is None for count in astuple(counts)):
        return None
    prompt, output, read, written, reasoning, total = (count or 0 for count in astuple(counts))
    cached = read + written
    ways = product(
        _ways(cached, prompt, beside=cached_beside),
        _ways(reasoning, output, beside=reasoning_beside),
    )
    of_the_wire = (cached_beside or max(read, written) > prompt, reasoning_beside or reasoning > output)
    cached_beside, reasoning_beside = next(
        (way for way in ways if prompt + cached * way[0] + output + reasoning * way[1] == total), of_the_wire
    )
    if not cached_beside:
        read = min(read, prompt)
        written = min(written, prompt - read)
        prompt -= read + written
    if not reasoning_beside:
        reasoning = min(reasoning, output)
        output -= reasoning
    rest = max(0, total - (prompt + read + written + output + reasoning))
    if counts.prompt is None:
        prompt += rest
    elif counts.output is None:
        output += rest
    elif not reasoning:
        reasoning = rest
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
        reasoning_tokens=reasoning,
    )


def _ways(part: int, whole: int, *, beside: bool) -> tuple[bool, ...]:
    """Return whether a part may stand beside its whole, the wire's way first: what does not fit in it does."""
    return (True,) if beside and part > whole else (beside, not beside)
