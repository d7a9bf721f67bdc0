"""How providers say that a request is too large for a model: in words, each in its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from turnlog.model import CallError

PAYLOAD_TOO_LARGE = 413
"""The HTTP status for a request that is too large, whatever is said with it (RFC 9110 §15.5.14)."""

TOO_MANY_REQUESTS = 429

WORDS: Mapping[str, Sequence[str]] = {
    "messages": (
        r"prompt is too long",
        r"exceeds? (the )?context limit",
        r"request exceeds the maximum (allowed )?(size|number of bytes)",
    ),
    "chat_completions": (
        r"maximum context length",
        r"context[_ ]length[_ ]exceeded",
        r"exceeds? the (model's )?(available )?context (size|length|window)",
        r"exceeds? the (model's )?maximum context",
        r"maximum prompt length",
        r"reduce the length of the (messages|prompt|input)",
        r"too large for model with .* maximum context",
        r"greater than the context length",
    ),
    "responses": (r"exceeds? the context window",),
    "generate_content": (r"token count.{0,40} exceeds the maximum number of tokens",),
    "chat_v2": (r"too many tokens: ",),
    "converse": (r"input is too long for requested model", r"too many input tokens"),
}
"""By api what stands in the message of such an error. An endpoint may say it in the words of another one: Bedrock hands
on what the model's own says, and many servers speak Chat Completions. So all are looked for everywhere."""

_ANY = re.compile("|".join(words for of_api in WORDS.values() for words in of_api), re.IGNORECASE)


def says_too_large(error: CallError) -> bool:
    """Tell whether a call failed because its request is too large for the model, or for the provider.

    A limit of tokens a minute is none of that: it passes.
    """
    if error.status == PAYLOAD_TOO_LARGE:
        return True
    return error.status != TOO_MANY_REQUESTS and _ANY.search(error.message) is not None
