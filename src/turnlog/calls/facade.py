"""Model calls in the log: each request as its exact bytes, each reply as the events that came."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from turnlog import providers
from turnlog.calls.checking import check_calls
from turnlog.calls.reading import asked_in, call_of, call_or_why, tools_of
from turnlog.calls.values import Call, RequestCheck, UnreadableCall
from turnlog.context import Projector
from turnlog.digest import pieces_digest, sri
from turnlog.errors import ErasedError, MetaError, UnknownCallError
from turnlog.events import CALL, REPLY, TOOLS, Recorded, meta_of, unreadable
from turnlog.model import (
    BytesRef,
    CallError,
    CallMeta,
    LossReport,
    ReplyMeta,
    Response,
    Tool,
    ToolsMeta,
    WindowChange,
    encode_change,
    tools_bytes,
)
from turnlog.model.kinds import check_count, check_each, check_fields, check_list, check_texts, check_type
from turnlog.model.plain import check_one_of, plain_json
from turnlog.model.tools import check_tools
from turnlog.providers import OnLoss, Parameters, PreparedRequest, Provider
from turnlog.providers.replay import RecordedReply
from turnlog.record import find_turn, foreseen_key, general_key, placed, reply_draft
from turnlog.record.calls import (
    CallDraft,
    base_call,
    call_key,
    call_meta,
    cited_event,
    find_call,
    loss_lines,
    plan_call,
    plan_reply,
    read_kept,
    read_request,
    reply_events,
    reply_key,
    reply_payload,
    reply_sizes,
)
from turnlog.record.drafts import TurnDraft
from turnlog.record.redaction import NOTHING, Redaction
from turnlog.record.requests import REQUEST_BYTES_MAX, request_pieces
from turnlog.record.secrets import refuse_secrets
from turnlog.sources import Sources
from turnlog.store import NewPayload, Store, WriteTransaction
from turnlog.turn import Turn, turn_of

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Request bodies that are kept in memory at most, so that the next request of a thread need not be read first."""


