"""The state of a feed while it runs: how far it has come, what its destination has, and what went wrong."""

from __future__ import annotations

from typing import Any

import msgspec

from turnlog.errors import ConflictError, TurnlogError
from turnlog.feeds.erasures import FORGOTTEN
from turnlog.feeds.sinks.interface import Place
from turnlog.feeds.sinks.reading import LogReader
from turnlog.feeds.sinks.states import FeedState, FeedStates

_ERROR_CHARACTERS_MAX = 500


class Running:
    """The state of a feed while it runs, and where it is kept."""

    def __init__(self, states: FeedStates, reader: LogReader, state: FeedState) -> None:
        self._states = states
        self.reader = reader
        self.state = state
        self.place: Place | None = None
        self.begins_behind = False
        """Whether it is new, and its destination has come further than where it was to begin."""
        self._kept = states.load(state.name)

    @property
    def is_kept(self) -> bool:
        """Whether there is a state of the feed."""
        return self._kept is not None

    @property
    def lacks(self) -> bool:
        """Whether the destination ends before what was delivered to it."""
        return self.place is not None and self.place.position < self.state.delivered_to

    def save(self, **changes: object) -> None:
        self.state = self.state.changed(**changes)
        self._states.save(self.state)
        self._kept = self.state

    def note(self, **changes: object) -> None:
        """Keep something of a feed that is kept, and of another one when that is."""
        if self.is_kept:
            self.save(**changes)
        else:
            self.state = self.state.changed(**changes)

    def found(self, place: Place) -> None:
        """Take in how far the destination has come: further than is kept, where the feed was killed before.

        That is kept at once: there may be nothing more to deliver, and whoever takes files away leaves no trace.
        """
        if self.state.log not in (None, place.log):
            raise ConflictError(
                f"feed {self.state.name!r} is of log {self.state.log!r}, its destination of {place.log!r}"
            )
        self.place = place
        known: dict[str, Any] = {"log": place.log}
        if self.lacks:
            # What was put back there has what was erased since.
            known |= {"erased_to": 0, "erased_id": None}
        else:
            sent_to = 0 if self.state.choice.public else place.position
            known |= {"delivered_to": place.position, "sent_to": max(self.state.sent, sent_to)}
        if place.position > self.state.position:
            self.begins_behind = not self.is_kept
            self.note(**known, **standing_at(place))
        else:
            self.state = msgspec.structs.replace(self.state, **known)

    def lost(self, first: int) -> None:
        """Take in that the destination has nothing left of what it had from a global position on."""
        if self.state.log is not None and first <= self.state.delivered_to:
            self.place = Place(log=self.state.log, position=first - 1, event_id=None)

    def forget_error(self) -> None:
        """Keep that the feed failed, and not with what."""
        if self.state.error is not None:
            self.note(error=FORGOTTEN)

    def settled(self) -> None:
        """Keep that there is nothing to deliver."""
        if self.state.changed(error=None, error_time=None) != self._kept:
            self.save(error=None, error_time=None)

    def failed(self, error: Exception, time: str) -> None:
        """Keep why the feed does not go on, and since when. One that fails before its first delivery is not kept."""
        if not self.is_kept:
            return
        said = str(error) if isinstance(error, TurnlogError) else f"{type(error).__name__}: {error}"
        line = " ".join(said.split())[:_ERROR_CHARACTERS_MAX]
        since = time if self.state.error is None else self.state.error_time
        self.save(error=line, error_time=since)


def standing_at(place: Place) -> dict[str, Any]:
    """Return the changes to the state of a feed that goes on at a place."""
    return {"position": place.position, "event_id": place.event_id, "digest": place.digest, "pending": None}
