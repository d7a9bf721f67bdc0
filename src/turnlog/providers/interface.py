"""The contract of a provider adapter: between context windows and one provider's wire, in both directions.

An adapter is pure but for `call`, `acall` and `models`: it touches no storage, no clock and no chance. An adapter MUST
keep these promises, which `turnlog.testing.ProviderSuite` checks:

- The same window, tools, model and parameters give the same bytes, in any process and on any day.
- The body of a longer conversation starts with that of the shorter one, up to its closing brackets. Cache breakpoints,
  which move, system turns, where the wire has them at the top, results that were made up for calls which nobody had
  answered yet, calls of the provider's own tools whose turn ends without a result, and whitespace at the end of a
  conversation that ends with the assistant are the exceptions.
- What the body does not carry as it was recorded is in the loss report, or refused. Nothing is left out in silence.
- `aggregate` of a streamed reply equals that of the same reply unstreamed.
- What `aggregate` returns goes back to the same model unchanged.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from typing import ClassVar, Protocol
from weakref import WeakSet

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError, ProviderError
from turnlog.model import ContextWindow, Delta, LossReport, Response, Tool
from turnlog.model.chunked import Chunked
from turnlog.model.cut_characters import CutCharacters
from turnlog.providers.carriage import Capabilities, Carried, CarriedConversation, Target
from turnlog.providers.conversation import Conversation
from turnlog.providers.exchange import (
    Connection,
    Gathered,
    Parameters,
    PreparedRequest,
    Reply,
    not_a_base_url,
    shown_who,
)
from turnlog.providers.losses import Losses, OnLoss
from turnlog.providers.output_schema import OutputSchema, lose, output_schema, with_output
from turnlog.providers.reader import RawEvent, ReplyReader, Sender, recordable
from turnlog.providers.server_calls import ServerPart
from turnlog.web_address import parsed

__all__ = [
    "Client",
    "Connection",
    "Frame",
    "FrameInput",
    "OnLoss",
    "Parameters",
    "PreparedRequest",
    "Provider",
    "RawEvent",
    "Reply",
    "ReplyReader",
    "Sender",
    "forget",
]

CONVERSATIONS_KEPT = 8
"""How many conversations an adapter keeps in the form of its wire, so that a longer one costs what is new of it."""

CONVERSATION_BYTES_MAX = 128 * 1024 * 1024
"""A conversation that takes more bytes, with the window that it is of, is not kept: it would be for a long time."""


class Frame(Struct, frozen=True, kw_only=True):
    """The body around its messages: `head` ends where the first begins, `closing` begins where the last one ends."""

    head: bytes
    closing: bytes


class FrameInput(Struct, frozen=True, kw_only=True):
    """All that a body says beside its messages. `system` has the texts of system turns where the wire joins them.

    What of it the wire does not carry is told to `losses`. `search` is only asked of wires that have one.
    """

    system: Sequence[str]
    system_cached: bool
    tools: Sequence[Tool]
    search: bool
    tool_mode: str | None
    model: str
    params: Parameters
    stream: bool
    on_loss: OnLoss | None
    losses: Losses


class Client(Protocol):
    """The network of a wire: most often an `http.HttpClient`."""

    def open_stream(
        self, adapter: str, request: PreparedRequest, connection: Connection
    ) -> AbstractContextManager[Iterator[RawEvent]]:
        """Send the exact bytes of a request's body, and iterate over the raw events of the reply.

        A reply that is not streamed is one event. All that goes wrong is raised as `ProviderError`, while opening or
        iterating.

        Args:
            adapter: the adapter's name, for errors.
            request: what to send.
            connection: how to reach the provider.
        """
        ...

    def aopen_stream(
        self, adapter: str, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        """Do the same for asyncio."""
        ...

    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Return the names of the provider's models, sorted."""
        ...


