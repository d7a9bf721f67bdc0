"""Checkpoints and proofs of a log: what `TurnLog.audit` is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial

from msgspec import Struct

from turnlog.audit import arrivals
from turnlog.audit.anchors import ORIGIN
from turnlog.audit.checkpoints import (
    Checkpoint,
    open_checkpoint,
    parse_checkpoint,
    sign,
    with_signatures,
)
from turnlog.audit.heads import SignedHeads
from turnlog.audit.keeping import CheckpointKeeper
from turnlog.audit.notes import Signer, Verifier, parse_note, verify_note
from turnlog.audit.places import Place, check_places
from turnlog.audit.proofs import Proof, write_consistency
from turnlog.audit.proving import Withheld, grow_tree, nothing, prove_consistency, proving
from turnlog.audit.tree import PAGE_LEAVES, Nodes, Progress, gain, grow, rebuild_tree
from turnlog.errors import CorruptionError, MetaError, PlaceError, ProofError, TurnlogError
from turnlog.model.kinds import check_callable, check_count, check_each, check_kind, check_texts, check_type
from turnlog.projections.checkpoints import CHECKPOINTS, count_below, keep, kept
from turnlog.store import ReadTransaction, Store, WriteTransaction

_LINES = "the signature lines of a witness"


class KeptCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint that the store keeps.

    Attributes:
        size: how many events it covers.
        origin: the log.
        root: the root of the tree over them, 32 bytes.
        signatures: the names of the keys that it has signatures of. They were not checked.
        note: the signed note.
    """

    size: int
    origin: str
    root: bytes
    signatures: tuple[str, ...]
    note: str


class _Compared(Struct, frozen=True, kw_only=True):
    """The last checkpoint that a log was compared with. What was kept before it was compared too.

    Attributes:
        note: the signed note.
        checkpoint: what it says.
        below: how many notes of fewer events were kept then, of whatever keys.
    """

    note: str
    checkpoint: Checkpoint
    below: int


