"""What an erasure says that it did, or would do."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from turnlog.projections.bookmarks import MovedBookmark


class ErasureReport(Struct, frozen=True, kw_only=True):
    """What was erased, or would be.

    Attributes:
        erasures: ids of the `gpt.erasure` events; none where nothing was left to erase, and in a dry run.
        turns: ids of the turns, in global order, as in all of these; turns of models that say what a summary says
            among them.
        calls: ids of recorded requests that had one of the turns in their window.
        replies: ids of recorded replies: those that the turns came of, and those to these calls.
        lines: ids of lines of imported transcripts.
        bookmarks: ids of bookmark events.
        holds: ids of events that set holds on the subject, and of those that released them.
        summaries: ids of summaries that were written from one of the turns.
        tool_calls: ids of the beginnings and ends of their tool calls.
        moved_bookmarks: bookmarks that one of the turns had moved. They are where they stood before, or gone.
        moving_bookmarks: in a dry run, names of bookmarks that are at one of the turns. They would be where they stood
            before, or gone.
        already: number of events that were erased before.
        others: ids of events of topics of your own that cite one of the turns. They are not erased.
        alike: subjects that are spelled as the one that was asked for, but for case, blanks or how Unicode composes
            their characters. Nothing of them is erased.
        undecided: ids of lines of imported transcripts of which nobody can tell whether they are of the turns: such as
            titles of sessions that name a line which is not in the log, and no session; and lines that would have to be
            compared with one of the turns, where either is damaged. They are not erased.
        unseen: ids of sealed turns of another log of which nobody can tell without its keys whether they are of the
            subject. They are not erased.
        damaged: ids of events of which nobody can tell whether they go too, because their private parts are damaged:
            turns that may be of the subject, holds that may be on it, and what may have renamed or deleted a bookmark.
            They are not erased. Each can be, by its id; or a copy is put in the place of the store.
        payload_bytes: bytes of the payloads.
        files_removed: number of payload files that were removed.
        files_shared: number of payload files that are kept, because other events have the same payload.
        remains: why traces are still in the files of the store, one line; None if there are none.
        keys: ids of the data keys of the subject that were destroyed, and with them what is sealed in all copies.
        still_sealed: number of events that were sealed under other keys, which are here. Copies that were made before
            have them still, for whoever has these keys.
        never_sealed: number of events that were recorded in plain, where others are sealed: before they were to be.
            Copies that were made before have them still, for everybody.
        key_missing: number of events that were sealed under a key that is not here, as one that was destroyed before.
            If somebody else has it, copies that were made before have them still.
        at_work: ids of those of the turns that a run was at work on. What it records later has the subject that it
            began with, and is not erased: erase it when the run has ended.
        seen: in a dry run, the global position up to which the log was looked at: `TurnLog.erase` takes it. Else 0.
        dry_run: whether nothing was done.
    """

    erasures: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    bookmarks: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    tool_calls: tuple[str, ...] = ()
    moved_bookmarks: tuple[MovedBookmark, ...] = ()
    moving_bookmarks: tuple[str, ...] = ()
    already: int = 0
    others: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    payload_bytes: int = 0
    files_removed: int = 0
    files_shared: int = 0
    remains: str | None = None
    keys: tuple[str, ...] = ()
    still_sealed: int = 0
    never_sealed: int = 0
    key_missing: int = 0
    at_work: tuple[str, ...] = ()
    seen: int = 0
    dry_run: bool = False

    @property
    def events(self) -> int:
        """The number of events that were erased, or would be."""
        beside = (self.calls, self.replies, self.lines, self.bookmarks, self.holds, self.summaries, self.tool_calls)
        return len(self.turns) + sum(map(len, beside))

    def to_record(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {**msgspec.to_builtins(self), "events": self.events}
