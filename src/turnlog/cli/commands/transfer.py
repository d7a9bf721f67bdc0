"""`turnlog import` and `export`: other people's sessions, and logs from one store to another."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import App, Parameter

from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, binary_output, note, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.text import count, one_line
from turnlog.cli.usage import STANDARD_STREAM
from turnlog.errors import TurnlogError
from turnlog.interop.claude_code import ImportReport
from turnlog.interop.portable import RestoreReport
from turnlog.log import TurnLog

app = App(name="import", group_commands="Formats", help="Import sessions of Claude Code, or what export wrote.")


@app.command(name="claude-code")
def import_claude_code(
    file: Path,
    /,
    *more: Path,
    common: Common = COMMON,
) -> None:
    """Import session files of Claude Code: all that is new of them, each file in one transaction.

    A damaged line is reported with its number, and the rest goes in. With --json: a report for each file.

    Parameters
    ----------
    file
        A session file: JSON lines.
    more
        More of them. The first one that fails ends the import; those before it are in.
    """
    files = [file, *more]
    _check_readable(files)
    with common.open(create=True) as log:
        screen = None if common.json else Screen.of_stdout()

        def take(path: Path) -> None:
            with progress_bar(f"importing {one_line(path.name)}") as progress:
                report = log.import_claude_code(path, progress=progress)
            if screen is None:
                write_json(report)
            else:
                _write_session(screen, path, report)

        _one_by_one(files, take)


@app.command(name="turnlog")
def import_turnlog(*files: Path, common: Common = COMMON) -> None:
    """Import what `turnlog export` wrote: ids and bytes are kept exactly, and what is known already is passed over.

    A file goes in as a whole or not at all. With --json: a report for each file.

    Parameters
    ----------
    files
        Exports. Without any, or with -, standard input is read. The first one that fails ends the import; those
        before it are in.
    """
    paths = list(files) or [Path(STANDARD_STREAM)]
    _check_readable([path for path in paths if not _is_standard(path)])
    if any(map(_is_standard, paths)) and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("no export to import: name a FILE, or pipe it in (turnlog import turnlog --help)")
    with common.open(create=True) as log:
        screen = None if common.json else Screen.of_stdout()

        def take(path: Path) -> None:
            report = _restore(log, path)
            if screen is None:
                write_json({"file": "-" if _is_standard(path) else str(path), **msgspec.to_builtins(report)})
            else:
                _write_restored(screen, path, report)

        _one_by_one(paths, take)


def _is_standard(path: Path | None) -> bool:
    return path is not None and str(path) == STANDARD_STREAM


def _name(path: Path) -> str:
    return "standard input" if _is_standard(path) else str(path)


def _restore(log: TurnLog, path: Path) -> RestoreReport:
    with progress_bar(f"importing {one_line(_name(path))}") as progress:
        if _is_standard(path):
            return log.import_turnlog(sys.stdin.buffer, progress=progress)
        with path.open("rb") as file:
            return log.import_turnlog(file, progress=progress)


def _check_readable(paths: Sequence[Path]) -> None:
    """Refuse a wrong name before anything is done, so that it does not leave half of the files imported."""
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{str(path)!r} is a folder: name the files in it")
        if not path.exists():
            raise UsageError(f"there is no file {str(path)!r}")


def _one_by_one(paths: Sequence[Path], take: Callable[[Path], None]) -> None:
    """Import files in their order; say which one failed, and which are in.

    Raises:
        UsageError: a file could not be imported.
    """
    for done, path in enumerate(paths):
        try:
            take(path)
        except TurnlogError as error:
            before = f" (imported before it: {', '.join(map(_name, paths[:done]))})" if done else ""
            where = _name(path)
            text = str(error)
            message = text if where in text else f"{where}: {text}"
            raise UsageError(message + before) from error


def _write_session(screen: Screen, path: Path, report: ImportReport) -> None:
    screen.line(
        (one_line(str(path)), "bold"),
        f"  {count(report.turns_added, 'turn')} added, {report.turns_known:,} known",
        f", from {count(report.lines, 'line')}",
    )
    kinds = ", ".join(f"{number:,} {one_line(kind)}" for kind, number in report.line_types.items())
    screen.line(f"  {count(report.events_added, 'line event')} added  ", (f"of {kinds or 'none'}", "dim"))
    if report.heads:
        screen.line(f"  {count(len(report.heads), 'head')}, the last ", (report.heads[-1], "yellow"))
    if report.continued_messages:
        screen.line(f"  {count(len(report.continued_messages), 'message')} known in part, continued by a turn")
    for problem in report.problems:
        note(f"{one_line(str(path))}: line {problem.line}: {one_line(problem.what)}")


def _write_restored(screen: Screen, path: Path, report: RestoreReport) -> None:
    screen.line((one_line(_name(path)), "bold"), f"  {count(report.added, 'event')} added, {report.known:,} known")
    for moved in report.moved_bookmarks:
        screen.line(
            "  bookmark ",
            (one_line(moved.name), "bold green"),
            f"  {moved.before or 'nowhere'} → {moved.after or 'nowhere'}",
        )


def export(
    headish: str | None = None,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(alias="-o", help="The file to write, whole or not at all. By default standard output."),
    ] = None,
    common: Common = COMMON,
) -> None:
    """Write the log as JSON lines with payloads: `turnlog import turnlog` reads it.

    With --json and --output: the name of the file and the number of events.

    Parameters
    ----------
    headish
        Only the threads of this turn, with all that they continue.
    """
    with common.open() as log:
        if output is None or _is_standard(output):
            _export_to_stdout(log, headish)
            return
        events = _export_to_file(log, headish, output)
    if common.json:
        write_json({"file": str(output), "events": events})
    else:
        Screen.of_stdout().line((one_line(str(output)), "bold"), f"  {count(events, 'event')}")


def _export_to_stdout(log: TurnLog, headish: str | None) -> None:
    try:
        with progress_bar("exporting") as progress:
            log.export(binary_output(), headish, progress=progress)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise UsageError("standard output was closed before the export was whole") from error


def _export_to_file(log: TurnLog, headish: str | None, output: Path) -> int:
    """Write a file beside the one that is asked for, and put it in its place when it is whole and on disk."""
    with progress_bar("exporting") as progress:
        if output.exists() and not output.is_file():
            with output.open("wb") as file:
                return log.export(file, headish, progress=progress)
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                events = log.export(file, headish, progress=progress)
                _make_durable(file)
            Path(name).replace(output)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    return events


def _make_durable(file: BinaryIO) -> None:
    file.flush()
    os.fchmod(file.fileno(), 0o666 & ~_umask())
    os.fsync(file.fileno())


def _umask() -> int:
    """Return the permissions that new files are not to have."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
