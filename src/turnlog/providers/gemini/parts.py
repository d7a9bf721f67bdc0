"""Parts of a candidate's content (Gemini API, `Part`), and the content blocks that they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Raw

from turnlog.model import Block, Delta, Native, Text, Thinking, ToolUse, parse_arguments
from turnlog.providers.extras import extras
from turnlog.providers.gemini.partial import PartialArguments, PartialError
from turnlog.providers.gemini.request import OF_CONTENT, SIGNED_PART, made_up_id
from turnlog.providers.raw_json import Fields, fields_of, is_null, raw, text_of, text_or_json
from turnlog.providers.reader import Sender

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

_OWN = (SIGNED_PART, *OF_CONTENT)
"""The extra keys that the wire uses itself."""

_OF_PIECES = frozenset({"name", "partialArgs", "willContinue"})
"""What a further piece of a call has."""


class OddError(Exception):
    """Say what of an event is not as the API describes it."""


def object_in(fields: Fields, name: str) -> Fields:
    """Return an object that is a field of another, empty where it is null or not there.

    Raises:
        OddError: it is something else.
    """
    found = fields_of(fields.get(name))
    if found is None and not is_null(fields.get(name)):
        raise OddError(name)
    return found or {}


def _text_in(fields: Fields, name: str) -> str:
    """Return a text that is a field of an object, empty where it is null or not there.

    Raises:
        OddError: it is something else.
        msgspec.DecodeError: it is no text in UTF-8.
    """
    found = text_of(fields.get(name))
    if found is None and not is_null(fields.get(name)):
        raise OddError(name)
    return found or ""


def _is_true(fields: Fields, name: str) -> bool:
    return bytes(fields.get(name, b"")) == b"true"


class Part:
    """A part as a content block would have it.

    Attributes:
        raw: the part as it came.
        native: whether it has no normalized form; `kind` is then the name of what it holds.
        kind: `text`, `thinking` or `tool_use`.
        text: its text or thinking.
        name: the tool that it calls, empty for a call that names none.
        id: the id of the call, where the API gave one.
        input: the input of the call.
        signature: the `thoughtSignature` that it came with.
        beside: its other fields.
        call: the fields of the call, empty for what is none.
        goes_on: whether it is a further piece of a call where one is open: one that names no tool.
    """

    __slots__ = ("beside", "call", "goes_on", "id", "input", "kind", "name", "native", "raw", "signature", "text")

    def __init__(self, raw: Raw) -> None:
        """Read a part.

        Raises:
            OddError: it is not an object.
        """
        fields = fields_of(raw)
        if fields is None:
            raise OddError("part")
        self.raw = raw
        self.native = True
        self.text = ""
        self.name = ""
        self.id = ""
        self.input = Raw(b"{}")
        self.signature = ""
        self.beside: Fields = {}
        self.call: Fields = {}
        self.goes_on = False
        held = [name for name in fields if name in _DATA]
        self.kind = next((name for name in (*held, *fields) if name != "text"), "part")
        if held in (["text"], ["functionCall"]):
            with suppress(OddError, msgspec.DecodeError):  # what is not as the API describes it is kept as it is
                self._take(fields)

    def _take(self, fields: Fields) -> None:
        signature = _text_in(fields, "thoughtSignature")
        beside = {name: value for name, value in fields.items() if name not in _DATA and name != "thoughtSignature"}
        if "text" in fields:
            text = text_of(fields["text"])
            thought = _is_true(beside, "thought")
            beside.pop("thought", None)
            if text is None or (beside and not text and not signature):
                return
            self.text = text
            self.kind = "thinking" if thought else "text"
            beside = extras(Thinking if thought else Text, beside, _OWN)
        else:
            call = self.call = object_in(fields, "functionCall")
            self.id, self.name = text_or_json(call.get("id")), text_or_json(call.get("name"))
            self.goes_on = not self.name and len(fields) == 1 and _OF_PIECES.issuperset(call)
            arguments = b"" if is_null(call.get("args")) else bytes(call["args"])
            self.input, malformed = parse_arguments(arguments.decode())
            others = {name: value for name, value in call.items() if name not in ("name", "id", "args")}
            beside = extras(ToolUse, beside, _OWN) | malformed | ({"functionCall": raw(others)} if others else {})
            self.kind = "tool_use"
        self.native = False
        self.signature = signature
        self.beside = beside

    @property
    def in_pieces(self) -> bool:
        """Whether it is a call whose arguments come in pieces, of which it is the first."""
        return self.kind == "tool_use" and (_is_true(self.call, "willContinue") or "partialArgs" in self.call)

    def delta(self) -> list[Delta]:
        """Return what to show of it."""
        if self.native:
            return [Delta(type=self.kind)]
        if self.kind == "tool_use":
            return [Delta(type="tool_use", name=self.name, content=None if self.in_pieces else self.input)]
        return [Delta(type=self.kind, content=self.text)] if self.text else []

    def tool_use(self) -> ToolUse:
        """Return the call that it is."""
        return ToolUse(name=self.name, input=self.input, id=self.id or None, extra=self.beside)


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

    def add(self, part: Part) -> None:
        self.parts.append(part.raw)
        self._take(part.call)

    def _take(self, call: Fields) -> None:
        pieces = call.get("partialArgs")
        try:
            if self._arguments is not None and pieces is not None and not is_null(pieces):
                self._arguments.add(pieces)
        except PartialError:
            self._arguments = None
        self.ended = not _is_true(call, "willContinue")

    def tool_use(self) -> ToolUse | None:
        """Return the call, None where its pieces cannot be put together."""
        if self._arguments is None:
            return None
        alone = len(self.parts) == 1 and "partialArgs" not in self.first.call
        beside = {name: value for name, value in self.first.beside.items() if alone or name != "functionCall"}
        return msgspec.structs.replace(self.first.tool_use(), input=self._arguments.json(), extra=beside)


class Blocks:
    """The content blocks that parts add up to."""

    def __init__(self, sender: Sender) -> None:
        """Begin with no parts."""
        self._sender = sender
        self._blocks: list[Block] = []
        self._open: str = ""
        """What the pieces are of: `text`, `thinking`, or nothing."""
        self._pieces: list[str] = []
        self._call: _OpenCall | None = None

    def add(self, raw: Raw) -> Sequence[Delta]:
        """Take the next part, and return what to show of it.

        Raises:
            OddError: it is not an object.
        """
        part = Part(raw)
        if self._call is not None and part.goes_on:
            self._call.add(part)
            return self._end_call() if self._call.ended else ()
        shown = [*self._end_call(), *part.delta()]
        if part.native:
            self._close()
            self._blocks.append(self._native(raw))
        elif part.kind == "text":
            self._text(part)
        elif part.kind == "thinking":
            self._thinking(part)
        else:
            self._sign(part.signature)
            if part.in_pieces:
                self._call = _OpenCall(part)
                return [*shown, *(self._end_call() if self._call.ended else ())]
            self._blocks.append(part.tool_use())
        return shown

    def _end_call(self) -> Sequence[Delta]:
        """End a call that came in pieces, and return its arguments to show."""
        ended = self._open_call()
        self._blocks += ended
        self._call = None
        return [Delta(content=block.input) for block in ended if isinstance(block, ToolUse)]

    def _open_call(self) -> list[Block]:
        if self._call is None:
            return []
        call = self._call.tool_use()
        return [self._native(raw) for raw in self._call.parts] if call is None else [call]

    def _native(self, raw: Raw) -> Native:
        return Native(provider=self._sender.provider, api=self._sender.api, block=raw)

    def _text(self, part: Part) -> None:
        if not part.signature and not part.beside:
            self._piece("text", part.text)
        elif part.text:
            self._sign(part.signature)
            self._blocks.append(Text(text=part.text, extra=part.beside))
        else:
            self._sign(part.signature, on="empty")

    def _thinking(self, part: Part) -> None:
        if not part.signature and not part.beside:
            self._piece("thinking", part.text)
            return
        self._close()
        self._blocks.append(self._thought(part.text, part.signature, "thought", part.beside))

    def _piece(self, kind: str, text: str) -> None:
        """Go on with a text; one without a signature or anything else goes on over parts and events."""
        if not text:
            return
        if self._open != kind:
            self._close()
            self._open = kind
        self._pieces.append(text)

    def _sign(self, signature: str, *, on: str | None = None) -> None:
        """Add the signature of the part that comes next. Thinking right before it is what it is the signature of."""
        if not signature:
            self._close()
            return
        thinking = ""
        if self._open == "thinking":
            thinking, self._open, self._pieces = "".join(self._pieces), "", []
        self._close()
        self._blocks.append(self._thought(thinking, signature, on, {}))

    def _thought(self, thinking: str, signature: str, on: str | None, beside: Fields) -> Thinking:
        return Thinking(
            thinking=thinking,
            signature=signature or None,
            provider=self._sender.provider,
            api=self._sender.api,
            extra=beside if on is None else beside | {SIGNED_PART: raw(on)},
        )

    def _close(self) -> None:
        self._blocks += self._open_text()
        self._open, self._pieces = "", []

    def _open_text(self) -> list[Block]:
        text = "".join(self._pieces)
        if self._open == "text":
            return [Text(text=text)]
        return [self._thought(text, "", None, {})] if self._open else []

    def all(self, model: str, response_id: str | None) -> tuple[Block, ...]:
        """Return the blocks so far, with the model that wrote them and an id for each call."""
        blocks = [*self._blocks, *self._open_call(), *self._open_text()]
        calls = 0
        for place, block in enumerate(blocks):
            if isinstance(block, ToolUse):
                calls += 1
                if block.id is None:
                    blocks[place] = msgspec.structs.replace(block, id=made_up_id(response_id, calls))
            elif isinstance(block, Thinking | Native) and model:
                blocks[place] = msgspec.structs.replace(block, model=model)
        return tuple(blocks)
