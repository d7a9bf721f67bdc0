"""How events came into a store, as a checkpoint covers it: runs of events that came in the same way, and their hash.

No header says whether its event was recorded here or is a guest, and it decides what has an effect. So a checkpoint has
an extension line (C2SP tlog-checkpoint) `turnlog-arrivals sha256-<base64>`: the hash of one line for each run,
`POSITION ARRIVAL` and a line feed, where POSITION is the global position of its first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnlog.audit.checkpoints import Checkpoint
from turnlog.digest import payload_hash
from turnlog.events import Arrival

LINE = "turnlog-arrivals "

Run = tuple[int, int]
"""The global position of the first event of a run, and how its events came."""


class Arrivals:
    """Runs of arrivals, as they are read in the order of the log."""

    def __init__(self, last: int | None = None) -> None:
        """Begin, or go on from the arrival of the event before."""
        self.runs: list[Run] = []
        self._last = last

    def add(self, position: int, arrival: int) -> None:
        """Take in the arrival of the next event."""
        if arrival != self._last:
            self.runs.append((position, arrival))
            self._last = arrival

    def extend(self, first: int, arrivals: Sequence[int]) -> None:
        """Take in the arrivals of the next events, of which the first is at a position."""
        if self._last is None or arrivals.count(self._last) != len(arrivals):
            for position, arrival in enumerate(arrivals, first):
                self.add(position, arrival)


def line(runs: Iterable[Run], size: int) -> str:
    """Return the extension line of a checkpoint over the first `size` events."""
    text = "".join(f"{position} {arrival}\n" for position, arrival in runs if position <= size)
    return LINE + payload_hash(text.encode())


def fits(checkpoint: Checkpoint, runs: Sequence[Run]) -> bool:
    """Tell whether events came as a checkpoint says. One that does not say so fits.

    In a log that was restored from an export, what was recorded came as restored: that fits too.
    """
    said = [extension for extension in checkpoint.extensions if extension.startswith(LINE)]
    if len(said) != 1:
        return not said
    recorded = Arrivals()
    for position, arrival in runs:
        recorded.add(position, Arrival.RECORDED if arrival == Arrival.RESTORED else arrival)
    return said[0] in (line(runs, checkpoint.size), line(recorded.runs, checkpoint.size))


def is_of_one_log(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint says by itself that no event that it covers is of another log.

    That is so where all were recorded in its log, or all came back to it from an export. Of other runs it has a hash,
    and nothing that says what they are.
    """
    said = [extension for extension in checkpoint.extensions if extension.startswith(LINE)]
    return len(said) == 1 and said[0] in [line([(1, way)], 1) for way in (Arrival.RECORDED, Arrival.RESTORED)]
