"""A log whose errors say where it is, and how to see what is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from turnlog import interop
from turnlog.cli.output import note
from turnlog.cli.text import count
from turnlog.errors import StoreError, TurnlogError, UnknownBookmarkError, UnknownTurnError
from turnlog.log import TurnLog
from turnlog.projections.bookmarks import all_bookmarks

if TYPE_CHECKING:
    from turnlog.interop.portable import OnBookmark, RestoreReport, Survey

Progress = Callable[[int, int], None]
_ABSENT = re.compile(r"no (turn|bookmark|turn or bookmark) (['\"]).*\2", re.DOTALL)
_PLACED = re.compile(r"\b(store|log at) ['\"]")
_COUNTED = re.compile(r"(.+?)[~^@].*", re.DOTALL)
_NAMES_MAX = 10_000
"""Among more names than these nobody's is looked for."""


class OpenedLog(TurnLog):
    """A log that a command has opened.

    Attributes:
        place: where its store is, for people.
    """

    place = ""

    def import_checked(
        self, file: BinaryIO, known: Survey | None, *, bookmarks: OnBookmark, progress: Progress | None
    ) -> RestoreReport:
        """Import what `export` wrote, as `import_turnlog` does; not checked again where it was for an empty log."""
        report = interop.portable.restore(
            self.store, file, self._sources, bookmarks=bookmarks, progress=progress, known=known
        )
        return self._with_registers(report, "keep")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log, and tell what could not be read of it.

        An error gets notes: what was meant, and which store it is about, unless it says so.
        """
        if (
            isinstance(error, UnknownTurnError | UnknownBookmarkError)
            and _ABSENT.fullmatch(str(error))
            and (meant := self._meant(error)) is not None
        ):
            error.add_note(meant)
        if error is not None and (said := _where(error, self.place)) is not None:
            error.add_note(said)
        if error is None:
            self._tell_of_unsettled()
        super().__exit__(kind, error, trace)

    def _tell_of_unsettled(self) -> None:
        try:
            events = self.store.unsettled()
        except TurnlogError:
            return  # all that was asked for was done
        if events:
            note(
                f"{count(events, 'event')} recorded last had no place in the log yet, which this server, or this role, "
                "gives none: not shown here; the next append does, or reading on the primary"
            )

    def _meant(self, error: UnknownTurnError | UnknownBookmarkError) -> str | None:
        """Return what may have been meant by what names nothing, None where nothing is near."""
        asked = error.headish if isinstance(error, UnknownTurnError) else error.name
        try:
            with self.store.read() as transaction:
                names = [bookmark.name for bookmark in all_bookmarks(transaction)]
        except TurnlogError:
            return None  # what is told is why the command failed, and not that nothing can be said about it
        counted = _COUNTED.fullmatch(asked)
        if counted is not None and counted[1] in names:
            return f"the turn before {counted[1]!r} is {f'{counted[1]}~1'!r}"
        from difflib import get_close_matches  # noqa: PLC0415 - who names what is there needs none of it

        close = get_close_matches(asked, names, n=1) if len(names) <= _NAMES_MAX else []
        return f"did you mean {close[0]!r}" if close else None


def _where(error: BaseException, place: str) -> str | None:
    message = str(error)
    if isinstance(error, UnknownBookmarkError) and _ABSENT.fullmatch(message):
        return f"`turnlog bookmarks` lists what there is in {place!r}"
    if isinstance(error, UnknownTurnError) and _ABSENT.fullmatch(message):
        return f"`turnlog threads` and `turnlog bookmarks` list what there is in {place!r}"
    if isinstance(error, StoreError) and place not in message and not _PLACED.search(message):
        return f"the store is {place!r}"
    return None
