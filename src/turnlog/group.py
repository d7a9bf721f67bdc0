"""Turns that are recorded together: `TurnLog.group`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from threading import Lock
from typing import Any, Concatenate, Literal, ParamSpec, Unpack

import msgspec

from turnlog.errors import InputError
from turnlog.model import Block, Origin, ReplyFacts, ReplyFactsGiven
from turnlog.model.kinds import check_type
from turnlog.record.documents import check_documents
from turnlog.record.drafts import TurnDraft, document_draft, turn_draft
from turnlog.turn import Turn

P = ParamSpec("P")


def _adds(make: Callable[P, TurnDraft]) -> Callable[Concatenate[TurnGroup, P], str]:
    """Return a method that adds what `make` makes, with its arguments, and returns its id."""

    @wraps(make)
    def add(self: TurnGroup, *args: P.args, **kwargs: P.kwargs) -> str:
        return self._add(make(*args, **kwargs))  # pyright: ignore[reportPrivateUsage] - our own

    return add


class TurnGroup:
    """Turns and documents that are recorded in one transaction, with one sync to disk: all of them, or none.

    `add_turn` and `add_document` take the arguments of `TurnLog.add_turn` and `TurnLog.add_document`, check them, and
    return the id that the turn will have, which later turns of the group can continue. Nothing is recorded before the
    end of the `with` block, and nothing at all where that is left by an exception. Threads may add side by side: what
    has an id is recorded.

    Attributes:
        turns: the recorded turns, in the order in which they were added; empty until then.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        """Begin with nothing added. `new_id` makes ids."""
        self._new_id = new_id
        self._added: list[tuple[TurnDraft, str | None]] = []
        self._ended = False
        self._lock = Lock()
        self.turns: list[Turn] = []

    def add_turn(  # noqa: PLR0913 - the arguments of TurnLog.add_turn
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
    ) -> str:
        """Check what a caller gave for a turn. See `TurnLog.add_turn` for the meaning of each argument."""
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
            reply=reply,
            call=call,
            origin=origin,
            subject=subject,
            **facts,
        )
        return self._add(draft, None if api_key is None else check_type(api_key, str, "api_key"))

    add_document = _adds(document_draft)

    def _add(self, draft: TurnDraft, api_key: str | None = None) -> str:
        if draft.meta.type != "document":
            check_documents(draft.payload)
        turn = draft.id or self._new_id()
        with self._lock:
            if self._ended:
                raise InputError("this group is recorded, or given up: begin another one with `log.group()`")
            self._added.append((msgspec.structs.replace(draft, id=turn), api_key))
        return turn

    def end(self) -> list[tuple[TurnDraft, str | None]]:
        """Take nothing more, and return what was added, in order."""
        with self._lock:
            self._ended = True
        return self._added
