"""The turn index: which turns continue a turn, where the place in a stream does not tell.

A turn that extends its stream follows its first parent by position. Only the other links are written down: those of
forks and of the further parents of merges. An append to the end of a thread writes nothing here.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from turnlog.errors import CorruptionError
from turnlog.events import TURN, Event, Recorded
from turnlog.store import ReadTransaction, SQLTransaction, SyncProjection


class TurnIndex(SyncProjection):
    """Links from a place in one stream to a place in another."""

    name = "turn index"
    tables = ("turn_links",)
    schema = (
        "CREATE TABLE IF NOT EXISTS turn_links ("
        " parent_stream TEXT NOT NULL, parent_position INTEGER NOT NULL,"
        " child_stream TEXT NOT NULL, child_position INTEGER NOT NULL,"
        " PRIMARY KEY (parent_stream, parent_position, child_stream, child_position)) WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS turn_links_by_child ON turn_links (child_stream, child_position)",
    )

    def apply(self, transaction: SQLTransaction, event: Event, global_position: int) -> None:  # noqa: ARG002 - the signature of every projection
        """Write down the parents that the position in the stream does not tell."""
        if event.topic != TURN:
            return
        for parent in event.parents[min(event.position, 1) :]:
            transaction.run(
                "INSERT INTO turn_links SELECT originator_id, originator_version, ?, ? FROM stored_events"
                " WHERE event_id = ?",
                (event.stream, event.position, parent.id),
            )


class Link(NamedTuple):
    """A turn that continues another one, by their places."""

    parent_stream: str
    parent_position: int
    child_stream: str
    child_position: int


def find_links(transaction: ReadTransaction, where: str, *parameters: object) -> list[Link]:
    """Return the links that meet a condition in SQL.

    Raises:
        CorruptionError: a stored link is damaged.
    """
    rows = transaction.rows(f"SELECT * FROM turn_links WHERE {where}", parameters)
    try:
        return msgspec.convert(rows, list[Link])
    except msgspec.ValidationError as error:
        raise CorruptionError(f"the turn index is damaged ({error}): run `turnlog verify`") from error


def children(transaction: ReadTransaction, parent: Recorded) -> list[Recorded]:
    """Return the turns that continue a turn, in global order."""
    stream, position = parent.event.stream, parent.event.position
    links = find_links(transaction, "parent_stream = ? AND parent_position = ?", stream, position)
    places = [(stream, position + 1), *((link.child_stream, link.child_position) for link in links)]
    found = [transaction.at(*place) for place in places]
    return sorted((child for child in found if child), key=lambda child: child.global_position)


def is_leaf(transaction: ReadTransaction, stream: str, position: int) -> bool:
    """Tell whether no turn continues the one at a position of a stream."""
    return transaction.at(stream, position + 1) is None and not transaction.rows(
        "SELECT 1 FROM turn_links WHERE parent_stream = ? AND parent_position = ? LIMIT 1", (stream, position)
    )
