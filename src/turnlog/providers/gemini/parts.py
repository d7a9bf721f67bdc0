"""Parts of a candidate's content (Gemini API, `Part`), and the content blocks that they add up to."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Raw

from turnlog.model import Block, Native, Text, Thinking, ToolUse, parse_arguments
from turnlog.providers.body import encode
from turnlog.providers.gemini.partial import PartialArguments, PartialError
from turnlog.providers.gemini.request import SIGNED_PART, made_up_id

Fields: TypeAlias = dict[str, Raw]
"""A JSON object: its values as raw JSON text, by name."""

_DATA = frozenset(
    {
        "codeExecutionResult",
        "executableCode",
        "fileData",
        "functionCall",
        "functionResponse",
        "inlineData",
        "text",
        "toolCall",
        "toolResponse",
    }
)
"""What a part can be. It is one of them; other fields say more about it."""

_OF_BLOCKS = frozenset(
    {
        *("$extra", "type"),
        *(field.encode_name for kind in (Text, Thinking, ToolUse) for field in msgspec.structs.fields(kind)),
        SIGNED_PART,
    }
)
"""Names that mean something in a block: a field of a part that has one of them cannot stand beside it."""

NULL = Raw(b"null")

_fields = msgspec.json.Decoder(dict[str, Raw])
_string = msgspec.json.Decoder(str)


def present(fields: Fields, name: str, otherwise: bytes) -> bytes | Raw:
    """Return the value of a field, or another where it is not there or `null`."""
    value = fields.get(name)
    return otherwise if value is None or value == NULL else value


class Part:
    """A part as a content block would have it.

    Attributes:
        raw: the part as it came.
        native: whether it has no normalized form; `kind` is then the name of what it holds.
        kind: `text`, `thinking` or `tool_use`.
        text: its text or thinking.
        name: the tool that it calls.
        id: the id of the call, where the API gave one.
        input: the input of the call.
        signature: the `thoughtSignature` that it came with.
        beside: its other fields.
        call: the fields of the call, empty for what is none.
    """

    __slots__ = ("beside", "call", "id", "input", "kind", "name", "native", "raw", "signature", "text")

    def __init__(self, raw: Raw) -> None:
        """Read a part.

        Raises:
            msgspec.DecodeError: it is not an object.
        """
        fields = _fields.decode(raw)
        self.raw = raw
        self.native = True
        self.text = ""
        self.name = ""
        self.id: str | None = None
        self.input = Raw(b"{}")
        self.signature: str | None = None
        self.beside: Fields = {}
        self.call: Fields = {}
        held = [name for name in fields if name in _DATA]
        self.kind = next((name for name in (*held, *fields) if name != "text"), "part")
        if held in (["text"], ["functionCall"]):
            with suppress(msgspec.DecodeError):  # what is not as the API describes it is kept as it is
                self._take(fields)

    def _take(self, fields: Fields) -> None:
        signature = _string.decode(present(fields, "thoughtSignature", b'""')) or None
        beside = {name: value for name, value in fields.items() if name not in _DATA and name != "thoughtSignature"}
        if "text" in fields:
            text = _string.decode(fields["text"])
            thought = bytes(beside.pop("thought", b"false")) == b"true"
            if not _OF_BLOCKS.isdisjoint(beside) or (beside and not text and signature is None):
                return
            self.text = text
            self.kind = "thinking" if thought else "text"
        else:
            call = self.call = _fields.decode(fields["functionCall"])
            name = _string.decode(present(call, "name", b"null"))
            if not _OF_BLOCKS.isdisjoint(beside):
                return
            self.name = name
            self.id = _string.decode(present(call, "id", b'""')) or None
            self.input, malformed = parse_arguments(bytes(present(call, "args", b"{}")).decode())
            others = {name: value for name, value in call.items() if name not in ("name", "id", "args")}
            beside |= malformed | ({"functionCall": Raw(encode(others))} if others else {})
            self.kind = "tool_use"
        self.native = False
        self.signature = signature
        self.beside = beside

    @property
    def in_pieces(self) -> bool:
        """Whether it is a call whose arguments come in pieces, of which it is the first."""
        goes_on = bytes(present(self.call, "willContinue", b"")) == b"true"
        return self.kind == "tool_use" and (goes_on or "partialArgs" in self.call)

    @property
    def goes_on(self) -> bool:
        """Whether it can be a further piece of a call: one that names no tool."""
        return self.native and self.kind == "functionCall" and bytes(present(self.call, "name", b'""')) == b'""'


class _OpenCall:
    """A call whose arguments come in pieces, each a part of its own.

    What cannot be put together is kept as it came: a native block for each part.
    """

    def __init__(self, part: Part) -> None:
        self.first = part
        self.parts = [part.raw]
        self.ended = False
        try:
            self._arguments: PartialArguments | None = PartialArguments(part.input)
        except PartialError:
            self._arguments = None
        self._take(part.call)

    def add(self, call: Fields, raw: Raw) -> None:
        self.parts.append(raw)
        self._take(call)

    def _take(self, call: Fields) -> None:
        try:
            if self._arguments is not None and (pieces := present(call, "partialArgs", b"")):
                self._arguments.add(pieces)
        except PartialError:
            self._arguments = None
        self.ended = bytes(present(call, "willContinue", b"")) != b"true"

    def block(self) -> ToolUse | None:
        """Return the call, None where its pieces cannot be put together."""
        if self._arguments is None:
            return None
        part = self.first
        alone = len(self.parts) == 1 and "partialArgs" not in part.call
        beside = {name: value for name, value in part.beside.items() if alone or name != "functionCall"}
        id = UNSET if part.id is None else part.id
        return ToolUse(name=part.name, input=self._arguments.json(), id=id, extra=beside)


class Blocks:
    """The content blocks that parts add up to."""

    def __init__(self, provider: str, api: str) -> None:
        self._provider = provider
        self._api = api
        self._blocks: list[Block] = []
        self._open: str = ""
        """What the pieces are of: `text`, `thinking`, or nothing."""
        self._pieces: list[str] = []
        self._call: _OpenCall | None = None

    def add(self, raw: Raw) -> None:
        """Take the next part.

        Raises:
            msgspec.DecodeError: it is not an object.
        """
        part = Part(raw)
        if self._call is not None:
            if part.goes_on:
                self._call.add(part.call, raw)
                if self._call.ended:
                    self._end_call()
                return
            self._end_call()
        if part.native:
            self._close()
            self._blocks.append(Native(provider=self._provider, api=self._api, block=raw))
        elif part.kind == "text":
            self._text(part)
        elif part.kind == "thinking":
            self._thinking(part)
        else:
            self._sign(part.signature)
            if part.in_pieces:
                self._call = _OpenCall(part)
                return
            id = UNSET if part.id is None else part.id
            self._blocks.append(ToolUse(name=part.name, input=part.input, id=id, extra=part.beside))

    def _end_call(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        block = call.block()
        if block is not None:
            self._blocks.append(block)
            return
        self._blocks += [Native(provider=self._provider, api=self._api, block=raw) for raw in call.parts]

    def _text(self, part: Part) -> None:
        if part.signature is None and not part.beside:
            self._piece("text", part.text)
        elif part.text:
            self._sign(part.signature)
            self._blocks.append(Text(text=part.text, extra=part.beside))
        else:
            self._sign(part.signature, on="empty")

    def _thinking(self, part: Part) -> None:
        if part.signature is None and not part.beside:
            self._piece("thinking", part.text)
            return
        self._close()
        self._think(part.text, part.signature, "thought", part.beside)

    def _piece(self, kind: str, text: str) -> None:
        """Go on with a text; one without a signature or anything else goes on over parts and events."""
        if not text:
            return
        if self._open != kind:
            self._close()
            self._open = kind
        self._pieces.append(text)

    def _sign(self, signature: str | None, *, on: str | None = None) -> None:
        """Add the signature of the part that comes next. Thinking right before it is what it is the signature of."""
        thinking = "".join(self._pieces) if self._open == "thinking" else None
        if signature is None:
            self._close()
            return
        if thinking is None:
            self._close()
        self._open, self._pieces = "", []
        self._think(thinking or "", signature, on, {})

    def _think(self, thinking: str, signature: str | None, on: str | None, beside: Fields) -> None:
        extra = beside | ({SIGNED_PART: Raw(encode(on))} if on is not None else {})
        self._blocks.append(
            Thinking(
                thinking=thinking,
                signature=UNSET if signature is None else signature,
                provider=self._provider,
                api=self._api,
                extra=extra,
            )
        )

    def _close(self) -> None:
        text, kind = "".join(self._pieces), self._open
        self._open, self._pieces = "", []
        if kind == "text":
            self._blocks.append(Text(text=text))
        elif kind == "thinking":
            self._think(text, None, None, {})

    def all(self, model: str, response_id: str | None) -> tuple[Block, ...]:
        """Return the blocks, with the model that wrote them and an id for each call."""
        self._end_call()
        self._close()
        blocks: list[Block] = []
        calls = 0
        for block in self._blocks:
            calls += isinstance(block, ToolUse)
            if isinstance(block, Thinking | Native) and model:
                blocks.append(msgspec.structs.replace(block, model=model))
            elif isinstance(block, ToolUse) and block.id is UNSET:
                blocks.append(msgspec.structs.replace(block, id=made_up_id(response_id, calls)))
            else:
                blocks.append(block)
        return tuple(blocks)
