"""The tree of exceptions."""

import inspect
import re

import pytest

from turnlog import errors


def _classes() -> dict[str, type[BaseException]]:
    return {name: value for name, value in vars(errors).items() if inspect.isclass(value)}


def _drawn() -> dict[str, str | None]:
    """Read the tree in the module's docstring: class name to the name of its parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    drawing = (errors.__doc__ or "").split("```")[1]
    for line in drawing.strip().splitlines():
        found = re.search(r"[A-Z]\w+Error\b", line)
        assert found is not None, line
        depth = found.start() // 4
        path[depth:] = [found.group()]
        parents[found.group()] = path[depth - 1] if depth else None
    return parents


def test_drawing_shows_every_exception_under_its_parent() -> None:
    """The tree in the docstring is the tree of the classes."""
    actual = {
        name: None if name == "TurnlogError" else class_.__bases__[0].__name__ for name, class_ in _classes().items()
    }
    assert _drawn() == actual


def test_no_exception_is_a_builtin_other_than_exception() -> None:
    """No turnlog error can be caught as a builtin error such as ValueError."""
    builtins = {base for class_ in _classes().values() for base in class_.__mro__ if base.__module__ == "builtins"}
    assert builtins == {Exception, BaseException, object}


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (errors.ContentError("m"), {"field": "content"}),
        (errors.ContentError("m", field="content[0]"), {"field": "content[0]"}),
        (errors.MetaError("m", field="role"), {"field": "role"}),
        (errors.SecretError("m", field="inherited.key"), {"field": "inherited.key"}),
        (errors.UnknownTurnError("m", headish="x"), {"headish": "x"}),
        (errors.UnknownBookmarkError("m", name="x"), {"name": "x"}),
        (
            errors.HeadConflictError("m", bookmark="b", expected="e", actual="a"),
            {"bookmark": "b", "expected": "e", "actual": "a"},
        ),
        (errors.IdConflictError("m", event_id="i"), {"event_id": "i"}),
        (errors.BookmarkExistsError("m", name="x"), {"name": "x"}),
        (errors.FormatError("m"), {"line": None}),
        (errors.FormatError("m", line=3), {"line": 3}),
        (errors.CorruptionError("m"), {"global_position": None}),
        (errors.CorruptionError("m", global_position=7), {"global_position": 7}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_error_carries_its_attributes_and_message(error: Exception, attributes: dict[str, object]) -> None:
    """An error says its message and carries what it is about."""
    assert str(error) == "m"
    assert vars(error) == attributes