class Audit:
    """Signed checkpoints of a log, and proofs of what is in it. Safe to use from many threads."""

    def __init__(self, store: Store) -> None:
        """Take the store of the log."""
        self._store = store
        self._keepers: list[CheckpointKeeper] = []
        self._compared: dict[frozenset[Verifier], _Compared] = {}
        """By one's own keys."""

    def close(self) -> None:
        """End the keepers, each with a last checkpoint."""
        while self._keepers:
            self._keepers.pop().close()

    # Checkpoints

    def checkpoint(
        self,
        signer: Signer,
        *,
        origin: str | None = None,
        to: Sequence[Place] = (),
        known: Sequence[Verifier] = (),
        cosigned: Callable[[str], Iterable[str]] | None = None,
        heads: SignedHeads | None = None,
    ) -> KeptCheckpoint:
        """Sign a checkpoint of all events that there are at the call. On return it is in the store, and at all places.

        It costs as much as the events since the last one. Nothing is signed that is not consistent with the checkpoints
        that the store keeps and that one's own keys have signed; whoever writes the store could have written others.

        Args:
            signer: the key. By convention it has the name of the origin.
            origin: what identifies the log in its checkpoints: always the same. By default that of the last one, else
                `turnlog/` and the log's id.
            to: places outside the store that it goes to as well.
            known: keys that have signed for this log before, beside this one.
            cosigned: is given the signed note before it is kept, and returns signature lines of witnesses for it. What
                it raises is raised here, and nothing is kept.
            heads: what was signed last, kept beside the keys: an older copy of the log is not signed again.

        Raises:
            MetaError: there is nothing in the log yet, or one of the arguments is of another kind.
            CorruptionError: the log was changed since its last checkpoint.
            PlaceError: it is kept in the store, and could not be written to a place. The others have it.
        """
        own = _own(signer, known)
        to = _checked(origin, to, heads)
        if cosigned is not None:
            check_callable(cosigned, "cosigned")
        while True:
            with nullcontext() if heads is None else heads.signing(), self._store.read() as transaction:
                nodes = Nodes(transaction)
                if _is_near(transaction, nodes):
                    growth = nodes.grow(transaction.log_end())
                    head, runs = self._head(transaction, nodes, origin, own)
                    below = count_below(transaction, head.size)
                    if heads is not None:
                        heads.remember(head, nodes.root, partial(arrivals.may_be_of, runs=runs))
                    made = sign(head, signer)
                    break
            gain(self._store, CHECKPOINTS)
            grow(self._store)
        if cosigned is not None:
            made = with_signatures(made, check_texts(cosigned(made), "cosigned", _LINES))

        def plan(writing: WriteTransaction) -> None:
            growth.keep(writing)
            keep(writing, head.size, made)

        # The tree and the note of its head with one commit: what is signed is remembered outside, and a tree that was
        # not kept is built again.
        self._store.write(plan)
        self._compared[own] = _Compared(note=made, checkpoint=head, below=below)
        checkpoint = _kept(made)
        self.publish(checkpoint, to)
        return checkpoint

    def _head(
        self, transaction: ReadTransaction, nodes: Nodes, origin: str | None, own: frozenset[Verifier]
    ) -> tuple[Checkpoint, list[arrivals.Run]]:
        """Return the head of the log, once it is consistent with what was signed before, and how its events came.

        The last checkpoint is compared each time, the others once in a process: each costs a signature and a root.
        """
        size = transaction.log_end()
        runs = nodes.arrivals(size)
        believed = self._not_compared(transaction, origin, own)
        last = max(believed, key=lambda one: one.size, default=None)
        origin = origin or (last.origin if last is not None else f"{ORIGIN}{_log_id(transaction)}")
        for earlier in believed:
            if earlier.origin != origin:
                continue
            fits = earlier.size <= size and nodes.root(earlier.size) == earlier.root and arrivals.fits(earlier, runs)
            if not fits:
                raise CorruptionError(
                    f"the log, or its kept tree, is not what it was at its checkpoint of {earlier.size} events, and no "
                    "other is signed: run `turnlog verify`"
                )
        return Checkpoint(origin, size, nodes.root(size), arrivals.lines(runs, size)), runs

    def _not_compared(
        self, transaction: ReadTransaction, origin: str | None, own: frozenset[Verifier]
    ) -> list[Checkpoint]:
        """Return the kept checkpoints that one's own keys have signed, from the last that was compared on.

        All of them, where notes were kept or taken away below that, or another origin is asked for.
        """
        before = self._compared.get(own)
        if before is not None and count_below(transaction, before.checkpoint.size) == before.below:
            notes = [str(note) for _, note in kept(transaction, size_min=before.checkpoint.size)]
            if before.note in notes:
                notes.remove(before.note)
                found = [before.checkpoint, *_believed(notes, own)]
                last = max(found, key=lambda one: one.size)
                if (origin or last.origin) == before.checkpoint.origin:
                    return found
        return _believed([str(note) for _, note in kept(transaction)], own)

    def keep_checkpoints(  # noqa: PLR0913 - what `checkpoint` takes, and when
        self,
        signer: Signer,
        *,
        every_events: int | None = None,
        every_s: float | None = None,
        origin: str | None = None,
        to: Sequence[Place] = (),
        known: Sequence[Verifier] = (),
        heads: SignedHeads | None = None,
        at_end: bool = True,
        on_error: Callable[[TurnlogError], None] | None = None,
    ) -> CheckpointKeeper:
        """Make checkpoints by itself from here on, in a thread beside the appends, until the log is closed.

        Args:
            signer, origin, to, known, heads: as for `checkpoint`.
            every_events: make one when so many events are not covered.
            every_s: make one when an event has not been covered for so many seconds.
            at_end: make a last one when the log is closed and any event is not covered; else only if it is due.
            on_error: told of each that fails; without it they are logged to `turnlog.checkpoints`.

        Raises:
            MetaError: one of the arguments is of another kind, or how often is not said.
        """
        own = _own(signer, known)
        to = _checked(origin, to, heads)
        if on_error is not None:
            check_callable(on_error, "on_error")

        def make() -> int:
            return self.checkpoint(signer, origin=origin, to=to, known=known, heads=heads).size

        with self._store.read() as transaction:
            notes = [str(note) for _, note in kept(transaction)]
        # The smallest stands first: what is below the last is not opened.
        covered = next((one.size for note in reversed(notes) for one in _believed([note], own)), 0)
        keeper = CheckpointKeeper(
            self._store,
            make,
            covered,
            every_events=every_events,
            every_s=every_s,
            at_end=at_end,
            on_error=on_error,
        )
        self._keepers.append(keeper)
        return keeper

    def checkpoints(self) -> list[KeptCheckpoint]:
        """Return the checkpoints that the store keeps, the smallest first.

        Raises:
            CorruptionError: one of them cannot be read.
        """
        with self._store.read() as transaction:
            notes = [str(note) for _, note in kept(transaction)]
        try:
            return list(map(_kept, notes))
        except ProofError as error:
            raise CorruptionError(
                f"a kept checkpoint is damaged ({error}): `turnlog verify --repair-projections` takes it away"
            ) from error

    def cosigned(
        self, checkpoint: KeptCheckpoint, lines: Iterable[str], witnesses: Iterable[Verifier]
    ) -> KeptCheckpoint:
        """Add cosignatures of witnesses to a checkpoint that the store keeps, once they are checked.

        Args:
            checkpoint: the checkpoint.
            lines: signature lines, as a witness answers with.
            witnesses: the keys of witnesses to believe. Lines of other keys are left out.

        Raises:
            ProofError: none of the lines is of one of these, or one of them is not a signature of the checkpoint.
            MetaError: one of the arguments is of another kind.
        """
        check_kind(checkpoint, KeptCheckpoint, "checkpoint")
        lines = check_texts(lines, "lines", _LINES)
        believed = check_each(witnesses, Verifier, "witnesses", "verifiers")
        verified: list[str] = []
        text = parse_note(checkpoint.note).text
        for line in lines:
            signature = line.removesuffix("\n")
            note = parse_note(f"{text}\n{signature}\n")
            if any((one.name, one.key_id) == (note.signatures[0].name, note.signatures[0].key_id) for one in believed):
                verify_note(note, believed)
                verified.append(signature)
        if not verified:
            raise ProofError("none of the cosignatures is of a witness that is known here")
        more = with_signatures(checkpoint.note, verified)
        self._store.write(lambda writing: keep(writing, checkpoint.size, more, instead_of=checkpoint.note))
        return _kept(more)

    def consistency_proof(self, size1: int, size2: int) -> list[bytes]:
        """Return the proof that the tree over the first `size1` events has grown into that over the first `size2`.

        Raises:
            ProofError: the log has no so many, or the first is larger.
            MetaError: one of them is no number of events.
        """
        check_count(size1, "size1")
        check_count(size2, "size2")
        grow_tree(self._store)
        with self._store.read() as transaction:
            if size2 > transaction.log_end():
                raise ProofError(f"the log has {transaction.log_end()} events, and not {size2}")
            return Nodes(transaction).consistency_proof(size1, size2)

    def publish(self, checkpoint: KeptCheckpoint, places: Sequence[Place]) -> None:
        """Write a checkpoint to places outside the store, all that can be reached.

        Raises:
            PlaceError: it could not be written to one of them.
            MetaError: one of the arguments is of another kind.
        """
        check_kind(checkpoint, KeptCheckpoint, "checkpoint")
        failures: list[str] = []
        for place in check_places(places, "places"):
            try:
                place.write(checkpoint.size, checkpoint.note)
            except PlaceError as error:
                failures.append(str(error))
        if failures:
            raise PlaceError(
                f"the checkpoint of {checkpoint.size} events is kept, but not everywhere: {'; '.join(failures)}"
            )

    # Proofs

    def prove(
        self,
        event: str,
        *,
        note: str | None = None,
        thread: bool = False,
        calls: bool = False,
        withheld: Withheld = nothing,
    ) -> Proof:
        """Prove that an event is in the log, and what it says.

        Args:
            event: a turn by a headish, or any event by its id.
            note: the signed checkpoint to prove it with; by default the last one that the store keeps.
            thread: show all turns of its ancestry too.
            calls: show the calls that the turns came of too, with request, loss report, tools and reply.
            withheld: tells of an event what is not to be shown.

        Raises:
            UnknownTurnError: there is no such turn or event.
            ProofError: no checkpoint covers it, or the checkpoint is not of the log as it is.
            CorruptionError: what is to be shown is damaged.
            MetaError: one of the arguments is of another kind.
        """
        if note is not None:
            check_type(note, str, "note")
        check_callable(withheld, "withheld")
        with proving(self._store, event, note=note, thread=thread, calls=calls, withheld=withheld) as parts:
            return parts.whole()

    def prove_consistency(self, old_note: str, new_note: str) -> str:
        """Prove that the log has only grown from one signed checkpoint to another. Return the text of the proof file.

        Raises:
            ProofError: it has not: one of them was not signed for the log as it is.
            MetaError: one of them is no text.
        """
        check_type(old_note, str, "old_note")
        check_type(new_note, str, "new_note")
        grow_tree(self._store)
        with self._store.read() as transaction:
            return write_consistency(old_note, new_note, prove_consistency(transaction, old_note, new_note))

    def rebuild_tree(self, *, progress: Progress | None = None) -> int:
        """Build the kept tree anew from the leaves. Return how many leaves it has."""
        return rebuild_tree(self._store, progress=progress)


