"""Which heads of a session lack a result that its file has, so that an import can say so.

Turns do not change: where a session went on before a result of it was written, and was imported in between, the result
stands on a branch of its own. Other files may be odd in ways that nobody thought of. Whatever the reason, it is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from turnlog.interop.claude_code.chains import TurnRows
from turnlog.interop.claude_code.going_on import Answer
from turnlog.interop.claude_code.lines import Row
from turnlog.interop.importing import Problem


def lacking(
    rows: Sequence[Row],
    answers: Sequence[Answer],
    turns: Sequence[TurnRows | None],
    parents: Mapping[str, Sequence[str]],
) -> list[Problem]:
    """Return a problem for each result that is not in the window of all heads below its call.

    Takes time in proportion to the file. Sub-agents are passed over: their models never see the results of the message
    that started them.

    Args:
        rows: the rows of the file.
        answers: which row answers which call.
        turns: the turn of each row.
        parents: what each turn of the file continues, by turn id.
    """
    tree = _Tree(parents, {_id(turns, index) for index, row in enumerate(rows) if row.sidechain})
    results: dict[tuple[int, str], set[int]] = {}
    for answer in answers:
        results.setdefault((answer.call, answer.id), set()).add(answer.result)
    problems: list[Problem] = []
    for (call, name), found in results.items():
        without = tree.heads_without(_id(turns, call), {_id(turns, result) for result in found})
        if without:
            heads = "1 head goes on" if without == 1 else f"{without:,} heads go on"
            what = f"the result of call {name!r} stands on a branch of its own: {heads} from the call without it"
            problems.append(Problem(place=rows[max(found)].number, what=what))
    return problems


def _id(turns: Sequence[TurnRows | None], index: int) -> str:
    turn = turns[index]
    return "" if turn is None or turn.turn_id is None else turn.turn_id


class _Tree:
    """The turns of a file, in an order in which all that is below a turn follows it at once."""

    def __init__(self, parents: Mapping[str, Sequence[str]], in_sidechains: set[str]) -> None:
        below: dict[str, list[str]] = {turn: [] for turn in parents}
        roots: list[str] = []
        for turn, above in parents.items():
            parent = next((each for each in above if each in below), None)
            if parent is None or (turn in in_sidechains and parent not in in_sidechains):
                roots.append(turn)
            else:
                below[parent].append(turn)
        self._start: dict[str, int] = {}
        self._end: dict[str, int] = {}
        heads: list[int] = []
        stack = [(root, False) for root in roots]
        while stack:
            turn, visited = stack.pop()
            if visited:
                self._end[turn] = len(heads)
                continue
            self._start[turn] = len(heads)
            heads.append(not below[turn])
            stack.append((turn, True))
            stack += [(each, False) for each in below[turn]]
        self._heads = [0, *accumulate(heads)]

    def heads_without(self, turn: str, others: set[str]) -> int:
        """Return how many heads are a turn, or below it, and neither one of some others nor below these."""
        if turn not in self._start:
            return 0
        start, end = self._start[turn], self._end[turn]
        count = self._heads[end] - self._heads[start]
        for other in sorted(others & self._start.keys(), key=self._start.__getitem__):
            first, last = self._start[other], self._end[other]
            if first >= start and last <= end:
                count -= self._heads[last] - self._heads[first]
                start = last  # others that are below this one are counted with it
        return count
