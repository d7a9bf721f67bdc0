"""Model calls in the log: each request as its exact bytes, each reply as the events that came."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnlog import providers
from turnlog.context import Projector, ancestry
from turnlog.digest import payload_hash
from turnlog.errors import CorruptionError, MetaError, TurnlogError, UnknownCallError
from turnlog.events import CALL, REPLY, TOOLS, Recorded, meta_of, turn_meta
from turnlog.model import (
    BytesRef,
    CallError,
    CallMeta,
    LossReport,
    ReplyMeta,
    Response,
    Tool,
    ToolsMeta,
    content_bytes,
    parse_tools,
    tools_bytes,
)
from turnlog.model.plain import plain_json
from turnlog.providers import OnLoss, Parameters, PreparedRequest, Provider
from turnlog.providers.replay import RecordedReply
from turnlog.record import find_turn, turn_draft
from turnlog.record.calls import (
    CallDraft,
    base_call,
    call_meta,
    find_call,
    loss_lines,
    plan_call,
    plan_reply,
    read_kept,
    read_request,
    reply_events,
    reply_payload,
)
from turnlog.record.requests import request_payload
from turnlog.record.secrets import refuse_secrets
from turnlog.store import NO_PAYLOAD, NewPayload, ReadTransaction, Store, WriteTransaction
from turnlog.turn import Turn, turn_of

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Request bodies that are kept in memory at most, so that the next request of a thread need not be read first."""

_KNOWN_MAX = 4
"""How many requests a check keeps for the next ones, which most often have parts of the last."""


class Call(Struct, frozen=True, kw_only=True):
    """A recorded model call.

    Attributes:
        id: the id of its `gpt.call` event.
        meta: provider, api, model, adapter, parameters, the turn that it went on from, and so on.
        loss_report: what the body does not carry as it was recorded.
    """

    id: str
    meta: CallMeta
    loss_report: LossReport

    def to_record(self) -> dict[str, Any]:
        """Return the call as plain values."""
        return {
            "id": self.id,
            **msgspec.to_builtins(self.meta),
            "params": self.meta.parameters,
            "loss_report": msgspec.to_builtins(self.loss_report.entries),
        }


class RequestCheck(Struct, frozen=True, kw_only=True):
    """Whether a recorded request is what its turn gives today.

    Attributes:
        call: the call's id.
        turn: the turn that the model was asked to go on from.
        size: bytes of the recorded body.
        difference: None when all bytes are equal, else one line that says where they part, or why it cannot be told.
    """

    call: str
    turn: str
    size: int
    difference: str | None


