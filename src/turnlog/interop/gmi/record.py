"""Inputs of GMI turns as turns of a log, and back.

An input is one turn. What a turn has no place for stands in a `gmi.input` event beside it, which goes when the turn is
erased. The id of both derives from `interactionId`, so that the same input is recorded once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Literal

from turnlog.errors import (
    CorruptionError,
    ErasedError,
    HeadConflictError,
    IdConflictError,
    MetaError,
    NotFoundError,
    UnknownBookmarkError,
    UnknownTurnError,
)
from turnlog.ids import is_id
from turnlog.interop.gmi.content import content_blocks
from turnlog.interop.gmi.history import read_history
from turnlog.interop.gmi.input import GMIInteractionType, GMITurnInput, read_input
from turnlog.interop.gmi.naming import quoted
from turnlog.interop.gmi.stored import (
    FORMAT,
    TOPIC,
    JSONRecord,
    decode_kept,
    encode_kept,
    in_form_of,
    note_id_of,
    same_input,
    stored_form,
    turn_id_of,
)
from turnlog.log import TurnLog
from turnlog.model import Block, Origin, ToolUse, decode_content
from turnlog.record import Note, TurnDraft, turn_draft
from turnlog.record.fields import NAME_CHARACTERS_MAX, check_bookmark_name, check_name
from turnlog.turn import Turn, turn_of

USER_CONTEXT = "user_context"
"""The inherited option that has the user's context."""

TASK_CONTEXT = "task_context"
"""The inherited option that has the context of the task."""

SESSION_PREFIX = "session:"
"""What stands before a session that looks like a turn id, in the name of its bookmark."""

_MARKED = re.compile(rf"(?:{SESSION_PREFIX})*")


def bookmark_of(session_id: str) -> str:
    """Return the bookmark of a session: its own name, with `session:` before one that looks like a turn id.

    Raises:
        MetaError: no bookmark can have this name.
    """
    _check_length(session_id, "sessionId", "bookmark")
    marked = _MARKED.match(session_id)
    # No other session has the same bookmark: one that already has the mark and an id gets one mark more.
    rest = session_id[0 if marked is None else marked.end() :]
    name = f"{SESSION_PREFIX}{session_id}" if is_id(rest) else session_id
    return check_bookmark_name(name, field="sessionId")


def _check_length(name: str, field: str, what: str) -> None:
    """Raise if a name is longer than those of bookmarks and subjects can be, without repeating all of it.

    Raises:
        MetaError: it is.
    """
    if len(name) > NAME_CHARACTERS_MAX:
        raise MetaError(
            f"{field}: {quoted(name)} cannot be a {what}"
            f" (1 to {NAME_CHARACTERS_MAX} printable characters, no blank at an end)",
            field=field,
        )


def record(log: TurnLog, given: GMITurnInput | Mapping[str, object]) -> Turn:
    """Record an input as a turn, or return the turn that it was recorded as. On return it is on disk.

    The turn continues the bookmark of its session and moves it; without a session it is a root without a bookmark. Its
    subject is the user. `system_message` and `lifecycle_event` are system turns, all others user turns. The context
    overrides become the inherited options `user_context` and `task_context` (RFC 7396: null unsets). `userApiKeys` are
    not recorded.

    Args:
        log: the log.
        given: the input, or its JSON values.

    Returns:
        The turn. The same input again, keys aside, gives the same turn, also from another process at the same time.

    Raises:
        MetaError: a field is missing or malformed, or no bookmark can have the name of the session, or no subject
            that of the user.
        SecretError: something in it looks like a key.
        RedactionError: a redaction hook failed.
        IdConflictError: another input has this `interactionId`, or it was erased.
    """
    read = given if isinstance(given, GMITurnInput) else read_input(given)
    stored = stored_form(read)
    read_history(stored)  # what cannot be read of it is refused before anything is recorded
    _check_length(read.user_id, "userId", "name")
    check_name(read.user_id, field="userId")
    bookmark = None if read.session_id is None else bookmark_of(read.session_id)
    turn_id = turn_id_of(read.interaction_id)
    while True:
        turn = _turn(log, turn_id)
        if turn is not None:
            return _same(log, turn, read, stored)
        head = None if bookmark is None else _head(log, bookmark)
        try:
            [event, _] = log.add_group(_drafts(log, read, stored, head, bookmark, False if head is None else head.id))
            return turn_of(event)
        except HeadConflictError:
            continue  # the session went on meanwhile
        except IdConflictError as error:
            if _turn(log, turn_id) is None:
                raise _conflict(read, "an event that is no turn has its id") from error


def _turn(log: TurnLog, headish: str) -> Turn | None:
    try:
        return log.turn(headish)
    except UnknownTurnError:
        return None


def _head(log: TurnLog, bookmark: str) -> Turn | None:
    """Return the turn that a bookmark is at; None where there is none, whatever else its name could mean."""
    try:
        return log.turn(log.bookmarks.get(bookmark).turn)
    except UnknownBookmarkError:
        return None


