"""`turnlog export`: the log, or a thread of it, as a file that others read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from cyclopts import Parameter

from turnlog.cli.completing import HEADISH
from turnlog.cli.failures import UsageError
from turnlog.cli.filters import ExportChoice, is_one_of
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, check_output, json_output, note, noting, telling, write_json
from turnlog.cli.progress import progress_bar
from turnlog.cli.targets import new_file
from turnlog.cli.text import count, one_line
from turnlog.cli.usage import is_standard_stream
from turnlog.interop import exports
from turnlog.log import TurnLog
from turnlog.model import LossEntry

_NO_JSON = {"geppetto": "YAML", "html": "a page", "markdown": "a page"}
"""Forms that are no JSON, and what they are."""

_ALL = ExportChoice()


def export(
    headish: Annotated[str | None, HEADISH] = None,
    /,
    *,
    ancestry: Annotated[
        bool, Parameter(negative=(), help="Of HEADISH only its ancestry, and not what else grows from it.")
    ] = False,
    output: Annotated[
        Path | None,
        Parameter(
            alias="-o", help="The file to write, whole or not at all, for you alone. By default standard output."
        ),
    ] = None,
    force: Annotated[bool, Parameter(negative=(), help="Replace the file if there is one.")] = False,
    form: Annotated[
        Literal["turnlog", "anthropic", "atif", "canonical", "geppetto", "gmi", "html", "jsonl", "markdown", "openai"],
        Parameter(
            name="--format",
            help="What to write: all events (turnlog, by default), or HEADISH and its ancestry: as a page (markdown, "
            "html), as the messages of a request (openai, anthropic), as messages of an agent (canonical), as a "
            "trajectory with its sub-agents (atif), as a snapshot (geppetto), as inputs and outputs of AgentOS (gmi), "
            "or as turns (jsonl).",
        ),
    ] = "turnlog",
    which: ExportChoice = _ALL,
    common: Common = COMMON,
) -> None:
    """Write the log as JSON lines with payloads: `turnlog import turnlog` reads it. Or a thread in another form.

    Limits and filters choose turns, of the whole log or of HEADISH. Each comes with its ancestry and with what that
    cites, so that what is written can be imported and verified; how much is left out is said on standard error.
    Registers, and events of your own topics that no turn cites, are in the export of the whole log only.
    With --json and --output: the name of the file and the number of events, or of turns.

    Parameters
    ----------
    headish
        Only the threads of this turn, with all that they continue.
    """
    which.check()
    if ancestry and headish is None:
        raise UsageError("export: --ancestry of which turn? Give HEADISH")
    if form != "turnlog":
        if headish is None:
            raise UsageError(f"export: --format {form} of which turn? Give HEADISH")
        if not which.is_all:
            raise UsageError(
                f"export: --format {form} writes HEADISH and its ancestry: limits and filters are for --format turnlog"
            )
        if common.json and form in _NO_JSON and (output is None or is_standard_stream(output)):
            raise UsageError(
                f"export: --format {form} is {_NO_JSON[form]}, and no JSON: leave out --json, or write it with -o FILE"
            )
        _export_as(form, headish, output, common, force=force)
        return
    with noting() as done, common.open() as log:
        write = _part(log, headish, which, ancestry=ancestry)
        if output is None or is_standard_stream(output):
            _export_to_stdout(write)
            return
        with new_file(output, common, force=force) as file:
            events = write(file)
        done.append(f"{str(output)!r} is written")
    with telling(f"{str(output)!r} is written, but that could not be printed"):
        if common.json:
            write_json({"file": str(output), "events": events})
        else:
            Screen.of_stdout().line((one_line(str(output)), "bold"), f"  {count(events, 'event')}")


def _export_as(form: str, headish: str, output: Path | None, common: Common, *, force: bool) -> None:
    with noting() as done, common.open() as log:
        if output is None or is_standard_stream(output):
            _export_to_stdout(lambda file: _exported(log, headish, form).write(file))
            return
        with new_file(output, common, force=force) as file:
            exported = _exported(log, headish, form)
            exported.write(file)
        done.append(f"{str(output)!r} is written")
    with telling(f"{str(output)!r} is written, but that could not be printed"):
        if common.json:
            write_json({"file": str(output), "turns": exported.turns, "losses": exported.losses.entries})
        else:
            Screen.of_stdout().line((one_line(str(output)), "bold"), f"  {count(exported.turns, 'turn')}")


def _exported(log: TurnLog, headish: str, form: str) -> exports.Exported:
    """Return a thread in a form, and say what it leaves out: one line for all that is left out for one reason."""
    exported = exports.export(log, headish, form)
    kinds: dict[tuple[str, str, str], list[LossEntry]] = {}
    for loss in exported.losses.entries:
        kinds.setdefault((loss.kind, loss.block, loss.why), []).append(loss)
    for (kind, block, why), [first, *others] in kinds.items():
        place = "" if first.index is None else f", content[{first.index}]"
        more = f" and {len(others):,} more" if others else ""
        note(f"{kind}: {one_line(block)} of turn {first.turn}{place}{more}: {one_line(why)}")
    return exported


def _part(log: TurnLog, headish: str | None, which: ExportChoice, *, ancestry: bool) -> Callable[[BinaryIO], int]:
    """Return what writes the part of a log that is wanted, and returns the number of its events."""
    heads = which.heads(log)
    if heads is not None and not heads:
        raise UsageError(f"no bookmark is such a one as {which.bookmark!r}: there is nothing to export")
    scope = headish if headish is not None or heads is None else sorted(heads)

    def write(file: BinaryIO) -> int:
        with log.store.read() as transaction:
            there_are = transaction.log_end()
        with progress_bar("exporting") as progress:
            events = log.export(
                file,
                scope,
                ancestry=ancestry or scope is not headish,
                which=which.filter(),
                wanted=is_one_of(heads),
                limit=which.limit,
                progress=progress,
            )
        if not which.is_all:
            left_out = there_are - events
            note(f"left out: {left_out:,} of {count(there_are, 'event')} of the log")
        return events

    return write


def _export_to_stdout(write: Callable[[BinaryIO], object]) -> None:
    check_output()
    try:
        write(json_output())
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise UsageError("standard output was closed before the export was whole") from error
