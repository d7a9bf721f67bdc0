"""Texts that follow each other: what is in none of them alone may be in all of them together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from turnlog.record.long_texts import Text

_TEXT_FIELD = re.compile(
    r"(?P<list>.*?)\[(?P<block>\d{1,9})\](?:\.content\[(?P<nested>\d{1,9})\])?\.(?:text|content)", re.DOTALL
)


class Piece(NamedTuple):
    """A text that others may follow.

    Attributes:
        number: how many strings come before it.
        text: the text.
        field: its place, such as `content[2].content[0].text`.
        block: index of its block.
        nested: index of the block in the block's own content, -1 where it has none.
    """

    number: int
    text: Text
    field: str
    block: int
    nested: int


class Runs:
    """Texts that follow each other: in text blocks, in the content of a tool result, in tool results."""

    def __init__(self) -> None:
        self._strings = 0
        self._runs: dict[str, list[list[Piece]]] = {}

    def add(self, text: Text, field: str) -> None:
        """Take the next string. Which list it is in, and where, is told by its field."""
        number = self._strings
        self._strings += 1
        if not field.endswith(("].text", "].content")):
            return
        place = _TEXT_FIELD.fullmatch(field)
        if place is None:
            return
        piece = Piece(number, text, field, int(place["block"]), int(place["nested"] or -1))
        runs = self._runs.setdefault(place["list"], [])
        if runs and _follows(piece, runs[-1][-1]):
            runs[-1].append(piece)
        else:
            runs.append([piece])

    def found(self) -> Iterator[list[Piece]]:
        """Yield the runs of more than one."""
        for runs in self._runs.values():
            yield from (run for run in runs if len(run) > 1)


def _follows(piece: Piece, last: Piece) -> bool:
    """Tell whether no other block stands between two texts."""
    if piece.block == last.block:
        return piece.nested in (last.nested, last.nested + 1)
    return piece.block == last.block + 1 and piece.nested <= 0


class Replacing:
    """Puts texts in the place of others, by how many strings come before them."""

    def __init__(self, texts: Mapping[int, Text]) -> None:
        self._texts = texts
        self._strings = 0

    def text(self, text: Text, field: str) -> Text:  # noqa: ARG002
        number = self._strings
        self._strings += 1
        return self._texts.get(number, text)

    def base64(self, text: Text, field: str) -> Text:  # noqa: ARG002
        return text

    def signature_removed(self, field: str) -> None:
        """Nothing of thinking is replaced."""
