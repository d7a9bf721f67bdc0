"""Sealing: what does it cost to record sealed, and to read it again?"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.bench_append import one_writer
from benchmarks.bench_replay import cold
from benchmarks.material import open_log, turns
from benchmarks.measure import Report, Settings, System, at_least, interleave, medians_us, rate, seconds_each
from turnlog import TurnLog
from turnlog.audit.masters import FileMaster
from turnlog.audit.seals import SealFolder

PLAIN, STORE, SUBJECT = "plain", "store sealed", "subject sealed"
PLAIN_WINDOW, SEALED_WINDOW = "plain window", "sealed window"


def run(settings: Settings) -> Report:
    """Append in blocks, each to a log that stays open and grows, and load a window of each without its cache."""
    rounds = settings.pick(quick=7, full=31)
    block = settings.pick(quick=200, full=1000)
    depth = settings.pick(quick=200, full=1000)
    material = turns(settings.seed, settings.pick(quick=1000, full=10_000))
    seals = SealFolder(settings.folder / "keys", FileMaster(settings.folder / "keys" / "master.key"))
    with ExitStack() as stack:
        plain = stack.enter_context(open_log(settings.folder / "plain.db"))
        store, subject = (
            stack.enter_context(TurnLog.open(f"sqlite:///{settings.folder / name}.db", seals=seals))
            for name in ("store", "subject")
        )
        store.seal()
        subject.seal("ada")
        appends = {
            PLAIN: one_writer(plain, material),
            STORE: one_writer(store, material),
            SUBJECT: one_writer(subject, material, subject="ada"),
        }
        heads: dict[str, tuple[TurnLog, str]] = {}
        for name, log in ((PLAIN_WINDOW, plain), (SEALED_WINDOW, store)):
            head = None
            for turn in material[:depth]:
                head = log.add_turn(turn.text, role=turn.role, continues=head).id
            heads[name] = log, head or ""

        systems: dict[str, System] = {
            name: lambda append=append: seconds_each(append, block) for name, append in appends.items()
        }
        systems |= {
            name: lambda log=log, head=head: seconds_each(lambda: cold(log).context(head), 1) / depth
            for name, (log, head) in heads.items()
        }
        samples = interleave(systems, rounds=rounds)
    return Report(
        question="What does it cost to record sealed, and to read it again?",
        figures=(
            rate(samples, STORE, PLAIN, what="append to a sealed log: rate", baseline="plain", target=at_least(0.7)),
            rate(
                samples,
                SUBJECT,
                PLAIN,
                what="append for a sealed one: rate",
                baseline="plain",
                target=at_least(0.7),
            ),
            rate(samples, SEALED_WINDOW, PLAIN_WINDOW, what="cold window of sealed turns: rate", baseline="plain"),
        ),
        measured=medians_us(samples),
        shape={"rounds": rounds, "appends a round": block, "turns of the window": depth},
    )
