"""Data exports of chat services: a zip, the folder that it was unpacked to, or the `conversations.json` of one.

All conversations of an account stand in one JSON list, or in a few. Messages are a tree: what was edited or asked again
is a branch. A list that breaks off is read as far as it goes.
"""

from __future__ import annotations

import json
import lzma
import re
import struct
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, LargeZipFile, ZipFile

import msgspec
from msgspec import Raw

from turnlog.errors import FormatError, os_reason
from turnlog.interop.folders import files_in, told
from turnlog.interop.texts import BOM, file_bytes
from turnlog.interop.transcripts.lines import TranscriptImporter
from turnlog.interop.transcripts.transcript import Builder, Given, Transcript
from turnlog.record.files import open_regular
from turnlog.store import payloads

_BEGINNING_BYTES = 64 * 1024
_NAMED_MAX = 10
_CONVERSATIONS = re.compile(r"(?:^|/)conversations(?:[-_]\d+)?\.json$")
_UNPACK = "unpack the zip, and import its folder"
_ZIP = b"PK\x03\x04"

_UNREADABLE = (
    *(BadZipFile, LargeZipFile, OSError, RuntimeError, EOFError, ValueError, LookupError, OverflowError),
    *(struct.error, zlib.error, lzma.LZMAError),
)
"""What reading a zip raises that is damaged, encrypted, or packed in a way that nobody knows."""

_list = msgspec.json.Decoder(list[Raw])
_gap = re.compile(r"[\s,]*")


def parents_first(parents: Mapping[str, str | None]) -> tuple[list[str], set[str]]:
    """Return names with each behind its parent, and those whose parent is cut off because they are their own ancestors.

    A parent that is not among the names is none.
    """
    order: dict[str, None] = {}
    cut: set[str] = set()
    for start in parents:
        chain: dict[str, None] = {}
        last: str | None = None
        name: str | None = start
        while name is not None and name in parents and name not in order:
            if name in chain:
                cut.add(last or name)
                break
            chain[name] = None
            last, name = name, parents[name]
        order.update(dict.fromkeys(reversed(chain)))
    return list(order), cut


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """The files of an export, by name.

    Attributes:
        path: the zip, the folder or the file.
        names: the names of the files.
        twice: names that several files of a zip have: the last one of each is read.
        links: a line for each link that leads out of the folder: it is not followed.
        zip: the zip, where it is one.
        taken: names of the files that were read.
    """

    path: Path
    names: Sequence[str]
    twice: Sequence[str] = ()
    links: Sequence[str] = ()
    zip: ZipFile | None = None
    taken: set[str] = field(default_factory=set[str])

    def read(self, name: str, *, size: int | None = None) -> bytes:
        """Return what a file has, or the beginning of it.

        Raises:
            FormatError: it cannot be read, or a zip has it and it is larger than a payload can be: it could be made to
                fill the memory.
        """
        self.taken.add(name)
        if self.zip is None:
            path = self._place(name)
            if size is None:
                return file_bytes(path)
            with open_regular(path, FormatError) as file:
                return file.read(size)
        try:
            return self._unpacked(self.zip, name, size)
        except _UNREADABLE as error:
            raise FormatError(f"{name!r} in {str(self.path)!r} cannot be read: {str(error).lower()}") from error

    def document(self, name: str) -> bytes:
        """Return what a file has that is to be a document of a turn.

        Raises:
            FormatError: it cannot be read, or in base64 it would be larger than a payload can be.
        """
        self.taken.add(name)
        bytes_max = payloads.PAYLOAD_BYTES_MAX // 4 * 3
        try:
            size = self._place(name).stat().st_size if self.zip is None else self.zip.getinfo(name).file_size
        except OSError as error:
            raise FormatError(f"{name!r} in {str(self.path)!r} cannot be read: {os_reason(error)}") from error
        if size > bytes_max:
            raise FormatError(self._too_large(name, size, bytes_max))
        return self.read(name)

    def _place(self, name: str) -> Path:
        return self.path / name if self.path.is_dir() else self.path

    def _unpacked(self, zipped: ZipFile, name: str, size: int | None) -> bytes:
        """Return what a file of a zip has, or the beginning of it.

        It is inflated no further than the directory of the zip says, which can be a lie, and so the memory is bounded.
        """
        member = zipped.getinfo(name)
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            # Others are inflated as far as it goes.
            raise FormatError(f"{name!r} in {str(self.path)!r} is packed as in no export: {_UNPACK}")
        if size is None and member.file_size > payloads.PAYLOAD_BYTES_MAX:
            raise FormatError(f"{self._too_large(name, member.file_size, payloads.PAYLOAD_BYTES_MAX)}: {_UNPACK}")
        with zipped.open(member) as file:
            return file.read(member.file_size + 1 if size is None else size)

    def _too_large(self, name: str, size: int, bytes_max: int) -> str:
        return f"{name!r} in {str(self.path)!r} has {size:,} bytes, more than the limit of {bytes_max:,}"

    def conversations(self) -> list[str]:
        """Return the names of the files that conversations stand in."""
        if self.zip is None and not self.path.is_dir():
            return list(self.names)
        found = [name for name in self.names if _CONVERSATIONS.search(name)]
        return found if self.zip is not None else [name for name in found if "/" not in name]

    def named(self, beginning: str) -> str | None:
        """Return the name of the file whose own name begins so, without the folders that it is in; None for none."""
        return next((name for name in self.names if name.rpartition("/")[2].startswith(beginning)), None)


