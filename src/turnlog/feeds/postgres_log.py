"""The projections that every log can have, of a log on PostgreSQL: where they are, and what is different there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self, cast

import psycopg
from psycopg import errors, sql

from turnlog.feeds.postgres_ahead import AheadCursor
from turnlog.feeds.postgres_target import PostgresTarget, digest
from turnlog.feeds.search import (
    BY_TURN,
    COLUMNS,
    MATCHED,
    OF_TERM,
    ORDER,
    SNIPPET_WORDS,
    Filter,
    Match,
    Search,
    SearchView,
    Term,
    bounds_of,
    picks,
    words_of,
)
from turnlog.feeds.words import Words, snippets
from turnlog.store.postgres.connections import NAME_BYTES_MAX, Address
from turnlog.store.postgres.schema import dialect

LEXEME_CHARACTERS = 100
"""Longer words are cut in the index, and looked at in the text."""

PLACES_MAX = 255
"""How many places of a word PostgreSQL keeps in an index; and the last of them."""
LAST_PLACE = 16383

VECTOR_BYTES_MAX = 1_000_000
"""Of a text with more words than that only some are in the index; PostgreSQL's own bound is 1 MiB."""

_ENDING = "_projections"

_OWNER = (
    "SELECT pg_get_userbyid(c.relowner) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = 'stored_events'"
)
_GRANTEES = (
    "SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END"
    " FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = %s AND a.grantee <> n.nspowner"
)
_MAY_MAKE = """\
SELECT has_database_privilege(current_database(), 'CREATE') AND NOT current_setting('transaction_read_only')::boolean"""


@lru_cache(maxsize=256)
def _portable(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


class _Cursor(AheadCursor):
    """Reads statements as SQLite does: `?` stands for a value. Text cannot have a NUL here: another character does."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Run a statement."""
        if isinstance(params, Sequence):
            params = _clean(cast("Sequence[object]", params))
        return super().execute(_portable(query) if isinstance(query, str) else query, params, **options)

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        """Run a statement with each of some values."""
        return super().executemany(_portable(query), [_clean(params) for params in params_seq], **options)


def _clean(values: Sequence[object]) -> list[object]:
    return [value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in values]


class LogTarget(PostgresTarget):
    """The projections of a log, in a schema beside its own, which belongs to the owner of the log and to nobody else.

    Their statements are those of SQLite.
    """

    cursor = _Cursor

    def __init__(self, url: str, schema: str | None = None) -> None:
        """Take the URL of the log, and the schema; by default the log's with `_projections`."""
        address = Address(url)
        self._url, self._log = url, address.schema
        super().__init__(address.conninfo, schema or schema_of(address.schema))

    def sibling(self, schema: str) -> LogTarget:
        """Return a target like this one in another schema."""
        return LogTarget(self._url, schema)

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Become the owner of the log, so that what is made is the owner's, whoever makes it."""
        for (owner,) in connection.execute(_OWNER, (self._log,)).fetchall():
            connection.execute("SELECT set_config('role', %s, false) WHERE current_user <> %s", (owner, owner))

    def statement(self, given: str) -> str:
        """Return a statement that makes a table as PostgreSQL should have it."""
        return dialect(given)

    def keep_to_owner(self, connection: psycopg.Connection[Any]) -> None:
        """Take from others what a server may give them by default: what is indexed is what was said."""
        schema = sql.Identifier(self.schema)
        for (role,) in connection.execute(_GRANTEES, (self.schema,)).fetchall():
            connection.execute(sql.SQL("REVOKE ALL ON SCHEMA {} FROM {}").format(schema, sql.SQL(role)))

    def may_be_used(self) -> bool:
        """Tell whether this role may make and write the tables: it is the log's owner, and the server no standby.

        Raises:
            StoreError: the server cannot be reached.
        """
        with self.converted():
            try:
                connection = self.connect()
            except errors.InsufficientPrivilege:
                return False
            try:
                return connection.execute(_MAY_MAKE).fetchall() == [(True,)]
            finally:
                connection.close()


def schema_of(log: str) -> str:
    """Return the schema for the projections of a log, by that of the log."""
    name = log + _ENDING
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    # PostgreSQL would cut it, at worst to the log's own.
    return f"turnlog_{digest(log)}{_ENDING}"


class _Vector(NamedTuple):
    """An entry of the index, as PostgreSQL reads it, and whether words of the text are left out of it."""

    text: str
    is_partial: bool


class PostgresSearch(Search):
    """The text of every turn and an index of its words, as PostgreSQL has it.

    The index finds turns that have all words. Phrases are then looked for in the words of the text: the index knows no
    places behind the 16,383rd word, and no more than 255 of one word.
    """

    schema = (
        f"CREATE TABLE search_turns ({COLUMNS}, folded TEXT NOT NULL, words tsvector NOT NULL,"
        " is_partial boolean NOT NULL)",
        "CREATE TABLE search_sealed (position INTEGER PRIMARY KEY)",
        "CREATE INDEX search_turns_words ON search_turns USING gin (words)",
        "CREATE INDEX search_turns_partial ON search_turns (position) WHERE is_partial",
    )
    objects = ()

    def __init__(self, words: Words) -> None:
        """Take what knows words."""
        self._words = words

    def put(self, db: Any, row: tuple[Any, ...], text: str) -> None:
        """Put a turn into the table, and its words."""
        words = self._words.of(text)
        vector = _vector(words)
        db.execute(
            "INSERT INTO search_turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS tsvector), ?)",
            (*row, text, f" {' '.join(words)} ", vector.text, vector.is_partial),
        )

    def merge(self, db: Any) -> None:
        """Do nothing: what was taken out goes when the table is written anew."""


def _vector(words: Sequence[str]) -> _Vector:
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words, 1):
        known = places.setdefault(word[:LEXEME_CHARACTERS], [])
        if place <= LAST_PLACE and len(known) < PLACES_MAX:
            known.append(place)
    entries: list[str] = []
    size = 0
    for lexeme, at in places.items():
        size += len(lexeme.encode()) + 4 + 2 * len(at)
        if size > VECTOR_BYTES_MAX:
            return _Vector(" ".join(entries), is_partial=True)
        entries.append(f"'{lexeme}'" + (":" + ",".join(map(str, at)) if at else ""))
    return _Vector(" ".join(entries), is_partial=False)


