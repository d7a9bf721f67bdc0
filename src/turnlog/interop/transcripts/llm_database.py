"""Reading the database of the `llm` tool: all its rows, without writing anything to it."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import FormatError, os_reason
from turnlog.interop.marked import text_of
from turnlog.interop.sqlite_files import opened, tables_of
from turnlog.interop.transcripts.fields import fields
from turnlog.interop.transcripts.lines import count
from turnlog.model import Usage
from turnlog.model.long_strings import decode_string
from turnlog.model.pieces import PIECE, decoded_pieces, encoded_text, in_json, joined
from turnlog.record.files import open_regular
from turnlog.store.sqlite.opening import SQLITE_MAGIC

_encoder = msgspec.json.Encoder()

NEWER = ("messages", "parts", "turns")
"""The tables that the newer generation has."""

_SAID = frozenset(
    (
        *("arguments", "content", "options_json", "output", "payload", "prompt"),
        *("prompt_json", "reasoning", "response", "response_json", "system", "text"),
    )
)
"""The columns that have what is said, and no names."""

_LONG_MAX = 100
"""So many texts of a column are read in pieces, the longest ones: SQLite holds one of the others too as it is read."""

_DERIVED = ("turn_search",)
"""Tables for searching, which say again what others say."""

_ATTACHED = ("attachments", "content")
"""The table and column with the bytes of attachments, which have base64 only where they are written as JSON."""


class Bytes(Struct, frozen=True, kw_only=True):
    """Bytes where the database says that there is text or a number."""

    base64: str

    def __str__(self) -> str:
        """Return the bytes in base64, as the name of something."""
        return self.base64


Value = str | int | float | bytes | Bytes | Raw | None
"""What a row has in a column. What is said in one is JSON of a string: as text it takes up to four times as much."""

Row = dict[str, Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A row, and its number."""

    place: int
    row: Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """What a database has, by table.

    Attributes:
        tables: the rows of each.
        misspelled: numbers of the rows that have text that is not UTF-8.
        no_text: number, table and column of what is bytes, and should be something else.
    """

    tables: Mapping[str, Sequence[Stored]]
    misspelled: Sequence[int]
    no_text: Sequence[tuple[int, str, str]]
    _found: dict[tuple[str, str], dict[Value, list[Row]]] = field(
        default_factory=dict[tuple[str, str], dict[Value, list["Row"]]]
    )

    def rows(self, table: str) -> Sequence[Stored]:
        """Return the rows of a table; none where there is no such table."""
        return self.tables.get(table, ())

    def by(self, table: str, column: str) -> Mapping[Value, Sequence[Row]]:
        """Return the rows of a table by what a column of them says, by `order`."""
        if (table, column) not in self._found:
            found = self._found.setdefault((table, column), {})
            for stored in sorted(self.rows(table), key=lambda each: number(each.row.get("order"))):
                found.setdefault(stored.row.get(column), []).append(stored.row)
        return self._found[table, column]

    def one(self, table: str, id: Value) -> Row | None:
        """Return the row of a table that has an id; None where there is none."""
        return next(iter(self.by(table, "id").get(id, ())), None)


def is_database(path: Path) -> bool:
    """Tell whether an SQLite database is one of the tool."""
    return _is_own(tables_of(path))


def read(path: Path) -> Database:
    """Read a database.

    Raises:
        FormatError: it cannot be read, is damaged or being written to, or is not of the tool.
    """
    try:
        with open_regular(path, FormatError) as file:
            magic = file.read(len(SQLITE_MAGIC))
        before = path.stat()
        if magic != SQLITE_MAGIC:
            raise FormatError(f"{str(path)!r} is not a file of llm: no SQLite database; nothing was imported")
        _refuse_unsettled(path)
        with closing(opened(path)) as connection:
            tables = _tables(connection)
            if not _is_own({name for name, _ in tables}):
                raise FormatError(f"{str(path)!r} is not a file of llm: it has other tables; nothing was imported")
            database = _rows(connection, [name for name, is_kept in tables if is_kept])
        after = path.stat()
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} cannot be read: {os_reason(error)}; nothing was imported") from error
    except sqlite3.Error as error:
        raise FormatError(f"{str(path)!r} cannot be read: {str(error).lower()}; nothing was imported") from error
    _refuse_unsettled(path)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise FormatError(f"{str(path)!r} was written to meanwhile: import it again; nothing was imported")
    return database


