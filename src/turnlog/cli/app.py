"""The command `turnlog`: its commands by name, and the one place where errors become a line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cyclopts import App, CycloptsError, Group, Parameter

from turnlog.cli.failures import (
    EXIT_BUG,
    EXIT_USAGE,
    TRACEBACK_VARIABLE,
    UntoldError,
    bug_line,
    error_line,
    error_said,
)
from turnlog.cli.first_sign import erase_first_sign, show_first_sign
from turnlog.cli.interrupts import Interrupts, end_at_once, what_stopped
from turnlog.cli.output import (
    abandon_output,
    check_output,
    give_back_output,
    go_on_unheard,
    prepare_streams,
    settle_errors,
    settle_output,
    settle_width,
    unblock_output,
)
from turnlog.cli.usage import convert_strictly, normalized, usage_message
from turnlog.errors import NO_SPACE, NO_THREAD, TurnlogError, lacks_thread, os_reason
from turnlog.plugins import culprit

_HELP = """\
LLM conversations as an append-only log of immutable turns.

Begin with: turnlog add "Hello" --bookmark main, then turnlog add "And more" --continues main, then turnlog log.

To see a run with tools, without a key: turnlog demo. To ask a model: turnlog pointer set milli PROVIDER MODEL, then \
turnlog run "Hello" -p milli.

HEADISH is a turn, by its id or by a bookmark; main~2 is two turns before main. Every command takes --store URL \
(default: TURNLOG_STORE, else a file in your data folder) and --json, before or after its name.

