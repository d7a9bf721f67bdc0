"""Full text search over what turns say: a projection, and queries of it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from msgspec import Struct

from turnlog.errors import ContentError, MetaError
from turnlog.events import TURN, turn_meta
from turnlog.events.times import said_at
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import Projection
from turnlog.model.blocks import Document, Native, Text, Thinking, ToolResult, ToolUse, decode_content
from turnlog.model.json_strings import json_strings

SNIPPET_WORDS = 16
"""How many words a snippet has at most."""

TEXT_BYTES_MAX = 8 * 1024 * 1024
"""Of a larger text document only the name can be found."""

MARKS = ("\x02", "\x03")
"""What stands before and behind what was found in a snippet."""

_TERM = re.compile(r'"([^"]*)"|(\S+)')


class Search(Projection):
    """The text of every turn, and an index of its words.

    What is sealed is left out: the index would keep it in plain, for whoever has a copy and no key.
    """

    name = "search"
    version = 1
    topics = (TURN,)
    schema = (
        "CREATE TABLE search_turns (position INTEGER PRIMARY KEY, turn TEXT NOT NULL, stream TEXT NOT NULL,"
        " stream_position INTEGER NOT NULL, role TEXT NOT NULL, model TEXT, time_ms INTEGER NOT NULL,"
        " text TEXT NOT NULL)",
        "CREATE TABLE search_sealed (position INTEGER PRIMARY KEY)",
        "CREATE VIRTUAL TABLE search_words USING fts5(text, content='search_turns', content_rowid='position',"
        " tokenize='unicode61 remove_diacritics 2')",
        "CREATE TRIGGER search_turns_in AFTER INSERT ON search_turns BEGIN"
        " INSERT INTO search_words (rowid, text) VALUES (new.position, new.text); END",
        "CREATE TRIGGER search_turns_out AFTER DELETE ON search_turns BEGIN"
        " INSERT INTO search_words (search_words, rowid, text) VALUES ('delete', old.position, old.text); END",
    )
    tables = ("search_turns", "search_sealed")
    objects = ("search_words",)

    def fold(self, db: sqlite3.Cursor, event: LogEvent) -> None:
        """Index a turn."""
        recorded = event.recorded
        if recorded.erased:
            return
        if recorded.sealed is not None:
            db.execute("INSERT INTO search_sealed VALUES (?)", (event.global_position,))
            return
        meta = turn_meta(recorded)
        db.execute(
            "INSERT INTO search_turns VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                event.global_position,
                event.id,
                event.originator_id,
                event.originator_version,
                meta.role,
                meta.model or None,
                int(said_at(meta, recorded.header.time).timestamp() * 1000),
                turn_text(event),
            ),
        )

    def forget(self, db: sqlite3.Cursor, events: Sequence[LogEvent]) -> None:
        """Take turns out, and their words out of the index."""
        places = [(event.global_position,) for event in events if event.topic == TURN]
        db.executemany("DELETE FROM search_turns WHERE position = ?", places)
        db.executemany("DELETE FROM search_sealed WHERE position = ?", places)
        if places:
            # What was taken out stays in older parts of the index until they are merged.
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
        limit: how many at most.
    """

    runs: Mapping[str, int] | None = None
    role: str | None = None
    model: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest: bool = False
    limit: int = 20


def words_of(query: str) -> str:
    """Return a query as SQLite's FTS5 understands it: all words must be there; `"…"` is a phrase, `wor*` a beginning.

    Raises:
        MetaError: there is no word in it.
    """
    terms: list[str] = []
    for phrase, word in _TERM.findall(query):
        text = phrase or word
        is_beginning = not phrase and text.endswith("*")
        if any(character.isalnum() for character in text):
            terms.append('"' + text.rstrip("*").replace('"', '""') + '"' + ("*" if is_beginning else ""))
    if not terms:
        raise MetaError(f"query: there is no word in {query!r}", field="query")
    return " ".join(terms)


_ORDER: Mapping[bool, str] = {False: "rank, t.position", True: "t.time_ms DESC, t.position DESC"}


class SearchView:
    """What a search index has, in a transaction on it."""

    columns: ClassVar[str] = (
        f"t.turn, t.position, t.role, t.model, t.time_ms, snippet(search_words, 0, ?, ?, '…', {SNIPPET_WORDS})"
    )

    def __init__(self, db: sqlite3.Cursor) -> None:
        """Take a cursor."""
        self._db = db

    def find(self, query: str, wanted: Filter) -> list[Found]:
        """Return turns that have all words of a query.

        Raises:
            MetaError: there is no word in it.
        """
        conditions = ["search_words MATCH ?"]
        values: list[Any] = [words_of(query)]
        source = "search_words JOIN search_turns t ON t.position = search_words.rowid"
        start: list[Any] = [*MARKS]
        if wanted.runs is not None:
            source += " JOIN json_each(?) r ON r.key = t.stream AND t.stream_position >= r.value"
            start.append(json.dumps(dict(wanted.runs)))
        for condition, value in (
            ("t.role = ?", wanted.role),
            ("t.model = ?", wanted.model),
            ("t.time_ms >= ?", _ms(wanted.since)),
            ("t.time_ms < ?", _ms(wanted.until)),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        rows = self._db.execute(
            f"SELECT {self.columns} FROM {source} WHERE {' AND '.join(conditions)}"
            f" ORDER BY {_ORDER[wanted.newest]} LIMIT ?",
            (*start, *values, wanted.limit),
        ).fetchall()
        return [
            Found(
                turn=turn,
                global_position=position,
                role=role,
                model=model,
                time=datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds"),
                snippet=snippet,
            )
            for turn, position, role, model, ms, snippet in rows
        ]

    def sealed(self) -> int:
        """Return how many turns are left out because they are sealed."""
        return self._db.execute("SELECT COUNT(*) FROM search_sealed").fetchone()[0]


def _ms(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)


__all__ = ["MARKS", "Filter", "Found", "Search", "SearchView", "turn_text", "words_of"]
