"""Setting legal holds, and releasing them: `TurnLog.holds`."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.audit.asking import request
from turnlog.audit.holds import Hold, holds
from turnlog.errors import HoldError
from turnlog.events import HOLD, TARGET, cite
from turnlog.model import HoldMeta
from turnlog.model.kinds import check_kind, check_type
from turnlog.record import EventDraft, Redaction, find_turn, plan_event
from turnlog.record.fields import check_name
from turnlog.record.redaction import NOTHING
from turnlog.record.sealing import key_about, key_beside
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, Store, WriteTransaction, past_damage


class Holds:
    """Legal holds: what must not be erased. `TurnLog.holds` is one."""

    def __init__(self, store: Store, sources: Sources, redaction: Redaction = NOTHING) -> None:
        """Take the parts of a log."""
        self._store = store
        self._sources = sources
        self._redaction = redaction

    def all(self) -> list[Hold]:
        """Return the holds that are set, in the order in which they were."""
        with self._store.read() as transaction:
            return [hold for hold, _ in holds(transaction).values()]

    def get(self, name: str) -> Hold:
        """Return a hold that is set.

        Raises:
            MetaError: the name is no text.
            HoldError: there is none of this name.
        """
        check_kind(name, str, "name")
        with self._store.read() as transaction:
            found = holds(transaction).get(name)
        if found is None:
            raise _unknown(name)
        return found[0]

    def set(
        self,
        name: str,
        *,
        turn: str | Sequence[str] | None = None,
        thread: str | Sequence[str] | None = None,
        subject: str | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> Hold:
        """Set a legal hold: what it holds cannot be erased until it is released. On return it is on disk.

        It also holds what carries the content of these turns, and what is added to the threads or to the subject later.

        Args:
            name: the hold.
            turn: turns, by id or bookmark.
            thread: all turns of the threads that these turns belong to.
            subject: all turns of a subject.
            reason: why. Whoever is refused is told.
            by: who asked for it.

        Raises:
            MetaError: not exactly one of turn, thread and subject is given, or a name is malformed.
            SecretError: a redaction hook finds something in a name or a text.
            RedactionError: a redaction hook failed.
            UnknownTurnError: there is no such turn.
            HoldError: there is a hold of this name.
        """
        asked = request(turn, thread, subject)
        self._refuse(name=name, subject=subject, reason=reason, by=by)
        meta = HoldMeta(
            action="set",
            name=check_name(name, field="name"),
            scope=asked.scope,
            subject=asked.subject,
            reason=_text(reason, "reason"),
            by=_text(by, "by"),
        )

        def plan(transaction: WriteTransaction) -> Hold:
            if name in holds(transaction):
                raise HoldError(f"there is a hold {name!r} already: release it first, or choose another name")
            with past_damage(transaction):
                named = [find_turn(transaction, headish) for headish in asked.turns or asked.threads]
            found = {turn.header.id: turn for turn in named}
            citations = [cite(turn, TARGET) for turn in found.values()]
            key = key_about(transaction, [*found.values()], asked.subject)
            plan_event(transaction, EventDraft(topic=HOLD, meta=meta), NO_PAYLOAD, self._sources, citations, key=key)
            return holds(transaction)[name][0]

        return self._store.write(plan)

    def release(self, name: str, *, reason: str | None = None, by: str | None = None) -> None:
        """Release a legal hold. On return it is on disk. One whose event is damaged is named by the id of that.

        Raises:
            MetaError: the name or a text is none.
            SecretError: a redaction hook finds something in a text.
            RedactionError: a redaction hook failed.
            HoldError: there is no such hold.
        """
        self._refuse(reason=reason, by=by)
        check_kind(name, str, "name")
        meta = HoldMeta(action="release", name=name, reason=_text(reason, "reason"), by=_text(by, "by"))

        def plan(transaction: WriteTransaction) -> None:
            found = holds(transaction)
            if name not in found:
                raise _unknown(name)
            # Which one is released is in what is signed: the event cites what it releases.
            released = found[name][1]
            draft = EventDraft(topic=HOLD, meta=meta)
            key = key_beside(transaction, [released])
            plan_event(transaction, draft, NO_PAYLOAD, self._sources, [cite(released, TARGET)], key=key)

        self._store.write(plan)

    def _refuse(self, **texts: str | None) -> None:
        given = {field: text for field, text in texts.items() if isinstance(text, str)}
        if given:
            self._redaction.refuse(HOLD, given)


def _text(given: str | None, field: str) -> str | None:
    return None if given is None else check_type(given, str, field)


def _unknown(name: str) -> HoldError:
    return HoldError(f"there is no hold {name!r}: `turnlog hold list` lists them")
