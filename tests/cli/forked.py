"""Commands in processes of their own that have imported everything before they begin.

What a command imports is most of what it takes, and the tests start thousands. So one process of each test run imports
it all, and is copied (`fork`) for each command: what it then does, and all that it has of its own (streams, folder,
environment, signals), is a process's, as it is for a user. How a command starts from nothing is tested where nothing
else is: by `test_starting.py`, and by each test that changes how Python starts.

`commands_in` has the same for a shell: a program `turnlog` that hands over what it was called with.

Only Linux tells of the end of a process as this needs it (`pidfd_open`): elsewhere commands start by themselves.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pickle
import pkgutil
import select
import selectors
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, NamedTuple, NoReturn, Self

from tests.cli.leading import lead

import turnlog.__main__

ROOT = Path(__file__).parents[2]
_STREAMS = 3
_LEADING = 2
"""So many streams more has the process that a terminal belongs to."""

_HANDED_TIMEOUT_S = 60
_UNWRITTEN = 120
"""The exit status of Python if, at its end, an output cannot be written."""

_LATE = ("anthropic", "openai", "mcp", "httpcore2", "anyio._backends._asyncio", "rich.console", "rich.markdown")
"""What is imported where it is needed, beside parts of turnlog: by runs, and by pages of help."""

_PYTHON = ("PYTHON", "LC_", "LANG")
"""What the names of variables begin with that Python reads as it starts."""


_ENDED = struct.Struct("=iq")
"""What is told of a process that has ended: its exit status and the memory that it took at most, in bytes."""


class _Job(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    terminal: int | None


def can_fork(environment: Mapping[str, str]) -> bool:
    """Tell whether a command with this environment can be a copy of a process that runs already."""
    given = {name for name in environment if name.startswith(_PYTHON)} - {"PYTHON_KEYRING_BACKEND"}
    if environment.get("PYTHONPATH") == str(ROOT):  # the copied process has it too
        given.discard("PYTHONPATH")
    if environment.get("LANG") == "C.UTF-8":  # what Python makes of none (PEP 538)
        given.discard("LANG")
    return not given and hasattr(os, "pidfd_open")


class Forked:
    """A command that runs in a process of its own, with streams that are given to it.

    Attributes:
        pid: the process.
        peak_bytes: how much memory it took at most, with that of the copied process; 0 until it has ended.
    """

    peak_bytes = 0

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        streams: Sequence[int],
        folder: str | Path | None = None,
        terminal: int | None = None,
    ) -> None:
        """Start it, in this folder or another one. Its streams, standard input, output and error, stay open here.

        With a terminal, the number of a stream that is one, this process is the one that the terminal belongs to, and
        `lead` starts the command; two more streams are what that takes.
        """
        ours, theirs = socket.socketpair()
        self._connection = ours
        with theirs:
            socket.send_fds(_copied(), [b"!"], [theirs.fileno(), *streams])
        job = _Job(list(arguments), dict(environment), str(folder or Path.cwd()), terminal)
        ours.sendall(pickle.dumps(job))
        ours.shutdown(socket.SHUT_WR)
        self.pid = int.from_bytes(ours.recv(4))

    def has_ended(self) -> bool:
        """Tell whether `wait` would return at once. It is not asked any more after that."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def wait(self, timeout_s: float) -> int:
        """Wait for its end, and return its exit status, as `subprocess` has it.

        Raises:
            TimeoutError: it did not end in time, and was killed.
        """
        with self._connection as connection:
            connection.settimeout(timeout_s)
            try:
                status, self.peak_bytes = _ENDED.unpack(connection.recv(_ENDED.size))
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                raise
            return status


