"""Documents by media type: which of them are text, and what is said of one that cannot be shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec
from msgspec import Raw

from turnlog.model import Document, Native, Text
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import base64_text, text_pieces

_TEXT_LIKE = (
    "text/*",
    "application/json",
    "application/*+json",
    "application/xml",
    "application/*+xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/javascript",
    "application/x-javascript",
    "application/typescript",
    "application/sql",
    "application/graphql",
    "application/x-sh",
    "application/x-python",
    "application/jsonl",
    "application/x-ndjson",
    "image/svg+xml",
)

_NAMES = ("title", "filename", "name")
"""The keys of a block that can have the name of its document."""

_NAME_CHARACTERS_MAX = 255
"""As long as a file's name is on most systems; Anthropic takes 500."""


def document_text(block: Document, long: LongStrings | None = None) -> str | None:
    """Return the text of a document whose media type is text-like and whose bytes are UTF-8, else None.

    Args:
        block: the document.
        long: long strings, of which one may have its mark in place of the base64. Then it has one in place of the text,
            unless that is blank.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: what the mark stands for is no string to the codec.
    """
    if not of_type(block, _TEXT_LIKE):
        return None
    data = block.source.data
    if long is not None and long.is_mark(data):
        return _marked_text(data, long)
    try:
        return "".join(base64_text(text_pieces(data)))
    except ValueError:  # it is no base64, or not of UTF-8
        return None


def _marked_text(mark: str, long: LongStrings) -> str | None:
    def pieces() -> Iterator[str]:
        return base64_text(long.said_pieces(mark))

    long.bytes_of_base64(mark)  # raises what the string itself raises
    try:
        says_something = [not piece.isspace() for piece in pieces() if piece]
    except ValueError:
        return None
    return long.made_of(pieces) if any(says_something) else "".join(pieces())


def document_words(block: Document, name: str | None = None, long: LongStrings | None = None) -> str:
    """Return what a document is, in words for a model: its name, where there is one, its type and its size.

    Args:
        block: the document.
        name: its name, where it is not the block that has it.
        long: long strings, of which one may have its mark in place of the base64.
    """
    name = _shown(name) or next((name for key in _NAMES if (name := _name(block, key))), None)
    named = "" if name is None else f' "{name}"'
    size = block.source.size if long is None else long.bytes_of_base64(block.source.data)
    return f"a document{named} of type {block.source.media_type}, {size:,} bytes"


def named(block: Document, name: str | None, field: str | None) -> list[Text | Document | Native]:
    """Return a document with its name: in a field of its block, or in a text before it.

    Args:
        block: the document.
        name: the name; None for none.
        field: the field of documents that are no images; None where the wire has none.
    """
    shown = _shown(name)
    if not shown:
        return [block]
    if field is None or of_type(block, ("image/*",)):
        return [Text(text=f'[document "{shown}"]'), block]
    extra = {field: Raw(msgspec.json.encode(shown)), **block.extra}
    return [msgspec.structs.replace(block, extra=extra)]


def named_text(text: str, name: str | None) -> str:
    """Return the text of a document with its name around it; as it is where it has none."""
    shown = _shown(name)
    return f'<document name="{shown}">\n{text}\n</document>' if shown else text


def _shown(name: str | None) -> str:
    """Return a name as it stands between quotes, on one line."""
    return " ".join((name or "").replace('"', "'").split())[:_NAME_CHARACTERS_MAX]


def _name(block: Document, key: str) -> str | None:
    """Return the text under an extra key of a block, as one line; None where there is none."""
    try:
        return " ".join(msgspec.json.decode(block.extra.get(key, b"null"), type=str).split()) or None
    except msgspec.DecodeError:
        return None


def of_type(block: Document, patterns: Iterable[str]) -> bool:
    """Return whether the media type of a document, without its parameters, fits one of some patterns (`image/*`)."""
    media_type = block.source.media_type.partition(";")[0].strip().lower()
    return any(fnmatchcase(media_type, pattern) for pattern in patterns)
