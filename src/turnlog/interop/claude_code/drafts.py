"""From rows to drafts: of the turn that they are together, and of the event that each of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from turnlog.digest import pieces_digest
from turnlog.ids import derived_id
from turnlog.interop.claude_code.chains import TurnRows
from turnlog.interop.claude_code.content import API, PROVIDER, blocks_of
from turnlog.interop.claude_code.counted import Counts
from turnlog.interop.claude_code.lines import FORMAT, Row
from turnlog.interop.claude_code.report import LineMeta
from turnlog.interop.marked import in_pieces, whole
from turnlog.interop.texts import topic_name
from turnlog.interop.usage import not_counted
from turnlog.model import Origin, Text, TurnMeta, Usage, decode_content
from turnlog.record import EventDraft, TurnDraft
from turnlog.store import Payload

ERROR_CHARACTERS_MAX = 2000
"""Longer error texts are cut in the metadata of a turn; its content has them whole."""

T = TypeVar("T")


def turn_draft(rows: Sequence[Row], turn: TurnRows, counted: Counts) -> tuple[TurnDraft, Payload]:
    """Return the draft of a turn, with its id, and its payload. What the turn continues must have an id already.

    The id stands for the first row's uuid, the message id, the content and the parent: the same turn in a copy of the
    file, under another session, is the same turn; an edited one is another. So is that of a message which was whole in
    the copy, and in the middle when the file was imported.

    What its message took is counted once: `counted` has what each turn of the message has of it, and gets the rest.
    """
    parts = [(row, row.message) for row in (rows[index] for index in turn.rows) if row.message is not None]
    first, message = parts[0]
    marked = b"[" + b",".join(block for _, part in parts for block in blocks_of(part.content, part.model)) + b"]"
    payload = in_pieces(marked)
    parent = None if turn.parent is None else turn.parent.turn_id
    names = (first.uuid or "", message.id or "", pieces_digest(payload).hex(), parent or "")
    by_model = first.type == "assistant"
    redacted: Counter[str] = Counter()
    for row, _ in parts:
        redacted.update(row.redacted_content)
    own_id = derived_id(first.time, FORMAT, *names)
    request_id = _first(row.request_id for row, _ in parts)
    turns = {} if message.id is None else counted.setdefault((message.id, request_id), {})
    before = [took for other, took in turns.items() if other != own_id]
    if turn.goes_on is not None and not before:  # what it goes on with was erased, or is sealed
        before = [_usage(rows, turn.goes_on)]
    usage = not_counted(_usage(rows, turn), before)
    turns.setdefault(own_id, usage)
    draft = TurnDraft(
        id=own_id,
        payload=b"",
        continues=() if parent is None else (parent,),
        bookmark=False,
        meta=TurnMeta(
            role=message.role,
            model=_first(part.model for _, part in parts),
            provider=PROVIDER if by_model else None,
            api=API if by_model else None,
            usage=usage,
            stop_reason=_first(part.stop_reason for _, part in reversed(parts)),
            error=_error(whole(marked)) if any(row.is_error for row, _ in parts) else None,
            origin=Origin(
                format=FORMAT,
                ids=[row.uuid or "" for row, _ in parts],
                session=_first([first.session]),
                timestamp=_first([first.timestamp]),
                message_id=_first([message.id]),
                request_id=request_id,
                sidechain=first.sidechain,
                meta=first.is_meta,
            ),
            redacted=dict(sorted(redacted.items())) or None,
        ),
    )
    return draft, payload


def is_copy(rows: Sequence[Row], turn: TurnRows, draft: TurnDraft) -> bool:
    """Return whether a turn has less than its rows say of what its message took, for another one has it."""
    return draft.meta.usage != _usage(rows, turn)


def event_draft(row: Row) -> EventDraft:
    """Return the draft of the event of a line. Its payload is the row's, without marks."""
    return EventDraft(
        id=row.event_id,
        topic=row.topic,
        meta=LineMeta(
            uuid=_first([row.uuid]),
            session=_first([row.session]),
            line_type=None if row.type == topic_name(row.type) else row.type,
            redacted=dict(row.redacted) or None,
        ),
    )


def _usage(rows: Sequence[Row], turn: TurnRows) -> Usage | None:
    """Return what the message of a turn took up to there: each fragment has a snapshot of the usage so far."""
    messages = (rows[index].message for index in reversed(turn.rows))
    return _first(message.usage for message in messages if message is not None)


def _error(payload: bytes) -> str:
    text = "\n".join(block.text for block in decode_content(payload) if isinstance(block, Text))
    return text[:ERROR_CHARACTERS_MAX] or "the call of the model failed"


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
