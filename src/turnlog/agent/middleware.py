"""What goes around the model calls and the tool calls of a run: one shape, for what users write and for what is ours.

A middleware is an async function that is given a call and what makes it. It makes the call, once, or answers in its
place; before and after it does what it likes. Of several the first one is outermost. What is recorded stays exact: a
request is recorded as it is sent and a reply as it came, so that a middleware changes what is asked, and not what was
said.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct

from turnlog.agent.letting_go import cancellations, check_cancelled, ends
from turnlog.agent.toolbox import ToolOutcome, fault_in
from turnlog.errors import MetaError, RunError
from turnlog.model import Approved, Response, Tool, ToolUse
from turnlog.model.plain import plain_json, plain_text
from turnlog.providers import Parameters
from turnlog.turn import Turn

C = TypeVar("C")
R = TypeVar("R")


class ModelCall(Struct, frozen=True, kw_only=True):
    """A model call that is about to be made. `msgspec.structs.replace` changes it.

    Attributes:
        turn: the turn that it goes on from.
        iteration: which model call of the run it is, from 1.
        provider: who is asked.
        model: the model that is asked. It may be changed.
        params: the parameters. They may be changed.
        tools: the tools that are offered. They may be changed, to some of them.
    """

    turn: Turn
    iteration: int
    provider: str
    model: str
    params: Parameters
    tools: tuple[Tool, ...]


class ToolCall(Struct, frozen=True, kw_only=True):
    """An attempt of a tool call, which is recorded and about to be made.

    Attributes:
        call: the call, as the model made it.
        attempt: which attempt it is, from 1.
        approved: what lets it run.
        server: the MCP server that it runs on, None for a function of this process.
    """

    call: ToolUse
    attempt: int
    approved: Approved
    server: str | None


CallModel = Callable[[ModelCall], Awaitable[Response]]
"""Makes a model call: records the request, sends it, and records the reply. A failure is a response with an error."""

CallTool = Callable[[ToolCall], Awaitable[ToolOutcome]]
"""Makes a tool call. A failure is an outcome with `is_error`."""

ModelMiddleware = Callable[[ModelCall, CallModel], Awaitable[Response]]
"""Goes around a model call, with all its tries. The response that it returns is the one that it was given, or one of
its own in place of asking: that one is recorded as a turn without a call. Asking again is for replies that failed."""

ToolMiddleware = Callable[[ToolCall, CallTool], Awaitable[ToolOutcome]]
"""Goes around each attempt of a tool call. What it returns is recorded as the result, and is what the model is told. It
calls the tool at most once: an attempt is recorded before it can have an effect. What it raises ends the run."""


def around(
    call: Callable[[C], Awaitable[R]], layers: Sequence[Callable[..., Awaitable[R]]]
) -> Callable[[C], Awaitable[R]]:
    """Return what makes a call with layers around it, the first one outermost."""
    for layer in reversed(layers):
        call = partial(_within, layer, call)
    return call


async def _within(layer: Callable[..., Awaitable[R]], call: Callable[[C], Awaitable[R]], given: C) -> R:
    answer = layer(given, call)
    if not inspect.isawaitable(answer):
        name = getattr(layer, "__qualname__", type(layer).__name__)
        raise RunError(f"the middleware {name} is no async function: it returned {type(answer).__name__}")
    return await answer


class Layers(Struct, frozen=True, kw_only=True):
    """What goes around the calls of a run, outermost first."""

    model: tuple[ModelMiddleware, ...] = ()
    tool: tuple[ToolMiddleware, ...] = ()


class _Surrounded:
    """What a middleware goes around: it is at work while that awaits it, and not any more behind it."""

    def __init__(self) -> None:
        self._at_work: asyncio.Task[object] | None = None
        self._is_over = self._was_left = False

    def breaks_off(self) -> bool:
        """Have what is at work cancelled, wherever a middleware awaits it, and tell whether something is."""
        task = self._at_work
        if task is not None and not task.cancelling():
            task.cancel()
        return task is not None

    def leave(self) -> None:
        """Begin nothing any more: what goes around it did not end when it was cancelled."""
        self._is_over = True

    async def end(self) -> None:
        """Begin nothing any more. What nobody awaited is cancelled, has its time to end, and is recorded by then.

        Raises:
            CancelledError: the run was cancelled meanwhile.
        """
        self._is_over = True
        if self._at_work is not None:
            self._was_left = True
            before = cancellations()
            await ends(self._at_work, self.breaks_off)
            await check_cancelled(before)


class Asking(_Surrounded):
    """One model call of a run, however often it is tried: what was asked last, and what came.

    Attributes:
        response: the last reply that is recorded, None if nothing was asked.
        offered: the tools that the last request offered.
    """

    def __init__(self, call: ModelCall) -> None:
        """Take the call as the run means it."""
        super().__init__()
        self._call = call
        self.response: Response | None = None
        self.offered = call.tools

    async def ask(self, given: ModelCall, make: CallModel) -> Response:
        """Ask, one request after the other, as long as the call goes on.

        Raises:
            RunError: it is no longer the call that the run is at, or was answered already.
            MetaError: the model or the parameters are not JSON.
        """
        self._check(given)
        self._at_work = asyncio.current_task()
        try:
            self.response = await make(given)
        finally:
            self._at_work = None
        return self.response

    def checked(self, response: object) -> Response:
        """Return what the middleware returned.

        Raises:
            RunError: it is no response, or not the one that came.
        """
        if not isinstance(response, Response):
            raise RunError(f"a middleware returned {type(response).__name__} in place of a Response")
        if self._was_left:
            raise RunError("a middleware returned while its request was under way: await what makes it")
        if self.response is not None and response != self.response:
            raise RunError("a middleware has changed a reply: it is recorded as it came")
        return response

    def _check(self, given: object) -> None:
        """Check what a middleware asks for, before it is sent."""
        call = self._call
        if self._is_over or self._at_work is not None:
            when = "after its call was over" if self._is_over else "while its request is under way"
            raise RunError(f"a middleware asks {when}: one request after the other, within the call")
        if not isinstance(given, ModelCall):
            raise RunError(f"a middleware asks with {type(given).__name__} in place of a ModelCall")
        if not isinstance(given.model, str) or not given.model:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RunError(f"a middleware asks the model {given.model!r}: a model has a name")
        if not isinstance(given.params, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RunError(f"a middleware gives {type(given.params).__name__} for parameters: a mapping is expected")
        if not isinstance(given.tools, tuple | list):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RunError(f"a middleware gives {type(given.tools).__name__} for tools: a tuple is expected")
        plain_text(given.model, "model", MetaError)
        plain_json(given.params, "params", MetaError)
        if (given.turn, given.iteration, given.provider) != (call.turn, call.iteration, call.provider):
            raise RunError("a middleware has changed turn, iteration or provider of a call: only the rest can be")
        known = {tool.name: tool for tool in call.tools}
        for tool in given.tools:
            if not isinstance(tool, Tool) or known.get(tool.name) != tool:  # pyright: ignore[reportUnnecessaryIsInstance]
                name = getattr(tool, "name", tool)
                raise RunError(f"a middleware offers {name!r}, which the run does not have so: give it as a tool")
        if len({tool.name for tool in given.tools}) < len(given.tools):
            raise RunError("a middleware offers a tool twice")
        if self.response is not None and self.response.error is None:
            raise RunError("a middleware asks again though a reply is recorded: only a call that failed is made again")
        self.offered = given.tools


class OnlyOnce(_Surrounded):
    """Makes a tool call, once."""

    def __init__(self, make: Callable[[ToolUse], Awaitable[ToolOutcome]], asked: ToolCall) -> None:
        """Take what makes it, and the attempt that is recorded."""
        super().__init__()
        self._make = make
        self._asked = asked
        self.returned: ToolOutcome | None = None
        """What the tool has returned."""
        self._is_made = self._is_broken_off = False

    def checked(self, outcome: object) -> ToolOutcome:
        """Return what the middleware returned.

        Raises:
            RunError: it is no outcome, or the tool was still at work.
        """
        if self._was_left:
            name = self._asked.call.name
            raise RunError(f"a middleware returned while the tool {name!r} was at work: await what calls it")
        if (fault := fault_in(outcome)) is not None:
            raise RunError(f"a middleware returned what cannot be the outcome of {self._asked.call.name!r}: {fault}")
        assert isinstance(outcome, ToolOutcome)
        if self._is_broken_off and outcome.is_error:
            return msgspec.structs.replace(outcome, may_have_had_effects=True)
        return outcome

    async def __call__(self, given: ToolCall) -> ToolOutcome:
        """Make it.

        Raises:
            RunError: it is another call than the recorded one, or was made already.
        """
        name = self._asked.call.name
        if given != self._asked:
            raise RunError(f"a middleware has changed the call of {name!r}: it is recorded as the model made it")
        if self._is_over:
            raise RunError(f"a middleware calls {name!r} after its end is recorded: call it within the middleware")
        if self._is_made:
            raise RunError(f"a middleware calls {name!r} a second time: let on_tool_error='retry' record each attempt")
        self._is_made = True
        self._at_work = asyncio.current_task()
        try:
            self.returned = await self._make(given.call)
        except asyncio.CancelledError:
            self._is_broken_off = True
            raise
        finally:
            self._at_work = None
        return self.returned
