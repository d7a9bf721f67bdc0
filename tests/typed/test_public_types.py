"""What public signatures are made of: no sentinel of msgspec's, and nothing that a user cannot import."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import UnsetType

import turnlog

MODULES = (
    "turnlog",
    "turnlog.async_log",
    "turnlog.audit",
    "turnlog.calls",
    "turnlog.errors",
    "turnlog.events",
    "turnlog.feeds",
    "turnlog.model",
)
MODULES += (
    "turnlog.providers",
    "turnlog.record",
    "turnlog.redaction",
    "turnlog.registers",
    "turnlog.sources",
    "turnlog.store",
)

PARTS_OF_PARTS = {
    "turnlog.agent.run_log.RunLog",  # a log, as the functions behind its methods see it
    "turnlog.context.projector.Projector",
    "turnlog.executors.Executors",
    "turnlog.feeds.following.Parts",
    "turnlog.feeds.live.Inbox",
    "turnlog.feeds.postgres_ahead.AheadConnection",
    "turnlog.feeds.postgres_ahead.AheadCursor",
    "turnlog.feeds.selection.Selector",
    "turnlog.feeds.sinks.states.FeedStates",
    "turnlog.record.detectors.Secrets",
    "turnlog.record.own.OwnEventDraft",
    "turnlog.store.locks.Locks",
    "turnlog.store.pages.Page",
    "turnlog.store.pages.Seen",
    "turnlog.store.waiting.Watch",
}
"""What a log and its parts are put together of and hand to each other: nobody has to name it."""


def names(module: str) -> list[str]:
    """Return the public names of a module."""
    found = importlib.import_module(module)
    return list(getattr(found, "__all__", None) or [name for name in vars(found) if not name.startswith("_")])


def hints(of: Any) -> dict[str, Any]:
    """Return the annotations of a class or a function; what only type checkers can read is its text."""
    found: dict[str, Any] = {}
    for base in of.__mro__ if inspect.isclass(of) else (of,):
        scope = vars(sys.modules[base.__module__])
        if base.__module__.startswith("turnlog"):
            for name, annotation in inspect.get_annotations(base).items():
                found.setdefault(name, _read(annotation, scope))
    return found


def _read(annotation: object, scope: dict[str, Any]) -> object:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, scope, PUBLIC)  # noqa: S307 - our own
    except (NameError, TypeError):
        return annotation


def parts(annotation: object) -> Iterator[object]:
    """Give the types that an annotation is made of."""
    arguments = typing.get_args(annotation)
    if not arguments:
        yield annotation
    else:
        yield typing.get_origin(annotation)
    for argument in arguments:
        for one in argument if isinstance(argument, list) else [argument]:
            yield from parts(one)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Give the public methods and properties of a class that are turnlog's."""
    for base in kind.__mro__:
        if not base.__module__.startswith("turnlog"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") and name != "__init__":
                continue
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(function, types.FunctionType):
                yield name, function


def annotated(path: str, public: object) -> Iterator[tuple[str, object]]:
    """Give what a public class or function says of its fields, parameters and returns, with its place."""
    if inspect.isclass(public):
        own = f"{public.__module__}.{public.__qualname__}"
        for name, annotation in hints(public).items():
            if not name.startswith("_"):
                yield f"{own}.{name}", annotation
        for name, function in members(public):
            for parameter, annotation in hints(function).items():
                yield f"{own}.{name}({parameter})", annotation
    elif isinstance(public, types.FunctionType):
        for parameter, annotation in hints(public).items():
            yield f"{path}({parameter})", annotation


PUBLIC: dict[str, Any] = {}
for _module in MODULES:
    PUBLIC |= {_name: getattr(importlib.import_module(_module), _name) for _name in names(_module)}
SAID = {place: annotation for name, public in PUBLIC.items() for place, annotation in annotated(name, public)}


def _is_unset(part: object) -> bool:
    return part is UnsetType or (isinstance(part, str) and "Unset" in part)


def test_no_public_type_has_unset() -> None:
    """What is not given or not there is None; False says that there is to be none."""
    found = {place for place, annotation in SAID.items() if any(map(_is_unset, parts(annotation)))}
    assert found == set()


def test_walk_sees_what_it_is_to_see() -> None:
    """Fields, methods and functions, of the log and of its values."""
    assert len(SAID) > 1000
    assert {
        "turnlog.turn.Turn.id",
        "turnlog.log.TurnLog.turn(headish)",
        "turnlog.agent.policy.Policy.approve",
    } <= SAID.keys()


def test_what_public_types_are_made_of_is_public() -> None:
    """Every class of turnlog that a signature names can be imported from a public module."""
    public = {id(value) for value in PUBLIC.values()}
    found = {
        f"{part.__module__}.{part.__qualname__}"
        for annotation in SAID.values()
        for part in parts(annotation)
        if inspect.isclass(part) and part.__module__.startswith("turnlog") and id(part) not in public
    }
    assert found == PARTS_OF_PARTS


@pytest.mark.parametrize("name", ["Policy", "Ask", "ReplyFacts", "Turn", "TurnLog", "AsyncTurnLog", "RunResult"])
def test_values_of_a_run_are_public(name: str) -> None:
    """From the package itself."""
    assert name in turnlog.__all__
