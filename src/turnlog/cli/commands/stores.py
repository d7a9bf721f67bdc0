"""`turnlog stores`: which store is used here, and what others there are."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, write_json
from turnlog.cli.rows import when
from turnlog.cli.stores import STORE_VARIABLE, Choice, chosen_store, data_folder, is_new_store
from turnlog.cli.text import count, one_line, size
from turnlog.errors import StoreOpenError, TurnlogError
from turnlog.events.times import time_of
from turnlog.log import TurnLog
from turnlog.projections.threads import count_turns
from turnlog.store import ReadTransaction
from turnlog.store.payloads import PayloadPlacer
from turnlog.store.sqlite.connections import Connections
from turnlog.store.sqlite.errors import converted
from turnlog.store.sqlite.handles import first_bytes, unconnected
from turnlog.store.sqlite.opening import SQLITE_MAGIC, Place, look, signature, uri_of
from turnlog.store.sqlite.schema import APPLICATION_ID, OBJECTS
from turnlog.store.sqlite.store import PAYLOAD_FOLDER_SUFFIX
from turnlog.store.sqlite.transactions import SQLiteRead
from turnlog.store.urls import is_postgres, parse_url
from turnlog.web_address import without_secrets

EXIT_UNREADABLE = 1
"""Exit status where the store that is used cannot be read."""

_WAIT_S = 5.0
"""How long another process that writes is waited for."""

_APPLICATION_ID_AT = 68
"""Where a SQLite database has its application id, four bytes (SQLite, "Database File Format", §1.3)."""

_LOOKS = 3
"""How often a file is read again that somebody begins to write to meanwhile."""

_ENGINES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "memory": "in memory"}
_WHY = {
    "option": "--store says so",
    "environment": f"{STORE_VARIABLE} says so",
    "default": f"the default: neither --store nor {STORE_VARIABLE} says another",
}
_ANOTHER = f"--store sqlite:///PATH or postgresql://HOST/DATABASE, or {STORE_VARIABLE}"


class FoundStore(Struct, frozen=True, kw_only=True):
    """What is known of a store.

    Attributes:
        url: its URL, without what could be a password.
        path: its file; None where it is none.
        engine: what keeps it.
        exists: whether there is a store; None where that cannot be told.
        turns: how many turns it has.
        disk_bytes: bytes of all its files; None on a server, where they are not to be seen.
        last_recorded: time of its last event, ISO 8601 in UTC.
        problem: why it cannot be read.
    """

    url: str
    path: str | None
    engine: Literal["sqlite", "postgresql", "memory"]
    exists: bool | None = None
    turns: int | None = None
    disk_bytes: int | None = None
    last_recorded: str | None = None
    problem: str | None = None


def stores(*, common: Common = COMMON) -> int:
    """Say which store is used here and why, what is in it, and what other stores are in the data folder.

    Nothing is made or changed. With --json: one value with the chosen store, what chose it (option, environment or
    default), the data folder, and the others.

    Exit status 1 if the store that is used cannot be read.
    """
    choice = chosen_store(common.store)
    chosen = _found(choice.url)
    folder = data_folder().absolute()
    others = [*_stores_in(folder, beside=chosen.path)]
    status = 0 if chosen.problem is None else EXIT_UNREADABLE
    if common.json:
        write_json({"store": chosen, "chosen_by": choice.by, "data_folder": str(folder), "others": others})
        return status
    screen = Screen.of_stdout()
    now = datetime.now(UTC)
    screen.table([[(name, "cyan"), value] for name, value in _facts(screen, choice, chosen, now) if value], cut=False)
    if others:
        screen.line()
        screen.line((f"also in {one_line(str(folder))}", "bold"))
        screen.table([_row(screen, other, now) for other in others])
    screen.line()
    screen.line(("another", "cyan"), f"  {_ANOTHER}")
    return status


def _facts(screen: Screen, choice: Choice, found: FoundStore, now: datetime) -> list[tuple[str, str]]:
    return [
        ("store", one_line(found.path or found.url)),
        ("why", _WHY[choice.by]),
        ("engine", _ENGINES[found.engine]),
        ("there", _there(found)),
        ("turns", "" if found.turns is None else f"{found.turns:,}"),
        ("last event", _last(screen, found, now)),
        ("on disk", _on_disk(found)),
        ("problem", one_line(found.problem or "")),
    ]


def _there(found: FoundStore) -> str:
    if found.engine == "memory":
        return "for as long as a command runs"
    if found.exists:
        return ""
    if found.exists is None:
        return "cannot be told"
    return "no" if found.problem else "not yet: `turnlog add TEXT` makes it"


def _last(screen: Screen, found: FoundStore, now: datetime) -> str:
    return "" if found.last_recorded is None else when(screen, datetime.fromisoformat(found.last_recorded), now)


def _on_disk(found: FoundStore) -> str:
    if found.disk_bytes is not None:
        return size(found.disk_bytes)
    return "on a server: `turnlog stats` measures it" if found.exists and found.engine == "postgresql" else ""


def _row(screen: Screen, found: FoundStore, now: datetime) -> list[Piece]:
    return [
        f"  {one_line(Path(found.path or found.url).name)}",
        "" if found.turns is None else count(found.turns, "turn"),
        _on_disk(found),
        (_last(screen, found, now), "dim"),
        (one_line(found.problem or ""), "red"),
    ]


def _found(url: str) -> FoundStore:
    """Look at the place of a URL.

    Raises:
        StoreOpenError: the URL is malformed.
    """
    path = parse_url(url)
    if path is not None:
        return _file(path)
    shown = without_secrets(url)
    if not is_postgres(url):
        return FoundStore(url=shown, path=None, engine="memory", exists=False)
    found = FoundStore(url=shown, path=None, engine="postgresql")
    try:
        if is_new_store(url):
            return replace(found, exists=False)
        found = replace(found, exists=True)
        with TurnLog.open(_without_payloads(url), create=False) as log, log.store.read() as transaction:
            return _measured(found, transaction)
    except TurnlogError as error:
        return replace(found, problem=without_secrets(str(error)))


def _without_payloads(url: str) -> str:
    """Return a URL that does not say where large payloads are to be: a log that has no such place would take it."""
    address, _, query = url.partition("?")
    kept = "&".join(part for part in query.split("&") if not part.startswith("payloads="))
    return f"{address}?{kept}" if kept else address


def _stores_in(folder: Path, *, beside: str | None) -> Iterator[FoundStore]:
    """Yield the stores in a folder, by name, but the one that is named."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        with suppress(OSError):
            is_other = beside is None or not (Path(beside).exists() and path.samefile(beside))
            if is_other and path.is_file() and first_bytes(path, len(SQLITE_MAGIC), path) == SQLITE_MAGIC:
                found = _file(path)
                if found.exists:
                    yield found


