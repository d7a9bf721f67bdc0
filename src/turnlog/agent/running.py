"""One run: from its first turn to the reason that it stops for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnlog.agent.combined import CombinedTools
from turnlog.agent.events import BookmarkLeft, CallRetried, CallStarted, OutputRefused, ToolInterrupted, TurnRecorded
from turnlog.agent.execution import Execution
from turnlog.agent.followers import Followers
from turnlog.agent.ledger import Ledger
from turnlog.agent.letting_go import GRACE_S, cancellations, ended_or_left
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.middleware import Asking, CallModel, Layers, ModelCall, around
from turnlog.agent.offering import Offering
from turnlog.agent.opening import Opening, instruction_turns, record_opening
from turnlog.agent.others import AtWork
from turnlog.agent.output import Output
from turnlog.agent.policy import (
    Policy,
)
from turnlog.agent.read_on import Reading
from turnlog.agent.result import RunResult, Stopped, summed, text_of_replies
from turnlog.agent.run_log import Content, RunLog
from turnlog.agent.settled import settled
from turnlog.agent.start import PAUSED, Start, find_start, has_result, open_calls, server_names, stopped_calls
from turnlog.agent.target import Named, Target, find_target
from turnlog.agent.time_limit import TimeIsOverError, until
from turnlog.agent.toolbox import Toolbox
from turnlog.calls import RecordedToolCall
from turnlog.errors import ErasedSinceError, OutputError, RunError, ToolCallTakenError
from turnlog.hurry import HURRY
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
    cut_call,
)
from turnlog.providers import OnLoss, Parameters, PreparedRequest, RawEvent
from turnlog.providers.tool_choice import unforced
from turnlog.providers.wire import pause_s
from turnlog.record.bookmarks import check_head
from turnlog.record.drafts import TurnDraft, reply_draft
from turnlog.record.fields import check_bookmark, check_expected_head, check_subject
from turnlog.record.findings import marker
from turnlog.record.lookup import is_bookmark
from turnlog.record.redaction import API_KEY, API_KEY_BYTES_MIN, NOTHING
from turnlog.store.telling import logger
from turnlog.turn import Turn, turn_of

_log = logger("turnlog.runs")

_UNANSWERED: frozenset[Stopped] = frozenset({"unanswered", "interrupted", "busy"})
"""Reasons to stop with tool calls that have no result yet."""


_WITHOUT_TOOLS = frozenset({"output_schema", "tool_choice"})
"""Parameters that some providers understand in another way, or refuse, where a tool is offered."""


class Asked(Struct, frozen=True, kw_only=True):
    """How models are to be asked."""

    named: Named
    params: Mapping[str, Any]
    on_loss: OnLoss | None
    stream: bool
    output: Output[Any] | None = None


class Run:
    """One run, from its first turn to the reason that it stops for."""

    def __init__(
        self,
        log: RunLog,
        *,
        bookmark: str | Literal[False] | None,
        expected_head: str | Literal[False] | None,
        subject: str | Literal[False] | None,
        policy: Policy,
        layers: Layers,
        asked: Asked,
        followers: Followers,
    ) -> None:
        self._log = log
        self._bookmark: str | Literal[False] | None = check_bookmark(bookmark)
        self._expected_head: str | Literal[False] | None = check_expected_head(expected_head)
        self._on: str | None = None
        """The bookmark that the turns so far have moved along."""
        self._subject: str | Literal[False] | None = check_subject(subject)
        self._policy = policy
        self._layers = layers
        self._asked = asked
        self._followers = followers
        self._reading = Reading(
            policy,
            log.executors,
            lambda: log.context(self._at().id),
            without_tools=not asked.params.keys().isdisjoint(_WITHOUT_TOOLS),
        )
        self._at_work = AtWork(log)
        self._head: Turn | None = None
        self._turns: list[Turn] = []
        self._calls: list[str] = []
        self._iterations = 0
        self._shown = False
        self._response: Response | None = None
        self._paused: tuple[Response, ...] = ()
        self._usage = Usage()
        self._output: Any = None
        self._invalid: OutputError | None = None
        self._cancellations = 0
        """How often the task had been cancelled when the run began."""
        self._loading: asyncio.Future[None] | None = None
        """An import that goes on beside; kept, for tasks that nobody has may end before they do."""

    async def run(
        self,
        opening: Opening,
        continues: str | Sequence[str] | None,
        respond: bool,
        inherited: Mapping[str, Any],
        boxes: Sequence[Toolbox],
    ) -> RunResult[Any]:
        """Do the run: see `turnlog.agent.loop.arun`."""
        # Whatever can go wrong before the first call should do so before the turn is recorded: then it can be given
        # again as it is.
        self._cancellations = cancellations()
        time_max_s = self._policy.time_max_s
        ends_s = None if time_max_s is None else asyncio.get_running_loop().time() + time_max_s
        content = opening.content

        def begin() -> tuple[Start, Target, list[Toolbox], list[TurnDraft], list[RecordedToolCall]]:
            # Parts of the log that are asked for in the event loop: to import them would hold it up.
            _ = self._log.calls, self._log.tool_calls, self._log.feeds
            adds = content is not None
            told = inherited if adds else {name: inherited[name] for name in inherited if name != "provider_ptr"}
            start = find_start(self._log, continues, respond=respond, adds=adds, inherited=told)
            target = find_target(self._log, self._asked.named, start.options)
            before = opening.before(self._log, start.continues)
            stopped = [call for named in start.continues for call in stopped_calls(self._log, self._log.turn(named))]
            return start, target, [*boxes, *self._servers(start.options, boxes)], before, stopped

        async with self._at_work:
            if self._policy.wait_s is not None:
                wait_s = min(self._policy.wait_s, time_max_s or math.inf)
                await self._at_work.wait(continues, wait_s, self._followers.tell, respond=respond)
            start, target, opened, before, stopped = await self._log.executors.run_read(begin)
            for recorded in stopped:
                begun_ms = recorded.attempts[-1].begun_ms or 0
                self._followers.tell(ToolInterrupted(call=recorded.call, begun_ms=begun_ms, is_told=True))
            if start.head is not None:
                self._head = start.head
                if not await self._at_work.begin(start.head, start.continues[0]):
                    if content is None:
                        return self._result("busy", ())
                    start = replace(start, head=None)  # a tool is at work, and nothing was interrupted
            return await self._begun(opening, start, target, opened, before, inherited, ends_s)

    async def _begun(
        self,
        opening: Opening,
        start: Start,
        target: Target,
        opened: Sequence[Toolbox],
        before: Sequence[TurnDraft],
        inherited: Mapping[str, Any],
        ends_s: float | None,
    ) -> RunResult[Any]:
        content, time_max_s = opening.content, self._policy.time_max_s
        self._loading = asyncio.ensure_future(self._log.executors.run_read(target.adapter.load))
        async with CombinedTools(opened, built_in=self._reading.toolbox) as tools:
            offering = Offering(tools, self._policy, self._followers)
            try:
                async with until(ends_s):
                    offered = await offering.begin()
            except TimeIsOverError:
                raise RunError(
                    f"the tools were not there within {time_max_s:.3g} s, the limit of time: nothing was recorded"
                ) from None
            pending: tuple[RecordedToolCall, ...] = ()
            if (head := start.head) is not None:
                [named] = start.continues
                self._on = await self._log.executors.run_read(self._bookmark_of, named)
                await self._log.executors.run_read(self._expect, self._on)
                pending = await self._log.executors.run_read(open_calls, self._log, head)
                offered = await self._reading.offered(tools, offered)
            if content is not None:
                continues = start.continues
                if pending:
                    # What a tool may have done comes before what is said now.
                    stopped = await self._settle(pending, target, tools, offered, ends_s)
                    if stopped == "time":
                        return await self._out_of_time()
                    if stopped is not None:
                        return self._result(stopped, pending if stopped in _UNANSWERED else ())
                    continues, pending = (self._at().id,), ()
                parts = await self._log.executors.run_read(
                    instruction_turns, self._log, continues, tools.instructions()
                )
                await self._add(content, [*parts, *before], continues, inherited, target)
            try:
                async with until(ends_s):
                    return await self._go(target, tools, offering, offered, pending)
            except TimeIsOverError:
                return await self._out_of_time()

    async def _out_of_time(self) -> RunResult[Any]:
        return self._result("time", await self._log.executors.run_read(open_calls, self._log, self._at()))

    def _servers(self, options: Options, boxes: Sequence[Toolbox]) -> list[Toolbox]:
        """Return a toolbox of the MCP servers that the options name and no given toolbox has; none for none."""
        wanted = server_names(options)
        held = {name for box in boxes for name in box.servers}
        servers = [self._log.servers.get(name) for name in wanted if name not in held]
        return [McpTools(servers, call_timeout_s=self._policy.tool_timeout_s)] if servers else []

    async def _go(
        self,
        target: Target,
        tools: CombinedTools,
        offering: Offering,
        callable_: Sequence[Tool],
        pending: tuple[RecordedToolCall, ...],
    ) -> RunResult[Any]:
        while True:
            await asyncio.sleep(0)  # a cancellation that waited for something to be recorded is delivered here
            if cancellations() > self._cancellations:  # a middleware has passed over it, and returned something
                raise asyncio.CancelledError
            if not await self._at_work.move(self._at()):
                return self._result("busy", pending)
            if pending:
                stopped = await self._answer(pending, target, tools, callable_)
                if stopped is not None:
                    return self._result(stopped, pending if stopped in _UNANSWERED else ())
                if not await self._at_work.move(self._at()):
                    return self._result("busy", ())
            offered = await self._reading.offered(tools, await offering.again())
            response, callable_ = await self._replied(target, tools, offered)
            stopped, pending = self._after(response)
            is_paused = stopped is None and not pending
            if stopped == "done":
                stopped = await self._checked(response, target)
            if stopped is not None:
                return self._result(stopped, pending)
            self._paused = (*self._paused, response) if is_paused else ()

    def _after(self, response: Response) -> tuple[Stopped | None, tuple[RecordedToolCall, ...]]:
        """Return why to stop after a reply, None to go on, and the tool calls to answer."""
        turn = self._at().id
        cut = cut_call(response.content, response.stop_reason)
        calls = tuple(
            RecordedToolCall(turn=turn, block=index, call=block, is_cut=index == cut)
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
        if self._iterations >= self._policy.iterations_max:
            return "iterations", calls
        return ("tokens" if self._took_all_tokens else None), calls

    @property
    def _took_all_tokens(self) -> bool:
        tokens_max = self._policy.total_tokens_max
        return tokens_max is not None and self._usage.total_tokens >= tokens_max

    async def _checked(self, response: Response, target: Target) -> Stopped | None:
        """Read the value that was asked for; None where the model was told that its reply is none, and is asked again.

        It is told once.
        """
        wanted = self._asked.output
        if wanted is None:
            return "done"
        try:
            self._output = await asyncio.to_thread(wanted.read, text_of_replies(*self._paused, response))
        except OutputError as error:
            was_told, self._invalid = self._invalid is not None, error
            if was_told or self._iterations >= self._policy.iterations_max or self._took_all_tokens:
                return "invalid"
            self._followers.tell(OutputRefused(turn=self._at(), why=str(error)))
            await self._add(wanted.repair(error), (), (self._at().id,), {}, target)
            return None
        self._invalid = None
        return "done"

    # Ask the model

    async def _replied(
        self, target: Target, tools: CombinedTools, offered: Sequence[Tool]
    ) -> tuple[Response, Sequence[Tool]]:
        """Make one model call, with all that goes around it; return the reply, and the tools that it was offered."""
        self._iterations += 1
        call = ModelCall(
            turn=self._at(),
            iteration=self._iterations,
            provider=target.adapter.provider,
            model=target.model,
            params=deepcopy({**target.adapter.call_params, **target.params, **self._asked.params}),
            tools=tuple(offered),
        )
        asking = Asking(call)

        async def ask(given: ModelCall) -> Response:
            return await asking.ask(given, partial(self._ask, target, tools))

        layers = (*self._layers.model, partial(self._tried, target))
        try:
            returned = await self._within_layers(around(ask, layers)(call), asking)
        finally:
            await asking.end()
        response = asking.checked(returned)
        if asking.response is None:
            await self._record_own(response, target)
        return response, asking.offered

    async def _within_layers(self, call: Awaitable[Response], asking: Asking) -> Response:
        if not self._layers.model:
            return await call

        def leave() -> None:
            asking.leave()
            _log.warning("a middleware of model calls goes on %g s after it was cancelled: it is left", GRACE_S)

        return await ended_or_left(call, leave, is_busy=asking.breaks_off)

    async def _tried(self, target: Target, call: ModelCall, ask: CallModel) -> Response:
        """Ask, and ask again where that may help and nothing of a reply was shown. Each try is a call of its own."""
        tries_max = self._policy.tries_max or 1 + target.connection.retries_max
        tries = 0
        while True:
            response = await ask(call)
            tries += 1
            error = response.error
            if error is None or not error.retryable or self._shown or tries >= tries_max:
                return response
            wait_s = pause_s(tries) if error.retry_after_s is None else error.retry_after_s
            if wait_s > self._policy.retry_wait_max_s:
                return response
            self._followers.tell(CallRetried(call=self._calls[-1], error=error, tries=tries, wait_s=wait_s))
            await asyncio.sleep(0 if self._asked.named.replay is not None else wait_s)

    async def _ask(self, target: Target, tools: CombinedTools, given: ModelCall) -> Response:
        head = self._at()
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

        def record(request: PreparedRequest, change: WindowChange | None) -> str:
            return self._log.calls.record(head.id, request, servers=tools.servers, window=change)

        while True:
            window = await self._log.executors.run_read(self._log.context, head.id)
            wanted = await self._followers.shown(window)
            window, change = await self._log.executors.run_read(self._reading.to_ask, window, wanted, given.tools)
            request = await self._log.executors.run_read(prepare, window)
            del window, wanted  # as large as the request
            try:
                call = await settled(self._log.executors, partial(record, request, change))
                break
            except ErasedSinceError:
                continue  # the window is another one now
        self._calls.append(call)
        return await self._send(target, request, call, len(given.tools))

    async def _send(self, target: Target, request: PreparedRequest, call: str, tools: int) -> Response:
        events: list[RawEvent] = []
        self._shown = False
        # The tries are made here, where each is recorded, and not by the SDK.
        timeout_s = self._policy.call_timeout_s or target.connection.timeout_s
        connection = msgspec.structs.replace(target.connection, retries_max=0, timeout_s=timeout_s)
        try:
            await asyncio.sleep(0)  # as in `_go`: what is cancelled already is not sent
            self._followers.tell(
                CallStarted(
                    call=call,
                    iteration=self._iterations,
                    provider=request.provider,
                    model=request.model,
                    request_bytes=sum(map(len, request.parts)),
                    tools=tools,
                    loss_report=request.loss_report,
                )
            )
            reply = await target.adapter.acall(request, connection, on_event=events.append, on_delta=self._deltas(call))
        except BaseException as error:
            arrived = target.adapter.aggregate(events, model=request.model)
            await self._reply(target, call, events, arrived.failed(_cause(error), stop_reason="aborted"))
            raise
        return await self._reply(target, call, reply.events, reply.response)

    def _deltas(self, call: str) -> Callable[[Delta], None]:
        """Return what is given each piece of a reply: for whoever started the run, and for those who follow the log."""
        own, publish = self._followers.on_delta, self._log.feeds.streams.of_call(call)

        def on_delta(delta: Delta) -> None:
            self._shown = self._shown or _shows(delta)
            if own is not None:
                own(delta)
            publish(delta)

        return on_delta

    def _params(self, params: Parameters, options: Options) -> Parameters:
        choice = params.get("tool_choice", options.get("tool_mode"))
        # A call that is asked for is asked for once: else a run would never end.
        if self._iterations > 1 and choice is not None and (free := unforced(choice)) != choice:
            return {**params, "tool_choice": free}
        return params

    async def _reply(self, target: Target, call: str, events: Sequence[RawEvent], response: Response) -> Response:
        key = target.connection.api_key
        response = _without_key(response, key)
        self._response = response
        self._usage = summed(self._usage, response.usage)
        record = partial(
            self._log.calls.record_reply,
            call,
            events,
            response,
            continues=self._at().id,
            bookmark=self._take_bookmark(),
            api_key=key,
        )
        turn = await settled(self._log.executors, record)
        self._recorded(turn)
        return response

    async def _record_own(self, response: Response, target: Target) -> None:
        """Record a reply that a middleware gave in place of asking: a turn that no call is behind."""
        response = _without_key(response, target.connection.api_key)
        self._response = response
        draft = reply_draft(response, continues=self._at().id, bookmark=self._take_bookmark())
        redacted = NOTHING.with_key(target.connection.api_key, [draft.payload]).turn(draft)
        [recorded] = await settled(self._log.executors, partial(self._log.add_group, [redacted]))
        self._recorded(turn_of(recorded))

    # Answer its tool calls

    async def _settle(
        self,
        calls: tuple[RecordedToolCall, ...],
        target: Target,
        tools: CombinedTools,
        offered: Sequence[Tool],
        ends_s: float | None,
    ) -> Stopped | None:
        """Say what became of tool calls that an earlier run has begun; none of the others is begun any more."""
        try:
            async with until(ends_s):
                return await self._answer(calls, target, tools, offered, begins=False)
        except TimeIsOverError:
            return "time"

    async def _answer(
        self,
        calls: tuple[RecordedToolCall, ...],
        target: Target,
        tools: CombinedTools,
        offered: Sequence[Tool],
        *,
        begins: bool = True,
    ) -> Stopped | None:
        """Make tool calls, and record their results; return why to stop, None to go on.

        Where it does not begin any, only those are made that an earlier run has begun.
        """
        followers = self._followers
        ledger = Ledger(self._log, api_key=target.connection.api_key)
        execution = Execution(
            calls,
            tools,
            offered,
            self._policy,
            followers.on_approval,
            followers.tell,
            ledger,
            layers=self._layers.tool,
        )
        decisions = await execution.decide(begins=begins)
        if isinstance(decisions, str):
            return decisions
        try:
            await execution.execute(decisions)
        except ToolCallTakenError:
            return "busy"
        except BaseException:
            if HURRY.is_final and execution.is_broken_off:
                # Whoever goes on says what is to become of what was at work, as behind a kill: nobody here can.
                await execution.record_ends()
            else:
                await self._record_results(execution, target)
            raise
        try:
            await self._record_results(execution, target)
        except ToolCallTakenError:
            return "busy"
        return "tool_error" if execution.failed and self._policy.on_tool_error == "abort" else None

    async def _record_results(self, execution: Execution, target: Target) -> None:
        ends, known = execution.ends()
        record = partial(
            self._log.tool_calls.record_results,
            execution.results(),
            turn=self._at().id,
            ends=ends,
            known=known,
            bookmark=self._take_bookmark(),
            api_key=target.connection.api_key,
        )
        self._recorded(await settled(self._log.executors, record))

    # Record

    async def _add(
        self,
        content: Content,
        before: Sequence[TurnDraft],
        continues: Sequence[str],
        inherited: Mapping[str, Any],
        target: Target,
    ) -> None:
        # The turns that follow have it from their parent.
        subject, self._subject = self._subject, None
        record = partial(
            record_opening,
            self._log,
            content,
            before,
            continues=continues,
            bookmark=self._take_bookmark(),
            expected_head=self._take_expected_head(),
            subject=subject,
            inherited=inherited,
            api_key=target.connection.api_key,
        )
        for turn in await settled(self._log.executors, record):
            self._recorded(turn)

    def _recorded(self, turn: Turn) -> None:
        self._head = turn
        self._turns.append(turn)
        before, self._on = self._on, turn.meta.head if isinstance(turn.meta.head, str) else None
        self._followers.tell(TurnRecorded(turn=turn))
        if before is not None and self._on is None:
            self._followers.tell(BookmarkLeft(bookmark=before, turn=turn))

    def _bookmark_of(self, headish: str) -> str | None:
        """Return the bookmark that the turns of a run from a turn move along, None for none."""
        if self._bookmark is not None:
            return None
        with self._log.store.read() as transaction:
            return headish if is_bookmark(transaction, headish) else None

    def _take_bookmark(self) -> str | Literal[False] | None:
        """Return the bookmark that the caller named, for the first turn; the others move along with it."""
        bookmark, self._bookmark = self._bookmark, None
        return bookmark

    def _expect(self, continued: str | None) -> None:
        """Check where the bookmark is before any tool is called: what tools return is not given up for it.

        Raises:
            HeadConflictError: it is not where the caller expects it.
        """
        bookmark = continued if self._bookmark is None else self._bookmark or None
        with self._log.store.read() as transaction:
            check_head(transaction, bookmark, self._take_expected_head())

    def _take_expected_head(self) -> str | Literal[False] | None:
        """Return where the caller expects the bookmark, for the first turn."""
        expected, self._expected_head = self._expected_head, None
        return expected

    def _at(self) -> Turn:
        assert self._head is not None
        return self._head

    def _result(self, stopped: Stopped, unanswered: tuple[RecordedToolCall, ...]) -> RunResult[Any]:
        return RunResult(
            stopped=stopped,
            head=self._at(),
            turns=tuple(self._turns),
            calls=tuple(self._calls),
            response=self._response,
            paused=self._paused,
            usage=self._usage,
            unanswered=tuple(recorded.call for recorded in unanswered if not has_result(recorded)),
            output=self._output,
            invalid=str(self._invalid) if stopped == "invalid" else None,
        )


def _shows(delta: Delta) -> bool:
    """Return whether a piece of a reply shows anything: a text that only begins does not."""
    return bool(delta.content) or delta.type not in (None, "text", "thinking")


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
