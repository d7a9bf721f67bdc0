"""The Messages API of Anthropic (https://docs.anthropic.com/en/api/messages).

A message is a role and a list of blocks. System turns are joined at the top, images and PDFs are blocks of their own,
also in tool results, and blocks of a kind that turnlog does not know (server tools and their results, …) go back as
they came. `breakpoints.py` marks what is to be cached, `reply.py` reads what comes back, `client.py` has the network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from turnlog.model import Delta, Response
from turnlog.providers.anthropic import client
from turnlog.providers.anthropic.breakpoints import BREAKPOINTS_MAX, with_breakpoints
from turnlog.providers.anthropic.reply import Assembly, event_deltas
from turnlog.providers.anthropic.request import encode_message, request_frame
from turnlog.providers.carriage import Capabilities, Carried, CarriedConversation
from turnlog.providers.interface import Connection, Frame, FrameInput, PreparedRequest, Provider, RawEvent

_DOCUMENTS = ("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf")


class Anthropic(Provider):
    """The adapter of the Messages API.

    `temperature`, `top_p` and `top_k` are in no API version after 2023-06-01: a body that has them is sent as of that
    version, any other as of the SDK's own. Models that do not take them answer with an error.
    """

    name = "anthropic"
    provider = "anthropic"
    api = "messages"
    version = "1"
    key_variable = "ANTHROPIC_API_KEY"
    capabilities = Capabilities(
        documents=_DOCUMENTS,
        result_documents=_DOCUMENTS,
        blank_text=False,
        thinking="signed",
        thinking_last=False,
        native=True,
        system="joined",
        tool_id_pattern="[a-zA-Z0-9_-]+",
        tool_id_characters_max=64,
        result_errors=True,
        search="beside_tools",
        cache_breakpoints_max=BREAKPOINTS_MAX,
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return [encode_message(carried)]

    def _frame(self, given: FrameInput) -> Frame:
        return request_frame(self.name, given)

    def _with_breakpoints(self, carried: CarriedConversation) -> Sequence[bytes]:
        room = BREAKPOINTS_MAX - (carried.system_cached and bool(carried.system))
        return with_breakpoints(carried.messages, carried.cached, room)

    def deltas(self, event: RawEvent) -> Sequence[Delta]:
        """Return what to show of an event of a stream, or of a whole reply: see `Provider.deltas`.

        Tool calls have no id here. Results of a web search are CSV, a line a result; what other server tools found is
        JSON.
        """
        return event_deltas(self.name, event)

    def aggregate(self, events: Iterable[RawEvent], *, model: str | None = None) -> Response:
        """Return what the events of a stream, or one whole reply, add up to: see `Provider.aggregate`.

        Thinking and native blocks are marked as those of the model that the reply names, a dated version, as a rule, of
        the one that was asked.
        """
        assembly = Assembly(self.name, self.provider, self.api, model)
        for event in events:
            assembly.add(event)
        return assembly.response()

    def models(self, connection: Connection) -> list[str]:
        """Ask for the models, all pages of them, and return their names, sorted: see `Provider.models`."""
        return client.list_models(self.name, connection)

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Iterator[RawEvent]]:
        return client.open_stream(self.name, request, connection)

    def _aopen(
        self, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        return client.aopen_stream(self.name, request, connection)
