"""A register: events of one topic, of which the last one of a name holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec

from turnlog.errors import NotFoundError, UntrustedRegisterError
from turnlog.events import Arrival, Recorded, meta_of
from turnlog.model import PointerMeta, ProviderMeta, ServerMeta
from turnlog.model.kinds import check_fields, check_kind
from turnlog.record import EventDraft, plan_event
from turnlog.record.fields import check_bookmark_name
from turnlog.record.secrets import refuse_secrets
from turnlog.registers.checks import refusal
from turnlog.registers.effective import Held, held, imported
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, Store, WriteTransaction

_M = TypeVar("_M", PointerMeta, ProviderMeta, ServerMeta)

_Look = Callable[[str], _M | None]


class Register(Generic[_M]):
    """Events of one topic, of which the last one of a name holds."""

    _topic: str
    _kind: type[_M]
    _gone: str
    """The action that takes a name away."""
    _what: str
    """What one of them is called, in errors."""

    def __init__(self, store: Store, sources: Sources) -> None:
        """Take the parts of a log."""
        self._store = store
        self._sources = sources
        self._known = Held()

    def _held(self) -> Mapping[str, Recorded]:
        """Return the event that holds of each name, in no order. It is read once, and later what has come since."""
        with self._store.read() as transaction:
            known = self._held_in(transaction)
        if known.is_final:
            self._known = known
        return known.events

    def _held_in(self, transaction: ReadTransaction) -> Held:
        # Nothing that a write transaction shows is kept: it may come to nothing.
        return held(transaction, self._topic, lambda event: self._meta(event).name, self._known)

    def _meta(self, event: Recorded) -> _M:
        return meta_of(event, self._kind)

    def _get(self, name: str) -> _M | None:
        """Return what was last said of a name; None where nothing was.

        Raises:
            UntrustedRegisterError: it came with an import, and cannot be used.
        """
        event = self._held().get(check_kind(name, str, "name"))
        if event is None:
            return None
        if why := self._refusal(event):
            raise UntrustedRegisterError(
                f"{self._what} {name!r} came with an import, and cannot be used: {why}", name=name
            )
        return self._meta(event)

    def _refusal(self, event: Recorded) -> str:
        """Return why an event cannot be used that came with an import, whoever has confirmed it; empty for others."""
        return "" if event.arrival == Arrival.RECORDED else refusal(self._meta(event))

    def _said(self, events: Mapping[str, Recorded], name: str) -> _M | None:
        event = events.get(name)
        return None if event is None else self._meta(event)

    def _all(self) -> list[_M]:
        """Return what was last said of each name, in the order of the names, without what cannot be used."""
        return [self._meta(event) for _, event in sorted(self._held().items()) if not self._refusal(event)]

    def _there(self) -> list[_M]:
        """Return the same without what was taken away."""
        return [meta for meta in self._all() if meta.action != self._gone]

    def _check_imported(self, name: str) -> None:
        """Say so where a name is known only from an import that nobody has confirmed.

        Raises:
            UntrustedRegisterError: it is.
        """
        with self._store.read() as transaction:
            names = {meta_of(recorded, self._kind).name for recorded in imported(transaction, [self._topic])}
        if name in names:
            raise UntrustedRegisterError(
                f"{name!r} came with an import and has no effect yet: see it with `turnlog registers`, "
                "and confirm it with `turnlog registers trust`",
                name=name,
            )

    def _write(self, meta: _M) -> None:
        self._write_all([meta])

    def _write_all(
        self, metas: Sequence[_M], wanted: Callable[[_Look[_M]], Sequence[_M]] | None = None
    ) -> Sequence[_M]:
        """Record several together, or none of them; return those that were.

        Args:
            metas: what may be recorded.
            wanted: is given what tells what was last said of a name, None where nothing was, and returns those of them
                to record; None for all, whatever was said.
        """
        for meta in metas:
            checked = check_fields(meta, self._kind, self._what)
            check_bookmark_name(checked.name, field="name")
            self._refuse_secrets(checked)
        if wanted is not None:
            self._held()  # so that little is left to read while others wait

        def plan(transaction: WriteTransaction) -> Sequence[_M]:
            chosen = metas if wanted is None else wanted(partial(self._said, self._held_in(transaction).events))
            for meta in chosen:
                plan_event(transaction, EventDraft(topic=self._topic, meta=meta), NO_PAYLOAD, self._sources)
            return chosen

        return self._store.write(plan)

    def _delete(self, meta: _M, unknown: NotFoundError) -> None:
        """Take a name away; raise what is given if nothing has it."""

        def wanted(look: _Look[_M]) -> Sequence[_M]:
            found = look(meta.name)
            if found is None or found.action == self._gone:
                raise unknown
            return [meta]

        self._write_all([meta], wanted)

    def _refuse_secrets(self, meta: _M) -> None:
        refuse_secrets(msgspec.to_builtins(meta), field=self._topic)
