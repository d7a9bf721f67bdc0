"""Keys of providers, where they are looked for in texts: in errors, replies and records."""

from __future__ import annotations

from typing import TypeGuard

from turnlog.model.kinds import check_type

API_KEY_CHARACTERS_MIN = 8
"""Shorter ones, as people give local servers, stand in any text."""


def stands_out(key: str | None) -> TypeGuard[str]:
    """Return whether there is a key that can be told from any other text, by its length.

    Raises:
        MetaError: it is no text, and so none that could be looked for.
    """
    return key is not None and len(check_type(key, str, "api_key")) >= API_KEY_CHARACTERS_MIN
