"""What a run needs of a log. `TurnLog` has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from turnlog.calls import Calls, ToolCalls
from turnlog.events import Recorded
from turnlog.executors import Executors
from turnlog.feeds import Feeds
from turnlog.model import Block, ContextWindow
from turnlog.record.drafts import TurnDraft
from turnlog.registers import Pointers, Providers, Servers
from turnlog.store import Store
from turnlog.turn import Turn

Content = str | Sequence[str | Block | Mapping[str, Any]]
"""What a turn says: text, or content blocks."""


class RunLog(Protocol):
    """A log that a run can read and write; safe to use from many threads."""

    store: Store

    @property
    def calls(self) -> Calls: ...
    @property
    def tool_calls(self) -> ToolCalls: ...
    @property
    def pointers(self) -> Pointers: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def servers(self) -> Servers: ...
    @property
    def executors(self) -> Executors: ...
    @property
    def feeds(self) -> Feeds: ...

    def turn(self, headish: str) -> Turn:
        """Return a turn by id or bookmark."""
        ...

    def ancestry(self, headish: str) -> list[Turn]:
        """Return the ancestry of a turn and the turn itself, oldest first."""
        ...

    def context(self, headish: str) -> ContextWindow:
        """Return the context window of a turn."""
        ...

    def payload(self, headish: str) -> bytes:
        """Return the exact payload bytes of a turn."""
        ...

    def add_turn(
        self,
        content: Content,
        *,
        continues: str | Sequence[str] | None = None,
        bookmark: str | Literal[False] | None = ...,
        expected_head: str | Literal[False] | None = ...,
        inherited: Mapping[str, Any] | None = None,
        subject: str | Literal[False] | None = ...,
        api_key: str | None = ...,
    ) -> Turn:
        """Record a turn."""
        ...

    def add_group(self, items: Sequence[TurnDraft]) -> list[Recorded]:
        """Record turns in one transaction."""
        ...
