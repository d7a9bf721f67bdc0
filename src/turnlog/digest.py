"""Hashes: of payloads, written as W3C Subresource Integrity strings, and of events, as Merkle leaves.

Sources: W3C Subresource Integrity §3.5 (`sha256-` and padded base64); RFC 6962 §2.1 and RFC 9162 §2.1.1 (leaf hash).
"""

from __future__ import annotations

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable
from hashlib import sha256

PREFIX = "sha256-"
LEAF = b"\x00"
"""What is hashed before a leaf of a Merkle tree."""


def sri(digest: bytes) -> str:
    """Return the written form, `sha256-<base64>`, of a 32-byte SHA-256 digest."""
    return PREFIX + b2a_base64(digest, newline=False).decode("ascii")


def sri_bytes(text: str) -> bytes:
    """Return the 32 bytes behind a written hash.

    Raises:
        ValueError: the text is not `sha256-` followed by the padded base64 of 32 bytes.
    """
    digest = b64decode(text.removeprefix(PREFIX), validate=True)
    if not text.startswith(PREFIX) or len(digest) != 32 or sri(digest) != text:
        raise ValueError(f"{text!r} is not a hash of the form sha256-<base64>")
    return digest


def payload_hash(payload: bytes) -> str:
    """Return the `hash` of a payload, or of another part of an event: the written SHA-256 of its exact bytes."""
    return sri(sha256(payload).digest())


def pieces_digest(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Return the SHA-256 digest of what pieces are together, as 32 bytes."""
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def leaf_hash(state: bytes) -> bytes:
    """Return the Merkle leaf hash of an event, SHA-256(0x00 ‖ stored bytes), as 32 bytes."""
    return sha256(LEAF + state).digest()


def event_digest(state: bytes) -> str:
    """Return the written form of an event's leaf hash, as parents are cited by."""
    return sri(leaf_hash(state))
