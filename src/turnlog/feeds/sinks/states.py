"""How far the feeds of a log have come: a small database beside the store, and one lock for each feed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import monotonic, sleep

import msgspec
from msgspec import Struct

from turnlog.errors import ConflictError, StoreError, os_reason
from turnlog.feeds.erasures import FORGOTTEN
from turnlog.feeds.sinks.interface import Choice
from turnlog.store.files import OWN, access_beside, is_locked, lock_file
from turnlog.store.sqlite.errors import is_damaged, lacking
from turnlog.store.sqlite.handles import connect, make, make_beside, using
from turnlog.store.sqlite.journal import write_ahead
from turnlog.store.sqlite.opening import can_be_written, reading_mode, uri_of

BUSY_TIMEOUT_S = 60.0

_PATIENCE_S = 2.0
"""How long a feed that begins waits for those who look whether it runs."""
_POLL_S = 0.001

_TAKES_BACK = b"takes back"
"""What the lock of a feed says that an erasure has."""

_ERASURE_S = 60.0
"""How long an erasure is waited for: it may have a large folder to write anew."""

_ERASURE_POLL_S = 0.02

_ANEW = (
    "remove that file and run each feed: folders are gone on with where their files end, and reached by erasures; the "
    "others begin anew"
)
"""What can be done about states that are damaged."""

_STATES = "CREATE TABLE IF NOT EXISTS turnlog_feeds (name TEXT PRIMARY KEY, state TEXT NOT NULL)"


class FeedState(Struct, frozen=True, kw_only=True):
    """How far a feed has come.

    Attributes:
        name: its name.
        kind: the kind of its sink.
        destination: where it delivers to.
        choice: what it delivers.
        keeps_choice: whether it was begun with that, so that no call delivers anything else. A state of an earlier
            version does not say so, and takes what the next call says.
        takes_back: whether its sink can take back what was erased.
        log: the id of the log; None while that is not known.
        position: the global position up to which all was delivered, or is not wanted.
        event_id: the id of the event there; None where it is not known.
        digest: its digest, likewise.
        pending: the last global position of the batch that is being delivered, if that is to be kept. Of a sink that
            takes back it is kept for the first batch, too.
        erased_to: the global position of the last erasure that was carried out in the destination.
        erased_id: the id of the event there; None where it is not known.
        delivered: number of events that the destination has acknowledged.
        delivered_to: the global position of the last of them; 0 where it is not known.
        sent_to: the global position up to which it has ever delivered content. It goes back with nothing. None where it
            was not kept; see `sent`.
        delivered_time: when it last did, ISO 8601 in UTC.
        error: why it does not go on, one line; None if it does.
        error_time: since when, ISO 8601 in UTC.
    """

    name: str
    kind: str
    destination: str
    choice: Choice = Choice()
    keeps_choice: bool = False
    takes_back: bool = False
    log: str | None = None
    position: int = 0
    event_id: str | None = None
    digest: str | None = None
    pending: int | None = None
    erased_to: int = 0
    erased_id: str | None = None
    delivered: int = 0
    delivered_to: int = 0
    sent_to: int | None = None
    delivered_time: str | None = None
    error: str | None = None
    error_time: str | None = None

    @property
    def may_have_delivered(self) -> bool:
        """Whether something of a log may be in the destination."""
        # Of which log it is, a feed knows when it has found something there, or a batch is through.
        return self.log is not None or self.pending is not None

    @property
    def has_delivered(self) -> bool:
        """Whether some event may be in the destination."""
        return bool(self.delivered or self.delivered_to) or self.pending is not None

    @property
    def sent(self) -> int:
        """The global position up to which content may ever have been delivered; 0 without any."""
        if self.choice.public:
            return self.sent_to or 0
        sent_to = (self.position if self.delivered else 0) if self.sent_to is None else self.sent_to
        # A batch that is being delivered may be there already.
        return max(sent_to, self.pending or 0)

    def changed(self, **changes: object) -> FeedState:
        """Return it with changes, and with what was ever sent."""
        return msgspec.structs.replace(self, **{"sent_to": self.sent, **changes})


class FeedStates:
    """The states of the feeds of one log, for its owner alone. Safe to use from many threads and processes.

    What is written may be lost in a power failure: then some events are delivered again.
    """

    def __init__(self, path: Path | None, *, like: Path | None = None) -> None:
        """Take the path of the database, which is made when something is kept; None keeps all in memory.

        Args:
            path: the path.
            like: a file: who may use this may use the states. By default their maker alone.
        """
        self._access = access_beside(like)
        self._path = path
        self._lock = Lock()
        self._memory: dict[str, FeedState] = {}
        self._held: set[str] = set()

    def all(self) -> list[FeedState]:
        """Return the states, by name.

        Raises:
            StoreError: they cannot be read.
        """
        if self._path is None:
            return [self._memory[name] for name in sorted(self._memory)]
        if not self._path.exists():
            return []
        with self._reading() as db:
            rows = db.execute("SELECT state FROM turnlog_feeds ORDER BY name").fetchall()
        try:
            return [msgspec.json.decode(text, type=FeedState) for (text,) in rows]
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            raise self._unusable(error, anew=True) from error

    def load(self, name: str) -> FeedState | None:
        """Return the state of a feed; None if there is none.

        Raises:
            StoreError: it cannot be read.
        """
        return next((state for state in self.all() if state.name == name), None)

    def save(self, state: FeedState) -> None:
        """Keep a state.

        Raises:
            StoreError: it cannot be written.
        """
        if self._path is None:
            self._memory[state.name] = state
            return
        with self._database() as db:
            db.execute(
                "INSERT INTO turnlog_feeds VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state",
                (state.name, msgspec.json.encode(state).decode()),
            )

    def forget_error(self, name: str) -> None:
        """Keep of a feed that it failed, if it did, and not with what. It may be running.

        Raises:
            StoreError: that cannot be written.
        """
        if self._path is None:
            state = self._memory.get(name)
            if state is not None and state.error is not None:
                self._memory[name] = msgspec.structs.replace(state, error=FORGOTTEN)
            return
        with self._database() as db:
            # One statement: who runs the feed writes its state at any time.
            db.execute(
                "UPDATE turnlog_feeds SET state = json_set(state, '$.error', ?)"
                " WHERE name = ? AND json_extract(state, '$.error') IS NOT NULL",
                (FORGOTTEN, name),
            )

    def remove(self, name: str) -> None:
        """Forget a feed, if there is one.

        Raises:
            StoreError: the states cannot be written.
        """
        if self._path is None:
            self._memory.pop(name, None)
            return
        if self._path.exists():
            with self._database() as db:
                db.execute("DELETE FROM turnlog_feeds WHERE name = ?", (name,))
        with suppress(FileNotFoundError):
            self._lock_path(name).unlink()

    @contextmanager
    def held(self, name: str, *, delivers: bool = True) -> Generator[None]:
        """Keep others from running a feed. Where an erasure has it for a moment, that is waited for.

        Args:
            name: the name of the feed.
            delivers: whether anything is delivered; otherwise it is an erasure, which takes back what was.

        Raises:
            ConflictError: somebody runs it.
            StoreError: it cannot be locked.
        """
        taken = ConflictError(f"feed {name!r} is running already")
        with self._lock:
            if name in self._held:
                raise taken
            self._held.add(name)
        try:
            if self._path is None:
                yield
                return
            handle = self._locked(name)
            if handle is None:
                raise taken
            try:
                # Whatever somebody has left there who was killed.
                os.ftruncate(handle, 0)
                if not delivers:
                    os.pwrite(handle, _TAKES_BACK, 0)
                yield
            finally:
                os.close(handle)
        finally:
            with self._lock:
                self._held.discard(name)

    def is_held(self, name: str) -> bool:
        """Tell whether somebody runs a feed."""
        with self._lock:
            if name in self._held:
                return True
        if self._path is None:
            return False
        try:
            return is_locked(self._lock_path(name))
        except OSError as error:
            raise self._unlockable(name, error) from error

    def _locked(self, name: str) -> int | None:
        """Return a handle that holds the lock of a feed; None where somebody else holds it."""
        path = self._lock_path(name)
        until = monotonic() + _PATIENCE_S
        try:
            path.parent.mkdir(OWN.of_folders.mode, parents=True, exist_ok=True)
            while True:
                handle = lock_file(path, self._access)  # whoever removes a feed removes its lock with it
                is_held = handle is None and is_locked(path)
                if handle is not None or (monotonic() > until and not is_held):
                    return handle
                if is_held and (path.read_bytes() != _TAKES_BACK or monotonic() > until + _ERASURE_S):
                    return None
                # Somebody looks whether it is held, begins in this moment, or takes back.
                sleep(_ERASURE_POLL_S if is_held else _POLL_S)
        except OSError as error:
            raise self._unlockable(name, error) from error

    def _unlockable(self, name: str, error: OSError) -> StoreError:
        path = self._lock_path(name)
        return lacking(error, f"the lock of feed {name!r}, {str(path)!r}", path) or StoreError(
            f"feed {name!r} cannot be locked at {str(path)!r}: {os_reason(error)}"
        )

    def _lock_path(self, name: str) -> Path:
        assert self._path is not None
        return self._path.with_name(f"{self._path.name}-{sha256(name.encode()).hexdigest()[:16]}.lock")

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """Hold a connection to read by: who may not write the file leaves nothing beside it."""
        assert self._path is not None
        if can_be_written(self._path):
            with self._database() as db:
                yield db
            return
        try:
            uri = uri_of(self._path, reading_mode(self._path, str(self._path)))
            with using(), closing(connect(uri, self._path, uri=True, timeout=BUSY_TIMEOUT_S)) as db:
                yield db
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error, anew=is_damaged(error)) from error

    @contextmanager
    def _database(self) -> Generator[sqlite3.Connection]:
        assert self._path is not None
        try:
            # SQLite gives its other files the same mode.
            self._path.parent.mkdir(OWN.of_folders.mode, parents=True, exist_ok=True)
            make(self._path, self._access)
            make_beside(self._path, self._access)
            with using(), closing(connect(self._path, self._path, isolation_level=None, timeout=BUSY_TIMEOUT_S)) as db:
                write_ahead(db, BUSY_TIMEOUT_S)
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute("PRAGMA secure_delete = ON")
                db.execute(_STATES)
                yield db
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error, anew=is_damaged(error)) from error

    def _unusable(self, error: Exception, *, anew: bool) -> StoreError:
        assert self._path is not None
        name = f"the states of feeds in {str(self._path)!r}"
        said = f"{name} cannot be used: {os_reason(error) if isinstance(error, OSError) else error}"
        return lacking(error, name, self._path) or StoreError(f"{said}; {_ANEW}" if anew else said)
