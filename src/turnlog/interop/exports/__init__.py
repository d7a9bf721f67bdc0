"""Transcripts out: the ancestry of a turn, for people and for other tools.

- `reading` reads what is to be written.
- `pages` has Markdown and HTML for people, `bodies` what the SDKs of OpenAI and Anthropic take, `lines` JSON lines.
- `messages` has the canonical messages of an agent, `trajectories` and `steps` a trajectory with its sub-agents (ATIF).
- `snapshots` has a turn of Geppetto, `turnlog.interop.gmi` the inputs and outputs of AgentOS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turnlog.errors import NotFoundError
from turnlog.interop import gmi
from turnlog.interop.exports.bodies import anthropic_body, openai_body
from turnlog.interop.exports.lines import json_lines
from turnlog.interop.exports.messages import canonical_messages
from turnlog.interop.exports.pages import html_page, markdown_page
from turnlog.interop.exports.reading import Exported, MarkedLog, Said, read
from turnlog.interop.exports.snapshots import geppetto_turn
from turnlog.interop.exports.trajectories import atif_trajectory
from turnlog.log import TurnLog
from turnlog.turn import Turn

Writer = Callable[[TurnLog, str, Sequence[Turn]], Exported]
"""Given the log, how the turn was named, and the turn and its ancestry, oldest first, failed turns included."""


def _gmi_lines(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a line for each turn: `{"input": …}` or `{"output": …}`, as AgentOS has them."""
    marked = MarkedLog(log, also=("thoughts", "inputs", "results"))  # what may be base64 is looked at
    pieces, losses = gmi.json_line_pieces(marked, turns[-1].id, long=marked.long)
    return Exported(writer=lambda file: file.writelines(pieces()), turns=len(turns), losses=losses)


WRITERS: Mapping[str, Writer] = {
    "anthropic": anthropic_body,
    "atif": atif_trajectory,
    "canonical": canonical_messages,
    "geppetto": geppetto_turn,
    "gmi": _gmi_lines,
    "html": html_page,
    "jsonl": json_lines,
    "markdown": markdown_page,
    "openai": openai_body,
}
"""The forms of an export, by name."""


def export(log: TurnLog, headish: str, form: str) -> Exported:
    """Return a turn with its ancestry in a form for people or other tools, and what of it that form has no place for.

    Args:
        log: the log.
        headish: the turn.
        form: one of `WRITERS`.

    Raises:
        NotFoundError: there is no such form.
        UnknownTurnError: there is no such turn.
    """
    if form not in WRITERS:
        raise NotFoundError(f"no form {form!r} to export (one of {', '.join(sorted(WRITERS))})")
    return WRITERS[form](log, headish, log.ancestry(headish))


__all__ = ["WRITERS", "Exported", "Said", "export", "read"]
