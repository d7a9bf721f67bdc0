"""What the edits of the tamper matrix are made of: changes of rows, events, payloads, files, requests and schemas."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from tests.faults.hostile import (
    Bytes,
    Change,
    citation_of,
    header_of,
    insert,
    opened,
    payload_file,
    payload_of,
    rewrite,
    run_sql,
    run_sql_as_it_is,
)
from tests.faults.rich_store import AT, NOISE, fixed_sources

from turnlog import TurnLog
from turnlog.digest import payload_hash
from turnlog.events import ERASURE, TARGET, cite
from turnlog.ids import derived_id
from turnlog.model import ErasureMeta
from turnlog.record import EventDraft, plan_event
from turnlog.record.calls import find_call, read_kept, split_kept
from turnlog.record.requests import request_payload
from turnlog.store import NO_PAYLOAD


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change of a store behind turnlog's back.

    Attributes:
        name: what it is.
        kind: what it is done to.
        apply: does it to the store in a file.
        finds: a part of what is said of it; None where it is out of reach.
        why: why it is.
    """

    name: str
    kind: str
    apply: Callable[[Path], object]
    finds: str | None = None
    why: str | None = None


def column(name: str, columns: str, value: str) -> Callable[[Path], None]:
    """Set one column of the row of an event to an expression of SQL."""
    return lambda path: run_sql(
        path, f"UPDATE stored_events SET {columns} = {value} WHERE notification_id = {AT[name]}"
    )


def rewritten(
    name: str,
    *,
    header: Change | None = None,
    private: Change | None = None,
    payload: Bytes | bytes | None = None,
    state: Bytes | None = None,
    part: Bytes | None = None,
    follow: bool = False,
) -> Callable[[Path], None]:
    """Rewrite an event, consistently in itself."""
    return lambda path: rewrite(
        path, AT[name], header=header, private=private, payload=payload, state=state, part=part, follow=follow
    )


def cites(name: str, relation: str, cited: str, *, nth: int = 0) -> Callable[[Path], None]:
    """Let an event cite another one as something, in the place of what it cites so, with the right digest."""

    def apply(path: Path) -> None:
        citation = citation_of(path, AT[cited], relation)

        def change(header: dict[str, Any]) -> None:
            places = [at for at, found in enumerate(header["citations"]) if found["as"] == relation]
            header["citations"][places[nth]] = citation

        rewrite(path, AT[name], header=change)

    return apply


def without(name: str, relation: str) -> Callable[[Path], None]:
    """Take the citations as something away from an event."""

    def change(header: dict[str, Any]) -> None:
        header["citations"] = [found for found in header["citations"] if found["as"] != relation]

    return rewritten(name, header=change)


def also_cites(name: str, relation: str, cited: str) -> Callable[[Path], None]:
    """Let an event cite one more."""
    return lambda path: rewrite(
        path, AT[name], header=lambda header: header["citations"].append(citation_of(path, AT[cited], relation))
    )


def public(**changes: Any) -> Change:
    """Change public metadata. None takes a field away."""
    return lambda header: merge(header["meta"], changes)


def private(**changes: Any) -> Change:
    """Change private metadata. None takes a field away."""
    return lambda private: merge(private.setdefault("meta", {}), changes)


