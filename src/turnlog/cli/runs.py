"""What `turnlog run` and `turnlog chat` have in common: their options, and what becomes of them.

Annotations are not postponed here, for the reason that `options` gives.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypedDict

from cyclopts import Parameter

from turnlog.agent.ask import Ask, Replies
from turnlog.agent.bounds import RESULT_BYTES_MAX
from turnlog.agent.mcp.config import McpConfig, read_mcp_config
from turnlog.agent.opening import Opening
from turnlog.agent.policy import (
    ITERATIONS_MAX,
    PARALLEL_MAX,
    RETRY_WAIT_MAX_S,
    TOOL_TIMEOUT_S,
    Approve,
    OnInterrupted,
    OnToolError,
    Policy,
)
from turnlog.agent.start import find_start
from turnlog.agent.target import Named, find_target
from turnlog.audit.seals import default_seals
from turnlog.cli.completing import complete_pointers, complete_providers
from turnlog.cli.failures import UsageError
from turnlog.cli.options import Common
from turnlog.cli.output import note
from turnlog.cli.parameters import parse_parameters
from turnlog.cli.resources import parse_resources
from turnlog.cli.turn_options import PlaceOptions, RedactOptions, ThreadOptions
from turnlog.cli.usage import STANDARD_STREAM, named_file, options
from turnlog.errors import RunError
from turnlog.log import TurnLog
from turnlog.model import ServerMeta
from turnlog.providers import OnLoss


class RunArguments(TypedDict):
    """Arguments of `TurnLog.run` that are the same for each run of a command."""

    pointer: str | None
    provider: str | None
    model: str | None
    servers: list[str] | None
    search: bool | None
    tool_mode: str | None
    policy: Policy
    ask: Ask


@options
class ModelOptions:
    """Which model to ask."""

    pointer: Annotated[
        str | None,
        Parameter(
            alias="-p",
            completer=complete_pointers,
            help="The pointer to the model, from here on. By default that of the thread.",
        ),
    ] = None
    provider: Annotated[
        str | None,
        Parameter(completer=complete_providers, help="The provider to ask, with --model, in place of a pointer."),
    ] = None
    model: Annotated[str | None, Parameter(help="The model to ask, with --provider.")] = None


@options
class RunOptions(RedactOptions, ThreadOptions, PlaceOptions, ModelOptions):  # in the help the last one comes first
    """What both commands take."""

    attach: Annotated[
        tuple[Path, ...],
        Parameter(
            alias="-a",
            negative=(),
            consume_multiple=False,
            help="A file or an image to go before the question. Give it again for more.",
        ),
    ] = ()
    resource: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="A resource of an MCP server to go before the question, NAME/URI. Give it again for more.",
        ),
    ] = ()
    system: Annotated[
        str | None,
        Parameter(
            alias="-s",
            help="The system prompt, from here on. Nothing is added where it is the thread's last one already.",
        ),
    ] = None
    mcp_config: Annotated[
        tuple[Path, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="A file with MCP servers (mcp.json, …): register them as `turnlog mcp import` does, and offer their "
            "tools from here on. Give it again for more.",
        ),
    ] = ()
    approve: Annotated[
        Approve,
        Parameter(help="Tool calls: ask at the terminal (by default), run all (auto), or none (never)."),
    ] = "ask"
    allow: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="A tool that may run without being asked for, as a pattern: 'fs___read_*'. Give it again for more.",
        ),
    ] = ()
    max_iterations: Annotated[int, Parameter(help=f"Stop after so many model calls. By default {ITERATIONS_MAX}.")] = (
        ITERATIONS_MAX
    )
    max_time: Annotated[float | None, Parameter(help="Stop after so many seconds.")] = None
    max_tries: Annotated[
        int | None, Parameter(help="Make a model call that fails at most so many times. By default 3.")
    ] = None
    max_retry_wait: Annotated[
        float,
        Parameter(
            help="Wait at most so many seconds where a provider asks to wait; else stop with its error. By default "
            f"{RETRY_WAIT_MAX_S:g}."
        ),
    ] = RETRY_WAIT_MAX_S
    max_total_tokens: Annotated[int | None, Parameter(help="Stop when the calls have taken so many tokens.")] = None
    wait: Annotated[
        float | None,
        Parameter(help="Wait at most so many seconds where another run is at work on the turn, and go on behind it."),
    ] = None
    call_timeout: Annotated[
        float | None,
        Parameter(help="Give a model call up where nothing of it comes for so many seconds. By default 600."),
    ] = None
    tool_timeout: Annotated[
        float, Parameter(help=f"Give a tool call up after so many seconds. By default {TOOL_TIMEOUT_S:g}.")
    ] = TOOL_TIMEOUT_S
    max_parallel: Annotated[
        int, Parameter(help=f"Run at most so many tools at the same time. By default {PARALLEL_MAX}.")
    ] = PARALLEL_MAX
    max_result_bytes: Annotated[
        int,
        Parameter(
            help="Give the model at most so many bytes of a tool's result; it can read on. 0: all of it. By default "
            f"{RESULT_BYTES_MAX}."
        ),
    ] = RESULT_BYTES_MAX
    tool_choice: Annotated[
        str | None, Parameter(help="auto, none, required or a tool's name. What forces a call holds for the first one.")
    ] = None
    on_tool_error: Annotated[
        OnToolError,
        Parameter(help="A tool fails: tell the model (continue, by default), stop (abort), or try it again (retry)."),
    ] = "continue"
    on_interrupted: Annotated[
        OnInterrupted,
        Parameter(
            help="A tool was at work when an earlier run was killed: ask (by default), call it again (repeat), or tell "
            "the model that nobody knows what it did (report)."
        ),
    ] = "ask"
    param: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="A parameter of the model calls, NAME=VALUE, such as max_tokens=1000. Give it again for more.",
        ),
    ] = ()
    on_loss: Annotated[
        OnLoss | None,
        Parameter(help="What the provider cannot carry: refuse it (error), or degrade and report all of it (report)."),
    ] = None
    stream: Annotated[bool, Parameter(help="Ask for the reply in pieces. --no-stream: in one piece.")] = True
    replay: Annotated[
        str | None, Parameter(help="Give the replies that are recorded in another store, sqlite:///PATH; ask nobody.")
    ] = None

    @cached_property
    def configs(self) -> tuple[McpConfig, ...]:
        """The files with MCP servers. They are read once.

        Raises:
            MetaError, SecretError: a server cannot be registered.
        """
        return tuple(read_mcp_config(named_file(path, "--mcp-config")) for path in self.mcp_config)

    @property
    def configured(self) -> list[ServerMeta]:
        """The MCP servers of all files."""
        return [meta for config in self.configs for meta in config.servers]

    def register(self, log: TurnLog) -> None:
        """Register the MCP servers of the files, all or none, and tell people so.

        Raises:
            MetaError: two of them have one name.
        """
        done = log.servers.set_all(self.configured) if self.mcp_config else []
        for line in (line for config in self.configs for line in config.notes):
            note(line)
        if done:
            note(f"registered {', '.join(meta.name for meta in done)}: `turnlog mcp` lists the MCP servers")

    @property
    def resources(self) -> list[tuple[str, str]]:
        """The resources to attach: names of servers, and URIs.

        Raises:
            UsageError: one is not of the form NAME/URI.
        """
        return parse_resources(self.resource)

    def arguments(self, *, adds: bool = True) -> RunArguments:
        """Return these options as arguments of `TurnLog.run`, but for where it begins.

        Args:
            adds: whether there is a turn to add, that says which servers to offer from here on.

        Raises:
            UsageError: a parameter is not of the form NAME=VALUE, a number out of its bounds, or no file.
            MetaError, SecretError: a server of a file cannot be registered.
            StoreOpenError: there is no store to replay.
        """
        arguments = RunArguments(
            pointer=self.pointer,
            provider=self.provider,
            model=self.model,
            servers=self._servers_named(adds=adds),
            search=self.search,
            tool_mode=self.tool_mode,
            policy=self._policy(),
            ask=Ask(
                params=parse_parameters(self.param),
                tool_choice=self.tool_choice,
                on_loss=self.on_loss,
                stream=self.stream,
                replay=None if self.replay is None else _replies(self.replay),
            ),
        )
        if Path(STANDARD_STREAM) in self.attach and not Path(STANDARD_STREAM).exists():
            raise UsageError("--attach -: standard input cannot be attached: give a file, or pipe it in as what to say")
        return arguments

    def _policy(self) -> Policy:
        """Return the policies of the run; an error names the option.

        Raises:
            UsageError: one is out of its bounds.
        """
        try:
            return Policy(
                approve=self.approve,
                allow=self.allow,
                iterations_max=self.max_iterations,
                time_max_s=self.max_time,
                tries_max=self.max_tries,
                retry_wait_max_s=self.max_retry_wait,
                call_timeout_s=self.call_timeout,
                wait_s=self.wait,
                total_tokens_max=self.max_total_tokens,
                tool_timeout_s=self.tool_timeout,
                parallel_max=self.max_parallel,
                result_bytes_max=self.max_result_bytes or None,
                on_tool_error=self.on_tool_error,
                on_interrupted=self.on_interrupted,
            )
        except RunError as error:
            name, _, why = str(error).partition(":")
            none = "give 0" if name == "result_bytes_max" else "leave it out"  # which has a bound of its own
            raise UsageError(f"{_OPTIONS[name]}:{why.replace('give None', none)}") from error

    def _servers_named(self, *, adds: bool) -> list[str] | None:
        configured = [meta.name for meta in self.configured] if adds else []
        if not configured:
            return self.server_names
        return list(dict.fromkeys([*(self.server_names or ()), *configured]))


_OPTIONS = {
    "iterations_max": "--max-iterations",
    "time_max_s": "--max-time",
    "tries_max": "--max-tries",
    "retry_wait_max_s": "--max-retry-wait",
    "call_timeout_s": "--call-timeout",
    "wait_s": "--wait",
    "total_tokens_max": "--max-total-tokens",
    "tool_timeout_s": "--tool-timeout",
    "parallel_max": "--max-parallel",
    "result_bytes_max": "--max-result-bytes",
}
"""The options that are policies of a run, by what the policies are called."""


def refuse_early(common: Common, content: str | None, options: RunOptions, arguments: RunArguments) -> None:
    """Refuse, before a store is made, what a run would refuse in an empty one.

    Raises:
        TurnlogError: as `TurnLog.run` raises them.
    """
    with common.empty(redact=options.redact) as empty:
        start = find_start(empty, options.continues, respond=options.respond, adds=content is not None, inherited={})
        named = Named.of(
            arguments["ask"],
            pointer=arguments["pointer"],
            provider=arguments["provider"],
            model=arguments["model"],
        )
        find_target(empty, named, start.options)
        empty.servers.set_all(options.configured)
        check_servers(empty, options, arguments)
        Opening(content=content, system=options.system, attachments=options.attach).before(empty, ())
        empty.add_turn(
            content or "",
            bookmark=options.moved_bookmark,
            subject=options.named_subject,
            search=arguments["search"],
            tool_mode=arguments["tool_mode"],
        )


def check_servers(log: TurnLog, options: RunOptions, arguments: RunArguments) -> None:
    """Check that there are the MCP servers that the command line names.

    Raises:
        NotFoundError: one is not registered.
    """
    for name in (*(arguments["servers"] or ()), *(name for name, _ in options.resources)):
        log.servers.get(name)


def _replies(url: str) -> Replies:
    """Return the replies that are recorded in a store."""
    with TurnLog.open(url, create=False, seals=default_seals(os.environ)) as log:
        return log.calls.replies()
