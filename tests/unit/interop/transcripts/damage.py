"""Samples of files with something changed in them: damage, values that nobody expects, and secrets."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]

_MARK = "a mark that is not in any sample"
VALUES = [
    *("null", "true", "0", "-1", "1.5", "1e400", str(2**70), '""', '"x"', '"\\u0000"', '"\\ud800"', '"2026-13-45"'),
    *(
        "[]",
        "[null]",
        "[[1]]",
        '["x"]',
        "{}",
        '{"type":1}',
        '{"a":1,"a":2}',
        '[{"type":"text","text":null}]',
        "[" * 30 + "]" * 30,
    ),
    *('"' + "x" * 600 + '"', "[" * 520 + "]" * 520, "9" * 4000),
]
"""What can stand where something else is expected, as JSON text."""

_DATABASE = b"SQLite format 3"
_DEPTH_MAX = 20
_START = re.compile(r"[\[{]")
_SPLIT = re.compile(rb"(?<=\n)")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Files of a format.

    Attributes:
        format: its name.
        files: what they have, by their path in a folder.
        named: which of them is imported; the folder itself is `.`.
    """

    format: str
    files: Mapping[str, bytes]
    named: str

    def write(self, folder: Path) -> Path:
        """Write the files. Return what is to be imported."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder / self.named

    def changed(self, name: str, content: bytes) -> "Sample":
        """Return the sample with another content of a file."""
        return Sample(format=self.format, files={**self.files, name: content}, named=self.named)


def one(format: str, content: bytes, name: str = "sample.json") -> Sample:
    """Return a sample of one file."""
    return Sample(format=format, files={name: content}, named=name)


def damaged(draw: Draw[Any], sample: Sample) -> Sample:
    """Return a sample of which a file is damaged in some way."""
    name = draw(st.sampled_from(sorted(sample.files)))
    content = sample.files[name]
    for step in range(draw(st.integers(1, 3))):
        # What SQLite makes of a damaged database need not be the same each time.
        values = [] if step and content.startswith(_DATABASE) else [_replaced, _replaced]
        content = draw(st.sampled_from([_cut, _flipped, _shuffled, *values]))(draw, content)
    return sample.changed(name, content)


def _cut(draw: Draw[Any], content: bytes) -> bytes:
    at = draw(st.integers(0, len(content)))
    return content[:at]


def _flipped(draw: Draw[Any], content: bytes) -> bytes:
    changed = bytearray(content)
    for at, byte in draw(
        st.lists(st.tuples(st.integers(0, max(0, len(content) - 1)), st.integers(0, 255)), max_size=8)
    ):
        changed[at : at + 1] = bytes([byte])
    return bytes(changed)


def _shuffled(draw: Draw[Any], content: bytes) -> bytes:
    """Change places of two lines, double one, or leave one out."""
    lines = _SPLIT.split(content)
    one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    match draw(st.sampled_from(["swap", "double", "drop"])):
        case "swap":
            lines[one], lines[other] = lines[other], lines[one]
        case "double":
            lines.insert(other, lines[one])
        case _:
            del lines[one]
    return b"".join(lines)


def _replaced(draw: Draw[Any], content: bytes) -> bytes:
    """Put another value in any place, or leave one out."""
    if content.startswith(_DATABASE):
        cells = list(_cells(content))
        if not cells:
            return content
        cell = draw(st.sampled_from(cells))
        return _with_cell(content, cell, draw(st.sampled_from([*VALUES, None, 7, 1.5, -1, b"\xff", "", 2**62])))
    found = list(_documents(content))
    if not found:
        return content
    start, end, value = draw(st.sampled_from(found))
    paths = list(_paths(value))
    path = draw(st.sampled_from(paths))
    new = draw(st.sampled_from([*VALUES, ""]))
    return content[:start] + _with(value, path, new).encode() + content[end:]


def _documents(content: bytes) -> Iterator[tuple[int, int, Any]]:
    """Give the JSON texts of a file, one after the other: where each begins and ends, and what it is."""
    text = content.decode("latin-1")  # a character is a byte
    decoder, at = json.JSONDecoder(), 0
    while (found := _START.search(text, at)) is not None:
        at = found.start()
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            following = text.find("\n", at)
            at = len(text) if following < 0 else following
            continue
        yield at, end, json.loads(content[at:end].decode(errors="replace"))
        at = end


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the place of a value, and of each in it; not of what is nested very deep."""
    yield path
    if len(path) > _DEPTH_MAX:
        return
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _paths(each, (*path, key))


