"""Providers: which may be called, and where they are."""

from __future__ import annotations

import msgspec

from turnlog.errors import UnknownProviderError
from turnlog.events import PROVIDER, Recorded
from turnlog.model import ProviderMeta
from turnlog.model.kinds import check_kind, check_type
from turnlog.model.names import ADAPTERS
from turnlog.providers import names
from turnlog.registers.addresses import check_url
from turnlog.registers.register import Register


class Providers(Register[ProviderMeta]):
    """Which providers may be called, and where they are. `TurnLog.providers` is one.

    A provider that was never named here may be called as it is. `openai` is another name of `openai_chat`.
    """

    _topic = PROVIDER
    _kind = ProviderMeta
    _gone = "disable"
    _what = "provider"

    def _meta(self, event: Recorded) -> ProviderMeta:
        # An import has it as it was named there, which need not be as it is named here.
        meta = super()._meta(event)
        return msgspec.structs.replace(meta, name=ADAPTERS.get(meta.name, meta.name))

    def set(
        self, name: str, *, adapter: str | None = None, base_url: str | None = None, key_variable: str | None = None
    ) -> ProviderMeta:
        """Say where a provider is, and allow calls to it from now on. On return the event is on disk.

        Nothing is asked of the provider.

        Args:
            name: the provider's name: that of an adapter, or any other with `adapter`.
            adapter: the adapter that speaks its wire.
            base_url: another endpoint than the adapter's own.
            key_variable: the environment variable that holds the key.

        Raises:
            MetaError: the base URL is none.
            SecretError: the base URL has what looks like a secret in it.
        """
        if base_url is not None:
            check_url(check_type(base_url, str, "base_url"), field="base_url")
        meta = ProviderMeta(
            action="enable",
            name=_known_as(name),
            adapter=adapter,
            base_url=base_url,
            key_variable=key_variable,
        )
        self._write(meta)
        return meta

    def disable(self, name: str) -> None:
        """Refuse calls to a provider from now on. On return the event is on disk."""
        self._write(ProviderMeta(action="disable", name=_known_as(name)))

    def get(self, name: str) -> ProviderMeta:
        """Return what was last said of a provider; for one that was never named, that it may be called as it is.

        Raises:
            UnknownProviderError: it was disabled.
            UntrustedRegisterError: it is known only from an import that nobody has confirmed, or cannot be used.
        """
        known_as = _known_as(name)
        meta = self._get(known_as)
        if meta is None and known_as not in names():
            self._check_imported(name)
        if meta is not None and meta.action == self._gone:
            raise UnknownProviderError(
                f"provider {name!r} is disabled: allow it with `turnlog provider enable {name}`", name=name
            )
        return meta or ProviderMeta(action="enable", name=known_as)

    def all(self) -> list[ProviderMeta]:
        """Return what was last said of each provider, by name, the disabled ones included."""
        return self._all()


def _known_as(name: str) -> str:
    """Return the name that a provider is recorded by."""
    text = check_kind(name, str, "name")
    return ADAPTERS.get(text, text)
