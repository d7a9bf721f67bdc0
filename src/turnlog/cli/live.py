"""A run as it goes on: text to standard output, all else to standard error; or JSON lines."""

from __future__ import annotations

import sys
from typing import Literal

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as Styled

from turnlog.agent.events import (
    BookmarkLeft,
    CallRetried,
    CallStarted,
    HeadBusy,
    OutputRefused,
    RunEvent,
    ToolFinished,
    ToolInterrupted,
    ToolProgress,
    ToolRetried,
    ToolsNoted,
    ToolStarted,
    TurnRecorded,
    UsageMissing,
    raw_event_record,
)
from turnlog.agent.progress import Progress
from turnlog.agent.result import RunResult
from turnlog.cli.first_sign import is_first_sign_shown
from turnlog.cli.json_text import on_one_line
from turnlog.cli.output import write_json
from turnlog.cli.preview import of_block, of_blocks
from turnlog.cli.redaction import tell_redacted
from turnlog.cli.shown_text import ShownText
from turnlog.cli.text import count, fit, on_line, one_line, printable
from turnlog.cli.waiting import Waiting
from turnlog.model import Delta, LossEntry, Text, ToolUse
from turnlog.turn import Turn


class Live:
    """Shows a run while it goes on, and keeps its last turn.

    The text of replies goes to standard output, as it is unless that is a terminal. Thinking, tool calls, their results
    and losses go to standard error, thinking only to a terminal, and so does what is waited for while nothing comes.

    Attributes:
        turn: the turn that was recorded last, None if none was.
        interrupted: the tool call that may have had effects in an earlier run, where that was told last.
        json: whether it is shown as JSON lines.
    """

    def __init__(self, *, json: bool, value: bool = False) -> None:
        """Show it as JSON lines, or as text for people; of a run that comes to a value, that alone and no text."""
        self.turn: Turn | None = None
        self.interrupted: ToolUse | None = None
        self.call: str | None = None
        """The model call that was made last."""
        self.json = json
        self._value = value
        self._errors = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._on_terminal = sys.stdout.isatty()
        self._waiting = Waiting(self._errors)
        self._within: Literal["text", "thinking"] | None = None
        self._shown = ShownText()
        self._thought = False
        self._mid_line = False
        self._at_work: list[str] = []
        self._progress: dict[str, str] = {}
        self._held = ""
        self._losses: set[LossEntry] = set()

    def on_delta(self, delta: Delta) -> None:
        """Show a piece of a reply."""
        if self.json:
            said = msgspec.structs.asdict(delta)
            self._write_json("delta", {name: value for name, value in said.items() if value is not None})
            return
        if isinstance(delta.type, str):
            self._begin(delta)
        if not isinstance(delta.content, str) or not delta.content:
            return
        if self._within == "text" and not self._value:
            self._waiting.end()
            self._shown.add(delta.content)
            self._write_text(delta.content)
        elif self._within == "thinking":
            self._waiting.end()
            self._thought = True
            self._errors.print(Styled(printable(delta.content), "dim"), end="")
        else:
            self._waiting.count(len(delta.content))

    def on_event(self, event: RunEvent) -> None:
        """Show what has happened."""
        if isinstance(event, TurnRecorded):
            self.turn = event.turn
        if isinstance(event, CallStarted):
            self.call = event.call
        self.interrupted = event.call if isinstance(event, ToolInterrupted) and not event.is_told else None
        if self.json:
            self._write_json(event.kind, raw_event_record(event))
            if isinstance(event, TurnRecorded):
                tell_redacted(event.turn)
            return
        if isinstance(event, ToolProgress):
            self._progress[one_line(event.call.name)] = _said(event.progress)
            self._waiting.say(self._work)
            return
        if isinstance(event, TurnRecorded):
            self._complete(event)
        if not (is_first_sign_shown() and isinstance(event, TurnRecorded | CallStarted)):
            self.end_line()
        self._show(event)
        if self._at_work and not isinstance(event, CallStarted):
            self._waiting.begin(self._work)

    def _complete(self, event: TurnRecorded) -> None:
        """Show what is recorded of a reply behind what was shown of it, or say that the two differ."""
        if event.response is None or self._value:
            return
        rest = self._shown.rest_of(block.text for block in event.response.content if isinstance(block, Text))
        for text in rest or ():
            self.on_delta(Delta(type="text", content=text))
        if rest is None:
            self.end_line()
            said = f"what was recorded of this reply differs from what was shown: see turnlog show {event.turn.id}"
            self.line((f"! {said}", "yellow"))

    def _show(self, event: RunEvent) -> None:
        match event:
            case CallStarted():
                self._shown = ShownText()
                self._show_losses(event)
                self._waiting.begin(f"waiting for {event.model}")
            case CallRetried():
                self.line((f"! {one_line(event.error.message)}: again in {event.wait_s:.3g} s", "yellow"))
                self._waiting.begin("waiting to try again")
            case OutputRefused():
                self.line((f"! the reply is not what was asked for: {one_line(event.why)}", "yellow"))
            case ToolStarted():
                name = one_line(event.call.name)
                arguments = of_block(event.call).removeprefix(f"→ {name}")
                self.line(("→ ", "blue"), (name, "bold blue"), (arguments, "blue"), cut=True)
                self._at_work.append(name)
            case ToolInterrupted():
                name = one_line(event.call.name)
                said = f"  {_where(event)}"
                self.line(("! ", "bold yellow"), (name, "bold yellow"), (said, "yellow"))
            case ToolFinished():
                self._show_result(event)
                if (name := one_line(event.call.name)) in self._at_work:
                    self._at_work.remove(name)
                    self._progress.pop(name, None)
            case ToolRetried():
                why = one_line(of_blocks(event.outcome.content))
                name = one_line(event.call.name)
                self.line((f"← {name}  failed, again in {event.wait_s:g} s: {why}", "yellow"), cut=True)
            case TurnRecorded():
                self._at_work.clear()
                tell_redacted(event.turn)
            case HeadBusy() | BookmarkLeft() | ToolsNoted() | UsageMissing():
                self._warn(event)
            case ToolProgress():
                pass  # it is a part of what is waited for

    @property
    def _work(self) -> str:
        """Which tools are at work, and how far they have come."""
        return ", ".join(" ".join(filter(None, (name, self._progress.get(name)))) for name in self._at_work)

    def _warn(self, event: HeadBusy | BookmarkLeft | ToolsNoted | UsageMissing) -> None:
        match event:
            case HeadBusy():
                said = f"another run is at work on {event.turn.id}: waiting for it, {event.wait_s:g} s at most"
            case BookmarkLeft():
                self.say_left(event.bookmark)
                return
            case ToolsNoted():
                said = one_line(event.note)
            case UsageMissing():
                said = "the provider does not say how many tokens it took: the limit of tokens does not count them"
        self.line((f"! {said}", "yellow"))
        if isinstance(event, HeadBusy):
            self._waiting.begin("waiting for another run")

    def say_left(self, bookmark: str, other: str | None = None) -> None:
        """Say that a bookmark does not move along any more, and which other one does."""
        place = "a branch of its own" if other is None else one_line(other)
        said = f"! bookmark {one_line(bookmark)} was moved or deleted meanwhile: this goes on on {place}"
        self.line((said, "yellow"))

    def end_line(self, *, interrupted: bool = False) -> None:
        """End the line that is being written: something else comes next.

        A terminal that was interrupted is in the middle of a line: it shows `^C`.
        """
        is_mid_line = self._waiting.end() or self._mid_line or self._thought
        if interrupted and self._errors.is_terminal and not is_mid_line:
            self._errors.print()
        self._end_thinking()
        if self._mid_line:
            sys.stdout.write("\n")
        sys.stdout.flush()
        self._within, self._mid_line, self._held = None, False, ""

    def wait_for(self, what: str) -> None:
        """Say what is waited for, until something else is shown."""
        if not self.json:
            self._waiting.begin(what)

    def line(self, *pieces: tuple[str, str], cut: bool = False) -> None:
        """Write one line to standard error, whole, or of a preview what a terminal has room for."""
        left = self._errors.width if cut and self._errors.is_terminal else None
        line = Styled()
        for text, style in pieces:
            shown = on_line(text) if left is None else fit(on_line(text), left)
            left = None if left is None else left - cell_len(shown)
            line.append(shown, style)
        self._waiting.end()
        self._errors.print(line)

    def error(self, text: str) -> None:
        """Write an error to standard error, whole: what to do stands at its end."""
        self._waiting.end()
        self._errors.print(Styled(on_line(text), "red"))

    def show_end(self, result: RunResult) -> None:
        """Show what the run came to: its head, and what it took."""
        if self.json:
            self._write_json("result", result.raw_record())
            return
        self.end_line()
        if self._value and result.stopped == "done":
            write_json(result.to_record()["output"])
            sys.stdout.flush()
        head = result.head
        bookmark = f" on {one_line(head.meta.head)}" if isinstance(head.meta.head, str) else ""
        took = count(len(result.calls), "call")
        if result.usage.total_tokens:
            took += f", {count(result.usage.total_tokens, 'token')}"
        self.line((f"turnlog: {head.id}{bookmark} ({took})", "dim"))

    def _write_json(self, kind: str, record: dict[str, object]) -> None:
        write_json({"event": kind, **record})
        sys.stdout.flush()

    def _begin(self, delta: Delta) -> None:
        """Begin to show a block of a reply. Texts that follow each other are one: citations have parted them."""
        if delta.type == "text":
            self._end_thinking()
            self._within = "text"
            if self._value:
                self._waiting.begin("writing the answer")
            return
        self.end_line()
        self._within = "thinking" if delta.type == "thinking" and self._errors.is_terminal else None
        if delta.type == "thinking":
            self._waiting.begin("thinking")
        elif isinstance(delta.name, str):
            self._waiting.begin(f"writing a call of {delta.name}")

    def _end_thinking(self) -> None:
        if self._within == "thinking":
            if self._thought:
                self._errors.print()
            self._within, self._thought = None, False

    def _write_text(self, text: str) -> None:
        if self._on_terminal:
            whole = self._held + text
            text = printable(whole.removesuffix("\r"))
            self._held = whole[len(whole.removesuffix("\r")) :]  # it may be the first half of a line end
        if text:
            self._mid_line = not text.endswith("\n")
            sys.stdout.write(text)
            sys.stdout.flush()

    def _show_losses(self, event: CallStarted) -> None:
        """Show what is new of a loss report, one line for each kind of loss."""
        new = [entry for entry in event.loss_report.entries if entry not in self._losses]
        self._losses.update(new)
        kinds: dict[tuple[str, str], list[LossEntry]] = {}
        for entry in new:
            kinds.setdefault((entry.kind, entry.block), []).append(entry)
        for (kind, block), entries in kinds.items():
            why = one_line(entries[-1].why)
            if len(entries) > 1:
                which = f" ({len(entries)} times, see turnlog request {event.call} --json)"
            else:
                which = f" of turn {one_line(entries[0].turn)}" if entries[0].turn else ""
            self.line((f"{kind} {one_line(block)}{which}: {why}", "yellow"))

    def _show_result(self, event: ToolFinished) -> None:
        outcome = event.outcome
        style, error = ("red", "error: ") if outcome.is_error else ("", "")
        texts = [block.text for block in outcome.content if isinstance(block, Text)]
        json = on_one_line(texts[0]) if texts else None
        shown = json or of_blocks(outcome.content) or "(nothing)"
        lines = sum(text.rstrip("\n").count("\n") for text in (texts[1:] if json else texts))
        effects = "; it may have had effects" if outcome.may_have_had_effects else ""
        more = f" (and {count(lines, 'more line')}{effects})" if lines else ""
        known = " (as an earlier run has recorded it)" if event.known else ""
        name = one_line(event.call.name)
        self.line((f"← {name}  ", style or "blue"), (error + shown, style), (more + known, "dim"), cut=True)


def _where(event: ToolInterrupted) -> str:
    """Return how a call came to be one whose end nobody knows, and what that means."""
    if event.is_told:
        return "was at work when an earlier run was stopped: it may have had effects, which the model is told"
    if event.is_unrecorded:
        return "may have been called by an earlier run, of a turnlog that did not record it: it may have had effects"
    where = "was called, another log says" if event.is_claimed else "was at work when an earlier run ended"
    return f"{where}: it may have had effects"


def _said(progress: Progress) -> str:
    """Return how far a tool has come, in a few words."""
    total = "" if progress.total is None else f"/{progress.total:g}"
    return f"{progress.done:g}{total} {one_line(progress.message)}".rstrip()
