"""The keys of a run, taken out of what is told while it goes on.

The log does the same with what is recorded: see `turnlog.record.redaction`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from turnlog.model.api_keys import stands_out
from turnlog.record.findings import marker
from turnlog.record.key_hook import API_KEY

M = TypeVar("M", bound=BaseModel)

_MARKER = marker(API_KEY)


class Keys:
    """The keys of a run.

    Ones that do not stand out are not looked for: they stand in any text.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        """Take the keys."""
        long = set(filter(stands_out, keys))
        # The longest first: one may be the beginning of another.
        self._keys = sorted(long, key=lambda key: (-len(key), key))
        self._pattern = re.compile("|".join(map(re.escape, self._keys))) if self._keys else None

    def with_key(self, key: str | None) -> Keys:
        """Return these keys and one more."""
        return self if key is None else Keys([*self._keys, key])

    def masked(self, text: str) -> str:
        """Return a text with a marker in the place of each key."""
        return text if self._pattern is None else self._pattern.sub(_MARKER, text)

    def masked_json(self, value: JsonValue) -> JsonValue:
        """Return a JSON value whose texts, and names of members, have no key in them."""
        match value:
            case str():
                return self.masked(value)
            case list():
                return [self.masked_json(inner) for inner in value]
            case dict():
                return {self.masked(name): self.masked_json(inner) for name, inner in value.items()}
            case _:
                return value

    def masked_model(self, given: M) -> M:
        """Return a model whose fields have no key in them."""
        if self._pattern is None:
            return given
        return type(given).model_validate(self.masked_json(given.model_dump(mode="json")))

    def split(self, text: str) -> tuple[str, str]:
        """Return the beginning of a text that goes on, without keys, and the rest, where one may begin."""
        if self._pattern is None:
            return text, ""
        found = [match.span() for match in self._pattern.finditer(text)]
        first = max(0, len(text) - len(self._keys[0]) + 1)
        for at in range(first, len(text)):
            rest = text[at:]
            if any(start < at < end for start, end in found):
                continue
            if any(len(key) > len(rest) and key.startswith(rest) for key in self._keys):
                return self.masked(text[:at]), rest
        return self.masked(text), ""
