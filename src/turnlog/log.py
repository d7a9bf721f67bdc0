"""TurnLog: the facade, and the only place that puts the parts together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from threading import RLock
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, Unpack, cast, get_args, overload

import msgspec

from turnlog import audit, calls, context, events, feeds, interop, projections, providers, record, registers
from turnlog.context.cuts import KEEP_FIRST, KEEP_LAST, MIN_TURNS
from turnlog.errors import (
    MetaError,
    NotFoundError,
    StoreError,
    StoreLostError,
    StoreOpenError,
    UncertainError,
    UnknownTurnError,
)
from turnlog.events import TURN, Recorded, Seals
from turnlog.hurry import HURRY
from turnlog.ids import parse_id
from turnlog.model import (
    Block,
    ContextWindow,
    Origin,
    ReplyFacts,
    ReplyFactsGiven,
    Text,
    TurnMeta,
    decode_content,
    document_block,
)
from turnlog.model.binary_files import check_binary
from turnlog.model.kinds import check_count, check_each, check_kind, check_list, check_path, check_texts, check_type
from turnlog.model.plain import check_one_of
from turnlog.projections import Thread, TurnFilter
from turnlog.projections.bookmarks import all_bookmarks
from turnlog.projections.filters import check_filter
from turnlog.projections.threads import LOOKED_AT_MAX, TooManyTurnsError, count_threads, count_turns, latest_threads
from turnlog.projections.tree import TREE
from turnlog.projections.turns import Children
from turnlog.record.files import DOCUMENT_BYTES_MAX
from turnlog.record.lookup import find_event, find_turn
from turnlog.sources import Sources
from turnlog.store import Store, StoreStats, WriteTransaction, open_store
from turnlog.turn import Comparison, Turn, check_condition, fitting, turn_of

if TYPE_CHECKING:
    from turnlog.agent import loop
    from turnlog.audit import Anchor, Audit, VerifyReport
    from turnlog.audit.copying import CopyReport
    from turnlog.audit.erasure_report import ErasureReport
    from turnlog.audit.holding import Holds
    from turnlog.audit.retaining import RetentionReport
    from turnlog.audit.sealing import SealReport
    from turnlog.calls import Calls, ToolCalls
    from turnlog.context import CompactionReport, Projector, Summarize
    from turnlog.executors import Executors
    from turnlog.feeds import Events, Feeds, Item
    from turnlog.group import TurnGroup
    from turnlog.interop.importing import TranscriptReport
    from turnlog.interop.portable import OnBookmark, RestoreReport
    from turnlog.record import Hook, Note, Redaction, TurnDraft
    from turnlog.registers import Bookmarks, Pointers, Providers, Registers, Servers

Progress = Callable[[int, int], None]
"""Called now and then during long work with what is done and what there is to do, in a unit that fits the work."""


PLACED_EARLY_BYTES_MIN = 4096
"""Payloads of at least this size are hashed and compressed before the write transaction."""


class LogStats(StoreStats, frozen=True, kw_only=True):
    """How large a log is: `StoreStats`, and counts of turns, threads, bookmarks and of the events of each topic."""

    turns: int
    threads: int
    bookmarks: int
    topics: dict[str, int]


if TYPE_CHECKING:
    _part = property
else:

    class _part:  # noqa: N801 - a decorator
        """A part of a log, which is made when it is first asked for, once: most programs, and commands, need few."""

        def __init__(self, make):
            self._make = make

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, log, owner):
            if log is None:
                return self
            with log._making:
                made = log.__dict__
                if self._name not in made:
                    made[self._name] = self._make(log)
                return made[self._name]


class _OfTheLoop:
    """A method that is a function of the run loop. That is imported when the method is first looked at.

    In an event loop it is imported when the method runs, in a thread.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, log: object, owner: type) -> object:
        if log is not None and "asyncio" in sys.modules and "turnlog.agent.loop" not in sys.modules:
            from turnlog.agent import late  # noqa: PLC0415 - as below
            from turnlog.executors import is_in_a_loop  # noqa: PLC0415 - with it comes asyncio

            if hasattr(late, self._name) and is_in_a_loop():
                return MethodType(getattr(late, self._name), log)
        from turnlog.agent import loop  # noqa: PLC0415 - with it comes much that only runs need

        function = getattr(loop, self._name)
        setattr(owner, self._name, function)
        return function if log is None else MethodType(function, log)


