"""Tokens and calls by day, model, provider, thread and bookmark; and what tools were called: projections, and sums."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct

from turnlog.errors import ContentError, MetaError
from turnlog.events import TOOL_END, TURN, Arrival, meta_of, turn_meta
from turnlog.events.times import ms_of, parse_time, said_at, us_of
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import Projection
from turnlog.model.blocks import ToolResult, ToolUse, decode_content
from turnlog.model.kinds import check_texts
from turnlog.model.meta import TurnMeta, Usage
from turnlog.model.plain import check_one_of
from turnlog.model.tool_calls import WITHOUT_A_CALL, ToolEndMeta
from turnlog.projections.belonging import ThreadsInOrder
from turnlog.projections.bookmarks import moved_head
from turnlog.projections.filters import EVERY_TURN, TurnFilter, check_filter
from turnlog.projections.turns import find_links
from turnlog.store import ReadTransaction

By = Literal["day", "model", "provider", "thread", "bookmark"]
BY: tuple[By, ...] = ("day", "model", "provider", "thread", "bookmark")

_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "reasoning_tokens",
)


_KEY_CHARACTERS = 200
"""A longer id of a call has its SHA-256 in its place: PostgreSQL refuses what is much larger in an index."""

TOKENS_MAX = 10**12
"""No reply takes more of one kind. What somebody else's log has beyond counts as this: a sum must fit in 64 bits."""


DURATION_MS_MAX = 10**12
"""No tool is at work for longer: thirty years."""


class UsageOfTurns(Projection):
    """The tokens that each reply of a model took. Counts are public: an erased reply keeps them, but no bookmark."""

    name = "usage"
    version = 4
    topics = (TURN,)
    schema = (
        "CREATE TABLE usage_turns (position INTEGER PRIMARY KEY, stream TEXT NOT NULL,"
        " stream_position INTEGER NOT NULL, time_us INTEGER NOT NULL, day TEXT NOT NULL,"
        " model TEXT, provider TEXT, bookmark TEXT,"
        f" {', '.join(f'{name} INTEGER NOT NULL' for name in _TOKENS)})",
    )
    tables = ("usage_turns",)

    def fold(self, db: Any, event: LogEvent) -> None:
        """Count a reply."""
        recorded = event.recorded
        meta = turn_meta(recorded)
        if meta.role != "assistant":
            return
        usage = meta.usage or Usage()
        said = said_at(meta, recorded.header.time)
        db.execute(
            f"INSERT INTO usage_turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, {', '.join('?' * len(_TOKENS))})",
            (
                event.global_position,
                event.originator_id,
                event.originator_version,
                us_of(said),
                said.date().isoformat(),
                meta.model or None,
                meta.provider or None,
                # The table is not sealed.
                None if recorded.sealed is not None else moved_head(recorded),
                *(min(getattr(usage, name), TOKENS_MAX) for name in _TOKENS),
            ),
        )

    def forget(self, db: Any, events: Sequence[LogEvent]) -> None:
        """Count erased replies anew: by what is left of them."""
        for event in events:
            rows = db.execute("DELETE FROM usage_turns WHERE position = ?", (event.global_position,)).rowcount
            if rows:
                self.fold(db, event)


