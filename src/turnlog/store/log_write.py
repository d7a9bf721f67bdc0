"""Appending to a log: what a write transaction is on either engine, and what a writer knows from one to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import islice

from turnlog.events import FREQUENT_TOPICS, Arrival, DataKey, Event, Recorded, Seal, Seals
from turnlog.store.log_read import LogRead
from turnlog.store.payloads import FILES, INLINE_FORM, PayloadPlacer
from turnlog.store.transactions import SyncProjection
from turnlog.store.values import NewPayload, SealPolicy, Taken

RECENT_MAX = 256
"""How many of its last events a process keeps in memory at least; at most twice as many."""


class Knowledge:
    """What a writer knows of the log from one transaction to the next, as long as nobody else writes."""

    __slots__ = ("begun", "heads", "quiet_since", "recent")

    def __init__(self) -> None:
        """Begin without knowing anything."""
        self.begun = False
        """Whether the log has events."""
        self.quiet_since: int | None = None
        """All above this global position was recorded here, and is of frequent topics. None: not known."""
        self.heads: dict[str, Recorded] = {}
        """See `turnlog.store.interface.WriteTransaction.heads`."""
        self.recent: dict[str, Recorded] = {}
        """The last events that were recorded here, by id: they never change, but that they are erased."""

    def forget(self) -> None:
        """Know nothing of what others can change."""
        self.begun = False
        self.quiet_since = None
        self.heads.clear()

    def remember(self, recorded: Sequence[Recorded]) -> None:
        """Keep the last events, which are most often what is continued next. They never change."""
        recent = self.recent
        for event in recorded[-RECENT_MAX:]:
            recent[event.header.id] = event
        if len(recent) > 2 * RECENT_MAX:
            for event_id in [*islice(recent, len(recent) - RECENT_MAX)]:
                del recent[event_id]
        if len(self.heads) > RECENT_MAX:
            self.heads.clear()


class LogWrite(LogRead):
    """A write transaction at the end of the log. See `turnlog.store.interface.WriteTransaction`."""

    def __init__(
        self,
        payloads: PayloadPlacer,
        projections: Sequence[SyncProjection],
        *,
        seals: Seals | None,
        policy: SealPolicy | None,
        known: Knowledge | None,
    ) -> None:
        """Take what is sealed, and what is known of the log."""
        super().__init__(payloads, seals)
        self._policy = policy
        self._projections = projections
        self._known = known = known or Knowledge()
        self._found: dict[str, Recorded] = {}
        self.heads: MutableMapping[str, Recorded] = known.heads
        self.recent: Mapping[str, Recorded] = known.recent
        self.appended: list[NewPayload] = []
        self.recorded: list[Recorded] = []

    @abstractmethod
    def append(self, event: Event, payload: NewPayload, arrival: Arrival = Arrival.RECORDED) -> Recorded | Taken:
        """Append one event and fold it into the projections, or say what of it is taken."""

    def _folded(self, recorded: Recorded, payload: NewPayload) -> Recorded:
        """Note an event that was appended, and fold it into the projections."""
        self.appended.append(payload)
        known = self._known
        known.begun = True
        self.recorded.append(recorded)
        is_rare = recorded.header.topic not in FREQUENT_TOPICS
        if is_rare or recorded.arrival is not Arrival.RECORDED:
            known.heads.clear()
        if is_rare or known.quiet_since is None:
            known.quiet_since = recorded.global_position
        for projection in self._projections:
            projection.apply(self, recorded)
        return recorded

    def _said_sealed(self) -> SealPolicy | None:
        return super().seal_policy()

    def event(self, event_id: str) -> Recorded | None:
        """Return the event of an id, or None. What was recorded last is most often what is continued next."""
        found = self.recent.get(event_id) or super().event(event_id)
        if found is not None:
            self._found[event_id] = found
        return found

    def place(self, event_id: str) -> tuple[str, int] | None:
        """Return the stream and the position of an event, None for an unknown one. What was found tells its own."""
        found = self._found.get(event_id) or self.recent.get(event_id)
        return super().place(event_id) if found is None else (found.header.stream, found.header.position)

    def seal_policy(self) -> SealPolicy | None:
        """Return what is recorded sealed."""
        return self._policy

    def is_empty(self) -> bool:
        """Tell whether the log has no event yet."""
        known = self._known
        if not known.begun:
            known.begun = self.log_end() > 0
        return not known.begun

    def is_quiet_since(self, event: Recorded) -> bool:
        """Tell whether nothing but turns, calls and replies is known to have been recorded after an event."""
        since = self._known.quiet_since
        return since is not None and event.global_position >= since

    def publish_payloads(self) -> None:
        """Give the payloads that are kept as files their names, once nothing of the plan can fail any more."""
        for payload in self.appended:
            if payload.file is not None:
                self._payloads.publish(payload)

    def release_payloads(self) -> None:
        """Let go of what files were made of, once they have their names for good."""
        for payload in self.appended:
            if payload.file is not None:
                self._payloads.release(payload)

    def _stored(self, recorded: Recorded, placement: int, stored: bytes | None) -> bytes | None:
        if placement in FILES:
            for placed in self.appended:
                if placed.hash == recorded.stored_hash:
                    return super()._stored(recorded, INLINE_FORM[placed.placement], placed.stored)
        return super()._stored(recorded, placement, stored)

    def payload_pieces(self, recorded: Recorded) -> Iterator[bytes]:
        """Iterate over the payload in one piece: the file of one that this transaction appends may have no name yet.

        What is sealed is held sealed, and opened in pieces.
        """
        if recorded.sealed is not None:
            yield from super().payload_pieces(recorded)
            return
        payload = self.payload(recorded)
        if payload is not None:
            yield payload

    def placed(self, payload: bytes) -> NewPayload:
        """Make a payload ready to be appended. It may be sealed before it is: until then none is on disk."""
        return self._payloads.place(payload, is_written=False)

    def seal(self, payload: NewPayload, key: DataKey) -> NewPayload:
        """Return a payload sealed under a key; also one that is sealed under another one."""
        return self._payloads.seal(payload, Seal.new(key))
