"""Audit: what do checkpoints cost the appends, and what do a checkpoint and a proof cost?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle

from benchmarks.baseline import RawSQLite
from benchmarks.data import Texts
from benchmarks.material import Turn, build, open_log, turns
from benchmarks.measure import (
    Figure,
    Report,
    Settings,
    at_least,
    at_most,
    cost,
    interleave,
    medians_us,
    rate,
    seconds_each,
)
from turnlog import TurnLog
from turnlog.audit.heads import SignedHeads
from turnlog.audit.merkle import verify_inclusion
from turnlog.audit.notes import Signer
from turnlog.audit.tree import Nodes, grow

TURNS_EACH = 100
NEW_EVENTS = 1_000
PLAIN, KEPT = "append", "append, with checkpoints beside"
MADE, PROOF, FSYNC = "checkpoint after 1,000 new events", "inclusion proof", "raw sqlite3, append of one row"
REMEMBERED = f"{MADE}, remembered beside the keys"
HASHES_MAX = 40


def run(settings: Settings) -> Report:
    """Append to two logs in turn, one of which signs checkpoints beside; then sign and prove in a large one."""
    rounds = settings.pick(quick=3, full=21)
    every = settings.pick(quick=100, full=1_000)
    block = 2 * every
    count = settings.pick(quick=10_000, full=1_000_000)
    signer = Signer.generate("example.com/log")
    heads = SignedHeads(settings.folder / "signed")
    source = cycle(turns(settings.seed, 1000))
    with ExitStack() as stack:
        logs = [stack.enter_context(open_log(settings.folder / f"audit-{name}.db")) for name in ("plain", "kept")]
        appends = [_appending(log, source) for log in logs]

        def plain() -> float:
            seconds_each(appends[0], every // 2)
            return seconds_each(appends[0], block)

        def kept() -> float:
            keeper = logs[1].audit.keep_checkpoints(signer, every_events=every, heads=heads)
            # Half of what a checkpoint is made after: each of the block then begins and ends in it.
            seconds_each(appends[1], every // 2)
            seconds = seconds_each(appends[1], block)
            # The other log is not to pay for it. The last checkpoint covers all, so that the next begins anew.
            keeper.close()
            return seconds

        samples = interleave({PLAIN: plain, KEPT: kept}, rounds=rounds)
        made = len(logs[1].audit.checkpoints())
    with open_log(settings.folder / "audit-large.db") as log, RawSQLite(settings.folder / "audit-raw.db") as raw:
        build(log, Texts(settings.seed + 1), threads=count // TURNS_EACH, turns_each=TURNS_EACH)
        grow(log.store)
        log.audit.checkpoint(signer, heads=heads)
        os.sync()  # what the build has written is not to be written out beside the measurements
        append = _appending(log, source)
        positions = cycle(range(1, count, 7_919))
        most = 0

        def prove() -> None:
            nonlocal most
            with log.store.read() as transaction:
                nodes = Nodes(transaction)
                index = next(positions)
                proof = nodes.inclusion_proof(index, count)
                most = max(most, nodes.read)
                if not proof:
                    raise AssertionError("there is nothing to prove")

        def checkpoint(remembered: SignedHeads | None) -> float:
            for _ in range(NEW_EVENTS):
                append()
            return seconds_each(lambda: log.audit.checkpoint(signer, heads=remembered), 1)

        larger = interleave(
            {
                MADE: lambda: checkpoint(None),
                REMEMBERED: lambda: checkpoint(heads),
                PROOF: lambda: seconds_each(prove, 1000),
                FSYNC: lambda: seconds_each(lambda: raw.append(*next(source).row), 100),
            },
            rounds=settings.pick(quick=3, full=11),
        )
        _check(log, count)
    measured = medians_us(samples) | medians_us(larger)
    return Report(
        question="What do checkpoints cost the appends, and what do a checkpoint and a proof cost?",
        figures=(
            rate(
                samples,
                KEPT,
                PLAIN,
                what=f"append with a checkpoint every {every:,} events beside: rate",
                baseline="append without",
                target=at_least(0.95),
            ),
            cost(larger, MADE, FSYNC, what=f"{MADE}: time", baseline="raw sqlite3, append of one row"),
            _limit(measured[f"{MADE}, µs"] / 5_000, f"{MADE}, in 5 ms", "the limit of 5 ms"),
            _limit(measured[f"{REMEMBERED}, µs"] / 5_000, f"{REMEMBERED}, in 5 ms", "the limit of 5 ms"),
            _limit(measured[f"{PROOF}, µs"] / 1_000, f"proof of one of {count:,} events, in 1 ms", "the limit of 1 ms"),
            _limit(
                most / HASHES_MAX, f"stored hashes that a proof of one of {count:,} events reads", "the limit of 40"
            ),
        ),
        measured=measured,
        shape={
            "rounds": rounds,
            "appends a round": block,
            "checkpoints beside appends, with the warm-up": made,
            "events": count,
            "hashes read at most": most,
        },
    )


def _appending(log: TurnLog, source: Iterator[Turn]) -> Callable[[], None]:
    head = log.add_turn("root").id

    def append() -> None:
        nonlocal head
        head = log.add_turn(next(source).text, continues=head).id

    return append


def _limit(ratio: float, what: str, baseline: str) -> Figure:
    return Figure(what=what, baseline=baseline, ratio=ratio, low=None, high=None, target=at_most(1), reached=ratio <= 1)


def _check(log: TurnLog, size: int) -> None:
    with log.store.read() as transaction:
        nodes = Nodes(transaction)
        [(leaf, _)] = transaction.leaves(size // 2, 1)
        verify_inclusion(size // 2, size, leaf, nodes.inclusion_proof(size // 2, size), nodes.root(size))
