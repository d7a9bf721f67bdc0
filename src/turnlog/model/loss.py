"""The loss report: what a request does not carry as it was recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

LossKind = Literal["dropped", "downgraded", "renamed", "synthesised", "moved"]
"""What happened: left out; carried in a lesser form; under another name; made up to fill a gap; at another place."""


class LossEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a request does not carry as it was recorded.

    Attributes:
        kind: what happened to it.
        turn: the turn it is of.
        block: what it is: the type of a content block, or `tool_id`, `citations`, `tool`, `parameter`, ….
        index: place of the block in the turn's content, from 0; None where it is not one block.
        why: one line for people.
    """

    kind: LossKind
    turn: str
    block: str
    why: str
    index: int | None = None


class LossReport(Struct, frozen=True, kw_only=True):
    """All that a request does not carry as it was recorded, in the order of the conversation. Empty: nothing."""

    entries: tuple[LossEntry, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything was lost."""
        return bool(self.entries)

    def with_entries(self, entries: Iterable[LossEntry]) -> LossReport:
        """Return a report with more entries."""
        return LossReport(entries=(*self.entries, *entries))