class Provider(ABC):
    """One wire of one provider. Safe to use from many threads and tasks at once.

    Attributes:
        name: the adapter's name, by which `turnlog.providers.get` finds it.
        provider: the provider, as turns and calls record it. That of the class is whose endpoint the wire has.
        api: the provider's api, likewise.
        version: the adapter's version; a change of the bytes that it prepares is a new version.
        capabilities: what the wire can carry.
        key_variable: the environment variable that holds the API key.
        embeds_texts: whether `_encode` puts texts of user and assistant turns, what is thought, the input of calls,
            texts of results and the base64 of documents into JSON as they are, with `body.encode`. Then what is long is
            put in piece by piece, and `_encode` sees a mark in its place.
        arguments_are_text: whether it puts the input of a call into JSON as a text, by `arguments_text`.
        call_params: parameters that a recorded call adds, so that the provider reports usage.
        reserved: parameters that would overwrite a part of the body which the window or the call decides.
        client: its network. An adapter without one has `_models`, `_open` and `_aopen` of its own.
        base_url: the endpoint of the provider that the class names, or None for what its client takes. Under another
            provider's name a connection has to have one: the key is for that.
        base_url_variable: the environment variable with another endpoint that its client looks for, if any.
    """

    name: str
    provider: str
    api: str
    version: str
    capabilities: Capabilities
    key_variable: str
    embeds_texts: ClassVar[bool] = False
    arguments_are_text: ClassVar[bool] = False
    call_params: ClassVar[Parameters] = {}
    reserved: ClassVar[Collection[str]] = ()
    client: ClassVar[Client]
    base_url: ClassVar[str | None] = None
    base_url_variable: ClassVar[str | None] = None

    def __init__(self, *, provider: str | None = None, key_variable: str | None = None) -> None:
        """Make an adapter; under another provider's name where the endpoint is another's that speaks this wire.

        Which form the ids of tool calls have that such an endpoint makes is not known: they go back as they are.
        """
        if provider is not None:
            self.provider = provider
        if key_variable is not None:
            self.key_variable = key_variable
        if not self._at_home:
            self.capabilities = msgspec.structs.replace(self.capabilities, own_tool_ids_fit=False)
        self._mutex = threading.Lock()
        self._kept: list[Conversation] = []
        _made.add(self)

    def forget(self) -> None:
        """Drop the conversations that are kept: something that they carry may have been erased."""
        with self._mutex:
            self._kept = []

    # From a window to a body

    def prepare_request(
        self,
        window: ContextWindow,
        tools: Sequence[Tool] = (),
        *,
        model: str,
        params: Parameters | None = None,
        on_loss: OnLoss | None = None,
        stream: bool = True,
    ) -> PreparedRequest:
        """Return the request body of a context window, and what it does not carry as it was recorded.

        Args:
            window: the messages and the options `search` and `tool_mode`.
            tools: the tools to offer.
            model: the model to ask.
            params: see `Parameters`.
            on_loss: what to do with what the wire cannot carry. By default blocks are degraded and reported; search,
                tools and parameters are refused.
            stream: ask for a stream of events.

        Raises:
            UnsupportedContentError: the wire cannot carry something; names the adapter, the block and the turn.
            ContentError: a parameter would overwrite a part of the body, or the option `search` is no boolean.
        """
        target = Target(adapter=self.name, provider=self.provider, api=self.api, model=model, on_loss=on_loss)
        carried = self._carry(window, target)
        options = window.options
        tool_mode = options.get("tool_mode")
        losses = Losses(self.name, on_loss)
        names = self.capabilities.tool_names
        offered = tools if names is None else losses.named(tools, names)
        params = {} if params is None else params
        self.check_parameters(params)
        fitting = self._fitting(params, carried, window, model, losses)
        messages = self._with_breakpoints(carried, params, losses)
        frame = self._frame(
            FrameInput(
                system=carried.system,
                system_cached=carried.system_cached,
                tools=offered,
                search=_asks_for_search(options.get("search")) and self._searches(losses),
                tool_mode=tool_mode if isinstance(tool_mode, str) else None,
                model=model,
                params=self._with_output(fitting, offered, model, losses),
                stream=stream,
                on_loss=on_loss,
                losses=losses,
            )
        )
        return PreparedRequest(
            adapter=self.name,
            version=self.version,
            provider=self.provider,
            api=self.api,
            model=model,
            stream=stream,
            head=frame.head,
            messages=messages,
            closing=frame.closing,
            loss_report=LossReport(entries=(*losses.entries, *carried.losses)),
            tools=tuple(tools),
            params=params,
            on_loss=on_loss,
            erasure=window.erasure,
        )

    def check_parameters(self, params: Parameters) -> None:
        """Check that no parameter is `reserved`.

        Raises:
            ContentError: one is.
        """
        for name in params:
            if name in self.reserved:
                raise ContentError(f"params.{name}: the request sets it itself: leave it out", field=f"params.{name}")

    def _fitting(
        self, params: Parameters, carried: CarriedConversation, window: ContextWindow, model: str, losses: Losses
    ) -> Parameters:
        """Return the parameters that can stand beside a conversation; the others are losses."""
        del carried, window, model, losses
        return params

    def _searches(self, losses: Losses) -> bool:
        """Return whether the wire searches; a loss where it does not."""
        if self.capabilities.search == "none":
            advice = "ask another provider, or set `search` to false"
            losses.lose("dropped", "search", "search: the wire has none", advice=advice)
            return False
        return True

    def _with_output(self, params: Parameters, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        """Return parameters with the wire's own words for `output_schema`."""
        schema = output_schema(params)
        return with_output(params, {} if schema is None else self._output(schema, tools, model, losses))

    def _output(self, schema: OutputSchema, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        """Return the parameters of the wire that hold the text of a reply to a schema; none where it has none."""
        del schema, tools, model
        lose(losses, "the wire has no place for it")
        return {}

    def _carry(self, window: ContextWindow, target: Target) -> CarriedConversation:
        messages = window.messages if isinstance(window.messages, Chunked) else Chunked(window.messages)
        with self._mutex:
            conversation = next((kept for kept in self._kept if kept.continued_by(messages, target)), None)
            if conversation is None:
                conversation = Conversation(
                    self.capabilities,
                    target,
                    self._encode,
                    server_part=self._server_part,
                    embeds_texts=self.embeds_texts,
                    arguments_are_text=self.arguments_are_text,
                )
            else:
                self._kept.remove(conversation)
            carried = conversation.carry(messages)
            # Only after it went well: what raised may have left it half way.
            if conversation.size <= CONVERSATION_BYTES_MAX:
                self._kept = [conversation, *self._kept[: CONVERSATIONS_KEPT - 1]]
        return carried

    @abstractmethod
    def _encode(self, carried: Carried) -> Sequence[bytes]:
        """Return one carried message as messages of the wire: JSON objects, most often one."""

    def _server_part(self, block: Raw) -> ServerPart | None:
        """Return which call of a tool that the provider runs itself, or which result, a native block of its is.

        None for all other blocks. What its api refuses, the one without the other, is left out then, and reported.
        """
        del block
        return None

    @abstractmethod
    def _frame(self, given: FrameInput) -> Frame:
        """Return the body around its messages.

        Raises:
            UnsupportedContentError: search, tools or a parameter that the wire cannot carry.
        """

    def _with_breakpoints(self, carried: CarriedConversation, params: Parameters, losses: Losses) -> Sequence[bytes]:
        """Return the messages of a conversation, with cache breakpoints where the wire has them.

        Args:
            carried: the conversation.
            params: the parameters of the call, which may set a breakpoint too.
            losses: where breakpoints of blocks are told that are too many.
        """
        del params, losses
        return carried.messages

    # From events to a response

    @abstractmethod
    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply: most often `Reader(self._sender(model))`.

        Args:
            model: the model that was asked, for wires whose replies do not name it.
        """

    def deltas(self, event: RawEvent) -> Sequence[Delta]:
        """Return what to show of one event of a stream by itself, or of one whole reply: see `ReplyReader.add`."""
        return self.reader().add(CutCharacters().joined(event))

    def aggregate(self, events: Iterable[RawEvent], *, model: str | None = None) -> Response:
        """Return what the events of a stream add up to, or what one whole reply says: see `ReplyReader`.

        Args:
            events: the events in order, or one whole reply.
            model: the model that was asked, for wires whose replies do not name it.
        """
        reader, cut = self.reader(model=model), CutCharacters()
        for event in events:
            reader.add(cut.joined(event))
        return recordable(reader.response())

    @property
    def _at_home(self) -> bool:
        """Whether the key is for the endpoint that the wire has by itself."""
        own = getattr(type(self), "provider", None)
        return own is None or self.provider == own

    def _sender(self, model: str | None) -> Sender:
        return Sender(provider=self.provider, api=self.api, model=model)

    # Over the network

    def load(self) -> None:
        """Import what calls need, which the first one would do else: a run does so in a thread, while it records.

        What cannot be imported or read is told by the call.
        """
        load = getattr(getattr(self, "client", None), "load", None)
        if load is not None:
            with suppress(ImportError, OSError):
                load()

    def models(self, connection: Connection) -> list[str]:
        """Ask the provider for its models and return their names, sorted.

        Raises:
            ProviderError: the provider refused, or cannot be reached.
        """
        return self._models(self._at_endpoint(connection))

    def _models(self, connection: Connection) -> list[str]:
        """Ask at an endpoint: see `Client.list_models`."""
        return self.client.list_models(self.name, connection)

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Iterator[RawEvent]]:
        """Send a request to an endpoint, and iterate over the events of the reply: see `Client.open_stream`."""
        return self.client.open_stream(self.name, request, connection)

    def _aopen(
        self, request: PreparedRequest, connection: Connection
    ) -> AbstractAsyncContextManager[AsyncIterator[RawEvent]]:
        """Do the same for asyncio."""
        return self.client.aopen_stream(self.name, request, connection)

    def _at_endpoint(self, connection: Connection) -> Connection:
        """Return the connection with an endpoint, never one that the key is not for."""
        connection = msgspec.structs.replace(connection, provider=self.provider)
        if connection.base_url is not None:
            if parsed(connection.base_url) is None:
                raise not_a_base_url(self.name, connection)
            return msgspec.structs.replace(connection, who=shown_who(self.provider, connection.base_url))
        if not self._at_home:
            raise ProviderError(f"{self.provider!r} has no base URL: set one", provider=self.name)
        return msgspec.structs.replace(connection, base_url=self.base_url, who=self.provider)

    def call(
        self,
        request: PreparedRequest,
        connection: Connection,
        *,
        on_event: Callable[[RawEvent], None] | None = None,
        on_delta: Callable[[Delta], None] | None = None,
    ) -> Reply:
        """Send a request and return the reply, whole or as far as it came: a failure is part of the response.

        Args:
            request: what `prepare_request` returned.
            connection: how to reach the provider.
            on_event: called with each raw event as it comes. Whoever cancels the call has these.
            on_delta: called with each piece to show.
        """
        gathered = Gathered(self.provider, self.reader(model=request.model), connection, on_event, on_delta)
        try:
            with self._open(request, self._at_endpoint(connection)) as events:
                for event in events:
                    gathered.add(event)
        except ProviderError as error:
            return gathered.reply(error)
        return gathered.reply()

    async def acall(
        self,
        request: PreparedRequest,
        connection: Connection,
        *,
        on_event: Callable[[RawEvent], None] | None = None,
        on_delta: Callable[[Delta], None] | None = None,
    ) -> Reply:
        """Do what `call` does, for asyncio."""
        gathered = Gathered(self.provider, self.reader(model=request.model), connection, on_event, on_delta)
        try:
            async with self._aopen(request, self._at_endpoint(connection)) as events:
                async for event in events:
                    gathered.add(event)
        except ProviderError as error:
            return gathered.reply(error)
        return gathered.reply()


def _asks_for_search(option: object) -> bool:
    """Return whether a window asks for search.

    Raises:
        ContentError: the option is neither true nor false nor null.
    """
    if not (option is None or isinstance(option, bool)):
        raise ContentError(f"options.search: expected true or false, got {option!r}", field="options.search")
    return option is True


_made: WeakSet[Provider] = WeakSet()
"""All adapters of this process."""


def forget() -> None:
    """Drop what all adapters of this process keep of conversations."""
    for adapter in list(_made):
        adapter.forget()
