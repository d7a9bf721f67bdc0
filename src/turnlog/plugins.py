"""What other packages add: classes that they register as entry points, by name.

Such a package can fail in any way, and nobody should look for its fault in turnlog, or in a file.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from turnlog.errors import MissingPackageError, PluginError, TurnlogError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_groups: set[str] = set()
"""The groups of entry points that were looked at."""

T = TypeVar("T")


class Plugins(Generic[T]):
    """The classes of one kind: those of turnlog, and those of other packages, which cannot take the names of these."""

    def __init__(self, group: str, kind: type[T], what: str, built_in: Mapping[str, str]) -> None:
        """Begin without looking.

        Args:
            group: the group of entry points: names, each with where a class is that is made without arguments.
            kind: what a class must be a subclass of. Its `name` must be that of the entry point.
            what: what it is called in errors.
            built_in: where those of turnlog are, by name, as entry points say it.
        """
        _groups.add(group)
        self._group = group
        self._kind = kind
        self._what = what
        self._built_in = built_in

    def names(self) -> list[str]:
        """Return the names of all, sorted."""
        return sorted({*self._built_in, *self.others()})

    def others(self) -> list[str]:
        """Return the names of those of other packages, sorted."""
        return sorted({entry.name for entry in _entries(self._group)} - {*self._built_in})

    def find(self, name: str) -> type[T] | None:
        """Return the class of a name; None where there is none of this name.

        Raises:
            MissingPackageError: it cannot be imported: most often because a package that it needs is not installed.
            PluginError: what another package registers cannot be used, or two of them register the name.
        """
        if name in self._built_in:
            return _imported(self._built_in[name], f"{self._what} {name!r}", name)
        entries = {entry.value: entry for entry in _entries(self._group, name)}
        if not entries:
            return None
        if len(entries) > 1:
            whose = " and ".join(sorted(map(_package, entries.values())))
            raise PluginError(f"{self._what} {name!r} is registered more than once, by {whose}: remove one of them")
        [entry] = entries.values()
        who = self.called(name)
        with self.blamed(name):
            found = _imported(entry.value, who, name)
        if not isinstance(found, type) or not issubclass(found, self._kind):
            raise PluginError(f"{who} cannot be used: {entry.value} is no {self._kind.__name__} class")
        own = getattr(found, "name", None)
        if own != name:
            raise PluginError(f"{who} cannot be used: its `name` is {own!r}, and must be that of the entry point")
        return found

    def make(self, name: str) -> T | None:
        """Return one of the class of a name; None where there is none of this name.

        Raises:
            MissingPackageError: see `find`.
            PluginError: likewise, or it cannot be made.
        """
        kind = self.find(name)
        if kind is None:
            return None
        with self.blamed(name):
            return kind()

    @contextmanager
    def blamed(self, name: str) -> Generator[None]:
        """Raise what one of another package raises as a `PluginError`, but for what turnlog itself says."""
        try:
            yield
        except TurnlogError:
            raise
        except (Exception, SystemExit) as error:
            if name in self._built_in:
                raise
            raise PluginError(f"{self.called(name)} failed ({said(error)}): ask whoever made it") from error

    def called(self, name: str) -> str:
        """Return what one is called in errors: with its package, where it is of another one."""
        entry = next(iter(_entries(self._group, name)), None)
        of = "" if name in self._built_in or entry is None else f" of {_package(entry)}"
        return f"{self._what} {name!r}{of}"


def _entries(group: str, name: str | None = None) -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - it takes a while to import

    return tuple(entry_points(group=group) if name is None else entry_points(group=group, name=name))


def _imported(path: str, who: str, name: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise MissingPackageError(f"{who} cannot be loaded: {error}", provider=name) from error


def said(error: BaseException) -> str:
    """Return what an error is and says, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())


def culprit(error: BaseException) -> str | None:
    """Return which package an error came through that adds to turnlog, as people know it; None where it is none."""
    by_module = {entry.module.partition(".")[0]: entry for group in _groups for entry in _entries(group)}
    came_through = [by_module[module] for module in _modules(error) if module in by_module]
    return _package(came_through[-1]) if came_through else None


def _modules(error: BaseException) -> Iterator[str]:
    """Iterate over the packages of the code that an error came through, the innermost last."""
    trace = error.__traceback__
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        trace = trace.tb_next


def _package(entry: EntryPoint) -> str:
    return f"module {entry.module!r}" if entry.dist is None else f"package {entry.dist.name} {entry.dist.version}"
