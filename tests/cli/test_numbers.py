"""Numbers on the command line."""

import sys
from collections.abc import Iterator
from typing import get_args

import pytest
from cyclopts import App, Argument, CoercionError
from tests.cli.command import Command

from turnlog.cli.app import build_app


def commands(app: App, *path: str) -> Iterator[tuple[tuple[str, ...], App]]:
    """Iterate over all commands below one, with how each is called."""
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], *path, name)
    if path and app.default_command is not None:
        yield path, app


def integers() -> Iterator[tuple[str, ...]]:
    """Iterate over command lines, each of which lacks the value of another parameter that is an integer."""
    for path, app in commands(build_app()):
        arguments = app.assemble_argument_collection()
        for argument in arguments:
            if int in (argument.hint, *get_args(argument.hint)):
                others = ["x" for other in arguments if is_positional(other) and other.required and other != argument]
                yield (*path, *others, *(() if is_positional(argument) else (argument.names[0],)))


def is_positional(argument: Argument) -> bool:
    """Tell whether a parameter is given by its place."""
    return argument.index is not None


COMMANDS = list(integers())


def test_integers_are_found() -> None:
    """Options, options that commands share, and what is given by its place."""
    assert {("tail", "--after"), ("feed", "nats", "x", "--attempts"), ("checkpoint", "show")} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_is_no_integer_is_refused(command: tuple[str, ...]) -> None:
    """Nothing is rounded, whatever the parameter is."""
    app = build_app()
    for value in ("1.5", "2.0", "0x2", "1e3", "x"):
        with pytest.raises(CoercionError, match=f'unable to convert "{value}" into int'):
            app.parse_args([*command, value], exit_on_error=False, print_error=False)
    _, bound, _ = app.parse_args([*command, "1_000"], exit_on_error=False, print_error=False)
    values = [vars(value) if hasattr(value, "__dict__") else {"": value} for value in bound.arguments.values()]
    assert any(1000 in group.values() for group in values)


@pytest.mark.parametrize("limit", [sys.maxsize + 1, 10**40])
def test_more_than_there_can_be_is_all(turnlog: Command, limit: int) -> None:
    """Of whatever is listed: a number that is too large for the machine is no other than one that is not."""
    turnlog.ok("add", "one", "--bookmark", "main")
    turnlog.ok("add", "two", "--continues", "main")
    for command in (
        *(["tail"], ["bookmarks"], ["threads", "--json"], ["log", "--json"], ["log", "main", "--json"]),
        *(["ancestry", "main", "--json"], ["children", "main~1", "--json"], ["export"]),
    ):
        outcome = turnlog(*command, "-n", str(limit))
        assert outcome == turnlog(*command, "-n", "1000")
        assert outcome.status == 0
        assert outcome.stdout


def test_refusal_is_one_line(turnlog: Command) -> None:
    """With the option, and where to look."""
    said = turnlog.refused("tail", "--after", "1.5")
    assert said == "invalid value '1.5' for --after for 'tail': give a whole number: see turnlog tail --help"
