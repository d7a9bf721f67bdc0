"""Signed notes: a text, and the Ed25519 signatures of named keys below it.

Sources: C2SP signed-note v1.0.0; C2SP tlog-cosignature v1.0.0 for signatures of witnesses, which say at what time they
were made. The written forms of keys are those of Go's package golang.org/x/mod/sumdb/note.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from turnlog.audit.report import shown
from turnlog.errors import ProofError, SigningKeyError
from turnlog.model.kinds import check_kind

__all__ = [
    "COSIGNATURE",
    "NOTE_BYTES_MAX",
    "SIGNATURE",
    "SIGNATURES_MAX",
    "Note",
    "NoteSignature",
    "Signer",
    "Verifier",
    "check_name",
    "check_text",
    "cosignature_time_s",
    "cosigned_message",
    "parse_note",
    "parse_signature",
    "verified_signatures",
    "verify_note",
]

SIGNATURE = 0x01
"""The kind of a key whose Ed25519 signature is over the text of a note."""
COSIGNATURE = 0x04
"""The kind of a witness's key: its Ed25519 signature is over a time and the text of a checkpoint."""

NOTE_BYTES_MAX = 1_000_000
SIGNATURES_MAX = 100

_KEY_BYTES = 32
_KEY_ID_BYTES = 4
_TIME_BYTES = 8
_TIME_S_MAX = 2**63 - 1
_SIGNATURE_BYTES = 64
DASH = "\N{EM DASH} "
"""What a signature line begins with."""
_SECRET_PREFIX = "PRIVATE+KEY+"
_KEY_ID = re.compile(r"[0-9a-f]{8}")
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f]")
_NOT_IN_NAMES = re.compile(r"[\s+\x00-\x1f\ud800-\udfff]")


