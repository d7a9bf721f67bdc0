"""Tool calls in the log: that one begins is recorded before it can have an effect, and then how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.events import CALL, TOOL_END, Recorded, meta_of, turn_meta, unreadable
from turnlog.model import (
    MAY_HAVE_HAD_EFFECTS,
    Approved,
    Block,
    Document,
    Native,
    Text,
    ToolCallMeta,
    ToolEnding,
    ToolEndMeta,
    ToolResult,
    ToolUse,
    content_bytes,
    cut_call,
    decode_content,
)
from turnlog.model.depth import JSON_DEPTH_MAX
from turnlog.model.kinds import check_fields, check_list, check_texts
from turnlog.model.long_strings import LongStrings
from turnlog.model.marked_blocks import marked_texts
from turnlog.projections.turns import children
from turnlog.record import find_turn, foreseen_key, placed, turn_draft
from turnlog.record.drafts import TurnDraft
from turnlog.record.redaction import NOTHING, Redaction
from turnlog.record.sealing import key_after
from turnlog.record.tool_calls import (
    Attempt,
    attempts_of,
    plan_results,
    plan_tool_call,
    plan_tool_end,
    results_turn,
    tool_event_id,
)
from turnlog.sources import Sources
from turnlog.store import NewPayload, ReadTransaction, Store, WriteTransaction
from turnlog.turn import Turn, turn_of

_WITHOUT_TOOL_EVENTS_MAX = {
    "anthropic": 2,
    "bedrock": 1,
    "cerebras": 2,
    "cohere": 2,
    "gemini": 2,
    "openai_chat": 2,
    "openai_responses": 2,
}
"""By adapter the last version that it had in versions of turnlog which recorded no events of tool calls (ADR 0043)."""


_CALLS = "calls, as ToolCallMeta"
_ENDS = "ends, as ToolEndMeta"
_SAID = "pairs of an end, as ToolEndMeta, and content"
"""What lists of these are told to be of."""


class ToolAttempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt to call a tool, or one answer in place of it.

    Attributes:
        number: which it is, from 1.
        begun_ms: when the tool was called, in milliseconds since 1970; not there where it was not.
        approved: what let it run.
        server: the MCP server that it ran on; not there for a Python function.
        ended_ms: when it ended; not there where no end is recorded: it may have had effects, or still be at work.
        ending: what became of it.
        by: who denied it.
        duration_ms: how long the tool was at work, in milliseconds.
    """

    number: int
    begun_ms: int | None = None
    approved: Approved | None = None
    server: str | None = None
    ended_ms: int | None = None
    ending: ToolEnding | None = None
    by: str | None = None
    duration_ms: int | None = None


