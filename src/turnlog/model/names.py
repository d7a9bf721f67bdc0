"""The one table of names: providers and their apis, as turnlog's adapters have them and as others spell them.

What a provider wrote goes back to it, and to it alone: so its names have to be the same wherever a turn came from.
"""

from __future__ import annotations

from collections.abc import Mapping

APIS: Mapping[str, str] = {
    "anthropic-messages": "messages",
    "google-generative-ai": "generate_content",
    "openai-completions": "chat_completions",
    "openai-responses": "responses",
}
"""Names of apis that sessions, transcripts and the canonical types have, and turnlog's for each."""

PROVIDERS: Mapping[str, str] = {"google": "gemini"}
"""Names of providers, likewise."""

ADAPTERS: Mapping[str, str] = {"openai": "openai_chat"}
"""Names of adapters, likewise."""

HOME_APIS: Mapping[str, str] = {
    "anthropic": "messages",
    "gemini": "generate_content",
    "openai": "responses",
}
"""The api that is meant where a transcript names only a provider."""

MODELS: Mapping[str, str] = {"gpt-5.6-sol": "gpt-5.6"}
"""Names that models answer under, and what they are asked as, where neither is the other with a date. A turn that came
of a recorded call says itself what was asked; this is for turns without one."""


def api_name(name: object) -> object:
    """Return the name of an api as turnlog's adapters have it; what is not known is left as it is."""
    return APIS.get(name, name) if isinstance(name, str) else name


def provider_name(name: object) -> object:
    """Return the name of a provider as turnlog's adapters have it; what is not known is left as it is."""
    return PROVIDERS.get(name, name) if isinstance(name, str) else name
