"""Characters that the events of a reply have in two halves.

Servers that count texts in UTF-16 cut them between the halves of a surrogate pair: the first one ends a piece, the
second one begins the next.
"""

from __future__ import annotations

import re

from turnlog.model.surrogates import ESCAPES, HALF, REPLACEMENT


class CutCharacters:
    """Makes the events of one reply such that they have no half, in their order.

    A half that ends a string goes to the second one that begins a string of a later event, and is left out if there is
    none. U+FFFD stands for any other. The event as it was sent is what is recorded.
    """

    def __init__(self) -> None:
        """Begin with no half."""
        self._first: bytes | None = None

    def joined(self, event: bytes) -> bytes:
        """Return the next event, most often as it is."""
        return event if HALF.search(event) is None else ESCAPES.sub(self._whole, event)

    def _whole(self, found: re.Match[bytes]) -> bytes:
        before, behind = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
        if found["first"] is not None and behind == b'"':
            self._first = found[0]
            return b""
        if found["second"] is not None and before == b'"' and self._first is not None:
            first, self._first = self._first, None
            return first + found[0]
        return found[0] if found["first"] is None and found["second"] is None else REPLACEMENT
