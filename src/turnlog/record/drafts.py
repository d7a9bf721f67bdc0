"""Drafts: what is to be recorded, checked as far as it can be without the log."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, Unpack, cast

import msgspec
from msgspec import Struct

from turnlog.errors import ContentError, DocumentError, MetaError, os_reason
from turnlog.ids import parse_id
from turnlog.model import Block, Origin, ReplyFacts, ReplyFactsGiven, Response, TurnMeta, content_bytes, parse_content
from turnlog.model.blocks import is_in_form
from turnlog.model.depth import JSON_DEPTH_MAX
from turnlog.model.kinds import check_count, check_fields, check_path, check_type
from turnlog.model.shown import shown
from turnlog.record.fields import (
    ReplyFields,
    check_bookmark,
    check_continues,
    check_expected_head,
    check_inherited,
    check_reply,
    check_role,
    check_subject,
    reply_facts,
)
from turnlog.record.files import DOCUMENT_BYTES_MAX, open_regular
from turnlog.record.media import check_media_type, media_type

_NOTHING_NAMED = (None, None, None, None)
_NO_FACTS: ReplyFields = {}
_PIECE_BYTES = 1 << 20


class TurnDraft(Struct, frozen=True, kw_only=True):
    """A turn to record. What it continues and which bookmark it moves is settled when it is recorded.

    Attributes:
        payload: the bytes to store; none where they are placed apart from the draft.
        meta: everything but `head`.
        continues: ids or bookmark names, as given.
        respond: continue the last turn of the log.
        bookmark: the bookmark to move, False for none, None for the one that the parent is the head of.
        expected_head: where the caller expects the bookmark: a turn id, False for nowhere, None to not ask.
        id: the id to record it under, or None for a fresh one.
        subject: whom it is about, False for nobody, None for the subject of the first parent.
        parent_subject: the subject of the first parent, False for none, as it was read before; None where it was not.
            It holds where that turn was erased since.
        api_key: a key that is taken out of what repeats it. It is neither recorded nor shown.
    """

    payload: bytes
    meta: TurnMeta
    continues: tuple[str, ...] = ()
    respond: bool = False
    bookmark: str | Literal[False] | None = None
    expected_head: str | Literal[False] | None = None
    id: str | None = None
    subject: str | Literal[False] | None = None
    parent_subject: str | Literal[False] | None = None
    api_key: str | None = None

    def __repr__(self) -> str:
        """Return all of it but the key."""
        return shown(self if self.api_key is None else msgspec.structs.replace(self, api_key="…"))


class EventDraft(Struct, frozen=True, kw_only=True):
    """An event to record.

    Attributes:
        topic: its topic.
        meta: its metadata: of a topic of turnlog's as one value, else what is private of it.
        public: of other topics, the metadata that stands in the header for ever.
        id: the id to record it under, or None for a fresh one.
    """

    topic: str
    meta: Mapping[str, Any] | Struct
    public: Mapping[str, Any] = {}
    id: str | None = None


def checked_draft(draft: TurnDraft) -> TurnDraft:
    """Return a draft that may have been made otherwise than by the functions below, checked as they check theirs.

    Raises:
        ContentError: a content block is malformed.
        MetaError: something else of it is.
    """
    check_type(draft.respond, bool, "respond")
    payload = check_type(draft.payload, bytes, "payload")
    meta = check_fields(draft.meta, TurnMeta, "meta")
    if meta.type is None and not is_in_form(payload):
        raise ContentError(
            "content: it is not in the form of the log: turnlog.record.turn_draft makes it", field="content"
        )
    return msgspec.structs.replace(
        draft,
        meta=meta,
        continues=check_continues(draft.continues or None, respond=draft.respond),
        bookmark=check_bookmark(draft.bookmark),
        expected_head=check_expected_head(draft.expected_head),
        id=None if draft.id is None else parse_id(check_type(draft.id, str, "id")),
        subject=check_subject(draft.subject),
        parent_subject=check_subject(draft.parent_subject),
        api_key=None if draft.api_key is None else check_type(draft.api_key, str, "api_key"),
    )


def reply_draft(
    response: Response,
    *,
    continues: str | Sequence[str],
    bookmark: str | Literal[False] | None = None,
    expected_head: str | Literal[False] | None = None,
    subject: str | Literal[False] | None = None,
    api_key: str | None = None,
) -> TurnDraft:
    """Return the assistant turn of a reply."""
    return turn_draft(
        content_bytes(response.content),
        json=True,
        role="assistant",
        continues=continues,
        bookmark=bookmark,
        expected_head=expected_head,
        reply=ReplyFacts(
            model=response.model,
            provider=response.provider,
            api=response.api,
            stop_reason=response.stop_reason,
            raw_stop_reason=response.raw_stop_reason,
            usage=response.usage,
            error=None if response.error is None else response.error.line(),
        ),
        subject=subject,
        api_key=api_key,
    )


def turn_draft(  # noqa: PLR0913 - one argument for each field of the schema
    content: str | bytes | Sequence[str | Block | Mapping[str, Any]],
    *,
    role: str = "user",
    continues: str | Sequence[str] | None = None,
    respond: bool = False,
    bookmark: str | Literal[False] | None = None,
    expected_head: str | Literal[False] | None = None,
    inherited: Mapping[str, Any] | None = None,
    provider_ptr: str | None = None,
    servers: Sequence[str] | None = None,
    search: bool | None = None,
    tool_mode: str | None = None,
    cache: bool = False,
    json: bool = False,
    id: str | None = None,
    reply: ReplyFacts | None = None,
    call: str | None = None,
    origin: Origin | None = None,
    subject: str | Literal[False] | None = None,
    api_key: str | None = None,
    **facts: Unpack[ReplyFactsGiven],
) -> TurnDraft:
    """Check what a caller gave for a turn. See `TurnLog.add_turn` for the meaning of each argument."""
    if facts:
        reply = reply_facts(reply, facts)
    # What is not given is not asked about: this is on the way of every append.
    named = (provider_ptr, servers, search, tool_mode)
    options = None
    if inherited is not None or named != _NOTHING_NAMED:
        pairs = zip(("provider_ptr", "servers", "search", "tool_mode"), named, strict=True)
        options = check_inherited(inherited, {name: value for name, value in pairs if value is not None})
    return TurnDraft(
        payload=content_bytes(content) if type(content) is str and not json else _payload(content, json=json),
        meta=TurnMeta(
            role=check_role(role),
            inherited=options,
            cache=cache if type(cache) is bool else check_type(cache, bool, "cache"),
            call=None if call is None else parse_id(check_type(call, str, "call"), field="call"),
            origin=None if origin is None else check_fields(origin, Origin, "origin"),
            **_NO_FACTS if reply is None else check_reply(reply),
        ),
        continues=() if continues is None else check_continues(continues, respond=respond),
        respond=respond,
        bookmark=None if bookmark is None else check_bookmark(bookmark),
        expected_head=None if expected_head is None else check_expected_head(expected_head),
        id=None if id is None else parse_id(check_type(id, str, "id")),
        subject=None if subject is None else check_subject(subject),
        api_key=None if api_key is None else check_type(api_key, str, "api_key"),
    )


def document_draft(  # noqa: PLR0913 - one argument for each field of the schema
    path: str | Path,
    *,
    role: str = "user",
    continues: str | Sequence[str] | None = None,
    respond: bool = False,
    bookmark: str | Literal[False] | None = None,
    expected_head: str | Literal[False] | None = None,
    inherited: Mapping[str, Any] | None = None,
    cache: bool = False,
    content_type: str | None = None,
    name: str | None = None,
    bytes_max: int = DOCUMENT_BYTES_MAX,
    id: str | None = None,
    subject: str | Literal[False] | None = None,
) -> TurnDraft:
    """Read a file as a document turn. See `TurnLog.add_document` for the meaning of each argument."""
    path = check_path(path, "path")
    payload = _read_document(path, check_count(bytes_max, "bytes_max"))
    return TurnDraft(
        payload=payload,
        meta=TurnMeta(
            role=check_role(role),
            type="document",
            content_type=media_type(path, payload)
            if content_type is None
            else check_media_type(check_type(content_type, str, "content_type")),
            document_name=_document_name(path.name if name is None else name),
            original_path=_spelled(path.absolute()),
            file_size=len(payload),
            inherited=check_inherited(inherited, {}),
            cache=check_type(cache, bool, "cache"),
        ),
        continues=check_continues(continues, respond=respond),
        respond=respond,
        bookmark=check_bookmark(bookmark),
        expected_head=check_expected_head(expected_head),
        id=None if id is None else parse_id(check_type(id, str, "id")),
        subject=check_subject(subject),
    )


def _spelled(path: Path | str) -> str:
    r"""Return a path as text; bytes in it that are no UTF-8 are spelled `\udce9`, as Python has them."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def _document_name(name: str) -> str:
    if isinstance(cast("object", name), str) and _spelled(name) != name:
        raise MetaError(f"document_name: {name!r} is not valid UTF-8: give another one", field="document_name")
    text = check_type(name, str, "document_name")
    if not text:
        raise MetaError("document_name: '' is no name: give one, or none for that of the file", field="document_name")
    return text


