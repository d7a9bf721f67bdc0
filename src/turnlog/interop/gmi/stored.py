"""An input as the log keeps it: as JSON values without keys, in a note beside its turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError, MetaError
from turnlog.ids import derived_id
from turnlog.interop.gmi.content import Taken, with_bytes, without_bytes
from turnlog.interop.gmi.input import GMITurnInput
from turnlog.interop.gmi.refusing import refuse_keys
from turnlog.model import Block, Text
from turnlog.model.json_text import UNREADABLE
from turnlog.model.plain import plain_json

FORMAT = "gmi"
TOPIC = "gmi.input"
"""The topic of what an input has and its turn does not."""

_RECORDS: Mapping[str, Any] = {
    "metadata": {
        name: {} for name in ("capabilityDiscovery", "executionPolicy", "options", "promptProfile", "rollingSummary")
    }
}
"""The fields of an input that are records with fields of their own: with nothing in them they say nothing."""

JSONRecord = dict[str, Any]


class _Kept(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept beside a turn.

    Attributes:
        input: the input without its keys, and without its content where that is a text: the turn has it.
        taken: what of the content the turn has: see `without_bytes`.
    """

    input: JSONRecord
    taken: list[Taken] = []


_kept = msgspec.json.Decoder(_Kept)
_sorted = msgspec.json.Encoder(order="sorted")


def turn_id_of(interaction_id: str) -> str:
    """Return the id of the turn that an interaction is recorded as."""
    return derived_id(None, FORMAT, interaction_id)


def note_id_of(turn: str) -> str:
    """Return the id of the note beside a turn that is an input."""
    return derived_id(None, TOPIC, turn)


def stored_form(given: GMITurnInput) -> JSONRecord:
    """Return an input as JSON values, without `userApiKeys`, and without metadata that had nothing else.

    Raises:
        MetaError: it has a value that JSON does not have.
        SecretError: something in it looks like a key, or is one of `userApiKeys`. The value is not repeated.
    """
    record = given.model_dump(by_alias=True, exclude_unset=True)
    keys = {} if given.metadata is None else given.metadata.user_api_keys or {}
    metadata: object = record.get("metadata")
    if isinstance(metadata, dict) and "userApiKeys" in metadata:
        del metadata["userApiKeys"]
        if not metadata:
            del record["metadata"]
    if isinstance(given.timestamp, datetime):
        record["timestamp"] = timestamp_text(given.timestamp)
    stored = cast("JSONRecord", plain_json(record, "input", MetaError))
    refuse_keys(stored, keys.values())
    return stored


def timestamp_text(time: datetime) -> str:
    """Return a time as ISO 8601 text, in UTC where it says its zone.

    Raises:
        MetaError: it is before the year 1 or after the year 9999 in UTC.
    """
    if time.tzinfo is None:
        return time.isoformat()
    try:
        return time.astimezone(UTC).isoformat()
    except OverflowError as error:
        raise MetaError("timestamp: is not of the years 1 to 9999 in UTC", field="timestamp") from error


def in_form_of(stored: JSONRecord, kept: JSONRecord) -> JSONRecord:
    """Return an input with what says nothing in it, and the order of its fields, as in another one.

    A field that is null, or metadata without anything in it, says the same as none. Within contexts, content and values
    null is a value.
    """
    return _in_form_of(stored, kept, _RECORDS)


def _in_form_of(given: JSONRecord, kept: JSONRecord, records: Mapping[str, Any]) -> JSONRecord:
    made: JSONRecord = {}
    for name, other in kept.items():
        inner, value = records.get(name), given.get(name)
        if _says_nothing(value, inner) and _says_nothing(other, inner):
            made[name] = other
        elif name in given:
            if inner is not None and isinstance(value, dict) and isinstance(other, dict):
                value = _in_form_of(cast("JSONRecord", value), cast("JSONRecord", other), inner)
            made[name] = value
    for name, value in given.items():
        if name not in kept and not _says_nothing(value, records.get(name)):
            made[name] = value
    return made


def _says_nothing(value: object, records: Mapping[str, Any] | None) -> bool:
    if records is None or not isinstance(value, dict):
        return value is None
    return all(_says_nothing(inner, records.get(name)) for name, inner in cast("JSONRecord", value).items())


def same_input(first: JSONRecord, second: JSONRecord) -> bool:
    """Tell whether two inputs in stored form say the same, in whatever order."""
    return _sorted.encode(first) == _sorted.encode(in_form_of(second, first))


def encode_kept(stored: JSONRecord, blocks: Sequence[Block]) -> bytes:
    """Return what is to be kept beside the turn that has these blocks."""
    rest = {name: value for name, value in stored.items() if name != "content"}
    if isinstance(stored["content"], str):
        return msgspec.json.encode(_Kept(input=rest))
    content, taken = without_bytes(stored["content"], blocks)
    return msgspec.json.encode(_Kept(input={**rest, "content": content}, taken=taken))


def decode_kept(payload: bytes, blocks: Sequence[Block], turn: str) -> JSONRecord:
    """Return an input in stored form from its note and the blocks of its turn.

    Raises:
        CorruptionError: the note cannot be read.
    """
    try:
        kept = _kept.decode(payload)
        if "content" in kept.input:
            return {**kept.input, "content": with_bytes(kept.input["content"], kept.taken, blocks)}
        [text] = blocks
        return {**kept.input, "content": text.text if isinstance(text, Text) else ""}
    except (*UNREADABLE, LookupError, TypeError, ValueError) as error:
        raise CorruptionError(f"what is kept of the input {turn!r} cannot be read: {error}") from error
