"""`turnlog erase`, `retain` and `hold`: take content away for good, by name or by age, and keep what must be kept."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import chain
from typing import Annotated

from cyclopts import App, Parameter

from turnlog.audit.asking import request
from turnlog.audit.erasure_report import ErasureReport
from turnlog.audit.holds import Hold
from turnlog.audit.targets import cited_targets
from turnlog.audit.unerased import unerased
from turnlog.cli.asking import agrees
from turnlog.cli.completing import complete_bookmarks
from turnlog.cli.failures import EXIT_REMAINS, UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, check_output, note, noting, telling, write_json, write_json_lines
from turnlog.cli.text import count, one_line, size
from turnlog.cli.usage import options
from turnlog.errors import StoreError
from turnlog.events import ERASURE
from turnlog.events.times import time_of
from turnlog.feeds.sinks import FeedState
from turnlog.log import TurnLog
from turnlog.store import past_damage
from turnlog.store.urls import is_postgres

_NAMED_MAX = 3
"""So many turns are told by their ids."""

_ERASED = "it is erased, and that is recorded"
_RETAINED = "what is due is erased, and that is recorded"

_UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"([1-9][0-9]{0,5})([hdw])")


@options
class Which:
    """What is meant: turns, threads or a subject."""

    turn: Annotated[
        tuple[str, ...],
        Parameter(
            completer=complete_bookmarks,
            negative=(),
            consume_multiple=False,
            help="A turn, by id or bookmark; or an imported line, or what is damaged, by id. Give it again for more.",
        ),
    ] = ()
    thread: Annotated[
        tuple[str, ...],
        Parameter(
            completer=complete_bookmarks,
            negative=(),
            consume_multiple=False,
            help="All turns of the threads that this turn belongs to. Give it again for more.",
        ),
    ] = ()
    subject: Annotated[
        str | None, Parameter(help="All turns of a subject, as --subject of `turnlog add` names it.")
    ] = None

    @property
    def turns(self) -> tuple[str, ...] | None:
        """The turns; None where there are none."""
        return self.turn or None

    @property
    def threads(self) -> tuple[str, ...] | None:
        """The threads; None where there are none."""
        return self.thread or None

    def check(self, command: str) -> None:
        """Check that one kind is given.

        Raises:
            UsageError: none is, or several are.
        """
        if sum(map(bool, (self.turn, self.thread, self.subject is not None))) != 1:
            raise UsageError(f"{command}: give --turn, --thread or --subject, and one of them")


_WHICH = Which()
_YES = Annotated[bool, Parameter(alias="-y", negative=(), help="Do not ask.")]


def erase(
    *,
    which: Which = _WHICH,
    reason: Annotated[
        str | None, Parameter(help="Why. It is kept for ever, so it should not repeat or name what is erased.")
    ] = None,
    by: Annotated[str | None, Parameter(help="Who asked for it. It is kept as well.")] = None,
    dry_run: Annotated[bool, Parameter(negative=(), help="Only say what would be erased.")] = False,
    finish: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Erase nothing new: remove traces that an erasure had to leave in files, and what it names and is "
            "there again, as from an older copy.",
        ),
    ] = False,
    yes: _YES = False,
    common: Common = COMMON,
) -> int:
    """Erase turns for good, with all that carries their content. What proves the log stays.

    Recorded requests that have one of the turns in their window go with it, and the replies to them; so do lines of
    imported transcripts. At a terminal you are asked before. Exit status 1 if traces are still in files of the store.
    """
    if finish:
        _check_finish(which, reason=reason, by=by, dry_run=dry_run)
        with common.open() as log:
            with log.store.read() as transaction, past_damage(transaction):
                end, there = transaction.log_end(), sum(1 for _ in unerased(transaction))
            if there and not yes:
                _check_somebody_is_here(f"--yes erases again the {count(there, 'event')} that earlier erasures name")
                _ask(f"{count(there, 'event')} that earlier erasures name {'is' if there == 1 else 'are'} here: erase")
            remains = log.finish_erasing()
            again = sum(len(cited_targets(erasure)) for erasure in log.events(end, topics=ERASURE))
            return _tell_remains(remains, again, common)
    which.check("erase")
    if not dry_run and not (reason or "").strip():
        raise UsageError("erase: say why with --reason: it is all that will be left to tell")
    if dry_run:
        check_output()
    with noting() as done, common.open() as log:
        seen = None
        if not dry_run and not yes:
            which, seen = _confirm(log, which, common)
        report = log.erase(
            turn=which.turns,
            thread=which.threads,
            subject=which.subject,
            reason=reason or "dry run",
            by=by,
            seen=seen,
            dry_run=dry_run,
        )
        if report.erasures:
            done.append(_ERASED)
        feeds = _delivered_to(log, report)
    with telling(f"{_ERASED}, but it could not be printed" if report.erasures else "nothing was erased"):
        _write_report(report, common, feeds)
    _tell_beyond(feeds, dry_run=dry_run)
    return 0 if report.remains is None else EXIT_REMAINS


def _check_finish(which: Which, *, reason: str | None, by: str | None, dry_run: bool) -> None:
    """Refuse what `--finish` has no use for: earlier erasures say what goes, and why.

    Raises:
        UsageError: it is given.
    """
    if dry_run:
        raise UsageError("erase: --finish has no --dry-run: `turnlog verify` names what it would erase again")
    given = {
        "--turn": which.turns,
        "--thread": which.threads,
        "--subject": which.subject,
        "--reason": reason,
        "--by": by,
    }
    named = [option for option, value in given.items() if value is not None]
    if named:
        raise UsageError(
            f"erase: --finish is for all that earlier erasures name: leave out {', '.join(named)},"
            " or leave out --finish to erase something new"
        )


def _delivered_to(log: TurnLog, report: ErasureReport) -> Sequence[FeedState]:
    """Return the feeds that have delivered it; none where that is not known, which the report tells."""
    would = chain(report.turns, report.calls, report.replies, report.lines, report.tool_calls, report.summaries)
    try:
        return log.feeds.delivered_to(would if report.dry_run else report.erasures)
    except StoreError:
        return []


def _tell_beyond(feeds: Sequence[FeedState], *, dry_run: bool) -> None:
    """Say who has been sent what is erased, and is told so by the erasure's event."""
    for feed in (each for each in feeds if not each.takes_back):
        topics = feed.choice.topics
        is_sent = "would be sent" if dry_run else "is sent"
        told = "" if topics and ERASURE not in topics else f", and {is_sent} the erasure as an event"
        named = "" if feed.name == f"{feed.kind}:{feed.destination}" else f" (feed {one_line(feed.name)!r})"
        note(
            f"{one_line(feed.kind)} {one_line(feed.destination)}{named} may have been sent some of it{told}: what it "
            "keeps is not taken back"
        )


