"""Content blocks, and the two ways between them and payload bytes.

A payload of content blocks is a JSON array, kept in the order and spelling it came with, without whitespace outside
strings. Blocks are a typed view on it: tool inputs and native blocks stay raw JSON text, and keys that turnlog does not
know (citations, cache hints) are carried in `extra`, so that a block can go back to its provider unchanged.
"""

# Annotations are not put off here: msgspec would compile each one of them again, in every process.

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model.depth import in_layers, is_deeper
from turnlog.model.json_text import content_error, fields_once, marked_json, minify, no_utf8
from turnlog.model.long_strings import LongStrings, has_long_string
from turnlog.model.pieces import PIECE, base64_size, encoded_text, joined
from turnlog.model.plain import plain_json
from turnlog.model.shown import shown

EXTRA = "$extra"
"""The name that `extra` has in msgspec's eyes. No block of a payload may have a key of this name."""


class _Block(
    Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """Hold what all blocks share: the keys that turnlog does not know, as raw JSON text by name."""

    extra: dict[str, Raw] = msgspec.field(name=EXTRA, default={})

    __repr__ = shown


class Text(_Block, frozen=True, kw_only=True, gc=False, tag="text"):
    """Plain text for people and models."""

    text: str


class Source(Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="base64", forbid_unknown_fields=True):
    """The bytes of a document: MIME type, and padded base64."""

    media_type: str
    data: str

    @property
    def size(self) -> int:
        """The number of bytes, without decoding them."""
        return base64_size((self.data,))


class Document(_Block, frozen=True, kw_only=True, gc=False, tag="document"):
    """A document or an image, as bytes with a media type."""

    source: Source


class ToolUse(_Block, frozen=True, kw_only=True, gc=False, tag="tool_use"):
    """A model's request to call a tool.

    `input` is raw JSON text of an object: byte for byte as the model wrote it, but for whitespace outside strings.
    """

    name: str
    input: Raw
    id: str | None = None


class Thinking(_Block, frozen=True, kw_only=True, gc=False, tag="thinking"):
    """A model's reasoning. The signature is valid for one provider, api and model: the turn's, unless named here."""

    thinking: str
    signature: str | None = None
    redacted: bool = False
    provider: str | None = None
    api: str | None = None
    model: str | None = None


class Native(_Block, frozen=True, kw_only=True, gc=False, tag="native"):
    """A block of a provider that has no normalized form, verbatim as raw JSON text."""

    provider: str
    block: Raw
    api: str | None = None
    model: str | None = None


class ToolResult(_Block, frozen=True, kw_only=True, gc=False, tag="tool_result"):
    """What a tool answered. Paired with its call by `tool_use_id`; `content` is text or nested blocks.

    `is_error` is None where nothing is said of it. A null is an extra key: it stays, and no provider is sent it.
    """

    content: str | list[Text | Document | Native] = ""
    tool_use_id: str | None = None
    name: str | None = None
    is_error: bool | None = None


class Erased(_Block, frozen=True, kw_only=True, gc=False, tag="erased"):
    """What stands in a window for the content of an erased turn, or of one whose key is gone. It is never recorded.

    `turn` is the turn's id, `time` when it was recorded, in milliseconds since 1970 UTC, `sealed` whether the content
    is there, sealed under a key that is not here.
    """

    turn: str
    time: int
    sealed: bool = False


Block = Text | Document | ToolUse | ToolResult | Thinking | Native
"""Any content block. Match exhaustively, so that a new kind cannot be passed over in silence."""

WindowBlock = Block | Erased
"""Any block of a message in a window. An erased one stands alone."""

_escaped_ascii = re.compile(rb"\\u00[2-7]")
_BLOCK_TYPES: dict[str, type[_Block]] = {
    "text": Text,
    "document": Document,
    "tool_use": ToolUse,
    "tool_result": ToolResult,
    "thinking": Thinking,
    "native": Native,
}
BLOCK_TYPES = tuple(_BLOCK_TYPES)
"""The types of content blocks."""

_NESTED_TYPES = ("text", "document", "native")
_OPTIONAL = {
    kind: {field.encode_name for field in msgspec.structs.fields(t) if field.default is None} - {"is_error"}
    for kind, t in _BLOCK_TYPES.items()
}
"""What must not be null; the flag of a result may be, as some write it."""
_FIELDS = {kind: {field.encode_name for field in msgspec.structs.fields(t)} for kind, t in _BLOCK_TYPES.items()}

_content = msgspec.json.Decoder(list[Block])
_NULL_FLAG = b'"is_error":null'
"""A flag that decodes as none, and is to stay in the payload."""
_raw_blocks = msgspec.json.Decoder(list[dict[str, Raw]])
_raws = msgspec.json.Decoder(list[Raw])
_record = msgspec.json.Decoder(dict[str, Raw])
_single = msgspec.json.Decoder(Block)
_encoder = msgspec.json.Encoder()
_SHOWN_MAX = 200
"""So many characters of what stands for a type are shown."""

_LAYER_LEVELS = 32
"""So deep is read at once what is nested too deeply to be read as a whole; the keys of blocks are above that."""

_TEXT_END_BYTES = len(b'"}]')


def parse_content(text: str | bytes, *, field: str = "content", depth_max: int | None = None) -> bytes:
    """Return JSON text of content blocks as payload bytes: checked, without whitespace outside strings.

    One block alone, or a bare string, is taken as a list of one.

    Args:
        text: the text.
        field: what messages call it.
        depth_max: so many arrays and objects may stand in each other, inclusive; None for as many as can be read.

    Raises:
        ContentError: not JSON, not UTF-8, not content blocks, or nested too deeply; the message names the field.
    """
    payload, long = marked_json(text, field=field)
    del text
    if payload[:1] == b'"':
        payload = b'[{"type":"text","text":' + payload + b"}]"
    elif payload[:1] == b"{":
        payload = b"[" + payload + b"]"
    with _told_too_deep(field):
        _check_marked(payload, long, field, depth_max)
        for index, raw in enumerate(_raws.decode(payload)):
            _check_keys(raw, f"{field}[{index}]")
    return long.into_json(payload)


def is_in_form(payload: bytes) -> bool:
    """Tell whether payload bytes are content blocks as `parse_content` returns them, however deep they are nested.

    Raises:
        ContentError: they are no content blocks.
    """
    try:
        return parse_content(payload) == payload
    except ContentError:
        if not is_deeper(payload, _LAYER_LEVELS):
            raise
    is_sound = True

    def checked(layer: bytes, _: memoryview) -> bytes:
        nonlocal is_sound
        is_sound &= minify(layer, field="content") == layer
        return b"0"

    outermost = in_layers(payload, _LAYER_LEVELS, checked)
    return parse_content(outermost) == outermost and is_sound


def content_bytes(content: str | Sequence[str | Block | Mapping[str, Any]], *, depth_max: int | None = None) -> bytes:
    """Return content as payload bytes: a string is one text block, in a list each string is one.

    Mappings are blocks as JSON would have them; their key order is kept.

    Args:
        content: the content.
        depth_max: so many arrays and objects may stand in each other, inclusive; None for as many as can be read.

    Raises:
        ContentError: a block is malformed, or nested too deeply; the message names the field.
    """
    if isinstance(content, str):
        return _text_payload(content)
    items: Sequence[object] = [content] if isinstance(content, Mapping | _Block) else content
    if not isinstance(items, Sequence) or isinstance(items, bytes | bytearray):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ContentError(f"content: expected text or a list of blocks, got {type(content).__name__}")
    long = LongStrings()
    with _told_too_deep("content"):
        if has_long_string(items):
            items = long.out_of(items)
    parts = [_block_bytes(item, f"content[{index}]") for index, item in enumerate(items)]
    payload = b"[" + b",".join(parts) + b"]"
    if not all(isinstance(item, str) for item in items):
        try:
            payload = minify(payload, field="content")
        except ContentError:
            _check_raw(items, "content")
            raise
        with _told_too_deep("content"):
            _check_marked(payload, long, "content", depth_max, items)
    return _with_long(long, payload, "content") if long else payload


def text_content(text: bytes | memoryview) -> bytes:
    """Return text as payload bytes of one text block, as `content_bytes` does of a string, which it never makes.

    Raises:
        ContentError: it is not UTF-8.
    """
    empty = _text_payload("")
    try:
        return joined(chain((empty[:-_TEXT_END_BYTES],), encoded_text(text), (empty[-_TEXT_END_BYTES:],)))
    except UnicodeDecodeError as error:
        raise no_utf8(error, "content[0]") from error


def _text_payload(text: str) -> bytes:
    record = _text_record(text)
    if len(text) > PIECE:
        long = LongStrings()
        return _with_long(long, _encoder.encode([long.out_of(record)]), "content[0]")
    try:
        return _encoder.encode([record])
    except UnicodeEncodeError as error:
        raise no_utf8(error, "content[0]") from error


def _with_long(long: LongStrings, payload: bytes, field: str) -> bytes:
    """Return payload bytes with their long strings."""
    try:
        return long.into_json(payload)
    except UnicodeEncodeError as error:
        raise no_utf8(error, field) from error


def _text_record(text: str) -> dict[str, str]:
    return {"type": "text", "text": str.__str__(text)}


def _block_bytes(item: object, field: str) -> bytes:
    try:
        match item:
            case str():
                return _encoder.encode(_text_record(item))
            case _Block():
                # Only the first try costs anything where all values are plain, as they nearly always are.
                try:
                    return _flat(item, field)
                except (TypeError, OverflowError, ValueError):
                    return _flat(plain_json(item, field, ContentError), field)
            case Mapping():
                return _encoder.encode(plain_json(item, field, ContentError))
            case _:
                raise ContentError(f"{field}: expected text or a block, got {type(item).__name__}", field=field)
    except UnicodeEncodeError as error:
        raise no_utf8(error, field) from error
    except RecursionError as error:  # not by `_told_too_deep`: there are many blocks
        raise _too_deep(field) from error


def _too_deep(field: str) -> ContentError:
    return ContentError(f"{field}: nested too deeply", field=field)


@contextmanager
def _told_too_deep(field: str) -> Generator[None]:
    """Raise a `RecursionError` as a `ContentError`."""
    try:
        yield
    except RecursionError as error:
        raise _too_deep(field) from error


def _flat(block: _Block, field: str) -> bytes:
    """Encode a block with its extra keys beside its own, as they stood in the payload it came from."""
    encoded = _encoder.encode(block)
    nested = block.content if isinstance(block, ToolResult) else ""
    if not block.extra and not (isinstance(nested, list) and any(inner.extra for inner in nested)):
        return encoded
    record = msgspec.json.decode(encoded, type=dict[str, Raw])
    record.pop(EXTRA, None)
    if isinstance(nested, list):
        inner = [_flat(each, f"{field}.content[{index}]") for index, each in enumerate(nested)]
        record["content"] = Raw(b"[" + b",".join(inner) + b"]")
    if both := record.keys() & block.extra.keys():
        raise ContentError(f"{field}.extra: {min(both)!r} is a key that the block has", field=f"{field}.extra")
    return _encoder.encode(record | block.extra)


def _check_marked(
    payload: bytes, long: LongStrings, field: str, depth_max: int | None, given: Sequence[object] = ()
) -> None:
    try:
        _check(payload, field, depth_max, given)
    except ContentError:
        if long:
            _check(long.into_json(payload), field, depth_max)  # to say what it is without marks
        raise


def _check_raw(given: Sequence[object], field: str) -> None:
    """Check that raw text in blocks is JSON by itself: in mappings it was, before they were encoded.

    Raises:
        ContentError: it is not.
    """
    for index, item in enumerate(given):
        if isinstance(item, _Block):
            plain_json(item, f"{field}[{index}]", ContentError)


def _check_given(given: object, block: Block, raw: Raw, field: str) -> None:
    """Check that a block says what was given, and nothing that raw text in it went on with.

    Where it reads back as it was given, as it nearly always does, each raw text in it is one value. That is cheap.

    Raises:
        ContentError: raw text is no JSON by itself, or has a key of a block twice.
    """
    if isinstance(given, str) or given == block:
        return
    if isinstance(given, _Block):
        plain_json(given, field, ContentError)
    if isinstance(block, Document | ToolResult):  # others have no keys but their own, each of which is there once
        _check_keys(raw, field)


def _check(payload: bytes, field: str, depth_max: int | None, given: Sequence[object] = ()) -> None:
    has_null = b":null" in payload
    decode = _decode_with_extra if _may_have_reserved_key(payload) or _NULL_FLAG in payload else _decode_block
    raws = _raws_of(payload, field)
    if given and len(raws) != len(given):
        _check_raw(given, field)
    for index, raw in enumerate(raws):
        # One by one: hundreds of thousands of blocks take more memory than their JSON.
        place = f"{field}[{index}]"
        block = decode(raw, place)
        if given:
            _check_given(given[index], block, raw, place)
        # A block stands in the list, and what is in it in the block.
        if depth_max is not None and (deep := deep_field(block, depth_max - 2)) is not None:
            deep = f"{place}.{deep}"
            raise ContentError(f"{deep}: content is nested {depth_max} levels deep at most", field=deep)
        if isinstance(block, ToolUse) and bytes(memoryview(block.input)[:1]) != b"{":
            raise ContentError(f"{place}.input: expected an object", field=f"{place}.input")
        if has_null:
            _refuse_nulls(_record.decode(raw), place)


def deep_field(block: Block, levels: int) -> str | None:
    """Return which field of a block is nested deeper than so many levels, None where none is."""
    raws = block.extra
    match block:
        case ToolUse():
            raws = {"input": block.input, **raws}
        case Native():
            raws = {"block": block.block, **raws}
        case ToolResult() if isinstance(block.content, list):
            for index, inner in enumerate(block.content):
                if (deep := deep_field(inner, levels - 2)) is not None:
                    return f"content[{index}].{deep}"
        case _:
            pass
    return next((name for name, raw in raws.items() if is_deeper(bytes(raw), levels)), None) if raws else None


def _refuse_nulls(record: Mapping[str, Raw], field: str) -> None:
    """Refuse null for what a block has not: it leaves that out.

    Raises:
        ContentError: a key is null.
    """
    kind = _kind(record, field, BLOCK_TYPES)
    for name in _OPTIONAL[kind] & record.keys():
        if bytes(record[name]) == b"null":
            raise ContentError(f"{field}.{name}: null is no value here: leave it out", field=f"{field}.{name}")
    if kind == "tool_result" and bytes(record.get("content", b""))[:1] == b"[":
        for index, inner in enumerate(_raw_blocks.decode(record["content"])):
            _refuse_nulls(inner, f"{field}.content[{index}]")


def _check_keys(raw: Raw, field: str) -> None:
    """Check that a block has each of its keys once. What is somebody else's in it, as the input of a call, may be odd.

    Raises:
        ContentError: a key comes twice.
    """
    record = fields_once(raw, field=field)
    match _kind(record, field, BLOCK_TYPES):
        case "document":
            fields_once(record["source"], field=f"{field}.source")
        case "tool_result" if bytes(memoryview(record.get("content", b""))[:1]) == b"[":
            for index, inner in enumerate(_raws.decode(record["content"])):
                _check_keys(inner, f"{field}.content[{index}]")
        case _:
            pass


def decode_content(payload: bytes, *, field: str = "content") -> list[Block]:
    """Return the blocks of a payload.

    Raises:
        ContentError: the payload is not content blocks.
    """
    if len(payload) <= PIECE and _NULL_FLAG not in payload:
        try:
            return _content.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # said below, where it is none: some have keys that turnlog does not know
    return _decoded_in_parts(payload, field)


def _decoded_in_parts(payload: bytes, field: str) -> list[Block]:
    """Return the blocks of a payload that may be long or deep, or have what turnlog does not know."""
    long = LongStrings()
    try:
        blocks = _decoded(payload if len(payload) <= PIECE else long.out_of_json(payload), field)
    except UnicodeDecodeError as error:
        raise ContentError(f"{field}: not valid UTF-8: {error}", field=field) from error
    except RecursionError:
        # How deep that is depends on the stack of the caller, and not on what is there alone.
        long = LongStrings()
        shallow = in_layers(payload, _LAYER_LEVELS, lambda _, whole: long.json_kept(whole))
        with _told_too_deep(field):
            blocks = _decoded(long.out_of_json(shallow), field)
    with malformed_texts(field):
        return long.into(blocks) if long else blocks


def _decoded(text: bytes, field: str) -> list[Block]:
    if _NULL_FLAG not in text:
        with suppress(msgspec.DecodeError):  # some have keys that turnlog does not know, or are malformed
            return _content.decode(text)
    return [_decode_with_extra(raw, f"{field}[{index}]") for index, raw in enumerate(_raws_of(text, field))]


def _raws_of(payload: bytes, field: str) -> list[Raw]:
    try:
        return _raws.decode(payload)
    except msgspec.DecodeError as error:
        raise content_error(error, field) from error


@contextmanager
def malformed_texts(field: str = "content") -> Generator[None]:
    """Raise what a long text that is none to the codec raises as a `ContentError`."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ContentError(f"{field}: a text is malformed: {error}", field=field) from error


def _decode_block(raw: Raw, field: str) -> Block:
    try:
        return _single.decode(raw)
    except msgspec.DecodeError:
        return _decode_with_extra(raw, field)


def _decode_with_extra(raw: Raw, field: str) -> Block:
    """Decode a block that may have keys that turnlog does not know, or is malformed."""
    try:
        record = _record.decode(raw)
    except msgspec.DecodeError as error:
        raise content_error(error, field) from error
    return _split(record, field, BLOCK_TYPES)


def _may_have_reserved_key(payload: bytes) -> bool:
    return b'"$extra"' in payload or (b"\\u00" in payload and _escaped_ascii.search(payload) is not None)


def _split(record: dict[str, Raw], field: str, kinds: tuple[str, ...]) -> Any:
    """Decode one block whose unknown keys go to `extra`."""
    kind = _kind(record, field, kinds)
    if EXTRA in record:
        raise ContentError(f"{field}.{EXTRA}: this key is reserved", field=f"{field}.{EXTRA}")
    # A flag that is null says no more than none; it stays in the payload, and so among what turnlog does not know.
    unknown = {"is_error"} if bytes(record.get("is_error", b"")) == b"null" else set[str]()
    known = {name: raw for name, raw in record.items() if name == "type" or name in _FIELDS[kind] - unknown}
    nested: list[Any] | None = None
    if kind == "tool_result" and bytes(record.get("content", b""))[:1] == b"[":
        nested = _nested(known.pop("content"), f"{field}.content")
    try:
        block = _single.decode(_encoder.encode(known))
    except msgspec.DecodeError as error:
        raise content_error(error, field) from error
    extra = {name: raw for name, raw in record.items() if name not in known and (name != "content" or nested is None)}
    changes: dict[str, Any] = {"extra": extra} if nested is None else {"extra": extra, "content": nested}
    return msgspec.structs.replace(block, **changes)


def _nested(content: Raw, field: str) -> list[Any]:
    try:
        records = _raw_blocks.decode(content)
    except msgspec.DecodeError as error:
        raise content_error(error, field) from error
    return [_split(record, f"{field}[{index}]", _NESTED_TYPES) for index, record in enumerate(records)]


def _kind(record: Mapping[str, Raw], field: str, kinds: tuple[str, ...]) -> str:
    if "type" not in record:
        raise ContentError(f"{field}: missing field 'type'", field=f"{field}.type")
    try:
        kind: object = msgspec.json.decode(record["type"])
    except msgspec.DecodeError as error:  # a number that no one can hold
        raise ContentError(f"{field}.type: {error}", field=f"{field}.type") from error
    if kind not in kinds:
        shown = kind if not isinstance(kind, str) or len(kind) <= _SHOWN_MAX else f"{kind[:_SHOWN_MAX]}…"
        raise ContentError(
            f"{field}.type: {shown!r} is not a content block here (one of {', '.join(kinds)})", field=f"{field}.type"
        )
    return cast("str", kind)
