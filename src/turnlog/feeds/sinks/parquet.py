"""Parquet files in a folder, by day: a dataset that DuckDB and the like read. Needs the extra `parquet`.

The events of a batch are one file for each day that they were recorded on, in a folder `day=2026-01-31`. A file is
named by the first and the last global position of its batch, so that what is written again after a kill takes the same
place. How far the folder has come is what the names say: a batch counts where the file of its last day is there, which
is written behind the others. These may have been taken away since.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import MissingPackageError
from turnlog.events.times import time_of
from turnlog.feeds.sinks.folders import Folder, folder_path, is_same
from turnlog.feeds.sinks.interface import INT64_MAX, SCHEMA, Batch, Place, Sink, SinkRecord
from turnlog.feeds.sinks.seconds import check_seconds
from turnlog.model.json_text import UNREADABLE
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE
from turnlog.store import Store
from turnlog.store.files import make_file

BATCH_EVENTS = 10_000
LINGER_S = 60.0

_NAME = re.compile(r"events-([0-9]{20})-([0-9]{20})\.parquet")
_ABOUT = b"turnlog"
"""The key of what a file's metadata say of its batch."""

_SAME = (
    "idempotency_key",
    "log",
    "global_position",
    "id",
    "topic",
    "stream",
    "position",
    "arrival",
    "digest",
    "format",
    "erased",
    "closed",
    "sealed",
    "hash",
    "size",
)
"""Columns that are as in the record."""

_META = ("role", "model", "provider", "api", "stop_reason")
"""Columns that are texts of the metadata: those that are asked for most."""

_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "reasoning_tokens",
)
"""Columns that are counts of the metadata's `usage`."""


_SHORT = [
    *(*_SAME, "time", "said_at", *_META, *_TOKENS),
    "threads.list.element",
    *(f"citations.list.element.{name}" for name in ("as", "id", "digest")),
]
"""Columns that have a dictionary and statistics of their values: of one large text these take five times its size."""

_LARGE = ("text", "content")
"""Columns whose values may be large: these go to Arrow as they are, without a copy."""

_PAGE_BYTES = 4 * 1024 * 1024
"""A file with a payload of more bytes has pages that are written with less memory."""


class _About(Struct, frozen=True, kw_only=True):
    """What a file says of its batch.

    Attributes:
        schema: the version of the schema.
        log: the id of the log.
        first: the global position from which on the log was looked at.
        last: the one up to which it was.
        event_id: the id of the event there.
        digest: its digest; None in files of before it was written.
        days: the days that have a file of the batch.
    """

    schema: int
    log: str
    first: int
    last: int
    event_id: str
    days: list[str]
    digest: str | None = None


