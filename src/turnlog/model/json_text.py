"""JSON text that somebody gives: as it is kept, and what is wrong with it."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE, check_utf8
from turnlog.model.surrogates import HALF

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON raises of what is not JSON in UTF-8, or is nested too deeply."""

_TEXT = (str, bytes, bytearray, memoryview)
_NO_LONG_STRINGS = LongStrings()
_fields = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode
_path = re.compile(r" - at `\$?([^`]*)`$")


def minify(text: str | bytes, *, field: str) -> bytes:
    """Return JSON text without whitespace outside strings, otherwise as it was spelled.

    Raises:
        ContentError: the text is not JSON in UTF-8.
    """
    minified, long = marked_json(text, field=field)
    return long.into_json(minified)


def marked_json(text: str | bytes, *, field: str) -> tuple[bytes, LongStrings]:
    """Return what `minify` does with marks in place of the long strings, and these.

    Raises:
        ContentError: the text is not JSON in UTF-8, or is no text.
    """
    if not isinstance(text, _TEXT):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ContentError(f"{field}: expected JSON text, got {type(text).__name__}", field=field)
    try:
        source = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise no_utf8(error, field) from error
    long, marked = _NO_LONG_STRINGS, source
    try:
        if len(source) > PIECE:
            long = LongStrings()
            marked = long.out_of_json(source)
        check_utf8(marked)
        minified = msgspec.json.format(marked, indent=-1)
        long.check()
    except UNREADABLE as error:
        raise _no_json(source, error, field) from error
    return marked if minified == marked else minified, long  # one of the two can go: it may be large


def fields_once(raw: Raw, *, field: str) -> dict[str, Raw]:
    """Return the fields of a JSON object without whitespace, of which each has a name of its own.

    Of two with one name readers would know one, and the bytes have both.

    Raises:
        ContentError: a key comes twice.
    """
    record = _fields.decode(raw)
    # What is spelled with escapes in a key is shorter too.
    if len(_encode(record)) < len(memoryview(raw)) and (name := _double_key(bytes(raw))) is not None:
        raise ContentError(f"{field}: the key {name!r} comes twice", field=field)
    return record


def _double_key(text: bytes) -> str | None:
    import json  # noqa: PLC0415 - few commands need it

    names: list[str] = []

    def take(pairs: list[tuple[str, object]]) -> None:
        names[:] = [name for name, _ in pairs]  # the object itself ends behind all that is in it

    json.loads(text, object_pairs_hook=take, parse_int=str, parse_float=str)
    return next((name for name, known in zip(sorted(names), sorted(names)[1:], strict=False) if name == known), None)


def _no_json(source: bytes, found: Exception, field: str) -> ContentError:
    """Return what is wrong with a text, with its place: what was found where marks stood in it has another one."""
    try:
        check_utf8(source)
        msgspec.json.format(source, indent=-1)
    except UNREADABLE as error:
        # Under no other name: it would keep this frame, and with it the text, until garbage is collected.
        return json_error(source, error, field)
    return json_error(source, found, field)


def json_error(source: bytes | memoryview, error: Exception, field: str) -> ContentError:
    """Return what one of `UNREADABLE` says is wrong with a text."""
    match error:
        case UnicodeDecodeError():
            return no_utf8(error, field)
        case RecursionError():
            return ContentError(f"{field}: nested too deeply", field=field)
        case _:
            hint = " (an unpaired surrogate?)" if HALF.search(source) else ""
            return ContentError(f"{field}: not valid JSON: {_lower(str(error))}{hint}", field=field)


def no_utf8(error: UnicodeEncodeError | UnicodeDecodeError, field: str) -> ContentError:
    """Return what is wrong with a text that UTF-8 cannot have, or bytes that are none."""
    return ContentError(f"{field}: text is not valid UTF-8 ({error.reason})", field=field)


def content_error(error: msgspec.DecodeError, field: str) -> ContentError:
    """Return an error of msgspec as one that names the place in turnlog's way, `content[0].text`."""
    place, said = told_place(error, field)
    return ContentError(f"{place}: {said}", field=place)


def told_place(error: msgspec.DecodeError, field: str) -> tuple[str, str]:
    """Return the place that an error of msgspec names, behind a field, and what is wrong there."""
    message = str(error)
    found = _path.search(message)
    place = field + (found.group(1) if found else "")
    return place, _lower(_path.sub("", message).replace("str | null", "str")).replace("`", "'")


def _lower(message: str) -> str:
    message = message.removeprefix("JSON is malformed: ")
    return message[:1].lower() + message[1:]
