"""Of which threads a turn is, told as turns are read, is what the thread index says of it."""

from random import Random

import pytest

from turnlog import TurnLog
from turnlog.audit import threads as module
from turnlog.audit.known import Known
from turnlog.audit.threads import Threads
from turnlog.events import TURN
from turnlog.model import BytesRef, CallMeta
from turnlog.projections.belonging import threads_of
from turnlog.record.calls import CallDraft, plan_call
from turnlog.sources import Sources


def _call(log: TurnLog, turn: str) -> str:
    """Record a call that goes on from a turn, and return its id."""
    sources = Sources()
    meta = CallMeta(
        turn=turn,
        provider="p",
        api="a",
        model="m",
        adapter="x",
        adapter_version="1",
        stream=False,
        request=BytesRef(hash="sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", size=0),
    )
    payload = log.store.place(b'{"format":1,"parts":[]}\n')
    draft = CallDraft(meta=meta, payload=payload, id=sources.new_id(), listing=None, listing_payload=None)
    return log.store.write(lambda transaction: plan_call(transaction, draft, sources)).header.id


@pytest.mark.parametrize("seed", range(10))
def test_turns_share_a_thread_if_the_thread_index_says_so(log: TurnLog, seed: int) -> None:
    """For every turn and the turn of every call, in random logs with roots, runs, forks and merges."""
    source = Random(seed)
    ids: list[str] = []
    calls: dict[str, str] = {}
    for number in range(40):
        count = source.choice([0, 1, 1, 1, 1, 2, 3]) if ids else 0
        near = ids[-5:] if source.random() < 0.7 else ids
        parents = [source.choice(near) for _ in range(count)]
        ids.append(log.add_turn(str(number), continues=parents or None, bookmark=False).id)
        if source.random() < 0.3:
            calls[_call(log, ids[-1])] = ids[-1]
    assert log.verify().clean
    with log.store.scratch() as scratch, log.store.read() as transaction:
        known = Known(scratch)
        threads = Threads(scratch, known)
        for event in transaction.log():
            if event.header.topic == TURN:
                threads.note(event)
            known.note(event)
            scratch.fold(event)
        of: dict[str, set[str]] = {}
        for turn in ids:
            found = transaction.event(turn)
            assert found is not None
            of[turn] = set(threads_of(transaction, found.header.stream, found.header.position))
        shared = {(turn, call): threads.share(transaction, turn, call) for turn in ids for call in calls}
    assert shared == {(turn, call): bool(of[turn] & of[at]) for turn in ids for call, at in calls.items()}
    assert set(shared.values()) == {True, False}


def test_turn_of_very_many_threads_is_taken_for_one_of_each(log: TurnLog) -> None:
    """Which they are is not kept: nothing is said to be wrong."""
    log.add_turn("alone", bookmark="alone")
    call = _call(log, log.turn("alone").id)
    roots = [log.add_turn(str(number)).id for number in range(module.THREADS_MAX + 1)]
    merge = log.add_turn("merge", continues=roots, bookmark=False)
    few = log.add_turn("few", continues=roots[:2], bookmark=False)
    with log.store.scratch() as scratch, log.store.read() as transaction:
        known = Known(scratch)
        threads = Threads(scratch, known)
        for event in transaction.log():
            if event.header.topic == TURN:
                threads.note(event)
            known.note(event)
            scratch.fold(event)
        assert threads.share(transaction, merge.id, call)
        assert not threads.share(transaction, few.id, call)
