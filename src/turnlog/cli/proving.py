"""What commands that make proofs have in common: what to withhold, and the checkpoint to prove with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turnlog.audit.anchors import read_note_text
from turnlog.audit.proofs import split_notes
from turnlog.cli.failures import UsageError
from turnlog.events import CALL, Recorded
from turnlog.log import TurnLog
from turnlog.record import find_event

PARTS = ("private", "payload", "request", "loss")

Withhold = Annotated[
    tuple[str, ...],
    Parameter(
        negative=(),
        consume_multiple=False,
        help="What not to show: private, payload, request or loss; of one event: ID:payload. Repeatable.",
    ),
]
CheckpointFile = Annotated[
    Path | None, Parameter(help="The signed checkpoint to prove it with. By default the last one in the store.")
]


class Withholding:
    """What is not to be shown, as options say it. Once the proof is made, `check` tells whether all of it was met."""

    def __init__(self, options: tuple[str, ...], log: TurnLog) -> None:
        """Take the options, and the log that they name events of.

        Raises:
            UsageError: an option names nothing that can be withheld.
            UnknownTurnError: an option names no event.
        """
        self._wanted: dict[str, tuple[str | None, str]] = {}
        self._met: set[str] = set()
        for option in options:
            event, colon, part = option.rpartition(":")
            if part not in PARTS or (colon and not event):
                raise UsageError(f"--withhold {option!r}: one of {', '.join(PARTS)}, or ID:{PARTS[1]}")
            event_id = None
            if colon:
                with log.store.read() as transaction:
                    event_id = find_event(transaction, event).header.id
            self._wanted[option] = (event_id, part)

    def __call__(self, recorded: Recorded) -> frozenset[str]:
        """Tell what is not to be shown of an event."""
        has = {"private"} if recorded.private_state is not None else set[str]()
        has |= {"payload"} if recorded.hash is not None else set[str]()
        has |= {"request", "loss"} if recorded.header.topic == CALL else set[str]()
        met = {
            option: part
            for option, (event_id, part) in self._wanted.items()
            if part in has and event_id in (None, recorded.header.id)
        }
        self._met |= met.keys()
        return frozenset(met.values())

    def check(self) -> None:
        """Check that each option withheld something, so that nobody publishes what was to be withheld.

        Raises:
            UsageError: one did not.
        """
        for option in self._wanted:
            if option not in self._met:
                raise UsageError(f"--withhold {option}: the proof has nothing of the kind; nothing was written")

    @property
    def warning(self) -> str:
        """What is to be known of what is withheld; empty if nothing is."""
        parts = {part for _, part in self._wanted.values()}
        if not parts or "private" in parts:
            return ""
        return "the hash and the size of what is withheld are shown: short content can be guessed by them"


def read_one_note(file: Path) -> str:
    """Read a file with one signed checkpoint.

    Raises:
        UsageError: it has none, or several.
        OSError: it cannot be read.
    """
    notes = split_notes(read_note_text(file))
    if len(notes) != 1:
        raise UsageError(f"{str(file)!r} has {len(notes)} checkpoints, and one is wanted: give a file with one")
    return notes[0]
