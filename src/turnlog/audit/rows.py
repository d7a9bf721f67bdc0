"""One row of the log by itself: its columns, its hashes, its parts, and where its payload is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import compress
from operator import attrgetter, methodcaller
from typing import NamedTuple

import msgspec
from msgspec import Struct

from turnlog.audit.report import Findings, shown
from turnlog.digest import sri
from turnlog.errors import CorruptionError
from turnlog.events import Arrival, Event, Header, Private, Recorded, decode
from turnlog.events.flaws import are_common, flaw
from turnlog.events.form import recorded as in_place
from turnlog.model.json_text import UNREADABLE
from turnlog.store import Placement, StoredRow

STATE_BYTES_MAX = 16 * 1024 * 1024
"""The largest header or private part that is looked into. A turn with 100,000 parents has less."""

_PLAIN_BYTES_MAX = 64 * 1024
_LEAF = b"\x00"
_header = msgspec.json.Decoder(Header)
_private = msgspec.json.Decoder(Private)
_encoder = msgspec.json.Encoder(order="sorted")
_id, _stream, _position = attrgetter("id"), attrgetter("stream"), attrgetter("position")
_topic, _private_hash, _digest = attrgetter("topic"), attrgetter("private"), methodcaller("digest")
_ARRIVALS = {arrival.value: arrival for arrival in Arrival}
_PLACEMENTS = frozenset(int(placement) for placement in Placement)
_PAYLOADS = _PLACEMENTS - {Placement.NONE, Placement.ERASED}
_NONE, _ERASED = int(Placement.NONE), int(Placement.ERASED)
_BYTES, _TEXT, _NUMBER = "bytes", "text", "a whole number"
_KINDS: dict[str, tuple[type, ...]] = {_BYTES: (bytes,), _TEXT: (str,), _NUMBER: (int,)}
_COLUMNS = (
    ("stream", _TEXT),
    ("position", _NUMBER),
    ("topic", _TEXT),
    ("state", _BYTES),
    ("event_id", _TEXT),
    ("leaf_hash", _BYTES),
    ("arrival", _NUMBER),
    ("placement", _NUMBER),
)


class Row(NamedTuple):
    """A row whose header could be read.

    Attributes:
        row: the row.
        recorded: the event.
        sound: whether nothing is wrong with the event as such.
        has_private: whether its private part is what its header commits to, where it is not erased.
    """

    row: StoredRow
    recorded: Recorded
    sound: bool
    has_private: bool


def plain(page: Sequence[StoredRow]) -> list[Row | None]:
    """Return the rows with a payload that nothing is wrong with: a short way to nearly all. None says nothing.

    All are compared at once: what is wrong with one row sends all of them the long way.
    """
    looked_at = [type(row.state) is type(row.private) is type(row.stored) is bytes for row in page]
    found = iter(_plain(list(compress(page, looked_at))))
    return [next(found) if look else None for look in looked_at]


def _plain(rows: Sequence[StoredRow]) -> Sequence[Row | None]:
    if not rows:
        return ()
    nothing = (None,) * len(rows)
    _, streams, positions, topics, states, ids, leaves, arrivals, privates, placements, _ = zip(*rows, strict=True)
    if not (
        {*map(type, positions), *map(type, arrivals), *map(type, placements)} == {int}
        and {*arrivals} <= _ARRIVALS.keys()
        and {*placements} <= _PAYLOADS
        and max(map(len, states)) <= _PLAIN_BYTES_MAX
        and max(map(len, privates)) <= _PLAIN_BYTES_MAX
    ):
        return nothing
    try:
        headers, parts = [*map(_header.decode, states)], [*map(_private.decode, privates)]
    except UNREADABLE:
        return nothing
    if not (
        (*map(_id, headers),) == ids
        and (*map(_stream, headers),) == streams
        and (*map(_position, headers),) == positions
        and (*map(_topic, headers),) == topics
        and (*map(_digest, map(sha256, map(_LEAF.__add__, states))),) == leaves
        and [*map(sri, map(_digest, map(sha256, privates)))] == [*map(_private_hash, headers)]
        and _is_encoded(headers, states)
        and _is_encoded(parts, privates)
    ):
        return nothing
    common = are_common(headers, parts)
    return [_sound(row, header, part, common) for row, header, part in zip(rows, headers, parts, strict=True)]


def _is_encoded(values: Sequence[Struct], texts: Sequence[bytes]) -> bool:
    """Tell whether each value, encoded again, is the text that it was decoded from.

    Each text is one whole JSON value, so that what all are together shows whether each is.
    """
    return _encoder.encode(values) == b"[%b]" % b",".join(texts)


def _sound(row: StoredRow, header: Header, private: Private, common: bool) -> Row | None:
    at, _, _, _, state, _, leaf, arrival, private_state, _, _ = row
    recorded = Recorded(
        state=state,
        header=header,
        private_state=private_state,
        private=private,
        leaf_hash=leaf,
        global_position=at,
        arrival=_ARRIVALS[arrival],
    )
    try:
        sound = common or (private.hash is not None and flaw(recorded) is None)
    except CorruptionError:
        return None
    return Row(row, recorded, True, True) if sound else None


def examine(row: StoredRow, findings: Findings, opened: Callable[[Recorded], Recorded]) -> Row | None:
    """Check a row by itself, but for the bytes of its payload. Return None if its header cannot be read.

    Args:
        row: the row.
        findings: where to note what is wrong.
        opened: returns a sealed event as it is with the keys that are here.
    """
    at, stream, position, topic, state, event_id, leaf, arrival, private, placement, stored = row
    header = _readable_header(state)
    findings.at(at, None if header is None else header.id)
    for what in _column_flaws(row):
        findings.add(what)
    if type(state) is not bytes:
        return None
    if len(state) > STATE_BYTES_MAX:
        findings.add(f"its header has {len(state):,} bytes: more than any that is looked into")
        return None
    event, has_private = _decoded(state, private, at, findings)
    if event is None:
        return None
    header = event.header
    if event.leaf_hash != leaf:
        findings.add("its header does not have the leaf hash that was stored with it")
    if (header.stream, header.position, header.topic, header.id) != (stream, position, topic, event_id):
        findings.add("stream, position, topic or id beside it are not those in its header")
    if has_private and (misplaced := _payload_place_flaw(event, placement, stored)) is not None:
        findings.add(misplaced)
    # Whatever else the arrival says, it is not trusted.
    arrived = _ARRIVALS.get(arrival, Arrival.GUEST) if type(arrival) is int else Arrival.GUEST
    recorded = in_place(event, at, arrived)
    try:
        recorded = opened(recorded)
        wrong = flaw(recorded)
    except CorruptionError as error:
        wrong = str(error)
    if wrong is not None:
        findings.add(f"it is malformed: {wrong}")
    return Row(row, recorded, wrong is None, has_private)


def _readable_header(state: object) -> Header | None:
    if type(state) is not bytes or len(state) > STATE_BYTES_MAX:
        return None
    try:
        return decode(state, None).header
    except CorruptionError:
        return None


def _column_flaws(row: StoredRow) -> Iterator[str]:
    for name, kind in _COLUMNS:
        value = getattr(row, name)
        if type(value) not in _KINDS[kind]:
            yield f"its {name} is {shown(value)} and should be {kind}"
    for name, value in (("private", row.private), ("payload", row.stored)):
        if value is not None and type(value) is not bytes:
            yield f"its {name} is {shown(value)} and should be {_BYTES}, or NULL"
    if type(row.arrival) is int and row.arrival not in _ARRIVALS:
        yield f"its arrival is {row.arrival}, which means nothing"
    if type(row.placement) is int and row.placement not in _PLACEMENTS:
        yield f"its placement is {row.placement}, which means nothing"


def _decoded(state: bytes, private: object, at: int, findings: Findings) -> tuple[Event | None, bool]:
    """Return the event, without its private part if that is not what it should be; and whether it is."""
    wrong: str | None = None
    try:
        if private is None:
            return decode(state, None, global_position=at), True
        if type(private) is bytes and len(private) <= STATE_BYTES_MAX:
            return decode(state, private, global_position=at), True
        if type(private) is bytes:
            wrong = f"its private part has {len(private):,} bytes: more than any that is looked into"
    except CorruptionError as error:
        wrong = str(error)
        if private is None:
            findings.add(wrong)
            return None, False
    event, _ = _decoded(state, None, at, findings)
    if event is not None and event.header.private is None:
        findings.add("a private part is kept beside an event that has none")
    elif event is not None and wrong is not None:
        findings.add(wrong)
    return event, False


def _payload_place_flaw(event: Event, placement: object, stored: object) -> str | None:
    if event.erased:
        if placement != _ERASED:
            return "its private part is missing, and it is not marked as erased"
        if stored is not None:
            return "a payload is kept beside an erased event"
    elif event.stored_hash is None:
        if placement != _NONE or stored is not None:
            return "a payload is kept beside an event that has none"
    elif placement == _ERASED:
        return "its payload is marked as erased, and its private part is there"
    return None
