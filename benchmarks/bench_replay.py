"""Replay: what does it cost to load a long window, and the next one?"""

from __future__ import annotations

import gc
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import msgspec
import zstandard

from benchmarks.data import Texts
from benchmarks.material import build, build_replied, open_log, stored_lines
from benchmarks.measure import (
    Figure,
    Report,
    Samples,
    Settings,
    at_least,
    at_most,
    cost,
    interleave,
    medians_us,
    rate,
    timed,
)
from turnlog import TurnLog
from turnlog.context import Projector
from turnlog.events import Header, Private
from turnlog.model import Block, TurnMeta
from turnlog.store import Placement

DEPTH = 10_000
REPLIES = 1_000
WINDOW, TOUCHED, NEXT = "turnlog, cold", "turnlog, cold, content decoded", "turnlog, one turn later"
REPLIED = "turnlog, cold, a thread of replies of models, as of 10,000 turns"
RAW, RAW_ENVELOPE, LINES = "raw SELECT + decode", "raw SELECT + decode, content kept as bytes", "JSON lines + decode"


class Line(msgspec.Struct):
    """A line as a program reads it that wants the content."""

    id: str
    role: str
    continues: list[str]
    content: list[Block]


def run(settings: Settings) -> Report:
    """Load a window of 10,000 turns again and again, each time without anything kept, and as raw rows."""
    rounds = settings.pick(quick=5, full=25)
    path, lines_path = settings.folder / "replay.db", settings.folder / "replay.jsonl"
    replied_path = settings.folder / "replied.db"
    with open_log(path) as log:
        [head] = build(log, Texts(settings.seed), threads=1, turns_each=DEPTH)
        lines_path.write_bytes(b"".join(stored_lines(log)))
    with open_log(replied_path) as log:
        build_replied(log, Texts(settings.seed), replies=REPLIES)
    # Opened anew: the log has nothing in its caches, and its write-ahead log is back in the file.
    with (
        open_log(path) as log,
        closing(sqlite3.connect(path)) as connection,
        open_log(replied_path) as replied,
    ):
        stream = log.turn(head).stream
        systems = {
            WINDOW: lambda: timed(lambda: cold(log).context(head)),
            RAW: lambda: timed(lambda: raw_window(connection, stream, content=True)),
            TOUCHED: lambda: timed(lambda: [message.content for message in cold(log).context(head).messages]),
            RAW_ENVELOPE: lambda: timed(lambda: raw_window(connection, stream, content=False)),
            LINES: lambda: timed(lambda: lines_window(lines_path)),
            REPLIED: lambda: timed(lambda: cold(replied).context("main")) * DEPTH / (2 * REPLIES),
        }
        samples: Samples = interleave(systems, rounds=rounds)
        later = cold_and_next(log, head, Texts(settings.seed + 1), rounds=rounds)
    return Report(
        question="What does it cost to load a long window, and the next one?",
        figures=(*_figures(samples), _next_figure(later)),
        measured={**medians_us(samples), **medians_us({NEXT: later[NEXT]})},
        shape={"rounds": rounds, "turns of the window": DEPTH},
    )


def _figures(samples: Samples) -> list[Figure]:
    window = f"window of {DEPTH:,} turns, cold"
    decoded = "raw SELECT + msgspec decode of header, private part, meta and content"
    return [
        cost(samples, TOUCHED, RAW, what=f"{window}, content decoded: time", baseline=decoded, target=at_most(2)),
        cost(samples, WINDOW, RAW, what=f"{window}: time", baseline=decoded, target=at_most(2)),
        cost(
            samples,
            WINDOW,
            RAW_ENVELOPE,
            what=f"{window}: time",
            baseline="raw SELECT + msgspec decode of header, private part and meta, payload decompressed",
        ),
        cost(
            samples,
            TOUCHED,
            LINES,
            what=f"{window}, content decoded: time",
            baseline="JSON lines, read and decoded by msgspec",
        ),
        cost(
            samples,
            REPLIED,
            WINDOW,
            what="window of a thread of replies of models, cold: time a turn",
            baseline=f"{window} (its turns come of no calls)",
        ),
    ]


def _next_figure(later: Samples) -> Figure:
    return rate(
        later,
        NEXT,
        WINDOW,
        what="window after one more turn: how many times as fast",
        baseline="cold",
        target=at_least(50),
    )


def cold(log: TurnLog) -> TurnLog:
    """Return the same log with nothing kept of earlier windows."""
    return TurnLog(log.store, projector=Projector())


def cold_and_next(log: TurnLog, head: str, texts: Texts, *, rounds: int) -> dict[str, list[float]]:
    """Time a cold window, then add a turn, untimed, and time the window of that turn, in one round after the other."""
    samples: dict[str, list[float]] = {WINDOW: [], NEXT: []}
    window = longer = None
    for _ in range(rounds):
        # Windows of the round before are freed here, and not when their names are given anew, within what is timed.
        window = longer = None
        reader = cold(log)
        gc.collect()
        start = time.perf_counter()
        window = reader.context(head)
        samples[WINDOW].append(time.perf_counter() - start)
        head = reader.add_turn(next(texts), continues=head).id
        gc.collect()
        start = time.perf_counter()
        longer = reader.context(head)
        samples[NEXT].append(time.perf_counter() - start)
        if len(longer.messages) != len(window.messages) + 1:
            raise AssertionError("the second window is not one turn longer than the first")
    return samples


_header = msgspec.json.Decoder(Header)
_private = msgspec.json.Decoder(Private)
_meta = msgspec.json.Decoder(TurnMeta)
_content = msgspec.json.Decoder(list[Block])
_line = msgspec.json.Decoder(Line)


def raw_window(connection: sqlite3.Connection, stream: str, *, content: bool) -> list[object]:
    """Read the rows of a stream, decompress what is compressed, and decode them to structs. No hash is checked."""
    rows = connection.execute(
        "SELECT state, private, payload_placement, payload FROM stored_events"
        " WHERE originator_id = ? ORDER BY originator_version",
        (stream,),
    ).fetchall()
    decompress = zstandard.ZstdDecompressor().decompress
    decode_header, decode_private, decode_meta, decode_content = (
        _header.decode,
        _private.decode,
        _meta.decode,
        _content.decode,
    )
    window: list[object] = []
    for state, private_state, placement, stored in rows:
        header, private = decode_header(state), decode_private(private_state)
        payload = decompress(stored) if placement == Placement.INLINE_ZSTD else stored
        meta = decode_meta(header.meta)
        window.append((header, private, meta, decode_content(payload) if content else payload))
    return window


def lines_window(path: Path) -> list[Line]:
    """Read a file of JSON lines and decode every line."""
    with path.open("rb") as file:
        return [_line.decode(line) for line in file]
