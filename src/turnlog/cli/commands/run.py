"""`turnlog run`: add a turn, ask a model, run the tools that it calls, until it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from msgspec.structs import replace

from turnlog.agent.opening import Attached
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.result import RunResult
from turnlog.cli.approval import Approval
from turnlog.cli.failures import EXIT_USAGE, UntoldError, UsageError, error_said, from_when
from turnlog.cli.hidden_turns import telling_of_hidden
from turnlog.cli.interrupts import what_stopped
from turnlog.cli.live import Live
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import abandon_output, note, telling
from turnlog.cli.parameters import parse_schema
from turnlog.cli.resources import read_resources
from turnlog.cli.runs import RunOptions, refuse_early
from turnlog.cli.text import one_line, quoted, text_before_end
from turnlog.cli.usage import STANDARD_STREAM
from turnlog.errors import StoreError, TurnlogError, UnsupportedContentError, os_reason, tell_what_went_in
from turnlog.log import TurnLog
from turnlog.plugins import culprit
from turnlog.turn import Turn

NOTHING_TO_SAY = "there is nothing to say: give TEXT, pipe it in, or go on from a turn with -c"

EXIT_STOPPED = 1
"""The run stopped before the model had finished."""


_TIME_LEAST_S = 0.001
"""A run has this much time at least: none is no limit."""

_RUN = RunOptions()


def run(
    text: str | None = None,
    /,
    *,
    schema: str | None = None,
    options: RunOptions = _RUN,
    common: Common = COMMON,
) -> int:
    """Add a turn, ask a model, run the tools that it calls, and go on until it is done.

    The text of the replies goes to standard output as it comes; tool calls, losses and the id of the last turn go to
    standard error. With --json: what happens, one JSON value a line, and the result at the end.

    Exit status: 0 when the model has finished; 1 when the run stopped before (a limit, a tool call that nobody
    approved, a refusal); 2 when a call failed or nothing could be run; 130 when it was interrupted. What had happened
    is recorded in any case, and `turnlog run -c HEADISH` goes on from there.

    Parameters
    ----------
    text
        What to say. With -, or without it, it is read from standard input. Without any, and with -c or -r, the run
        goes on from that turn: unanswered tool calls are run, a failed call is made again.
    schema
        What the reply is to be: a file with a JSON Schema, or the schema itself. The model is held to it where the
        provider can, and the reply is checked; a model whose reply does not fit is told so once. The value goes to
        standard output, as one line of JSON; the text of the replies does not.
    """
    resumes = bool(options.continues) or options.respond
    content = _read_stdin(resumes=resumes) if text is None or text == STANDARD_STREAM else text
    if content is not None and not content.strip():
        raise UsageError(NOTHING_TO_SAY)
    arguments, bookmark = options.arguments(adds=content is not None), options.moved_bookmark
    output = None if schema is None else parse_schema(schema)
    live = Live(json=common.json, value=output is not None)
    if common.is_new:
        refuse_early(common, content, options, arguments)
    with common.open(create=True, redact=options.redact) as log, telling_of_hidden(log, bookmark):
        options.register(log)
        began_s = time.monotonic()
        attached = _attached(log, options)
        if options.max_time is not None:  # a limit of all of it
            left_s = max(options.max_time - (time.monotonic() - began_s), _TIME_LEAST_S)
            arguments["policy"] = replace(arguments["policy"], time_max_s=left_s)
        if content is not None:
            _note_beginnings(log, options.continues)
        try:
            result = log.run(
                content,
                system=options.system,
                attachments=[*options.attach, *attached],
                output=output,
                continues=options.continues or None,
                respond=options.respond,
                bookmark=bookmark,
                expected_head=options.wanted_head,
                subject=options.named_subject,
                on_approval=Approval(live, log.calls.tools),
                on_delta=live.on_delta,
                on_event=live.on_event,
                **arguments,
            )
        except KeyboardInterrupt:
            live.end_line(interrupted=True)
            if live.turn is None:
                raise
            stop = what_stopped()
            if live.turn.meta.role == "assistant" and live.turn.meta.stop_reason == "stop":
                note(f"{stop.word} when the model had finished: all of it is recorded, up to {live.turn.id}")
            else:
                note(f"{stop.word}; what there was is recorded as {live.turn.id}: `{_again(live.turn)}` goes on")
            return stop.status
        except TurnlogError as error:
            live.end_line()
            if live.turn is None:
                raise
            lost = isinstance(error, UnsupportedContentError) and options.on_loss is None
            again = f"{_again(live.turn)}{' --on-loss report' if lost else ''}"
            # Behind a reply of a model there is nothing that a store could refuse but what comes of its tool calls.
            in_tools = isinstance(error, StoreError) and live.turn.meta.role == "assistant"
            how = "goes on, and asks about tool calls that had begun" if in_tools else "tries again"
            tell_what_went_in(error, f"what came before is recorded, up to {live.turn.id}: `{again}` {how}")
            note(error_said(error))
            return EXIT_USAGE
        except Exception as error:  # noqa: BLE001 - it is raised again, or told
            return _broken_off(error, live.turn)
    with telling(f"all that happened is recorded, up to {result.head.id}, but it could not be printed"):
        again = _again(result.head, "TEXT" if content is not None and not result.turns else "")
        how = " --on-interrupted report" if result.stopped == "interrupted" else ""
        return report(result, live, again + how, _smaller(result.head), json=common.json)


def _broken_off(error: Exception, turn: Turn | None) -> int:
    """Tell of what no store and no provider says. Behind a turn that is most often that nothing can be printed."""
    if turn is None:
        raise error
    where = f"what there was is recorded as {turn.id}: `{_again(turn)}` goes on"
    if isinstance(error, OSError) and culprit(error) is None:
        return not_printed(error, where)
    error.add_note(where)
    raise error


def report(result: RunResult, live: Live, again: str, smaller: str, *, json: bool) -> int:
    """Show what a run came to, say why it stopped before it was done, and return the exit status.

    `again` is the command that goes on from there, and `smaller` says what does so where the thread is too large.
    """
    failed = result.stopped in ("error", "aborted")
    if json or not failed:
        live.show_end(result)
    if result.stopped == "done":
        return 0
    why = one_line(result.why)
    if failed:
        wait_s = result.error.retry_after_s if result.error is not None else None
        then = smaller if result.too_large else f"`{again}` tries again{from_when(wait_s)}"
        note(f"{why}; recorded as {result.head.id}: {then}")
        return EXIT_USAGE
    ends = result.stopped in ("length", "refusal", "invalid") and not result.unanswered
    note(f"stopped: {why}" if ends else f"stopped: {why}: `{again}` goes on")
    return EXIT_STOPPED


def not_printed(error: OSError, where: str) -> int:
    """Say that a run was broken off because its output could not be written, and return the exit status.

    Args:
        error: why it could not.
        where: what is recorded, and what goes on from there.

    Raises:
        UntoldError: it is not that whoever read the output has closed it.
        OSError: it is of a file, and not of the output. A note says where.
    """
    if error.filename is not None:
        error.add_note(where)
        raise error
    abandon_output()
    if isinstance(error, BrokenPipeError):  # `turnlog run … | head`
        note(f"stopped: whoever read the output has closed it; {where}")
        return EXIT_STOPPED
    raise UntoldError(f"it could not be printed ({os_reason(error)}); {where}") from error


def _again(head: Turn, text: str = "") -> str:
    """Return the command that goes on from a turn, with text or without."""
    return f"turnlog run {text and f'{text} '}-c {_name(head)}"


def _smaller(head: Turn) -> str:
    """Return the commands that go on from a turn whose thread is too large for its model."""
    name = _name(head)
    return (
        f"`turnlog compact {name}`, then `turnlog run TEXT -c {name}`, goes on with a summary of older turns, "
        f"`turnlog run TEXT -c {name}~N` from N turns before, `-p` with another model, and `--max-result-bytes` shows "
        "less of what tools returned"
    )


def _name(head: Turn) -> str:
    """Return how a turn is named: by the bookmark that it has moved, if it has."""
    bookmark = head.meta.head
    return quoted(bookmark) if isinstance(bookmark, str) else head.id


def _attached(log: TurnLog, options: RunOptions) -> list[Attached]:
    """Return the resources that go before the question."""
    wanted = options.resources
    if not wanted:
        return []
    with OwnLoop() as loop:
        return loop.run(read_resources(log, wanted, within_s=options.max_time))


def _note_beginnings(log: TurnLog, continues: Sequence[str]) -> None:
    """Say where a run leaves out what a thread has come to: listings name threads by their first turns."""
    for headish in continues:
        turn = log.turn(headish)
        if not turn.continues and turn.id.startswith(headish.lower()) and (turns := log.turn_count(turn.id)) > 1:
            note(
                f"{headish} is the first of {turns:,} turns of its thread, and this begins a branch behind it: "
                f"`turnlog log {headish}` shows the last ones"
            )


def _read_stdin(*, resumes: bool) -> str | None:
    """Return standard input as text; None where there is none and a turn to go on from.

    Raises:
        UsageError: it is a terminal or empty, and there is no turn to go on from; or it is not UTF-8.
    """
    if sys.stdin is None or sys.stdin.isatty():
        content = b""
    else:
        content = sys.stdin.buffer.read()
    if not content and resumes:
        return None
    if not content:
        raise UsageError(NOTHING_TO_SAY)
    try:
        return text_before_end(content)
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 (byte {error.start})") from error
