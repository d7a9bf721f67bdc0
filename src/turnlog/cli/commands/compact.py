"""`turnlog compact`: a summary stands for a run of turns in the windows of what is recorded from now on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turnlog.agent.ask import Ask
from turnlog.agent.policy import Policy
from turnlog.cli.completing import HEADISH
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, check_output, telling, write_json
from turnlog.cli.parameters import parse_parameters
from turnlog.cli.runs import ModelOptions
from turnlog.cli.text import count, text_before_end
from turnlog.cli.turn_options import RedactOptions
from turnlog.cli.usage import STANDARD_STREAM, options
from turnlog.context import KEEP_FIRST, KEEP_LAST, MIN_TURNS, CompactionReport, SummaryText
from turnlog.errors import RunError, os_reason
from turnlog.log import TurnLog
from turnlog.model import ContextWindow

INSTRUCTION = """\
Write a summary of this conversation up to here. It will stand in the place of the turns before this one when the \
conversation goes on, so keep all that is needed for that: what was asked for and why, facts, names, numbers, paths, \
decisions with their reasons, what was done and what came of it, and what is still open. Do not answer anything in the \
conversation, and do not comment on the task: write the summary only."""
"""What a model is asked for by default."""


@options
class AskOptions(ModelOptions):
    """How a model is asked for the summary."""

    instruction: Annotated[str | None, Parameter(help="What to ask the model for, in place of the usual.")] = None
    param: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="A parameter of the model call, NAME=VALUE, such as max_tokens=2000. Give it again for more.",
        ),
    ] = ()

    @property
    def is_given(self) -> bool:
        """Whether any of it is."""
        return vars(self) != vars(AskOptions())


@options
class Thresholds:
    """How much to cover. See `turnlog.context.Policy`."""

    keep_first: Annotated[
        int, Parameter(help=f"Turns at the beginning that stay, if nothing is summarized yet. By default {KEEP_FIRST}.")
    ] = KEEP_FIRST
    keep_last: Annotated[int, Parameter(help=f"Turns at the end that stay. By default {KEEP_LAST}.")] = KEEP_LAST
    min_turns: Annotated[
        int, Parameter(help=f"Do nothing where fewer turns would be covered anew. By default {MIN_TURNS}.")
    ] = MIN_TURNS
    max_turns: Annotated[int | None, Parameter(help="Cover at most so many turns anew.")] = None
    cool_down: Annotated[
        int, Parameter(help="Do nothing before so many turns were recorded since the last time. By default 0.")
    ] = 0


_ASK = AskOptions()
_THRESHOLDS = Thresholds()
_REDACT = RedactOptions()


def compact(
    headish: Annotated[str, HEADISH],
    /,
    *,
    text: Annotated[
        str | None,
        Parameter(help="The summary: its text, @FILE, or - for standard input. Without it a model is asked."),
    ] = None,
    reason: Annotated[str | None, Parameter(help="Why. It is kept with the summary, and can be erased.")] = None,
    dry_run: Annotated[bool, Parameter(negative=(), help="Only say what would be covered; no model is asked.")] = False,
    ask: AskOptions = _ASK,
    thresholds: Thresholds = _THRESHOLDS,
    redact: RedactOptions = _REDACT,
    common: Common = COMMON,
) -> None:
    """Have a summary stand for turns of a thread, in the windows of the turns that are recorded from now on.

    Nothing is deleted: `turnlog context HEADISH --full` shows all turns, and windows of turns that there are stay what
    they are. A tool call is never parted from its result. A model is asked in a fork of the thread, without tools, and
    the call is recorded as any other.

    Exit status: 0, also where there is nothing to do, which is said; 2 when the model failed or could not be asked.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    if text is not None and ask.is_given:
        raise UsageError("--text gives the summary, so no model is asked: leave out --pointer and what goes with it")
    given = None if text is None else _read(text)
    parse_parameters(ask.param)
    if dry_run:
        check_output()
    with common.open(redact=redact.redact) as log:

        def asked(window: ContextWindow) -> SummaryText:
            last = window.messages[-1].turn
            del window  # the run makes its own
            return _ask(log, last, ask)

        report = log.compact(
            headish,
            text=given,
            summarize=None if given is not None else asked,
            keep_first=thresholds.keep_first,
            keep_last=thresholds.keep_last,
            min_turns=thresholds.min_turns,
            max_turns=thresholds.max_turns,
            cool_down_turns=thresholds.cool_down,
            reason=reason,
            dry_run=dry_run,
        )
        done = "nothing was recorded" if report.summary is None else f"{report.summary} is recorded"
        with telling(f"{done}, but it could not be printed"):
            _tell(report, common)


def _ask(log: TurnLog, turn: str, ask: AskOptions) -> SummaryText:
    """Ask a model in a fork behind a turn.

    Raises:
        RunError: it did not come to an end.
    """
    result = log.run(
        ask.instruction or INSTRUCTION,
        continues=turn,
        bookmark=False,
        pointer=ask.pointer,
        provider=ask.provider,
        model=ask.model,
        servers=[],
        policy=Policy(approve="never", iterations_max=1),
        ask=Ask(params=parse_parameters(ask.param)),
    )
    if result.stopped != "done":
        raise RunError(f"nothing was summarized: {result.why}; recorded as {result.head.id}")
    return SummaryText(text=result.text, turn=result.head.id)


def _tell(report: CompactionReport, common: Common) -> None:
    if common.json:
        write_json(report.to_record())
        return
    screen = Screen.of_stdout()
    if report.not_compacted is not None:
        screen.line(("not compacted", "bold"), f"  {report.why}")
        return
    again = f", {report.new_turns:,} of them anew" if report.earlier is not None else ""
    screen.line(
        ("would be compacted", "bold") if report.summary is None else (report.summary, "yellow"),
        f"  {'' if report.summary is None else 'stands for '}{count(report.turns, 'turn')}{again}",
        (f", from {report.first} to {report.last}", "dim"),
    )
    screen.line(f"from the next turn on: {report.messages_after:,} messages before it, not {report.messages_before:,}")


def _read(text: str) -> str:
    """Return the text of `--text`.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    if text != STANDARD_STREAM and not text.startswith("@"):
        return text
    where = "standard input" if text == STANDARD_STREAM else repr(text[1:])
    try:
        content = sys.stdin.buffer.read() if text == STANDARD_STREAM else Path(text[1:]).read_bytes()
        return text_before_end(content)
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 (byte {error.start})") from error
    except (OSError, ValueError) as error:
        reason = os_reason(error)
        raise UsageError(f"{where} cannot be read: {reason}") from error
