"""`turnlog verify` and `stats`: is all well with the log, and how large is it."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter

from turnlog.audit import Damage, VerifyReport
from turnlog.cli.failures import EXIT_DAMAGE, error_line
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.text import count, one_line, size
from turnlog.errors import CorruptionError, SchemaError
from turnlog.log import LogStats


def verify(
    *,
    repair_projections: Annotated[
        bool,
        Parameter(negative=(), help="Build index tables anew that are missing or damaged."),
    ] = False,
    common: Common = COMMON,
) -> int:
    """Read every stored byte again and check it: headers, private parts, payloads, citations, requests, indexes.

    Exit status 1 and a line on standard error for each damage, if there is any.
    """
    report = _verified(common, repair_projections=repair_projections)
    if common.json:
        write_json({**msgspec.to_builtins(report), "clean": report.clean})
    else:
        _write_report(Screen.of_stdout(), report)
    for damage in report.damage:
        sys.stderr.write(error_line(_where(damage) + damage.what) + "\n")
    if report.more:
        sys.stderr.write(error_line(f"and {report.more:,} more") + "\n")
    return 0 if report.clean else EXIT_DAMAGE


def _verified(common: Common, *, repair_projections: bool) -> VerifyReport:
    """Verify the log. Damage that keeps it from being opened is damage too."""
    try:
        with common.open() as log, progress_bar("verifying") as progress:
            return log.verify(progress=progress, repair_projections=repair_projections)
    except (CorruptionError, SchemaError) as error:
        return VerifyReport(damage=(Damage(what=str(error), global_position=getattr(error, "global_position", None)),))


def _where(damage: Damage) -> str:
    if damage.event_id is not None:
        return f"damage at global position {damage.global_position}, event {damage.event_id}: "
    if damage.global_position is not None:
        return f"damage at global position {damage.global_position}: "
    return "damage: "


def _write_report(screen: Screen, report: VerifyReport) -> None:
    read = f"{count(report.events, 'event')}, {count(report.payloads, 'payload')}, {size(report.payload_bytes)}"
    if report.clean:
        screen.line(("clean", "bold green"), f"  {read}: every byte is as it was recorded")
    else:
        number = len(report.damage) + report.more
        found = count(number, "damage") if number == 1 else f"{number:,} damages"
        screen.line((found, "bold red"), f"  found in {read}")
    facts = [
        ("erased", f"{report.erased:,}" if report.erased else ""),
        ("repaired", ", ".join(report.repaired)),
        ("not turnlog's", ", ".join(map(one_line, report.others))),
    ]
    screen.table([[(f"  {name}", "cyan"), value] for name, value in facts if value])


def stats(*, common: Common = COMMON) -> None:
    """Measure the log: events, turns, threads, bytes."""
    with common.open() as log:
        measured = log.stats()
    if common.json:
        write_json(measured)
    else:
        _write_stats(Screen.of_stdout(), measured)


def _write_stats(screen: Screen, measured: LogStats) -> None:
    facts = [
        ("turns", f"{measured.turns:,}"),
        ("threads", f"{measured.threads:,}"),
        ("bookmarks", f"{measured.bookmarks:,}"),
        ("events", f"{measured.events:,}"),
        *((f"  {one_line(topic)}", f"{number:,}") for topic, number in measured.topics.items()),
        ("payloads", size(measured.payload_bytes)),
        ("  beside events", f"{size(measured.stored_payload_bytes)} stored"),
        ("  in files", f"{size(measured.file_bytes)} stored, {count(measured.file_count, 'file')}"),
        ("on disk", size(measured.disk_bytes)),
    ]
    screen.table([[(name, "cyan"), value] for name, value in facts])
