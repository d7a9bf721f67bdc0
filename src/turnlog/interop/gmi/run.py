"""Answer inputs: record, ask a model by the run loop, and tell of it in chunks."""

from __future__ import annotations

import asyncio
import glob
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, Unpack

import msgspec
from msgspec import Struct

from turnlog.agent import loop
from turnlog.agent.ask import Ask
from turnlog.agent.own_loop import OwnLoop
from turnlog.agent.policy import Policy
from turnlog.agent.resolve import adapter_of, connection_of
from turnlog.agent.result import RunResult
from turnlog.agent.settings import RunSettings
from turnlog.agent.settled import settled
from turnlog.errors import NotFoundError, RunError, TurnlogError, UnknownProviderError
from turnlog.interop.gmi.chunks import OnChunk, Teller
from turnlog.interop.gmi.history import history_notes
from turnlog.interop.gmi.input import GMIMetadata, GMITurnInput, ModelOptions, read_input
from turnlog.interop.gmi.masking import Keys
from turnlog.interop.gmi.naming import NAME_CHARACTERS_MAX, quoted
from turnlog.interop.gmi.options import CallOptions, call_options
from turnlog.interop.gmi.output import (
    STOPPED,
    FinishReason,
    GMIError,
    GMIOutput,
    GMIOutputChunk,
    answer_of,
    is_finished,
    is_handed_over,
    made_output,
)
from turnlog.interop.gmi.prompt import on_window_of
from turnlog.interop.gmi.record import record
from turnlog.interop.gmi.settings import check_settings
from turnlog.log import TurnLog
from turnlog.model import Options
from turnlog.providers import Connection, Provider
from turnlog.providers.keys import find_key
from turnlog.turn import Turn


async def arun(
    log: TurnLog,
    given: GMITurnInput | Mapping[str, object],
    *,
    tools: loop.Tools = (),
    on_chunk: OnChunk | None = None,
    **settings: Unpack[RunSettings],
) -> GMIOutput:
    """Record an input if it is not there, have it answered, and return the answer. All is recorded as it happens.

    Asking again for an interaction that has its final reply gives this reply, and asks no model; one whose run broke
    off or stopped goes on from there. What goes wrong is told in the output and in the chunks: nothing is raised for
    it. The last chunk is a `final_response_marker`, whatever happens. No chunk, and nothing of the output, has a key of
    the run in it.

    Args:
        log: the log.
        given: the input, or its JSON values. `userApiKeys` are used for the call, by the name of the provider.
        tools: Python functions and toolboxes, as for `TurnLog.run`.
        on_chunk: called with each chunk of the answer. What it raises breaks the run off and is raised here; the final
            chunk is given to it all the same.
        settings: what else the run needs. The model that the input prefers wins over `pointer`, and `provider`, `model`
            and `ask.adapter` win over it; its options win over `ask.params`, its policy over `policy.on_tool_error`,
            and which tools are offered is its own to say; its `stream` wins over that of `ask`. `ask.on_loss` is
            `report` by default.

    Returns:
        The answer, with `error` where there is none.

    Raises:
        MetaError: a field of the input is missing or malformed; no chunk was told.
        RunError: there is no such setting, or the input says it; no chunk was told.
    """
    check_settings(settings)
    read = given if isinstance(given, GMITurnInput) else read_input(given)
    answering = _Answering(log, read, on_chunk, settings)
    teller = answering.teller
    try:
        output = await answering.answer(tools)
    except TurnlogError as error:
        output = answering.failed(error)
    except asyncio.CancelledError as error:
        teller.final(answering.output(FinishReason.ABORTED), error)
        raise
    except BaseException as error:
        teller.final(answering.failed(error), error)
        raise
    else:
        if teller.failure is not None:  # the run took it for an error of the provider
            output = answering.failed(teller.failure)
    teller.final(output)
    if teller.failure is not None:
        raise teller.failure
    return output