def _refuse_unsettled(path: Path) -> None:
    """Refuse a database that is being written to: what is beside it belongs to it, and its writer has to settle it."""
    path = path.resolve()  # SQLite has it beside the file that a link leads to
    for suffix in ("-journal", "-wal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise FormatError(
                f"{str(path)!r} is locked or was left in the middle of a write ({beside.name} is not empty): "
                "wait for what writes to it, or import a copy made with 'llm logs backup'; nothing was imported"
            )


def _tables(connection: sqlite3.Connection) -> list[tuple[str, bool]]:
    """Return the names of all tables, and of each whether it is more than an index for searching."""
    found: list[tuple[str, str]] = connection.execute(
        "SELECT name, coalesce(sql, '') FROM sqlite_master WHERE type = 'table' ORDER BY name"
    ).fetchall()
    virtual = [name for name, sql in found if sql.upper().startswith("CREATE VIRTUAL")]
    searching = {*_DERIVED, *virtual}
    return [
        (name, name not in searching and not name.startswith(("sqlite_", *(f"{each}_" for each in virtual))))
        for name, _ in found
    ]


def _is_own(names: Set[str]) -> bool:
    is_older = "responses" in names and "conversations" in names
    return is_older or names >= set(NEWER) or names >= {"logs", "_llm_migrations"}


def _rows(connection: sqlite3.Connection, names: Sequence[str]) -> Database:
    tables: dict[str, list[Stored]] = {}
    misspelled: list[int] = []
    no_text: list[tuple[int, str, str]] = []
    place = 0

    def text(raw: bytes) -> str | Raw:
        try:
            return raw.decode() if len(raw) <= PIECE else Raw(joined(chain((b'"',), encoded_text(raw), (b'"',))))
        except UnicodeDecodeError:
            misspelled.append(place)
            return raw.decode(errors="replace")

    def said(table: str, column: str, rowid: int) -> str | Raw:
        with connection.blobopen(table, column, rowid, readonly=True) as blob:
            pieces = iter(partial(blob.read, PIECE), b"")
            try:
                return Raw(joined(chain((b'"',), in_json(decoded_pieces(pieces)), (b'"',))))
            except UnicodeDecodeError:
                blob.seek(0)
                return text(blob.read())

    connection.text_factory = text
    is_utf8 = connection.execute("PRAGMA encoding").fetchone() == ("UTF-8",)
    for name in names:
        stored = tables.setdefault(name, [])
        quoted = name.replace('"', '""')
        columns = [each[0] for each in connection.execute(f'SELECT * FROM "{quoted}" LIMIT 0').description]
        kinds = _kinds(connection, quoted)
        long = _long(connection, quoted, kinds) if is_utf8 else {}
        cursor = connection.execute(_without(quoted, columns, long))
        with_bytes = {column for column, kind in kinds.items() if kind in ("", "BLOB")}
        place += 1
        for rowid, *values in cursor:
            row: Row = {}
            for column, read in zip(columns, values, strict=True):
                value = said(name, column, rowid) if rowid in long.get(column, ()) else read
                if isinstance(value, bytes) and (name, column) == _ATTACHED and column in with_bytes:
                    row[column] = value
                    continue
                row[column] = _value(value, is_text=column not in with_bytes, is_said=column in _SAID)
                if isinstance(row[column], Bytes):
                    no_text.append((place, name, column))
            stored.append(Stored(place=place, row=row))
            place += 1
        place -= 1
    return Database(tables=tables, misspelled=list(dict.fromkeys(misspelled)), no_text=no_text)


