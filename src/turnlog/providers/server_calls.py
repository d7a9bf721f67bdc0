"""Calls of tools that a provider runs itself, and their results: which of them a conversation can still have in it.

Both are native blocks of the provider's replies. The result stands in the turn of its call: in the same reply, or in
one that goes on with it, behind a pause or behind results of the tools that are ours to run. A turn that ended without
it, as one that was cut off does, is one that the provider refuses to be sent.
"""

from __future__ import annotations

from msgspec import Struct


class ServerPart(Struct, frozen=True, kw_only=True):
    """What a native block is: the call of a tool that the provider runs, or the result of one.

    Attributes:
        call_id: the id of the call.
        is_result: whether it is the result.
    """

    call_id: str
    is_result: bool


class ServerCalls:
    """The calls and results of one conversation, in their order. A place is a message and a block in it, by index."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: dict[str, tuple[int, int]] = {}
        self.left_out: dict[tuple[int, int], str] = {}
        """The places of those that cannot stay, each with the reason."""

    def add(self, part: ServerPart, place: tuple[int, int]) -> None:
        """Take the next call or result of a turn."""
        if not part.is_result:
            self._open[part.call_id] = place
        elif self._open.pop(part.call_id, None) is None:
            self.left_out[place] = f"there is no call {part.call_id!r} that it answers"

    def end_turn(self) -> list[tuple[int, int]]:
        """End the turn, and return the places of the calls that had no result in it."""
        ended, self._open = self._open, {}
        for call_id, place in ended.items():
            self.left_out[place] = f"call {call_id!r} has no result, and its turn has ended"
        return list(ended.values())
