"""A log whose errors say where it is, and how to see what is there."""

from __future__ import annotations

import re
from types import TracebackType

from turnlog.errors import StoreError, UnknownBookmarkError, UnknownTurnError
from turnlog.log import TurnLog

_ABSENT = re.compile(r"no (turn|bookmark|turn or bookmark) (['\"]).*\2", re.DOTALL)
_PLACED = re.compile(r"\b(store|log at) ['\"]")


class OpenedLog(TurnLog):
    """A log that a command has opened.

    Attributes:
        place: where its store is, for people.
    """

    place = ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log. An error gets a note that says which store it is about, unless it does."""
        if error is not None and (said := _where(error, self.place)) is not None:
            error.add_note(said)
        super().__exit__(kind, error, trace)


def _where(error: BaseException, place: str) -> str | None:
    message = str(error)
    if isinstance(error, UnknownBookmarkError) and _ABSENT.fullmatch(message):
        return f"`turnlog bookmarks` lists what there is in {place!r}"
    if isinstance(error, UnknownTurnError) and _ABSENT.fullmatch(message):
        return f"`turnlog threads` and `turnlog bookmarks` list what there is in {place!r}"
    if isinstance(error, StoreError) and place not in message and not _PLACED.search(message):
        return f"the store is {place!r}"
    return None
