"""Checkpoints against the log: the root over the events as they are now, and the one that was signed.

What stands in the store can all be written anew, with hashes that fit. What cannot be is a checkpoint that somebody
else has: its root commits to every event before it, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from turnlog.audit.arrivals import Arrivals, Run, first_difference, fits, has_guests_of
from turnlog.audit.checkpoints import Checkpoint, open_checkpoint, parse_checkpoint
from turnlog.audit.merkle import HASH_BYTES, Frontier
from turnlog.audit.notes import Verifier, parse_note
from turnlog.audit.proofs import split_notes
from turnlog.audit.report import Findings, shown
from turnlog.errors import CorruptionError, ProofError, os_reason
from turnlog.ids import is_id
from turnlog.projections.checkpoints import drop, kept
from turnlog.projections.tree import MEND, TREE, kept_runs, read_nodes, tree_flaw, tree_size
from turnlog.store import ReadTransaction, SQLRow, Store, WriteTransaction
from turnlog.store.files import open_file

ORIGIN = "turnlog/"
"""What the origin of a log begins with that was given no other: its id follows."""

_NO_LEAF = bytes(HASH_BYTES)
_FILE_BYTES_MAX = 256 * 1024 * 1024


Leaf = tuple[int, bytes | None, int]
"""An event as a leaf: its global position, its leaf hash (None if it cannot be told), and how it came."""


class Anchor(Struct, frozen=True, kw_only=True):
    """A checkpoint whose signature was checked, or that stands in the store.

    Attributes:
        checkpoint: the checkpoint.
        place: where it was found, for people.
        outside: whether it comes from outside the store, with a signature of a key that the caller trusts.
    """

    checkpoint: Checkpoint
    place: str
    outside: bool = True

    @property
    def size(self) -> int:
        """How many events it is over."""
        return self.checkpoint.size


def read_anchors(
    paths: Sequence[Path], verifiers: Sequence[Verifier], unusable: Callable[[str], None] | None = None
) -> list[Anchor]:
    """Read signed checkpoints from files, or from folders of files. A file may have any number of them.

    Args:
        paths: the files and folders.
        verifiers: the keys to believe.
        unusable: is told, in a line, of each checkpoint that cannot be read or that none of the keys has signed, and of
            each file and each folder without any; the others are returned. So nobody keeps a log from being compared
            with anything by adding a note. Without it the first of these is raised.

    Raises:
        ProofError: a file or folder has no checkpoint, or one that none of the keys has signed, and nobody is told.
        OSError: one of the paths cannot be read.
    """

    def refuse(error: ProofError) -> None:
        if unusable is None:
            raise error
        unusable(str(error))

    anchors: list[Anchor] = []
    for path in paths:
        files = _files_of(path)
        if not files:
            refuse(ProofError(f"{path}: there is no checkpoint in it"))
        for file in files:
            try:
                notes = split_notes(read_note_text(file))
            except ProofError as error:
                refuse(error)
                continue
            except OSError as error:
                if file == path or unusable is None:
                    raise
                unusable(f"{file}: it cannot be read ({os_reason(error)})")
                continue
            anchors += _opened(file, notes, verifiers, refuse)
    return anchors


def _files_of(path: Path) -> list[Path]:
    """Return what there is in a folder, also what is no file that can be read; or what is no folder."""
    return sorted(each for each in path.iterdir() if not each.is_dir()) if path.is_dir() else [path]


def _opened(
    file: Path, notes: Sequence[str], verifiers: Sequence[Verifier], refuse: Callable[[ProofError], None]
) -> Iterator[Anchor]:
    """Yield the checkpoints of a file that one of the keys has signed; `refuse` is told of the others."""
    for number, note in enumerate(notes, 1):
        place = str(file) if len(notes) == 1 else f"{file} ({number})"
        try:
            checkpoint = open_checkpoint(note, verifiers).checkpoint
        except ProofError as error:
            refuse(ProofError(f"{place}: {error}"))
        else:
            yield Anchor(checkpoint=checkpoint, place=place)
    if not notes:
        refuse(ProofError(f"{file}: there is no checkpoint in it"))


def read_note_text(path: Path) -> str:
    """Read a text file of notes or keys.

    Raises:
        ProofError: it is no text, or larger than any of these.
        OSError: it cannot be read.
    """
    # What a shell gives for `<(…)` is a pipe under /dev/fd, which has no other name and a writer.
    with path.open("rb") if path.is_relative_to("/dev") else open_file(path.resolve()) as file:
        content = file.read(_FILE_BYTES_MAX + 1)
    if len(content) > _FILE_BYTES_MAX:
        raise ProofError(f"{path}: it has more than {_FILE_BYTES_MAX:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ProofError(f"{path}: it is not UTF-8") from error


def stored_anchors(transaction: ReadTransaction, findings: Findings) -> Iterator[Anchor]:
    """Yield the checkpoints that the store keeps. Their signatures prove nothing here: who writes the store wrote them.

    What cannot be read is noted as damage.
    """
    findings.at(None)
    for size, note in kept(transaction):
        try:
            checkpoint = _read(note)
        except ProofError as error:
            findings.add(f"a checkpoint that the store keeps, of {shown(size)} events, cannot be read: {error}")
            continue
        if checkpoint.size != size:
            findings.add(f"a checkpoint of {checkpoint.size} events is kept as one of {shown(size)}")
        yield Anchor(checkpoint=checkpoint, place=f"the store's checkpoint of {checkpoint.size}", outside=False)


def drop_damaged(store: Store) -> bool:
    """Take away what the store keeps as checkpoints and is none, and tell whether there was any: it proves nothing."""

    def damaged(transaction: ReadTransaction) -> Iterator[SQLRow]:
        for row in kept(transaction):
            try:
                _read(row[1])
            except ProofError:
                yield row

    def plan(transaction: WriteTransaction) -> None:
        for row in list(damaged(transaction)):
            drop(transaction, row)

    with store.read() as transaction:
        found = next(damaged(transaction), None) is not None
    if found:
        store.write(plan)
    return found


def _read(note: object) -> Checkpoint:
    return parse_checkpoint(parse_note(str(note)).text)


def is_of_another(origin: str, log_id: str | None) -> bool:
    """Tell whether an origin names another log: turnlog's own form has the id of the log."""
    return origin.startswith(ORIGIN) and is_id(origin.removeprefix(ORIGIN)) and origin != f"{ORIGIN}{log_id}"


