"""Registers that came with an import: seeing them, and confirming them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError, NotFoundError
from turnlog.events import (
    POINTER,
    PROVIDER,
    REGISTERS,
    SERVER,
    TARGET,
    TRUST,
    Arrival,
    Citation,
    Recorded,
    cite,
    meta_of,
)
from turnlog.ids import parse_id
from turnlog.model import PointerMeta, ProviderMeta, ServerMeta, TrustMeta
from turnlog.model.kinds import check_texts
from turnlog.record import EventDraft, plan_event
from turnlog.registers.checks import refusal
from turnlog.registers.effective import Held, arrived, held
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, Store, WriteTransaction

_KINDS: dict[str, type[PointerMeta] | type[ProviderMeta] | type[ServerMeta]] = {
    POINTER: PointerMeta,
    PROVIDER: ProviderMeta,
    SERVER: ServerMeta,
}


class ImportedRegister(Struct, frozen=True, kw_only=True):
    """A register that came with an import and has no effect yet.

    Attributes:
        id: the id of its event.
        topic: `gpt.pointer`, `gpt.provider` or `mcp.server`.
        name: what it is registered by.
        global_position: its place in this log.
        meta: all that it says.
        refusal: why it cannot be confirmed, nor used where it was: it breaks a rule of `set`. Empty where it does not.
    """

    id: str
    topic: str
    name: str
    global_position: int
    meta: PointerMeta | ProviderMeta | ServerMeta
    refusal: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return it as plain values; `refusal` is there where it has one."""
        return {
            "id": self.id,
            "topic": self.topic,
            "name": self.name,
            "global_position": self.global_position,
            "meta": msgspec.to_builtins(self.meta),
            **({"refusal": self.refusal} if self.refusal else {}),
        }


class Registers:
    """Registers that came with imports. `TurnLog.registers` is one."""

    def __init__(self, store: Store, sources: Sources) -> None:
        """Take the parts of a log."""
        self._store = store
        self._sources = sources

    def imported(self) -> list[ImportedRegister]:
        """Return the registers that came with an import and were not confirmed: of each name the last event."""
        with self._store.read() as transaction:
            return list(_last(transaction).values())

    def unusable(self) -> list[ImportedRegister]:
        """Return the registers that were confirmed and cannot be used: no list has them, and getting one says why."""
        found: list[ImportedRegister] = []
        with self._store.read() as transaction:
            for topic in REGISTERS:
                holding = held(transaction, topic, lambda event: _imported(event).name, Held())
                guests = [event for event in holding.events.values() if event.arrival != Arrival.RECORDED]
                found += [register for register in map(_imported, guests) if register.refusal]
        return found

    def trust(self, ids: Sequence[str]) -> list[ImportedRegister]:
        """Confirm registers that came with an import: from here on they have effect. On return it is on disk.

        Args:
            ids: ids of their events, as `imported` lists them. Show each in full to the person who confirms it.

        Raises:
            NotFoundError: an id is not that of such a register.
            MetaError: an id is malformed, or the register breaks a rule of `set`; nothing was confirmed.
        """
        wanted = list(dict.fromkeys(parse_id(given) for given in check_texts(ids, "ids", "['03…']")))
        if not wanted:
            return []

        def plan(transaction: WriteTransaction) -> list[ImportedRegister]:
            citations: list[Citation] = []
            confirmed: list[ImportedRegister] = []
            for event_id in wanted:
                recorded = transaction.event(event_id)
                if recorded is None or recorded.header.topic not in REGISTERS or recorded.unreadable:
                    raise NotFoundError(f"no register {event_id!r}: `turnlog registers` lists them")
                if recorded.arrival == Arrival.RECORDED:
                    raise NotFoundError(
                        f"register {event_id!r} was recorded here: it has effect without being confirmed"
                    )
                register = _imported(recorded)
                if register.refusal:
                    raise MetaError(f"{register.name!r} cannot be confirmed: {register.refusal}", field="ids")
                citations.append(cite(recorded, TARGET))
                confirmed.append(register)
            plan_event(transaction, EventDraft(topic=TRUST, meta=TrustMeta()), NO_PAYLOAD, self._sources, citations)
            return confirmed

        return self._store.write(plan)


def _last(transaction: ReadTransaction) -> dict[tuple[str, str], ImportedRegister]:
    found: dict[tuple[str, str], ImportedRegister] = {}
    for recorded, is_confirmed in arrived(transaction, REGISTERS):
        register = _imported(recorded)
        found.pop((register.topic, register.name), None)
        if not is_confirmed:  # else what came before it has been replaced by it
            found[register.topic, register.name] = register
    return {key: register for key, register in found.items() if register.meta.action != "delete"}


def _imported(recorded: Recorded) -> ImportedRegister:
    meta = meta_of(recorded, _KINDS[recorded.header.topic])
    return ImportedRegister(
        id=recorded.header.id,
        topic=recorded.header.topic,
        name=meta.name,
        global_position=recorded.global_position,
        meta=meta,
        refusal=refusal(meta),
    )
