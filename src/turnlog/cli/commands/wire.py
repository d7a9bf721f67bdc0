"""`turnlog wire`: what an adapter makes of a window or a reply, JSON in and JSON out. Nothing is recorded or sent."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from turnlog import providers
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import binary_output, keep_for_programs, write_json, write_json_lines
from turnlog.cli.parameters import parse_parameters
from turnlog.cli.targets import new_file
from turnlog.cli.usage import is_standard_stream
from turnlog.model import Spelling, parse_tools, parse_window
from turnlog.model.cut_characters import CutCharacters
from turnlog.providers.wire import events_in

app = App(
    name="wire",
    group_commands="Commands",
    help="See what an adapter makes of a window or a reply. Nothing is recorded or sent.",
)

ProviderName = Annotated[
    str, Parameter(help="The adapter: anthropic, openai_chat, openai_responses, gemini, cohere, cerebras, bedrock, ….")
]


@app.command
def prepare(  # noqa: PLR0913 - one argument for each option
    window: Path,
    /,
    *,
    provider: ProviderName,
    model: Annotated[str, Parameter(help="The model to ask.")],
    tools: Annotated[Path | None, Parameter(help="The tools to offer: a JSON list as MCP's tools/list has it.")] = None,
    param: Annotated[
        tuple[str, ...],
        Parameter(negative=(), consume_multiple=False, help="A parameter, NAME=VALUE, such as max_tokens=1000."),
    ] = (),
    stream: Annotated[bool, Parameter(help="Ask for a stream, or with --no-stream for one whole reply.")] = True,
    on_loss: Annotated[
        Literal["error", "report"] | None,
        Parameter(help="Refuse all that the wire cannot carry, or degrade it. By default: what the docs say."),
    ] = None,
    report: Annotated[
        Path | None, Parameter(help="Write the loss report to this file, as JSON, whole or not at all, for you alone.")
    ] = None,
    force: Annotated[bool, Parameter(negative=(), help="Replace the file of --report if there is one.")] = False,
    common: Common = COMMON,
) -> None:
    """Print the request body that a context window becomes.

    Parameters
    ----------
    window
        A file with a window, `{messages, options}`, as `turnlog context HEADISH --json` prints it; - reads it from
        standard input. A message may name its turn, provider, api and model. Blocks of types that turnlog does not
        have are native ones of the message's model, or of the one that is asked: as `wire aggregate` prints them.
    """
    adapter = _adapter(provider)
    request = adapter.prepare_request(
        parse_window(_read(window), own=(adapter.provider, adapter.api, model)),
        () if tools is None else parse_tools(_read(tools)),
        model=model,
        params=parse_parameters(param),
        on_loss=on_loss,
        stream=stream,
    )
    if report is not None:
        if is_standard_stream(report):
            raise UsageError("--report: name a file, standard output has the request")
        with new_file(report, common, force=force) as file:
            file.write(msgspec.json.encode(request.loss_report) + b"\n")
    binary_output().writelines((*request.parts, b"\n"))


@app.command
def aggregate(
    events: Path,
    /,
    *,
    provider: ProviderName,
    model: Annotated[
        str | None, Parameter(help="The model that was asked, for wires whose replies do not name it.")
    ] = None,
    stop_reasons: Annotated[
        Spelling,
        Parameter(help="Whose words for the stop reason: turnlog, messages (end_turn) or canonical (tool-use)."),
    ] = "turnlog",
    common: Common = COMMON,  # noqa: ARG001 - every command takes it
) -> None:
    """Print the normalized response that the events of a reply add up to.

    Parameters
    ----------
    events
        A file with the events of a stream, a JSON value a line, or one whole reply; - reads standard input.
    """
    with _not_too_deep():
        response = _adapter(provider).aggregate(_events(events), model=model)
    write_json(response.to_record(spelling=stop_reasons))


@app.command
def deltas(
    events: Path,
    /,
    *,
    provider: ProviderName,
    common: Common = COMMON,  # noqa: ARG001 - every command takes it
) -> None:
    """Print the normalized deltas of a reply, one a line: what is shown while it streams.

    Parameters
    ----------
    events
        A file with the events of a stream, a JSON value a line, or one whole reply; - reads standard input.
    """
    # One reader for all of them, as in a run: an event can go on with what others began, even within a character.
    reader, cut = _adapter(provider).reader(), CutCharacters()
    with _not_too_deep():
        for event in _events_as_they_come(events):
            write_json_lines(reader.add(cut.joined(event)))
            sys.stdout.flush()


def _adapter(provider: str) -> providers.Provider:
    keep_for_programs()  # also without --json
    return providers.get(provider)


def _read(path: Path) -> bytes:
    return sys.stdin.buffer.read() if is_standard_stream(path) else path.read_bytes()


def _events(path: Path) -> list[bytes]:
    """Return the events of a file: JSON lines, one whole JSON value, or what came over HTTP (`data: …`)."""
    return list(_events_as_they_come(path))


def _events_as_they_come(path: Path) -> Iterator[bytes]:
    """Iterate over the events of a file, each as soon as it is there: of standard input while it is written to.

    Raises:
        UsageError: there are none.
    """
    with contextlib.ExitStack() as stack:
        file = sys.stdin.buffer if is_standard_stream(path) else stack.enter_context(path.open("rb"))
        first = next((line for line in file if line.strip()), b"")
        if not first:
            raise UsageError("there are no events in it")
        if first.lstrip().startswith((b"data:", b"event:", b":")):
            yield from events_in(itertools.chain((first,), file))
        elif _is_json(first):
            yield from (line.strip() for line in itertools.chain((first,), file) if line.strip())
        else:
            text = first + file.read()
            yield from (text.strip(),) if _is_json(text) else (line for line in text.splitlines() if line.strip())


@contextlib.contextmanager
def _not_too_deep() -> Generator[None]:
    """Refuse events whose JSON is nested too deeply to be read.

    Raises:
        UsageError: they are.
    """
    try:
        yield
    except RecursionError as error:
        raise UsageError("events: nested too deeply") from error


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
