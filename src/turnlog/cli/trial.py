"""A log to try on what a new store would refuse."""

from __future__ import annotations

import msgspec

from turnlog.cli.opened import OpenedLog
from turnlog.record.drafts import TurnDraft
from turnlog.record.redaction import NOTHING, Redaction
from turnlog.turn import Turn


class Trial(OpenedLog):
    """A log in memory that refuses what a new store would, and keeps nothing of what turns say: it may be large."""

    def _record(self, draft: TurnDraft, redaction: Redaction) -> Turn:
        draft = redaction.turn(draft)
        self.store.place(draft.payload)
        return super()._record(msgspec.structs.replace(draft, payload=b"[]"), NOTHING)
