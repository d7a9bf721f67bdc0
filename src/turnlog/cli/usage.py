"""The command line itself: where common options may stand, what a number is, and errors of cyclopts as one line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, dataclass_transform, get_args

from cyclopts import (
    App,
    Argument,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    Token,
    UnknownOptionError,
    UnusedCliTokensError,
    convert,
)
from cyclopts.exceptions import MixedArgumentError, RepeatArgumentError, UnknownCommandError

from turnlog.cli.failures import UsageError
from turnlog.web_address import without_secrets

T = TypeVar("T")

_COMPLETE = "__complete"
"""What cyclopts's completion scripts call the command with, before the words of the line."""
_WORD_BREAKS = (":", "=")
_VALUE_OPTION = "--store"
_FLAG = "--json"
_END = "--"
_STANDARD_STREAM_COMMANDS = ("add", "compact", "import", "export", "prep", "run", "mcp", "wire")
STANDARD_STREAM = "\0"
"""What `-` becomes where it means standard input or output: cyclopts takes `-` for an option. No argument is a NUL."""

_TEXTS_OF_STREAMS = ("--text",)
"""Options whose text may come from standard input. Those that take a file say of it themselves."""

_OTHER_WORDS = {
    **dict.fromkeys(("init", "say", "new", "record", "append", "commit"), "add"),
    **dict.fromkeys(("branch", "fork", "edit", "amend"), "add --continues TURN"),
    **dict.fromkeys(("checkout", "switch", "reset", "undo", "tag"), "bookmarks set NAME TURN"),
    **dict.fromkeys(("continue", "resume"), "run --continues TURN"),
    **dict.fromkeys(("delete", "remove", "rm"), "erase"),
    **dict.fromkeys(("list", "ls"), "threads"),
    **dict.fromkeys(("history", "tree", "graph"), "log"),
    **dict.fromkeys(("branches", "tags"), "bookmarks"),
    **dict.fromkeys(("diff", "compare"), "diff <(turnlog context TURN) <(turnlog context TURN)"),
    **dict.fromkeys(("find", "grep"), "search"),
    **dict.fromkeys(("backup", "clone", "sync"), "copy"),
    **dict.fromkeys(("restore", "load"), "import"),
    **dict.fromkeys(("check", "fsck", "audit"), "verify"),
    **dict.fromkeys(("cost", "costs", "tokens"), "usage"),
    **dict.fromkeys(("follow", "watch"), "tail"),
    **dict.fromkeys(("info", "status", "size"), "stats"),
    "ask": "run",
    "dump": "export",
    "merge": "add --continues TURN --continues TURN",
    "models": "provider",
    "rerun": "replay",
    "sign": "checkpoint",
    "summarize": "compact",
    "tools": "mcp tools",
    "version": "--version",
    "view": "show",
}
"""What other programs call their commands, and what does the same here."""

_ROOT_OPTIONS = ("--help", "--version", "--install-completion", _VALUE_OPTION, _FLAG)
_OF_WORDS = ("add", "compact", "run")
"""Commands that take a text."""
_NO_NUMBER = re.compile(r"invalid value for (\S+): unable to convert '(.*)' into (int|float)", re.DOTALL)
_CHOICE = re.compile(r"(invalid value .*)\. Choose from: (.*?)(?:\. Did you mean ('.*')\?)?", re.DOTALL)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def options(kind: type[T]) -> type[T]:
    """Make a class one of options, which stand on the command line under their own names: a frozen dataclass.

    Such values are neither compared nor printed: to make the methods for that takes as long as all the rest.
    """
    return Parameter(name="*")(dataclass(frozen=True, kw_only=True, eq=False, repr=False)(kind))


def is_standard_stream(path: Path | None) -> bool:
    """Tell whether a path is the `-` that means standard input or output."""
    return path == Path(STANDARD_STREAM)


def named_file(path: Path, what: str) -> Path:
    """Return a file that is read by its name alone.

    Raises:
        UsageError: it is `-`, which stands for standard input elsewhere.
    """
    if is_standard_stream(path):
        raise UsageError(f"{what} -: it takes a file, not standard input")
    return path


def normalized(tokens: Sequence[str]) -> list[str]:
    """Return the command line with the common options at its end, or before `--` if there is one.

    So they are accepted anywhere: before the name of the command, within it (`bookmarks --json set`), and after it.
    A `-` that stands for standard input or output becomes `STANDARD_STREAM`. Of a line that a shell completes, the last
    word stays the last: it is the one that the cursor is on.
    """
    if tokens[:1] == [_COMPLETE] and len(tokens) > 1:
        return [_COMPLETE, *normalized(_rejoined(tokens[1:-1])), tokens[-1]]
    end = tokens.index(_END) if _END in tokens else len(tokens)
    common: list[str] = []
    others: list[str] = []
    head = iter(tokens[:end])
    for token in head:
        if token == _VALUE_OPTION:
            common += [token, *(value for value in [next(head, None)] if value is not None)]
        elif token == _FLAG or token.startswith(f"{_VALUE_OPTION}="):
            common.append(token)
        else:
            others.append(token)
    if others and others[0] in _STANDARD_STREAM_COMMANDS:
        others = [STANDARD_STREAM if token == "-" else token for token in others]
    return [*others, *common, *tokens[end:]]


