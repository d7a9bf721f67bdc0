"""The tool calls of one message as they come, in pieces or whole."""

from __future__ import annotations

from msgspec import Raw, Struct

from turnlog.model import Delta, ToolUse, parse_arguments
from turnlog.providers.extras import CALL_TYPE, custom_call, extras
from turnlog.providers.openai_chat.fields import OWN
from turnlog.providers.raw_json import Fields, fields_of, further, integer_of, minified, raw, text_of, text_or_json

_KNOWN = {"index", "id", "type", "function", "custom"}


class _Piece(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a call: `text` is more of its arguments, or of its input where the `type` is `custom`."""

    index: int | None
    id: str
    type: str
    name: str
    text: str
    extra: Fields
    inside: Fields


class Calls:
    """The calls of one message, in the order in which they began."""

    def __init__(self) -> None:
        """Begin with none."""
        self._all: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}
        """Calls by the index and the id that they began with: some endpoints give all the same index, or none."""

    def add(self, fields: Fields, *, whole: bool) -> Delta | None:
        """Take a call, or a piece of one that may go on with an earlier one; return what to show of it."""
        return self._add(_piece(fields), whole=whole)

    def _add(self, piece: _Piece, *, whole: bool) -> Delta | None:
        last = self._all[-1] if self._all else None
        call = last if piece.index is None else self._by_index.get(piece.index)
        call = self._by_id.get((piece.index, piece.id), call)
        if call is None or whole or not call.goes_on_with(piece):
            call = _Call()
            self._all.append(call)
            if piece.id:
                self._by_id[piece.index, piece.id] = call
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call.add(piece)

    def add_function_call(self, value: Raw) -> Delta | None:
        """Take the older form of a single call, without an id. Some endpoints send an empty one where there is none."""
        piece = _piece({"function": value})
        return self._add(piece, whole=False) if piece.name or piece.text else None

    def blocks(self) -> list[ToolUse]:
        """Return the calls as blocks."""
        return [call.block() for call in self._all]


def _piece(call: Fields) -> _Piece:
    function, custom = fields_of(call.get("function")), fields_of(call.get("custom"))
    of_custom = custom is not None and function is None
    inside = (custom if of_custom else function) or {}
    text_field = "input" if of_custom else "arguments"
    return _Piece(
        index=integer_of(call.get("index")),
        id=text_or_json(call.get("id")),
        type=text_of(call.get("type")) or ("custom" if of_custom else ""),
        name=text_or_json(inside.get("name")),
        text=text_or_json(inside.get(text_field)),
        extra=further(call, _KNOWN),
        inside=further(inside, ("name", text_field)),
    )


class _Call:
    """A call as it comes."""

    def __init__(self) -> None:
        self._id = ""
        self._type = ""
        self._name = ""
        self._texts: list[str] = []
        self._extra: Fields = {}
        self._inside: Fields = {}

    def goes_on_with(self, piece: _Piece) -> bool:
        """Return whether a piece under the same index, or the next one without an index, is of this call.

        A new name and a new id are a new call: some endpoints give all calls the same index, or none. A new id alone is
        not: others make one up for each piece. Nor is a name alone, which others repeat, but behind whole arguments:
        some endpoints give their calls no ids either.
        """
        if not piece.name:
            return True
        if piece.id and self._id:
            return piece.id == self._id
        if (piece.name != self._name or piece.text.strip()) and self._has_whole_arguments():
            return False
        return piece.index is not None

    def _has_whole_arguments(self) -> bool:
        """Return whether the arguments so far are a JSON object, which no more text can belong to."""
        last = next((text for text in reversed(self._texts) if text.strip()), "")
        if self._type == "custom" or not last.rstrip().endswith("}"):
            return False
        return not parse_arguments("".join(self._texts))[1]

    def add(self, piece: _Piece) -> Delta | None:
        begins = bool(piece.name) and not self._name
        self._id = self._id or piece.id
        self._type = self._type or piece.type
        if piece.name != self._name:  # some endpoints repeat the whole name with each piece
            self._name += piece.name
        self._texts.append(piece.text)
        self._extra |= piece.extra
        self._inside |= piece.inside
        if begins:
            return Delta(type="tool_use", name=piece.name, id=piece.id or None, content=piece.text or None)
        return Delta(content=piece.text) if piece.text else None

    def block(self) -> ToolUse:
        """Return the call."""
        text, extra = "".join(self._texts), {name: minified(value) for name, value in self._extra.items()}
        own, name = self._type or "function", self._name
        beside = extras(ToolUse, extra, OWN)
        if self._inside:
            inside = "custom" if own == "custom" else "function"
            beside = {inside: raw({key: minified(value) for key, value in self._inside.items()})} | beside
        if own == "custom":
            return custom_call(name or own, text, self._id, beside)
        input_, spelled = parse_arguments(text, as_spelled=True)
        if own != "function":
            name, spelled = name or own, spelled | {CALL_TYPE: raw(own)}
        return ToolUse(name=name, input=input_, id=self._id or None, extra=spelled | beside)