class Verifier(Struct, frozen=True):
    """A public key that signatures are checked with.

    Attributes:
        name: name of the key, without blanks and `+`; best a URL without a scheme, such as `example.com/log`.
        key_id: the first 4 bytes of SHA-256(name ‖ 0x0A ‖ kind ‖ public key).
        kind: `SIGNATURE` or `COSIGNATURE`.
        public_key: an Ed25519 public key, 32 bytes (RFC 8032 §5.1.5).

    Raises:
        SigningKeyError: they are not, or do not fit together.
    """

    name: str
    key_id: bytes
    kind: int
    public_key: bytes

    def __post_init__(self) -> None:
        """Check that all fits together."""
        check_name(self.name)
        if self.kind not in (SIGNATURE, COSIGNATURE):
            raise SigningKeyError(
                f"the key {shown(self.name)} is of kind {self.kind}, and only kinds 1 and 4 are known"
            )
        if len(self.public_key) != _KEY_BYTES:
            raise SigningKeyError(f"the public key of {shown(self.name)} is not 32 bytes")
        if self.key_id != _key_id(self.name, self.kind, self.public_key):
            raise SigningKeyError(f"the key id of {shown(self.name)} is not that of its name and public key")

    @classmethod
    def of(cls, name: str, kind: int, public_key: bytes) -> Self:
        """Return the verifier for a public key.

        Raises:
            SigningKeyError: the name is none, the kind is not known, or the key is not 32 bytes.
        """
        check_name(name)
        return cls(name=name, key_id=_key_id(name, kind & 0xFF, public_key), kind=kind, public_key=public_key)

    @classmethod
    def parse(cls, vkey_line: str) -> Self:
        """Read a verifier key, `NAME+KEY ID+BASE64`, as `vkey` gives it. One line feed may follow it.

        Raises:
            SigningKeyError: it is malformed, of another kind, or its key id does not fit.
            MetaError: it is no text.
        """
        check_kind(vkey_line, str, "vkey_line")
        name, key_id, encoded = _parts(vkey_line.removesuffix("\n"), "a verifier key", "NAME+KEYID+BASE64")
        key = _from_base64(encoded)
        if key is None or not key:
            raise SigningKeyError(f"the verifier key {shown(name)} is malformed: its last part is not base64")
        return cls(name=name, key_id=key_id, kind=key[0], public_key=key[1:])

    @property
    def vkey(self) -> str:
        """The verifier key as text, for others to check signatures with."""
        return f"{self.name}+{self.key_id.hex()}+{_to_base64(bytes([self.kind]) + self.public_key)}"

    def check(self, text: str, value: bytes) -> None:
        """Check a signature of this key.

        Args:
            text: the text of the note.
            value: the signature without its key id; of a witness, the time and the signature.

        Raises:
            ProofError: it is not of this key and text.
        """
        if self.kind == COSIGNATURE:
            message, value = cosigned_message(text, cosignature_time_s(value)), value[_TIME_BYTES:]
        else:
            message = text.encode()
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(value, message)
        except InvalidSignature as error:
            raise ProofError(f"the signature of {shown(self.name)} is not of this text and its key") from error


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A private key with a name. It shows its name, and never its key."""

    name: str
    private_key: Ed25519PrivateKey = field(repr=False)

    def __post_init__(self) -> None:
        """Check the name."""
        check_name(self.name)

    @classmethod
    def generate(cls, name: str) -> Self:
        """Make a new key.

        Raises:
            SigningKeyError: the name is none.
        """
        return cls(name=name, private_key=Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, skey_line: str) -> Self:
        """Read a private key, as `skey` gives it. One line feed may follow it.

        Raises:
            SigningKeyError: it is malformed, or its key id does not fit. No part of it is repeated.
            MetaError: it is no text.
        """
        check_kind(skey_line, str, "skey_line")
        line = skey_line.removesuffix("\n")
        if not line.startswith(_SECRET_PREFIX):
            raise SigningKeyError(f"a private key does not begin with {_SECRET_PREFIX}")
        name, key_id, encoded = _parts(line.removeprefix(_SECRET_PREFIX), "a private key", "NAME+KEYID+BASE64")
        key = _from_base64(encoded)
        if key is None or len(key) != 1 + _KEY_BYTES or key[0] != SIGNATURE:
            raise SigningKeyError(f"the private key {shown(name)} is malformed: it is no Ed25519 key of 32 bytes")
        signer = cls(name=name, private_key=Ed25519PrivateKey.from_private_bytes(key[1:]))
        if signer.verifier.key_id != key_id:
            raise SigningKeyError(f"the key id of the private key {shown(name)} is not that of its name and key")
        return signer

    @property
    def skey(self) -> str:
        """The private key as one line of text. Keep it: whoever has it signs as you."""
        seed = self.private_key.private_bytes_raw()
        return f"{_SECRET_PREFIX}{self.name}+{self.verifier.key_id.hex()}+{_to_base64(bytes([SIGNATURE]) + seed)}"

    @property
    def verifier(self) -> Verifier:
        """The key that this one's signatures are checked with."""
        return Verifier.of(self.name, SIGNATURE, self.private_key.public_key().public_bytes_raw())

    @property
    def cosigner_verifier(self) -> Verifier:
        """The key that this one's cosignatures are checked with, if it is a witness's."""
        return Verifier.of(self.name, COSIGNATURE, self.private_key.public_key().public_bytes_raw())

    def sign(self, text: str) -> str:
        """Sign the text of a note. Return the signature line, without a line feed.

        Raises:
            ProofError: the text cannot be that of a note.
        """
        check_text(text)
        value = self.private_key.sign(text.encode())
        return NoteSignature(name=self.name, key_id=self.verifier.key_id, value=value).line

    def cosign(self, text: str, time_s: int) -> str:
        """Sign the text of a checkpoint as its witness. Return the signature line, without a line feed.

        `checkpoints.cosign` checks that it is one.

        Args:
            text: the text.
            time_s: the time, in whole seconds since 1970 UTC, from 1.

        Raises:
            ProofError: the text cannot be that of a note, or the time is none.
        """
        check_text(text)
        if not 1 <= time_s <= _TIME_S_MAX:
            raise ProofError(f"{time_s} is not a time to sign a checkpoint at")
        signed = self.private_key.sign(cosigned_message(text, time_s))
        value = time_s.to_bytes(_TIME_BYTES) + signed
        return NoteSignature(name=self.name, key_id=self.cosigner_verifier.key_id, value=value).line


class NoteSignature(Struct, frozen=True):
    """A signature as it stands in a note. It is not checked.

    Attributes:
        name: name of the key that it is said to be of.
        key_id: id of that key, 4 bytes.
        value: the signature.
    """

    name: str
    key_id: bytes
    value: bytes

    @property
    def line(self) -> str:
        """The signature line, without a line feed."""
        return f"{DASH}{self.name} {_to_base64(self.key_id + self.value)}"


class Note(Struct, frozen=True):
    """A note as it was read: believe nothing of its text before its signatures are checked (`verify_note`).

    Attributes:
        text: the text, with the line feed at its end.
        signatures: the signatures, as they stand there.
    """

    text: str
    signatures: tuple[NoteSignature, ...]


def parse_note(text: str) -> Note:
    """Read a signed note, strictly. No signature is checked.

    Raises:
        ProofError: it is none: larger than `NOTE_BYTES_MAX`, not UTF-8, with control characters, without signatures or
            with more than `SIGNATURES_MAX`, or one of them is malformed.
    """
    _check_characters(text)
    body, blank, signatures = text.rpartition("\n\n")
    if not blank or not signatures.endswith("\n"):
        raise ProofError("a signed note is a text, an empty line, and signature lines")
    lines = signatures[:-1].split("\n")
    if len(lines) > SIGNATURES_MAX:
        raise ProofError(f"a signed note has more than {SIGNATURES_MAX} signatures")
    return Note(text=body + "\n", signatures=tuple(parse_signature(line) for line in lines))


