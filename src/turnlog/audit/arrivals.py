"""How events came into a store, as a checkpoint covers it: runs of events that came in the same way, and their hash.

No header says whether its event was recorded here or is a guest, and it decides what has an effect. So a checkpoint has
an extension line (C2SP tlog-checkpoint) `turnlog-arrivals sha256-<base64>`: the hash of one line for each run,
`POSITION ARRIVAL` and a line feed, where POSITION is the global position of its first event.

A copy that was restored from an export has the same events, and none that was recorded there. Where some were restored
already when a checkpoint was signed, it has a second line `turnlog-guests sha256-<base64>`: the hash of the runs with
restored (1) counted as recorded (0). So it fits a copy of the copy too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnlog.audit.checkpoints import Checkpoint
from turnlog.digest import payload_hash
from turnlog.events import Arrival

ARRIVALS = "turnlog-arrivals "
GUESTS = "turnlog-guests "

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


def lines(runs: Sequence[Run], size: int) -> tuple[str, ...]:
    """Return the extension lines of a checkpoint over the first `size` events."""
    exact, guests = _hash(runs, size), _hash(_as_recorded(runs), size)
    return (ARRIVALS + exact,) if guests == exact else (ARRIVALS + exact, GUESTS + guests)


def fits(checkpoint: Checkpoint, runs: Sequence[Run]) -> bool:
    """Tell whether events came as a checkpoint says. One that does not say so fits.

    A copy that was restored from an export fits too: none of the events was recorded there, and guests are the same.
    """
    exact, guests = _said(checkpoint)
    if not exact and not guests:
        return True
    if len(exact) != 1 or len(guests) > 1:
        return False
    size = checkpoint.size
    # Without a second line none was restored when it was signed: both would say the same.
    if (guests or exact)[0] == _hash(_as_recorded(runs), size) and not _has_recorded(runs, size):
        return True
    return exact[0] == _hash(runs, size) and guests in ([], [_hash(_as_recorded(runs), size)])


def has_guests_of(checkpoint: Checkpoint, runs: Sequence[Run]) -> bool:
    """Tell whether a checkpoint was signed where some events were restored, and where these same ones were guests.

    That is so for a log whose restored copy has signed it, though it does not fit.
    """
    return _said(checkpoint)[1] == [_hash(_as_recorded(runs), checkpoint.size)]


def may_be_of(checkpoint: Checkpoint, runs: Sequence[Run]) -> bool:
    """Tell whether a checkpoint is of these events, or of a restored copy of them that was signed with the same key."""
    return fits(checkpoint, runs) or has_guests_of(checkpoint, runs)


def first_difference(runs: Sequence[Run], others: Sequence[Run]) -> int | None:
    """Return the first global position at which the arrivals of two lists of runs differ; None where none does."""
    for (position, arrival), (other_position, other_arrival) in zip(runs, others, strict=False):
        if (position, arrival) != (other_position, other_arrival):
            return min(position, other_position)
    longer = max(runs, others, key=len)
    at = min(len(runs), len(others))
    return longer[at][0] if at < len(longer) else None


def is_of_one_log(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint says by itself that no event that it covers is of another log.

    That is so where each was recorded in its log, or came back to it from an export. Of other runs it has a hash, and
    nothing that says what they are.
    """
    exact, guests = _said(checkpoint)
    if len(exact) != 1 or len(guests) > 1:
        return False
    known = [_hash([(1, way)], 1) for way in (Arrival.RECORDED, Arrival.RESTORED)]
    return guests == known[:1] if guests else exact[0] in known


def _said(checkpoint: Checkpoint) -> tuple[list[str], list[str]]:
    """Return the hashes of the lines of a checkpoint, of both kinds."""
    exact, guests = (
        [line.removeprefix(kind) for line in checkpoint.extensions if line.startswith(kind)]
        for kind in (ARRIVALS, GUESTS)
    )
    return exact, guests


def _hash(runs: Iterable[Run], size: int) -> str:
    text = "".join(f"{position} {arrival}\n" for position, arrival in runs if position <= size)
    return payload_hash(text.encode())


def _as_recorded(runs: Iterable[Run]) -> list[Run]:
    recorded = Arrivals()
    for position, arrival in runs:
        recorded.add(position, Arrival.RECORDED if arrival == Arrival.RESTORED else arrival)
    return recorded.runs


def _has_recorded(runs: Iterable[Run], size: int) -> bool:
    return any(arrival == Arrival.RECORDED for position, arrival in runs if position <= size)
