"""From Anthropic's content blocks to content blocks of the log, and nothing dropped.

Text, thinking, tool_use and tool_result are the same in both and stay as they are, byte for byte. Base64 images and
documents become documents. Whatever else there is becomes `native`, verbatim.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.interop.marked import begins, is_base64_text
from turnlog.model import parse_content

PROVIDER = "anthropic"
API = "messages"

_SAME = ("text", "thinking", "tool_use", "tool_result")
_SAME_NESTED = ("text",)
_BASE64 = b'"base64"'

_list = msgspec.json.Decoder(list[Raw])
_record = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


def blocks_of(content: bytes, model: str | None) -> list[bytes]:
    """Return the content of a message, a JSON string or list without whitespace, as JSON texts of blocks of the log."""
    if content[:1] == b'"':
        return [b'{"type":"text","text":' + content + b"}"]
    return [_block(bytes(raw), model, _SAME) for raw in _list.decode(content)]


def _block(raw: bytes, model: str | None, same: tuple[str, ...]) -> bytes:
    record = _record.decode(raw) if raw[:1] == b"{" else {}
    named = bytes(record.get("type", b""))
    kind = msgspec.json.decode(named, type=str) if named[:1] == b'"' else None
    candidate: bytes | None = None
    if kind == "tool_result" and kind in same and begins(record.get("content"), b"["):
        candidate = _tool_result(raw, record, model)
    elif kind in same or (kind == "document" and _is_base64(record)):
        candidate = raw
    elif kind == "image" and _is_base64(record):
        candidate = _encoder.encode({**record, "type": "document"})
    if candidate is not None and _is_block(candidate):
        return candidate
    return _native(raw, model)


def _tool_result(raw: bytes, record: dict[str, Raw], model: str | None) -> bytes:
    nested = [bytes(inner) for inner in _list.decode(record["content"])]
    converted = [_block(inner, model, _SAME_NESTED) for inner in nested]
    if converted == nested:
        return raw
    return _encoder.encode({**record, "content": Raw(b"[" + b",".join(converted) + b"]")})


def has_damaged_document(content: bytes) -> bool:
    """Tell whether a document or an image in the content of a message is to have base64, and has none."""
    if content[:1] != b"[" or _BASE64 not in content:
        return False
    return any(map(_is_damaged, _list.decode(content)))


def _is_damaged(raw: Raw) -> bool:
    record = _record.decode(raw) if begins(raw, b"{") else {}
    kind = record.get("type")
    if kind == Raw(b'"tool_result"') and begins(record.get("content"), b"["):
        return any(map(_is_damaged, _list.decode(record["content"])))
    is_file = kind in (Raw(b'"document"'), Raw(b'"image"'))
    return is_file and _source_of(record).get("type") == Raw(_BASE64) and not _is_base64(record)


def _is_base64(record: dict[str, Raw]) -> bool:
    source = _source_of(record)
    return source.get("type") == Raw(_BASE64) and is_base64_text(source.get("data"))


def _source_of(record: dict[str, Raw]) -> dict[str, Raw]:
    told = record.get("source")
    return _record.decode(told) if begins(told, b"{") else {}


def _is_block(candidate: bytes) -> bool:
    try:
        return parse_content(candidate) == b"[" + candidate + b"]"
    except (ContentError, msgspec.DecodeError):
        return False


def _native(raw: bytes, model: str | None) -> bytes:
    named = {} if model is None else {"model": model}
    return _encoder.encode({"type": "native", "provider": PROVIDER, "api": API, **named, "block": Raw(raw)})
