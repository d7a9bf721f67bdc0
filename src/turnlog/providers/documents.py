"""Documents by media type: which of them are text."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable
from fnmatch import fnmatchcase

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


def document_text(block: Document) -> str | None:
    """Return the text of a document whose media type is text-like and whose bytes are UTF-8, else None."""
    if not of_type(block, _TEXT_LIKE):
        return None
    try:
        return b64decode(block.source.data, validate=True).decode()
    except (Base64Error, UnicodeDecodeError):
        return None


def of_type(block: Document, patterns: Iterable[str]) -> bool:
    """Return whether the media type of a document, without its parameters, fits one of some patterns (`image/*`)."""
    media_type = block.source.media_type.partition(";")[0].strip().lower()
    return any(fnmatchcase(media_type, pattern) for pattern in patterns)
