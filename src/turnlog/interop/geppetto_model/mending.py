"""What a file has of runs and turns, mended where it is none, so that one bad part does not lose the rest.

A block that is none, or of a kind that nobody knows, becomes a block of the kind `other` that has it as it stands, and
so a native block of the log. What turns, blocks and runs have no place for stands in their metadata, under `UNREAD`. A
turn of a run that is no record is left out. Each time it is said where and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import cast

from turnlog.errors import ContentError
from turnlog.interop.geppetto_model.documents import RUN_KEYS, TURN_KEYS, read_block
from turnlog.interop.marked import unmarked_value
from turnlog.model import JSONValue
from turnlog.model.plain import plain_json

UNREAD = "turnlog.unread@v1"
"""The metadata key of what a turn, a block or a run has and Geppetto does not."""

_BLOCK_TEXTS = ("id", "turn_id", "role")
_Record = dict[str, JSONValue]
Tell = Callable[[str], None]


def plain(value: object, field: str, tell: Tell) -> JSONValue:
    """Return a document as JSON has it. A block or another part that JSON cannot carry is the text that spells it.

    Raises:
        ContentError: it is nested too deeply to be spelled, or two of its keys are one when they are text.
    """
    try:
        return plain_json(value, field, ContentError)
    except ContentError:
        if not isinstance(value, dict):
            raise
    mended: _Record = {}
    for key, inner in cast("dict[object, object]", value).items():
        name = key if isinstance(key, str) else _spelled(key)
        place = f"{field}.{name}"
        if name in mended:
            raise ContentError(f"{field}: a record has the key {name!r} twice", field=place)
        items = _items(inner) if name in ("turns", "blocks") else None
        if items is None:
            mended[name] = _plain_part(inner, place, tell)
            continue
        take = plain if name == "turns" else _plain_block
        mended[name] = [take(each, f"{place}[{index}]", tell) for index, each in enumerate(items)]
    return plain_json(mended, field, ContentError)


def mended_run(value: JSONValue, field: str, tell: Tell) -> JSONValue:
    """Return a plain JSON value as `read_run` reads it, as far as it can be mended."""
    if not isinstance(value, dict):
        return value
    record = _mended(cast("_Record", value), field, RUN_KEYS, ("id", "name"), ("metadata",), "turns", tell)
    turns: list[JSONValue] = []
    for index, turn in enumerate(cast("Sequence[JSONValue]", record.get("turns") or [])):
        place = f"{field}.turns[{index}]"
        if isinstance(turn, dict):
            turns.append(mended_turn(turn, place, tell))
        else:
            tell(f"{place}: expected a record, got {type(turn).__name__}: it was left out")
    return record | {"turns": turns}


def mended_turn(value: JSONValue, field: str, tell: Tell) -> JSONValue:
    """Return a plain JSON value as `read_turn` reads it, as far as it can be mended."""
    if not isinstance(value, dict):
        return value
    record = _mended(cast("_Record", value), field, TURN_KEYS, ("id", "run_id"), ("metadata", "data"), "blocks", tell)
    blocks = enumerate(cast("Sequence[JSONValue]", record.get("blocks") or []))
    return record | {"blocks": [_mended_block(block, f"{field}.blocks[{index}]", tell) for index, block in blocks]}


def _mended_block(value: JSONValue, field: str, tell: Tell) -> JSONValue:
    """Return a block; one that is none as one of the kind `other`."""
    try:
        read_block(value, field)
        return value
    except ContentError as error:
        why = error
    # Most often only a text is not quoted, or there is a key more: then it is the block that it says it is.
    if isinstance(value, dict):
        told: list[str] = []
        known = (*_BLOCK_TEXTS, "kind", "payload", "metadata")
        record = _mended(cast("_Record", value), field, known, _BLOCK_TEXTS, ("metadata",), None, told.append)
        try:
            read_block(record, field)
        except ContentError as error:
            why = error
        else:
            for each in told:
                tell(each)
            return record
    tell(f"{why}: kept as a native block")
    record = cast("_Record", value) if isinstance(value, dict) else {}
    id = record.get("id")
    named: _Record = {"id": id} if isinstance(id, str) else {}
    payload: _Record = {"block": cast("JSONValue", value)}
    return {"kind": "other", **named, "payload": payload}


def _mended(
    value: _Record,
    field: str,
    known: Sequence[str],
    texts: Sequence[str],
    records: Sequence[str],
    items: str | None,
    tell: Tell,
) -> _Record:
    """Return a record of which each part is what it is to be, or is in its metadata, under `UNREAD`."""
    record: _Record = {}
    unread: _Record = {}
    for key, inner in value.items():
        place = f"{field}.{key}"
        wanted = str if key in texts else list if key == items else dict if key in records else object
        if key in known and (inner is None or isinstance(inner, wanted)):
            record[key] = inner
        elif key in texts and isinstance(inner, bool | int | float):
            record[key] = json.dumps(inner)
            tell(f"{place}: expected text, got {type(inner).__name__}: read as {json.dumps(inner)!r}")
        else:
            unread[key] = inner
            what = f"got {type(inner).__name__}" if key in known else "unknown key"
            tell(f"{place}: {what}: kept in the metadata, as {UNREAD!r}")
    if not unread:
        return record
    metadata = cast("_Record", record.get("metadata") or {})
    return record | {"metadata": {**metadata, UNREAD: unread}}


def _items(value: object) -> list[object] | None:
    """Return the items of a list; None for what is none."""
    return cast("list[object]", value) if isinstance(value, list) else None


def _plain_block(value: object, field: str, tell: Tell) -> JSONValue:
    try:
        return plain_json(value, field, ContentError)
    except ContentError as error:
        tell(f"{error}: kept as a native block of its text")
        return {"kind": "other", "payload": {"text": _spelled(value)}}


def _plain_part(value: object, field: str, tell: Tell) -> JSONValue:
    try:
        return plain_json(value, field, ContentError)
    except ContentError as error:
        tell(f"{error}: kept as its text")
        return _spelled(value)


def _spelled(value: object) -> str:
    """Return a text that says a value: as JSON where that has it, NaN, large numbers and other keys included.

    Raises:
        ContentError: it is nested too deeply.
    """
    try:
        value = unmarked_value(cast("JSONValue", value))
        return json.dumps(value, default=repr)
    except (TypeError, ValueError):
        return ascii(value)
    except RecursionError as error:
        raise ContentError("nested too deeply", field="") from error
