"""Checkpoints that a recording command makes by itself, where the environment asks for it."""

from __future__ import annotations

import os
import re
import shlex

from turnlog.cli.failures import UsageError, error_said
from turnlog.cli.output import note
from turnlog.log import TurnLog

EVERY_VARIABLE = "TURNLOG_CHECKPOINT_EVERY"
"""How often: a number of events, a time such as `60s` or `5m`, or both: `1000,60s`."""

TO_VARIABLE = "TURNLOG_CHECKPOINT_TO"
"""Places outside the store, as shells separate words."""

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_TIME = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>[smh])")


def keep_checkpoints(log: TurnLog) -> None:
    """Begin to make checkpoints of a log that is opened to record, where TURNLOG_CHECKPOINT_EVERY asks for it.

    What fails is told on standard error, and keeps nothing from being recorded.

    Raises:
        UsageError, SigningKeyError, PlaceError: what the environment says cannot be done.
    """
    every = os.environ.get(EVERY_VARIABLE, "").strip()
    if not every:
        if os.environ.get(TO_VARIABLE, "").strip():
            note(f"no checkpoint is made: {TO_VARIABLE} says where to, and {EVERY_VARIABLE} not how often")
        return
    # With these comes what signs: most logs are recorded without.
    from turnlog.audit.heads import default_signed_heads  # noqa: PLC0415
    from turnlog.audit.places import parse_place  # noqa: PLC0415
    from turnlog.cli.verifiers import find_signer, own_verifiers  # noqa: PLC0415

    own = own_verifiers()
    every_events, every_s = _parsed(every)
    try:
        places = [parse_place(word) for word in shlex.split(os.environ.get(TO_VARIABLE, ""))]
    except ValueError as error:
        raise UsageError(f"{TO_VARIABLE} cannot be read: {error}") from error
    log.audit.keep_checkpoints(
        find_signer(None),
        every_events=every_events,
        every_s=every_s,
        to=places,
        known=own,
        heads=default_signed_heads(os.environ),
        at_end=False,
        on_error=lambda error: note(f"a checkpoint failed: {error_said(error)}"),
    )


def _parsed(every: str) -> tuple[int | None, float | None]:
    every_events: int | None = None
    every_s: float | None = None
    for part in map(str.strip, every.split(",")):
        found = _TIME.fullmatch(part)
        if found is not None and every_s is None and float(found["number"]) > 0:
            every_s = float(found["number"]) * _SECONDS[found["unit"]]
        elif _NUMBER.fullmatch(part) and every_events is None:
            every_events = int(part)
        else:
            raise UsageError(
                f"{EVERY_VARIABLE} is {every!r}: give a number of events, a time like 60s, or both: 1000,60s"
            )
    return every_events, every_s
