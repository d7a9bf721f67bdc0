"""An input as the log keeps it: as JSON values without keys, in a note beside its turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError, MetaError, SecretError
from turnlog.ids import derived_id
from turnlog.interop.gmi.content import Taken, with_bytes, without_bytes
from turnlog.interop.gmi.input import GMITurnInput
from turnlog.model import Block, Text
from turnlog.model.plain import plain_json
from turnlog.record.secrets import refuse_secrets

FORMAT = "gmi"
TOPIC = "gmi.input"
"""The topic of what an input has and its turn does not."""

_KEY_CHARACTERS_MIN = 8
"""How long a key must be to be looked for in the rest of an input: shorter texts stand anywhere."""

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
    """Return an input as JSON values, without `userApiKeys`.

    Raises:
        MetaError: it has a value that JSON does not have.
        SecretError: something in it looks like a key, or is one of `userApiKeys`. The value is not repeated.
    """
    record = given.model_dump(by_alias=True, exclude_unset=True)
    keys = {} if given.metadata is None else given.metadata.user_api_keys or {}
    if isinstance(record.get("metadata"), dict):
        record["metadata"].pop("userApiKeys", None)
    if isinstance(given.timestamp, datetime):
        record["timestamp"] = timestamp_text(given.timestamp)
    stored = cast("JSONRecord", plain_json(record, "input", MetaError))
    _refuse_keys(stored, keys.values())
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


def same_input(first: JSONRecord, second: JSONRecord) -> bool:
    """Tell whether two inputs in stored form say the same, in whatever order."""
    return _sorted.encode(first) == _sorted.encode(second)


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
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError) as error:
        raise CorruptionError(f"what is kept of the input {turn!r} cannot be read: {error}") from error


# Keys


def _refuse_keys(stored: JSONRecord, keys: Iterable[str]) -> None:
    """Refuse what looks like a key, but in what was said: that is for redaction hooks, as in all turns."""
    checked = {name: value for name, value in stored.items() if name != "content"}
    metadata = checked.get("metadata")
    if isinstance(metadata, dict):
        said = ("conversationHistoryForPrompt", "rollingSummary")
        told = cast("JSONRecord", metadata)
        checked["metadata"] = {name: value for name, value in told.items() if name not in said}
        options: object = told.get("options")
        for place in _named(options, "metadata.options", ("header", "headers")):
            raise _refused(place)
    for place in _named(checked, "input", ("apikey", "apikeys", "apikeyoverride", "apikeyoverrides")):
        raise _refused(place)
    refuse_secrets(checked, field="input")
    long = [key for key in keys if len(key) >= _KEY_CHARACTERS_MIN]
    for place, text in _texts(stored, "input") if long else ():
        if any(key in text for key in long):
            raise _refused(place)


def _refused(place: str) -> SecretError:
    return SecretError(
        f"{place}: looks like a key, and keys never enter the log: give it in metadata.userApiKeys", field=place
    )


def _named(value: object, place: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Yield the places of members that have such a name and say something."""
    for name, inner, inner_place in _members(value, place):
        letters = "".join(letter for letter in name.lower() if letter.isalnum())
        if letters.endswith(endings) and inner not in (None, "", {}, []) and not isinstance(inner, bool | int | float):
            yield inner_place
        yield from _named(inner, inner_place, endings)


def _members(value: object, place: str) -> Iterator[tuple[str, object, str]]:
    match value:
        case Mapping():
            for name, inner in cast("Mapping[str, object]", value).items():
                yield name, inner, f"{place}.{name}"
        case list():
            for index, inner in enumerate(cast("list[object]", value)):
                yield "", inner, f"{place}[{index}]"
        case _:
            pass


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    for name, inner, inner_place in _members(value, place):
        # The name may be the key: then its place is not told.
        yield place, name
        yield from _texts(inner, inner_place)
