"""Turns that are recorded together: `TurnLog.group`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from threading import Lock
from typing import Concatenate, ParamSpec

import msgspec

from turnlog.errors import InputError
from turnlog.record.documents import check_documents
from turnlog.record.drafts import TurnDraft, document_draft, turn_draft
from turnlog.turn import Turn

P = ParamSpec("P")


def _adds(make: Callable[P, TurnDraft]) -> Callable[Concatenate[TurnGroup, P], str]:
    """Return a method that adds what `make` makes, with its arguments, and returns its id."""
    made = signature(make)

    @wraps(make)
    def add(self: TurnGroup, *args: P.args, **kwargs: P.kwargs) -> str:
        return self._add(make(*args, **kwargs))  # pyright: ignore[reportPrivateUsage] - our own

    # Else the first argument would be missing where the method is looked up, as that of the object.
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *made.parameters.values()]
    add.__dict__["__signature__"] = made.replace(parameters=parameters, return_annotation="str")
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
        self._drafts: list[TurnDraft] = []
        self._ended = False
        self._lock = Lock()
        self.turns: list[Turn] = []

    add_turn = _adds(turn_draft)
    add_document = _adds(document_draft)

    def _add(self, draft: TurnDraft) -> str:
        if draft.meta.type != "document":
            check_documents(draft.payload)
        turn = draft.id or self._new_id()
        with self._lock:
            if self._ended:
                raise InputError("this group is recorded, or given up: begin another one with `log.group()`")
            self._drafts.append(msgspec.structs.replace(draft, id=turn))
        return turn

    def end(self) -> list[TurnDraft]:
        """Take nothing more, and return what was added, in order."""
        with self._lock:
            self._ended = True
        return self._drafts
