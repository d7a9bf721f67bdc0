"""Events of a log as projections are given them: with a way to the payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnlog.events import CALL, ERASURE, REPLY, TURN, Header, Private, Recorded, metadata
from turnlog.store import Store


class LogEvent:
    """An event of a log as projections are given it.

    Attributes:
        recorded: the event.
        originator_id: its stream.
        originator_version: its position in that.
    """

    __slots__ = ("_store", "originator_id", "originator_version", "recorded")

    def __init__(self, recorded: Recorded, store: Store) -> None:
        """Take an event, and the store that has its payload."""
        self.recorded = recorded
        self.originator_id = recorded.header.stream
        self.originator_version = recorded.header.position
        self._store = store

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.recorded.header.id

    @property
    def topic(self) -> str:
        """The topic."""
        return self.recorded.header.topic

    @property
    def global_position(self) -> int:
        """The place in the log, which eventsourcing calls the notification id."""
        return self.recorded.global_position

    @property
    def header(self) -> Header:
        """The header: what a digest commits to."""
        return self.recorded.header

    @property
    def private(self) -> Private | None:
        """The private part; None where there is none, or it cannot be read: it was erased, or its key is not here."""
        return self.recorded.private

    @property
    def meta(self) -> dict[str, Any]:
        """All metadata, public and private together."""
        return metadata(self.recorded)

    def payload(self) -> bytes | None:
        """Read the payload; None where there is none, or it cannot be read.

        Raises:
            CorruptionError: the stored bytes are damaged.
        """
        with self._store.read() as transaction:
            return transaction.payload(self.recorded)

    def __repr__(self) -> str:
        """Show which event it is."""
        return f"{type(self).__name__}(id={self.id!r}, topic={self.topic!r}, global_position={self.global_position})"


class TurnEvent(LogEvent):
    """A turn (`gpt.turn`)."""

    __slots__ = ()


class CallEvent(LogEvent):
    """A model call (`gpt.call`)."""

    __slots__ = ()


class ReplyEvent(LogEvent):
    """The reply to a call (`gpt.reply`)."""

    __slots__ = ()


class ErasureEvent(LogEvent):
    """An erasure (`gpt.erasure`): what it cites as `target` has no content any more."""

    __slots__ = ()


_KINDS: Mapping[str, type[LogEvent]] = {TURN: TurnEvent, CALL: CallEvent, REPLY: ReplyEvent, ERASURE: ErasureEvent}


def log_event(recorded: Recorded, store: Store) -> LogEvent:
    """Return an event with its store, of the class of its topic."""
    return _KINDS.get(recorded.header.topic, LogEvent)(recorded, store)
