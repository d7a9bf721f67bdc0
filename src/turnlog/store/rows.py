"""The table of events as both engines have it; from a row of it to its event, which is to say of itself the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from turnlog.errors import CorruptionError
from turnlog.events import FREQUENT_TOPICS, Arrival, Recorded, Seals
from turnlog.events.form import decode_page, decode_recorded
from turnlog.store.values import Placement

RECORDED = "notification_id, state, leaf_hash, private, arrival, payload_placement"
"""The columns of a `Recorded`, in the order in which they are read."""

_columns: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(slice(6))
"""Takes these from the beginning of a row."""

PAYLOAD = "payload_placement, payload"
"""The columns of a payload, in the order in which they are read."""

STORED_ROW = (
    "notification_id, originator_id, originator_version, topic, state, event_id, leaf_hash, arrival, private,"
    " payload_placement, payload"
)
"""The columns of a `StoredRow`, in its order."""

RARE = f"topic NOT IN ({', '.join(repr(topic) for topic in FREQUENT_TOPICS)})"
"""The condition of the index of rare topics. Databases use it for statements that say the same in the same words."""

IN_FILES = "payload_placement IN (3, 4)"
"""The condition of the index of payload files."""

POSITION_MAX = (1 << 63) - 2
"""The last position in a stream that has one after it: SQLite's whole numbers have 64 bits."""


_NAMES_AT_ONCE = 500
"""Ids, or streams, that one statement asks for."""


def recorded_of(
    seals: Seals | None,
    global_position: object,
    state: object,
    leaf: object,
    private_state: object,
    arrival: object,
    placement: object,
) -> Recorded:
    """Return the event of a row, whose columns are `turnlog.store.sqlite.schema.RECORDED`, opened with keys.

    Raises:
        CorruptionError: the row is damaged, or does not say of the event what that says of itself.
    """
    if not isinstance(private_state, bytes | None):
        raise _no_row(global_position)
    event = _headed(seals, global_position, state, leaf, private_state, arrival)
    if event.erased != (placement == Placement.ERASED):
        what = "is missing" if event.erased else "should be erased"
        raise CorruptionError(
            f"the private part of event {event.header.id!r} {what}: run `turnlog verify`",
            global_position=event.global_position,
        )
    return event


def recorded_past_damage(seals: Seals | None, *columns: Any) -> Recorded:
    """Return the same, with empty bytes for a private part that is damaged, or missing though it was not erased.

    Raises:
        CorruptionError: more than the private part is damaged.
        SealError: the keys cannot be read.
    """
    with suppress(CorruptionError):
        return recorded_of(seals, *columns)
    with suppress(CorruptionError):  # what a key does not open is sealed all the same, and shows its tags
        return recorded_of(None, *columns)
    global_position, state, leaf, _, arrival, _ = columns
    event = _headed(None, global_position, state, leaf, None, arrival)
    # What is kept beside an event without a private part is none of its own.
    return event if event.header.private is None else msgspec.structs.replace(event, private_state=b"")


def _headed(
    seals: Seals | None,
    global_position: object,
    state: object,
    leaf: object,
    private_state: bytes | None,
    arrival: object,
) -> Recorded:
    """Return the event of a row whose header is what was recorded.

    Raises:
        CorruptionError: it is not, or the private part is not the one that it commits to.
    """
    if type(global_position) is not int or type(state) is not bytes:
        raise _no_row(global_position)
    # Whatever else stands there for an arrival, the event is not one that was recorded here.
    event = decode_recorded(state, private_state, global_position, _ARRIVALS.get(arrival, Arrival.GUEST), seals)
    if event.leaf_hash != leaf:
        raise CorruptionError(
            f"event {event.header.id!r} is not what was recorded: its header has another digest than was stored: "
            "run `turnlog verify`",
            global_position=global_position,
        )
    if event.header.position > POSITION_MAX:
        raise CorruptionError(
            f"event {event.header.id!r} has a position that none can have: run `turnlog verify`",
            global_position=global_position,
        )
    return event


def _no_row(global_position: object) -> CorruptionError:
    return CorruptionError(f"event at global position {global_position} cannot be read: its row is damaged")


def recorded_page(
    seals: Seals | None, rows: Sequence[tuple[Any, ...]], read: Callable[..., Recorded] = recorded_of
) -> Iterator[Recorded]:
    """Iterate over the events of rows, which may have more columns behind those of an event.

    Args:
        seals: the keys of what is sealed.
        rows: the rows.
        read: `recorded_of`, or `recorded_past_damage`, for what has to be looked at by itself.
    """
    page = decode_page(map(_columns, rows), erased=Placement.ERASED, position_max=POSITION_MAX)
    return (read(seals, *_columns(row)) if found is None else found for row, found in zip(rows, page, strict=True))


def parts_of(names: Collection[str]) -> Iterator[list[str]]:
    """Iterate over ids or streams, so many at a time as one statement asks for."""
    left = iter(names)
    while part := [*islice(left, _NAMES_AT_ONCE)]:
        yield part


def at_place(stream: str, position: int, recorded: Recorded) -> Recorded:
    """Return what was found at a position of a stream, if it says the same of itself.

    Raises:
        CorruptionError: it does not.
    """
    header = recorded.header
    if header.stream != stream or header.position != position:
        raise misplaced(recorded, f"position {position} of stream {stream!r}")
    return recorded


def of_topic(topics: Sequence[str], recorded: Recorded) -> Recorded:
    """Return what was found under one of some topics, if it says the same of itself; none means any.

    Raises:
        CorruptionError: it does not.
    """
    if topics and recorded.header.topic not in topics:
        raise misplaced(recorded, f"topic {topics[0]!r}" if len(topics) == 1 else "a topic")
    return recorded


def misplaced(recorded: Recorded, where: str) -> CorruptionError:
    """Return the error for an event that was found where it does not belong."""
    return CorruptionError(
        f"event {recorded.header.id!r} stands in the store under {where}, which is not its own: run `turnlog verify`",
        global_position=recorded.global_position,
    )


_ARRIVALS: dict[object, Arrival] = {arrival.value: arrival for arrival in Arrival}