Exit status: 0; 1 when verify or replay found a difference, a proof does not hold, a tool answered with an error, or a \
run stopped before the model had finished; 2 on bad usage or input, or when a call failed; 3 when replay found nothing \
but what another version of an adapter made; 70 when turnlog itself failed, or a package that adds to it; 130 when it \
was interrupted, 143 or 129 when it was ended by SIGTERM or SIGHUP.
"""

_ARGUMENT_CHARACTERS_MAX = 100
"""How much of an argument an error repeats at most."""

_FOLDERS = ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
"""Variables that name folders in which turnlog keeps something."""

# Commands are named by import path, so that only the module of the one that runs is imported.
_COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Record": {
        "add": ("record:add", "Record a turn."),
        "document": ("record:document", "Record a file as a document turn."),
        "bookmarks": ("bookmarks:app", "List bookmarks; set, rename and delete them."),
        "prep": ("prep:prep", "Print files of a repository as one XML document, for a model to read."),
    },
    "Run": {
        "run": ("run:run", "Add a turn, ask a model, run the tools that it calls, until it is done."),
        "chat": ("chat:chat", "Talk with a model at the terminal."),
        "compact": ("compact:compact", "Have a summary stand for turns of a thread from now on. All turns stay."),
        "demo": ("demo:demo", "Record a run with tools, without a key or a network, and make it again."),
        "pointer": ("providers:pointer_app", "List pointers, names for a provider and a model; set and delete them."),
        "provider": ("providers:provider_app", "List providers and their models; allow and refuse calls to them."),
        "mcp": ("mcp:app", "Register MCP servers; list their tools and call them."),
        "wire": ("wire:app", "See what an adapter makes of a window or a reply. Nothing is recorded or sent."),
    },
    "Read": {
        "log": ("history:log", "Draw a thread: forks, merges, bookmarks, who, when, first line."),
        "threads": ("history:threads", "List threads, the one with the latest activity first."),
        "context": ("read:context", "Print the context window of a turn."),
        "show": ("read:show", "Print all about one turn, or another event."),
        "cat": ("read:cat", "Write the exact payload bytes of a turn, or of another event, to standard output."),
        "diff": ("diff:diff", "Compare two branches: where they part, and what each says from there on."),
        "ancestry": ("history:ancestry", "List the ancestry of a turn and the turn itself, oldest first."),
        "children": ("history:children", "List the turns that continue a turn."),
        "search": ("search:search", "Find turns by their words."),
        "usage": ("search:usage", "Print what model calls took: tokens by day, model, provider, thread or bookmark."),
        "tail": ("tail:tail", "Print events as JSON lines, in the order of the log; wait for more."),
        "request": ("calls:request", "Write the exact bytes of a recorded model request to standard output."),
        "replay": ("calls:replay", "List the model calls that a turn came of; check that they can be made again."),
    },
    "Keep": {
        "import": ("importing:app", "Import transcripts of agents and chats, or what export wrote."),
        "export": ("export:export", "Write the log, or one thread, as JSON lines with payloads."),
        "copy": ("copy:copy", "Make another store the same log, on whatever engine, and compare the two."),
        "registers": ("registers:app", "List pointers, providers and MCP servers that imports brought; confirm them."),
        "verify": ("care:verify", "Read every stored byte again and check it."),
        "seal": ("seal:seal", "Record sealed from now on: all of the log, or what is of a subject."),
        "erase": ("erase:erase", "Erase turns for good, with all that carries their content."),
        "retain": ("erase:retain", "List threads that are older than a time, and erase them."),
        "hold": ("erase:hold_app", "List legal holds, which refuse erasing; set and release them."),
        "keys": ("keys:app", "Make, list and export the keys that checkpoints are signed with."),
        "witness": ("witness:witness", "Serve a witness, which signs heads of logs that have only grown."),
        "checkpoint": ("checkpoint:app", "Sign the head of the log; list what was signed."),
        "prove": ("proofs:prove", "Write a proof of what is in the log."),
        "verify-proof": ("proofs:verify_proof", "Check a proof, without any log."),
        "evidence": ("evidence:evidence", "Make a folder for an auditor: a conversation, its bytes, their proof."),
        "projections": ("projections:app", "List what is derived from the log; bring it up to date, build it anew."),
        "grant": ("grant:grant", "Say which roles of a database may read or write a log in it."),
        "stats": ("care:stats", "Measure the log."),
        "stores": ("stores:stores", "Say which store is used here and why, and what others there are."),
    },
    "Feed": {
        "feed": ("feed:app", "Deliver events to files, a webhook, NATS or OpenTelemetry, from where it left off."),
        "feeds": ("feeds:app", "List what feeds there are, how far each has come, and what keeps it."),
    },
}


def build_app(*, completion: bool = True, only: str | None = None) -> App:
    """Return the command line.

    Args:
        completion: with it what installs completion of it, which takes a while to import.
        only: the command that is to run, if there is one of that name: the others are left out, since cyclopts goes
            through all that there are, again and again.
    """
    app = App(
        name="turnlog",
        help=_HELP,
        help_format="markdown",
        version_format="plaintext",  # markdown would be imported for it
        version=_version,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(show_default=False, converter=convert_strictly),
        group_commands=Group("Others", sort_key=len(_COMMANDS)),
    )
    is_known = any(only in commands for commands in _COMMANDS.values())
    for place, (title, commands) in enumerate(_COMMANDS.items()):
        group = Group(title, sort_key=place)
        for key, (name, (path, text)) in enumerate(commands.items()):
            if is_known and name != only:
                continue
            # The one that runs has the help of its function, which says more.
            said = {} if name == only else {"help": text}
            app.command(f"turnlog.cli.commands.{path}", name=name, group=group, sort_key=key, **said)
    if completion:
        app.register_install_completion_command(  # pyright: ignore[reportUnknownMemberType] - its keywords have no types
            help="Install completion for your shell."
        )
    return app


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - it takes a while to import

    return f"turnlog {version('turnlog')}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. Whatever goes wrong is one line on standard error.

    Without arguments it is the process's own: what it returns is what the process is to end with, at once.
    """
    try:
        return _status(arguments)
    finally:
        give_back_output()
        settle_errors()


def _status(arguments: Sequence[str] | None) -> int:
    try:
        with Interrupts():
            status = _main(list(sys.argv[1:] if arguments is None else arguments))
        if arguments is None:
            end_at_once()
    except KeyboardInterrupt as error:
        if arguments is None:
            end_at_once()
        unblock_output()
        notes: Sequence[str] = getattr(error, "__notes__", ())
        stop = what_stopped()
        return _fail("; ".join((stop.word, *notes)), stop.status)
    return status


