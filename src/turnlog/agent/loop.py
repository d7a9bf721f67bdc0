"""The run loop: ask a model, run the tools that it calls, record everything, and go on until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnlog.agent.combined import CombinedTools
from turnlog.agent.events import CallStarted, OnEvent, OnWindow, TurnRecorded
from turnlog.agent.execution import Execution
from turnlog.agent.followers import Followers
from turnlog.agent.functions import Function, Functions
from turnlog.agent.ledger import Ledger
from turnlog.agent.mcp import McpTools
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.policy import (
    ITERATIONS_MAX,
    PARALLEL_MAX,
    TOOL_RETRIES_MAX,
    TOOL_RETRY_WAIT_S,
    TOOL_TIMEOUT_S,
    Approve,
    OnApproval,
    OnInterrupted,
    OnToolError,
    Policy,
)
from turnlog.agent.result import RunResult, Stopped, summed
from turnlog.agent.run_log import Content, RunLog
from turnlog.agent.settled import settled
from turnlog.agent.start import PAUSED, Start, find_start, open_calls, server_names
from turnlog.agent.target import Named, Replies, Target, find_target
from turnlog.agent.toolbox import Toolbox
from turnlog.calls import RecordedToolCall
from turnlog.errors import ErasedSinceError, MetaError, ToolCallTakenError
from turnlog.model import (
    CallError,
    ContextWindow,
    Delta,
    Options,
    Response,
    Tool,
    ToolUse,
    Usage,
    WindowChange,
)
from turnlog.model.plain import plain_json
from turnlog.providers import Connection, OnLoss, Parameters, PreparedRequest, Provider, RawEvent
from turnlog.record.redaction import API_KEY, API_KEY_BYTES_MIN, marker
from turnlog.record.secrets import refuse_secrets
from turnlog.turn import Turn

P = ParamSpec("P")
R = TypeVar("R")

Tools = Toolbox | Function | Sequence[Toolbox | Function]
"""Tools that are given to a run: Python functions, toolboxes, or several of both."""

_UNANSWERED: frozenset[Stopped] = frozenset({"unanswered", "interrupted", "busy"})
"""Reasons to stop with tool calls that have no result yet."""

_FREE_CHOICES = ("auto", "none")
"""The tool choices that do not force a call. Any other one holds for the first call: else a run would never end."""


async def arun(  # noqa: PLR0913 - one argument for each thing that can be said of a run
    log: RunLog,
    content: Content | None = None,
    *,
    continues: str | Sequence[str] | None = None,
    respond: bool = False,
    bookmark: str | UnsetType | None = UNSET,
    pointer: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    servers: Sequence[str] | None = None,
    search: bool | None = None,
    tool_mode: str | None = None,
    tools: Tools = (),
    approve: Approve = "ask",
    allow: str | Sequence[str] = (),
    on_approval: OnApproval | None = None,
    on_delta: Callable[[Delta], None] | None = None,
    on_event: OnEvent | None = None,
    on_window: OnWindow | None = None,
    offer: str | Sequence[str] | None = None,
    iterations_max: int = ITERATIONS_MAX,
    total_tokens_max: int | None = None,
    tool_timeout_s: float = TOOL_TIMEOUT_S,
    parallel_max: int = PARALLEL_MAX,
    tool_choice: str | None = None,
    on_tool_error: OnToolError = "continue",
    on_interrupted: OnInterrupted = "ask",
    tool_retries_max: int = TOOL_RETRIES_MAX,
    tool_retry_wait_s: float = TOOL_RETRY_WAIT_S,
    params: Parameters | None = None,
    on_loss: OnLoss | None = None,
    stream: bool = True,
    connection: Connection | None = None,
    adapter: Provider | None = None,
    replay: Replies | None = None,
    subject: str | UnsetType | None = UNSET,
) -> RunResult:
    """Add a turn, ask a model, run the tools that it calls, and go on until it is done. All is recorded as it happens.

    A model call that fails is recorded as a failed turn and ends the run: the result says so, and nothing is raised.
    Who cancels a run, by Ctrl-C or otherwise, finds in the log what had arrived, as an aborted turn, and a result for
    each tool call that was at work; then the cancellation goes on.

    Args:
        log: the log; `TurnLog.run` and `TurnLog.arun` are its methods.
        content: what to say, as for `add_turn`; None goes on from a turn: unanswered tool calls are run, a failed
            call is made again, a question that was recorded is asked.
        continues: the turns to continue, by id or bookmark; as for `add_turn`, as are the next two.
        respond: continue the turn that was recorded last in the log.
        bookmark: the bookmark to move along.
        pointer: the pointer to the model. By default, that which the turns before have set. It is written into the
            turn, as are the four below, and holds from here on.
        provider: the provider to ask, with `model`, in place of a pointer. Neither is written into the turn.
        model: the model to ask.
        servers: names of MCP servers whose tools to offer.
        search: whether the provider may search.
        tool_mode: a provider's tool mode.
        tools: more tools: Python functions and toolboxes. They are entered and left with the run.
        approve: what to do with tool calls: `ask` calls `on_approval`, `auto` runs them, `never` refuses them.
        allow: patterns of tool names, such as `fs___read_*`, whose calls always run.
        on_approval: asked for each call that needs approval. Without it the run stops at such a call.
        on_delta: called with each piece of a reply as it comes.
        on_event: called with what happens: turns, calls, tools.
        on_window: called with the context window before each model call; what it returns is what the model is asked
            with, and the call keeps what is other in it. Turns stay as they are. It may be called again for one call.
        offer: patterns of the names of the tools to offer, such as `fs___*`; all by default.
        iterations_max: how many model calls it may make, at least 1.
        total_tokens_max: how many tokens they may take together, None for no limit.
        tool_timeout_s: how long a tool call may take, in seconds.
        parallel_max: how many tools may run at the same time, at least 1.
        tool_choice: `auto`, `none`, `required` or the name of a tool. What forces a call holds for the first one.
        on_tool_error: tell the model (`continue`), stop after that (`abort`), or try the tool again first (`retry`).
        on_interrupted: what to do with a tool call that an earlier run began and whose end is not known, because it was
            killed: ask `on_approval`, whatever `approve` says (`ask`); call the tool again as if it had not been called
            (`repeat`); or tell the model that nobody knows (`report`). A call whose result is recorded is not repeated.
        tool_retries_max: how often to try a failing tool again.
        tool_retry_wait_s: how long to wait before the first retry, in seconds; then twice as long each time.
        params: parameters of the model calls; they win over those of the pointer.
        on_loss: what to do with what the provider's api cannot carry.
        stream: ask for the reply in pieces, where the provider can.
        connection: another way to the provider than key and endpoint that are set up.
        adapter: another adapter than the provider's.
        replay: recorded replies to give in place of asking anybody: `calls.replies()` of the log that has them.
        subject: whom the turn is about or of, as for `add_turn`; all turns of the run have it.

    Returns:
        Why it stopped, the turns that it recorded, the last reply, and the tokens.

    Raises:
        RunError: the run cannot begin: nothing was recorded. `why` it stopped is in the result.
        UnknownTurnError, UnknownPointerError, UnknownProviderError, UnknownServerError: nothing has this name; nothing
            was recorded.
        MissingKeyError, MissingPackageError: the provider is not set up; nothing was recorded.
        ToolServerError: an MCP server cannot be started; nothing was recorded.
        UnsupportedContentError: the provider's api cannot carry something; the turns so far are recorded.
        ContentError, MetaError, SecretError, RedactionError, HeadConflictError: as for `add_turn`.
    """
    given_params: dict[str, Any] = plain_json(params or {}, "params", MetaError)
    refuse_secrets(given_params, field="params")
    if tool_choice is not None:
        given_params["tool_choice"] = tool_choice
    named = {"provider_ptr": pointer, "servers": servers, "search": search, "tool_mode": tool_mode}
    run = _Run(
        log,
        bookmark=bookmark,
        subject=subject,
        policy=Policy(
            approve=approve,
            allow=_patterns(allow),
            offer=None if offer is None else _patterns(offer),
            iterations_max=iterations_max,
            total_tokens_max=total_tokens_max,
            tool_timeout_s=tool_timeout_s,
            parallel_max=parallel_max,
            on_tool_error=on_tool_error,
            on_interrupted=on_interrupted,
            tool_retries_max=tool_retries_max,
            tool_retry_wait_s=tool_retry_wait_s,
        ),
        asked=_Asked(
            named=Named(
                pointer=pointer,
                provider=provider,
                model=model,
                adapter=adapter,
                connection=connection,
                replay=replay,
            ),
            params=given_params,
            on_loss=on_loss,
            stream=stream,
        ),
        followers=Followers(on_approval=on_approval, on_delta=on_delta, on_event=on_event, on_window=on_window),
    )
    given = {name: value for name, value in named.items() if value is not None}
    return await run.run(content, continues, respond, given, _toolboxes(tools))


def _in_own_loop(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Return a coroutine function as a plain one, that runs it in an event loop of its own."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with OwnLoop(instead="await `TurnLog.arun` or `AsyncTurnLog.run` there") as loop:
            return loop.run(function(*args, **kwargs))

    run.__name__ = run.__qualname__ = "run"
    return run


run = _in_own_loop(arun)


class _Asked(Struct, frozen=True, kw_only=True):
    """How models are to be asked."""

    named: Named
    params: Mapping[str, Any]
    on_loss: OnLoss | None
    stream: bool


class _Run:
    """One run, from its first turn to the reason that it stops for."""

    def __init__(
        self,
        log: RunLog,
        *,
        bookmark: str | UnsetType | None,
        subject: str | UnsetType | None,
        policy: Policy,
        asked: _Asked,
        followers: Followers,
    ) -> None:
        self._log = log
        self._bookmark = bookmark
        self._subject = subject
        self._policy = policy
        self._asked = asked
        self._followers = followers
        self._head: Turn | None = None
        self._turns: list[Turn] = []
        self._calls: list[str] = []
        self._response: Response | None = None
        self._usage = Usage()

    async def run(
        self,
        content: Content | None,
        continues: str | Sequence[str] | None,
        respond: bool,
        inherited: Mapping[str, Any],
        boxes: Sequence[Toolbox],
    ) -> RunResult:
        # Whatever can go wrong before the first call should do so before the turn is recorded: then it can be given
        # again as it is.
        def begin() -> tuple[Start, Target, list[Toolbox]]:
            adds = content is not None
            told = inherited if adds else {name: inherited[name] for name in inherited if name != "provider_ptr"}
            start = find_start(self._log, continues, respond=respond, adds=adds, inherited=told)
            target = find_target(self._log, self._asked.named, start.options)
            return start, target, [*boxes, *self._servers(start.options, boxes)]

        start, target, opened = await self._log.executors.run_read(begin)
        async with CombinedTools(opened) as tools:
            offered = [tool for tool in await tools.tools() if self._policy.offers(tool.name)]
            pending: tuple[RecordedToolCall, ...] = ()
            if content is not None:
                await self._add(content, start.continues, inherited, target)
            elif (head := start.head) is not None:
                self._head = head
                pending = await self._log.executors.run_read(open_calls, self._log, head)
            return await self._go(target, tools, offered, pending)

    def _servers(self, options: Options, boxes: Sequence[Toolbox]) -> list[Toolbox]:
        """Return a toolbox of the MCP servers that the options name and no given toolbox has; none for none."""
        wanted = server_names(options)
        held = {name for box in boxes for name in box.servers}
        servers = [self._log.servers.get(name) for name in wanted if name not in held]
        return [McpTools(servers, call_timeout_s=self._policy.tool_timeout_s)] if servers else []

    async def _go(
        self, target: Target, tools: CombinedTools, offered: Sequence[Tool], pending: tuple[RecordedToolCall, ...]
    ) -> RunResult:
        while True:
            await asyncio.sleep(0)  # a cancellation that waited for something to be recorded is delivered here
            if pending:
                stopped = await self._answer(pending, target, tools, offered)
                if stopped is not None:
                    return self._result(stopped, pending if stopped in _UNANSWERED else ())
            response = await self._ask(target, tools, offered)
            stopped, pending = self._after(response)
            if stopped is not None:
                return self._result(stopped, pending)

    def _after(self, response: Response) -> tuple[Stopped | None, tuple[RecordedToolCall, ...]]:
        """Return why to stop after a reply, None to go on, and the tool calls to answer."""
        turn = self._at().id
        calls = tuple(
            RecordedToolCall(turn=turn, block=index, call=block)
            for index, block in enumerate(response.content)
            if isinstance(block, ToolUse)
        )
        match response.stop_reason:
            case "error" | "aborted" | "refusal":
                return response.stop_reason, ()
            case "length":
                return "length", calls
            case "stop" | "tool_use":
                pass
        if not calls and response.raw_stop_reason != PAUSED:
            return "done", ()
        if len(self._calls) >= self._policy.iterations_max:
            return "iterations", calls
        tokens_max = self._policy.total_tokens_max
        if tokens_max is not None and self._usage.total_tokens >= tokens_max:
            return "tokens", calls
        return None, calls

    # Ask the model

    async def _ask(self, target: Target, tools: CombinedTools, offered: Sequence[Tool]) -> Response:
        head = self._at()
        asked = self._asked

        def prepare(window: ContextWindow) -> PreparedRequest:
            return target.adapter.prepare_request(
                window,
                offered,
                model=target.model,
                params=self._params(target, window.options),
                on_loss=asked.on_loss,
                stream=asked.stream and target.adapter.capabilities.streams,
            )

        def record(request: PreparedRequest, change: WindowChange | None) -> str:
            return self._log.calls.record(head.id, request, servers=tools.servers, window=change)

        while True:
            window = await self._log.executors.run_read(self._log.context, head.id)
            window, change = await self._followers.shown(window)
            request = await self._log.executors.run_read(prepare, window)
            try:
                call = await settled(self._log.executors, partial(record, request, change))
                break
            except ErasedSinceError:
                continue  # the window is another one now
        self._calls.append(call)
        return await self._send(target, request, call, len(offered))

    async def _send(self, target: Target, request: PreparedRequest, call: str, tools: int) -> Response:
        events: list[RawEvent] = []
        try:
            await asyncio.sleep(0)  # as in `_go`: what is cancelled already is not sent
            self._followers.tell(
                CallStarted(
                    call=call,
                    iteration=len(self._calls),
                    provider=request.provider,
                    model=request.model,
                    request_bytes=sum(map(len, request.parts)),
                    tools=tools,
                    loss_report=request.loss_report,
                )
            )
            reply = await target.adapter.acall(
                request, target.connection, on_event=events.append, on_delta=self._deltas(call)
            )
        except BaseException as error:
            arrived = target.adapter.aggregate(events, model=request.model)
            await self._reply(target, call, events, arrived.failed(_cause(error), stop_reason="aborted"))
            raise
        return await self._reply(target, call, reply.events, reply.response)

    def _deltas(self, call: str) -> Callable[[Delta], None]:
        """Return what is given each piece of a reply: for whoever started the run, and for those who follow the log."""
        own, publish = self._followers.on_delta, self._log.feeds.streams.of_call(call)
        if own is None:
            return publish

        def on_delta(delta: Delta) -> None:
            own(delta)
            publish(delta)

        return on_delta

    def _params(self, target: Target, options: Options) -> Parameters:
        params = {**target.adapter.call_params, **target.params, **self._asked.params}
        choice = params.get("tool_choice", options.get("tool_mode"))
        if self._calls and choice is not None and choice not in _FREE_CHOICES:
            params["tool_choice"] = "auto"
        return params

    async def _reply(self, target: Target, call: str, events: Sequence[RawEvent], response: Response) -> Response:
        key = target.connection.api_key
        response = _without_key(response, key)
        self._response = response
        self._usage = summed(self._usage, response.usage)
        continues, bookmark = self._at().id, self._take_bookmark()
        turn = await settled(
            self._log.executors,
            lambda: self._log.calls.record_reply(
                call, events, response, continues=continues, bookmark=bookmark, api_key=key
            ),
        )
        self._recorded(turn)
        return response

    # Answer its tool calls

    async def _answer(
        self, calls: tuple[RecordedToolCall, ...], target: Target, tools: CombinedTools, offered: Sequence[Tool]
    ) -> Stopped | None:
        followers = self._followers
        ledger = Ledger(self._log, api_key=target.connection.api_key)
        execution = Execution(calls, tools, offered, self._policy, followers.on_approval, followers.tell, ledger)
        decisions = await execution.decide()
        if isinstance(decisions, str):
            return decisions
        try:
            await execution.execute(decisions)
        except ToolCallTakenError:
            return "busy"
        except BaseException:
            await self._record_results(execution, target)
            raise
        await self._record_results(execution, target)
        return "tool_error" if execution.failed and self._policy.on_tool_error == "abort" else None

    async def _record_results(self, execution: Execution, target: Target) -> None:
        bookmark, turn = self._take_bookmark(), self._at().id
        ends, known = execution.ends()
        record = partial(
            self._log.tool_calls.record_results,
            execution.results(),
            turn=turn,
            ends=ends,
            known=known,
            bookmark=bookmark,
            api_key=target.connection.api_key,
        )
        self._recorded(await settled(self._log.executors, record))

    # Record

    async def _add(
        self, content: Content, continues: Sequence[str], inherited: Mapping[str, Any], target: Target
    ) -> None:
        bookmark = self._take_bookmark()
        # The turns that follow have it from their parent.
        subject, self._subject = self._subject, UNSET
        turn = await settled(
            self._log.executors,
            lambda: self._log.add_turn(
                content,
                continues=continues,
                bookmark=bookmark,
                inherited=inherited or None,
                subject=subject,
                api_key=target.connection.api_key,
            ),
        )
        self._recorded(turn)

    def _recorded(self, turn: Turn) -> None:
        self._head = turn
        self._turns.append(turn)
        self._followers.tell(TurnRecorded(turn=turn))

    def _take_bookmark(self) -> str | UnsetType | None:
        """Return the bookmark that the caller named, for the first turn; the others move along with it."""
        bookmark, self._bookmark = self._bookmark, UNSET
        return bookmark

    def _at(self) -> Turn:
        assert self._head is not None
        return self._head

    def _result(self, stopped: Stopped, unanswered: tuple[RecordedToolCall, ...]) -> RunResult:
        return RunResult(
            stopped=stopped,
            head=self._at(),
            turns=tuple(self._turns),
            calls=tuple(self._calls),
            response=self._response,
            usage=self._usage,
            unanswered=tuple(recorded.call for recorded in unanswered),
        )


def _patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return patterns: a text is one of them, not one a letter."""
    return (given,) if isinstance(given, str) else tuple(given)


def _toolboxes(tools: Tools) -> list[Toolbox]:
    """Return tools as toolboxes: functions together in one, behind the others."""
    given = [tools] if isinstance(tools, Toolbox) or callable(tools) else list(tools)
    functions = [tool for tool in given if not isinstance(tool, Toolbox)]
    boxes = [tool for tool in given if isinstance(tool, Toolbox)]
    return [*boxes, Functions(functions)] if functions else boxes


def _without_key(response: Response, key: str | None) -> Response:
    """Return a response whose error does not repeat the key: it is shown to people."""
    error = response.error
    if error is None or key is None or len(key) < API_KEY_BYTES_MIN or key not in error.message:
        return response
    masked = msgspec.structs.replace(error, message=error.message.replace(key, marker(API_KEY)))
    return msgspec.structs.replace(response, error=masked)


def _cause(error: BaseException) -> CallError:
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return CallError(message="cancelled")
    return CallError(message=f"broken off by {type(error).__name__}: {error}")
