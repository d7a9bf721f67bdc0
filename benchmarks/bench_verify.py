"""Verify: what does it cost to check every byte of a log?"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import msgspec
import zstandard

from benchmarks.data import Texts
from benchmarks.material import build, open_log
from benchmarks.measure import Report, Settings, at_most, cost, interleave, medians_us, timed
from turnlog import TurnLog
from turnlog.providers import get
from turnlog.store import Placement

TURNS_EACH = 100
_COLUMNS = (
    "state, private, payload_placement, payload, notification_id, originator_id, originator_version, topic, event_id,"
    " leaf_hash, arrival"
)
"""All that is stored of an event, and so all that is checked."""
VERIFY, RAW = "turnlog verify", "raw SELECT, decompression and SHA-256"
CALLS, RAW_CALLS = "turnlog verify, calls", "raw SELECT, decompression and SHA-256, calls with their requests"


def run(settings: Settings) -> Report:
    """Verify a log of many threads again and again, and read and hash the same bytes without looking at them."""
    rounds = settings.pick(quick=3, full=11)
    count = settings.pick(quick=2_000, full=20_000)
    calls = settings.pick(quick=50, full=300)
    path, calls_path = settings.folder / "verify.db", settings.folder / "calls.db"
    with open_log(path) as log:
        build(log, Texts(settings.seed), threads=count // TURNS_EACH, turns_each=TURNS_EACH)
    with open_log(calls_path) as log:
        bodies = _conversation(log, Texts(settings.seed + 1), calls)
    with open_log(path) as log, open_log(calls_path) as called:
        systems = {
            VERIFY: lambda: timed(lambda: _verified(log)),
            RAW: lambda: timed(lambda: _read_and_hashed(path)),
            CALLS: lambda: timed(lambda: _verified(called)),
            RAW_CALLS: lambda: timed(lambda: _read_and_hashed(calls_path, bodies)),
        }
        samples = interleave(systems, rounds=rounds)
    return Report(
        question="What does it cost to check every byte of a log?",
        figures=(
            cost(
                samples,
                VERIFY,
                RAW,
                what=f"verify a log of {count:,} turns: time",
                baseline="raw SELECT, decompression and SHA-256 of the same bytes",
                target=at_most(3),
            ),
            cost(
                samples,
                CALLS,
                RAW_CALLS,
                what=f"verify a conversation of {calls:,} calls: time",
                baseline="raw SELECT, decompression and SHA-256 of the same bytes and of the requests, given whole",
                target=at_most(3),
            ),
        ),
        measured=medians_us(samples),
        shape={"rounds": rounds, "turns": count, "turns a thread": TURNS_EACH, "calls": calls},
    )


def _conversation(log: TurnLog, texts: Texts, calls: int) -> list[bytes]:
    """Record a conversation with a model, 1 KiB a turn, and return the bodies of its requests."""
    adapter = get("openai_chat")
    bodies: list[bytes] = []
    for number in range(calls):
        turn = log.add_turn(next(texts), continues="main" if number else None, bookmark="main")
        request = adapter.prepare_request(log.context("main"), model="m")
        call = log.calls.record(turn.id, request)
        chunk = {"id": "c", "model": "m", "choices": [{"index": 0, "message": {"content": next(texts)}}]}
        events = [msgspec.json.encode(chunk)]
        log.calls.record_reply(call, events, adapter.aggregate(events, model="m"))
        bodies.append(request.body)
    return bodies


def _verified(log: TurnLog) -> None:
    if not log.verify().clean:
        raise AssertionError("a sound log is found to be damaged")


def _read_and_hashed(path: Path, bodies: Sequence[bytes] = ()) -> None:
    """Read every column, decompress what is compressed, and hash header, private part and payload; and bodies."""
    decompress = zstandard.ZstdDecompressor().decompress
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT {_COLUMNS} FROM stored_events ORDER BY notification_id")
        for state, private, placement, stored, *_ in rows:
            sha256(b"\0" + state).digest()
            sha256(private or b"").digest()
            payload = decompress(stored) if placement == Placement.INLINE_ZSTD else stored
            sha256(payload or b"").digest()
    for body in bodies:
        sha256(body).digest()
