"""Running projections: each event folded exactly once, in batches; paused at what cannot be folded; built anew beside.

How far a projection has come is saved in the transaction that folds. A runner looks at it again in each transaction,
so that two of them, in whatever processes, do the work of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Protocol, TypeVar

import msgspec

from turnlog.errors import (
    ConflictError,
    ErasedError,
    MetaError,
    NotFoundError,
    PluginError,
    SchemaError,
    StoreBusyError,
    StoreClosedError,
    StoreCutError,
    StoreError,
    StoreReadOnlyError,
    TurnlogError,
)
from turnlog.events import ERASURE, Recorded
from turnlog.feeds.building import build_of
from turnlog.feeds.forgetting import erased_events, forget_errors, forget_paused, scrub
from turnlog.feeds.log_events import log_event
from turnlog.feeds.projection import Projection, Skip, State, Status, check_projection
from turnlog.feeds.statuses import check_log, going_on, is_held, status_of
from turnlog.feeds.stopping import Stopping
from turnlog.feeds.targets import Target, check_open
from turnlog.model.kinds import check_list, check_texts, check_type
from turnlog.model.plain import check_done
from turnlog.plugins import said
from turnlog.store import Store
from turnlog.store.pages import Page, check_dense, read_page
from turnlog.store.reading import read_again
from turnlog.store.telling import logger
from turnlog.store.waiting import Latch

_log = logger("turnlog.feeds")

Progress = Callable[[int, int], None]
"""Called after each batch with the global position that was reached, and where the log ends."""

T = TypeVar("T")

_ERROR_CHARACTERS_MAX = 500
_MAKE = "make one of a function with @projection(…)"


class HasStore(Protocol):
    """A log: what has a store."""

    @property
    def store(self) -> Store: ...


class Runner:
    """Runs projections of one log into one target. Use it from one thread; `stop` may be called from any.

    What `stop` has ended can be begun again.
    """

    def __init__(self, store: Store | HasStore, target: Target, projections: Sequence[Projection]) -> None:
        """Take what is to be run.

        Args:
            store: the log, or its store.
            target: the database that the projections write into.
            projections: the projections.

        Raises:
            MetaError: one of these is something else, the target is a file of the log, or a projection has no proper
                name or version.
            ConflictError: two have the same name.
        """
        self._store = _store_of(store)
        self._target = _checked(target, Target, "target", "give SQLiteTarget(path) or PostgresTarget(url)")
        self._target.check_apart(self._store)
        if isinstance(projections, Projection):
            raise MetaError("projections: give a list of them, also of one", field="projections")
        listed = check_list(projections, "projections", "projections")
        projections = [_checked(given, Projection, "projections", _MAKE) for given in listed]
        self._projections = {given.name: given for given in projections}
        for given in projections:
            check_projection(given)
        if len(self._projections) != len(projections):
            raise ConflictError("two projections have the same name")
        self._latch = Latch()
        self._stopping = Stopping()

    def run(self, names: Sequence[str] = (), *, progress: Progress | None = None) -> list[Status]:
        """Fold all that the log has, and return how it went. New and changed projections are built beside first.

        A projection that cannot fold an event pauses there; the others go on. Each run tries the event again where its
        payload could not be read: it may be there again. Erasures reach what it has folded, and the texts of errors,
        also while it is paused; at an event that is erased by now it goes on.

        One whose tables cannot be made, that does not fit the log, or that leaves its transaction unusable, is raised
        once the others are up to date.

        Args:
            names: which projections; by default all.
            progress: told now and then.

        Raises:
            NotFoundError: there is no such projection.
            ConflictError: another thread has this runner at work: each needs one of its own.
            SchemaError: the tables are of a newer version than this one, cannot be made, or are those of another
                projection; or a projection has ended its transaction.
            StoreCutError: a projection has come further than the log has, or to another event: the log was cut or
                rolled back, or is another one.
            StoreReadOnlyError: there is something to fold, and the target cannot be written.
            StoreError: the log or the target cannot be used.
            PluginError: a projection has left its transaction in a state in which nothing more can be done.
        """
        with self._stopping.once():
            return self._run(names, progress)

    def _run(self, names: Sequence[str], progress: Progress | None) -> list[Status]:
        chosen = self._chosen(names)
        failed: list[TurnlogError] = []
        for given in chosen:
            try:
                self._bring_up(given, progress)
            except (SchemaError, StoreCutError) as error:
                failed.append(error)
            except (TurnlogError, OSError, MemoryError, RuntimeError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever somebody's projection leaves behind
                failure = PluginError(f"projection {given.name!r} failed ({said(error)}), and was rolled back")
                failure.__cause__ = error
                failed.append(failure)
        if failed:
            first, *others = failed
            for error in others:
                first.add_note(str(error))
            raise first
        return self.status([given.name for given in chosen])

    def follow(self, names: Sequence[str] = (), *, told: Callable[[list[Status]], None] | None = None) -> None:
        """Fold all that the log has, and then what comes, until `stop` is called.

        Args:
            names: which projections; by default all.
            told: called with how it went each time that the end of the log was reached.

        Raises:
            As `run` does; StoreClosedError: the log was closed.
        """
        with self._stopping.following():
            while not self._stopping.is_asked:
                statuses = read_again(lambda: self._run(names, None))
                if told is not None:
                    told(statuses)
                self._wait(statuses)

    def _wait(self, statuses: Sequence[Status]) -> None:
        """Wait until the log goes on, or it is stopped."""
        # Something may have come since the run was at the end. One that is paused waits for what is new.
        reached = (each.position if each.error is None else each.position + each.lag for each in statuses)
        watch = self._store.watch(min(reached, default=0), self._latch.open, backwards=True)
        try:
            if not self._stopping.is_asked:
                self._latch.wait(None)
        finally:
            self._store.unwatch(watch)
        watch.result()

    def stop(self) -> None:
        """Make `follow`, `run` or `rebuild` return when the batch that it is at is done.

        A rebuild that is stopped leaves the tables as they were; what `run` was building is gone on with by the next
        one. Where none of these goes on, the next `follow` returns at once: a thread that has been started, and has not
        begun to follow, is stopped too. After that all of them can be called again.
        """
        self._stopping.ask()
        self._latch.open()

    def status(self, names: Sequence[str] = ()) -> list[Status]:
        """Return how projections are doing.

        Raises:
            NotFoundError: there is no such projection.
        """
        chosen = self._chosen(names)
        with self._target.transaction() as db:
            # In one order, whoever asks: each is loaded once nobody else has it.
            found = {name: self._target.load(db, name) for name in sorted(given.name for given in chosen)}
            skips = {name: tuple(self._target.skips(db, name)) for name in found}
        with self._store.read() as transaction:
            return [status_of(transaction, given, found[given.name], skips[given.name]) for given in chosen]

    def rebuild(self, name: str, *, progress: Progress | None = None) -> Status:
        """Build a projection anew beside its tables, and put it in their place. Raises what `run` does."""
        [given] = self._chosen([name])
        with self._stopping.once():
            with self._target.transaction() as db:
                before = self._target.load(db, name)
            self._build(given, before, progress, anew=True)
            [status] = self._run([name], progress)
            return status

    def skip(self, name: str, reason: str) -> Skip:
        """Pass over the event that a projection is paused at, and keep that on record. It goes on with the next run.

        A rebuild passes over it as well.

        Raises:
            NotFoundError: there is no such projection.
            MetaError: there is no reason.
            ConflictError: it is not paused.
        """
        [given] = self._chosen([name])
        if not check_type(reason, str, "reason").strip():
            raise MetaError("reason: say why: it is kept with what is skipped", field="reason")
        with self._target.transaction() as db:
            state = self._target.load(db, name)
            if state is None or state.paused_event is None or state.paused_at is None:
                raise ConflictError(f"projection {name!r} is not paused: there is nothing to skip")
            skip = Skip(
                name=name,
                event_id=state.paused_event,
                position=state.paused_at,
                error=state.error,
                reason=reason,
                time=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            self._target.skip(db, skip)
            self._target.save(db, given, going_on(state))
        return skip

    def retry(self, name: str) -> None:
        """Let a paused projection try its event again with the next run.

        Raises:
            NotFoundError: there is no such projection.
        """
        [given] = self._chosen([name])
        with self._target.transaction() as db:
            state = self._target.load(db, name)
            if state is not None:
                self._target.save(db, given, going_on(state))

    # One projection

    def _chosen(self, names: Sequence[str]) -> list[Projection]:
        names = check_texts(names, "names", "['search']")
        unknown = [name for name in names if name not in self._projections]
        if unknown:
            known = ", ".join(map(repr, self._projections))
            raise NotFoundError(f"no projection {unknown[0]!r} (one of {known})")
        return [self._projections[name] for name in names] or list(self._projections.values())

    def _bring_up(self, given: Projection, progress: Progress | None) -> None:
        with self._target.transaction() as db:
            state = self._target.load(db, given.name)
            if state is not None and state.version > given.version:
                raise SchemaError(
                    f"the tables of projection {given.name!r} are of version {state.version}, and this is version "
                    f"{given.version}: use the newer one"
                )
            if state is not None and not self._target.is_read_only:
                state = forget_errors(self._store, self._target, db, given, state)
            holds = state is not None and state.paused_at is not None and is_held(state, given)
            if state is not None and state.tries_again and not self._target.is_read_only:
                holds = False
            if state is not None and state.paused_at is not None and not holds:
                state = going_on(state)
                self._target.save(db, given, state)
        if not holds:
            if state is None or state.version < given.version:
                self._build(given, state, progress)
            self._catch_up(self._target, given, progress)
        if not self._target.is_read_only:
            forget_paused(self._store, self._target, given)
            scrub(self._target, given)

    def _build(self, given: Projection, before: State | None, progress: Progress | None, *, anew: bool = False) -> None:
        """Build a projection beside its tables, and swap it in. What is interrupted the next one goes on with.

        Where it cannot fold an event, and there are tables of before, these stay, paused.
        """
        if self._target.is_read_only:
            raise self._read_only(given, "is not built" if before is None else "is of an earlier version")
        built = build_of(self._store, self._target, given, before, anew=anew)
        try:
            self._catch_up(built, given, progress)
            with built.transaction() as db:
                state = built.load(db, given.name)
            if state is None or (anew and self._stopping.is_asked):
                built.discard()
            elif self._stopping.is_asked:
                built.leave()
            elif before is not None and state.paused_at is not None:
                built.discard()
                self._save_paused(given, before, state)
            else:
                self._target.replace(given, built)
        except BaseException as error:
            if anew or isinstance(error, Exception):
                built.discard()
            else:
                built.leave()
            raise

    def _save_paused(self, given: Projection, before: State, state: State) -> None:
        paused = msgspec.structs.replace(
            before,
            paused_at=state.paused_at,
            paused_event=state.paused_event,
            paused_version=state.paused_version,
            error=state.error,
            # Where a run comes to the event with the tables of before, and not with a build that takes as long as all.
            tries_again=state.tries_again and before.version == given.version and before.position <= state.position,
        )
        with self._target.transaction() as db:
            self._target.save(db, given, paused)

    def _catch_up(self, target: Target, given: Projection, progress: Progress | None) -> None:
        with target.transaction() as db:
            state = target.load(db, given.name)
            skipped = {skip.event_id for skip in target.skips(db, given.name)}
        ahead = target.can_be_ahead
        while state is not None and state.paused_at is None and not self._stopping.is_asked:
            page, state, end = self._read(given, state)
            if page.position == state.position:
                return
            if target.is_read_only:
                if page.events:
                    raise self._read_only(given, f"is behind the log, which goes on to {end:,}")
                state = self._at(state, page.position)
                continue
            folded = self._fold_ahead(target, given, state, page, skipped) if ahead else None
            ahead = folded is not None
            state = folded or self._fold(target, given, state, page, skipped)
            if progress is not None:
                progress(page.position, end)

    def _read_only(self, given: Projection, lacking: str) -> StoreReadOnlyError:
        return StoreReadOnlyError(
            f"projection {given.name!r} {lacking}, and {self._target.place!r} cannot be written: "
            "copy the store to where you can write, with `turnlog copy`"
        )

    def _read(self, given: Projection, state: State) -> tuple[Page, State, int]:
        """Return the next page for a projection, its state with the id of the log, and where the log ends."""
        with self._store.read() as transaction:
            genesis = transaction.genesis()
            log = None if genesis is None else genesis.header.id
            check_log(transaction, given, state)
            page = read_page(transaction, state.position, topics=given.topics_read)
            if not given.topics_read:
                check_dense(page.events, state.position)
            return page, msgspec.structs.replace(state, log=log), transaction.log_end()

    def _fold_ahead(
        self, target: Target, given: Projection, state: State, page: Page, skipped: set[str]
    ) -> State | None:
        """Fold a page as `_fold` does it, and do not wait for what is written. Where that fails, return None."""
        try:
            return self._fold_page(target, given, state, page, page.events, skipped, target.ahead)
        except SchemaError:
            raise
        except Exception:  # noqa: BLE001 - whose fault it is, if it is one, is found event by event
            return None

    def _fold(self, target: Target, given: Projection, state: State, page: Page, skipped: set[str]) -> State | None:
        """Fold a page, save how far that is, and return it. Where another runner was faster, return its state.

        Where an event was erased since the page was read, nothing is folded: it is to be read again.
        """
        last: Recorded | None = None

        def events() -> Iterator[Recorded]:
            nonlocal last
            for recorded in page.events:
                last = recorded
                yield recorded
            last = None

        try:
            return self._fold_page(target, given, state, page, events(), skipped, nullcontext)
        except Exception as error:
            is_of_event = not isinstance(error, SchemaError | StoreClosedError | StoreBusyError)
            if last is None or not is_of_event or target.is_transient(error):
                raise
            if self._is_erased_since(last):
                return state
            try:
                return self._pause(target, given, state, page, skipped, last, error)
            except ErasedError:  # of an event before it, by now
                return state

    def _fold_page(
        self,
        target: Target,
        given: Projection,
        state: State,
        page: Page,
        events: Iterable[Recorded],
        skipped: set[str],
        mode: Callable[[Any], AbstractContextManager[None]],
    ) -> State | None:
        with target.transaction() as db:
            if not self._is_at(target, db, given, state):
                return target.load(db, given.name)
            with mode(db):
                reached = self._fold_all(target, db, given, state, events, page.position, skipped)
                target.save(db, given, reached)
            return reached

    def _fold_all(
        self,
        target: Target,
        db: Any,
        given: Projection,
        state: State,
        events: Iterable[Recorded],
        position: int,
        skipped: set[str],
    ) -> State:
        """Fold events up to a position, and return how far that is."""
        has_forgotten = False
        for recorded in events:
            has_forgotten = self._fold_one(target, db, given, recorded, skipped) or has_forgotten
            target.check(db)
        return msgspec.structs.replace(self._at(state, position), has_traces=state.has_traces or has_forgotten)

    def _at(self, state: State, position: int) -> State:
        """Return the state of a projection that has come to a position."""
        with self._store.read() as transaction:
            event = transaction.at_global(position) if position else None
        return msgspec.structs.replace(
            state,
            position=position,
            event_id=None if event is None else event.header.id,
            digest=None if event is None else event.digest,
        )

    def _fold_one(self, target: Target, db: Any, given: Projection, recorded: Recorded, skipped: set[str]) -> bool:
        """Fold an event, and tell whether the projection has forgotten something."""
        event = log_event(recorded, self._store)
        has_forgotten = recorded.header.topic == ERASURE and given.forgets
        try:
            if recorded.header.id not in skipped and given.wants(event):
                check_done(given.fold(db, event), "fold", f"projection {given.name!r}")
            if has_forgotten:
                check_done(
                    given.forget(db, erased_events(self._store, recorded)), "forget", f"projection {given.name!r}"
                )
        except Exception as error:
            # A full disk, for one, ends a transaction, and is no fault of the projection.
            if not target.is_transient(error):
                check_open(target, db, given, recorded)
            raise
        check_open(target, db, given, recorded)
        return has_forgotten

    def _pause(
        self,
        target: Target,
        given: Projection,
        state: State,
        page: Page,
        skipped: set[str],
        poison: Recorded,
        error: Exception,
    ) -> State | None:
        """Fold what comes before an event that cannot be folded, and pause there."""
        position = poison.global_position
        with target.transaction() as db:
            if not self._is_at(target, db, given, state):
                return target.load(db, given.name)
            before = takewhile(lambda recorded: recorded.global_position < position, page.events)
            paused = msgspec.structs.replace(
                self._fold_all(target, db, given, state, before, position - 1, skipped),
                paused_at=position,
                paused_event=poison.header.id,
                paused_version=given.version,
                error=" ".join(f"{type(error).__name__}: {error}".split())[:_ERROR_CHARACTERS_MAX],
                tries_again=isinstance(error, StoreError),
            )
            target.save(db, given, paused)
        _log.warning("projection %s is paused at event %s: it cannot be folded", given.name, poison.header.id)
        return paused

    def _is_erased_since(self, recorded: Recorded) -> bool:
        """Tell whether an event was erased since it was read."""
        with self._store.read() as transaction:
            now = transaction.at_global(recorded.global_position)
        return not recorded.erased and now is not None and now.erased

    def _is_at(self, target: Target, db: Any, given: Projection, state: State) -> bool:
        """Tell whether a projection is where it was when what is to be folded was read."""
        now = target.load(db, given.name)
        return now is not None and (now.version, now.position, now.paused_at) == (state.version, state.position, None)


def _store_of(given: Store | HasStore) -> Store:
    return _checked(getattr(given, "store", given), Store, "store", "give a TurnLog, or its store")


def _checked(given: object, kind: type[T], field: str, instead: str) -> T:
    if not isinstance(given, kind):
        raise MetaError(f"{field}: {type(given).__name__} is no {kind.__name__}: {instead}", field=field)
    return given
