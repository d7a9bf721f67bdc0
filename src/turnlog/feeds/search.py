"""Full text search over what turns say: a projection, and queries of it.

Its tables are those of SQLite; `postgres_log` has what is different on PostgreSQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec import Struct

from turnlog.errors import ContentError, MetaError
from turnlog.events import TURN, turn_meta
from turnlog.events.times import said_at, time_of_us, us_of
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import Projection
from turnlog.feeds.words import (
    LONG_CHARACTERS,
    MARKS,
    PHRASE_WORDS_MAX,
    PIECE_CHARACTERS,
    TOKENIZER,
    Words,
    indexed,
    pieces,
    shown,
    snippets,
)
from turnlog.model.blocks import Document, Native, Text, Thinking, ToolResult, ToolUse, decode_content
from turnlog.model.json_strings import json_strings
from turnlog.model.kinds import check_type
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import base64_bytes, decoded_pieces, decoded_text
from turnlog.projections.filters import EVERY_TURN, TurnFilter, check_filter
from turnlog.record.media import is_text

SNIPPET_WORDS = 16
"""How many words a snippet has at most."""

_NO_TEXT = ("image/", "audio/", "video/", "font/")
"""Types of documents in which there are no words, however they are written."""

QUERY_WORDS_MAX = PHRASE_WORDS_MAX
"""How many words may be looked for at once: what a search takes grows faster than their number."""

LIMIT_MAX = 1_000_000
"""How many turns a search can return."""

COLUMNS = (
    "position INTEGER PRIMARY KEY, turn TEXT NOT NULL, stream TEXT NOT NULL, stream_position INTEGER NOT NULL,"
    " role TEXT NOT NULL, model TEXT, time_us INTEGER NOT NULL, text TEXT NOT NULL"
)
"""What is kept of a turn."""

PIECES_MAX = 1 << 16
"""A turn of several pieces has a row for each, at positions below zero: that of the turn times this, and the number of
the piece from 0, both together with a minus sign."""

_TERM = re.compile(r'"([^"]*)"|(\S+)')
_WORD = re.compile(r"[^\W_]+")


class Search(Projection):
    """The text of every turn, and an index of its words.

    What is sealed is left out: the index would keep it in plain, for whoever has a copy and no key.
    """

    name = "search"
    version = 7
    topics = (TURN,)
    piece_characters: ClassVar[int] = PIECE_CHARACTERS
    schema = (
        f"CREATE TABLE search_turns ({COLUMNS})",
        "CREATE INDEX search_turns_of_models ON search_turns (model) WHERE model IS NOT NULL",
        "CREATE TABLE search_sealed (position INTEGER PRIMARY KEY)",
        "CREATE VIRTUAL TABLE search_words USING fts5(text, content='search_turns', content_rowid='position',"
        f" tokenize='{TOKENIZER}')",
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
        at = event.global_position
        row = (
            event.id,
            event.originator_id,
            event.originator_version,
            meta.role,
            _without_nul(meta.model) or None,
            us_of(said_at(meta, recorded.header.time)),
        )
        found = pieces(turn_texts(event), self.piece_characters)
        first, second = next(found), next(found, None)
        if second is None:
            self.put(db, (at, *row), indexed(first))
            return
        for number, piece in enumerate(chain((first, second), found)):
            self.put(db, (-(at * PIECES_MAX + number), *row), indexed(piece))

    def put(self, db: Any, row: tuple[Any, ...], text: str) -> None:
        """Put a turn into the table: its first columns, and its text as it is indexed."""
        db.execute("INSERT INTO search_turns VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, text))
        # Not by a trigger: FTS5 would write a part of the index for each turn, and merge them all.
        db.execute("INSERT INTO search_words (rowid, text) VALUES (?, ?)", (row[0], text))

    def copied(self, db: Any) -> None:
        """Index the words of all turns."""
        db.execute("INSERT INTO search_words (search_words) VALUES ('rebuild')")

    def forget(self, db: Any, events: Sequence[LogEvent]) -> None:
        """Take turns out, and their words out of the index."""
        places = [(event.global_position,) for event in events if event.topic == TURN]
        db.executemany("DELETE FROM search_turns WHERE position = ?", places)
        db.executemany("DELETE FROM search_turns WHERE position BETWEEN ? AND ?", [bounds_of(at) for (at,) in places])
        db.executemany("DELETE FROM search_sealed WHERE position = ?", places)
        if places:
            self.merge(db)

    def merge(self, db: Any) -> None:
        """Merge the parts of the index: what was taken out stays in older ones until then."""
        db.execute("INSERT INTO search_words (search_words) VALUES ('optimize')")


def bounds_of(position: int) -> tuple[int, int]:
    """Return the first and the last row of a turn that has several."""
    return 1 - (position + 1) * PIECES_MAX, -position * PIECES_MAX


def turn_texts(event: LogEvent) -> Iterator[Iterable[str]]:
    """Yield what can be found of a turn: what it says, what tools were given and answered, names.

    Each is in pieces, so that no long text is held as a whole beside the payload.
    """
    meta = turn_meta(event.recorded)
    if meta.type == "document":
        if meta.document_name:
            yield (meta.document_name,)
        if not meta.content_type.startswith(_NO_TEXT):
            payload = event.payload() or b""
            # The type is most often guessed from the name.
            if _is_text(meta.content_type) or is_text(payload):
                yield decoded_text(payload, "replace")
        return
    long = LongStrings()
    try:
        blocks = decode_content(long.out_of_json(event.payload() or b"[]"))
        long.check()
    except (ContentError, msgspec.DecodeError, UnicodeDecodeError):
        return
    for block in blocks:
        yield from map(long.said_pieces, filter(None, _texts(block)))
        for document in _text_documents(block):
            yield _from_base64(long.said_pieces(document.source.data))


def _is_text(content_type: str) -> bool:
    kind = content_type.partition(";")[0]
    return kind.startswith("text/") or kind.endswith(("/json", "/xml", "+json", "+xml"))


def _from_base64(pieces: Iterable[str]) -> Iterator[str]:
    """Iterate over the text of which some base64 is, as far as it is that."""
    with suppress(ValueError):
        yield from decoded_pieces(base64_bytes(pieces), "replace")


def _text_documents(block: Any) -> Iterator[Document]:
    match block:
        case Document() if _is_text(block.source.media_type):
            yield block
        case ToolResult(content=list() as nested):
            for inner in nested:
                yield from _text_documents(inner)
        case _:
            return


def _texts(block: Any) -> Iterator[str]:
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
                yield from _texts(inner)
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
        snippet: a piece of its text. Each word or phrase that was found stands between U+0002 and U+0003 (`MARKS`),
            which no text that is indexed has.
        threads: ids of the threads that it is in: of one, but behind a merge of several.
    """

    turn: str
    global_position: int
    role: str
    model: str | None
    time: str
    snippet: str
    threads: tuple[str, ...] = ()


