"""The real command in a real process, and a log that it can be tried on."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from tests.cli.forked import Begun, can_fork, run_forked

from turnlog import TurnLog
from turnlog.ids import derived_id
from turnlog.model import ReplyFacts
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import open_store

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05Z"
TIMEOUT_S = 60

_RULES = os.environ.get("KF_RULE_CACHE_DIR") or str(
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kingfisher" / "rule-cache"
)
"""Where the rules that find secrets are kept as they are compiled: that takes seconds, and they are no user's data."""

_INTERRUPTED = """\
import io, os, signal, sys
from turnlog.cli import main

class Interrupting(io.RawIOBase):
    def readable(self):
        return True
    def readinto(self, buffer):
        os.kill(os.getpid(), signal.SIGINT)
        return 0

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stdin = io.TextIOWrapper(io.BufferedReader(Interrupting()))
sys.exit(main())
"""
"""A program that runs the command with a standard input that sends SIGINT when it is read."""


def as_json(value: object):
    """Return a value as it comes back from JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def turn_id(name: str) -> str:
    """Return an id that is always the same for a name."""
    return derived_id(TIME, name)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command left behind."""

    stdout: bytes
    stderr: str
    status: int

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode()

    @property
    def json(self):
        """Standard output as one JSON value."""
        return msgspec.json.decode(self.stdout)

    @property
    def json_lines(self) -> list:
        """Standard output as JSON values, one a line."""
        return [msgspec.json.decode(line) for line in self.stdout.splitlines()]


