"""The turn index: which turns continue a turn, where the place in a stream does not tell.

A turn that extends its stream follows its first parent by position. Only the other links are written down: those of
forks and of the further parents of merges. An append to the end of a thread writes nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from turnlog.errors import CorruptionError
from turnlog.events import TURN, Recorded
from turnlog.events.form import gap
from turnlog.store import FoldTransaction, ReadTransaction, SQLTransaction, SyncProjection
from turnlog.store.rows import parts_of

AFTER_ALL = (1 << 63) - 1
"""A global position behind all that there are."""

ANYWHERE = (range(1, AFTER_ALL),)
"""All global positions."""

_PAGE_TURNS = 256
"""So many turns of a stream are read at once, where they are read backwards."""


class TurnIndex(SyncProjection):
    """Links from a place in one stream to a place in another."""

    name = "turn index"
    tables = ("turn_links",)
    schema = (
        "CREATE TABLE turn_links ("
        "parent_stream TEXT NOT NULL, parent_position BIGINT NOT NULL,"
        " child_stream TEXT NOT NULL, child_position BIGINT NOT NULL,"
        " PRIMARY KEY (parent_stream, parent_position, child_stream, child_position))",
        "CREATE INDEX turn_links_by_child ON turn_links (child_stream, child_position)",
    )

    def reads_private(self, recorded: Recorded) -> bool:  # noqa: ARG002 - no event does
        """Tell that only headers are folded."""
        return False

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Write down the parents that the position in the stream does not tell."""
        header = recorded.header
        if header.topic != TURN or (header.position and len(header.citations) == 1):
            return
        for parent in header.parents[min(header.position, 1) :]:
            if (place := transaction.place(parent.id)) is not None:
                transaction.run("INSERT INTO turn_links VALUES (?, ?, ?, ?)", (*place, header.stream, header.position))


class Link(NamedTuple):
    """A turn that continues another one, by their places."""

    parent_stream: str
    parent_position: int
    child_stream: str
    child_position: int


def find_links(transaction: SQLTransaction, where: str, *parameters: object) -> list[Link]:
    """Return the links that meet a condition in SQL.

    Raises:
        CorruptionError: a stored link is damaged.
    """
    rows = transaction.rows(
        f"SELECT parent_stream, parent_position, child_stream, child_position FROM turn_links WHERE {where}", parameters
    )
    try:
        return msgspec.convert(rows, list[Link])
    except msgspec.ValidationError as error:
        raise CorruptionError(f"the turn index is damaged ({error}): run `turnlog verify`") from error


def links_from(transaction: SQLTransaction, streams: Collection[str]) -> Iterator[Link]:
    """Iterate over what continues the turns of some streams."""
    return _links_of(transaction, "parent_stream", streams)


def links_to(transaction: SQLTransaction, streams: Collection[str]) -> Iterator[Link]:
    """Iterate over what the turns of some streams continue."""
    return _links_of(transaction, "child_stream", streams)


def _links_of(transaction: SQLTransaction, column: str, streams: Collection[str]) -> Iterator[Link]:
    for part in parts_of(streams):
        yield from find_links(transaction, f"{column} IN ({', '.join('?' * len(part))})", *part)


class Children:
    """The turns that continue a turn, in global order: how many there are, and one after the other from the last."""

    def __init__(self, transaction: ReadTransaction, parent: Recorded) -> None:
        """Find where they are. But for merges, none is read."""
        stream, position = parent.header.stream, parent.header.position
        links = find_links(transaction, "parent_stream = ? AND parent_position = ?", stream, position)
        # A stream has the id of its first event for a name.
        forks = transaction.located([link.child_stream for link in links if link.child_position == 0])
        others = [(stream, position + 1), *((link.child_stream, link.child_position) for link in links)]
        found = [child for place in others if place[1] and (child := transaction.at(*place))]
        self._transaction = transaction
        self._places = [(fork.global_position, fork.stream, fork.position) for fork in forks.values()]
        self._places += [(child.global_position, child.header.stream, child.header.position) for child in found]
        self._places.sort()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._places)

    def backwards(self) -> Iterator[Recorded]:
        """Iterate over them, the one that was recorded last first. Each is read when it is asked for."""
        for _, stream, position in reversed(self._places):
            if (child := self._transaction.at(stream, position)) is not None:
                yield child


def children(transaction: ReadTransaction, parent: Recorded) -> list[Recorded]:
    """Return the turns that continue a turn, in global order."""
    return [*Children(transaction, parent).backwards()][::-1]


def turns_within(transaction: ReadTransaction, spans: Sequence[range]) -> Iterator[Recorded]:
    """Iterate over the turns at some global positions, the last one first; the spans come in that order too."""
    for span in spans:
        for turn in transaction.log_backwards(span.stop, topics=(TURN,)):
            if turn.global_position < span.start:
                break
            yield turn


def stream_backwards(transaction: ReadTransaction, stream: str, last: int, first: int = 0) -> Iterator[Recorded]:
    """Iterate over the turns of a stream from position `last` down to `first`, both included: not many more are read.

    Raises while it is iterated over:
        CorruptionError: a turn is missing.
    """
    size = 1
    while last >= first:
        begin = max(first, last - size + 1)
        page = transaction.stream(stream, begin, last)
        if len(page) != last - begin + 1:
            raise gap(stream, last + 1)
        yield from reversed(page)
        last, size = begin - 1, min(2 * size, _PAGE_TURNS)
