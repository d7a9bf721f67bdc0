"""The run loop: ask a model, run the tools that it calls, record everything, and go on until it is done."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec

from typing_extensions import TypeVar

from turnlog.agent.ask import Ask
from turnlog.agent.events import OnEvent, OnWindow
from turnlog.agent.followers import Followers
from turnlog.agent.functions import Function, Functions
from turnlog.agent.middleware import Layers, ModelMiddleware, ToolMiddleware
from turnlog.agent.model_calls import Asked
from turnlog.agent.opening import Attachments, Opening
from turnlog.agent.output import Output
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.policy import OnApproval, Policy
from turnlog.agent.result import RunResult
from turnlog.agent.run_checks import check_kind, several
from turnlog.agent.run_events import as_events
from turnlog.agent.run_log import Content, RunLog
from turnlog.agent.running import Run
from turnlog.agent.settled import delivered, hurried_when_cancelled
from turnlog.agent.target import Named
from turnlog.agent.time_limit import until_closed
from turnlog.agent.toolbox import Toolbox
from turnlog.errors import MetaError, RunError
from turnlog.model import Delta
from turnlog.model.kinds import check_type
from turnlog.model.plain import plain_json
from turnlog.record.fields import check_bookmark, check_continues, check_expected_head, check_inherited, check_subject
from turnlog.record.secrets import refuse_secrets

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", default=None)
V = TypeVar("V", Policy, Ask)

Tools = Toolbox | Function | Sequence[Toolbox | Function]
"""Tools that are given to a run: Python functions, toolboxes, or several of both."""


async def arun(  # noqa: PLR0913 - one argument for each thing that can be said of a run
    log: RunLog,
    content: Content | None = None,
    *,
    system: str | None = None,
    attachments: Attachments = (),
    output: Output[T] | type[T] | None = None,
    continues: str | Sequence[str] | None = None,
    respond: bool = False,
    bookmark: str | Literal[False] | None = None,
    expected_head: str | Literal[False] | None = None,
    pointer: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    servers: Sequence[str] | None = None,
    search: bool | None = None,
    tool_mode: str | None = None,
    tools: Tools = (),
    policy: Policy | None = None,
    ask: Ask | None = None,
    on_approval: OnApproval | None = None,
    on_delta: Callable[[Delta], None] | None = None,
    on_event: OnEvent | None = None,
    on_window: OnWindow | None = None,
    around_model: ModelMiddleware | Sequence[ModelMiddleware] = (),
    around_tool: ToolMiddleware | Sequence[ToolMiddleware] = (),
    subject: str | Literal[False] | None = None,
) -> RunResult[T]:
    """Add a turn, ask a model, run the tools that it calls, and go on until it is done. All is recorded as it happens.

    A model call that fails is recorded as a failed turn and ends the run: the result says so, and nothing is raised.
    Who cancels a run, by Ctrl-C or otherwise, finds in the log what had arrived, as an aborted turn, and a result for
    each tool call that was at work; then the cancellation goes on.

    Args:
        log: the log; `TurnLog.run` and `TurnLog.arun` are its methods.
        content: what to say, as for `add_turn`; None goes on from a turn: unanswered tool calls are run, a failed
            call is made again, a question that was recorded is asked.
        system: the system prompt from here on, a turn of its own before `content`; nothing is added where it is the
            last one of the thread already.
        attachments: paths of files to go before `content`, a document turn each, as `add_document` records them.
            They, the system prompt and `content` are recorded together.
        output: what value the last reply is to be, as a type (a pydantic model, a dataclass, a `TypedDict`, a msgspec
            struct, …) or as an `Output` (what is a type and no class, as `Output.of(Place | None)`). The model is held
            to its JSON Schema where the provider can, and the reply is checked; a model whose reply does not fit is
            told so once. The value is in the result.
        continues: the turns to continue, by id or bookmark; as for `add_turn`, as are the next two.
        respond: continue the turn that was recorded last in the log.
        bookmark: the bookmark to move along. Where somebody else moves it meanwhile, the run goes on on a branch of its
            own, and `BookmarkLeft` tells so.
        expected_head: the turn that the bookmark must be at when the run begins, False if it must not exist yet; as for
            `add_turn`.
        pointer: the pointer to the model. By default, that which the turns before have set, and where none has, the
            one of the name `default`. One that is given is written into the turn, as are the four below, and holds from
            here on.
        provider: the provider to ask, with `model`, in place of a pointer. Neither is written into the turn.
        model: the model to ask.
        servers: names of MCP servers whose tools to offer.
        search: whether the provider may search.
        tool_mode: a provider's tool mode.
        tools: more tools: Python functions and toolboxes. They are entered and left with the run.
        policy: which tool calls may go ahead, how much the run may use, and what is done about failures.
        ask: what each model call says beside the window, and another way to the model than the one that is set up.
        on_approval: asked for each call that needs approval. Without it the run stops at such a call. What it returns
            is True, False, a text or None: see `turnlog.agent.policy.Answer`.
        on_delta: called with each piece of a reply as it comes: a plain function.
        on_event: called with what happens: turns, calls, tools. It is a plain function, too. What it raises ends the
            run, `CancelledError` as a RunError: who wants that cancels the task of the run.
        on_window: called with the context window before each model call; what it returns is what the model is asked
            with, and the call keeps what is other in it. Turns stay as they are. It may be called again for one call.
        around_model: middleware around each model call, outermost first: see `turnlog.agent.middleware`. The tries of a
            call are within all of it.
        around_tool: middleware around each attempt of a tool call, which is recorded before.
        subject: whom the turn is about or of, as for `add_turn`; all turns of the run have it.

    Returns:
        Why it stopped, the turns that it recorded, the last reply, and the tokens.

    Raises:
        RunError: the run cannot begin, as where an argument is not what it should be, or another one was still at work
            after `policy.wait_s`: nothing was recorded. `why` it stopped is in the result.
            Or `on_approval` returned what is no answer: the turns so far are recorded.
        UnknownTurnError, UnknownPointerError, UnknownProviderError, UnknownServerError: nothing has this name; nothing
            was recorded.
        MissingKeyError, MissingPackageError: the provider is not set up; nothing was recorded.
        ToolServerError: an MCP server cannot be started; nothing was recorded.
        UnsupportedContentError: the provider's api cannot carry something that may not be lost; the turns so far are
            recorded.
        DocumentError: an attachment cannot be read; nothing was recorded.
        StoreClosedError: the log was closed meanwhile, which ends a run as a cancellation does.
        StoreLostError, StoreBusyError, UncertainError: the store did not take what there was. A run that is cancelled
            waits 2.5 s for a store that does not answer, and then ends with one of these.
        ContentError, MetaError, SecretError, RedactionError, HeadConflictError: as for `add_turn`.
    """
    policy, ask = _given(policy, Policy, "policy"), _given(ask, Ask, "ask")
    choice = {} if ask.tool_choice is None else {"tool_choice": ask.tool_choice}
    given_params: dict[str, Any] = plain_json({**(ask.params or {}), **choice}, "params", MetaError)
    refuse_secrets(given_params, field="params")
    check_kind("respond", respond, bool, "bool")
    named = _inherited(pointer, servers, search, tool_mode)
    # What makes a schema of a type takes a while to import: not in the event loop.
    wanted = output if output is None or isinstance(output, Output) else await log.executors.run_wait(Output.of, output)
    if wanted is not None:
        if "output_schema" in given_params:
            raise RunError("params.output_schema and output say the same: leave one of them out")
        given_params["output_schema"] = wanted.parameter
    run = Run(
        log,
        bookmark=check_bookmark(bookmark),
        expected_head=check_expected_head(expected_head),
        subject=check_subject(subject),
        policy=policy,
        layers=Layers(
            model=several("around_model", around_model, callable, "async functions"),
            tool=several("around_tool", around_tool, callable, "async functions"),
        ),
        asked=Asked(
            named=Named.of(ask, pointer=pointer, provider=_text(provider, "provider"), model=_text(model, "model")),
            params=given_params,
            on_loss=ask.on_loss,
            stream=ask.stream,
            output=wanted,
        ),
        followers=Followers(on_approval=on_approval, on_delta=on_delta, on_event=on_event, on_window=on_window),
    )
    begins_at = check_continues(continues, respond=False)
    opening = Opening(content=content, system=system, attachments=attachments)
    async with until_closed(log.executors.long_work):
        with hurried_when_cancelled():
            return await delivered(run.run(opening, begins_at, respond, named, _toolboxes(tools)))


def _in_own_loop(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Return a coroutine function as a plain one, that runs it in an event loop of its own."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with OwnLoop(instead="await `TurnLog.arun` or `AsyncTurnLog.run` there") as loop:
            return loop.run(function(*args, **kwargs))

    run.__name__ = run.__qualname__ = "run"
    return run


run = _in_own_loop(arun)
run_events = as_events(arun)


def _inherited(
    pointer: str | None, servers: Sequence[str] | None, search: bool | None, tool_mode: str | None
) -> dict[str, Any]:
    """Return the options that a caller gave, for the turn that the run adds.

    Raises:
        MetaError, SecretError: as for `check_inherited`.
    """
    search = None if search is None else check_type(search, bool, "search")
    named = {"provider_ptr": _text(pointer, "pointer"), "servers": servers, "search": search}
    named["tool_mode"] = _text(tool_mode, "tool_mode")
    return check_inherited(None, {name: value for name, value in named.items() if value is not None}) or {}


def _text(value: str | None, name: str) -> str | None:
    return None if value is None else check_type(value, str, name)


def _given(value: V | None, kind: type[V], name: str) -> V:
    """Return a value that a caller gave, or the default of its kind.

    Raises:
        RunError: it is of another kind.
    """
    if value is None:
        return kind()
    if type(value) is not kind:
        raise RunError(f"{name}: expected turnlog.{kind.__name__}, got {type(value).__name__}")
    return value


def _toolboxes(tools: Tools) -> list[Toolbox]:
    """Return tools as toolboxes: functions together in one, behind the others."""
    given: tuple[Toolbox | Function, ...] = several("tools", tools, _is_tool, "functions or toolboxes")
    functions = [tool for tool in given if not isinstance(tool, Toolbox)]
    boxes = [tool for tool in given if isinstance(tool, Toolbox)]
    return [*boxes, Functions(functions)] if functions else boxes


def _is_tool(value: object) -> bool:
    return isinstance(value, Toolbox) or callable(value)
