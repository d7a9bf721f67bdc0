"""Where ids, the time and randomness come from. Tests give their own."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from turnlog.events import Event, genesis
from turnlog.events.form import SALT_BYTES
from turnlog.ids import new_id, now_ms


def _salt() -> bytes:
    return os.urandom(SALT_BYTES)


class Sources(Struct, frozen=True, kw_only=True):
    """What an event gets that nobody says.

    Attributes:
        new_id: returns a fresh id, in stored form.
        time_ms: returns the time, in milliseconds since 1970 UTC.
        salt: returns 16 random bytes, never the same.
    """

    new_id: Callable[[], str] = new_id
    time_ms: Callable[[], int] = now_ms
    salt: Callable[[], bytes] = _salt

    def genesis(self) -> Event:
        """Return the first event of a new log."""
        return genesis(self.new_id(), self.time_ms())
