"""Roles of a PostgreSQL log: an owner, writers who cannot change what is recorded, readers; in the database itself."""

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from psycopg import errors, sql
from tests.servers.roles import Roles

from turnlog import LossReport, Response, Text, TurnLog
from turnlog.audit.notes import Signer
from turnlog.errors import CorruptionError, StoreDeniedError, StoreError, StoreOpenError, StoreReadOnlyError
from turnlog.providers import PreparedRequest
from turnlog.store.postgres import PostgresStore
from turnlog.store.postgres.roles import May
from turnlog.store.postgres.schema import FUNCTIONS

REFUSED_TO_WRITERS = (
    "UPDATE stored_events SET state = ''",
    "UPDATE stored_events SET private = NULL, payload = NULL",
    "DELETE FROM stored_events",
    "TRUNCATE stored_events",
    "INSERT INTO stored_events SELECT * FROM stored_events",
    "UPDATE log_order SET global_position = 7",
    "DELETE FROM log_order",
    "TRUNCATE log_order",
    "INSERT INTO log_order VALUES (99, 99)",
    "UPDATE store_state SET epoch = 99",
    "DELETE FROM store_projections",
    "INSERT INTO store_roles VALUES ('me', 'write')",
    "SELECT nextval('log_numbers')",
    "SELECT setval('log_passed', 1)",
    "SELECT setval('log_numbers', 1)",
    "DROP TRIGGER stored_events_no_update ON stored_events",
    "ALTER TABLE stored_events DISABLE TRIGGER ALL",
    "SET session_replication_role = replica",
    "CREATE TABLE mine (one integer)",
    "CREATE OR REPLACE FUNCTION log_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    "DROP TABLE bookmarks",
    "TRUNCATE bookmarks",
    "INSERT INTO payload_storage VALUES (1, 'file:///tmp/elsewhere')",
    "UPDATE payload_storage SET url = 'file:///tmp/elsewhere'",
    "INSERT INTO payloads_condemned VALUES ('zz')",
)
REFUSED_TO_READERS = (
    *REFUSED_TO_WRITERS,
    "INSERT INTO bookmarks VALUES ('main', 'x', 'y', 0)",
    "DELETE FROM bookmarks",
    "LOCK TABLE log_gate IN EXCLUSIVE MODE",
    "SELECT log_position('x')",
    "SELECT log_settle_now()",
    "SELECT log_append(NULL, 0, NULL, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
)
REFUSED_TO_OWNER = (
    "UPDATE stored_events SET state = ''",
    "UPDATE stored_events SET event_id = event_id || 'x'",
    "UPDATE stored_events SET private = '\\x00'",
    "UPDATE stored_events SET order_key = order_key + 1",
    "DELETE FROM stored_events",
    "TRUNCATE stored_events",
)


@pytest.fixture
def roles(postgres_url: str) -> Iterator[Roles]:
    """Give roles in the database of the test."""
    roles = Roles(postgres_url)
    yield roles
    roles.drop()


def open_as(roles: Roles, role: str) -> TurnLog:
    return TurnLog.open(roles.url_of(role), busy_timeout_s=10)


def engine(log: TurnLog) -> PostgresStore:
    assert isinstance(log.store, PostgresStore)
    return log.store


def granted(roles: Roles, may: May, name: str | None = None) -> str:
    """Return a new role that may do something with the log, which has a turn."""
    role = roles.make(name or may)
    with TurnLog.open(roles.url) as log:
        if log.id is None:
            log.add_turn("from the owner", bookmark="main")
        engine(log).grant(role, may)
    return role


def refused(url: str, statement: str) -> type[psycopg.Error] | None:
    """Run a statement in the schema of the log, and return the error."""
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = turnlog, pg_temp")
        try:
            connection.execute(statement.encode())
        except psycopg.Error as error:
            return type(error)
    return None


def state_of(roles: Roles) -> list[list[tuple[object, ...]]]:
    """Return what is in the tables that a writer must not change."""
    with psycopg.connect(roles.url) as connection:
        connection.execute("SET search_path = turnlog")
        tables = ("stored_events", "log_order", "store_state", "store_projections", "store_roles", "bookmarks")
        return [connection.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall() for table in tables]


