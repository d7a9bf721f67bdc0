"""Reading a log from its table of events, as both engines have it, in a snapshot of the one or the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import msgspec

from turnlog.errors import CorruptionError
from turnlog.events import FREQUENT_TOPICS, SEAL, Arrival, Event, Recorded, Seals, unreadable
from turnlog.events.form import decode_recorded, plain_size
from turnlog.events.sealing import event_secret_of
from turnlog.model.pieces import joined
from turnlog.store.payloads import FILE_BYTES_MIN, PayloadPlacer
from turnlog.store.rows import (
    IN_FILES,
    PAYLOAD,
    RARE,
    RECORDED,
    STORED_ROW,
    at_place,
    misplaced,
    of_topic,
    parts_of,
    recorded_of,
    recorded_page,
    recorded_past_damage,
)
from turnlog.store.sealing import seal_policy
from turnlog.store.transactions import SideTables, SQLRow, SyncProjection
from turnlog.store.values import Located, Placement, SealPolicy, StoredRow

_PAGE_EVENTS = 1000

_FIRST_PAGE_EVENTS = 16
"""Who reads backwards may want few events: pages double from here."""

_BEHIND_Z = "{"
"""The character that follows the last one of an id."""


def _place(row: SQLRow) -> tuple[int, bytes | None]:
    """Return where and how the payload is kept of an event that `LogRead._run` has read."""
    return row[-3], row[-2]


def _located(rows: list[SQLRow]) -> list[Located]:
    """Return rows as such.

    Raises:
        CorruptionError: one has something else.
    """
    try:
        return msgspec.convert(rows, list[Located])
    except msgspec.ValidationError as error:
        raise CorruptionError(f"the place of an event is damaged ({error}): run `turnlog verify`") from error


def _no_end(stream: str) -> CorruptionError:
    return CorruptionError(f"the end of stream {stream!r} cannot be found: run `turnlog verify`")


class LogRead(ABC):
    """One snapshot of a log. See `turnlog.store.interface.ReadTransaction`."""

    EVENTS: ClassVar[str] = "stored_events"
    """What events are read from: a table or a view, with the global position as `notification_id`."""

    EVENTS_NAMED: ClassVar[str] = "stored_events"
    """The same for those that are asked for by id or by place in a stream."""

    RARE_ORDER: ClassVar[str] = "notification_id"
    """What the index of rare topics has them in the order of."""

    reads_past_damage: bool = False
    """See `turnlog.store.transactions.past_damage`."""

    RUN_ROWS_MAX: ClassVar[int] = 256
    """So many events of a stream are read at once with their payloads: more do not stay in a processor's cache."""

    def __init__(self, payloads: PayloadPlacer, seals: Seals | None) -> None:
        """Take what loads payloads, and the keys of what is sealed."""
        self._payloads = payloads
        self.seals = seals

    @abstractmethod
    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
        """Run a statement and return all rows of its result."""

    @abstractmethod
    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that has no result."""

    @abstractmethod
    def each(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[SQLRow]:
        """Run a statement and iterate over the rows of its result; other statements may run meanwhile."""

    @abstractmethod
    def has(self, side: SideTables | SyncProjection) -> bool:
        """Tell whether the store has all tables of side tables, or of a projection."""

    def seal_policy(self) -> SealPolicy | None:
        """Return what is recorded sealed; None where nothing ever was."""
        # It is read without keys: nobody needs them to append what is not sealed.
        seals, self.seals = self.seals, None
        try:
            said = [recorded for recorded in self.log(topics=[SEAL]) if recorded.arrival != Arrival.GUEST]
        finally:
            self.seals = seals
        if not said:
            return None
        return seal_policy(said)

    def opened(self, event: Recorded) -> Recorded:
        """Return an event that was read without keys as it is with those that are here."""
        if event.sealed is None or event.private is not None:
            return event
        return decode_recorded(event.state, event.private_state, event.global_position, event.arrival, self.seals)

    def leaves(self, first: int, count: int) -> list[tuple[bytes, int]]:
        """Return leaf hash and arrival of `count` events from the leaf index `first` on."""
        rows = self.rows(
            f"SELECT leaf_hash, arrival FROM {self.EVENTS} WHERE notification_id > ? ORDER BY notification_id LIMIT ?",
            (first, count),
        )
        end = self.rows(f"SELECT notification_id FROM {self.EVENTS} WHERE notification_id = ?", (first + count,))
        found = [leaf for leaf, _ in rows]
        if len(rows) != count or not end or not ({*map(type, found)} <= {bytes} and {*map(len, found)} <= {32}):
            raise CorruptionError(
                f"the leaf hashes of global positions {first + 1} to {first + count} cannot be read: "
                "run `turnlog verify`"
            )
        return cast("list[tuple[bytes, int]]", rows)

    def genesis(self) -> Recorded | None:
        """Return the first event of the log, or None in an empty one."""
        return self.at_global(1)

    def event(self, event_id: str) -> Recorded | None:
        """Return the event of an id, or None."""
        found = self._one(f"SELECT {RECORDED} FROM {self.EVENTS_NAMED} WHERE event_id = ?", (event_id,))
        if found is not None and found.header.id != event_id:
            raise misplaced(found, f"id {event_id!r}")
        return found

    def ids_beginning(self, start: str, *, topic: str, limit: int) -> list[str]:
        """Return at most `limit` ids of events of a topic that begin with a text (of 0-9 and a-z), ascending."""
        rows = self.rows(
            f"SELECT event_id FROM {self.EVENTS_NAMED} WHERE event_id >= ? AND event_id < ? AND topic = ?"
            f" ORDER BY event_id LIMIT {limit}",
            (start, start + _BEHIND_Z, topic),
        )
        return [event_id for (event_id,) in rows]

    def ids_beside(self, event_id: str, *, topic: str) -> list[str]:
        """Return the ids of events of a topic that stand next before and next behind an id in the order of ids."""
        found: list[str] = []
        for sign, order in (("<", "DESC"), (">", "ASC")):
            rows = self.rows(
                f"SELECT event_id FROM {self.EVENTS_NAMED} WHERE event_id {sign} ? AND topic = ?"
                f" ORDER BY event_id {order} LIMIT 1",
                (event_id, topic),
            )
            found += [beside for (beside,) in rows]
        return found

    def at(self, stream: str, position: int) -> Recorded | None:
        """Return the event at a position of a stream, or None."""
        found = self._one(
            f"SELECT {RECORDED} FROM {self.EVENTS_NAMED} WHERE originator_id = ? AND originator_version = ?",
            (stream, position),
        )
        return None if found is None else at_place(stream, position, found)

    def at_global(self, global_position: int) -> Recorded | None:
        """Return the event at a global position, or None."""
        return self._one(f"SELECT {RECORDED} FROM {self.EVENTS} WHERE notification_id = ?", (global_position,))

    def place(self, event_id: str) -> tuple[str, int] | None:
        """Return the stream and the position of an event, None for an unknown one."""
        rows = self.rows(
            f"SELECT originator_id, originator_version FROM {self.EVENTS_NAMED} WHERE event_id = ?", (event_id,)
        )
        return rows[0] if rows else None

    def located(self, event_ids: Collection[str]) -> dict[str, Located]:
        """Return where events are, by id, without the unknown ones. None of them is read."""
        found: dict[str, Located] = {}
        for part in parts_of(event_ids):
            rows = self.rows(
                "SELECT event_id, originator_id, originator_version, notification_id"
                f" FROM {self.EVENTS_NAMED} WHERE event_id IN ({', '.join('?' * len(part))})",
                part,
            )
            found |= {each.event_id: each for each in _located(rows)}
        return found

    def stream(self, stream: str, first: int, last: int) -> list[Recorded]:
        """Return the events of a stream from position `first` to `last`, both included, in order."""
        rows = self.rows(
            f"SELECT {RECORDED}, originator_version FROM {self.EVENTS_NAMED} WHERE originator_id = ?"
            " AND originator_version BETWEEN ? AND ? ORDER BY originator_version",
            (stream, first, last),
        )
        return [at_place(stream, row[-1], event) for event, row in zip(self._page(rows), rows, strict=True)]

    def stream_end(self, stream: str) -> Recorded:
        """Return the last event of a stream that there is."""
        rows = self.rows(
            f"SELECT {RECORDED}, originator_version FROM {self.EVENTS_NAMED} WHERE originator_id = ?"
            " ORDER BY originator_version DESC LIMIT 1",
            (stream,),
        )
        if not rows:
            raise _no_end(stream)
        *columns, position = rows[0]
        return at_place(stream, position, self._recorded(*columns))

    def stream_ends(self, streams: Collection[str]) -> dict[str, Located]:
        """Return where the last events of streams are, by stream. None of them is read."""
        found: dict[str, Located] = {}
        for part in parts_of(streams):
            # Streams come first in a cross join, so that no database walks through the log to find them.
            rows = self.rows(
                f"WITH asked (stream) AS (VALUES {', '.join(['(?)'] * len(part))})"
                " SELECT event_id, originator_id, originator_version, notification_id"
                f" FROM asked CROSS JOIN {self.EVENTS_NAMED} WHERE originator_id = stream AND originator_version ="
                f" (SELECT other.originator_version FROM {self.EVENTS_NAMED} other WHERE other.originator_id = stream"
                " ORDER BY other.originator_version DESC LIMIT 1)",
                part,
            )
            ends = {each.stream: each for each in _located(rows)}
            if missing := next((stream for stream in part if stream not in ends), None):
                raise _no_end(missing)
            found |= ends
        return found

    def stream_payloads(self, stream: str, first: int, last: int) -> Iterator[tuple[Recorded, bytes | None]]:
        """Iterate over the same with each event's payload, checked against its hash; None where there is none."""
        for event, payload, row in self._run(stream, first, last):
            yield event, self._load(event, *_place(row)) if payload is None else payload

    def stream_starts(
        self, stream: str, first: int, last: int, bytes_max: int
    ) -> Iterator[tuple[Recorded, bytes | None]]:
        """Iterate over the same, one payload in memory at a time, of a larger one only the first `bytes_max` bytes."""
        for event, payload, row in self._run(stream, first, last):
            # What is sealed can be opened as a whole only.
            is_cut = event.size is not None and event.size > bytes_max and event.sealed is None
            place = _place(row)
            found = payload or (self._start(event, *place, bytes_max) if is_cut else self._load(event, *place))
            yield event, None if found is None else found[:bytes_max]

    def _run(self, stream: str, first: int, last: int) -> Iterator[tuple[Recorded, bytes | None, SQLRow]]:
        """Yield events of a stream, each with its payload where that is at hand, and with its row: see `_place`."""
        statement = (
            f"SELECT {RECORDED}, payload, originator_version FROM {self.EVENTS_NAMED} WHERE originator_id = ?"
            " AND originator_version BETWEEN ? AND ? ORDER BY originator_version LIMIT ?"
        )
        while True:
            rows = self.rows(statement, (stream, first, last, self.RUN_ROWS_MAX))
            page = self._page(rows)
            for event, payload, row in zip(page, self._payloads.load_page(page, rows), rows, strict=True):
                header = event.header
                if header.stream != stream or header.position != row[-1]:
                    at_place(stream, row[-1], event)
                yield event, payload, row
            if len(rows) < self.RUN_ROWS_MAX:
                return
            first = rows[-1][-1] + 1

    def payload(self, recorded: Recorded) -> bytes | None:
        """Return the payload of an event, checked against its hash; None where there is none, or not readable."""
        return None if recorded.hash is None else self._load(recorded, *self._payload_row(recorded))

    def payload_pieces(self, recorded: Recorded) -> Iterator[bytes]:
        """Iterate over the same in pieces: its hash is compared behind the last one."""
        if recorded.hash is None:
            return
        placement, stored = self._payload_row(recorded)
        size = recorded.size or 0
        if size <= FILE_BYTES_MIN:
            yield self._load(recorded, placement, stored) or b""
        elif recorded.sealed is not None:
            yield from self._unsealed(recorded, self._stored(recorded, placement, stored) or b"")
        else:
            yield from self._payloads.pieces(
                recorded.hash,
                size,
                placement,
                stored,
                event_id=recorded.header.id,
                global_position=recorded.global_position,
            )

    def stored_payload(self, recorded: Recorded) -> bytes | None:
        """Return the same as it is kept: of a sealed event sealed."""
        return None if recorded.stored_hash is None else self._stored(recorded, *self._payload_row(recorded))

    def _payload_row(self, recorded: Recorded) -> SQLRow:
        rows = self._payload_rows(recorded)
        if not rows:
            raise CorruptionError(
                f"event {recorded.header.id!r} cannot be found again: run `turnlog verify`",
                global_position=recorded.global_position,
            )
        return rows[0]

    def _payload_rows(self, recorded: Recorded) -> list[SQLRow]:
        return self.rows(f"SELECT {PAYLOAD} FROM {self.EVENTS} WHERE notification_id = ?", (recorded.global_position,))

    def _load(self, recorded: Recorded, placement: int, stored: bytes | None) -> bytes | None:
        found = None if recorded.hash is None else self._stored(recorded, placement, stored)
        return found if found is None or recorded.sealed is None else joined(self._unsealed(recorded, found))

    def _unsealed(self, event: Event, sealed_payload: bytes) -> Iterator[bytes]:
        """Iterate over what is sealed in the payload of an event that was opened, in pieces."""
        assert event.sealed is not None
        secret = event_secret_of(event.sealed, self.seals)
        if secret is None:  # its key was destroyed since
            raise unreadable(event, f"event {event.header.id!r}")
        return self._payloads.unsealed(
            sealed_payload,
            secret,
            event.hash or "",
            event.size or 0,
            event_id=event.header.id,
            global_position=event.global_position if isinstance(event, Recorded) else None,
        )

    def _start(self, recorded: Recorded, placement: int, stored: bytes | None, bytes_max: int) -> bytes:
        return self._payloads.start(
            recorded.hash or "",
            recorded.size or 0,
            placement,
            stored,
            bytes_max=bytes_max,
            event_id=recorded.header.id,
            global_position=recorded.global_position,
        )

    def _stored(self, recorded: Recorded, placement: int, stored: bytes | None) -> bytes | None:
        hash_, size = recorded.stored_hash, recorded.stored_size
        if hash_ is None or size is None:
            return None
        return self._payloads.load(
            hash_,
            size,
            placement,
            stored,
            event_id=recorded.header.id,
            global_position=recorded.global_position,
        )

    def verified_payload(self, row: StoredRow, event: Event) -> tuple[int, bytes | None]:
        """Check the payload of an event against its hash in bounded memory, and return its size and its bytes."""
        hash_, size = event.stored_hash, event.stored_size
        if hash_ is None or size is None:
            return 0, None
        kept = hash_, size, row.placement, row.stored
        given = size if event.size is None else event.size
        event_id, position = event.header.id, row.global_position
        payload = self._payloads.check_payload(*kept, event_id=event_id, global_position=position)
        if event.sealed is None:
            return given, payload
        if event.private is None:  # its key is not here
            return given, None
        if payload is None:  # it is too large to be looked into, and not to be opened
            for _ in self._unsealed(event, self._payloads.load(*kept, event_id=event_id, global_position=position)):
                pass
            return given, None
        return given, joined(self._unsealed(event, payload))

    def log(self, after: int = 0, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events with a global position above `after`, in order."""
        only = f" AND topic IN ({', '.join('?' * len(topics))})" if topics else ""
        at = "notification_id"
        if topics and not set(topics) & set(FREQUENT_TOPICS):
            # The sum keeps databases from walking through the whole log in its order, for the few that are asked for.
            only, at = f"{only} AND {RARE}", "(notification_id + 0)"
        statement = f"SELECT {RECORDED} FROM {self.EVENTS} WHERE {at} > ?{only} ORDER BY {at}"
        while True:
            page = self.rows(f"{statement} LIMIT {_PAGE_EVENTS}", (after, *topics))
            found = self._events(page)
            yield from (of_topic(topics, recorded) for recorded in found) if topics else found
            if len(page) < _PAGE_EVENTS:
                return
            after = page[-1][0]

    def unsettled(self) -> Mapping[str, tuple[str, int]]:
        """Return the places of events that are committed, and not in the log of this snapshot yet: none."""
        return {}

    def log_backwards(self, before: int, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events of some topics with a global position below `before`, the last one first."""
        only = f" AND topic IN ({', '.join('?' * len(topics))})" if topics else ""
        order = "notification_id"
        if len(topics) == 1 and topics[0] not in FREQUENT_TOPICS:
            only, order = f"{only} AND {RARE}", self.RARE_ORDER
        statement = (
            f"SELECT {RECORDED}, originator_id, originator_version FROM {self.EVENTS} WHERE notification_id < ?{only}"
            f" ORDER BY {order} DESC LIMIT ?"
        )
        size = _FIRST_PAGE_EVENTS
        while page := self.rows(statement, (before, *topics, size)):
            for event, row in zip(self._events(page), page, strict=True):
                recorded = at_place(row[-2], row[-1], event)
                yield of_topic(topics, recorded) if topics else recorded
            before, size = page[-1][0], min(2 * size, _PAGE_EVENTS)

    def log_end(self) -> int:
        """Return the global position of the last event, 0 in an empty log."""
        (end,) = self.rows(f"SELECT COALESCE(MAX(notification_id), 0) FROM {self.EVENTS}")[0]
        if type(end) is not int:
            raise CorruptionError("the global position of the last event is no whole number: run `turnlog verify`")
        return end

    def payload_bytes(self) -> int:
        """Return the bytes of all payloads as they were given, counted once for each event. Little is checked."""
        found = 0
        statement = f"SELECT notification_id, private FROM {self.EVENTS} WHERE private IS NOT NULL"
        for position, private in self.each(statement):
            size = plain_size(private)
            if size is None and (recorded := self.at_global(position)) is not None:
                size = recorded.stored_size if recorded.size is None else recorded.size
            found += size or 0
        return found

    def stored_payload_bytes(self) -> int:
        """Return the bytes of the payloads that are in the table itself, as they are stored there."""
        statement = f"SELECT COALESCE(SUM(LENGTH(payload)), 0) FROM {self.EVENTS} WHERE NOT ({IN_FILES})"
        stored: list[tuple[int]] = self.rows(statement)
        return stored[0][0]

    def topics(self) -> dict[str, int]:
        """Return the number of events of each topic, by topic."""
        rows = self.rows(f"SELECT topic, COUNT(*) FROM {self.EVENTS} GROUP BY topic ORDER BY topic")
        return {str(topic): count for topic, count in rows}

    def rare_topics(self) -> list[str]:
        """Return the topics that there are events of, but for the frequent ones. The log is not walked through."""
        return [str(topic) for (topic,) in self.rows(f"SELECT DISTINCT topic FROM {self.EVENTS} WHERE {RARE}")]

    def count_in(self, streams: Collection[str]) -> int:
        """Return the number of events of some streams. None of them is read."""
        found = 0
        for part in parts_of(streams):
            marks = ", ".join("?" * len(part))
            [(count,)] = self.rows(f"SELECT COUNT(*) FROM {self.EVENTS} WHERE originator_id IN ({marks})", part)
            found += count
        return found

    def last_erasure(self) -> int:
        """Return the global position of the last `gpt.erasure` event, 0 if there is none."""
        [(at,)] = self.rows(f"SELECT MAX(notification_id) FROM {self.EVENTS} WHERE topic = 'gpt.erasure' AND {RARE}")
        return at if type(at) is int else 0

    def last(self, topic: str, *, before: int | None = None) -> Recorded | None:
        """Return the last event of a topic below the global position `before`; None if there is none."""
        bound, order = "" if before is None else " AND notification_id < ?", "notification_id"
        if topic not in FREQUENT_TOPICS:
            bound, order = f"{bound} AND {RARE}", self.RARE_ORDER
        found = self._one(
            f"SELECT {RECORDED} FROM {self.EVENTS} WHERE topic = ?{bound} ORDER BY {order} DESC LIMIT 1",
            (topic,) if before is None else (topic, before),
        )
        return None if found is None else of_topic((topic,), found)

    def stored_rows(self, after: int, limit: int) -> list[StoredRow]:
        """Return at most `limit` events with a global position above `after`, in order, as they lie in the store."""
        rows = self.rows(
            f"SELECT {STORED_ROW} FROM {self.EVENTS} WHERE notification_id > ? ORDER BY notification_id LIMIT ?",
            (after, limit),
        )
        return [*map(StoredRow._make, rows)]

    def has_file(self, payload_hash: bytes, placement: Placement | None = None) -> bool:
        """Tell whether an event keeps its payload in the file of a hash, in one form or in either."""
        rows = self.rows(
            f"SELECT payload_placement FROM {self.EVENTS} WHERE payload = ? AND {IN_FILES} GROUP BY payload_placement",
            (payload_hash,),
        )
        return bool(rows) if placement is None else (placement,) in rows

    def _page(self, rows: Sequence[SQLRow]) -> list[Recorded]:
        """Return the events of rows, whose first columns are `RECORDED`."""
        return [*self._events(rows)]

    def _events(self, rows: Sequence[SQLRow]) -> Iterator[Recorded]:
        return recorded_page(self.seals, rows, recorded_past_damage if self.reads_past_damage else recorded_of)

    def _recorded(self, *columns: Any) -> Recorded:
        return (recorded_past_damage if self.reads_past_damage else recorded_of)(self.seals, *columns)

    def _one(self, statement: str, parameters: Sequence[object]) -> Recorded | None:
        rows = self.rows(statement, parameters)
        return self._recorded(*rows[0]) if rows else None
