"""One exchange with a provider: what is sent, how the provider is reached, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.errors import PluginError, ProviderError
from turnlog.model import CallError, Delta, LossReport, Response, Tool
from turnlog.model.cut_characters import CutCharacters
from turnlog.providers.losses import OnLoss
from turnlog.providers.reader import RawEvent, ReplyReader, recordable
from turnlog.web_address import parsed, shown, shown_text

Parameters = Mapping[str, Any]
"""Parameters of a call. `max_tokens`, `temperature`, `top_p`, `stop_sequences` and `tool_choice` (`auto`, `none`,
`required` or the name of a tool) have the same meaning for every provider; any other goes into the body as it is."""


class PreparedRequest(Struct, frozen=True, kw_only=True):
    """The exact body of a request, in the parts that it shares with those of shorter and longer conversations.

    Attributes:
        adapter: the adapter's name.
        version: the adapter's version.
        provider: the provider.
        api: the provider's api.
        model: the model.
        stream: whether the reply is to be streamed.
        head: the body up to the first message.
        messages: one fragment of the body a message, as the wire has them; one that is large may be several.
        closing: the rest of the body.
        loss_report: what the body does not carry as it was recorded.
        tools: the tools that it offers.
        params: the parameters that it was prepared with.
        on_loss: what was to be done with what the wire cannot carry, where it was said.
        erasure: global position of the last erasure that its window knew of, 0 for none; None if it is of no log.
    """

    adapter: str
    version: str
    provider: str
    api: str
    model: str
    stream: bool
    head: bytes
    messages: Sequence[bytes]
    closing: bytes
    loss_report: LossReport
    tools: tuple[Tool, ...] = ()
    params: Parameters = {}
    on_loss: OnLoss | None = None
    erasure: int | None = None

    @property
    def parts(self) -> Iterator[bytes]:
        """The body in its parts, in order."""
        return chain((self.head,), self.messages, (self.closing,))

    @property
    def body(self) -> bytes:
        """The body: JSON in UTF-8. Put together anew at each access."""
        return b"".join(self.parts)


class Connection(Struct, frozen=True, kw_only=True):
    """How to reach a provider. The key is never stored, printed or put into an error.

    Attributes:
        api_key: the key, or None for an endpoint that asks for none.
        base_url: another endpoint than the provider's own.
        timeout_s: how long to wait for each next piece of a reply, in seconds; for a connection at most 30 s of it.
        retries_max: how often to try again after a retryable error, before anything of a reply has come.
        who: who is reached, for errors. The adapter says so.
        provider: whose endpoint it is. The adapter says so, too.
    """

    api_key: str | None = None
    base_url: str | None = None
    timeout_s: float = 600.0
    retries_max: int = 2
    who: str = ""
    provider: str = ""

    def __repr__(self) -> str:
        """Return the connection without its key, and without what may be one in its URL."""
        base_url = None if self.base_url is None else shown_text(self.base_url)
        return f"Connection(base_url={base_url!r}, timeout_s={self.timeout_s}, retries_max={self.retries_max})"


class Reply(Struct, frozen=True, kw_only=True):
    """What came back from a call: the raw events as they were, and what they add up to."""

    events: tuple[RawEvent, ...]
    response: Response


def not_a_base_url(adapter: str, connection: Connection) -> ProviderError:
    """Return the error of an endpoint that no URL names."""
    given = shown_text(connection.base_url or "")
    return ProviderError(f"{adapter}: {given!r} is not a base URL: give http(s)://…", provider=adapter)


def shown_who(provider: str, base_url: str) -> str:
    """Return what errors call a provider at an address, without what may be a password or a key in it."""
    parts = parsed(base_url)
    return provider if parts is None else f"{provider} at {shown(parts).rstrip('/')}"


class Gathered:
    """The events of one call, as they come, and what they add up to."""

    def __init__(
        self,
        provider: str,
        reader: ReplyReader,
        connection: Connection,
        on_event: Callable[[RawEvent], None] | None,
        on_delta: Callable[[Delta], None] | None,
    ) -> None:
        """Begin with none.

        Args:
            provider: the provider's name.
            reader: reads the reply.
            connection: how the provider is reached.
            on_event: called with each event.
            on_delta: called with each piece of text.
        """
        self._name = provider
        self._base_url = connection.base_url
        self._reader = reader
        self._cut = CutCharacters()
        self._on_event = on_event
        self._on_delta = on_delta
        self._events: list[RawEvent] = []

    def add(self, event: RawEvent) -> None:
        """Take an event.

        Raises:
            PluginError: it is none.
        """
        if not isinstance(event, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - adapters err
            raise self._wrong(f"gave an event that is {type(event).__name__!r}: give bytes")
        self._events.append(event)
        if self._on_event is not None:
            self._on_event(event)
        deltas = self._reader.add(self._cut.joined(event))
        if self._on_delta is not None:
            for delta in deltas:
                self._on_delta(delta)

    def reply(self, error: ProviderError | None = None) -> Reply:
        """Return what came, with the error that ended it, if one did.

        Raises:
            PluginError: the reader returned no response.
        """
        response = self._reader.response()
        if not isinstance(response, Response):  # pyright: ignore[reportUnnecessaryIsInstance] - adapters err
            raise self._wrong(f"has a reader whose response is {type(response).__name__!r}: return a Response")
        response = recordable(response)
        told = response.error
        if error is None and told is not None and self._base_url is not None:
            # What the stream itself says has the provider's name, and not where that is.
            message = told.message.replace(self._name, shown_who(self._name, self._base_url), 1)
            response = msgspec.structs.replace(response, error=msgspec.structs.replace(told, message=message))
        if error is not None:
            response = response.failed(
                CallError(
                    message=str(error),
                    retryable=error.retryable,
                    status=error.status,
                    retry_after_s=error.retry_after_s,
                )
            )
        return Reply(events=tuple(self._events), response=response)

    def _wrong(self, what: str) -> PluginError:
        return PluginError(f"the adapter of provider {self._name!r} {what}")
