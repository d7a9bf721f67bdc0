"""Blocks of the Messages API as replies have them: from a beginning and its pieces to content blocks, and for display.

Text, thinking and tool calls have a normalized form. All else (server tools, their results, files of a container, …)
is native: kept as the provider wrote it.
"""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.model import Block, Delta, Text, ToolUse, parse_arguments
from turnlog.model.json_text import UNREADABLE
from turnlog.providers.body import encode
from turnlog.providers.extras import Told, extras, native, says_nothing, thought
from turnlog.providers.raw_json import NULL, Fields, further, is_null, minified, raw, text_of
from turnlog.providers.reader import Sender

_HIDDEN_COLUMN = "encrypted_content"


_KEYS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "signature_delta": "signature",
    "citations_delta": "citation",
}
"""The key of each type of piece with what it adds."""


class _Exact(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """What is told of with all of its fields, and nothing beside them."""


class _TextPiece(_Exact, frozen=True, tag="text_delta"):
    text: str


class _ThinkingPiece(_Exact, frozen=True, tag="thinking_delta"):
    thinking: str


class _InputPiece(_Exact, frozen=True, tag="input_json_delta"):
    partial_json: str


class _Step(_Exact, frozen=True, tag="content_block_delta"):
    index: int
    delta: _TextPiece | _ThinkingPiece | _InputPiece


_step = msgspec.json.Decoder(_Step)

_OF_BLOCKS = frozenset({"citations", "data", "id", "input", "name", "signature", "text", "thinking"})
"""Keys of blocks that are known: there is one value of each."""

_a_text = msgspec.json.Decoder(str)
_text = msgspec.json.Decoder(str | None)
_list = msgspec.json.Decoder(list[Raw])
_rows = msgspec.json.Decoder(list[dict[str, Any]])


def plain_step(event: bytes) -> tuple[int, str, str] | None:
    """Return the index of a block, the type of the piece that goes on with it, and its text.

    Nearly all events of a stream are no more than that, and are read in one step. None for all others.
    """
    try:
        step = _step.decode(event)
    except UNREADABLE:
        return None
    piece = step.delta
    if isinstance(piece, _InputPiece):
        return step.index, "input_json_delta", piece.partial_json
    if isinstance(piece, _TextPiece):
        return step.index, "text_delta", piece.text
    return step.index, "thinking_delta", piece.thinking


class ReplyBlock:
    """One block of a reply: how it began, and what was added to it."""

    __slots__ = ("_beside", "_citations", "_input", "_record", "_texts")

    def __init__(self, record: Fields) -> None:
        """Begin with the block as the provider began it; that is all of it where the reply is not streamed.

        Raises:
            ContentError: it is nested too deeply. So does `add`; what was taken in can be given back.
        """
        self._record = {name: minified(value) for name, value in record.items()}
        self._texts: dict[str, list[str]] = {}
        """Of keys whose text grows: what of it came, the beginning included."""
        self._input: list[str] = []
        self._citations: list[Raw] = []
        self._beside = Told()

    def add(self, kind: str, piece: str | Fields) -> str | None:
        """Add a piece of a type, its text or all of its fields, and return what to show of it.

        Signatures and citations are not for reading.

        Unknown keys of it become keys of the block; of a piece that is not known itself, text goes on with text.

        Raises:
            msgspec.ValidationError: what it adds is no text.
        """
        key = _KEYS.get(kind)
        if isinstance(piece, str):
            self._go_on(key or "", piece)
            return piece
        if key is None or key not in piece:
            self._add_unknown(piece)
            return None
        if len(piece) > 2:  # beside the type and the key there is more
            self._add_beside(further(piece, ("type", key)))
        if key == "citation":
            self._citations.append(minified(piece[key]))
            return None
        text = _a_text.decode(piece[key])
        if key == "signature":
            self._record[key] = raw(text)
            return None
        self._go_on(key, text)
        return text

    def _add_unknown(self, piece: Fields) -> None:
        for name, value in piece.items():
            text = text_of(value)
            if name == "type":
                continue
            if text is not None and (name in self._texts or text_of(self._record.get(name)) is not None):
                self._go_on(name, text)
            else:
                self._texts.pop(name, None)
                self._record[name] = minified(value)

    def _add_beside(self, fields: Fields) -> None:
        for name, value in fields.items():
            if name not in _OF_BLOCKS and name not in self._record:
                self._beside.add({name: minified(value)})
            elif not says_nothing(value):
                self._record[name] = minified(value)

    def _go_on(self, key: str, text: str) -> None:
        """Add text to what is under a key, or with `partial_json` to the input."""
        if key == "partial_json":
            self._input.append(text)
            return
        texts = self._texts.get(key)
        if texts is None:
            texts = self._texts[key] = [text_of(self._record.get(key)) or ""]
        texts.append(text)

    def content(self, origin: Sender) -> Block:
        """Return the block in its normalized form, as it is where it has none. `origin` is whose it is."""
        record = self._beside.fields() | self._record
        record |= {name: raw("".join(texts)) for name, texts in self._texts.items()}
        try:
            match text_of(record.get("type")):
                case "text":
                    return Text(text=_text_in(record, "text"), extra=self._text_extra(record))
                case "thinking":
                    text, signature = _text_in(record, "thinking"), _text_in(record, "signature")
                    return thought(origin, text, signature, further(record, ("type", "thinking", "signature")))
                case "redacted_thinking":
                    data, beside = _text_in(record, "data"), further(record, ("type", "data"))
                    return thought(origin, "", data, beside, redacted=True)
                case "tool_use":
                    return self._tool_use(record)
                case _:
                    pass
        except msgspec.ValidationError:
            pass  # not of the form that its type has: it is kept as it is
        return native(origin, record | self._native_input())

    def _text_extra(self, record: Fields) -> Fields:
        extra = further(record, ("type", "text", "citations"))
        began = [] if is_null(record.get("citations")) else _list.decode(record["citations"])
        citations = [*began, *self._citations]
        # No citations are null, an empty list or no key at all, by whether the reply is streamed.
        return extras(Text, extra) | ({"citations": raw(citations)} if citations else {})

    def _tool_use(self, record: Fields) -> ToolUse:
        text = "".join(self._input)
        if not text.strip() and not is_null(record.get("input")):
            text = bytes(record["input"]).decode()
        value, malformed = parse_arguments(text)
        return ToolUse(
            name=_text_in(record, "name"),
            input=value,
            id=_text_in(record, "id") or None,
            extra=extras(ToolUse, further(record, ("type", "id", "name", "input"))) | malformed,
        )

    def _native_input(self) -> Fields:
        if not any(self._input):
            return {}
        value, malformed = parse_arguments("".join(self._input))
        return {"input": raw(malformed) if malformed else value}


def _text_in(record: Fields, name: str) -> str:
    """Return a text, an empty one where there is none.

    Raises:
        msgspec.ValidationError: it is something else.
    """
    return _text.decode(record.get(name, NULL)) or ""


def block_delta(record: Fields, *, whole: bool) -> Delta:
    """Return what to show of a block.

    Args:
        record: the block, or its beginning.
        whole: whether it is all of the block. A beginning has an empty input, which is not shown.
    """
    kind = text_of(record.get("type")) or ""
    match kind:
        case "text" | "thinking":
            return Delta(type=kind, content=text_of(record.get(kind)) or "")
        case "redacted_thinking":
            return Delta(type="thinking", content="")
        case "web_search_tool_result":
            return Delta(type=kind, content=_as_csv(record))
        case _:
            name = text_of(record.get("name"))
            return Delta(type=kind, name=name, content=_shown(record, whole=whole))


def _shown(record: Fields, *, whole: bool) -> Raw | None:
    given = record.get("input", NULL)
    if not is_null(given) and (whole or bytes(given) != b"{}"):
        return minified(given)
    found = record.get("content", NULL)
    return None if is_null(found) else minified(found)


def _as_csv(record: Fields) -> str | Raw | None:
    """Return search results as CSV (RFC 4180, lines end with LF), or what there is instead of results as JSON."""
    try:
        rows = _rows.decode(record.get("content", NULL))
    except msgspec.DecodeError:
        return _shown(record, whole=False)
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != _HIDDEN_COLUMN]
    if not columns:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return encode(value).decode()
