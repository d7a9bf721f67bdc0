"""Blocks of the Converse API as replies have them: from their pieces to content blocks, and for display.

A block is an object with one key, its kind. Text, text with citations, reasoning and tool calls have a normalized form.
All else (tools that the provider ran itself, their results, images, …) is native: kept as the provider wrote it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

from msgspec import Raw

from turnlog.model import Block, Delta, Native, Text, Thinking, ToolUse, parse_arguments
from turnlog.providers.bedrock.request import CITATIONS
from turnlog.providers.extras import extras, native, thought
from turnlog.providers.raw_json import Fields, fields_of, further, is_null, items_of, minified, objects_of, raw, text_of
from turnlog.providers.reader import Sender

_CALL_TYPES = (None, "tool_use")
"""The types of calls that are ours to answer. Others are of tools that the provider runs."""


class ReplyBlock:
    """One block of a reply: what of it came, whole or in pieces."""

    __slots__ = ("_citations", "_fields", "_items", "_texts", "kind")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.kind = ""
        self._fields: Fields = {}
        """What stands under the kind, texts that grow left out; at `""` what stands there itself, and is no object."""
        self._texts: dict[str, list[str]] = {}
        self._items: list[Raw] = []
        self._citations: list[Raw] = []

    def begin(self, kind: str, value: Raw) -> None:
        """Take a beginning, or a whole block.

        Raises:
            ContentError: it is nested too deeply. So does `add`.
        """
        self.kind = kind
        fields = fields_of(value)
        if fields is not None:
            self._fields |= {name: minified(inner) for name, inner in fields.items()}
        elif self._list_or_text(kind, value) is None:
            self._fields[""] = minified(value)

    def add(self, kind: str, piece: Raw) -> str | Raw | None:
        """Take a piece of the block, and return what to show of it."""
        if kind == "citation":
            self.kind = self.kind or "text"
            self._citations.append(minified(piece))
            return None
        self.kind = self.kind or kind
        fields = fields_of(piece)
        if fields is None:
            shown = self._list_or_text(kind, piece)
            if shown is None and not is_null(piece):
                self._fields[""] = minified(piece)
            return shown
        shown = None
        for name, value in fields.items():
            text = text_of(value)
            if text is None:
                self._fields[name] = minified(value)
            else:
                self._texts.setdefault(name, []).append(text)
                shown = text if name in ("text", "input") else shown
        return shown

    def _list_or_text(self, kind: str, value: Raw) -> str | Raw | None:
        """Take what goes on under the kind itself, and return it; None where it is something else."""
        if (text := text_of(value)) is not None:
            self._texts.setdefault("text" if kind == "text" else "", []).append(text)
            return text
        if (items := items_of(value)) is not None:
            self._items += [minified(item) for item in items]
            return minified(value)
        return None

    def block(self, origin: Sender) -> Block | None:
        """Return the block in its normalized form, as it is where it has none; None where there is nothing in it."""
        match self.kind:
            case "text" if not self._fields:
                text = "".join(self._texts.get("text", ()))
                cited = {CITATIONS: raw(self._citations)} if self._citations else {}
                return Text(text=text, extra=cited) if text or cited else None
            case "citationsContent":
                return self._cited_text() or self._native(origin)
            case "reasoningContent":
                return self._thinking(origin) or self._native(origin)
            case "toolUse" if text_of(self._fields.get("type")) in _CALL_TYPES:
                return self._call()
            case _:
                return self._native(origin)

    def _cited_text(self) -> Text | None:
        content = objects_of(self._fields.get("content")) or []
        texts = [text_of(part.get("text")) for part in content if part.keys() == {"text"}]
        if len(texts) != len(content) or None in texts:
            return None
        extra = further(self._fields, ("content",))
        if items_of(extra.get(CITATIONS)) == []:
            del extra[CITATIONS]
        return Text(text="".join(text or "" for text in texts), extra=extras(Text, extra))

    def _thinking(self, origin: Sender) -> Thinking | None:
        """Return reasoning, streamed or whole; None where it has another form."""
        fields = self._fields
        redacted, whole = self._redacted(), fields_of(fields.get("reasoningText"))
        streamed = {name: text for name, text in self._joined().items() if name != "redactedContent"}
        if redacted is not None and not streamed and fields.keys() <= {"redactedContent"}:
            return thought(origin, "", redacted, {}, redacted=True)
        if redacted is not None or (whole is None and not streamed) or (fields and fields.keys() != {"reasoningText"}):
            return None
        reasoning = {**(whole or {}), **streamed}
        text, signature = text_of(reasoning.get("text")), text_of(reasoning.get("signature"))
        return thought(origin, text or "", signature, further(reasoning, ("text", "signature")))

    def _redacted(self) -> str | None:
        pieces = self._texts.get("redactedContent")
        if pieces is None:
            return text_of(self._fields.get("redactedContent"))
        if len(pieces) == 1:
            return pieces[0]
        try:
            return b64encode(b"".join(b64decode(piece, validate=True) for piece in pieces)).decode()
        except ValueError:
            return "".join(pieces)

    def _call(self) -> ToolUse:
        fields = self._fields | self._joined()
        value, malformed = parse_arguments(self._input())
        return ToolUse(
            name=text_of(fields.get("name")) or "",
            input=value,
            id=text_of(fields.get("toolUseId")) or None,
            extra=extras(ToolUse, further(fields, ("toolUseId", "name", "input", "type"))) | malformed,
        )

    def _input(self) -> str:
        pieces = "".join(self._texts.get("input", ()))
        whole = self._fields.get("input")
        return pieces if pieces.strip() or is_null(whole) else bytes(whole or b"").decode()

    def _joined(self) -> Fields:
        return {name: raw("".join(pieces)) for name, pieces in self._texts.items()}

    def _native(self, origin: Sender) -> Native:
        return native(origin, {self.kind: self._value()} if self.kind else self._value())

    def _value(self) -> Raw | Fields:
        """Return what stands under the kind, as the provider writes it whole."""
        fields = self._fields | self._joined()
        if self.kind == "toolUse":
            value, malformed = parse_arguments(self._input())
            fields["input"] = raw(malformed) if malformed else value
        if self._items:
            fields["content" if fields else ""] = raw(self._items)
        if self._citations:
            fields[CITATIONS] = raw(self._citations)
        return fields[""] if fields.keys() == {""} else fields

    def delta(self, *, whole: bool = False) -> Delta:
        """Return what to show of the beginning of a block, or of all of it."""
        match self.kind:
            case "text":
                return Delta(type="text", content="".join(self._texts.get("text", ())))
            case "citationsContent":
                cited = self._cited_text()
                return Delta(type="text", content="" if cited is None else cited.text)
            case "reasoningContent":
                reasoning = fields_of(self._fields.get("reasoningText")) or {}
                return Delta(type="thinking", content=text_of(reasoning.get("text")) or "")
            case "toolUse":
                return self._call_delta(whole=whole)
            case _:
                return Delta(type=self.kind or "native", content=raw(self._value()) if whole else None)

    def _call_delta(self, *, whole: bool) -> Delta:
        fields = self._fields
        kind = text_of(fields.get("type"))
        content: str | None = self._input() if whole else None
        return Delta(
            type="tool_use" if kind in _CALL_TYPES else kind or "toolUse",
            name=text_of(fields.get("name")) or "",
            id=text_of(fields.get("toolUseId")) or None,
            content=content,
        )
