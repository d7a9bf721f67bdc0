"""`turnlog copy`: the same log in another store, on whatever engine."""

from __future__ import annotations

import msgspec

from turnlog.audit.copying import CopyReport
from turnlog.cli.failures import EXIT_REMAINS, UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.text import count
from turnlog.log import TurnLog
from turnlog.store.urls import parse_url
from turnlog.web_address import without_secrets


def copy(
    source: str,
    target: str,
    /,
    *,
    common: Common = COMMON,
) -> int:
    """Make another store the same log: every event with its bytes and its place, sealed ones as they are.

    All of it is compared at the end. What is stopped in the middle is completed by the same command again, and a later
    one brings what has come since, and erases what has been erased. Others may write to SOURCE meanwhile, and nobody to
    TARGET. No key is needed. Exit status 1: something that is erased may still be in files of TARGET, or beside it.

    Parameters
    ----------
    source
        The store to copy: sqlite:///PATH or postgresql://…
    target
        The store to make: a new or empty one, or one with the beginning of the same log.
    """
    if common.store is not None:
        raise UsageError("copy: name both stores, as in turnlog copy SOURCE TARGET, and no --store")
    parse_url(target)
    path = parse_url(source)
    if path is not None and not path.exists():
        raise UsageError(f"there is no store at {str(path)!r} to copy: `turnlog stores` finds those that there are")
    with TurnLog.open(source, create=False) as log:
        with progress_bar("copying and comparing") as progress:
            report = log.copy_to(target, progress=progress)
        with telling(f"all is copied, {count(report.added, 'event')}, but that could not be printed"):
            if common.json:
                write_json(msgspec.to_builtins(report))
            else:
                _write_report(Screen.of_stdout(), report)
    if report.remains is None:
        return 0
    note(f"of {without_secrets(target)}: {report.remains}")
    return EXIT_REMAINS


def _write_report(screen: Screen, report: CopyReport) -> None:
    screen.line((count(report.added, "event"), "bold"), f" copied, {report.known:,} there before")
    screen.line(f"  the target is that log: {count(report.events, 'event')} compared, root {report.root}")
    if report.erased:
        screen.line(f"  {count(report.erased, 'event')} erased there, as they have been here since the last copy")
    if report.checkpoints:
        screen.line(f"  {count(report.checkpoints, 'checkpoint')} copied")
    if report.since:
        screen.line(
            f"  {count(report.since, 'event')} have come to the source meanwhile: the same command again copies them"
        )
