"""The tool workflow: the run loop, seen through Geppetto's types.

A turn is recorded, a model is asked, its pending tool calls are executed, and it is asked again, until it is done. All
of it is in the log as of any run. Middleware sees each call: what it makes of the turn before the call is what the
model is asked with, and the recorded call keeps the difference. What the model said is recorded as it said it, whatever
a middleware makes of that after the call. Blocks that a middleware appends behind the last reply are recorded behind
it; behind a reply with tool calls they are refused, since the results come there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from copy import deepcopy
from inspect import isawaitable
from typing import Any, Literal, Unpack, cast

import msgspec
from msgspec import Struct

from turnlog.agent.ask import Ask
from turnlog.agent.events import OnEvent, RunEvent, TurnRecorded
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.policy import Policy
from turnlog.agent.result import RunResult
from turnlog.agent.settings import RunSettings
from turnlog.agent.settled import delivered
from turnlog.errors import RunError
from turnlog.interop.geppetto.middleware import Middleware, chain
from turnlog.interop.geppetto.pending import answer, calls_before_the_end
from turnlog.interop.geppetto.reading import KEY_BLOCK_TURN, reply_blocks, turn_of, turn_of_window, window_of
from turnlog.interop.geppetto.recording import record_turn
from turnlog.interop.geppetto.tools import InMemoryToolRegistry, registry_from, tool_config
from turnlog.interop.geppetto_model.checking import check_turn
from turnlog.interop.geppetto_model.documents import read_turn, turn_record
from turnlog.interop.geppetto_model.keys import ToolConfig
from turnlog.interop.geppetto_model.types import Block, Turn
from turnlog.log import TurnLog
from turnlog.model import ContextWindow, Delta, JSONValue, decode_content
from turnlog.turn import Turn as LogTurn

Phase = Literal["pre_inference", "post_inference", "post_tools"]
"""When a snapshot is taken: before a model is asked, after it answered, and after its tools have."""

OnSnapshot = Callable[[Phase, Turn], None]
"""Told each snapshot as it is taken. `TurnStore` has them afterwards too."""


class WorkflowResult(Struct, frozen=True, kw_only=True):
    """What a workflow came to.

    Attributes:
        turn: the conversation up to the last turn, with what middleware appended behind that. It is in the log too.
        run: the run: why it stopped, its turns and calls, and the tokens.
    """

    turn: Turn
    run: RunResult


async def arun_workflow(
    log: TurnLog,
    turn: Turn,
    *middlewares: Middleware,
    registry: InMemoryToolRegistry | None = None,
    on_snapshot: OnSnapshot | None = None,
    on_event: OnEvent | None = None,
    on_delta: Callable[[Delta], None] | None = None,
    **settings: Unpack[RunSettings],
) -> WorkflowResult:
    """Record a turn, ask a model, execute its pending calls, and go on until it is done.

    Args:
        log: the log.
        turn: the turn. Its pending calls, wherever they stand, are executed first, and their results appended; only
            those of a reply that was refused are left alone. Its tool configuration
            (`KEY_TOOL_CONFIG`) says whether tools are offered, and which, and what limits they have; without one none
            are.
        middlewares: what is around each model call, the first one outermost. Each asks the model exactly once, and
            returns a turn. Blocks that it appends to that are recorded behind the last reply.
        registry: the tools; by default those of `with_registry`.
        on_snapshot: told each snapshot.
        on_event: as for `TurnLog.run`.
        on_delta: likewise.
        settings: likewise. What `policy` and `ask` say otherwise than by default wins over the tool configuration.

    Returns:
        The conversation as a turn with the same id, run, data and metadata, and the result of the run.

    Raises:
        RunError: there is nothing to ask: the turn has no blocks, or ends with a finished reply; or a pending call
            has no name or id; or a middleware did not ask the model, asked it again, returned no turn, or appended
            blocks behind a reply with tool calls.
        ContentError: what was given, or what a middleware made of it, is no turn; names the place.
        MetaError: the tool configuration is none.
        TurnlogError: what `TurnLog.run` raises, and what a middleware raises.
    """
    turn = read_turn(turn_record(turn), "turn")
    config = tool_config(turn)
    found = registry if registry is not None else registry_from()
    head = record_turn(log, turn).head
    if head is None:
        raise RunError("a turn without blocks has nothing to ask: append a block first")
    follower = _Follower(log, turn, middlewares, on_snapshot, on_event)
    policy, ask = _configured(config, settings.get("policy") or Policy(), settings.get("ask") or Ask())
    given: RunSettings = {**settings, "policy": policy, "ask": ask}
    calls = await log.executors.run_read(calls_before_the_end, log, turn, head)
    tools = () if found is None else found.tools
    results = None
    try:
        async with AsyncExitStack() as stack:
            if calls:
                answered = await delivered(
                    answer(log, calls, head=head, registry=found, settings=given, tell=follower.on_event, stack=stack)
                )
                if answered.ended is not None:
                    return WorkflowResult(turn=follower.snapshot(answered.ended.head), run=answered.ended)
                results, tools = answered.results, answered.tools
            result = await log.arun(
                results,
                continues=head,
                tools=tools,
                on_window=follower.on_window,
                on_event=follower.on_event,
                on_delta=on_delta,
                **given,
            )
        appended = await follower.ended()
    finally:
        follower.give_up()
    final = follower.snapshot(result.head)
    if appended:
        final.blocks += appended
        record_turn(log, final)
    return WorkflowResult(turn=final, run=result)


def _configured(config: ToolConfig, policy: Policy, ask: Ask) -> tuple[Policy, Ask]:
    """Return how a run is to go with what a tool configuration says of it, where the caller says nothing else."""
    limits: dict[str, Any] = {
        "parallel_max": config.max_parallel_tools,
        "iterations_max": config.max_iterations,
        "tool_timeout_s": config.execution_timeout_s,
        "offer": () if not config.enabled else config.allowed_tools,
    }
    defaults = Policy()
    unsaid = {
        name: value
        for name, value in limits.items()
        if value is not None and getattr(policy, name) == getattr(defaults, name)
    }
    if ask.tool_choice is None and config.enabled and config.tool_choice != "auto":
        ask = msgspec.structs.replace(ask, tool_choice=config.tool_choice)
    return msgspec.structs.replace(policy, **unsaid), ask


def run_workflow(
    log: TurnLog,
    turn: Turn,
    *middlewares: Middleware,
    registry: InMemoryToolRegistry | None = None,
    on_snapshot: OnSnapshot | None = None,
    on_event: OnEvent | None = None,
    on_delta: Callable[[Delta], None] | None = None,
    **settings: Unpack[RunSettings],
) -> WorkflowResult:
    """Do what `arun_workflow` does, in an event loop of its own.

    Raises:
        RunError: an event loop runs in this thread; or what `arun_workflow` raises.
        TurnlogError: what `arun_workflow` raises.
    """
    with OwnLoop(instead="await `arun_workflow` there") as loop:
        return loop.run(
            arun_workflow(
                log,
                turn,
                *middlewares,
                registry=registry,
                on_snapshot=on_snapshot,
                on_event=on_event,
                on_delta=on_delta,
                **settings,
            )
        )


class _Follower:
    """Takes snapshots, and keeps the middlewares of the call that is under way."""

    def __init__(
        self,
        log: TurnLog,
        turn: Turn,
        middlewares: Sequence[Middleware],
        on_snapshot: OnSnapshot | None,
        on_event: OnEvent | None,
    ) -> None:
        self._log = log
        self._turn = turn
        self._middlewares = middlewares
        self._on_snapshot = on_snapshot
        self._on_event = on_event
        self._call: _AroundCall | None = None

    async def on_window(self, window: ContextWindow) -> ContextWindow:
        """Let the middlewares make of a window what the model is asked with."""
        if await self.ended():
            raise RunError(
                "a middleware appended blocks behind a reply with tool calls, where their results come: append them"
                " before it asks the model, or behind the last reply"
            )
        self._call = _AroundCall(self._middlewares)
        asked = await self._call.asked_with(self._like(turn_of_window(window)))
        self._tell("pre_inference", asked)
        return window_of(asked, window)

    def on_event(self, event: RunEvent) -> None:
        """Take a snapshot of what was recorded, and let the middlewares go on with a reply."""
        if isinstance(event, TurnRecorded):
            turn = event.turn
            if turn.meta.role == "assistant":
                if self._call is not None:
                    self._call.answer(self._log, turn)
                self._tell("post_inference", self.snapshot(turn))
            else:
                self._tell("post_tools", self.snapshot(turn))
        if self._on_event is not None:
            self._on_event(event)

    async def ended(self) -> list[Block]:
        """Wait until the middlewares of the last call are done with its reply, and return what they appended to it."""
        call, self._call = self._call, None
        return [] if call is None else await call.ended()

    def give_up(self) -> None:
        """End middlewares that still wait for a reply."""
        if self._call is not None:
            self._call.give_up()

    def snapshot(self, turn: LogTurn) -> Turn:
        """Return the conversation up to a turn."""
        return self._like(turn_of(self._log, turn.id)[0])

    def _like(self, snapshot: Turn) -> Turn:
        metadata = self._turn.metadata.clone()
        for identity, value in snapshot.metadata.range():
            metadata.put(identity, value)
        return Turn(
            id=self._turn.id,
            run_id=self._turn.run_id,
            metadata=metadata,
            data=self._turn.data.clone(),
            blocks=snapshot.blocks,
        )

    def _tell(self, phase: Phase, snapshot: Turn) -> None:
        if self._on_snapshot is not None:
            self._on_snapshot(phase, snapshot)


class _AroundCall:
    """The middlewares around one model call, which is made by somebody else: they wait where they would make it."""

    def __init__(self, middlewares: Sequence[Middleware]) -> None:
        loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[Turn] = loop.create_future()
        self._reply: asyncio.Future[Turn] = loop.create_future()
        self._has_middleware = bool(middlewares)
        self._handler = chain(self._ask, *middlewares)
        self._answered: list[Block] = []
        self._task: asyncio.Future[Turn] | None = None

    async def asked_with(self, turn: Turn) -> Turn:
        """Return the turn that the middlewares ask a model with."""
        under_way = cast("Awaitable[Turn] | Turn", self._handler(turn))
        if not isawaitable(under_way):
            raise RunError(
                f"the handler of a middleware returned {type(under_way).__name__}, which cannot be awaited: it is an"
                " `async def handle(turn)`"
            )
        self._task = asyncio.ensure_future(under_way)
        await asyncio.wait([self._task, self._asked], return_when=asyncio.FIRST_COMPLETED)
        if not self._asked.done():
            self._task.result()  # raises what a middleware raised
            raise RunError("a middleware returned without asking the model: in a run each asks it once")
        return self._asked.result()

    async def _ask(self, turn: Turn) -> Turn:
        if self._asked.done():
            raise RunError("a middleware asked the model again: in a run each asks it once")
        check_turn(turn, "what a middleware asks with", "give the handler a turn")
        self._asked.set_result(turn)
        return await asyncio.shield(self._reply)

    def answer(self, log: TurnLog, turn: LogTurn) -> None:
        """Give the middlewares what the model answered, if they wait for it."""
        if not self._asked.done() or self._reply.done():
            return
        asked = self._asked.result()
        named = {"provider": turn.meta.provider, "api": turn.meta.api, "model": turn.meta.model}
        hints: dict[str, JSONValue] = {name: value for name, value in named.items() if isinstance(value, str)}
        content = decode_content(log.payload(turn.id))
        blocks = [*asked.blocks, *reply_blocks(content, turn=turn.id, hints=hints)]
        answered = Turn(id=asked.id, run_id=asked.run_id, metadata=asked.metadata, data=asked.data, blocks=blocks)
        self._answered = deepcopy(blocks)
        self._reply.set_result(answered)

    async def ended(self) -> list[Block]:
        """Wait until the middlewares are done, and return what they appended. What one of them raises is raised here.

        Raises:
            ContentError: what they returned is no turn.
            RunError: they put new blocks before what was there.
        """
        if self._task is None or not self._reply.done():
            self.give_up()
            return []
        if not self._has_middleware:
            return []
        returned = await self._task
        check_turn(returned, "what a middleware returned", "return the turn that its handler returned")
        turn = read_turn(turn_record(returned), "what a middleware returned")
        return _appended(turn.blocks, self._answered)

    def give_up(self) -> None:
        """Cancel the middlewares: there will be no reply."""
        if self._task is not None:
            self._task.cancel()


def _appended(blocks: Sequence[Block], before: Sequence[Block]) -> list[Block]:
    """Return the blocks that are new.

    Raises:
        RunError: one of them is not behind all others.
    """
    left = [*before]
    changed: list[int] = []
    for index, block in enumerate(blocks):
        if block in left:
            left.remove(block)
        else:
            changed.append(index)
    new: list[int] = []
    for index in changed:
        # What is changed of a block still names the turn of the log that it is of.
        of = blocks[index].metadata.raw(KEY_BLOCK_TURN.identity)
        same = next((other for other in left if of and other.metadata.raw(KEY_BLOCK_TURN.identity) == of), None)
        if same is None:
            new.append(index)
        else:
            left.remove(same)
    if new != [*range(len(blocks) - len(new), len(blocks))]:
        raise RunError(
            "a middleware put blocks before or into what the model answered, after it did: put them in before it asks"
            " the model, or append them behind the reply"
        )
    return [blocks[index] for index in new]
