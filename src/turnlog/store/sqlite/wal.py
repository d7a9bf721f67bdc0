"""Finding committed transactions that SQLite would drop from its write-ahead log without a word.

SQLite takes the log (`log.db-wal`; SQLite, "Database File Format", §4) up to the first frame that does not follow from
the one before it, and ignores the rest: a crash leaves such rests, and they are rightly ignored. But one flipped bit
makes a rest of what was committed. Each checksum goes on from the one before, which is how the two are told apart:

- A frame that follows from a commit frame shows that SQLite had committed there, since whoever writes begins at what is
  committed. Such a pair in the rest is a finding. Crashes leave none: what a transaction wrote before it was rolled
  back has no commit frame; frames of before the log was last begun anew have other salts; and a transaction whose
  process was killed when it was written, but not yet known to another process, which then wrote over its beginning,
  leaves its commit frame, and nothing that follows from it.
- The last transaction has nothing that follows from it. It is a finding where damage to a single 32-bit word explains
  the wrong checksum, and all from there to its commit frame follow from each other. Damage to more of it looks like one
  of these crashes, or like a kill between the header and the page of a frame that was written over an older one, as
  does a log that ends before it: only a signed checkpoint tells. The same holds for damage to its commit frame if older
  bytes stand behind, since such a kill leaves that too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from time import sleep
from typing import NamedTuple

from turnlog.errors import os_reason
from turnlog.store.sqlite.handles import first_bytes

_HEADER = Struct(">6I2I")
_FRAME_HEADER = Struct(">2I8s2I")
_PAIR = (Struct("<2I"), Struct(">2I"))
_ROW = (Struct("<16I"), Struct(">16I"))
"""64 bytes as checksums read them. A page has a multiple of that."""

_INDEX_HEAD = Struct("=16xI76xI28xI")
"""How many frames the log has, how many of them are in the database file, and how many had been begun with."""

_MAGIC = 0x377F0682
"""The lowest bit says how checksums read bytes: 0 little-endian, 1 big-endian."""

_PAGE_BYTES = tuple(1 << power for power in range(9, 17))
_MASK = 0xFFFFFFFF

_READS_MAX = 3
"""How often a finding is looked at again: a log that is written to meanwhile may look damaged for a moment."""

_PAUSE_S = 0.005

_Sums = tuple[int, int]


class WalState(NamedTuple):
    """How far the log is in the database file: all of it, or nothing of it yet. Both where there is no log.

    `head` is how its index begins (`log.db-shm`; SQLite, "WAL-mode File Format", §2.1 and 2.2). While that is the same,
    nobody has written.
    """

    head: bytes
    is_all_in_file: bool
    is_none_in_file: bool


def wal_state(path: Path) -> WalState:
    """Return how far the write-ahead log of a store, of which `path` is the file, is in that file."""
    wal, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not wal.exists() or wal.stat().st_size == 0:
        return WalState(b"", is_all_in_file=True, is_none_in_file=True)
    try:
        head = first_bytes(index, _INDEX_HEAD.size, path)
    except OSError:
        head = b""
    if len(head) < _INDEX_HEAD.size:
        return WalState(head, is_all_in_file=False, is_none_in_file=False)
    frames, written, begun = _INDEX_HEAD.unpack(head)
    return WalState(head, is_all_in_file=frames == written, is_none_in_file=begun == 0)


class _Log(NamedTuple):
    """An open log with a sound header, whose checksum is `sums`. `frames` are whole ones; `cut`: there is more."""

    file: int
    frames: int
    cut: bool
    page_bytes: int
    byte_order: int
    salts: bytes
    sums: _Sums


class _Frame(NamedTuple):
    """A frame. `ours`: it has the salts of the log. `sums`: the checksum that it says it has."""

    number: int
    page_number: int
    commits: bool
    ours: bool
    sums: _Sums
    hashed: bytes
    page: bytes


class _Finding(NamedTuple):
    """What SQLite would drop. `place` is the same in two readings of the same damage."""

    place: tuple[bytes, int]
    text: str


def dropped_commits(path: Path) -> list[str]:
    """Return what SQLite would silently drop of a write-ahead log: one line for each finding, none where all is well.

    A log that does not exist is well. One that is no regular file, or cannot be read, is a finding. It may be written
    to meanwhile. What is dropped is lost only when SQLite has written over it, which the next append may do.
    """
    found = _look(path)
    for _ in range(_READS_MAX):
        if found is None:
            break
        sleep(_PAUSE_S)
        before, found = found, _look(path)
        if found is not None and found.place == before.place:
            return [f"write-ahead log: {found.text}"]
    return []


def _look(path: Path) -> _Finding | None:
    try:
        # Nothing here waits, as opening a FIFO would. SQLite follows no symbolic link to a log either.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(error)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return _Finding((b"", 0), "it is not a regular file")
        return _finding(file, status.st_size)
    except OSError as error:
        return _unreadable(error)
    finally:
        os.close(file)


def _unreadable(error: OSError) -> _Finding:
    return _Finding((b"", 0), f"it cannot be read: {os_reason(error)}")


def _finding(file: int, size: int) -> _Finding | None:
    header = os.pread(file, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return None
    magic, _, page_bytes, _, _, _, *said = _HEADER.unpack(header)
    byte_order: int = magic & 1
    sums = (0, 0)
    for first, second in _PAIR[byte_order].iter_unpack(header[:24]):
        sums = _plus(sums, first, second)
    if magic - byte_order != _MAGIC or page_bytes not in _PAGE_BYTES or sums != tuple(said):
        return _without_header(file, size, header)
    frames, rest = divmod(size - _HEADER.size, _FRAME_HEADER.size + page_bytes)
    return _walk(_Log(file, frames, rest > 0, page_bytes, byte_order, header[16:24], sums))


def _without_header(file: int, size: int, header: bytes) -> _Finding | None:
    """Return the finding that the header is damaged. The first frame has its salts at the same place in any log."""
    salts = os.pread(file, 8, _HEADER.size + 8)
    commits = 0
    for page_bytes in _PAGE_BYTES:
        frame_bytes = _FRAME_HEADER.size + page_bytes
        found = 0
        for start in range(_HEADER.size, size - frame_bytes + 1, frame_bytes):
            _, committed, of_frame, _, _ = _FRAME_HEADER.unpack(os.pread(file, _FRAME_HEADER.size, start))
            if of_frame != salts:
                break
            found += committed > 0
        commits = max(commits, found)
    if commits == 0:
        return None
    return _Finding((header, 0), f"its header is damaged, so that SQLite drops all of it: {_counted(commits)}")


def _walk(log: _Log) -> _Finding | None:
    """Walk along a log as SQLite does, and look behind the first frame that it does not take."""
    frames = _frames(log)
    sums = log.sums
    for frame in frames:
        sums = _sums(log, frame, sums)
        if frame.page_number == 0 or not frame.ours or frame.sums != sums:
            lost, last = _behind(log, frame, sums, frames)
            if lost == 0:
                return None
            return _Finding(
                (log.salts, frame.number),
                f"frame {frame.number} does not follow from what stands before it, so that SQLite drops it and all "
                f"behind it: {_counted(lost)}, up to frame {last}",
            )
    return None


def _behind(log: _Log, first: _Frame, due: _Sums, rest: Iterator[_Frame]) -> tuple[int, int]:
    """Return how many committed transactions a gap hides, and the number of the last frame of these.

    Args:
        log: the log.
        first: the frame that does not follow.
        due: the checksum that it should say it has.
        rest: the frames behind it.
    """
    shown = due == first.sums  # all is as it should be but the salts or the page number
    commits = int(first.commits and (first.ours or shown))
    lost, last = (commits, first.number) if shown else (0, 0)
    before = first
    for frame in rest:
        if not frame.ours:
            shown = False
        elif _sums(log, frame, before.sums) == frame.sums:
            # SQLite may fill a sector of the disk with copies of a commit frame: these show nothing.
            shown = shown or (before.commits and before.page != frame.page)
            shown = shown or (before is first and _one_word(log, due, first.sums))
        else:
            # Of the first frame, only what it says of its checksum may be damaged: one of its two words. Where both are
            # others, a process was killed between the header and the page of a frame that it wrote over an older one.
            is_word = due[0] == first.sums[0] or due[1] == first.sums[1]
            shown = before is first and is_word and _sums(log, frame, due) == frame.sums
        commits += frame.ours and frame.commits
        if shown:
            lost, last = commits, frame.number
        before = frame
    if before is first and commits and not log.cut and _one_word(log, due, first.sums):
        return commits, first.number
    return lost, last


def _one_word(log: _Log, due: _Sums, said: _Sums) -> bool:
    """Tell whether damage to a single 32-bit word of a frame explains a checksum that is wrong.

    A word adds itself to the two sums as often as two Fibonacci numbers that follow each other say, the last word 0
    times and once. That fits by chance about once in a million times.
    """
    off = ((due[0] - said[0]) & _MASK, (due[1] - said[1]) & _MASK)
    times = (1, 0)  # what damage to the first word of the checksum itself looks like
    for _ in range(2 + log.page_bytes // 4 + 1):
        if not (times[0] * off[1] - times[1] * off[0]) & _MASK:
            return True
        times = times[1], (times[0] + times[1]) & _MASK
    return False


def _frames(log: _Log) -> Iterator[_Frame]:
    frame_bytes = _FRAME_HEADER.size + log.page_bytes
    for number in range(1, log.frames + 1):
        raw = os.pread(log.file, frame_bytes, _HEADER.size + (number - 1) * frame_bytes)
        if len(raw) < frame_bytes:  # the log was cut meanwhile
            return
        page_number, size, salts, *sums = _FRAME_HEADER.unpack_from(raw)
        page = raw[_FRAME_HEADER.size :]
        yield _Frame(number, page_number, size > 0, salts == log.salts, (sums[0], sums[1]), raw[:8], page)


def _sums(log: _Log, frame: _Frame, before: _Sums) -> _Sums:
    """Return the checksum of a frame that follows from another."""
    a, b = _plus(before, *_PAIR[log.byte_order].unpack(frame.hashed))
    # This is the loop that takes the time: 8 pairs at once, since the sums stay small enough for that.
    for p, q, r, s, t, u, v, w, x, y, z, c, d, e, f, g in _ROW[log.byte_order].iter_unpack(frame.page):
        a += p + b
        b += q + a
        a += r + b
        b += s + a
        a += t + b
        b += u + a
        a += v + b
        b += w + a
        a += x + b
        b += y + a
        a += z + b
        b += c + a
        a += d + b
        b += e + a
        a += f + b
        b += g + a
        a &= _MASK
        b &= _MASK
    return a, b


def _plus(sums: _Sums, first: int, second: int) -> _Sums:
    a = (sums[0] + first + sums[1]) & _MASK
    return a, (sums[1] + second + a) & _MASK


def _counted(commits: int) -> str:
    return "1 committed transaction" if commits == 1 else f"{commits} committed transactions"
