"""What SQLite would drop of a write-ahead log is found, and what crashes leave there is not taken for it."""

import os
import random
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.unit.store.sqlite.simulated_wal import FRAME_HEADER, HEADER, Simulation, checksum

from turnlog.store.sqlite.wal import dropped_commits

PAGE = 1024
FRAME = FRAME_HEADER + PAGE


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _saved(path: Path, folder: Path) -> Path:
    """Copy a database and its log as they are, as if the power failed now."""
    folder.mkdir()
    for name in (path.name, path.name + "-wal"):
        shutil.copy(path.with_name(name), folder / name)
    return folder / path.name


def _rows(path: Path, folder: Path) -> list[int]:
    """Return what SQLite finds in a copy of a database."""
    with closing(sqlite3.connect(_saved(path, folder))) as connection:
        found = [number for (number,) in connection.execute("SELECT number FROM facts ORDER BY number")]
    shutil.rmtree(folder)
    return found


def _filled(folder: Path, *, page_bytes: int = PAGE, transactions: int = 12, begun_anew: bool = False) -> Path:
    """Make a database whose log has some transactions of several pages, each with one row, and copy it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "live.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE facts (number INTEGER PRIMARY KEY, content BLOB)")
        if begun_anew:
            connection.execute("INSERT INTO facts VALUES (-1, randomblob(?))", (200 * page_bytes,))
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        for number in range(transactions):
            connection.execute("INSERT INTO facts VALUES (?, randomblob(?))", (number, page_bytes * (number % 4)))
        return _saved(path, folder / "saved")


def _flip(path: Path, offset: int, bits: int = 0x10) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        [byte] = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


@contextmanager
def _flipped(path: Path, offset: int, bits: int = 0x10) -> Iterator[None]:
    _flip(path, offset, bits)
    try:
        yield
    finally:
        _flip(path, offset, bits)


def _commit_frames(wal: bytes | bytearray, page_bytes: int = PAGE) -> list[int]:
    """Return the numbers of the commit frames that have the salts of the header."""
    step = FRAME_HEADER + page_bytes
    found: list[int] = []
    for number in range((len(wal) - HEADER) // step):
        _, commits, salts = struct.unpack_from(">2I8s", wal, HEADER + number * step)
        if commits and salts == wal[16:24]:
            found.append(number + 1)
    return found


class TestDamage:
    """Damage to real logs, of which SQLite then drops something."""

    @pytest.mark.parametrize("page_bytes", [512, 1024, 4096, 8192, 65536])
    def test_sound_log_has_no_finding(self, tmp_path: Path, page_bytes: int) -> None:
        """A log as SQLite writes it is well, whatever the size of its pages."""
        path = _filled(tmp_path, page_bytes=page_bytes)
        assert len(_commit_frames(_wal(path).read_bytes(), page_bytes)) == 12
        assert dropped_commits(_wal(path)) == []

    @pytest.mark.parametrize("begun_anew", [False, True])
    def test_flipped_bit_before_the_last_transaction_is_found(self, tmp_path: Path, begun_anew: bool) -> None:
        """Wherever a byte changes, it is found with the frame, and the number is that of the rows that SQLite loses."""
        path = _filled(tmp_path, transactions=6, begun_anew=begun_anew)
        wal = _wal(path)
        commits = _commit_frames(wal.read_bytes())
        rows = len(_rows(path, tmp_path / "copy"))
        source = random.Random(1)
        starts = range(HEADER, HEADER + commits[-2] * FRAME, FRAME)
        offsets = [start + byte for start in starts for byte in (*range(0, FRAME_HEADER, 3), *range(24, FRAME, 193))]
        for offset in offsets:
            with _flipped(wal, offset, 1 << source.randrange(8)):
                [line] = dropped_commits(wal)
                frame, lost, last = map(int, re.findall(r"\d+", line))
                assert frame == (offset - HEADER) // FRAME + 1
                assert last == commits[-1]
                if (offset - HEADER) % FRAME in range(4, 8):
                    continue  # the mark of a commit frame: one more or one less is counted
                assert lost == sum(frame <= commit for commit in commits)
                if source.random() < 0.1:
                    assert len(_rows(path, tmp_path / "copy")) == rows - lost
        assert dropped_commits(wal) == []

    def test_flipped_bit_in_the_last_transaction_is_found(self, tmp_path: Path) -> None:
        """One changed byte in the last transaction is found too, in its commit frame if nothing stands behind it."""
        path = _filled(tmp_path, transactions=4)
        wal = _wal(path)
        commits = _commit_frames(wal.read_bytes())
        start, end = HEADER + commits[-2] * FRAME, HEADER + commits[-1] * FRAME
        assert end - start > 3 * FRAME
        assert end == wal.stat().st_size
        for offset in range(start, end, 31):
            if (offset - HEADER) % FRAME in range(4, 8):
                continue  # the mark of a commit frame: one more or one less is counted
            with _flipped(wal, offset):
                [line] = dropped_commits(wal)
                assert "1 committed transaction, up to" in line

    def test_several_kinds_of_damage_at_once_are_one_finding(self, tmp_path: Path) -> None:
        """SQLite stops at the first damage, and what stands behind the last counts too."""
        path = _filled(tmp_path)
        wal = _wal(path)
        commits = _commit_frames(wal.read_bytes())
        content = bytearray(wal.read_bytes())
        third, eighth = (HEADER + commits[number] * FRAME for number in (2, 7))
        content[third : third + 3 * FRAME] = bytes(3 * FRAME)
        content[eighth + 30 : eighth + 600] = os.urandom(570)
        wal.write_bytes(content)
        [line] = dropped_commits(wal)
        frame, lost, last = map(int, re.findall(r"\d+", line))
        assert (frame, last) == (commits[2] + 1, commits[-1])
        zeroed = sum(commits[2] < commit <= commits[2] + 3 for commit in commits)
        assert lost == len(commits) - 3 - zeroed
        assert len(_rows(path, tmp_path / "copy")) == 3

    def test_log_of_the_other_byte_order_is_read(self, tmp_path: Path) -> None:
        """Checksums are read in the byte order that the header says; SQLite agrees with the log made for this test."""
        path = _filled(tmp_path)
        wal = _wal(path)
        content = bytearray(wal.read_bytes())
        magic = struct.unpack_from(">I", content)[0] ^ 1
        order = "<>"[magic & 1]
        struct.pack_into(">I", content, 0, magic)
        sums = checksum(bytes(content[:24]), (0, 0), order)
        struct.pack_into(">2I", content, 24, *sums)
        for start in range(HEADER, len(content), FRAME):
            sums = checksum(bytes(content[start : start + 8] + content[start + 24 : start + FRAME]), sums, order)
            struct.pack_into(">2I", content, start + 16, *sums)
        wal.write_bytes(content)
        assert len(_rows(path, tmp_path / "copy")) == 12
        assert dropped_commits(wal) == []
        with _flipped(wal, HEADER + 3 * FRAME + 500):
            assert "frame 4 does not follow" in dropped_commits(wal)[0]

    def test_damaged_header_is_found(self, tmp_path: Path) -> None:
        """SQLite ignores a log whose header is damaged, wherever: each byte of it counts."""
        path = _filled(tmp_path)
        for offset in range(HEADER):
            with _flipped(_wal(path), offset):
                [line] = dropped_commits(_wal(path))
                assert line == (
                    "write-ahead log: its header is damaged, so that SQLite drops all of it: 12 committed transactions"
                )
                if offset % 8 == 0:
                    assert _rows_or_none(path, tmp_path / "copy") == []

    def test_commits_that_sqlite_has_dropped_are_found_until_they_are_written_over(self, tmp_path: Path) -> None:
        """Opening the store and appending to it does not hide what was dropped, while it is still there."""
        path = _filled(tmp_path)
        wal = _wal(path)
        commits = _commit_frames(wal.read_bytes())
        _flip(wal, HEADER + commits[4] * FRAME + 200)
        with closing(_connect(path)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            assert connection.execute("SELECT COUNT(*) FROM facts").fetchone() == (5,)
            assert len(dropped_commits(wal)) == 1
            connection.execute("INSERT INTO facts VALUES (100, NULL)")
            [line] = dropped_commits(wal)
            assert int(re.findall(r"\d+", line)[-1]) == commits[-1]

    def test_memory_is_bounded(self, tmp_path: Path) -> None:
        """A log is read frame by frame."""
        import tracemalloc  # noqa: PLC0415 - only here

        path = _filled(tmp_path, transactions=150)
        assert _wal(path).stat().st_size > 300_000
        tracemalloc.start()
        try:
            assert dropped_commits(_wal(path)) == []
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


def _rows_or_none(path: Path, folder: Path) -> list[int]:
    try:
        return _rows(path, folder)
    except sqlite3.OperationalError:  # the table itself is in the log
        return []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


WRITER = """
import random, sqlite3, sys
source = random.Random(sys.argv[2])
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("PRAGMA synchronous = " + source.choice(["OFF", "FULL"]))
connection.execute("PRAGMA cache_size = " + source.choice(["1", "5", "2000"]))
connection.execute("PRAGMA wal_autocheckpoint = " + source.choice(["10", "100", "1000"]))
connection.execute("INSERT INTO facts (content) VALUES (NULL)")
print(flush=True)
while True:
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(source.choice([1, 1, 3, 20])):
        if source.random() < 0.7:
            size = source.choice([10, 500, 5000])
            connection.execute("INSERT INTO facts (content) VALUES (randomblob(?))", (size,))
        else:
            rest = source.randrange(7)
            connection.execute("UPDATE facts SET content = randomblob(50) WHERE number % 7 = ?", (rest,))
    connection.execute(source.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
"""
"""A program that writes until it is killed. Its cache is so small that transactions write before they are committed."""


@contextmanager
def _writers(path: Path, many: int, seed: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Give processes that write, and have written already, and kill those that are left."""
    command = [sys.executable, "-S", "-c", WRITER, str(path)]
    running: list[subprocess.Popen[str]] = []
    try:
        for number in range(many):
            running.append(subprocess.Popen([*command, f"{seed}.{number}"], stdout=subprocess.PIPE, text=True))
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "\n"
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


class TestCrashes:
    """What crashes leave behind, of which SQLite drops nothing that was committed."""

    def test_simulated_crashes_are_no_finding(self, tmp_path: Path) -> None:
        """However the processes that write are killed, what they leave is well at each moment."""
        wal = tmp_path / "simulated-wal"
        commit_frames_left = 0
        for seed in range(40):
            simulation = Simulation(seed)
            for _ in range(15):
                simulation.live(4)
                wal.write_bytes(simulation.log)
                assert dropped_commits(wal) == [], f"seed {seed}"
                commits = _commit_frames(simulation.log, simulation.PAGE)
                commit_frames_left += any(commit > simulation.last for commit in commits)
        assert commit_frames_left > 10, "to look for commit frames is not enough"

    @pytest.mark.parametrize("seed", range(20))
    def test_damage_after_simulated_crashes_is_found(self, tmp_path: Path, seed: int) -> None:
        """Damage that costs a transaction which another one follows is found between all that crashes left."""
        wal = tmp_path / "simulated-wal"
        simulation = Simulation(seed)
        looked = 0
        for _ in range(10):
            simulation.live(8)
            if len(simulation.committed) < 3:
                continue
            before_last = simulation.committed[-2]
            frame = simulation.source.randint(1, before_last)
            wal.write_bytes(simulation.log)
            start = HEADER + (frame - 1) * simulation.FRAME
            with _flipped(wal, start + simulation.source.randrange(8, simulation.FRAME)):
                [line] = dropped_commits(wal)
                assert f"frame {frame} does not follow" in line
            looked += 1
        assert looked

    def test_killed_processes_are_no_finding(self, tmp_path: Path) -> None:
        """Real processes that write to one database and are killed leave a log that is well, before and after."""
        path = tmp_path / "log.db"
        with closing(_connect(path)) as connection:
            connection.execute("CREATE TABLE facts (number INTEGER PRIMARY KEY, content BLOB)")
        looks = 0
        for seed in range(4):
            with _writers(path, 2, seed) as running:
                for process in [*running, None]:
                    for _ in range(3):
                        assert dropped_commits(_wal(path)) == []
                        looks += _wal(path).stat().st_size > HEADER
                    if process is not None:
                        process.kill()
                        process.wait()
            assert dropped_commits(_wal(path)) == []
        assert looks == 36, "each writer has written before it is looked at"
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    def test_kill_between_the_header_and_the_page_of_a_frame_is_no_finding(self, tmp_path: Path) -> None:
        """Of one that was written over a transaction whose process was killed before it was known to others."""
        path = tmp_path / "log.db"
        with closing(_connect(path)) as connection:
            connection.execute("CREATE TABLE facts (number INTEGER PRIMARY KEY, content BLOB)")
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
            connection.execute("INSERT INTO facts (content) VALUES (randomblob(30000))")
            wal = _wal(path).read_bytes()
        killed = tmp_path / "killed-wal"
        found: list[int] = []
        for words in (
            b"\1\2\3\4\5\6\7\x08",
            b"\1\2\3\4" + wal[HEADER + 20 : HEADER + 24],
            wal[HEADER + 16 : HEADER + 24],
        ):
            killed.write_bytes(wal[: HEADER + 16] + words + wal[HEADER + 24 :])
            found.append(len(dropped_commits(killed)))
        assert found == [0, 1, 0]

    def test_rest_of_a_rolled_back_transaction_is_no_finding(self, tmp_path: Path) -> None:
        """What a transaction wrote before it was rolled back, and a shorter one wrote over, is no loss."""
        path = tmp_path / "log.db"
        with closing(_connect(path)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("CREATE TABLE facts (number INTEGER PRIMARY KEY, content BLOB)")
            sizes: list[int] = []
            for _ in range(3):
                connection.execute("BEGIN")
                for _ in range(40):
                    connection.execute("INSERT INTO facts (content) VALUES (randomblob(3000))")
                assert dropped_commits(_wal(path)) == []
                connection.execute("ROLLBACK")
                assert dropped_commits(_wal(path)) == []
                connection.execute("INSERT INTO facts (content) VALUES (NULL)")
                assert dropped_commits(_wal(path)) == []
                sizes.append(_wal(path).stat().st_size)
            assert sizes[-1] > 100_000

    @pytest.mark.parametrize("padded", [False, True])
    def test_rest_of_a_transaction_that_was_complete_but_unknown_is_no_finding(
        self, tmp_path: Path, padded: bool
    ) -> None:
        """A process killed while it synced leaves a commit frame; another that never saw it writes over its beginning.

        Nobody was told that this transaction is committed. On some disks SQLite repeats the commit frame.
        """
        path = _filled(tmp_path / "base")
        logs: list[bytes] = []
        for rows in (1, 30):
            copy = shutil.copytree(path.parent, tmp_path / str(rows)) / path.name
            with closing(
                sqlite3.connect(f"file:{copy}?psow={1 - padded}", uri=True, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA wal_autocheckpoint = 0")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN")
                for _ in range(rows):
                    connection.execute("INSERT INTO facts (content) VALUES (randomblob(900))")
                connection.execute("COMMIT")
                logs.append(_wal(copy).read_bytes())
        over, left = logs
        assert len(over) + 5 * FRAME < len(left)
        wal = _wal(path)
        wal.write_bytes(over + left[len(over) :])
        commits = _commit_frames(wal.read_bytes())
        assert commits[-1] == (len(left) - HEADER) // FRAME
        assert (commits[-2] == commits[-1] - 1) == padded
        assert dropped_commits(wal) == []
        with _flipped(wal, HEADER + 2 * FRAME + 700):
            assert "frame 3 does not follow" in dropped_commits(wal)[0]

    def test_frame_whose_page_was_not_written_is_no_finding(self, tmp_path: Path) -> None:
        """A process killed between the header and the page of a commit frame leaves a page of before."""
        path = _filled(tmp_path, begun_anew=True)
        wal = _wal(path)
        content = bytearray(wal.read_bytes())
        start = HEADER + (_commit_frames(content)[-1] - 1) * FRAME
        assert start + FRAME < len(content)
        content[start + FRAME_HEADER : start + FRAME] = os.urandom(PAGE)
        wal.write_bytes(content)
        assert dropped_commits(wal) == []


class TestFiles:
    """Logs that are short, odd, or written to meanwhile."""

    def test_no_log_is_well(self, tmp_path: Path) -> None:
        """A store that was closed has no log."""
        assert dropped_commits(tmp_path / "log.db-wal") == []

    @pytest.mark.parametrize("size", [0, 1, 31, 32, 33, HEADER + FRAME_HEADER, HEADER + FRAME - 1])
    def test_log_without_a_whole_frame_is_well(self, tmp_path: Path, size: int) -> None:
        """SQLite finds nothing in it, and nothing is lost."""
        path = _filled(tmp_path)
        os.truncate(_wal(path), size)
        assert dropped_commits(_wal(path)) == []
        if HEADER <= size < HEADER + FRAME_HEADER + 512:
            _flip(_wal(path), 20)
            assert dropped_commits(_wal(path)) == []

    def test_last_frame_may_be_cut_off(self, tmp_path: Path) -> None:
        """A frame that is not there as a whole was not written to its end."""
        path = _filled(tmp_path)
        size = _wal(path).stat().st_size
        for cut in range(1, 2 * FRAME, 131):
            os.truncate(_wal(path), size - cut)
            assert dropped_commits(_wal(path)) == []

    @pytest.mark.parametrize("content", [bytes(100_000), b"\xff" * 100_000])
    def test_file_of_one_byte_repeated_is_well(self, tmp_path: Path, content: bytes) -> None:
        """There is no commit to lose in what never was a log; and nothing of it is taken for one."""
        wal = tmp_path / "log.db-wal"
        wal.write_bytes(content)
        assert len(dropped_commits(wal)) == (content[0] != 0)

    def test_what_is_no_file_is_a_finding(self, tmp_path: Path) -> None:
        """A FIFO, a folder or a symbolic link in place of the log is said, and nothing waits for it."""
        fifo, folder, link = (tmp_path / name for name in ("fifo", "folder", "link"))
        os.mkfifo(fifo)
        folder.mkdir()
        link.symlink_to(_wal(_filled(tmp_path / "store")))
        assert dropped_commits(fifo) == ["write-ahead log: it is not a regular file"]
        assert dropped_commits(folder) == ["write-ahead log: it is not a regular file"]
        [line] = dropped_commits(link)
        assert line.startswith("write-ahead log: it cannot be read: ")

    def test_log_that_is_written_to_meanwhile_is_well(self, tmp_path: Path) -> None:
        """Appends, checkpoints and new beginnings while it is read are no finding."""
        path = tmp_path / "log.db"
        enough = threading.Event()

        def write() -> None:
            with closing(_connect(path)) as connection:
                connection.execute("PRAGMA wal_autocheckpoint = 50")
                connection.execute("PRAGMA cache_size = 1")
                connection.execute("CREATE TABLE facts (number INTEGER PRIMARY KEY, content BLOB)")
                while not enough.is_set():
                    connection.execute("BEGIN")
                    connection.execute("INSERT INTO facts (content) VALUES (randomblob(20000))")
                    connection.execute("UPDATE facts SET content = NULL WHERE number % 3 = 0")
                    connection.execute("COMMIT")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            looked = 0
            while looked < 150:
                assert dropped_commits(_wal(path)) == []
                looked += _wal(path).exists()
        finally:
            enough.set()
            writer.join(30)