@dataclass(frozen=True, kw_only=True)
class Command:
    """`turnlog`, with a store of its own by default.

    Attributes:
        store: the file of the store.
        folder: where it is run by a call; None for where this process is.
    """

    store: Path
    folder: Path | None = None

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"sqlite:///{self.store}"

    def environment(self, **changes: str) -> dict[str, str]:
        """Return an environment in which nothing but the store is set up, and no user data is in reach."""
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.store.parent),
            "XDG_DATA_HOME": str(self.store.parent / "data"),
            "TURNLOG_STORE": self.url,
            "KF_RULE_CACHE_DIR": _RULES,
            **changes,
        }

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", **environment: str) -> Outcome:
        """Run the command to its end."""
        words, variables = [str(argument) for argument in arguments], self.environment(**environment)
        if not can_fork(variables):
            return self.started(*words, stdin=stdin, **environment)
        stdout, stderr, status = run_forked(
            words, environment=variables, stdin=stdin, folder=self.folder, timeout_s=TIMEOUT_S
        )
        return Outcome(stdout=stdout, stderr=stderr.decode(), status=status)

    def started(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Outcome:
        """Run the command to its end, in a process that has imported nothing before."""
        done = subprocess.run(
            [sys.executable, "-m", "turnlog", *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment(**environment),
            cwd=self.folder,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Outcome(stdout=done.stdout, stderr=done.stderr.decode(), status=done.returncode)

    def begin(
        self,
        *arguments: str,
        is_fed: bool = False,
        stdout: int | None = None,
        is_joined: bool = False,
        **environment: str,
    ) -> Begun | subprocess.Popen[bytes]:
        """Start the command, and return it: see `Begun`."""
        variables = self.environment(**environment)
        if can_fork(variables):
            return Begun(
                arguments,
                environment=variables,
                folder=self.folder,
                is_fed=is_fed,
                stdout=stdout,
                is_joined=is_joined,
            )
        return subprocess.Popen(
            [sys.executable, "-m", "turnlog", *arguments],
            stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.STDOUT if is_joined else subprocess.PIPE,
            env=variables,
            cwd=self.folder,
        )

    def ok(self, *arguments: str | Path, stdin: bytes = b"", **environment: str) -> Outcome:
        """Run the command, which is to succeed and to say nothing on standard error."""
        outcome = self(*arguments, stdin=stdin, **environment)
        assert (outcome.status, outcome.stderr) == (0, ""), outcome
        return outcome

    def refused(self, *arguments: str | Path, stdin: bytes = b"", **environment: str) -> str:
        """Run the command, which is to fail with status 2, and return its one line without the name in front."""
        outcome = self(*arguments, stdin=stdin, **environment)
        assert (outcome.status, outcome.stdout) == (2, b""), outcome
        line, end, rest = outcome.stderr.partition("\n")
        assert (end, rest) == ("\n", ""), outcome.stderr
        assert line.startswith("turnlog: ")
        return line.removeprefix("turnlog: ")

    def absent(self, name: str, what: str = "turn or bookmark", *, meant: str = "") -> str:
        """Return the line that says that there is no turn of a name, what was meant, and how to see which there are."""
        place, near = str(self.store), f"{meant}; " if meant else ""
        return f"no {what} {name!r}; {near}`turnlog threads` and `turnlog bookmarks` list what there is in {place!r}"

    def into(self, path: str, *arguments: str, stdin: bytes = b"", **environment: str) -> Outcome:
        """Run the command with its standard output in a file."""
        with Path(path).open("wb") as file:
            return self.writing_to(file.fileno(), *arguments, stdin=stdin, **environment)

    def into_closed_pipe(self, *arguments: str) -> Outcome:
        """Run the command with a standard output that nobody reads any more."""
        reader, writer = os.pipe()
        os.close(reader)
        try:
            return self.writing_to(writer, *arguments)
        finally:
            os.close(writer)

    def writing_to(self, stdout: int, *arguments: str, stdin: bytes = b"", **environment: str) -> Outcome:
        """Run the command to its end with its standard output in an open file."""
        variables = self.environment(**environment)
        if can_fork(variables):
            _, said, status = run_forked(
                arguments, environment=variables, stdin=stdin, stdout=stdout, timeout_s=TIMEOUT_S
            )
            return Outcome(stdout=b"", stderr=said.decode(), status=status)
        done = subprocess.run(
            [sys.executable, "-m", "turnlog", *arguments],
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=variables,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Outcome(stdout=b"", stderr=done.stderr.decode(), status=done.returncode)

    def on_terminal(self, stream: str, *arguments: str, **environment: str) -> Outcome:
        """Run the command with one of its streams, `stdout` or `stderr`, on a terminal, and return what it got there.

        That is `stdout` of the outcome; what went to the other one, a pipe, is `stderr`.
        """
        leader, follower = pty.openpty()
        other = "stderr" if stream == "stdout" else "stdout"
        with subprocess.Popen(
            [sys.executable, "-m", "turnlog", *arguments],
            stdin=subprocess.DEVNULL,
            env=self.environment(**environment),
            **{stream: follower, other: subprocess.PIPE},
        ) as process:
            os.close(follower)
            written = b""
            with suppress(OSError):  # Linux's end of file on a terminal whose other side is closed
                while chunk := os.read(leader, 65536):
                    written += chunk
            os.close(leader)
            pipe = process.stderr or process.stdout
            assert pipe is not None
            rest = pipe.read()
        return Outcome(stdout=written, stderr=rest.decode(), status=process.returncode)

    def interrupted_while_reading_stdin(self, *arguments: str) -> Outcome:
        """Run the command, stop it as Ctrl-C does when it reads its standard input, and return what it left."""
        return self.within(_INTERRUPTED, *arguments)

    def within(self, program: str, *arguments: str | Path) -> Outcome:
        """Run the command within a program of Python, which changes something before it calls `main`."""
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self.environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        return Outcome(stdout=done.stdout, stderr=done.stderr.decode(), status=done.returncode)


def clocked_log(url: str, time: datetime = TIME) -> TurnLog:
    """Open a log whose clock stands."""
    sources = Sources(time_ms=lambda: int(time.timestamp() * 1000))
    return TurnLog(open_store(url, projections=synchronous()), sources=sources)


def write_conversation(url: str) -> dict[str, str]:
    """Record a fork and a merge at the time `TIME`, and return the turns' ids by name.

    `a` asks, `b` answers (bookmark `main`); `c` forks from `b` (bookmark `try`), `d` goes on; `e` merges `d` and `c`.
    """
    ids = {name: turn_id(name) for name in "abcde"}
    with clocked_log(url) as log:
        log.add_turn("How do I log?\nIn detail.", bookmark="main", servers=["fs"], id=ids["a"])
        log.add_turn("Append.", role="assistant", continues="main", reply=ReplyFacts(model="m-1"), id=ids["b"])
        log.add_turn("And in Rust?", continues=ids["b"], bookmark="try", id=ids["c"])
        log.add_turn("And in Python?", continues="main", id=ids["d"])
        log.add_turn("Compare.", continues=["main", "try"], search=False, id=ids["e"])
    return ids


@dataclass(frozen=True, kw_only=True)
class ServerCommand(Command):
    """`turnlog`, with a log on a server."""

    address: str

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self.address
