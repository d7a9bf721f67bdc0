"""The run loop: ask a model, run the tools that it calls, record everything, and go on until it is done."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec

from msgspec import UNSET, UnsetType
from typing_extensions import TypeVar

from turnlog.agent.bounds import RESULT_BYTES_MAX
from turnlog.agent.events import OnEvent, OnWindow
from turnlog.agent.followers import Followers
from turnlog.agent.functions import Function, Functions
from turnlog.agent.middleware import Layers, ModelMiddleware, ToolMiddleware
from turnlog.agent.opening import Attachments, Opening
from turnlog.agent.output import Output
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.policy import (
    ITERATIONS_MAX,
    PARALLEL_MAX,
    RETRY_WAIT_MAX_S,
    TOOL_RETRIES_MAX,
    TOOL_RETRY_WAIT_S,
    TOOL_TIMEOUT_S,
    Approve,
    OnApproval,
    OnInterrupted,
    OnToolError,
    Policy,
)
from turnlog.agent.result import RunResult
from turnlog.agent.run_events import as_events
from turnlog.agent.run_log import Content, RunLog
from turnlog.agent.running import Asked, Run
from turnlog.agent.target import Named, Replies
from turnlog.agent.toolbox import Toolbox
from turnlog.errors import MetaError, RunError
from turnlog.model import Delta
from turnlog.model.plain import plain_json
from turnlog.providers import Connection, OnLoss, Parameters, Provider
from turnlog.record.secrets import refuse_secrets

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", default=None)
F = TypeVar("F", bound=Callable[..., Any])

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
    bookmark: str | UnsetType | None = UNSET,
    expected_head: str | UnsetType | None = UNSET,
    wait_s: float | None = None,
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
    around_model: ModelMiddleware | Sequence[ModelMiddleware] = (),
    around_tool: ToolMiddleware | Sequence[ToolMiddleware] = (),
    offer: str | Sequence[str] | None = None,
    iterations_max: int = ITERATIONS_MAX,
    time_max_s: float | None = None,
    tries_max: int | None = None,
    retry_wait_max_s: float = RETRY_WAIT_MAX_S,
    total_tokens_max: int | None = None,
    call_timeout_s: float | None = None,
    tool_timeout_s: float = TOOL_TIMEOUT_S,
    parallel_max: int = PARALLEL_MAX,
    result_bytes_max: int | None = RESULT_BYTES_MAX,
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
        expected_head: the turn that the bookmark must be at when the run begins, None if it must not exist yet; as for
            `add_turn`.
        wait_s: how long to wait, in seconds, where another run seems to be at work on the turn to continue: a question
            without a reply, or tool calls without results. Then the run begins behind what that one has recorded, if
            `continues` is a bookmark. By default it does not wait.
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
        around_model: middleware around each model call, outermost first: see `turnlog.agent.middleware`. The tries of a
            call are within all of it.
        around_tool: middleware around each attempt of a tool call, which is recorded before.
        offer: patterns of the names of the tools to offer, such as `fs___*`; all by default.
        iterations_max: how many model calls it may make, at least 1.
        time_max_s: how long the run may take in all, in seconds; what is at work then is broken off, as by a
            cancellation, and recorded. Programs that it has started have some seconds more to end. None for no limit.
        tries_max: how often to make one model call at most, where it fails before anything of a reply was shown, in a
            way that may pass. Each try is recorded as a call. By default one more than the connection's `retries_max`.
        retry_wait_max_s: how long a provider may ask to wait before it is tried again, in seconds. One that asks for
            more is not tried again, and the run ends with its error, which says when to come back.
        total_tokens_max: how many tokens they may take together, None for no limit.
        call_timeout_s: how long a model call may wait for its connection, and for each next piece of a reply, in
            seconds. By default what the connection says: 600.
        tool_timeout_s: how long a tool call may take, in seconds.
        parallel_max: how many tools may run at the same time, at least 1.
        result_bytes_max: how much text of a tool's result goes to the model, in bytes of UTF-8, at least 1; None for
            all of it. The log has all of it, the model is told where it was cut, and is offered the tool `read_result`
            to read on. An image or another document may have fifty times as many bytes; a larger one becomes a text
            that says what it was. Results of the turns before are bounded too.
        tool_choice: `auto`, `none`, `required` or the name of a tool. What forces a call holds for the first one.
        on_tool_error: tell the model (`continue`), stop after that (`abort`), or try the tool again first (`retry`).
            One that was given up, or whose server ended, may have done its work, and is not tried again.
        on_interrupted: what to do with a tool call that an earlier run began and whose end is not known, because it was
            killed: ask `on_approval`, whatever `approve` says (`ask`); call the tool again as if it had not been called
            (`repeat`); or tell the model that nobody knows (`report`). A call whose result is recorded is not repeated.
        tool_retries_max: how often to try a failing tool again.
        tool_retry_wait_s: how long to wait before the first retry, in seconds; then twice as long each time.
        params: parameters of the model calls; they win over those of the pointer.
        on_loss: what to do with what the provider's api cannot carry. By default blocks become a text that says what
            they were, and search, tools and parameters are refused; `report` gives those up too, `error` refuses all.
        stream: ask for the reply in pieces, where the provider can.
        connection: another way to the provider than key and endpoint that are set up.
        adapter: another adapter than the provider's.
        replay: recorded replies to give in place of asking anybody: `calls.replies()` of the log that has them.
        subject: whom the turn is about or of, as for `add_turn`; all turns of the run have it.

    Returns:
        Why it stopped, the turns that it recorded, the last reply, and the tokens.

    Raises:
        RunError: the run cannot begin, or another one was still at work after `wait_s`: nothing was recorded. `why` it
            stopped is in the result.
        UnknownTurnError, UnknownPointerError, UnknownProviderError, UnknownServerError: nothing has this name; nothing
            was recorded.
        MissingKeyError, MissingPackageError: the provider is not set up; nothing was recorded.
        ToolServerError: an MCP server cannot be started; nothing was recorded.
        UnsupportedContentError: the provider's api cannot carry something that may not be lost; the turns so far are
            recorded.
        DocumentError: an attachment cannot be read; nothing was recorded.
        ContentError, MetaError, SecretError, RedactionError, HeadConflictError: as for `add_turn`.
    """
    given_params: dict[str, Any] = plain_json(params or {}, "params", MetaError)
    refuse_secrets(given_params, field="params")
    if tool_choice is not None:
        given_params["tool_choice"] = tool_choice
    wanted = output if output is None or isinstance(output, Output) else Output.of(output)
    if wanted is not None:
        if "output_schema" in given_params:
            raise RunError("params.output_schema and output say the same: leave one of them out")
        given_params["output_schema"] = wanted.parameter
    named = {"provider_ptr": pointer, "servers": servers, "search": search, "tool_mode": tool_mode}
    run = Run(
        log,
        bookmark=bookmark,
        expected_head=expected_head,
        subject=subject,
        policy=Policy(
            approve=approve,
            allow=_patterns(allow),
            offer=None if offer is None else _patterns(offer),
            iterations_max=iterations_max,
            time_max_s=time_max_s,
            tries_max=tries_max,
            retry_wait_max_s=retry_wait_max_s,
            call_timeout_s=call_timeout_s,
            wait_s=wait_s,
            total_tokens_max=total_tokens_max,
            tool_timeout_s=tool_timeout_s,
            parallel_max=parallel_max,
            result_bytes_max=result_bytes_max,
            on_tool_error=on_tool_error,
            on_interrupted=on_interrupted,
            tool_retries_max=tool_retries_max,
            tool_retry_wait_s=tool_retry_wait_s,
        ),
        layers=Layers(model=_several(around_model), tool=_several(around_tool)),
        asked=Asked(
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
            output=wanted,
        ),
        followers=Followers(on_approval=on_approval, on_delta=on_delta, on_event=on_event, on_window=on_window),
    )
    given = {name: value for name, value in named.items() if value is not None}
    opening = Opening(content=content, system=system, attachments=attachments)
    return await run.run(opening, continues, respond, given, _toolboxes(tools))


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


def _several(given: F | Sequence[F]) -> tuple[F, ...]:
    """Return middleware: a function is one."""
    return (given,) if callable(given) else tuple(given)


def _patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return patterns: a text is one of them, not one a letter."""
    return (given,) if isinstance(given, str) else tuple(given)


def _toolboxes(tools: Tools) -> list[Toolbox]:
    """Return tools as toolboxes: functions together in one, behind the others."""
    given = [tools] if isinstance(tools, Toolbox) or callable(tools) else list(tools)
    functions = [tool for tool in given if not isinstance(tool, Toolbox)]
    boxes = [tool for tool in given if isinstance(tool, Toolbox)]
    return [*boxes, Functions(functions)] if functions else boxes
