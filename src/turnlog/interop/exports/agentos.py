"""A turn with its ancestry as AgentOS has it: its GMI's inputs and outputs. With it comes what runs these."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.interop import gmi
from turnlog.interop.exports.reading import Exported, MarkedLog
from turnlog.log import TurnLog
from turnlog.turn import Turn


def gmi_lines(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a line for each turn: `{"input": …}` or `{"output": …}`, as AgentOS has them."""
    marked = MarkedLog(log, also=("thoughts", "inputs", "results"))  # what may be base64 is looked at
    pieces, losses = gmi.json_line_pieces(marked, turns[-1].id, long=marked.long)
    return Exported(writer=lambda file: file.writelines(pieces()), turns=len(turns), losses=losses)