class TurnLog:
    """An append-only log of turns. Safe to use from many threads; many processes may open the same store.

    Attributes:
        bookmarks: names for turns.
        calls: the model calls that are recorded in it.
        tool_calls: what became of the tool calls of its turns.
        pointers: named aliases for a provider and a model.
        providers: which providers may be called, and where they are.
        servers: MCP servers by name.
        holds: legal holds, by name: what must not be erased.
        registers: pointers, providers and servers that came with an import and have no effect yet.
        audit: signed checkpoints, and proofs of what is in the log.
        executors: the threads of its asynchronous use. They start when they are needed.
        feeds: projections of the log, search and usage among them, and what those who follow it share.

    Use it as a context manager, or close it. Every method raises `StoreError` or one of its kinds when the store cannot
    do its work, beside the errors that it names. Where something is sealed, it raises `SealedError` for what cannot be
    read without a key, and `SealError` where recording needs keys that are not here or cannot be used; nothing was
    recorded then.
    """

    def __init__(
        self,
        store: Store,
        *,
        sources: Sources | None = None,
        projector: Projector | None = None,
        redact: Sequence[Hook] = (),
    ) -> None:
        """Put a log together from its parts. `TurnLog.open` is the usual way.

        Raises:
            StoreOpenError: it is no store, as where one is.
            MetaError: `redact` is no list.
            RedactionError: a hook cannot be called.
        """
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance]
            what = "where a store is" if isinstance(store, str | PathLike) else f"of type {type(store).__name__}"
            raise StoreOpenError(f"this is {what}, and no store: open it with TurnLog.open(…)")
        self.store = store
        self._sources = sources or Sources()
        self._given_projector = projector
        self._hooks = check_list(redact or (), "redact", "hooks")
        self._making = RLock()
        if self._hooks:
            _ = self._redaction  # what is no hook is refused at once

    # What a log is put together from is made, and imported, when it is first asked for.
    @_part
    def _projector(self) -> Projector:
        return self._given_projector or context.Projector()

    @_part
    def _redaction(self) -> Redaction:
        return record.Redaction(self._hooks)

    @_part
    def bookmarks(self) -> Bookmarks:
        return registers.Bookmarks(self.store, self._sources, self._redaction)

    @_part
    def calls(self) -> Calls:
        return calls.Calls(self.store, self._sources, self._projector, self._redaction)

    @_part
    def tool_calls(self) -> ToolCalls:
        return calls.ToolCalls(self.store, self._sources, self._redaction)

    @_part
    def pointers(self) -> Pointers:
        return registers.Pointers(self.store, self._sources)

    @_part
    def providers(self) -> Providers:
        return registers.Providers(self.store, self._sources)

    @_part
    def servers(self) -> Servers:
        return registers.Servers(self.store, self._sources)

    @_part
    def registers(self) -> Registers:
        return registers.Registers(self.store, self._sources)

    @_part
    def audit(self) -> Audit:
        return audit.Audit(self.store)

    @_part
    def executors(self) -> Executors:
        from turnlog import executors  # noqa: PLC0415 - with it comes asyncio

        return executors.Executors()

    @_part
    def feeds(self) -> Feeds:
        return feeds.Feeds(self.store)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = True,
        busy_timeout_s: float = 60.0,
        on_busy: Callable[[float], None] | None = None,
        redact: Sequence[Hook] = (),
        seals: Seals | None = None,
    ) -> Self:
        """Open a log.

        Args:
            url: `sqlite:///path` (four slashes for an absolute path), `postgresql://user@host/database` (extra
                `postgres`), or `memory://`, which lasts until it is closed.
            create: make the store, and its folder, if it does not exist.
            busy_timeout_s: how long an append waits for another process that writes.
            on_busy: called now and then while an append waits so, and while a server that is away is waited for, with
                the seconds.
            redact: hooks that see content before it is stored, and say what to take out of it:
                `turnlog.redaction.secrets()` finds API keys and tokens.
            seals: the keys of what is sealed, such as `turnlog.audit.seals.default_seals(os.environ)`. Without them
                what is sealed cannot be read, and what would be cannot be recorded.

        Raises:
            RedactionError: a hook cannot be called.
            MetaError: the timeout is no number, or another argument is not what it should be.
            StoreOpenError: the URL is malformed, or what is there is not a store that this turnlog can open.
        """
        if hooks := check_list(redact or (), "redact", "hooks"):
            record.Redaction(hooks)  # what is none is refused before a store is made
        store = open_store(
            url,
            projections=projections.synchronous(),
            sides=projections.side_tables(),
            create=create,
            busy_timeout_s=busy_timeout_s,
            on_busy=on_busy,
            seals=seals,
        )
        return cls(store, redact=hooks)

    def close(self) -> None:
        """Release the store, once what other threads are at has come to an end.

        Runs that are at work are ended as by a cancellation: what had come is recorded, and they raise
        `StoreClosedError`. They have 10 seconds for that.

        Closing twice is allowed; any other call afterwards raises `StoreClosedError`.
        """
        with self._making:
            made = [self.__dict__[name] for name in ("audit", "executors", "feeds") if name in self.__dict__]
        for part in made:
            part.close()
        self.store.close()

    def __reduce__(self) -> str:
        """Refuse to be pickled.

        Raises:
            StoreError: always.
        """
        raise StoreError("a log cannot be pickled: in another process, open it again with TurnLog.open(…)")

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log. After an interrupt (Ctrl-C) a server that does not answer is not waited for."""
        is_hurried = isinstance(error, KeyboardInterrupt | StoreLostError | UncertainError)
        with HURRY if is_hurried else nullcontext():
            self.close()

    # Record

    def add_turn(  # noqa: PLR0913 - one argument for each field of the schema
        self,
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
    ) -> Turn:
        """Record a turn. On return it is on disk.

        Args:
            content: text (one text block), a list of texts (a block each), or content blocks as structs or mappings.
            role: `user`, `assistant` or `system`.
            continues: the parent turns, by id or bookmark: one, or a list. None starts a thread.
            respond: continue the turn that was recorded last in the log.
            bookmark: the bookmark to move to this turn; False moves none. By default a turn moves the bookmark whose
                head it continues.
            expected_head: the turn id that the bookmark must be at, False if it must not exist yet. Else nothing is
                written.
            inherited: options to merge into those of the parents (RFC 7396: null unsets).
            provider_ptr: the pointer to use from here on; a part of `inherited`, as are the next three.
            servers: names of MCP servers.
            search: whether the provider may search.
            tool_mode: a provider's tool mode.
            cache: ask the provider to cache up to this turn.
            json: read `content` as JSON text of content blocks. Its order and spelling are kept.
            id: the id to record it under. The same turn again returns the stored one.
            reply: of an assistant turn, what the reply says of itself: model, provider, stop reason, usage, error.
            facts: the same by the names of its fields, in place of the value.
            call: id of the `gpt.call` event.
            origin: where an imported turn comes from.
            subject: whom it is about or of, so that all that is can be erased together; False for nobody. By default a
                turn has the subject of its first parent.
            api_key: a key that the content may repeat, as what a tool returned: it is redacted as by a hook, also where
                JSON spells it with escapes. It is not recorded.

        Returns:
            The stored turn, with parents and bookmark resolved.

        Raises:
            ContentError: a content block is malformed.
            MetaError: another argument is malformed.
            SecretError: an option looks like a secret, or a redaction hook finds something in an option, in the
                bookmark or in the subject.
            RedactionError: a redaction hook failed.
            UnknownTurnError: a parent is unknown.
            UnknownCallError: the call is unknown.
            HeadConflictError: the bookmark is not at `expected_head`.
            IdConflictError: another event has this id.
        """
        draft = record.turn_draft(
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
            reply=reply,
            call=call,
            origin=origin,
            subject=subject,
            api_key=api_key,
            **facts,
        )
        if type(content) is not str:
            record.check_documents(draft.payload)
        return self._record(draft, self._redaction)

    def add_document(  # noqa: PLR0913 - one argument for each field of the schema
        self,
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
            name: the name to show, not empty; by default the file's.
            bytes_max: the largest size to accept, in bytes.
            id: see `add_turn`.
            subject: see `add_turn`.

        Raises:
            DocumentError: the file cannot be read or is larger than `bytes_max`.
            MetaError, SecretError, RedactionError, UnknownTurnError, HeadConflictError, IdConflictError: as for
                `add_turn`.

        Redaction hooks see a document that is text in UTF-8. Others are passed over, which the turn says. A content
        type in which they find something is refused (`SecretError`).
        """
        draft = record.document_draft(
            path,
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
            subject=subject,
        )
        return self._record(draft, self._redaction)

    def add_event(
        self,
        topic: str,
        payload: bytes | None = None,
        *,
        private: Mapping[str, Any] | None = None,
        public: Mapping[str, Any] | None = None,
        cites: Sequence[tuple[str, str]] = (),
        id: str | None = None,
    ) -> Recorded:
        """Record an event of a topic of your own. On return it is on disk.

        Args:
            topic: two or more names of a-z, 0-9 and `-` with dots between them, such as `acme.review`. Those that begin
                with `log.`, `gpt.`, `mcp.` or the name of a format, such as `claude-code.`, are turnlog's.
            payload: its content.
            private: metadata that can be erased: all that can name or describe a person belongs here.
            public: metadata that stands in the header for ever.
            cites: earlier events that it rests on: as what, and the id of each. They are cited with their digests.
            id: the id to record it under. The same event again returns the stored one.

        Raises:
            MetaError: the topic is none of yours, or the metadata is not JSON, or is too large.
            SecretError: the metadata has what looks like a secret, or a redaction hook finds something in it or in the
                payload, of which it sees what can be read as UTF-8: what is yours is not changed.
            RedactionError: a redaction hook failed.
            NotFoundError: no event has an id that is to be cited.
            IdConflictError: another event has this id.
        """
        draft = record.own_event_draft(topic, payload, private=private, public=public, cites=cites, id=id)
        if self._redaction:
            metas = {
                name: msgspec.json.encode(meta) for name, meta in (("private", private), ("public", public)) if meta
            }
            self._redaction.refuse(topic, {"payload": payload or b""}, json=metas)
        kept = record.placed(self.store, payload, lambda transaction: record.own_event_key(transaction, draft))
        return self.store.write(lambda transaction: record.plan_own_event(transaction, draft, kept, self._sources))

    @contextmanager
    def group(self) -> Generator[TurnGroup]:
        """Record several turns together, when the `with` block ends: all of them or none, with one sync to disk.

            with log.group() as group:
                question = group.add_turn("How long do leeks take?", bookmark="main")
                group.add_turn("Twenty minutes.", role="assistant", continues=question)
            print(group.turns[-1].id)

        What is added can be continued by what comes after it. Where the block is left by an exception nothing is
        recorded, and nothing where its end raises, which it does as `add_turn` and `add_document` do. On return the
        turns are on disk.
        """
        from turnlog import group as groups  # noqa: PLC0415 - reading needs none of it

        group = groups.TurnGroup(self._sources.new_id)
        try:
            yield group
        finally:
            drafts = group.end()
        group.turns = [turn_of(recorded) for recorded in self._record_group(drafts)]

    def add_group(self, items: Sequence[TurnDraft | Note]) -> list[Recorded]:
        """Record turns and notes beside them in one transaction: all of them, or none. On return they are on disk.

        For modules that bring somebody else's model onto the log. What comes later in the group can continue, and be
        of, what comes earlier where that has an id.

        Raises:
            InputError: something in it is neither a draft nor a note, or is malformed.
            NotFoundError: a note is of a turn that is neither in the log nor earlier in the group.
            RedactionError: a redaction hook failed.
            UnknownTurnError: a turn continues one that is in neither of them.
        """
        given = check_list(items, "items", "turn drafts and notes")
        return self._record_group([record.checked(item) for item in given])

    def _record_group(self, items: Sequence[TurnDraft | Note]) -> list[Recorded]:
        """Record what has been checked."""
        kept = [record.redacted(item, self._redaction) for item in items]
        return self.store.write(lambda transaction: record.plan_group(transaction, kept, self._sources))

    def _record(self, draft: TurnDraft, redaction: Redaction) -> Turn:
        if redaction.hooks or draft.api_key is not None:
            draft = redaction.turn(draft)
        # A small payload is placed by whoever leads the group commit: with many threads at work, each call that gives
        # up the interpreter, as compressing does, costs more than what it does. A large one would hold the others up.
        large = None
        if len(draft.payload) >= PLACED_EARLY_BYTES_MIN:
            large = record.placed(
                self.store, draft.payload, lambda transaction: record.foreseen_key(transaction, draft)
            )

        def plan(transaction: WriteTransaction) -> tuple[Recorded, TurnMeta]:
            return record.plan_turn_told(transaction, draft, large or transaction.placed(draft.payload), self._sources)

        return turn_of(*self.store.write(plan))

    # Read

    def turn(self, headish: str) -> Turn:
        """Return a turn by id or bookmark.

        Raises:
            UnknownTurnError: there is none.
        """
        with self.store.read() as transaction:
            return turn_of(find_turn(transaction, headish))

    def ancestry(
        self, headish: str, limit: int | None = None, *, wanted: Callable[[Turn], bool] | None = None
    ) -> list[Turn]:
        """Return the ancestry of a turn and the turn itself, oldest first, each turn once.

        A few are read from its end, as far as it takes to find so many; behind more than 16 merges what is left is read
        whole.

        Args:
            headish: a turn or bookmark.
            limit: how many at most, of which the last ones are taken; None for all.
            wanted: only turns of which this is true.

        Raises:
            UnknownTurnError: there is no such turn.
            MetaError: `wanted` is no plain function, or the limit no number.
        """
        fits, most = fitting(projections.EVERY_TURN, wanted), _bounded(limit)
        with self.store.read() as transaction:
            head = find_turn(transaction, headish)
            if most is not None or fits is not None:
                return _last(context.ancestry_backwards(transaction, head), fits, most)
            return [
                turn_of(recorded) for recorded in context.ancestry(transaction, head, transaction.stream, _itself, {})
            ]

    def children(
        self, headish: str, limit: int | None = None, *, wanted: Callable[[Turn], bool] | None = None
    ) -> list[Turn]:
        """Return the turns that continue a turn, in the order in which they were recorded.

        Args:
            headish: a turn or bookmark.
            limit: how many at most, of which the last ones are taken, and not many more read; None for all.
            wanted: only turns of which this is true.

        Raises:
            UnknownTurnError: there is no such turn.
            MetaError: `wanted` is no plain function, or the limit no number.
        """
        fits, most = fitting(projections.EVERY_TURN, wanted), _bounded(limit)
        with self.store.read() as transaction:
            return _last(Children(transaction, find_turn(transaction, headish)).backwards(), fits, most)

    def compare(self, left: str, right: str) -> Comparison:
        """Return where the ancestries of two turns part: what two branches have in common, and what each has alone.

        Not much more is read than what is returned.

        Args:
            left: a turn or bookmark.
            right: the other one.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self.store.read() as transaction:
            found = context.parting(transaction, find_turn(transaction, left), find_turn(transaction, right))
        return Comparison(
            left=tuple(map(turn_of, found.left)),
            right=tuple(map(turn_of, found.right)),
            common=tuple(map(turn_of, found.common)),
        )

    def latest(
        self,
        limit: int | None,
        headish: str | None = None,
        *,
        which: TurnFilter = projections.EVERY_TURN,
        wanted: Callable[[Turn], bool] | None = None,
        progress: Progress | None = None,
    ) -> list[Turn]:
        """Return the turns that were recorded last, in global order; all of them where there are no more than `limit`.

        The log, or the branches of a thread, are read from their ends, as far as it takes to find so many. Of a long
        log the turns of a time, and those of a role or model that are not among the last ones, are found by a
        projection, `listings`, which is brought up to date; where it cannot be, all turns are looked at.

        Args:
            limit: how many; None for all.
            headish: a turn or bookmark: only turns of the threads that it belongs to, as `thread` returns them.
            which: only turns of a time, a role or a model.
            wanted: only turns of which this is true.
            progress: told now and then while the projection is brought up to date.

        Raises:
            UnknownTurnError: there is no such turn.
            MetaError: `which` is no filter, `wanted` no plain function, or the limit no number.
        """
        fits = fitting(which, wanted)
        most = _bounded(limit)
        if headish is not None:
            with self.store.read() as transaction:
                head = find_turn(transaction, headish).header
                return _last(projections.turns_backwards(transaction, head.stream, head.position), fits, most)
        if most is not None and which.is_of_speaker and not which.is_of_time:
            with self.store.read() as transaction:
                turns = projections.turns_within(transaction, projections.ANYWHERE)
                found = _last(islice(turns, LOOKED_AT_MAX), fits, most)
            if len(found) == most:
                return found
        spans = self._spans(which, progress=progress) or projections.ANYWHERE
        with self.store.read() as transaction:
            return _last(projections.turns_within(transaction, spans), fits, most)

    def thread(self, headish: str) -> list[Turn]:
        """Return all turns of the threads that a turn belongs to, in global order: what `turnlog log` draws.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self.store.read() as transaction:
            head = find_turn(transaction, headish).header
            return [turn_of(recorded) for recorded in projections.thread_turns(transaction, head.stream, head.position)]

    def turn_count(self, headish: str | None = None) -> int:
        """Return how many turns there are, in the log or in the threads that a turn belongs to. None of them is read.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with self.store.read() as transaction:
            if headish is None:
                return count_turns(transaction)
            head = find_turn(transaction, headish).header
            return projections.thread_size(transaction, head.stream, head.position)

    def threads(
        self,
        limit: int | None = None,
        *,
        which: TurnFilter = projections.EVERY_TURN,
        bookmark: str | None = None,
        among: Callable[[Thread], bool] | None = None,
        wanted: Callable[[Turn], bool] | None = None,
        progress: Progress | None = None,
    ) -> list[Thread]:
        """Return the threads with the latest activity, the latest one last.

        A few are found by the last turns of the log, those of a few bookmarks by these, and those of a time, a role or
        a model as `latest` finds turns.

        Args:
            limit: how many; None for all.
            which: only threads whose last turn was said in a time, and which have a turn of a role and a model.
            bookmark: only threads with this bookmark; patterns as `trip*` are fine.
            among: only threads of which this is true.
            wanted: only threads with a turn of which this is true, and of this role and model. The turns of one thread
                after the other are read for it, each from its end, as far as it takes.
            progress: told now and then while the projection is brought up to date.

        Raises:
            MetaError: `which` is no filter, `among` or `wanted` no plain function, the limit no number, or the bookmark
                no text.
        """
        check_condition(among, "among", "thread")
        times, speaker = check_filter(which).of_time(), which.of_speaker()
        fits = fitting(speaker, wanted)
        named = None if bookmark is None else check_kind(bookmark, str, "bookmark")

        def threads(**where: Any) -> list[Thread]:
            with self.store.read() as transaction:
                return latest_threads(
                    transaction,
                    _bounded(limit),
                    bookmark=named,
                    among=lambda thread: (
                        times.takes_time(datetime.fromisoformat(thread.last)) and (among is None or among(thread))
                    ),
                    fits=None if fits is None else partial(_fits, fits),
                    **where,
                )

        spans = self._spans(times, progress=progress)
        if speaker.is_of_speaker and (limit is not None or bookmark is not None):
            with suppress(TooManyTurnsError):
                return threads(spans=spans, turns_max=LOOKED_AT_MAX)
        return threads(spans=spans, fitting=self._spans(speaker, progress=progress))

    def _spans(self, which: TurnFilter, *, progress: Progress | None) -> tuple[range, ...] | None:
        """Return where in the log all turns are that are wanted; None where that may be anywhere."""
        return None if which.takes_all else self.feeds.spans(which, progress=progress)

    def content(self, turn: Turn | str) -> list[Block]:
        """Return what a turn says, as content blocks; a document is one block.

        Args:
            turn: the turn, or its id or bookmark.

        Raises:
            UnknownTurnError: there is no such turn.
            ErasedError: it was erased.
            CorruptionError: the stored bytes are damaged.
        """
        found = turn if isinstance(turn, Turn) else self.turn(turn)
        payload = self.payload(found.id)
        if found.meta.type == "document":
            return [document_block(payload, found.meta.content_type)]
        return decode_content(payload)

    def text(self, turn: Turn | str) -> str:
        """Return the text of a turn: that of its text blocks, with a blank line between two. Other blocks have none.

        Args:
            turn: the turn, or its id or bookmark.

        Raises:
            UnknownTurnError: there is no such turn.
            ErasedError: it was erased.
            CorruptionError: the stored bytes are damaged.
        """
        return "\n\n".join(block.text for block in self.content(turn) if isinstance(block, Text))

    def payload(self, headish: str) -> bytes:
        """Return the exact payload bytes of a turn, or of another event by its id, checked against its hash.

        Raises:
            UnknownTurnError: there is no such turn or event, or it has no payload.
            ErasedError: it was erased.
            CorruptionError: the stored bytes are damaged.
        """
        with self.store.read() as transaction:
            recorded = find_event(transaction, headish)
            payload = transaction.payload(recorded)
        if recorded.unreadable:
            raise events.unreadable(recorded, f"event {headish!r}")
        if payload is None:
            raise UnknownTurnError(f"event {headish!r} has no payload", headish=headish)
        return payload

    @overload
    def events(
        self,
        after: int = 0,
        *,
        after_id: str | None = None,
        follow: bool = False,
        topics: str | Sequence[str] = (),
        thread: str | None = None,
        bookmark: str | None = None,
    ) -> Events[Recorded]: ...
    @overload
    def events(
        self,
        after: int = 0,
        *,
        after_id: str | None = None,
        follow: bool = False,
        topics: str | Sequence[str] = (),
        thread: str | None = None,
        bookmark: str | None = None,
        mark: bool = False,
        deltas: bool = False,
    ) -> Events[Item]: ...
    def events(
        self,
        after: int = 0,
        *,
        after_id: str | None = None,
        follow: bool = False,
        topics: str | Sequence[str] = (),
        thread: str | None = None,
        bookmark: str | None = None,
        mark: bool = False,
        deltas: bool = False,
    ) -> Events[Any]:
        """Iterate over the events of the log in global order: all of them, none twice.

        What is returned knows its `position`: to go on from there another time, keep it with the id of the last event.

        Args:
            after: a global position, excluded; 0 for all.
            after_id: the id of the event at `after`. If another one is there now, it says so.
            follow: do not stop at the end of the log as it is now, but wait for what is recorded: here at once, and by
                other processes within a few hundredths of a second. Use it as a context manager, or `stop` it.
            topics: only events of these topics; empty for all.
            thread: a turn, by id or bookmark: only what is about turns of its threads, that is these turns, the calls
                that were made from them, the replies to these, and whatever else cites one of them.
            bookmark: a name: only the turns that moved it, what is about these, and events that set, renamed or deleted
                it.
            mark: give a `CaughtUp` where history ends, once.
            deltas: give pieces of replies too while a run of this process streams them, as `LiveDelta`: after the event
                of their call and before that of the reply. They are not stored. Needs `follow`.

        Raises while it is iterated over:
            StoreCutError: the log ends before `after`, or has another event there: it was cut or rolled back. Or that
                happened since.
            UnknownTurnError: there is no turn `thread`.
            CorruptionError: a stored event is damaged or, for those who follow, missing.
            StoreClosedError: the log is closed, or was closed meanwhile.

        Raises:
            MetaError: an argument is not what it should be.
        """
        wanted = feeds.Wanted.of(
            after,
            after_id=after_id,
            follow=follow,
            topics=topics,
            thread=thread,
            bookmark=bookmark,
            mark=mark,
            deltas=deltas,
        )
        return feeds.Events(self.feeds, wanted)

    def wait(self, after: int, timeout_s: float | None = None) -> int:
        """Wait until the log has events above a global position, and return the position of its end.

        Args:
            after: a global position.
            timeout_s: how long to wait at most, in seconds; None for as long as it takes.

        Appends of this process wake it at once, those of others within a few hundredths of a second.

        Raises:
            MetaError: `after` is no global position, or the seconds are negative or no number.
        """
        return self.store.wait(after, timeout_s)

    def event(self, event_id: str) -> Recorded:
        """Return an event of any topic by its id.

        Raises:
            NotFoundError: there is none.
        """
        with self.store.read() as transaction:
            recorded = transaction.event(parse_id(event_id))
        if recorded is None:
            raise NotFoundError(f"no event {event_id!r}")
        return recorded

    @property
    def id(self) -> str | None:
        """The log's identity, the id of its first event; None for an empty log."""
        with self.store.read() as transaction:
            genesis = transaction.genesis()
        return None if genesis is None else genesis.header.id

    def context(
        self, headish: str, *, explain: bool = False, include_failed: bool = False, summaries: bool | None = None
    ) -> ContextWindow:
        """Return the context window of a turn: what a model saw, or would see, when asked to go on from there.

        Args:
            headish: a turn id or bookmark.
            explain: add which turn set each option, and which turns were left out and why.
            include_failed: keep turns that record an error or an aborted reply.
            summaries: false shows all turns, also those that a summary stands for (see `compact`). By default as the
                inherited option `summaries` says: only if it is false.

        Raises:
            UnknownTurnError: there is no such turn.
            CorruptionError: stored bytes are damaged.
        """
        with self.store.read() as transaction:
            head = find_turn(transaction, headish)
            return self._projector.window(
                transaction, head, explain=explain, include_failed=include_failed, summaries=summaries
            )

    def compact(  # noqa: PLR0913 - one argument for each threshold
        self,
        headish: str,
        *,
        text: str | None = None,
        summarize: Summarize | None = None,
        keep_first: int = KEEP_FIRST,
        keep_last: int = KEEP_LAST,
        min_turns: int = MIN_TURNS,
        max_turns: int | None = None,
        cool_down_turns: int = 0,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Record a summary of a run of turns, for the windows of what is recorded from now on. It is on disk then.

        The next turn behind that run cites the summary, and so all windows from that turn on have the first turns,
        the summary and the last turns. Nothing is deleted, and the window of no turn that there is changes;
        `context(…, summaries=False)` shows all turns. A later summary covers an earlier one with what it stands for.
        The run is never cut between a tool call and its result, nor inside a step of the model, nor in a branch that
        was merged: such a branch is covered as a whole, or stays.

        Args:
            headish: the turn whose window is to become shorter, by id or bookmark.
            text: what the summary says.
            summarize: writes it, given the window up to the last turn that it will cover: returns the text, or a
                `SummaryText` that also names the turn of the model that says it. It may record turns of its own.
            keep_first: how many turns at the beginning stay; what a summary stands for already does not come back.
            keep_last: how many turns at the end stay.
            min_turns: do nothing where fewer turns could be covered anew.
            max_turns: cover at most so many anew; None for no limit.
            cool_down_turns: do nothing before so many turns were recorded since the last time.
            reason: why. It is private metadata of the summary.
            dry_run: only say what would be covered. Then neither text nor `summarize` is needed.

        Returns:
            What was covered, or why nothing was done.

        Raises:
            UnknownTurnError: there is no such turn.
            MetaError: not exactly one of `text` and `summarize` is given, unless in a dry run; or a number is
                too small.
            ContentError: the summary says nothing.
            ErasedSinceError: something of what it covers was erased meanwhile: nothing was recorded.
            SecretError: a redaction hook finds something in `reason`.
            RedactionError: a redaction hook failed.
        """
        if text is not None and summarize is not None:
            raise MetaError("text: give it, or what writes it (summarize), not both", field="text")
        written = summarize if text is None else text
        if written is None and not dry_run:
            raise MetaError("text: give the text of the summary, or what writes it (summarize)", field="text")
        return context.compact(
            self.store,
            self._projector,
            self._sources,
            self._redaction,
            headish,
            written=None if dry_run else written,
            policy=context.Policy(
                keep_first=keep_first,
                keep_last=keep_last,
                min_turns=min_turns,
                max_turns=max_turns,
                cool_down_turns=cool_down_turns,
            ),
            reason=reason,
        )

    # Run

    if TYPE_CHECKING:
        run = loop.run
        arun = loop.arun
        run_events = loop.run_events
    else:
        run, arun, run_events = _OfTheLoop(), _OfTheLoop(), _OfTheLoop()

    @property
    def holds(self) -> Holds:
        """The legal holds: what must not be erased."""
        return audit.holding.Holds(self.store, self._sources, self._redaction)

    # Import, export, care

    def import_transcript(self, format: str, path: str | Path, *, progress: Progress | None = None) -> TranscriptReport:
        """Import somebody else's file: all that is new of it. On return it is on disk.

        It goes in in groups, so that others can append meanwhile; what stops in the middle is completed by the same
        import again.

        Args:
            format: the format's name, such as `claude-code`: see `turnlog.interop.formats`.
            path: the file.
            progress: called with lines done and lines in all.

        Returns:
            The report of the format's importer.

        Raises:
            MetaError: the format or the path is none.
            NotFoundError: there is no such format.
            FormatError: the file is not of this format at all, or cannot be read.
            RedactionError: a redaction hook failed; nothing was imported.
            PluginError: the importer of another package failed, or cannot be used: a note of it (`__notes__`) says
                what is in by then.
        """
        name, file = check_type(format, str, "format"), check_path(path, "path")
        source = interop.formats.read(name, file, self._redaction)
        return interop.importing.run_import(self.store, source, self._sources, progress=progress)

    def import_claude_code(self, path: str | Path, *, progress: Progress | None = None) -> TranscriptReport:
        """Import a session file of Claude Code. See `import_transcript`.

        Raises:
            FormatError: the file is not JSON lines of a session at all, or cannot be read.
        """
        return self.import_transcript(interop.claude_code.ClaudeCode.name, path, progress=progress)

    def export(
        self,
        file: BinaryIO,
        headish: str | Sequence[str] | None = None,
        *,
        ancestry: bool = False,
        which: TurnFilter = projections.EVERY_TURN,
        wanted: Callable[[Turn], bool] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Write the log, as it is now, as JSON lines with payloads, and return the number of events.

        What the events of a part cite comes along, so that nothing dangles, and so do bookmarks that stand in it.
        Registers, and events of topics of others that no turn cites, are in a whole log only.
        Others can append meanwhile. Citations are checked: what was edited is not exported.

        Args:
            file: where to write; opened for bytes. What it raises is raised as it is.
            headish: only the threads of this turn, or of these, with all that they continue; None for the whole log.
            ancestry: of these turns only the ancestries and the turns themselves.
            which: of all these turns only those of a time, a role or a model, each with its ancestry: what is exported
                can be imported and verified. They are found as `latest` finds them.
            wanted: only those of which this is true, likewise.
            limit: of the turns that are wanted only so many, each with its ancestry: the latest that no other one
                continues.
            progress: called with events done and events in all.

        Raises:
            UnknownTurnError: there is no such turn.
            NotFoundError: no turn is wanted.
            MetaError: ancestry without a turn, no turns at all, a limit below 1, `which` is no filter,
                `wanted` no plain function, or the file is none that is open for bytes.
            CorruptionError: an event or a payload is not what was recorded.
            StoreBusyError: events were erased meanwhile; or, of a whole log, some have no place in it yet, and this is
                a standby or a read-only session, which cannot give them one.
            BlockingIOError: the file has no buffer, does not block, and takes no more for now.
        """
        given = () if headish is None else (headish,) if isinstance(headish, str) else headish
        # What is neither a name nor a sequence of them is refused as a name.
        heads = tuple(given) if isinstance(cast("object", given), Iterable) else (cast("str", given),)
        if ancestry and headish is None:
            raise MetaError("ancestry: of which turn, give it as headish", field="ancestry")
        if headish is not None and not heads:
            raise MetaError("headish: give a turn, or None for the whole log", field="headish")
        if limit is not None and _bounded(limit) == 0:
            raise MetaError(f"limit: must be at least 1, got {limit}", field="limit")
        fits = fitting(which, wanted)
        spans = None if headish is not None else self._spans(which, progress=None)
        return interop.portable.export(
            self.store,
            file,
            heads,
            ancestry=ancestry,
            fits=None if fits is None else partial(_fits, fits),
            limit=limit,
            spans=spans or projections.ANYWHERE,
            progress=progress,
        )

    def import_turnlog(
        self,
        file: BinaryIO,
        *,
        bookmarks: OnBookmark = "keep",
        registers: Literal["keep", "trust"] = "keep",
        progress: Progress | None = None,
    ) -> RestoreReport:
        """Import what `export` wrote: ids and bytes as they are. On return all of it is on disk.

        All of it is checked before anything is written. Then it goes in in groups, and others can append meanwhile:
        what is stopped in the middle is completed by the same import again.

        The export of a whole log into an empty store, or into one that has the beginning of that log, makes it that
        log: same identity, global positions, digests and bookmarks. Otherwise the events are those of another log, a
        guest's: their bookmarks are set by events of this log.

        Redaction hooks do not see what comes in so: these events have digests, and would no longer be what they are.

        Args:
            file: where to read; opened for bytes. What cannot be read twice, as what has `read` alone, is copied to a
                temporary file.
            bookmarks: what becomes of bookmarks that stand elsewhere here: `keep` leaves them, `take` moves them.
            registers: pointers, providers and MCP servers that come in have no effect until they are confirmed.
                `trust` confirms them, but for those that break a rule of `set`: only do so for a person who knows them.
            progress: called with events done and events in all.

        Raises:
            MetaError: `bookmarks` or `registers` is none of its words, or the file is none that is open for bytes.
            FormatError: a line is not what `export` writes, or a hash, a digest or a citation is wrong.
            IdConflictError: the log has another event under an id, or a stream has gone another way here.
            ConflictError: somebody else has written to the log while it was restored.
        """
        check_binary(file, "read")
        check_one_of(bookmarks, get_args(interop.portable.OnBookmark), "bookmarks")
        check_one_of(registers, ("keep", "trust"), "registers")
        report = interop.portable.restore(self.store, file, self._sources, bookmarks=bookmarks, progress=progress)
        return self._with_registers(report, registers)

    def _with_registers(self, report: RestoreReport, registers: Literal["keep", "trust"]) -> RestoreReport:
        came_in = set(report.unconfirmed_registers)
        if not came_in:
            return report
        waiting = [register for register in self.registers.imported() if register.id in came_in]
        confirmed = [register.id for register in waiting if registers == "trust" and not register.refusal]
        self.registers.trust(confirmed)
        return msgspec.structs.replace(
            report,
            confirmed_registers=tuple(confirmed),
            unconfirmed_registers=tuple(register.id for register in waiting if register.id not in confirmed),
        )

    def copy_to(self, url: str, *, busy_timeout_s: float = 60.0, progress: Progress | None = None) -> CopyReport:
        """Make another store this log, on whatever engine: every event with its bytes, its place and how it came here.

        On return all events that there were at the call are there, durably, and compared byte for byte. Signed
        checkpoints come along. Sealed events stay sealed, and erased ones erased; no key is needed. Projections are
        made anew; those of `feeds`, and how far feeds have come, are not copied.

        It goes in in groups. What is stopped in the middle is completed by the same copy again; until then it may have
        erased events without the ones that say so, which `verify` finds. A later copy brings what has come since, and
        erases what has been erased. Others can append to this log meanwhile. Nobody else must write to the other store:
        it would be another log from there on, and the copy is refused. What is erased there goes from its files, and
        from projections and feeds that it has, as by `erase`, unless the report says what remains.

        Args:
            url: the other store, made if it does not exist: an empty one, or one with the beginning of this log.
            busy_timeout_s: how long an append there waits for another process that writes.
            progress: called with events done and events in all, each counted for the copy and for the comparison.

        Raises:
            ConflictError: the other store is this one, has another log, has more of this one, or was written to
                meanwhile.
            CorruptionError: an event or a payload is not what was recorded, here or there.
            StoreBusyError: events have no place in this log yet, and this is a standby or a read-only session, which
                cannot give them one: nothing was copied.
            StoreOpenError: the URL is malformed, or what is there is not a store that this turnlog can open.
        """
        target = open_store(
            url,
            projections=projections.synchronous(),
            sides=projections.side_tables(),
            busy_timeout_s=busy_timeout_s,
        )
        with TurnLog(target) as other:
            report = audit.copying.copy(self.store, target, progress=progress)
            return msgspec.structs.replace(report, remains=other.feeds.forget_erased() or report.remains)

    def verify(
        self,
        *,
        progress: Progress | None = None,
        repair_projections: bool = False,
        checkpoints: Sequence[Anchor] = (),
        since: int = 0,
    ) -> VerifyReport:
        """Read every stored byte again and check it: headers, private parts, payloads, citations, requests, indexes.

        Takes bounded memory, and holds no snapshot for long: others can append meanwhile.

        Args:
            progress: called with events done and events in all.
            repair_projections: build index tables anew that are missing or damaged, and take away what is kept as a
                checkpoint and is none. Nothing else can be repaired.
            checkpoints: signed checkpoints from outside the store, from `turnlog.audit.anchors.read_anchors`: they show
                what was written anew with hashes that fit, or cut off. Those that the store keeps are compared too.
            since: payloads up to this global position are not read again, and requests not put together.

        Raises:
            MetaError: `checkpoints` has something else in it, or `since` is no global position.
            StoreReadOnlyError: there is something to repair, and the store cannot be written.
        """
        return audit.verify(
            self.store,
            progress=progress,
            repair_projections=repair_projections,
            checkpoints=check_each(checkpoints, audit.Anchor, "checkpoints", "checkpoints, as read_anchors gives them"),
            since=check_count(since, "since"),
        )

    # Seal, and erase

    def seal(self, subject: str | None = None, *, by: str | None = None) -> SealReport:
        """Have the log, or what is of a subject, recorded sealed from now on. On return it is on disk.

        Private parts and payloads are then encrypted (AES-256-GCM) under a data key of each subject. These keys are
        outside the store: erasing a subject destroys its key, and so what is in backups and in other copies too. Who
        loses the keys loses what is sealed. What was recorded before stays as it is, and the report counts it.

        Args:
            subject: whose turns, with what rests on them; None for all of the log.
            by: who asked for it.

        Raises:
            SealError: the log was opened without `seals`, or a key cannot be kept.
            MetaError: the subject is no name.
        """
        self._refuse(events.SEAL, subject=subject, by=by)
        return audit.sealing.seal(self.store, self._sources, subject, by=by)

    def _refuse(self, topic: str, **texts: str | None) -> None:
        """Refuse texts of an event that redaction hooks would change.

        Raises:
            SecretError: a hook finds something in one.
        """
        given = {field: text for field, text in texts.items() if isinstance(text, str)}
        if given:
            self._redaction.refuse(topic, given)

    def erase(
        self,
        *,
        turn: str | Sequence[str] | None = None,
        thread: str | Sequence[str] | None = None,
        subject: str | None = None,
        reason: str,
        by: str | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> ErasureReport:
        """Erase turns, with all that carries their content: private parts and payloads go, headers and proofs stay.

        With a turn go the recorded requests whose window has it and the replies to them, the reply that it came of, and
        lines of imported transcripts that belong to it; with a thread or a subject also the bookmark events that name
        its bookmarks. What was answered, and results of tools, are turns of their own. Bookmarks are then where they
        would be if the erased events had never been recorded. See `turnlog.audit.targets`.

        On return it is durable, and nothing of it is left in the files of the store, nor in projections and in folders
        of feeds, unless the report says what remains. Erasing the same again goes on with what a crash has kept from
        these. A crash leaves nothing erased in the log, or all of it.

        In a log that has something sealed the data keys of a subject are destroyed first, so that what is sealed cannot
        be read in any copy either. A crash in between leaves turns that nobody can read: erase the subject again.

        Args:
            turn: turns, by id or bookmark; and by id lines of imported transcripts, and whatever is damaged.
            thread: all turns of the threads that these turns belong to.
            subject: all turns of a subject. The report names damaged ones, of which nobody can tell.
            reason: why. It is kept for ever: it should not repeat what is erased, nor name whom it is about.
            by: who asked for it. It is kept as well.
            seen: the `seen` of the report of a dry run: a turn of it that came later refuses the erasure, so that no
                more is erased than was looked at. A name can mean another turn by then: give the ids that it had.
            dry_run: only report what would be erased.

        Raises:
            MetaError: not exactly one of turn, thread and subject is given, or no reason.
            UnknownTurnError: there is no such turn.
            HoldError: a legal hold refuses it, or may, where it or what is to be erased is damaged. Nothing was erased.
            CorruptionError: the header of an event is damaged that has to be read. Nothing was erased.
            SealError: whose turns are sealed, or what is held, cannot be seen without keys: nothing was erased. Or a
                key could not be destroyed: nothing was erased but keys before it, try again.
            ConflictError: turns of it came later than was seen: nothing was erased. Or others have kept changing holds
                meanwhile.
        """
        asked = audit.asking.request(turn, thread, subject)
        self._refuse(events.ERASURE, reason=reason, by=by)
        try:
            report = audit.erasing.erase(
                self.store, asked, reason=reason, by=by, dry_run=dry_run, sources=self._sources, seen=seen
            )
        finally:
            # Also where it came to no end: a key may be gone by then.
            if not dry_run:
                self._forget()
        return report if dry_run else self._erased_beside(report)

    def _erased_beside(self, report: ErasureReport) -> ErasureReport:
        """Let an erasure reach projections and feeds; also one that had nothing to erase: another may have died."""
        with audit.erasing.interrupts_told(report):
            return msgspec.structs.replace(report, remains=self.feeds.forget_erased() or report.remains)

    def _forget(self) -> None:
        """Drop all that is kept in memory of content, in this process."""
        self._projector.forget()
        self.calls._forget()  # pyright: ignore[reportPrivateUsage] - our own
        self.store.tail.forget()
        providers.forget()
        events.forget()

    def finish_erasing(self) -> str | None:
        """Remove what earlier erasures had to leave in the files of the store. Opening the store tries it too.

        What erasures of this log name and is there, as a copy put it back, is erased again, with an event that says so.

        Returns:
            Why something is still left, one line; None if nothing is.

        Raises:
            HoldError: a legal hold refuses it, and nothing was erased. What else `erase` raises is raised too.
        """
        try:
            audit.erasing.erase_again(self.store, self._sources)
        finally:
            self._forget()
        return self.store.scrub() or self.feeds.forget_erased()

    def retain(
        self,
        older_than: timedelta,
        *,
        reason: str | None = None,
        by: str | None = None,
        dry_run: bool = True,
    ) -> RetentionReport:
        """Erase the threads whose last turn is older than a time, or say which these are. Threads on hold are kept.

        Args:
            older_than: how long threads are kept after their last turn.
            reason: why, as for `erase`; needed unless it is a dry run.
            by: who asked for it.
            dry_run: only report what would be erased; the default.

        Raises:
            MetaError: there is no reason, or no time.
            HoldError: a hold was set meanwhile. Nothing was erased.
            CorruptionError: as for `erase`. Damaged private parts are no hindrance.
        """
        self._refuse(events.ERASURE, reason=reason, by=by)
        try:
            report = audit.retaining.retain(
                self.store, older_than, reason=reason, by=by, dry_run=dry_run, sources=self._sources
            )
        finally:
            # Also where it came to no end: it may be erased by then.
            if not dry_run:
                self._forget()
        if dry_run:
            return report
        erasure = self._erased_beside(report.erasure or audit.ErasureReport())
        if report.erasure is None and erasure.remains is None:
            return report
        return msgspec.structs.replace(report, erasure=erasure)

    def rebuild_projections(self, names: Sequence[str] = (), *, progress: Progress | None = None) -> list[str]:
        """Build what is derived from the log anew, in place, and return the names of what was built.

        Others can append meanwhile. On return it is on disk.

        Args:
            names: which, such as `bookmark heads` or `merkle tree`; empty for all that there are.
            progress: called with events done and events in all.

        Raises:
            MetaError: `names` is no list of texts.
            SchemaError: there is no projection of a name.
        """
        names = check_texts(names, "names", "['turn index']")
        others = [name for name in names if name != TREE.name]
        built = self.store.rebuild(others, progress=progress) if others or not names else []
        with self.store.read() as transaction:
            kept = transaction.has(TREE)
        if kept if not names else TREE.name in names:
            self.audit.rebuild_tree(progress=progress)
            built.append(TREE.name)
        return built

    def stats(self) -> LogStats:
        """Measure the log."""
        with self.store.read() as transaction:
            topics = transaction.topics()
            threads = count_threads(transaction)
            bookmarks = len(all_bookmarks(transaction))
        return LogStats(
            **msgspec.structs.asdict(self.store.stats()),
            turns=topics.get(TURN, 0),
            threads=threads,
            bookmarks=bookmarks,
            topics=topics,
        )


def _bounded(limit: int | None) -> int | None:
    """Return a limit as iterators take it: any number is one.

    Raises:
        MetaError: it is no number.
    """
    if limit is not None and not isinstance(cast("object", limit), int):
        raise MetaError(f"limit: expected int, got {type(limit).__name__}", field="limit")
    return None if limit is None else min(max(limit, 0), sys.maxsize)


def _fits(fits: Callable[[Turn], bool], recorded: Recorded) -> bool:
    return fits(turn_of(recorded))


def _last(turns: Iterable[Recorded], fits: Callable[[Turn], bool] | None, limit: int | None) -> list[Turn]:
    """Return the turns that fit, in the other order, and no more of them than so many."""
    return list(islice(filter(fits, map(turn_of, turns)) if fits else map(turn_of, turns), limit))[::-1]


def _itself(recorded: Recorded) -> Recorded:
    return recorded
