"""A model that the run loop can ask, as an engine: it takes a turn and appends what the model answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import msgspec

from turnlog.agent.target import Target
from turnlog.interop.geppetto.middleware import Handler
from turnlog.interop.geppetto.reading import messages_of, reply_blocks, tell_outcome
from turnlog.interop.geppetto.tools import InMemoryToolRegistry, registry_from, tool_config
from turnlog.interop.geppetto_model.checking import check_turn
from turnlog.interop.geppetto_model.keys import ToolConfig
from turnlog.interop.geppetto_model.types import Turn
from turnlog.model import ContextWindow, Delta, JSONValue, LossReport, Response, Tool, TurnMeta
from turnlog.providers import OnLoss, Parameters

OnReport = Callable[[LossReport], None]


def engine_of(
    target: Target,
    *,
    params: Parameters | None = None,
    on_loss: OnLoss | None = None,
    on_delta: Callable[[Delta], None] | None = None,
    on_report: OnReport | None = None,
) -> Handler:
    """Return a model as an engine. Nothing is recorded: for that, see `turnlog.interop.geppetto.workflow`.

    The engine returns another turn: that which it is given, with `llm_text`, `reasoning` and `tool_call` blocks behind,
    and provider, model, stop reason and usage in its metadata. It offers the tools of the registry in its context
    (`with_registry`) if the turn's tool configuration enables them. A call that fails adds what had come, and its stop
    reason is `error`.

    Args:
        target: the model, its adapter and the way to it. `turnlog.agent.target.find_target` finds that of a pointer.
        params: parameters of the calls.
        on_loss: what to do with what the provider's api cannot carry, as for `Provider.prepare_request`.
        on_delta: called with each piece of a reply as it comes.
        on_report: called with what a request does not carry of a turn, where there is something.

    The engine raises:
        UnsupportedContentError: the provider's api cannot carry something of the turn.
        ContentError: a payload is not JSON, or is no content; or something is no turn or block; names the place.
        MetaError: the tool configuration is none.
        RunError: a tool of the registry cannot be offered.
    """

    async def infer(turn: Turn) -> Turn:
        check_turn(turn)
        config = tool_config(turn)
        adapter = target.adapter
        given = {**adapter.call_params, **target.params, **(params or {})}
        tools = await _offered(config, registry_from())
        if tools and config.tool_choice != "auto":
            given["tool_choice"] = config.tool_choice
        messages = [
            msgspec.structs.replace(message, turn=f"messages[{index}]")
            for index, message in enumerate(messages_of(turn.blocks))
        ]
        request = adapter.prepare_request(
            ContextWindow(messages=messages, options={}),
            tools,
            model=target.model,
            params=given,
            on_loss=on_loss,
            stream=adapter.capabilities.streams,
        )
        if request.loss_report and on_report is not None:
            on_report(request.loss_report)
        reply = await adapter.acall(request, target.connection, on_delta=on_delta)
        return _answered(turn, reply.response)

    return infer


async def _offered(config: ToolConfig, registry: InMemoryToolRegistry | None) -> Sequence[Tool]:
    if not config.enabled or registry is None:
        return ()
    async with registry.toolbox() as tools:
        offered = await tools.tools()
    allowed = config.allowed_tools
    return [tool for tool in offered if allowed is None or tool.name in allowed]


def _answered(turn: Turn, response: Response) -> Turn:
    answered = copy(turn)
    named = {"provider": response.provider, "api": response.api, "model": response.model}
    hints: dict[str, JSONValue] = {name: value for name, value in named.items() if value}
    answered.blocks = [*turn.blocks, *reply_blocks(response.content, hints=hints)]
    answered.metadata = turn.metadata.clone()
    meta = TurnMeta(
        role="assistant",
        provider=response.provider,
        model=response.model,
        stop_reason=response.stop_reason,
        usage=response.usage,
    )
    tell_outcome(answered, meta)
    return answered