class ParquetFiles(Sink):
    """A folder of Parquet files by day. See `turnlog.feeds.sinks.parquet`."""

    kind = "parquet"
    takes_back = True
    knows_place = True
    batch_events = BATCH_EVENTS
    batch_bytes = 128 * 1024 * 1024
    linger_s = LINGER_S

    def __init__(self, folder: str | Path, *, linger_s: float = LINGER_S) -> None:
        """Take the folder, which is made where there is none.

        Args:
            folder: its path.
            linger_s: how long a feed that follows waits for a file to fill, in seconds.

        Raises:
            MetaError: the folder has no name.
        """
        self._path = folder_path(folder)
        self._folder = Folder(self, self._path)
        self.linger_s = check_seconds(linger_s, "linger_s", from_zero=True)
        self._unfinished: tuple[int, list[Path]] | None = None
        """The first position and the files of a batch that does not count."""

    @property
    def destination(self) -> str:
        """The folder."""
        return str(self._path)

    def is_at(self, destination: str) -> bool:
        """Tell whether a path leads to the folder."""
        return is_same(destination, self._path)

    def open(self, store: Store) -> Place | None:  # noqa: ARG002 - the folder says it all
        """Lock the folder, and return how far the batches go that count."""
        _pyarrow()
        self._unfinished = None
        self._folder.open()
        with self._folder.errors():
            for (first, _), paths in sorted(self._files().items(), reverse=True):
                about = self._about(paths[0])
                # Before a later batch was begun, this one was whole.
                if self._unfinished or any(path.parent.name == _folder_of(about.days[-1]) for path in paths):
                    return Place(log=about.log, position=about.last, event_id=about.event_id, digest=about.digest)
                self._unfinished = first, paths
        return None

    def deliver(self, batch: Batch) -> None:
        """Write one file for each day. What there is of a batch that was not finished goes before: it comes again."""
        days: dict[str, list[SinkRecord]] = defaultdict(list)
        for record in batch.records:
            days[time_of(record.recorded.header.time).date().isoformat()].append(record)
        about = _About(
            schema=SCHEMA,
            log=batch.log,
            first=batch.first,
            last=batch.last,
            event_id=batch.event_id,
            digest=batch.digest,
            days=sorted(days),
        )
        self._folder.keep()
        with self._folder.errors():
            self._remove_unfinished(batch.first)
            for day, records in sorted(days.items()):
                path = self._path / _folder_of(day) / f"events-{batch.first:020}-{batch.last:020}.parquet"
                self._write(path, _table(list(map(_row, records))), about)

    def is_emptied(self) -> bool:
        """Tell whether the folder has no file, or is not there."""
        with self._folder.errors():
            return not (self._path.is_dir() and self._files())

    def forget(self, records: Sequence[SinkRecord]) -> None:
        """Write the files anew that have rows of erased events, one after the other.

        Which files these are, their statistics say: where one was joined with others, or renamed, its name does not.
        """
        erased = sorted(records, key=lambda record: record.position)
        positions = [record.position for record in erased]

        def forget_in(path: Path) -> None:
            with self._errors(path):
                first, last = _span(_parquet().read_metadata(path))
            found = erased[bisect_left(positions, first) : bisect_right(positions, last)]
            if found:
                self._rewrite(path, {record.position: record for record in found})

        self._folder.keep()
        with self._folder.errors():
            files = sorted(self._files().items())
        self._folder.each((path for _, paths in files for path in paths), forget_in)

    def close(self) -> None:
        """Release the folder."""
        self._folder.close()

    # Files

    def _remove_unfinished(self, first: int) -> None:
        """Remove the files of a batch that does not count, if all that they have is delivered again."""
        begun, paths = self._unfinished or (0, [])
        for path in paths if begun >= first else ():
            with suppress(FileNotFoundError):
                self._folder.remove(path)
        self._unfinished = None

    def _files(self) -> dict[tuple[int, int], list[Path]]:
        """Return the files of each batch, by its first and last position."""
        found: dict[tuple[int, int], list[Path]] = defaultdict(list)
        for path in self._path.glob(f"{_folder_of('*')}/*.parquet"):
            if match := _NAME.fullmatch(path.name):
                found[int(match[1]), int(match[2])].append(path)
        return found

    def _about(self, path: Path) -> _About:
        with self._errors(path):
            metadata = cast("Mapping[bytes, bytes]", _parquet().read_metadata(path).metadata or {})
            return msgspec.json.decode(metadata[_ABOUT], type=_About)

    def _rewrite(self, path: Path, erased: Mapping[int, SinkRecord]) -> None:
        pa = _pyarrow()
        with self._errors(path):
            file = _parquet().ParquetFile(path)
            replaced = _places(file, erased)
            if not replaced:
                return
            about = self._about(path)
            table = _read(file)
            parts: list[Any] = []
            place = 0
            for index, record in replaced:
                parts += (table.slice(place, index - place), _table([_row(record)]))
                place = index + 1
            new = pa.concat_tables([*parts, table.slice(place)], promote_options="default").select(columns().names)
        if not new.equals(table):
            del table, parts
            pa.default_memory_pool().release_unused()
            self._write(path, new, about)

    def _write(self, path: Path, table: Any, about: _About) -> None:
        schema = columns().with_metadata({_ABOUT: msgspec.json.encode(about)})
        table = _pyarrow().Table.from_arrays(table.columns, schema=schema)
        # A page of version 2 is compressed without a copy of it before, but not all that reads Parquet knows it.
        version = "2.0" if any((size or 0) > _PAGE_BYTES for size in table["size"].to_pylist()) else "1.0"

        def make(new: Path) -> None:
            with os.fdopen(make_file(new), "wb") as file:
                _parquet().write_table(
                    table,
                    file,
                    compression="zstd",
                    use_dictionary=_SHORT,
                    write_statistics=_SHORT,
                    data_page_version=version,
                )
                file.flush()
                os.fsync(file.fileno())

        self._folder.replace(path, make)

    @contextmanager
    def _errors(self, path: Path) -> Generator[None]:
        """Raise what a file that cannot be read raises as an error of the sink."""
        try:
            yield
        except (_pyarrow().ArrowException, KeyError, ValueError, OSError, msgspec.DecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # else it is what pyarrow says of metadata that are damaged
            raise self.failed(f"{path.name!r} cannot be read as what this sink has written: {error}") from error


def _folder_of(day: str) -> str:
    """Return the name of the folder of a day."""
    return f"day={day}"


def columns() -> Any:
    """Return the schema of the files, a `pyarrow.Schema`."""
    pa = _pyarrow()
    text = pa.string()
    citation = pa.struct([("as", text), ("id", text), ("digest", text)])
    required = [
        ("idempotency_key", text),
        ("log", text),
        ("global_position", pa.int64()),
        ("id", text),
        ("topic", text),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("stream", text),
        ("position", pa.int64()),
        ("arrival", text),
        ("digest", text),
        ("format", pa.int32()),
        ("erased", pa.bool_()),
        ("closed", pa.bool_()),
        ("citations", pa.list_(citation)),
        ("meta", text),
    ]
    others = [("sealed", text), ("hash", text), ("size", pa.int64())]
    others += [("said_at", pa.timestamp("us", tz="UTC")), ("threads", pa.list_(text))]
    others += [(name, text) for name in _META]
    others += [(name, pa.int64()) for name in _TOKENS]
    others += [("text", text), ("content", text)]
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in required]
        + [pa.field(name, kind) for name, kind in others]
    )


