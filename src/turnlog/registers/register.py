"""A register: events of one topic, of which the last one of a name holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from turnlog.errors import NotFoundError, UntrustedRegisterError
from turnlog.events import meta_of
from turnlog.model import PointerMeta, ProviderMeta, ServerMeta
from turnlog.record import EventDraft, plan_event
from turnlog.record.fields import check_bookmark_name, check_fields
from turnlog.record.secrets import refuse_secrets
from turnlog.registers.effective import effective, imported
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, Store, WriteTransaction

_M = TypeVar("_M", PointerMeta, ProviderMeta, ServerMeta)


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

    def _all(self, transaction: ReadTransaction) -> dict[str, _M]:
        """Return what holds of each name, in the order of the names."""
        found: dict[str, _M] = {}
        for recorded in effective(transaction, self._topic):
            meta = meta_of(recorded, self._kind)
            found[meta.name] = meta
        return dict(sorted(found.items()))

    def _held(self) -> dict[str, _M]:
        with self._store.read() as transaction:
            return {name: meta for name, meta in self._all(transaction).items() if meta.action != self._gone}

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

    def _write(self, meta: _M, check: Callable[[dict[str, _M]], None] | None = None) -> None:
        def wanted(found: dict[str, _M]) -> Sequence[_M]:
            if check is not None:
                check(found)
            return [meta]

        self._write_all([meta], wanted)

    def _write_all(self, metas: Sequence[_M], wanted: Callable[[dict[str, _M]], Sequence[_M]]) -> Sequence[_M]:
        """Record several together, or none of them; return those that were.

        Args:
            metas: what may be recorded.
            wanted: is given what holds of each name, and returns those of them to record.
        """
        for meta in metas:
            check_bookmark_name(meta.name, field="name")
            self._refuse_secrets(check_fields(meta, self._what))

        def plan(transaction: WriteTransaction) -> Sequence[_M]:
            chosen = wanted(self._all(transaction))
            for meta in chosen:
                plan_event(transaction, EventDraft(topic=self._topic, meta=meta), NO_PAYLOAD, self._sources)
            return chosen

        return self._store.write(plan)

    def _delete(self, meta: _M, unknown: NotFoundError) -> None:
        """Take a name away; raise what is given if nothing has it."""

        def check(found: dict[str, _M]) -> None:
            if meta.name not in found or found[meta.name].action == self._gone:
                raise unknown

        self._write(meta, check)

    def _refuse_secrets(self, meta: _M) -> None:
        refuse_secrets(msgspec.to_builtins(meta), field=self._topic)
