"""Turns as rows for people: graph, id, who, when, bookmarks, first line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from turnlog.cli.output import Piece, Screen, column
from turnlog.cli.preview import DAMAGED, previews
from turnlog.cli.text import age, count, marked, one_line, timestamp
from turnlog.errors import CorruptionError
from turnlog.events import PARENT, Citation
from turnlog.log import TurnLog
from turnlog.projections.bookmarks import all_bookmarks
from turnlog.record.lookup import short_ids
from turnlog.turn import Turn

_ROLE_STYLES = {"user": "bold cyan", "assistant": "bold magenta", "system": "bold yellow"}
_ROLE_WIDTH = max(map(len, _ROLE_STYLES))
_CHARACTERS_MIN = 8
_SHORTENED_MAX = 2000


def role_style(role: str) -> str:
    """Return the style of a speaker."""
    return _ROLE_STYLES.get(role, "bold")


def cited_as(citation: Citation) -> str:
    """Return as what an event is cited, as no other fact is named: whoever records chooses that too."""
    return "continues" if citation.relation == PARENT else f"cites as {one_line(citation.relation)}"


def when(screen: Screen, time: datetime, now: datetime) -> str:
    """Return a time: how long ago on a terminal, exactly where a program may read it."""
    return timestamp(time) if screen.width is None else age(time, now)


def shown_ids(log: TurnLog, turns: Sequence[Turn], screen: Screen) -> Mapping[str, str]:
    """Return what stands for the ids of turns on a terminal: beginnings that name them. Programs are shown whole ids.

    So are people who are shown very many.
    """
    if screen.width is None or len(turns) > _SHORTENED_MAX:
        return {}
    with log.store.read() as transaction:
        return short_ids(transaction, [turn.id for turn in turns], characters_min=_CHARACTERS_MIN)


def names_by_turn(log: TurnLog) -> dict[str, list[str]]:
    """Return the bookmarks that point at each turn."""
    found: dict[str, list[str]] = {}
    with log.store.read() as transaction:  # `log.bookmarks` can set them too, and so imports what recording needs
        bookmarks = all_bookmarks(transaction)
    for bookmark in bookmarks:
        found.setdefault(bookmark.turn, []).append(bookmark.name)
    return found


class TurnRows(Struct, frozen=True, kw_only=True):
    """What the rows of turns need beside the turns: the screen, bookmarks, first lines, and what time it is.

    A damaged turn has a row that says so, so that the others are shown; `check` tells of it behind them.
    """

    screen: Screen
    ids: Mapping[str, str]
    names: Mapping[str, Sequence[str]]
    lines: Mapping[str, str]
    now: datetime
    damages: list[CorruptionError]

    @classmethod
    def of(
        cls,
        log: TurnLog,
        turns: Sequence[Turn],
        screen: Screen,
        *,
        names: Mapping[str, Sequence[str]] | None = None,
        lines_of: Callable[[TurnLog, Sequence[Turn], list[CorruptionError]], dict[str, str]] = previews,
    ) -> TurnRows:
        """Read what the rows of these turns need.

        Args:
            log: where they are.
            turns: the turns.
            screen: where they are shown.
            names: bookmarks by turn, where it is known which to show.
            lines_of: what to say of each.
        """
        damages: list[CorruptionError] = []
        return cls(
            screen=screen,
            ids=shown_ids(log, turns, screen),
            names=names_by_turn(log) if names is None else names,
            lines=lines_of(log, turns, damages),
            now=datetime.now(UTC),
            damages=damages,
        )

    def line(self, turn: str) -> Piece:
        """Return what a turn says, by its id."""
        return (DAMAGED, "bold red") if self.lines[turn] == DAMAGED else self.lines[turn]

    def check(self) -> None:
        """Tell of damage, once all is shown.

        Raises:
            CorruptionError: the payload of a turn is damaged.
        """
        if self.damages:
            error, *others = self.damages
            if others:
                error.add_note(f"{count(len(others), 'more turn')} cannot be read either: run `turnlog verify`")
            raise error

    def pieces(self, turn: Turn) -> list[Piece]:
        """Return a turn as the parts of a line."""
        time = when(self.screen, turn.said_at, self.now)
        pieces: list[Piece] = [
            (self.ids.get(turn.id, turn.id), "yellow"),
            "  ",
            column(turn.meta.role, _ROLE_WIDTH, role_style(turn.meta.role)),
            (f"  {time:>3}  ", "dim"),
        ]
        if names := self.names.get(turn.id):
            pieces.append((f"{marked(names)} ", "bold green"))
        pieces.append((self.lines[turn.id], "red") if turn.meta.failed else self.line(turn.id))
        return pieces

    def write(self, turns: Iterable[Turn]) -> None:
        """Print turns, one a line.

        Raises:
            CorruptionError: the payload of one is damaged. All are shown before.
        """
        for turn in turns:
            self.screen.line(*self.pieces(turn), cut=True)
        self.check()
