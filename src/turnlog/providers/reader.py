"""Reading a reply: one reader sees each event once, says what to show of it, and what all of them add up to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from turnlog.errors import ContentError
from turnlog.model import CallError, Delta, Response
from turnlog.model.blocks import deep_field
from turnlog.model.depth import FIELD_DEPTH_MAX, JSON_DEPTH_MAX
from turnlog.model.json_text import UNREADABLE
from turnlog.providers.raw_json import is_cut, unreadable

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


def recordable(response: Response) -> Response:
    """Return a response that can be recorded: without blocks that are nested too deeply, and failed where it had any.

    What they say is in the raw events alone.
    """
    content = tuple(block for block in response.content if deep_field(block, FIELD_DEPTH_MAX) is None)
    if len(content) == len(response.content):
        return response
    response = replace(response, content=content)
    said = f"{response.provider} sent content that is nested deeper than {JSON_DEPTH_MAX} levels: it was left out"
    return response if response.error is not None else response.failed(CallError(message=said))


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


class EventReader(ReplyReader):
    """A reader whose errors are of one kind: what cannot be read is left out, and makes the reply one that failed.

    Attributes:
        damage_passes: whether the same call may succeed after an event that cannot be read. After one that a stream
            broke off in it may anyway.
    """

    damage_passes: ClassVar[bool] = True

    def __init__(self, sender: Sender) -> None:
        """Begin with nothing read."""
        super().__init__(sender)
        self._error: CallError | None = None

    @abstractmethod
    def _read(self, event: RawEvent) -> Iterable[Delta]:
        """Take the next event, or a whole reply, and give what to show of it.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError, ContentError: it cannot be read.
        """

    def add(self, event: RawEvent) -> Sequence[Delta]:
        """Take the next event, or a whole reply, and return what to show of it: see `ReplyReader.add`."""
        shown: list[Delta] = []
        try:
            shown.extend(self._read(event))
        except (*UNREADABLE, ContentError) as error:
            passes = self.damage_passes or is_cut(event, error)
            self._fail(unreadable(self.sender.provider, event, error), retryable=passes)
        return shown

    def _fail(
        self, message: str, *, retryable: bool = True, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        """Note an error. The first one counts: later ones follow from it."""
        if self._error is None:
            self._error = CallError(message=message, retryable=retryable, status=status, retry_after_s=retry_after_s)