class Filter(Struct, frozen=True, kw_only=True):
    """Which turns are looked at.

    Attributes:
        runs: of each stream the first position that is looked at; None for all streams.
        which: only turns of a time, a role or a model.
        models: the names of its models, as far as there are turns of them; None for all.
        newest: the newest first, and not the best match.
        limit: how many at most, from 1 to `LIMIT_MAX`.

    Raises:
        MetaError: one of them is of another type, or a limit out of bounds.
    """

    runs: Mapping[str, int] | None = None
    which: TurnFilter = EVERY_TURN
    models: Sequence[str] | None = None
    newest: bool = False
    limit: int = 20

    def __post_init__(self) -> None:
        """Check what was given."""
        check_filter(self.which)
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


def words_of(terms: Iterable[Term], *, any_of_them: bool = False) -> str:
    """Return terms as SQLite's FTS5 understands them: all of them, or any."""
    quoted = ('"' + text.replace('"', '""') + '"' + ("*" if is_beginning else "") for text, is_beginning in terms)
    return (" OR " if any_of_them else " ").join(quoted)


class Match(NamedTuple):
    """A turn that was found. The lower its rank, the better; without a snippet where it has a long text."""

    turn: str
    position: int
    role: str
    model: str | None
    time_us: int
    rank: float
    snippet: str | None


MATCHED = "t.turn, t.position, t.role, t.model, t.time_us"
"""The columns of a match, without what each engine tells in its own way."""

OF_TERM = f"t.turn, -t.position / {PIECES_MAX} AS place, t.role, t.model, t.time_us"
"""The same where a turn may have several rows."""

BY_TURN = "GROUP BY t.turn, place, t.role, t.model, t.time_us"

ORDER: Mapping[bool, str] = {False: "rank, t.position", True: "t.time_us DESC, t.position DESC"}
"""What the turns that are found are sorted by: by default, and the newest first."""

_IN_ORDER: Mapping[bool, Callable[[Match], tuple[float, int]]] = {
    False: lambda match: (match.rank, match.position),
    True: lambda match: (-match.time_us, -match.position),
}


