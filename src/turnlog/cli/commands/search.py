"""`turnlog search` and `usage`: what projections of the log tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from turnlog.cli.completing import complete_bookmarks
from turnlog.cli.failures import UsageError
from turnlog.cli.filters import parse_span
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, note, write_json_lines
from turnlog.cli.progress import progress_bar
from turnlog.cli.rows import shown_ids, when
from turnlog.cli.text import count, one_line, piece_of_line
from turnlog.feeds.search import LIMIT_MAX, Found
from turnlog.feeds.usage import By, ToolSum, UsageSum
from turnlog.feeds.words import MARKS
from turnlog.projections import TurnFilter

_END_CHARACTERS = 100
_MARKED = re.compile(f"[{''.join(MARKS)}]")
_NAME_LEAST = 12
"""A name is cut to so many characters before numbers are."""


def search(
    *query: str,
    thread: Annotated[
        str | None,
        Parameter(completer=complete_bookmarks, help="Only turns of the threads of this turn, by id or bookmark."),
    ] = None,
    role: Annotated[Literal["user", "assistant", "system"] | None, Parameter(help="Only turns of this role.")] = None,
    model: Annotated[str | None, Parameter(help="Only replies of this model; patterns as 'claude-*' are fine.")] = None,
    since: Annotated[
        str | None,
        Parameter(help="Only what was said then or later: 2026-01-31, yesterday, 2026-01-31T15:00, 48h."),
    ] = None,
    until: Annotated[str | None, Parameter(help="Only what was said before then.")] = None,
    newest: Annotated[bool, Parameter(negative=(), help="The newest first, and not the best match.")] = False,
    limit: Annotated[int, Parameter(alias="-n", help="How many turns at most.")] = 20,
    common: Common = COMMON,
) -> None:
    """Find turns by their words. All of them must be there.

    "two words" in quotes is a phrase, wor* the beginning of a word. The index is brought up to date first.

    Parameters
    ----------
    query
        The words.
    """
    if not query:
        raise UsageError("search: give the words: turnlog search WORDS")
    after, before = parse_span(since, until)
    which = TurnFilter(since=after, until=before, role=role, model=model)
    with common.open() as log:
        with progress_bar("indexing") as progress:
            found = log.feeds.search(
                " ".join(query),
                thread=thread,
                which=which,
                newest=newest,
                limit=limit + 1 if 0 < limit < LIMIT_MAX else limit,  # one more tells whether there are more
                progress=progress,
            )
        sealed = log.feeds.unsearchable()
    shown = found[:limit]
    if common.json:
        write_json_lines(shown)
    else:
        screen = Screen.of_stdout()
        for each in shown:
            _write(screen, each)
        if not found:
            note("nothing found")
    if len(found) > limit:
        note(f"there are more than {count(limit, 'turn')}: `--limit N` prints N of them")
    if sealed:
        note(f"{count(sealed, 'sealed turn')} cannot be found: what is sealed is not indexed")


def _write(screen: Screen, found: Found) -> None:
    who = found.role if found.model is None else f"{found.role} {found.model}"
    time = when(screen, datetime.fromisoformat(found.time), datetime.now(UTC))
    screen.line((found.turn, "yellow"), "  ", (one_line(who), "cyan"), "  ", (time, "dim"))
    pieces: list[Piece] = ["  "]
    for number, text in enumerate(_MARKED.split(found.snippet)):
        shown = piece_of_line(_shortened(text))
        pieces.append((shown, "bold") if number % 2 else shown)
    screen.line(*pieces, cut=True)


def _shortened(text: str) -> str:
    """Return a part of a snippet without the middle of what is long: a word can have any length, as of base64."""
    return text if len(text) <= 2 * _END_CHARACTERS else f"{text[:_END_CHARACTERS]}…{text[-_END_CHARACTERS:]}"


def usage(
    *,
    by: Annotated[
        tuple[By, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="What to sum by: by default day, of UTC. Repeatable, as for each model by day.",
        ),
    ] = (),
    model: Annotated[str | None, Parameter(help="Only replies of this model; patterns as 'claude-*' are fine.")] = None,
    since: Annotated[
        str | None,
        Parameter(help="Only what was said then or later: 2026-01-31, yesterday, 2026-01-31T15:00Z, 48h."),
    ] = None,
    until: Annotated[str | None, Parameter(help="Only what was said before then.")] = None,
    tools: Annotated[
        bool, Parameter(negative=(), help="What tools were called instead, and what became of it.")
    ] = False,
    common: Common = COMMON,
) -> None:
    """Print what replies of models took: their number, and tokens. Brought up to date first."""
    if tools:
        if by or (model, since, until) != (None,) * 3:
            raise UsageError("usage: --by, --model, --since and --until are of tokens, and --tools counts calls")
        _print_tools(common)
        return
    after, before = parse_span(since, until)
    _print_usage(by or ("day",), TurnFilter(since=after, until=before, model=model), common)


def _print_usage(by: Sequence[By], which: TurnFilter, common: Common) -> None:
    screen = Screen.of_stdout()
    with common.open() as log, progress_bar("counting") as progress:
        sums = log.feeds.usage(by, which=which, progress=progress)
        threads = {dict(zip(by, each.keys, strict=True)).get("thread") for each in sums}
        short = shown_ids(log, [log.turn(thread) for thread in threads if thread is not None], screen)
        total = log.feeds.total_usage(which=which)
        there_are = total.replies or log.feeds.total_usage().replies
    if common.json:
        write_json_lines(map(_record, sums))
        return
    if total.untold:
        note(f"replies that do not say what they took count as 0: {total.untold:,} of {total.replies:,}")
    if not sums:
        note("none of the replies is such a one" if there_are else "no replies of models yet")
        return
    rows = [_row(each, [short.get(key or "", key or "-") for key in each.keys]) for each in sums]
    rows += [_row(total, ["all", *("" for _ in by[1:])])] if len(sums) > 1 else []
    table = _table([*by, "replies", "input", "output", "cache write", "cache read", "reasoning", "total"], rows)
    screen.table(table if screen.width is None else _without_zeros(table), least=_NAME_LEAST)


def _print_tools(common: Common) -> None:
    screen = Screen.of_stdout()
    with common.open() as log, progress_bar("counting") as progress:
        sums = log.feeds.tools(progress=progress)
        with log.store.read() as transaction:
            sealed = transaction.seal_policy() is not None
    if sealed:
        note("calls in sealed turns are not counted: what is sealed is not indexed")
    if common.json:
        write_json_lines(map(_record, sums))
    elif sums:
        head = ["tool", "calls", "results", "errors", "mean time", "not called"]
        screen.table(_table(head, list(map(_tool_row, sums))), least=_NAME_LEAST)
    elif not sealed:
        note("no tools were called yet")


def _table(head: list[str], rows: list[list[Piece]]) -> list[list[Piece]]:
    return [[(name, "dim") for name in head], *rows]


def _record(each: UsageSum | ToolSum) -> dict[str, Any]:
    record = msgspec.structs.asdict(each)
    if not isinstance(each, UsageSum):
        return record
    return {"key": each.key, **record, "usage": each.usage.to_record()}


def _without_zeros(rows: list[list[Piece]]) -> list[list[Piece]]:
    """Return a table without columns that have nothing but zeros: a terminal has no room for them."""
    kept = [any(cell != "0" for cell in column[1:]) for column in zip(*rows, strict=True)]
    kept[-1] = True  # the total
    return [[cell for cell, is_kept in zip(row, kept, strict=True) if is_kept] for row in rows]


def _row(each: UsageSum, names: Sequence[str]) -> list[Piece]:
    tokens = each.usage
    numbers = (
        each.replies,
        tokens.input_tokens,
        tokens.output_tokens,
        tokens.cache_creation_input_tokens,
        tokens.cache_read_input_tokens,
        tokens.reasoning_tokens,
        tokens.total_tokens,
    )
    return [*((one_line(name), "cyan") for name in names), *(f"{number:,}" for number in numbers)]


def _tool_row(each: ToolSum) -> list[Piece]:
    numbers = (each.calls, each.results, each.errors)
    return [
        (one_line(each.name), "cyan"),
        *(f"{number:,}" for number in numbers),
        _ms(each.mean_ms),
        f"{each.not_called:,}",
    ]


def _ms(milliseconds: float | None) -> str:
    """Return a time as people read it: below a second to the millisecond."""
    if milliseconds is None:
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:,.1f} s"
