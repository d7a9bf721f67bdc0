"""A write-ahead log written as SQLite writes it (wal.c), by processes that are killed between any two writes."""

import random
import struct

HEADER, FRAME_HEADER = 32, 24

Sums = tuple[int, int]


def checksum(data: bytes, sums: Sums, order: str) -> Sums:
    """Go on with a checksum (SQLite, "Database File Format", §4.2). `order`: `<` or `>`."""
    a, b = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        a = (a + first + b) & 0xFFFFFFFF
        b = (b + second + a) & 0xFFFFFFFF
    return a, b


class KilledError(Exception):
    """The process that writes was killed."""


class Simulation:
    """A log, and what the processes that live know of it.

    Attributes:
        log: the bytes of the log.
        last: number of the last frame that is committed, as the processes know. When all are killed this is lost, and
            then found by walking along the log.
        committed: numbers of the commit frames up to there.
    """

    PAGE = 512
    FRAME = FRAME_HEADER + PAGE

    def __init__(self, seed: int) -> None:
        """Begin an empty log; the seed decides all that happens to it."""
        self.source = random.Random(seed)
        self.log = bytearray()
        self.last = 0
        self.committed: list[int] = []
        self._sums: Sums = (0, 0)
        self._order = self.source.choice("<>")
        self._salts = b""
        self._times_begun = 0
        self._writes_left = 0
        self._usual_page = self.source.randbytes(self.PAGE) if self.source.random() < 0.5 else None
        self._begin_anew()

    def live(self, steps: int) -> None:
        """Run some transactions, with kills and checkpoints between."""
        for _ in range(steps):
            self._writes_left = self.source.choice([-1, -1, -1, self.source.randint(1, 12)])
            try:
                self._transact()
            except KilledError:
                if self.source.random() < 0.4:
                    self._recover()
            if self.source.random() < 0.04:
                self._begin_anew()

    def _write(self, offset: int, data: bytes) -> None:
        """Write, unless the process is killed before or, where it writes a page, in the middle."""
        self._writes_left -= 1
        if self._writes_left == 0:
            data = data[: self.source.choice([0, len(data) // self.PAGE * 128])]
        self.log[offset : offset + len(data)] = data
        if self._writes_left == 0:
            raise KilledError

    def _begin_anew(self) -> None:
        """Use the log from its start, as after a checkpoint: with other salts, over the old frames."""
        self._times_begun += 1
        self._salts = self.source.randbytes(8)
        self.last, self.committed = 0, []
        if self.source.random() < 0.2:
            self.log.clear()

    def _header(self) -> bytes:
        magic = 0x377F0682 + (self._order == ">")
        header = struct.pack(">4I", magic, 3007000, self.PAGE, self._times_begun) + self._salts
        return header + struct.pack(">2I", *checksum(header, (0, 0), self._order))

    def _page(self) -> bytes:
        """Return a page: a random one, or the usual one with a few other words."""
        page = bytearray(self._usual_page or self.source.randbytes(self.PAGE))
        for _ in range(self.source.choice([2, 8])):
            struct.pack_into(">I", page, 4 * self.source.randrange(self.PAGE // 4), self.source.getrandbits(32))
        return bytes(page)

    def _write_frame(self, number: int, sums: Sums, *, commits: bool) -> Sums:
        start = HEADER + (number - 1) * self.FRAME
        fields = struct.pack(">2I", self.source.randint(1, 9), 40 * commits)
        page = self._page()
        self._write(start, self._frame_header(fields, page, sums))
        self._write(start + FRAME_HEADER, page)
        if not commits and self.source.random() < 0.1:
            # The transaction changes the page again. The checksum is wrong until it has been made anew.
            page = self._page()
            self._write(start + FRAME_HEADER, page)
            self._write(start, self._frame_header(fields, page, sums))
        return checksum(fields + page, sums, self._order)

    def _frame_header(self, fields: bytes, page: bytes, sums: Sums) -> bytes:
        return fields + self._salts + struct.pack(">2I", *checksum(fields + page, sums, self._order))

    def _transact(self) -> None:
        """Run a transaction: it is committed, or rolled back after it wrote some frames, or killed."""
        if self.last == 0:
            self._write(0, self._header())
            self._sums = struct.unpack_from(">2I", self._header(), 24)
        sums, number = self._sums, self.last
        length = self.source.choice([1, 1, 2, 3, 9])
        rolled_back = self.source.random() < 0.2
        for index in range(length):
            number += 1
            sums = self._write_frame(number, sums, commits=index == length - 1 and not rolled_back)
        if not rolled_back:
            self._write(0, b"")  # the sync takes longest: a kill here leaves what is complete, and that nobody knows of
            self.last, self._sums = number, sums
            self.committed.append(number)

    def _recover(self) -> None:
        """Find the last commit, as the first process does that opens the store after all were killed."""
        known = self.committed
        self.last, self.committed, self._sums = 0, [], (0, 0)
        header = self._header()
        if self.log[:HEADER] != header:
            self._begin_anew()
            return
        sums: Sums = struct.unpack_from(">2I", header, 24)
        for start in range(HEADER, len(self.log) - self.FRAME + 1, self.FRAME):
            fields, salts = bytes(self.log[start : start + 8]), self.log[start + 8 : start + 16]
            sums = checksum(fields + self.log[start + FRAME_HEADER : start + self.FRAME], sums, self._order)
            if salts != self._salts or sums != struct.unpack_from(">2I", self.log, start + 16):
                break
            if fields[4:] != bytes(4):
                self.last, self._sums = (start - HEADER) // self.FRAME + 1, sums
                self.committed.append(self.last)
        assert self.committed[: len(known)] == known, "no crash loses what was committed"
