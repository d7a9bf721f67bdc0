"""Full text search over what turns say: a projection, and queries of it.

Its tables are those of SQLite; `postgres_log` has what is different on PostgreSQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from turnlog.errors import ContentError, MetaError
from turnlog.events import TURN, turn_meta
from turnlog.events.times import said_at
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import Projection
from turnlog.feeds.words import LONG_CHARACTERS, MARKS, TOKENIZER, indexed, shown, snippets
from turnlog.model.blocks import Document, Native, Text, Thinking, ToolResult, ToolUse, decode_content
from turnlog.model.json_strings import json_strings
from turnlog.record.fields import check_role, check_type

SNIPPET_WORDS = 16
"""How many words a snippet has at most."""

TEXT_BYTES_MAX = 8 * 1024 * 1024
"""Of a larger text document only the name can be found."""

QUERY_WORDS_MAX = 256
"""How many words may be looked for at once: what a search takes grows faster than their number."""

LIMIT_MAX = 1_000_000
"""How many turns a search can return."""

COLUMNS = (
    "position INTEGER PRIMARY KEY, turn TEXT NOT NULL, stream TEXT NOT NULL, stream_position INTEGER NOT NULL,"
    " role TEXT NOT NULL, model TEXT, time_ms INTEGER NOT NULL, text TEXT NOT NULL"
)
"""What is kept of a turn."""

_TERM = re.compile(r'"([^"]*)"|(\S+)')
_WORD = re.compile(r"[^\W_]+")


class Search(Projection):
    """The text of every turn, and an index of its words.

    What is sealed is left out: the index would keep it in plain, for whoever has a copy and no key.
    """

    name = "search"
    version = 2
    topics = (TURN,)
    schema = (
        f"CREATE TABLE search_turns ({COLUMNS})",
        "CREATE TABLE search_sealed (position INTEGER PRIMARY KEY)",
        "CREATE VIRTUAL TABLE search_words USING fts5(text, content='search_turns', content_rowid='position',"
        f" tokenize='{TOKENIZER}')",
        "CREATE TRIGGER search_turns_in AFTER INSERT ON search_turns BEGIN"
        " INSERT INTO search_words (rowid, text) VALUES (new.position, new.text); END",
        "CREATE TRIGGER search_turns_out AFTER DELETE ON search_turns BEGIN"
        " INSERT INTO search_words (search_words, rowid, text) VALUES ('delete', old.position, old.text); END",
    )
    tables = ("search_turns", "search_sealed")
    objects = ("search_words",)

    def fold(self, db: Any, event: LogEvent) -> None:
        """Index a turn."""
        recorded = event.recorded
        if recorded.erased:
            return
        if recorded.sealed is not None:
            db.execute("INSERT INTO search_sealed VALUES (?)", (event.global_position,))
            return
        meta = turn_meta(recorded)
        row = (
            event.global_position,
            event.id,
            event.originator_id,
            event.originator_version,
            meta.role,
            meta.model or None,
            int(said_at(meta, recorded.header.time).timestamp() * 1000),
        )
        self.put(db, row, indexed(turn_text(event)))

    def put(self, db: Any, row: tuple[Any, ...], text: str) -> None:
        """Put a turn into the table: its first columns, and its text as it is indexed."""
        db.execute("INSERT INTO search_turns VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, text))

    def forget(self, db: Any, events: Sequence[LogEvent]) -> None:
        """Take turns out, and their words out of the index."""
        places = [(event.global_position,) for event in events if event.topic == TURN]
        db.executemany("DELETE FROM search_turns WHERE position = ?", places)
        db.executemany("DELETE FROM search_sealed WHERE position = ?", places)
        if places:
            self.merge(db)

    def merge(self, db: Any) -> None:
        """Merge the parts of the index: what was taken out stays in older ones until then."""
        db.execute("INSERT INTO search_words (search_words) VALUES ('optimize')")


def turn_text(event: LogEvent) -> str:
    """Return what can be found of a turn: what it says, what tools were given and answered, names."""
    meta = turn_meta(event.recorded)
    if meta.type == "document":
        text = "" if (meta.file_size or 0) > TEXT_BYTES_MAX else _document_text(event, meta.content_type)
        return "\n".join(filter(None, (meta.document_name or "", text)))
    try:
        blocks = decode_content(event.payload() or b"[]")
    except ContentError:
        return ""
    return "\n".join(filter(None, (piece for block in blocks for piece in _pieces(block))))


def _document_text(event: LogEvent, content_type: str) -> str:
    if not content_type.startswith("text/") and content_type not in ("application/json", "application/xml"):
        return ""
    return (event.payload() or b"").decode(errors="replace")


def _pieces(block: Any) -> Iterator[str]:
    match block:
        case Text(text=text):
            yield text
        case Thinking(thinking=text, redacted=False):
            yield text
        case ToolUse(name=name, input=given):
            yield name
            yield from json_strings(given)
        case ToolResult(content=str(text)):
            yield text
        case ToolResult(content=nested):
            for inner in nested:
                yield from _pieces(inner)
        case Native(block=raw):
            yield from json_strings(raw)
        case Document() | Thinking():
            return
        case _:
            return


class Found(Struct, frozen=True, kw_only=True):
    """A turn that was found.

    Attributes:
        turn: its id.
        global_position: its place in the log.
        role: who said it.
        model: the model, of a reply.
        time: when it was said, ISO 8601 in UTC.
        snippet: a piece of its text. What was found stands between the two `MARKS`.
    """

    turn: str
    global_position: int
    role: str
    model: str | None
    time: str
    snippet: str


class Filter(Struct, frozen=True, kw_only=True):
    """Which turns are looked at.

    Attributes:
        runs: of each stream the first position that is looked at; None for all streams.
        role: only turns of this role.
        model: only replies of this model.
        since: only what was said at that time or later.
        until: only what was said before that time.
        newest: the newest first, and not the best match.
        limit: how many at most, from 1 to `LIMIT_MAX`.

    Raises:
        MetaError: one of them is of another type, an unknown role, or a limit out of bounds.
    """

    runs: Mapping[str, int] | None = None
    role: str | None = None
    model: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest: bool = False
    limit: int = 20

    def __post_init__(self) -> None:
        """Check what was given."""
        if self.role is not None:
            check_role(self.role)
        if self.model is not None:
            check_type(self.model, str, "model")
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                check_type(getattr(self, name), datetime, name)
        check_type(self.newest, bool, "newest")
        if type(self.limit) is not int or not 1 <= self.limit <= LIMIT_MAX:
            raise MetaError(f"limit: give a number from 1 to {LIMIT_MAX:,}, got {self.limit!r}", field="limit")


class Term(NamedTuple):
    """A word or a phrase that is looked for, or with `is_beginning` what its last word begins with."""

    text: str
    is_beginning: bool


def terms_of(query: str) -> list[Term]:
    """Return what a query looks for, each once: all of it must be there; `"…"` is a phrase, `wor*` a beginning.

    Raises:
        MetaError: there is no word in it, or more than `QUERY_WORDS_MAX`.
    """
    terms: dict[Term, int] = {}
    # FTS5 reads a query up to its first NUL.
    for phrase, word in _TERM.findall(check_type(query, str, "query").replace("\0", " ")):
        text = indexed(phrase or word)
        if words := len(_WORD.findall(text)):
            terms[Term(text.rstrip("*"), is_beginning=not phrase and text.endswith("*"))] = words
    if not terms:
        raise MetaError(f"query: there is no word in {query!r}", field="query")
    if (number := sum(terms.values())) > QUERY_WORDS_MAX:
        raise MetaError(f"query: it has {number:,} words: give {QUERY_WORDS_MAX} at most", field="query")
    return list(terms)


def words_of(query: str, *, any_of_them: bool = False) -> str:
    """Return a query as SQLite's FTS5 understands it: for all of its terms, or for any.

    Raises:
        MetaError: there is no word in it.
    """
    quoted = (
        ('"' + text.replace('"', '""') + '"', "*" if is_beginning else "") for text, is_beginning in terms_of(query)
    )
    return (" OR " if any_of_them else " ").join(text + end for text, end in quoted)


ORDER: Mapping[bool, str] = {False: "rank, t.position", True: "t.time_ms DESC, t.position DESC"}
"""What the turns that are found are sorted by: by default, and the newest first."""


class SearchView:
    """What a search index has, in a transaction on it."""

    columns: ClassVar[str] = (
        "t.turn, t.position, t.role, t.model, t.time_ms, CASE WHEN length(t.text) <= "
        f"{LONG_CHARACTERS} THEN snippet(search_words, 0, ?, ?, '…', {SNIPPET_WORDS}) END"
    )
    """Without a snippet where the text is long."""

    def __init__(self, db: Any) -> None:
        """Take a cursor."""
        self._db = db

    def find(self, query: str, wanted: Filter) -> list[Found]:
        """Return turns that have all words of a query.

        Raises:
            MetaError: there is no word in it, or too many.
        """
        return [
            Found(
                turn=turn,
                global_position=position,
                role=role,
                model=model,
                time=datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds"),
                snippet=shown(self._of_long(query, position) if snippet is None else snippet),
            )
            for turn, position, role, model, ms, snippet in self._rows(query, wanted)
        ]

    def _of_long(self, query: str, position: int) -> str:
        text = self._db.execute("SELECT text FROM search_turns WHERE position = ?", (position,)).fetchone()[0]
        return snippets(words_of(query), words_of(query, any_of_them=True), [text], SNIPPET_WORDS)[0]

    def _rows(self, query: str, wanted: Filter) -> Iterable[tuple[Any, ...]]:
        conditions = ["search_words MATCH ?"]
        values: list[Any] = [words_of(query)]
        source = "search_words JOIN search_turns t ON t.position = search_words.rowid"
        start: list[Any] = [*MARKS]
        if wanted.runs is not None:
            source += " JOIN json_each(?) r ON r.key = t.stream AND t.stream_position >= r.value"
            start.append(json.dumps(dict(wanted.runs)))
        for condition, value in picks(wanted):
            conditions.append(condition)
            values.append(value)
        return self._db.execute(
            f"SELECT {self.columns} FROM {source} WHERE {' AND '.join(conditions)}"
            f" ORDER BY {ORDER[wanted.newest]} LIMIT ?",
            (*start, *values, wanted.limit),
        ).fetchall()

    def sealed(self) -> int:
        """Return how many turns are left out because they are sealed."""
        return self._db.execute("SELECT COUNT(*) FROM search_sealed").fetchone()[0]


def picks(wanted: Filter) -> list[tuple[str, Any]]:
    """Return the conditions that pick turns by what they are, each with its value."""
    conditions = (
        ("t.role = ?", wanted.role),
        ("t.model = ?", wanted.model),
        ("t.time_ms >= ?", _ms(wanted.since)),
        ("t.time_ms < ?", _ms(wanted.until)),
    )
    return [(condition, value) for condition, value in conditions if value is not None]


def _ms(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)
