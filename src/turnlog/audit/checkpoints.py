"""Checkpoints: signed heads of a log, which say how many leaves its tree has, and with which root.

Sources: C2SP tlog-checkpoint v1.0.0; C2SP tlog-cosignature v1.0.0, Ed25519, for the signatures of witnesses.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable

from msgspec import Struct

from turnlog.audit.merkle import HASH_BYTES
from turnlog.audit.notes import (
    COSIGNATURE,
    DASH,
    SIGNATURE,
    Signer,
    Verifier,
    check_text,
    cosignature_time_s,
    parse_note,
    parse_signature,
    verified_signatures,
)
from turnlog.errors import ProofError

__all__ = [
    "SIZE_MAX",
    "Checkpoint",
    "SignedCheckpoint",
    "cosign",
    "open_checkpoint",
    "parse_checkpoint",
    "parse_hash",
    "parse_size",
    "sign",
    "with_signatures",
    "written_hash",
    "written_note",
]

SIZE_MAX = 2**63 - 1
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")


class Checkpoint(Struct, frozen=True):
    """A head of a log. By itself it is what somebody says: `open_checkpoint` tells who has signed it.

    Attributes:
        origin: what identifies the log: one line of text, not empty.
        size: how many leaves its tree has, from 0.
        root: the root of the tree, 32 bytes.
        extensions: further lines, none of them empty.

    Raises:
        ProofError: they are not.
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that it can be written, and read again."""
        if not 0 <= self.size <= SIZE_MAX:
            raise ProofError(f"a checkpoint cannot be of {self.size} leaves")
        if len(self.root) != HASH_BYTES:
            raise ProofError("the root of a checkpoint is not 32 bytes")
        for line in (self.origin, *self.extensions):
            if not line or "\n" in line:
                raise ProofError("the origin and each extension of a checkpoint is one line that is not empty")
        check_text(self.text)

    @property
    def text(self) -> str:
        """The text that is signed, with the line feed at its end."""
        return "\n".join((self.origin, str(self.size), written_hash(self.root), *self.extensions, ""))


class SignedCheckpoint(Struct, frozen=True):
    """A checkpoint whose signatures were checked.

    Attributes:
        checkpoint: the checkpoint.
        note_text: the signed note that it was read from.
        signed_by: the keys of the log that have signed it; at least one.
        cosigned_by: the witnesses that have: name, and time in whole seconds since 1970 UTC. Each key once, with its
            latest time.
    """

    checkpoint: Checkpoint
    note_text: str
    signed_by: list[Verifier]
    cosigned_by: list[tuple[str, int]]


def parse_checkpoint(text: str) -> Checkpoint:
    """Read the text of a checkpoint, which is a note without its signatures.

    Raises:
        ProofError: it is none.
    """
    check_text(text)
    lines = text[:-1].split("\n")
    if len(lines) < 3:
        raise ProofError("a checkpoint has three lines or more: origin, size, root")
    origin, size, root, *extensions = lines
    return Checkpoint(origin=origin, size=parse_size(size), root=parse_hash(root), extensions=tuple(extensions))


def sign(checkpoint: Checkpoint, signer: Signer) -> str:
    """Return a checkpoint as a note that is signed with a key of the log.

    What was signed cannot be taken back: a log signs no checkpoint that is not consistent with what it signed before.

    Raises:
        ProofError: a line of it would pass for a signature.
    """
    for line in (checkpoint.origin, *checkpoint.extensions):
        if line.startswith(DASH):
            raise ProofError(f"{line!r} cannot be a line of a checkpoint: signatures begin with {DASH!r}")
    return written_note(checkpoint.text, [signer.sign(checkpoint.text)])


def cosign(checkpoint_text: str, signer: Signer, time_s: int) -> str:
    """Sign the text of a checkpoint as its witness. Return the signature line, without a line feed.

    Args:
        checkpoint_text: the text, without signatures.
        signer: the key of the witness. One key is of one witness only.
        time_s: the time, in whole seconds since 1970 UTC, from 1.

    Raises:
        ProofError: the text is not that of a checkpoint, or the time is none.
    """
    parse_checkpoint(checkpoint_text)
    return signer.cosign(checkpoint_text, time_s)


def open_checkpoint(note_text: str, verifiers: Iterable[Verifier]) -> SignedCheckpoint:
    """Read a signed checkpoint, and check its signatures. Those of other keys are ignored.

    It does not say whether the origin is the one that you expect.

    Args:
        note_text: the signed note.
        verifiers: the keys to believe, of the log (kind `SIGNATURE`) and of witnesses (kind `COSIGNATURE`).

    Raises:
        ProofError: it is no signed checkpoint, no key of the log has signed it, or a signature that is said to be of
            one of the keys is not.
    """
    note = parse_note(note_text)
    checkpoint = parse_checkpoint(note.text)
    found = verified_signatures(note, verifiers)
    signed_by = [verifier for verifier, _ in found if verifier.kind == SIGNATURE]
    if not signed_by:
        raise ProofError("witnesses have signed the checkpoint, and no key of the log that is known here")
    times: dict[Verifier, int] = {}
    for verifier, signature in found:
        if verifier.kind == COSIGNATURE:
            times[verifier] = max(cosignature_time_s(signature.value), times.get(verifier, 0))
    return SignedCheckpoint(
        checkpoint=checkpoint,
        note_text=note_text,
        signed_by=list(dict.fromkeys(signed_by)),
        cosigned_by=[(verifier.name, time_s) for verifier, time_s in times.items()],
    )


def with_signatures(note_text: str, lines: Iterable[str]) -> str:
    """Return a signed note with further signatures below those that it has. None is added twice, and none is checked.

    Args:
        note_text: the signed note.
        lines: signature lines, with or without a line feed at the end.

    Raises:
        ProofError: the note or a line is malformed, or it would have more signatures than a note can have.
    """
    note = parse_note(note_text)
    signatures = dict.fromkeys((*note.signatures, *(parse_signature(line.removesuffix("\n")) for line in lines)))
    written = written_note(note.text, [signature.line for signature in signatures])
    parse_note(written)
    return written


def written_note(text: str, lines: Iterable[str]) -> str:
    """Return a text and signature lines, without line feeds, as a signed note."""
    return "\n".join((text, *lines, ""))


def written_hash(digest: bytes) -> str:
    """Return a hash as checkpoints and proofs write it, in base64."""
    return b2a_base64(digest, newline=False).decode("ascii")


def parse_hash(text: str) -> bytes:
    """Read a hash of 32 bytes from its base64.

    Raises:
        ProofError: it is none, or not written as it should be.
    """
    try:
        digest = b64decode(text, validate=True)
    except ValueError as error:
        raise ProofError("a hash is not base64") from error
    if len(digest) != HASH_BYTES or written_hash(digest) != text:
        raise ProofError("a hash is not the base64 of 32 bytes")
    return digest


def parse_size(text: str) -> int:
    """Read the size of a tree: decimal digits without zeros in front, at most 2^63 - 1.

    Raises:
        ProofError: it is none.
    """
    if not _SIZE.fullmatch(text) or int(text) > SIZE_MAX:
        raise ProofError("the size of a tree is not a decimal number as it should be written")
    return int(text)
