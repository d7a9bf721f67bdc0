"""Break things on purpose: kill processes at work, flip bytes, and compare what a log says before and after.

The processes are forked from a server that has imported turnlog and nothing else has run in: it has no threads and no
open store, so that a round of `run_and_kill` costs a few milliseconds and no lock is inherited.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from turnlog import Turn, TurnLog
from turnlog.events import Arrival
from turnlog.model import content_bytes

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["turnlog.testing.faults"])

WAIT_S = 60.0
"""How long to wait for a process that should answer at once. It is never waited for in full unless something hangs."""

_READY = "ready"

_children = threading.Lock()
"""Held while a process is started, and while its exit code is read: whoever starts one reads the exit codes of all that
have ended, and of two who read the same one gets nothing."""


class ProcessFailedError(Exception):
    """Say that a process ended by itself when it should have answered or been killed."""


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """A turn whose `add_turn` returned before its process was killed, and what it was asked to record."""

    id: str
    seed: int
    thread: int
    number: int

    @property
    def payload(self) -> bytes:
        """The payload that the log must have for it."""
        content = workload_content(self.seed, self.thread, self.number)
        return content if isinstance(content, bytes) else content_bytes(content)


def workload_content(seed: int, thread: int, number: int) -> str | bytes:
    """Return the content of one turn of the workload: text, or the bytes of a document. The same for the same numbers.

    Most are short texts; one in ten is a text, and one in ten a document, that is large enough to be kept as a file.
    """
    source = random.Random(f"{seed}/{thread}/{number}")
    kind = source.randrange(10)
    if kind == 0:
        return source.randbytes(source.randrange(64 * 1024, 160 * 1024))
    return source.randbytes(source.randrange(33_000, 60_000) if kind == 1 else source.randrange(1, 1000)).hex()


def run_and_kill(url: str, *, seed: int, threads: int, delay_s: float, folder: Path) -> list[Acknowledged]:
    """Let a process append to a log, kill it with SIGKILL, and return what it had acknowledged until then.

    Args:
        url: the log; the process opens it, or makes it.
        seed: what the process appends.
        threads: how many of its threads append at the same time; each keeps a bookmark of its own.
        delay_s: when to kill it, counted from just before it opens the log.
        folder: where it puts the documents that it records.

    Raises:
        ProcessFailedError: the process ended before it was killed.
    """
    receiver, sender = _processes.Pipe(duplex=False)
    process = _started(_append_for_ever, url, seed, threads, folder, sender)
    sender.close()
    found: list[Acknowledged] = []
    with receiver:
        if not receiver.poll(WAIT_S) or receiver.recv() != _READY:
            raise ProcessFailedError("the process did not start")
        end = time.monotonic() + delay_s
        while receiver.poll(max(end - time.monotonic(), 0)):
            try:
                found.append(Acknowledged(**receiver.recv()))
            except EOFError as error:
                raise ProcessFailedError(f"the process ended by itself: exit code {_exit_code(process)}") from error
            if time.monotonic() >= end:
                break
        process.kill()
        # The pipe holds what was acknowledged but not yet read; its last message may be cut.
        with suppress(EOFError, OSError):
            while True:
                found.append(Acknowledged(**receiver.recv()))
    _exit_code(process)
    return found


def _started(work: Callable[..., None], *arguments: object) -> Any:
    """Return a process that does something, started."""
    process = _processes.Process(target=work, args=arguments, daemon=True)
    with _children:
        process.start()
    return process


def _exit_code(process: Any) -> int:
    """Wait for the end of a process, and return its exit code. The process is closed then."""
    wait([process.sentinel])
    with _children:
        process.join()
        exit_code = process.exitcode
        process.close()
    return exit_code


def _append_for_ever(url: str, seed: int, threads: int, folder: Path, acknowledge: Connection) -> None:
    mutex = threading.Lock()
    acknowledge.send(_READY)
    log = TurnLog.open(url)

    def work(thread: int) -> None:
        for number in itertools.count():
            turn = _append_one(log, seed, thread, number, folder)
            with mutex:
                acknowledge.send({"id": turn.id, "seed": seed, "thread": thread, "number": number})

    others = [threading.Thread(target=work, args=(thread,), daemon=True) for thread in range(1, threads)]
    for other in others:
        other.start()
    work(0)


def _append_one(log: TurnLog, seed: int, thread: int, number: int, folder: Path) -> Turn:
    bookmark = f"thread {thread}"
    known = any(found.name == bookmark for found in log.bookmarks.all()) if number == 0 else True
    continues = bookmark if known else None
    content = workload_content(seed, thread, number)
    if isinstance(content, bytes):
        document = folder / f"document-{thread}.bin"
        document.write_bytes(content)
        return log.add_document(document, continues=continues, bookmark=bookmark)
    if number % 7 == 6:
        # A fork from an older turn, which becomes the head.
        older = log.ancestry(bookmark)[-3:][0]
        return log.add_turn(content, continues=older.id, bookmark=bookmark)
    return log.add_turn(content, continues=continues, bookmark=bookmark)


def run_process(work: Callable[..., Any], *arguments: object) -> Any:
    """Run a function in a process of its own and return what it returns. See `run_processes`."""
    return run_processes([(work, arguments)])[0]


def run_processes(works: list[tuple[Callable[..., Any], tuple[object, ...]]]) -> list[Any]:
    """Run functions in processes of their own, at the same time, and return what they return.

    Functions, arguments and results are pickled. The processes begin their work together.

    Raises:
        ProcessFailedError: a function raised (the error is in the message), or its process ended.
    """
    barrier = _processes.Barrier(len(works))
    running: list[tuple[Any, Connection]] = []
    for work, arguments in works:
        receiver, sender = _processes.Pipe(duplex=False)
        process = _started(_answer, barrier, sender, work, arguments)
        sender.close()
        running.append((process, receiver))
    results: list[Any] = []
    for process, receiver in running:
        with receiver:
            try:
                error, result = receiver.recv()
            except EOFError as ended:
                raise ProcessFailedError(f"the process ended by itself: exit code {_exit_code(process)}") from ended
        exit_code = _exit_code(process)
        if error is not None or exit_code:
            raise ProcessFailedError(error or f"the process answered, and ended with exit code {exit_code}")
        results.append(result)
    return results


def _answer(barrier: Any, answer: Connection, work: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    barrier.wait()
    try:
        result = work(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
        answer.send((f"{type(error).__name__}: {error}", None))
    else:
        answer.send((None, result))


def flip_bits(path: Path, offset: int, mask: int) -> None:
    """Change the byte at an offset of a file by exclusive or with a mask of 1 to 255."""
    with path.open("r+b") as file:
        file.seek(offset)
        [byte] = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ mask]))


def facts(log: TurnLog) -> dict[str, Any]:
    """Return all that a log says: its events with private parts and payloads, and the rows of its projections.

    Two logs with equal facts answer every question alike, but for whether an event was recorded there or restored.
    """
    with log.store.read() as transaction:
        recorded = list(transaction.log())
        return {
            "events": [
                (r.global_position, r.state, r.private_state, transaction.payload(r), r.arrival is Arrival.GUEST)
                for r in recorded
            ],
            "projections": {
                table: sorted(transaction.rows(f"SELECT * FROM {table}"), key=repr)
                for projection in log.store.projections
                for table in projection.tables
            },
        }
