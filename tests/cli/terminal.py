"""The real command on a terminal of its own, as a person sits in front of it."""

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.command import TIMEOUT_S, Command
from tests.cli.forked import Forked, can_fork

CTRL_C = "\x03"
CTRL_D = "\x04"
ROWS, COLUMNS = 50, 120
_PATIENCE_S = 5
_LEADING = Path(__file__).with_name("leading.py")


class Terminal:
    """A terminal with the command on it: all three streams, or a shell line with it in the middle."""

    def __init__(
        self,
        command: Command,
        *arguments: str,
        piped: bytes | None = None,
        columns: int = COLUMNS,
        colour: bool = False,
        folder: Path | None = None,
        **environment: str,
    ) -> None:
        """Prepare it.

        Args:
            command: the command.
            arguments: its arguments.
            piped: what its standard input has, in place of the terminal.
            columns: how wide the terminal is.
            colour: whether it shows colours and can erase. By default it can do nothing but print.
            folder: where the command is typed; by default where this process is.
            environment: changes to its environment.
        """
        self._arguments = arguments
        self._piped = piped
        self._columns = columns
        self._folder = folder
        kind = {"TERM": "xterm-256color"} if colour else {"TERM": "dumb", "NO_COLOR": "1"}
        self._environment = command.environment(**(kind | environment))
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._bytes = bytearray()
        self._written = ""
        self._read_to = 0

    def __enter__(self) -> Self:
        """Start the command."""
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, self._columns, 0, 0))
        told, telling = os.pipe()
        held, self._holding = os.pipe()
        stdin, fed = (os.dup(follower), None) if self._piped is None else os.pipe()
        self._told = os.fdopen(told, "rb", buffering=0)
        self._status: int | None = None
        self._leading = self._lead((stdin, follower, follower), telling, held)
        for each in (follower, telling, held, stdin):
            os.close(each)
        if fed is not None and self._piped is not None:
            with os.fdopen(fed, "wb") as file:
                file.write(self._piped)
        self.process_id = int(self._told.readline())
        return self

    def _lead(self, streams: tuple[int, int, int], telling: int, held: int) -> Forked | subprocess.Popen[bytes]:
        """Start the process that the terminal belongs to, and that starts the command."""
        terminal = 0 if self._piped is None else 2
        if can_fork(self._environment):
            return Forked(
                self._arguments,
                environment=self._environment,
                streams=(*streams, telling, held),
                folder=self._folder,
                terminal=terminal,
            )
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [sys.executable, _LEADING, *map(str, (terminal, telling, held)), *self._arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
            pass_fds=(telling, held),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the command if it has not ended."""
        if not select.select([self._told], [], [], 0)[0] and self._status is None:
            os.kill(self.process_id, signal.SIGKILL)
        os.close(self._holding)
        self._leading.wait(TIMEOUT_S)
        self._told.close()
        os.close(self._leader)

    def expect(self, text: str) -> str:
        """Read until a text comes, and return what came before it since the last time."""
        while text not in self._written[self._read_to :]:
            assert self._read(), f"{text!r} did not come: {self._written!r}"
        before, _, _ = self._written[self._read_to :].partition(text)
        self._read_to += len(before) + len(text)
        return before

    @property
    def output(self) -> bytes:
        """All bytes that the terminal got so far."""
        return bytes(self._bytes)

    def send(self, text: str) -> None:
        """Type a text."""
        os.write(self._leader, text.encode())

    def interrupt(self, text: str) -> str:
        """Type Ctrl-C at a prompt, and read until a text comes of it; return what came before the text.

        A Ctrl-C that comes after the prompt is written and before Python waits for the answer is seen when the wait
        ends, which it does not by itself. So it is typed again where nothing comes, as a person would.
        """
        self.send(CTRL_C)
        while text not in self._written[self._read_to :]:
            ready, _, _ = select.select([self._leader], [], [], _PATIENCE_S)
            if ready:
                assert self._read(), f"{text!r} did not come: {self._written!r}"
            else:
                self.send(CTRL_C)
        return self.expect(text)

    def stop(self, how: str) -> tuple[str, int, float]:
        """Stop the command, and return what it wrote, its exit status, and the seconds that it took.

        Args:
            how: Ctrl-C or the name of a signal, and perhaps how often: `Ctrl-C thrice`, `SIGTERM twice`.
        """
        name, _, times = how.partition(" ")
        begin_s = time.monotonic()
        for _ in range({"": 1, "twice": 2, "thrice": 3}[times]):
            if name == "Ctrl-C":
                self.send(CTRL_C)
            else:
                os.kill(self.process_id, signal.Signals[name])
            time.sleep(0.05)  # a person's fingers: signals that come together are one
        written, status = self.end()
        return written, status, time.monotonic() - begin_s

    def end(self) -> tuple[str, int]:
        """Read to the end, and return what was not read before, and the exit status."""
        while True:
            ready = self._wait(TIMEOUT_S if self._status is None else _PATIENCE_S)
            if self._leader in ready:
                if not self._read():
                    break
            elif ready:
                self._status = int(self._told.readline())
            else:
                break  # what it has started may have the terminal still
        if self._status is None:
            self._status = int(self._told.readline())
        return self._written[self._read_to :], self._status

    def _wait(self, timeout_s: float) -> list[int]:
        """Wait for output, or for the end of the command; where it has ended, for output alone."""
        told = [] if self._status is not None else [self._told.fileno()]
        ready, _, _ = select.select([self._leader, *told], [], [], timeout_s)
        return ready

    def end_by(self, number: signal.Signals) -> tuple[str, int]:
        """Send the command a signal, read to the end, and return as `end` does.

        A signal that comes before Python waits at a prompt is seen when the wait ends, as with `interrupt`. What tells
        of a change of the size of the terminal ends it.
        """
        os.kill(self.process_id, number)
        while not (ready := self._wait(_PATIENCE_S)) or (self._leader in ready and self._read()):
            if not ready:
                os.kill(self.process_id, signal.SIGWINCH)
        return self.end()

    def hang_up(self) -> int:
        """Take the terminal away, tell the command so, as a shell does, and return its exit status.

        Both come at once: a command that reads the end of its input before it is told can end by itself, and be
        killed on its way out.
        """
        os.kill(self.process_id, signal.SIGSTOP)
        os.close(self._leader)
        self._leader = os.open(os.devnull, os.O_RDONLY)
        os.kill(self.process_id, signal.SIGHUP)
        os.kill(self.process_id, signal.SIGCONT)
        self._status = int(self._told.readline())
        return self._status

    def _read(self) -> bool:
        with suppress(OSError):  # Linux's end of file on a terminal whose other side is closed
            if chunk := os.read(self._leader, 65536):
                # A character, or the end of a line, may come in two pieces.
                self._bytes += chunk
                self._written = (self._written + self._decoder.decode(chunk)).replace("\r\n", "\n")
                return True
        return False