class RecordedToolCall(Struct, frozen=True, kw_only=True):
    """A tool call of a turn, and what the log says of it.

    Attributes:
        turn: the turn's id.
        block: index of the call among the content blocks of the turn.
        call: the call.
        attempts: the attempts, the first one first; none where nothing is recorded of it.
        claims: what another log, an export of which was taken in, says of a call that was recorded in this one. It is
            no result, whatever it says.
        result: what the last attempt returned, as far as it is recorded; None where there is nothing, or where the
            end came with somebody else's log and the turn did not.
        last_end: the id of the event that says how the last attempt ended; None where none does.
        went_on: whether a turn that was recorded since goes on from that of the call. Where none does, the run ended
            before it had recorded the results of all calls of that turn.
        is_cut: whether it is the last call of a reply that was cut off at its length limit, so that a part of its
            arguments may be missing: no run makes it.
        unrecorded_since_ms: when its reply was recorded, where that may have been by an early version of turnlog, which
            did not record that a tool is called: it may have been made since. None for all others, and where anything
            is recorded of it.
    """

    turn: str
    block: int
    call: ToolUse
    attempts: tuple[ToolAttempt, ...] = ()
    claims: tuple[ToolAttempt, ...] = ()
    result: ToolResult | None = None
    last_end: str | None = None
    went_on: bool = False
    is_cut: bool = False
    unrecorded_since_ms: int | None = None

    @property
    def may_have_had_effects(self) -> bool:
        """Whether the last attempt began, and nobody knows what it did."""
        if not self.attempts:
            return False
        last = self.attempts[-1]
        return last.ending is None or last.ending in MAY_HAVE_HAD_EFFECTS

    @property
    def claimed(self) -> ToolAttempt | None:
        """The attempt of another log that came after all that this one has made; None where there is none.

        It is not known whether that is true. If it is, it may have had effects.
        """
        made = [claim for claim in self.claims if claim.begun_ms is not None]
        own = self.attempts[-1].number if self.attempts else 0
        return made[-1] if made and made[-1].number > own else None

    @property
    def last_number(self) -> int:
        """The number of the last attempt that anybody tells of, 0 for none. The next one has the next number."""
        return max((attempt.number for attempt in (*self.attempts, *self.claims)), default=0)

    def to_record(self) -> dict[str, Any]:
        """Return it as plain values, without the result: that is in a turn."""
        record: dict[str, Any] = {
            "block": self.block,
            "name": self.call.name,
            "id": self.call.id if isinstance(self.call.id, str) else None,
            "attempts": msgspec.to_builtins(self.attempts),
        }
        record |= {"claims": msgspec.to_builtins(self.claims)} if self.claims else {}
        since_ms = self.unrecorded_since_ms
        record |= {} if since_ms is None else {"unrecorded_since_ms": since_ms}
        return record | ({"is_cut": True} if self.is_cut else {})


