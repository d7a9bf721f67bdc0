"""A snapshot of Geppetto: the ancestry of a turn as one of its turns, in YAML."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.interop import geppetto
from turnlog.interop.exports.reading import Exported, MarkedLog
from turnlog.interop.geppetto.recording import snapshot_with
from turnlog.log import TurnLog
from turnlog.model.marked_blocks import LONG_KINDS
from turnlog.turn import Turn


def geppetto_turn(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a turn of Geppetto as YAML: as it was recorded, where it was, else what can be made of the turns.

    Raises:
        MissingPackageError: PyYAML is not installed.
        ErasedError: it was recorded as one, and a part of it was erased since.
    """
    marked = MarkedLog(log, also=(*LONG_KINDS, "natives"))
    turn, losses = snapshot_with(marked, turns[-1].id, marked.long)
    record = geppetto.turn_record(turn)
    return Exported(
        writer=lambda file: geppetto.write_yaml(record, file, long=marked.long), turns=len(turns), losses=losses
    )
