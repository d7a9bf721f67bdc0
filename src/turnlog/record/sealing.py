"""Which key an event is sealed under, if any.

What `log.seal` events say holds for what is recorded after them: all of a log, or what is of a subject. And what rests
on something sealed is sealed as well. A call that goes on from a sealed turn, the reply to it, and a bookmark that is
put on one are sealed under the same key. What continues one, or is beside one, is under the key of its own subject if
that is sealed, else under that of what has no subject, so that it outlives the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from turnlog.errors import SealError
from turnlog.events import CALL, DataKey, Recorded, Seal, Seals
from turnlog.events.sealing import find_key, joined, key_ids
from turnlog.events.topics import TAGGED
from turnlog.store import NewPayload, Payload, ReadTransaction, Store, WriteTransaction
from turnlog.store.payloads import FILE_BYTES_MIN, payload_size
from turnlog.store.sealing import checked_seals


def tags_of(topic: str, private: Mapping[str, Any], seals: Seals | None) -> dict[str, str]:
    """Return the tags of a sealed event, by the private field that each stands for."""
    if seals is None:
        return {}
    kinds = TAGGED.get(topic, {})
    return {
        field: seals.tag(kind, private[field]) for field, kind in kinds.items() if isinstance(private.get(field), str)
    }


def general_key(transaction: ReadTransaction) -> DataKey | None:
    """Return the key of what is of no subject; None where it is not sealed.

    Raises:
        SealError: the keys are not here.
    """
    policy = transaction.seal_policy()
    return checked_seals(transaction).make(None) if policy is not None and policy.store else None


def turn_key(transaction: ReadTransaction, subject: str | None, rests_on: Sequence[Recorded]) -> DataKey | None:
    """Return the key of a turn of a subject that rests on other events; None where it is not sealed.

    Raises:
        SealError: the keys are not here.
    """
    policy = transaction.seal_policy()
    if policy is None:
        return key_of_sealed(transaction, rests_on)  # they are of another log
    if policy.store:
        return checked_seals(transaction).make(subject)
    if subject is not None and policy.subjects:
        seals = checked_seals(transaction)
        if seals.tag("subject", subject) in policy.subjects:
            return seals.make(subject)
    return key_beside(transaction, rests_on)


def key_beside(transaction: ReadTransaction, others: Sequence[Recorded]) -> DataKey | None:
    """Return the key of an event that is beside others, and is to outlive them; None where it is not sealed.

    Where one of them is sealed, that is the key of what has no subject: theirs can be destroyed. So it is behind a call
    that was erased before its reply came, and behind what is damaged: nothing tells any more whether that was sealed.

    Raises:
        SealError: the keys are not here.
    """
    if not any(event.sealed or event.damaged or (event.erased and event.header.topic == CALL) for event in others):
        return general_key(transaction)
    if transaction.seal_policy() is None:  # they are of another log
        return key_of_sealed(transaction, others)
    return checked_seals(transaction).make(None)


def key_after(transaction: ReadTransaction, cited: Iterable[Recorded]) -> DataKey | None:
    """Return the key of an event that says something of those that it cites; None where it is not sealed.

    Raises:
        SealError: the keys are not here.
    """
    return keys_of(transaction, [event.sealed.key for event in cited if event.sealed]) or general_key(transaction)


def key_about(transaction: ReadTransaction, concerned: Sequence[Recorded], subject: str | None) -> DataKey | None:
    """Return the key of an event that says why something is held or erased; None where it is not sealed.

    In a log of which nothing is sealed it has that of a sealed event of another log, if that is here: without it too
    such an event can be held and erased.

    Args:
        transaction: the snapshot to read from.
        concerned: the events that it is about.
        subject: the subject that it is about.

    Raises:
        SealError: the keys are not here.
    """
    if transaction.seal_policy() is None:
        with suppress(SealError):
            return key_of_sealed(transaction, concerned)
        return None
    if subject is not None:
        return checked_seals(transaction).make(None)
    return key_beside(transaction, concerned)


def key_of_sealed(transaction: ReadTransaction, events: Iterable[Recorded]) -> DataKey | None:
    """Return the key of the first of some events that is sealed; None where none is.

    Raises:
        SealError: it is not here.
    """
    for event in events:
        if event.sealed is not None:
            return key_by_id(transaction, event.sealed.key)
    return None


def keys_of(transaction: ReadTransaction, ids: Iterable[str]) -> DataKey | None:
    """Return keys by their ids, joined, for what says something of all of them; None where there is no id.

    Raises:
        SealError: one of them is not here.
    """
    single = {part for key_id in ids for part in key_ids(key_id)}
    return joined(key_by_id(transaction, part) for part in single) if single else None


def key_by_id(transaction: ReadTransaction, key_id: str) -> DataKey:
    """Return a data key.

    Raises:
        SealError: it is not here.
    """
    key = None if transaction.seals is None else find_key(transaction.seals, key_id)
    if key is None:
        raise SealError(
            f"this would be sealed under the key {key_id!r}, which is not here: nothing was recorded. If it was "
            "destroyed, begin a new thread"
        )
    return key


def sealed_under(transaction: WriteTransaction, payload: NewPayload, key: DataKey | None) -> NewPayload:
    """Return a payload sealed under a key; as it is where that is None."""
    if key is None or (payload.seal is not None and payload.seal.key == key.id):
        return payload
    return transaction.seal(payload, key)


def placed(
    store: Store,
    payload: Payload | None,
    key_of: Callable[[ReadTransaction], DataKey | None],
    *,
    is_certain: bool = True,
) -> NewPayload:
    """Make a payload ready to be appended, outside of the transaction.

    What becomes a file is sealed before it is written. What does not is sealed in the transaction, which settles the
    key.

    Args:
        store: the store.
        payload: the payload.
        key_of: returns the key that the event will have, as far as a snapshot tells.
        is_certain: whether the event has no key where this returns none. Else it is written in the transaction too.
    """
    if payload is None or payload_size(payload) < FILE_BYTES_MIN:
        return store.place(payload)
    with store.read() as transaction:
        key = key_of(transaction)
    if key is None:
        return store.place(payload, is_written=is_certain)
    return store.place(payload, Seal.new(key))