def use_all(log: TurnLog) -> None:
    """Record one of everything that a writer may record."""
    turn = log.add_turn("from the writer", continues="main")
    request = PreparedRequest(
        adapter="openai_chat",
        version="1",
        provider="openai",
        api="chat",
        model="m",
        stream=True,
        head=b'{"messages":[',
        messages=[message.content_json + b"," for message in log.context(turn.id).messages],
        closing=b"{}]}",
        loss_report=LossReport(),
    )
    call = log.calls.record(turn.id, request)
    answer = Response(content=(Text(text="yes"),), model="m", stop_reason="stop", provider="openai", api="chat")
    log.calls.record_reply(call, [b"{}"], answer)
    log.bookmarks.set("other", turn.id)
    log.bookmarks.rename("other", "another")
    log.bookmarks.delete("another")
    log.pointers.set("milli", "openai", "m")
    log.servers.set("files", ["serve"])
    log.add_event("acme.review", b"fine", cites=[("reviewed", turn.id)])
    log.holds.set("case", turn=turn.id, reason="a dispute")
    log.holds.release("case")
    log.audit.checkpoint(Signer.generate("log"))


def test_writer_records_all_there_is(roles: Roles) -> None:
    """Turns, calls, bookmarks, registers, holds, checkpoints, imports; and it exports and verifies."""
    role = granted(roles, "write")
    other = TurnLog.open("memory://")
    other.add_turn("a guest", bookmark="guest")
    exported = io.BytesIO()
    other.export(exported)
    other.close()
    with open_as(roles, role) as log:
        use_all(log)
        assert log.import_turnlog(io.BytesIO(exported.getvalue())).added >= 2
        assert log.verify().damage == ()
        assert log.verify().checkpoints == 1
        assert [message.content for message in log.context("main").messages][:2] == [
            [Text(text="from the owner")],
            [Text(text="from the writer")],
        ]
        out = io.BytesIO()
        assert log.export(out) == len(list(log.events()))


def test_writer_changes_nothing_that_is_recorded(roles: Roles) -> None:
    """Neither rows nor positions, numbers, triggers, functions or tables; and it inserts only through the function."""
    url = roles.url_of(granted(roles, "write"))
    before = state_of(roles)
    for statement in REFUSED_TO_WRITERS:
        assert refused(url, statement) is errors.InsufficientPrivilege, statement
    assert state_of(roles) == before


def test_writer_does_not_erase(roles: Roles) -> None:
    """It is told so in one line, and nothing is half-done."""
    role = granted(roles, "write")
    before = state_of(roles)
    with open_as(roles, role) as log:
        with pytest.raises(StoreReadOnlyError, match=r"^only the owner of store .* can erase: this is role 'write "):
            log.erase(turn="main", reason="a test")
        with pytest.raises(StoreReadOnlyError, match="can build its tables anew"):
            log.rebuild_projections()
        with pytest.raises(StoreReadOnlyError, match="can say who else uses it"):
            engine(log).grant(role, "write")
        assert log.payload("main")
    assert state_of(roles) == before


def test_reader_reads_follows_and_verifies(roles: Roles) -> None:
    """It sees what others append as soon as they have."""
    role = granted(roles, "read")
    with open_as(roles, role) as reader, TurnLog.open(roles.url) as owner:
        assert len(reader.context("main").messages) == 1
        found: list[int] = []
        follower = threading.Thread(target=lambda: found.append(reader.wait(2, timeout_s=60)))
        follower.start()
        turn = owner.add_turn("more", continues="main")
        follower.join()
        assert found == [3]
        assert reader.turn("main").id == turn.id
        assert reader.verify().damage == ()
        assert reader.export(io.BytesIO()) == 3


def test_reader_appends_nothing(roles: Roles) -> None:
    """It is told so in one line; the tables are as they were."""
    role = granted(roles, "read")
    before = state_of(roles)
    with open_as(roles, role) as log:
        for act in (
            lambda: log.add_turn("x", continues="main"),
            lambda: log.bookmarks.set("x", "main"),
            lambda: log.pointers.set("milli", "openai", "m"),
            lambda: log.audit.checkpoint(Signer.generate("log")),
        ):
            with pytest.raises(StoreReadOnlyError, match=r"cannot be written by this role .* see `turnlog grant`$"):
                act()
        with pytest.raises(StoreReadOnlyError, match="only the owner"):
            log.erase(turn="main", reason="a test")
        assert len(log.thread("main")) == 1
    url = roles.url_of(role)
    for statement in REFUSED_TO_READERS:
        assert refused(url, statement) is errors.InsufficientPrivilege, statement
    assert state_of(roles) == before


