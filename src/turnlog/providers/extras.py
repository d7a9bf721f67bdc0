"""What a block of a reply has beside the fields that a content block knows: one rule for all wires.

It stands in the block's `extra`, under the names that the provider gave it. A name that the block has for itself (a
`redacted` in Anthropic's thinking, an `input` beside the function of Cohere's call) would be read as turnlog's own
there, so a field that is called so stands under `FIELDS`, and goes back from there as it came. What the pieces of a
stream say more than once is put together without leaving any of it out, and what no request takes back is known here
too, so that it can be reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.model import ARGUMENTS, MALFORMED, Block, Native, Text, Thinking, ToolUse, arguments_text
from turnlog.providers.carriage import Carried
from turnlog.providers.raw_json import Fields, fields_of, items_of, raw, text_of
from turnlog.providers.reader import Sender

FIELDS = "provider_fields"
"""The extra key of a block with the fields of the provider whose names turnlog has taken, an object."""

CALL_TYPE = "call_type"
"""The extra key of a call with its type, where that is not `function`. On its way to a wire the result has it too."""

AUDIO = "audio"
"""The extra key of a text that is the transcript of audio, with the audio."""

MESSAGE = "message_fields"
"""The extra key of a block with all further fields of its message, an object. Of a native block that is these fields
itself, because its message has nothing else, it is `true`."""

_TRUE = Raw(b"true")

_NOTED = frozenset({"type", FIELDS, ARGUMENTS, MALFORMED, CALL_TYPE})
_TAKEN = {
    kind: _NOTED.union(field.encode_name for field in msgspec.structs.fields(kind))
    for kind in (Text, Thinking, ToolUse)
}
"""The names that each kind of block has for itself."""


def extras(kind: type[Text | Thinking | ToolUse], fields: Fields, own: Collection[str] = ()) -> Fields:
    """Return the `extra` of a block that says what the provider sent beside it, and nothing that turnlog says.

    Args:
        kind: the kind of block.
        fields: what the provider sent, without the fields that the block is made of.
        own: extra keys in which the wire itself notes something.
    """
    taken = _TAKEN[kind]
    if taken.isdisjoint(fields) and not any(name in own for name in fields):
        return fields
    kept = {name: value for name, value in fields.items() if name in taken or name in own}
    free = {name: value for name, value in fields.items() if name not in kept}
    return free | {FIELDS: raw(kept)}


def provider_fields(block: Block, *own: str) -> Fields:
    """Return what the provider sent beside a block, under its own names: what `extras` was given.

    Args:
        block: the block.
        own: extra keys of the block that go elsewhere, or nowhere.
    """
    if not block.extra:
        return {}
    kept = fields_of(block.extra.get(FIELDS))
    left_out = own if kept is None else (*own, FIELDS)
    return {name: value for name, value in block.extra.items() if name not in left_out} | (kept or {})


def with_fields(said: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a wire says of a block, and further fields: none stands in the place of what is said.

    Whoever makes a log, or an export of one, can give a block a field of any name. One that says something else is left
    out as by `leave_out`.
    """
    free = {name: value for name, value in further.items() if name not in said}
    if len(free) < len(further):
        others = (name for name in further if name in said and raw(further[name]) != raw(said[name]))
        leave_out(others, "what the block says itself stands there")
    return {**said, **free}


def native_block(block: Native, *own: str) -> Raw:
    """Return a native block as it came. What stands beside it, but for `own` extra keys of the wire, is left out."""
    leave_out(name for name in block.extra if name not in own)
    return block.block


_left_out: ContextVar[list[tuple[str, str]] | None] = ContextVar("left_out", default=None)


def leave_out(names: Iterable[str], why: str = "the wire has no place for it") -> None:
    """Take note of fields that a message is encoded without, where that is done by `encoded_with`."""
    collected = _left_out.get()
    if collected is not None:
        collected += [(name, why) for name in names]


def encoded_with(
    encode: Callable[[Carried], Sequence[bytes]], carried: Carried
) -> tuple[Sequence[bytes], list[tuple[str, str]]]:
    """Return a message as a wire encodes it, and what that leaves out: the name of each field, and why."""
    collected: list[tuple[str, str]] = []
    token = _left_out.set(collected)
    try:
        return encode(carried), collected
    finally:
        _left_out.reset(token)


# Blocks that are of one model


def thought(of: Sender, text: str, signature: str | None, fields: Fields, *, redacted: bool = False) -> Thinking:
    """Return thinking of a model, with the further fields that it came with."""
    return Thinking(
        thinking=text,
        signature=signature or None,
        redacted=redacted,
        extra=extras(Thinking, fields),
        provider=of.provider,
        api=of.api,
        model=of.model or None,
    )


def native(of: Sender, block: object, extra: Fields | None = None) -> Native:
    """Return a block of a model that has no normalized form, as it came."""
    return Native(provider=of.provider, api=of.api, model=of.model or None, block=raw(block), extra=extra or {})


def with_input(said: Mapping[str, Any], call: ToolUse) -> dict[str, Any]:
    """Return what a wire says of a call, its input and the fields beside it, for apis whose input is an object.

    What was no JSON object is put into one, so that the model sees it.
    """
    malformed = call.extra.get(MALFORMED)
    given = {"input": call.input if malformed is None else {MALFORMED: malformed}}
    return with_fields({**said, **given}, provider_fields(call, MALFORMED))


# What stays behind

