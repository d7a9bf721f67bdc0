"""Making proofs from a store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

from turnlog.audit.checkpoints import parse_checkpoint
from turnlog.audit.merkle import verify_consistency, verify_inclusion
from turnlog.audit.notes import parse_note
from turnlog.audit.proof_events import HELD_BYTES_MAX, EventParts, Part, check_depth, check_events
from turnlog.audit.proofs import ProofParts
from turnlog.audit.tree import Nodes, grow
from turnlog.errors import CorruptionError, ErasedError, ProofError, StoreReadOnlyError
from turnlog.events import CALL, PARENT, Recorded
from turnlog.events.sealing import event_secret_of
from turnlog.model.pieces import byte_pieces
from turnlog.projections.checkpoints import latest
from turnlog.record import find_event
from turnlog.record.calls import call_meta, read_kept, split_kept
from turnlog.store import ReadTransaction, Store

EVIDENCE = ("call", "reply", "tools", "summary", "tool_end", "tool_call")
"""As what is cited what a model was shown and answered, and how its tool calls went."""

Withheld = Callable[[Recorded], "frozenset[str]"]
"""Tells what a proof is not to show of an event: `private` (and with it all else), `payload`, `request`, `loss`; and
`secret`, so that what is sealed is shown as the sealed bytes alone."""


def nothing(_: Recorded) -> frozenset[str]:
    """Withhold nothing."""
    return frozenset()


@contextmanager
def proving(
    store: Store,
    event: str,
    *,
    note: str | None = None,
    thread: bool = False,
    calls: bool = False,
    withheld: Withheld = nothing,
) -> Generator[ProofParts]:
    """Give a proof of an event, of which what is large is read from the store when it is wanted: within the context.

    See `Audit.prove` for what it takes and raises.
    """
    grow_tree(store)
    with store.read() as transaction:
        recorded = find_event(transaction, event)
        note = note or _latest(transaction, recorded.global_position)
        if note is None:
            raise ProofError(
                f"no checkpoint covers event {recorded.header.id!r} yet: make one with `turnlog checkpoint`"
            )
        yield _prove(transaction, recorded, note, thread=thread, calls=calls, withheld=withheld)


def _latest(transaction: ReadTransaction, size_min: int) -> str | None:
    """Return the largest checkpoint of so many events at least that the store keeps. Damaged ones are passed over."""
    for note in latest(transaction, size_min=size_min):
        with suppress(ProofError):
            if parse_checkpoint(parse_note(note).text).size >= size_min:
                return note
    return None


def grow_tree(store: Store) -> None:
    """Bring the kept tree to the end of the log. Where it cannot be written, proofs are made without."""
    with suppress(StoreReadOnlyError):
        grow(store)


def _prove(
    transaction: ReadTransaction, recorded: Recorded, note: str, *, thread: bool, calls: bool, withheld: Withheld
) -> ProofParts:
    """Prove that an event is in the log, and what it says.

    What is sealed is shown with the event secret that opens it, where its key is here, and else as the sealed bytes.

    Args:
        transaction: the snapshot to read from.
        recorded: the event.
        note: a signed checkpoint of the log that covers it.
        thread: show all turns of its ancestry too.
        calls: show the calls that the turns came of too, with request, loss report, tools and reply, and the summaries
            that their windows show.
        withheld: what is not to be shown.

    Raises:
        ProofError: the checkpoint does not cover the event, or is not of this log as it is; or what is to be shown is
            nested deeper than a proof can show.
        CorruptionError: what is to be shown is damaged.
        SealError: the keys of what is sealed cannot be read.
    """
    checkpoint = parse_checkpoint(parse_note(note).text)
    index = recorded.global_position - 1
    if index >= checkpoint.size:
        raise ProofError(
            f"event {recorded.header.id!r} is at global position {index + 1}, and the checkpoint covers "
            f"{checkpoint.size}: make one with `turnlog checkpoint`"
        )
    _check_end(transaction, checkpoint.size)
    hashes = Nodes(transaction).inclusion_proof(index, checkpoint.size)
    try:
        verify_inclusion(index, checkpoint.size, recorded.leaf_hash, hashes, checkpoint.root)
    except ProofError as error:
        raise ProofError(
            f"the checkpoint of {checkpoint.size} events was not signed for the log as it is: run `turnlog verify`"
        ) from error
    events = tuple(
        _shown(transaction, event, withheld(event)) for event in _events(transaction, recorded, thread, calls)
    )
    for event in events:
        check_depth(event)
    try:
        for _ in check_events(events):
            pass
    except ProofError as error:
        raise CorruptionError(f"what the proof would show is damaged ({error}): run `turnlog verify`") from error
    return ProofParts(index=index, hashes=tuple(hashes), note=note, events=events)


def prove_consistency(transaction: ReadTransaction, old_note: str, new_note: str) -> list[bytes]:
    """Prove that the log has only grown from one checkpoint to another. Return the hashes of the proof.

    Raises:
        ProofError: it has not: one of them was not signed for the log as it is.
    """
    old, new = (parse_checkpoint(parse_note(note).text) for note in (old_note, new_note))
    if old.origin != new.origin:
        raise ProofError("the checkpoints are of different logs")
    if old.size > new.size:
        raise ProofError(
            f"the first checkpoint covers {old.size} events, the second {new.size}: name the old one first"
        )
    _check_end(transaction, new.size)
    hashes = Nodes(transaction).consistency_proof(old.size, new.size)
    try:
        verify_consistency(old.size, new.size, hashes, old.root, new.root)
    except ProofError as error:
        raise ProofError("one of the checkpoints was not signed for the log as it is: run `turnlog verify`") from error
    return hashes


def _check_end(transaction: ReadTransaction, size: int) -> None:
    end = transaction.log_end()
    if size > end:
        raise ProofError(f"the checkpoint covers {size} events, and the log has {end}: its end was cut off")


def _events(transaction: ReadTransaction, recorded: Recorded, thread: bool, calls: bool) -> Iterator[Recorded]:
    """Yield an event and what it rests on as asked, each after one that cites it, and once."""
    waiting, seen = [recorded], {recorded.header.id}
    while waiting:
        event = waiting.pop()
        yield event
        for citation in event.header.citations:
            wanted = (thread and citation.relation == PARENT) or (calls and citation.relation in EVIDENCE)
            if wanted and citation.id not in seen:
                seen.add(citation.id)
                cited = transaction.event(citation.id)
                if cited is None or cited.digest != citation.digest:
                    raise CorruptionError(
                        f"event {event.header.id!r} cites {citation.id!r}, which is not there as it is cited: "
                        "run `turnlog verify`"
                    )
                waiting.append(cited)


def _shown(transaction: ReadTransaction, recorded: Recorded, withheld: frozenset[str]) -> EventParts:
    if recorded.private_state is None or "private" in withheld:
        return EventParts(header=recorded.state)
    secret = None if recorded.sealed is None else event_secret_of(recorded.sealed, transaction.seals)
    if recorded.sealed is not None and (secret is None or recorded.private is None or "secret" in withheld):
        return EventParts(
            header=recorded.state,
            private=recorded.private_state,
            payload=None if "payload" in withheld else _stored_payload(transaction, recorded),
        )
    request = loss = None
    if recorded.header.topic == CALL:
        if not withheld >= {"request", "loss"}:
            request, loss = _request(transaction, recorded)
        if not withheld.isdisjoint({"request", "loss"}):
            withheld |= {"payload"}  # it has what is new in both
    return EventParts(
        header=recorded.state,
        private=recorded.private_state,
        payload=None if "payload" in withheld else _payload(transaction, recorded),
        request=None if "request" in withheld else request,
        loss=None if "loss" in withheld else loss,
        secret=secret,
    )


def _payload(transaction: ReadTransaction, recorded: Recorded) -> Part | None:
    if (recorded.size or 0) > HELD_BYTES_MAX:
        return Part(recorded.size or 0, lambda: transaction.payload_pieces(recorded))
    content = transaction.payload(recorded)
    return None if content is None else Part.of(content)


def _stored_payload(transaction: ReadTransaction, recorded: Recorded) -> Part | None:
    content = transaction.stored_payload(recorded)
    if content is None or len(content) <= HELD_BYTES_MAX:
        return None if content is None else Part.of(content)
    return Part(len(content), lambda: byte_pieces(transaction.stored_payload(recorded) or b""))


def _request(transaction: ReadTransaction, call: Recorded) -> tuple[Part | None, Part | None]:
    """Return the body of a call's request, and its loss report if it has one; None for what parts were erased of."""
    meta = call_meta(call)
    try:
        body, report, _ = split_kept(meta, read_kept(transaction, call))
    except ErasedError:
        return None, None

    def read_body() -> Iterator[memoryview]:
        return byte_pieces(memoryview(read_kept(transaction, call))[: meta.request.size])

    request = Part.of(body) if len(body) <= HELD_BYTES_MAX else Part(len(body), read_body)
    return request, Part.of(report) if report else None
