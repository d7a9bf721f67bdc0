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

from turnlog.model import MALFORMED, Block, Delta, Native, Text, Thinking, ToolUse, parse_arguments
from turnlog.providers.anthropic.records import Record, further, has, joined, list_of, minified, text_of
from turnlog.providers.body import encode

_HIDDEN_COLUMN = "encrypted_content"


class Origin(Struct, frozen=True, kw_only=True):
    """Whose thinking and native blocks are."""

    provider: str
    api: str
    model: str | UnsetType


class Piece(Struct, frozen=True, gc=False):
    """What a `content_block_delta` adds to its block."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    citation: Raw | UnsetType = UNSET


class _Delta(Struct):
    delta: Record


_delta = msgspec.json.Decoder(_Delta)
_rows = msgspec.json.Decoder(list[dict[str, Any]])


class ReplyBlock:
    """One block of a reply: how it began, and what was added to it."""

    __slots__ = ("_added", "_citations", "_input", "_record", "_signature", "_text")

    def __init__(self, record: Record) -> None:
        """Begin with the block as the provider began it; that is all of it where the reply is not streamed.

        Raises:
            ContentError: it is nested too deeply. So does `add`; what was taken in can be given back.
        """
        self._record = {name: minified(value) for name, value in record.items()}
        self._text: list[str] = []
        self._input: list[str] = []
        self._citations: list[Raw] = []
        self._signature: str | None = None
        self._added: Record = {}

    def add(self, piece: Piece, event: bytes) -> None:
        """Add a piece. Of one that is not known, the keys become keys of the block; text goes on with text."""
        match piece.type:
            case "text_delta":
                self._text.append(piece.text)
            case "thinking_delta":
                self._text.append(piece.thinking)
            case "input_json_delta":
                self._input.append(piece.partial_json)
            case "signature_delta":
                self._signature = piece.signature
            case "citations_delta" if piece.citation is not UNSET:
                self._citations.append(minified(piece.citation))
            case _:
                for name, value in _delta.decode(event).delta.items():
                    if name != "type":
                        self._added[name] = joined(self._added.get(name, self._record.get(name)), minified(value))

    def content(self, origin: Origin) -> Block:
        """Return the block in its normalized form; as it is where it has none."""
        record = self._record | self._added
        text = "".join(self._text)
        try:
            match text_of(record, "type"):
                case "text":
                    return Text(text=text_of(record, "text") + text, extra=self._text_extra(record))
                case "thinking":
                    signature = text_of(record, "signature") if self._signature is None else self._signature
                    return Thinking(
                        thinking=text_of(record, "thinking") + text,
                        signature=signature or UNSET,
                        extra=further(record, ("type", "thinking", "signature")),
                        provider=origin.provider,
                        api=origin.api,
                        model=origin.model,
                    )
                case "redacted_thinking":
                    return Thinking(
                        thinking="",
                        signature=text_of(record, "data"),
                        redacted=True,
                        extra=further(record, ("type", "data")),
                        provider=origin.provider,
                        api=origin.api,
                        model=origin.model,
                    )
                case "tool_use":
                    return self._tool_use(record)
                case _:
                    pass
        except msgspec.ValidationError:
            pass  # not of the form that its type has: it is kept as it is
        block = Raw(encode(self._native(record)))
        return Native(provider=origin.provider, api=origin.api, model=origin.model, block=block)

    def _text_extra(self, record: Record) -> Record:
        extra = further(record, ("type", "text", "citations"))
        citations = [*list_of(record, "citations"), *self._citations]
        # No citations are null, an empty list or no key at all, by whether the reply is streamed.
        return extra | ({"citations": Raw(encode(citations))} if citations else {})

    def _tool_use(self, record: Record) -> ToolUse:
        text = "".join(self._input)
        if not text.strip() and has(record, "input"):
            text = bytes(record["input"]).decode()
        value, malformed = parse_arguments(text)
        id = text_of(record, "id")
        return ToolUse(
            name=text_of(record, "name"),
            input=value,
            id=id or UNSET,
            extra=further(record, ("type", "id", "name", "input")) | malformed,
        )

    def _native(self, record: Record) -> Record:
        if any(self._input):
            value, malformed = parse_arguments("".join(self._input))
            record = record | {"input": Raw(encode({MALFORMED: malformed[MALFORMED]})) if malformed else value}
        if self._text:
            record = record | {"text": joined(record.get("text"), Raw(encode("".join(self._text))))}
        return record


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


def block_delta(record: Record, *, whole: bool) -> Delta:
    """Return what to show of a block.

    Args:
        record: the block, or its beginning.
        whole: whether it is all of the block. A beginning has an empty input, which is not shown.
    """
    kind = text_of(record, "type")
    match kind:
        case "text":
            return Delta(type=kind, content=text_of(record, "text"))
        case "thinking":
            return Delta(type=kind, content=text_of(record, "thinking"))
        case "redacted_thinking":
            return Delta(type="thinking", content="")
        case "web_search_tool_result":
            return Delta(type=kind, content=_as_csv(record))
        case _:
            name: str | UnsetType = text_of(record, "name") if "name" in record else UNSET
            return Delta(type=kind, name=name, content=_shown(record, whole=whole))


def _shown(record: Record, *, whole: bool) -> Raw | UnsetType:
    if has(record, "input") and (whole or bytes(record["input"]) != b"{}"):
        return minified(record["input"])
    return minified(record["content"]) if has(record, "content") else UNSET


def _as_csv(record: Record) -> str | Raw | UnsetType:
    """Return search results as CSV (RFC 4180, lines end with LF), or what there is instead of results as JSON."""
    try:
        rows = _rows.decode(record.get("content", b""))
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
