"""The keys of sealing that the environment names, which few commands need."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from turnlog.events import DataKey, Seals
from turnlog.events.sealing import Tagged

if TYPE_CHECKING:
    from turnlog.audit.seals import SealFolder

_COMMAND_VARIABLE = "TURNLOG_SEAL_COMMAND"


def environment_seals(environ: Mapping[str, str]) -> Seals:
    """Return the keys that `turnlog.audit.seals.default_seals` returns, which is imported when one is needed.

    Raises:
        SealError: the environment names a command that is none.
    """
    seals = _EnvironmentSeals(environ)
    return seals.folder if environ.get(_COMMAND_VARIABLE) else seals


def has_keys(environ: Mapping[str, str]) -> bool:
    """Tell whether there is a key of sealing where the environment says that they are.

    Raises:
        SealError: their folder cannot be read, or the environment names a command that is none.
    """
    from turnlog.audit.seals import default_seals  # noqa: PLC0415 - most logs have nothing sealed

    return bool(default_seals(environ).list_keys())


class _EnvironmentSeals:
    """`Seals`, made when they are first asked for something."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    @cached_property
    def folder(self) -> SealFolder:
        from turnlog.audit.seals import default_seals  # noqa: PLC0415 - most logs have nothing sealed

        return default_seals(self._environ)

    def get(self, key_id: str) -> DataKey | None:
        return self.folder.get(key_id)

    def of_subject(self, subject: str | None) -> DataKey | None:
        return self.folder.of_subject(subject)

    def make(self, subject: str | None) -> DataKey:
        return self.folder.make(subject)

    def ids_of(self, subject: str) -> tuple[str, ...]:
        return self.folder.ids_of(subject)

    def destroy(self, subject: str) -> tuple[str, ...]:
        return self.folder.destroy(subject)

    def tag(self, kind: Tagged, name: str) -> str:
        return self.folder.tag(kind, name)