def _kinds(connection: sqlite3.Connection, quoted: str) -> dict[str, str]:
    """Return the columns of a table that it keeps, each with its type in capitals."""
    asked = connection.execute(f'PRAGMA table_info("{quoted}")')
    return {name: kind.upper() for _, name, kind, *_ in asked}


def _long(connection: sqlite3.Connection, quoted: str, columns: Collection[str]) -> dict[str, set[int]]:
    """Return the numbers of the rows of a table that have a long text, by column of what is said: those of most."""
    if "rowid" in map(str.lower, columns):  # which may be no number
        return {}
    found: dict[str, set[int]] = {}
    with suppress(sqlite3.OperationalError):  # its rows have no numbers
        for column in _SAID.intersection(columns):
            asked = connection.execute(
                f'SELECT rowid FROM "{quoted}" WHERE typeof("{column}") = \'text\' AND length("{column}") > {PIECE} '
                f'ORDER BY length("{column}") DESC LIMIT {_LONG_MAX}'
            )
            found[column] = {rowid for (rowid,) in asked}
    return {column: rowids for column, rowids in found.items() if rowids}


def _without(quoted: str, columns: Sequence[str], long: Mapping[str, Set[int]]) -> str:
    """Return the query for the rows of a table, without long texts, and where there are such with their numbers."""
    if not long:
        return f'SELECT NULL, * FROM "{quoted}"'
    asked = ["rowid"]
    for column in columns:
        name = '"' + column.replace('"', '""') + '"'
        left_out = ", ".join(map(str, long.get(column, ())))
        asked.append(f"CASE WHEN rowid NOT IN ({left_out}) THEN {name} END" if left_out else name)
    return f'SELECT {", ".join(asked)} FROM "{quoted}"'


def _value(value: object, *, is_text: bool, is_said: bool) -> Value:
    match value:
        case bytes():
            encoded = b64encode(value).decode()
            return Bytes(base64=encoded) if is_text else encoded
        case str() if is_said:
            return Raw(_encoder.encode(value))
        case Raw() if not is_said:
            return decode_string(bytes(value))
        case str() | int() | float() | Raw():
            return value
        case _:
            return None


def json_of(value: Value) -> Raw | None:
    """Return a text as JSON text without whitespace outside strings; None where it is none."""
    told = text(value)
    if told is None:
        return None
    try:
        return Raw(msgspec.json.format(told.encode(), indent=-1))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def text(value: Value) -> str | None:
    """Return a value that is text."""
    return text_of(value) if isinstance(value, Raw) else value if isinstance(value, str) else None


def name(value: Value) -> str:
    """Return a value as the name of something; nothing for NULL."""
    return "" if value is None else str(value)


def number(value: Value) -> int:
    """Return a value that is a whole number; 0 for what is none."""
    return value if isinstance(value, int) else 0


def usage_of(row: Row) -> Usage | None:
    """Return the tokens of a call. OpenAI's details are part of what is counted, Anthropic's come on top."""
    if row.get("input_tokens") is None and row.get("output_tokens") is None:
        return None
    told = fields(json_of(row.get("token_details")))
    prompt = fields(told.get("prompt_tokens_details") or told.get("input_tokens_details"))
    reply = fields(told.get("completion_tokens_details") or told.get("output_tokens_details"))
    cached, reasoning = count(prompt, "cached_tokens"), count(reply, "reasoning_tokens")
    return Usage(
        input_tokens=max(0, number(row.get("input_tokens")) - cached),
        output_tokens=max(0, number(row.get("output_tokens")) - reasoning),
        cache_read_input_tokens=cached + count(told, "cache_read_input_tokens"),
        cache_creation_input_tokens=count(told, "cache_creation_input_tokens"),
        reasoning_tokens=reasoning,
    )
