"""One message of Chat Completions as it comes, in pieces or whole, and the content blocks that it adds up to.

Endpoints that speak this wire differ in what they leave out and add, so a message is taken apart field by field: one
that is not known, or holds another type than it should, is kept as raw JSON text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import SEEK_END, StringIO
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from turnlog.model import Block, Delta, Native, Text, Thinking
from turnlog.providers.extras import AUDIO, MESSAGE, only_fields
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


class _Run(Struct):
    """Text, or thinking, of a content as it comes, until something else follows; a part can go on with the last one.

    Attributes:
        type: `text` or `thinking`.
        pieces: the texts of it.
        part: what the parts had beside their text.
    """

    type: Literal["text", "thinking"]
    pieces: list[str] = []
    part: Fields = {}


class MessageReader:
    """Reads one message.

    Attributes:
        refused: whether it is a refusal.
    """

    def __init__(self, *, thinking_goes_back: bool) -> None:
        """Begin with nothing. Where thinking goes back, it is kept with it which fields it came in."""
        self.refused = False
        self._thinking_goes_back = thinking_goes_back
        self._content: list[_Run | Raw] = []
        """The content in the order in which it came; what is no text and no thinking as it is spelled."""
        self._refusal: list[str] = []
        self._transcript: list[str] = []
        self._thinking = StringIO()
        self._repeated: dict[str, int | None] = {}
        """By fields, how much of the thinking so far they have only said again; None for one that has said more."""
        self._sent_in: set[str] = set()
        self._details: list[Raw] = []
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
                    yield from self._text(text)
                case "refusal" if text is not None:
                    self.refused = self.refused or bool(text)
                    yield from _said(self._refusal, text)
                case "reasoning_content" | "reasoning" if text is not None:
                    if text:
                        self._sent_in.add(name)
                    yield from self._thinks(name, text)
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

    def _text(self, text: str) -> Iterator[Delta]:
        if text:
            yield from _said(self._run("text").pieces, text)

    def _run(self, kind: Literal["text", "thinking"]) -> _Run:
        """Return what the content ends with where it is of a type; else what begins behind it."""
        last = self._content[-1] if self._content else None
        if not isinstance(last, _Run) or last.type != kind:
            last = _Run(kind)
            self._content.append(last)
        return last

    def _parts(self, parts: list[Raw]) -> Iterator[Delta]:
        """Take a content in parts, as some endpoints have it, thinking among them."""
        for part in parts:
            try:
                known = _part.decode(part)
            except msgspec.ValidationError:
                self._content.append(part)
                continue
            if isinstance(known, _TextPart):
                yield from self._text(known.text)
                continue
            run = self._run("thinking")
            run.part |= further(fields_of(part) or {}, ("type", "thinking"))
            yield from _said(run.pieces, "".join(inner.text for inner in known.thinking), "thinking")

    def _records(self, records: list[Raw], message: Fields) -> Iterator[Delta]:
        """Take records of reasoning. Their text is most often in a field beside them too."""
        self._details += records
        if not any(text_of(message.get(name)) for name in ("reasoning_content", "reasoning")):
            for record in records:
                fields = fields_of(record) or {}
                text = text_of(fields.get("text")) or text_of(fields.get("summary")) or ""
                yield from self._thinks(DETAILS, text)

    def _thinks(self, field: str, text: str) -> Iterator[Delta]:
        """Take thinking from a field. Some endpoints send the same in several, at once or one behind the other."""
        if not text:
            return
        place = self._repeated.setdefault(field, 0 if self._thinking.tell() else None)
        if place is not None:
            self._thinking.seek(place)
            known = self._thinking.read(len(text))
            self._thinking.seek(0, SEEK_END)
            is_more = text.startswith(known)
            if is_more and not text[len(known) :].strip():
                self._repeated[field] = place + len(text)
                return
            self._repeated[field] = None
            text = text[len(known) :] if is_more else self._thinking.getvalue()[:place] + text
        self._thinking.write(text)
        yield Delta(type="thinking", content=text)

    def content(self, of: Mapping[str, Any]) -> tuple[list[Block], Fields]:
        """Return the content in the one order that a streamed reply and a whole one share, and what is of no block.

        That is the order in which the content came, between the thinking of fields of its own and all else.

        Args:
            of: the provider, the api and the model that blocks which go back to them alone are of.
        """
        beside = folded(self._further)
        aside = {name: beside.pop(name) for name in _OF_PIECES if name in beside}
        blocks: list[Block] = [*self._thinking_in_fields(of), *self._in_content(of)]
        if self._refusal:
            blocks.append(Text(text="".join(self._refusal)))
        audio = fields_of(beside.get(AUDIO)) or {}
        if self._transcript:
            beside.pop(AUDIO, None)
            blocks.append(Text(text="".join(self._transcript), extra={AUDIO: raw(further(audio, ("transcript",)))}))
        elif AUDIO in beside and not any(text_of(value) for value in audio.values()):
            aside[AUDIO] = beside.pop(AUDIO)  # some endpoints have an empty one in each reply
        blocks += self._calls.blocks()
        text = next((place for place, block in enumerate(blocks) if isinstance(block, Text)), None)
        if text is not None and ANNOTATIONS in beside:
            blocks[text] = _with(blocks[text], ANNOTATIONS, beside.pop(ANNOTATIONS))
        if beside and blocks:
            place = text or 0
            blocks[place] = _with(blocks[place], MESSAGE, raw(beside))
        elif beside:
            blocks.append(only_fields(beside, of))
        return blocks, aside

    def _thinking_in_fields(self, of: Mapping[str, Any]) -> list[Thinking]:
        thinking = self._thinking.getvalue()
        if not (thinking or self._details):
            return []
        extra: Fields = {}
        if self._details:
            extra[DETAILS] = raw(folded_details(self._details))
        if self._thinking_goes_back and self._sent_in:
            extra[SENT_IN] = raw([name for name in THINKING_FIELDS if name in self._sent_in])
        return [Thinking(thinking=thinking, extra=extra, **of)]

    def _in_content(self, of: Mapping[str, Any]) -> Iterator[Block]:
        for run in self._content:
            if not isinstance(run, _Run):
                yield Native(block=minified(run), **of)
            elif run.type == "text":
                yield Text(text="".join(run.pieces))
            elif run.pieces or run.part:
                extra: Fields = {}
                if self._thinking_goes_back:
                    extra[SENT_IN] = raw(["content"])
                    if run.part:
                        extra[PART] = raw({name: minified(value) for name, value in run.part.items()})
                yield Thinking(thinking="".join(run.pieces), extra=extra, **of)


def _with(block: Block, name: str, value: Raw) -> Block:
    return msgspec.structs.replace(block, extra=block.extra | {name: value})


def _said(pieces: list[str], text: str, kind: str = "text") -> Iterator[Delta]:
    if text:
        pieces.append(text)
        yield Delta(type=kind, content=text)
