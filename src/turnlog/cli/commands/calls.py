"""`turnlog request` and `turnlog replay`: what a model was sent, byte for byte."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from turnlog.cli.failures import EXIT_DAMAGE
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, binary_output, note, write_json, write_json_lines
from turnlog.cli.text import count, one_line, size


def request(
    call: str,
    /,
    *,
    events: Annotated[
        bool, Parameter(negative=(), help="Write the raw events of the reply instead, one after the other.")
    ] = False,
    common: Common = COMMON,
) -> None:
    """Write the exact bytes of a recorded request body to standard output.

    With --json: the call with all that is recorded of it, loss report included.

    Parameters
    ----------
    call
        A call by its id, or the turn that came of it, by id or bookmark.
    """
    with common.open() as log:
        if events:
            for event in log.calls.events(call):
                binary_output().write(event + b"\n")
        elif common.json:
            write_json(log.calls.get(call).to_record())
        else:
            binary_output().write(log.calls.request(call))


def replay(
    headish: str,
    /,
    *,
    check: Annotated[
        bool, Parameter(negative=(), help="Prepare every recorded request again, and compare its bytes.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """List the model calls that a turn came of, oldest first; with --check prove that they can be made again.

    Exit status 1 when a request is not, byte for byte, what its turn gives today.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    with common.open() as log:
        if not check:
            calls = log.calls.of(headish)
            if common.json:
                write_json_lines(call.to_record() for call in calls)
                return 0
            rows: list[list[Piece]] = [
                [
                    (call.id, "yellow"),
                    one_line(f"{call.meta.provider} {call.meta.model}"),
                    size(call.meta.request.size),
                    (f"losses: {len(call.loss_report.entries)}" if call.loss_report else "", "dim"),
                ]
                for call in calls
            ]
            Screen.of_stdout().table(rows)
            _say_if_none(len(calls), headish)
            return 0
        checked = list(log.calls.check(headish))
    different = [one for one in checked if one.difference is not None]
    if common.json:
        write_json_lines(checked)
    else:
        screen = Screen.of_stdout()
        for one in different:
            screen.line((one.call, "yellow"), ("  " + one_line(one.difference or ""), "red"))
        equal = len(checked) - len(different)
        screen.line(f"{count(equal, 'request')} equal byte for byte, {len(different)} different")
        _say_if_none(len(checked), headish)
    return EXIT_DAMAGE if different else 0


def _say_if_none(found: int, headish: str) -> None:
    if not found:
        note(f"no recorded model call in the ancestry of {one_line(headish)}")
