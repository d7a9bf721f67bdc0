"""Content blocks with marks in place of what is long in them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec
from msgspec import Raw

from turnlog.model.blocks import malformed_texts
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE

_raw_blocks = msgspec.json.Decoder(list[dict[str, Raw]])
_raw_fields = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()

LongKind = Literal["thoughts", "inputs", "results", "documents", "natives"]
"""What may have marks beside text blocks: see `marked_texts`."""

LONG_KINDS: tuple[LongKind, ...] = ("thoughts", "inputs", "results", "documents")
"""Those that every provider has. What stands in a native block is for the adapter of its provider to look into."""


def marked_texts(content: bytes, long: LongStrings, also: Collection[LongKind] = ()) -> bytes:
    """Return content with marks in place of the long texts of text blocks that say something, which `long` gets.

    What has none, or is no content, is returned as it is.

    Args:
        content: JSON of content blocks.
        long: what gets the texts.
        also: further kinds of long strings that have marks: what is thought (`thoughts`), those in the input of calls
            (`inputs`), which is written as it is spelled, the texts of results (`results`), the base64 of documents
            (`documents`), of those in results where these have marks, and those in native blocks (`natives`), which are
            written as they are spelled.

    Raises:
        ContentError: such a text is malformed.
    """
    if len(content) <= PIECE:
        return content
    own = LongStrings()
    marked = own.out_of_json(content)
    try:
        records = _raw_blocks.decode(marked) if own else []
    except msgspec.DecodeError:
        return content
    with malformed_texts():
        is_marked = [_mark_block(record, own, long, also) for record in records]
    return _encoder.encode(own.into(records)) if any(is_marked) else content


def _mark_block(record: dict[str, Raw], own: LongStrings, long: LongStrings, also: Collection[LongKind]) -> bool:
    """Return whether something that a block says was long, which has a mark of `long` then."""
    match bytes(record.get("type", b"")):
        case b'"text"':
            return _mark(record, "text", own, long)
        case b'"thinking"' if "thoughts" in also:
            return _mark(record, "thinking", own, long)
        case b'"tool_use"' if "inputs" in also:
            return _mark_inner(record, "input", own, long)
        case b'"native"' if "natives" in also:
            return _mark_inner(record, "block", own, long)
        case b'"tool_result"' if "results" in also:
            return _mark(record, "content", own, long) or _mark_inside(record, own, long, also)
        case b'"document"' if "documents" in also:
            return _mark_data(record, own, long)
        case _:
            return False


def _mark_inside(record: dict[str, Raw], own: LongStrings, long: LongStrings, also: Collection[LongKind]) -> bool:
    """Return whether something that a block of a result says was long, which has a mark of `long` then."""
    try:
        inside = _raw_blocks.decode(record.get("content", b""))
    except msgspec.DecodeError:
        return False
    is_marked = [_mark_block(each, own, long, also) for each in inside]
    if not any(is_marked):
        return False
    record["content"] = Raw(_encoder.encode(inside))
    return True


def _mark_inner(record: dict[str, Raw], name: str, own: LongStrings, long: LongStrings) -> bool:
    """Return whether there was a long string in JSON of any kind, which has marks of `long` then, as it is spelled."""
    if not own.is_in(inner := bytes(record.get(name, b""))):
        return False
    record[name] = Raw(long.json_taken_over(own, inner))
    return True


def _mark_data(record: dict[str, Raw], own: LongStrings, long: LongStrings) -> bool:
    """Return whether the base64 of a document was long, which has a mark of `long` then."""
    try:
        source = _raw_fields.decode(record.get("source", b""))
    except msgspec.DecodeError:
        return False
    if not _mark(source, "data", own, long):
        return False
    record["source"] = Raw(_encoder.encode(source))
    return True


def _mark(record: dict[str, Raw], name: str, own: LongStrings, long: LongStrings) -> bool:
    """Return whether a field is a text that was long and says something, which has a mark of `long` then."""
    text = bytes(record.get(name, b""))
    if text[:1] != b'"' or not own.is_in(text):
        return False
    mark = text[1:-1].decode()
    if own.is_blank(mark):
        return False
    record[name] = Raw(_encoder.encode(long.taken_over(own, mark)))
    return True