class Roots:
    """The tree over the events as they are read, compared with the kept tree and with checkpoints."""

    def __init__(self, anchors: Sequence[Anchor], findings: Findings, log_id: str | None = None) -> None:
        """Take the checkpoints to compare with, and the id of the log."""
        self._log_id = log_id
        self._anchors = sorted(anchors, key=lambda anchor: (anchor.size, anchor.place))
        self._sizes = sorted({anchor.size for anchor in anchors}, reverse=True)
        self._findings = findings
        self._frontier = Frontier()
        self._arrivals = Arrivals()
        self._kept_runs: list[Run] = []
        """The runs of the kept tree, where they are others than those of the events."""
        self._roots: dict[int, bytes] = {}
        self._gap: int | None = None
        """The first global position that is missing: no root is known behind it."""
        self.differs = False
        """Whether the kept tree is another one."""
        self.anchored = 0 if any(anchor.outside for anchor in anchors) else None
        """How many events are covered by a checkpoint from outside that fits; None where none was given."""
        self._note_size()

    def add(self, transaction: ReadTransaction, leaves: Iterable[Leaf]) -> None:
        """Take in events in their order."""
        page: list[bytes] = []
        for position, leaf, arrival in leaves:
            if self._gap is not None:
                return
            expected = self._frontier.size + len(page) + 1
            if position < expected:
                continue  # it stands where another one does, which is told
            if position > expected:
                self._extend(transaction, page)
                self._gap = expected
                return
            page.append(leaf or _NO_LEAF)
            self._arrivals.add(position, arrival)
        self._extend(transaction, page)

    def report(self) -> None:
        """Note checkpoints that do not fit as damage."""
        self._findings.at(None)
        fits_to = 0
        for anchor in self._anchors:
            origin = anchor.checkpoint.origin
            if is_of_another(origin, self._log_id):
                self._findings.add(f"{anchor.place}: a checkpoint of another log, {shown(origin)}")
            elif anchor.size > self._frontier.size:
                what = f"is missing from position {self._gap} on" if self._gap else f"ends at {self._frontier.size}"
                self._findings.add(
                    f"{anchor.place}: a checkpoint of {anchor.size} events, and the log {what}: "
                    "its end was cut off, or an older copy was put in its place"
                )
            elif self._roots[anchor.size] != anchor.checkpoint.root:
                where = (
                    f"an event from global position {fits_to + 1} to {anchor.size} was changed, removed, inserted or "
                    "moved since"
                    if anchor.size > fits_to
                    else "it contradicts another checkpoint of as many events, which fits"
                )
                self._findings.add(f"{anchor.place}: a checkpoint of {anchor.size} events with another root: {where}")
            elif not fits(anchor.checkpoint, self._arrivals.runs):
                what = (
                    "what is said to be recorded here, or restored, was changed since, or the checkpoint was signed in "
                    "a copy that was restored from an export"
                    if has_guests_of(anchor.checkpoint, self._arrivals.runs)
                    else "what is said to be recorded here, restored, or of another log, was changed since"
                )
                self._findings.add(
                    f"{anchor.place}: a checkpoint of {anchor.size} events that came in another way: {what}"
                    f"{self._first_changed(anchor)}"
                )
            else:
                fits_to = max(fits_to, anchor.size)
                if anchor.outside:
                    self.anchored = anchor.size

    def check_kept(self, transaction: ReadTransaction) -> None:
        """Look at the kept tree as a whole, and compare its runs of arrivals with those of the events, at the end."""
        if self.differs:
            return
        if (flaw := tree_flaw(transaction)) is not None:
            self._differ(flaw)
            return
        if self._gap is not None or not transaction.has(TREE):
            return
        size = tree_size(transaction)
        runs = [run for run in self._arrivals.runs if run[0] <= size]
        kept = kept_runs(transaction)
        if kept is None:
            self._differ(f"the arrivals of the kept tree are damaged: {MEND}")
        elif (first := first_difference(runs, kept)) is not None:
            self._kept_runs = kept
            self._differ(
                f"the kept tree has other arrivals than the events, from global position {first} on: "
                "that event was changed since, or the tree"
            )

    def _first_changed(self, anchor: Anchor) -> str:
        """Tell which event came in another way, where the kept tree still has what the checkpoint says."""
        first = first_difference(self._arrivals.runs, self._kept_runs) if self._kept_runs else None
        if first is None or first > anchor.size or not fits(anchor.checkpoint, self._kept_runs):
            return ""
        return f", first of the event at global position {first}"

    def _extend(self, transaction: ReadTransaction, leaves: list[bytes]) -> None:
        while leaves:
            count = min(len(leaves), self._sizes[-1] - self._frontier.size) if self._sizes else len(leaves)
            grown = self._frontier.extend(leaves[:count])
            leaves = leaves[count:]
            self._note_size()
            if not self.differs:
                self._compare(transaction, grown)

    def _note_size(self) -> None:
        while self._sizes and self._sizes[-1] <= self._frontier.size:
            self._roots[self._sizes.pop()] = self._frontier.root

    def _compare(self, transaction: ReadTransaction, grown: list[tuple[int, int, list[bytes]]]) -> None:
        """Compare nodes with the kept ones. The first that differs tells where, as nearly as it can be told."""
        try:
            kept = tree_size(transaction)
        except CorruptionError as error:
            self._differ(str(error))
            return
        for level, first, nodes in grown:
            hashes = nodes[: max(0, (kept >> level) - first)]
            if not hashes:
                return
            found = read_nodes(transaction, level, first, len(hashes))
            if found == b"".join(hashes):
                continue
            at = next(at for at, expected in enumerate(hashes) if found[at * HASH_BYTES :][:HASH_BYTES] != expected)
            if found[at * HASH_BYTES :][:HASH_BYTES] == _NO_LEAF:
                self._differ(f"node {first + at} of level {level} of the kept tree is missing: {MEND}")
                return
            start = (first + at << level) + 1
            self._differ(
                f"the kept tree differs from the events at global positions {start} to {start + (1 << level) - 1}: "
                "one of them was changed since it was built, or the tree was"
            )
            return

    def _differ(self, what: str) -> None:
        self._findings.at(None)
        self._findings.add(what)
        self.differs = True