def _file(path: Path) -> FoundStore:
    """Look at a file. Nothing is made beside it, and nothing in it is changed."""
    path = path.absolute()
    found = FoundStore(url=f"sqlite:///{quote(str(path))}", path=str(path), engine="sqlite")
    try:
        if is_new_store(found.url):
            return replace(found, exists=False)
        place = look(path, create=False)
        if not place.is_store:
            return replace(found, exists=False)
        found = replace(found, exists=True)
        return _read(replace(found, disk_bytes=_disk_bytes(place)), place)
    except (TurnlogError, OSError) as error:
        return replace(found, exists=found.exists or _is_ours(path), problem=without_secrets(str(error)))


def _is_ours(path: Path) -> bool | None:
    """Tell of a file that cannot be opened as a store whether it says that it is one; None where it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        start = first_bytes(path, _APPLICATION_ID_AT + 4, path)
    except OSError:
        return None
    return start.startswith(SQLITE_MAGIC) and start[_APPLICATION_ID_AT:] == APPLICATION_ID.to_bytes(4, "big")


def _disk_bytes(place: Place) -> int:
    path = place.path
    if path is None:
        return 0
    parts = [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]
    _, payload_bytes = PayloadPlacer(path.with_name(path.name + PAYLOAD_FOLDER_SUFFIX)).stats()
    return sum(part.stat().st_size for part in parts if part.exists()) + payload_bytes


def _read(found: FoundStore, place: Place) -> FoundStore:
    """Read a file of which nothing else is to be opened: not to bring it up to date, nor to collect what is left."""
    path = place.path
    assert path is not None
    for _ in range(_LOOKS):
        before = signature(path)
        logged = path.with_name(path.name + "-wal")
        # Where nothing is in the write-ahead log, files that coordinate readers and writers need not be made.
        with unconnected(path) as is_free, converted(str(path)):
            alone = place.immutable or (is_free and not (logged.exists() and logged.stat().st_size))
            uri = uri_of(path, f"mode=ro{'&immutable=1' if alone else ''}")
            with (
                closing(Connections(uri, path, place=str(path), busy_timeout_s=_WAIT_S, read_only=True)) as connections,
                connections.reader() as cursor,
            ):
                transaction = SQLiteRead(cursor, PayloadPlacer(None), None)
                kinds = transaction.rows(f"{OBJECTS} WHERE name = 'stored_events'")
                if not kinds or kinds[0][0] != "table":
                    raise StoreOpenError(f"store {str(path)!r} has lost its table of events: restore a backup")
                measured = _measured(found, transaction)
        if not alone or signature(path) == before:
            return measured
    return replace(found, problem="somebody writes to it: look again")


def _measured(found: FoundStore, transaction: ReadTransaction) -> FoundStore:
    last = transaction.at_global(transaction.log_end())
    return replace(
        found,
        turns=count_turns(transaction),
        last_recorded=None if last is None else time_of(last.header.time).isoformat(),
    )
