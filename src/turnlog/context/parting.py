"""Where the ancestries of two turns part."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from turnlog.context.ancestry import cited_parent
from turnlog.events import Recorded, check_cited
from turnlog.events.form import gap
from turnlog.projections.turns import stream_backwards
from turnlog.store import ReadTransaction

_LEFT, _RIGHT = 1, 2
_BOTH = _LEFT | _RIGHT


class Parting(NamedTuple):
    """What is in the ancestries of two turns, each in global order.

    Attributes:
        left: what is in that of the first alone.
        right: what is in that of the second alone.
        common: what is in both and continued by what is not, or is one of the two.
    """

    left: list[Recorded]
    right: list[Recorded]
    common: list[Recorded]


def parting(transaction: ReadTransaction, left: Recorded, right: Recorded) -> Parting:
    """Return where the ancestries of two turns part, the turns themselves included.

    They are walked from the turn that was recorded last to the one before it, of whichever it is, and no further than
    to where all that is still to be walked is in both. A turn is recorded behind its parents: so it is known of which
    it is when its turn has come.

    Raises:
        CorruptionError: a turn is missing, or is not the one that is cited.
    """
    found: dict[int, Recorded] = {}
    sides: dict[int, int] = {}
    waiting: list[int] = []
    one_sided = 0

    def add(turn: Recorded, side: int) -> None:
        nonlocal one_sided
        place = turn.global_position
        before = sides.get(place, 0)
        sides[place] = after = before | side
        if not before:
            found[place] = turn
            heappush(waiting, -place)
        one_sided += (after != _BOTH) - (before not in (0, _BOTH))

    add(left, _LEFT)
    add(right, _RIGHT)
    edges = {left.global_position, right.global_position}
    runs: dict[str, Iterator[Recorded]] = {}
    while one_sided:
        place = -heappop(waiting)
        side = sides[place]
        one_sided -= side != _BOTH
        for parent in _parents(transaction, found[place], runs):
            add(parent, side)
            if side != _BOTH:
                edges.add(parent.global_position)
    of_side = {side: [found[place] for place in sorted(found) if sides[place] == side] for side in (_LEFT, _RIGHT)}
    common = [found[place] for place in sorted(edges) if sides[place] == _BOTH]
    return Parting(of_side[_LEFT], of_side[_RIGHT], common)


def _parents(transaction: ReadTransaction, turn: Recorded, runs: dict[str, Iterator[Recorded]]) -> Iterator[Recorded]:
    """Iterate over the parents of a turn. `runs` are the streams that are read backwards, each from where it stands."""
    header = turn.header
    for index, parent in enumerate(header.parents):
        if index or not header.position:
            yield cited_parent(transaction, turn, parent)
            continue
        # Inside its stream a turn's first parent is the turn before it.
        if header.stream not in runs:
            runs[header.stream] = stream_backwards(transaction, header.stream, header.position - 1)
        before = next(runs[header.stream], None)
        if before is None:
            raise gap(header.stream, header.position)
        check_cited(turn, parent, before)
        yield before
