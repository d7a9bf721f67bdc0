"""Which turns and threads a listing shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Literal, TypeVar

import msgspec
from cyclopts import Parameter

from turnlog.cli.completing import complete_bookmarks
from turnlog.cli.failures import UsageError
from turnlog.cli.progress import progress_bar
from turnlog.cli.text import UNITS_S
from turnlog.cli.usage import options
from turnlog.log import TurnLog
from turnlog.projections import Bookmark, Thread, TurnFilter
from turnlog.projections.bookmarks import all_bookmarks, bookmarks_like
from turnlog.record.lookup import find_turn
from turnlog.store import ReadTransaction
from turnlog.turn import Turn, fitting, turn_of

T = TypeVar("T")

_AGO = re.compile(f"([0-9]{{1,6}})({'|'.join(UNITS_S)})")
"""What listings say of a time is a time too."""
_WHEN = "a day (2026-11-22, today, yesterday), a time (2026-11-22T15:00), or how long ago (90m, 48h, 7d, 2w)"


def none_of(what: str, log: TurnLog, bookmark: str | None) -> str:
    """Return what to say where nothing is wanted of a listing: also that a name may be misspelled."""
    if bookmark is None or bookmarks_named(log, bookmark):
        return f"none of the {what} is such a one"
    return f"no bookmark is such a one as {bookmark!r}: `turnlog bookmarks` lists what there is"


def bookmarks_named(log: TurnLog, pattern: str) -> list[Bookmark]:
    """Return the bookmarks of a log whose names fit a pattern, by name."""
    with log.store.read() as transaction:
        return bookmarks_like(transaction, pattern)


def is_one_of(ids: Collection[str] | None) -> Callable[[Turn], bool] | None:
    """Return what tells whether a turn is one of some; None for None."""
    return None if ids is None else lambda turn: turn.id in ids


def parse_time(text: str, option: str, *, now: datetime | None = None) -> datetime:
    """Return the time that a person means. Days and times without a zone are those of this machine.

    Args:
        text: what the person typed.
        option: where.
        now: what time it is; None for that of this machine.

    Raises:
        UsageError: it is none.
    """
    now = now or datetime.now(UTC)
    try:
        if text in ("today", "yesterday"):
            # Without a zone, as on that day the clock may be another one than now.
            today = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
            return (today - timedelta(days=text == "yesterday")).astimezone()
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return now - int(ago[1]) * timedelta(seconds=UNITS_S[ago[2]])
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{option} {text!r}: give {_WHEN}") from error


def parse_span(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Return the times that a person means by `--since` and `--until`; None where one is not given.

    Raises:
        UsageError: one is none, or nothing can be between them.
    """
    start = None if since is None else parse_time(since, "--since")
    end = None if until is None else parse_time(until, "--until")
    if start is not None and end is not None and end <= start:
        raise UsageError(f"--until {until!r} is not after --since {since!r}: nothing is between them")
    return start, end


@options
class ListOptions:
    """How much of a listing is shown, and of which time."""

    limit: Annotated[int | None, Parameter(alias="-n", help="Only so many: the latest.")] = None
    since: Annotated[
        str | None, Parameter(help="Only of this time or later: 2026-11-22, yesterday, 2026-11-22T15:00, 48h, 7d.")
    ] = None
    until: Annotated[str | None, Parameter(help="Only before this time.")] = None

    def check(self) -> None:
        """Check what can be checked without a log.

        Raises:
            UsageError: a limit is below 1, a time is none, or nothing can be between the two.
        """
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit must be at least 1, got {self.limit}")
        self.filter()

    def filter(self) -> TurnFilter:
        """Return which turns are wanted, by the time and by what else a listing takes.

        Raises:
            UsageError: a time is none, or nothing can be between the two.
        """
        since, until = parse_span(self.since, self.until)
        return TurnFilter(since=since, until=until)

    def latest(self, found: Sequence[T]) -> list[T]:
        """Return the last ones of what stands in its order, as many as are wanted."""
        return list(found if self.limit is None else found[-self.limit :])


