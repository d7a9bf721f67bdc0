"""Transcripts out: the ancestry of a turn, for people and for other tools.

- `reading` reads what is to be written.
- `pages` has Markdown and HTML for people, `bodies` what the SDKs of OpenAI and Anthropic take, `lines` JSON lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnlog.errors import NotFoundError
from turnlog.interop.exports.bodies import anthropic_body, openai_body
from turnlog.interop.exports.lines import json_lines
from turnlog.interop.exports.pages import html_page, markdown_page
from turnlog.interop.exports.reading import Exported, Said, read
from turnlog.log import TurnLog

Writer = Callable[[TurnLog, str, list[Said]], Exported]

WRITERS: Mapping[str, Writer] = {
    "anthropic": anthropic_body,
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
    return WRITERS[form](log, headish, read(log, headish))


__all__ = ["WRITERS", "Exported", "Said", "export", "read"]
