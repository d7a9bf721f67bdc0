"""Which row continues which, and which rows are one turn.

Rows name their parents by uuid, and each fragment of an assistant message is a row. `link` turns names into rows,
`group` turns rows into turns. Both take time in proportion to the file and use no recursion, because a session is one
long chain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnlog.interop.claude_code.going_on import Answer, go_on
from turnlog.interop.claude_code.lines import MessageRow, Row
from turnlog.interop.importing import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """The parents of all rows, by index.

    Attributes:
        parents: index of the row that a row continues, or repeats; None for a root.
        repeats: indexes of the rows that repeat another one.
        missing: the parent uuids that no row of the file has, by index of the row that names one.
        problems: uuids that came twice, and cycles.
        answers: which row has the result of which call.
    """

    parents: list[int | None]
    repeats: frozenset[int]
    missing: dict[int, str]
    problems: list[Problem]
    answers: Sequence[Answer]


@dataclass(kw_only=True, slots=True, eq=False)
class TurnRows:
    """The rows that are one turn.

    Attributes:
        rows: indexes of the rows, in file order; empty for a turn that another file brought.
        parent: what the turn continues; None for a root.
        turn_id: id of the turn: known from the start if the log has it, else settled when it is recorded.
        known: the log had the turn before, with these rows.
        rest: the turn of the further fragments, for a known turn whose message went on.
        goes_on: the known turn that this is the `rest` of.
    """

    rows: list[int] = field(default_factory=list[int])
    parent: TurnRows | None = None
    turn_id: str | None = None
    known: bool = False
    rest: TurnRows | None = None
    goes_on: TurnRows | None = None


def link(rows: Sequence[Row]) -> Links:
    """Find the parent of each row.

    A uuid means the last row above that has it, else the first one below. A row that repeats another one, uuid and
    message alike, is linked to that row, so that both are the same turn. The first row of a cycle becomes a root.
    """
    places: dict[str, list[int]] = {}
    first: dict[object, int] = {}
    repeats: dict[int, int] = {}
    problems: list[Problem] = []
    for index, row in enumerate(rows):
        if row.uuid is None:
            continue
        above = places.setdefault(row.uuid, [])
        same = first.setdefault(_identity(row), index)
        if same != index:
            repeats[index] = same
        elif above:
            problems.append(
                Problem(
                    place=row.number,
                    what=f"uuid {row.uuid!r} is that of line {rows[above[-1]].number} too, with other content: "
                    "both are kept, rows below mean this one",
                )
            )
        above.append(index)
    parents: list[int | None] = []
    missing: dict[int, str] = {}
    for index, row in enumerate(rows):
        parent = repeats.get(index)
        if parent is None and row.parent_uuid is not None:
            parent = _place(places.get(row.parent_uuid, ()), index)
            if parent is None:
                missing[index] = row.parent_uuid
        parents.append(parent)
    answers = go_on(rows, parents, repeats.keys())
    problems += _break_cycles(rows, parents)
    return Links(parents=parents, repeats=frozenset(repeats), missing=missing, problems=problems, answers=answers)


def _identity(row: Row) -> object:
    content = (row.message.id, row.message.content) if row.message is not None else row.payload
    return row.type, row.uuid, row.parent_uuid, content


def _place(places: Sequence[int], index: int) -> int | None:
    """Return the last place above an index, else the first from it on."""
    if not places:
        return None
    return places[max(bisect_left(places, index) - 1, 0)]


def _break_cycles(rows: Sequence[Row], parents: list[int | None]) -> list[Problem]:
    problems: list[Problem] = []
    walked = [-1] * len(rows)  # the walk that came by here, named by the row that it started from
    for start in range(len(rows)):
        at: int | None = start
        while at is not None and walked[at] < 0:
            walked[at] = start
            at = parents[at]
        if at is None or walked[at] != start:
            continue
        cycle = [at]
        while (further := parents[cycle[-1]]) != at and further is not None:
            cycle.append(further)
        first = min(cycle)
        parents[first] = None
        problems.append(
            Problem(
                place=rows[first].number,
                what=f"parentUuid {rows[first].parent_uuid!r} leads in a circle back to this row: taken as null",
            )
        )
    return problems


def group(
    rows: Sequence[Row], links: Links, known: Mapping[int, TurnRows], found: Mapping[str, TurnRows | None]
) -> list[TurnRows | None]:
    """Return for each row its turn: the one that it is part of, or else the nearest one up its parent chain.

    Args:
        rows: the rows of the file.
        links: their parents.
        known: the turns of rows that the log had before; their `rows` are filled in.
        found: turns for the uuids in `links.missing` that the log knows from elsewhere.

    A fragment of a message joins the fragments that are up its parent chain, whatever stands between them. It does not
    join those that the log had before: a recorded turn does not change, so the rest of the message continues it as a
    turn of its own.
    """
    turns: list[TurnRows | None] = [None] * len(rows)
    children: list[list[int]] = [[] for _ in rows]
    stack: list[int] = []
    for index, parent in enumerate(links.parents):
        (stack if parent is None else children[parent]).append(index)
    messages: dict[str, TurnRows] = {}  # message id to its turn, of the messages on the path to the row being visited
    below: dict[int, TurnRows] = {}  # what the rows below a row continue, where that is not its own turn
    covered: dict[int, TurnRows | None] = {}  # what a row on the path put aside in `messages`
    while stack:
        index = stack.pop()
        if index < 0:  # all that hangs on the row has been visited
            _uncover(messages, covered, ~index, rows[~index].message)
            continue
        row, parent = rows[index], links.parents[index]
        above = found.get(links.missing.get(index, "")) if parent is None else below.get(parent, turns[parent])
        if row.message is None or index in links.repeats:
            turns[index] = above
        else:
            turns[index] = turn = _turn_of(index, row, above, messages, covered, known.get(index))
            if turn is not above and len(turn.rows) > 1 and above is not None and turn.parent is not above:
                below[index] = above  # it joined a message from behind its results: what follows stands behind them too
        stack.append(~index)
        stack.extend(children[index])
    for turn in {id(turn): turn for turn in turns if turn is not None}.values():
        turn.rows.sort()
    return turns


def _turn_of(
    index: int,
    row: Row,
    above: TurnRows | None,
    messages: dict[str, TurnRows],
    covered: dict[int, TurnRows | None],
    known: TurnRows | None,
) -> TurnRows:
    message_id = row.message.id if row.message is not None and row.type == "assistant" else None
    begun = None if message_id is None else messages.get(message_id)
    if known is not None:
        turn = known
    elif begun is None:
        turn = TurnRows(parent=above)
    elif begun.known:
        turn = begun.rest = begun.rest or TurnRows(parent=above or begun, goes_on=begun)
    else:
        turn = begun
    turn.rows.append(index)
    if message_id is not None and turn is not begun:
        covered[index] = begun
        messages[message_id] = turn
    return turn


def _uncover(
    messages: dict[str, TurnRows], covered: dict[int, TurnRows | None], index: int, message: MessageRow | None
) -> None:
    if index not in covered or message is None or message.id is None:
        return
    begun = covered.pop(index)
    if begun is None:
        del messages[message.id]
    else:
        messages[message.id] = begun