class Calls:
    """The model calls of a log. `TurnLog.calls` is one."""

    def __init__(self, store: Store, fresh_id: Callable[[], str], projector: Projector) -> None:
        """Take the parts of a log."""
        self._store = store
        self._fresh_id = fresh_id
        self._projector = projector
        self._mutex = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._listings: dict[str, str] | None = None

    # Record

    def record(
        self,
        turn: str,
        request: PreparedRequest,
        *,
        params: Parameters | None = None,
        on_loss: OnLoss | None = None,
        tools: Sequence[Tool] = (),
        servers: Sequence[str] = (),
    ) -> str:
        """Record a call before it is sent, and return its id. On return it is on disk.

        Args:
            turn: the turn whose window the request was prepared from.
            request: what is to be sent.
            params: the parameters that it was prepared with.
            on_loss: what was to be done with what the wire cannot carry.
            tools: the tools that it offers. A listing that was offered before is not recorded again.
            servers: the MCP servers that they are of.

        Raises:
            UnknownTurnError: there is no such turn.
            MetaError: the parameters are not JSON, or too large.
            SecretError: a parameter looks like a secret.
        """
        report = loss_lines(request.loss_report)
        body = request.body
        kept = body + b"".join(report)
        meta = CallMeta(
            turn=turn,
            provider=request.provider,
            api=request.api,
            model=request.model,
            adapter=request.adapter,
            adapter_version=request.version,
            stream=request.stream,
            request=BytesRef(hash=payload_hash(body), size=len(body)),
            params=_parameters(params),
            on_loss=UNSET if on_loss is None else on_loss,
            loss=BytesRef(hash=payload_hash(b"".join(report)), size=len(kept) - len(body)) if report else UNSET,
        )
        base_id, base = self._base(turn, meta)
        payload, shared = request_payload([*request.parts, *report], base)
        if shared and base_id is not None:
            meta = msgspec.structs.replace(meta, base=base_id)
        meta, listing, listing_payload = self._listing(meta, tools, servers)
        draft = CallDraft(
            meta=meta,
            payload=self._store.place(payload),
            id=self._fresh_id(),
            listing=listing,
            listing_payload=listing_payload,
            listing_id=self._fresh_id(),
        )
        recorded = self._store.write(lambda transaction: plan_call(transaction, draft))
        if listing_payload is not None and listing_payload.hash is not None and self._listings is not None:
            tools_id = call_meta(recorded).tools
            if tools_id is not UNSET:
                self._listings[listing_payload.hash] = tools_id
        self._keep(draft.id, kept)
        return draft.id

    def record_reply(
        self,
        call: str,
        events: Sequence[bytes],
        response: Response,
        *,
        continues: str | None = None,
        bookmark: str | UnsetType | None = UNSET,
        expected_head: str | UnsetType | None = UNSET,
    ) -> Turn:
        """Record a reply: its raw events, and the assistant turn that they add up to. On return both are on disk.

        Args:
            call: the id of the call.
            events: the raw events, as they came.
            response: what they add up to.
            continues: the turn to continue; by default the one that the call went on from.
            bookmark: as for `TurnLog.add_turn`.
            expected_head: as for `TurnLog.add_turn`.

        Raises:
            UnknownCallError: there is no such call.
            HeadConflictError: the bookmark is not at `expected_head`.
        """
        with self._store.read() as transaction:
            found = find_call(transaction, call)
        error: CallError | None = response.error
        draft = turn_draft(
            content_bytes(response.content),
            json=True,
            role="assistant",
            continues=call_meta(found).turn if continues is None else continues,
            bookmark=bookmark,
            expected_head=expected_head,
            model=response.model,
            provider=response.provider,
            api=response.api,
            stop_reason=response.stop_reason,
            raw_stop_reason=response.raw_stop_reason,
            usage=response.usage,
            error=None if error is None else error.line(),
        )
        payload = self._store.place(reply_payload(events)) if events else NO_PAYLOAD
        turn_payload = self._store.place(draft.payload)
        meta = ReplyMeta(call=found.event.id, events=len(events), error=UNSET if error is None else error)
        reply_id, turn_id = self._fresh_id(), self._fresh_id()

        def plan(transaction: WriteTransaction) -> Recorded:
            return plan_reply(transaction, meta, payload, reply_id, draft, turn_payload, turn_id)

        return turn_of(self._store.write(plan))

    def _base(self, turn: str, meta: CallMeta) -> tuple[str | None, bytes]:
        with self._store.read() as transaction:
            head = find_turn(transaction, turn)
            found = base_call(transaction, self._projector.window(transaction, head).messages, meta)
            if found is None:
                return None, b""
            with self._mutex:
                kept = self._kept.get(found.event.id)
            return found.event.id, read_kept(transaction, found) if kept is None else kept

    def _keep(self, call: str, body: bytes) -> None:
        with self._mutex:
            self._kept[call] = body
            while sum(map(len, self._kept.values())) > KEPT_BYTES_MAX:
                self._kept.popitem(last=False)

    def _listing(
        self, meta: CallMeta, tools: Sequence[Tool], servers: Sequence[str]
    ) -> tuple[CallMeta, ToolsMeta | None, NewPayload | None]:
        """Return the metadata with the listing's event if it is recorded already, else the listing to record."""
        if not tools:
            return meta, None, None
        payload = self._store.place(tools_bytes(list(tools)))
        with self._mutex:
            if self._listings is None:
                with self._store.read() as transaction:
                    self._listings = {
                        recorded.event.hash: recorded.event.id
                        for recorded in transaction.log(topics=[TOOLS])
                        if recorded.event.hash is not None
                    }
            known = self._listings.get(payload.hash or "")
        if known is not None:
            return msgspec.structs.replace(meta, tools=known), None, None
        return meta, ToolsMeta(tools=len(tools), servers=tuple(servers)), payload

    # Read

    def get(self, call: str) -> Call:
        """Return a call by its id, or by the turn that came of it (an id or a bookmark).

        Raises:
            UnknownCallError: there is none.
            UnknownTurnError: there is no such turn.
        """
        with self._store.read() as transaction:
            return _call(transaction, find_call(transaction, call))

    def request(self, call: str) -> bytes:
        """Return the exact bytes of a call's request body, checked against their hash.

        Raises:
            UnknownCallError: there is no such call.
            CorruptionError: the stored bytes are damaged.
        """
        with self._store.read() as transaction:
            return read_request(transaction, find_call(transaction, call))[0]

    def events(self, headish: str) -> list[bytes]:
        """Return the raw events of the reply that became a turn, as they came.

        Raises:
            UnknownCallError: the turn did not come of a recorded call.
            UnknownTurnError: there is no such turn.
        """
        with self._store.read() as transaction:
            reply_id = turn_meta(find_turn(transaction, headish).event).reply
            recorded = None if reply_id is UNSET else transaction.event(reply_id)
            if recorded is None:
                raise UnknownCallError(f"turn {headish!r} did not come of a recorded model call", call=headish)
            return reply_events(transaction.payload(recorded) or b"")

    def tools(self, call: str) -> tuple[Tool, ...]:
        """Return the tools that a call offered, as they were.

        Raises:
            UnknownCallError: there is no such call.
        """
        with self._store.read() as transaction:
            return _tools(transaction, call_meta(find_call(transaction, call)))

    def of(self, headish: str) -> list[Call]:
        """Return the calls that the ancestry of a turn and the turn itself came of, oldest first.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self._store.read() as transaction:
            return [_call(transaction, recorded) for recorded in _calls(transaction, headish)]

    def check(
        self, headish: str, *, adapter: Callable[[str, str], Provider] = providers.get_as
    ) -> Iterator[RequestCheck]:
        """Prepare every recorded request in the ancestry of a turn again, and compare its bytes with the recorded ones.

        Args:
            headish: a turn id or bookmark.
            adapter: returns the adapter of a name for a provider.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self._store.read() as transaction:
            calls = _calls(transaction, headish)
        known: dict[str, bytes] = {}
        for recorded in calls:
            with self._store.read() as transaction:
                yield self._check(transaction, recorded, adapter, known)
            while len(known) > _KNOWN_MAX:
                del known[next(iter(known))]

    def _check(
        self,
        transaction: ReadTransaction,
        recorded: Recorded,
        adapter: Callable[[str, str], Provider],
        known: dict[str, bytes],
    ) -> RequestCheck:
        meta = call_meta(recorded)
        difference: str | None
        try:
            body, _ = read_request(transaction, recorded, known)
            window = self._projector.window(transaction, find_turn(transaction, meta.turn))
            request = adapter(meta.adapter, meta.provider).prepare_request(
                window,
                _tools(transaction, meta),
                model=meta.model,
                params=meta.parameters,
                on_loss=None if meta.on_loss is UNSET else _on_loss(meta.on_loss),
                stream=meta.stream,
            )
            difference = _difference(body, request.body)
            if difference is not None and request.version != meta.adapter_version:
                difference += f"; adapter {meta.adapter} was of version {meta.adapter_version}, is {request.version}"
        except TurnlogError as error:
            difference = str(error)
        return RequestCheck(call=recorded.event.id, turn=meta.turn, size=meta.request.size, difference=difference)

    def replies(self) -> dict[str, list[RecordedReply]]:
        """Return all replies in the log by the hash of the request body that they answered: what `Replay` takes."""
        found: dict[str, list[RecordedReply]] = {}
        with self._store.read() as transaction:
            for recorded in transaction.log(topics=[REPLY]):
                meta = meta_of(recorded.event, ReplyMeta)
                call = transaction.event(meta.call)
                if call is not None and call.event.topic == CALL:
                    reply = RecordedReply(
                        events=tuple(reply_events(transaction.payload(recorded) or b"")),
                        error=None if meta.error is UNSET else meta.error,
                    )
                    found.setdefault(call_meta(call).request.hash, []).append(reply)
        return found