def _rejoined(words: Sequence[str]) -> list[str]:
    """Return words of a line as a person typed them: bash gives what is before and behind a `:` or `=` by itself."""
    joined: list[str] = []
    for place, word in enumerate(words):
        if joined and (word in _WORD_BREAKS or words[place - 1] in _WORD_BREAKS):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def convert_strictly(kind: Any, tokens: Sequence[Token]) -> object:
    """Convert what was given for a parameter, as cyclopts does; but 1.5 is no integer, and neither is 0x2.

    Raises:
        CoercionError: it is not of this kind.
        UsageError: it is `-` where standard input means nothing.
    """
    if Path not in (kind, *get_args(kind)):
        for token in tokens:
            if token.value == STANDARD_STREAM and token.keyword and token.keyword not in _TEXTS_OF_STREAMS:
                raise UsageError(f"{token.keyword} -: it takes no standard input, write it here")
    if int in (kind, *get_args(kind)):
        for token in tokens:
            try:
                int(token.value)
            except ValueError as error:
                raise CoercionError(token=token, target_type=int) from error
    return cast("object", convert(kind, tokens))


def usage_message(app: App, error: CycloptsError) -> str:
    """Return what is wrong with a command line, and where to look."""
    names = [name for name in error.command_chain or () if not name.startswith("-")]
    command = " ".join(names)
    help_of = " ".join(["turnlog", *names, "--help"])
    message = without_secrets(_message(app, error, command))  # a URL may stand where none is taken
    return f"{message}: see {help_of}"


def _message(app: App, error: CycloptsError, command: str) -> str:
    of_command = f" for '{command}'" if command else ""
    match error:
        case UnknownOptionError():
            option = error.token.keyword or error.token.value
            return _unknown_option(option, error.argument_collection, command, of_command)
        case UnknownCommandError() if error.unused_tokens:
            return _unknown_command(error.app or app, command, error.unused_tokens[0])
        case UnusedCliTokensError() if error.unused_tokens:
            stray = error.unused_tokens[0]
            hint = _stray(command, stray) or _meant(command, _close(stray, _commands(error.app or app)))
            return f"unexpected argument {stray!r}{of_command}{hint}"
        case MissingArgumentError() if error.argument is not None:
            return _missing(error, error.argument, command, of_command)
        case RepeatArgumentError():
            return f"option {error.token.keyword} is given twice{of_command}"
        case CoercionError():
            return _not_of_kind(_plain(str(error)), of_command)
        case MixedArgumentError():
            return _plain(str(error)) + of_command
        case _:
            return _plain(str(error))


def _unknown_option(option: str, arguments: Sequence[Argument], command: str, of_command: str) -> str:
    # Without their dashes, by which all of them are alike.
    known = {name.lstrip("-"): name for argument in arguments if argument.parse for name in argument.names}
    close = _close(option.lstrip("-"), list(known))
    hint = f", did you mean {known[close[0]]}" if close else ""
    if command == "add" and not close:
        hint = " (put -- before text that begins with a dash)"
    if command == "mcp register":
        hint += " (put -- before a command that has options: turnlog mcp register NAME -- COMMAND…)"
    return f"unknown option {option}{of_command}{hint}"


def _stray(command: str, token: str) -> str:
    """Return how to say what a word may have been meant to say that nothing takes."""
    if command in _OF_WORDS:
        return f" (put text of several words in quotes: turnlog {command} 'a b')"
    return f", did you mean --turn {shlex.quote(token)}" if command == "erase" else ""


def _not_of_kind(message: str, of_command: str) -> str:
    if (found := _NO_NUMBER.fullmatch(message)) is not None:
        kind = "whole number" if found[3] == "int" else "number"
        return f"invalid value '{found[2]}' for {found[1]}{of_command}: give a {kind}"
    if (found := _CHOICE.fullmatch(message)) is not None:
        return f"{found[1]}{of_command}{f', did you mean {found[3]}' if found[3] else ''}: give one of {found[2]}"
    return message + of_command


def _missing(error: MissingArgumentError, argument: Argument, command: str, of_command: str) -> str:
    name = error.keyword or argument.name
    value = name.lstrip("-").upper().replace("-", "_")
    if not name.startswith("-"):
        return f"missing {value}{of_command}"
    if error.keyword or argument.tokens or not argument.required:
        return f"option {name} needs a value{of_command}"
    # A word that nothing takes is most often the value of the option that is missing.
    stray = error.unused_tokens[0] if error.unused_tokens else None
    if stray is not None and stray.startswith("-") and error.app is not None:
        return _unknown_option(stray, error.app.assemble_argument_collection(), command, of_command)
    hint = f": give {name} {value}" if stray is None else f", did you mean {name} {shlex.quote(stray)}"
    return f"option {name} is missing{of_command}{hint}"


def _unknown_command(app: App, command: str, token: str) -> str:
    if token == _FLAG or token.split("=", maxsplit=1)[0] == _VALUE_OPTION:
        return "missing COMMAND"
    if token.startswith("-"):
        close = ["--version"] if token in ("-v", "-V") else _close(token, _ROOT_OPTIONS)
        return f"unknown option {token}{f', did you mean {close[0]}' if close else ''}"
    known = _commands(app)
    meant = _OTHER_WORDS.get(token) if "add" in known else None
    hint = _meant(command, _close(token, known) if meant is None else [meant])
    return f"unknown command '{f'{command} {token}'.strip()}'{hint}"


def _meant(command: str, close: Sequence[str]) -> str:
    return f", did you mean '{f'{command} {close[0]}'.strip()}'" if close else ""


def _commands(app: App) -> list[str]:
    return [name for name in app if not name.startswith("-")]


def _close(word: str, known: Sequence[str]) -> list[str]:
    """Return what a word may have been meant to be, nothing if there is no such."""
    from difflib import get_close_matches  # noqa: PLC0415 - who spells well needs none of it

    return get_close_matches(word, known, n=1)


def _plain(message: str) -> str:
    message = message.strip().rstrip(".").replace('"', "'")
    return message[:1].lower() + message[1:]
