"""The projector: builds context windows, and keeps the ones it built.

Turns never change, so the window of a turn can be kept until something is erased. A later window of the same thread
starts from the longest one that is kept and reads only what is new.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from msgspec import Struct, structs

from turnlog.context.ancestry import Scan, ancestry, first_parent
from turnlog.errors import CorruptionError
from turnlog.events import SUMMARY, Recorded, turn_meta
from turnlog.model import (
    ContextWindow,
    Explanation,
    LeftOut,
    Message,
    Summarized,
    TurnMeta,
    document_content,
    merge_options,
    merge_sources,
)
from turnlog.model.chunked import Chunked
from turnlog.model.erased import erased_content
from turnlog.record.calls import cited_event
from turnlog.record.compaction import first_parent_runs, run_of
from turnlog.store import ReadTransaction

CACHE_BYTES_MAX = 64 * 1024 * 1024
"""Content that the projector keeps at most, in bytes; what two kept windows share is counted twice."""

_MESSAGE_BYTES = 200
_STREAM_BYTES = 100

_Turn: TypeAlias = tuple[Recorded, bytes | None]


class _Shown(Struct, frozen=True, kw_only=True):
    """The messages of a window that shows a summary, and what this stands for in it."""

    messages: Chunked[Message]
    summary: Message
    first: str
    last: str
    turns: tuple[str, ...]


class _Resolved(Struct, frozen=True, kw_only=True):
    """All that is known about the ancestry of a turn."""

    stream: str
    position: int
    messages: Chunked[Message] = Chunked()
    failed: tuple[tuple[int, Message, str], ...] = ()
    """Turns that are left out by default: the index in `messages` before which they stand, and why."""
    options: Mapping[str, Any] = {}
    sources: Mapping[str, Any] = {}
    visited: Mapping[str, int] = {}
    content_bytes: int = 0
    keys: frozenset[str] = frozenset()
    """Ids of the keys that what is in the messages is sealed under."""
    summaries: tuple[Recorded, ...] = ()
    """The summaries that turns of the first-parent path cite, in the order of the path."""
    shown: _Shown | None = None
    """What the window shows in place of all messages; None where it shows all of them."""
    passed_over: tuple[LeftOut, ...] = ()
    """Summaries that are cited later than what is shown, and cannot be shown."""

    @property
    def shows_summaries(self) -> bool:
        """Whether the window shows a summary where nobody says that it should or should not."""
        return self.options.get("summaries") is not False

    def is_of(self, head: Recorded) -> bool:
        """Return whether it is about the ancestry of this very turn."""
        return (self.stream, self.position) == (head.header.stream, head.header.position)

    @property
    def bytes(self) -> int:
        """About how much memory this takes."""
        return self.content_bytes + _MESSAGE_BYTES * len(self.messages) + _STREAM_BYTES * len(self.visited)


class Projector:
    """Builds the context window of a turn. Safe to use from many threads."""

    def __init__(self, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        """Keep windows with at most so many bytes of content; 0 keeps none."""
        self._cache_bytes_max = cache_bytes_max
        self._mutex = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], _Resolved] = OrderedDict()
        self._positions: dict[str, list[int]] = {}
        """The positions of each stream whose windows are kept, ascending."""
        self._kept_bytes = 0
        self._erasure = 0
        """The last erasure that what is kept knows of: a global position."""

    def window(
        self,
        transaction: ReadTransaction,
        head: Recorded,
        *,
        explain: bool = False,
        include_failed: bool = False,
        summaries: bool | None = None,
    ) -> ContextWindow:
        """Return the window of a turn: its ancestry as messages, and the merged options.

        Args:
            transaction: the snapshot to read from.
            head: the turn.
            explain: add where it comes from.
            include_failed: keep turns that record an error or an aborted reply.
            summaries: show a summary in place of what it covers, where the path of the turn cites one. By default as
                the option `summaries` says: not if it is false.
        """
        erasure = self._at_erasure(transaction)
        resolved = self._resolve(transaction, head, erasure)
        wanted = resolved.shows_summaries if summaries is None else summaries
        shown = resolved.shown if wanted else None
        messages = resolved.messages if shown is None else shown.messages
        if include_failed:
            messages = _with_failed(resolved)
            if shown is not None:
                messages = Chunked(_replaced(messages, shown.first, shown.last, shown.summary)[0])
        explanation = None
        if explain:
            left_out = () if include_failed else tuple(_left_out(resolved, () if shown is None else shown.turns))
            explanation = Explanation(
                turns=tuple(message.turn for message in messages),
                options=deepcopy(dict(resolved.sources)),
                left_out=(*left_out, *(resolved.passed_over if wanted else ())),
                summarized=None if shown is None else Summarized(summary=shown.summary.turn, turns=shown.turns),
            )
        # A copy, so that a caller who changes the options does not change what is kept.
        options = deepcopy(dict(resolved.options))
        return ContextWindow(messages=messages, options=options, explanation=explanation, erasure=erasure)

    def outline(self, transaction: ReadTransaction, head: Recorded) -> Sequence[Message]:
        """Return the messages of the window of a turn for who needs all but their content, which may be missing."""
        resolved = self._outlined(transaction, head)
        shown = resolved.shown if resolved.shows_summaries else None
        return resolved.messages if shown is None else shown.messages

    def keys(self, transaction: ReadTransaction, head: Recorded) -> frozenset[str]:
        """Return the ids of the keys that what is in the window of a turn is sealed under."""
        # What continues a sealed turn is sealed.
        if head.sealed is None:
            return frozenset()
        return self._outlined(transaction, head).keys

    def _resolve(self, transaction: ReadTransaction, head: Recorded, erasure: int) -> _Resolved:
        base = self._nearest(transaction, head, erasure)
        if base is not None and base.is_of(head):
            return base
        resolved = _fold(transaction, head, base, transaction.stream_payloads)
        self._keep(resolved, erasure)
        return resolved

    def _outlined(self, transaction: ReadTransaction, head: Recorded) -> _Resolved:
        """Return what is known about the ancestry of a turn. What is not kept of it has no content: none is read."""

        def scan(stream: str, first: int, last: int) -> list[_Turn]:
            return [(recorded, b"") for recorded in transaction.stream(stream, first, last)]

        base = self._nearest(transaction, head, self._at_erasure(transaction))
        return base if base is not None and base.is_of(head) else _fold(transaction, head, base, scan)

    def forget(self) -> None:
        """Drop all windows that are kept."""
        with self._mutex:
            self._drop()

    def _drop(self) -> None:
        self._kept.clear()
        self._positions.clear()
        self._kept_bytes = 0

    def _at_erasure(self, transaction: ReadTransaction) -> int:
        """Return the last erasure of a snapshot, and drop what was kept before it, whoever has erased."""
        erasure = transaction.last_erasure()
        if erasure > self._erasure:
            with self._mutex:
                # At once: what somebody keeps in between, as a snapshot of before it has it, would count as of now.
                self._drop()
                self._erasure = max(erasure, self._erasure)
        return erasure

    def _nearest(self, transaction: ReadTransaction, head: Recorded, erasure: int) -> _Resolved | None:
        """Return the longest kept window that the ancestry of a turn starts with."""
        below: Recorded | None = head
        while below is not None and self._kept:
            with self._mutex:
                if erasure != self._erasure:  # a snapshot of before it, or somebody has just erased
                    return None
                positions = self._positions.get(below.header.stream, ())
                if index := bisect_right(positions, below.header.position):
                    key = (below.header.stream, positions[index - 1])
                    self._kept.move_to_end(key)
                    return self._kept[key]
            below = first_parent(transaction, below)
        return None

    def _keep(self, resolved: _Resolved, erasure: int) -> None:
        if resolved.bytes > self._cache_bytes_max:
            return
        key = (resolved.stream, resolved.position)
        with self._mutex:
            if erasure != self._erasure:
                return
            if key in self._kept:  # another thread resolved the same turn
                return
            self._kept[key] = resolved
            self._kept_bytes += resolved.bytes
            insort(self._positions.setdefault(resolved.stream, []), resolved.position)
            while self._kept_bytes > self._cache_bytes_max:
                (stream, position), dropped = self._kept.popitem(last=False)
                self._kept_bytes -= dropped.bytes
                self._positions[stream].remove(position)
                if not self._positions[stream]:
                    del self._positions[stream]


def _fold(transaction: ReadTransaction, head: Recorded, base: _Resolved | None, scan: Scan[_Turn]) -> _Resolved:
    before: Chunked[Message] = base.messages if base else Chunked()
    messages: list[Message] = []
    failed = list(base.failed) if base else []
    options: Mapping[str, Any] = base.options if base else {}
    sources: Mapping[str, Any] = base.sources if base else {}
    visited = dict(base.visited) if base else {}
    keys = base.keys if base else frozenset[str]()
    size = base.content_bytes if base else 0
    citing: list[Recorded] = []
    for recorded, payload in ancestry(transaction, head, scan, _recorded_of, visited):
        event = recorded.header
        meta = turn_meta(recorded)
        if meta.summary is not None:
            citing.append(recorded)
        if recorded.unreadable:
            message = _erased(recorded, meta)
            if meta.failed:
                failed.append((len(before) + len(messages), message, _reason(meta.stop_reason, meta.error)))
            else:
                messages.append(message)
            continue
        if recorded.sealed is not None and recorded.sealed.key not in keys:
            keys |= {recorded.sealed.key}
        if payload is None:
            raise CorruptionError(f"turn {event.id!r} has no content", global_position=recorded.global_position)
        content = document_content(payload, meta.content_type) if meta.type == "document" else payload
        message = Message(
            turn=event.id,
            role=meta.role,
            content_json=content,
            cache=meta.cache,
            model=meta.model,
            provider=meta.provider,
            api=meta.api,
            model_asked=meta.model_asked,
            document_name=meta.document_name if meta.type == "document" else None,
        )
        size += len(content)
        if delta := meta.delta:
            options = merge_options(options, delta)
            sources = merge_sources(sources, delta, event.id)
        if meta.failed:
            failed.append((len(before) + len(messages), message, _reason(meta.stop_reason, meta.error)))
        else:
            messages.append(message)
    resolved = _Resolved(
        stream=head.header.stream,
        position=head.header.position,
        messages=before.extended(messages),
        failed=tuple(failed),
        options=options,
        sources=sources,
        visited=visited,
        content_bytes=size,
        keys=keys,
        summaries=base.summaries if base else (),
        shown=_extended(base.shown, messages) if base and base.shown else None,
        passed_over=base.passed_over if base else (),
    )
    return _summarized(transaction, head, resolved, citing) if citing else resolved


def _extended(shown: _Shown, messages: Sequence[Message]) -> _Shown:
    return structs.replace(shown, messages=shown.messages.extended(messages))


def _summarized(
    transaction: ReadTransaction, head: Recorded, resolved: _Resolved, citing: Sequence[Recorded]
) -> _Resolved:
    """Return what is known of a turn with the last summary that its first-parent path cites, and that can be shown."""
    runs = first_parent_runs(transaction, head)
    cited = [
        summary
        for turn in citing
        if turn.header.position <= runs.get(turn.header.stream, -1)
        and (summary := cited_event(transaction, turn, "summary")) is not None
    ]
    if not cited:
        return resolved
    summaries = (*resolved.summaries, *cited)
    passed_over: list[LeftOut] = []
    shown = None
    keys = resolved.keys
    for summary in reversed(summaries):
        shown = _shown(transaction, resolved, summary, runs)
        if isinstance(shown, _Shown):
            if summary.sealed is not None:
                keys |= {summary.sealed.key}
            break
        passed_over.append(LeftOut(turn=summary.header.id, reason=shown))
    return structs.replace(
        resolved,
        summaries=summaries,
        shown=shown if isinstance(shown, _Shown) else None,
        passed_over=tuple(passed_over),
        keys=keys,
    )


def _shown(
    transaction: ReadTransaction, resolved: _Resolved, summary: Recorded, runs: Mapping[str, int]
) -> _Shown | str:
    """Return what a window shows with a summary, or why the summary cannot be shown."""
    if summary.header.topic != SUMMARY:
        return f"it is a {summary.header.topic} event, not a summary"
    if summary.unreadable:
        return "the summary was erased" if summary.erased else "the summary is sealed, and its key is not here"
    run = run_of(transaction, summary, runs)
    content = transaction.payload(summary)
    if run is None or content is None:
        return "what the summary covers is not on the path of first parents"
    first, last = run[0].header.id, run[1].header.id
    message = Message(turn=summary.header.id, role="user", content_json=content)
    # What it covers may begin or end with a turn that is left out of the window.
    messages, turns = _replaced(_with_failed(resolved), first, last, message)
    left_out = {failed.turn for _, failed, _ in resolved.failed}
    return _Shown(
        messages=Chunked(message for message in messages if message.turn not in left_out),
        summary=message,
        first=first,
        last=last,
        turns=tuple(turns),
    )


def _replaced(messages: Sequence[Message], first: str, last: str, summary: Message) -> tuple[list[Message], list[str]]:
    """Return messages with a summary in place of those from one turn to another, and the turns of these."""
    turns = [message.turn for message in messages]
    begin, end = turns.index(first), turns.index(last) + 1
    whole = list(messages)
    return [*whole[:begin], summary, *whole[end:]], turns[begin:end]


def _left_out(resolved: _Resolved, covered: Sequence[str]) -> Iterator[LeftOut]:
    known = set(covered)
    return (
        LeftOut(turn=message.turn, reason=reason) for _, message, reason in resolved.failed if message.turn not in known
    )


def _erased(recorded: Recorded, meta: TurnMeta) -> Message:
    """Return what stands for a turn that cannot be read: who spoke is public, and so is when."""
    header = recorded.header
    return Message(
        turn=header.id,
        role=meta.role,
        content_json=erased_content(header.id, header.time, sealed=not recorded.erased),
        cache=meta.cache,
        model=meta.model,
        provider=meta.provider,
        api=meta.api,
        model_asked=meta.model_asked,
    )


def _recorded_of(turn: _Turn) -> Recorded:
    return turn[0]


def _reason(stop_reason: object, error: object) -> str:
    if isinstance(error, str):
        return f"error: {error}"
    return f"stop_reason {stop_reason}"


def _with_failed(resolved: _Resolved) -> Sequence[Message]:
    messages = list(resolved.messages)
    for index, message, _ in reversed(resolved.failed):
        messages.insert(index, message)
    return Chunked(messages)