@options
class TurnListing(ListOptions):
    """Which turns are listed."""

    role: Annotated[Literal["user", "assistant", "system"] | None, Parameter(help="Only turns of this role.")] = None
    model: Annotated[str | None, Parameter(help="Only turns of this model; patterns as 'claude-*' are fine.")] = None
    bookmark: Annotated[
        str | None,
        Parameter(
            alias="-b", completer=complete_bookmarks, help="Only heads of this bookmark; patterns as 'trip*' are fine."
        ),
    ] = None

    def filter(self) -> TurnFilter:
        """Return which turns are wanted, whatever bookmarks are at them."""
        return msgspec.structs.replace(super().filter(), role=self.role, model=self.model)

    @property
    def takes_all(self) -> bool:
        """Whether every turn fits, so that the latest ones are those that were recorded last."""
        return self.bookmark is None and self.fits() is None

    @property
    def is_all(self) -> bool:
        """Whether everything is wanted."""
        return self.takes_all and self.limit is None

    def heads(self, log: TurnLog) -> set[str] | None:
        """Return the ids of the turns that the bookmarks of the name are at; None where every turn will do."""
        if self.bookmark is None:
            return None
        return {each.turn for each in bookmarks_named(log, self.bookmark)}

    def fits(self, heads: Collection[str] | None = None) -> Callable[[Turn], bool] | None:
        """Return what tells whether a turn is wanted and was said in the time; None where each is.

        Raises:
            UsageError: a time is none.
        """
        return fitting(self.filter(), is_one_of(heads))

    def of(self, turns: Sequence[Turn], log: TurnLog) -> list[Turn]:
        """Return the turns of a log that are wanted, however many.

        Raises:
            UsageError: a time is none.
        """
        return list(filter(self.fits(self.heads(log)) or bool, turns))


@options
class BookmarkListing(TurnListing):
    """Which bookmarks are listed, by their turns."""

    bookmark: Annotated[
        str | None,
        Parameter(
            alias="-b", completer=complete_bookmarks, help="Only bookmarks of this name; patterns as 'trip*' are fine."
        ),
    ] = None

    def of_bookmarks(self, transaction: ReadTransaction) -> list[Bookmark]:
        """Return the bookmarks that are wanted, by name. No more turns are read than it takes to tell.

        Raises:
            UsageError: a time is none.
            UnknownTurnError: the turn of one is missing.
        """
        named = self.bookmark
        found = all_bookmarks(transaction) if named is None else bookmarks_like(transaction, named)
        fits = self.fits()
        if fits is None and self.limit is None:
            return found
        at = transaction.located({each.turn for each in found})
        latest = sorted(found, key=lambda each: at[each.turn].global_position if each.turn in at else 0)[::-1]
        wanted = (each for each in latest if fits is None or fits(turn_of(find_turn(transaction, each.turn))))
        most = len(latest) if self.limit is None else min(self.limit, len(latest))
        kept = {each.name for each in islice(wanted, most)}
        return [each for each in found if each.name in kept]


@options
class ExportChoice(TurnListing):
    """Which turns are exported; each with its ancestry."""

    limit: Annotated[
        int | None,
        Parameter(alias="-n", help="Only so many of the turns that none of the others continues: the latest."),
    ] = None


@options
class ThreadListing(ListOptions):
    """Which threads are listed: by the time of their last turn, their bookmarks, and what turns they have."""

    role: Annotated[
        Literal["user", "assistant", "system"] | None, Parameter(help="Only threads with a turn of this role.")
    ] = None
    model: Annotated[
        str | None, Parameter(help="Only threads with a turn of this model; patterns as 'claude-*' are fine.")
    ] = None
    bookmark: Annotated[
        str | None,
        Parameter(
            alias="-b",
            completer=complete_bookmarks,
            help="Only threads with this bookmark; patterns as 'trip*' are fine.",
        ),
    ] = None

    def filter(self) -> TurnFilter:
        """Return of which turn a thread has to have one, and when its last one was said."""
        return msgspec.structs.replace(super().filter(), role=self.role, model=self.model)

    def of(self, log: TurnLog) -> list[Thread]:
        """Return the threads of a log that are wanted, the one with the latest activity last.

        Raises:
            UsageError: a time is none.
        """
        with progress_bar("indexing", at_once=False) as progress:
            return log.threads(self.limit, which=self.filter(), bookmark=self.bookmark, progress=progress)