def _span(metadata: Any) -> tuple[int, int]:
    """Return the first and the last global position that a file may have rows of."""
    first, last = INT64_MAX, 0
    index = metadata.schema.names.index("global_position")
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group).column(index).statistics
        if known is None or not known.has_min_max:
            return 0, INT64_MAX
        first, last = min(first, known.min), max(last, known.max)
    return first, last


def _places(file: Any, records: Mapping[int, SinkRecord]) -> list[tuple[int, SinkRecord]]:
    """Return which rows of a file are to be replaced, by their index, and what by."""
    names = ["global_position", "digest", "id", "idempotency_key"]
    rows = file.read(columns=names)
    found = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return [
        (index, records[position].known_as(key))
        for index, (position, digest, id, key) in enumerate(found)
        if position in records and (digest, id) == (records[position].recorded.digest, records[position].id)
    ]


def _read(file: Any) -> Any:
    """Read a file, one column after the other: what reading a large one takes goes before the next."""
    schema = file.schema_arrow
    arrays = [file.read(columns=[name], use_threads=False).column(0) for name in schema.names]
    return _pyarrow().Table.from_arrays(arrays, schema=schema)


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a `pyarrow.Table`, which has the memory of their large values."""
    pa = _pyarrow()
    schema = columns()
    arrays = [
        _texts([row[field.name] for row in rows])
        if field.name in _LARGE
        else pa.array([row[field.name] for row in rows], type=field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _texts(values: Sequence[bytes | memoryview | None]) -> Any:
    """Return texts in UTF-8 as a column: each long one is a chunk of its own, whose memory it shares."""
    pa = _pyarrow()
    chunks: list[Any] = []
    for is_long, group in groupby(values, lambda value: value is not None and len(value) > PIECE):
        if is_long:
            chunks += [
                pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("=2i", 0, len(value))), pa.py_buffer(value))
                for value in cast("Iterator[bytes | memoryview]", group)
            ]
        else:
            chunks.append(pa.array([None if value is None else bytes(value) for value in group], type=pa.string()))
    return pa.chunked_array(chunks, type=pa.string())


def _row(record: SinkRecord) -> dict[str, Any]:
    fields = record.fields
    meta = cast("Mapping[str, object]", fields["meta"])
    usage = meta.get("usage")
    # A count that a reply has not is 0 there, which is not written down; what has no `usage` says nothing of any.
    tokens = {**dict.fromkeys(_TOKENS, 0), **cast("Mapping[str, object]", usage)} if isinstance(usage, Mapping) else {}
    content = None if fields["content"] is None else _json(fields["content"])
    return {
        **{name: fields[name] for name in _SAME},
        "time": time_of(record.recorded.header.time),
        "citations": [
            {"as": citation.relation, "id": citation.id, "digest": citation.digest}
            for citation in record.recorded.header.citations
        ],
        "said_at": None if fields["said_at"] is None else datetime.fromisoformat(fields["said_at"]),
        "threads": fields["threads"],
        "meta": msgspec.json.encode(meta).decode(),
        **{name: _of_type(meta.get(name), str) for name in _META},
        **{name: _count(tokens.get(name)) for name in _TOKENS},
        "text": None if content is None else _text(bytes(content)),
        "content": content,
    }


def _of_type(value: object, kind: type) -> object:
    return value if type(value) is kind else None


def _count(value: object) -> int | None:
    """Return a count that a column can hold; what is none is in `meta` alone."""
    return value if type(value) is int and abs(value) <= INT64_MAX else None


class _Block(Struct, frozen=True):
    """What of a content block is text."""

    type: str = ""
    text: str = ""


_blocks = msgspec.json.Decoder(list[_Block])


def _json(value: object) -> memoryview:
    """Return a value as JSON; what is JSON already is not copied."""
    return memoryview(value if isinstance(value, Raw) else msgspec.json.encode(value))


def _text(content: bytes) -> bytes | None:
    """Return the text blocks of content as UTF-8, with a line feed between them; None where it has none."""
    long, text = LongStrings(), BytesIO()
    try:
        texts = [block.text for block in _blocks.decode(long.out_of_json(content)) if block.type == "text"]
        for number, each in enumerate(texts):
            text.write(b"\n" if number else b"")
            text.writelines(piece.encode() for piece in long.said_pieces(each))
    except UNREADABLE:
        return None
    return text.getvalue() if texts else None


def _pyarrow() -> Any:
    return _module("pyarrow")


def _parquet() -> Any:
    return _module("pyarrow.parquet")


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            "Parquet files need the package pyarrow: pip install 'turnlog[parquet]'", provider="parquet"
        ) from error
