"""The media type of a document: by the extension of its name, else by its content; of images by their content."""

from __future__ import annotations

import re
from pathlib import Path

from turnlog.errors import MetaError
from turnlog.model.pieces import check_utf8

_SNIFF_BYTES = 64 * 1024
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""What models are shown. Providers refuse what says to be one and is another."""

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
"""A pattern of what the names in a media type are made of (RFC 9110 §5.6.2)."""

_MEDIA_TYPE = re.compile(rf"{TOKEN}/{TOKEN}(?:[ \t]*;[\x20-\x7e]*)?")


def media_type(path: Path, payload: bytes) -> str:
    """Return the media type of a document; `application/octet-stream` where nothing tells.

    What reads as text is never taken for an image or a sound because of its first letters, or of its name.
    """
    import mimetypes  # noqa: PLC0415 - what is a document's only

    # Only the extensions: of a whole name the library would take `data:,x.pdf` for a URL.
    guessed, encoding = mimetypes.guess_type("x" + "".join(path.suffixes), strict=False)
    if encoding is not None:
        return f"application/{encoding}"
    if guessed is not None and guessed not in _IMAGES:
        return guessed
    found = _by_content(payload)
    if guessed is not None and (not payload or not is_text(payload)):
        return found if found in _IMAGES else guessed
    if is_text(payload):
        kind = found.partition("/")[0]
        return found if kind == "text" or found.endswith(("json", "xml", "pdf")) else "text/plain"
    return found or "application/octet-stream"


def _by_content(payload: bytes) -> str:
    import puremagic  # noqa: PLC0415 - it reads its tables when it is imported

    try:
        found: str = puremagic.from_string(payload[:_SNIFF_BYTES], mime=True)  # pyright: ignore[reportUnknownMemberType]
    except (puremagic.PureError, ValueError):
        return ""
    return found if "/" in found else ""


def is_text(payload: bytes) -> bool:
    """Tell whether bytes read as text: UTF-8 without NUL."""
    try:
        check_utf8(payload)
    except UnicodeDecodeError:
        return False
    return b"\x00" not in payload


def check_media_type(value: str) -> str:
    """Return a text if it is a media type (RFC 9110 §8.3.1).

    Raises:
        MetaError: it is not.
    """
    if not _MEDIA_TYPE.fullmatch(value):
        raise MetaError(f"content_type: {value!r} is not a MIME type such as text/plain", field="content_type")
    return value
