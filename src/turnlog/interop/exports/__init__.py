"""Transcripts out: the ancestry of a turn, for people and for other tools.

- `reading` reads what is to be written.
- `pages` has Markdown and HTML for people, `bodies` what the SDKs of OpenAI and Anthropic take, `lines` JSON lines.
- `messages` has the canonical messages of an agent, `trajectories` and `steps` a trajectory with its sub-agents (ATIF).
- `snapshots` has a turn of Geppetto, `agentos` the inputs and outputs of AgentOS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import cast

from turnlog.errors import NotFoundError
from turnlog.interop.exports.reading import Exported, Said, read
from turnlog.log import TurnLog
from turnlog.turn import Turn

Writer = Callable[[TurnLog, str, Sequence[Turn]], Exported]
"""Given the log, how the turn was named, and the turn and its ancestry, oldest first, failed turns included."""

WRITERS: Mapping[str, str] = {
    "anthropic": "bodies:anthropic_body",
    "atif": "trajectories:atif_trajectory",
    "canonical": "messages:canonical_messages",
    "geppetto": "snapshots:geppetto_turn",
    "gmi": "agentos:gmi_lines",
    "html": "pages:html_page",
    "jsonl": "lines:json_lines",
    "markdown": "pages:markdown_page",
    "openai": "bodies:openai_body",
}
"""The forms of an export, by name: the module here and the `Writer` in it. That of the form at hand is imported."""


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
    module, _, name = WRITERS[form].partition(":")
    write = cast("Writer", getattr(import_module(f"{__name__}.{module}"), name))
    return write(log, headish, log.ancestry(headish))


__all__ = ["WRITERS", "Exported", "Said", "export", "read"]
