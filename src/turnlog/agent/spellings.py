"""How a secret may be spelled in what a program writes: in JSON, in a URL, in HTML, in base64, in hexadecimal."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

_JSON_DEPTH = 3
"""JSON may stand in a string of JSON: a tool shows the arguments or the log of another program."""

_KEPT_OUT_OF_HTML = re.compile(r"[<>&='\u2028\u2029]")
"""What encoders of JSON escape of ASCII beyond what they have to, so that it can stand in a page (Go's, Gson)."""

_URL_DIGITS = str.maketrans("+/", "-_")
_ESCAPED_BYTE = re.compile(r"%[0-9A-F]{2}")


def spellings(value: str) -> set[str]:
    """Return how a value may be spelled in a text. Bytes of it that are no UTF-8 are halves of surrogate pairs."""
    encoded = value.encode(errors="surrogateescape")
    found = {value, *_json_of(value), html.escape(value), html.escape(value, quote=False)}
    for in_url in (quote(encoded, safe=""), quote(encoded), quote_plus(encoded)):
        found |= {in_url, _ESCAPED_BYTE.sub(lambda byte: byte[0].lower(), in_url)}
    found |= {encoded.hex(), encoded.hex().upper(), *_base64_of(encoded)}
    return found


def _json_of(value: str) -> Iterator[str]:
    """Iterate over what strings of JSON say the value, without their quotation marks, and strings of these."""
    spelled = {value}
    for _ in range(_JSON_DEPTH):
        spelled = {form for text in spelled for form in _strings(text)}
        yield from spelled
    for escape in ("\\u%04x", "\\u%04X"):
        units = value.encode("utf-16-be", "surrogatepass")
        yield "".join(escape % int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))


def _strings(text: str) -> Iterator[str]:
    for ascii_only in (True, False):
        plain = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield plain
        yield plain.replace("/", "\\/")
        yield _KEPT_OUT_OF_HTML.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


def _base64_of(content: bytes) -> Iterator[str]:
    """Iterate over the digits that stand for nothing else, wherever it begins in what is encoded (RFC 4648 §4, §5)."""
    for before in range(3):
        digits = b64encode(bytes(before) + content).decode()
        first, end = -(-before * 8 // 6), (before + len(content)) * 8 // 6
        yield digits[first:end]
        yield digits[first:end].translate(_URL_DIGITS)