def parse_signature(line: str) -> NoteSignature:
    """Read a signature line, without its line feed.

    Raises:
        ProofError: it is malformed.
    """
    name, blank, encoded = line.removeprefix(DASH).partition(" ")
    value = _from_base64(encoded)
    if not line.startswith(DASH) or not blank or value is None or len(value) <= _KEY_ID_BYTES or not _is_name(name):
        raise ProofError("a signature line of a note is malformed")
    return NoteSignature(name=name, key_id=value[:_KEY_ID_BYTES], value=value[_KEY_ID_BYTES:])


def verify_note(note: Note, verifiers: Iterable[Verifier]) -> list[Verifier]:
    """Return which keys have signed a note: each once, in the order of their signatures.

    Signatures of other keys are ignored.

    Raises:
        ProofError: none of them has, or a signature that is said to be of one of them is not.
    """
    return list(dict.fromkeys(verifier for verifier, _ in verified_signatures(note, verifiers)))


def verified_signatures(note: Note, verifiers: Iterable[Verifier]) -> list[tuple[Verifier, NoteSignature]]:
    """Return the signatures of a note that are of some keys, in their order, each with its key.

    Raises:
        ProofError: as `verify_note` raises it.
    """
    known: dict[tuple[str, bytes], list[Verifier]] = {}
    for verifier in verifiers:
        known.setdefault((verifier.name, verifier.key_id), []).append(verifier)
    found = [
        (_checked(note.text, signature, known[signature.name, signature.key_id]), signature)
        for signature in note.signatures
        if (signature.name, signature.key_id) in known
    ]
    if not found:
        raise ProofError("no key that is known here has signed the note")
    return found


def _checked(text: str, signature: NoteSignature, verifiers: list[Verifier]) -> Verifier:
    """Return which of the keys of one name and id a signature is of. There is one, unless somebody made more to fit."""
    failures: list[ProofError] = []
    for verifier in verifiers:
        try:
            verifier.check(text, signature.value)
        except ProofError as error:
            failures.append(error)
        else:
            return verifier
    raise failures[0]


def cosigned_message(text: str, time_s: int) -> bytes:
    """Return what a witness signs: a checkpoint and a time, in seconds (C2SP tlog-cosignature, Ed25519)."""
    return f"cosignature/v1\ntime {time_s}\n{text}".encode()


def cosignature_time_s(value: bytes) -> int:
    """Return when a cosignature was made, in whole seconds since 1970 UTC.

    Args:
        value: the time and the signature.

    Raises:
        ProofError: it is malformed.
    """
    time_s = int.from_bytes(value[:_TIME_BYTES])
    if len(value) != _TIME_BYTES + _SIGNATURE_BYTES or time_s > _TIME_S_MAX:
        raise ProofError("a cosignature is malformed")
    return time_s


def check_name(name: str) -> None:
    """Check that a text can be the name of a key.

    Raises:
        SigningKeyError: it cannot.
    """
    if not _is_name(name):
        raise SigningKeyError(
            f"{shown(name)} cannot be the name of a key: give one without blanks and '+', such as example.com/log"
        )


def check_text(text: str) -> None:
    """Check that a text can be that of a signed note.

    Raises:
        ProofError: it cannot.
    """
    _check_characters(text)
    if not text.endswith("\n"):
        raise ProofError("the text of a note does not end in a line feed")


def _is_name(name: str) -> bool:
    return bool(name) and not _NOT_IN_NAMES.search(name)


def _check_characters(text: str) -> None:
    if len(text) > NOTE_BYTES_MAX:
        raise ProofError(f"a note has more than {NOTE_BYTES_MAX:,} bytes")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ProofError("a note is not UTF-8") from error
    if size > NOTE_BYTES_MAX:
        raise ProofError(f"a note has {size:,} bytes, more than {NOTE_BYTES_MAX:,}")
    if _CONTROLS.search(text):
        raise ProofError("a note has control characters")


def _key_id(name: str, kind: int, public_key: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + bytes([kind]) + public_key).digest()[:_KEY_ID_BYTES]


def _parts(line: str, what: str, form: str) -> tuple[str, bytes, str]:
    """Return the three parts of the written form of a key."""
    parts = line.split("+", 2)
    if len(parts) != 3 or not _KEY_ID.fullmatch(parts[1]):
        raise SigningKeyError(f"{what} is not of the form {form}")
    check_name(parts[0])
    return parts[0], bytes.fromhex(parts[1]), parts[2]


def _to_base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def _from_base64(text: str) -> bytes | None:
    """Return what a text is the base64 of, written in the one way that it should be; None if it is not."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    return data if _to_base64(data) == text else None