def _own(signer: Signer, known: Iterable[Verifier]) -> frozenset[Verifier]:
    """Return one's own keys.

    Raises:
        MetaError: one of them is none.
    """
    check_kind(signer, Signer, "signer")
    return frozenset((signer.verifier, *check_each(known, Verifier, "known", "verifiers")))


def _checked(origin: str | None, to: Iterable[Place], heads: SignedHeads | None) -> tuple[Place, ...]:
    """Check what else a checkpoint is made with, and return its places.

    Raises:
        MetaError: one of them is of another kind.
    """
    if origin is not None:
        check_type(origin, str, "origin")
    if heads is not None:
        check_kind(heads, SignedHeads, "heads")
    return check_places(to, "to")


def _is_near(transaction: ReadTransaction, nodes: Nodes) -> bool:
    """Tell whether the tables are there, and the kept tree lacks no more than one snapshot should be held for.

    Raises:
        MetaError: there is nothing in the log yet.
    """
    end = transaction.log_end()
    if end == 0:
        raise MetaError("there is nothing in the log yet that a checkpoint could cover", field="checkpoint")
    return nodes.kept > 0 and end - nodes.kept <= PAGE_LEAVES and transaction.has(CHECKPOINTS)


def _log_id(transaction: ReadTransaction) -> str:
    genesis = transaction.genesis()
    if genesis is None:
        raise CorruptionError("the first event of the log is missing: run `turnlog verify`")
    return genesis.header.id


def _believed(notes: Iterable[str], own: Iterable[Verifier]) -> list[Checkpoint]:
    """Return the checkpoints that keys have signed. Others are for `verify` to tell of."""
    found: list[Checkpoint] = []
    for note in notes:
        with suppress(ProofError):
            found.append(open_checkpoint(note, own).checkpoint)
    return found


def _kept(note: str) -> KeptCheckpoint:
    parsed = parse_note(note)
    checkpoint = parse_checkpoint(parsed.text)
    return KeptCheckpoint(
        size=checkpoint.size,
        origin=checkpoint.origin,
        root=checkpoint.root,
        signatures=tuple(dict.fromkeys(signature.name for signature in parsed.signatures)),
        note=note,
    )
