"""Read and write transactions on a PostgreSQL connection. Statements wait for the next one that is to be answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec
import psycopg

from turnlog.digest import sri_bytes
from turnlog.errors import SchemaError, StoreError
from turnlog.events import FREQUENT_TOPICS, SEAL, TURN, Arrival, Event, Recorded, Seals
from turnlog.events.form import recorded as in_place
from turnlog.store.log_read import LogRead
from turnlog.store.log_write import Knowledge, LogWrite
from turnlog.store.payloads import FILES, PayloadPlacer
from turnlog.store.postgres.errors import is_lost
from turnlog.store.postgres.schema import EVENTS_MAX
from turnlog.store.postgres.wire import Answer, Rows, Statement, Wire, bigints, blobs, rows_of, smallints, texts
from turnlog.store.rows import PAYLOAD
from turnlog.store.transactions import SideTables, SQLRow, SyncProjection
from turnlog.store.values import NewPayload, Placement, SealPolicy, StoredRow, Taken

_PENDING = 1 << 62
"""Global positions from here on are those of events that the transaction at hand appends: they have none yet."""

_UNSETTLED = 1 << 61
"""Global positions from here on are those of events that have none yet though they are committed, by their keys."""

_UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""What is appended goes to the server at the latest when it is more than this."""

FREQUENT = frozenset(FREQUENT_TOPICS)

_FETCH_ROWS = 2000

SETTLE = Statement("SELECT log_settle()")
BEGIN_READ = Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_NOT_SETTLED = Statement(
    "SELECT event_id, originator_id, originator_version FROM stored_events"
    " WHERE order_key > COALESCE((SELECT MAX(order_key) FROM log_order), 0)"
)
COMMIT = Statement("COMMIT")
WRITTEN = Statement("SELECT pg_logical_emit_message(true, 'turnlog', '')")
"""What is written makes the commit wait for standbys: then they have all that came before, too."""
_AGAIN_MAX = 4
"""How often what is read first is asked for again after a connection was lost."""

_OF_STATE = "FROM store_state WHERE one = 1"
_EPOCH = Statement(f"SELECT epoch {_OF_STATE}")
ROLLBACK = Statement("ROLLBACK")
# Where nothing says what state the store is in, as while a backup is put back, nothing is appended.
_APPEND = f"SELECT log_append(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {_OF_STATE}"
_APPEND_ONE = (
    "SELECT log_append(?, ?, ?, ARRAY[?::text], ARRAY[?::text], ARRAY[?::bigint], ARRAY[?::text], ARRAY[?::bytea],"
    f" ARRAY[?::bytea], ARRAY[?::smallint], ARRAY[?::bytea], ARRAY[?::smallint], ARRAY[?::bytea]) {_OF_STATE}"
)
POSITION = "SELECT log_position(?)"
_SETTLE_NOW = Statement("SELECT log_settle_now()")
_BEGIN_WRITE = (
    Statement("BEGIN ISOLATION LEVEL REPEATABLE READ"),
    # It takes no snapshot: that of the plan is taken after it, so that nobody who must be alone is missed.
    Statement("LOCK TABLE log_gate IN ROW EXCLUSIVE MODE"),
)
BEGIN_ALONE = (Statement("BEGIN ISOLATION LEVEL READ COMMITTED"), Statement("LOCK TABLE log_gate IN EXCLUSIVE MODE"))
_TAKEN = "SELECT event_id FROM stored_events WHERE event_id = ? OR (originator_id = ? AND originator_version = ?)"


def begin_alone(wire: Wire) -> tuple[int, int]:
    """Open a transaction beside which nobody else appends; return the global position of the last event, and the epoch.

    Raises:
        psycopg.Error: it cannot be opened.
    """
    [answer] = wire.exchange([*BEGIN_ALONE, _SETTLE_NOW, _EPOCH])
    *_, [(end,)], [(epoch,)] = rows_of(answer)
    return end, epoch


class AloneError(Exception):
    """What a plan does can only be done by somebody who is alone."""