def run(
    log: TurnLog,
    given: GMITurnInput | Mapping[str, object],
    *,
    tools: loop.Tools = (),
    on_chunk: OnChunk | None = None,
    **settings: Unpack[RunSettings],
) -> GMIOutput:
    """Do what `arun` does, in an event loop of its own.

    Raises:
        RunError: an event loop runs in this thread; or there is no such setting, or the input says it.
        MetaError: a field of the input is missing or malformed.
    """
    with OwnLoop(instead="await `arun` there") as loop:
        return loop.run(arun(log, given, tools=tools, on_chunk=on_chunk, **settings))


async def stream(
    log: TurnLog,
    given: GMITurnInput | Mapping[str, object],
    *,
    tools: loop.Tools = (),
    **settings: Unpack[RunSettings],
) -> AsyncGenerator[GMIOutputChunk, None]:
    """Do what `arun` does, and yield the chunks of the answer as they come.

    Who leaves the loop early, closes the generator or is cancelled cancels the run: the log has the aborted turn then.

    Raises:
        MetaError: a field of the input is missing or malformed; no chunk was yielded.
        RunError: there is no such setting, or the input says it; no chunk was yielded.
    """
    check_settings(settings)
    chunks: asyncio.Queue[GMIOutputChunk | None] = asyncio.Queue()
    read = given if isinstance(given, GMITurnInput) else read_input(given)
    task = asyncio.create_task(arun(log, read, tools=tools, on_chunk=chunks.put_nowait, **settings))
    task.add_done_callback(lambda _: chunks.put_nowait(None))
    try:
        while (chunk := await chunks.get()) is not None:
            yield chunk
        await task
    finally:
        task.cancel()  # nothing, where it is done
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # who left early is not told of it


class _Chosen(Struct, frozen=True, kw_only=True):
    """Which model to ask.

    Attributes:
        pointer: the pointer to it, else None.
        provider: its provider, where no pointer says it.
        model: its name, where no pointer says it.
        params: parameters of a pointer whose model was replaced.
        adapter: the adapter that will speak to it, None where that is not known.
        owner: the provider's name, None where that is not known.
    """

    pointer: str | None = None
    provider: str | None = None
    model: str | None = None
    params: Mapping[str, Any] = {}
    adapter: Provider | None = None
    owner: str | None = None


