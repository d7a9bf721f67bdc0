"""Summaries of runs of turns: the metadata of `gpt.summary` events."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct


class SummaryMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.summary` event, whose payload is the content blocks that stand for a run of turns.

    All but `kind`, `turns`, `model`, `provider`, `reason` and `redacted` are stored as citations.

    Attributes:
        first: the first turn of the run, cited as `from`.
        last: its last turn, cited as `to`. The first one is on its first-parent path, or is the same.
        earlier: the summary that stood for some of the run before, cited as `summary`.
        turn: the turn of the model whose text it is.
        call: the call that this turn came of.
        kind: who wrote it: a `model`, or somebody who gave the text (`given`).
        turns: how many turns it covers.
        model: the model.
        provider: its provider.
        reason: why, as was said.
        redacted: how many of which kind redaction hooks took out of it.
    """

    first: str = msgspec.field(name="from")
    last: str = msgspec.field(name="to")
    kind: Literal["given", "model"]
    turns: int
    earlier: str | None = msgspec.field(name="summary", default=None)
    turn: str | None = None
    call: str | None = None
    model: str | None = None
    provider: str | None = None
    reason: str | None = None
    redacted: dict[str, int] | None = None
