"""Documents by media type: which of them are text, and what is said of one that cannot be shown."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec
from msgspec import Raw

from turnlog.model import Document, Native, Text
from turnlog.model.long_strings import LongStrings

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
        long: long strings, for whose base64 a mark may stand in it.
    """
    if not of_type(block, _TEXT_LIKE):
        return None
    data = block.source.data if long is None else long.into(block.source.data)
    try:
        return b64decode(data, validate=True).decode()
    except (Base64Error, UnicodeDecodeError):
        return None


def document_words(block: Document, name: str | None = None) -> str:
    """Return what a document is, in words for a model: its name, where there is one, its type and its size."""
    name = _shown(name) or next((name for key in _NAMES if (name := _name(block, key))), None)
    named = "" if name is None else f' "{name}"'
    return f"a document{named} of type {block.source.media_type}, {block.source.size:,} bytes"


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
