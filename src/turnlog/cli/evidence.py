"""A folder for an auditor, who opens it offline: a conversation to read, its exact bytes, the proof, and the verifier.

Everything in it is made from a proof that was checked: what that does not hold for is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from turnlog.audit.checkpoints import written_hash
from turnlog.audit.notes import Verifier
from turnlog.audit.proof_events import EventParts, Part, ShownEvent
from turnlog.audit.proofs import ProofParts, ProofReport, proof_pieces
from turnlog.cli.evidence_page import Shown, page, record_of
from turnlog.cli.failures import UsageError
from turnlog.cli.leftovers import naming, remove_leftovers, replace_folder, temporary_folder
from turnlog.cli.options import Common
from turnlog.cli.proving import left_open
from turnlog.cli.targets import behind_links
from turnlog.cli.text import one_line
from turnlog.errors import TurnlogError
from turnlog.events import REPLY, TOOLS, TURN
from turnlog.store import parse_url
from turnlog.store.files import sync_folder, write_file
from turnlog.store.sqlite.store import PAYLOAD_FOLDER_SUFFIX

PAGE, PROOF, CHECKPOINT = "index.html", "proof.tlog-proof", "checkpoint"
KEYS, VERIFIER, README = "keys.txt", "verify_turnlog.py", "README.txt"
FOLDERS = frozenset({"documents", "payloads", "replies", "requests", "tools", "turns"})
_NAMES = FOLDERS | {PAGE, PROOF, CHECKPOINT, KEYS, VERIFIER, README}
_FOLDER_MODE = 0o700

_README = """\
Evidence from a log of conversations with language models
=========================================================

Log            {origin}
Turn           {turn}
Checkpoint     {size:,} events, root {root}
Signed by      {signers}
{left_open}
What is here
------------

  {page}           the conversation to read, oldest first. No scripts, nothing from elsewhere
  turns/               the content of each turn, byte for byte; documents/ of those that are files
  requests/            what each model was sent, byte for byte; *.loss.txt: what a request could not carry
  replies/             what each model answered, event for event as it came; tools/: what tools it was offered
  {proof}     the proof of all of this
  {checkpoint}           the signed checkpoint of the log that the proof ends in
  {keys}             the keys that the checkpoint was checked with when this folder was made
  {verifier}    a program that checks the proof. It is one file, and needs nothing of turnlog

How to check it
---------------

1. Get the key of the log from whom you trust: not from this folder. Compare it with the lines in {keys}, or use
   your own copy in the place of it. Whoever made this folder could have put any key into it.
2. Look at {verifier}, or take a copy from elsewhere. It needs Python 3.9 or later, and the package cryptography:
       python -m pip install cryptography
3. In this folder:
       python {verifier} {proof} --key {keys} --compare .
   "it holds" says that the key has signed a checkpoint, that every event that is listed is in the log at that
   checkpoint, that the files of these six folders are the bytes that were recorded, and that no others are among them.
   What else is here is not covered by the proof, and is named: {page}, this text, the keys, the program.
4. {page} is made from the proof. Whoever had this folder could have changed it. Make it anew, with turnlog:
       turnlog evidence --proof {proof} --key YOUR_COPY_OF_THE_KEYS -o ANOTHER_FOLDER
5. If you have a checkpoint of this log from another time, or from a witness, ask for a proof of growth between the two
   (turnlog prove --consistency OLD NEW), and check it with the same program.

What it shows
-------------

Whoever holds the key has committed to these bytes, in this order, at the latest when the checkpoint was signed. None
of it was changed since: not the text, not the times, not what models were sent and answered.

What it does not show
---------------------

- What these events cite and the proof leaves out, such as turns that came before: whoever passes a proof on can cut
  any event out of it but the last turn. How many that are stands above, if any are, and on the page at each place.
- What was withheld or erased. It stands as such on the page; a proof does not tell one from the other.
- What is sealed and was not opened for you. Its encrypted bytes are here, and nobody reads them without the key.
- That there is nothing else: other turns that continue these, other conversations, other logs.
- That times are right. They are those of the clock of the machine that recorded. A witness's time is of its clock.
  Where the log took in turns of another log, their times are what that log said.
- That what was recorded is what happened. Whoever records could have recorded something else, and whoever holds the
  key could have signed two different logs. Checkpoints that others had at the time narrow that down.
