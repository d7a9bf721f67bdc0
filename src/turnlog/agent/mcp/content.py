"""What an MCP server answers to a tool call, as content blocks.

Source: Model Context Protocol 2025-11-25, Server Features, Tools, "Tool Result".

A result is read as the server wrote it and not through a closed list of content kinds, so that nothing of it is lost:
what has no block is kept as a `native` block of the provider `mcp`, and keys without a place in a block (`annotations`,
`_meta`, …) stay as its extra keys. Only `_meta` of a result as a whole, which is for programs, is left out.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Raw

from turnlog.agent.half_pairs import any_json
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import Document, Native, Source, Text
from turnlog.model.long_strings import decode_string
from turnlog.model.pieces import PIECE
from turnlog.record.media import media_type

_Fields = Mapping[str, object]
_Blocks = list[Text | Document | Native]

STRUCTURED = "structuredContent"
"""The key of a result for what it says as JSON. JSON text that is very long stays text here, as `Raw`."""

PARTS_MAX = 10_000
"""How many parts of the content of a result become blocks. Those behind them are one text, which has their JSON."""

_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_BLANKS = re.compile(r"\s+")
_KIND_CHARACTERS_MAX = 255
"""RFC 6838, 4.2: two names of at most 127 characters. What is longer is no media type."""
_SPELLED_LONGER_MAX = 6
"""How many times as long JSON text may be that says the same: an ASCII letter as an escape has 6."""
_objects = msgspec.json.Decoder(dict[str, Raw])
_lists = msgspec.json.Decoder(list[Raw])
_BYTES_MIN = 64
"""Base64 of fewer digits is left in structured content."""
_NAMES = {
    block: frozenset({"type", *(field.encode_name for field in msgspec.structs.fields(block))})
    for block in (Text, Document)
}
"""The keys that a block has in any case."""
_REPEATED = "(as in this result)"
"""What stands in structured content for the base64 of a document of the same result."""


def raw_json(value: object, *, finite: bool = True) -> Raw:
    """Return a value as JSON text, in the order that it has.

    Args:
        value: the value.
        finite: whether all numbers have to be such as JSON has: NaN and infinities make it text that is none.

    Raises:
        ValueError: a number is not, or it has text that is not UTF-8.
    """
    return Raw(json.dumps(value, ensure_ascii=False, allow_nan=not finite, separators=(",", ":")).encode())


def outcome_of(result: _Fields) -> ToolOutcome:
    """Return the outcome that the result of `tools/call` tells of.

    Text is text; images, audio and blobs are documents; resources have a line before them that names their URI.
    Structured content is one more text, of JSON, unless the content says the same; NaN and infinities, which JSON has
    not, are `NaN` and `Infinity` there. Bytes that a document of the result has are not repeated in it. Of more than
    `PARTS_MAX` parts, those behind them are a text of their JSON, with a line before it that says so.

    Raises:
        ValueError: its content has a number that JSON has not, or text that is not UTF-8, or is nested too deeply.
    """
    kind = result.get("resultType")
    if kind is not None and kind != "complete":
        return ToolOutcome.error(f"the tool did not finish but answered {kind!r}, which turnlog cannot give it")
    content = result.get("content")
    if isinstance(content, str):
        content = {"type": "text", "text": content}
    parts = cast("Sequence[object]", content) if isinstance(content, list) else [] if content is None else [content]
    items = list(map(_value, parts[:PARTS_MAX]))
    blocks = [block for item in items for block in _blocks_of(item)]
    if rest := parts[PARTS_MAX:]:
        blocks += [Text(text=f"{len(rest):,} more parts, as JSON:"), Text(text=_json_of(rest))]
    structured = result.get(STRUCTURED)
    texts = [block.text for block in blocks if isinstance(block, Text)]
    if isinstance(structured, Raw) and len(memoryview(structured)) <= PIECE:
        structured = any_json(bytes(structured))
    if isinstance(structured, Raw):
        said = None if _spells(texts, structured) else _text_without_bytes(structured, _bytes_in(blocks))
    elif structured is None or _says(texts, structured) or _repeats(items, structured):
        said = None
    else:
        try:
            said = bytes(raw_json(_without_bytes(structured, _bytes_in(blocks)), finite=False)).decode()
        except RecursionError as error:
            raise ValueError("its structured content is nested too deeply") from error
    if said is not None:
        blocks.append(Text(text=said))
    return ToolOutcome(content=tuple(blocks), is_error=result.get("isError") is True)


def _value(part: object) -> object:
    return any_json(bytes(part)) if isinstance(part, Raw) else part


def _json_of(parts: Sequence[object]) -> str:
    texts = (bytes(part if isinstance(part, Raw) else raw_json(part)).decode(errors="replace") for part in parts)
    return f"[{','.join(texts)}]"


def _blocks_of(item: object) -> _Blocks:
    fields = _fields(item)
    kind = fields.get("type")
    read = _KINDS.get(kind) if isinstance(kind, str) else None
    blocks = None if read is None else read(fields)
    if blocks is not None:
        return blocks
    if read is not None:
        notice = f"(content of the kind {kind!r} that cannot be read)"
    else:
        notice = f"(content of the kind {kind!r}, which cannot be shown here)" if kind else "(content of no kind)"
    return [Text(text=notice), Native(provider="mcp", block=raw_json(item))]


def _text(fields: _Fields) -> _Blocks | None:
    text, extra = fields.get("text"), _extra(Text, fields, "type", "text")
    return None if not isinstance(text, str) or extra is None else [Text(text=text, extra=extra)]


def _bytes(fields: _Fields) -> _Blocks | None:
    found = _document(fields.get("data"), fields.get("mimeType"), "")
    extra = _extra(Document, fields, "type", "data", "mimeType")
    return None if found is None or extra is None else [Document(source=found, extra=extra)]


def _resource(fields: _Fields) -> _Blocks | None:
    inner = _fields(fields.get("resource"))
    uri = inner.get("uri")
    text = inner.get("text")
    outside = _extra(Text, fields, "type", "resource")
    inside = _extra(Text if isinstance(text, str) else Document, inner, "uri", "mimeType", "text", "blob")
    if not isinstance(uri, str) or outside is None or inside is None:
        return None
    body: Text | Document
    if isinstance(text, str):
        kind = inner.get("mimeType")
        body = Text(text=text, extra=inside)
    else:
        found = _document(inner.get("blob"), inner.get("mimeType"), uri)
        if found is None:
            return None
        kind = found.media_type
        body = Document(source=found, extra=inside)
    about = f" ({said})" if (said := _kind(kind)) else ""
    return [Text(text=f"Resource {uri}{about}:", extra=outside), body]


def _link(fields: _Fields) -> _Blocks | None:
    uri = fields.get("uri")
    extra = _extra(Text, fields, "type", "uri", "name", "title", "description", "mimeType", "size")
    if not isinstance(uri, str) or extra is None:
        return None
    name, title, kind, size, description = (
        fields.get(key) for key in ("name", "title", "mimeType", "size", "description")
    )
    parts = list(dict.fromkeys(map(str, filter(None, (title, name)))))
    about = ", ".join(str(part) for part in (kind, f"{size:,} bytes" if isinstance(size, int) else None) if part)
    line = f"Resource link: {' / '.join(parts)} <{uri}>{f' ({about})' if about else ''}"
    return [Text(text=_BLANKS.sub(" ", f"{line}: {description}" if description else line).strip(), extra=extra)]


_KINDS: dict[str, Callable[[_Fields], _Blocks | None]] = {
    "text": _text,
    "image": _bytes,
    "audio": _bytes,
    "resource": _resource,
    "resource_link": _link,
}


def _fields(value: object) -> _Fields:
    """Return the keys and values of an object; none where the value is something else."""
    return cast("_Fields", value) if isinstance(value, dict) else {}


def _extra(block: type[Text | Document], fields: _Fields, *known: str) -> dict[str, Raw] | None:
    """Return the keys that have no place in a block; None if such a block has another key of one of these names."""
    rest = {name: value for name, value in fields.items() if name not in known and value is not None}
    taken = _NAMES[block]
    return None if rest.keys() & taken else {name: raw_json(value) for name, value in rest.items()}


def _document(data: object, kind: object, uri: str) -> Source | None:
    """Return the source of a document; None where the data is empty or not base64. Padding and blanks are put right."""
    if not isinstance(data, str):
        return None
    content = base64_content(data)
    if not content:
        return None
    return Source(media_type=_kind(kind) or media_type(_path(uri), content), data=b64encode(content).decode())


def base64_content(data: str) -> bytes | None:
    """Return what base64 stands for, None where it is none. Padding and blanks are put right."""
    digits = _BLANKS.sub("", data).rstrip("=")
    try:
        return b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        return None


def _kind(value: object) -> str | None:
    """Return a media type, None for what can be none."""
    return value if isinstance(value, str) and 0 < len(value) <= _KIND_CHARACTERS_MAX else None


def _path(uri: str) -> Path:
    try:
        return Path(unquote(urlsplit(uri).path))
    except ValueError:
        return Path()


def _says(texts: Sequence[str], structured: object) -> bool:
    """Return whether texts say what structured content says.

    That is: one has its JSON. Many servers wrap what is no object as `{"result": …}`, and write it as plain text, of a
    list each item; others call a text, a list or an object otherwise. What a number is called may say more than itself.
    """
    fields = _fields(structured)
    wanted: list[object] = [structured]
    if len(fields) == 1 and ("result" in fields or not isinstance(next(iter(fields.values())), int | float)):
        wanted += fields.values()
    for value in wanted:
        if any(_is(text, value) for text in texts):
            return True
        if isinstance(value, list) and value:
            items = cast("Sequence[object]", value)
            if len(items) == len(texts) and all(map(_is, texts, items)):
                return True
    return False


def _spells(texts: Sequence[str], structured: Raw) -> bool:
    """Return whether texts say what long structured content says, as `_says` has it.

    It is compared as text first, and otherwise taken apart a level at a time, as far as the two are the same: what
    decodes all of it keeps other threads waiting.
    """
    with suppress(ValueError, RecursionError):
        said = msgspec.json.format(bytes(structured), indent=-1)
        wanted = [said]
        if said[:1] == b"{" and len(fields := _objects.decode(said)) == 1:
            wanted += [inner for inner in map(bytes, fields.values()) if inner[:1] in b'{["']
        return any(
            any(_is_spelled(text, json_text) for text in texts)
            or (json_text[:1] == b"[" and _are_spelled(texts, json_text))
            for json_text in wanted
        )
    return False


def _is_spelled(text: str, json_text: bytes) -> bool:
    if json_text[:1] == b'"':
        return decode_string(json_text) == text
    if not len(json_text) / _SPELLED_LONGER_MAX < len(text) or text.lstrip()[:1].encode() != json_text[:1]:
        return False
    with suppress(ValueError, RecursionError):
        return _is_same(msgspec.json.format(text.encode(), indent=-1), json_text)
    return False


def _are_spelled(texts: Sequence[str], json_text: bytes) -> bool:
    """Return whether each text is an item of a list in JSON text, as it is or as JSON."""
    if not len(json_text) / _SPELLED_LONGER_MAX < sum(map(len, texts)) + len(texts):
        return False
    if _is_same(msgspec.json.encode(texts), json_text):
        return True
    with suppress(ValueError, RecursionError):
        return _is_same(msgspec.json.format(f"[{','.join(texts)}]".encode(), indent=-1), json_text)
    return False


def _is_same(first: bytes, second: bytes) -> bool:
    """Return whether two JSON texts without blanks say the same: texts and numbers may be spelled in other ways."""
    if first == second:
        return True
    if first[:1] != second[:1] or first[:1] not in b"{[" or len(first) + len(second) <= PIECE:
        return _canonical(first) == _canonical(second)
    if first[:1] == b"{":
        ours, theirs = _objects.decode(first), _objects.decode(second)
        return ours.keys() == theirs.keys() and all(
            _is_same(bytes(inner), bytes(theirs[name])) for name, inner in ours.items()
        )
    left, right = _lists.decode(first), _lists.decode(second)
    return len(left) == len(right) and all(
        _is_same(bytes(one), bytes(other)) for one, other in zip(left, right, strict=True)
    )


def _canonical(text: bytes) -> str:
    # As JSON text: to Python True equals 1.
    return json.dumps(json.loads(text), sort_keys=True)


def _repeats(items: Sequence[object], structured: object) -> bool:
    """Return whether structured content is the content once more, as the objects that it is made of."""
    fields = _fields(structured)
    value = next(iter(fields.values())) if len(fields) == 1 and fields.keys() <= {"result", "content"} else structured
    said = cast("Sequence[object]", value) if isinstance(value, list) else [value]
    return bool(said) and [_set_fields(item) for item in said] == [_set_fields(item) for item in items]


def _set_fields(item: object) -> object:
    """Return an object without the keys that are null: servers write them, or do not."""
    return {name: value for name, value in _fields(item).items() if value is not None} or item


def _bytes_in(blocks: _Blocks) -> Set[str]:
    """Return the base64 of the documents of a result."""
    return {block.source.data for block in blocks if isinstance(block, Document)}


def _text_without_bytes(structured: Raw, known: Set[str]) -> str:
    """Return JSON text without blanks and needless escapes, in which no string is the bytes of a document."""
    text = msgspec.json.format(bytes(structured).decode(errors="replace"), indent=-1)
    text = _without_escapes(text)
    for data in known:
        if len(data) >= _BYTES_MIN:
            text = text.replace(f'"{data}"', f'"{_REPEATED}"').replace(f';base64,{data}"', f';base64,{_REPEATED}"')
    return text


def _without_escapes(text: str) -> str:
    """Return JSON text in which characters stand that need no escape. Where there is none it takes no time."""
    parts, place = list[str](), 0
    while (start := text.find("\\", place)) >= 0:
        found = _ESCAPES.match(text, start)
        end = start + 2 if found is None else found.end()
        said = (
            text[start:end]
            if found is None
            else msgspec.json.encode(msgspec.json.decode(f'"{found[0]}"')).decode()[1:-1]
        )
        parts += (text[place:start], said)
        place = end
    return "".join((*parts, text[place:]))


def _without_bytes(value: object, known: Set[str]) -> object:
    """Return a value in which nothing repeats the bytes of a document of the result, which may be very many."""
    if isinstance(value, str) and len(value) >= _BYTES_MIN:
        # Alone, or as a data URL (RFC 2397).
        head, _, data = value.partition(";base64,") if value.startswith("data:") else ("", "", value)
        if _BLANKS.sub("", data) in known:
            return f"{head};base64,{_REPEATED}" if head else _REPEATED
    if isinstance(value, dict):
        return {name: _without_bytes(item, known) for name, item in cast("_Fields", value).items()}
    if isinstance(value, list):
        return [_without_bytes(item, known) for item in cast("Sequence[object]", value)]
    return value


def _is(text: str, value: object) -> bool:
    if text == value:
        return True
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return False
    # As JSON text: to Python True equals 1.
    return json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)
