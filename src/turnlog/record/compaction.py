"""Summaries of runs of turns: how they are recorded, and from which turn on they take effect.

A turn cites the summary that its window is to show. So the window of a turn stays what it was, whatever is summarized
later, and its digest commits to the summary. The next turn that is recorded behind a summarized run cites the summary
by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from turnlog.errors import CorruptionError, ErasedSinceError, MetaError, UnknownTurnError
from turnlog.events import SUMMARY, TURN, Arrival, Recorded, check_cited, cite, turn_meta
from turnlog.model import SummaryMeta, Text, content_bytes
from turnlog.record.append import plan_event
from turnlog.record.drafts import EventDraft
from turnlog.record.sealing import general_key, keys_of
from turnlog.sources import Sources
from turnlog.store import ReadTransaction, WriteTransaction

INTRODUCTION = "This is a summary of earlier turns of this conversation. It stands in their place."
"""The first text block of each summary, so that a model knows what it reads."""


class SummaryDraft(Struct, frozen=True, kw_only=True):
    """A summary to record.

    Attributes:
        payload: its content blocks.
        meta: its metadata, with all that it cites by id.
        head: id of the turn behind which it is to take effect.
        seen: ids of the turns that whoever wrote it has seen, without those that were erased.
        keys: ids of the keys that what it was written from is sealed under.
        erasure: global position of the last erasure that was known then.
    """

    payload: bytes
    meta: SummaryMeta
    head: str
    seen: Sequence[str]
    keys: frozenset[str]
    erasure: int


def summary_content(text: str) -> bytes:
    """Return the content of a summary: a text block that says what it is, and the text."""
    return content_bytes([Text(text=INTRODUCTION), Text(text=text)])


def plan_summary(transaction: WriteTransaction, draft: SummaryDraft, sources: Sources) -> Recorded:
    """Record a summary. What it cites is in the log.

    Raises:
        ErasedSinceError: something that it was written from was erased since.
        UnknownTurnError: what it cites is not in the log.
        SealError: it is to be sealed, and the keys are not here.
        MetaError: what it covers is no run of the first-parent path of the head, so that no window would show it; or
            the metadata is too large.
    """
    if transaction.last_erasure() > draft.erasure:
        for turn in draft.seen:
            recorded = transaction.event(turn)
            if recorded is not None and recorded.erased:
                raise ErasedSinceError(
                    f"turn {turn!r} was erased while it was summarized: compact again; nothing was recorded"
                )
    meta = draft.meta
    first, last, head = (_known(transaction, turn) for turn in (meta.first, meta.last, draft.head))
    if not _is_run(first, last, first_parent_runs(transaction, head)):
        raise MetaError(
            f"the turns from {meta.first!r} to {meta.last!r} are no run of the first-parent path of {draft.head!r}: no "
            "window would show their summary, and nothing was recorded",
            field="first",
        )
    named = {
        "from": meta.first,
        "to": meta.last,
        "summary": meta.earlier,
        "turn": meta.turn,
        "call": meta.call,
    }
    citations = [
        cite(_known(transaction, event_id), relation)
        for relation, event_id in named.items()
        if isinstance(event_id, str)
    ]
    key = keys_of(transaction, draft.keys) or general_key(transaction)
    event = EventDraft(topic=SUMMARY, meta=meta)
    return plan_event(transaction, event, transaction.placed(draft.payload), sources, citations, key=key)


def _known(transaction: ReadTransaction, event_id: str) -> Recorded:
    recorded = transaction.event(event_id)
    if recorded is None:
        raise UnknownTurnError(f"no event {event_id!r}", headish=event_id)
    return recorded


def pending_summary(transaction: ReadTransaction, parent: Recorded) -> Recorded | None:
    """Return the summary that a turn would cite that continues a turn now; None for none.

    That is the last one that was recorded since that turn, here and not in another log, and that covers a run of its
    first-parent path.

    Args:
        transaction: the snapshot to read from.
        parent: the first parent of such a turn.
    """
    found = None
    runs: Mapping[str, int] | None = None
    for summary in transaction.log(parent.global_position, topics=[SUMMARY]):
        # Somebody else's summary has an effect in their thread, which cites it, and in no other.
        if summary.arrival == Arrival.GUEST or summary.unreadable:
            continue
        runs = first_parent_runs(transaction, parent) if runs is None else runs
        if run_of(transaction, summary, runs) is not None:
            found = summary
    return found


def first_parent_runs(transaction: ReadTransaction, head: Recorded) -> dict[str, int]:
    """Return the first-parent path of a turn: its streams, each with the last position that is on the path."""
    runs: dict[str, int] = {}
    turn = head
    while True:
        header = turn.header
        runs[header.stream] = header.position
        begin = turn if header.position == 0 else transaction.at(header.stream, 0)
        parents = () if begin is None else begin.header.parents
        if begin is None or not parents:
            break
        found = transaction.event(parents[0].id)
        # In a damaged or forged log a parent may come after its child, and to follow it might never end.
        if found is None or found.global_position >= begin.global_position:
            raise CorruptionError(
                f"turn {begin.header.id!r} continues {parents[0].id!r}, which is not recorded before it: "
                "run `turnlog verify`",
                global_position=begin.global_position,
            )
        turn = found
    return runs


def run_of(
    transaction: ReadTransaction, summary: Recorded, runs: Mapping[str, int]
) -> tuple[Recorded, Recorded] | None:
    """Return the first and the last turn that a summary covers; None where they are not in this order on a path.

    Args:
        transaction: the snapshot to read from.
        summary: the summary.
        runs: the first-parent path, as `first_parent_runs` returns it.
    """
    ends: list[Recorded] = []
    for relation in ("from", "to"):
        citation = next((found for found in summary.header.citations if found.relation == relation), None)
        turn = None if citation is None else transaction.event(citation.id)
        if citation is None or turn is None or turn.header.topic != TURN:
            return None
        check_cited(summary, citation, turn)
        ends.append(turn)
    first, last = ends
    return (first, last) if _is_run(first, last, runs) else None


def _is_run(first: Recorded, last: Recorded, runs: Mapping[str, int]) -> bool:
    """Tell whether two turns are on a first-parent path, in this order."""
    on_path = all(turn.header.position <= runs.get(turn.header.stream, -1) for turn in (first, last))
    return on_path and first.global_position <= last.global_position


def summary_meta(transaction: ReadTransaction, first: str, last: str, *, turns: int, writer: str | None) -> SummaryMeta:
    """Return the metadata of a summary of a run that a turn of a model says, or that was given.

    Args:
        transaction: the snapshot to read from.
        first: the first turn of the run.
        last: its last turn.
        turns: how many it covers.
        writer: the turn of the model; None for a given text.

    Raises:
        UnknownTurnError: there is no such turn.
    """
    if writer is None:
        return SummaryMeta(first=first, last=last, kind="given", turns=turns)
    turn = _known(transaction, writer)
    if turn.header.topic != TURN:
        raise UnknownTurnError(f"{writer!r} is a {turn.header.topic} event, not a turn", headish=writer)
    said = turn_meta(turn)
    return SummaryMeta(
        first=first,
        last=last,
        kind="model",
        turns=turns,
        turn=turn.header.id,
        call=said.call,
        model=said.model,
        provider=said.provider,
    )
