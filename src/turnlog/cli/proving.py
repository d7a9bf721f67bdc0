"""What commands on proofs have in common: what to withhold, the checkpoint to prove with, turns in their order."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

from cyclopts import Parameter

from turnlog.audit.anchors import read_note_text
from turnlog.audit.proof_events import ShownEvent
from turnlog.audit.proofs import (
    CONSISTENCY,
    PROOF_BYTES_MAX,
    REST_BYTES_MAX,
    ProofParts,
    ProofReport,
    split_notes,
)
from turnlog.cli.failures import UsageError
from turnlog.cli.text import count
from turnlog.errors import ProofError
from turnlog.events import CALL, TURN, Arrival, Recorded
from turnlog.events.sealing import SEALED
from turnlog.log import TurnLog
from turnlog.record import find_event

PARTS = ("private", "payload", "request", "loss", "secret")

Withhold = Annotated[
    tuple[str, ...],
    Parameter(
        negative=(),
        consume_multiple=False,
        help="What not to show: private, payload, request or loss; secret: leave sealed what is. Of one event:"
        " ID:payload. Repeatable.",
    ),
]
CheckpointFile = Annotated[
    Path | None, Parameter(help="The signed checkpoint to prove it with. By default the last one in the store.")
]


class Withholding:
    """What is not to be shown, as options say it. Once the proof is made, `check` tells whether all of it was met.

    Attributes:
        guests: the ids of events that are shown and are of another log.
    """

    def __init__(self, options: tuple[str, ...], log: TurnLog) -> None:
        """Take the options, and the log that they name events of.

        Raises:
            UsageError: an option names nothing that can be withheld.
            UnknownTurnError: an option names no event.
        """
        self.guests: list[str] = []
        self._wanted: dict[str, tuple[str | None, str]] = {}
        self._met: set[str] = set()
        self._opens_withheld = False
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
        if recorded.arrival == Arrival.GUEST:
            self.guests.append(recorded.header.id)
        has = {"private"} if recorded.private_state is not None else set[str]()
        has |= {"payload"} if recorded.stored_hash is not None else set[str]()
        has |= {"request", "loss"} if recorded.header.topic == CALL and recorded.private is not None else set[str]()
        has |= {"secret"} if recorded.sealed is not None else set[str]()
        met = {
            option: part
            for option, (event_id, part) in self._wanted.items()
            if part in has and event_id in (None, recorded.header.id)
        }
        self._met |= met.keys()
        parts = frozenset(met.values())
        is_opened = recorded.sealed is not None and recorded.private is not None
        self._opens_withheld |= is_opened and bool(parts) and parts.isdisjoint({"private", "secret"})
        return parts

    def check(self) -> None:
        """Check that each option withheld something, so that nobody publishes what was to be withheld.

        Raises:
            UsageError: one did not.
        """
        for option in self._wanted:
            if option not in self._met:
                raise UsageError(f"--withhold {option}: the proof has nothing of the kind; nothing was written")

    def warnings(self, proof: ProofParts) -> list[str]:
        """Return what is to be known of a proof that was made with this: a line for each."""
        found: list[str] = []
        parts = {part for _, part in self._wanted.values()}
        if parts - {"secret"} and "private" not in parts:
            found.append("the hash and the size of what is withheld are shown: short content can be guessed by them")
        if self._opens_withheld:
            found.append("the secrets of sealed events open what is withheld of them too, for who has the sealed bytes")
        if closed := closed_count(proof):
            found.append(f"{count(closed, 'event')} shown sealed: nobody reads what is in there without the key")
        if self.guests:
            found.append(
                f"{count(len(self.guests), 'event')} of another log, taken in by this one: the time of such a one is "
                "what that log said"
            )
        return found


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


@contextmanager
def proof_file(file: Path) -> Generator[BinaryIO]:
    """Open a proof file, so that it can be read more than once: also one that comes through a pipe.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        yield opened if opened.seekable() else io.BytesIO(opened.read(PROOF_BYTES_MAX + 1))


def consistency_text(file: BinaryIO) -> str | None:
    """Return the text of a file with a consistency proof; None for one with another proof, or with none.

    Raises:
        ProofError: it is too large for a proof, or not UTF-8.
        OSError: it cannot be read.
    """
    file.seek(0)
    first = f"{CONSISTENCY}\n".encode()
    if file.read(len(first)) != first:
        return None
    content = first + file.read(REST_BYTES_MAX + 1 - len(first))
    if len(content) > REST_BYTES_MAX:
        raise ProofError(f"a consistency proof has at most {REST_BYTES_MAX:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ProofError("the proof is not UTF-8") from error


def closed_count(proof: ProofParts) -> int:
    """Return of how many events a proof shows only what is sealed."""
    return sum(event.secret is None and (event.private or b"").startswith(SEALED) for event in proof.events)


def left_open(report: ProofReport) -> list[str]:
    """Return what a proof that holds leaves open, a line for each: what it does not show, and whose events it can have.

    Whoever passes a proof on can leave out any event but the first.
    """
    found: list[str] = []
    if report.not_shown:
        are = "is" if len(report.not_shown) == 1 else "are"
        found.append(f"{count(len(report.not_shown), 'cited event')} {are} not shown")
    if report.guests_possible:
        found.append("events of other logs can be among them: the time of such a one is what that log said")
    return found


def oldest_first(events: Sequence[ShownEvent]) -> list[ShownEvent]:
    """Return the turns of a proof as a window has them, up to the first event.

    What a turn continues comes before it, in listed order, and each once.
    """
    return next(conversations(events))


def conversations(events: Sequence[ShownEvent]) -> Iterator[list[ShownEvent]]:
    """Yield the same, and then the turns up to each one that no turn of the proof continues."""
    by_id = {event.id: event for event in events if event.topic == TURN}
    continued = {parent.id for turn in by_id.values() for parent in turn.event.header.parents}
    seen: set[str] = set()
    for last in (events[0], *(turn for turn in by_id.values() if turn.id not in continued)):
        found: list[ShownEvent] = []
        waiting = [(last, False)]
        while waiting:
            turn, done = waiting.pop()
            if done:
                found.append(turn)
            elif turn.id not in seen and turn.topic == TURN:
                seen.add(turn.id)
                waiting.append((turn, True))
                parents = [by_id[one.id] for one in turn.event.header.parents if one.id in by_id]
                waiting += [(parent, False) for parent in reversed(parents)]
        yield found
