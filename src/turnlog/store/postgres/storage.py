"""Which storage has the large payloads of a log, and the objects there that an erasure has still to remove.

An object is written before its event is appended, and looked for once more by the transaction that appends it, which
holds the log's gate. Who removes objects holds the gate alone, and looks before whether an event needs them: so none is
removed that an append rests on, and one that was is written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from secrets import token_hex

from turnlog.errors import StoreError
from turnlog.store.objects import Objects
from turnlog.store.postgres.catalog import Connection, query
from turnlog.store.postgres.transactions import PostgresWrite
from turnlog.store.rows import IN_FILES
from turnlog.store.transactions import ReadTransaction, SideTables
from turnlog.store.values import Placement

STORAGE = SideTables(
    name="payload storage",
    tables=("payload_storage", "payloads_condemned"),
    schema=(
        "CREATE TABLE payload_storage (one INTEGER PRIMARY KEY, url TEXT NOT NULL)",
        "CREATE TABLE payloads_condemned (name TEXT PRIMARY KEY)",
    ),
)

_PLACE, _MARK = 1, 2
"""Which row of the table has which."""

BATCH = 50
"""Objects that are removed while nobody else can append."""

_HASH_DIGITS = 64
_OF_A_PAYLOAD = "name ~ '^[0-9a-f]{64}(\\.zst){0,1}$'"


def remembered(connection: Connection) -> tuple[str | None, str | None]:
    """Return the place of the large payloads of a log, None where they stand beside their events, and its mark there.

    A log that has had its place since before there were marks has none until something is removed there.
    """
    if query(connection, "SELECT to_regclass('payload_storage')") == [(None,)]:
        return None, None
    noted = {row[0]: str(row[1]) for row in query(connection, "SELECT one, url FROM payload_storage")}
    return noted.get(_PLACE), noted.get(_MARK)


def remember(transaction: PostgresWrite, url: str) -> None:
    """Note the place of the large payloads of a log and a mark for it there, unless they are noted."""
    for key, text in ((_PLACE, url), (_MARK, token_hex(16))):
        transaction.run("INSERT INTO payload_storage VALUES (?, ?) ON CONFLICT DO NOTHING", (key, text))


def condemn(transaction: PostgresWrite, files: Iterable[tuple[bytes, Placement]]) -> None:
    """Note objects to be removed, in the transaction after which no event needs them."""
    for payload_hash, placement in files:
        name = _name(payload_hash, placement)
        transaction.run("INSERT INTO payloads_condemned VALUES (?) ON CONFLICT DO NOTHING", (name,))


def condemned(transaction: ReadTransaction) -> list[str]:
    """Return the names of the next objects that are to be removed."""
    if not transaction.has(STORAGE):
        return []
    return [
        str(name)
        for (name,) in transaction.rows(
            f"SELECT name FROM payloads_condemned WHERE {_OF_A_PAYLOAD} ORDER BY name LIMIT ?", (BATCH,)
        )
    ]


def misnamed(transaction: ReadTransaction) -> list[str]:
    """Return names among those of objects to be removed that no payload can have. Somebody else put them there."""
    if not transaction.has(STORAGE):
        return []
    rows = transaction.rows(
        f"SELECT name FROM payloads_condemned WHERE NOT {_OF_A_PAYLOAD} ORDER BY name LIMIT ?", (BATCH,)
    )
    return [str(name) for (name,) in rows]


def remove_condemned(transaction: PostgresWrite, objects: Objects | None) -> int:
    """Remove the next objects that are to be removed and that no event needs, and return how many that were.

    Names that no payload can have are forgotten, also where there is no storage.

    Raises:
        StoreError: the storage does not do it.
    """
    removed = 0
    if misnamed(transaction):
        transaction.run(f"DELETE FROM payloads_condemned WHERE NOT {_OF_A_PAYLOAD}")
    if objects is None:
        return removed
    for name in condemned(transaction):
        if not _is_needed(transaction, name):
            objects.remove(name)
            removed += 1
        transaction.run("DELETE FROM payloads_condemned WHERE name = ?", (name,))
    return removed


def remove_orphans(transaction: PostgresWrite, objects: Objects, names: Sequence[str]) -> None:
    """Remove objects, of those that no event needs.

    Raises:
        StoreError: the storage does not do it.
    """
    for name in names:
        if not _is_needed(transaction, name):
            objects.remove(name)


def orphans(transaction: ReadTransaction, objects: Objects) -> list[str]:
    """Return the names of objects that no event needs, and that are too old to be on their way.

    Raises:
        StoreError: the storage does not answer.
    """
    return [
        listed.name
        for listed in objects.listed()
        if listed.name is not None and listed.is_old and not _is_needed(transaction, listed.name)
    ]


def sizes_of_needed(transaction: ReadTransaction, objects: Objects) -> list[int]:
    """Return the sizes of the objects that events need, in bytes.

    Raises:
        StoreError: the storage does not answer.
    """
    rows = transaction.rows(f"SELECT DISTINCT payload, payload_placement FROM stored_events WHERE {IN_FILES}")
    needed = {_name(payload_hash, placement) for payload_hash, placement in rows}
    return [found.size for found in objects.listed() if found.name in needed] if needed else []


def strays(transaction: ReadTransaction, objects: Objects) -> Iterator[str]:
    """Iterate over what is in the storage and belongs to no event, one line each. What may be on its way is left out.

    Raises:
        StorageError: the storage does not answer.
    """
    if objects.is_anothers():
        yield f"payload objects in {objects.url} are of more than one log: give each a prefix of its own"
        return
    erased = set(condemned(transaction))
    for path, name, _, is_old in objects.listed():
        if name is None:
            yield f"payload object {path} in {objects.url} is none of turnlog's"
        elif (is_old or name in erased) and not _is_needed(transaction, name):
            yield f"payload object {path} in {objects.url} belongs to no event: `turnlog erase --finish` removes it"


def not_removed(objects: Objects | None, elsewhere: str, error: StoreError | None) -> str:
    """Return why payloads that were erased are still objects, and what to do, one line."""
    if objects is None:
        return (
            f"payloads of it are still objects in {elsewhere!r}: add payloads={elsewhere} to the store's URL and run "
            "`turnlog erase --finish`"
        )
    return f"payloads of it are still objects ({error}): run `turnlog erase --finish`"


def _name(payload_hash: bytes, placement: int) -> str:
    return payload_hash.hex() + (".zst" if placement == Placement.FILE_ZSTD else "")


def _is_needed(transaction: ReadTransaction, name: str) -> bool:
    placement = Placement.FILE_ZSTD if name.endswith(".zst") else Placement.FILE
    return transaction.has_file(bytes.fromhex(name[:_HASH_DIGITS]), placement)