_LEFT_OUT: Mapping[str, Collection[str]] = {
    "generate_content": (
        "citationMetadata",
        "groundingAttributions",
        "groundingMetadata",
        "urlContextMetadata",
        MALFORMED,
    ),
    "chat_completions": ("annotations",),
}
"""What a block has beside it that the requests of an api have no place for, in the order in which it is reported.

Ratings of safety are not there: they are about a reply, and nothing that it says.
"""

_WITH_MESSAGE_FIELDS: Mapping[str, Collection[str]] = {"chat_completions": ("extra_content",), "chat_v2": ()}
"""The apis that have further fields of messages, each with those that its requests take."""

_OF_PROVIDERS: Mapping[tuple[str, str], Collection[str]] = {("chat_completions", "openrouter"): ("images",)}
"""Those that requests to a provider take besides (OpenRouter's OpenAPI document, `ChatAssistantMessage`)."""


def taken_fields(api: str, provider: str) -> Collection[str] | None:
    """Return which further fields of a message go back to a provider; None where the api has none."""
    taken = _WITH_MESSAGE_FIELDS.get(api)
    return None if taken is None else (*taken, *_OF_PROVIDERS.get((api, provider), ()))


def left_out(block: Block, api: str, provider: str) -> list[str]:
    """Return what a block has beside it that no request has, though it goes to the model that it is of.

    Args:
        block: the block.
        api: the api that it goes to.
        provider: the provider that it goes to.
    """
    if not block.extra:
        return []
    names = [name for name in _LEFT_OUT.get(api, ()) if name in block.extra]
    taken = taken_fields(api, provider)
    if taken is not None:
        names += [name for name in message_fields(block) if name not in taken]
    # OpenAI takes audio back by its id, and others do not take it at all: the text of it is what goes to them.
    audio = fields_of(block.extra.get(AUDIO)) if api == "chat_completions" else None
    if audio is not None and not (provider == "openai" and isinstance(block, Text) and text_of(audio.get("id"))):
        names.append(AUDIO)
    return names


# Fields of a message


def only_fields(fields: Fields, of: Mapping[str, Any]) -> Native:
    """Return the fields of a message that has no block as one, so that the turn has them and requests tell of them.

    Args:
        fields: the fields.
        of: the provider, the api and the model that they are of.
    """
    return Native(block=raw(fields), extra={MESSAGE: _TRUE}, **of)


def is_only_fields(block: Block) -> bool:
    """Return whether a block is the fields of a message, and no part of its content."""
    return isinstance(block, Native) and block.extra.get(MESSAGE) == _TRUE


def message_fields(block: Block) -> Fields:
    """Return the further fields of its message that stand beside a block, or that the block is."""
    if isinstance(block, Native) and is_only_fields(block):
        return fields_of(block.block) or {}
    return fields_of(block.extra.get(MESSAGE)) or {}


# Custom calls


def custom_call(name: str, text: str, call_id: str, beside: Fields) -> ToolUse:
    """Return a call whose input is a text: here an object with that as its only value."""
    extra = {CALL_TYPE: Raw(b'"custom"')} | beside
    return ToolUse(name=name, input=raw({"input": text}), id=call_id or None, extra=extra)


def custom_input(call: ToolUse) -> str | None:
    """Return the text that is the input of a custom call; None where the call is of another type."""
    if text_of(call.extra.get(CALL_TYPE)) != "custom":
        return None
    text = text_of((fields_of(call.input) or {}).get("input"))
    return arguments_text(call) if text is None else text


# What is told more than once


def says_nothing(value: Raw) -> bool:
    """Return whether a value is null, or empty."""
    return bytes(value) in (b"null", b"[]", b"{}", b'""')


class Told:
    """Fields that come more than once, as the events of a stream repeat them, go on with them, or say something else.

    Attributes:
        values: of each field what was told, in order: one value for those of which the later say all that the earlier
            said, another one where they differ.
    """

    def __init__(self, *, last: bool = False) -> None:
        """Begin with nothing told; with `last` there is only the last of texts and numbers, as of what can change."""
        self.values: dict[str, list[Raw]] = {}
        self._last = last

    def add(self, fields: Fields) -> None:
        """Take fields, as they were told once more. They are kept as they are spelled."""
        for name, value in fields.items():
            self.put(name, value)

    def put(self, name: str, value: Raw) -> None:
        """Take one field."""
        told = self.values.get(name)
        if told is None:
            self.values[name] = [value]
        elif told[-1] != value:
            replaces = self._last and bytes(value)[:1] not in b"{[n"
            united = value if replaces else _united(told[-1], value)
            told[-1:] = (told[-1], value) if united is None else (united,)

    def fields(self) -> Fields:
        """Return each field: its value, or a list of its values where they differ."""
        return {name: told[0] if len(told) == 1 else raw(told) for name, told in self.values.items()}


def _united(one: Raw, other: Raw) -> Raw | None:
    """Return a value that says all that two values say; None where they differ.

    Objects are united by their keys. Of lists, one has to begin with the other: to put them one behind the other would
    shift what has indexes into them.
    """
    if one == other or says_nothing(one):
        return other
    if says_nothing(other):
        return one
    kinds = bytes(one)[:1] + bytes(other)[:1]
    if kinds == b"{{":
        first, second = fields_of(one) or {}, fields_of(other) or {}
        both = {name: _united(value, second.get(name, value)) for name, value in first.items()}
        known = {name: value for name, value in both.items() if value is not None}
        return raw(second | known) if len(known) == len(both) else None
    if kinds == b"[[":
        begins, whole = sorted((items_of(one) or [], items_of(other) or []), key=len)
        return raw(whole) if whole[: len(begins)] == begins else None
    return None
