"""Where a session of `turnlog chat` is: what its next message continues, and which bookmark that moves."""

from __future__ import annotations

from turnlog.errors import UnknownTurnError
from turnlog.log import TurnLog
from turnlog.turn import Turn


class Place:
    """Turns that the person was told. Who moves or takes away their bookmark meanwhile does not move the session.

    Attributes:
        at: the turns, as a run is to continue them: by a bookmark where that is to move, else by their ids.
        named: the bookmark that is there, as it was found last: the prompt names it.
    """

    def __init__(self, log: TurnLog, at: tuple[str, ...]) -> None:
        """Begin at turns, which are there."""
        self._log = log
        self.at: tuple[str, ...] = ()
        self.named: str | None = None
        self._turns: tuple[str, ...] = ()
        self._watched: str | None = None
        """The same bookmark, until the session itself goes elsewhere: then somebody else has taken it away."""
        self.go_to(at)

    def go_to(self, at: tuple[str, ...]) -> list[Turn]:
        """Go to turns, and return them.

        Raises:
            UnknownTurnError: one is not there, and nothing has changed.
        """
        turns = [self._log.turn(headish) for headish in at]
        self.at, self._turns, self._watched = at, tuple(turn.id for turn in turns), None
        return turns

    def arrive(self, turn_id: str) -> None:
        """Be at a turn that a run has ended with. Nothing is read: the store may not answer."""
        self.at = self._turns = (turn_id,)
        self._watched = None

    def look(self) -> tuple[list[str], str | None]:
        """Find the bookmarks that are there; return them, and the one that has left."""
        try:
            meant = tuple(self._log.turn(headish).id for headish in self.at)
        except UnknownTurnError:
            meant = ()
        if meant != self._turns:
            self.at = self._turns
        here = [bookmark.name for bookmark in self._log.bookmarks.all() if {bookmark.turn} == set(self._turns)]
        left = None if self._watched in (None, *here) else self._watched
        self.named = self._watched = next(iter(here), None)
        return here, left
