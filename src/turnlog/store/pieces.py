"""Pieces of what is large, put together without holding it twice."""

from __future__ import annotations

import io
from collections.abc import Iterable


def joined(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Return pieces as a whole. Each is let go once it was taken."""
    whole = io.BytesIO()
    whole.writelines(pieces)
    return whole.getvalue()  # the buffer itself, and not a copy of it
