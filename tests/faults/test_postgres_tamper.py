"""An auditor finds what somebody with all rights on the database has changed in a PostgreSQL store."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from psycopg import sql
from tests.faults import rich_store
from tests.faults.rich_store import AT
from tests.proof_cases import LOG, ORIGIN
from tests.servers.postgres import Postgres

from turnlog import TurnLog
from turnlog.audit import Anchor
from turnlog.audit.anchors import read_anchors


def _of(name: str) -> str:
    return f"(SELECT order_key FROM log_order WHERE global_position = {AT[name]})"


def _set(name: str, column: str, value: str) -> tuple[str, ...]:
    return (f"UPDATE stored_events SET {column} = {value} WHERE order_key = {_of(name)}",)


_CUT = (
    "DELETE FROM log_order WHERE global_position = (SELECT MAX(global_position) FROM log_order)",
    "DELETE FROM stored_events WHERE order_key = (SELECT MAX(order_key) FROM stored_events)",
)
_CLOSED = (
    f"CREATE TEMP TABLE gone AS SELECT {_of('noise')} AS order_key",
    "DELETE FROM stored_events WHERE order_key = (SELECT order_key FROM gone)",
    "DELETE FROM log_order WHERE order_key = (SELECT order_key FROM gone)",
    f"UPDATE log_order SET global_position = -global_position WHERE global_position > {AT['noise']}",
    "UPDATE log_order SET global_position = -global_position - 1 WHERE global_position < 0",
)

EDITS: dict[str, tuple[tuple[str, ...], str]] = {
    "header": (_set("second", "state", "set_byte(state, 40, 65)"), "leaf hash"),
    "header and leaf hash": (
        (
            *_set("second", "state", "convert_to(regexp_replace(convert_from(state, 'UTF8'), '[0-9]', '7'), 'UTF8')"),
            *_set("second", "leaf_hash", "sha256('\\x00'::bytea || state)"),
        ),
        "",
    ),
    "private part": (_set("second", "private", "set_byte(private, 40, 65)"), "private"),
    "private part removed": (_set("second", "private", "NULL"), "private"),
    "payload": (_set("root", "payload", "set_byte(payload, 4, 65)"), "payload"),
    "payload removed": (_set("root", "payload", "NULL"), "payload"),
    "leaf hash": (_set("second", "leaf_hash", "set_byte(leaf_hash, 4, 65)"), "leaf hash"),
    "arrival": (_set("guest root", "arrival", "0"), ""),
    "topic beside": (_set("second", "topic", "'gpt.call'"), "topic"),
    "position beside": (_set("second", "originator_version", "77"), "position"),
    "stream beside": (_set("second", "originator_id", "'x'"), "stream"),
    "id beside": (_set("second", "event_id", "'x'"), "id"),
    "event removed": ((f"DELETE FROM stored_events WHERE order_key = {_of('second')}",), "is that of no event"),
    "event removed, gap closed": (_CLOSED, ""),
    "place removed": ((f"DELETE FROM log_order WHERE global_position = {AT['second']}",), "without gaps"),
    "place that is none's": (
        ("INSERT INTO log_order SELECT MAX(global_position) + 1, MAX(order_key) + 7 FROM log_order",),
        "is that of no event",
    ),
    "places not in the order of keys": (
        (
            f"UPDATE log_order SET global_position = 0 WHERE global_position = {AT['third']}",
            f"UPDATE log_order SET global_position = {AT['third']} WHERE global_position = {AT['fork']}",
            f"UPDATE log_order SET global_position = {AT['fork']} WHERE global_position = 0",
        ),
        "not in the order of the keys",
    ),
    "bookmark": (("UPDATE bookmarks SET turn_id = 'x' WHERE name = 'main'",), "bookmark heads"),
    "thread": (("DELETE FROM threads",), "thread index"),
    "link": (("UPDATE turn_links SET parent_position = parent_position + 1",), "turn index"),
    "kept tree": (("UPDATE tree_hashes SET hashes = set_byte(hashes, 3, 1) WHERE level = 1",), "tree"),
    "size of the kept tree": (("UPDATE tree_size SET size = size + 3",), "tree"),
    "trigger dropped": (("DROP TRIGGER stored_events_no_update ON stored_events",), "trigger"),
    "trigger disabled": (("ALTER TABLE stored_events DISABLE TRIGGER stored_events_no_delete",), "trigger"),
    "trigger added": (
        (
            "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
            "CREATE TRIGGER mine BEFORE INSERT ON stored_events FOR EACH ROW EXECUTE FUNCTION mine()",
        ),
        "trigger",
    ),
    "guard emptied": (
        (
            "CREATE OR REPLACE FUNCTION log_refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RETURN COALESCE(NEW, OLD); END $$",
        ),
        "function 'log_refuse'",
    ),
    "function replaced": (
        ("CREATE OR REPLACE FUNCTION log_settle() RETURNS bigint LANGUAGE sql AS $$ SELECT 0::bigint $$",),
        "function 'log_settle'",
    ),
    "index dropped": (("DROP INDEX stored_events_rare",), "index 'stored_events_rare'"),
    "constraint dropped": (("ALTER TABLE stored_events DROP CONSTRAINT stored_events_event_id_key",), "constraint"),
    "rule": (("CREATE RULE quiet AS ON INSERT TO stored_events DO INSTEAD NOTHING",), "rule"),
    "row security": (("ALTER TABLE stored_events ENABLE ROW LEVEL SECURITY",), "table 'stored_events'"),
    "column added": (("ALTER TABLE stored_events ADD COLUMN more text",), "column"),
    "version": (("UPDATE store_state SET version = 1",), "version"),
    "settings of a function": (("ALTER FUNCTION log_append RESET ALL",), "function 'log_append' is not what it"),
    "rights of a function": (("ALTER FUNCTION log_settle SECURITY INVOKER",), "function 'log_settle' is not what it"),
    "function of the same name": (
        ("CREATE FUNCTION log_settle(more integer) RETURNS bigint LANGUAGE sql AS $$ SELECT 0::bigint $$",),
        "function 'log_settle' is not what it",
    ),
    "function dropped": (("DROP FUNCTION log_position",), "function 'log_position' is missing"),
    "numbers that go down": (("ALTER SEQUENCE log_numbers INCREMENT -1",), "sequence 'log_numbers' is not what it"),
    "numbers that begin again": (
        ("ALTER SEQUENCE log_numbers MAXVALUE 2000 CYCLE",),
        "sequence 'log_numbers' is not what it",
    ),
    "numbers at their end": (("SELECT setval('log_numbers', 9223372036854775807)",), "sequence 'log_numbers' is at 92"),
    "numbers at the end of keys": (("SELECT setval('log_numbers', 8796093022207)",), "sequence 'log_numbers' is at 87"),
    "numbers set back": (("SELECT setval('log_numbers', 0)",), "sequence 'log_numbers' is at 0, and the last"),
    "numbers passed that nobody drew": (
        ("SELECT setval('log_passed', 9000000000000)",),
        "sequence 'log_passed' is at 9000000000000, beyond",
    ),
    "rights for everybody": (
        ("GRANT ALL ON ALL TABLES IN SCHEMA turnlog TO PUBLIC",),
        "everybody has rights on table 'stored_events' that `turnlog grant` does not give: DELETE",
    ),
    "rights on a column": (
        ("GRANT UPDATE (private) ON stored_events TO PUBLIC",),
        "everybody has rights on table 'stored_events' that `turnlog grant` does not give: UPDATE",
    ),
    "functions for everybody": (
        ("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA turnlog TO PUBLIC",),
        "everybody has rights on function 'log_append'",
    ),
    "another owner": (
        ("ALTER TABLE stored_events OWNER TO pg_read_all_data",),
        "table 'stored_events' belongs to 'pg_read_all_data', all else to",
    ),
    "object to remove that is none": (("INSERT INTO payloads_condemned VALUES ('../x')",), "'../x' is to be removed"),
}


class Filled(NamedTuple):
    """A database, its name, and checkpoints of its log from outside."""

    url: str
    name: str
    anchors: list[Anchor]


@pytest.fixture(scope="module")
def filled(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Give a database with a log that has one of everything, its name, and a checkpoint of it all."""
    path = tmp_path_factory.mktemp("rich") / "log.db"
    rich_store.build(path)
    url = postgres.create_database()
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.copy_to(url)
    with TurnLog.open(url) as log:
        made = log.audit.checkpoint(LOG, origin=ORIGIN)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "checkpoint").write_text(made.note)
    yield Filled(url, url.rpartition("/")[2].partition("?")[0], read_anchors([elsewhere], [LOG.verifier]))
    postgres.drop_database(url)


