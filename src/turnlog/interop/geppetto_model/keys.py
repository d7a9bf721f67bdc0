"""Typed keys, the opaque stores that they open, and the keys that everybody shares.

A key's identity is `namespace.value@vN`. A store holds plain JSON values by identity: what it holds is read and written
by keys, never by index, and each family of keys opens one kind of store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import ClassVar, Generic, Literal, Self, TypeVar, cast

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.model import JSONValue, Usage
from turnlog.model.plain import plain_json

_T = TypeVar("_T")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


class _Store:
    """Hold plain JSON values by the identities of keys."""

    def __init__(self, values: Mapping[str, JSONValue] | None = None) -> None:
        """Make a store, of a record by identities where one is given. Any text is taken for an identity.

        Raises:
            MetaError: a value is not JSON.
        """
        self._values = cast("dict[str, JSONValue]", plain_json(values or {}, type(self).__name__, MetaError))

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self._values)

    def __bool__(self) -> bool:
        """Return whether there are any values."""
        return bool(self._values)

    def __eq__(self, other: object) -> bool:
        """Tell whether another store is of the same kind and holds the same."""
        return type(other) is type(self) and self._values == cast("_Store", other)._values

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it can change

    def __repr__(self) -> str:
        """Return the store with all that it holds."""
        return f"{type(self).__name__}({self._values!r})"

    def range(self) -> Iterator[tuple[str, JSONValue]]:
        """Give each identity and a copy of its value, in the order they were first set.

        The store may be changed meanwhile.
        """
        for identity, value in [*self._values.items()]:
            yield identity, deepcopy(value)

    def clone(self) -> Self:
        """Return a store that shares nothing with this one."""
        return type(self)(self._values)

    def delete(self, key: _Key[_T]) -> None:
        """Remove the value of a key. One that is not there is left alone.

        Raises:
            MetaError: the key is for another kind of store.
        """
        key.check_store(self)
        self._values.pop(key.identity, None)

    def raw(self, identity: str) -> JSONValue:
        """Return a copy of what is held under an identity, None for nothing. Keys are the usual way."""
        return deepcopy(self._values.get(identity))

    def has(self, identity: str) -> bool:
        """Tell whether anything is held under an identity."""
        return identity in self._values

    def put(self, identity: str, value: JSONValue) -> None:
        """Hold a value under an identity, unchecked but for being JSON. Keys are the usual way.

        Raises:
            MetaError: the value is not JSON.
        """
        self._values[identity] = plain_json(value, identity, MetaError)


class Data(_Store):
    """What configures the next call of a turn. Opened by `DataKey`."""


class Metadata(_Store):
    """What is said of a turn. Opened by `TurnMetaKey`."""


class BlockMetadata(_Store):
    """What is said of a block. Opened by `BlockMetaKey`."""


class RunMetadata(_Store):
    """What is said of a run. Opened by `RunMetaKey`."""


class _Key(Generic[_T]):
    """A name with a type, for one kind of store."""

    store: ClassVar[type[_Store]]

    def __init__(self, kind: type[_T], namespace: str, value: str, version: int = 1) -> None:
        """Make a key.

        Args:
            kind: the type of its values: a plain JSON type, or a Struct.
            namespace: who defines it.
            value: its name there.
            version: the version of its values, from 1.

        Raises:
            MetaError: a name has other characters than letters, digits, `_` and `-` (a namespace also `.`), or the
                version is no number from 1.
        """
        for name, part in (("namespace", namespace), ("value", value)):
            # Dots in both would let two keys have one identity.
            if not _PART.fullmatch(part) or (name == "value" and "." in part):
                raise MetaError(f"{name}: {part!r} is no name for a key: use letters, digits, '_', '-'", field=name)
        if type(version) is not int or version < 1:
            raise MetaError(f"version: a key's versions begin with 1, got {version!r}", field="version")
        self.kind = kind
        self.identity = f"{namespace}.{value}@v{version}"

    def __repr__(self) -> str:
        """Return the family and the identity."""
        return f"{type(self).__name__}({self.identity!r})"

    def check_store(self, store: _Store) -> None:
        """Check that the key is for this kind of store.

        Raises:
            MetaError: it is for another.
        """
        if not isinstance(store, self.store):
            raise MetaError(
                f"{self.identity}: is a key for {self.store.__name__}, not for {type(store).__name__}",
                field=self.identity,
            )

    def _get(self, store: _Store) -> _T | None:
        self.check_store(store)
        return self._converted(store.raw(self.identity)) if store.has(self.identity) else None

    def _set(self, store: _Store, value: _T) -> None:
        self.check_store(store)
        try:
            builtins = msgspec.to_builtins(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise MetaError(f"{self.identity}: cannot be kept as JSON: {error}", field=self.identity) from error
        plain = plain_json(builtins, self.identity, MetaError)
        self._converted(plain)
        store.put(self.identity, plain)

    def _converted(self, value: JSONValue) -> _T:
        try:
            return msgspec.convert(value, self.kind)
        except msgspec.ValidationError as error:
            message = str(error)
            raise MetaError(f"{self.identity}: {message[:1].lower()}{message[1:]}", field=self.identity) from error


class DataKey(_Key[_T]):
    """A key for `Turn.data`."""

    store = Data

    def get(self, store: Data) -> _T | None:
        """Return the value of the key, None where there is none.

        Raises:
            MetaError: what is there is of another type, or the key is for another kind of store.
        """
        return self._get(store)

    def set(self, store: Data, value: _T) -> None:
        """Set the value of the key.

        Raises:
            MetaError: it is of another type or not JSON, or the key is for another kind of store.
        """
        self._set(store, value)


class TurnMetaKey(_Key[_T]):
    """A key for `Turn.metadata`."""

    store = Metadata

    def get(self, store: Metadata) -> _T | None:
        """Return the value of the key, None where there is none. Raises what `DataKey.get` raises."""
        return self._get(store)

    def set(self, store: Metadata, value: _T) -> None:
        """Set the value of the key. Raises what `DataKey.set` raises."""
        self._set(store, value)


class BlockMetaKey(_Key[_T]):
    """A key for `Block.metadata`."""

    store = BlockMetadata

    def get(self, store: BlockMetadata) -> _T | None:
        """Return the value of the key, None where there is none. Raises what `DataKey.get` raises."""
        return self._get(store)

    def set(self, store: BlockMetadata, value: _T) -> None:
        """Set the value of the key. Raises what `DataKey.set` raises."""
        self._set(store, value)


class RunMetaKey(_Key[_T]):
    """A key for `Run.metadata`."""

    store = RunMetadata

    def get(self, store: RunMetadata) -> _T | None:
        """Return the value of the key, None where there is none. Raises what `DataKey.get` raises."""
        return self._get(store)

    def set(self, store: RunMetadata, value: _T) -> None:
        """Set the value of the key. Raises what `DataKey.set` raises."""
        self._set(store, value)


ToolChoice = Literal["auto", "none", "required"]
"""Whether a model may, must not or must call a tool."""


class ToolConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a turn uses tools. The tools themselves are never in a turn.

    Attributes:
        enabled: whether the model is offered any.
        tool_choice: whether it may, must not or must call one.
        max_parallel_tools: how many calls run at a time, None for as many as there are.
        max_iterations: how often the model is asked again with results, None for no limit.
        execution_timeout_s: how long one call may take, None for no limit.
        allowed_tools: the names of those it is offered, None for all.
    """

    enabled: bool = False
    tool_choice: ToolChoice = "auto"
    max_parallel_tools: int | None = None
    max_iterations: int | None = None
    execution_timeout_s: float | None = None
    allowed_tools: list[str] | None = None


