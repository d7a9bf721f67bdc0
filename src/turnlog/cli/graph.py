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

There are at most `LANES_MAX` lanes. Where one more is needed, the lane that waits longest for its next row is cut: it
ends in `┊`. What continues its turn stands further down, where it would stand with all lanes, below a row that names
that turn. So the drawing is as long and as wide as there are turns and forks, however these are nested.

```
│ │ ┊      the lane of a turn is cut: what else continues it is below
┊ a        d continues a, whose lane was cut
● d
├ b        e continues d and b, whose lane was cut
● e
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

NODE = "●"
"""What stands for a turn in `Row.cells`; whoever prints it may put another sign there."""

LANES_MAX = 12
"""So many lanes leave more than half of 80 columns to what is said about a turn."""

_ELSEWHERE = "┊"
"""What stands where a line goes on out of sight."""


class Node(Struct, frozen=True, kw_only=True):
    """A turn to draw: its id, and the ids of its parents, of which some may not be drawn.

    It may stand for a line of turns: each continues the one before it alone, and nothing else does. They are drawn as
    the first of them is, below each other.

    Attributes:
        id: names the node.
        parents: ids of other nodes; of a line, the parents of its first turn.
        last: where the last turn of the line is in global order. All nodes have it, or none: then they stand for one
            turn each.
    """

    id: str
    parents: tuple[str, ...] = ()
    last: int | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One row of the drawing.

    Attributes:
        cells: two characters a lane, the first on the lane and the second between it and the next.
        id: the node that stands in the row, or None where there are only lines.
        continues: the node that the next one continues, where no line leads there: its lane was cut. Else None.
    """

    cells: tuple[str, ...]
    id: str | None = None
    continues: str | None = None

    def __str__(self) -> str:
        """Return the row without trailing blanks."""
        return "".join(self.cells).rstrip()


_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
"""Where the lines of a sign lead, which are added up."""

_SIGNS = {
    0: " ",
    _UP | _DOWN: "│",
    _LEFT | _RIGHT: "─",
    _DOWN | _RIGHT: "╭",
    _DOWN | _LEFT: "╮",
    _UP | _RIGHT: "╰",
    _UP | _LEFT: "╯",
    _UP | _DOWN | _RIGHT: "├",
    _UP | _DOWN | _LEFT: "┤",
    _DOWN | _LEFT | _RIGHT: "┬",
    _UP | _LEFT | _RIGHT: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}
_VERTICAL = _UP | _DOWN


def draw(nodes: Sequence[Node], *, lanes_max: int = LANES_MAX) -> Iterator[Row]:
    """Draw turns, given in global order, and yield the rows from the top.

    A turn whose parents are all missing from `nodes` has `┊` above it.

    Args:
        nodes: the turns.
        lanes_max: how many lanes there are at once, at least 2.
    """
    ordered = in_drawing_order(nodes)
    drawing = _Drawing(ordered, lanes_max)
    for place, node in enumerate(ordered):
        yield from drawing.add(place, node)


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
    latest = {node.id: place[node.id] if node.last is None else node.last for node in nodes}
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
    def __init__(self, ordered: Sequence[Node], lanes_max: int) -> None:
        self._lanes_max = lanes_max
        self._undrawn: dict[str, list[int]] = {node.id: [] for node in ordered}
        """Where the children of a turn that are still to be drawn stand in the order, the next one last."""
        for place, node in reversed([*enumerate(ordered)]):
            for parent in node.parents:
                if parent in self._undrawn:
                    self._undrawn[parent].append(place)
        self._lanes: list[str | None] = []
        """The turn that each lane comes down from."""
        self._lane_of: dict[str, int] = {}
        """The lane of each turn that has one: of others that have undrawn children it was cut."""
        self._last_lane: int | None = None
        """The lane of the row above, None at the top."""

    def add(self, place: int, node: Node) -> Iterator[Row]:
        parents = [parent for parent in node.parents if parent in self._undrawn]
        ending = [parent for parent in self._with_lane(parents) if len(self._undrawn[parent]) == 1]
        if not ending and len(self._lane_of) == self._lanes_max:
            yield self._cut(place, spared=parents)
        joined = self._with_lane(parents)
        lane = min((self._lane_of[parent] for parent in ending), default=-1)
        if lane < 0:
            lane = self._free_lane(beside=self._lane_of[joined[0]] if joined else -1)
        if joined:
            if len(joined) > 1 or not ending:
                yield self._connection(lane, joined, ending)
        else:
            if self._last_lane is not None and (lane == self._last_lane or not self._lanes):
                yield self._row()
            if node.parents and not parents:
                yield self._row(lane, _ELSEWHERE)
        for parent in parents:
            self._undrawn[parent].pop()
            if not self._undrawn[parent] and parent in joined:
                self._lanes[self._lane_of.pop(parent)] = None
        self._open(lane, node.id)
        self._drop_empty_lanes()
        for parent in parents:
            if parent not in joined:
                yield self._row(lane, "├" if joined else _ELSEWHERE, continues=parent)
        yield self._row(lane, NODE, node.id)
        self._last_lane = lane
        if not self._undrawn[node.id]:
            self._lanes[self._lane_of.pop(node.id)] = None
            self._drop_empty_lanes()

    def _with_lane(self, turns: Sequence[str]) -> list[str]:
        return [turn for turn in turns if turn in self._lane_of]

    def _cut(self, place: int, *, spared: Sequence[str]) -> Row:
        """End the lane whose next row is furthest away, and return the row in which it ends.

        Args:
            place: where the turn that needs a lane stands in the order.
            spared: its parents, whose lanes are cut only where there are no others.
        """

        def next_after(turn: str) -> tuple[bool, int]:
            return turn not in spared, next(at for at in reversed(self._undrawn[turn]) if at > place)

        lane, turn = max(
            ((lane, turn) for lane, turn in enumerate(self._lanes) if turn is not None),
            key=lambda found: next_after(found[1]),
        )
        row = self._row(lane, _ELSEWHERE)
        self._lanes[lane] = None
        del self._lane_of[turn]
        self._last_lane = lane
        return row

    def _free_lane(self, *, beside: int) -> int:
        """Return the next free lane to the right of one; where there is none, the next one to its left."""
        for lane in range(beside + 1, min(len(self._lanes), self._lanes_max)):
            if self._lanes[lane] is None:
                return lane
        if len(self._lanes) < self._lanes_max:
            return len(self._lanes)
        return next(lane for lane in range(beside - 1, -1, -1) if self._lanes[lane] is None)

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

    def _row(self, lane: int = 0, sign: str = "", turn: str | None = None, *, continues: str | None = None) -> Row:
        cells = [" " if above is None else "│" for above in self._lanes]
        if sign:
            cells += " " * (lane + 1 - len(cells))
            cells[lane] = sign
        return Row(cells=tuple(f"{cell} " for cell in cells), id=turn, continues=continues)

    def _connection(self, lane: int, parents: list[str], ending: list[str]) -> Row:
        """Return the row that leads from the lanes of the parents to the lane of their child."""
        joined = {self._lane_of[parent] for parent in parents} | {lane}
        ended = {self._lane_of[parent] for parent in ending} - {lane}
        first, last = min(joined), max(joined)
        cells: list[str] = []
        for at in range(max(len(self._lanes), last + 1)):
            live = at < len(self._lanes) and self._lanes[at] is not None
            sides = _VERTICAL if live else 0
            if at == lane:
                sides |= _DOWN
            if at in ended:
                sides &= ~_DOWN
            # A lane that is only crossed stays whole: it does not meet the line across.
            if at in joined or (first < at < last and not live):
                sides |= (_LEFT if at > first else 0) | (_RIGHT if at < last else 0)
            cells.append(_SIGNS[sides] + ("─" if first <= at < last else " "))
        return Row(cells=tuple(cells))