- Why a model answered as it did, or that it would do so again.
"""


Pieces = Iterable[bytes | memoryview]
"""What a file has, in pieces, which are made when they are written."""


def evidence_files(proof: ProofParts, report: ProofReport, verifiers: Sequence[Verifier]) -> dict[str, Pieces]:
    """Return the files of an evidence folder, by their names in it. Each can be written once.

    Args:
        proof: the proof of a turn with its ancestry and its calls.
        report: what it proves.
        verifiers: the keys that it was checked with. They go into the folder.
    """
    shown = [
        Shown(event=one, files=_files(proved, one)) for proved, one in zip(proof.events, report.events, strict=True)
    ]
    found: dict[str, Pieces] = {
        PAGE: (text.encode(errors="backslashreplace") for text in page(report, shown)),
        PROOF: proof_pieces(proof),
        CHECKPOINT: (proof.note.encode(),),
        KEYS: (f"{verifier.vkey}\n".encode() for verifier in dict.fromkeys(verifiers)),
        VERIFIER: (verifier_source(),),
        README: (_readme(report).encode(),),
    }
    for one in shown:
        found.update({name: part.pieces() for name, part in one.files.values()})
    return found


def verifier_source() -> bytes:
    """Return the stand-alone verifier: from the package as it was installed, or from the checkout beside it.

    Raises:
        TurnlogError: it is at neither place.
    """
    shipped = files("turnlog.audit") / "verify_turnlog.py.txt"
    checkout = Path(__file__).resolve().parents[3] / "tools" / VERIFIER
    for place in (shipped, checkout):
        if place.is_file():
            return place.read_bytes()
    raise TurnlogError(f"{VERIFIER} is not there: install turnlog again")


def _files(proved: EventParts, event: ShownEvent) -> dict[str, tuple[str, Part]]:
    """Return what is shown of an event, by its part: the name of a file, as the verifier has it too, and the bytes."""
    named: dict[str, tuple[str, Part]] = {}
    if proved.request is not None:
        named["request"] = (f"requests/{event.id}.json", proved.request)
    if proved.loss is not None:
        named["loss"] = (f"requests/{event.id}.loss.txt", proved.loss)
    if proved.payload is not None:
        named["payload"] = (_payload_name(event), proved.payload)
    return named


def _payload_name(event: ShownEvent) -> str:
    if "sealed" in event.shown:
        return f"payloads/{event.id}.sealed"
    # No name ends in what a browser would run: whatever a payload says, it is shown as text or saved.
    if event.topic == TURN:
        is_document = record_of(event.event.header.meta).get("type") == "document"
        return f"documents/{event.id}.bin" if is_document else f"turns/{event.id}.json"
    if event.topic == REPLY:
        return f"replies/{event.id}.txt"
    return f"tools/{event.id}.json" if event.topic == TOOLS else f"payloads/{event.id}.bin"


def _readme(report: ProofReport) -> str:
    checkpoint = report.signed.checkpoint
    return _README.format(
        origin=one_line(checkpoint.origin),
        turn=report.events[0].id,
        size=checkpoint.size,
        root=written_hash(checkpoint.root),
        signers=", ".join(f"{one_line(one.name)} (key id {one.key_id.hex()})" for one in report.signed.signed_by),
        left_open="".join(f"Mind that      {line}\n" for line in left_open(report)),
        page=PAGE,
        proof=PROOF,
        checkpoint=CHECKPOINT,
        keys=KEYS,
        verifier=VERIFIER,
    )


# ---------------------------------------------------------------------------------------------------------- the folder


def check_folder(path: Path, common: Common, *, force: bool) -> Path:
    """Check that an evidence folder may be made at a path. Return the path behind all symbolic links.

    What a killed process left of such a folder is removed.

    Raises:
        UsageError: something is there, and `force` is false or it is no evidence folder; or it is where the store is.
    """
    real, _ = behind_links(path)
    if (store := parse_url(common.url)) is not None:
        place, _ = behind_links(store)
        payloads = place.with_name(place.name + PAYLOAD_FOLDER_SUFFIX)
        if real in (place, *place.parents) or payloads in (real, *real.parents):
            raise UsageError(f"the store is in {str(path)!r}, or it in the store: name another folder")
    if not real.parent.is_dir():
        raise UsageError(f"{str(path)!r} cannot be made: there is no folder {str(real.parent)!r}")
    remove_leftovers(real)
    if not real.exists():
        return real
    if not force:
        raise UsageError(f"{str(path)!r} is there already: name another folder, or replace it with --force")
    if not real.is_dir() or (found := {one.name for one in real.iterdir()}) - _NAMES or (found and PROOF not in found):
        raise UsageError(f"{str(path)!r} is no evidence folder, or has more in it: it is not replaced")
    return real


def write_folder(path: Path, content: Mapping[str, Pieces], common: Common, *, force: bool) -> None:
    """Write files into a new folder, which gets its name when all is on disk. It is its owner's alone.

    Args:
        path: where the folder is to be.
        content: its files by name, with at most one folder in front.
        common: the options that say which store is in use.
        force: whether an evidence folder that is there may be replaced.

    Raises:
        UsageError: as `check_folder` raises it.
        OSError: it cannot be written. What was there is as it was.
    """
    real = check_folder(path, common, force=force)
    with naming(path), temporary_folder(real) as temporary:
        new = temporary / "new"
        new.mkdir(_FOLDER_MODE)
        for name, pieces in content.items():
            file = new / name
            if not file.parent.is_dir():
                file.parent.mkdir(_FOLDER_MODE)
            write_file(file, pieces)
        for folder in (*(one for one in new.iterdir() if one.is_dir()), new):
            sync_folder(folder)
        check_folder(path, common, force=force)  # nobody made one in between
        replace_folder(new, real, temporary)
        sync_folder(real.parent)