def test_reader_whose_transactions_are_read_only_reads(roles: Roles) -> None:
    """What was appended before is there; positions that nobody has written down yet are not given by it."""
    role = granted(roles, "read")
    roles.run("ALTER ROLE {} SET default_transaction_read_only = on", role)
    with open_as(roles, role) as reader:
        assert [recorded.header.topic for recorded in reader.events()] in ([], ["log.genesis", "gpt.turn"])
    with TurnLog.open(roles.url) as owner:
        assert owner.context("main").messages  # reading settles
    with open_as(roles, role) as reader:
        assert len(reader.context("main").messages) == 1
        with pytest.raises(StoreReadOnlyError):
            reader.add_turn("x")


def test_triggers_stop_the_owner(roles: Roles) -> None:
    """By itself SQL changes no event, whoever types it; only what erasing does passes."""
    role = roles.make("owner")
    roles.run("CREATE SCHEMA turnlog AUTHORIZATION {}", role)
    with open_as(roles, role) as log:
        log.add_turn("hello", bookmark="main")
        before = state_of(roles)
        for statement in REFUSED_TO_OWNER:
            assert refused(roles.url_of(role), statement) is errors.ObjectNotInPrerequisiteState, statement
        assert state_of(roles) == before
        assert log.erase(turn="main", reason="a test").erasures
        assert log.verify().damage == ()


def test_everybody_else_has_no_rights(roles: Roles) -> None:
    """A role without a grant is told that it needs one; what a server gives by default is taken away."""
    stranger, analyst = roles.make("stranger"), roles.make("analyst")
    with psycopg.connect(roles.url, autocommit=True) as connection:
        for kind in ("TABLES", "FUNCTIONS", "SEQUENCES"):
            for name in ("PUBLIC", f'"{analyst}"'):
                connection.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO {name}".encode())
    writer = granted(roles, "write")
    with TurnLog.open(roles.url) as log:
        log.rebuild_projections()
    roles.run("GRANT USAGE ON SCHEMA turnlog TO {}, {}", stranger, analyst)
    for role in (stranger, analyst):
        for statement in (*REFUSED_TO_READERS, "SELECT * FROM stored_events", "SELECT * FROM log_events"):
            if "bookmarks" not in statement:
                assert refused(roles.url_of(role), statement) is errors.InsufficientPrivilege, (role, statement)
    assert refused(roles.url_of(stranger), "SELECT * FROM bookmarks") is errors.InsufficientPrivilege
    roles.run("REVOKE USAGE ON SCHEMA turnlog FROM {}", stranger)
    for role in (stranger, analyst):
        with pytest.raises(StoreOpenError, match=r"has no rights on store .* `turnlog grant .* --read`, or --write$"):
            open_as(roles, role)
    with open_as(roles, writer) as log:
        log.add_turn("more", continues="main")
    roles.run("DROP OWNED BY {}", analyst)


def test_a_reader_by_other_grants_is_told_of_turnlogs_own(roles: Roles) -> None:
    """Rights on tables are not all that reading needs: the line says what is lacking, and who gives it how."""
    role = roles.make("analyst")
    with TurnLog.open(roles.url) as owner:
        owner.add_turn("hello", bookmark="main")
        roles.run("GRANT USAGE ON SCHEMA turnlog TO {}", role)
        roles.run("GRANT SELECT ON ALL TABLES IN SCHEMA turnlog TO {}", role)
        with pytest.raises(StoreOpenError) as caught:
            open_as(roles, role)
        assert str(caught.value).startswith(f"role {role!r} has no right on function 'log_follow' of store ")
        assert str(caught.value).endswith(f": its owner gives some with `turnlog grant '{role}' --read`, or --write")
        engine(owner).grant(role, "read")
        roles.run("REVOKE SELECT ON turnlog.bookmarks FROM {}", role)
        with pytest.raises(StoreOpenError, match="has no right on table 'bookmarks' of store"):
            open_as(roles, role)
        engine(owner).grant(role, "read")
        with open_as(roles, role) as reader:
            assert reader.turn("main")
            roles.run("REVOKE EXECUTE ON FUNCTION turnlog.log_settle() FROM {}", role)
            for read in (lambda: reader.turn("main"), reader.verify):
                with pytest.raises(
                    StoreDeniedError, match=r"cannot be read by this role .* `turnlog grant ROLE --read`$"
                ):
                    read()