def merge(record: dict[str, Any], changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        if value is None:
            record.pop(name, None)
        else:
            record[name] = value


def update(**changes: Any) -> Change:
    """Change keys of a header or of a private part."""
    return lambda record: record.update(changes)


def parts(change: Callable[[list[Any], bytes], tuple[list[Any], bytes]]) -> Bytes:
    """Change what a request is made of: its parts and its literal bytes."""

    def changed(payload: bytes) -> bytes:
        line, _, literals = payload.partition(b"\n")
        header = msgspec.json.decode(line)
        header["parts"], literals = change(header["parts"], literals)
        return msgspec.json.encode(header) + b"\n" + literals

    return changed


def frame(make: Callable[[bytes], bytes], name: str = "third") -> Callable[[Path], None]:
    """Keep a payload beside its event as other bytes that pass for a Zstandard frame of it."""

    def apply(path: Path) -> None:
        stored = make(payload_of(path, AT[name]))
        with opened(path) as connection:
            connection.execute(
                "UPDATE stored_events SET payload_placement = 2, payload = ? WHERE notification_id = ?",
                (stored, AT[name]),
            )

    return apply


def of_file(change: Callable[[Path], object], name: str = "noise") -> Callable[[Path], None]:
    """Change the file of a payload."""
    return lambda path: change(payload_file(path, AT[name]))


def flipped(content: bytes, at: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1
    return bytes(changed)


def in_folder(name: str) -> Callable[[Path], None]:
    """Put a file into the payload folder."""

    def apply(path: Path) -> None:
        file = path.with_name(path.name + "-payloads") / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"of no event")

    return apply


def replaced(file: Path, make: Callable[[Path], object]) -> None:
    file.unlink()
    make(file)


def renumbered(path: Path, order: list[int]) -> None:
    """Give events other global positions: the first of the list the first one, and so on."""
    with opened(path) as connection:
        for at in order:
            connection.execute(
                "UPDATE stored_events SET notification_id = -notification_id WHERE notification_id = ?", (at,)
            )
        for new, at in enumerate(order, 1):
            connection.execute("UPDATE stored_events SET notification_id = ? WHERE notification_id = ?", (new, -at))


def removed(path: Path, name: str) -> None:
    """Remove an event, and let those behind it close the gap."""
    with opened(path) as connection:
        connection.execute("DELETE FROM stored_events WHERE notification_id = ?", (AT[name],))
        connection.execute(
            "UPDATE stored_events SET notification_id = -notification_id WHERE notification_id > ?", (AT[name],)
        )
        connection.execute("UPDATE stored_events SET notification_id = -notification_id - 1 WHERE notification_id < 0")


def table_anew(change: Callable[[str], str]) -> Callable[[Path], None]:
    """Make the table of the log anew from a changed statement, with all its rows, indexes and triggers."""

    def apply(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            objects = connection.execute(
                "SELECT type, sql FROM sqlite_master WHERE tbl_name = 'stored_events' AND sql IS NOT NULL"
            ).fetchall()
            [table] = [sql for kind, sql in objects if kind == "table"]
            connection.execute("BEGIN")
            connection.execute("CREATE TABLE kept AS SELECT * FROM stored_events")
            connection.execute("DROP TABLE stored_events")
            connection.execute(change(table))
            connection.execute("INSERT INTO stored_events SELECT * FROM kept")
            connection.execute("DROP TABLE kept")
            for kind, sql in objects:
                if kind != "table":
                    connection.execute(sql)
            connection.execute("COMMIT")

    return apply


def then(*steps: Callable[[Path], object]) -> Callable[[Path], None]:
    """Do one thing after the other."""

    def apply(path: Path) -> None:
        for step in steps:
            step(path)

    return apply


def sql(*statements: str) -> Callable[[Path], None]:
    return lambda path: run_sql(path, *statements)


def schema(*statements: str) -> Callable[[Path], None]:
    return lambda path: run_sql_as_it_is(path, *statements)


def copied(path: Path, *, at: str, event_id: str) -> None:
    """Append a copy of an event: its own bytes, with other columns beside them where they must be unique."""
    run_sql(
        path,
        "INSERT INTO stored_events (originator_id, originator_version, topic, state, event_id, leaf_hash, arrival,"
        f" private, payload_placement, payload) SELECT {at}, topic, state, {event_id}, leaf_hash, arrival, private,"
        f" payload_placement, payload FROM stored_events WHERE notification_id = {AT['lonely']}",
    )


def without_uniqueness(statement: str) -> str:
    return statement.replace("TEXT NOT NULL UNIQUE", "TEXT NOT NULL").replace(
        ",\n  UNIQUE (originator_id, originator_version)", ""
    )


def without_positions(statement: str) -> str:
    """Return the statement of the table of the log, with anything at all for global positions."""
    return statement.replace("notification_id INTEGER PRIMARY KEY", "notification_id")


def twin(path: Path) -> None:
    """Append another turn at the position of one in its stream."""
    name = "after the secret"
    header = header_of(path, AT[name])
    header |= {"id": derived_id(None, "twin")}
    with closing(sqlite3.connect(path)) as connection:
        [(private,)] = connection.execute("SELECT private FROM stored_events WHERE notification_id = ?", (AT[name],))
    record = msgspec.json.decode(private)
    record["meta"].pop("head")
    insert(path, header, record, payload_of(path, AT[name]))


def second_genesis(path: Path) -> None:
    header = header_of(path, AT["genesis"])
    event_id = derived_id(None, "second genesis")
    insert(path, header | {"id": event_id, "stream": event_id})


def frame_of_12_gb(payload: bytes) -> bytes:
    # Magic number; no checksum, content size of 8 bytes, single segment; the size; one block of the same byte.
    return (
        b"\x28\xb5\x2f\xfd\xe0"
        + (12 << 30).to_bytes(8, "little")
        + (1 | 1 << 1 | 131072 << 3).to_bytes(3, "little")
        + b"x"
    )


def with_dictionary(payload: bytes) -> bytes:
    dictionary = zstandard.ZstdCompressionDict(
        b"third, and a good deal of text " * 20, dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )
    return zstandard.ZstdCompressor(dict_data=dictionary).compress(payload)


def wal_frame(path: Path) -> None:
    """Leave the last appends in the write-ahead log, as a crash does, and flip a bit in the first of its frames."""
    copy = path.with_name("copied")
    with TurnLog.open(f"sqlite:///{path}") as log:
        for number in range(3):
            log.add_turn(f"in the write-ahead log {number}", bookmark=False)
        for end in ("", "-wal"):
            shutil.copyfile(path.with_name(path.name + end), copy.with_name(copy.name + end))
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    for end in ("", "-wal"):
        copy.with_name(copy.name + end).rename(path.with_name(path.name + end))
    wal = path.with_name(path.name + "-wal")
    wal.write_bytes(flipped(wal.read_bytes(), 32 + 24 + 100))


def index_page(path: Path) -> None:
    """Change an entry of the index of ids, so that one id leads nowhere."""
    with closing(sqlite3.connect(path)) as connection:
        [(page_bytes,)] = connection.execute("PRAGMA page_size")
        [(root,)] = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_stored_events_1'"
        )
        [(event_id,)] = connection.execute(
            "SELECT event_id FROM stored_events WHERE notification_id = ?", (AT["second"],)
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    start = (root - 1) * page_bytes
    page = content[start : start + page_bytes]
    assert event_id.encode() in page
    changed = page.replace(event_id.encode(), event_id[:-1].encode() + b"~")
    path.write_bytes(content[:start] + changed + content[start + page_bytes :])


def cut(path: Path) -> None:
    """Cut the tail, and put what is derived from it back to what it was before."""
    header = header_of(path, AT["last"])
    parent = header["citations"][0]["id"]
    with opened(path) as connection:
        connection.execute("DELETE FROM stored_events WHERE notification_id = ?", (AT["last"],))
        connection.execute("DELETE FROM turn_links WHERE child_stream = ?", (header["id"],))
        connection.execute("UPDATE bookmarks SET turn_id = ?, moved_by = ? WHERE name = 'main'", (parent, parent))


def older_copy(path: Path) -> None:
    """Go back to what the store was before the last turns."""
    kept = path.with_name("kept.db")
    shutil.copyfile(path, kept)
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("recorded since", continues="main")
    path.unlink()
    kept.rename(path)


def closed_gap(path: Path) -> None:
    """Remove a turn that nothing cites, and put what stands beside the log in order."""
    removed(path, "lonely")
    with opened(path) as connection:
        connection.execute("DELETE FROM threads WHERE thread NOT IN (SELECT event_id FROM stored_events)")


def page_of_noise(path: Path) -> None:
    """Overwrite a page of the log itself."""
    with closing(sqlite3.connect(path)) as connection:
        [(page_bytes,)] = connection.execute("PRAGMA page_size")
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'stored_events'")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[(root - 1) * page_bytes : root * page_bytes] = b"\xa5" * page_bytes
    path.write_bytes(content)


def bytes_behind(path: Path) -> None:
    """Put bytes behind the last page of the file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("ab") as file:
        file.write(b"hidden" * 100)


def hidden_column(path: Path) -> None:
    """Give the events a column with a value, and then say in the schema that there is none."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        [(before,)] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'stored_events'")
        connection.execute("ALTER TABLE stored_events ADD COLUMN hidden")
        connection.execute(f"UPDATE stored_events SET hidden = 'x' WHERE notification_id = {AT['lonely']}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'stored_events'", (before,))


def second_turn(path: Path) -> None:
    """Append a turn, as any program can."""
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("not said by anybody", continues="main")


def another_log(path: Path) -> None:
    """Put another log in the place of this one."""
    path.unlink()
    shutil.rmtree(path.with_name(path.name + "-payloads"))
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("another log", bookmark="main")


def linked(file: Path) -> None:
    """Make a symbolic link to the same bytes elsewhere."""
    elsewhere = file.parent.parent.parent / "elsewhere"
    elsewhere.write_bytes(NOISE)
    file.symlink_to(elsewhere)


def erased_by_whoever(path: Path) -> None:
    """Erase a turn, and append an erasure that says so."""
    sources = fixed_sources("whoever ")
    with TurnLog.open(f"sqlite:///{path}") as log:
        target = log.event(header_of(path, AT["lonely"])["id"])
        draft = EventDraft(topic=ERASURE, meta=ErasureMeta(reason="none"))
        log.store.write(lambda t: plan_event(t, draft, NO_PAYLOAD, sources, [cite(target, TARGET)]))
    column("lonely", "(private, payload_placement, payload)", "(NULL, 5, NULL)")(path)


def first_copy(parts: list[Any]) -> int:
    return next(place for place, part in enumerate(parts) if isinstance(part, list))


def shifted(parts: list[Any], literals: bytes) -> tuple[list[Any], bytes]:
    """Take the same number of bytes of the base, from one byte further on."""
    start, count = parts[first_copy(parts)]
    parts[first_copy(parts)] = [start + 1, count]
    return parts, literals


def beyond(parts: list[Any], literals: bytes) -> tuple[list[Any], bytes]:
    """Take bytes of the base that it does not have."""
    parts[first_copy(parts)][0] = 1 << 40
    return parts, literals


def back_again(parts: list[Any], literals: bytes) -> tuple[list[Any], bytes]:
    """Take the same bytes of the base twice, in the place of others."""
    start, count = parts[first_copy(parts)]
    half = count // 2
    parts[first_copy(parts)] = [start, half]
    parts.insert(first_copy(parts) + 1, [start, count - half])
    return parts, literals


def more_literals(parts: list[Any], literals: bytes) -> tuple[list[Any], bytes]:
    return parts, literals + b"of no part"


def shorter(parts: list[Any], literals: bytes) -> tuple[list[Any], bytes]:
    return parts[:-1], literals


def endless(parts: list[Any], literals: bytes) -> tuple[list[Any], bytes]:
    return [[0, 1 << 40]], b""


def changed_literals(parts: list[Any], literals: bytes) -> tuple[list[Any], bytes]:
    return parts, flipped(literals, 0)


def forged_loss(path: Path) -> None:
    """Let a call have a loss report that is no loss report, with the hash that fits."""
    _forged(path, "loss", lambda size: b'{"kind":"eaten"}'.ljust(size - 1) + b"\n")


def forged_window(path: Path) -> None:
    """Let a call have a change of its window that is none, with the hash that fits."""
    _forged(path, "window", b'{"added":["eaten"]}'.ljust)


def _forged(path: Path, what: str, made: Callable[[int], bytes]) -> None:
    event = header_of(path, AT["call again"])["id"]
    with TurnLog.open(f"sqlite:///{path}") as log:
        call = log.calls.get(event)
        with log.store.read() as transaction:
            kept = split_kept(call.meta, read_kept(transaction, find_call(transaction, event)))
    parts = dict(zip(("request", "loss", "window"), kept, strict=True))
    assert parts[what]
    parts[what] = made(len(parts[what]))

    def change(private: dict[str, Any]) -> None:
        private["meta"][what]["hash"] = payload_hash(parts[what])

    rewrite(path, AT["call again"], payload=request_payload(list(parts.values()), b"")[0], private=change)


def request(**changes: Any) -> Change:
    return lambda private: private["meta"]["request"].update(changes)


def loss(**changes: Any) -> Change:
    return lambda private: private["meta"]["loss"].update(changes)


def window(**changes: Any) -> Change:
    return lambda private: private["meta"]["window"].update(changes)
