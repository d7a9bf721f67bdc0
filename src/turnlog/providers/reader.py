"""Reading a reply: one reader sees each event once, says what to show of it, and what all of them add up to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from turnlog.model import Delta, Response

RawEvent = bytes
"""One event of a stream, or one whole reply: JSON as the provider sent it."""


class Sender(Struct, frozen=True, kw_only=True):
    """Who answers.

    Attributes:
        provider: the provider, for the response, for errors, and for blocks that go back to it alone.
        api: the provider's api, likewise.
        model: the model that was asked, for wires whose replies do not name it.
    """

    provider: str
    api: str
    model: str | None = None


class ReplyReader(ABC):
    """Reads one reply: the events of a stream in their order, or one whole reply. Not safe to use from several threads.

    It never raises for what a provider sent: a stream without its terminal event, an event that is not JSON and an
    error event give a response with `stop_reason` `error`, all content that had arrived, and the error.
    """

    def __init__(self, sender: Sender) -> None:
        """Begin with nothing read."""
        self.sender = sender

    @abstractmethod
    def add(self, event: RawEvent) -> Sequence[Delta]:
        """Take the next event, and return what to show of it; empty where there is nothing, or it cannot be read."""

    @abstractmethod
    def response(self) -> Response:
        """Return what the events so far add up to. More may be added afterwards."""
