"""Canonical messages as turns of a log, and back.

Each message is one turn. What a turn has no place for, such as the details of a tool result, stands in a
`canonical.message` event beside it, which goes when the turn is erased. So messages come back as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnlog.errors import CorruptionError, ErasedError
from turnlog.events import TURN, Recorded
from turnlog.events.times import MS_MAX, ms_of, time_of
from turnlog.ids import new_id
from turnlog.interop.canonical import types
from turnlog.interop.canonical.blocks import canonical_usage, message_blocks, turn_api, turn_usage
from turnlog.interop.canonical.reading import Said, reader_with
from turnlog.model import (
    JSONValue,
    LossReport,
    Origin,
    ReplyFacts,
    decode_content,
    normal_stop_reason,
)
from turnlog.model.documents import marked_document
from turnlog.model.json_text import UNREADABLE
from turnlog.model.long_strings import LongStrings
from turnlog.record import Note, TurnDraft, turn_draft
from turnlog.turn import Turn, turn_of

FORMAT = "canonical"
TOPIC = "canonical.message"
"""The topic of what messages have and turns do not."""


class MessageLog(Protocol):
    """What is needed of a log. `TurnLog` has it."""

    def add_group(self, items: Sequence[TurnDraft | Note]) -> list[Recorded]:
        """Record turns and notes in one transaction."""
        ...

    def ancestry(self, headish: str) -> list[Turn]:
        """Return the ancestry of a turn and the turn itself, oldest first."""
        ...

    def payload(self, headish: str) -> bytes:
        """Return the payload of a turn, or of another event by its id."""
        ...

    def events(self, after: int = 0, *, topics: str | Sequence[str]) -> Iterable[Recorded]:
        """Return the events of some topics behind a global position."""
        ...


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a message has and its turn has no place for.

    Attributes:
        timestamp: its time, where it is no whole number of milliseconds of the years from 1970 to 9999.
        blocks: whether the content of a user message is a list of one text, and not the text itself.
        usage: its token counts, where they cannot be told from those of the turn.
        details: the details of a tool result.
    """

    timestamp: int | float | UnsetType = UNSET
    blocks: bool = False
    usage: types.Usage | UnsetType = UNSET
    details: JSONValue = None


_kept = msgspec.json.Decoder(Kept)
_nothing = Kept()


def draft_of(
    message: types.Message,
    *,
    continues: str | Sequence[str] | None = None,
    bookmark: str | Literal[False] | None = None,
    id: str | None = None,
) -> TurnDraft:
    """Return the turn of a message. What it has no place for is what `kept_of` returns.

    Raises:
        ContentError: the message has a value that JSON does not have.
        MetaError: its token counts add up to more than 64 bits can hold.
    """
    blocks = message_blocks(message)
    origin = Origin(format=FORMAT, ids=[], timestamp=_time(message.timestamp))
    if not isinstance(message, types.AssistantMessage):
        return turn_draft(blocks, role="user", continues=continues, bookmark=bookmark, id=id, origin=origin)
    spelled = message.stop_reason
    return turn_draft(
        blocks,
        role="assistant",
        continues=continues,
        bookmark=bookmark,
        id=id,
        reply=ReplyFacts(
            model=message.model,
            provider=message.provider,
            api=None if message.api is None else turn_api(message.api),
            stop_reason=None if spelled is None else normal_stop_reason(spelled),
            usage=None if message.usage is None else turn_usage(message.usage),
            error=message.error_message,
        ),
        origin=origin,
    )


def kept_of(message: types.Message) -> Kept | None:
    """Return what the turn of a message has no place for; None where it has a place for all of it."""
    timestamp = UNSET if _time(message.timestamp) is not None else message.timestamp
    match message:
        case types.UserMessage():
            kept = Kept(timestamp=timestamp, blocks=isinstance(message.content, list) and len(message.content) == 1)
        case types.ToolResultMessage():
            kept = Kept(timestamp=timestamp, details=message.details)
        case types.AssistantMessage():
            usage = message.usage
            told = usage is None or canonical_usage(turn_usage(usage)) == usage
            kept = Kept(timestamp=timestamp, usage=UNSET if told or usage is None else usage)
    return None if kept == _nothing else kept


def _time(timestamp: int | float) -> str | None:
    """Return a time as ISO 8601 text, None where it cannot be written so exactly."""
    if not isinstance(timestamp, int) or not 0 <= timestamp <= MS_MAX:
        return None
    return time_of(timestamp).isoformat(timespec="milliseconds")