class SearchView:
    """What a search index has, in a transaction on it."""

    def __init__(self, words: Words, db: Any) -> None:
        """Take what knows words, and a cursor."""
        self._words = words
        self._db = db

    def find(self, query: str, wanted: Filter) -> list[Found]:
        """Return turns that have all words of a query.

        Raises:
            MetaError: there is no word in it, or too many.
        """
        terms = terms_of(query)
        if wanted.which.model is not None:
            there_are = self._db.execute("SELECT DISTINCT model FROM search_turns WHERE model IS NOT NULL").fetchall()
            named = TurnFilter(model=_without_nul(wanted.which.model))
            models = [model for (model,) in there_are if named.takes_model(model)]
            wanted = msgspec.structs.replace(wanted, models=models)
        found = sorted([*self.whole(terms, wanted), *self._in_pieces(terms, wanted)], key=_IN_ORDER[wanted.newest])
        return [
            Found(
                turn=match.turn,
                global_position=match.position,
                role=match.role,
                model=match.model,
                time=time_of_us(match.time_us).isoformat(),
                snippet=shown(self._of_long(terms, match.position) if match.snippet is None else match.snippet),
            )
            for match in found[: wanted.limit]
        ]

    def whole(self, terms: Sequence[Term], wanted: Filter) -> list[Match]:
        """Return turns of one row that have all of some terms, the first ones of their order."""
        snippet = f"CASE WHEN length(t.text) <= {LONG_CHARACTERS} THEN snippet(search_words, 0, ?, ?, '…', ?) END"
        statement, values = _matching(f"{MATCHED}, rank, {snippet}", words_of(terms), "> 0", wanted)
        rows = self._db.execute(
            f"{statement} ORDER BY {ORDER[wanted.newest]} LIMIT ?", (*MARKS, SNIPPET_WORDS, *values, wanted.limit)
        )
        return [*map(Match._make, rows.fetchall())]

    def of_term(self, term: Term, wanted: Filter) -> list[Match]:
        """Return turns of several rows of which one has a term."""
        statement, values = _matching(f"{OF_TERM}, MIN(rank), NULL", words_of([term]), "< 0", wanted)
        return [*map(Match._make, self._db.execute(f"{statement} {BY_TURN}", values).fetchall())]

    def piece(self, terms: Sequence[Term], position: int) -> tuple[int, str]:
        """Return the first row with any of some terms, and its text, of a turn of several rows."""
        return self._db.execute(
            "SELECT t.position, t.text FROM search_words JOIN search_turns t ON t.position = search_words.rowid"
            " WHERE search_words MATCH ? AND search_words.rowid BETWEEN ? AND ?"
            " ORDER BY search_words.rowid DESC LIMIT 1",
            (words_of(terms, any_of_them=True), *bounds_of(position)),
        ).fetchone()

    def _in_pieces(self, terms: Sequence[Term], wanted: Filter) -> list[Match]:
        """Return turns of several rows that have all of some terms, whichever of the rows they are in."""
        if not self._db.execute("SELECT 1 FROM search_turns WHERE position < 0 LIMIT 1").fetchall():
            return []
        found: dict[int, Match] | None = None
        for term in terms:
            if not self._words.of(term.text):  # as FTS5 does it, what has no word in it is passed over
                continue
            matches = {match.position: match for match in self.of_term(term, wanted)}
            found = matches if found is None else _both(found, matches)
        return [*(found or {}).values()]

    def _of_long(self, terms: Sequence[Term], position: int) -> str:
        """Return a snippet of a turn with a long text."""
        rows = self._db.execute("SELECT text FROM search_turns WHERE position = ?", (position,)).fetchall()
        any_of_them = words_of(terms, any_of_them=True)
        if rows:
            return snippets(words_of(terms), any_of_them, [rows[0][0]], SNIPPET_WORDS)[0]
        at, text = self.piece(terms, position)
        [snippet] = snippets(any_of_them, any_of_them, [text], SNIPPET_WORDS)
        return snippet if -at % PIECES_MAX == 0 or snippet.startswith("…") else f"…{snippet}"

    def sealed(self) -> int:
        """Return how many turns are left out because they are sealed."""
        return self._db.execute("SELECT COUNT(*) FROM search_sealed").fetchone()[0]


def _both(found: Mapping[int, Match], more: Mapping[int, Match]) -> dict[int, Match]:
    """Return the matches that are in both, ranked by both."""
    return {at: match._replace(rank=match.rank + more[at].rank) for at, match in found.items() if at in more}


def _matching(columns: str, match: str, rows: str, wanted: Filter) -> tuple[str, list[Any]]:
    """Return a statement that reads matches, without its end, and values for it that follow those of its columns."""
    source = "search_words JOIN search_turns t ON t.position = search_words.rowid"
    values: list[Any] = []
    if wanted.runs is not None:
        source += " JOIN json_each(?) r ON r.key = t.stream AND t.stream_position >= r.value"
        values.append(json.dumps(dict(wanted.runs)))
    values.append(match)
    conditions = [f"search_words MATCH ? AND search_words.rowid {rows}"]
    for condition, value in picks(wanted, "SELECT value FROM json_each(?)"):
        conditions.append(condition)
        values.append(value)
    return f"SELECT {columns} FROM {source} WHERE {' AND '.join(conditions)}", values


def picks(wanted: Filter, texts: str) -> list[tuple[str, Any]]:
    """Return the conditions that pick turns by what they are, each with its value.

    Args:
        wanted: what is wanted.
        texts: a query that gives the texts of a JSON array.
    """
    conditions = (
        ("t.role = ?", wanted.which.role),
        (f"t.model IN ({texts})", None if wanted.models is None else json.dumps(wanted.models)),
        ("t.time_us >= ?", _us(wanted.which.since)),
        ("t.time_us < ?", _us(wanted.which.until)),
    )
    return [(condition, value) for condition, value in conditions if value is not None]


def _without_nul(name: str | None) -> str | None:
    """Return a name as the index has it."""
    return name and name.replace("\0", "\ufffd")


def _us(time: datetime | None) -> int | None:
    return None if time is None else us_of(time)
