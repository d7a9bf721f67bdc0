"""What an import says and stores about lines: its report, and the metadata of line events."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class Problem(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be in a session file.

    Attributes:
        line: number of the line, from 1.
        what: one line that says what is wrong and what was done about it.
    """

    line: int
    what: str


class LineMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The private metadata of a `claude-code.<type>` event.

    The event cites as its `turn` the one that the line became, whole or in part; a line that is no message the nearest
    turn up its parent chain, if there is one.

    Attributes:
        uuid: the line's own uuid.
        session: the line's sessionId.
        line_type: the line's type, where the topic does not spell it the same way.
        redacted: how many of which kind redaction hooks took out of the line, but for what is in its turn.
    """

    uuid: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    line_type: str | UnsetType = UNSET
    redacted: dict[str, int] | UnsetType = UNSET


class ImportReport(Struct, frozen=True, kw_only=True):
    """What an import of a session file found and did.

    Every line is accounted for: `lines` is `blank_lines` + `damaged_lines` + the sum of `line_types`.

    Attributes:
        path: the file.
        sessions: ids of the sessions that its lines name, in the order of their first line.
        lines: number of lines.
        blank_lines: lines without anything, which are not kept.
        damaged_lines: lines that are not JSON objects, which are not kept; `problems` names each.
        line_types: number of the other lines by type, sorted by type. Each is an event of the log.
        events_added: line events that were new, turns not counted.
        turns_added: turns that were new.
        turns_known: turns of the file that the log had already.
        continued_messages: ids of the messages of which the log had some fragments already, from an earlier and shorter
            version of the file: what is new of each became a turn that continues the earlier one.
        roots: ids of the turns of the file that continue nothing, in file order.
        heads: ids of the turns of the file that no other turn of the file continues, in file order.
        problems: what is wrong with the file, by line.
        redacted: how many of which kind redaction hooks took out of the file, whether its lines were new or known.
    """

    path: str
    sessions: tuple[str, ...]
    lines: int
    blank_lines: int
    damaged_lines: int
    line_types: dict[str, int]
    events_added: int
    turns_added: int
    turns_known: int
    continued_messages: tuple[str, ...]
    roots: tuple[str, ...]
    heads: tuple[str, ...]
    problems: tuple[Problem, ...]
    redacted: dict[str, int] | UnsetType = UNSET
