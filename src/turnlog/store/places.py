"""Whether two stores are one and the same."""

from __future__ import annotations

from turnlog.store.interface import Store
from turnlog.store.urls import is_postgres

_PLACE = """\
SELECT pg_postmaster_start_time()::text, 'stored_events'::regclass::oid::bigint, current_database()::text
"""


def is_same_place(one: Store, other: Store) -> bool:
    """Tell whether two open stores have their events in the same file, or in the same table of the same server."""
    if is_postgres(one.url) != is_postgres(other.url):
        return False
    if is_postgres(one.url):
        return _table(one) == _table(other)
    return one is other if one.file is None or other.file is None else one.file.samefile(other.file)


def _table(store: Store) -> list[tuple[object, ...]]:
    with store.read() as transaction:
        return transaction.rows(_PLACE)