def record(
    log: MessageLog,
    messages: Sequence[types.Message],
    *,
    continues: str | Sequence[str] | None = None,
    bookmark: str | Literal[False] | None = None,
) -> list[Turn]:
    """Record messages, oldest first, each as a turn that continues the one before it: all of them, or none.

    Args:
        log: the log. On return they are on disk.
        messages: the messages.
        continues: the turns that the first one continues, by id or bookmark; None starts a thread.
        bookmark: the bookmark to move along, as for `TurnLog.add_turn`.

    Returns:
        The turns, one a message.

    Raises:
        ContentError: a message is not what the types say, or has a value that JSON does not have.
        MetaError, SecretError, RedactionError, UnknownTurnError: as for `TurnLog.add_turn`.
    """
    items: list[TurnDraft | Note] = []
    parents = continues
    for message in types.parse_messages(types.to_json(messages)):
        turn = new_id()
        items.append(draft_of(message, continues=parents, bookmark=None if items else bookmark, id=turn))
        if (kept := kept_of(message)) is not None:
            items.append(Note(topic=TOPIC, payload=msgspec.json.encode(kept), turn=turn))
        parents = turn
    recorded = log.add_group(items) if items else []
    return [turn_of(event) for event in recorded if event.header.topic == TURN]


def messages(log: MessageLog, headish: str) -> tuple[list[types.Message], LossReport]:
    """Return the ancestry of a turn and the turn itself as messages, oldest first, and what they do not have of it.

    Failed and aborted turns are messages too. A turn that was not a message once can be several, or none. Where turns
    came from is not told: their ids, calls, subjects and origins.

    Raises:
        UnknownTurnError: there is no such turn.
        CorruptionError: stored bytes are damaged.
    """
    long = LongStrings()
    found, losses = messages_with(log, headish, long)
    return long.into(found), losses


def messages_with(log: MessageLog, headish: str, long: LongStrings) -> tuple[list[types.Message], LossReport]:
    """Return what `messages` does, with marks for the base64 of large documents, and for their text.

    Args:
        log: the log, in whose texts marks may stand already.
        headish: the turn.
        long: what the marks are of, there and here.
    """
    turns = log.ancestry(headish)
    kept = _kept_beside(log, turns)
    reader = reader_with(long)
    found: list[types.Message] = []
    for turn in turns:
        try:
            payload = log.payload(turn.id)
        except ErasedError:
            why = "its key is not here" if turn.closed else "it was erased"
            said = Said(turn=turn.id, meta=turn.meta, blocks=(), timestamp=0)
            reader.lose("dropped", said, "turn", why)
            continue
        is_document = turn.meta.type == "document"
        said = Said(
            turn=turn.id,
            meta=turn.meta,
            blocks=[marked_document(payload, turn.meta.content_type, long)] if is_document else decode_content(payload),
            timestamp=ms_of(turn.said_at),
        )
        read = reader.read(said)
        found += [_with(message, kept[turn.id]) for message in read] if turn.id in kept else read
    return found, LossReport(entries=tuple(reader.losses))


def _kept_beside(log: MessageLog, turns: Sequence[Turn]) -> dict[str, Kept]:
    """Return what is kept beside turns, by the turn. It was recorded behind the turn, whoever's log that was in."""
    kept: dict[str, Kept] = {}
    wanted = {turn.id for turn in turns}
    for event in log.events(min(turn.global_position for turn in turns), topics=[TOPIC]):
        of = event.header.cited("turn")
        if of in wanted and not event.unreadable:
            try:
                kept[of] = _kept.decode(log.payload(event.header.id))
            except UNREADABLE as error:
                raise CorruptionError(
                    f"what is kept of message {of!r} cannot be read: {error}", global_position=event.global_position
                ) from error
    return kept


def _with(message: types.Message, kept: Kept) -> types.Message:
    timestamp = message.timestamp if isinstance(kept.timestamp, UnsetType) else kept.timestamp
    match message:
        case types.UserMessage():
            content = message.content
            if kept.blocks and isinstance(content, str):
                content = [types.TextContent(text=content)]
            return types.UserMessage(content=content, timestamp=timestamp)
        case types.ToolResultMessage():
            return msgspec.structs.replace(message, timestamp=timestamp, details=kept.details)
        case types.AssistantMessage():
            usage = message.usage if isinstance(kept.usage, UnsetType) else kept.usage
            return msgspec.structs.replace(message, timestamp=timestamp, usage=usage)
