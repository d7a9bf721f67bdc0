"""Tokens as the endpoints of Chat Completions count them, which not all of them do alike."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from turnlog.model import Usage


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    audio_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None


_usage = msgspec.json.Decoder(_Usage)


def usage_of(raw: Raw) -> Usage | None:
    """Return the usage behind what an endpoint reported, or None where that cannot be read.

    The wire counts cached tokens into those of the prompt, and reasoning tokens into those of the completion. Endpoints
    that count otherwise are known by their total: reasoning, or audio of the prompt, may stand beside, and cached
    tokens may be more than the prompt that they are of. What only the total has is reasoning that is not told apart.
    """
    try:
        usage = _usage.decode(raw)
    except msgspec.DecodeError:
        return None
    details = usage.prompt_tokens_details or _PromptDetails()
    prompt, completion = _count(usage.prompt_tokens), _count(usage.completion_tokens)
    total, audio = _count(usage.total_tokens), _count(details.audio_tokens)
    if audio and total == prompt + completion + audio:
        prompt += audio
    cached, written = _count(details.cached_tokens or usage.prompt_cache_hit_tokens), _count(details.cache_write_tokens)
    reasoning = _count((usage.completion_tokens_details or _CompletionDetails()).reasoning_tokens)
    if total and total == prompt + completion:
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
        reasoning = min(reasoning, completion)
    elif not reasoning and total > prompt + completion:
        reasoning = total - prompt - completion
    beside = reasoning > completion or (reasoning > 0 and total == prompt + completion + reasoning)
    return Usage(
        input_tokens=max(0, prompt - cached - written),
        output_tokens=completion if beside else completion - reasoning,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
        reasoning_tokens=reasoning,
    )


def _count(tokens: int | None) -> int:
    return max(0, tokens or 0)
