"""Recording: from what a caller gives to events in the store. The one append path, and every rule of it."""

from turnlog.record.append import plan_event
from turnlog.record.bookmarks import plan_bookmark_delete, plan_bookmark_rename, plan_bookmark_set
from turnlog.record.drafts import (
    DOCUMENT_BYTES_MAX,
    EventDraft,
    TurnDraft,
    document_draft,
    reply_draft,
    turn_draft,
)
from turnlog.record.groups import Note, plan_group, redacted
from turnlog.record.lookup import find_event, find_turn, head_before
from turnlog.record.own import own_event_draft, own_event_key, plan_own_event
from turnlog.record.redaction import Hook, Redaction
from turnlog.record.restore import RestoredEvent, plan_restore
from turnlog.record.sealing import general_key, placed
from turnlog.record.turns import foreseen_key, plan_turn, plan_turn_told

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "EventDraft",
    "Hook",
    "Note",
    "Redaction",
    "RestoredEvent",
    "TurnDraft",
    "document_draft",
    "find_event",
    "find_turn",
    "foreseen_key",
    "general_key",
    "head_before",
    "own_event_draft",
    "own_event_key",
    "placed",
    "plan_bookmark_delete",
    "plan_bookmark_rename",
    "plan_bookmark_set",
    "plan_event",
    "plan_group",
    "plan_own_event",
    "plan_restore",
    "plan_turn",
    "plan_turn_told",
    "redacted",
    "reply_draft",
    "turn_draft",
]
