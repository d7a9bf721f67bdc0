"""Which model a run asks, and the way to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct

from turnlog.agent.ask import Ask, Replies
from turnlog.agent.resolve import adapter_of
from turnlog.agent.run_log import RunLog
from turnlog.errors import RunError
from turnlog.model import Options
from turnlog.providers import Connection, Provider
from turnlog.providers.keys import connect
from turnlog.providers.replay import Replay
from turnlog.registers.pointers import Pointer

DEFAULT_POINTER = "default"
"""The pointer to the model that is asked where nothing says which."""


class Named(Struct, frozen=True, kw_only=True):
    """What a caller said about the model to ask, and about the way to it. See `turnlog.agent.loop.arun`."""

    pointer: str | None = None
    provider: str | None = None
    model: str | None = None
    adapter: Provider | None = None
    connection: Connection | None = None
    replay: Replies | None = None

    @classmethod
    def of(cls, ask: Ask, *, pointer: str | None = None, provider: str | None = None, model: str | None = None) -> Self:
        """Return what a caller said of a model, with the way to it."""
        return cls(
            pointer=pointer,
            provider=provider,
            model=model,
            adapter=ask.adapter,
            connection=ask.connection,
            replay=ask.replay,
        )


class Target(Struct, frozen=True, kw_only=True):
    """A model, the adapter that speaks to it, the way to its endpoint, and the parameters of the pointer."""

    adapter: Provider
    connection: Connection
    model: str
    params: Mapping[str, Any]


def find_target(log: RunLog, named: Named, options: Options) -> Target:
    """Return the model to ask: the one that the caller named, else as `pointer_to_ask` finds it.

    Raises:
        RunError: nothing says which model, or the caller contradicts himself.
        UnknownPointerError: there is no such pointer.
        UnknownProviderError: there is no such provider, or it is disabled.
        MissingKeyError: there is no key for it.
        MissingPackageError: the package that it needs is not installed.
    """
    provider, model, params = _model(log, named, options)
    meta = log.providers.get(provider)
    adapter = named.adapter or adapter_of(meta)
    if named.replay is not None:
        adapter = Replay(adapter, named.replay)
    if named.connection is not None:
        connection = named.connection
    elif isinstance(adapter, Replay):
        connection = Connection()  # nobody is asked, so that no key is needed
    else:
        connection = connect(adapter, base_url=meta.base_url or None)
    return Target(adapter=adapter, connection=connection, model=model, params=params)


def _model(log: RunLog, named: Named, options: Options) -> tuple[str, str, Mapping[str, Any]]:
    """Return the provider's name, the model and the pointer's parameters."""
    provider = named.provider or (None if named.adapter is None else named.adapter.provider)
    if named.pointer is not None and (named.provider is not None or named.model is not None):
        raise RunError("a pointer says which provider and which model: give either the pointer or the two")
    if named.model is not None and provider is not None:
        if not named.model:
            raise RunError("the model has no name: give that of one of the provider's (`turnlog provider models`)")
        return provider, named.model, {}
    if named.model is not None or named.provider is not None:
        missing = "provider" if named.provider is None else "model"
        raise RunError(f"the {missing} is missing: give provider and model together, or a pointer")
    pointer = pointer_to_ask(log, named.pointer, options)
    if pointer is None:
        raise RunError(
            "nothing says which model to ask: give a pointer (`turnlog pointer` lists them), or provider and model; "
            f"`turnlog pointer set {DEFAULT_POINTER} PROVIDER MODEL` says which from now on"
        )
    return pointer.provider, pointer.model, pointer.params


def pointer_to_ask(log: RunLog, named: str | None, options: Options) -> Pointer | None:
    """Return the pointer to the model to ask: what the caller named, the window's option `provider_ptr`, or `default`.

    Returns:
        None where nothing says which, and there is no pointer `default`.

    Raises:
        UnknownPointerError: there is none of the name that was said.
    """
    inherited = options.get("provider_ptr")
    name = named or (inherited if isinstance(inherited, str) else None)
    if name:
        return log.pointers.get(name)
    return next((pointer for pointer in log.pointers.all() if pointer.name == DEFAULT_POINTER), None)
