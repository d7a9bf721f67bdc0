"""The tree of exceptions."""

import copy
import inspect
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from turnlog import errors
from turnlog.errors import TurnlogError
from turnlog.ids import parse_id


def _classes() -> dict[str, type[BaseException]]:
    return {name: value for name, value in vars(errors).items() if inspect.isclass(value)}


def _one_of(kind: type[TurnlogError]) -> TurnlogError:
    """Construct an error with a value of its own for each attribute."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    error = kind(f"message of {kind.__name__}", **{name: f"value of {name}" for name in names})
    error.add_note("a note")
    return error


TREE = [kind for kind in _classes().values() if issubclass(kind, TurnlogError)]


class _OfAnother(errors.HeadConflictError):
    """An error of somebody's own, which asks for more than its base."""

    def __init__(self, turn: str, *, tries: int) -> None:
        super().__init__(f"turn {turn}", bookmark=None, expected=turn, actual=None)
        self.tries = tries


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
        (errors.UntrustedRegisterError("m", name="x"), {"name": "x"}),
        (errors.ErasedError("m", event_id="i"), {"event_id": "i"}),
        (errors.StoreCutError("m", position=8, end=7), {"position": 8, "end": 7}),
        (errors.SchemaError("m"), {}),
        (errors.UncertainError("m"), {}),
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


def _same(error: BaseException, other: BaseException) -> bool:
    return (type(error), error.args, str(error), vars(error)) == (type(other), other.args, str(other), vars(other))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", TREE)
def test_error_survives_pickling(kind: type[TurnlogError], protocol: int) -> None:
    """Every error of the tree is unpickled with its class, message, attributes and notes."""
    error = _one_of(kind)
    assert _same(pickle.loads(pickle.dumps(error, protocol)), error)  # noqa: S301 - it was pickled here


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", TREE)
def test_error_survives_copying(kind: type[TurnlogError], duplicate: Callable[[TurnlogError], TurnlogError]) -> None:
    """Every error of the tree is copied with its class, message, attributes and notes."""
    error = _one_of(kind)
    made = duplicate(error)
    assert _same(made, error)
    made.added = 1  # type: ignore[attr-defined]
    assert "added" not in vars(error)


def test_error_of_another_module_survives_pickling() -> None:
    """A class below the tree whose arguments are its own needs nothing of its own to be pickled."""
    error = _OfAnother("t", tries=3)
    assert _same(pickle.loads(pickle.dumps(error)), error)  # noqa: S301 - it was pickled here


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Give a process that was started anew, and not forked from this one."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def test_error_raised_in_a_process_pool_comes_out_of_it(pool: ProcessPoolExecutor) -> None:
    """A real failure in another process is raised here with its attribute, and the pool goes on working."""
    for _ in range(2):
        with pytest.raises(errors.MetaError, match="is not a SCRU128 id") as caught:
            pool.submit(parse_id, "nope", field="call").result(timeout=60)
        assert caught.value.field == "call"


@pytest.mark.parametrize("kind", TREE)
def test_error_goes_through_a_process_pool(pool: ProcessPoolExecutor, kind: type[TurnlogError]) -> None:
    """Every error of the tree goes into another process and back."""
    error = _one_of(kind)
    assert _same(pool.submit(copy.copy, error).result(timeout=60), error)
