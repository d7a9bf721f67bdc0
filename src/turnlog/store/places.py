"""Whether two stores are one and the same."""

from __future__ import annotations

from turnlog.store.interface import Store
from turnlog.store.urls import is_postgres, parse_url

_PLACE = """\
SELECT pg_postmaster_start_time()::text, 'stored_events'::regclass::oid::bigint, current_database()::text
"""


def is_same_place(one: Store, other: Store) -> bool:
    """Tell whether two open stores have their events in the same file, or in the same table of the same server."""
    if is_postgres(one.url) != is_postgres(other.url):
        return False
    if is_postgres(one.url):
        return _table(one) == _table(other)
    path, other_path = parse_url(one.url), parse_url(other.url)
    return one is other if path is None or other_path is None else path.samefile(other_path)


def _table(store: Store) -> list[tuple[object, ...]]:
    with store.read() as transaction:
        return transaction.rows(_PLACE)
