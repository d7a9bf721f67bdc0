"""A turnlog log as an application of eventsourcing, so that its projections run on it as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from eventsourcing.application import Application
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    JSONTranscoder,
    Mapper,
    ProcessRecorder,
    StoredEvent,
    TrackingRecorder,
)
from eventsourcing.utils import Environment

from turnlog.errors import CorruptionError, StoreOpenError
from turnlog.events import Recorded
from turnlog.feeds.log_events import LogEvent, log_event
from turnlog.projections import side_tables, synchronous
from turnlog.store import Store, open_store
from turnlog.store.notifications import carried_by

if TYPE_CHECKING:
    from turnlog.events import Seals

STORE = "TURNLOG_STORE"
"""The variable that names the store by its URL."""


class TurnMapper(Mapper[str]):
    """Gives events of a log as `LogEvent`. It makes none: turnlog records them."""

    def __init__(self, store: Store) -> None:
        """Take the store."""
        super().__init__(JSONTranscoder())
        self._store = store

    def to_domain_event(self, stored_event: StoredEvent) -> LogEvent:
        """Return an event that was stored.

        Raises:
            CorruptionError: it is not there any more.
        """
        recorded = carried_by(stored_event) or self._read(stored_event)
        return log_event(recorded, self._store)

    def to_stored_event(self, domain_event: object) -> NoReturn:
        """Refuse: turns are recorded with `TurnLog`."""
        raise NotImplementedError("events of a turnlog log are recorded with TurnLog, not with an application")

    def _read(self, stored_event: StoredEvent) -> Recorded:
        stream, position = str(stored_event.originator_id), stored_event.originator_version
        with self._store.read() as transaction:
            recorded = transaction.at(stream, position)
        if recorded is None:
            raise CorruptionError(f"there is no event at position {position} of stream {stream!r}")
        return recorded


class TurnFactory(InfrastructureFactory[TrackingRecorder]):
    """eventsourcing's infrastructure factory for the store that the environment names.

    That is `TURNLOG_STORE`; without it the library's own: `POSTGRES_DBNAME` with `POSTGRES_HOST`, `POSTGRES_PORT`,
    `POSTGRES_USER`, `POSTGRES_PASSWORD` and `POSTGRES_SCHEMA`, or `SQLITE_DBNAME`, the path of a SQLite store. All may
    have the name of the application before them.
    """

    def __init__(self, env: Environment | Mapping[str, str] | None, *, seals: Seals | None = None) -> None:
        """Open the store; it is made if there is none.

        Raises:
            StoreOpenError: the environment names none, or what is there is none.
        """
        super().__init__(env)
        self.store = open_store(_url(self.env), projections=synchronous(), sides=side_tables(), seals=seals)

    def mapper(self, *_: Any, **__: Any) -> Any:
        """Return a mapper of the log's events."""
        return TurnMapper(self.store)

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """Return a recorder of the log. There are no snapshots: turns never change."""
        if purpose != "events":
            raise NotImplementedError(f"a turnlog store keeps no {purpose}")
        return self.application_recorder()

    def application_recorder(self) -> ApplicationRecorder:
        """Return a recorder of the log."""
        return self.store.factory.application_recorder()

    def tracking_recorder(self, tracking_recorder_class: type[Any] | None = None) -> Any:
        """Return a tracking recorder beside the log."""
        return self.store.factory.tracking_recorder(tracking_recorder_class)

    def process_recorder(self) -> ProcessRecorder:
        """Refuse: a turnlog store records events through one path, tracking is recorded beside projections."""
        return self.store.factory.process_recorder()

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def _url(env: Environment) -> str:
    url = env.get(STORE)
    if url:
        return url
    if database := env.get("POSTGRES_DBNAME"):
        return _postgres_url(env, database)
    path = env.get("SQLITE_DBNAME")
    if path == ":memory:":
        return "memory://"
    if path:
        return f"sqlite:///{quote(path)}"
    raise StoreOpenError(
        f"the environment names no store: set {STORE} to its URL, such as sqlite:///PATH "
        f"(also: {', '.join(env.create_keys(STORE)[:-1])})"
    )


def _postgres_url(env: Environment, database: str) -> str:
    user, password = (quote(env.get(f"POSTGRES_{name}") or "", safe="") for name in ("USER", "PASSWORD"))
    host, port, schema = (env.get(f"POSTGRES_{name}") for name in ("HOST", "PORT", "SCHEMA"))
    account = f"{user}:{password}@" if password else f"{user}@" if user else ""
    place = f"{host or ''}:{port}" if port else host or ""
    query = f"?schema={quote(schema, safe='')}" if schema else ""
    return f"postgresql://{account}{place}/{quote(database, safe='')}{query}"


class TurnApplication(Application[str]):
    """A turnlog log as an eventsourcing application: for `ProjectionRunner`, notification logs and subscriptions.

    The environment says which store: `TURNLOG_STORE` (or `TURNAPPLICATION_TURNLOG_STORE`). Its events are `LogEvent`
    and its kinds. It records nothing itself; a `TurnLog` on the same store does.

    Attributes:
        store: the store.
    """

    name = "TurnApplication"

    def __init__(self, env: Mapping[str, str] | None = None, *, seals: Seals | None = None) -> None:
        """Open the store that the environment names.

        Args:
            env: variables that count before those of the process.
            seals: the keys of what is sealed.

        Raises:
            StoreOpenError: the environment names no store, or what is there is none.
        """
        self._seals = seals
        super().__init__(env)

    def construct_factory(self, env: Environment) -> TurnFactory:
        """Return the factory, with the store open."""
        factory = TurnFactory(env, seals=self._seals)
        self.store = factory.store
        return factory

    def construct_mapper(self) -> Any:
        """Return a mapper of the log's events."""
        return TurnMapper(self.store)
