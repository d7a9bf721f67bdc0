"""The command line with a log on a PostgreSQL server: what newcomers type, and that no password is ever shown."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from tests.cli.command import TIMEOUT_S, Command, Outcome, ServerCommand, write_conversation
from tests.servers.postgres import PostgresServer
from tests.servers.roles import Roles

from turnlog import TurnLog

PASSWORD = "t0p-s3cret"
EXTRA = "pip install 'turnlog[postgres]'"


@dataclass(frozen=True, kw_only=True)
class SecretiveCommand(ServerCommand):
    """`turnlog`, with a log on a server that there is a password for."""

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", **environment: str) -> Outcome:
        """Run the command to its end. Whatever it prints, it is no password."""
        outcome = super().__call__(*arguments, stdin=stdin, **environment)
        assert PASSWORD not in outcome.stderr
        assert PASSWORD.encode() not in outcome.stdout
        return outcome


def with_password(url: str, **changes: str) -> str:
    """Return a URL with a password, which a server that trusts everybody does not ask for."""
    parts = urlsplit(url)
    user, _, hosts = parts.netloc.rpartition("@")
    parts = parts._replace(netloc=f"{user.partition(':')[0]}:{PASSWORD}@{hosts}")
    return urlunsplit(parts._replace(**changes))


@pytest.fixture
def turnlog(kept_postgres_url: str, tmp_path: Path) -> SecretiveCommand:
    """Give the command, with a database that has no log yet."""
    return SecretiveCommand(store=tmp_path / "home" / "log.db", address=with_password(kept_postgres_url))


@pytest.fixture
def roles(kept_postgres_url: str) -> Iterator[Roles]:
    """Give roles in the database."""
    roles = Roles(kept_postgres_url)
    yield roles
    roles.drop()


def test_log_is_kept_read_and_checked(turnlog: SecretiveCommand, tmp_path: Path) -> None:
    """Each command does what it does with a file; what is printed is the same."""
    turnlog.store.parent.mkdir()
    ids = write_conversation(turnlog.url)
    file = Command(store=tmp_path / "log.db")
    write_conversation(file.url)
    for arguments in (
        ("log",),
        ("threads",),
        ("bookmarks",),
        ("context", "main"),
        ("cat", ids["e"]),
        ("ancestry", "main"),
        ("children", ids["b"]),
        ("search", "python"),
        ("usage",),
        ("registers",),
        ("projections", "status"),
        ("provider", "list"),
        ("feeds",),
        ("verify",),
    ):
        here, there = turnlog(*arguments), file(*arguments)
        assert (here.text, here.status, here.stderr) == (there.text, there.status, there.stderr), arguments
    assert turnlog.ok("stats", "--json").json["turns"] == 5
    exported = turnlog.ok("export").stdout
    assert Command(store=tmp_path / "copy.db").ok("import", "turnlog", "-", stdin=exported)
    more = turnlog.ok("add", "more", "--continues", "main", "--json").json["id"]
    outcome = turnlog("erase", "--turn", "main", "--reason", "a test", "--yes")
    assert outcome.status == 1
    assert "`turnlog erase --finish` writes the tables anew" in outcome.stderr
    again = turnlog("erase", "--turn", more, "--reason", "a test", "--yes")
    assert "unless `turnlog erase --finish` has written them anew since" in again.stderr
    assert turnlog.ok("erase", "--finish").text.startswith(
        "nothing of what was erased here is left in the tables; the write-"
    )
    assert turnlog.ok("tail", "--last", "1").text


def test_feeds_of_a_log_on_a_server_are_kept_in_the_data_folder(turnlog: SecretiveCommand, tmp_path: Path) -> None:
    """In a file of one's own; the next run goes on from there, whatever form the URL has."""
    turnlog.store.parent.mkdir()
    turnlog.ok("add", "hello", "--bookmark", "main")
    turnlog.ok("feed", "jsonl", str(tmp_path / "out"))
    [states] = (turnlog.store.parent / "data" / "turnlog" / "logs").glob("*-feeds")
    assert stat.S_IMODE(states.stat().st_mode) == 0o600
    assert stat.S_IMODE(states.parent.stat().st_mode) == 0o700
    turnlog.ok("add", "more", "--continues", "main")
    other = turnlog.url.replace("postgresql://", "postgres://") + "?connect_timeout=9"
    assert "3 delivered" in turnlog.ok("feed", "jsonl", str(tmp_path / "out"), TURNLOG_STORE=other).text
    assert [*states.parent.glob("*-feeds")] == [states]