def _with(value: Any, path: tuple[str | int, ...], new: str) -> str:
    """Return JSON text with another one at a place; with nothing there where that is empty."""
    if not path:
        return new
    changed = json.loads(json.dumps(value))
    into = changed
    for key in path[:-1]:
        into = into[key]
    if new:
        into[path[-1]] = _MARK
    else:
        del into[path[-1]]
    return json.dumps(changed).replace(json.dumps(_MARK), new)


def _cells(content: bytes) -> Iterator[tuple[str, int, str, object]]:
    """Give what stands in a database: table, row, column, and value. Nothing where it is damaged."""
    with closing(sqlite3.connect(":memory:")) as connection, suppress(sqlite3.Error):
        connection.deserialize(content)
        plain = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB '*_fts*'"
        for (table,) in connection.execute(plain).fetchall():
            rows = connection.execute(f"SELECT rowid, * FROM {table}")
            columns = [each[0] for each in rows.description][1:]
            for row, *values in rows.fetchall():
                yield from ((table, row, *each) for each in zip(columns, values, strict=True))


def _with_cell(content: bytes, cell: tuple[str, int, str, object], value: object) -> bytes:
    """Return a database with another value in a cell; as it is where that cannot be."""
    table, row, column, _ = cell
    with closing(sqlite3.connect(":memory:")) as connection, suppress(sqlite3.Error):
        connection.deserialize(content)
        connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (value, row))
        connection.commit()
        return connection.serialize()
    return content


def misplaced(draw: Draw[Any], sample: Sample, mark: str) -> Sample:
    """Return a sample that has a text where something else stands, alone or in a list or an object."""
    name = draw(st.sampled_from(sorted(sample.files)))
    content = sample.files[name]
    if content.startswith(_DATABASE):
        # What is there for searching says again what stands elsewhere.
        cells = [cell for cell in _cells(content) if cell[0] != "turn_search"]
        return sample.changed(name, _with_cell(content, draw(st.sampled_from(cells)), mark))
    found = list(_documents(content))
    if not found:
        return sample
    start, end, value = draw(st.sampled_from(found))
    path = draw(st.sampled_from([path for path in _paths(value) if path] or [()]))
    at = value
    for key in path:
        at = at[key]
    new: list[Any] = [mark, [mark], {"more": mark}, [{"type": "text", "text": mark}]]
    new += [{**at, "more": mark}] if isinstance(at, dict) else []
    changed = _with(value, path, json.dumps(draw(st.sampled_from(new))))
    return sample.changed(name, content[:start] + changed.encode() + content[end:])


def planted(sample: Sample, secret: str) -> Iterator[tuple[str, Sample]]:
    """Give the sample with a secret behind each of its strings, and as a key in each of its objects, and where that is.

    Of a file that is no JSON, at its end.
    """
    for name, content in sample.files.items():
        if content.startswith(_DATABASE):
            for cell in _cells(content):
                if isinstance(cell[3], str):
                    where = f"{cell[0]}[{cell[1]}] {cell[2]}"
                    yield where, sample.changed(name, _with_cell(content, cell, f"{cell[3]} {secret}"))
            continue
        found = list(_documents(content))
        if not found:
            yield name, sample.changed(name, content + b" " + secret.encode())
        for start, end, value in found:
            for path in _paths(value):
                at = value
                for key in path:
                    at = at[key]
                where = f"{name}[{start}] {'.'.join(map(str, path))}"
                if isinstance(at, str):
                    new = _with(value, path, json.dumps(f"{at} {secret}")) if path else json.dumps(f"{at} {secret}")
                elif isinstance(at, dict):
                    new = _with(value, path, json.dumps({**at, secret: 1})) if path else json.dumps({**at, secret: 1})
                    where += " (a key)"
                else:
                    continue
                yield where, sample.changed(name, content[:start] + new.encode() + content[end:])
