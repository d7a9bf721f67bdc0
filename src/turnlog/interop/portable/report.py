"""What an import of a turnlog export did."""

from __future__ import annotations

from msgspec import Struct

from turnlog.projections.bookmarks import MovedBookmark


class KeptBookmark(Struct, frozen=True, kw_only=True):
    """A bookmark that an import leaves alone, though the export has it elsewhere.

    Attributes:
        name: its name.
        here: the turn that it stays at; None where there is none, and the name could mean a turn of this log in another
            way, as the beginning of an id or with `~N`: somebody else's does not come before that.
        theirs: the turn that it is at in the export.
    """

    name: str
    here: str | None
    theirs: str


class RestoreReport(Struct, frozen=True, kw_only=True):
    """What an import of a turnlog export did.

    Attributes:
        added: number of events that were new.
        known: number of events that the log had already, byte for byte.
        erased: number of the new ones whose private parts and payloads were gone.
        whole: whether the export is the log itself, or its beginning: same events at the same global positions.
        set_bookmarks: bookmarks that there were not before.
        moved_bookmarks: bookmarks that were elsewhere before.
        kept_bookmarks: bookmarks that the export has elsewhere, and that were left alone.
        closed_bookmarks: number of bookmarks that were not set, because their names are sealed and the key is not here.
        confirmed_registers: ids of pointers, providers and MCP servers that came in and were confirmed.
        unconfirmed_registers: ids of those that came in and have no effect until somebody confirms them.
        not_erased: ids of turns that were here in full before, and that the log where they come from has erased since;
            turns of this log too, where an export of it says that it has. An import takes nothing away: they stay until
            they are erased here.
    """

    added: int
    known: int
    erased: int = 0
    whole: bool = False
    set_bookmarks: tuple[MovedBookmark, ...] = ()
    moved_bookmarks: tuple[MovedBookmark, ...] = ()
    kept_bookmarks: tuple[KeptBookmark, ...] = ()
    closed_bookmarks: int = 0
    confirmed_registers: tuple[str, ...] = ()
    unconfirmed_registers: tuple[str, ...] = ()
    not_erased: tuple[str, ...] = ()