class Begun:
    """A command in a copied process that goes on, with pipes for its streams: it is used as `subprocess.Popen` is.

    Attributes:
        stdin: what it reads; None where there is nothing to read.
        stdout: what it writes; None where that goes elsewhere.
        stderr: what it says; None where that is in `stdout`.
        returncode: its exit status, once that was asked for.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str | Path | None = None,
        is_fed: bool = False,
        stdout: int | None = None,
        is_joined: bool = False,
    ) -> None:
        """Start it.

        Args:
            arguments: its arguments.
            environment: its environment.
            folder: where it runs, if not where this process does.
            is_fed: whether there is something to read.
            stdout: what it writes to, which stays open; None for a pipe.
            is_joined: whether what it says goes where it writes to.
        """
        given, fed = os.pipe()
        out, said = os.pipe()
        err, told = os.pipe()
        streams = (given, said if stdout is None else stdout, said if is_joined else told)
        self._command = Forked(arguments, environment=environment, streams=streams, folder=folder)
        self.pid = self._command.pid
        for stream in (given, said, told):
            os.close(stream)
        self.stdin: IO[bytes] | None = open(fed, "wb")  # noqa: SIM115, PTH123 - closed at the end
        self.stdout: IO[bytes] | None = open(out, "rb")  # noqa: SIM115, PTH123
        self.stderr: IO[bytes] | None = open(err, "rb")  # noqa: SIM115, PTH123
        self.returncode: int | None = None
        if not is_fed:
            self.stdin.close()
            self.stdin = None
        if stdout is not None:
            self.stdout.close()
            self.stdout = None
        if is_joined:
            self.stderr.close()
            self.stderr = None

    def poll(self) -> int | None:
        """Return its exit status, or None if it has not ended."""
        if self.returncode is None and self._command.has_ended():
            self.wait()
        return self.returncode

    def wait(self, timeout: float = _HANDED_TIMEOUT_S) -> int:
        """Wait for its end, and return its exit status.

        Raises:
            TimeoutError: it did not end in time, and was killed.
        """
        if self.returncode is None:
            self.returncode = self._command.wait(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: bytes = b"", timeout: float = _HANDED_TIMEOUT_S) -> tuple[bytes, bytes]:
        """Have it read the rest, wait for its end, and return the rest of what it wrote and said."""
        with ThreadPoolExecutor(_STREAMS) as pool:
            if self.stdin is not None:
                pool.submit(_feed, os.dup(self.stdin.fileno()), input)
                self.stdin.close()
            read = [pool.submit(each.read) for each in (self.stdout, self.stderr) if each is not None]
            self.wait(timeout)
            rest = [each.result() for each in read]
        self._close()
        return rest[0] if self.stdout is not None else b"", rest[-1] if self.stderr is not None else b""

    def __enter__(self) -> Self:
        """Do nothing: it is started."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what is open, and wait for its end."""
        self._close()
        self.wait()

    def _close(self) -> None:
        for each in (self.stdin, self.stdout, self.stderr):
            if each is not None:
                with suppress(BrokenPipeError):
                    each.close()


def run_forked(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    stdout: int | None = None,
    folder: str | Path | None = None,
) -> tuple[bytes, bytes, int]:
    """Run a command to its end, and return its standard output, its standard error and its exit status.

    Args:
        arguments: its arguments.
        environment: its environment.
        stdin: what it reads.
        timeout_s: how long it may take.
        stdout: what it writes to, which stays open; None for a pipe, which is read. What is not read is empty.
        folder: where it runs, if not where this process does.

    Raises:
        TimeoutError: it did not end in time, and was killed.
    """
    pairs = [os.pipe() for _ in range(_STREAMS)]
    (given, fed), (out, said), (err, told) = pairs
    streams = (given, said if stdout is None else stdout, told)
    command = Forked(arguments, environment=environment, streams=streams, folder=folder)
    for stream in (given, said, told):
        os.close(stream)
    with ThreadPoolExecutor(_STREAMS) as pool:
        pool.submit(_feed, fed, stdin)
        read = [pool.submit(_read, stream) for stream in (out, err)]
        status = command.wait(timeout_s)
        return read[0].result(), read[1].result(), status