def test_reader_searches_in_a_file_of_its_own(turnlog: SecretiveCommand, roles: Roles) -> None:
    """It is in the cache folder, nobody else's; an erasure by others reaches it with the next run."""
    turnlog.store.parent.mkdir()
    turnlog.ok("add", "find the zebra", "--bookmark", "main")
    reader = roles.make("reader")
    turnlog.ok("grant", reader, "--read")
    as_reader = {"TURNLOG_STORE": roles.url_of(reader)}
    assert "zebra" in turnlog.ok("search", "zebra", **as_reader).text
    folder = turnlog.store.parent / ".cache" / "turnlog" / "logs"
    [cache] = folder.glob("*-projections")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(b"zebra" in file.read_bytes() for file in folder.iterdir())
    with TurnLog.open(turnlog.url) as owner:
        owner.erase(turn="main", reason="asked for")
    assert turnlog("search", "zebra", **as_reader).text == ""
    assert [file for file in folder.iterdir() if b"zebra" in file.read_bytes()] == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql+psycopg://u:{}@h/d", "is not a store URL: write postgresql:// and name no driver"),
        ("jdbc:postgresql://u:{}@h/d", "is not a store URL: write postgresql:// and name no driver"),
        ("postgresql:/u:{}@h/d", "did you mean postgresql://USER@HOST/DATABASE?"),
        ("host=h password={} dbname=d", "did you mean postgresql://USER@HOST/DATABASE?"),
        ("postgresql://u:a/{}@h/d", "write %2F for /"),
        ("postgresql://u:a?{}@h/d", "write %2F for /"),
        ("postgresql://u:a#{}@h/d", "write %2F for /"),
        ("postgresql://u:a@{}@h/d", "write %2F for /"),
        ("postgresql://u:{}%zz@h/d", "is malformed: invalid percent-encoded token"),
        ("postgresql://u:{}@[::1/d", "the store's URL is malformed"),
        ("postgresql://u:{}@h/d?x", "the store's URL is malformed"),
        ("postgresql://u:{}@h/d?sslmodee=require", 'invalid URI query parameter: "sslmodee"'),
        ("postgresql://h/d?password={}&schema=", "'' cannot be the schema of a log, give another name: it is empty"),
        (
            "postgresql://u:{}@h/d?schema=pg_catalog",
            "'pg_catalog' cannot be the schema of a log, give another name: names that begin with",
        ),
        (
            "postgresql://u:{}@h/d?schema=information_schema",
            "'information_schema' cannot be the schema of a log, give another name: ",
        ),
        ("POSTGRESQL+psycopg://u:{}@h/d", "is not a store URL: write postgresql:// and name no driver"),
        ("postgresql://u:{}@h/d?schema=a&schema=b", "gives 'schema' more than once: give it once"),
        (
            "postgresql://u:{}@h/d?schema=" + 64 * "s",
            "cannot be the schema of a log, give another name: it has more than 63 bytes",
        ),
        ("postgresql://u:{}@h\x01/d", "it has characters that cannot be printed"),
        ("postgresql://u:{}@nowhere.invalid/d", "cannot be opened: failed to resolve host 'nowhere.invalid'"),
        ("postgresql://u:{}@127.0.0.1:1,127.0.0.1:2/d", "Connection refused"),
        ("postgresql:///d?host=/nowhere&password={}", "'postgresql:///d?host=/nowhere' cannot be opened"),
        ("postgresql://u:{}@127.0.0.1:99999/d", 'invalid port number: "99999"; see whether its URL is right'),
        ("postgresql://u:{}@/d?service=no", 'definition of service "no" not found; see whether its URL is right'),
        ("postgresql://u:{}@127.0.0.1/d?sslmode=no", 'invalid sslmode value: "no"; see whether its URL is right'),
        ("postgresql://u:{}@127.0.0.1/d?keepalives=x", 'connection option "keepalives"; see whether its URL is right'),
        ("postgresql://u:{}@127.0.0.1/d?connect_timeout=x", "connect_timeout: 'x'; see whether its URL is right"),
        ("postgresql://u:{}@127.0.0.1:99999,127.0.0.1:0/d", "see whether its URL is right"),
    ],
)
def test_url_that_leads_nowhere_is_one_line(tmp_path: Path, url: str, told: str) -> None:
    """It says what to change, and shows nothing of the password."""
    command = SecretiveCommand(store=tmp_path / "log.db", address=url.format(PASSWORD))
    assert told in command.refused("add", "x", "--json")


