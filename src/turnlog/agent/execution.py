"""The tool calls of one reply: who may run, running them in parallel, and a result for each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt, wait_exponential

from turnlog.agent.combined import CombinedTools, no_such_tool
from turnlog.agent.events import OnEvent, ToolFinished, ToolRetried, ToolStarted
from turnlog.agent.policy import TOOL_RETRY_WAIT_S_MAX, Answer, OnApproval, Policy
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.model import MALFORMED, Text, Tool, ToolResult, ToolUse

DENIED_BY_USER = "The user did not allow this tool call."
DENIED_BY_POLICY = "This tool call is not allowed here."
NOT_STARTED = "The run was stopped before this tool call was started."
BROKEN_OFF = "The run was stopped while this tool was at work. It may have done all, some or nothing of it."


class Decision(Struct, frozen=True, kw_only=True):
    """What becomes of a tool call: it runs, or has an outcome already. `failed`: that counts as a tool error."""

    outcome: ToolOutcome | None = None
    failed: bool = False


class Execution:
    """The tool calls of one reply."""

    def __init__(
        self,
        calls: Sequence[ToolUse],
        tools: CombinedTools,
        offered: Sequence[Tool],
        policy: Policy,
        on_approval: OnApproval | None,
        tell: OnEvent,
    ) -> None:
        """Take the calls, the tools that were offered, and how to go about it."""
        self._calls = calls
        self._tools = tools
        self._offered = [tool.name for tool in offered]
        self._policy = policy
        self._on_approval = on_approval
        self._tell = tell
        self._gate = asyncio.Semaphore(policy.parallel_max)
        self._started: set[int] = set()
        self._outcomes: dict[int, ToolOutcome] = {}
        self._ran: set[int] = set()
        self._failed = False

    @property
    def failed(self) -> bool:
        """Whether a tool failed, or could not be called. What was denied has not failed."""
        return self._failed or any(self._outcomes[index].is_error for index in self._ran)

    async def decide(self) -> Sequence[Decision] | None:
        """Return what becomes of each call; None when nobody was there to say so. Nothing has run then."""
        decisions: list[Decision] = []
        for call in self._calls:
            decision = self._refused(call) or await self._decided(call)
            if decision is None:
                return None
            decisions.append(decision)
        return decisions

    def _refused(self, call: ToolUse) -> Decision | None:
        """Return the outcome of a call that cannot be made at all, None if it can."""
        if MALFORMED in call.extra:
            text = msgspec.json.decode(call.extra[MALFORMED], type=str)
            shown = text if len(text) <= 200 else f"{text[:200]}…"
            message = f"the arguments are not a JSON object, so the tool was not called: {shown}"
        elif call.name not in self._offered:
            message = no_such_tool(call.name, self._offered)
        else:
            return None
        return Decision(outcome=ToolOutcome.error(message), failed=True)

    async def _decided(self, call: ToolUse) -> Decision | None:
        approval = self._policy.approval_of(call.name)
        if approval == "auto":
            return Decision()
        if approval == "never":
            return Decision(outcome=ToolOutcome.error(DENIED_BY_POLICY))
        match await self._asked(call):
            case None:
                return None
            case True:
                return Decision()
            case str(answer) if answer:
                return Decision(outcome=ToolOutcome(content=(Text(text=answer),)))
            case _:
                return Decision(outcome=ToolOutcome.error(DENIED_BY_USER))

    async def _asked(self, call: ToolUse) -> Answer:
        if self._on_approval is None:
            return None
        answer = self._on_approval(call)
        return await answer if inspect.isawaitable(answer) else answer

    async def execute(self, decisions: Sequence[Decision]) -> None:
        """Run the calls that may, at the same time as far as the policy allows.

        Whatever breaks this off, `results` are there: those that had come, and errors for the rest.
        """
        waiting: list[int] = []
        for index, decision in enumerate(decisions):
            if decision.outcome is None:
                waiting.append(index)
            else:
                self._failed |= decision.failed
                self._finish(index, decision.outcome)
        try:
            async with asyncio.TaskGroup() as group:
                for index in waiting:
                    group.create_task(self._run(index))
        except BaseExceptionGroup as errors:
            # Only callbacks of whoever follows the run raise here: that one error is what they expect to see.
            raise errors.exceptions[0] from None

    def results(self) -> list[ToolResult]:
        """Return a result for each call, in the order of the calls."""
        return [_result(call, self._outcome(index)) for index, call in enumerate(self._calls)]

    def _outcome(self, index: int) -> ToolOutcome:
        broken_off = BROKEN_OFF if index in self._started else NOT_STARTED
        return self._outcomes.get(index) or ToolOutcome.error(broken_off)

    def _finish(self, index: int, outcome: ToolOutcome) -> None:
        self._outcomes[index] = outcome
        self._tell(ToolFinished(call=self._calls[index], outcome=outcome))

    async def _run(self, index: int) -> None:
        call = self._calls[index]
        box = self._tools.box_of(call.name)
        assert box is not None  # else it was refused
        async with self._gate:
            self._started.add(index)
            self._tell(ToolStarted(call=call))
            outcome = await self._tried(call, box)
            self._ran.add(index)
            self._finish(index, outcome)

    async def _tried(self, call: ToolUse, box: Toolbox) -> ToolOutcome:
        if self._policy.on_tool_error != "retry":
            return await self._called(call, box)

        def tell(state: RetryCallState) -> None:
            outcome = _outcome_of(state)
            self._tell(
                ToolRetried(call=call, outcome=outcome, attempt=state.attempt_number, wait_s=state.upcoming_sleep)
            )

        retrying = AsyncRetrying(
            stop=stop_after_attempt(1 + self._policy.tool_retries_max),
            wait=wait_exponential(multiplier=self._policy.tool_retry_wait_s, max=TOOL_RETRY_WAIT_S_MAX),
            retry=retry_if_result(_is_error),
            before_sleep=tell,
            retry_error_callback=_outcome_of,
        )
        return await retrying(self._called, call, box)

    async def _called(self, call: ToolUse, box: Toolbox) -> ToolOutcome:
        limit_s = None if box.limits_time else self._policy.tool_timeout_s
        timer = asyncio.timeout(limit_s)
        try:
            async with timer:
                return await box.call(call.name, call.input)
        except Exception as error:  # noqa: BLE001 - a toolbox that breaks its contract is an error like any other
            if isinstance(error, TimeoutError) and timer.expired():
                return ToolOutcome.error(f"the tool had no result after {limit_s:g} s, and was given up")
            return ToolOutcome.error(f"the tool failed: {type(error).__name__}: {error}")


def _is_error(outcome: ToolOutcome) -> bool:
    return outcome.is_error


def _outcome_of(state: RetryCallState) -> ToolOutcome:
    """Return how the last attempt went."""
    assert state.outcome is not None
    return state.outcome.result()


def _result(call: ToolUse, outcome: ToolOutcome) -> ToolResult:
    result = ToolResult(tool_use_id=call.id, name=call.name, content=list(outcome.content))
    return msgspec.structs.replace(result, is_error=True) if outcome.is_error else result
