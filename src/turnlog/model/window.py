"""The context window: what a provider is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from turnlog.model.blocks import BLOCK_TYPES, Native, WindowBlock, parse_content
from turnlog.model.erased import is_erased_content, window_content
from turnlog.model.json_text import content_error, marked_json
from turnlog.model.long_strings import LongStrings
from turnlog.model.options import Options, Sources
from turnlog.model.shown import shown


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """One turn as a provider sees it. `content_json` is the exact JSON text of its content blocks.

    `model` is what answered, and `model_asked` what was asked for, where that is another name of it. `document_name` is
    the name of the document that the turn is; it goes with the turn, and no other message has it.

    A summary is a message too: `turn` is its id then.
    """

    turn: str
    role: str
    content_json: bytes
    cache: bool = False
    model: str | None = None
    provider: str | None = None
    api: str | None = None
    model_asked: str | None = None
    document_name: str | None = None

    __repr__ = shown

    @property
    def content(self) -> list[WindowBlock]:
        """The content blocks, decoded anew at each access: keep the list when it is needed twice.

        Of an erased turn it is one `Erased` block.
        """
        return window_content(self.content_json)

    @property
    def erased(self) -> bool:
        """Whether the turn was erased, or is sealed and its key is not here."""
        return is_erased_content(self.content_json)


class LeftOut(Struct, frozen=True, kw_only=True):
    """A turn of the ancestry that is not in the window, or a summary, and why."""

    turn: str
    reason: str


class Summarized(Struct, frozen=True, kw_only=True):
    """A summary that a window shows, and the turns that it stands for there, oldest first."""

    summary: str
    turns: tuple[str, ...]


class Explanation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a window comes from.

    Attributes:
        turns: turn ids, one a message, in the order of the messages; for a message that is a summary its id.
        options: the shape of the window's options, with the id of the turn that set each.
        left_out: turns of the ancestry that are not in the window, oldest first; then summaries that could not be
            shown.
        summarized: the summary that it shows, with the turns that this stands for.
    """

    turns: tuple[str, ...]
    options: Sources
    left_out: tuple[LeftOut, ...]
    summarized: Summarized | None = None


class ContextWindow(Struct, frozen=True, kw_only=True):
    """The normalized input of a provider: messages, oldest first, and merged options.

    Windows of one thread share their messages: they are read only.

    Attributes:
        messages: the turns, oldest first.
        options: the options, merged.
        explanation: where they come from, if that was asked for.
        erasure: global position of the last erasure that it knows of, 0 for none; None if it is of no log.
    """

    messages: Sequence[Message]
    options: Options
    explanation: Explanation | None = None
    erasure: int | None = None

    def to_json(self) -> bytes:
        """Return the window as JSON: `{messages: [{role, content, cache}], options}`, and `explain` if asked for.

        Content is spliced in as stored, byte for byte.
        """
        long = LongStrings()
        return long.into_json(self._marked_json(long))

    def json_pieces(self) -> Iterator[bytes | memoryview]:
        """Iterate over what `to_json` returns, in pieces: what is long in the messages is not there a second time."""
        long = LongStrings()
        return long.pieces(self._marked_json(long))

    def _marked_json(self, long: LongStrings) -> bytes:
        record: dict[str, Any] = {
            "messages": [
                {"role": message.role, "content": Raw(long.out_of_json(message.content_json)), "cache": message.cache}
                for message in self.messages
            ],
            "options": self.options,
        }
        if self.explanation is not None:
            record["explain"] = self.explanation
        return msgspec.json.encode(record)


class _Message(Struct, frozen=True, kw_only=True):
    role: Literal["user", "assistant", "system"]
    content: Raw
    cache: bool = False
    turn: str | None = None
    model: str | None = None
    provider: str | None = None
    api: str | None = None
    model_asked: str | None = None
    document_name: str | None = None


class _Window(Struct, frozen=True, kw_only=True):
    messages: list[_Message]
    options: dict[str, Any] = {}


def parse_window(text: str | bytes, *, own: tuple[str, str, str] | None = None) -> ContextWindow:
    """Return the window behind JSON as `to_json` writes it.

    A message may also name its `turn`, `provider`, `api`, `model`, `model_asked` and `document_name`; a turn that is
    not named is `messages[N]`.

    Args:
        text: the JSON.
        own: provider, api and model whose blocks those are that have a type of their own, as `Response.to_record`
            writes them, in messages that do not name theirs. None refuses such blocks.

    Raises:
        ContentError: not JSON, or not a window; the message names the field.
    """
    source, long = marked_json(text, field="window")
    del text
    try:
        window = msgspec.json.decode(source, type=_Window)
    except msgspec.ValidationError as error:
        raise content_error(error, "window") from error
    return ContextWindow(
        messages=tuple(
            long.into(
                Message(
                    turn=f"messages[{index}]" if message.turn is None else message.turn,
                    role=message.role,
                    content_json=long.into_json(_parsed(message, own, f"messages[{index}].content")),
                    cache=message.cache,
                    model=message.model,
                    provider=message.provider,
                    api=message.api,
                    model_asked=message.model_asked,
                    document_name=message.document_name,
                )
            )
            for index, message in enumerate(window.messages)
        ),
        options=long.into(window.options),
    )


_BEGINNING_BYTES = 100
"""As much of a content tells whether it is that of an erased turn."""


def _parsed(message: _Message, own: tuple[str, str, str] | None, field: str) -> bytes:
    if not is_erased_content(bytes(memoryview(message.content)[:_BEGINNING_BYTES])):
        return parse_content(_content(message, own), field=field)
    content = bytes(message.content)
    window_content(content, field=field)
    return content


def _content(message: _Message, own: tuple[str, str, str] | None) -> bytes:
    """Return the content of a message, with the blocks of unknown types as native ones where they are somebody's."""
    if own is None:
        return bytes(message.content)
    try:
        blocks = msgspec.json.decode(message.content, type=list[Raw])
    except msgspec.DecodeError:
        return bytes(message.content)
    of = (message.provider, message.api, message.model)
    names = [given if isinstance(given, str) else asked for given, asked in zip(of, own, strict=True)]
    # What models say may have blocks that name no type, as Gemini's parts do.
    typeless = message.role == "assistant"
    return msgspec.json.encode([_native(block, names, typeless=typeless) for block in blocks])


def _native(block: Raw, names: Sequence[str], *, typeless: bool) -> Raw | Native:
    try:
        kind = msgspec.json.decode(block, type=_Kind).type
    except msgspec.DecodeError:
        return block
    if kind in BLOCK_TYPES or (not kind and (not typeless or bytes(block) == b"{}")):
        return block
    provider, api, model = names
    return Native(provider=provider, api=api, model=model, block=block)


class _Kind(Struct, frozen=True, kw_only=True):
    type: str = ""