class PostgresSQL:
    """SQL on one connection, in a transaction that begins with the first statement that is to be answered."""

    def __init__(self, wire: Wire, *first: Sequence[Statement]) -> None:
        """Take a connection, and groups of statements that go before all else; the last one opens the transaction."""
        self._wire = wire
        self._groups: list[Sequence[Statement]] = [*first[:-1]]
        self._waiting: list[Statement] = [*first[-1]] if first else []
        self._cursors = 0

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
        """Run a statement and return all rows of its result."""
        self._before_answer()
        return self._answered([*self._waiting, Statement(statement, parameters)])[-1]

    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that has no result, at the latest with the next one that has one."""
        self._waiting.append(Statement(statement, parameters))

    def each(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[SQLRow]:
        """Run a statement and iterate over the rows of its result; other statements may run meanwhile."""
        self._cursors += 1
        name = f"each_{self._cursors}"
        self.run(f"DECLARE {name} NO SCROLL CURSOR FOR {statement}", parameters)
        fetch = f"FETCH {_FETCH_ROWS} FROM {name}"
        while rows := self.rows(fetch):
            yield from rows
            if len(rows) < _FETCH_ROWS:
                break
        self.run(f"CLOSE {name}")

    def flush(self) -> None:
        """Run what waits."""
        self._before_answer()
        if self._waiting:
            self._answered(self._waiting)

    def _before_answer(self) -> None:
        """Put what else is to be sent behind what waits."""

    def _answered(self, group: Sequence[Statement]) -> list[Rows]:
        *first, answer = self._sent(group)
        for other in first:
            rows_of(other)
        return rows_of(answer)

    def _sent(self, *groups: Sequence[Statement], shielded: bool = False) -> list[Answer]:
        groups = (*self._groups, *groups)
        self._groups, self._waiting = [], []
        return self._wire.exchange(*groups, shielded=shielded)


class PostgresRead(PostgresSQL, LogRead):
    """One snapshot of a log. See `turnlog.store.interface.ReadTransaction`."""

    EVENTS = "log_events"
    EVENTS_NAMED = "log_events"
    RARE_ORDER = "order_key"
    RUN_ROWS_MAX = 2048  # a server is asked less often

    _again: Callable[[], Wire] | None = None
    _not_settled: Mapping[str, tuple[str, int]] | None = None

    def __init__(
        self,
        wire: Wire,
        payloads: PayloadPlacer,
        seals: Seals | None,
        *first: Sequence[Statement],
        again: Callable[[], Wire] | None = None,
    ) -> None:
        """Take a connection, the keys of what is sealed, what goes before all else, and what opens a connection.

        Without a way to another connection nothing is read again where the first one is lost at once.
        """
        PostgresSQL.__init__(self, wire, *first)
        LogRead.__init__(self, payloads, seals)
        self._again = again
        if self._waiting:
            self._waiting.append(_NOT_SETTLED)

    @property
    def wire(self) -> Wire:
        """The connection that is read from."""
        return self._wire

    def _sent(self, *groups: Sequence[Statement], shielded: bool = False) -> list[Answer]:
        again, self._again = self._again, None
        before = self._groups
        for _ in range(_AGAIN_MAX if again else 0):
            try:
                return super()._sent(*groups, shielded=shielded)
            except psycopg.Error as error:
                if again is None or not is_lost(error):
                    raise
            # Nothing was read yet. A connection that lay idle may have been cut since, and a new one be cut, too.
            self._wire.close()
            self._wire = again()
            self._groups = before
        return super()._sent(*groups, shielded=shielded)

    def unsettled(self) -> Mapping[str, tuple[str, int]]:
        """Return the places of events that others have committed, and that are not in the log of this snapshot yet."""
        if self._not_settled is None:
            self.flush()
        return self._not_settled or {}

    def _answered(self, group: Sequence[Statement]) -> list[Rows]:
        found = super()._answered(group)
        if self._not_settled is None:
            at = next((at for at, statement in enumerate(group) if statement is _NOT_SETTLED), None)
            rows = [] if at is None else found[at]
            self._not_settled = {event_id: (stream, position) for event_id, stream, position in rows}
        return found

    def has(self, side: SideTables | SyncProjection) -> bool:
        """Tell whether the store has all tables of side tables, or of a projection."""
        named = ", ".join("to_regclass(?)" for _ in side.tables)
        [(found,)] = self.rows(
            f"SELECT count(*) FROM pg_class WHERE oid IN ({named}) AND relkind IN ('r', 'p')", side.tables
        )
        return found == len(side.tables)

    def log_end(self) -> int:
        """Return the global position of the last event, 0 in an empty log."""
        return self.rows("SELECT COALESCE(MAX(global_position), 0) FROM log_order")[0][0]

    def _payload_rows(self, recorded: Recorded) -> list[SQLRow]:
        return self.rows(f"SELECT {PAYLOAD} FROM stored_events WHERE event_id = ?", (recorded.header.id,))


class PostgresWrite(PostgresRead, LogWrite):
    """A write transaction at the end of the log. See `turnlog.store.interface.WriteTransaction`.

    What is appended goes to the server with the next statement that is to be answered, or at the end. Until the
    transaction is committed it has no global position: a number above all others stands for it.

    Attributes:
        is_alone: whether nobody else can append meanwhile. Then positions are known at once.
        epoch: the state of the log that what is known is of.
        is_sent: whether the commit was sent. From then on only the server knows what becomes of it.
        is_placed: whether what was appended has its global positions.
    """

    EVENTS_NAMED = "log_events_now"

    def __init__(  # noqa: PLR0913 - what a writer knows
        self,
        wire: Wire,
        payloads: PayloadPlacer,
        projections: Sequence[SyncProjection],
        *,
        seals: Seals | None,
        policy: SealPolicy | None,
        known: Knowledge,
        epoch: int,
        is_alone: bool,
        is_careful: bool,
        end: int = 0,
    ) -> None:
        """Take a connection that is not in a transaction, or in that of somebody who is alone.

        Args:
            wire: the connection.
            payloads: what places payloads.
            projections: what is folded.
            seals: the keys of what is sealed.
            policy: what is sealed.
            known: what is known of the log.
            epoch: the state of the log that this knowledge is of.
            is_alone: the transaction is open, and nobody else can append.
            is_careful: look first whether an id or a position is taken. Otherwise the commit fails where it is.
            end: the global position of the last event, for who is alone.
        """
        PostgresSQL.__init__(self, wire, *(() if is_alone else [_BEGIN_WRITE]))
        LogWrite.__init__(self, payloads, projections, seals=seals, policy=policy, known=known)
        self.is_alone = is_alone
        self._is_careful = is_careful
        self.epoch = epoch
        self._next = end + 1 if is_alone else _PENDING
        self._own: dict[str, Recorded] = {}
        self._own_places: dict[tuple[str, int], Recorded] = {}
        self._unsent: list[tuple[Event, NewPayload, Arrival]] = []
        self._unsent_bytes = 0
        self._unsettled: dict[str, Recorded] = {}
        """Events that were read and have no global position yet."""
        self._number: int | None = None
        self._sent_count = 0
        self._has_run = False
        self.is_sent = self.is_placed = False

    # Read

    def event(self, event_id: str) -> Recorded | None:
        """Return the event of an id, or None."""
        return self._own.get(event_id) or LogWrite.event(self, event_id)

    def at(self, stream: str, position: int) -> Recorded | None:
        """Return the event at a position of a stream, or None."""
        return self._own_places.get((stream, position)) or super().at(stream, position)

    def place(self, event_id: str) -> tuple[str, int] | None:
        """Return the stream and the position of an event, None for an unknown one."""
        own = self._own.get(event_id)
        return LogWrite.place(self, event_id) if own is None else (own.header.stream, own.header.position)

    def unsettled(self) -> Mapping[str, tuple[str, int]]:
        """Return nothing: who appends sees all that is committed."""
        return {}

    def is_empty(self) -> bool:
        """Tell whether the log has no event yet."""
        known = self._known
        if not known.begun:
            known.begun = bool(self.rows("SELECT 1 FROM stored_events LIMIT 1"))
        return not known.begun

    def at_global(self, global_position: int) -> Recorded | None:
        """Return the event at a global position, or None."""
        if global_position != 1:
            self._need_order()
        return super().at_global(global_position)

    def leaves(self, first: int, count: int) -> list[tuple[bytes, int]]:
        """Return leaf hash and arrival of `count` events from the leaf index `first` on."""
        self._need_order()
        return super().leaves(first, count)

    def log(self, after: int = 0, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events with a global position above `after`, in order."""
        self._need_order(topics)
        return super().log(after, topics=topics)

    def log_backwards(self, before: int, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events of some topics with a global position below `before`, the last one first."""
        self._need_order(topics)
        return super().log_backwards(before, topics=topics)

    def log_end(self) -> int:
        """Return the global position of the last event, 0 in an empty log."""
        self._need_order()
        return super().log_end()

    def last(self, topic: str, *, before: int | None = None) -> Recorded | None:
        """Return the last event of a topic below the global position `before`; None if there is none."""
        self._need_order((topic,))
        return super().last(topic, before=before)

    def topics(self) -> dict[str, int]:
        """Return the number of events of each topic, by topic."""
        self._need_order()
        return super().topics()

    def count_in(self, streams: Collection[str]) -> int:
        """Return the number of events of some streams. None of them is read."""
        self._need_order()
        return super().count_in(streams)

    def stored_rows(self, after: int, limit: int) -> list[StoredRow]:
        """Return at most `limit` events with a global position above `after`, in order, as they lie in the store."""
        self._need_order()
        return super().stored_rows(after, limit)

    def _need_order(self, topics: Sequence[str] = (TURN,)) -> None:
        """See to it that the order of all events of some topics is known. Of rare ones it always is."""
        if not self.is_alone and not FREQUENT.isdisjoint(topics or FREQUENT):
            raise AloneError

    def _page(self, rows: Sequence[SQLRow]) -> list[Recorded]:
        return [self._in_place(recorded) for recorded in super()._page(rows)]

    def _recorded(self, *columns: object) -> Recorded:
        return self._in_place(super()._recorded(*columns))

    def _in_place(self, recorded: Recorded) -> Recorded:
        if recorded.global_position >= _UNSETTLED:
            event_id = recorded.header.id
            # Of what is remembered the position is known. Those of one plan can be compared with each other.
            return self._known.recent.get(event_id) or self._unsettled.setdefault(event_id, recorded)
        return recorded

    @property
    def met(self) -> list[Recorded]:
        """The events of others that were read, and have got their global positions meanwhile."""
        return [*self._unsettled.values()]

    # Append

    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that has no result, at the latest with the next one that has one."""
        self._has_run = True
        super().run(statement, parameters)

    def append(self, event: Event, payload: NewPayload, arrival: Arrival = Arrival.RECORDED) -> Recorded | Taken:
        """Append one event and fold it into the projections, or say what of it is taken."""
        header = event.header
        if header.topic not in FREQUENT and not self.is_alone:
            raise AloneError
        if (taken := self._taken(event)) is not None:
            return taken
        if payload.placement in FILES and not event.erased:
            self._see_to_object(payload)
        if len(self.recorded) >= EVENTS_MAX:
            raise StoreError(f"one transaction cannot append more than {EVENTS_MAX:,} events")
        recorded = self.opened(in_place(event, self._next, arrival))
        self._next += 1
        self._own[header.id] = self._own_places[header.stream, header.position] = recorded
        self._unsent.append((event, payload, arrival))
        self._unsent_bytes += len(payload.stored or b"") + len(event.state)
        self._folded(recorded, payload)
        if header.topic == SEAL:
            self._policy = self._said_sealed()
        elif self._unsent_bytes > _UNSENT_BYTES_MAX:
            self.flush()
        return recorded

    def _see_to_object(self, payload: NewPayload) -> None:
        """See that a payload is there as an object, once nobody can take it away: while the log's gate is held."""
        if self._waiting[:1] == [_BEGIN_WRITE[0]]:
            self.flush()
        self._payloads.publish(payload)

    def _taken(self, event: Event) -> Taken | None:
        header = event.header
        if header.id in self._own or header.id in self._known.recent:
            return Taken.ID
        if (header.stream, header.position) in self._own_places:
            return Taken.POSITION
        if not self._is_careful:
            return None
        found = self.rows(_TAKEN, (header.id, header.stream, header.position))
        return (Taken.ID if (header.id,) in found else Taken.POSITION) if found else None

    def _before_answer(self) -> None:
        if self._unsent:
            self._waiting.append(self._append_statement())
            if self.is_alone:
                # Their positions can be written down at once.
                self._waiting.append(_SETTLE_NOW)

    def _append_statement(self) -> Statement:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        first, self._sent_count = self._sent_count, self._sent_count + len(unsent)
        epoch = None if self.is_alone else self.epoch
        if len(unsent) == 1:
            [(event, payload, arrival)] = unsent
            header = event.header
            one = (header.id, header.stream, header.position, header.topic, event.state, event.leaf_hash, int(arrival))
            return Statement(
                _APPEND_ONE, (self._number, first, epoch, *one, event.private_state, *_kept(event, payload))
            )
        headers = [event.header for event, _, _ in unsent]
        kept = [_kept(event, payload) for event, payload, _ in unsent]
        return Statement(
            _APPEND,
            (
                self._number,
                first,
                epoch,
                texts([header.id for header in headers]),
                texts([header.stream for header in headers]),
                bigints([header.position for header in headers]),
                texts([header.topic for header in headers]),
                blobs([event.state for event, _, _ in unsent]),
                blobs([event.leaf_hash for event, _, _ in unsent]),
                smallints([arrival for _, _, arrival in unsent]),
                blobs([event.private_state for event, _, _ in unsent]),
                smallints([placement for placement, _ in kept]),
                blobs([stored for _, stored in kept]),
            ),
        )

    def _sent(self, *groups: Sequence[Statement], shielded: bool = False) -> list[Answer]:
        answers = super()._sent(*groups, shielded=shielded)
        if self._sent_count and self._number is None:
            for group, answer in zip(groups, answers[-len(groups) :], strict=True):
                for statement, rows in zip(group, answer if isinstance(answer, list) else (), strict=False):
                    if statement.sql in (_APPEND, _APPEND_ONE):
                        if not rows:
                            raise SchemaError("the store does not say its version any more: nothing was recorded")
                        self._number = rows[0][0]
        return answers

    def learn_policy(self) -> None:
        """Look at what is recorded sealed."""
        self._policy = self._said_sealed()

    # End

    def commit(self, *, is_refused: bool = False) -> None:
        """Commit, and give what was appended or read its global position, if that can be told at once.

        What appends nothing, because it found what it wanted, writes something in its place: what it found may be
        visible here and not on the standbys that commits wait for, as where the server was started again meanwhile.

        Args:
            is_refused: nobody is told that anything is recorded. Then this need not wait for it.

        Raises:
            psycopg.Error: it was not committed. Where the connection was lost and `is_sent`, nobody knows.
        """
        self.is_sent = self._has_run or bool(self.recorded) or not is_refused
        end = self._end() if self.is_sent else [ROLLBACK]
        asking = [[Statement(POSITION, (event_id,))] for event_id in self.unplaced()]
        answers = self._sent(end, *asking, shielded=True)
        *_, rows = [rows_of(answer) for answer in answers[: len(answers) - len(asking)]]
        if self.is_alone and self.is_sent:
            [(self.epoch,)] = rows[-2]
        positions = answers[len(answers) - len(asking) :]
        if not any(isinstance(answer, Exception) for answer in positions):
            self.place_all(positions)

    def _end(self) -> list[Statement]:
        """Return the statements that are left, up to the commit."""
        if not self.recorded:
            self._waiting.append(WRITTEN)
        if self._groups or self._waiting[:1] != [_BEGIN_WRITE[0]] or not self._unsent:
            self._before_answer()
            return [*self._waiting, *([_EPOCH] if self.is_alone else []), COMMIT]
        # Nothing was read. Statements that are sent together are a transaction by themselves.
        return [self._append_statement(), *self._waiting[len(_BEGIN_WRITE) :]]

    def unplaced(self) -> list[str]:
        """Return the ids of events whose global positions are to be asked for: the first of this one's, and others."""
        if self.is_placed:
            return []
        # Asking also wakes who follows.
        return [*(recorded.header.id for recorded in self.recorded[:1]), *self._unsettled]

    def place_all(self, answers: Sequence[Answer]) -> None:
        """Tell the events of `unplaced` their global positions, unless one of them is not there any more.

        Args:
            answers: the answer for each of them.
        """
        rest = [rows_of(answer)[0][0][0] for answer in answers]
        if None in rest:
            return
        self.is_placed = True
        if self.recorded:
            first = rest.pop(0)
            for place, recorded in enumerate(self.recorded, first):
                msgspec.structs.force_setattr(recorded, "global_position", place)
            known = self._known
            if known.quiet_since is not None and known.quiet_since >= _UNSETTLED:
                known.quiet_since = first + len(self.recorded) - 1
        for recorded, place in zip(self._unsettled.values(), rest, strict=True):
            msgspec.structs.force_setattr(recorded, "global_position", place)


def _kept(event: Event, payload: NewPayload) -> tuple[int, bytes | None]:
    """Return where the payload of an event is kept, and what of it stands beside the event."""
    if event.erased:
        return Placement.ERASED, None
    if payload.placement in FILES:
        return payload.placement, sri_bytes(payload.hash or "")
    return payload.placement, payload.stored
