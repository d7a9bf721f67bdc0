"""`turnlog request` and `turnlog replay`: what a model was sent and what it answered, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from turnlog.calls import Call, RequestCheck, UnreadableCall
from turnlog.cli.completing import HEADISH
from turnlog.cli.failures import EXIT_DAMAGE, EXIT_OTHER_VERSION
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, binary_output, note, write_json, write_json_lines
from turnlog.cli.text import count, one_line, size


def request(
    call: Annotated[str, HEADISH],
    /,
    *,
    events: Annotated[
        bool, Parameter(negative=(), help="Write the raw events of the reply instead, one after the other.")
    ] = False,
    common: Common = COMMON,
) -> None:
    """Write the exact bytes of a recorded request body to standard output.

    Tool arguments and other JSON of turns stand in it as the model wrote them, but for whitespace outside strings. With
    --json: the call with all that is recorded of it, loss report included.

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
            write_json(log.calls.get(call).raw_record())
        else:
            binary_output().write(log.calls.request(call))


def replay(
    headish: Annotated[str, HEADISH],
    /,
    *,
    check: Annotated[
        bool, Parameter(negative=(), help="Make every recorded request again, add every reply up again, and compare.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """List the model calls that a turn came of, oldest first; with --check prove that they can be made again.

    Exit status 1 when a request is not, byte for byte, what its turn gives today, or when the raw events of a reply do
    not add up to the turn that it became; 3 where all that differs was recorded by another version of the adapter: it
    is intact, and this version makes other bytes of it. A reply that was redacted has no raw events, and is not
    compared; nor is a request that was erased, or is sealed and its key is not here.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    with common.open() as log:
        if not check:
            calls = log.calls.of(headish)
            if common.json:
                write_json_lines(call.raw_record() if isinstance(call, Call) else call.to_record() for call in calls)
                return 0
            rows = [_row(call) for call in calls]
            columns = max(map(len, rows), default=0)
            Screen.of_stdout().table([[*row[:-1], *[""] * (columns - len(row)), row[-1]] for row in rows])
            _say_if_none(len(calls), headish)
            return 0
        checked = list(log.calls.check(headish))
    found = [one for one in checked if one.difference is not None or one.reply_difference is not None]
    if common.json:
        write_json_lines(checked)
    else:
        screen = Screen.of_stdout()
        for one in checked:
            for which, difference in (("request", one.difference), ("reply", one.reply_difference)):
                if difference is not None:
                    screen.line((one.call, "yellow"), f"  {which} ", (one_line(difference), "red"))
            if one.unreadable is not None:
                screen.line((one.call, "yellow"), "  request ", (f"not compared: {one_line(one.unreadable)}", "dim"))
        screen.line(_summary(checked))
        if by_version := sum(len(one.by_version) for one in checked):
            screen.line(
                f"{by_version:,} of these differences: what is recorded is intact, and was made by another version of "
                "the adapter; this one makes other bytes"
            )
        _say_if_none(len(checked), headish)
    if all(_is_by_version(one) for one in found):
        return EXIT_OTHER_VERSION if found else 0
    return EXIT_DAMAGE


def _is_by_version(checked: RequestCheck) -> bool:
    """Tell whether all that differs was recorded by another version of the adapter."""
    differences = {"request": checked.difference, "reply": checked.reply_difference}
    return all(which in checked.by_version for which, difference in differences.items() if difference is not None)


def _row(call: Call | UnreadableCall) -> list[Piece]:
    if isinstance(call, UnreadableCall):
        return [(call.id, "yellow"), (one_line(call.unreadable), "dim")]
    return [
        (call.id, "yellow"),
        one_line(f"{call.meta.provider} {call.meta.model}"),
        size(call.meta.request.size),
        (f"losses: {len(call.loss_report.entries)}" if call.loss_report else "", "dim"),
        ("of another window" if call.window_change is not None else "", "dim"),
    ]


def _summary(checked: Sequence[RequestCheck]) -> str:
    unreadable = sum(one.unreadable is not None for one in checked)
    different = sum(one.difference is not None for one in checked)
    requests = len(checked) - different - unreadable
    replies = sum(one.events is not None and one.reply_difference is None for one in checked)
    other_replies = sum(one.reply_difference is not None for one in checked)
    add_up = "1 reply adds up to its turn" if replies == 1 else f"{replies:,} replies add up to their turns"
    redacted = sum(one.redacted for one in checked)
    not_read = f", {unreadable:,} not readable and not compared" if unreadable else ""
    not_compared = f"; {redacted:,} redacted and not compared" if redacted else ""
    return (
        f"{count(requests, 'request')} equal byte for byte, {different:,} different{not_read}; "
        f"{add_up}, {other_replies:,} different{not_compared}"
    )


def _say_if_none(found: int, headish: str) -> None:
    if not found:
        note(f"no recorded model call in the ancestry of {one_line(headish)}")
