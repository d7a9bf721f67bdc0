"""What a caller asks to erase, or to hold: turns, threads by one of their turns, or a subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from turnlog.audit.targets import Scope, Wanted
from turnlog.audit.unerased import unerased
from turnlog.errors import MetaError
from turnlog.events import (
    BOOKMARK,
    CALL,
    HOLD,
    REPLY,
    SUMMARY,
    TOOL_CALL,
    TOOL_END,
    TURN,
    Recorded,
    is_of_format,
)
from turnlog.ids import is_id, no_name
from turnlog.record import find_turn
from turnlog.record.fields import check_headish, check_name
from turnlog.store import ReadTransaction, past_damage

BESIDE = (CALL, REPLY, BOOKMARK, HOLD, SUMMARY, TOOL_CALL, TOOL_END)
"""What is erased beside turns, but for lines of transcripts."""


class Request(Struct, frozen=True, kw_only=True):
    """What a caller asks to erase: turns, threads by one of their turns, or a subject; exactly one of them.

    Or nothing of these: what erasures of the log name and is there.
    """

    turns: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    subject: str | None = None

    def wanted(self, transaction: ReadTransaction) -> Wanted:
        """Return what that is in a log.

        Raises:
            UnknownTurnError: there is no such turn, nor another event of such an id that can be erased by itself.
        """
        if not self.turns and not self.threads and self.subject is None:
            found = list(unerased(transaction))
            turns = [event for event in found if event.header.topic == TURN]
            return Wanted(scope="turn", turns=turns, carrying=[event for event in found if event.header.topic != TURN])
        carrying = [] if not self.turns else [*_beside_turns(transaction, self.turns)]
        named = {event.header.id for event in carrying}
        asked = [headish for headish in self.turns or self.threads if headish.lower() not in named]
        turns = [find_turn(transaction, headish) for headish in asked]
        return Wanted(scope=self.scope, turns=turns, subject=self.subject, carrying=carrying)

    def named(self, transaction: ReadTransaction) -> Request:
        """Return the same with ids: a name can mean another turn later.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        with past_damage(transaction):
            wanted = self.wanted(transaction)
        ids = tuple(event.header.id for event in (*wanted.turns, *wanted.carrying))
        return Request(turns=ids if self.turns else (), threads=ids if self.threads else (), subject=self.subject)

    @property
    def scope(self) -> Scope:
        """Which of the three it is."""
        return "subject" if self.subject is not None else "thread" if self.threads else "turn"


def request(turn: str | Sequence[str] | None, thread: str | Sequence[str] | None, subject: str | None) -> Request:
    """Check what a caller asks to erase.

    Raises:
        MetaError: it is not exactly one of the three.
    """
    if sum(given is not None for given in (turn, thread, subject)) != 1:
        raise MetaError("erase what: give a turn, a thread or a subject, and one of them", field="turn")
    return Request(
        turns=_headishes(turn, "turn"),
        threads=_headishes(thread, "thread"),
        subject=None if subject is None else check_name(subject, field="subject"),
    )


def _beside_turns(transaction: ReadTransaction, ids: Sequence[str]) -> Iterator[Recorded]:
    """Iterate over the events of some ids that are no turns: lines of transcripts, and what is damaged or was erased.

    Where nobody can tell whether these go with a turn, somebody may know.
    """
    for event_id in filter(is_id, ids):
        event = transaction.event(event_id.lower())
        if event is None:
            continue
        topic = event.header.topic
        if is_of_format(topic) or (topic in BESIDE and (event.damaged or event.erased)):
            yield event


def _headishes(given: str | Sequence[str] | None, field: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, str | list | tuple):
        raise no_name(given, field)
    found = (given,) if isinstance(given, str) else tuple(given)
    if not found:
        raise MetaError(f"{field}: expected ids or names, got none", field=field)
    return tuple(check_headish(headish, field) for headish in found)
