"""Whether two names mean the same model: providers answer `gpt-5` as `gpt-5-2025-08-07`."""

from __future__ import annotations

import re

from turnlog.model.names import MODELS

_VERSION = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest|0)$")
_ALIASES = ("-latest", "-0")


def same_model(one: object, other: object) -> bool:
    """Return whether two names mean the same model: they are equal, or one has a date and the other none.

    Two names with different dates mean different models. `-latest` and `-0` (`claude-sonnet-4-0`) count as no date.
    """
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    if one == other or MODELS.get(one, one) == MODELS.get(other, other):
        return True
    bases = [_VERSION.sub("", name) for name in (one, other)]
    undated = any(name == base or name.endswith(_ALIASES) for name, base in zip((one, other), bases, strict=True))
    return bases[0] == bases[1] and undated
