"""What a thread is about, in one line: what a person said first.

Agents put context before that, into the same turn or into turns of its own: elements (`<environment_context>…`),
instructions of a project, what a tool told the model by itself. None of it tells one thread from another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from turnlog.cli.preview import is_meta, previews
from turnlog.cli.text import first_line, says
from turnlog.errors import CorruptionError
from turnlog.log import TurnLog
from turnlog.turn import Turn, turn_of

_TURNS_MAX = 8
"""What a person said first is looked for in so many turns after the root."""

_CHARACTERS_MAX = 256 * 1024
"""Context of more characters than these is not looked behind."""

_ELEMENT = re.compile(r"\s*<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>")
_BEHIND = re.compile(r"\s|<|\Z")
"""What is behind an element that is no part of a sentence."""
_PROJECT = re.compile(r"\s*# AGENTS\.md instructions\b[^\n]*\n(?=\s*<)")
"""A heading that Codex puts before the element in which it has the instructions of a project."""

_PERSON = "user_query"
"""In this element Cursor has what a person said."""


class _Parts(NamedTuple):
    inside: str  # what the last of the elements that a text begins with has in it, but for empty ones
    behind: str


def lines_about(log: TurnLog, roots: Sequence[Turn], damages: list[CorruptionError]) -> dict[str, str]:
    """Return a line for each root of a thread, by its id: what a person said first, else what the root says.

    Where what would be read is damaged the line says so, and `damages` what.
    """
    found = _said(log, [root for root in roots if _may_be_of_person(root)], damages)
    others = {root.id: _said_before_reply(log, root) for root in roots if root.id not in found}
    said = _said(log, list(chain.from_iterable(others.values())), damages)
    for root, turns in others.items():
        if line := next((said[turn.id] for turn in turns if turn.id in said), None):
            found[root] = line
    stand_ins = {root.id: (others[root.id] or [root])[-1] for root in roots if root.id not in found}
    lines = previews(log, [*stand_ins.values()], damages, line_of=_any_line)
    return found | {root: lines[turn.id] for root, turn in stand_ins.items()}


def _said(log: TurnLog, turns: Sequence[Turn], damages: list[CorruptionError]) -> dict[str, str]:
    """Return the lines of those turns that say something behind their context, by their ids."""
    return {turn: line for turn, line in previews(log, turns, damages, line_of=own_line).items() if line}


def _may_be_of_person(turn: Turn) -> bool:
    return turn.role == "user" and not is_meta(turn)


def _said_before_reply(log: TurnLog, root: Turn) -> list[Turn]:
    """Return what people may have said after the root of a thread, before it was replied to."""
    if root.role == "assistant":
        return []
    with log.store.read() as transaction:
        after: Iterable[Turn] = map(turn_of, transaction.stream(root.stream, 1, _TURNS_MAX))
        return [turn for turn in takewhile(lambda turn: turn.role != "assistant", after) if _may_be_of_person(turn)]


def own_line(text: str) -> str:
    """Return the first line of a text that stands behind the elements that it begins with; empty if none does."""
    return first_line(_parts(text).behind)


def _any_line(text: str) -> str:
    parts = _parts(text)
    return first_line(parts.behind) or first_line(parts.inside) or first_line(text)


def _parts(text: str) -> _Parts:
    text = text[:_CHARACTERS_MAX]
    inside, at = "", 0
    while True:
        if heading := _PROJECT.match(text, at):
            at = heading.end()
        element = _ELEMENT.match(text, at)
        closing = f"</{element[1]}>" if element else ""
        end = text.find(closing, element.end()) if element else -1
        if element is None or end < 0 or not _BEHIND.match(text, end + len(closing)):
            return _Parts(inside, text[at:])
        within = text[element.end() : end]
        if element[1] == _PERSON:
            return _Parts(inside, within)
        inside = within if says(within) else inside
        at = end + len(closing)
