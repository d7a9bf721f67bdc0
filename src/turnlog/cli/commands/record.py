"""`turnlog add` and `turnlog document`: record turns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turnlog.cli.completing import POINTER
from turnlog.cli.failures import UsageError
from turnlog.cli.hidden_turns import telling_of_hidden
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json
from turnlog.cli.redaction import tell_redacted
from turnlog.cli.text import before_end, printable, quoted, size
from turnlog.cli.turn_options import RedactOptions, ThreadOptions, TurnArguments, TurnOptions
from turnlog.cli.usage import STANDARD_STREAM, options
from turnlog.errors import UncertainError
from turnlog.ids import new_id
from turnlog.log import TurnLog
from turnlog.model import content_bytes
from turnlog.model.blocks import text_content
from turnlog.model.json_text import minify
from turnlog.model.pieces import check_utf8
from turnlog.record.files import DOCUMENT_BYTES_MAX
from turnlog.turn import Turn

_TURN = TurnOptions()
_REDACT = RedactOptions()


@options
class InheritedOptions(ThreadOptions):
    """The inherited options that have a name of their own."""

    provider_ptr: Annotated[
        str | None, POINTER, Parameter(alias="-p", help="The pointer to use from here on, such as kilo.")
    ] = None


_INHERITED = InheritedOptions()


def add(
    text: str | None = None,
    /,
    *,
    blocks: Annotated[
        bool,
        Parameter(
            negative=(),
            help="The content is JSON: content blocks, kept as spelled but for whitespace outside strings.",
        ),
    ] = False,
    redact: RedactOptions = _REDACT,
    inherited: InheritedOptions = _INHERITED,
    turn: TurnOptions = _TURN,
    common: Common = COMMON,
) -> None:
    """Record a turn and print its id.

    Parameters
    ----------
    text
        The content. Without it, or with -, it is read from standard input, where one line end (LF, or CR LF) at the
        end is dropped and all else is kept as it is. Put -- before text that begins with a dash.
    """
    arguments = turn.arguments()
    payload = _payload(text, blocks=blocks)

    def act(log: TurnLog, arguments: TurnArguments) -> Turn:
        return log.add_turn(
            payload,
            json=True,
            provider_ptr=inherited.provider_ptr,
            servers=inherited.server_names,
            search=inherited.search,
            tool_mode=inherited.tool_mode,
            **arguments,
        )

    _record(common, arguments, redact, act)
    if text is not None and os.path.isfile(text):  # noqa: PTH113 - `Path` raises where a text is longer than any path
        note(
            f"this is the name of a file, and was recorded as text: `turnlog document {quoted(text)}` records the file"
        )


def document(
    path: Path,
    /,
    *,
    content_type: Annotated[
        str | None, Parameter(help="The MIME type. By default that of the extension, else what the content looks like.")
    ] = None,
    name: Annotated[str | None, Parameter(help="The name to show. By default the file's.")] = None,
    max_bytes: Annotated[
        int, Parameter(help="The largest file to accept, in bytes. By default 100 MB.")
    ] = DOCUMENT_BYTES_MAX,
    redact: RedactOptions = _REDACT,
    turn: TurnOptions = _TURN,
    common: Common = COMMON,
) -> None:
    """Record a file as a document turn and print its id.

    Parameters
    ----------
    path
        The file. Its bytes are the payload.
    """
    arguments = turn.arguments()
    if not path.exists():
        raise UsageError(f"there is no file {str(path)!r}")

    def act(log: TurnLog, arguments: TurnArguments) -> Turn:
        return log.add_document(path, content_type=content_type, name=name, bytes_max=max_bytes, **arguments)

    _record(common, arguments, redact, act)


def _record(
    common: Common, arguments: TurnArguments, redact: RedactOptions, act: Callable[[TurnLog, TurnArguments], Turn]
) -> None:
    """Record a turn and print it. Whatever fails on the way, people know the id to ask for it by, or to try again.

    Raises:
        UsageError: it may be recorded or not.
        UntoldError: it is recorded, and could not be printed.
    """
    turn_id = new_id() if arguments["id"] is None else arguments["id"]
    again = f"adding it again with --id {turn_id} records nothing twice"
    told = False

    def record(log: TurnLog) -> Turn:
        with telling_of_hidden(log, arguments["bookmark"]):
            return act(log, {**arguments, "id": turn_id})

    def tell(recorded: Turn) -> None:
        nonlocal told
        told = True
        tell_redacted(recorded)
        with telling(f"{recorded.id} is recorded, but could not be printed; {again}"):
            _report(recorded, common)

    try:
        common.record(record, redact=redact.redact, tell=tell)
    except UncertainError as error:
        raise UsageError(f"{error}: its id is {turn_id}, and {again}") from error
    except KeyboardInterrupt as stop:
        if not told:
            stop.add_note(f"if it was recorded, its id is {turn_id}, and {again}")
        raise


def _payload(text: str | None, *, blocks: bool) -> bytes:
    """Return what to record, as JSON text of content blocks. What it was made of is let go of: it may be large.

    Raises:
        UsageError: there is nothing to read.
        ContentError: it is no text, or no JSON.
    """
    if text is not None and text != STANDARD_STREAM:
        return minify(text, field="content") if blocks else content_bytes(text)
    content = _read_stdin()
    if blocks:
        return minify(content, field="content")
    return text_content(before_end(content))


def _read_stdin() -> bytes:
    """Return standard input.

    Raises:
        UsageError: it is a terminal, empty, or not UTF-8.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no content: give TEXT, or pipe it in (turnlog add --help)")
    content = sys.stdin.buffer.read()
    if not content:
        raise UsageError("standard input is empty: nothing was recorded (turnlog add '' records an empty text)")
    try:
        check_utf8(content)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8 (byte {error.start}): `turnlog document PATH` records a file of any kind"
        ) from error
    return content


def _report(turn: Turn, common: Common) -> None:
    if common.json:
        write_json(turn.to_record())
        return
    screen = Screen.of_stdout()
    meta = turn.meta
    what = f"{meta.role} turn"
    if isinstance(meta.document_name, str):
        what = f"{printable(meta.document_name)} ({meta.content_type}, {size(turn.size)})"
    head = [" on ", (meta.head, "bold green")] if isinstance(meta.head, str) else []
    if not turn.continues:
        line_of = ", a new thread"
    elif len(turn.continues) == 1:
        line_of = f", continues {turn.continues[0]}"
    else:
        line_of = f", continues {len(turn.continues)} turns"
    screen.line((turn.id, "yellow"), f"  {what}", *head, (line_of, "dim"))