class Calls:
    """The model calls of a log. `TurnLog.calls` is one."""

    def __init__(self, store: Store, sources: Sources, projector: Projector, redaction: Redaction = NOTHING) -> None:
        """Take the parts of a log."""
        self._redaction = redaction
        self._store = store
        self._sources = sources
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
        servers: Sequence[str] = (),
        window: WindowChange | None = None,
    ) -> str:
        """Record a call before it is sent, and return its id. On return it is on disk.

        Args:
            turn: the turn whose window the request was prepared from.
            request: what is to be sent. A listing of tools that was offered before is not recorded again.
            servers: the MCP servers that its tools are of.
            window: how the window that it was prepared from differs from that of the turn.

        Raises:
            UnknownTurnError: there is no such turn.
            MetaError: the parameters are not JSON, or too large; or the request is; or something of it is of another
                kind than it should be.
            ContentError: the request offers more than 10,000 tools, two of one name, or what is none; or `window` is no
                such change.
            SecretError: a parameter looks like a secret; or the redaction hooks of the log find something in the
                request, its provider, api or model, or in a tool: these are kept as they are sent, or not at all.
            RedactionError: a redaction hook failed.
            ErasedSinceError: something of the thread was erased since the window was read: read it again.
        """
        return self._recorded(turn, request, servers=servers, window=window).header.id

    def _recorded(
        self,
        turn: str,
        request: PreparedRequest,
        *,
        servers: Sequence[str] = (),
        window: WindowChange | None = None,
    ) -> Recorded:
        _check_request(request)
        of_servers = check_texts(servers, "servers", "['notes']")
        params = _parameters(request.params)
        lines = loss_lines(check_fields(request.loss_report, LossReport, "loss_report"))
        report = b"".join(lines)
        change = b"" if window is None else encode_change(window)
        if self._redaction:
            offered = tools_bytes(list(request.tools)) if request.tools else b""
            asked = {
                "request": request.body,
                "tools": offered,
                "params": params.encode(),
                "loss": report,
                "window": change,
            }
            names = {"provider": request.provider, "api": request.api, "model": request.model}
            self._redaction.refuse(CALL, names, json=asked)
        ref = _ref(*request.parts)
        size = ref.size + len(report) + len(change)
        if size > REQUEST_BYTES_MAX:
            raise MetaError(
                f"request: {size:,} bytes are more than the limit of {REQUEST_BYTES_MAX:,}", field="request"
            )
        meta = CallMeta(
            turn=turn,
            provider=request.provider,
            api=request.api,
            model=request.model,
            adapter=request.adapter,
            adapter_version=request.version,
            stream=request.stream,
            request=ref,
            params=params,
            on_loss=request.on_loss,
            loss=_ref(report) if report else None,
            window=_ref(change) if change else None,
        )
        parts = [*request.parts, *lines, *([change] if change else [])]
        try:
            call = self._record(meta, parts, request.tools, of_servers, request.erasure)
        except ErasedError:
            # What it was to be based on was erased since it was looked up.
            call = self._record(meta, parts, request.tools, of_servers, request.erasure, based=False)
        if size <= KEPT_BYTES_MAX:
            self._keep(call.header.id, b"".join(parts))
        return call

    def _record(
        self,
        meta: CallMeta,
        parts: Sequence[bytes],
        tools: Sequence[Tool],
        servers: Sequence[str],
        erasure: int | None,
        *,
        based: bool = True,
    ) -> Recorded:
        meta, base_id, base, keys = self._base(meta, based=based)
        payload, shared = request_pieces(parts, base)
        if shared and base_id is not None:
            meta = msgspec.structs.replace(meta, base=base_id)
        meta, listing, listing_payload = self._listing(meta, tools, servers)
        draft = CallDraft(
            meta=meta,
            payload=placed(self._store, payload, lambda t: call_key(t, find_turn(t, meta.turn), keys)),
            id=self._sources.new_id(),
            listing=listing,
            listing_payload=listing_payload,
            keys=keys,
            erasure=erasure,
        )
        recorded = self._store.write(lambda transaction: plan_call(transaction, draft, self._sources))
        if listing_payload is not None and self._listings is not None:
            tools_id = call_meta(recorded).tools
            if tools_id is not None:
                self._listings[listing_payload.content_hash or ""] = tools_id
        return recorded

    def record_reply(
        self,
        call: str,
        events: Sequence[bytes],
        response: Response,
        *,
        continues: str | None = None,
        bookmark: str | Literal[False] | None = None,
        expected_head: str | Literal[False] | None = None,
        subject: str | Literal[False] | None = None,
        api_key: str | None = None,
    ) -> Turn:
        """Record a reply: its raw events, and the assistant turn that they add up to. On return both are on disk.

        Args:
            call: the id of the call.
            events: the raw events, as they came, each as bytes: make some of what could still change, as a `bytearray`.
            response: what they add up to.
            continues: the turn to continue; by default the one that the call went on from.
            bookmark: as for `TurnLog.add_turn`.
            expected_head: as for `TurnLog.add_turn`.
            subject: as for `TurnLog.add_turn`. Where what it continues was erased since, whose it is has to be said.
            api_key: the key that the call was sent with. A reply that repeats it, also where JSON spells it with
                escapes, is redacted as by a hook.

        Raises:
            UnknownCallError: there is no such call.
            HeadConflictError: the bookmark is not at `expected_head`.
            ContentError: a content block is malformed.
            MetaError: what it continues was erased since, and there is no subject; or something is of another kind than
                it should be.
            RedactionError: a redaction hook failed.

        Where redaction hooks find something, in the turn, in the error or in the raw events, no raw event is kept: what
        was found may be spread over many. The reply says so (`redacted`), and cannot be compared or replayed.
        """
        check_type(response, Response, "response")
        error = None if response.error is None else check_fields(response.error, CallError, "error")
        raw = check_each(events, bytes, "events", "raw events")
        with self._store.read() as transaction:
            found = find_call(transaction, call)
        draft = reply_draft(
            response,
            continues=call_meta(found).turn if continues is None else continues,
            bookmark=bookmark,
            expected_head=expected_head,
            subject=subject,
            api_key=api_key,
        )
        return self._record_reply(found.header.id, raw, error, draft)

    def _record_reply(self, call: str, events: Sequence[bytes], error: CallError | None, draft: TurnDraft) -> Turn:
        reply = self._redaction.reply(draft, events, error)
        draft, error = reply.turn, reply.error
        raw = reply_payload(reply.events) if reply.events else None
        named = msgspec.structs.replace(draft, meta=msgspec.structs.replace(draft.meta, call=call))
        payload = placed(self._store, raw, lambda transaction: reply_key(transaction, call, named))
        turn_payload = placed(self._store, draft.payload, lambda transaction: foreseen_key(transaction, named))
        meta = ReplyMeta(
            call=call,
            events=len(reply.events),
            error=error,
            redacted=reply.redacted,
            sizes=reply_sizes(reply.events),
        )

        def plan(transaction: WriteTransaction) -> Recorded:
            return plan_reply(transaction, meta, payload, draft, turn_payload, self._sources)

        return turn_of(self._store.write(plan))

    def _base(self, meta: CallMeta, *, based: bool) -> tuple[CallMeta, str | None, bytes, frozenset[str]]:
        """Return the metadata with the turn by its id, and the call to build on with its body, if there is one.

        And the ids of the keys that what is in the window is sealed under.
        """
        with self._store.read() as transaction:
            head = find_turn(transaction, meta.turn)
            # A bookmark may have moved on by the time the call is recorded, to where its base is not of the ancestry.
            meta = msgspec.structs.replace(meta, turn=head.header.id)
            keys = self._projector.keys(transaction, head)
            if not based:
                return meta, None, b"", keys
            found = base_call(transaction, self._projector.outline(transaction, head), head.header.id, meta)
            if found is None:
                return meta, None, b"", keys
            with self._mutex:
                kept = self._kept.get(found.header.id)
            try:
                return meta, found.header.id, read_kept(transaction, found) if kept is None else kept, keys
            except ErasedError:
                return meta, None, b"", keys  # what that one has parts of is gone

    def forget(self) -> None:
        """Drop what is kept in memory of requests: they may have been erased."""
        self._store.check_open()
        self._forget()

    def _forget(self) -> None:
        with self._mutex:
            self._kept.clear()
            self._listings = None

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
        listing = tools_bytes(list(tools))
        payload = placed(self._store, listing, general_key)
        with self._mutex:
            if self._listings is None:
                with self._store.read() as transaction:
                    self._listings = {
                        recorded.hash: recorded.header.id
                        for recorded in transaction.log(topics=[TOOLS])
                        if recorded.hash is not None
                    }
            known = self._listings.get(payload.content_hash or "")
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
            return call_of(transaction, find_call(transaction, call))

    def all(self) -> list[Call | UnreadableCall]:
        """Return all calls, in the order in which they were recorded, with those that cannot be read among them."""
        with self._store.read() as transaction:
            return [call_or_why(transaction, recorded) for recorded in transaction.log(topics=[CALL])]

    def request(self, call: str) -> bytes:
        """Return the exact bytes of a call's request body, checked against their hash.

        Raises:
            UnknownCallError: there is no such call.
            ErasedError: it is erased.
            CorruptionError: the stored bytes are damaged.
        """
        with self._store.read() as transaction:
            return read_request(transaction, find_call(transaction, call)).body

    def events(self, headish: str) -> list[bytes]:
        """Return the raw events of the reply that became a turn, as they came.

        Raises:
            UnknownCallError: the turn did not come of a recorded call.
            UnknownTurnError: there is no such turn.
            ErasedError: they are erased.
        """
        with self._store.read() as transaction:
            recorded = cited_event(transaction, find_turn(transaction, headish), "reply")
            if recorded is None:
                raise UnknownCallError(f"turn {headish!r} did not come of a recorded model call", call=headish)
            if recorded.unreadable:
                raise unreadable(recorded, f"the reply of turn {headish!r}")
            return reply_events(transaction.payload(recorded) or b"", meta_of(recorded, ReplyMeta))

    def tools(self, call: str) -> tuple[Tool, ...]:
        """Return the tools that a call offered, as they were.

        Raises:
            UnknownCallError: there is no such call.
        """
        with self._store.read() as transaction:
            return tools_of(transaction, find_call(transaction, call))

    def of(self, headish: str) -> list[Call | UnreadableCall]:
        """Return the calls that the ancestry of a turn and the turn itself came of, oldest first.

        Those that were erased are among them, and those that are sealed and whose key is not here.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self._store.read() as transaction:
            return [call_or_why(transaction, call) for _, call in asked_in(transaction, headish)]

    def check(
        self, headish: str, *, adapter: Callable[[str, str], Provider] = providers.get_as
    ) -> Iterator[RequestCheck]:
        """Make every recorded request in the ancestry of a turn again, and add every reply up again, and compare.

        Requests are compared byte for byte, replies by the turns that they became.

        Args:
            headish: a turn id or bookmark.
            adapter: returns the adapter of a name for a provider.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        return check_calls(self._store, self._projector, headish, adapter)

    def replies(self) -> dict[str, list[RecordedReply]]:
        """Return all replies in the log by the hash of the request body that they answered: what `Replay` takes."""
        found: dict[str, list[RecordedReply]] = {}
        with self._store.read() as transaction:
            for recorded in transaction.log(topics=[REPLY]):
                call = cited_event(transaction, recorded, "call")
                if call is None or call.header.topic != CALL or recorded.unreadable or call.unreadable:
                    continue
                meta = meta_of(recorded, ReplyMeta)
                error = meta.error
                if meta.redacted is not None:
                    error = CallError(message="the recorded reply was redacted, and cannot be replayed")
                reply = RecordedReply(
                    events=tuple(reply_events(transaction.payload(recorded) or b"", meta)), error=error
                )
                found.setdefault(call_meta(call).request.hash, []).append(reply)
        return found


def _ref(*parts: bytes) -> BytesRef:
    """Return hash and size of what is in parts."""
    return BytesRef(hash=sri(pieces_digest(parts)), size=sum(map(len, parts)))


def _check_request(request: PreparedRequest) -> None:
    """Check that a request is of what can be recorded, and read again. The rest is checked with its metadata.

    Raises:
        MetaError, ContentError: it is not.
    """
    check_type(request, PreparedRequest, "request")
    check_type(request.head, bytes, "head")
    check_each(request.messages, bytes, "messages", "fragments of the body, as bytes")
    check_type(request.closing, bytes, "closing")
    check_tools(check_list(request.tools, "tools", "tools"))
    if request.on_loss is not None:
        check_one_of(request.on_loss, get_args(OnLoss), "on_loss")
    if request.erasure is not None:
        check_count(request.erasure, "erasure")


def _parameters(params: Parameters) -> str:
    given = plain_json(check_type(params, Mapping, "params"), "params", MetaError)
    refuse_secrets(given, field="params")
    return msgspec.json.encode(given).decode()
