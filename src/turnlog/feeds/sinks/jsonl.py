"""JSON lines in a folder: one event a line, in global order, in files that are rotated.

A file is named by the global position of its first line. Lines are appended and synced; a file that is full stays as it
is, but for lines of events that are erased. How far the folder has come is what its last line says: a line that was cut
by a crash is cut off, so that no event stands there twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct

from turnlog.events.times import time_of
from turnlog.feeds.sinks.folders import Folder, folder_path, is_at, is_same
from turnlog.feeds.sinks.interface import Batch, Place, Sink, SinkRecord
from turnlog.model.json_text import UNREADABLE
from turnlog.store import Store
from turnlog.store.files import make_file

FILE_BYTES_MAX = 64 * 1024 * 1024
"""How large a file gets, unless it is told otherwise."""

_NAME = re.compile(r"events-([0-9]{20})\.jsonl")
_TAIL_BYTES = 64 * 1024
_TRIES = 5
"""How often lines are written whose file is taken away meanwhile."""


class _Line(Struct, frozen=True, kw_only=True):
    """What of a line says where it stands."""

    log: str
    global_position: int
    id: str
    time: str
    digest: str | None = None
    idempotency_key: str | None = None

    @property
    def day(self) -> date:
        return date.fromisoformat(self.time[:10])


class JSONLines(Sink):
    """A folder of JSON lines, one an event. See `turnlog.feeds.sinks.jsonl`."""

    kind = "jsonl"
    takes_back = True
    knows_place = True

    def __init__(self, folder: str | Path, *, file_bytes_max: int = FILE_BYTES_MAX, by_day: bool = False) -> None:
        """Take the folder, which is made where there is none.

        Args:
            folder: its path.
            file_bytes_max: how many bytes a file gets, about: a line goes into a new one where it has these already.
            by_day: begin a new file with each day (UTC) that events were recorded on, too.

        Raises:
            MetaError: the folder has no name.
        """
        self._path = folder_path(folder)
        self._folder = Folder(self, self._path)
        self._file_bytes_max = file_bytes_max
        self._by_day = by_day
        self._file = self._path
        """The file that lines are appended to, where there is a handle."""
        self._handle: int | None = None
        self._size = 0
        self._day: date | None = None
        self._last: Place | None = None
        self._emptied: list[tuple[int, Path]] = []
        """The files, with the positions in their names, where none has a line."""
        self._is_sound = False
        """Whether what is in the folder is what this object remembers."""

    @property
    def destination(self) -> str:
        """The folder."""
        return str(self._path)

    def is_at(self, destination: str) -> bool:
        """Tell whether a path leads to the folder."""
        return is_same(destination, self._path)

    def open(self, store: Store) -> Place | None:  # noqa: ARG002 - the folder says it all
        """Lock the folder, cut off what a crash left of a line, and return where the last line stands."""
        self._folder.open()
        self._recover()
        return self._last

    def deliver(self, batch: Batch) -> None:
        """Append lines, and sync them. A file that is taken away meanwhile does not count: they are written anew."""
        due = batch.records
        for _ in range(_TRIES):
            self._look()
            last = self._last
            self._is_sound = False
            with self._folder.errors():
                due = self._write([record for record in due if last is None or record.position > last.position])
            if not due:
                self._last = batch.records[-1].place
                self._is_sound = True
                return
        raise self.failed("files are taken away while they are written", retryable=True)

    def is_emptied(self) -> bool:
        """Tell whether the folder has no file but empty ones, or is not there."""
        with self._folder.errors():
            return not (self._path.is_dir() and any(path.stat().st_size for _, path in self._files()))

    def lost_from(self) -> int | None:
        """Return what the first of some files had that have lost all of their lines, and are all there are."""
        return min((first for first, _ in self._emptied), default=None)

    def forget(self, records: Sequence[SinkRecord]) -> None:
        """Write the files anew that have lines of erased events, one after the other.

        All lines are looked at: where a file was joined with others, or renamed, its name does not say what it has.
        """
        self._look()
        with self._folder.errors():
            files = self._files()
        erased = {record.position: record for record in records}
        self._folder.each((path for _, path in files), lambda path: self._rewrite(path, erased))

    def close(self) -> None:
        """Release the folder."""
        self._release()
        self._folder.close()
        self._last = None
        self._emptied = []
        self._is_sound = False

    # Writing

    def _write(self, records: Sequence[SinkRecord]) -> Sequence[SinkRecord]:
        """Append lines, sync them, and return the records from the first one on whose file was taken away meanwhile."""
        begun = 0
        for number, record in enumerate(records):
            day = time_of(record.recorded.header.time).date()
            is_full = self._size >= self._file_bytes_max or (self._by_day and self._day not in (None, day))
            if self._handle is not None and is_full:
                if not self._synced():
                    return records[begun:]
                self._release()
                begun = number
            if self._handle is None:
                self._remove_emptied()
                self._open(self._path / f"events-{record.position:020}.jsonl")
            for piece in record.line():
                self._append(piece)
            self._day = day
        return () if self._synced() else records[begun:]

    def _open(self, path: Path) -> None:
        self._handle = self._folder.append(path)
        self._file = path
        self._size = os.fstat(self._handle).st_size

    def _remove_emptied(self) -> None:
        for _, path in self._emptied:
            with suppress(FileNotFoundError):
                self._folder.remove(path)
        self._emptied = []

    def _append(self, piece: bytes | memoryview) -> None:
        assert self._handle is not None
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(self._handle, rest) :]
        self._size += len(piece)

    def _synced(self) -> bool:
        """Sync the file, and tell whether it is still there with all that it had."""
        if self._handle is not None:
            os.fsync(self._handle)
        return self._is_there()

    def _is_there(self) -> bool:
        return self._handle is None or (
            is_at(self._handle, self._file) and os.fstat(self._handle).st_size == self._size
        )

    def _release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._day = None

    def _rewrite(self, path: Path, erased: Mapping[int, SinkRecord]) -> None:
        """Put records in the place of lines of a file. Where all lines are as they should be, nothing is written."""
        if not any(new != old for old, new in self._lines(path, erased)):
            return
        is_open = self._handle is not None and path == self._file

        def make(new: Path) -> None:
            with os.fdopen(make_file(new), "wb") as file:
                for _, line in self._lines(path, erased):
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())

        self._folder.replace(path, make)
        if is_open:
            day = self._day
            self._release()
            self._open(path)
            self._day = day

    def _lines(self, path: Path, erased: Mapping[int, SinkRecord]):
        """Iterate over the lines of a file, each with what is to stand there."""
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                found = self._parsed(line, path, f"line {number:,}")
                record = erased.get(found.global_position)
                if record is None or (record.log, record.id) != (found.log, found.id):
                    yield line, line
                else:
                    yield line, record.known_as(found.idempotency_key).to_json() + b"\n"

    # Reading

    def _files(self) -> list[tuple[int, Path]]:
        """Return the files, each with the position of its first line, in order."""
        found = [(int(match[1]), path) for path in self._path.iterdir() if (match := _NAME.fullmatch(path.name))]
        return sorted(found)

    def _look(self) -> None:
        """Find out anew where the folder ends, if something of it was taken away or has failed since."""
        is_sound = self._folder.keep() and self._is_sound
        with self._folder.errors():
            is_sound = is_sound and self._is_there()
        if not is_sound:
            self._recover()

    def _recover(self) -> None:
        """Find out where the folder ends."""
        self._release()
        self._last = None
        self._emptied = []
        with self._folder.errors():
            for first, path in reversed(self._files()):
                line = self._cut(path)
                if line is None:
                    self._emptied.append((first, path))
                    continue
                self._remove_emptied()
                found = self._parsed(line, path, "the last line")
                self._last = Place(
                    log=found.log, position=found.global_position, event_id=found.id, digest=found.digest
                )
                self._open(path)
                self._day = found.day
                break
        self._is_sound = True

    def _cut(self, path: Path) -> bytes | None:
        """Return the last line of a file; None where it has none. What comes after it is cut off."""
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            start, tail = size, b""
            while start > 0 and tail.count(b"\n") < 2:
                start = max(0, start - max(_TAIL_BYTES, len(tail)))
                file.seek(start)
                tail = file.read(size - start)
            whole = tail[: tail.rfind(b"\n") + 1]
            if len(whole) < len(tail):
                file.truncate(start + len(whole))
                file.flush()
                os.fsync(file.fileno())
        return whole.splitlines(keepends=True)[-1] if whole else None

    def _parsed(self, line: bytes, path: Path, which: str) -> _Line:
        try:
            return _line.decode(line)
        except UNREADABLE as error:
            why = str(error) if line.strip() else "it is blank"
            raise self.failed(
                f"{which} of {path.name!r} is no event ({why}): put back what it was, or take it out"
            ) from error


_line = msgspec.json.Decoder(_Line)