def opened(path: Path) -> Export:
    """Open an export.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        if path.is_dir():
            # What has its conversations further in is a folder of something else.
            is_export = any(_CONVERSATIONS.search(each.name) for each in path.iterdir())
            files, links = files_in(path) if is_export else ([], [])
            names = sorted(each.relative_to(path).as_posix() for each in files)
            return Export(path=path, names=names, links=told(links, path))
        with open_regular(path, FormatError) as file:
            is_zip = file.read(len(_ZIP)) == _ZIP
        if not is_zip:
            return Export(path=path, names=[path.name])
        with ZipFile(path) as zipped:
            found = [each.filename for each in zipped.infolist() if not each.is_dir()]
        return Export(path=path, names=list(dict.fromkeys(found)), twice=_twice(found), zip=ZipFile(path))
    except _UNREADABLE as error:
        raise FormatError(f"{str(path)!r} cannot be read: {os_reason(error)}; nothing was imported") from error


class ExportImporter(TranscriptImporter):
    """A format of exports.

    Attributes:
        marker: the key that each conversation has.
    """

    marker: str

    @abstractmethod
    def conversation(self, given: Given, builder: Builder, export: Export) -> None:
        """Make pieces and turns of a conversation."""

    def recognizes(self, path: Path, beginning: bytes) -> bool:
        """Tell whether a file or folder is one of this format: the first conversation of it begins so."""
        if path.is_dir() or beginning.startswith(_ZIP):
            try:
                export = opened(path)
            except FormatError:
                return False
            try:
                names = export.conversations()
                beginning = export.read(names[0], size=_BEGINNING_BYTES) if names else b""
            except (FormatError, OSError):
                return False
            finally:
                _close(export)
        begins_as_json = beginning.removeprefix(BOM).lstrip()[:1] in (b"[", b"{")
        return begins_as_json and re.search(rb'"%s"\s*:\s*[\[{]' % self.marker.encode(), beginning) is not None

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read an export."""
        export = opened(path)
        try:
            return self._built(export, builder)
        finally:
            _close(export)

    def _built(self, export: Export, builder: Builder) -> Transcript:
        place = found = 0
        why = export.links[0] if export.links else "it has no conversation"
        for name in export.conversations():
            try:
                documents = _documents(export.read(name))
            except FormatError as error:
                place += 1
                why = str(error)
                builder.damaged(place, f"{error}: it was left out")
                continue
            for raw, damage in documents:
                place += 1
                if damage is not None:
                    builder.damaged(place, f"{name}: {damage}; it was left out")
                    continue
                given = builder.text(place, raw)
                del raw
                if given is None:
                    continue
                if self.marker not in given.record():
                    builder.damaged(place, "not a conversation; it was left out")
                    continue
                found += 1
                self.conversation(given, builder, export)
        if not found:
            raise FormatError(f"{str(export.path)!r} is not a file of {self.name}: {why}; nothing was imported")
        for link in export.links:
            builder.problem(0, link)
        for name in export.twice:
            builder.problem(0, f"several files of the export have the name {name!r}: the last one is read")
        left_out = [name for name in export.names if name not in export.taken]
        if left_out:
            more = ", …" if len(left_out) > _NAMED_MAX else ""
            named = ", ".join(left_out[:_NAMED_MAX])
            builder.problem(0, f"{len(left_out)} files of the export are in no conversation: left out ({named}{more})")
        return builder.done(places=place)


def _twice(names: Sequence[str]) -> list[str]:
    """Return the names that come more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def _close(export: Export) -> None:
    if export.zip is not None:
        export.zip.close()


def _documents(content: bytes) -> Iterator[tuple[bytes, str | None]]:
    """Give the JSON text of each conversation of a file, and what is wrong where one cannot be read."""
    content = content.removeprefix(BOM).strip()
    if content[:1] != b"[":
        yield content, None
        return
    try:
        found = _list.decode(content)
    except (msgspec.DecodeError, RecursionError):
        yield from _salvaged(content.decode(errors="surrogateescape"))
        return
    del content
    found.reverse()
    while found:
        yield bytes(found.pop()), None


def _salvaged(text: str) -> Iterator[tuple[bytes, str | None]]:
    """Give the items of a JSON list as far as it can be read."""
    decoder = json.JSONDecoder()
    at = _end_of_gap(text, 1)
    while at < len(text) and text[at] != "]":
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:  # also of numbers that have too many digits for Python
            yield b"", f"not JSON from here to the end of the file ({str(error).partition(':')[0].lower()})"
            return
        yield text[at:end].encode(errors="surrogateescape"), None
        at = _end_of_gap(text, end)
    if at >= len(text):
        yield b"", "the list of conversations breaks off here"


def _end_of_gap(text: str, at: int) -> int:
    found = _gap.match(text, at)
    return found.end() if found else at
