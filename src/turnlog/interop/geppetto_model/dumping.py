"""PyYAML's writer as turns are written with it. Whoever imports this needs the package.

A long text, for which a mark stands in what is written, is never whole. What PyYAML does with a text it does here with
each of its pieces, of which none ends where that matters: between letters it folds no line and escapes nothing. So what
comes out is what it would write of the whole.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# PyYAML says nothing of its types.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml
from yaml.emitter import ScalarAnalysis

from turnlog.interop.geppetto_model.yaml_scalars import FORMS
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE

_STR = "tag:yaml.org,2002:str"
_STYLES = ("allow_flow_plain", "allow_block_plain", "allow_single_quoted", "allow_block")

_LETTER = r"[^\W\U00010000-\U0010ffff]"
"""A character that is written as it is in every style."""

_BETWEEN = re.compile(rf"(?<={_LETTER}{_LETTER})(?={_LETTER})")
_LIKE_A_NUMBER = re.compile(r"[-+.:_0-9a-fA-FxXoOb]*")


class Dumper(yaml.SafeDumper):
    """Write texts of several lines as blocks, and what is there twice twice."""

    def __init__(self, *given: Any, long: LongStrings, **options: Any) -> None:
        """Begin with nothing written.

        Args:
            given: as for PyYAML's.
            long: the long texts whose marks stand in what is to be written.
            options: as for PyYAML's.
        """
        super().__init__(*given, **options)
        self._long = long
        self._ends = ""
        """The first character of the long text that was looked at last, and its last two."""
        self._goes_on = False
        """Whether pieces of a text are being written: its quotes stand around them all."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - it is of all
        """Return that no value is an alias of another."""
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        """Return the node of a text."""
        style = _style(self._long.said_pieces(text))
        # A number is told by all of its characters.
        if style is None and _LIKE_A_NUMBER.fullmatch(next(self._long.said_pieces(text), "")):
            text = self._long.into(text)
        return self.represent_scalar(_STR, text, style)

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        """Return in which styles a text can be written: those that are possible for each piece."""
        if not self._long.is_mark(scalar):
            return super().analyze_scalar(scalar)
        found: ScalarAnalysis | None = None
        for piece in self._pieces(scalar):
            of_piece = super().analyze_scalar(piece)
            if found is None:
                found, self._ends = of_piece, piece
            self._ends = self._ends[0] + piece[-2:]
            for style in _STYLES:
                setattr(found, style, getattr(found, style) and getattr(of_piece, style))
        assert found is not None
        found.scalar = scalar
        return found

    def write_indicator(
        self, indicator: str, need_whitespace: bool, whitespace: bool = False, indention: bool = False
    ) -> None:
        """Write what is no text, such as a quote, unless it stands between pieces of one."""
        if not self._goes_on:
            super().write_indicator(indicator, need_whitespace, whitespace, indention)

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """Write a text with escapes."""
        self._write(super().write_double_quoted, text, split, '"')

    def write_single_quoted(self, text: str, split: bool = True) -> None:
        """Write a text in quotes that has no escapes."""
        self._write(super().write_single_quoted, text, split, "'")

    def write_plain(self, text: str, split: bool = True) -> None:
        """Write a text without quotes."""
        self._write(super().write_plain, text, split, "")

    def write_literal(self, text: str) -> None:
        """Write a text of several lines as they are. What comes behind it begins a line by itself."""
        if not self._long.is_mark(text):
            super().write_literal(text)
            return
        hints = self.determine_block_hints(self._ends)
        self.write_indicator(f"|{hints}", True)
        self.open_ended = hints.endswith("+")
        self.write_line_break()
        begins = True
        for piece in self._long.said_pieces(text):
            first, *more = piece.split("\n")
            begins = self._write_in_line(first, begins)
            for line in more:
                self.write_line_break()
                begins = self._write_in_line(line, True)

    def _write_in_line(self, text: str, begins: bool) -> bool:
        """Write a part of a line, and return whether the line still has to begin behind it."""
        if text and begins:
            self.write_indent()
        self.stream.write(text.encode())
        return begins and not text

    def _write(self, write: Callable[[str, bool], None], text: str, split: bool, quote: str) -> None:
        if not self._long.is_mark(text):
            write(text, split)
            return
        if quote:
            self.write_indicator(quote, True)
        self._goes_on = True
        for number, piece in enumerate(self._pieces(text)):
            self.whitespace |= number > 0  # or a blank would be written before a piece without quotes
            write(piece, split)
        self._goes_on = False
        if quote:
            self.write_indicator(quote, False)

    def _pieces(self, text: str) -> Iterator[str]:
        """Iterate over a long text in pieces that end between letters."""
        rest = ""
        for piece in self._long.said_pieces(text):
            rest, start = rest + piece, 0
            while (cut := _BETWEEN.search(rest, start + PIECE)) is not None:
                yield rest[start : cut.start()]
                start = cut.start()
            rest = rest[start:]
        yield rest


Dumper.add_representer(str, Dumper.text)
# What either of the two takes for something else than text, PyYAML or who reads it, is written with quotes.
for _tag, (_form, _first) in FORMS.items():
    Dumper.add_implicit_resolver(_tag, _form, _first)


def _style(pieces: Iterable[str]) -> str | None:
    """Return the style of a text: None for what PyYAML finds."""
    style = None
    for piece in pieces:
        # In every other style YAML folds the line breaks that it knows beside "\n" into that which it is written with.
        if any(other in piece for other in "\r\x85\u2028\u2029"):
            return '"'
        if "\n" in piece:
            style = "|"
    return style
