"""The metadata of events about the log itself: `log.genesis`, `log.trust`, `gpt.erasure` and `gpt.hold`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


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
        subject_changes: ids of the turns among them that had another subject than the turn that they continue, or may
            have had.
    """

    targets: tuple[str, ...] = ()
    reason: str | None = None
    by: str | None = None
    subject_changes: tuple[str, ...] = ()


class HoldMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.hold` event: what must not be erased, until the hold is released.

    Attributes:
        action: `set` or `release`.
        name: the hold.
        scope: what is held: the turns that are cited, the threads that they belong to, or all of a subject.
        subject: the subject.
        targets: ids of the turns.
        reason: why.
        by: who asked for it.
    """

    action: Literal["set", "release"]
    name: str
    scope: Literal["turn", "thread", "subject"] | None = None
    subject: str | None = None
    targets: tuple[str, ...] = ()
    reason: str | None = None
    by: str | None = None


class SealMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `log.seal` event: what is recorded sealed from here on.

    Attributes:
        scope: all of the log, or what is of a subject.
        keys: a tag that tells the keys that seal from all others.
        tag: what stands for the subject.
        subject: the subject. It stands sealed in the event.
        by: who asked for it.
    """

    scope: Literal["store", "subject"]
    keys: str
    tag: str | None = None
    subject: str | None = None
    by: str | None = None