def _read_document(path: Path, bytes_max: int) -> bytes:
    try:
        if path.is_dir():
            raise DocumentError(f"{str(path)!r} is a folder: give one file of it at a time")
        with open_regular(path, DocumentError) as file:
            size = os.fstat(file.fileno()).st_size
            if size > bytes_max:
                raise DocumentError(
                    f"document {str(path)!r} has {size:,} bytes, more than the limit of {bytes_max:,}: "
                    "raise the limit or split it"
                )
            payload = _read_up_to(file, min(size, bytes_max) + 1, bytes_max + 1)
    except (OSError, ValueError) as error:
        raise DocumentError(f"document {str(path)!r} cannot be read: {os_reason(error)}") from error
    if len(payload) > bytes_max:
        raise DocumentError(f"document {str(path)!r} has more bytes than the limit of {bytes_max:,}")
    return payload


def _read_up_to(file: BinaryIO, bytes_expected: int, bytes_max: int) -> bytes:
    """Return what a file has, or that many bytes of it. No more space is taken than it needs, whatever the limit is."""
    pieces = [file.read(bytes_expected)]
    # It may have grown since, and files of the system do not say how large they are.
    while pieces[-1] and (left := bytes_max - sum(map(len, pieces))) > 0:
        pieces.append(file.read(min(left, _PIECE_BYTES)))
    return b"".join(filter(None, pieces))


def _payload(content: str | bytes | Sequence[str | Block | Mapping[str, Any]], *, json: bool) -> bytes:
    if not json:
        if isinstance(content, bytes):
            raise ContentError("content: expected text or blocks, got bytes (bytes are read as JSON with json=True)")
        return content_bytes(content, depth_max=JSON_DEPTH_MAX)
    if not isinstance(content, str | bytes):
        raise ContentError(f"content: with json=True expected JSON text, got {type(content).__name__}")
    return parse_content(content, depth_max=JSON_DEPTH_MAX)
