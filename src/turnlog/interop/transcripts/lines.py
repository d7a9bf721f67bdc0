"""Formats whose files are JSON lines, and what all formats need to read fields."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Raw

from turnlog.errors import FormatError
from turnlog.interop.importing import Importer
from turnlog.interop.marked import text_of
from turnlog.interop.texts import RECOGNIZED_LINES, file_lines, split_lines
from turnlog.interop.transcripts.fields import record_in
from turnlog.interop.transcripts.session import Session
from turnlog.interop.transcripts.transcript import Builder, Given, Transcript
from turnlog.record import Redaction

TOKENS_MAX = 1 << 53
_TOKENS_DIGITS_MAX = 16
NAME_CHARACTERS_MAX = 500
"""Names that are longer are taken for content, which metadata is no place for."""


class TranscriptImporter(Importer):
    """A format whose files become pieces and turns."""

    @property
    def prefix(self) -> str:
        """What the topics of its pieces begin with."""
        return self.name

    @abstractmethod
    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read a file or folder.

        Raises:
            FormatError: it cannot be read, or is not of this format at all.
            RedactionError: a redaction hook failed.
        """

    def read(self, path: Path, redaction: Redaction) -> Session:
        """Read a file or folder."""
        return Session(path, self.name, self.prefix, self.build(path, Builder(self.name, redaction)))


class JsonLines(TranscriptImporter):
    """A format of JSON lines."""

    @abstractmethod
    def is_line(self, record: Mapping[str, Raw]) -> bool:
        """Tell whether a line is one of this format."""

    @abstractmethod
    def transcript(self, lines: Iterable[Given], builder: Builder, *, places: int, blank: int) -> Transcript:
        """Make pieces and turns of lines that are JSON objects."""

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - others look at the path
        """Tell whether a file is one of this format: one of its first lines is."""
        records = map(record_in, split_lines(beginning)[:RECOGNIZED_LINES])
        return any(self.is_line(record) for record in records if record)

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read a file."""
        lines: deque[Given] = deque()
        number = blank = own = 0
        for number, line in enumerate(file_lines(path), 1):
            if not line.strip():
                blank += 1
                continue
            given = builder.text(number, line)
            if given is None:
                continue
            if given.text[:1] != b"{":
                builder.damaged(number, "not a JSON object; it was left out")
                continue
            own += self.is_line(given.record())
            lines.append(given)
        if not own:
            what = "is empty" if number == blank else f"is not a file of {self.name}: no line of it is one"
            raise FormatError(f"{str(path)!r} {what}; nothing was imported")
        return self.transcript(_taken(lines), builder, places=number, blank=blank)


def _taken(lines: deque[Given]) -> Iterator[Given]:
    """Give lines, each of which is let go then: pieces have what it says, and it can be large."""
    while lines:
        yield lines.popleft()


def name_of(raw: Raw | None) -> str | None:
    """Return a text that can be a name; None where it is none, or too long for one."""
    text = text_of(raw)
    return text if text is not None and len(text) <= NAME_CHARACTERS_MAX else None


def count(record: Mapping[str, Raw], name: str) -> int:
    """Return a number of tokens; 0 where there is none."""
    raw = bytes(record.get(name, b""))
    value = int(raw) if raw.isdigit() and len(raw) <= _TOKENS_DIGITS_MAX else 0
    return value if value <= TOKENS_MAX else 0


def time_in_seconds(raw: Raw | None) -> datetime | None:
    """Return the time that a number of seconds since 1970 means; None where it means none."""
    try:
        return datetime.fromtimestamp(float(bytes(raw or b"")), tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None
