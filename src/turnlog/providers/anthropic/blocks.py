"""Blocks of the Messages API as replies have them: from a beginning and its pieces to content blocks, and for display.

Text, thinking and tool calls have a normalized form. All else (server tools, their results, files of a container, …)
is native: kept as the provider wrote it.
"""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnlog.model import Block, Delta, Native, Text, Thinking, ToolUse, parse_arguments
from turnlog.providers.body import encode
from turnlog.providers.extras import extras
from turnlog.providers.raw_json import NULL, Fields, fields_of, further, is_null, minified, raw, text_of
from turnlog.providers.reader import Sender

_HIDDEN_COLUMN = "encrypted_content"


class Piece(Struct, frozen=True, gc=False):
    """What a `content_block_delta` adds to its block."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    citation: Raw | UnsetType = UNSET


_text = msgspec.json.Decoder(str | None)
_list = msgspec.json.Decoder(list[Raw])
_rows = msgspec.json.Decoder(list[dict[str, Any]])


class ReplyBlock:
    """One block of a reply: how it began, and what was added to it."""

    __slots__ = ("_citations", "_input", "_record", "_texts")

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

    def add(self, piece: Piece, delta: Raw) -> None:
        """Add a piece. Of one that is not known, the keys become keys of the block; text goes on with text."""
        match piece.type:
            case "text_delta":
                self._go_on("text", piece.text)
            case "thinking_delta":
                self._go_on("thinking", piece.thinking)
            case "input_json_delta":
                self._input.append(piece.partial_json)
            case "signature_delta":
                self._record["signature"] = raw(piece.signature)
            case "citations_delta" if piece.citation is not UNSET:
                self._citations.append(minified(piece.citation))
            case _:
                for name, value in (fields_of(delta) or {}).items():
                    text = text_of(value)
                    if name == "type":
                        continue
                    if text is not None and (name in self._texts or text_of(self._record.get(name)) is not None):
                        self._go_on(name, text)
                    else:
                        self._texts.pop(name, None)
                        self._record[name] = minified(value)

    def _go_on(self, name: str, text: str) -> None:
        if name not in self._texts:
            self._texts[name] = [text_of(self._record.get(name)) or ""]
        self._texts[name].append(text)

    def content(self, origin: Sender) -> Block:
        """Return the block in its normalized form, as it is where it has none. `origin` is whose it is."""
        record = self._record | {name: raw("".join(texts)) for name, texts in self._texts.items()}
        try:
            match text_of(record.get("type")):
                case "text":
                    return Text(text=_text_in(record, "text"), extra=self._text_extra(record))
                case "thinking":
                    return _thinking(record, origin, signature="signature")
                case "redacted_thinking":
                    return _thinking(record, origin, signature="data", redacted=True)
                case "tool_use":
                    return self._tool_use(record)
                case _:
                    pass
        except msgspec.ValidationError:
            pass  # not of the form that its type has: it is kept as it is
        block = raw(record | self._native_input())
        return Native(provider=origin.provider, api=origin.api, model=origin.model or UNSET, block=block)

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
            id=_text_in(record, "id") or UNSET,
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


def _thinking(record: Fields, origin: Sender, *, signature: str, redacted: bool = False) -> Thinking:
    return Thinking(
        thinking=_text_in(record, "thinking"),
        signature=_text_in(record, signature) or UNSET,
        redacted=redacted,
        extra=extras(Thinking, further(record, ("type", "thinking", signature))),
        provider=origin.provider,
        api=origin.api,
        model=origin.model or UNSET,
    )


def piece_text(piece: Piece) -> str | None:
    """Return what to show of a piece, or None: signatures, citations and unknown pieces are not for reading."""
    match piece.type:
        case "text_delta":
            return piece.text
        case "thinking_delta":
            return piece.thinking
        case "input_json_delta":
            return piece.partial_json
        case _:
            return None


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
            return Delta(type=kind, name=UNSET if name is None else name, content=_shown(record, whole=whole))


def _shown(record: Fields, *, whole: bool) -> Raw | UnsetType:
    given = record.get("input", NULL)
    if not is_null(given) and (whole or bytes(given) != b"{}"):
        return minified(given)
    found = record.get("content", NULL)
    return UNSET if is_null(found) else minified(found)


def _as_csv(record: Fields) -> str | Raw | UnsetType:
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