@pytest.mark.parametrize("table", ["log_order", "stored_events", "store_state", "bookmarks"])
def test_role_that_rows_are_hidden_from_is_told_so(roles: Roles, table: str) -> None:
    """It would take for the whole log what it sees of it. Who sees all may read."""
    role = granted(roles, "read")
    roles.run("ALTER TABLE {}.{} ENABLE ROW LEVEL SECURITY", "turnlog", table)
    with pytest.raises(
        StoreOpenError,
        match=rf"cannot be read whole: row-level security can hide rows of '{table}' from role '{role}', "
        rf'ALTER TABLE "turnlog"."{table}" DISABLE ROW LEVEL SECURITY or give the role BYPASSRLS$',
    ):
        open_as(roles, role)
    with TurnLog.open(roles.url) as owner:
        assert owner.turn("main")
    roles.run("ALTER ROLE {} BYPASSRLS", role)
    with open_as(roles, role) as reader:
        assert reader.turn("main")
    roles.run("ALTER ROLE {} NOBYPASSRLS", role)
    roles.run("ALTER TABLE {}.{} DISABLE ROW LEVEL SECURITY", "turnlog", table)
    with open_as(roles, role) as reader:
        assert reader.turn("main")


def test_role_that_loses_its_rights_meanwhile_is_told_so(roles: Roles) -> None:
    """What it does not see any more is not taken for damage, which it is where the role may look."""
    names = {may: granted(roles, may) for may in ("read", "write")}
    with (
        TurnLog.open(roles.url) as owner,
        open_as(roles, names["read"]) as reader,
        open_as(roles, names["write"]) as writer,
    ):
        assert reader.turn("main")
        writer.add_turn("more", continues="main")
        for name in names.values():
            engine(owner).grant(name, "nothing")
        why = r"by this role \(permission denied for its schema\): "
        for read in (lambda: reader.turn("main"), reader.verify, reader.store.check_schema):
            with pytest.raises(StoreDeniedError, match=rf"cannot be read {why}.* `turnlog grant ROLE --read`$"):
                read()
        with pytest.raises(StoreReadOnlyError, match=rf"cannot be written {why}.* `turnlog grant`$"):
            writer.add_turn("and more")
        engine(owner).grant(names["read"], "read")
        assert reader.turn("main")
        roles.run("DROP FUNCTION turnlog.log_settle() CASCADE")
        with pytest.raises(CorruptionError, match="has lost a function"):
            reader.turn("main")


def test_role_has_what_was_granted_last(roles: Roles) -> None:
    """Rights are taken back with the next grant, and with `nothing` all of them."""
    role = granted(roles, "write")
    with TurnLog.open(roles.url) as owner:
        engine(owner).grant(role, "read")
        with open_as(roles, role) as log:
            assert log.payload("main")
            with pytest.raises(StoreReadOnlyError):
                log.add_turn("x")
        engine(owner).grant(role, "nothing")
        with pytest.raises(StoreOpenError, match="has no rights"):
            open_as(roles, role)
    roles.drop_one(role)


