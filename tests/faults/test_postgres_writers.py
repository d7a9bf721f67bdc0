"""Writers on PostgreSQL in processes of their own, with aborts, cut connections and kills; followers see one order.

Each writer notes what it is about to record, and what was acknowledged, in a file before it goes on, so that a process
that is killed leaves both. At the end they are held against the log.
"""

import os
import random
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import psycopg
import pytest
from tests.servers.postgres import PostgresServer
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.errors import StoreBusyError, StoreOpenError
from turnlog.ids import new_id
from turnlog.record import plan_turn, turn_draft
from turnlog.sources import Sources
from turnlog.store import WriteTransaction
from turnlog.testing.faults import run_processes

PROCESSES, THREADS, FOLLOWERS = 4, 4, 3
SECONDS = 90.0 if SOAK else 2.0
ROUNDS_MIN = 8
CRASHES = 6 if SOAK else 1
TERMINATE_S = 0.1
"""How often a connection is cut, on the average, in seconds."""
END = "acme.end"
_sources = Sources()


class _AbortError(Exception):
    """Raised by a plan after it has appended."""


class _Notes:
    """What a writer was about to do, and what was acknowledged: a line each, whole or absent."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def _opened(url: str) -> TurnLog:
    """Open a log, again where the connection is cut meanwhile."""
    while True:
        with suppress(StoreOpenError, StoreBusyError):
            return TurnLog.open(url)
        sleep(0.05)


class _Appender:
    """Appends in all ways, one after the other."""

    def __init__(self, log: TurnLog, notes: _Notes, name: str, seed: int) -> None:
        self._log = log
        self._notes = notes
        self._own = f"{name} {seed}"
        self._source = random.Random(self._own)
        self._numbers = count()

    def run(self, until: float) -> None:
        """Append until a time has come, and a little on a slow machine too."""
        self._log.add_turn(self._text(), bookmark=self._own)
        ways = (self._turn, self._aborted, self._several, self._event, self._bookmark)
        rounds = count()
        while next(rounds) < ROUNDS_MIN or monotonic() < until:
            [way] = self._source.choices(ways, (60, 15, 19, 3, 3))
            way(new_id() if self._source.random() < 0.5 else None, self._source.choice(["main", self._own]))

    def _text(self) -> str:
        said = f"{self._own} {next(self._numbers)}"
        self._notes.add("try", _word(said))
        return said

    def _done(self, event_id: str, position: int, said: str) -> None:
        self._notes.add("done", event_id, position, _word(said))

    def _turn(self, given: str | None, bookmark: str) -> None:
        said = self._text()
        turn = self._log.add_turn(said, continues=bookmark, id=given)
        self._done(turn.id, turn.global_position, said)

    def _aborted(self, _: str | None, bookmark: str) -> None:
        texts = self._texts()
        for said in texts:
            self._notes.add("abort", _word(said))
        with suppress(_AbortError):
            self._log.store.write(self._plan(texts, bookmark, aborts=True))

    def _several(self, _: str | None, bookmark: str) -> None:
        texts = self._texts()
        ids = self._log.store.write(self._plan(texts, bookmark, aborts=False))
        for event_id, said in zip(ids, texts, strict=True):
            self._done(event_id, self._log.event(event_id).global_position, said)

    def _event(self, given: str | None, _: str) -> None:
        said = self._text()
        recorded = self._log.add_event("acme.note", said.encode(), id=given)
        self._done(recorded.header.id, recorded.global_position, said)

    def _bookmark(self, _given: str | None, _: str) -> None:
        self._log.bookmarks.set(f"{self._own} too", self._own)

    def _texts(self) -> list[str]:
        return [self._text() for _ in range(self._source.choice([1, 1, 2, 5]))]

    def _plan(self, texts: list[str], bookmark: str, *, aborts: bool) -> Callable[[WriteTransaction], list[str]]:
        drafts = [turn_draft(said, continues=bookmark, id=new_id()) for said in texts]
        pause_s = self._source.random() * 0.02 if self._source.randrange(5) == 0 else 0.0

        def plan(transaction: WriteTransaction) -> list[str]:
            ids: list[str] = []
            for draft in drafts:
                placed = transaction.placed(draft.payload)
                ids.append(plan_turn(transaction, draft, placed, _sources).header.id)
            transaction.rows("SELECT 1")  # what was appended is with the server now
            sleep(pause_s)
            if aborts:
                raise _AbortError
            return ids

        return plan


def _word(text: str) -> str:
    return text.replace(" ", "_")


def _write(url: str, folder: str, process: int, seed: int, seconds: float, is_killed: bool) -> None:
    """Let 4 threads append: those of every other process with a connection of their own each."""
    if is_killed:
        kill_s = random.Random(seed).uniform(0, 1.5 * seconds)
        threading.Timer(kill_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    until = monotonic() + seconds
    failed: list[BaseException] = []

    def work(log: TurnLog, thread: int) -> None:
        try:
            notes = _Notes(Path(folder, f"{process}-{thread}.txt"))
            _Appender(log, notes, f"{process}/{thread}", seed).run(until)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failed.append(error)

    with ExitStack() as stack:
        logs = [stack.enter_context(_opened(url)) for _ in range(THREADS if process % 2 else 1)]
        threads = [threading.Thread(target=work, args=(logs[n % len(logs)], n)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _write_through_kills(url: str, folder: str, process: int, seconds: float) -> int:
    """Write until a time has come; each second process is killed now and then. Return how often that happened."""
    until = monotonic() + seconds
    killed = 0
    for seed in count():
        rest_s = until - monotonic()
        if rest_s <= 0:
            return killed
        round_s = min(rest_s, max(0.5, seconds / 20)) if process < 2 else rest_s
        # This process has no threads and no log of its own.
        writer = os.fork()
        if writer == 0:
            try:
                _write(url, folder, process, seed, round_s, process < 2)
            except BaseException as error:  # noqa: BLE001 - it is told in the notes
                _Notes(Path(folder, f"{process}-0.txt")).add("failed", repr("".join(traceback.format_exception(error))))
            os._exit(0)
        _, status = os.waitpid(writer, 0)
        killed += os.WIFSIGNALED(status)
    raise AssertionError


def _follow(url: str, file: str) -> int:
    """Write down what comes, until the end is there. Return how often it had to begin again."""
    seen: list[tuple[int, str]] = []
    again = 0
    while not seen or seen[-1][1] != END:
        with suppress(StoreBusyError, StoreOpenError), TurnLog.open(url) as log:
            position, event_id = seen[-1] if seen else (0, None)
            for event in log.events(position, after_id=event_id, follow=True):
                seen.append((event.global_position, event.header.id))
                if event.header.topic == END:
                    Path(file).write_text("".join(f"{position} {event_id}\n" for position, event_id in seen))
                    return again
        again += 1
        sleep(0.05)
    raise AssertionError


@contextmanager
def _in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    ended, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(ended)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]


def _cut_connections(url: str, cut: list[int]) -> Callable[[threading.Event], None]:
    """Return what cuts connections of turnlog at random."""
    source = random.Random(1)

    def work(ended: threading.Event) -> None:
        while not ended.wait(source.random() * 2 * TERMINATE_S):
            with suppress(psycopg.OperationalError), closing(psycopg.connect(url, autocommit=True)) as connection:
                found = connection.execute(
                    "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnlog'"
                    " AND datname = current_database() ORDER BY random() LIMIT 1"
                ).fetchall()
                cut.extend(pid for pid, _ in found)

    return work


def _check(url: str, folder: Path, files: list[Path]) -> Counter[str]:
    """Hold what was noted against the log, and return counts of what was."""
    notes = [line.split() for file in sorted(folder.glob("*-*.txt")) for line in file.read_text().splitlines()]
    failed = [" ".join(words[1:]) for words in notes if words[0] == "failed"]
    assert not failed, "\n".join(failed)
    with TurnLog.open(url) as log:
        order = [(event.global_position, event.header.id) for event in log.events()]
        said = {
            event.header.id: log.payload(event.header.id).decode() if event.header.topic == "gpt.turn" else ""
            for event in log.events(topics=["gpt.turn"])
        }
        assert [(event.global_position, event.header.id) for event in log.events()] == order
        report = log.verify()
        assert report.clean, report.damage[:3]
    assert [position for position, _ in order] == list(range(1, len(order) + 1))
    assert len({event_id for _, event_id in order}) == len(order)
    for file in files:
        assert file.read_text().splitlines() == [f"{position} {event_id}" for position, event_id in order]
    at = {event_id: position for position, event_id in order}
    done = [words[1:] for words in notes if words[0] == "done"]
    assert [words for words in done if at.get(words[0]) != int(words[1])] == []
    texts = Counter(text.split('"')[-2].replace(" ", "_") for text in said.values())
    assert [text for text, times in texts.items() if times > 1] == []
    tried = {words[1] for words in notes if words[0] == "try"}
    aborted = {words[1] for words in notes if words[0] == "abort"}
    assert set(texts) <= tried - aborted
    return Counter(events=len(order), acknowledged=len(done), aborted=len(aborted), tried=len(tried))


def _fire(url: str, folder: Path, *works: Callable[[threading.Event], None], seconds: float) -> Counter[str]:
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        (folder / "root-0.txt").write_text("try root\n")
    files = [folder / f"follower {number}" for number in range(FOLLOWERS)]
    ended: list[int] = []

    def write() -> None:
        arguments = [(_write_through_kills, (url, str(folder), process, seconds)) for process in range(PROCESSES)]
        try:
            ended.extend(run_processes(arguments))
        finally:
            with _opened(url) as log:
                log.add_event(END)

    with ExitStack() as stack:
        writing = threading.Thread(target=write)
        writing.start()
        stack.callback(writing.join)
        for work in works:
            stack.enter_context(_in_background(work))
        begun_again = run_processes([(_follow, (url, str(file))) for file in files])
    assert len(ended) == PROCESSES
    return _check(url, folder, files) + Counter(killed=sum(ended), followers_again=sum(begun_again))


@pytest.mark.timeout(1800 if SOAK else 300)
def test_followers_of_many_writers_see_each_event_once_in_one_order(tmp_path: Path, postgres_url: str) -> None:
    """16 writers in 4 processes with aborts and pauses; connections are cut, and processes killed."""
    cut: list[int] = []
    found = _fire(postgres_url, tmp_path, _cut_connections(postgres_url, cut), seconds=SECONDS)
    print(dict(found), "cut", len(cut))
    assert found["acknowledged"] > 20
    assert found["aborted"] > 5
    assert found["killed"] > 0
    assert cut


@pytest.mark.timeout(1800 if SOAK else 300)
def test_killed_server_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """It is killed while 16 writers are at it, and started again."""
    crashes: list[float] = []
    with PostgresServer(fsync=True) as server:
        url = server.create_database()

        def crash(ended: threading.Event) -> None:
            for _ in range(CRASHES):
                if ended.wait(SECONDS / (CRASHES + 1)):
                    return
                server.kill()
                crashes.append(monotonic())
                server.start()

        found = _fire(url, tmp_path, crash, seconds=SECONDS)
    print(dict(found), "crashes", len(crashes))
    assert found["acknowledged"] > 20
    assert len(crashes) == CRASHES
