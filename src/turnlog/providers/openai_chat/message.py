"""One message of Chat Completions as it comes, in pieces or whole, and the content blocks that it adds up to.

Endpoints that speak this wire differ in what they leave out and add, so a message is taken apart field by field: one
that is not known, or holds another type than it should, is kept as raw JSON text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.model import Block, Delta, Native, Text, Thinking
from turnlog.providers.extras import AUDIO, MESSAGE
from turnlog.providers.openai_chat.calls import Calls
from turnlog.providers.openai_chat.fields import ANNOTATIONS, DETAILS, PART, SENT_IN, THINKING_FIELDS
from turnlog.providers.openai_chat.folding import folded, folded_details
from turnlog.providers.raw_json import Fields, fields_of, further, is_null, items_of, minified, objects_of, raw, text_of

_OF_PIECES = ("channel", "index", "token_id")
"""Fields that are about a piece of a message, and of no message as a whole."""


class _TextPart(Struct, tag="text", forbid_unknown_fields=True):
    text: str


class _ThinkingPart(Struct, tag="thinking"):
    thinking: list[_TextPart]


_part = msgspec.json.Decoder(_TextPart | _ThinkingPart)


class MessageReader:
    """Reads one message.

    Attributes:
        refused: whether it is a refusal.
    """

    def __init__(self, *, thinking_goes_back: bool) -> None:
        """Begin with nothing. Where thinking goes back, it is kept with it which fields it came in."""
        self.refused = False
        self._thinking_goes_back = thinking_goes_back
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._transcript: list[str] = []
        self._thinking: list[str] = []
        self._sent_in: set[str] = set()
        self._part: Fields = {}
        self._details: list[Raw] = []
        self._natives: list[Raw] = []
        self._calls = Calls()
        self._further: dict[str, list[Raw]] = {}

    def add(self, message: Fields, *, whole: bool) -> Iterator[Delta]:
        """Take a message, or a piece of one; iterate over what to show of it. Empty texts and nulls say nothing."""
        for name, value in message.items():
            if name == "role" or is_null(value):
                continue
            text = text_of(value)
            match name:
                case "content" if text is not None:
                    yield from _said(self._text, text)
                case "refusal" if text is not None:
                    self.refused = self.refused or bool(text)
                    yield from _said(self._refusal, text)
                case "reasoning_content" | "reasoning" if text is not None:
                    # Some endpoints send the same thinking in both fields, the old one and the new.
                    repeated = name == "reasoning" and message.get("reasoning_content") == value
                    yield from self._thought("" if repeated else text, name if text else None)
                case "content" | "reasoning_details" if (items := items_of(value)) is not None:
                    yield from self._parts(items) if name == "content" else self._records(items, message)
                case "tool_calls" if (calls := objects_of(value)) is not None:
                    yield from (delta for call in calls if (delta := self._calls.add(call, whole=whole)))
                case "function_call" if bytes(value)[:1] == b"{":
                    yield from [delta] if (delta := self._calls.add_function_call(value)) else []
                case _:
                    self._further.setdefault(name, []).append(value)
                    if name == AUDIO and (audio := fields_of(value)):
                        yield from _said(self._transcript, text_of(audio.get("transcript")) or "")

    def _thought(self, text: str, field: str | None) -> Iterator[Delta]:
        if field is not None:
            self._sent_in.add(field)
        yield from _said(self._thinking, text, "thinking")

    def _parts(self, parts: list[Raw]) -> Iterator[Delta]:
        """Take a content in parts, as some endpoints have it, thinking among them."""
        for part in parts:
            try:
                known = _part.decode(part)
            except msgspec.ValidationError:
                self._natives.append(part)
                continue
            if isinstance(known, _TextPart):
                yield from _said(self._text, known.text)
                continue
            self._part |= further(fields_of(part) or {}, ("type", "thinking"))
            yield from self._thought("".join(inner.text for inner in known.thinking), "content")

    def _records(self, records: list[Raw], message: Fields) -> Iterator[Delta]:
        """Take records of reasoning. Their text is most often in a field beside them too."""
        self._details += records
        if not any(text_of(message.get(name)) for name in ("reasoning_content", "reasoning")):
            for record in records:
                fields = fields_of(record) or {}
                yield from self._thought(text_of(fields.get("text")) or text_of(fields.get("summary")) or "", None)

    def content(self, of: Mapping[str, Any]) -> tuple[list[Block], Fields]:
        """Return the content in the one order that a streamed reply and a whole one share, and what is of no block.

        Args:
            of: the provider, the api and the model that blocks which go back to them alone are of.
        """
        beside = folded(self._further)
        aside = {name: beside.pop(name) for name in _OF_PIECES if name in beside}
        texts = [Text(text="".join(pieces)) for pieces in (self._text, self._refusal) if pieces]
        audio = fields_of(beside.get(AUDIO)) or {}
        if self._transcript:
            beside.pop(AUDIO, None)
            texts.append(Text(text="".join(self._transcript), extra={AUDIO: raw(further(audio, ("transcript",)))}))
        elif AUDIO in beside and not any(text_of(value) for value in audio.values()):
            aside[AUDIO] = beside.pop(AUDIO)  # some endpoints have an empty one in each reply
        if texts and ANNOTATIONS in beside:
            texts[0] = msgspec.structs.replace(texts[0], extra=texts[0].extra | {ANNOTATIONS: beside.pop(ANNOTATIONS)})
        blocks: list[Block] = [*self._thinking_blocks(of), *texts]
        blocks += [Native(block=minified(part), **of) for part in self._natives]
        blocks += self._calls.blocks()
        if not (beside and blocks):
            return blocks, aside | beside
        place = next((place for place, block in enumerate(blocks) if isinstance(block, Text)), 0)
        block = blocks[place]
        blocks[place] = msgspec.structs.replace(block, extra=block.extra | {MESSAGE: raw(beside)})
        return blocks, aside

    def _thinking_blocks(self, of: Mapping[str, Any]) -> list[Thinking]:
        if not (self._thinking or self._details):
            return []
        extra: Fields = {}
        if self._details:
            extra[DETAILS] = raw(folded_details(self._details))
        if self._thinking_goes_back and self._sent_in:
            extra[SENT_IN] = raw([name for name in THINKING_FIELDS if name in self._sent_in])
            if self._part:
                extra[PART] = raw({name: minified(value) for name, value in self._part.items()})
        return [Thinking(thinking="".join(self._thinking), extra=extra, **of)]


def _said(pieces: list[str], text: str, kind: str = "text") -> Iterator[Delta]:
    if text:
        pieces.append(text)
        yield Delta(type=kind, content=text)
