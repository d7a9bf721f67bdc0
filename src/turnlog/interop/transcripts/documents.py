"""Files of JSON documents one after the other, and what is made of parts of documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Raw

from turnlog.digest import pieces_digest
from turnlog.errors import ContentError
from turnlog.interop.marked import data_url, in_pieces, respelled, says
from turnlog.interop.texts import depths, file_lines
from turnlog.interop.transcripts.blocks import document_block
from turnlog.interop.transcripts.transcript import Given
from turnlog.model.blocks import parse_content

_space = re.compile(r"\s*")
_start = re.compile(r"^[\[{]", re.MULTILINE)
_encoder = msgspec.json.Encoder()
_raw = msgspec.json.Decoder(Raw)


def documents_of(path: Path) -> Iterator[bytes]:
    """Give the JSON text of each document of a file. Of a damaged one on, what follows is in memory at once.

    What cannot be read is one text up to the next line that begins as a document does.

    Raises:
        FormatError: the file cannot be read.
    """
    gathered: list[bytes] = []
    depth = 0
    lines = file_lines(path)
    for line in lines:
        gathered.append(line)
        *_, depth = depths(line, depth)
        if depth <= 0:
            text = b"\n".join(gathered).strip()
            if text and not _is_document(text):
                break
            if text:
                yield text
            gathered, depth = [], 0
    yield from _documents_in(b"\n".join((*gathered, *lines)))


def _is_document(text: bytes) -> bool:
    """Tell whether a text is one document, and nothing else."""
    try:
        _raw.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _documents_in(content: bytes) -> Iterator[bytes]:
    """Give the documents of the rest of a file, damaged ones too."""
    text = content.decode(errors="surrogateescape")
    decoder = json.JSONDecoder()
    at = _end_of_space(text, 0)
    while at < len(text):
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):  # which an integer of thousands of digits is too
            following = _start.search(text, at + 1)
            end = following.start() if following else len(text)
        yield text[at:end].encode(errors="surrogateescape").rstrip()
        at = _end_of_space(text, end)


def made_of(given: Given, record: Mapping[str, Raw], names: Sequence[str]) -> Given:
    """Return some fields of an object as a text of their own, with their findings."""
    text = _encoder.encode({name: record[name] for name in names if name in record})
    own = [(at, kind) for at, kind in given.findings if re.split(r"[.\[]", at)[0] in names]
    return Given(place=given.place, text=text, findings=own)


class Chain:
    """Tells texts without ids apart by all that comes before them in their file.

    Two files that begin alike share what they have in common, and each is whole.
    """

    def __init__(self, before: str = "") -> None:
        """Begin with nothing before, or with what tells this one from others that begin alike."""
        self._before = before

    def take(self, given: Given) -> Given:
        """Return a text as `{"before": …, "item": …}`, with the hash of what comes before it."""
        before = self._before
        self._before = pieces_digest(chain((before.encode(),), in_pieces(given.text))).hex()
        text = _encoder.encode({"before": before, "item": Raw(given.text)})
        findings = [(f"item.{at}" if at else "item", kind) for at, kind in given.findings]
        return Given(place=given.place, text=text, findings=findings)


def data_block(media_type: str | None, data: Raw | None) -> bytes | None:
    """Return a document in base64, given as a JSON string, or None where it is none."""
    if not media_type or not says(data):
        return None
    try:
        return parse_content(document_block(media_type, respelled(data)))[1:-1]
    except ContentError:
        return None


def url_block(url: Raw | None) -> bytes | None:
    """Return the document that a `data:` URL has, or None where it is none."""
    media_type, data = data_url(url) or ("", None)
    return data_block(media_type.partition(";")[0], data)


def _end_of_space(text: str, at: int) -> int:
    found = _space.match(text, at)
    return found.end() if found else at