def test_grants_outlive_tables_that_are_made_anew(roles: Roles) -> None:
    """An erasure and a rebuild replace tables; who could use them before still can."""
    writer, reader = granted(roles, "write"), granted(roles, "read")
    gone = granted(roles, "write", "gone")
    roles.run("DROP OWNED BY {}", gone)
    roles.drop_one(gone)
    with TurnLog.open(roles.url) as owner:
        owner.add_turn("to erase", bookmark="away", subject="alice")
        owner.erase(subject="alice", reason="asked for")
        with psycopg.connect(roles.url, autocommit=True) as connection:
            connection.execute("DROP FUNCTION turnlog.log_position; DROP VIEW turnlog.log_events_now")
        assert owner.rebuild_projections()
        assert owner.store.check_schema() == []
        with open_as(roles, writer) as log:
            log.add_turn("goes on", continues="main")
            log.bookmarks.set("side", "main")
            assert log.verify().damage == ()
        with open_as(roles, reader) as log:
            assert len(log.bookmarks.all()) == 2
            assert log.verify().damage == ()
    for statement in ("SELECT log_position('x')", "SELECT * FROM log_events_now"):
        expected = errors.InsufficientPrivilege if "position" in statement else None
        assert refused(roles.url_of(reader), statement) is expected
        assert refused(roles.url_of(roles.make("stranger")), statement) is not None


def test_what_a_superuser_makes_belongs_to_the_owner(roles: Roles) -> None:
    """Who erases or rebuilds for the owner leaves it tables that it can use, and functions that do no more than it."""
    owner = roles.make("owner")
    roles.run("CREATE SCHEMA turnlog AUTHORIZATION {}", owner)
    with open_as(roles, owner) as log:
        log.add_turn("to erase", bookmark="away", subject="alice")
        log.add_turn("to keep", bookmark="main")
        with TurnLog.open(roles.url) as above:
            above.erase(subject="alice", reason="asked for")
            with psycopg.connect(roles.url, autocommit=True) as connection:
                connection.execute("DROP FUNCTION turnlog.log_append")
            above.rebuild_projections()
        log.add_turn("goes on", continues="main")
        log.erase(turn="main", reason="a test")
        log.rebuild_projections()
        assert log.verify().damage == ()
    with psycopg.connect(roles.url) as connection:
        kinds = "SELECT relowner::regrole FROM pg_class WHERE relnamespace = 'turnlog'::regnamespace"
        functions = "SELECT proowner::regrole FROM pg_proc WHERE pronamespace = 'turnlog'::regnamespace"
        found = connection.execute(f"{kinds} UNION {functions}".encode()).fetchall()
    assert found == [(f'"{owner}"',)]


def test_only_the_owner_says_where_large_payloads_are(roles: Roles, tmp_path: Path) -> None:
    """A writer is told so in one line; afterwards it uses that place."""
    role = granted(roles, "write")
    place = f"?payloads=file://{tmp_path}/objects"
    with pytest.raises(StoreReadOnlyError, match=r"only the owner of store .* can say where its large payloads are to"):
        TurnLog.open(roles.url_of(role) + place)
    with TurnLog.open(roles.url + place):
        pass
    with TurnLog.open(roles.url_of(role) + place) as log:
        turn = log.add_turn("large " * 20_000, continues="main")
        assert len(log.payload(turn.id)) > 100_000
        assert log.verify().damage == ()


def test_rebuild_takes_away_what_nobody_granted(roles: Roles) -> None:
    """It is named, and those who were granted something have that and no more."""
    writer, reader, stranger = granted(roles, "write"), granted(roles, "read"), roles.make("stranger")
    with TurnLog.open(roles.url) as log:
        assert log.store.check_schema() == []
        roles.run("GRANT INSERT ON turnlog.payloads_condemned TO {}", writer)
        roles.run("GRANT UPDATE (state) ON turnlog.stored_events TO {}", reader)
        roles.run("GRANT EXECUTE ON FUNCTION turnlog.log_settle TO {}", stranger)
        assert log.store.check_schema() == [
            f"the store's schema: role {role!r} has rights on {what} that `turnlog grant` does not give: {right}"
            for role, what, right in (
                (stranger, "function 'log_settle'", "EXECUTE"),
                (writer, "table 'payloads_condemned'", "INSERT"),
                (reader, "table 'stored_events'", "UPDATE"),
            )
        ]
        log.rebuild_projections()
        assert log.store.check_schema() == []
    with open_as(roles, writer) as log:
        assert log.add_turn("more", continues="main")
    with open_as(roles, reader) as log:
        assert log.verify().damage == ()


