"""Texts that a wire makes one string of: a blank line is where something stood between them that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from turnlog.model import Block, Text

_BLANK_LINE = "\n\n"

_B = TypeVar("_B", bound=Block)


class CarriedBlocks(Generic[_B]):
    """The blocks of a message or of a result, as they are carried one by one.

    Attributes:
        blocks: those that are carried.
    """

    def __init__(self, *, joins_texts: bool) -> None:
        """Begin with none, for a wire that makes one string of texts or does not."""
        self._joins_texts = joins_texts
        self._gap = False
        self.blocks: list[_B] = []

    def add(self, given: object, carried: Sequence[_B], *, lost: bool) -> None:
        """Take what is carried of the next block.

        Args:
            given: the block.
            carried: what is carried of it.
            lost: whether the loss report says that this is not all that was given.
        """
        # A document that goes as text is none of the texts beside it, though all of it is there.
        replaced = (
            (lost or bool(carried))
            and not isinstance(given, Text)
            and all(isinstance(block, Text) for block in carried)
        )
        self._gap |= replaced
        for block in carried:
            if isinstance(block, Text):
                if self._gap and self._joins_texts:
                    self._end_text()
                self._gap = False
            self.blocks.append(block)
        self._gap |= replaced  # what stands in for a block is no part of the text behind it either

    def _end_text(self) -> None:
        """Let the last text end with a blank line: nothing that counts characters in the next one shifts."""
        for place in reversed(range(len(self.blocks))):
            block = self.blocks[place]
            if isinstance(block, Text):
                self.blocks[place] = msgspec.structs.replace(block, text=block.text + _BLANK_LINE)
                return
