"""What an import of a transcript says, and what it stores about pieces."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class Problem(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be in a file.

    Attributes:
        place: number of the line, document or row, from 1; 0 for the file as a whole.
        what: one line that says what is wrong and what was done about it.
    """

    place: int
    what: str


class PieceMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The private metadata of the event of a piece. It cites the turn that the piece is of as `turn`.

    Attributes:
        id: the id that it has in the format.
        session: the session that it is of.
        type: its kind in the format's own word, where the topic does not spell it the same way.
        redacted: how many of which kind redaction hooks took out of it, but for what is in its turn.
    """

    id: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    redacted: dict[str, int] | UnsetType = UNSET


class TranscriptReport(Struct, frozen=True, kw_only=True):
    """What an import of a transcript found and did.

    Attributes:
        path: the file or folder.
        format: its format.
        sessions: ids of its sessions, in the order in which they begin.
        places: number of its lines, documents or rows: each is in `pieces`, blank or damaged.
        blank: those without anything, which are not kept.
        damaged: those that could not be read, which are not kept; `problems` names each.
        pieces: number of pieces by type, sorted by type. Each is an event of the log.
        events_added: events of pieces that were new, turns not counted.
        turns_added: turns that were new.
        turns_known: turns of the file that the log had already.
        continued: turns that go on with one that was imported when the file ended in the middle of it.
        roots: ids of the turns of the file that continue nothing, in file order.
        heads: ids of the turns of the file that no other turn of the file continues, in file order.
        problems: what is wrong with the file, by place.
        redacted: how many of which kind redaction hooks took out of the file, whether it was new or known.
    """

    path: str
    format: str
    sessions: tuple[str, ...]
    places: int
    blank: int
    damaged: int
    pieces: dict[str, int]
    events_added: int
    turns_added: int
    turns_known: int
    continued: tuple[str, ...]
    roots: tuple[str, ...]
    heads: tuple[str, ...]
    problems: tuple[Problem, ...]
    redacted: dict[str, int] | UnsetType = UNSET
