"""Plans that record model calls: the request before it is sent, the reply with the turn that it became."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType

import msgspec
from msgspec import Struct

from turnlog.digest import payload_hash
from turnlog.errors import ContentError, CorruptionError, ErasedSinceError, UnknownCallError
from turnlog.events import (
    BASE,
    CALL,
    ERASURE,
    REPLY,
    TOOLS,
    TURN,
    DataKey,
    Recorded,
    check_cited,
    cite,
    meta_of,
    unreadable,
)
from turnlog.ids import is_id
from turnlog.model import (
    BytesRef,
    CallMeta,
    LossEntry,
    LossReport,
    Message,
    ReplyMeta,
    ToolsMeta,
    WindowChange,
    decode_change,
)
from turnlog.model.json_text import UNREADABLE
from turnlog.projections.threads import POSITION_MAX, thread_runs
from turnlog.record.append import plan_event
from turnlog.record.drafts import EventDraft, TurnDraft
from turnlog.record.lookup import erased_by, find_turn
from turnlog.record.requests import KeptRequest, request_body, request_pieces
from turnlog.record.sealing import general_key, key_after, keys_of
from turnlog.record.turns import cite_event, foreseen_key, plan_turn
from turnlog.sources import Sources
from turnlog.store import NewPayload, ReadTransaction, WriteTransaction

LOOK_BACK_TURNS = 64
"""How many assistant turns are looked at for an earlier call of the same kind."""

_SEPARATOR = b"\x1e"
_encoder = msgspec.json.Encoder()
_loss = msgspec.json.Decoder(LossEntry)


class CallDraft(Struct, frozen=True, kw_only=True):
    """A call to record. Without a `listing` the metadata names the tools' event, if any are offered.

    `keys` are the ids of the keys that what is in its window is sealed under, `erasure` is the global position of the
    last erasure that the window knew of; None does not ask.
    """

    meta: CallMeta
    payload: NewPayload
    id: str
    listing: ToolsMeta | None
    listing_payload: NewPayload | None
    keys: frozenset[str] = frozenset()
    erasure: int | None = None


def plan_call(transaction: WriteTransaction, draft: CallDraft, sources: Sources) -> Recorded:
    """Record a call, and before it the tools that it offers, where they are not recorded yet.

    Raises:
        UnknownTurnError: there is no such turn.
        ErasedError: the call that it is based on was erased since.
        ErasedSinceError: something of its thread was, since its window was read.
        MetaError: the metadata is too large.
    """
    meta = draft.meta
    turn = find_turn(transaction, meta.turn)
    if draft.erasure is not None:
        _check_not_erased(transaction, turn, draft.erasure)
    key = call_key(transaction, turn, draft.keys)
    citations = [cite(turn, "turn")]
    if meta.base is not None:
        citation = cite_event(transaction, meta.base, BASE, CALL)
        base = transaction.event(meta.base)
        if base is not None and base.unreadable:
            raise unreadable(base, f"call {meta.base!r}")
        citations.append(citation)
    if draft.listing is not None and draft.listing_payload is not None:
        tools = plan_event(transaction, EventDraft(topic=TOOLS, meta=draft.listing), draft.listing_payload, sources)
        citations.append(cite(tools, "tools"))
    elif meta.tools is not None:
        citations.append(cite_event(transaction, meta.tools, "tools", TOOLS))
    event = EventDraft(topic=CALL, meta=meta, id=draft.id)
    return plan_event(transaction, event, draft.payload, sources, citations, key=key)


def _check_not_erased(transaction: ReadTransaction, turn: Recorded, erasure: int) -> None:
    """Check that nothing of the threads of a turn was erased after an erasure."""
    if transaction.last_erasure() <= erasure:
        return
    runs = thread_runs(transaction, turn.header.stream, turn.header.position)
    for recorded in transaction.log(erasure, topics=[ERASURE]):
        for erased in erased_by(transaction, recorded):
            if erased.header.position >= runs.get(erased.header.stream, POSITION_MAX):
                raise ErasedSinceError(
                    f"turn {erased.header.id!r} was erased since the window of turn {turn.header.id!r} was read, and "
                    "may be in the request: read the window again; nothing was recorded"
                )


def call_key(transaction: ReadTransaction, turn: Recorded, keys: Collection[str]) -> DataKey | None:
    """Return the key of a call: all that what it sends is sealed under. None where it is not sealed.

    Args:
        transaction: the snapshot to read from.
        turn: the turn that it goes on from.
        keys: ids of the keys that what is in its window is sealed under.

    Raises:
        SealError: one of them is not here.
    """
    own = () if turn.sealed is None else (turn.sealed.key,)
    return keys_of(transaction, (*own, *keys)) or general_key(transaction)


def plan_reply(
    transaction: WriteTransaction,
    meta: ReplyMeta,
    payload: NewPayload,
    turn: TurnDraft,
    turn_payload: NewPayload,
    sources: Sources,
) -> Recorded:
    """Record a reply, and the turn that it became. Return the turn.

    Raises:
        UnknownTurnError: what the turn continues is unknown.
        HeadConflictError: the bookmark is not where it was expected.
        MetaError: what the turn continues was erased, and it has to say whose it is.
    """
    citations = [cite_event(transaction, meta.call, "call", CALL)]
    called = msgspec.structs.replace(turn, meta=msgspec.structs.replace(turn.meta, call=meta.call))
    key = reply_key(transaction, meta.call, called)
    reply = plan_event(transaction, EventDraft(topic=REPLY, meta=meta), payload, sources, citations, key=key)
    named = msgspec.structs.replace(called.meta, reply=reply.header.id)
    return plan_turn(transaction, msgspec.structs.replace(turn, meta=named), turn_payload, sources)


def reply_key(transaction: ReadTransaction, call_id: str, turn: TurnDraft) -> DataKey | None:
    """Return the key of a reply: that of its call, or that of the turn that it becomes where the call was erased.

    Raises:
        MetaError, SealError: as `foreseen_key` does.
    """
    call = transaction.event(call_id)
    if call is not None and call.erased:
        return foreseen_key(transaction, turn)
    return key_after(transaction, [] if call is None else [call])


def find_call(transaction: ReadTransaction, call: str) -> Recorded:
    """Return a call by its id, or by that of the turn that came of it, or by a bookmark at such a turn.

    Raises:
        UnknownCallError: there is none.
        CorruptionError: it is not the one that the turn cites.
    """
    recorded = transaction.event(call.lower()) if is_id(call) else find_turn(transaction, call)
    if recorded is not None and recorded.header.topic == TURN:
        found = cited_event(transaction, recorded, "call")
        if found is None:
            raise UnknownCallError(f"turn {call!r} did not come of a recorded model call", call=call)
        recorded = found
    if recorded is None or recorded.header.topic != CALL:
        raise UnknownCallError(f"no recorded model call {call!r}", call=call)
    return recorded


def cited_event(transaction: ReadTransaction, citing: Recorded, relation: str) -> Recorded | None:
    """Return the event that an event cites as something, None where it cites none.

    Raises:
        CorruptionError: it is not there, or is not the one that is cited.
    """
    citation = next((found for found in citing.header.citations if found.relation == relation), None)
    if citation is None:
        return None
    cited = transaction.event(citation.id)
    # What is cited is recorded first. In a forged log it may not be, and to follow it might never end.
    if cited is None or cited.global_position >= citing.global_position:
        raise CorruptionError(
            f"event {citing.header.id!r} cites {citation.id!r} as its {relation}, which is not recorded before it: "
            "run `turnlog verify`",
            global_position=citing.global_position,
        )
    check_cited(citing, citation, cited)
    return cited


def call_meta(recorded: Recorded) -> CallMeta:
    """Return the metadata of a call.

    Raises:
        CorruptionError: it is not that of a call.
        ErasedError: it is erased.
    """
    meta = meta_of(recorded, CallMeta)
    try:
        _ = meta.parameters
    except UNREADABLE as error:
        raise CorruptionError(
            f"the parameters of call {recorded.header.id!r} cannot be read: {error}",
            global_position=recorded.global_position,
        ) from error
    return meta


class KeptCall(Struct, frozen=True, kw_only=True):
    """What is kept of a call, checked against its hashes.

    Attributes:
        body: the exact body of its request.
        losses: its loss report.
        window: how the window that it was prepared from differs from that of its turn; None where it does not.
    """

    body: bytes
    losses: tuple[LossEntry, ...]
    window: WindowChange | None


def read_request(transaction: ReadTransaction, call: Recorded, known: dict[str, bytes] | None = None) -> KeptCall:
    """Return what is kept of a call, all checked against its hashes.

    Args:
        transaction: the snapshot to read from.
        call: the call.
        known: what is kept of earlier calls, by id, so that it is not put together again; the call's is added.

    Raises:
        CorruptionError: they cannot be put together, or are not what was recorded.
        ErasedError: the call, or one that it has parts of, is erased, or its key is not here.
    """
    meta = call_meta(call)
    kept = read_kept(transaction, call, known or {})
    body, report, change = split_kept(meta, kept)
    parts = ((body, meta.request), (report, meta.loss), (change, meta.window))
    if any(
        (payload_hash(part) if part else None) != (ref.hash if isinstance(ref, BytesRef) else None)
        for part, ref in parts
    ):
        raise CorruptionError(
            f"the request of call {call.header.id!r} does not have the hash that was recorded: run `turnlog verify`",
            global_position=call.global_position,
        )
    try:
        entries = tuple(_loss.decode_lines(report))
        window = decode_change(change) if change else None
    except (*UNREADABLE, ContentError) as error:
        what = "loss report" if not isinstance(error, ContentError) else "window"
        raise CorruptionError(
            f"the {what} of call {call.header.id!r} cannot be read: {error}", global_position=call.global_position
        ) from error
    if known is not None:
        known[call.header.id] = kept
    return KeptCall(body=body, losses=entries, window=window)


def split_kept(meta: CallMeta, kept: bytes) -> tuple[bytes, bytes, bytes]:
    """Return body, loss report and change of the window, of what is kept of a call; empty for what there is not."""
    report = meta.request.size + (0 if meta.loss is None else meta.loss.size)
    return kept[: meta.request.size], kept[meta.request.size : report], kept[report:]


def read_kept(transaction: ReadTransaction, call: Recorded, known: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """Return what is kept of a call, body, loss report and change of its window in one, unchecked. See `read_request`.

    Raises:
        CorruptionError: they cannot be put together.
        ErasedError: the call, or one that it has parts of, is erased, or its key is not here.
    """

    def kept(recorded: Recorded) -> KeptRequest:
        if recorded.unreadable:
            raise unreadable(recorded, f"call {recorded.header.id!r}, which has parts of the request,")
        base = cited_event(transaction, recorded, BASE)
        if base is not None:
            bases[base.header.id] = base
        return KeptRequest(pieces=transaction.payload_pieces(recorded), base=None if base is None else base.header.id)

    def earlier(call_id: str) -> KeptRequest:
        if call_id in known:
            return KeptRequest(pieces=request_pieces([known[call_id]], b"")[0], base=None)
        return kept(bases.pop(call_id))

    bases: dict[str, Recorded] = {}
    meta = call_meta(call)
    return request_body(kept(call), meta.kept_bytes, earlier)


def loss_lines(report: LossReport) -> list[bytes]:
    """Return a loss report as JSON lines, one an entry."""
    return [_encoder.encode(entry) + b"\n" for entry in report.entries]


def base_call(transaction: ReadTransaction, messages: Sequence[Message], turn: str, meta: CallMeta) -> Recorded | None:
    """Return the latest call in an ancestry to the same model over the same wire, None if the last few have none.

    Only a call that itself went on from a turn of the ancestry will do: what a request has parts of is of its thread.
    """
    seen = 0
    ancestry: set[str] | None = None
    for message in reversed(messages):
        if message.role != "assistant":
            continue
        seen += 1
        if seen > LOOK_BACK_TURNS:
            return None
        if message.provider != meta.provider or message.api != meta.api:
            continue
        recorded = transaction.event(message.turn)
        call_id = None if recorded is None else recorded.header.cited("call")
        call = None if call_id is None else transaction.event(call_id)
        if call is None or call.header.topic != CALL or call.unreadable:
            continue
        ancestry = ancestry or {turn, *(other.turn for other in messages)}
        found = call_meta(call)
        if (found.adapter, found.model) == (meta.adapter, meta.model) and found.turn in ancestry:
            return call
    return None


def reply_payload(raw_events: Sequence[bytes]) -> bytes:
    """Return raw events as one payload: a JSON text sequence (RFC 7464), each event after a record separator."""
    return b"".join(_SEPARATOR + event + b"\n" for event in raw_events)


def reply_sizes(raw_events: Sequence[bytes]) -> tuple[int, ...] | None:
    """Return the bytes of each event, where one has a record separator in it, as no JSON has; else None."""
    return tuple(map(len, raw_events)) if any(_SEPARATOR in event for event in raw_events) else None


def reply_events(payload: bytes, meta: ReplyMeta) -> list[bytes]:
    """Return the raw events of a payload."""
    if meta.sizes is None:
        return [event.removesuffix(b"\n") for event in payload.split(_SEPARATOR)[1:]]
    starts = accumulate((size + 2 for size in meta.sizes), initial=1)
    return [payload[start : start + size] for start, size in zip(starts, meta.sizes, strict=False)]


def reply_flaw(payload: bytes, meta: ReplyMeta) -> str | None:
    """Return what is wrong with the payload of a reply; None where it is the raw events that the reply tells of."""
    if meta.sizes is not None:
        events = reply_events(payload, meta)
        found = len(events)
        is_form = min(meta.sizes, default=0) >= 0 and reply_payload(events) == payload
    else:
        found = payload.count(_SEPARATOR)
        # Each event after a separator, and with a line feed at its end.
        is_form = not payload or (
            payload.startswith(_SEPARATOR) and (payload + _SEPARATOR).count(b"\n" + _SEPARATOR) == found
        )
    if not is_form:
        return "its payload is not one of raw events"
    return None if found == meta.events else f"its payload has {found:,} raw events, and it says {meta.events:,}"
