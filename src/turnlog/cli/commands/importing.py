"""`turnlog import`: transcripts of agents and chats, and what `turnlog export` wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
from cyclopts import App, Parameter

from turnlog.cli.failures import UsageError, error_said
from turnlog.cli.opened import OpenedLog
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.redaction import counted, redaction_hooks
from turnlog.cli.registers import write_register
from turnlog.cli.text import count, one_line
from turnlog.cli.trial import until_first_append
from turnlog.cli.turn_options import RedactOptions
from turnlog.cli.usage import STANDARD_STREAM, is_standard_stream
from turnlog.errors import TurnlogError
from turnlog.interop.finding import TURNLOG, find
from turnlog.interop.formats import PLUGINS, TRANSCRIPTS
from turnlog.interop.importing import TranscriptReport
from turnlog.interop.portable import OnBookmark, RestoreReport, Survey, seekable
from turnlog.interop.portable import check as check_export
from turnlog.log import TurnLog
from turnlog.registers import ImportedRegister

_NAMES_MAX = 5
"""How many bookmarks are named to people; --json names all."""

_REDACT = RedactOptions()

app = App(name="import", group_commands="Formats", help="Import transcripts of agents and chats, or what export wrote.")


@app.default
def import_files(
    file: Path,
    /,
    *more: Path,
    format: Annotated[
        str | None, Parameter(help="The format of the files. By default it is found by what is in each.")
    ] = None,
    redact: RedactOptions = _REDACT,
    common: Common = COMMON,
) -> None:
    """Import transcripts, and what `turnlog export` wrote: all that is new of them. Again adds nothing.

    A file that has grown adds what is new of it.
    What is damaged is reported with its place, and the rest goes in. With --json: a report for each file. With --redact
    a file is what it is without the secrets in it: import the same file with it each time.

    Parameters
    ----------
    file
        A file, or a folder with all that is in it: what was written last comes in last, as the latest.
    more
        More of them. The first one that fails ends the import; those before it are in.
    """
    paths = [file, *more]
    for path in paths:
        if is_standard_stream(path):
            raise UsageError(
                "standard input can only be what turnlog export wrote: turnlog import turnlog, or name a FILE"
            )
        if not path.exists():
            raise UsageError(f"there is no file {str(path)!r}")
    try:
        found = find(paths, format=format)
    except TurnlogError as error:
        raise UsageError(error_said(error)) from error
    for what in found.failed:
        note(what)
    named = {each.path: each.format for each in found.files}
    exported = [path for path, each in named.items() if each == TURNLOG]
    if exported and redact.redact:
        raise UsageError(f"nothing can be redacted in what export wrote ({exported[0]}): import it without --redact")
    if exported:
        _note_unredacted()
    known = _check_first(common, list(named), named, {}, redact=redact.redact)
    with common.open(create=True, redact=redact.redact) as log:
        screen = None if common.json else Screen.of_stdout()

        def take(path: Path) -> None:
            if named[path] == TURNLOG:
                _take_export(log, screen, path, known.get(path), {}, bookmarks="keep", registers=False)
            else:
                _tell(screen, path, _transcript(log, named[path], path))

        _one_by_one(list(named), take)
    for each in found.passed_over:
        note(f"passed over {one_line(str(each.path))}: {each.why}")


def _command(format: str, what: str) -> None:
    """Add the command that imports files of one format."""

    def import_format(*files: Path, redact: RedactOptions = _REDACT, common: Common = COMMON) -> None:
        if not files:
            named = f", or if you mean {format!r} here: turnlog import ./{format}" if Path(format).exists() else ""
            raise UsageError(f"missing FILE for 'import {format}': name one{named} (turnlog import {format} --help)")
        import_files(*files, format=format, redact=redact, common=common)

    app.command(import_format, name=format, help=f"Import {what}.")


for _format, _what in TRANSCRIPTS.items():
    _command(_format, _what)
for _format in PLUGINS.others():
    _command(_format, PLUGINS.called(_format))


@app.command(name="turnlog")
def import_turnlog(
    *files: Path,
    bookmarks: Annotated[
        Literal["keep", "take"],
        Parameter(help="Bookmarks that stand elsewhere here: keep them (by default), or take them over."),
    ] = "keep",
    registers: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Confirm the pointers, providers and MCP servers that come in, after showing each in full.",
        ),
    ] = False,
    common: Common = COMMON,
) -> None:
    """Import what `turnlog export` wrote: ids and bytes are kept exactly, and what is known already is passed over.

    A file is checked as a whole before anything of it goes in. The export of a whole log makes an empty store that log.
    Pointers, providers and MCP servers have no effect until they are confirmed: turnlog registers. With --json: a
    report for each file.

    Parameters
    ----------
    files
        Exports. Without any, or with -, standard input is read. The first one that fails ends the import; those
        before it are in.
    """
    paths = list(files) or [Path(STANDARD_STREAM)]
    _check_readable([path for path in paths if not is_standard_stream(path)])
    if any(map(is_standard_stream, paths)) and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("no export to import: name a FILE, or pipe it in (turnlog import turnlog --help)")
    _note_unredacted()
    with _held(paths) as held:
        known = _check_first(common, paths, dict.fromkeys(paths, TURNLOG), held)
        with common.open(create=True) as log:
            screen = None if common.json else Screen.of_stdout()

            def take(path: Path) -> None:
                _take_export(log, screen, path, known.get(path), held, bookmarks=bookmarks, registers=registers)

            _one_by_one(paths, take)


@contextmanager
def _held(paths: Sequence[Path]) -> Generator[dict[Path, BinaryIO]]:
    """Give what has to be read twice and could be read once, by its path: standard input, and a pipe that is first."""
    with ExitStack() as stack:
        held: dict[Path, BinaryIO] = {}
        for path in dict.fromkeys(paths):
            if is_standard_stream(path):
                held[path] = stack.enter_context(seekable(sys.stdin.buffer))
            elif path == paths[0] and not path.is_file():
                held[path] = stack.enter_context(seekable(stack.enter_context(path.open("rb"))))
        yield held


def _transcript(log: TurnLog, format: str, path: Path) -> TranscriptReport:
    with progress_bar(f"importing {one_line(path.name)}") as progress:
        return log.import_transcript(format, path, progress=progress)


def _check_first(
    common: Common,
    paths: Sequence[Path],
    formats: Mapping[Path, str],
    held: Mapping[Path, BinaryIO],
    *,
    redact: bool | None = None,
) -> dict[Path, Survey]:
    """Where there is no store yet, see that the first file goes in: none is made for one that is refused.

    Returns:
        What was found of it, if it is an export: it is not checked again.

    Raises:
        UsageError: it is refused.
    """
    known: dict[Path, Survey] = {}
    if not common.is_new:
        return known
    with common.empty(redact=redact) as trial:

        def check(path: Path) -> None:
            if formats[path] != TURNLOG:
                until_first_append(trial, lambda: _transcript(trial, formats[path], path))
                return
            with progress_bar(f"importing {one_line(_name(path))}") as progress, _opened(path, held) as file:
                start = file.tell()
                known[path] = check_export(file, trial.store, progress=progress)
                file.seek(start)

        _one_by_one(paths[:1], check)
    return known


def _opened(path: Path, held: Mapping[Path, BinaryIO]) -> AbstractContextManager[BinaryIO]:
    """Open a file, or give what is held of it, which stays open."""
    return nullcontext(held[path]) if path in held else path.open("rb")


def _note_unredacted() -> None:
    if redaction_hooks(asked=False):
        note("nothing is redacted in what export wrote: its events have digests, and come in as they are")


def _take_export(
    log: OpenedLog,
    screen: Screen | None,
    path: Path,
    known: Survey | None,
    held: Mapping[Path, BinaryIO],
    *,
    bookmarks: OnBookmark,
    registers: bool,
) -> None:
    """Import what export wrote, and tell of it."""
    with progress_bar(f"importing {one_line(_name(path))}") as progress, _opened(path, held) as file:
        report = log.import_checked(file, known, bookmarks=bookmarks, progress=progress)
    brought = _brought(log, report)
    if registers and brought:
        report = _confirm(log, report, brought, screen)
    with _telling(path, count(report.added, "event")):
        if screen is None:
            name = "-" if is_standard_stream(path) else str(path)
            in_full = [register.to_record() for register in brought]
            write_json({"file": name, **msgspec.to_builtins(report), "registers": in_full})
        else:
            _write_restored(screen, path, report)


def _name(path: Path) -> str:
    return "standard input" if is_standard_stream(path) else str(path)


def _brought(log: TurnLog, report: RestoreReport) -> list[ImportedRegister]:
    """Return the registers that came in and wait to be confirmed."""
    came_in = set(report.unconfirmed_registers)
    return [register for register in log.registers.imported() if register.id in came_in] if came_in else []


def _confirm(
    log: TurnLog, report: RestoreReport, brought: Sequence[ImportedRegister], screen: Screen | None
) -> RestoreReport:
    """Show the registers that came in, each in full, and confirm them."""
    if screen is not None:
        for register in brought:
            write_register(screen, register)
        sys.stdout.flush()  # what cannot be shown is not confirmed
    ids = tuple(register.id for register in brought)
    log.registers.trust(ids)
    return msgspec.structs.replace(report, confirmed_registers=ids, unconfirmed_registers=())


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
        except (TurnlogError, MemoryError) as error:
            before = f" (imported before it: {', '.join(map(_name, paths[:done]))})" if done else ""
            where = _name(path)
            said = "there is not enough memory to import it" if isinstance(error, MemoryError) else str(error)
            text = "; ".join([said, *getattr(error, "__notes__", ())])
            message = text if where in text else f"{where}: {text}"
            raise UsageError(message + before) from error


@contextmanager
def _telling(path: Path, added: str) -> Generator[None]:
    """Print what was imported of a file; that its reader has left keeps no other file from being imported."""
    with suppress(BrokenPipeError), telling(f"{_name(path)} is imported, {added} added, but that could not be printed"):
        yield


def _tell(screen: Screen | None, path: Path, report: TranscriptReport) -> None:
    if isinstance(report.redacted, dict):
        note(f"redacted {counted(report.redacted)} in {one_line(str(path))}")
    with _telling(path, count(report.turns_added, "turn")):
        if screen is None:
            write_json(report)
        else:
            _write_transcript(screen, path, report)


def _write_transcript(screen: Screen, path: Path, report: TranscriptReport) -> None:
    screen.line(
        (one_line(str(path)), "bold"),
        f"  {report.format}: {count(report.turns_added, 'turn')} added, {report.turns_known:,} known",
    )
    kinds = ", ".join(f"{number:,} {one_line(kind)}" for kind, number in report.pieces.items())
    screen.line(f"  {count(report.events_added, 'other event')} added  ", (f"of {kinds or 'none'}", "dim"))
    if report.heads:
        screen.line(f"  {count(len(report.heads), 'head')}, the last ", (report.heads[-1], "yellow"))
    if report.continued:
        screen.line(f"  {count(len(report.continued), 'turn')} known in part, continued by another one")
    for problem in report.problems:
        note(f"{one_line(str(path))}: at {problem.place}: {one_line(problem.what)}")


def _write_restored(screen: Screen, path: Path, report: RestoreReport) -> None:
    screen.line((one_line(_name(path)), "bold"), f"  {count(report.added, 'event')} added, {report.known:,} known")
    if report.whole and report.added:
        screen.line("  the store is that log: same identity, positions and digests")
    if report.erased:
        screen.line(f"  {count(report.erased, 'event')} came erased: of these there is only the header")
    if report.not_erased:
        turns = " ".join(f"--turn {turn}" for turn in report.not_erased[:_NAMES_MAX])
        more = "" if len(report.not_erased) <= _NAMES_MAX else " …"
        there = count(len(report.not_erased), "turn")
        erase = "--finish" if report.whole else f"{turns}{more} --reason REASON"
        note(f"{there} erased where this comes from, and not here: `turnlog erase {erase}`")
    for moved, what in ((report.set_bookmarks, "set"), (report.moved_bookmarks, "moved")):
        if moved:
            names = _few([bookmark.name for bookmark in moved])
            screen.line(f"  {count(len(moved), 'bookmark')} {what}: ", (names, "bold green"))
    kept = [each for each in report.kept_bookmarks if each.here is not None]
    unset = [each for each in report.kept_bookmarks if each.here is None]
    for others, what in ((kept, "not moved here"), (unset, "not set, whose names could mean turns of yours")):
        if others:
            names = _few([f"{bookmark.name} (there at {bookmark.theirs})" for bookmark in others])
            screen.line(f"  {count(len(others), 'bookmark')} {what}: ", (names, "bold green"))
    if kept or unset:
        does = "moves" if kept else "sets"
        screen.line((f"  turnlog bookmarks set NAME TURN {does} one; --bookmarks take, at the import, all", "dim"))
    if report.closed_bookmarks:
        screen.line(
            f"  {count(report.closed_bookmarks, 'bookmark')} not set: their names are sealed, and the key is not here"
        )
    if report.confirmed_registers:
        screen.line(f"  {count(len(report.confirmed_registers), 'register')} confirmed")
    if report.unconfirmed_registers:
        number = len(report.unconfirmed_registers)
        have = "has no effect until it is" if number == 1 else "have no effect until they are"
        screen.line(f"  {count(number, 'register')} {have} confirmed: see turnlog registers")


def _few(names: Sequence[str]) -> str:
    """Return the first few of many names."""
    shown = ", ".join(map(one_line, names[:_NAMES_MAX]))
    return shown if len(names) <= _NAMES_MAX else f"{shown} and {len(names) - _NAMES_MAX:,} more"
