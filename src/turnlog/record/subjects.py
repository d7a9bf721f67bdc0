"""Whose a turn is that names no subject: that of the turn that it continues, also where that one is erased.

The subject of an erased turn is gone with it. What stays is whether it was another one than that of the turn before: an
erasure names the turns with which a subject began or ended. Behind these a subject has to be said.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.errors import MetaError, SealError
from turnlog.events import ERASURE, PARENT, TARGET, Recorded, meta_of, named_subject
from turnlog.model import ErasureMeta
from turnlog.store import ReadTransaction


def subject_behind(transaction: ReadTransaction, parent: Recorded | None) -> str | None:
    """Return the subject of a turn that continues another one, or (None) no turn, and names no subject itself.

    Raises:
        MetaError: the parent is erased, and nothing tells whose it was.
        SealError: it is sealed, and its key is not here.
    """
    erased: set[str] = set()
    found = parent
    while found is not None and found.erased:
        erased.add(found.header.id)
        found = _first_parent(transaction, found)
    if parent is not None and not _went_on(transaction, erased):
        raise MetaError(
            f"turn {parent.header.id!r} is erased, and with it whose it was: say whose what continues it is (--subject "
            "NAME), or that it is nobody's (--subject '', in Python subject=False); nothing was recorded",
            field="subject",
        )
    return None if found is None else _readable_subject(found)


def changes_subject(transaction: ReadTransaction, turn: Recorded, among: Mapping[str, Recorded]) -> bool:
    """Tell whether a turn that is to be erased has another subject than the one before, or may have.

    Args:
        transaction: what to read.
        turn: the turn.
        among: the events that are to be erased with it, by id.

    Raises:
        CorruptionError: what it says of its subject cannot be read.
    """
    first = turn.header.cited(PARENT)
    parent = None if first is None else among.get(first) or transaction.event(first)
    try:
        return _readable_subject(turn) != subject_behind(transaction, parent)
    except (MetaError, SealError):
        return True


def _first_parent(transaction: ReadTransaction, turn: Recorded) -> Recorded | None:
    first = turn.header.cited(PARENT)
    return None if first is None else transaction.event(first)


def _went_on(transaction: ReadTransaction, erased: set[str]) -> bool:
    """Tell whether erased turns all had the subject of the turn before them: erasures name each, and no change."""
    if not erased:
        return True
    unnamed = set(erased)
    for erasure in transaction.log(topics=[ERASURE]):
        named = erased.intersection(citation.id for citation in erasure.header.citations if citation.relation == TARGET)
        if not named:
            continue
        if erasure.unreadable or not named.isdisjoint(meta_of(erasure, ErasureMeta).subject_changes):
            return False
        unnamed -= named
    return not unnamed


def _readable_subject(turn: Recorded) -> str | None:
    """Return the subject of a turn that is not erased.

    Raises:
        MetaError: the turn is damaged.
        SealError: it cannot be read.
    """
    if turn.damaged:
        raise MetaError(f"turn {turn.header.id!r} is damaged, and nothing tells whose it is", field="subject")
    if turn.sealed is not None and turn.private is None:
        raise SealError(
            f"turn {turn.header.id!r} is sealed, and its key {turn.sealed.key!r} is not here: what continues it "
            "would have its subject. Give the keys, or the subject; nothing was recorded"
        )
    return named_subject(turn)
