"""Where a projection is built: beside its tables, in what an interrupted build has left there or from the beginning."""

from __future__ import annotations

import msgspec

from turnlog.errors import SchemaError, StoreBusyError, StoreClosedError, StoreError
from turnlog.feeds.forgetting import begun
from turnlog.feeds.projection import Projection, State
from turnlog.feeds.statuses import check_log
from turnlog.feeds.targets import Target
from turnlog.store import Store


def build_of(store: Store, target: Target, given: Projection, before: State | None, *, anew: bool) -> Target:
    """Return a target beside another one that has a projection as far as it was built: not at all, or up to somewhere.

    Args:
        store: the log.
        target: where the projection is to be in the end.
        given: the projection.
        before: how far the tables of before have come, where there are some.
        anew: begin from the beginning, whatever is there.

    Raises:
        SchemaError: the tables cannot be made.
        StoreError: the log or the target cannot be used.
    """
    built = None if anew else _left(store, target, given, before)
    return built or _begun(store, target, given, before)


def _left(store: Store, target: Target, given: Projection, before: State | None) -> Target | None:
    """Return what an interrupted build has left, if it can be gone on with. What was erased since it comes to."""
    built = target.left(given)
    if built is None:
        return None
    try:
        if _goes_on(store, target, built, given, before):
            target.sweep(given)  # there may be more than one
            return built
    except BaseException as error:
        if not isinstance(error, StoreError) or isinstance(error, StoreClosedError | StoreBusyError):
            built.leave()
            raise
    # It is of before, damaged, or of a log that was cut: it is built from the beginning.
    built.discard()
    return None


def _goes_on(store: Store, target: Target, built: Target, given: Projection, before: State | None) -> bool:
    """Tell whether a build can be gone on with: it has folded this log, with the version and the skips of now."""
    with target.transaction() as db:
        skips = target.skips(db, given.name)
    with built.transaction() as db:
        state = built.load(db, given.name)
        if state is None or state.version != given.version or state.paused_at is not None:
            return False
        if built.skips(db, given.name) != skips:
            return False
        with store.read() as transaction:
            check_log(transaction, given, state)
        if before is not None and before.has_traces:
            built.save(db, given, msgspec.structs.replace(state, has_traces=True))
    return True


def _begun(store: Store, target: Target, given: Projection, before: State | None) -> Target:
    """Return a target with the tables of a projection, empty."""
    with store.read() as transaction:
        genesis = transaction.genesis()
    log = None if genesis is None else genesis.header.id
    beginning = State(name=given.name, version=given.version, log=log)
    if before is None:
        beginning = begun(store, beginning)
    else:  # the skips are those of before
        kept = {name: getattr(before, name) for name in ("erased_to", "erased_id", "has_traces")}
        beginning = msgspec.structs.replace(beginning, **kept)
    with target.transaction() as db:
        skips = target.skips(db, given.name)
    built = target.beside(given)
    try:
        with built.transaction() as db:
            built.make(db, given)
            if not built.is_open(db):
                raise SchemaError(f"projection {given.name!r} cannot be made: its schema ends the transaction")
            for skip in skips:
                built.skip(db, skip)
            built.save(db, given, beginning)
    except BaseException:
        built.discard()
        raise
    return built
