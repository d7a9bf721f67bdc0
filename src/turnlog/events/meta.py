"""What events say of themselves: their metadata as values, whichever part its fields stand in."""

# Annotations are not put off here: msgspec would compile each one of them again, in every process.

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError, ErasedError, SealedError
from turnlog.events.form import NO_META, Event
from turnlog.events.topics import PARENT, SHAPES, TURN
from turnlog.model import CONTENT_TYPE, Origin, TurnMeta, Usage
from turnlog.model.json_text import UNREADABLE

_M = TypeVar("_M", bound=Struct)

_record = msgspec.json.Decoder(dict[str, Any])


def meta_of(event: Event, kind: type[_M]) -> _M:
    """Return the metadata of an event of a known topic as one value, whichever part its fields stand in.

    Raises:
        CorruptionError: it is not of this kind.
        ErasedError: what it needs is erased.
    """
    header = event.header
    shape = SHAPES[header.topic]
    try:
        fields = {name: value for name, value in _record.decode(header.meta).items() if name in shape.public}
        if event.private is not None:
            fields |= {
                name: value
                for name, value in _record.decode(event.private.meta).items()
                if name not in shape.public and name not in shape.cited
            }
        for name, relation in shape.cited.items():
            ids = [citation.id for citation in header.citations if citation.relation == relation]
            if ids:
                fields[name] = ids if name in _MANY else ids[0]
        return msgspec.convert(fields, kind)
    except UNREADABLE as error:
        if event.unreadable:
            raise unreadable(event, f"event {header.id!r}") from error
        raise _damaged(event, error) from error


def unreadable(event: Event, what: str) -> ErasedError | CorruptionError:
    """Return the error for what cannot be read of an event: it was erased, its key is not here, or it is damaged.

    Args:
        event: an event that is unreadable.
        what: what was asked for, such as `the reply of turn 'main'`.
    """
    if event.damaged:
        return CorruptionError(f"{what} is damaged: run `turnlog verify`")
    if event.sealed is None:
        return ErasedError(f"{what} was erased", event_id=event.header.id)
    return SealedError(f"{what} is sealed, and its key {event.sealed.key!r} is not here", event_id=event.header.id)


_MANY = frozenset({"continues", "targets", "tool_ends"})
"""Fields that hold all events that are cited as something. The others hold the first one."""


def metadata(event: Event) -> dict[str, Any]:
    """Return the metadata of an event of any topic as it stands, public and private together.

    Raises:
        CorruptionError: it cannot be read.
    """
    try:
        private = {} if event.private is None else _record.decode(event.private.meta)
        return _record.decode(event.header.meta) | private
    except UNREADABLE as error:
        raise _damaged(event, error) from error


def _damaged(event: Event, error: Exception) -> CorruptionError:
    return CorruptionError(f"metadata of event {event.header.id!r} cannot be read: {error}")


def may_name_head(event: Event) -> bool:
    """Tell whether a turn may say that it moves a bookmark, without decoding it."""
    return _may_have(event, b'"head":')


def named_head(event: Event) -> str | None:
    """Return the bookmark that a turn says it moves; None where it names none, and for one that is not readable.

    Raises:
        CorruptionError: what it says is no name.
    """
    # Most turns name none, and are not decoded for it.
    return _named(event).head if _may_have(event, b'"head":') else None


def named_subject(event: Event) -> str | None:
    """Return the subject of a turn; None where it has none, and for one that is not readable.

    Raises:
        CorruptionError: what it says is no name.
    """
    return _named(event).subject if _may_have(event, b'"subject":') else None


def _may_have(event: Event, field: bytes) -> bool:
    private = event.private
    return private is not None and private.meta is not NO_META and field in bytes(private.meta)


class _Named(Struct, frozen=True, kw_only=True, gc=False):
    """The names that a turn gives. Not all of its metadata: they are folded at each append."""

    head: str | None = None
    subject: str | None = None


def _named(turn: Event) -> _Named:
    assert turn.private is not None
    try:
        return _names.decode(turn.private.meta)
    except UNREADABLE as error:
        raise _damaged(turn, error) from error


def asked_model(call: Event) -> str:
    """Return the model that a call asked: it is public, and so known of an erased call too.

    Raises:
        CorruptionError: the call does not say.
    """
    try:
        return _asked.decode(call.header.meta).model
    except UNREADABLE as error:
        raise _damaged(call, error) from error