class ToolActivity(Projection):
    """The calls of tools that models asked for, and the results: by their ids, or where these are long by a hash.

    And whether each attempt to call a tool came to one. That is public, as an erasure leaves it.
    """

    name = "tools"
    version = 6
    topics = (TURN, TOOL_END)
    schema = (
        "CREATE TABLE tool_calls (position INTEGER, number INTEGER, call TEXT, name TEXT NOT NULL,"
        " time_ms INTEGER, turn TEXT NOT NULL, stream TEXT NOT NULL, guest INTEGER NOT NULL,"
        " PRIMARY KEY (position, number))",
        "CREATE TABLE tool_ends (position INTEGER PRIMARY KEY, turn TEXT NOT NULL, number INTEGER NOT NULL,"
        " called INTEGER NOT NULL, guest INTEGER NOT NULL, took_ms INTEGER)",
        "CREATE TABLE tool_results (position INTEGER, number INTEGER, call TEXT, is_error INTEGER NOT NULL,"
        " time_ms INTEGER, parent TEXT, stream TEXT NOT NULL, PRIMARY KEY (position, number))",
        "CREATE INDEX tool_calls_by_turn ON tool_calls (call, turn, position)",
        "CREATE INDEX tool_calls_by_stream ON tool_calls (call, stream, position)",
        "CREATE INDEX tool_calls_by_position ON tool_calls (call, position)",
        "CREATE INDEX tool_ends_by_turn ON tool_ends (turn, number)",
    )
    tables = ("tool_calls", "tool_results", "tool_ends")

    def fold(self, db: Any, event: LogEvent) -> None:
        """Note calls, results, and ends of attempts. Turns that are sealed are left out."""
        recorded = event.recorded
        guest = int(recorded.arrival is Arrival.GUEST)
        if event.topic == TOOL_END:
            end = meta_of(recorded, ToolEndMeta)
            took_ms = None if end.duration_ms is None else min(end.duration_ms, DURATION_MS_MAX)
            row = (event.global_position, end.turn, end.block, int(end.ending not in WITHOUT_A_CALL), guest, took_ms)
            db.execute("INSERT INTO tool_ends VALUES (?, ?, ?, ?, ?, ?)", row)
            return
        if recorded.unreadable or recorded.sealed is not None:
            return
        meta = turn_meta(recorded)
        if meta.type == "document":
            return
        payload = event.payload() or b"[]"
        if b'"tool_' not in payload:
            return
        try:
            blocks = decode_content(payload)
        except ContentError:
            return
        at, header = event.global_position, recorded.header
        parent = header.parents[0].id if header.parents else None
        said = _said_ms(meta, header.time)
        for number, block in enumerate(blocks):
            match block:
                case ToolUse(name=name, id=call):
                    row = (at, number, _key(call), name, said, header.id, header.stream, guest)
                    db.execute("INSERT INTO tool_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
                case ToolResult(tool_use_id=call, is_error=is_error):
                    row = (at, number, _key(call), int(is_error is True), said, parent, header.stream)
                    db.execute("INSERT INTO tool_results VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                case _:
                    pass

    def forget(self, db: Any, events: Sequence[LogEvent]) -> None:
        """Take calls and results away."""
        places = [(event.global_position,) for event in events]
        db.executemany("DELETE FROM tool_calls WHERE position = ?", places)
        db.executemany("DELETE FROM tool_results WHERE position = ?", places)


def _said_ms(meta: TurnMeta, recorded: int) -> int | None:
    """Return when a turn was said; None for an imported one whose source does not say."""
    if meta.origin is None:
        return recorded
    said = parse_time(meta.origin.timestamp)
    return None if said is None else ms_of(said)


def _key(call: str | None) -> str | None:
    return call if call is None or len(call) <= _KEY_CHARACTERS else sha256(call.encode()).hexdigest()


class UsageSum(Struct, frozen=True, kw_only=True):
    """What replies took together.

    Attributes:
        keys: what they have in common, for each thing that they are summed by: a day (ISO 8601, UTC), a model, … None
            for those that have none. Nothing for a sum of all.
        replies: number of replies.
        untold: number of those that do not say what they took: a call that failed, a transcript without counts. They
            count as nothing.
        usage: tokens.
    """

    keys: tuple[str | None, ...]
    replies: int
    untold: int
    usage: Usage

    @property
    def key(self) -> str | None:
        """The first of them."""
        return self.keys[0] if self.keys else None


class ToolSum(Struct, frozen=True, kw_only=True):
    """What became of the calls of one tool.

    Attributes:
        name: the tool.
        calls: number of calls that models asked for, but for those that were not made.
        results: number of results that these had; a call that was answered in two forks has two.
        errors: number of those that say they failed.
        mean_ms: mean time that the tool was at work, in milliseconds, all attempts of a call together. Where no end is
            recorded, as of imported turns, it is the time from the turn of the call to that of its first result, as the
            source has it. None if there is no result, or none whose time is known.
        not_called: number of calls that models asked for and that came to no tool, as the log says: they were denied,
            or somebody or something else answered, or there is no such tool.
    """

    name: str
    calls: int
    results: int
    errors: int
    mean_ms: float | None
    not_called: int


_Sums = dict[tuple[str | None, ...], list[int]]
"""Sums of replies, by what these have in common."""


class UsageView:
    """Sums of what usage projections have, in a transaction on them. SQLite and PostgreSQL both read its statements."""

    def __init__(self, db: Any) -> None:
        """Take a cursor."""
        self._db = db

    def by(self, by: By | Sequence[By], transaction: ReadTransaction, which: TurnFilter = EVERY_TURN) -> list[UsageSum]:
        """Return sums of the replies that are wanted, by one thing or by several at once.

        A reply in two threads counts in both.

        Raises:
            MetaError: `by` is none of `BY`, nothing, or the same twice; or `which` is no filter.
        """
        names = check_texts((by,) if isinstance(by, str) else by, "by", "['day', 'model']")
        for name in names:
            check_one_of(name, BY, "by")
        if not names or len({*names}) < len(names):
            raise MetaError(f"by: expected some of {', '.join(BY)}, each once, got {[*names]}", field="by")
        check_filter(which)
        sums = self._by_thread(names, transaction, which) if "thread" in names else self._sums(names, which)
        return [_sum(keys, each) for keys, each in sums.items()]

    def total(self, which: TurnFilter = EVERY_TURN) -> UsageSum:
        """Return the sum of all replies that are wanted.

        Raises:
            MetaError: `which` is no filter.
        """
        check_filter(which)
        return _sum((), _added(*self._sums(("model",), which).values()))

    def tools(self) -> list[ToolSum]:
        """Return what became of the calls of each tool, the one with most calls first."""
        rows = self._rows(
            "SELECT c.name, CAST(SUM(c.called) AS BIGINT), CAST(COALESCE(SUM(r.results), 0) AS BIGINT),"
            " CAST(COALESCE(SUM(r.errors), 0) AS BIGINT),"
            # No `AVG`: the engines round it differently.
            f" CAST(COALESCE(SUM({_TOOK}), 0) AS BIGINT), COUNT({_TOOK}),"
            " CAST(SUM(1 - c.called) AS BIGINT)"
            f" FROM ({_ASKED_FOR}) AS c LEFT JOIN ({_ANSWERED}) AS r"
            " ON r.call = c.call AND r.answers = c.position AND r.nth = c.nth AND c.called = 1"
            " GROUP BY c.name ORDER BY 2 DESC, 1"
        )
        return [
            ToolSum(
                name=name,
                calls=calls,
                results=results,
                errors=errors,
                mean_ms=ms / timed if timed else None,
                not_called=not_called,
            )
            for name, calls, results, errors, ms, timed, not_called in rows
        ]

    def _by_thread(self, by: Sequence[str], transaction: ReadTransaction, which: TurnFilter) -> _Sums:
        """Return the sums of replies that are wanted, by their thread and what else is named, in its order."""
        at, columns = by.index("thread"), ["stream" if name == "thread" else name for name in by]
        of_streams: dict[str, _Sums] = {}
        for keys, sums in self._sums(columns, which).items():
            of_streams.setdefault(str(keys[at]), {})[keys] = sums
        lasts = dict[str, int](self._rows("SELECT stream, MAX(stream_position) FROM usage_turns GROUP BY stream"))
        found: _Sums = {}
        threads = ThreadsInOrder()
        for stream, whole in of_streams.items():
            # Where a merge comes in, what follows is of more threads.
            merges = {link.child_position for link in find_links(transaction, "child_stream = ?", stream)}
            starts = sorted({0, *(start for start in merges if start <= lasts[stream])})
            parts = [whole]
            if len(starts) > 1:
                spans = zip(starts, [*starts[1:], lasts[stream] + 1], strict=True)
                parts = [self._of_part(columns, stream, span, which) for span in spans]
            for start, part in zip(starts, parts, strict=True):
                for thread in threads.at(transaction, stream, start) if part else ():
                    for keys, sums in part.items():
                        threaded = (*keys[:at], thread, *keys[at + 1 :])
                        found[threaded] = _added(found.get(threaded, _NOTHING), sums)
        return dict(sorted(found.items(), key=lambda pair: [(key is not None, key or "") for key in pair[0]]))

    def _of_part(self, columns: Sequence[str], stream: str, span: tuple[int, int], which: TurnFilter) -> _Sums:
        """Return the sums of what is in a stream from a position on, and before another one."""
        start, end = span
        return self._sums(columns, which, "stream = ? AND stream_position BETWEEN ? AND ?", (stream, start, end - 1))

    def _sums(
        self, columns: Sequence[str], which: TurnFilter, condition: str = "TRUE", values: Sequence[Any] = ()
    ) -> _Sums:
        """Return the sums of replies that are wanted, by columns, in their order, those that have none there first."""
        if which.role not in (None, "assistant"):
            return {}
        bounds = [("time_us >= ?", which.since), ("time_us < ?", which.until)]
        given = [(bound, us_of(time)) for bound, time in bounds if time is not None]
        found: _Sums = {}
        for row in self._rows(
            f"SELECT {', '.join(columns)}, model, {_SUMS} FROM usage_turns"
            f" WHERE {' AND '.join((condition, *(bound for bound, _ in given)))}"
            f" GROUP BY {', '.join((*columns, 'model'))}"
            f" ORDER BY {', '.join(f'{column} NULLS FIRST' for column in columns)}",
            (*values, *(us for _, us in given)),
        ):
            keys, (model, *sums) = row[: len(columns)], row[len(columns) :]
            if which.takes_model(model):
                found[keys] = _added(found.get(keys, _NOTHING), sums)
        return found

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()


_NOTHING = (0, 0, *(0 for _ in _TOKENS))
"""The sums of no replies: their number, that of those that say nothing, and their tokens."""


def _added(*parts: Sequence[int]) -> list[int]:
    return [sum(column) for column in zip(_NOTHING, *parts, strict=True)]


def _sum(keys: tuple[str | None, ...], sums: Sequence[int]) -> UsageSum:
    replies, untold, *tokens = sums
    usage = Usage(**dict[str, int](zip(_TOKENS, tokens, strict=True)))
    return UsageSum(keys=keys, replies=replies, untold=untold, usage=usage)


_UNTOLD = f"CASE WHEN {' AND '.join(f'{name} = 0' for name in _TOKENS)} THEN 1 ELSE 0 END"
_SUMS = "COUNT(*), " + ", ".join(f"CAST(COALESCE(SUM({each}), 0) AS BIGINT)" for each in (_UNTOLD, *_TOKENS))

_TOOK = "CASE WHEN r.results IS NULL THEN NULL ELSE COALESCE(c.took_ms, r.first_ms - c.time_ms) END"
"""How long a call took that has a result."""
_ENDS = "FROM tool_ends e WHERE e.turn = t.turn AND e.number = t.number AND e.guest <= t.guest"
_ASKED_FOR = (
    f"SELECT name, call, position, time_ms, COALESCE((SELECT MAX(e.called) {_ENDS}), 1) AS called,"
    f" (SELECT CAST(SUM(e.took_ms) AS BIGINT) {_ENDS} AND e.called = 1) AS took_ms,"
    " ROW_NUMBER() OVER (PARTITION BY position, call ORDER BY number) AS nth FROM tool_calls t"
)
"""Calls, with whether one of their attempts came to a tool, and how long these were at work; one of which no end is
recorded did come to one. What another log says of a turn of this one does not count."""

_CALLS = "SELECT MAX(position) FROM tool_calls WHERE call = r.call"
_ANSWERS = (
    f"SELECT r.call, r.is_error, r.time_ms, CAST(COALESCE(({_CALLS} AND turn = r.parent),"
    f" ({_CALLS} AND stream = r.stream AND position < r.position), ({_CALLS} AND position < r.position)) AS BIGINT)"
    " AS answers, position, number, stream FROM tool_results r"
)
"""Results, with the place of the call that each answers. Ids of calls may be the same in each thread and each step: it
is the call of the turn that the result continues, else the last one before it in its stream, else in the log."""
_IN_ORDER = (
    "SELECT call, answers, is_error, time_ms,"
    " (SELECT COUNT(*) FROM tool_calls c WHERE c.call = a.call AND c.position = a.answers) AS calls,"
    f" ROW_NUMBER() OVER (PARTITION BY call, answers, stream ORDER BY position, number) AS nth FROM ({_ANSWERS}) AS a"
)
"""Of several calls of a turn with one id each result answers the next one; what is left over, the last one."""
_NTH = "CASE WHEN nth < calls THEN nth ELSE calls END"
_ANSWERED = (
    f"SELECT call, answers, {_NTH} AS nth, COUNT(*) AS results, SUM(is_error) AS errors, MIN(time_ms) AS first_ms"
    f" FROM ({_IN_ORDER}) AS answer GROUP BY call, answers, {_NTH}"
)
