"""`turnlog verify` and `stats`: is all well with the log, and how large is it."""

from __future__ import annotations

import sys

import msgspec

from turnlog.audit import VerifyReport
from turnlog.audit.verification import Damage
from turnlog.cli.failures import EXIT_DAMAGE, error_line
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.text import count, one_line, size
from turnlog.errors import CorruptionError
from turnlog.log import LogStats


def verify(*, common: Common = COMMON) -> int:
    """Read every stored byte again and check it: hashes, parents and their digests, positions, projections.

    Exit status 1 and a line on standard error for each damage, if there is any.
    """
    report = _verified(common)
    if common.json:
        write_json({**msgspec.to_builtins(report), "clean": report.clean})
    else:
        _write_report(Screen.of_stdout(), report)
    for damage in report.damage:
        sys.stderr.write(error_line(_where(damage) + damage.what) + "\n")
    return 0 if report.clean else EXIT_DAMAGE


def _verified(common: Common) -> VerifyReport:
    """Verify the log. Damage that keeps it from being opened is damage too."""
    try:
        with common.open() as log, progress_bar("verifying") as progress:
            return log.verify(progress=progress)
    except CorruptionError as error:
        damage = Damage(what=str(error), global_position=error.global_position)
        return VerifyReport(events=0, payloads=0, payload_bytes=0, damage=(damage,))


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
        found = count(len(report.damage), "damage") if len(report.damage) == 1 else f"{len(report.damage):,} damages"
        screen.line((found, "bold red"), f"  found in {read}")


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
