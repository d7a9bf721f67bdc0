"""Where projections have their tables: a database, and how far each projection has come, in the same transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from turnlog.errors import SchemaError
from turnlog.events import Recorded
from turnlog.feeds.projection import Projection, Skip, State
from turnlog.model.plain import check_plain_methods
from turnlog.store import Store

BUSY_TIMEOUT_S = 60.0


class Target(ABC):
    """A database for projections. Safe to use from many threads, one transaction each.

    To write one for another database, keep these promises: what is done in a transaction becomes visible together or
    not at all; transactions that load the same projection are serial; what was committed stays. Defining a subclass
    raises `MetaError` where one of the methods is an `async def`: nobody would await it.

    Attributes:
        place: where it is, for people.
        can_be_ahead: whether folding `ahead` makes a difference.
    """

    place: str
    can_be_ahead: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that what a target does is done when it returns."""
        super().__init_subclass__(**options)
        check_plain_methods(cls, Target, f"target {cls.__name__!r}")

    def check_apart(self, store: Store) -> None:  # noqa: B027 - most are another database anyway
        """Raise where it is in the database of a log.

        Raises:
            MetaError: it is: a log has no tables but its own.
        """

    @abstractmethod
    def transaction(self) -> Any:
        """Return a context manager that opens a transaction, gives what projections write with, and commits on leaving.

        It rolls back where an exception leaves it.
        """

    def ahead(self, db: Any) -> AbstractContextManager[None]:  # noqa: ARG002 - others look at it
        """Return a context in which a transaction need not wait for what it writes, where there is such a thing.

        In it an error may be raised late: by another statement, or on leaving. The transaction then fails as a whole.
        What fails in it may work without it.
        """
        return nullcontext()

    def check(self, db: Any) -> None:  # noqa: B027 - most databases go on after an error
        """Raise, after an event, where the transaction cannot go on because of an error that was swallowed."""

    def is_open(self, db: Any) -> bool:  # noqa: ARG002 - others look at it
        """Tell whether the transaction goes on: what a projection runs may have ended it."""
        return True

    @abstractmethod
    def make(self, db: Any, projection: Projection) -> None:
        """Make the tables of a projection, which are not there.

        Raises:
            SchemaError: a statement of its schema cannot be run, or one of its tables is not made.
        """

    @abstractmethod
    def load(self, db: Any, name: str) -> State | None:
        """Return how far a projection has come; None if it is not here."""

    @abstractmethod
    def save(self, db: Any, projection: Projection, state: State) -> None:
        """Keep how far a projection has come."""

    @abstractmethod
    def skips(self, db: Any, name: str) -> list[Skip]:
        """Return the events that a projection passes over, in global order."""

    @abstractmethod
    def skip(self, db: Any, skip: Skip) -> None:
        """Keep that a projection passes over an event."""

    @abstractmethod
    def beside(self, projection: Projection) -> Target:
        """Return a target beside this one, in which a projection is built anew. It is empty.

        Raises:
            SchemaError: another projection has one of its tables.
        """

    def left(self, projection: Projection) -> Target | None:  # noqa: ARG002 - others look at it
        """Return what a build of a projection that came to no end has left beside this target, to go on with it.

        Nobody else is given it, nor takes it away, before `discard`, `leave` or the end of the process. What is in it
        need not fit: that is for the caller to see.

        Returns:
            That; None where there is nothing, or somebody is at it.
        """
        return None

    @abstractmethod
    def replace(self, projection: Projection, built: Target) -> None:
        """Put the tables and the state of a projection that was built beside this target in the place of those here.

        Readers see the old ones or the new ones. What was beside is gone afterwards.
        """

    @abstractmethod
    def discard(self) -> None:
        """Take away a target that was made beside another one. Nothing happens where it is gone already."""

    def leave(self) -> None:
        """Close a target that was made beside another one, and leave it to `left`. By default it is taken away."""
        self.discard()

    def sweep(self, projection: Projection) -> str | None:  # noqa: ARG002 - others look at it
        """Take away what builds of a projection have left beside this target that came to no end, as by a kill.

        Returns:
            What is there still, and until when, for people: somebody is building, or it cannot be taken away. None if
            nothing is.
        """
        return None

    def is_transient(self, error: Exception) -> bool:  # noqa: ARG002 - others look at it
        """Tell whether what a transaction raised has nothing to do with an event: trying again later may succeed."""
        return False

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written. Then what was folded can be read all the same."""
        return False

    @abstractmethod
    def scrub(self, projection: Projection) -> None:
        """Remove what is left, in files, of rows that a projection has taken away because of an erasure.

        Raises:
            Exception: it cannot be done now. It is tried again with the next run.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything."""


def check_open(target: Target, db: Any, given: Projection, recorded: Recorded) -> None:
    """Refuse to go on where a projection has ended the transaction in which it is given an event.

    Raises:
        SchemaError: it has.
    """
    if not target.is_open(db):
        raise SchemaError(
            f"projection {given.name!r} has ended the runner's transaction at event {recorded.header.id!r}: "
            "what it has folded may be there twice, or not at all; mend it, and build it anew"
        )


def not_made(projection: Projection, statement: str, why: str) -> SchemaError:
    """Return the error for a statement of a projection's schema that cannot be run."""
    return SchemaError(f"projection {projection.name!r} cannot be made: {why}, in {' '.join(statement.split())!r}")


def check_free(projection: Projection, taken: Mapping[str, Iterable[str]]) -> None:
    """Check that no other projection has a table of one.

    Args:
        projection: what is to be made.
        taken: the names of what each projection has.

    Raises:
        SchemaError: one has.
    """
    own = {name.lower(): name for name in (*projection.tables, *projection.objects)}
    for other, names in taken.items():
        for name in names if other != projection.name else ():
            if name.lower() in own:
                raise SchemaError(
                    f"projection {projection.name!r} cannot be made: table {own[name.lower()]!r} is that of projection "
                    f"{other!r}"
                )
