"""Calls that are pending before the end of a turn: the run loop itself answers those of its last reply only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from msgspec import Struct

from turnlog.agent.ask import Ask
from turnlog.agent.combined import CombinedTools, KeptTools
from turnlog.agent.deciding import Deciding
from turnlog.agent.events import OnEvent, TurnRecorded
from turnlog.agent.execution import Execution
from turnlog.agent.functions import Functions
from turnlog.agent.ledger import Ledger
from turnlog.agent.mcp.tools import McpTools
from turnlog.agent.policy import Policy
from turnlog.agent.result import RunResult, Stopped
from turnlog.agent.settings import RunSettings
from turnlog.agent.settled import settled
from turnlog.agent.start import find_start, open_calls, server_names
from turnlog.agent.target import Named, find_target
from turnlog.agent.toolbox import Toolbox
from turnlog.calls import RecordedToolCall
from turnlog.errors import RunError, ToolCallTakenError, TurnlogError
from turnlog.interop.geppetto.reading import KEY_BLOCK_TURN
from turnlog.interop.geppetto.tools import InMemoryToolRegistry, pending_calls
from turnlog.interop.geppetto_model.content import said
from turnlog.interop.geppetto_model.types import PAYLOAD_KEY_ID, PAYLOAD_KEY_NAME, Block, Turn
from turnlog.log import TurnLog
from turnlog.model import ToolResult, ToolUse, Usage
from turnlog.turn import Turn as LogTurn


class Answered(Struct, frozen=True, kw_only=True):
    """What executing pending calls came to.

    Attributes:
        results: what to go on with, one for each call; none where the run ends here.
        ended: the run, where it ends here; else None.
        tools: what the run that goes on is given as its tools.
    """

    results: list[ToolResult]
    ended: RunResult | None
    tools: Sequence[KeptTools]


def calls_before_the_end(log: TurnLog, turn: Turn, head: str) -> list[ToolUse]:
    """Return the calls to execute before the run loop takes over: none where it executes all of them itself.

    Args:
        log: the log.
        turn: the turn, as it was recorded.
        head: the turn of the log that it ends with.

    Returns:
        Where a call is pending before the last reply: that and all others, in their order.

    Raises:
        RunError: a pending call has no name or no id, so that it cannot be executed and answered, or there is nothing
            to do about the turn.
    """
    loops = [recorded.call for recorded in open_calls(log, log.turn(head))]
    waiting: list[ToolUse] = []
    before = False
    for block in pending_calls(turn):
        if _is_refused(log, block):
            continue
        call = _call(block)
        at = next((at for at, other in enumerate(loops) if call is not None and _same(call, other)), None)
        if at is not None:
            waiting.append(loops.pop(at))
            continue
        if call is None or not isinstance(call.id, str) or not call.id:
            missing = PAYLOAD_KEY_NAME if call is None else PAYLOAD_KEY_ID
            index = next(at for at, other in enumerate(turn.blocks) if other is block)
            raise RunError(
                f"turn.blocks[{index}]: a pending tool_call without a usable {missing!r} in its payload cannot be"
                " executed: give it one, or leave the block out"
            )
        waiting.append(call)
        before = True
    if before:
        # An id that was used before counts as answered by `pending_calls`; the last reply's calls are executed anyway.
        return [*waiting, *loops]
    try:
        find_start(log, head, respond=False, adds=False, inherited={})
    except RunError as error:
        raise RunError(
            f"turn {turn.id!r} ends with a finished reply ({turn.blocks[-1].kind}) and has no pending tool_call, so"
            " there is nothing to ask: append a user block to it"
        ) from error
    return []


async def answer(
    log: TurnLog,
    calls: Sequence[ToolUse],
    *,
    head: str,
    registry: InMemoryToolRegistry | None,
    settings: RunSettings,
    tell: OnEvent,
    stack: AsyncExitStack,
) -> Answered:
    """Execute calls, by the policies of a run. Nothing is executed for a run that cannot begin.

    Args:
        log: the log.
        calls: the calls.
        head: the turn of the log that the results follow.
        registry: the tools.
        settings: those of the run.
        tell: told what happens.
        stack: keeps the tools open for the run that goes on.

    Raises:
        RunError, ProviderError, NotFoundError, ToolServerError: as for `TurnLog.run`.
    """
    options = log.context(head).options
    policy = settings.get("policy") or Policy()
    named = Named.of(
        settings.get("ask") or Ask(),
        pointer=settings.get("pointer"),
        provider=settings.get("provider"),
        model=settings.get("model"),
    )
    target = await log.executors.run_read(find_target, log, named, options)
    boxes = _boxes(registry)
    held = {name for box in boxes for name in box.servers}
    servers = [log.servers.get(name) for name in server_names(options) if name not in held]
    if servers:
        boxes.append(McpTools(servers, call_timeout_s=policy.tool_timeout_s))
    tools = await stack.enter_async_context(CombinedTools(boxes))
    offered = [tool for tool in await tools.tools() if policy.offers(tool.name)]
    recorded = await log.executors.run_read(_recorded, log, head, calls)
    kept = [KeptTools(box) for box in boxes]
    decisions = await Deciding(tools, offered, policy, settings.get("on_approval"), tell).of(recorded)
    if isinstance(decisions, str):
        return Answered(results=[], ended=_ended(decisions, log.turn(head), (), calls), tools=kept)
    ledger = Ledger(log, api_key=target.connection.api_key)
    execution = Execution(recorded, decisions, tools, policy, tell, ledger)
    record = partial(_record, log, execution, head, target.connection.api_key)
    try:
        await execution.execute()
    except ToolCallTakenError:
        return Answered(results=[], ended=_ended("busy", log.turn(head), (), calls), tools=kept)
    except BaseException:
        await settled(log.executors, record)
        raise
    try:
        if execution.failed and policy.on_tool_error == "abort":
            turn = await settled(log.executors, record)
            tell(TurnRecorded(turn=turn))
            return Answered(results=[], ended=_ended("tool_error", turn, (turn,), ()), tools=kept)
        await execution.record_ends()
    except ToolCallTakenError:
        return Answered(results=[], ended=_ended("busy", log.turn(head), (), calls), tools=kept)
    return Answered(results=execution.results(), ended=None, tools=kept)


def _recorded(log: TurnLog, head: str, calls: Sequence[ToolUse]) -> list[RecordedToolCall]:
    """Return calls with what the log says of them: the turn that each is in, and whether it was begun before."""
    known = [
        recorded
        for turn in log.ancestry(head)
        if turn.meta.role == "assistant" and turn.meta.type != "document"
        for recorded in log.tool_calls.of(turn.id)
    ]
    found: list[RecordedToolCall] = []
    for call in calls:
        at = max(at for at, recorded in enumerate(known) if _same(recorded.call, call))
        found.append(known.pop(at))
    return found


def _record(log: TurnLog, execution: Execution, head: str, api_key: str | None) -> LogTurn:
    ends, known = execution.ends()
    return log.tool_calls.record_results(execution.results(), turn=head, ends=ends, known=known, api_key=api_key)


def _boxes(registry: InMemoryToolRegistry | None) -> list[Toolbox]:
    given = [] if registry is None else registry.tools
    functions = [tool for tool in given if not isinstance(tool, Toolbox)]
    boxes = [tool for tool in given if isinstance(tool, Toolbox)]
    return [*boxes, Functions(functions)] if functions else boxes


def _ended(stopped: Stopped, head: LogTurn, turns: tuple[LogTurn, ...], calls: Sequence[ToolUse]) -> RunResult:
    return RunResult(
        stopped=stopped, head=head, turns=turns, calls=(), response=None, usage=Usage(), unanswered=tuple(calls)
    )


def _call(block: Block) -> ToolUse | None:
    content = said(block)[0]
    return content[0] if len(content) == 1 and isinstance(content[0], ToolUse) else None


def _same(one: ToolUse, other: ToolUse) -> bool:
    # Not by their input: the log has it as the provider spelled it.
    return (one.id, one.name) == (other.id, other.name)


def _is_refused(log: TurnLog, block: Block) -> bool:
    """Tell whether a call is of a reply that its model, or provider, refused: the run loop does not make these."""
    of = block.metadata.raw(KEY_BLOCK_TURN.identity)
    if not isinstance(of, str):
        return False
    try:
        return log.turn(of).meta.stop_reason == "refusal"
    except TurnlogError:
        return False