class ToolCalls:
    """The tool calls of a log. `TurnLog.tool_calls` is one."""

    def __init__(self, store: Store, sources: Sources, redaction: Redaction = NOTHING) -> None:
        """Take the parts of a log."""
        self._store = store
        self._sources = sources
        self._redaction = redaction

    def begin(
        self,
        calls: Sequence[ToolCallMeta],
        ends: Sequence[tuple[ToolEndMeta, Sequence[Block]]] = (),
        *,
        api_key: str | None = None,
    ) -> list[str]:
        """Record that tools are about to be called. On return it is on disk: call them then, and not before.

        Args:
            calls: the calls.
            ends: what is said of other calls of the same turn, which are not made, with the content of their results:
                of two runs one alone decides of a turn's calls.
            api_key: as for `end`.

        Returns:
            The ids of the ends.

        Raises:
            UnknownTurnError: there is no such turn.
            ContentError: the content of a result is malformed.
            MetaError: it is no call of an assistant turn, or an argument is not what it should be.
            ToolCallTakenError: another run has begun one of these attempts: do not call the tools. Nothing was
                recorded.
            RedactionError: a redaction hook failed.
        """
        begun = [check_fields(call, ToolCallMeta, "tool_call") for call in check_list(calls, "calls", _CALLS)]
        said = [self._placed(*_said(pair), api_key) for pair in check_list(ends, "ends", _SAID)]

        def plan(transaction: WriteTransaction) -> list[str]:
            for call in begun:
                plan_tool_call(transaction, call, self._sources)
            return [_id_of(plan_tool_end(transaction, *end, self._sources), end[0]) for end in said]

        return self._store.write(plan)

    def end(self, end: ToolEndMeta, content: Sequence[Block], *, api_key: str | None = None) -> str:
        """Record how a tool call ended, with its result. Return the id of the event.

        Args:
            end: how it ended.
            content: the content of the result.
            api_key: a key that the content may repeat: it is redacted as by a hook. It is not recorded.

        Raises:
            UnknownTurnError: there is no such turn.
            ContentError: the content is malformed.
            MetaError: it is no call of an assistant turn, or an argument is not what it should be.
            ToolCallTakenError: it was denied, or answered by a person, and another run has made it.
            RedactionError: a redaction hook failed.
        """
        given, payload = self._placed(end, content, api_key)
        return self._store.write(
            lambda transaction: _id_of(plan_tool_end(transaction, given, payload, self._sources), given)
        )

    def _placed(
        self, end: ToolEndMeta, content: Sequence[Block], api_key: str | None
    ) -> tuple[ToolEndMeta, NewPayload]:
        end = check_fields(end, ToolEndMeta, "tool_end")
        said = content_bytes(content, depth_max=JSON_DEPTH_MAX)
        said, findings = self._redaction.with_key(api_key, (said,)).line(said, TOOL_END)
        if findings:
            counts = dict(sorted(Counter(kind for _, kind in findings).items()))
            end = msgspec.structs.replace(end, redacted=counts)
        return end, placed(
            self._store, said, lambda transaction: key_after(transaction, [find_turn(transaction, end.turn)])
        )

    def record_results(
        self,
        content: Sequence[Block],
        *,
        turn: str,
        ends: Sequence[ToolEndMeta] = (),
        known: Sequence[str] = (),
        bookmark: str | Literal[False] | None = None,
        subject: str | Literal[False] | None = None,
        api_key: str | None = None,
    ) -> Turn:
        """Record the results of tool calls as a turn, and with it how those ended that are not recorded yet.

        Args:
            content: the results.
            turn: id of the assistant turn, which the results continue.
            ends: how calls ended.
            known: ids of the ends that are recorded.
            bookmark: as for `TurnLog.add_turn`.
            subject: as for `TurnLog.add_turn`. Where the turn was erased since, whose they are has to be said.
            api_key: as for `TurnLog.add_turn`.

        Raises:
            UnknownTurnError: there is no such turn.
            ContentError: the content is malformed.
            MetaError: it is no call of an assistant turn, or an argument is not what it should be; or the turn was
                erased since, and there is no subject.
            ToolCallTakenError: a call was denied, or answered by a person, and another run has made it.
            RedactionError: a redaction hook failed.
        """
        draft = turn_draft(content, continues=turn, bookmark=bookmark, subject=subject, api_key=api_key)
        return self._record_results(draft, ends, known)

    def _record_results(self, draft: TurnDraft, ends: Sequence[ToolEndMeta], known: Sequence[str]) -> Turn:
        ended = [check_fields(end, ToolEndMeta, "tool_end") for end in check_list(ends, "ends", _ENDS)]
        told = check_texts(known, "known", "ids of ends")
        draft = self._redaction.turn(draft)
        payload = placed(self._store, draft.payload, lambda transaction: foreseen_key(transaction, draft))

        def plan(transaction: WriteTransaction) -> Recorded:
            return plan_results(transaction, draft, payload, ended, told, self._sources)

        return turn_of(self._store.write(plan))

    def of(self, headish: str) -> list[RecordedToolCall]:
        """Return the tool calls of a turn, and what is recorded of each. A turn without calls, or a document, has none.

        Raises:
            UnknownTurnError: there is no such turn.
            ErasedError: it is erased.
        """
        with self._store.read() as transaction:
            turn = find_turn(transaction, headish)
            payload = transaction.payload(turn)
            if turn.unreadable:
                raise unreadable(turn, f"turn {headish!r}")
            meta = turn_meta(turn)
            if meta.type == "document":
                return []
            # Of long texts only what is said of the calls is wanted.
            marked = marked_texts(payload or b"[]", LongStrings(), ("thoughts", "results", "documents"))
            blocks = decode_content(marked)
            calls = [(index, block) for index, block in enumerate(blocks) if isinstance(block, ToolUse)]
            cut = cut_call(blocks, meta.stop_reason)
            since_ms = turn.header.time if calls and _is_without_tool_events(transaction, meta.call) else None
            after = children(transaction, turn) if calls else []
            found = [
                self._call(transaction, turn, after, index, call, calls, is_cut=index == cut) for index, call in calls
            ]
            return [_unrecorded_since(recorded, since_ms) for recorded in found]

    def _call(
        self,
        transaction: ReadTransaction,
        turn: Recorded,
        after: Sequence[Recorded],
        block: int,
        call: ToolUse,
        calls: Sequence[tuple[int, ToolUse]],
        *,
        is_cut: bool,
    ) -> RecordedToolCall:
        told = attempts_of(transaction, turn, block)
        attempts = [attempt for attempt in told if not attempt.is_claimed]
        last = attempts[-1].ended if attempts else None
        result = None
        if last is not None:
            twins = [index for index, other in calls if other.id == call.id]
            result = _result(transaction, after, last, call, twins.index(block))
        return RecordedToolCall(
            turn=turn.header.id,
            block=block,
            call=call,
            attempts=tuple(map(_attempt, attempts)),
            claims=tuple(_attempt(attempt) for attempt in told if attempt.is_claimed),
            result=result,
            last_end=None if last is None else last.header.id,
            went_on=last is not None and any(each.global_position > last.global_position for each in after),
            is_cut=is_cut,
        )


