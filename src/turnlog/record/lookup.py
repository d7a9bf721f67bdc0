"""From a headish to a turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from turnlog.errors import AmbiguousTurnError, UnknownTurnError
from turnlog.events import TARGET, TURN, Recorded
from turnlog.ids import ID_CHARACTERS, is_id
from turnlog.projections import bookmarks
from turnlog.projections.moves import last_move, said_move
from turnlog.store import ReadTransaction, past_damage

BEGINNING_CHARACTERS_MIN = 4
"""So much of an id names a turn at least, if only one has it."""

_BEGINNING = re.compile(rf"[0-9A-Za-z]{{{BEGINNING_CHARACTERS_MIN},{ID_CHARACTERS - 1}}}", re.ASCII)
_CANDIDATES_MAX = 3

_BACK = re.compile(r"(?P<name>.+)~(?P<steps>[0-9]{1,99})", re.DOTALL)
"""What means a turn, and how many first parents before that the turn is that is meant."""


def find_turn(transaction: ReadTransaction, headish: str) -> Recorded:
    """Return the turn that a headish means: the head of a bookmark, the turn of an id or of the beginning of one, or
    with `~N` behind any of these the Nth first parent of that. What is the name of a bookmark means that.

    Raises:
        UnknownTurnError: there is none.
        AmbiguousTurnError: several turns have ids that begin so.
    """
    name, steps = headish, 0
    while True:
        try:
            turn = _named_turn(transaction, name, headish)
        except AmbiguousTurnError:
            raise
        except UnknownTurnError:
            back = _BACK.fullmatch(name)
            if back is None:
                raise
            name, steps = back["name"], steps + int(back["steps"])
        else:
            return _first_parent(transaction, turn, name, headish, steps)


def _first_parent(transaction: ReadTransaction, turn: Recorded, name: str, headish: str, steps: int) -> Recorded:
    for step in range(steps):
        parents = turn.header.parents
        if not parents:
            first = f"{f'{name}~{step}'!r} is the first" if step else f"{name!r} continues no turn"
            raise UnknownTurnError(f"no turn {headish!r}: {first}", headish=headish)
        turn = _named_turn(transaction, parents[0].id, headish)
    return turn


def _named_turn(transaction: ReadTransaction, name: str, headish: str) -> Recorded:
    """Return the turn of an id, the head of a bookmark, or the turn of the beginning of an id, in this order.

    Args:
        transaction: what to read.
        name: which of these.
        headish: what was asked for.

    Raises:
        UnknownTurnError: there is none.
        AmbiguousTurnError: several turns have ids that begin so.
    """
    by_id = is_id(name)
    recorded = None
    if by_id:
        recorded = transaction.event(name.lower())
    elif name.isprintable():  # as every bookmark is
        recorded = bookmarks.head_turn(transaction, name) or _begun(transaction, name, headish)
    if recorded is None:
        raise UnknownTurnError(f"no {'turn' if by_id else 'turn or bookmark'} {name!r}", headish=headish)
    if recorded.header.topic != TURN:
        raise UnknownTurnError(f"{name!r} is a {recorded.header.topic} event, not a turn", headish=headish)
    return recorded


def _begun(transaction: ReadTransaction, start: str, headish: str) -> Recorded | None:
    """Return the turn whose id begins with a text, None where the text is no beginning of one."""
    if not _BEGINNING.fullmatch(start):
        return None
    found = transaction.ids_beginning(start.lower(), topic=TURN, limit=_CANDIDATES_MAX + 1)
    if len(found) > 1:
        shown = ", ".join(found[:_CANDIDATES_MAX]) + (", …" if len(found) > _CANDIDATES_MAX else "")
        raise AmbiguousTurnError(
            f"{start!r} is the beginning of several turn ids ({shown}): give more of it",
            headish=headish,
            candidates=tuple(found[:_CANDIDATES_MAX]),
        )
    return transaction.event(found[0]) if found else None


def is_bookmark(transaction: ReadTransaction, headish: str) -> bool:
    """Tell whether a headish is the name of a bookmark, and not an id or what is counted from one."""
    return not is_id(headish) and bookmarks.head(transaction, headish) is not None


def may_mean_a_turn(name: str) -> bool:
    """Tell whether a name could mean a turn that has no such bookmark: counted back, or as the beginning of an id.

    An id begins with 0 as long as its time is before the year 2217.
    """
    return _BACK.fullmatch(name) is not None or (name.startswith("0") and _BEGINNING.fullmatch(name) is not None)


def short_ids(
    transaction: ReadTransaction, turns: Sequence[str], *, characters_min: int = BEGINNING_CHARACTERS_MIN
) -> dict[str, str]:
    """Return the beginnings of turn ids that name them, all as long as the longest that is needed."""
    length = characters_min
    for turn in turns:
        for beside in transaction.ids_beside(turn, topic=TURN):
            shared = next((at for at, (one, other) in enumerate(zip(turn, beside, strict=True)) if one != other), 0)
            length = max(length, shared + 1)
    return {turn: turn[:length] for turn in turns}


def find_event(transaction: ReadTransaction, headish: str) -> Recorded:
    """Return the event of an id, else the turn that a headish means.

    Raises:
        UnknownTurnError: there is none.
    """
    recorded = transaction.event(headish.lower()) if is_id(headish) else None
    return recorded or find_turn(transaction, headish)


def erased_by(transaction: ReadTransaction, erasure: Recorded) -> Iterator[Recorded]:
    """Iterate over the events that an erasure names and that are erased here: another log's takes nothing away."""
    for citation in erasure.header.citations:
        with past_damage(transaction):
            event = transaction.event(citation.id) if citation.relation == TARGET else None
        if event is not None and event.erased:
            yield event


def head_before(transaction: ReadTransaction, name: str, global_position: int) -> str | None:
    """Return the turn that a bookmark pointed at before an event of the log, or None if it did not exist.

    Reads the log backwards, through renames: for rare questions about the past.
    """
    last = last_move(transaction, name, global_position, said_move)
    return None if last is None else last[0]


def find_before(transaction: ReadTransaction, headish: str, global_position: int) -> str | None:
    """Return the id of the turn that a headish meant before an event of the log, None if it meant none."""
    if is_id(headish):
        return headish.lower()
    name, steps = headish, 0
    while (head := head_before(transaction, name, global_position)) is None:
        back = _BACK.fullmatch(name)
        if back is None:
            head = name
            break
        name, steps = back["name"], steps + int(back["steps"])
    try:
        return _first_parent(transaction, _named_turn(transaction, head, headish), name, headish, steps).header.id
    except UnknownTurnError:
        return None
