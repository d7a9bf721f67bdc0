"""Compaction: a summary is recorded for a run of turns, and stands in their place in the windows of later turns.

Nothing is deleted, and no window changes that there was before.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from turnlog.context.cuts import NotCompacted, Policy, Run, choose_run
from turnlog.context.projector import Projector
from turnlog.errors import ContentError, MetaError
from turnlog.events import SUMMARY, Recorded
from turnlog.model import ContextWindow, Message, Text, decode_content
from turnlog.model.kinds import check_type
from turnlog.record import Redaction, find_turn
from turnlog.record.compaction import (
    SummaryDraft,
    first_parent_runs,
    pending_summary,
    plan_summary,
    run_of,
    summary_content,
    summary_meta,
)
from turnlog.sources import Sources
from turnlog.store import ReadTransaction, Store, WriteTransaction


class SummaryText(Struct, frozen=True, kw_only=True):
    """What a summary says, and the assistant turn that says it, if it is in the log: the summary cites it then."""

    text: str
    turn: str | None = None


Summarize = Callable[[ContextWindow], str | SummaryText]
"""Summarizes a window: all that there is up to the last turn that the summary will cover, that turn included."""


class CompactionReport(Struct, frozen=True, kw_only=True):
    """What compacting a thread came to.

    Attributes:
        head: the turn that it was asked for.
        summary: id of the `gpt.summary` event; None where nothing was done, and in a dry run.
        not_compacted: why nothing was done; None where something was, or in a dry run would be.
        first: the first turn that the summary covers.
        last: the last one.
        turns: how many turns it covers.
        new_turns: how many of them no summary stood for before.
        earlier: the summary that stood for the others.
        text: what it says, as it is recorded: without what was redacted.
        messages_before: how many messages the window of the next turn would have had, without that turn's own.
        messages_after: how many it has now.
    """

    head: str
    summary: str | None = None
    not_compacted: NotCompacted | None = None
    first: str | None = None
    last: str | None = None
    turns: int = 0
    new_turns: int = 0
    earlier: str | None = None
    text: str = ""
    messages_before: int
    messages_after: int

    @property
    def why(self) -> str:
        """Why nothing was done, as a line for people; empty where something was."""
        return "" if self.not_compacted is None else self.not_compacted.why

    def to_record(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return structs.asdict(self) | {"why": self.why}


class _State(Struct, frozen=True, kw_only=True):
    """What a thread is, up to a turn."""

    head: str
    window: ContextWindow
    """All of it."""
    path: frozenset[str]
    """The turns in it that are on the first-parent path."""
    earlier: Message | None
    """The summary that the next turn would show."""
    covered: tuple[int, int] | None
    """What that stands for: the indexes of the first and of the last message."""
    since: int | None
    """How many turns were recorded since it was, up to the cool-down."""

    @property
    def length(self) -> int:
        """How many messages the window of the next turn would have, without its own."""
        hidden = 0 if self.covered is None else self.covered[1] - self.covered[0]
        return len(self.window.messages) - hidden

    def seen_up_to(self, last: int) -> list[Message]:
        """Return the messages up to one of them, with the earlier summary in the place of what it stands for."""
        messages = list(self.window.messages[: last + 1])
        if self.covered is None or self.earlier is None:
            return messages
        return [*messages[: self.covered[0]], self.earlier, *messages[self.covered[1] + 1 :]]


def compact(
    store: Store,
    projector: Projector,
    sources: Sources,
    redaction: Redaction,
    headish: str,
    *,
    written: str | Summarize | None,
    policy: Policy,
    reason: str | None,
) -> CompactionReport:
    """Record a summary of a run of turns. See `TurnLog.compact`.

    `written` is the text, or what writes it; None only says what would be covered.
    """
    policy.check()
    if not (written is None or isinstance(written, str) or callable(written)):
        kind = type(written).__name__
        raise MetaError(f"text: expected a text, and for summarize a function, got {kind}", field="text")
    if reason is not None:
        check_type(reason, str, "reason")
        redaction.refuse(SUMMARY, {"reason": reason})
    with store.read() as transaction:
        state = _state(transaction, projector, find_turn(transaction, headish), policy)
    before = state.length
    run = choose_run(state.window.messages, state.path, state.covered, state.since, policy)
    if isinstance(run, NotCompacted):
        return CompactionReport(head=state.head, not_compacted=run, messages_before=before, messages_after=before)
    report = _report(state, run)
    if written is None:
        return report
    seen = state.seen_up_to(run.last)
    erasure = state.window.erasure or 0
    seen_turns = [message.turn for message in seen if not message.erased]
    first, last = (state.window.messages[index].turn for index in (run.first, run.last))
    shown = [structs.replace(state.window, messages=seen)]
    del state, seen  # what asks a model may need the room: from here on the window is its own alone
    said = _said(written if isinstance(written, str) else written(shown.pop()))
    payload, findings = redaction.line(summary_content(said.text), SUMMARY)
    redacted = dict(sorted(Counter(kind for _, kind in findings).items()))

    def plan(transaction: WriteTransaction) -> Recorded:
        meta = structs.replace(
            summary_meta(transaction, first, last, turns=report.turns, writer=said.turn),
            earlier=report.earlier,
            reason=reason,
            redacted=redacted or None,
        )
        draft = SummaryDraft(
            payload=payload,
            meta=meta,
            head=report.head,
            seen=seen_turns,
            keys=projector.keys(transaction, find_turn(transaction, last)),
            erasure=erasure,
        )
        return plan_summary(transaction, draft, sources)

    recorded = "".join(block.text for block in decode_content(payload)[1:] if isinstance(block, Text))
    return structs.replace(report, summary=store.write(plan).header.id, text=recorded)


def _said(said: object) -> SummaryText:
    """Return what was written as a summary.

    Raises:
        ContentError: it is none, or says nothing.
    """
    text = SummaryText(text=said) if isinstance(said, str) else said
    if not isinstance(text, SummaryText):
        if inspect.iscoroutine(text):
            text.close()
        raise ContentError(
            f"summarize: expected a text or SummaryText, got {type(text).__name__}; nothing was recorded", field="text"
        )
    if not text.text.strip():
        raise ContentError("text: the summary says nothing; nothing was recorded of it", field="text")
    return text


def _report(state: _State, run: Run) -> CompactionReport:
    covered = run.last - run.first + 1
    return CompactionReport(
        head=state.head,
        first=state.window.messages[run.first].turn,
        last=state.window.messages[run.last].turn,
        turns=covered,
        new_turns=run.new,
        earlier=None if state.earlier is None else state.earlier.turn,
        messages_before=state.length,
        messages_after=len(state.window.messages) - covered + 1,
    )


def _state(transaction: ReadTransaction, projector: Projector, head: Recorded, policy: Policy) -> _State:
    # What is asked of other windows comes first: each may be large, and one is in memory at a time.
    summary = _current(transaction, projector, head)
    runs = first_parent_runs(transaction, head)
    inside = None if summary is None else _inside(transaction, projector, head, summary, runs)
    window = projector.window(transaction, head, summaries=False)
    places = transaction.located([message.turn for message in window.messages])
    path = frozenset(turn for turn, at in places.items() if at.position <= runs.get(at.stream, -1))
    earlier, since = None, None
    covered = None if inside is None else _covered(window.messages, inside)
    if summary is not None and covered is not None:
        content = transaction.payload(summary) or b"[]"
        earlier = Message(turn=summary.header.id, role="user", content_json=content)
        since = _turns_since(transaction, window.messages, summary, policy.cool_down_turns)
    return _State(head=head.header.id, window=window, path=path, earlier=earlier, covered=covered, since=since)


def _current(transaction: ReadTransaction, projector: Projector, head: Recorded) -> Recorded | None:
    """Return the summary that a turn would show that continues a turn now."""
    pending = pending_summary(transaction, head)
    if pending is not None:
        return pending
    shown = projector.window(transaction, head, explain=True, summaries=True).explanation
    summarized = None if shown is None else shown.summarized
    return None if summarized is None else transaction.event(summarized.summary)


def _inside(
    transaction: ReadTransaction, projector: Projector, head: Recorded, summary: Recorded, runs: Mapping[str, int]
) -> set[str] | None:
    """Return the turns that a summary stands for, also those that had failed; None where it is not of this path."""
    run = run_of(transaction, summary, runs)
    if run is None:
        return None
    turns = [
        message.turn for message in projector.window(transaction, head, include_failed=True, summaries=False).messages
    ]
    return set(turns[turns.index(run[0].header.id) : turns.index(run[1].header.id) + 1])


def _covered(messages: Sequence[Message], inside: Container[str]) -> tuple[int, int] | None:
    """Return which messages a summary of some turns stands for; None where all of these had failed."""
    found = [index for index, message in enumerate(messages) if message.turn in inside]
    return (found[0], found[-1]) if found else None


def _turns_since(transaction: ReadTransaction, messages: Sequence[Message], summary: Recorded, enough: int) -> int:
    """Return how many of the last messages were recorded after a summary; no more than are enough."""
    count = 0
    for message in reversed(messages):
        if count >= enough:
            break
        recorded = transaction.event(message.turn)
        if recorded is None or recorded.global_position < summary.global_position:
            break
        count += 1
    return count
