"""What a verification found: damage, and counts of what was read."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from turnlog.errors import (
    SealError,
    StorageError,
    StoreBusyError,
    StoreClosedError,
    StoreDeniedError,
    StoreFullError,
    StoreReadOnlyError,
)

NOT_DAMAGE = (
    SealError,
    StorageError,
    StoreBusyError,
    StoreClosedError,
    StoreDeniedError,
    StoreFullError,
    StoreReadOnlyError,
)
"""What says nothing of what is stored: it is raised, and not noted."""

DAMAGE_MAX = 10_000
"""More damage than this is counted and not listed."""

_TEXT_CHARACTERS_MAX = 600
"""What is stored may be of any size; a line about it is not."""


class Damage(Struct, frozen=True, kw_only=True):
    """Something that is not as it was recorded, or as turnlog writes it.

    Attributes:
        what: one line that says what is wrong.
        global_position: the event's place in the log, or None when it is not of one event.
        event_id: the event's id, where it could be read.
    """

    what: str
    global_position: int | None = None
    event_id: str | None = None


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What a verification read and found.

    Attributes:
        events: number of events that were read.
        payloads: number of events whose payload was read and hashed.
        payload_bytes: bytes of these payloads, as they were given.
        private_parts: number of private parts that were hashed and read.
        citations: number of citations that were followed.
        requests: number of requests that were put together again and hashed.
        replies: number of replies whose raw events were counted.
        erased: number of events whose private part and payload are gone.
        sealed: number of events whose private part is sealed.
        closed: number of those whose payload was hashed but not looked into, because their key is not here.
        damage: what is wrong, in the order in which it was found; empty if all is well. At most `DAMAGE_MAX`.
        more: how much more damage there is.
        repaired: what was put in order: projections by their names, what the schema lacked, and `checkpoints` where one
            that cannot be read was taken away.
        others: tables in the store that are none of turnlog's. They are told, and are no damage.
        checkpoints: number of checkpoints that were compared with the events.
        anchored: how many events a checkpoint from outside the store covers; None where none was given. The others are
            not anchored yet: who can write the store could have written them anew.
        since: the global position up to which payloads and requests were not read; 0 for none.
    """

    events: int = 0
    payloads: int = 0
    payload_bytes: int = 0
    private_parts: int = 0
    citations: int = 0
    requests: int = 0
    replies: int = 0
    erased: int = 0
    sealed: int = 0
    closed: int = 0
    damage: tuple[Damage, ...] = ()
    more: int = 0
    repaired: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    checkpoints: int = 0
    anchored: int | None = None
    since: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage


class Findings:
    """Damage as it is found, and counts of what was looked at. Takes bounded memory, whatever is found."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.events = self.payloads = self.payload_bytes = self.private_parts = 0
        self.citations = self.requests = self.replies = self.erased = self.sealed = self.closed = 0
        self.global_position: int | None = None
        self.event_id: str | None = None
        self.checkpoints = 0
        self.anchored: int | None = None
        self.since = 0
        self._damage: list[Damage] = []
        self._more = 0

    def at(self, global_position: int | None, event_id: str | None = None) -> None:
        """Say which event is looked at from here on; None for none."""
        self.global_position = global_position
        self.event_id = event_id

    def add(self, what: str) -> None:
        """Note something that is wrong with the event that is looked at."""
        if len(self._damage) == DAMAGE_MAX:
            self._more += 1
            return
        event_id = None if self.event_id is None else shortened(self.event_id)
        self._damage.append(Damage(what=shortened(what), global_position=self.global_position, event_id=event_id))

    def sort(self, start: int) -> None:
        """Put what was found since there were `start` findings into the order of the log."""
        if self.count > start + 1:
            self._damage[start:] = sorted(self._damage[start:], key=lambda damage: damage.global_position or 0)

    def found_since(self, start: int) -> list[Damage]:
        """Return what was found since there were `start` findings, as far as it is listed."""
        return self._damage[start:]

    def take_back(self, findings: Collection[Damage]) -> None:
        """Take back what has turned out to be none."""
        self._damage = [damage for damage in self._damage if damage not in findings]

    @property
    def count(self) -> int:
        """How much was found until now."""
        return len(self._damage) + self._more

    def report(self, *, repaired: tuple[str, ...] = (), others: tuple[str, ...] = ()) -> VerifyReport:
        """Return all that was found."""
        return VerifyReport(
            events=self.events,
            payloads=self.payloads,
            payload_bytes=self.payload_bytes,
            private_parts=self.private_parts,
            citations=self.citations,
            requests=self.requests,
            replies=self.replies,
            erased=self.erased,
            sealed=self.sealed,
            closed=self.closed,
            damage=tuple(self._damage),
            more=self._more,
            repaired=repaired,
            others=others,
            checkpoints=self.checkpoints,
            anchored=self.anchored,
            since=self.since,
        )


def shortened(text: str) -> str:
    """Return a text that is short enough for a line."""
    return text if len(text) <= _TEXT_CHARACTERS_MAX else text[:_TEXT_CHARACTERS_MAX] + "…"


def shown(value: object) -> str:
    """Return a stored value for a line, of whatever type and size it is."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"{len(value):,} bytes"
        case str():
            return repr(value if len(value) <= 60 else value[:60] + "…")
        case _:
            return repr(value)
