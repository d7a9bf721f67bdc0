"""The model calls of a run: asking, asking again, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.agent.combined import CombinedTools
from turnlog.agent.events import CallRetried, CallStarted, UsageMissing
from turnlog.agent.followers import Followers
from turnlog.agent.letting_go import GRACE_S, cancellations, cancelled_from_without, check_cancelled, ended_or_left
from turnlog.agent.middleware import Asking, CallModel, Layers, ModelCall, around
from turnlog.agent.output import Output
from turnlog.agent.policy import Policy
from turnlog.agent.read_on import Reading
from turnlog.agent.recording import Recording
from turnlog.agent.result import summed
from turnlog.agent.run_log import RunLog
from turnlog.agent.target import Named, Target
from turnlog.errors import ContentError, ErasedSinceError, MetaError, RunError
from turnlog.events import Recorded
from turnlog.model import CallError, ContextWindow, Delta, LossReport, Options, Response, Tool, Usage
from turnlog.model.api_keys import stands_out
from turnlog.model.kinds import check_type
from turnlog.providers import OnLoss, Parameters, PreparedRequest, Provider, RawEvent
from turnlog.providers.tool_choice import unforced
from turnlog.providers.wire import pause_s
from turnlog.record.findings import marker
from turnlog.record.key_hook import API_KEY
from turnlog.store.telling import logger

_log = logger("turnlog.runs")


class Asked(Struct, frozen=True, kw_only=True):
    """How models are to be asked."""

    named: Named
    params: Mapping[str, Any]
    on_loss: OnLoss | None
    stream: bool
    output: Output[Any] | None = None


class ModelCalls:
    """The model calls of a run, one after the other: each is recorded, and so is what comes of it."""

    def __init__(
        self,
        log: RunLog,
        policy: Policy,
        asked: Asked,
        followers: Followers,
        recording: Recording,
        reading: Reading,
        layers: Layers,
    ) -> None:
        self._log = log
        self._policy = policy
        self._asked = asked
        self._followers = followers
        self._recording = recording
        self._reading = reading
        self._layers = layers
        self._shown = False
        """Whether anything of the reply that arrives was shown."""
        self._counts_tokens = policy.total_tokens_max is not None
        """Whether it is to be told where a reply says no usage."""
        self.loading: asyncio.Future[None] | None = None
        """An import of what calls need, which goes on beside."""
        self.iterations = 0
        """How often the model was asked. Tries of one call count once."""
        self.response: Response | None = None
        """The last reply, None for none so far."""
        self.usage = Usage()
        """What all calls took."""

    @property
    def took_all_tokens(self) -> bool:
        """Whether all calls have taken as many tokens as they may."""
        tokens_max = self._policy.total_tokens_max
        return tokens_max is not None and self.usage.total_tokens >= tokens_max

    async def make(
        self, target: Target, tools: CombinedTools, offered: Sequence[Tool]
    ) -> tuple[Response, Sequence[Tool]]:
        """Make one model call, with all that goes around it; return the reply, and the tools that it was offered."""
        self.iterations += 1
        call = ModelCall(
            turn=self._recording.head,
            iteration=self.iterations,
            provider=target.adapter.provider,
            model=target.model,
            params=deepcopy({**target.adapter.call_params, **target.params, **self._asked.params}),
            tools=tuple(offered),
        )
        asking = Asking(call)

        async def ask(given: ModelCall) -> Response:
            return await asking.ask(given, partial(self._ask, target, tools))

        layers = (*self._layers.model, partial(self._tried, target))
        before = cancellations()
        try:
            with cancelled_from_without("a middleware of model calls"):
                returned = await self._within_layers(around(ask, layers)(call), asking)
        finally:
            await asking.end()
        response = asking.checked(returned)
        if asking.response is None:
            await self._record_own(response, target)
        await check_cancelled(before)
        return response, asking.offered

    async def _within_layers(self, call: Awaitable[Response], asking: Asking) -> Response:
        if not self._layers.model:
            return await call

        def leave() -> None:
            asking.leave()
            _log.warning("a middleware of model calls goes on %g s after it was cancelled: it is left", GRACE_S)

        return await ended_or_left(call, leave, is_busy=asking.breaks_off)

    async def _tried(self, target: Target, call: ModelCall, ask: CallModel) -> Response:
        """Ask, and ask again where that may help and nothing of a reply was shown. Each try is a call of its own.

        Raises:
            CancelledError: the run was cancelled, also where an adapter makes another error of that.
            RunError: a middleware asks again, and the limit of tokens is reached.
        """
        if self.took_all_tokens:
            raise RunError("a middleware asks again, and the limit of tokens is reached (total_tokens_max)")
        tries_max = self._policy.tries_max or 1 + target.connection.retries_max
        tries, before = 0, cancellations()
        while True:
            response = await ask(call)
            await check_cancelled(before)
            tries += 1
            error = response.error
            if error is None or not error.retryable or self._shown or tries >= tries_max or self.took_all_tokens:
                return response
            asked_s = error.retry_after_s
            if asked_s is not None and asked_s > self._policy.retry_wait_max_s:
                return response
            wait_s = pause_s(tries) if asked_s is None else asked_s
            self._followers.tell(CallRetried(call=self._recording.calls[-1], error=error, tries=tries, wait_s=wait_s))
            await asyncio.sleep(0 if self._asked.named.replay is not None else wait_s)

    async def _ask(self, target: Target, tools: CombinedTools, given: ModelCall) -> Response:
        head = self._recording.head
        asked = self._asked

        def prepare(window: ContextWindow) -> PreparedRequest:
            return target.adapter.prepare_request(
                window,
                given.tools,
                model=given.model,
                params=self._params(given.params, window.options),
                on_loss=asked.on_loss,
                stream=asked.stream and target.adapter.capabilities.streams,
            )

        while True:
            window = await self._log.executors.run_read(self._log.context, head.id)
            wanted = await self._followers.shown(window)
            is_own = wanted is window
            window, change = await self._log.executors.run_read(self._reading.to_ask, window, wanted, given.tools)
            request = await self._log.executors.run_read(prepare, window)
            if not request.messages:  # which no API takes
                raise _nothing_to_ask(target.adapter.name, request.loss_report, is_own=is_own)
            del window, wanted  # as large as the request
            if self.loading is not None:
                # Else it would count as time that the model took: a call is recorded when it is sent.
                await asyncio.wait([self.loading])
            try:
                call = await self._recording.call(request, servers=tools.servers, change=change)
                break
            except ErasedSinceError:
                continue  # the window is another one now
        return await self._send(target, request, call, len(given.tools))

    async def _send(self, target: Target, request: PreparedRequest, asked: Recorded, tools: int) -> Response:
        events: list[RawEvent] = []
        call = asked.header.id
        self._shown = False
        # The tries are made here, where each is recorded, and not by the SDK.
        timeout_s = self._policy.call_timeout_s or target.connection.timeout_s
        connection = msgspec.structs.replace(target.connection, retries_max=0, timeout_s=timeout_s)
        try:
            await asyncio.sleep(0)  # what is cancelled already is not sent
            self._followers.tell(
                CallStarted(
                    call=call,
                    iteration=self.iterations,
                    provider=request.provider,
                    model=request.model,
                    request_bytes=sum(map(len, request.parts)),
                    tools=tools,
                    loss_report=request.loss_report,
                )
            )
            reply = await target.adapter.acall(
                request, connection, on_event=events.append, on_delta=self._deltas(asked)
            )
        except GeneratorExit:  # the event loop is gone: nothing can be recorded
            raise
        except BaseException as error:
            arrived = _arrived(target.adapter, events, request)
            await self._reply(target, call, events, arrived.failed(_cause(error), stop_reason="aborted"), request)
            raise
        return await self._reply(target, call, reply.events, reply.response, request)

    def _deltas(self, call: Recorded) -> Callable[[Delta], None]:
        """Return what is given each piece of a reply: for whoever started the run, and for those who follow the log."""
        publish = self._log.feeds.streams.of_call(call)

        def on_delta(delta: Delta) -> None:
            self._shown = self._shown or _shows(delta)
            self._followers.show(delta)
            publish(delta)

        return on_delta

    def _params(self, params: Parameters, options: Options) -> Parameters:
        choice = params.get("tool_choice", options.get("tool_mode"))
        # A call that is asked for is asked for once: else a run would never end.
        if self.iterations > 1 and choice is not None and (free := unforced(choice)) != choice:
            return {**params, "tool_choice": free}
        return params

    async def _reply(
        self, target: Target, call: str, events: Sequence[RawEvent], response: Response, request: PreparedRequest
    ) -> Response:
        key = target.connection.api_key
        try:
            response = _without_key(response, key)
            drafted = self._recording.drafted(response)
        except (ContentError, MetaError) as error:  # an adapter's fault: what came is recorded all the same
            _log.error("a reply cannot be recorded as %s read it", target.adapter.name)
            why = f"the reply cannot be recorded as {target.adapter.name} read it: {error}"
            response = _without_key(_nothing_of(request).failed(CallError(message=why)), key)
            drafted = self._recording.drafted(response)
        self.response = response
        self.usage = summed(self.usage, response.usage)
        await self._recording.reply(call, events, response, drafted, api_key=key)
        says_usage = response.usage is not None and response.usage.total_tokens > 0
        if self._counts_tokens and response.error is None and not says_usage:
            self._counts_tokens = False
            self._followers.tell(UsageMissing(call=call))
        return response

    async def _record_own(self, response: Response, target: Target) -> None:
        """Record a reply that a middleware gave in place of asking."""
        key = target.connection.api_key
        response = _without_key(response, key)
        self.response = response
        await self._recording.own_reply(response, api_key=key)


def _arrived(adapter: Provider, events: Sequence[RawEvent], request: PreparedRequest) -> Response:
    """Return what the events of a call that was broken off add up to; nothing, where they cannot be read."""
    try:
        return adapter.aggregate(events, model=request.model)
    except Exception:  # noqa: BLE001 - most often it is what broke the call off: the events are recorded as they came
        _log.exception("what arrived of a reply cannot be read by %s", adapter.name)
        return _nothing_of(request)


def _nothing_of(request: PreparedRequest) -> Response:
    """Return a reply to a request that says nothing."""
    return Response(content=(), model=request.model, stop_reason="error", provider=request.provider, api=request.api)


def _shows(delta: Delta) -> bool:
    """Return whether a piece of a reply shows anything: a text that only begins does not."""
    return bool(delta.content) or delta.type not in (None, "text", "thinking")


def _without_key(response: Response, key: str | None) -> Response:
    """Return a response whose error does not repeat the key: it is shown to people."""
    error = response.error
    if error is None or not stands_out(key) or key not in check_type(error, CallError, "error").message:
        return response
    masked = msgspec.structs.replace(error, message=error.message.replace(key, marker(API_KEY)))
    return msgspec.structs.replace(response, error=masked)


def _cause(error: BaseException) -> CallError:
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return CallError(message="cancelled")
    return CallError(message=f"broken off by {type(error).__name__}: {error}")


def _nothing_to_ask(adapter: str, losses: LossReport, *, is_own: bool) -> RunError:
    """Return the error of a request without messages, with what of the window it does not carry, where there is such.

    Args:
        adapter: whose request it is.
        losses: what it does not carry.
        is_own: whether the window is that of the turn, and not one that `on_window` has returned.
    """
    whose = "the thread" if is_own else "the window that on_window returned"
    said = f"there is nothing to ask: to {adapter} {whose} has no message"
    kept = "keep what is asked, and calls with results"
    lost = next((entry for entry in losses.entries if entry.kind == "dropped"), None)
    if lost is None:
        return RunError(f"{said} beside system turns: {'give content too' if is_own else kept}")
    index = "" if lost.index is None else f"content[{lost.index}] of "
    advice = "" if is_own else f": {kept}"
    return RunError(f"{said} that it takes: {index}turn {lost.turn!r} is left out ({lost.why}){advice}")