def _drafts(
    log: TurnLog,
    read: GMITurnInput,
    stored: JSONRecord,
    parent: Turn | None,
    bookmark: str | None,
    expected_head: str | Literal[False] | None,
) -> Sequence[TurnDraft | Note]:
    turn_id = turn_id_of(read.interaction_id)
    system = read.type in (GMIInteractionType.SYSTEM_MESSAGE, GMIInteractionType.LIFECYCLE_EVENT)
    blocks = content_blocks(read.content, system=system, unnamed=_unnamed(log, parent))
    aware = read.timestamp is not None and read.timestamp.tzinfo is not None
    draft = turn_draft(
        blocks,
        role="system" if system else "user",
        continues=None if parent is None else parent.id,
        bookmark=False if bookmark is None else bookmark,
        expected_head=None if bookmark is None else expected_head,
        inherited=_inherited(stored),
        id=turn_id,
        origin=Origin(
            format=FORMAT,
            ids=[read.interaction_id],
            session=read.session_id,
            timestamp=stored["timestamp"] if aware else None,
        ),
        subject=read.user_id,
    )
    note = Note(topic=TOPIC, payload=encode_kept(stored, blocks), turn=turn_id, id=note_id_of(turn_id))
    return [draft, note]


def _inherited(stored: JSONRecord) -> JSONRecord | None:
    named = ((USER_CONTEXT, "userContextOverride"), (TASK_CONTEXT, "taskContextOverride"))
    inherited = {option: stored[field] for option, field in named if stored.get(field) is not None}
    return inherited or None


def unnamed_call(turn: str, index: int) -> str:
    """Return the id that is made up for a call that has none, by its place in the content of its turn."""
    return f"{turn}-{index}"


def _unnamed(log: TurnLog, parent: Turn | None) -> frozenset[str]:
    """Return the ids that were made up for the calls of a turn that have none."""
    if parent is None or parent.meta.role != "assistant":
        return frozenset()
    blocks = blocks_of(log, parent)
    return frozenset(
        unnamed_call(parent.id, index)
        for index, block in enumerate(blocks)
        if isinstance(block, ToolUse) and not isinstance(block.id, str)
    )


def blocks_of(log: TurnLog, turn: Turn) -> list[Block]:
    """Return the content of a turn; nothing of a document, and of what cannot be read any more."""
    if turn.erased or turn.closed or turn.meta.type == "document":
        return []
    return decode_content(log.payload(turn.id))


def _same(log: TurnLog, turn: Turn, read: GMITurnInput, stored: JSONRecord) -> Turn:
    """Return the turn that has the id of an input, if it is that input.

    Raises:
        IdConflictError: it is another one.
    """
    if turn.erased or turn.closed:
        raise _conflict(read, "it was erased" if turn.erased else "it is sealed, and its key is not here")
    kept = kept_input(log, turn)
    if kept is not None:
        if same_input(kept, stored):
            return turn
        stored = in_form_of(stored, kept)
    # What redaction hooks took out is not there to compare: whether it comes to the same is settled by recording it
    # again as it was, which records nothing where it is the same.
    parent = _turn(log, turn.continues[0]) if turn.continues else None
    head = turn.meta.head if isinstance(turn.meta.head, str) else None
    try:
        [event, _] = log.add_group(_drafts(log, read, stored, parent, head, None))
    except IdConflictError as error:
        raise _conflict(read, "it was recorded with other input") from error
    return turn_of(event)


def _conflict(read: GMITurnInput, why: str) -> IdConflictError:
    return IdConflictError(
        f"interactionId: {quoted(read.interaction_id)} is taken: {why} (use another one for another input)",
        event_id=turn_id_of(read.interaction_id),
    )


def is_input(turn: Turn) -> bool:
    """Tell whether a turn was recorded from an input."""
    origin = turn.meta.origin
    return isinstance(origin, Origin) and origin.format == FORMAT


def interaction_of(turn: Turn) -> str:
    """Return the interaction that a turn was recorded of; the turn's id for one that was not."""
    origin = turn.meta.origin
    return origin.ids[0] if is_input(turn) and isinstance(origin, Origin) and origin.ids else turn.id


def kept_input(log: TurnLog, turn: Turn) -> JSONRecord | None:
    """Return the input that a turn was recorded from, as JSON values; None for a turn that was not.

    Raises:
        ErasedError: the turn was erased, or is sealed and its key is not here.
        CorruptionError: what is kept beside the turn cannot be read.
    """
    if not is_input(turn):
        return None
    note = note_id_of(turn.id)
    try:
        payload = log.payload(note)
    except ErasedError:
        raise
    except NotFoundError:
        return None  # it did not come along with the turn
    try:
        return decode_kept(payload, decode_content(log.payload(turn.id)), turn.id)
    except CorruptionError as error:
        position = log.event(note).global_position
        raise CorruptionError(str(error), global_position=position) from error


def time_of(turn: Turn) -> str:
    """Return when a turn was said, as ISO 8601 text in UTC."""
    return turn.said_at.astimezone(UTC).isoformat(timespec="milliseconds")