class _Asked(Struct, frozen=True, kw_only=True, gc=False):
    model: str


def turn_meta(event: Event) -> TurnMeta:
    """Return the metadata of a turn.

    Raises:
        CorruptionError: the event is not a turn, or its metadata is not that of one.
    """
    header = event.header
    if header.topic != TURN:
        raise CorruptionError(f"event {header.id!r} is a {header.topic} event, not a turn")
    own = event.private
    try:
        public = _public_of(header.meta)
        private = None if own is None or own.meta is NO_META else _turn_private.decode(own.meta)
    except UNREADABLE as error:
        raise _damaged(event, error) from error
    call = reply = summary = None
    parents: list[str] = []
    ends: list[str] = []
    for citation in header.citations:
        relation = citation.relation
        if relation == PARENT:
            parents.append(citation.id)
        elif relation == "call":
            call = call or citation.id
        elif relation == "reply":
            reply = reply or citation.id
        elif relation == "summary":
            summary = summary or citation.id
        elif relation == "tool_end":
            ends.append(citation.id)
    # Not through `meta_of`, and what most have nothing of is not looked for, which takes a third of the time (0.6 µs of
    # 1.7): windows are made of thousands of turns.
    if private is None and public.model is None and call is None and reply is None and not (summary or ends):
        return TurnMeta(
            role=public.role,
            content_type=public.content_type,
            continues=tuple(parents),
            cache=public.cache,
            type=public.type,
            model_asked=public.model_asked,
            provider=public.provider,
            api=public.api,
            stop_reason=public.stop_reason,
            raw_stop_reason=public.raw_stop_reason,
            usage=public.usage,
        )
    private = private or _NO_TURN_PRIVATE
    return TurnMeta(
        role=public.role,
        content_type=public.content_type,
        inherited=private.inherited,
        head=private.head,
        continues=tuple(parents),
        cache=public.cache,
        type=public.type,
        document_name=private.document_name,
        original_path=private.original_path,
        file_size=private.file_size,
        model=public.model,
        model_asked=public.model_asked,
        provider=public.provider,
        api=public.api,
        stop_reason=public.stop_reason,
        raw_stop_reason=public.raw_stop_reason,
        usage=public.usage,
        call=call,
        reply=reply,
        summary=summary,
        tool_ends=tuple(ends),
        error=private.error,
        origin=private.origin,
        subject=private.subject,
        redacted=private.redacted,
        passed_over=private.passed_over,
        options=private.options,
    )


def _public_of(meta: msgspec.Raw) -> "_TurnPublic":
    """Return the public metadata of a turn. Most have one of a few short texts, such as `{"role":"user"}`."""
    text = bytes(meta)
    if len(text) > _TEXT_BYTES_MAX:
        return _turn_public.decode(text)
    known = _known.get(text)
    if known is None:
        known = _turn_public.decode(text)
        if len(_known) < _KNOWN_MAX:
            _known[text] = known
    return known


class _TurnPublic(Struct, frozen=True, kw_only=True, gc=False):
    """The public fields of `TurnMeta`."""

    role: Literal["user", "assistant", "system"]
    content_type: str = CONTENT_TYPE
    cache: bool = False
    type: Literal["document"] | None = None
    model: str | None = None
    model_asked: str | None = None
    provider: str | None = None
    api: str | None = None
    stop_reason: str | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None


class _TurnPrivate(Struct, frozen=True, kw_only=True, gc=False):
    """The private fields of `TurnMeta`."""

    inherited: dict[str, Any] | None = None
    head: str | None = None
    document_name: str | None = None
    original_path: str | None = None
    file_size: int | None = None
    error: str | None = None
    origin: Origin | None = None
    subject: str | None = None
    redacted: dict[str, int] | None = None
    passed_over: int | None = None
    options: dict[str, Any] | None = None


_asked = msgspec.json.Decoder(_Asked)
_names = msgspec.json.Decoder(_Named)
_turn_public = msgspec.json.Decoder(_TurnPublic)
_turn_private = msgspec.json.Decoder(_TurnPrivate)
_NO_TURN_PRIVATE = _TurnPrivate()

_TEXT_BYTES_MAX = 32
_KNOWN_MAX = 256
_known: dict[bytes, _TurnPublic] = {}
"""Public metadata by its text: never more than `_KNOWN_MAX` of `_TEXT_BYTES_MAX` bytes."""