def test_who_could_become_the_owner_is_named(roles: Roles) -> None:
    """What somebody else puts into the schema of the log is taken for PostgreSQL's own by functions of the owner."""
    stranger = roles.make("stranger")
    takes_over = "what it makes there can run with the rights of the log's owner, in the place of what PostgreSQL has"
    body = "LANGUAGE sql AS 'SELECT 1'"
    with TurnLog.open(roles.url) as log:
        log.add_turn("hello")
        assert log.store.check_schema() == []
        roles.run("GRANT CREATE ON SCHEMA turnlog TO {}", stranger)
        assert log.store.check_schema() == [
            f"the store's schema: role {stranger!r} may make things in schema 'turnlog' (CREATE): {takes_over}"
        ]
        with psycopg.connect(roles.url_of(stranger), autocommit=True) as connection:
            connection.execute(f"CREATE FUNCTION turnlog.cardinality(text[]) RETURNS integer {body}".encode())
        roles.run("REVOKE CREATE ON SCHEMA turnlog FROM {}", stranger)
        [flaw] = log.store.check_schema()
        assert flaw == (f"the store's schema: function 'cardinality(text[])' belongs to {stranger!r}: {takes_over}")
        assert flaw in [damage.what for damage in log.verify().damage]
        roles.run("DROP FUNCTION turnlog.cardinality(text[])")
        roles.run("GRANT CREATE ON SCHEMA turnlog TO PUBLIC")
        assert log.store.check_schema() == [
            f"the store's schema: everybody may make things in schema 'turnlog' (CREATE): {takes_over}"
        ]


def test_numbers_go_on_where_their_sequence_was_made_anew(roles: Roles) -> None:
    """A rebuild restores a lost sequence behind what is recorded: nothing comes to stand in the past."""
    with TurnLog.open(roles.url) as log:
        log.add_turn("turn 0")
        for _ in range(3):
            roles.run("SELECT nextval('turnlog.log_numbers')")  # numbers that nobody uses
        log.add_turn("turn 1")
        before = [recorded.header.id for recorded in log.events()]
        with psycopg.connect(roles.url, autocommit=True) as connection:
            connection.execute("DROP SEQUENCE turnlog.log_numbers, turnlog.log_passed")
        log.rebuild_projections()
        log.add_turn("after")
        assert [recorded.header.id for recorded in log.events()][:-1] == before
        assert log.verify().damage == ()


def test_a_member_of_a_group_has_its_rights(roles: Roles) -> None:
    """Rights are given to a role that stands for others as well."""
    group, member = granted(roles, "write", "group"), roles.make("member")
    roles.run("GRANT {} TO {}", group, member)
    with open_as(roles, member) as log:
        assert log.add_turn("from a member", continues="main")


def test_grants_that_cannot_be_are_refused(roles: Roles) -> None:
    """A role that is not there, and the owner."""
    with TurnLog.open(roles.url) as log:
        for role in ("nobody at all", "public"):
            with pytest.raises(StoreError, match=f"^there is no role '{role}' on the server: CREATE ROLE makes one$"):
                engine(log).grant(role, "read")
        with psycopg.connect(roles.url) as connection:
            [(owner,)] = connection.execute("SELECT current_user").fetchall()
        with pytest.raises(StoreError, match="is the owner of store"):
            engine(log).grant(owner, "read")


@pytest.mark.parametrize("schema", ["turnlog", "Odd \"name'", "select", "public"])
def test_schema_that_somebody_else_made(roles: Roles, schema: str) -> None:
    """A role that may make tables in it makes the log there; one that may not is told so."""
    role = roles.make("maker")
    if schema != "public":
        roles.run("CREATE SCHEMA {}", schema)
    roles.run("REVOKE CREATE ON SCHEMA {} FROM PUBLIC", schema)  # which has it in `public` before PostgreSQL 15
    url = f"{roles.url_of(role)}?schema={schema.replace(' ', '%20')}"
    with pytest.raises(
        StoreOpenError, match=r"^there is no log at .*, and this role may not make one \(permission denied"
    ):
        TurnLog.open(url)
    roles.run("GRANT USAGE, CREATE ON SCHEMA {} TO {}", schema, role)
    with TurnLog.open(url) as log:
        log.add_turn("hello", bookmark="main")
        assert log.verify().damage == ()
        writer = roles.make("writer")
        roles.run("GRANT ALL ON SCHEMA {} TO {} WITH GRANT OPTION", schema, role)
        engine(log).grant(writer, "write")
    with TurnLog.open(f"{roles.url_of(writer)}?schema={schema.replace(' ', '%20')}") as log:
        assert log.add_turn("more", continues="main")


