"""TurnLog: the facade, and the only place that puts the parts together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import msgspec
from msgspec import UNSET, UnsetType

from turnlog import projections
from turnlog.agent import loop
from turnlog.audit import VerifyReport, verify
from turnlog.calls import Calls
from turnlog.context import Projector, ancestry
from turnlog.errors import UnknownTurnError
from turnlog.events import TURN, Recorded
from turnlog.ids import is_id, new_id
from turnlog.interop import claude_code, portable
from turnlog.model import Block, ContextWindow, Origin, Usage
from turnlog.projections import Bookmark, Thread
from turnlog.projections.bookmarks import all_bookmarks
from turnlog.projections.threads import all_threads, count_threads
from turnlog.projections.turns import children
from turnlog.record import (
    DOCUMENT_BYTES_MAX,
    TurnDraft,
    document_draft,
    find_turn,
    plan_bookmark_delete,
    plan_bookmark_rename,
    plan_bookmark_set,
    plan_turn,
    turn_draft,
)
from turnlog.record.fields import check_bookmark_name, check_expected_head
from turnlog.registers import Pointers, Providers, Servers
from turnlog.store import Store, StoreStats, WriteTransaction, open_store
from turnlog.turn import Turn, turn_of

Progress = Callable[[int, int], None]
"""Called now and then during long work with what is done and what there is to do, in a unit that fits the work."""


_PAGE_EVENTS = 1000

PLACED_EARLY_BYTES_MIN = 4096
"""Payloads of at least this size are hashed and compressed before the write transaction."""


class LogStats(StoreStats, frozen=True, kw_only=True):
    """How large a log is: `StoreStats`, and counts of turns, threads, bookmarks and of the events of each topic."""

    turns: int
    threads: int
    bookmarks: int
    topics: dict[str, int]


class TurnLog:
    """An append-only log of turns. Safe to use from many threads; many processes may open the same store.

    Attributes:
        calls: the model calls that are recorded in it.
        pointers: named aliases for a provider and a model.
        providers: which providers may be called, and where they are.
        servers: MCP servers by name.

    Use it as a context manager, or close it. Every method raises `StoreError` or one of its kinds when the store cannot
    do its work, beside the errors that it names.
    """

    def __init__(
        self,
        store: Store,
        *,
        fresh_id: Callable[[], str] = new_id,
        projector: Projector | None = None,
    ) -> None:
        """Put a log together from its parts. `TurnLog.open` is the usual way."""
        self.store = store
        self._fresh_id = fresh_id
        self._projector = projector or Projector()
        self.calls = Calls(store, fresh_id, self._projector)
        self.pointers = Pointers(store, fresh_id)
        self.providers = Providers(store, fresh_id)
        self.servers = Servers(store, fresh_id)

    @classmethod
    def open(cls, url: str, *, create: bool = True, busy_timeout_s: float = 60.0) -> Self:
        """Open a log.

        Args:
            url: `sqlite:///path` (four slashes for an absolute path) or `memory://`, which lasts until it is closed.
            create: make the store, and its folder, if it does not exist.
            busy_timeout_s: how long an append waits for another process that writes.

        Raises:
            StoreOpenError: the URL is malformed, or what is there is not a store that this turnlog can open.
        """
        store = open_store(url, projections=projections.synchronous(), create=create, busy_timeout_s=busy_timeout_s)
        return cls(store)

    def close(self) -> None:
        """Release the store. Closing twice is allowed; any other call afterwards raises `StoreClosedError`."""
        self.store.close()

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        self.close()

    # Record

    def add_turn(  # noqa: PLR0913 - one argument for each field of the schema
        self,
        content: str | bytes | Sequence[str | Block | Mapping[str, Any]],
        *,
        role: str = "user",
        continues: str | Sequence[str] | None = None,
        respond: bool = False,
        bookmark: str | UnsetType | None = UNSET,
        expected_head: str | UnsetType | None = UNSET,
        inherited: Mapping[str, Any] | None = None,
        provider_ptr: str | None = None,
        servers: Sequence[str] | None = None,
        search: bool | None = None,
        tool_mode: str | None = None,
        cache: bool = False,
        json: bool = False,
        id: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        api: str | None = None,
        stop_reason: str | None = None,
        raw_stop_reason: str | None = None,
        usage: Usage | Mapping[str, int] | None = None,
        call: str | None = None,
        error: str | None = None,
        origin: Origin | None = None,
    ) -> Turn:
        """Record a turn. On return it is on disk.

        Args:
            content: text (one text block), a list of texts (a block each), or content blocks as structs or mappings.
            role: `user`, `assistant` or `system`.
            continues: the parent turns, by id or bookmark: one, or a list. None starts a thread.
            respond: continue the turn that was recorded last in the log.
            bookmark: the bookmark to move to this turn; None moves none. By default a turn moves the bookmark whose
                head it continues.
            expected_head: the turn id that the bookmark must be at, None if it must not exist yet. Else nothing is
                written.
            inherited: options to merge into those of the parents (RFC 7396: null unsets).
            provider_ptr: the pointer to use from here on; a part of `inherited`, as are the next three.
            servers: names of MCP servers.
            search: whether the provider may search.
            tool_mode: a provider's tool mode.
            cache: ask the provider to cache up to this turn.
            json: read `content` as JSON text of content blocks. Its order and spelling are kept.
            id: the id to record it under. The same turn again returns the stored one.
            model: the model that wrote an assistant turn.
            provider: its provider.
            api: the provider's api that was used.
            stop_reason: why the model stopped; turns with `error` or `aborted` are left out of windows.
            raw_stop_reason: the provider's own word for it.
            usage: tokens of the model call.
            call: id of the `gpt.call` event.
            error: what went wrong, for a turn that records a failed call.
            origin: where an imported turn comes from.

        Returns:
            The stored turn, with parents and bookmark resolved.

        Raises:
            ContentError: a content block is malformed.
            MetaError: another argument is malformed.
            SecretError: an option looks like a secret.
            UnknownTurnError: a parent is unknown.
            HeadConflictError: the bookmark is not at `expected_head`.
            IdConflictError: another event has this id.
        """
        draft = turn_draft(
            content,
            role=role,
            continues=continues,
            respond=respond,
            bookmark=bookmark,
            expected_head=expected_head,
            inherited=inherited,
            provider_ptr=provider_ptr,
            servers=servers,
            search=search,
            tool_mode=tool_mode,
            cache=cache,
            json=json,
            id=id,
            model=model,
            provider=provider,
            api=api,
            stop_reason=stop_reason,
            raw_stop_reason=raw_stop_reason,
            usage=usage,
            call=call,
            error=error,
            origin=origin,
        )
        return self._record(draft)

    def add_document(  # noqa: PLR0913 - one argument for each field of the schema
        self,
        path: str | Path,
        *,
        role: str = "user",
        continues: str | Sequence[str] | None = None,
        respond: bool = False,
        bookmark: str | UnsetType | None = UNSET,
        expected_head: str | UnsetType | None = UNSET,
        inherited: Mapping[str, Any] | None = None,
        cache: bool = False,
        content_type: str | None = None,
        name: str | None = None,
        bytes_max: int = DOCUMENT_BYTES_MAX,
        id: str | None = None,
    ) -> Turn:
        """Record a file as a document turn: its bytes are the payload. On return it is on disk.

        Args:
            path: the file. Its absolute path and its size are recorded.
            role: `user`, `assistant` or `system`.
            continues: as for `add_turn`, and so are the next five.
            respond: see `add_turn`.
            bookmark: see `add_turn`.
            expected_head: see `add_turn`.
            inherited: see `add_turn`.
            cache: see `add_turn`.
            content_type: the MIME type; by default that of the name's extension, else what the content looks like.
            name: the name to show; by default the file's.
            bytes_max: the largest size to accept, in bytes.
            id: see `add_turn`.

        Raises:
            DocumentError: the file cannot be read or is larger than `bytes_max`.
            MetaError, SecretError, UnknownTurnError, HeadConflictError, IdConflictError: as for `add_turn`.
        """
        draft = document_draft(
            Path(path),
            role=role,
            continues=continues,
            respond=respond,
            bookmark=bookmark,
            expected_head=expected_head,
            inherited=inherited,
            cache=cache,
            content_type=content_type,
            name=name,
            bytes_max=bytes_max,
            id=id,
        )
        return self._record(draft)

    def _record(self, draft: TurnDraft) -> Turn:
        # A small payload is placed by whoever leads the group commit: with many threads at work, each call that gives
        # up the interpreter, as compressing does, costs more than what it does. A large one would hold the others up.
        large = self.store.place(draft.payload) if len(draft.payload) >= PLACED_EARLY_BYTES_MIN else None

        def plan(transaction: WriteTransaction) -> Recorded:
            payload = large or self.store.place(draft.payload)
            return plan_turn(transaction, draft, payload, draft.id or self._fresh_id())

        return turn_of(self.store.write(plan))

    # Read

    def turn(self, headish: str) -> Turn:
        """Return a turn by id or bookmark.

        Raises:
            UnknownTurnError: there is none.
        """
        with self.store.read() as transaction:
            return turn_of(find_turn(transaction, headish))

    def ancestry(self, headish: str) -> list[Turn]:
        """Return the ancestry of a turn and the turn itself, oldest first, each turn once.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self.store.read() as transaction:
            head = find_turn(transaction, headish)
            return [turn_of(recorded) for recorded in ancestry(transaction, head, transaction.stream, _itself, {})]

    def children(self, headish: str) -> list[Turn]:
        """Return the turns that continue a turn, in the order in which they were recorded.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self.store.read() as transaction:
            return [turn_of(recorded) for recorded in children(transaction, find_turn(transaction, headish))]

    def thread(self, headish: str) -> list[Turn]:
        """Return all turns of the threads that a turn belongs to, in global order: what `turnlog log` draws.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self.store.read() as transaction:
            head = find_turn(transaction, headish).event
            return [turn_of(recorded) for recorded in projections.thread_turns(transaction, head.stream, head.position)]

    def threads(self) -> list[Thread]:
        """Return every thread, the one with the latest activity last."""
        with self.store.read() as transaction:
            return all_threads(transaction)

    def bookmarks(self) -> list[Bookmark]:
        """Return every bookmark, by name."""
        with self.store.read() as transaction:
            return all_bookmarks(transaction)

    def payload(self, headish: str) -> bytes:
        """Return the exact payload bytes of a turn, or of another event by its id, checked against its hash.

        Raises:
            UnknownTurnError: there is no such turn or event, or it has no payload.
            CorruptionError: the stored bytes are damaged.
        """
        with self.store.read() as transaction:
            recorded = transaction.event(headish.lower()) if is_id(headish) else None
            recorded = recorded or find_turn(transaction, headish)
            payload = transaction.payload(recorded)
        if payload is None:
            raise UnknownTurnError(f"event {headish!r} has no payload", headish=headish)
        return payload

    def events(self, after: int = 0, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events of the log with a global position above `after`, in order, as of now.

        Args:
            after: a global position, excluded; 0 for all.
            topics: only events of these topics; empty for all.
        """
        with self.store.read() as transaction:
            last = transaction.log_end()
        while after < last:
            # A page a transaction, so that a reader that takes its time holds nothing up.
            with self.store.read() as transaction:
                page = list(islice(transaction.log(after, topics=topics), _PAGE_EVENTS))
            if not page:
                return
            yield from (recorded for recorded in page if recorded.global_position <= last)
            after = page[-1].global_position

    def context(self, headish: str, *, explain: bool = False, include_failed: bool = False) -> ContextWindow:
        """Return the context window of a turn: what a model saw, or would see, when asked to go on from there.

        Args:
            headish: a turn id or bookmark.
            explain: add which turn set each option, and which turns were left out and why.
            include_failed: keep turns that record an error or an aborted reply.

        Raises:
            UnknownTurnError: there is no such turn.
            CorruptionError: stored bytes are damaged.
        """
        with self.store.read() as transaction:
            head = find_turn(transaction, headish)
            return self._projector.window(transaction, head, explain=explain, include_failed=include_failed)

    # Run

    run = loop.run
    arun = loop.arun

    # Bookmarks

    def set_bookmark(self, name: str, headish: str, *, expected_head: str | UnsetType | None = UNSET) -> Bookmark:
        """Point a bookmark at a turn. On return the event is on disk.

        Raises:
            MetaError: the name cannot be that of a bookmark.
            UnknownTurnError: there is no such turn.
            HeadConflictError: the bookmark is not at `expected_head` (None: it exists).
        """
        check_bookmark_name(name)
        expected, fresh_id = check_expected_head(expected_head), self._fresh_id()
        event = self.store.write(lambda t: plan_bookmark_set(t, name, headish, expected, fresh_id)).event
        return Bookmark(name=name, turn=msgspec.json.decode(event.meta)["turn"])

    def rename_bookmark(self, name: str, to: str) -> None:
        """Give a bookmark another name. On return the event is on disk.

        Raises:
            MetaError: the new name cannot be that of a bookmark.
            UnknownBookmarkError: there is no bookmark `name`.
            BookmarkExistsError: there is a bookmark `to`.
        """
        check_bookmark_name(to)
        fresh_id = self._fresh_id()
        self.store.write(lambda transaction: plan_bookmark_rename(transaction, name, to, fresh_id))

    def delete_bookmark(self, name: str) -> None:
        """Delete a bookmark; the turns stay. On return the event is on disk.

        Raises:
            UnknownBookmarkError: there is none of this name.
        """
        fresh_id = self._fresh_id()
        self.store.write(lambda transaction: plan_bookmark_delete(transaction, name, fresh_id))

    # Import, export, care

    def import_claude_code(self, path: str | Path, *, progress: Progress | None = None) -> claude_code.ImportReport:
        """Import a session file of Claude Code: all that is new of it, in one transaction.

        Args:
            path: the session file, JSON lines.
            progress: called with lines done and lines in all.

        Raises:
            FormatError: the file is not JSON lines of a session at all, or cannot be read.
        """
        return claude_code.import_session(self.store, Path(path), progress=progress)

    def export(self, file: BinaryIO, headish: str | None = None, *, progress: Progress | None = None) -> int:
        """Write the log as JSON lines with payloads, and return the number of events.

        Args:
            file: where to write; opened for bytes.
            headish: only the threads of this turn, with all that they continue; None for the whole log.
            progress: called with events done and events in all.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        return portable.export(self.store, file, headish, progress=progress)

    def import_turnlog(self, file: BinaryIO, *, progress: Progress | None = None) -> portable.RestoreReport:
        """Import what `export` wrote: ids and bytes as they are, in one transaction, all or nothing.

        Raises:
            FormatError: a line is not what `export` writes, or a hash or a digest is wrong.
            IdConflictError: the log has another event under an id, or a stream has gone another way here.
        """
        return portable.restore(self.store, file, progress=progress)

    def verify(self, *, progress: Progress | None = None) -> VerifyReport:
        """Read every stored byte again and check it against hashes, digests, positions and projections.

        Args:
            progress: called with events done and events in all.
        """
        return verify(self.store, progress=progress)

    def stats(self) -> LogStats:
        """Measure the log."""
        with self.store.read() as transaction:
            topics = dict(transaction.rows("SELECT topic, COUNT(*) FROM stored_events GROUP BY topic ORDER BY topic"))
            threads = count_threads(transaction)
            [(bookmarks,)] = transaction.rows("SELECT COUNT(*) FROM bookmarks")
        return LogStats(
            **msgspec.structs.asdict(self.store.stats()),
            turns=cast("int", topics.get(TURN, 0)),
            threads=threads,
            bookmarks=bookmarks,
            topics=topics,
        )


def _itself(recorded: Recorded) -> Recorded:
    return recorded
