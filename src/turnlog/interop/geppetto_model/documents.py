"""Runs and turns as YAML and JSON, and back: what is read equals what was written.

Keys are `id`, `run_id`, `turn_id`, `name`, `kind`, `role`, `payload`, `metadata`, `data`, `blocks` and `turns`; what is
empty is left out. Typed keys are written as their identities. A key that the types do not have is refused by its name.

YAML needs the package PyYAML. What looks like a date stays text as it is spelled. Aliases, merge keys and a key that a
record has twice, however it is spelled, are refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, BinaryIO, TypeVar, cast

import msgspec

from turnlog.errors import ContentError, MetaError, MissingPackageError
from turnlog.interop.geppetto_model.checking import check_run, check_turn
from turnlog.interop.geppetto_model.keys import BlockMetadata, Data, Metadata, RunMetadata
from turnlog.interop.geppetto_model.types import Block, BlockKind, Run, Turn
from turnlog.model import JSONValue
from turnlog.model.binary_files import whole_writes
from turnlog.model.json_text import minify
from turnlog.model.json_values import UniqueMembers
from turnlog.model.long_strings import LongStrings
from turnlog.model.plain import plain_json

_T = TypeVar("_T")
_Record = dict[str, JSONValue]
RUN_KEYS = ("id", "name", "metadata", "turns")
TURN_KEYS = ("id", "run_id", "metadata", "data", "blocks")
_SPELLED = {kind.replace("_", " ").title().replace(" ", "").replace("Llm", "LLM"): str(kind) for kind in BlockKind}
"""Kinds as Go names them, such as `LLMText`: these are read too."""


def run_to_json(run: Run) -> bytes:
    """Return a run as JSON.

    Raises:
        ContentError: a payload is not JSON.
    """
    return msgspec.json.encode(run_record(run))


def turn_to_json(turn: Turn) -> bytes:
    """Return a turn as JSON.

    Raises:
        ContentError: a payload is not JSON.
    """
    return msgspec.json.encode(turn_record(turn))


def run_from_json(text: str | bytes) -> Run:
    """Return the run of a JSON text.

    Raises:
        ContentError: not JSON, or not a run; names the place.
    """
    return read_run(_json(text, "run"), "run")


def turn_from_json(text: str | bytes) -> Turn:
    """Return the turn of a JSON text.

    Raises:
        ContentError: not JSON, or not a turn; names the place.
    """
    return read_turn(_json(text, "turn"), "turn")


def run_to_yaml(run: Run) -> str:
    """Return a run as YAML, texts of several lines as blocks where YAML can.

    Raises:
        ContentError: a payload is not JSON.
        MissingPackageError: PyYAML is not installed.
    """
    return _yaml_text(run_record(run))


def turn_to_yaml(turn: Turn) -> str:
    """Return a turn as YAML. Raises what `run_to_yaml` raises."""
    return _yaml_text(turn_record(turn))


def run_from_yaml(text: str) -> Run:
    """Return the run of a YAML text.

    Raises:
        ContentError: not YAML, or not a run; names the place.
        MissingPackageError: PyYAML is not installed.
    """
    return read_run(_yaml_value(text, "run"), "run")


def turn_from_yaml(text: str) -> Turn:
    """Return the turn of a YAML text. Raises what `run_from_yaml` raises."""
    return read_turn(_yaml_value(text, "turn"), "turn")


def run_record(run: Run) -> _Record:
    """Return a run as a record of plain JSON values.

    Raises:
        ContentError: a payload is not JSON, or something is no run, turn or block; names the place.
    """
    check_run(run)
    record = {
        "id": run.id,
        "name": run.name,
        "metadata": dict(run.metadata.range()),
        "turns": [_turn(turn, f"run.turns[{index}]") for index, turn in enumerate(run.turns)],
    }
    plain = _plain(record, "run")
    read_run(plain, "run")  # what could not be read again is not written
    return plain


def turn_record(turn: Turn) -> _Record:
    """Return a turn as a record of plain JSON values.

    Raises:
        ContentError: a payload is not JSON, or something is no turn or block; names the place.
    """
    check_turn(turn)
    plain = _turn(turn, "turn")
    read_turn(plain, "turn")
    return plain


def _turn(turn: Turn, field: str) -> _Record:
    record = {
        "id": turn.id,
        "run_id": turn.run_id,
        "metadata": dict(turn.metadata.range()),
        "data": dict(turn.data.range()),
        "blocks": [_block(block, f"{field}.blocks[{index}]") for index, block in enumerate(turn.blocks)],
    }
    return _plain(record, field)


def _block(block: Block, field: str) -> _Record:
    record = {
        "id": block.id,
        "turn_id": block.turn_id,
        "kind": str(block.kind),
        "role": block.role,
        "payload": block.payload,
        "metadata": dict(block.metadata.range()),
    }
    return _plain(record, field)


def _plain(record: _Record, field: str) -> _Record:
    plain = cast("_Record", plain_json(record, field, ContentError))
    return {key: value for key, value in plain.items() if value not in ("", [], {})}


def read_run(value: JSONValue, field: str) -> Run:
    """Return the run of a plain JSON value.

    Raises:
        ContentError: it is no run; names the place.
    """
    record = _fields(value, field, RUN_KEYS)
    return Run(
        id=_text(record, "id", field),
        name=_text(record, "name", field),
        metadata=_store(RunMetadata, record, "metadata", field),
        turns=_items(record, "turns", field, read_turn),
    )


def read_turn(value: JSONValue, field: str) -> Turn:
    """Return the turn of a plain JSON value.

    Raises:
        ContentError: it is no turn; names the place.
    """
    record = _fields(value, field, TURN_KEYS)
    return Turn(
        id=_text(record, "id", field),
        run_id=_text(record, "run_id", field),
        metadata=_store(Metadata, record, "metadata", field),
        data=_store(Data, record, "data", field),
        blocks=_items(record, "blocks", field, read_block),
    )


def read_block(value: JSONValue, field: str) -> Block:
    """Return the block of a plain JSON value.

    Raises:
        ContentError: it is no block; names the place.
    """
    record = _fields(value, field, ("id", "turn_id", "kind", "role", "payload", "metadata"))
    kind = _text(record, "kind", field)
    kind = _SPELLED.get(kind, kind)
    if kind not in set(BlockKind):
        place = f"{field}.kind"
        raise ContentError(f"{place}: {kind!r} is not a kind of block (one of {', '.join(BlockKind)})", field=place)
    return Block(
        kind=BlockKind(kind),
        id=_text(record, "id", field),
        turn_id=_text(record, "turn_id", field),
        role=_text(record, "role", field),
        payload=cast("_Record", plain_json(_record(record, "payload", field), f"{field}.payload", ContentError)),
        metadata=_store(BlockMetadata, record, "metadata", field),
    )


def _fields(value: JSONValue, field: str, known: Sequence[str]) -> Mapping[str, JSONValue]:
    if not isinstance(value, dict):
        raise ContentError(f"{field}: expected a record, got {type(value).__name__}", field=field)
    record = cast("Mapping[str, JSONValue]", value)
    for key in record:
        if key not in known:
            raise ContentError(f"{field}.{key}: unknown key (one of {', '.join(known)})", field=f"{field}.{key}")
    return record


def _text(record: Mapping[str, JSONValue], key: str, field: str) -> str:
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        place = f"{field}.{key}"
        raise ContentError(f"{place}: expected text, got {type(value).__name__}: quote it", field=place)
    return value


def _record(record: Mapping[str, JSONValue], key: str, field: str) -> Mapping[str, JSONValue]:
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        place = f"{field}.{key}"
        raise ContentError(f"{place}: expected a record, got {type(value).__name__}", field=place)
    return cast("Mapping[str, JSONValue]", value)


_S = TypeVar("_S", RunMetadata, Metadata, Data, BlockMetadata)


def _store(kind: type[_S], record: Mapping[str, JSONValue], key: str, field: str) -> _S:
    values = _record(record, key, field)
    try:
        return kind(values)
    except MetaError as error:
        raise ContentError(f"{field}.{key}: {error}", field=f"{field}.{key}") from error


def _items(record: Mapping[str, JSONValue], key: str, field: str, read: Callable[[JSONValue, str], _T]) -> list[_T]:
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        place = f"{field}.{key}"
        raise ContentError(f"{place}: expected a list, got {type(value).__name__}", field=place)
    return [read(item, f"{field}.{key}[{index}]") for index, item in enumerate(cast("list[JSONValue]", value))]


def _json(text: str | bytes, field: str) -> JSONValue:
    members = UniqueMembers()
    try:
        value = json.loads(minify(text, field=field), object_pairs_hook=members)
        members.check(value, field)
        return value
    except (ValueError, RecursionError) as error:  # a number that no one can hold
        raise ContentError(f"{field}: not valid JSON: {error}", field=field) from error


def _yaml_text(record: _Record) -> str:
    file = io.BytesIO()
    write_yaml(record, file)
    return file.getvalue().decode()


def write_yaml(record: Mapping[str, JSONValue], file: BinaryIO, *, long: LongStrings | None = None) -> None:
    """Write a record of plain JSON values to a file as YAML: a text in pieces.

    Args:
        record: the record.
        file: the file, open for bytes.
        long: the long texts whose marks stand in the record, if there are any.

    Raises:
        ContentError, MissingPackageError: as `run_to_yaml` raises them.
        MetaError, BlockingIOError: as `TurnLog.export` raises them for a file.
    """
    package = _yaml()
    from turnlog.interop.geppetto_model.dumping import Dumper  # noqa: PLC0415 - it needs the package

    dumper = partial(Dumper, long=long or LongStrings())
    try:
        package.dump(record, whole_writes(file), Dumper=dumper, encoding="utf-8", allow_unicode=True, sort_keys=False)
    except package.YAMLError as error:
        raise ContentError(f"cannot be written as YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ContentError("cannot be written as YAML: nested too deeply, use JSON") from error


def _yaml_value(text: str, field: str) -> JSONValue:
    values = [*yaml_values(text, field)]
    if len(values) > 1:
        raise ContentError(f"{field}: {len(values)} documents, and one was expected", field=field)
    return values[0] if values else None


def yaml_values(
    text: str | IO[bytes], field: str = "document", *, mark: Callable[[str], str] | None = None
) -> Iterator[JSONValue]:
    """Give the values of the documents of a YAML text.

    Args:
        text: the text, or a file in UTF-8 that is at its beginning.
        field: what it is called in errors.
        mark: what gives a mark for a text that is long, and else the text; None to leave all as they are.

    Raises:
        ContentError: what follows is not valid YAML.
        MissingPackageError: PyYAML is not installed.
    """
    package = _yaml()
    from turnlog.interop.geppetto_model import loading  # noqa: PLC0415 - it needs the package

    try:
        yield from loading.documents(text, mark)
    except package.YAMLError as error:
        raise ContentError(f"{field}: not valid YAML: {' '.join(str(error).split())}", field=field) from error
    except RecursionError as error:
        raise ContentError(f"{field}: nested too deeply", field=field) from error
    except loading.UNREADABLE as error:
        raise ContentError(f"{field}: not valid YAML: {error}", field=field) from error


def _yaml():
    try:
        import yaml  # noqa: PLC0415 - it is optional
    except ImportError as error:
        raise MissingPackageError("YAML needs PyYAML: pip install 'turnlog[yaml]'", provider="geppetto") from error
    return yaml
