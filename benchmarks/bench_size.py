"""Size: how many bytes does a log take on disk?"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.baseline import RawSQLite
from benchmarks.data import Texts, compression_ratio
from benchmarks.material import build, open_log, stored_bytes, stored_lines
from benchmarks.measure import Figure, Report, Settings, at_most, size_ratio

TURNS_EACH = 100
"""Turns a thread: a long conversation, so that the first turn of a stream, which is cheaper, is rare."""


def run(settings: Settings) -> Report:
    """Build logs of two sizes, close them, and compare all their files with JSON lines of the same turns."""
    figures: list[Figure] = []
    measured: dict[str, float] = {}
    shape: dict[str, int | str] = {"turns a thread": TURNS_EACH}
    for count in (settings.pick(quick=1_000, full=10_000), settings.pick(quick=10_000, full=100_000)):
        sizes = _sizes(settings, count)
        lines, rows, text = sizes["JSON lines"], sizes["raw sqlite3"], sizes["text"]
        what = f"bytes of a closed log of {count:,} turns"
        figures += [
            size_ratio(
                sizes["turnlog"], lines, what=what, baseline="JSON lines of the same turns", target=at_most(1.2)
            ),
            size_ratio(sizes["turnlog"], rows, what=what, baseline="raw sqlite3, the lines as rows, not compressed"),
            size_ratio(
                sizes["turnlog"],
                sizes["raw sqlite3, compressed"],
                what=what,
                baseline="raw sqlite3, the bytes that turnlog stores",
            ),
            size_ratio(sizes["turnlog"], text, what=what, baseline="the text alone"),
        ]
        measured |= {f"{name} at {count:,}, bytes a turn": round(size / count, 1) for name, size in sizes.items()}
    shape["compressed / plain text, Zstandard level 3, in thousandths"] = round(
        1000 * compression_ratio(Texts(settings.seed).take(1000))
    )
    return Report(
        question="How many bytes does a log take on disk?", figures=tuple(figures), measured=measured, shape=shape
    )


def _sizes(settings: Settings, count: int) -> dict[str, int]:
    """Return the bytes of each form of the same turns, and of the parts of the log."""
    folder = settings.folder / str(count)
    folder.mkdir()
    path = folder / "turns.db"
    with open_log(path) as log:
        build(log, Texts(settings.seed), threads=count // TURNS_EACH, turns_each=TURNS_EACH)
    # Measured before anything opens the log again: what is on disk when the writer has gone.
    sizes = {"turnlog": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())}
    with open_log(path) as log:
        lines = list(stored_lines(log))
        rows = stored_bytes(log)
    sizes["JSON lines"] = sum(map(len, lines))
    sizes["raw sqlite3"] = _database_bytes(settings.folder / f"{count}-lines.db", [(line, b"") for line in lines])
    sizes["raw sqlite3, compressed"] = _database_bytes(settings.folder / f"{count}-rows.db", rows)
    sizes["text"] = count * Texts(settings.seed).text_bytes
    sizes["turnlog, events"] = sum(len(state) for state, _ in rows)
    sizes["turnlog, payloads as kept"] = sum(len(payload) for _, payload in rows)
    return sizes | _tables(path)


def _database_bytes(path: Path, rows: list[tuple[bytes, bytes]]) -> int:
    with RawSQLite(path) as raw:
        raw.append_all(rows)
    return path.stat().st_size


def _tables(path: Path) -> dict[str, int]:
    """Return the bytes of each table and index, where this SQLite can tell (it was built with `dbstat`)."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC").fetchall()
        except sqlite3.OperationalError:
            return {}
    return {f"turnlog, pages of {name}": size for name, size in found}