def _is_without_tool_events(transaction: ReadTransaction, call: str | None) -> bool:
    """Tell whether a reply may be of a version of turnlog that recorded no events of its tool calls.

    The version of the adapter that asked for it tells. That of adapters which are not turnlog's own tells nothing.
    """
    if call is None:
        return False
    asked = transaction.event(call)
    if asked is None or asked.header.topic != CALL:
        return True  # nothing tells of its version
    said = msgspec.json.decode(asked.header.meta, type=dict[str, Any])
    last = _WITHOUT_TOOL_EVENTS_MAX.get(str(said.get("adapter")))
    version = str(said.get("adapter_version"))
    return last is not None and (not version.isdecimal() or int(version) <= last)


def _unrecorded_since(recorded: RecordedToolCall, since_ms: int | None) -> RecordedToolCall:
    if since_ms is None or recorded.attempts or recorded.claims or recorded.is_cut:
        return recorded
    return msgspec.structs.replace(recorded, unrecorded_since_ms=since_ms)


def _said(given: object) -> tuple[Any, Any]:
    """Return what is said of a call that is not made, and the content of its result."""
    pair = check_list(cast("Sequence[Any]", given), "ends", _SAID)
    if len(pair) != 2:
        raise MetaError(f"ends: expected {_SAID}, got {len(pair)} in one", field="ends")
    return pair


def _id_of(recorded: Recorded | None, end: ToolEndMeta) -> str:
    """Return the id of an end that was recorded, by this run or another."""
    return tool_event_id(TOOL_END, end.turn, end.block, end.attempt) if recorded is None else recorded.header.id


def _attempt(attempt: Attempt) -> ToolAttempt:
    begun = None if attempt.begun is None else meta_of(attempt.begun, ToolCallMeta)
    ended = None if attempt.ended is None else meta_of(attempt.ended, ToolEndMeta)
    return ToolAttempt(
        number=attempt.number,
        begun_ms=None if attempt.begun is None else attempt.begun.header.time,
        approved=None if begun is None else begun.approved,
        server=None if begun is None else begun.server,
        ended_ms=None if attempt.ended is None else attempt.ended.header.time,
        ending=None if ended is None else ended.ending,
        by=None if ended is None else ended.by,
        duration_ms=None if ended is None else ended.duration_ms,
    )


def _result(
    transaction: ReadTransaction, after: Sequence[Recorded], end: Recorded, call: ToolUse, which: int
) -> ToolResult | None:
    """Return the result of a call that ended: that in the turn that cites its end, else that of the end itself.

    Args:
        transaction: where it is read.
        after: the turns that go on from that of the call.
        end: the end.
        call: the call.
        which: which it is among the calls of the turn that have its id.
    """
    if end.unreadable:
        return None
    answered = results_turn(end.header.id, after)
    if answered is not None and not answered.unreadable:
        blocks = decode_content(transaction.payload(answered) or b"[]")
        results = [block for block in blocks if isinstance(block, ToolResult) and block.tool_use_id == call.id]
        return results[which] if which < len(results) else None
    payload = transaction.payload(end)
    if payload is None:
        return None
    content = [block for block in decode_content(payload) if isinstance(block, Text | Document | Native)]
    result = ToolResult(tool_use_id=call.id, name=call.name, content=content)
    failed = meta_of(end, ToolEndMeta).ending not in ("result", "answer")
    return msgspec.structs.replace(result, is_error=True) if failed else result
