"""What a run records: turns that follow each other, and the bookmark that moves along with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from turnlog.agent.events import BookmarkLeft, TurnRecorded
from turnlog.agent.execution import Execution
from turnlog.agent.followers import Followers
from turnlog.agent.opening import record_opening
from turnlog.agent.run_log import Content, RunLog
from turnlog.agent.settled import settled
from turnlog.events import Recorded
from turnlog.model import CallError, Response, Usage, WindowChange
from turnlog.model.kinds import check_fields, check_list, check_type
from turnlog.providers import PreparedRequest, RawEvent
from turnlog.record.bookmarks import check_head
from turnlog.record.drafts import TurnDraft, reply_draft, turn_draft
from turnlog.record.fields import check_bookmark, check_expected_head, check_subject
from turnlog.record.lookup import find_turn, is_bookmark
from turnlog.record.subjects import subject_behind
from turnlog.turn import Turn, turn_of


class Recording:
    """What a run records. Each turn continues the one before it; a cancellation breaks off no append."""

    def __init__(
        self,
        log: RunLog,
        followers: Followers,
        *,
        bookmark: str | Literal[False] | None,
        expected_head: str | Literal[False] | None,
        subject: str | Literal[False] | None,
    ) -> None:
        """Take what the first turn is to be recorded with; the turns that follow have it from their parent.

        Raises:
            TurnlogError: as for `TurnLog.add_turn`.
        """
        self._log = log
        self._followers = followers
        self._bookmark: str | Literal[False] | None = check_bookmark(bookmark)
        self._expected_head: str | Literal[False] | None = check_expected_head(expected_head)
        self._subject: str | Literal[False] | None = check_subject(subject)
        self._next_subject: str | Literal[False] | None = None
        """The subject that the next turn is given, where that is what the first turn of the run is."""
        self._found_subject: str | Literal[False] | None = None
        """The subject of the head as it was found, also when that was erased since; False for none."""
        self._on: str | None = None
        """The bookmark that the turns so far have moved along."""
        self._head: Turn | None = None
        self.turns: list[Turn] = []
        """The turns that were recorded, in their order."""
        self.calls: list[str] = []
        """The ids of the model calls that were recorded, in their order."""

    @property
    def head(self) -> Turn:
        """The turn that the next one continues; there is one from the first turn on, or from `begin` on."""
        assert self._head is not None
        return self._head

    def begin(self, head: Turn) -> None:
        """Begin at a turn that is recorded already."""
        self._head = head

    async def go_on(self, headish: str, *, adds: bool) -> None:
        """Go on from the turn that the caller has named, along with its bookmark and its subject.

        Where the bookmark is, and whose the turn is, is checked before any tool is called: what tools return is not
        given up for it.

        Args:
            headish: the turn.
            adds: whether something is asked later, which the subject that the caller names is for.

        Raises:
            HeadConflictError: the bookmark is not where the caller expects it.
            MetaError, SealError: nobody can tell whose the turn is, and the caller does not say it.
        """
        if not adds:
            self._next_subject, self._subject = self._subject, None
        if self._next_subject is None:
            self._found_subject = await self._log.executors.run_read(self._subject_of_head)
        self._on = await self._log.executors.run_read(self._bookmark_of, headish)
        await self._log.executors.run_read(self._expect, self._on)

    async def add(
        self,
        content: Content,
        before: Sequence[TurnDraft],
        continues: Sequence[str],
        inherited: Mapping[str, Any],
        *,
        api_key: str | None,
    ) -> None:
        """Record what is asked, and what goes before it."""
        subject, self._subject = self._subject, None
        record = partial(
            record_opening,
            self._log,
            content,
            before,
            continues=continues,
            bookmark=self._take_bookmark(),
            expected_head=self._take_expected_head(),
            subject=subject,
            inherited=inherited,
            api_key=api_key,
        )
        for turn in await settled(self._log.executors, record):
            self._recorded(turn)

    async def call(self, request: PreparedRequest, *, servers: Sequence[str], change: WindowChange | None) -> Recorded:
        """Record a model call that asks from the head, before it is made; return its event."""
        calls = self._log.calls
        record = partial(calls._recorded, self.head.id, request, servers=servers, window=change)  # pyright: ignore[reportPrivateUsage] - our own
        call = await settled(self._log.executors, record)
        self.calls.append(call.header.id)
        return call

    def drafted(self, response: Response) -> TurnDraft:
        """Return the turn that a reply makes behind the head, as far as the reply says what it is.

        Raises:
            ContentError, MetaError: it is none that can be recorded.
        """
        check_list(response.content, "content", "blocks")
        if response.error is not None:
            check_fields(response.error, CallError, "error")
        if response.usage is not None:
            check_type(response.usage, Usage, "usage")
        return reply_draft(response, continues=self.head.id)

    async def reply(
        self, call: str, events: Sequence[RawEvent], response: Response, drafted: TurnDraft, *, api_key: str | None
    ) -> None:
        """Record the reply to a call, and the turn that it makes, which is `drafted`."""
        draft = self._behind_head(replace(drafted, bookmark=self._take_bookmark(), api_key=api_key))
        record = partial(self._log.calls._record_reply, call, events, response.error, draft)  # pyright: ignore[reportPrivateUsage] - our own
        self._recorded(await settled(self._log.executors, record), response)

    async def own_reply(self, response: Response, *, api_key: str | None) -> None:
        """Record a reply that a middleware gave in place of asking: a turn that no call is behind.

        Raises:
            ContentError, MetaError: it is none.
        """
        draft = replace(self.drafted(response), bookmark=self._take_bookmark(), api_key=api_key)
        record = partial(self._log.add_group, [self._behind_head(draft)])
        [recorded] = await settled(self._log.executors, record)
        self._recorded(turn_of(recorded), response)

    async def results(self, execution: Execution, *, api_key: str | None) -> None:
        """Record what became of the tool calls of the head: their results, and how they ended.

        Raises:
            ToolCallTakenError: another run has recorded one of them.
        """
        ends, known = execution.ends()
        results = list(execution.results())
        draft = turn_draft(results, continues=self.head.id, bookmark=self._take_bookmark(), api_key=api_key)
        record = partial(self._log.tool_calls._record_results, self._behind_head(draft), ends, known)  # pyright: ignore[reportPrivateUsage] - our own
        self._recorded(await settled(self._log.executors, record))

    def _recorded(self, turn: Turn, response: Response | None = None) -> None:
        self._head = turn
        self._found_subject = turn.meta.subject or False
        self.turns.append(turn)
        before, self._on = self._on, turn.meta.head if isinstance(turn.meta.head, str) else None
        self._followers.tell(TurnRecorded(turn=turn, response=response))
        if before is not None and self._on is None:
            self._followers.tell(BookmarkLeft(bookmark=before, turn=turn))

    def _behind_head(self, draft: TurnDraft) -> TurnDraft:
        """Return the draft of the turn that is next, with whose it is, whatever has been erased since the run began."""
        subject, self._next_subject = self._next_subject, None
        return replace(draft, subject=subject, parent_subject=self._found_subject)

    def _subject_of_head(self) -> str | Literal[False]:
        with self._log.store.read() as transaction:
            return subject_behind(transaction, find_turn(transaction, self.head.id)) or False

    def _bookmark_of(self, headish: str) -> str | None:
        """Return the bookmark that the turns of a run from a turn move along, None for none."""
        if self._bookmark is not None:
            return None
        with self._log.store.read() as transaction:
            return headish if is_bookmark(transaction, headish) else None

    def _expect(self, continued: str | None) -> None:
        bookmark = continued if self._bookmark is None else self._bookmark or None
        with self._log.store.read() as transaction:
            check_head(transaction, bookmark, self._take_expected_head())

    def _take_bookmark(self) -> str | Literal[False] | None:
        """Return the bookmark that the caller named, for the first turn; the others move along with it."""
        bookmark, self._bookmark = self._bookmark, None
        return bookmark

    def _take_expected_head(self) -> str | Literal[False] | None:
        """Return where the caller expects the bookmark, for the first turn."""
        expected, self._expected_head = self._expected_head, None
        return expected
