"""Arguments of a call that come in pieces, each with the JSONPath of its place (Gemini API, `partialArgs`)."""

from __future__ import annotations

import re
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

Place: TypeAlias = "str | int"

_step = re.compile(r"\.([A-Za-z0-9_$-]+)|\[([0-9]{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_ITEMS_MAX = 100_000


class PartialError(Exception):
    """Say that pieces of arguments cannot be put together."""


class _Piece(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    json_path: str
    string_value: str | None = None
    number_value: float | int | None = None
    bool_value: bool | None = None
    null_value: Raw | None = None
    will_continue: bool = False


_pieces = msgspec.json.Decoder(list[_Piece])


class PartialArguments:
    """The arguments of one call, as its pieces come."""

    def __init__(self, given: Raw | bytes) -> None:
        """Begin with the arguments that came whole: a JSON object.

        Raises:
            PartialError: it is none.
        """
        try:
            self._whole = msgspec.json.decode(given, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise PartialError from error
        self._open: str | None = None
        """The place of the text that goes on with the next piece."""

    def add(self, raw: Raw | bytes) -> None:
        """Put pieces in their places. A text goes on where the piece before it said so.

        Raises:
            PartialError: they cannot be read, or name a place that there cannot be.
        """
        try:
            pieces = _pieces.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PartialError from error
        for piece in pieces:
            self._put(_places(piece.json_path), piece)
            self._open = piece.json_path if piece.will_continue else None

    def _put(self, places: list[Place], piece: _Piece) -> None:
        if piece.string_value is not None:
            value: Any = piece.string_value
        elif piece.bool_value is not None:
            value = piece.bool_value
        else:
            value = piece.number_value
        within: Any = self._whole
        for place, following in zip(places, [*places[1:], None], strict=True):
            there = _within(within, place)
            if following is not None:
                if there is None:
                    there = _set(within, place, [] if isinstance(following, int) else {})
                within = there
            elif isinstance(there, str) and isinstance(value, str) and self._open == piece.json_path:
                _set(within, place, there + value)
            else:
                _set(within, place, value)

    def json(self) -> Raw:
        """Return the arguments as JSON."""
        return Raw(msgspec.json.encode(self._whole))


def _places(path: str) -> list[Place]:
    """Return the steps of a JSONPath that names one place (RFC 9535 §2.7: names and indexes)."""
    places: list[Place] = []
    at = 1
    while path[:1] == "$" and at < len(path):
        match = _step.match(path, at)
        if match is None:
            raise PartialError
        name, index, single, double = match.groups()
        quoted = single if single is not None else double
        places.append(
            int(index) if index is not None else name if name is not None else re.sub(r"\\(.)", r"\1", quoted)
        )
        at = match.end()
    if not places or not isinstance(places[0], str):
        raise PartialError
    return places


def _within(within: Any, place: Place) -> Any:
    if isinstance(within, dict) and isinstance(place, str):
        return cast("dict[str, Any]", within).get(place)
    if isinstance(within, list) and isinstance(place, int):
        items = cast("list[Any]", within)
        return items[place] if place < len(items) else None
    raise PartialError


def _set(within: Any, place: Place, value: Any) -> Any:
    if isinstance(place, int):
        if place >= _ITEMS_MAX:
            raise PartialError
        within += [None] * (place + 1 - len(within))
    within[place] = value
    return value