def _parameters(params: Parameters | None) -> str:
    given = plain_json(params or {}, "params", MetaError)
    refuse_secrets(given, field="params")
    return msgspec.json.encode(given).decode()


def _on_loss(value: str) -> OnLoss:
    return "error" if value == "error" else "report"


def _call(transaction: ReadTransaction, recorded: Recorded) -> Call:
    entries = read_request(transaction, recorded)[1] if call_meta(recorded).loss is not UNSET else ()
    return Call(id=recorded.event.id, meta=call_meta(recorded), loss_report=LossReport(entries=entries))


def _calls(transaction: ReadTransaction, headish: str) -> list[Recorded]:
    found: list[Recorded] = []
    head = find_turn(transaction, headish)
    for turn in ancestry(transaction, head, transaction.stream, lambda recorded: recorded, {}):
        call_id = turn_meta(turn.event).call
        if call_id is UNSET:
            continue
        call = transaction.event(call_id)
        if call is None or call.event.topic != CALL:
            raise CorruptionError(f"turn {turn.event.id!r} came of call {call_id!r}, which cannot be found")
        found.append(call)
    return found


def _tools(transaction: ReadTransaction, meta: CallMeta) -> tuple[Tool, ...]:
    if meta.tools is UNSET:
        return ()
    recorded = transaction.event(meta.tools)
    payload = None if recorded is None else transaction.payload(recorded)
    if payload is None:
        raise CorruptionError(f"the tools of event {meta.tools!r}, which a call offered, cannot be found")
    return parse_tools(payload)


def _difference(recorded: bytes, prepared: bytes) -> str | None:
    if recorded == prepared:
        return None
    at = next(
        (place for place, (one, other) in enumerate(zip(recorded, prepared, strict=False)) if one != other),
        min(len(recorded), len(prepared)),
    )
    return f"differs at byte {at}: recorded {_around(recorded, at)}, prepared again {_around(prepared, at)}"


def _around(body: bytes, at: int) -> str:
    return repr(body[max(0, at - 10) : at + 30].decode(errors="replace"))