class PostgresSearchView(SearchView):
    """What a search index has on PostgreSQL, in a transaction on it."""

    def whole(self, terms: Sequence[Term], wanted: Filter) -> list[Match]:
        """Return turns of one row that have all of some terms, the first ones of their order."""
        # As with FTS5, what has no word in it is passed over.
        words = [(term, found) for term in terms if (found := self._words.of(term.text))]
        if not words:
            return []
        statement, values = _matching(f"{MATCHED}, {_RANK} AS rank, t.text", words, "> 0", wanted)
        rows = self._db.execute(f"{statement} ORDER BY {ORDER[wanted.newest]} LIMIT ?", (*values, wanted.limit))
        found = [*map(Match._make, rows.fetchall())]
        texts = [match.snippet or "" for match in found]
        made = snippets(words_of(terms), words_of(terms, any_of_them=True), texts, SNIPPET_WORDS)
        return [match._replace(snippet=snippet) for match, snippet in zip(found, made, strict=True)]

    def of_term(self, term: Term, wanted: Filter) -> list[Match]:
        """Return turns of several rows of which one has a term."""
        statement, values = _matching(
            f"{OF_TERM}, MIN({_RANK}), NULL", [(term, self._words.of(term.text))], "< 0", wanted
        )
        return [*map(Match._make, self._db.execute(f"{statement} {BY_TURN}", values).fetchall())]

    def piece(self, terms: Sequence[Term], position: int) -> tuple[int, str]:
        """Return the first row with any of some terms, and its text, of a turn of several rows."""
        found: list[tuple[int, str]] = []
        for term in terms:
            if words := self._words.of(term.text):
                conditions = _conditions([(term, words)])
                found += self._db.execute(
                    "SELECT t.position, t.text FROM search_turns t WHERE t.position BETWEEN ? AND ?"
                    f" AND {' AND '.join(condition for condition, _ in conditions)}"
                    " ORDER BY t.position DESC LIMIT 1",
                    (*bounds_of(position), *(value for _, value in conditions)),
                ).fetchall()
        return max(found)


_RANK = "-ts_rank_cd(t.words, CAST(? AS tsquery), 1)"

_Words = Sequence[tuple[Term, list[str]]]
"""Terms, each with its words."""


def _matching(columns: str, terms: _Words, rows: str, wanted: Filter) -> tuple[str, list[Any]]:
    """Return a statement that reads matches, whose columns have one value, without its end; and its values."""
    source = "search_turns t"
    values: list[Any] = [_lexemes(terms)]
    if wanted.runs is not None:
        source += (
            " JOIN unnest(CAST(? AS text[]), CAST(? AS bigint[])) AS r (stream, first)"
            " ON r.stream = t.stream AND t.stream_position >= r.first"
        )
        values += [list(wanted.runs.keys()), list(wanted.runs.values())]
    conditions = [*_conditions(terms), *picks(wanted, "SELECT json_array_elements_text(CAST(? AS json))")]
    values += [value for _, value in conditions]
    where = " AND ".join([f"t.position {rows}", *(condition for condition, _ in conditions)])
    return f"SELECT {columns} FROM {source} WHERE {where}", values


def _conditions(terms: _Words) -> list[tuple[str, str]]:
    """Return the conditions that all terms are in a text, each with its value."""
    return [("(t.words @@ CAST(? AS tsquery) OR t.is_partial)", _lexemes(terms)), *map(_in_text, terms)]


def _lexemes(terms: _Words) -> str:
    """Return what the index is asked for: all words, wherever they are."""
    found: list[str] = []
    for term, words in terms:
        found += [f"'{word[:LEXEME_CHARACTERS]}'" for word in words]
        if term.is_beginning:
            found[-1] += ":*"
    return " & ".join(found)


def _in_text(given: tuple[Term, list[str]]) -> tuple[str, str]:
    """Return the condition that a term is in the words of a text, where the index cannot tell, and its value."""
    term, words = given
    value = f" {' '.join(words)}" + ("" if term.is_beginning else " ")
    is_told = len(words) == 1 and len(words[0]) <= LEXEME_CHARACTERS
    return ("(NOT t.is_partial OR strpos(t.folded, ?) > 0)" if is_told else "strpos(t.folded, ?) > 0"), value
