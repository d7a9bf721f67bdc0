"""One run: from its first turn to the reason that it stops for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

from msgspec.structs import replace

from turnlog.agent.combined import CombinedTools
from turnlog.agent.deciding import Deciding
from turnlog.agent.events import OutputRefused, ToolInterrupted
from turnlog.agent.execution import Execution
from turnlog.agent.followers import Followers
from turnlog.agent.ledger import Ledger
from turnlog.agent.letting_go import cancellations, check_cancelled
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.middleware import Layers
from turnlog.agent.model_calls import Asked, ModelCalls
from turnlog.agent.offering import Offering
from turnlog.agent.opening import Opening, asked_draft, instruction_turns
from turnlog.agent.others import AtWork
from turnlog.agent.policy import Policy
from turnlog.agent.read_on import Reading
from turnlog.agent.recording import Recording
from turnlog.agent.result import RunResult, Stopped, text_of_replies
from turnlog.agent.run_log import RunLog
from turnlog.agent.start import (
    PAUSED,
    Start,
    find_start,
    has_result,
    offered_of,
    open_calls,
    server_names,
    stopped_calls,
)
from turnlog.agent.target import Target, find_target
from turnlog.agent.time_limit import TimeIsOverError, until
from turnlog.agent.toolbox import Toolbox
from turnlog.calls import RecordedToolCall
from turnlog.errors import OutputError, RunError, ToolCallTakenError
from turnlog.hurry import HURRY
from turnlog.model import Options, Response, Tool, ToolUse, cut_call
from turnlog.record.drafts import TurnDraft

_UNANSWERED: frozenset[Stopped] = frozenset({"unanswered", "interrupted", "busy"})
"""Reasons to stop with tool calls that have no result yet."""


_WITHOUT_TOOLS = frozenset({"output_schema", "tool_choice"})
"""Parameters that some providers understand in another way, or refuse, where a tool is offered."""


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
        self._recording = Recording(log, followers, bookmark=bookmark, expected_head=expected_head, subject=subject)
        self._policy = policy
        self._layers = layers
        self._asked = asked
        self._followers = followers
        self._reading = Reading(
            policy,
            log.executors,
            lambda: log.context(self._recording.head.id),
            without_tools=not asked.params.keys().isdisjoint(_WITHOUT_TOOLS),
        )
        self._model_calls = ModelCalls(log, policy, asked, followers, self._recording, self._reading, layers)
        self._at_work = AtWork(log)
        self._paused: tuple[Response, ...] = ()
        self._output: Any = None
        self._invalid: OutputError | None = None
        self._cancellations = 0
        """How often the task had been cancelled when the run began."""

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
            target.adapter.check_parameters({**target.params, **self._asked.params})
            before = opening.before(self._log, start.continues)
            if content is not None and start.head is not None:
                # What would be refused is so before a broken-off tool call is settled, which stays.
                asked_draft(content, inherited)
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
                self._recording.begin(start.head)
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
        self._model_calls.loading = asyncio.ensure_future(self._log.executors.run_read(target.adapter.load))
        self._model_calls.loading.add_done_callback(_known)
        tools = CombinedTools(opened, built_in=self._reading.toolbox)
        async with AsyncExitStack() as stack:
            offering = Offering(tools, self._policy, self._followers)
            try:
                async with until(ends_s):
                    await stack.enter_async_context(tools)
                    offered = await offering.begin()
            except TimeIsOverError:
                raise RunError(
                    f"the tools were not there within {time_max_s:.3g} s, the limit of time: nothing was recorded"
                ) from None
            pending: tuple[RecordedToolCall, ...] = ()
            if (head := start.head) is not None:
                [named] = start.continues
                await self._recording.go_on(named, adds=content is not None)
                pending = await self._log.executors.run_read(open_calls, self._log, head)
                own = await self._log.executors.run_read(offered_of, self._log, head, offered)
                offered = await self._reading.offered(tools, own)
            if content is not None:
                continues = start.continues
                if pending:
                    # What a tool may have done comes before what is said now.
                    stopped = await self._settle(pending, target, tools, offered, ends_s)
                    if stopped == "time":
                        return await self._out_of_time()
                    if stopped is not None:
                        return self._result(stopped, pending if stopped in _UNANSWERED else ())
                    continues, pending = (self._recording.head.id,), ()
                parts = await self._log.executors.run_read(
                    instruction_turns, self._log, continues, tools.instructions()
                )
                await self._recording.add(
                    content, [*parts, *before], continues, inherited, api_key=target.connection.api_key
                )
            try:
                async with until(ends_s):
                    return await self._go(target, tools, offering, offered, pending)
            except TimeIsOverError:
                return await self._out_of_time()

    async def _out_of_time(self) -> RunResult[Any]:
        return self._result("time", await self._log.executors.run_read(open_calls, self._log, self._recording.head))

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
            # One may have waited for something to be recorded, or a middleware has passed over it.
            await check_cancelled(self._cancellations)
            if not await self._at_work.move(self._recording.head):
                return self._result("busy", pending)
            if pending:
                stopped = await self._answer(pending, target, tools, callable_)
                if stopped is not None:
                    return self._result(stopped, pending if stopped in _UNANSWERED else ())
                if not await self._at_work.move(self._recording.head):
                    return self._result("busy", ())
            offered = await self._reading.offered(tools, await offering.again())
            response, callable_ = await self._model_calls.make(target, tools, offered)
            stopped, pending = self._after(response)
            is_paused = stopped is None and not pending
            if stopped == "done":
                stopped = await self._checked(response, target)
            if stopped is not None:
                return self._result(stopped, pending)
            self._paused = (*self._paused, response) if is_paused else ()

    def _after(self, response: Response) -> tuple[Stopped | None, tuple[RecordedToolCall, ...]]:
        """Return why to stop after a reply, None to go on, and the tool calls to answer."""
        turn = self._recording.head.id
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
        if self._model_calls.iterations >= self._policy.iterations_max:
            return "iterations", calls
        return ("tokens" if self._model_calls.took_all_tokens else None), calls

    async def _checked(self, response: Response, target: Target) -> Stopped | None:
        """Read the value that was asked for; None where the model was told that its reply is none, and is asked again.

        It is told once.
        """
        wanted = self._asked.output
        if wanted is None:
            return "done"
        try:
            self._output = await self._log.executors.run_wait(wanted.read, text_of_replies(*self._paused, response))
        except OutputError as error:
            was_told, self._invalid = self._invalid is not None, error
            if (
                was_told
                or self._model_calls.iterations >= self._policy.iterations_max
                or self._model_calls.took_all_tokens
            ):
                return "invalid"
            self._followers.tell(OutputRefused(turn=self._recording.head, why=str(error)))
            repair, head, api_key = wanted.repair(error), self._recording.head, target.connection.api_key
            await self._recording.add(repair, (), (head.id,), {}, api_key=api_key)
            return None
        self._invalid = None
        return "done"

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
        api_key = target.connection.api_key
        deciding = Deciding(tools, offered, self._policy, followers.on_approval, followers.tell)
        decisions = await deciding.of(calls, begins=begins)
        if isinstance(decisions, str):
            return decisions
        ledger = Ledger(self._log, api_key=api_key)
        execution = Execution(calls, decisions, tools, self._policy, followers.tell, ledger, layers=self._layers.tool)
        try:
            await execution.execute()
        except ToolCallTakenError:
            return "busy"
        except GeneratorExit:  # the event loop is gone: nothing can be recorded
            raise
        except BaseException:
            if HURRY.is_final and execution.is_broken_off:
                # Whoever goes on says what is to become of what was at work, as behind a kill: nobody here can.
                await execution.record_ends()
            else:
                await self._recording.results(execution, api_key=api_key)
            raise
        try:
            await self._recording.results(execution, api_key=api_key)
        except ToolCallTakenError:
            return "busy"
        return "tool_error" if execution.failed and self._policy.on_tool_error == "abort" else None

    def _result(self, stopped: Stopped, unanswered: tuple[RecordedToolCall, ...]) -> RunResult[Any]:
        return RunResult(
            stopped=stopped,
            head=self._recording.head,
            turns=tuple(self._recording.turns),
            calls=tuple(self._recording.calls),
            response=self._model_calls.response,
            paused=self._paused,
            usage=self._model_calls.usage,
            unanswered=tuple(recorded.call for recorded in unanswered if not has_result(recorded)),
            output=self._output,
            invalid=str(self._invalid) if stopped == "invalid" else None,
        )


def _known(loading: asyncio.Future[None]) -> None:
    """Have asyncio say nothing of an import that failed: the call that needs it fails too."""
    if not loading.cancelled():
        loading.exception()