def _main(tokens: list[str]) -> int:
    prepare_streams()
    settle_width()
    try:
        return _run_until_stopped(tokens)
    except BrokenPipeError as error:
        abandon_output()
        # Whoever read the output has seen enough (`turnlog log | head`). A pipe that was named is as a file.
        return 0 if error.filename is None else _fail(error, EXIT_USAGE)
    except UnicodeEncodeError as error:
        place = _place_of_bytes(tokens)
        return _fail_by_bug(error) if place is None else _fail(f"{place} is not valid UTF-8", EXIT_USAGE)
    except OSError as error:
        if culprit(error) is not None:
            return _fail_by_bug(error)
        untold = settle_output()
        is_untold = untold is not None and untold.errno == error.errno
        # Files that are written are named; a large output is not kept to be written once more.
        if error.filename is None and (is_untold or error.errno in NO_SPACE):
            return _fail(f"standard output cannot be written: {os_reason(error)}", EXIT_USAGE)
        return _fail(error, EXIT_USAGE)
    except (TurnlogError, RecursionError, MemoryError) as error:
        return _fail(error, EXIT_USAGE)
    except Exception as error:  # noqa: BLE001 - a traceback is a bug, and its status must not be that of damage
        return _fail_otherwise(error)


def _fail_otherwise(error: Exception) -> int:
    """Tell of what turnlog did not foresee, or the system says in a way of its own."""
    if lacks_thread(error):
        return _fail(NO_THREAD, EXIT_USAGE)
    # What it says of a library that it has no room for.
    if isinstance(error, ImportError) and "failed to map" in str(error):
        return _fail(MemoryError(), EXIT_USAGE)
    return _fail_by_bug(error)


def _place_of_bytes(tokens: Sequence[str]) -> str | None:
    """Return what is not UTF-8: an argument, or the name of a folder that no argument names."""
    argument = next(filter(_has_bytes, tokens), None)
    if argument is not None:
        return f"argument {argument[:_ARGUMENT_CHARACTERS_MAX]!r}"
    folders = {f"the folder in {name}": os.environ.get(name, "") for name in _FOLDERS}
    with suppress(OSError):
        folders["the name of the current folder"] = str(Path.cwd())
    return next((what for what, path in folders.items() if _has_bytes(path)), None)


def _has_bytes(text: str) -> bool:
    # What is not UTF-8 in an argument or a path is half a pair of surrogates for Python (PEP 383).
    return any("\ud800" <= character <= "\udfff" for character in text)


def _run_until_stopped(tokens: list[str]) -> int:
    try:
        return _run(tokens)
    except (OSError, UntoldError) as error:
        if not what_stopped().is_final or isinstance(error, BrokenPipeError):
            raise
        # The terminal went away, and the signal says so: what could not be printed there is of its making.
        stop = KeyboardInterrupt()
        stop.add_note(error_said(error))
        raise stop from error


def _run(tokens: list[str]) -> int:
    if tokens == ["--version"]:
        sys.stdout.write(_version() + "\n")
        sys.stdout.flush()
        return 0
    if tokens[:1] == ["help"]:
        tokens = [*tokens[1:], "--help"]
    # It is an option, and so before any command.
    normal = normalized(tokens)
    if normal and normal[0] in _COMMANDS["Read"]:
        check_output()
    if tokens[:1] == ["--install-completion"]:
        go_on_unheard()
    app = build_app(completion=not tokens or tokens[0].startswith("-"), only=normal[0] if normal else None)
    show_first_sign(normal)
    try:
        result = app(normal, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _fail(usage_message(app, error), EXIT_USAGE)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # what Rich makes of it
            raise stop.__context__ from None
        if culprit(stop) is not None:
            return _fail_by_bug(stop)
        sys.stdout.flush()
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _fail(error: BaseException | str, status: int) -> int:
    _write_error(error_line(error) + "\n")
    return status


def _fail_by_bug(error: BaseException) -> int:
    traced = os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0")
    trace = ""
    if traced:
        import traceback  # noqa: PLC0415 - it takes a while to import

        trace = "".join(traceback.format_exception(error))
    _write_error(trace + bug_line(error, traced=traced) + "\n")
    return EXIT_BUG


def _write_error(text: str) -> None:
    settle_output()
    erase_first_sign()
    with suppress(OSError):  # nobody reads it: the exit status still tells
        sys.stderr.write(text)
        sys.stderr.flush()