def test_role_that_may_not_create_is_told(roles: Roles) -> None:
    """A newcomer's role has no right to make a schema in the database."""
    with pytest.raises(StoreOpenError, match=r"and this role may not make one \(permission denied for database"):
        open_as(roles, roles.make("newcomer"))


def test_only_the_owner_brings_a_store_up_to_date(roles: Roles) -> None:
    """A process of a newer turnlog with a writer's role is told who can."""
    url = roles.url_of(granted(roles, "write"))
    roles.run("UPDATE turnlog.store_projections SET version = 0")
    with pytest.raises(StoreReadOnlyError, match="can bring it up to date after an older turnlog"):
        TurnLog.open(url)
    with TurnLog.open(roles.url):
        pass
    with TurnLog.open(url) as log:
        assert log.add_turn("more", continues="main")


def test_roles_that_are_granted_at_once(roles: Roles) -> None:
    """Grants, and appends meanwhile, wait for each other."""
    names = [roles.make(f"role {number}") for number in range(6)]
    failures: list[BaseException] = []
    with TurnLog.open(roles.url) as log:
        log.add_turn("begin", bookmark="main")

        def give(role: str) -> None:
            try:
                engine(log).grant(role, "read")
                engine(log).grant(role, "write")
                with open_as(roles, role) as own:
                    own.add_turn(role, continues="main", bookmark=False)
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=give, args=(role,)) for role in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(list(log.events())) == 2 + len(names)


def test_rebuild_waits_for_who_grants(roles: Roles) -> None:
    """Both change the functions of the log: who comes second goes on when the first is done."""
    role = roles.make("reader")
    with TurnLog.open(roles.url, busy_timeout_s=30) as log, psycopg.connect(roles.url) as other:
        log.add_turn("hello", bookmark="main")
        other.execute("LOCK TABLE turnlog.log_gate IN EXCLUSIVE MODE")
        for name in FUNCTIONS:
            other.execute(
                sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(
                    sql.Identifier("turnlog", name), sql.Identifier(role)
                )
            )
        with ThreadPoolExecutor() as threads:
            rebuilt = threads.submit(log.rebuild_projections)
            with psycopg.connect(roles.url, autocommit=True) as third:
                waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
                while third.execute(waits).fetchone() == (0,) and not rebuilt.done():
                    pass
            other.commit()
            assert rebuilt.result()
        assert log.verify().damage == ()


def test_rebuilds_at_once_wait_for_each_other(roles: Roles) -> None:
    """Also where each has to make what is missing."""
    with ExitStack() as stack:
        logs = [stack.enter_context(TurnLog.open(roles.url)) for _ in range(4)]
        logs[0].add_turn("hello", bookmark="main")
        with ThreadPoolExecutor() as threads:
            for _ in range(4):
                roles.run("DROP VIEW turnlog.log_events")
                roles.run("DROP FUNCTION turnlog.log_follow")
                ready = Barrier(len(logs))

                def rebuild(log: TurnLog, ready: Barrier = ready) -> list[str]:
                    ready.wait()
                    return log.rebuild_projections()

                assert all(threads.map(rebuild, logs))
        assert logs[0].verify().damage == ()


def test_one_connection_is_enough(roles: Roles) -> None:
    """What is kept for the next reader makes room, and who comes when there is none waits."""
    role = roles.make("limited", "LOGIN CONNECTION LIMIT 1")
    with TurnLog.open(roles.url) as owner:
        owner.add_turn("hello", bookmark="main")
        engine(owner).grant(role, "write")
    with ThreadPoolExecutor() as threads:
        with psycopg.connect(roles.url_of(role)):
            opened = threads.submit(TurnLog.open, roles.url_of(role), busy_timeout_s=30)
            wait([opened], timeout=0.5)
        with opened.result() as log:
            assert log.turn("main")
            assert log.verify().damage == ()
            assert not any(threads.map(lambda _: log.verify().damage, range(4)))
    with open_as(roles, role) as log:
        assert log.turn("main")
        assert log.add_turn("more", continues="main")
