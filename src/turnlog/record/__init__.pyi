from .append import plan_event
from .bookmarks import plan_bookmark_delete, plan_bookmark_rename, plan_bookmark_set
from .documents import check_documents
from .drafts import (
    EventDraft,
    TurnDraft,
    document_draft,
    reply_draft,
    turn_draft,
)
from .files import DOCUMENT_BYTES_MAX
from .findings import Hook
from .groups import Note, checked, plan_group, redacted
from .lookup import find_event, find_turn, head_before
from .own import check_own_topic, own_event_draft, own_event_key, plan_own_event
from .redaction import Redaction
from .restore import RestoredEvent, plan_restore
from .sealing import general_key, placed
from .turns import foreseen_key, plan_turn, plan_turn_told

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "EventDraft",
    "Hook",
    "Note",
    "Redaction",
    "RestoredEvent",
    "TurnDraft",
    "check_documents",
    "check_own_topic",
    "checked",
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
