"""A snapshot of Geppetto: the ancestry of a turn as one of its turns, in YAML."""

from __future__ import annotations

from turnlog.interop import geppetto
from turnlog.interop.exports.reading import Exported, Said
from turnlog.log import TurnLog


def geppetto_turn(log: TurnLog, headish: str, said: list[Said]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a turn of Geppetto as YAML: as it was recorded, where it was, else what can be made of the turns.

    Raises:
        MissingPackageError: PyYAML is not installed.
        ErasedError: it was recorded as one, and a part of it was erased since.
    """
    turn, losses = geppetto.snapshot_of(log, said[-1].turn.id)
    return Exported(content=geppetto.turn_to_yaml(turn).encode(), turns=len(said), losses=losses)