def test_there_is_no_database_no_role_or_no_log(turnlog: SecretiveCommand, kept_postgres_url: str) -> None:
    """The line says which."""
    turnlog.store.parent.mkdir()
    line = turnlog.refused("threads", TURNLOG_STORE=with_password(kept_postgres_url, path="/no-such-database"))
    assert 'database "no-such-database" does not exist' in line
    line = turnlog.refused("threads", TURNLOG_STORE=with_password(kept_postgres_url.replace("//postgres", "//nobody")))
    assert 'role "nobody" does not exist' in line or "password authentication failed" in line
    for command in (("threads",), ("log",), ("verify",), ("stats",), ("export",)):
        assert turnlog.refused(*command).endswith("`turnlog add TEXT` makes one")
    # What only looks, and what is refused, makes no log.
    assert turnlog("pointer").status == 0
    assert "no turn or bookmark 'nope'" in turnlog.refused("add", "x", "--continues", "nope")
    assert "there is no log" in turnlog.refused("threads")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"query": "options=-c%20nosuch%3D1"}, 'unrecognized configuration parameter "nosuch"'),
        ({"query": "options=-c%20port%3D1"}, 'parameter "port" cannot be changed'),
        ({"query": "options=--nosuch%20x"}, "--nosuch requires a value"),
        ({"query": "replication=database"}, "not supported in a replication connection"),
        ({"query": "target_session_attrs=standby"}, "server is not in hot standby mode"),
        ({"query": "target_session_attrs=read-only"}, "session is not read-only"),
        ({"path": "/template0"}, 'database "template0" is not currently accepting connections'),
        ({"PGOPTIONS": "-c nosuch=1"}, 'unrecognized configuration parameter "nosuch"'),
        ({"PGTZ": "Mars/X"}, 'invalid value for parameter "TimeZone": "Mars/X"'),
        ({"PGDATESTYLE": "xx"}, 'invalid value for parameter "DateStyle": "xx"'),
        ({"PGREQUIREAUTH": "scram-sha-256"}, 'authentication method requirement "scram-sha-256" failed'),
        ({"PGCHANNELBINDING": "require"}, "channel binding"),
        ({"PGGSSENCMODE": "require"}, "GSSAPI"),
    ],
)
def test_settings_that_do_not_fit_are_told_of(turnlog: SecretiveCommand, setting: dict[str, str], told: str) -> None:
    """Not that the server may not run, nor to try again: waiting does not help."""
    turnlog.store.parent.mkdir()
    environment = {name: value for name, value in setting.items() if name.startswith("PG")}
    changes = {name: value for name, value in setting.items() if name not in environment}
    line = turnlog.refused("threads", TURNLOG_STORE=with_password(turnlog.url, **changes), **environment)
    assert told in line
    assert line.endswith("; check the settings of the connection, in its URL and in the environment")


