"""`turnlog verify` and `stats`: is all well with the log, and how large is it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from turnlog.audit import Anchor, Damage, VerifyReport
from turnlog.audit.anchors import read_anchors
from turnlog.cli.failures import EXIT_DAMAGE, UsageError, error_line
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, go_on_unheard, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.text import count, one_line, size
from turnlog.cli.verifiers import read_verifiers
from turnlog.errors import CorruptionError, SchemaError
from turnlog.log import LogStats

_UNUSABLE_MAX = 100
"""More checkpoints than these that cannot be used are counted and not listed, but as JSON."""


def verify(
    *,
    repair_projections: Annotated[
        bool,
        Parameter(negative=(), help="Build index tables anew that are missing or damaged."),
    ] = False,
    checkpoint: Annotated[
        tuple[Path, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="Signed checkpoints from outside the store to compare the log with: a file, or a folder. Repeatable.",
        ),
    ] = (),
    key: Annotated[
        tuple[Path, ...],
        Parameter(
            negative=(), consume_multiple=False, help="File with the keys that signed them. By default your own keys."
        ),
    ] = (),
    since: Annotated[
        int, Parameter(help="Global position up to which payloads and requests are not read again, only headers.")
    ] = 0,
    common: Common = COMMON,
) -> int:
    """Read every stored byte again and check it: headers, private parts, payloads, citations, requests, indexes.

    With --checkpoint it also finds what was written anew with hashes that fit, and what was cut off.

    Exit status 1 and a line on standard error for each damage, if there is any, and for each checkpoint that is given
    and cannot be used. The others are.
    """
    if since < 0:
        raise UsageError(f"--since {since}: a global position, from 0")
    if key and not checkpoint:
        raise UsageError("--key says who signed checkpoints: give them with --checkpoint FILE")
    unusable: list[str] = []
    anchors = read_anchors(checkpoint, read_verifiers(key), unusable.append) if checkpoint else []
    report = _verified(common, anchors, repair_projections=repair_projections, since=since)
    is_clean = report.clean and not unusable
    go_on_unheard()  # the exit status tells, too
    if common.json:
        write_json({**msgspec.to_builtins(report), "unusable_checkpoints": unusable, "clean": is_clean})
    else:
        _write_report(Screen.of_stdout(), report, len(unusable))
    for damage in report.damage:
        sys.stderr.write(error_line(_where(damage) + damage.what) + "\n")
    if report.more:
        sys.stderr.write(error_line(f"and {report.more:,} more") + "\n")
    for what in unusable[:_UNUSABLE_MAX]:
        sys.stderr.write(error_line(f"a checkpoint was not used: {what}") + "\n")
    if len(unusable) > _UNUSABLE_MAX:
        sys.stderr.write(error_line(f"and {len(unusable) - _UNUSABLE_MAX:,} more were not used") + "\n")
    return 0 if is_clean else EXIT_DAMAGE


def _verified(common: Common, anchors: list[Anchor], *, repair_projections: bool, since: int) -> VerifyReport:
    """Verify the log. Damage that keeps it from being opened is damage too."""
    try:
        with common.open() as log, progress_bar("verifying") as progress:
            return log.verify(
                progress=progress, repair_projections=repair_projections, checkpoints=anchors, since=since
            )
    except (CorruptionError, SchemaError) as error:
        return VerifyReport(damage=(Damage(what=str(error), global_position=getattr(error, "global_position", None)),))


def _where(damage: Damage) -> str:
    if damage.event_id is not None:
        return f"damage at global position {damage.global_position}, event {damage.event_id}: "
    if damage.global_position is not None:
        return f"damage at global position {damage.global_position}: "
    return "damage: "


def _write_report(screen: Screen, report: VerifyReport, unusable: int) -> None:
    read = f"{count(report.events, 'event')}, {count(report.payloads, 'payload')}, {size(report.payload_bytes)}"
    if report.clean:
        said = "every byte is as it was recorded"
        if report.since:
            said = f"all is as it was recorded, but payloads and requests up to {report.since:,} were not read"
        if unusable:
            which = f"{count(unusable, 'checkpoint')} could not be used"
            screen.line(("incomplete", "bold yellow"), f"  {read}: {said}, and {which}")
        else:
            screen.line(("clean", "bold green"), f"  {read}: {said}")
    else:
        number = len(report.damage) + report.more
        found = count(number, "damage") if number == 1 else f"{number:,} damages"
        screen.line((found, "bold red"), f"  found in {read}")
    facts = [
        ("checkpoints", count(report.checkpoints, "checkpoint") if report.checkpoints else ""),
        ("anchored", "" if report.anchored is None else f"up to global position {report.anchored:,}"),
        ("not anchored", _not_anchored(report)),
        ("erased", f"{report.erased:,}" if report.erased else ""),
        ("sealed", _sealed(report)),
        ("repaired", ", ".join(report.repaired)),
        ("not turnlog's", ", ".join(map(one_line, report.others))),
    ]
    screen.table([[(f"  {name}", "cyan"), value] for name, value in facts if value], cut=False)


def _sealed(report: VerifyReport) -> str:
    if not report.closed:
        return f"{report.sealed:,}" if report.sealed else ""
    return f"{report.sealed:,}, of which {report.closed:,} could not be looked into: their keys are not here"


def _not_anchored(report: VerifyReport) -> str:
    """Return how many events no checkpoint from outside covers; nothing where none was given."""
    if report.anchored is None or report.anchored >= report.events:
        return ""
    return f"{count(report.events - report.anchored, 'event')} after that: no checkpoint from outside covers them yet"


def stats(*, common: Common = COMMON) -> None:
    """Measure the log: events, turns, threads, bytes."""
    with common.open() as log:
        measured = log.stats()
    if common.json:
        write_json(measured)
    else:
        _write_stats(Screen.of_stdout(), measured, common.place)


def _write_stats(screen: Screen, measured: LogStats, place: str) -> None:
    facts = [
        ("store", one_line(place)),
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
    screen.table([[(name, "cyan"), value] for name, value in facts], cut=False)