_NAMESPACE = "geppetto"

KEY_TOOL_CONFIG = DataKey(ToolConfig, _NAMESPACE, "tool_config")
"""How the turn uses tools."""

KEY_TRACE_ID = TurnMetaKey(str, _NAMESPACE, "trace_id")
KEY_SESSION_ID = TurnMetaKey(str, _NAMESPACE, "session_id")
KEY_INFERENCE_ID = TurnMetaKey(str, _NAMESPACE, "inference_id")
KEY_PROVIDER = TurnMetaKey(str, _NAMESPACE, "provider")
KEY_MODEL = TurnMetaKey(str, _NAMESPACE, "model")
KEY_STOP_REASON = TurnMetaKey(str, _NAMESPACE, "stop_reason")
KEY_USAGE = TurnMetaKey(Usage, _NAMESPACE, "usage")
"""Tokens of the turn's last call."""

KEY_BLOCK_PROVIDER_HINTS = BlockMetaKey(dict[str, JSONValue], _NAMESPACE, "provider_hints")
"""What a provider wants to have back with the block."""

KEY_BLOCK_MIDDLEWARE = BlockMetaKey(str, _NAMESPACE, "middleware")
"""The middleware that put the block there."""

KEY_RUN_TRACE_ID = RunMetaKey(str, _NAMESPACE, "trace_id")
