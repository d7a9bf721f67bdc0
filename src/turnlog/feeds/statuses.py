"""How far a projection is, and whether the log is the one that it has folded."""

from __future__ import annotations

import msgspec

from turnlog.errors import StoreCutError
from turnlog.feeds.erasures import erasures_due
from turnlog.feeds.projection import Projection, Skip, State, Status
from turnlog.store import ReadTransaction, past_damage
from turnlog.store.pages import ANOTHER, check_seen


def status_of(
    transaction: ReadTransaction, given: Projection, state: State | None, skipped: tuple[Skip, ...]
) -> Status:
    """Return how a projection is doing.

    Args:
        transaction: a look at the log.
        given: the projection.
        state: how far it has come; None where it is not there.
        skipped: what it passes over.
    """
    end = transaction.log_end()
    if state is None:
        return Status(name=given.name, version=0, position=0, lag=end, is_outdated=True)
    if state.paused_at is not None and not is_held(state, given):
        state = going_on(state)
    status = Status(
        name=given.name,
        version=state.version,
        position=state.position,
        lag=max(0, end - state.position),
        paused_at=state.paused_at,
        paused_event=state.paused_event,
        error=state.error,
        tries_again=state.tries_again,
        is_outdated=state.version < given.version,
        has_traces=state.has_traces,
        skipped=skipped,
    )
    try:
        with past_damage(transaction):
            check_log(transaction, given, state)
    except StoreCutError as error:
        return msgspec.structs.replace(status, paused_at=None, paused_event=None, error=str(error), tries_again=False)
    if state.paused_at is not None and erasures_due(transaction, state) is not None:
        return msgspec.structs.replace(status, has_traces=True)
    return status


def check_log(transaction: ReadTransaction, given: Projection, state: State) -> None:
    """Check that the log is the one that a projection has folded, as far as it has come.

    Raises:
        StoreCutError: it is not.
    """
    genesis = transaction.genesis()
    log = None if genesis is None else genesis.header.id
    end = transaction.log_end()
    if state.log not in (None, log):
        why = f"it is of log {state.log!r}, and this is log {log!r}"
    elif end < state.position:
        why = (
            f"the log ends at global position {end:,}, and {state.position:,} was folded: it was cut or rolled back, "
            f"or {ANOTHER}"
        )
    else:
        try:
            if state.event_id is not None:
                check_seen(transaction, state.position, state.event_id, digest=state.digest)
        except StoreCutError as error:
            why = str(error)
        else:
            return
    raise StoreCutError(
        f"projection {given.name!r} cannot go on: {why}; if that is meant, as after restoring a copy, build it anew "
        f"(`turnlog projections rebuild {given.name}`, `Runner.rebuild`)",
        position=state.position,
        end=end,
    )


def is_held(state: State, given: Projection) -> bool:
    """Tell whether a projection that is paused was paused by the same version of it."""
    return given.version == (state.version if state.paused_version is None else state.paused_version)


def going_on(state: State) -> State:
    """Return the state of a projection that is not paused any more."""
    return msgspec.structs.replace(
        state, paused_at=None, paused_event=None, paused_version=None, error=None, tries_again=False
    )


def ways_on(status: Status) -> str:
    """Return how a projection that is paused can go on, with commands."""
    what = "the next run" if status.tries_again else f"`turnlog projections rebuild {status.name}`"
    skip = f"`turnlog projections skip {status.name} --reason …`"
    return f"{what} tries it again, and {skip} passes over it for good, where it cannot be mended"