def test_wrong_password_is_one_line(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """As the server says it."""
    roles = Roles(own_postgres.url())
    role = roles.make("someone")
    (own_postgres.data / "pg_hba.conf").write_text(
        "host all postgres all trust\nhost all all all scram-sha-256\nlocal all all trust\n"
    )
    own_postgres.configure(log_connections="off")
    url = f"postgresql://{quote(role)}:{PASSWORD}@127.0.0.1:{own_postgres.port}/postgres"
    command = SecretiveCommand(store=tmp_path / "log.db", address=url)
    assert f'password authentication failed for user "{role}"' in command.refused("threads")
    assert "there is no log" in command.refused("threads", TURNLOG_STORE=url.replace(PASSWORD, "secret"))


def test_other_forms_of_a_url(turnlog: SecretiveCommand, own_postgres: PostgresServer) -> None:
    """`postgres://`, capitals, a Unix socket, a schema of any name; each schema is a log of its own."""
    turnlog.store.parent.mkdir()
    socket = own_postgres.url(unix=True)
    for url in (
        turnlog.url.replace("postgresql://", "postgres://"),
        turnlog.url.replace("postgresql://", "POSTGRESQL://") + "?schema=capitals",
        socket,
        socket + "&schema=other",
    ):
        turnlog.ok("add", "hello", "--bookmark", "main", "--store", url)
        assert len(turnlog.ok("threads", TURNLOG_STORE=url).text.splitlines()) == 1
    for name in ("My%20%22odd%22%20%C3%9Cber%27s", "select", 63 * "s"):
        url = f"{turnlog.url}?schema={name}"
        turnlog.ok("add", "hello", "--bookmark", "main", "--store", url)
        assert len(turnlog.ok("threads", TURNLOG_STORE=url).text.splitlines()) == 1
        assert turnlog.ok("verify", TURNLOG_STORE=url).text.startswith("clean  2 events")
        assert "hello" in turnlog.ok("search", "hello", TURNLOG_STORE=url).text


@pytest.mark.parametrize("module", ["psycopg", "psycopg_pool", "libpq"])
def test_extra_that_is_not_installed_is_named(tmp_path: Path, module: str) -> None:
    """Without psycopg, or without its library, files still work."""
    hook = f"""\
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        if {module!r} == "libpq" and name == "psycopg":
            raise ImportError("no pq wrapper available.\\nAttempts made: none")
sys.meta_path.insert(0, Missing())
from turnlog.cli import main
sys.exit(main())
"""
    command = Command(store=tmp_path / "log.db")
    for url, status, told in (
        (
            f"postgresql://u:{PASSWORD}@h/d",
            2,
            "turnlog: a PostgreSQL store needs an extra: pip install 'turnlog[postgres]'\n",
        ),
        (command.url, 0, ""),
    ):
        for arguments in (["add", "x"], ["threads"]):
            done = subprocess.run(
                [sys.executable, "-c", hook, *arguments],
                env=command.environment(TURNLOG_STORE=url),
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            assert (done.returncode, done.stderr.decode()) == (status, told)


def test_grant(turnlog: SecretiveCommand, roles: Roles) -> None:
    """The owner says who reads and who writes; others are told what they may not."""
    turnlog.store.parent.mkdir()
    turnlog.ok("add", "hello", "--bookmark", "main")
    writer, reader = roles.make("writer"), roles.make("reader")
    assert turnlog.ok("grant", writer, "--write").text == f"{writer} may write from now on\n"
    assert turnlog.ok("grant", reader, "--read", "--json").json == {"role": reader, "may": "read"}
    as_writer, as_reader = ({"TURNLOG_STORE": roles.url_of(role)} for role in (writer, reader))
    turnlog.ok("add", "more", "--continues", "main", **as_writer)
    turnlog.ok("pointer", "set", "milli", "openai", "m", **as_writer)
    turnlog.ok("keys", "new", "--name", "log", **as_writer, TURNLOG_KEYRING="0")
    assert turnlog("checkpoint", **as_writer).status == 0
    for command in (("log",), ("search", "hello"), ("verify",), ("export",), ("projections",), ("usage",), ("stats",)):
        assert turnlog(*command, **as_reader).status == 0, command
    line = turnlog.refused("add", "x", **as_reader)
    assert line.endswith("connect as one that may, see `turnlog grant`\n") or "see `turnlog grant`" in line
    for role in (as_writer, as_reader):
        erase = ("erase", "--turn", "main", "--reason", "x", "--yes")
        assert "only the owner of store" in turnlog.refused(*erase, **role)
        assert "only the owner of store" in turnlog.refused("erase", "--finish", **role)
        assert "can say who else uses it" in turnlog.refused("grant", reader, "--write", **role)
        assert "can build its tables anew" in turnlog.refused("projections", "rebuild", "thread index", **role)
    assert turnlog.ok("grant", reader, "--nothing").text == f"{reader} has no rights any more\n"
    assert f"role '{reader}' has no rights on store" in turnlog.refused("log", **as_reader)
    assert "give one of --read, --write and --nothing" in turnlog.refused("grant", reader)
    assert "there is no role 'nobody'" in turnlog.refused("grant", "nobody", "--read")
    file = f"sqlite:///{turnlog.store}"
    assert "only a PostgreSQL store has roles" in turnlog.refused("grant", reader, "--read", TURNLOG_STORE=file)


def test_server_that_goes_away_is_one_line(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Whoever follows is told after the time that appends wait, and Ctrl-C ends it at once."""
    command = SecretiveCommand(store=tmp_path / "log.db", address=with_password(own_postgres.create_database("talk")))
    command.ok("add", "hello", "--bookmark", "main")
    following = command.begin("tail", "--follow")
    assert following.stdout is not None
    assert b"log.genesis" in following.stdout.readline()
    following.stdout.readline()
    own_postgres.kill()
    assert "Connection refused" in command.refused("add", "x", "--continues", "main")
    own_postgres.start()
    command.ok("add", "again", "--continues", "main")
    assert b"gpt.turn" in following.stdout.readline()
    own_postgres.kill()
    following.send_signal(2)
    out, error = following.communicate(timeout=20)
    assert (following.returncode, out, error) == (130, b"", b"turnlog: interrupted\n")


def test_no_password_in_a_traceback(tmp_path: Path) -> None:
    """Not even where turnlog shows all of an error."""
    command = SecretiveCommand(store=tmp_path / "log.db", address=f"postgresql://u:{PASSWORD}@127.0.0.1:1/d")
    assert command("threads", TURNLOG_TRACEBACK="1").status == 2
    assert os.environ.get("TURNLOG_STORE") is None


def test_lost_table_of_events_is_damage(turnlog: SecretiveCommand) -> None:
    """`verify` says so, and `add` makes no log beside what is left."""
    turnlog("add", "hello")
    with psycopg.connect(turnlog.address, autocommit=True) as connection:
        connection.execute("DROP TABLE turnlog.stored_events CASCADE")
    for arguments, code in ((("verify",), 1), (("add", "more"), 2)):
        outcome = turnlog(*arguments)
        assert (outcome.status, "has lost its table of events: restore a backup" in outcome.stderr) == (code, True)


def test_what_has_no_place_in_the_log_yet_is_told(turnlog: SecretiveCommand) -> None:
    """Where a session only reads, and so can give it none: nothing is left out of a listing in silence."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("first", bookmark="main")
        log.add_turn("second", continues="main")
    reader = SecretiveCommand(
        store=turnlog.store, address=f"{turnlog.url}?options=-c%20default_transaction_read_only%3Don"
    )
    shown = reader("log")
    assert (shown.status, "second" in shown.text) == (0, False)
    assert re.fullmatch(r"turnlog: [1-9] events? recorded last had no place in the log yet, .*\n", shown.stderr)
    assert "second" in turnlog.ok("log").text
    assert "second" in reader.ok("log").text
