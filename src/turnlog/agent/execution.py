"""The tool calls of one reply: those that may run, in parallel, and a result for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Literal

from msgspec.structs import replace
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt, wait_exponential

from turnlog.agent.combined import CombinedTools
from turnlog.agent.deciding import NOT_STARTED, Decision
from turnlog.agent.events import OnEvent, ToolFinished, ToolProgress, ToolRetried, ToolStarted
from turnlog.agent.ledger import Ledger
from turnlog.agent.letting_go import ENDING, GRACE_S, CarriedError, cancellations, carried, ended_or_left
from turnlog.agent.middleware import OnlyOnce, ToolCall, ToolMiddleware, around
from turnlog.agent.policy import TOOL_RETRY_WAIT_S_MAX, Policy
from turnlog.agent.progress import progress_told
from turnlog.agent.start import STOPPED
from turnlog.agent.told_errors import told_error
from turnlog.agent.toolbox import Toolbox, ToolOutcome, fault_in
from turnlog.calls import RecordedToolCall
from turnlog.errors import RunError, ToolCallTakenError
from turnlog.events import TOOL_CALL
from turnlog.model import (
    Approved,
    Block,
    Text,
    ToolCallMeta,
    ToolEnding,
    ToolEndMeta,
    ToolResult,
    ToolUse,
)
from turnlog.record.tool_calls import tool_event_id
from turnlog.store.telling import logger

_log = logger("turnlog.runs")

BROKEN_OFF = f"{STOPPED} It may have done all, some or nothing of it."
LEFT = (
    f"{STOPPED} It did not end when it was told to, and may still be at work. It may have done all, some or nothing of"
    " it."
)
CANCELLED_WITHIN = "the tool was cancelled from within"
TAKEN = "Another run has made this tool call. It was not made a second time, and its result is not here."


class _Progress:
    """How far a call has come."""

    def __init__(self, call: RecordedToolCall) -> None:
        self.recorded = call
        self.call: ToolUse = call.call
        self.attempt = call.last_number
        """The last attempt, of this run or an earlier one, or of one that another log tells of."""
        self.is_open = False
        """Whether the end of that attempt is still to be recorded."""
        self.began = 0
        """The last attempt that this run has begun; 0 for none."""
        self.approved: Approved = "auto"
        self.begun_s = 0.0
        """When it was begun, on a monotonic clock."""
        self.took_ms: int | None = None
        self.ending: ToolEnding | None = None
        self.by: Literal["person", "policy"] | None = None
        self.outcome: ToolOutcome | None = None
        self.failed: ToolOutcome | None = None
        """How an attempt failed that is repeated."""
        self.was_attempted = False
        """Whether an attempt of this run began, with the middleware around it."""
        self.was_called = False
        """Whether the last one came as far as the tool itself."""
        self.is_left = False
        """It did not end when it was cancelled, and was left at work."""
        self.is_taken = False
        """Another run makes this call: how it ends is for that one to say."""
        self.ends: list[str] = []
        """Ids of ends that are recorded, and that the turn with the results cites."""
        self.unrecorded: list[ToolEndMeta] = []
        """Ends of attempts of earlier runs that are recorded with the results."""

    def begin(self) -> None:
        """Note that an attempt is recorded, or is to be."""
        self.attempt += 1
        self.is_open, self.begun_s, self.took_ms, self.ending = True, time.monotonic(), None, None
        self.was_called = self.is_left = False

    def end(self, outcome: ToolOutcome) -> None:
        """Note how the attempt went."""
        self.took_ms = int((time.monotonic() - self.begun_s) * 1000)
        if not self.was_called:  # a middleware has answered in its place
            self.ending = "not_called"
        elif outcome.is_error:
            self.ending = "given_up" if outcome.may_have_had_effects else "error"
        else:
            self.ending = "result"

    def end_of(self, attempt: int, ending: ToolEnding) -> ToolEndMeta:
        """Return what is recorded of the end of an attempt."""
        return ToolEndMeta(
            turn=self.recorded.turn,
            block=self.recorded.block,
            attempt=attempt,
            ending=ending,
            tool_call=tool_event_id(TOOL_CALL, self.recorded.turn, self.recorded.block, attempt)
            if attempt == self.began
            else None,
            by=self.by,
            duration_ms=self.took_ms,
        )


class Execution:
    """The tool calls of one reply."""

    def __init__(
        self,
        calls: Sequence[RecordedToolCall],
        decisions: Sequence[Decision],
        tools: CombinedTools,
        policy: Policy,
        tell: OnEvent,
        ledger: Ledger,
        *,
        layers: Sequence[ToolMiddleware] = (),
    ) -> None:
        """Take the calls with what is recorded of them, what becomes of each, the tools, and how to go about it."""
        self._layers = layers
        self._calls = [_Progress(call) for call in calls]
        self._decisions = decisions
        self._tools = tools
        self._policy = policy
        self._tell = tell
        self._ledger = ledger
        self._gate = asyncio.Semaphore(policy.parallel_max)
        self._failed = False

    @property
    def failed(self) -> bool:
        """Whether a tool failed, or could not be called. What was denied has not failed."""
        return self._failed or any(
            on.was_attempted and on.outcome is not None and on.outcome.is_error for on in self._calls
        )

    async def execute(self) -> None:
        """Run the calls that may, at the same time as far as the policy allows.

        Whatever breaks this off, `results` are there: those that had come, and errors for the rest.

        Raises:
            ToolCallTakenError: another run is making these calls. Nothing has run here then.
        """
        waiting: list[_Progress] = []
        for on, decision in zip(self._calls, self._decisions, strict=True):
            on.approved, on.by = decision.approved, decision.by
            attempts = on.recorded.attempts
            if attempts and attempts[-1].ended_ms is None:
                on.unrecorded.append(replace(on.end_of(attempts[-1].number, "unknown"), by=None))
            if decision.outcome is None:
                waiting.append(on)
        for on, decision in zip(self._calls, self._decisions, strict=True):
            if decision.outcome is not None:
                self._settle(on, decision, decision.outcome)
        # Of two runs one alone comes further than this. What is said of other calls is on disk with it; where no tool
        # is called, it is with the results.
        await self._begin(waiting[: self._policy.parallel_max], [on for on in self._calls if on.is_open])
        for on, decision in zip(self._calls, self._decisions, strict=True):
            if decision.outcome is not None:
                self._tell_end(on, decision.outcome, known=decision.is_recorded)
        try:
            async with asyncio.TaskGroup() as group:
                for on in waiting:
                    group.create_task(carried(self._run(on)))
        except BaseExceptionGroup as errors:
            # Only callbacks and middleware raise here, and Ctrl-C: that one error is what they expect to see.
            raised = errors.exceptions
            raise next((each.error for each in raised if isinstance(each, CarriedError)), raised[0]) from None
        for on in waiting:
            if on.outcome is None:  # something in it has cancelled its own task, and nobody this one
                outcome = ToolOutcome.error(CANCELLED_WITHIN, may_have_had_effects=on.was_called)
                on.end(outcome)
                on.outcome = outcome
                self._tell_end(on, outcome)

    def _settle(self, on: _Progress, decision: Decision, outcome: ToolOutcome) -> None:
        """Note the outcome of a call that is not made."""
        self._failed |= decision.failed
        if decision.ending is not None:
            on.begin()
            on.took_ms, on.ending = None, decision.ending
        elif not on.unrecorded:
            on.ends += [] if on.recorded.last_end is None else [on.recorded.last_end]
        on.outcome = outcome

    def results(self) -> list[ToolResult]:
        """Return a result for each call, in the order of the calls."""
        return [_result(on.call, on.outcome or _stopped(on)) for on in self._calls]

    def ends(self) -> tuple[list[ToolEndMeta], list[str]]:
        """Return how the calls ended whose end is not recorded yet, and the ids of the ends that are."""
        ends: list[ToolEndMeta] = []
        for on in self._calls:
            ends += on.unrecorded
            if on.is_open:
                ends.append(on.end_of(on.attempt, _ending_of(on)))
            elif on.outcome is None and on.failed is None:
                ends.append(on.end_of(on.attempt + 1, "not_called"))
        return ends, [end for on in self._calls for end in on.ends]

    @property
    def is_broken_off(self) -> bool:
        """Whether a tool was at work when the run was stopped, of which nobody knows what it did."""
        return any(on.is_open and on.was_called and on.ending is None for on in self._calls)

    async def record_ends(self) -> None:
        """Record how all calls ended that were begun, each with its result, for whoever records no turn with `ends`."""
        for on in self._calls:
            for end in on.unrecorded:
                on.ends.append(await self._ledger.end(end, ()))
            on.unrecorded.clear()
            if on.is_open:
                await self._record_end(on, on.outcome or _stopped(on))

    def _tell_end(self, on: _Progress, outcome: ToolOutcome, *, known: bool = False) -> None:
        self._tell(ToolFinished(call=on.call, outcome=outcome, known=known))

    async def _run(self, on: _Progress) -> None:
        box = self._tools.box_of(on.call.name)
        assert box is not None  # else it was refused: what is offered and what can be called is listed at once
        async with self._gate:
            outcome = await self._tried(on, box)
            on.outcome = outcome
            if on.is_open and any(other.outcome is None for other in self._calls):
                await self._record_end(on, outcome)
            self._tell_end(on, outcome)

    async def _begin(self, calls: Sequence[_Progress], said: Sequence[_Progress] = ()) -> None:
        if not calls:
            return
        ends = [(on.end_of(on.attempt, on.ending or "not_called"), _said_of(on)) for on in said]
        ids = await self._ledger.begin([self._start_of(on) for on in calls], ends)
        for on, end in zip(said, ids, strict=True):
            on.ends.append(end)
            on.is_open = False
        for on in calls:
            on.begin()
            on.began = on.attempt
        await asyncio.sleep(0)  # a cancellation that waited for it to be recorded is delivered here

    def _start_of(self, on: _Progress) -> ToolCallMeta:
        server = self._tools.server_of(on.call.name)
        return ToolCallMeta(
            turn=on.recorded.turn,
            block=on.recorded.block,
            attempt=on.attempt + 1,
            approved=on.approved,
            server=server,
        )

    async def _record_end(self, on: _Progress, outcome: ToolOutcome) -> None:
        """Record how an attempt ended, with its result: no turn has that, for now."""
        on.ends.append(await self._ledger.end(on.end_of(on.attempt, _ending_of(on)), outcome.content))
        on.is_open = False

    async def _tried(self, on: _Progress, box: Toolbox) -> ToolOutcome:
        if self._policy.on_tool_error != "retry":
            return await self._attempted(on, box)

        async def record(state: RetryCallState) -> None:
            outcome = _outcome_of(state)
            await self._record_end(on, outcome)  # before the wait, in which anything can happen
            self._tell(
                ToolRetried(call=on.call, outcome=outcome, attempt=state.attempt_number, wait_s=state.upcoming_sleep)
            )

        def fails(outcome: ToolOutcome) -> bool:
            return outcome.is_error and not outcome.may_have_had_effects and not on.is_taken

        retrying = AsyncRetrying(
            stop=stop_after_attempt(1 + self._policy.tool_retries_max),
            wait=wait_exponential(multiplier=self._policy.tool_retry_wait_s, max=TOOL_RETRY_WAIT_S_MAX),
            retry=retry_if_result(fails),
            before_sleep=record,
            retry_error_callback=_outcome_of,
        )
        return await retrying(self._attempted, on, box)

    async def _attempted(self, on: _Progress, box: Toolbox) -> ToolOutcome:
        """Make one attempt: it is on disk before the tool is called."""
        if not on.is_open:  # the first ones were begun together
            try:
                await self._begin([on])
            except ToolCallTakenError:
                on.is_taken = True
                return ToolOutcome.error(TAKEN)
        if not on.was_attempted:
            on.was_attempted = True
            self._tell(ToolStarted(call=on.call))
        asked = ToolCall(
            call=on.call,
            attempt=on.attempt,
            approved=on.approved,
            server=self._tools.server_of(on.call.name),
        )
        once = OnlyOnce(partial(self._called, on, box), asked)
        try:
            with progress_told(lambda progress: self._tell(ToolProgress(call=on.call, progress=progress))):
                try:
                    returned = await self._within_layers(once, asked)
                finally:
                    await once.end()
            outcome = once.checked(returned)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                if once.returned is not None:  # it is recorded, though no middleware comes to see it
                    on.outcome = once.returned
                    on.end(once.returned)
                raise
            self._keep(on, once.returned)
            raise RunError(f"a middleware of {on.call.name!r} raised CancelledError in a run that goes on") from error
        except GeneratorExit:  # the event loop is gone: nobody can be told
            raise
        except BaseException:
            self._keep(on, once.returned)
            raise
        on.end(outcome)
        on.failed = outcome if outcome.is_error else None
        return outcome

    def _keep(self, on: _Progress, returned: ToolOutcome | None) -> None:
        """Have what a tool has returned recorded, whatever a middleware or who is told of it makes of it."""
        if returned is not None:
            on.end(returned)
            on.outcome = returned
            self._tell_end(on, returned)

    async def _within_layers(self, once: OnlyOnce, asked: ToolCall) -> ToolOutcome:
        if not self._layers:
            return await once(asked)

        def leave() -> None:
            once.leave()
            _log.warning("a middleware of %r goes on %g s after it was cancelled: it is left", asked.call.name, GRACE_S)

        return await ended_or_left(around(once, self._layers)(asked), leave, is_busy=once.breaks_off)

    async def _called(self, on: _Progress, box: Toolbox, call: ToolUse) -> ToolOutcome:
        on.was_called = True
        limit_s = None if box.limits_time else self._policy.tool_timeout_s
        timer = asyncio.timeout(limit_s)
        given_up = f"the tool had no result after {limit_s or 0:g} s, and was given up"
        try:
            async with timer:
                outcome = await ended_or_left(box.call(call.name, call.input), partial(self._leave, on))
        except asyncio.CancelledError:
            if _is_cancelled():
                if on.is_left:
                    on.outcome = ToolOutcome.error(LEFT, may_have_had_effects=True)
                    on.end(on.outcome)
                raise
            return ToolOutcome.error(CANCELLED_WITHIN, may_have_had_effects=True)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - a toolbox that breaks its contract is an error like any other
            if isinstance(error, TimeoutError) and timer.expired():
                return ToolOutcome.error(given_up, may_have_had_effects=True)
            outcome = ToolOutcome.error(f"the tool failed: {told_error(error)}")
        if fault := fault_in(outcome):
            told = f"the tool was called, and what it returned cannot be recorded: {fault}"
            return ToolOutcome.error(told, may_have_had_effects=True)
        if outcome.is_error and (timer.expired() or _is_cancelled()):
            # It was at work when it was told to end, and says so in its own way.
            why = (Text(text=f"{given_up}:"),) if timer.expired() else ()
            return replace(outcome, content=(*why, *outcome.content), may_have_had_effects=True)
        return outcome

    def _leave(self, on: _Progress) -> None:
        on.is_left = True
        _log.warning("tool %r goes on %g s after it was cancelled: it is left at work", on.call.name, GRACE_S)


def _is_cancelled() -> bool:
    """Tell whether somebody has cancelled this task, and not something in it raised what says so."""
    return cancellations() > 0


def _outcome_of(state: RetryCallState) -> ToolOutcome:
    """Return how the last attempt went."""
    assert state.outcome is not None
    return state.outcome.result()


def _said_of(on: _Progress) -> Sequence[Block]:
    return () if on.outcome is None else on.outcome.content


def _ending_of(on: _Progress) -> ToolEnding:
    """Return how an attempt ended; one that has not, because the run was stopped, was broken off."""
    return on.ending or ("broken_off" if on.was_called else "not_called")


def _stopped(on: _Progress) -> ToolOutcome:
    """Return the outcome of a call that has none, because the run was stopped."""
    if on.was_called and on.ending is None:
        return ToolOutcome.error(BROKEN_OFF)
    return on.failed or ToolOutcome.error(NOT_STARTED)  # it was to be tried again


def _result(call: ToolUse, outcome: ToolOutcome) -> ToolResult:
    result = ToolResult(tool_use_id=call.id, name=call.name, content=list(outcome.content))
    return replace(result, is_error=True) if outcome.is_error else result
