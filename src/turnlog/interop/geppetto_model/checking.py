"""Whether what callers give as runs, turns and blocks is that, with the place of what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnlog.errors import ContentError
from turnlog.interop.geppetto_model.keys import BlockMetadata, Data, Metadata, RunMetadata
from turnlog.interop.geppetto_model.types import Block, Run, Turn

_A: dict[type, str] = {str: "text", Sequence: "a list", Mapping: "a record"}


def check_run(run: object) -> None:
    """Check that a run is one, with all its turns and blocks. Values in payloads are not looked at.

    Raises:
        ContentError: something of it is of another type; names the place.
    """
    _check(run, Run, "run", "")
    assert isinstance(run, Run)
    _check_fields(run, "run", id=str, name=str, metadata=RunMetadata, turns=Sequence)
    for index, turn in enumerate(run.turns):
        check_turn(turn, f"run.turns[{index}]")


def check_turn(turn: object, field: str = "turn", hint: str = "") -> None:
    """Check that a turn is one, with all its blocks. Values in payloads are not looked at.

    Args:
        turn: what was given as one.
        field: its place, for messages.
        hint: what to do, for the message about something that is no turn at all.

    Raises:
        ContentError: something of it is of another type; names the place.
    """
    _check(turn, Turn, field, hint)
    assert isinstance(turn, Turn)
    _check_fields(turn, field, id=str, run_id=str, metadata=Metadata, data=Data, blocks=Sequence)
    for index, block in enumerate(turn.blocks):
        check_block(block, f"{field}.blocks[{index}]")


def check_block(block: object, field: str) -> None:
    """Check that a block is one. Values in its payload are not looked at.

    Raises:
        ContentError: something of it is of another type; names the place.
    """
    _check(block, Block, field, "make blocks with `Block` or the builders, such as `new_user_text_block`")
    _check_fields(block, field, kind=str, id=str, turn_id=str, role=str, payload=Mapping, metadata=BlockMetadata)


def _check_fields(whole: object, field: str, **kinds: type) -> None:
    for name, kind in kinds.items():
        _check(getattr(whole, name), kind, f"{field}.{name}", "")


def _check(value: object, kind: type, field: str, hint: str) -> None:
    if not isinstance(value, kind):
        wanted, end = _A.get(kind, f"a {kind.__name__}"), f": {hint}" if hint else ""
        raise ContentError(f"{field}: expected {wanted}, got {type(value).__name__}{end}", field=field)
