"""What becomes of the tool calls of one reply, before any of them runs: who allows it, and what a model reads else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import NoneType
from typing import Literal

import msgspec
from msgspec import Struct

from turnlog.agent.combined import CombinedTools, no_such_tool
from turnlog.agent.events import OnEvent, ToolInterrupted
from turnlog.agent.letting_go import answer_of
from turnlog.agent.policy import Answer, OnApproval, Policy
from turnlog.agent.run_checks import check_kind
from turnlog.agent.start import has_result, is_interrupted
from turnlog.agent.toolbox import ToolOutcome
from turnlog.calls import RecordedToolCall
from turnlog.model import MALFORMED, Approved, Text, Tool, ToolEnding, ToolUse

DENIED_BY_USER = "The user did not allow this tool call."
DENIED_BY_POLICY = "This tool call is not allowed here."
NOT_STARTED = "The run was stopped before this tool call was started."
UNKNOWN = (
    "An earlier run ended while this tool was at work. It may have done all, some or nothing of it, and what it"
    " returned is not known. It was not called again."
)
CLAIMED = (
    "Another log says that this tool was called there. It may have done all, some or nothing of it, and what it"
    " returned is not known here. It was not called again."
)
UNRECORDED = (
    "An earlier run may have called this tool, and did not record whether it did. The tool may have done all, some or"
    " nothing of it, and what it returned is not known. It was not called again."
)


class Decision(Struct, frozen=True, kw_only=True):
    """What becomes of a tool call: it runs, or has an outcome already.

    Attributes:
        outcome: the outcome, None for a call that runs.
        is_recorded: whether it is the result that an earlier run has recorded.
        failed: whether that counts as a tool error.
        approved: what lets it run.
        ending: what is recorded of an outcome; None where the log has it.
        by: who denied it.
    """

    outcome: ToolOutcome | None = None
    is_recorded: bool = False
    failed: bool = False
    approved: Approved = "auto"
    ending: ToolEnding | None = None
    by: Literal["person", "policy"] | None = None


class Deciding:
    """Says what becomes of tool calls. It asks, and calls none of them."""

    def __init__(
        self,
        tools: CombinedTools,
        offered: Sequence[Tool],
        policy: Policy,
        on_approval: OnApproval | None,
        tell: OnEvent,
    ) -> None:
        """Take the tools, those of them that were offered, what is allowed, whom to ask, and whom to tell."""
        self._tools = tools
        self._offered = [tool.name for tool in offered]
        self._policy = policy
        self._on_approval = on_approval
        self._tell = tell

    async def of(
        self, calls: Sequence[RecordedToolCall], *, begins: bool = True
    ) -> list[Decision] | Literal["unanswered", "interrupted"]:
        """Return what becomes of each call, or what nobody was there to say.

        Args:
            calls: the calls, with what is recorded of them.
            begins: whether calls are begun; otherwise only those are made that an earlier run has begun.

        Raises:
            RunError: somebody who is asked says what is no answer.
        """
        decisions: list[Decision] = []
        for call in calls:
            decision = self._known(call) or await self._decided(call, begins=begins)
            if decision is None:
                return "interrupted" if is_interrupted(call) else "unanswered"
            decisions.append(decision)
        return decisions

    def _known(self, recorded: RecordedToolCall) -> Decision | None:
        """Return what an earlier run has left of a call: its result, if that is recorded."""
        result = recorded.result
        if result is not None and has_result(recorded):
            return Decision(outcome=ToolOutcome.of(result), is_recorded=True)
        reports = self._policy.on_interrupted == "report" and not self._tools.is_built_in(recorded.call.name)
        if reports and is_interrupted(recorded):
            return Decision(outcome=ToolOutcome.error(_unmade(recorded, "")))
        return None

    def _refusal(self, recorded: RecordedToolCall) -> str | None:
        """Return why a call cannot be made at all, None if it can."""
        call = recorded.call
        if recorded.is_cut and not is_interrupted(recorded):
            return "the reply was cut off at its length limit, and arguments may be missing: the tool was not called"
        if MALFORMED in call.extra:
            text = msgspec.json.decode(call.extra[MALFORMED], type=str)
            shown = text if len(text) <= 200 else f"{text[:200]}…"
            return f"the arguments are not a JSON object, so the tool was not called: {shown}"
        return None if call.name in self._offered else no_such_tool(call.name, self._offered)

    async def _decided(self, recorded: RecordedToolCall, *, begins: bool) -> Decision | None:
        refusal = self._refusal(recorded)
        if refusal is not None and (not is_interrupted(recorded) or self._tools.is_built_in(recorded.call.name)):
            return Decision(outcome=ToolOutcome.error(refusal), failed=True, ending="not_called")
        if not begins and not is_interrupted(recorded):
            return Decision(outcome=ToolOutcome.error(NOT_STARTED), ending="not_called")
        if self._tools.is_built_in(recorded.call.name):
            # It only reads the thread: there is nothing to allow, and nothing to ask about where it was broken off.
            return self._allowed()
        approval = self._policy.approval_of(recorded.call.name)
        if approval == "never":
            return _denied(recorded, DENIED_BY_POLICY, "policy")
        if is_interrupted(recorded) and self._policy.on_interrupted == "ask":
            self._tell(_interrupted(recorded))
        elif approval == "auto":
            return _again(recorded, refusal) or self._allowed()
        return await self._answered(recorded, refusal)

    def _allowed(self) -> Decision:
        return Decision(approved="auto" if self._policy.approve == "auto" else "allowed")

    async def _answered(self, recorded: RecordedToolCall, refusal: str | None) -> Decision | None:
        match await self._asked(recorded.call):
            case None:
                return None
            case True:
                return _again(recorded, refusal) or Decision(approved="asked")
            case str(answer) if answer:
                return Decision(outcome=ToolOutcome(content=(Text(text=answer),)), ending="answer")
            case _:
                return _denied(recorded, DENIED_BY_USER, "person")

    async def _asked(self, call: ToolUse) -> Answer:
        """Return what somebody says of a call.

        Raises:
            RunError: it is no answer.
        """
        if self._on_approval is None:
            return None
        said = await answer_of("on_approval", partial(self._on_approval, call))
        check_kind("on_approval", said, (bool, str, NoneType), "True, False, a text or None for an answer")
        return said


def _denied(recorded: RecordedToolCall, why: str, by: Literal["person", "policy"]) -> Decision:
    return Decision(outcome=ToolOutcome.error(_unmade(recorded, why)), ending="denied", by=by)


def _again(recorded: RecordedToolCall, refusal: str | None) -> Decision | None:
    """Return what becomes of a call that was at work, and that cannot be made again; None if it can.

    The attempt that was made stays the last one: it may have had effects.
    """
    return None if refusal is None else Decision(outcome=ToolOutcome.error(_unmade(recorded, refusal)), failed=True)


def _unmade(recorded: RecordedToolCall, why: str) -> str:
    """Return what the model reads of a call that is not made. Of one that an earlier run has begun nobody knows."""
    if not is_interrupted(recorded):
        return why
    if recorded.unrecorded_since_ms is not None:
        return UNRECORDED
    return UNKNOWN if recorded.claimed is None else CLAIMED


def _interrupted(recorded: RecordedToolCall) -> ToolInterrupted:
    claimed, since_ms = recorded.claimed, recorded.unrecorded_since_ms
    begun_ms = (claimed or recorded.attempts[-1]).begun_ms if since_ms is None else since_ms
    assert isinstance(begun_ms, int)
    return ToolInterrupted(
        call=recorded.call,
        begun_ms=begun_ms,
        is_claimed=claimed is not None,
        is_unrecorded=since_ms is not None,
    )