class _Answering:
    """The answering of one input."""

    def __init__(self, log: TurnLog, read: GMITurnInput, on_chunk: OnChunk | None, settings: RunSettings) -> None:
        self._log = log
        self._read = read
        self._settings = settings
        self._ask = settings.get("ask") or Ask()
        self._metadata = read.metadata or GMIMetadata()
        self._turn: Turn | None = None
        self._before: list[Turn] = []
        self._lines: list[str] = []
        keys = self._metadata.user_api_keys or {}
        self.teller = Teller(log, read.interaction_id, on_chunk, Keys(keys.values()))

    async def answer(self, tools: loop.Tools) -> GMIOutput:
        """Return the answer, asking a model for what of it is not there.

        Raises:
            TurnlogError: the input cannot be recorded, or the run cannot begin or go on.
        """
        log, teller = self._log, self.teller
        turn = self._turn = await settled(log.executors, partial(record, log, self._read))
        await asyncio.sleep(0)  # a cancellation that waited for it is delivered here
        self._before = await log.executors.run_read(answer_of, log, turn)
        head = self._before[-1] if self._before else turn
        if await log.executors.run_read(is_finished, log, head) or await log.executors.run_read(
            is_handed_over, log, head
        ):
            teller.repeat(head)
            return self.output(None)
        asked = await log.executors.run_read(self._asked)
        for line in self._lines:  # not in that thread: chunks are told in the loop's
            teller.note(line)
        result = await loop.arun(
            log,
            continues=head.id,
            tools=tools,
            on_window=on_window_of(log, turn),
            on_delta=teller.on_delta,
            on_event=teller.on_event,
            **asked,
        )
        error = _call_error(result)
        if error is not None:
            teller.error(error)
        return self.output(STOPPED[result.stopped], error)

    def output(self, reason: FinishReason | None, error: GMIError | None = None) -> GMIOutput:
        """Return the output of what there is, without keys."""
        keys = self.teller.keys
        output = self._output(reason, None if error is None else keys.masked_model(error))
        # Ids of turns and of the interaction stay: they say which answer this is.
        return output.model_copy(
            update={
                "response_text": None if output.response_text is None else keys.masked(output.response_text),
                "tool_calls": [keys.masked_model(call) for call in output.tool_calls],
                "error": None if output.error is None else keys.masked_model(output.error),
            }
        )

    def _output(self, reason: FinishReason | None, error: GMIError | None) -> GMIOutput:
        interaction, notes = self._read.interaction_id, self.teller.notes
        try:
            return made_output(
                self._log,
                self._turn,
                [*self._before, *self.teller.answer],
                finish_reason=reason,
                error=error,
                notes=notes,
                interaction_id=interaction,
            )
        except TurnlogError as unread:
            # The end is told all the same, whatever has become of the store.
            told = error or GMIError(code=type(unread).__name__, message=str(unread))
            end = reason or FinishReason.ERROR
            return GMIOutput(interaction_id=interaction, is_final=False, error=told, finish_reason=end, notes=notes)

    def failed(self, error: BaseException) -> GMIOutput:
        """Tell of an error, and return the output of what there is."""
        if error is self.teller.failure:
            message = "on_chunk failed at a chunk, and broke the run off"
        else:
            message = str(error) if isinstance(error, TurnlogError) else "an error of another kind broke the run off"
        told = GMIError(code=type(error).__name__, message=message)
        try:
            self.teller.error(told)
        except Exception as raised:
            if raised is not self.teller.failure:
                raise
            error.add_note(f"on_chunk failed at the chunk that tells of it: {type(raised).__name__}: {raised}")
        return self.output(FinishReason.ERROR, told)

    def _asked(self) -> dict[str, Any]:
        """Return the arguments of the run."""
        assert self._turn is not None
        given = self._settings
        chosen = self._choose(self._log.context(self._turn.id).options)
        options = self._metadata.options
        call = call_options(options, "" if chosen.adapter is None else chosen.adapter.api)
        connection = self._connection(chosen, call)
        self.teller.keys = self.teller.keys.with_key(self._key(chosen, connection))
        self._lines += [*call.notes, *history_notes(self._metadata.conversation_history_for_prompt)]
        policy = self._metadata.execution_policy
        mode = None if policy is None else policy.tool_failure_mode
        on_tool_error = {"fail_open": "continue", "fail_closed": "abort"}.get(mode or "")
        limits: dict[str, Any] = {"offer": self._offer()}
        if on_tool_error is not None:
            limits["on_tool_error"] = on_tool_error
        ask = self._ask
        return {
            **given,
            "pointer": chosen.pointer,
            "provider": chosen.provider,
            "model": chosen.model,
            "policy": msgspec.structs.replace(given.get("policy") or Policy(), **limits),
            "ask": msgspec.structs.replace(
                ask,
                params={**chosen.params, **(ask.params or {}), **call.params},
                tool_choice=call.tool_choice,
                connection=connection,
                on_loss=ask.on_loss or "report",
                stream=ask.stream if call.stream is None else call.stream,
            ),
        }

    def _choose(self, inherited: Options) -> _Chosen:
        """Return the model to ask: that of the caller, else that which the input prefers, else that of the pointer.

        Raises:
            RunError: the input prefers a model or a provider, and nothing says the other.
            UnknownPointerError, UnknownProviderError, MissingPackageError: it cannot be asked.
        """
        given, options = self._settings, self._metadata.options or ModelOptions()
        other: object = (options.model_extra or {}).get("modelId")
        provider = options.preferred_provider_id or None
        model = options.preferred_model_id or (other if isinstance(other, str) else None) or None
        if provider is not None and len(provider) > NAME_CHARACTERS_MAX:
            raise UnknownProviderError(f"options.preferredProviderId: no provider {quoted(provider)}", name=provider)
        if self._ask.adapter or given.get("provider") or given.get("model"):
            return self._of_caller(provider, model)
        named: object = given.get("pointer") or inherited.get("provider_ptr")
        name = named if isinstance(named, str) and named else None
        if provider is None and model is None:
            return self._known(_Chosen(pointer=name), None if name is None else self._log.pointers.get(name).provider)
        try:
            pointer = None if name is None else self._log.pointers.get(name)
        except NotFoundError:
            pointer = None
        if pointer is not None and provider in (None, pointer.provider) and model in (None, pointer.model):
            return self._known(_Chosen(pointer=name), pointer.provider)
        if model is None:
            raise RunError(
                f"options.preferredProviderId {quoted(provider or '')} says no model: give options.preferredModelId too"
            )
        if provider is None and pointer is None:
            raise RunError(
                f"options.preferredModelId {quoted(model)} says no provider: give options.preferredProviderId too"
            )
        if pointer is not None and provider in (None, pointer.provider):
            return self._known(_Chosen(model=model, params=pointer.params), pointer.provider)
        return self._known(_Chosen(model=model), provider)

    def _of_caller(self, provider: str | None, model: str | None) -> _Chosen:
        given = self._settings
        adapter, named = self._ask.adapter, given.get("provider")
        owner = named or (None if adapter is None else adapter.provider)
        for field, wanted, has in (
            ("preferredProviderId", provider, owner),
            ("preferredModelId", model, given.get("model")),
        ):
            if wanted is not None and wanted != has:
                self._lines.append(f"options.{field} {quoted(wanted)} is not asked: the caller named another")
        chosen = _Chosen(pointer=given.get("pointer"), provider=named, model=given.get("model"), adapter=adapter)
        return chosen if owner is None or adapter is not None else self._known(chosen, owner)

    def _known(self, chosen: _Chosen, owner: str | None) -> _Chosen:
        """Return a choice with the adapter of its provider."""
        if owner is None:
            return chosen
        provider = chosen.provider if chosen.pointer is not None or chosen.model is None else owner
        adapter = adapter_of(self._log.providers.get(owner))
        return msgspec.structs.replace(chosen, provider=provider, adapter=adapter, owner=owner)

    def _connection(self, chosen: _Chosen, call: CallOptions) -> Connection | None:
        """Return the way to the provider, with the user's own key for it; None for the one that is set up."""
        adapter, connection = chosen.adapter, self._ask.connection
        if adapter is None:
            return connection
        names = {name.lower() for name in (chosen.owner or adapter.provider, adapter.provider)}
        keys = self._metadata.user_api_keys or {}
        key = next((value for name, value in keys.items() if name.lower() in names and value), None)
        if connection is None and key is None and call.timeout_s is None:
            return None
        if connection is None:
            meta = self._log.providers.get(chosen.owner or adapter.provider)
            connection = connection_of(meta) if key is None else Connection(base_url=meta.base_url or None)
        if key is not None:
            connection = msgspec.structs.replace(connection, api_key=key)
        if call.timeout_s is not None:
            connection = msgspec.structs.replace(connection, timeout_s=call.timeout_s)
        return connection

    def _key(self, chosen: _Chosen, connection: Connection | None) -> str | None:
        """Return the key that the model will be asked with; None where there is none."""
        if connection is not None or chosen.adapter is None or self._ask.replay is not None:
            return None if connection is None else connection.api_key
        return find_key(chosen.adapter.provider, chosen.adapter.key_variable)[0]

    def _offer(self) -> list[str] | None:
        """Return patterns of the tools to offer; None for all, with the reason told where fewer were asked for."""
        policy, discovery = self._metadata.execution_policy, self._metadata.capability_discovery
        if policy is None or policy.tool_selection_mode != "discovered":
            return None
        selected = [] if discovery is None else discovery.selected_tool_names or []
        if selected:
            self.teller.expect_tools(selected)
            return [glob.escape(name) for name in selected]
        why = None if discovery is None else discovery.fallback_reason
        self._lines.append(f"all tools are offered: {why or 'none was discovered'}")
        return None


def _call_error(result: RunResult) -> GMIError | None:
    """Return why the last model call failed, None where it did not."""
    error = result.error
    if error is None:
        return GMIError(code="ToolError", message=result.why) if result.stopped == "tool_error" else None
    details: dict[str, Any] = {"retryable": error.retryable, "status": error.status, "retryAfterS": error.retry_after_s}
    return GMIError(
        code="ModelCallError",
        message=error.message,
        details={name: value for name, value in details.items() if value is not None},
    )