@pytest.fixture
def tampered(postgres: Postgres, filled: Filled) -> Iterator[Callable[..., str]]:
    """Give a function that makes a copy of the database, does harm to it, and returns its URL."""
    made: list[str] = []

    def tamper(*statements: str) -> str:
        url, name, _ = filled
        copy = f"{name}_{len(made)}"
        with closing(psycopg.connect(postgres.url("postgres"), autocommit=True)) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(copy), sql.Identifier(name))
            )
        made.append(url.replace(name, copy))
        with closing(psycopg.connect(made[-1], autocommit=True)) as connection:
            connection.execute("SET search_path = turnlog")
            connection.execute("SET session_replication_role = replica")
            for statement in statements:
                connection.execute(statement.encode())
        return made[-1]

    yield tamper
    for url in made:
        postgres.drop_database(url)


def _damage(url: str, anchors: Sequence[Anchor] = ()) -> list[str]:
    with TurnLog.open(url) as log:
        report = log.verify(checkpoints=anchors)
    return [damage.what for damage in report.damage]


def test_copy_that_nobody_touched_is_clean(tampered: Callable[..., str], filled: Filled, tmp_path: Path) -> None:
    """Also against the checkpoint; what is damaged in the rich store on purpose is none of this."""
    assert _damage(tampered()) == []
    assert _damage(tampered(), filled.anchors) == []


@pytest.mark.parametrize("name", EDITS)
def test_edit_is_found(tampered: Callable[..., str], name: str) -> None:
    """Each by `verify`, without anything from outside."""
    statements, what = EDITS[name]
    found = _damage(tampered(*statements))
    assert any(what in damage for damage in found), found


@pytest.mark.parametrize("statements", [_CUT, _CLOSED], ids=["cut", "closed"])
def test_checkpoint_finds_what_is_gone(
    tampered: Callable[..., str], filled: Filled, statements: tuple[str, ...]
) -> None:
    """What was cut off leaves no trace in the store; a checkpoint from outside has its number and its hash."""
    assert _damage(tampered(*statements), filled.anchors)
