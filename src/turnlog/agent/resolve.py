"""From what is registered of a provider to the adapter that speaks its wire and the way to its endpoint."""

from __future__ import annotations

from turnlog import providers
from turnlog.errors import UnknownProviderError
from turnlog.model import ProviderMeta
from turnlog.providers import Connection, Provider
from turnlog.providers.keys import connect


def adapter_of(meta: ProviderMeta) -> Provider:
    """Return the adapter of a provider. One of another name than its adapter's has an adapter of its own.

    Raises:
        UnknownProviderError: there is no such adapter.
        MissingPackageError: the package that it needs is not installed.
    """
    if not meta.adapter and not meta.key_variable:
        try:
            return providers.get(meta.name)
        except UnknownProviderError as error:
            raise UnknownProviderError(
                f"{error}, nor one of your own: make one with "
                f"`turnlog provider enable {meta.name} --adapter ADAPTER --base-url URL`",
                name=meta.name,
            ) from error
    return providers.get_as(meta.adapter or meta.name, meta.name, meta.key_variable or None)


def connection_of(meta: ProviderMeta) -> Connection:
    """Return how to reach a provider.

    Raises:
        MissingKeyError: there is no key.
        UnknownProviderError: there is no such adapter.
    """
    return connect(adapter_of(meta), base_url=meta.base_url or None)