_HANDING_OVER = """\
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(ADDRESS)
    socket.send_fds(connection, [b"!"], [0, 1, 2])
    connection.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode())
    connection.shutdown(socket.SHUT_WR)
    status = int(connection.makefile().read())
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""
"""A program that has a command run in a copied process with its own streams, and ends as that does."""


class _Handed(socketserver.StreamRequestHandler):
    """Runs a command that was handed over, to its end."""

    def handle(self) -> None:
        _, streams, _, _ = socket.recv_fds(self.connection, 1, _STREAMS)
        arguments, environment, folder = json.load(self.rfile)
        command = Forked(arguments, environment=environment, streams=streams, folder=folder)
        for stream in streams:
            os.close(stream)
        self.wfile.write(str(command.wait(_HANDED_TIMEOUT_S)).encode())


@contextmanager
def commands_in() -> Generator[Path]:
    """Give a folder with a program `turnlog`, of which each run is a copy of a process that has imported everything."""
    _copied()
    with TemporaryDirectory(prefix="t") as name:  # a short one: what an address may have is little
        folder, address = Path(name), f"{name}/s"
        (folder / "handing_over.py").write_text(_HANDING_OVER.replace("ADDRESS", repr(address)))
        program = folder / "turnlog"
        program.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -ISE {quote(name)}/handing_over.py "$@"\n')
        program.chmod(0o755)
        with socketserver.ThreadingUnixStreamServer(address, _Handed) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield folder
            finally:
                server.shutdown()
                thread.join()


def _feed(stream: int, content: bytes) -> None:
    with suppress(BrokenPipeError), open(stream, "wb", buffering=0) as file:
        file.write(content)


def _read(stream: int) -> bytes:
    with open(stream, "rb") as file:
        return file.read()


@cache
def _copied() -> socket.socket:
    """Start the process that is copied, and return the connection to it. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forked", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
                "PYTHONPATH": str(ROOT),
                # What is freed goes back to the system at once, as with larger texts it does in any case: so what a
                # command takes at most is in proportion.
                "MALLOC_MMAP_THRESHOLD_": "65536",
            },
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # the last that was registered is called first
    return ours


# The process that is copied


def _serve(control: socket.socket) -> None:
    """Make copies until nobody can ask for one any more."""
    _import_all()
    gc.collect()
    gc.freeze()
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    process_id, connection = key.data
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, ended, used = os.wait4(process_id, 0)
                    with connection, suppress(OSError):
                        connection.sendall(_ENDED.pack(os.waitstatus_to_exitcode(ended), used.ru_maxrss * 1024))
                    continue
                asked, descriptors, _, _ = socket.recv_fds(control, 1, 1 + _STREAMS + _LEADING)
                if not asked:
                    return
                connection = socket.socket(fileno=descriptors[0])
                process_id = os.fork()
                if not process_id:
                    selector.close()
                    control.close()
                    _become(connection, descriptors[1:])
                for stream in descriptors[1:]:
                    os.close(stream)
                connection.sendall(process_id.to_bytes(4))
                selector.register(os.pidfd_open(process_id), selectors.EVENT_READ, (process_id, connection))


def _become(connection: socket.socket, streams: Sequence[int]) -> NoReturn:
    """Be the command that is asked for."""
    with connection:
        asked = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    job: _Job = pickle.loads(asked)  # noqa: S301 - of the process that started this one
    for number, stream in enumerate(streams[:_STREAMS]):
        os.dup2(stream, number)
        os.close(stream)
    if job.terminal is not None:
        os.setsid()
        lead(job.terminal, *streams[_STREAMS:])
    os.environ.clear()
    os.environ.update(job.environment)
    time.tzset()
    sys.path[1:1] = filter(None, job.environment.get("PYTHONPATH", "").split(os.pathsep))
    os.chdir(job.folder)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115, PTH123
        for number, (mode, buffering) in enumerate((("r", -1), ("w", -1), ("w", 1)))  # as Python has them
    )
    sys.argv = [turnlog.__main__.__file__, *job.arguments]
    status = turnlog.__main__.main()
    # As at the end of every process, but that nothing is taken apart of what was imported: that takes the longest.
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError as error:
            status = _UNWRITTEN
            if stream is sys.stdout:
                sys.unraisablehook(sys.UnraisableHookArgs((type(error), error, None, None, stream)))
    os._exit(status)


def _import_all() -> None:
    for module in pkgutil.walk_packages(turnlog.__path__, "turnlog."):
        if not module.name.startswith("turnlog.testing"):
            import_module(module.name)
    for name in _LATE:
        import_module(name)
    for point in entry_points(group="keyring.backends"):
        point.load()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)
