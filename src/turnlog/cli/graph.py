"""The drawing of a graph of turns: rows of lanes, parents above children. Pure: no log, no terminal.

A lane is the line down from a turn to its children. It stays open until the last of them is drawn, which takes the lane
over; the others leave it to the right. The order of the rows is by branch: a side branch is drawn whole before the line
that it left goes on, and the branch with the latest turn comes last. So the last row is where the log ended.

```
● a
├─╮
│ ● b      a fork: b and c continue a
● │ c
├─╯
● d        a merge: d continues c and b
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag

NODE = "●"
"""What stands for a turn in `Row.cells`; whoever prints it may put another sign there."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A turn to draw: its id, and the ids of its parents, of which some may not be drawn."""

    id: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the drawing.

    Attributes:
        cells: two characters a lane, the first on the lane and the second between it and the next.
        id: the turn that stands in the row, or None where there are only lines.
    """

    cells: tuple[str, ...]
    id: str | None = None

    def __str__(self) -> str:
        """Return the row without trailing blanks."""
        return "".join(self.cells).rstrip()


class _Side(IntFlag):
    UP = 1
    DOWN = 2
    LEFT = 4
    RIGHT = 8


_SIGNS = {
    0: " ",
    _Side.UP | _Side.DOWN: "│",
    _Side.LEFT | _Side.RIGHT: "─",
    _Side.DOWN | _Side.RIGHT: "╭",
    _Side.DOWN | _Side.LEFT: "╮",
    _Side.UP | _Side.RIGHT: "╰",
    _Side.UP | _Side.LEFT: "╯",
    _Side.UP | _Side.DOWN | _Side.RIGHT: "├",
    _Side.UP | _Side.DOWN | _Side.LEFT: "┤",
    _Side.DOWN | _Side.LEFT | _Side.RIGHT: "┬",
    _Side.UP | _Side.LEFT | _Side.RIGHT: "┴",
    _Side.UP | _Side.DOWN | _Side.LEFT | _Side.RIGHT: "┼",
}
_VERTICAL = _Side.UP | _Side.DOWN


def draw(nodes: Sequence[Node]) -> Iterator[Row]:
    """Draw turns, given in global order, and yield the rows from the top.

    A turn whose parents are all missing from `nodes` has `┊` above it.
    """
    drawing = _Drawing(nodes)
    for node in in_drawing_order(nodes):
        yield from drawing.add(node)


def in_drawing_order(nodes: Sequence[Node]) -> list[Node]:
    """Return turns, given in global order, in the order of their rows: parents first, branch by branch."""
    by_id = {node.id: node for node in nodes}
    children: dict[str, list[str]] = {node.id: [] for node in nodes}
    waiting_for: dict[str, int] = {}
    for node in nodes:
        parents = [parent for parent in node.parents if parent in by_id]
        waiting_for[node.id] = len(parents)
        for parent in parents:
            children[parent].append(node.id)
    place = {node.id: index for index, node in enumerate(nodes)}
    # The place of the latest turn that grew from a turn.
    latest = dict(place)
    for node in reversed(nodes):
        latest[node.id] = max((latest[child] for child in children[node.id]), default=latest[node.id])

    def latest_first(ids: list[str]) -> list[str]:
        return sorted(ids, key=lambda turn: (latest[turn], place[turn]), reverse=True)

    stack = latest_first([node.id for node in nodes if not waiting_for[node.id]])
    ordered: list[Node] = []
    while stack:
        node = by_id[stack.pop()]
        ordered.append(node)
        for child in children[node.id]:
            waiting_for[child] -= 1
        stack += latest_first([child for child in children[node.id] if not waiting_for[child]])
    return ordered


class _Drawing:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._known = {node.id for node in nodes}
        self._undrawn = dict.fromkeys(self._known, 0)
        """How many children of a turn are still to be drawn."""
        for node in nodes:
            for parent in node.parents:
                if parent in self._known:
                    self._undrawn[parent] += 1
        self._lanes: list[str | None] = []
        """The turn that each lane comes down from."""
        self._lane_of: dict[str, int] = {}
        self._last_lane: int | None = None
        """The lane of the row above, None at the top."""

    def add(self, node: Node) -> Iterator[Row]:
        parents = [parent for parent in node.parents if parent in self._known]
        ending = [parent for parent in parents if self._undrawn[parent] == 1]
        if parents:
            lane = min((self._lane_of[parent] for parent in ending), default=-1)
            if lane < 0:
                lane = self._free_lane(right_of=self._lane_of[parents[0]])
            if len(parents) > 1 or not ending:
                yield self._connection(lane, parents, ending)
        else:
            lane = self._free_lane(right_of=-1)
            if self._last_lane is not None and (lane == self._last_lane or not self._lanes):
                yield self._row()
            if node.parents:
                yield self._row(lane, "┊")
        for parent in parents:
            self._undrawn[parent] -= 1
            if not self._undrawn[parent]:
                self._lanes[self._lane_of.pop(parent)] = None
        self._open(lane, node.id)
        self._drop_empty_lanes()
        yield self._row(lane, NODE, node.id)
        self._last_lane = lane
        if not self._undrawn[node.id]:
            self._lanes[self._lane_of.pop(node.id)] = None
            self._drop_empty_lanes()

    def _free_lane(self, *, right_of: int) -> int:
        for lane in range(right_of + 1, len(self._lanes)):
            if self._lanes[lane] is None:
                return lane
        return len(self._lanes)

    def _open(self, lane: int, turn: str) -> None:
        if lane == len(self._lanes):
            self._lanes.append(turn)
        else:
            self._lanes[lane] = turn
        self._lane_of[turn] = lane

    def _drop_empty_lanes(self) -> None:
        """Forget the lanes at the right that lead nowhere."""
        while self._lanes and self._lanes[-1] is None:
            self._lanes.pop()

    def _row(self, lane: int = 0, sign: str = "", turn: str | None = None) -> Row:
        cells = [" " if above is None else "│" for above in self._lanes]
        if sign:
            cells += " " * (lane + 1 - len(cells))
            cells[lane] = sign
        return Row(cells=tuple(f"{cell} " for cell in cells), id=turn)

    def _connection(self, lane: int, parents: list[str], ending: list[str]) -> Row:
        """Return the row that leads from the lanes of the parents to the lane of their child."""
        joined = {self._lane_of[parent] for parent in parents} | {lane}
        ended = {self._lane_of[parent] for parent in ending} - {lane}
        first, last = min(joined), max(joined)
        cells: list[str] = []
        for at in range(max(len(self._lanes), last + 1)):
            live = at < len(self._lanes) and self._lanes[at] is not None
            sides = _VERTICAL if live else _Side(0)
            if at == lane:
                sides |= _Side.DOWN
            if at in ended:
                sides &= ~_Side.DOWN
            # A lane that is only crossed stays whole: it does not meet the line across.
            if at in joined or (first < at < last and not live):
                sides |= (_Side.LEFT if at > first else _Side(0)) | (_Side.RIGHT if at < last else _Side(0))
            cells.append(_SIGNS[sides] + ("─" if first <= at < last else " "))
        return Row(cells=tuple(cells))
