"""The metadata of events about the log itself: `log.genesis`, `log.trust` and `gpt.erasure`."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class GenesisMeta(Struct, frozen=True, kw_only=True):
    """The metadata of `log.genesis`, the first event of a log: there is none. Its id is the log's identity."""


class TrustMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `log.trust` event: registers that came with an import, and that a person has confirmed.

    Attributes:
        targets: ids of their events.
    """

    targets: tuple[str, ...] = ()


class ErasureMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.erasure` event: events whose private parts and payloads are gone.

    Attributes:
        targets: ids of the events.
        reason: why.
        by: who asked for it.
    """

    targets: tuple[str, ...] = ()
    reason: str | UnsetType = UNSET
    by: str | UnsetType = UNSET
