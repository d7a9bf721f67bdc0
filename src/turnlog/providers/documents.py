"""Documents by media type: which of them are text, and what is said of one that cannot be shown."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from turnlog.model import Document

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


def document_text(block: Document) -> str | None:
    """Return the text of a document whose media type is text-like and whose bytes are UTF-8, else None."""
    if not of_type(block, _TEXT_LIKE):
        return None
    try:
        return b64decode(block.source.data, validate=True).decode()
    except (Base64Error, UnicodeDecodeError):
        return None


def document_words(block: Document) -> str:
    """Return what a document is, in words for a model: its name, where its block has one, its type and its size."""
    name = next((name for key in _NAMES if (name := _name(block, key))), None)
    named = "" if name is None else f' "{name}"'
    return f"a document{named} of type {block.source.media_type}, {block.source.size:,} bytes"


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