def _confirm(log: TurnLog, which: Which, common: Common) -> tuple[Which, int]:
    """Show what is to be erased and ask, if there is somebody to ask.

    Returns:
        What was shown: with ids, for a bookmark can move meanwhile; and up to where the log was looked at.

    Raises:
        UsageError: the answer is no, or nobody is there to be asked.
    """
    _check_somebody_is_here("--yes, or see with --dry-run what it would be")
    with log.store.read() as transaction:
        named = request(which.turns, which.threads, which.subject).named(transaction)
    shown = Which(turn=named.turns, thread=named.threads, subject=named.subject)
    found = log.erase(turn=shown.turns, thread=shown.threads, subject=shown.subject, reason="dry run", dry_run=True)
    if found.events:
        if not common.json:
            feeds = _delivered_to(log, found)
            _write_report(found, common, feeds)
            sys.stdout.flush()
            _tell_beyond(feeds, dry_run=True)
        _ask(f"erase {count(found.events, 'event')}")
    return shown, found.seen


def _check_somebody_is_here(what: str) -> None:
    """Raise if nobody is there to be asked.

    Raises:
        UsageError: nobody is.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"erase: nobody is here to be asked: {what}")


def _ask(what: str) -> None:
    """Ask whether something is to be done for good.

    Raises:
        UsageError: the answer is no.
    """
    if not agrees(f"{what} for good?"):
        raise UsageError("nothing was erased")


def _tell_remains(remains: str | None, again: int, common: Common) -> int:
    with telling("what earlier erasures name is erased, as far as it can be, but that could not be printed"):
        if common.json:
            write_json({"remains": remains, "erased_again": again})
        elif again:
            Screen.of_stdout().line(
                ("erased again", "bold red"),
                f"  {count(again, 'event')} that earlier erasures name, or that rest on them",
            )
        if remains is None and not common.json:
            Screen.of_stdout().line((f"nothing of what was erased here is left in the {_files(common)}", "green"))
    if remains is not None:
        note(remains)
    return 0 if remains is None else EXIT_REMAINS


def _files(common: Common) -> str:
    if is_postgres(common.url):
        return (
            "tables; the write-ahead log, its archive, standbys and backups keep it for as long as they keep anything"
        )
    return "files of the store"


def _write_report(report: ErasureReport, common: Common, feeds: Sequence[FeedState]) -> None:
    if common.json:
        write_json(report.to_record())
    else:
        _write_lines(Screen.of_stdout(), report, feeds)
    for subject in () if common.json else report.alike:
        spelled = "" if subject.isascii() else f" ({subject!a})"
        note(f"there is a subject {one_line(repr(subject))}{spelled} that is spelled otherwise, and is not erased")
    if report.unseen and not common.json:
        turns = count(len(report.unseen), "sealed turn")
        note(f"{turns} of another log may be of it too: that cannot be seen without its keys, and they are not erased")
    if not common.json:
        _tell_damaged(report)
    _tell_at_work(report)
    if report.remains is not None:
        note(report.remains)
    elif report.already and not report.events and not report.dry_run and is_postgres(common.url):
        note(
            "bytes of what was erased before are in the tables' files, unless `turnlog erase --finish` has written "
            "them anew since"
        )


def _tell_damaged(report: ErasureReport) -> None:
    if not report.damaged:
        return
    if len(report.damaged) == 1:
        [only] = report.damaged
        note(
            f"event {only} is damaged, and nobody can tell whether it goes too: if it does, erase it by its id "
            f"(--turn {only}); else restore it from a copy"
        )
        return
    note(
        f"{count(len(report.damaged), 'event')} are damaged, and nobody can tell whether they go too "
        f"({_named(report.damaged)}): erase those that do by their ids (--turn ID), and restore the others from a copy"
    )


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_NAMED_MAX]) + (", …" if len(ids) > _NAMED_MAX else "")


def _tell_at_work(report: ErasureReport) -> None:
    if report.at_work:
        note(
            f"a run is at work on turn {report.at_work[0]}: what it records from here on has the subject that it began "
            "with, and is not erased: erase again when it has ended"
        )


def _write_lines(screen: Screen, report: ErasureReport, feeds: Sequence[FeedState]) -> None:
    if not report.events and not report.keys:
        were = "was" if report.already == 1 else "were"
        why = f"{count(report.already, 'event')} {were} erased before" if report.already else "there is nothing of it"
        screen.line(("nothing to erase", "bold"), f"  {why}")
        return
    done = "would erase" if report.dry_run else "erased"
    screen.line((done, "bold red"), f"  {count(report.events, 'event')}, {size(report.payload_bytes)}")
    kinds: list[tuple[str, Sequence[str]]] = [
        ("requests", report.calls),
        ("replies", report.replies),
        ("imported lines", report.lines),
        ("bookmark events", report.bookmarks),
        ("summaries", report.summaries),
        ("tool calls", report.tool_calls),
        ("holds", report.holds),
    ]
    few = len(report.turns) <= _NAMED_MAX
    facts = [("turn", turn) for turn in report.turns] if few else [("turns", f"{len(report.turns):,}")]
    facts += [(name, f"{len(ids):,}") for name, ids in kinds if ids]
    facts += [
        ("bookmark", f"{moved.name} is gone" if moved.after is None else f"{moved.name} is back at {moved.after}")
        for moved in report.moved_bookmarks
    ]
    facts += [("bookmark", f"{name} would be gone, or back where it was before") for name in report.moving_bookmarks]
    if report.files_removed:
        facts.append(("files", f"{report.files_removed:,} removed"))
    if report.files_shared:
        facts.append(("shared files", f"{report.files_shared:,} kept: other events have the same content"))
    if report.keys:
        gone = "would be destroyed" if report.dry_run else "destroyed: what it sealed is gone from every copy"
        facts += [("key", f"{key} {gone}") for key in report.keys]
    if report.still_sealed:
        kept = "under keys that are kept: copies that were made before can still be opened"
        facts.append(("sealed", f"{count(report.still_sealed, 'event')} {kept}"))
    if report.never_sealed:
        plain = "recorded in plain, before the rest was sealed: copies that were made before have that"
        facts.append(("not sealed", f"{count(report.never_sealed, 'event')} {plain}"))
    if report.key_missing:
        gone = "under a key that is not here: gone from every copy if it was destroyed, and nobody else has it"
        facts.append(("sealed", f"{count(report.key_missing, 'event')} {gone}"))
    if report.remains is None:  # else that names those which were not reached
        facts += [("feed", f"{done} in {one_line(feed.destination)} too") for feed in feeds if feed.takes_back]
    if report.others:
        facts.append(("not erased", f"{count(len(report.others), 'event')} of your own that cite it"))
    if report.undecided:
        one = len(report.undecided) == 1
        lines = f"{count(len(report.undecided), 'imported line')} ({_named(report.undecided)})"
        why = f"what would tell whether {'it is' if one else 'they are'} of this is not here, or damaged"
        facts.append(("not erased", f"{lines}: {why}; --turn ID erases {'it' if one else 'one'}"))
    screen.table([[(f"  {name}", "cyan"), value] for name, value in facts], cut=False)


def retain(
    *,
    older_than: Annotated[
        str, Parameter(help="How long threads are kept after their last turn: 90d, 12w or 48h (days, weeks, hours).")
    ],
    apply: Annotated[bool, Parameter(negative=(), help="Erase them. Else they are only listed.")] = False,
    reason: Annotated[str | None, Parameter(help="Why, with --apply. It is kept for ever.")] = None,
    by: Annotated[str | None, Parameter(help="Who asked for it. It is kept as well.")] = None,
    common: Common = COMMON,
) -> int:
    """List threads whose last turn is older than a time, and with --apply erase them. Threads on hold are kept."""
    found = _AGE.fullmatch(older_than)
    if found is None:
        raise UsageError(f"--older-than: {older_than!r} is no time such as 90d, 12w or 48h")
    if apply and not (reason or "").strip():
        raise UsageError("retain: say why with --reason: it is all that will be left to tell")
    if not apply:
        check_output()
    age = timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    with noting() as done, common.open() as log:
        report = log.retain(age, reason=reason, by=by, dry_run=not apply)
        is_erased = apply and report.erasure is not None
        if is_erased:
            done.append(_RETAINED)
        feeds = () if report.erasure is None else _delivered_to(log, report.erasure)
    remains = None if report.erasure is None else report.erasure.remains
    with telling(f"{_RETAINED}, but it could not be printed" if is_erased else "nothing was erased"):
        if common.json:
            write_json(report)
        else:
            screen = Screen.of_stdout()
            screen.table(
                [
                    [(thread.id, "yellow"), thread.last, count(thread.turns, "turn"), report.held.get(thread.id, "")]
                    for thread in report.threads
                ]
            )
            if report.erasure is None:
                screen.line("nothing to erase")
            else:
                _write_lines(screen, report.erasure, feeds)
        if report.erasure is not None:
            if not common.json:
                _tell_damaged(report.erasure)
            _tell_at_work(report.erasure)
        if remains is not None:
            note(remains)
    _tell_beyond(feeds, dry_run=not apply)
    return 0 if remains is None else EXIT_REMAINS


# Legal holds

hold_app = App(name="hold", group_commands="Commands", help="List legal holds; set and release them.")


@hold_app.default
def list_holds(*, common: Common = COMMON) -> None:
    """List legal holds; set and release them."""
    with common.open() as log:
        found = log.holds.all()
    if common.json:
        write_json_lines(hold.to_record() for hold in found)
    elif not found:
        note("no holds: `turnlog hold set NAME --thread HEADISH` sets one")
    else:
        screen = Screen.of_stdout()
        screen.table([[(one_line(hold.name), "bold"), _on(hold), one_line(hold.reason or "")] for hold in found])


@hold_app.command(name="list")
def list_(*, common: Common = COMMON) -> None:
    """List legal holds."""
    list_holds(common=common)


@hold_app.command(name="set")
def set_(
    name: str,
    /,
    *,
    which: Which = _WHICH,
    reason: Annotated[str | None, Parameter(help="Why. Whoever is refused is told.")] = None,
    by: Annotated[str | None, Parameter(help="Who asked for it.")] = None,
    common: Common = COMMON,
) -> None:
    """Refuse to erase turns, threads or a subject until the hold is released.

    Parameters
    ----------
    name
        The hold.
    """
    which.check("hold set")
    with common.open() as log:
        hold = log.holds.set(name, turn=which.turns, thread=which.threads, subject=which.subject, reason=reason, by=by)
    with telling(f"hold {name!r} is set, and that is recorded, but it could not be printed"):
        if common.json:
            write_json(hold.to_record())
        else:
            Screen.of_stdout().line(("set hold ", "dim"), (one_line(hold.name), "bold"), f"  {_on(hold)}")


@hold_app.command
def release(
    name: str,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="Why.")] = None,
    by: Annotated[str | None, Parameter(help="Who asked for it.")] = None,
    common: Common = COMMON,
) -> None:
    """Release a legal hold.

    Parameters
    ----------
    name
        The hold.
    """
    with common.open() as log:
        log.holds.release(name, reason=reason, by=by)
    with telling(f"hold {name!r} is released, and that is recorded, but it could not be printed"):
        if common.json:
            write_json({"name": name, "released": True})
        else:
            Screen.of_stdout().line(("released hold ", "dim"), (one_line(name), "bold"))


def _on(hold: Hold) -> str:
    if hold.damaged:
        what = f"thread {' '.join(hold.turns)}" if hold.turns else "everything: of what subject it is cannot be told"
        return f"damaged, and so on {what}, since {time_of(hold.time_ms):%Y-%m-%d}"
    what = one_line(hold.subject or "") if hold.scope == "subject" else " ".join(hold.turns)
    return f"{hold.scope} {what}, since {time_of(hold.time_ms):%Y-%m-%d}"
