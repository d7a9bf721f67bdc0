"""What is recorded sealed in a log, as its `log.seal` events say, and whether the keys that are here are those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError, SealError
from turnlog.events import Recorded, Seals
from turnlog.store.transactions import ReadTransaction
from turnlog.store.values import SealPolicy


class _Public(Struct, frozen=True):
    """The public metadata of a `log.seal` event."""

    scope: Literal["store", "subject"]
    keys: str
    tag: str | None = None


_public = msgspec.json.Decoder(_Public)


def seal_policy(said: Sequence[Recorded]) -> SealPolicy | None:
    """Return what is recorded sealed once these `log.seal` events are; None without any.

    Raises:
        CorruptionError: one cannot be read.
    """
    try:
        metas = [_public.decode(recorded.header.meta) for recorded in said]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"what is recorded sealed cannot be read ({error}): run `turnlog verify`") from error
    if not metas:
        return None
    return SealPolicy(
        keys=frozenset(meta.keys for meta in metas),
        store=any(meta.scope == "store" for meta in metas),
        subjects=frozenset(meta.tag for meta in metas if isinstance(meta.tag, str)),
    )


def has_keys(transaction: ReadTransaction) -> bool:
    """Tell whether the keys that the log is sealed with are here."""
    try:
        checked_seals(transaction)
    except SealError:
        return False
    return True


def checked_seals(transaction: ReadTransaction) -> Seals:
    """Return the keys that are here, if they are those that the log is sealed with.

    Raises:
        SealError: they are not, or there are none.
    """
    seals, policy = transaction.seals, transaction.seal_policy()
    if seals is None:
        raise SealError("this log is sealed, and its keys are not here: open it with `seals=`")
    if policy is not None and seals.tag("keys", "") not in policy.keys:
        raise SealError("the keys that are here are not those that this log is sealed with: give it its own")
    return seals
