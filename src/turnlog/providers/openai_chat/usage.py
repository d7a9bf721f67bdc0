"""Tokens as the endpoints of Chat Completions tell them, which not all of them do in the same place."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from turnlog.model import Usage
from turnlog.providers.raw_json import Fields, fields_of, is_null
from turnlog.providers.usage import Counts, count_of, usage_of


def told_in(event: Fields, choices: Sequence[Fields]) -> Raw | None:
    """Return what an event tells of tokens, None where it tells nothing.

    Groq has it in a field of its own where it was not asked for it, and Moonshot in a choice.
    """
    if not is_null(told := event.get("usage")):
        return told
    places = [fields_of(event["x_groq"]) or {}] if "x_groq" in event else []
    places += [choice for choice in choices if "usage" in choice]
    return next((place["usage"] for place in places if not is_null(place.get("usage"))), None)


def tokens_of(raw: Raw) -> Usage | None:
    """Return the usage behind what an endpoint reported, or None where that cannot be read.

    The wire counts cached tokens into those of the prompt, and reasoning tokens into those of the completion. Audio of
    the prompt may stand beside it, which the total says.
    """
    usage = fields_of(raw) or {}
    of_prompt = fields_of(usage.get("prompt_tokens_details")) or {}
    of_completion = fields_of(usage.get("completion_tokens_details")) or {}
    prompt, completion = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    total, audio = count_of(usage.get("total_tokens")), count_of(of_prompt.get("audio_tokens"))
    if audio and total == (prompt or 0) + (completion or 0) + audio:
        prompt = (prompt or 0) + audio
    return usage_of(
        Counts(
            prompt=prompt,
            output=completion,
            read=count_of(of_prompt.get("cached_tokens")) or count_of(usage.get("prompt_cache_hit_tokens")),
            written=count_of(of_prompt.get("cache_write_tokens")),
            reasoning=count_of(of_completion.get("reasoning_tokens")),
            total=total,
        )
    )
