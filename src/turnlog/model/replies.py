"""Replies of models in one form: deltas while they stream, and the response that they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model.blocks import Block, Native, ToolUse, content_bytes
from turnlog.model.cut_characters import CutCharacters
from turnlog.model.depth import FIELD_DEPTH_MAX, is_deeper
from turnlog.model.json_text import minify
from turnlog.model.meta import Usage
from turnlog.model.shown import shown
from turnlog.model.stop_reasons import Spelling, StopReason, spell_stop_reason

MALFORMED = "malformed_arguments"
"""The extra key of a tool call whose arguments are not a JSON object, or are nested too deeply: their text, as the
model wrote it. The call's `input` is then an empty object."""

ARGUMENTS = "spelled_arguments"
"""The extra key of a tool call with the text of its arguments as the model wrote it, where its `input` is spelled in
another way: without whitespace. It says nothing that `input` does not, and goes back to the model that wrote it."""


class Delta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a reply for display. The first piece of a block has a `type`; pieces without one go on with it.

    Attributes:
        type: `text`, `thinking`, `tool_use`, or the type of a native block.
        name: name of the tool that is called.
        id: id of the call, where the wire tells it with its start.
        content: more text of the block; a tool's input is text too, or a whole JSON value.
    """

    type: str | None = None
    name: str | None = None
    id: str | None = None
    content: str | Raw | None = None

    __repr__ = shown


class CallError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call failed.

    Attributes:
        message: one line for people.
        retryable: whether the same call may succeed later.
        status: the HTTP status, where there was one.
        retry_after_s: how long the provider asks to wait, in seconds.
    """

    message: str
    retryable: bool = False
    status: int | None = None
    retry_after_s: float | None = None

    def line(self) -> str:
        """Return the error as one line that says whether to try again."""
        if not self.retryable:
            return self.message
        wait = "" if self.retry_after_s is None else f" after {_number(self.retry_after_s)} s"
        return f"{self.message} (retryable{wait})"


def _number(seconds: float) -> str:
    return f"{seconds:g}" if seconds < 1e6 else f"{seconds:,.0f}"


class Response(Struct, frozen=True, kw_only=True):
    """A reply in the normalized form. A streamed and an unstreamed reply of the same content are equal.

    Attributes:
        content: the content blocks, in the order of the wire.
        model: the model that answered, as the provider names it.
        stop_reason: why it stopped.
        provider: the provider.
        api: the provider's api.
        raw_stop_reason: the provider's word for the stop reason.
        usage: tokens; None where the provider reported none.
        raw_usage: what the provider reported, as raw JSON text.
        id: the provider's id of the response.
        error: why the call failed, with `stop_reason` `error` or `aborted`.
        extra: further fields of the provider's reply that have no normalized form, as raw JSON text by name.
    """

    content: tuple[Block, ...]
    model: str
    stop_reason: StopReason
    provider: str
    api: str
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    raw_usage: Raw | None = None
    id: str | None = None
    error: CallError | None = None
    extra: dict[str, Raw] = {}

    __repr__ = shown

    def failed(self, error: CallError, *, stop_reason: StopReason = "error") -> Response:
        """Return the same reply as one that broke off."""
        return msgspec.structs.replace(self, stop_reason=stop_reason, error=error)

    def to_record(self, *, spelling: Spelling = "turnlog") -> dict[str, Any]:
        """Return the response as values for JSON: `{message: {role, content, model, stop_reason, usage}, …}`.

        Native blocks stand in `content` as the provider wrote them: `provider`, `api` and `model` beside the message
        say whose they are. What is as it was written is raw JSON text: `msgspec.json.encode` takes that, and
        `json.dumps` does not.

        Args:
            spelling: whose words to say the stop reason in.
        """
        message: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [_block(block) for block in self.content],
            "stop_reason": spell_stop_reason(self.stop_reason, spelling),
        }
        if self.usage is not None:
            message["usage"] = self.usage.to_record()
        record: dict[str, Any] = {"message": message, "provider": self.provider, "api": self.api}
        optional: Mapping[str, object] = {
            "id": self.id,
            "raw_stop_reason": self.raw_stop_reason,
            "raw_usage": self.raw_usage,
            "error": self.error,
            "extra": self.extra or None,
        }
        return record | {name: value for name, value in optional.items() if value is not None}


def _block(block: Block) -> Raw:
    if isinstance(block, ToolUse) and ARGUMENTS in block.extra:
        # It says nothing that the input does not, and nobody else knows it.
        extra = {name: raw for name, raw in block.extra.items() if name != ARGUMENTS}
        block = msgspec.structs.replace(block, extra=extra)
    return block.block if isinstance(block, Native) else Raw(content_bytes([block])[1:-1])


def parse_arguments(text: str, *, as_spelled: bool = False) -> tuple[Raw, dict[str, Raw]]:
    """Return the `input` and the `extra` of a tool call from the text of its arguments.

    No text at all means no arguments. What is not a JSON object, or nested too deeply for content, is kept in `extra`
    under `MALFORMED`. Half of a surrogate pair in it does not make it one: see `CutCharacters`.

    Args:
        text: the text, as the model wrote it.
        as_spelled: for wires that have arguments as text: where the input is spelled in another way, without
            whitespace, the text is kept in `extra` under `ARGUMENTS`, so that it can go back as it came.
    """
    if not text.strip():
        return Raw(b"{}"), {}
    value = _minified_arguments(text)
    if value[:1] != b"{" or is_deeper(value, FIELD_DEPTH_MAX):
        return Raw(b"{}"), {MALFORMED: _as_json(text)}
    return Raw(value), {ARGUMENTS: _as_json(text)} if as_spelled and value.decode() != text else {}


def _minified_arguments(text: str) -> bytes:
    """Return arguments without whitespace; nothing where they are not JSON."""
    try:
        try:
            return minify(text, field="arguments")
        except ContentError:
            return minify(CutCharacters().joined(text.encode()), field="arguments")
    except (ContentError, UnicodeEncodeError):
        return b""


def cut_call(content: Sequence[Block], stop_reason: str | None) -> int | None:
    """Return the index of the last tool call of a reply that was cut off at its length limit; None where there is none.

    Of its arguments a part may be missing, or all: no wire says whether a model had come to their end.
    """
    if stop_reason != "length":
        return None
    return max((index for index, block in enumerate(content) if isinstance(block, ToolUse)), default=None)


def arguments_text(call: ToolUse) -> str:
    """Return the arguments of a tool call as text: as the model wrote them, where that is known."""
    for name in (MALFORMED, ARGUMENTS):
        if bytes(call.extra.get(name, b""))[:1] == b'"':
            return msgspec.json.decode(call.extra[name], type=str)
    return bytes(call.input).decode()


def _as_json(text: str) -> Raw:
    return Raw(msgspec.json.encode(text.encode(errors="replace").decode()))
