"""Plans that record model calls: the request before it is sent, the reply with the turn that it became."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec import UNSET, Struct

from turnlog import events
from turnlog.digest import payload_hash
from turnlog.errors import CorruptionError, UnknownCallError
from turnlog.events import CALL, REPLY, TOOLS, Recorded, meta_of, turn_meta
from turnlog.ids import is_id
from turnlog.model import CallMeta, LossEntry, LossReport, Message, ReplyMeta, ToolsMeta
from turnlog.record.drafts import EventDraft, TurnDraft
from turnlog.record.lookup import find_turn
from turnlog.record.requests import KeptRequest, request_body, request_payload
from turnlog.record.turns import plan_event, plan_turn
from turnlog.store import NewPayload, ReadTransaction, WriteTransaction

LOOK_BACK_TURNS = 64
"""How many assistant turns are looked at for an earlier call of the same kind."""

_SEPARATOR = b"\x1e"
_encoder = msgspec.json.Encoder()
_loss = msgspec.json.Decoder(LossEntry)


class CallDraft(Struct, frozen=True, kw_only=True):
    """A call to record. `tools` is the event of an equal listing that is recorded already, or None."""

    meta: CallMeta
    payload: NewPayload
    id: str
    listing: ToolsMeta | None
    listing_payload: NewPayload | None
    listing_id: str


def plan_call(transaction: WriteTransaction, draft: CallDraft) -> Recorded:
    """Record a call, and before it the tools that it offers, where they are not recorded yet.

    Raises:
        UnknownTurnError: there is no such turn.
        MetaError: the metadata is too large.
    """
    find_turn(transaction, draft.meta.turn)
    meta = draft.meta
    if draft.listing is not None and draft.listing_payload is not None:
        tools = plan_event(
            transaction, EventDraft(topic=TOOLS, meta=draft.listing), draft.listing_payload, draft.listing_id
        )
        meta = msgspec.structs.replace(meta, tools=tools.event.id)
    return plan_event(transaction, EventDraft(topic=CALL, meta=meta), draft.payload, draft.id)


def plan_reply(
    transaction: WriteTransaction,
    meta: ReplyMeta,
    payload: NewPayload,
    reply_id: str,
    turn: TurnDraft,
    turn_payload: NewPayload,
    turn_id: str,
) -> Recorded:
    """Record a reply, and the turn that it became. Return the turn.

    Raises:
        UnknownTurnError: what the turn continues is unknown.
        HeadConflictError: the bookmark is not where it was expected.
    """
    plan_event(transaction, EventDraft(topic=REPLY, meta=meta), payload, reply_id)
    named = msgspec.structs.replace(turn.meta, call=meta.call, reply=reply_id)
    return plan_turn(transaction, msgspec.structs.replace(turn, meta=named), turn_payload, turn_id)


def find_call(transaction: ReadTransaction, call: str) -> Recorded:
    """Return a call by its id, or by that of the turn that came of it, or by a bookmark at such a turn.

    Raises:
        UnknownCallError: there is none.
    """
    recorded = transaction.event(call.lower()) if is_id(call) else find_turn(transaction, call)
    if recorded is not None and recorded.event.topic == events.TURN:
        named = turn_meta(recorded.event).call
        if named is UNSET:
            raise UnknownCallError(f"turn {call!r} did not come of a recorded model call", call=call)
        recorded = transaction.event(named)
    if recorded is None or recorded.event.topic != CALL:
        raise UnknownCallError(f"no recorded model call {call!r}", call=call)
    return recorded


def call_meta(recorded: Recorded) -> CallMeta:
    """Return the metadata of a call."""
    return meta_of(recorded.event, CallMeta)


def read_request(
    transaction: ReadTransaction, call: Recorded, known: dict[str, bytes] | None = None
) -> tuple[bytes, tuple[LossEntry, ...]]:
    """Return the exact body of a call's request and its loss report, both checked against their hashes.

    Args:
        transaction: the snapshot to read from.
        call: the call.
        known: what is kept of earlier calls, by id, so that it is not put together again; the call's is added.

    Raises:
        CorruptionError: they cannot be put together, or are not what was recorded.
    """
    meta = call_meta(call)
    kept = read_kept(transaction, call, known or {})
    body, report = kept[: meta.request.size], kept[meta.request.size :]
    loss_hash = None if meta.loss is UNSET else meta.loss.hash
    if payload_hash(body) != meta.request.hash or (payload_hash(report) if report else None) != loss_hash:
        raise CorruptionError(
            f"the request of call {call.event.id!r} does not have the hash that was recorded: run `turnlog verify`",
            global_position=call.global_position,
        )
    if known is not None:
        known[call.event.id] = kept
    return body, tuple(_loss.decode_lines(report))


def read_kept(transaction: ReadTransaction, call: Recorded, known: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """Return the body of a call's request and its loss report after it, unchecked. See `read_request`.

    Raises:
        CorruptionError: they cannot be put together.
    """

    def kept(recorded: Recorded) -> KeptRequest:
        base = call_meta(recorded).base
        return KeptRequest(payload=transaction.payload(recorded) or b"", base=None if base is UNSET else base)

    def earlier(call_id: str) -> KeptRequest:
        if call_id in known:
            return KeptRequest(payload=request_payload([known[call_id]], b"")[0], base=None)
        recorded = transaction.event(call_id)
        if recorded is None or recorded.event.topic != CALL:
            raise CorruptionError(f"call {call_id!r}, which a later request has parts of, cannot be found")
        return kept(recorded)

    meta = call_meta(call)
    return request_body(kept(call), meta.request.size + (0 if meta.loss is UNSET else meta.loss.size), earlier)


def loss_lines(report: LossReport) -> list[bytes]:
    """Return a loss report as JSON lines, one an entry."""
    return [_encoder.encode(entry) + b"\n" for entry in report.entries]


def base_call(transaction: ReadTransaction, messages: Sequence[Message], meta: CallMeta) -> Recorded | None:
    """Return the latest call in an ancestry to the same model over the same wire, None if the last few have none."""
    seen = 0
    for message in reversed(messages):
        if message.role != "assistant":
            continue
        seen += 1
        if seen > LOOK_BACK_TURNS:
            return None
        if message.provider != meta.provider or message.api != meta.api:
            continue
        turn = transaction.event(message.turn)
        call_id = UNSET if turn is None else turn_meta(turn.event).call
        call = None if call_id is UNSET else transaction.event(call_id)
        if call is None or call.event.topic != CALL:
            continue
        found = call_meta(call)
        if (found.adapter, found.model) == (meta.adapter, meta.model):
            return call
    return None


def reply_payload(raw_events: Sequence[bytes]) -> bytes:
    """Return raw events as one payload: a JSON text sequence (RFC 7464), each event after a record separator."""
    return b"".join(_SEPARATOR + event + b"\n" for event in raw_events)


def reply_events(payload: bytes) -> list[bytes]:
    """Return the raw events of a payload."""
    return [event.removesuffix(b"\n") for event in payload.split(_SEPARATOR)[1:]]
