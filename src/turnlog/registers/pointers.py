"""Pointers: names for a provider and a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError, MetaError, UnknownPointerError
from turnlog.events import POINTER
from turnlog.model import PointerMeta
from turnlog.model.json_text import UNREADABLE
from turnlog.model.kinds import check_record, check_type
from turnlog.model.plain import plain_json
from turnlog.record.secrets import refuse_secrets
from turnlog.registers.checks import check_model
from turnlog.registers.register import Register


class Pointer(Struct, frozen=True, kw_only=True):
    """A name for a provider and a model. `params` are parameters of every call by this name."""

    name: str
    provider: str
    model: str
    params: dict[str, Any] = {}

    def __hash__(self) -> int:
        """Hash all but the parameters, so that pointers can be in sets."""
        return hash((self.name, self.provider, self.model))


class Pointers(Register[PointerMeta]):
    """Named aliases for a provider and a model. `TurnLog.pointers` is one."""

    _topic = POINTER
    _kind = PointerMeta
    _gone = "delete"
    _what = "pointer"

    def set(self, name: str, provider: str, model: str, *, params: Mapping[str, Any] | None = None) -> Pointer:
        """Set a pointer, or point it elsewhere. On return the event is on disk.

        Args:
            name: `nano`, `milli`, `kilo`, `mega`, `giga`, or any other.
            provider: a provider's name.
            model: the model, as the provider names it.
            params: parameters of every call by this pointer, such as `max_tokens`.

        Raises:
            MetaError: the name, the provider or the model cannot be one.
            SecretError: a parameter looks like a secret.
        """
        check_model(check_type(provider, str, "provider"), check_type(model, str, "model"))
        given = plain_json(check_record(params, "params"), "params", MetaError)
        refuse_secrets(given, field="params")
        text = msgspec.json.encode(given).decode()
        self._write(PointerMeta(action="set", name=name, provider=provider, model=model, params=text))
        return Pointer(name=name, provider=provider, model=model, params=dict(params or {}))

    def delete(self, name: str) -> None:
        """Delete a pointer. On return the event is on disk.

        Raises:
            UnknownPointerError: there is none of this name.
        """
        unknown = UnknownPointerError(f"no pointer {name!r}", name=name)
        self._delete(PointerMeta(action="delete", name=name), unknown)

    def get(self, name: str) -> Pointer:
        """Return a pointer.

        Raises:
            UnknownPointerError: there is none of this name.
            UntrustedRegisterError: it came with an import, and nobody has confirmed it, or it cannot be used.
        """
        meta = self._get(name)
        if meta is None or meta.action == self._gone:
            self._check_imported(name)
            there = [meta.name for meta in self._there()]
            known = f" (one of {', '.join(there)})" if there else ""
            raise UnknownPointerError(
                f"no pointer {name!r}{known}: set it with `turnlog pointer set {name} PROVIDER MODEL`", name=name
            )
        return _pointer(meta)

    def all(self) -> list[Pointer]:
        """Return all pointers, by name."""
        return [_pointer(meta) for meta in self._there()]


def _pointer(meta: PointerMeta) -> Pointer:
    return Pointer(name=meta.name, provider=meta.provider or "", model=meta.model or "", params=_parameters(meta))


def _parameters(meta: PointerMeta) -> dict[str, Any]:
    try:
        return msgspec.json.decode(meta.params, type=dict[str, Any])
    except UNREADABLE as error:
        raise CorruptionError(f"the parameters of pointer {meta.name!r} cannot be read: {error}") from error
