"""Whether recorded requests can be made again, and whether recorded replies still add up to their turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from turnlog.calls.reading import asked_in, tools_of
from turnlog.calls.values import RequestCheck
from turnlog.context import Projector
from turnlog.digest import pieces_digest, sri
from turnlog.errors import ErasedError, TurnlogError
from turnlog.events import Recorded, meta_of, turn_meta
from turnlog.model import CallMeta, ReplyMeta, TurnMeta, changed_window, content_bytes
from turnlog.providers import OnLoss, Provider
from turnlog.record import find_turn
from turnlog.record.calls import call_meta, cited_event, read_request, reply_events
from turnlog.store import ReadTransaction, Store

KNOWN_MAX = 4
"""How many requests a check keeps for the next ones, which most often have parts of the last."""

KNOWN_BYTES_MAX = 64 * 1024 * 1024
"""As many bytes of them at most: a larger request is read again."""


class _Difference(Struct, frozen=True):
    """A difference, one line, and whether the adapter was of another version and all that is recorded was read."""

    text: str
    by_version: bool = False


AdapterOf = Callable[[str, str], Provider]


def check_calls(store: Store, projector: Projector, headish: str, adapter: AdapterOf) -> Iterator[RequestCheck]:
    """Check the calls that an ancestry came of, oldest first. See `Calls.check`."""
    with store.read() as transaction:
        found = asked_in(transaction, headish)
    known: dict[str, bytes] = {}
    for turn, call in found:
        try:
            meta = call_meta(call)
        except TurnlogError as error:
            cited = call.header.cited("turn") or ""
            difference, gone = _difference_or_unreadable(error)
            text = None if difference is None else difference.text
            yield RequestCheck(call=call.header.id, turn=cited, size=0, difference=text, unreadable=gone)
            continue
        with store.read() as transaction:
            events, reply_difference, redacted = _reply_difference(transaction, turn, meta, adapter)
            difference, gone = _request_difference(transaction, projector, call, meta, adapter, known)
            checked = RequestCheck(
                call=call.header.id,
                turn=meta.turn,
                size=meta.request.size,
                difference=None if difference is None else difference.text,
                unreadable=gone,
                reply_difference=None if reply_difference is None else reply_difference.text,
                events=events,
                redacted=redacted,
                by_version=_by_version(difference, reply_difference),
            )
        yield checked


def _by_version(request: _Difference | None, reply: _Difference | None) -> tuple[Literal["request", "reply"], ...]:
    found: list[Literal["request", "reply"]] = []
    if request is not None and request.by_version:
        found.append("request")
    if reply is not None and reply.by_version:
        found.append("reply")
    return tuple(found)


def _request_difference(
    transaction: ReadTransaction,
    projector: Projector,
    call: Recorded,
    meta: CallMeta,
    adapter: AdapterOf,
    known: dict[str, bytes],
) -> tuple[_Difference | None, str | None]:
    """Return where the request differs from what its turn gives, if it does, and why it cannot be compared, if so."""
    try:
        changed = read_request(transaction, call, known).window
        _forget(known)  # so that a large body is not held while the other one is made
        turn = cited_event(transaction, call, "turn") or find_turn(transaction, meta.turn)
        window = projector.window(transaction, turn)
        request = adapter(meta.adapter, meta.provider).prepare_request(
            window if changed is None else changed_window(window, changed),
            tools_of(transaction, call),
            model=meta.model,
            params=meta.parameters,
            on_loss=None if meta.on_loss is None else _on_loss(meta.on_loss),
            stream=meta.stream,
        )
        if sri(pieces_digest(request.parts)) == meta.request.hash:
            return None, None
        difference = _difference(read_request(transaction, call, known).body, request.body)
    except TurnlogError as error:
        return _difference_or_unreadable(error)
    return _of_version(difference, meta, request.version), None


def _forget(known: dict[str, bytes]) -> None:
    """Let go of the requests that were read first, until few enough are known."""
    while len(known) > KNOWN_MAX or sum(map(len, known.values())) > KNOWN_BYTES_MAX:
        del known[next(iter(known))]


def _difference_or_unreadable(error: TurnlogError) -> tuple[_Difference | None, str | None]:
    return (None, str(error)) if isinstance(error, ErasedError) else (_Difference(str(error)), None)


def _reply_difference(
    transaction: ReadTransaction, turn: Recorded, meta: CallMeta, adapter: AdapterOf
) -> tuple[int | None, _Difference | None, bool]:
    """Return how many raw events a reply has, and where they, added up again, are not the turn that they became.

    At last whether it was redacted: then there is nothing to compare.
    """
    events: list[bytes] = []
    try:
        reply = cited_event(transaction, turn, "reply")
        answer = None if reply is None or reply.unreadable else meta_of(reply, ReplyMeta)
        if answer is not None and answer.redacted is not None:
            return None, None, True
        payload = None if reply is None else transaction.payload(reply)
        content = transaction.payload(turn)
        if payload is None or content is None or answer is None:
            return None, None, False
        events = reply_events(payload, answer)
        reader = adapter(meta.adapter, meta.provider)
        response = reader.aggregate(events, model=meta.model)
        difference = _difference(content, content_bytes(response.content))
        said = turn_meta(turn)
        if difference is None and not said.failed:
            difference = _other_outcome(said, response.stop_reason)
        version = reader.version
    except TurnlogError as error:
        return len(events) or None, _Difference(str(error)), False
    return len(events), _of_version(difference, meta, version), False


def _other_outcome(said: TurnMeta, stop_reason: str) -> str | None:
    if said.stop_reason is None or said.stop_reason == stop_reason:
        return None
    return f"the turn says stop_reason {said.stop_reason}, the reply adds up to {stop_reason}"


def _of_version(difference: str | None, meta: CallMeta, version: str) -> _Difference | None:
    """Return a difference with what tells a change of what is stored from a change of the adapter."""
    if difference is None or version == meta.adapter_version:
        return None if difference is None else _Difference(difference)
    said = f"; adapter {meta.adapter} was of version {meta.adapter_version}, is {version}"
    return _Difference(difference + said, by_version=True)


def _on_loss(value: str) -> OnLoss:
    return "error" if value == "error" else "report"


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
