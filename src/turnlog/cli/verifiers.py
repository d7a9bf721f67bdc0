"""Keys of checkpoints on the command line: which to believe, and which to sign with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from turnlog.audit.anchors import read_note_text
from turnlog.audit.keys import default_key_store
from turnlog.audit.notes import Signer, Verifier
from turnlog.cli.failures import UsageError
from turnlog.errors import ProofError, SigningKeyError

KEY_VARIABLE = "TURNLOG_CHECKPOINT_KEY"


def read_verifiers(files: Sequence[Path]) -> list[Verifier]:
    """Return the keys in files, one vkey a line; lines that begin with # are comments. Without files your own keys.

    Raises:
        UsageError: a file has no key, or there is none at all.
        ProofError: a line is no key.
        OSError: a file cannot be read.
    """
    if not files:
        found = own_verifiers()
        if not found:
            raise UsageError(
                "which keys do you believe? give --key FILE, with lines from `turnlog keys export`; you have none of "
                "your own (`turnlog keys new` makes one)"
            )
        return found
    verifiers: list[Verifier] = []
    for file in files:
        lines = [line.strip() for line in read_note_text(file).splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise UsageError(f"{str(file)!r} has no key: `turnlog keys export --name NAME` prints one")
        try:
            verifiers += map(Verifier.parse, keys)
        except ProofError as error:
            raise ProofError(f"{str(file)!r}: {error}") from error
    return verifiers


def find_signer(name: str | None) -> Signer:
    """Return the key of a name; without a name that of TURNLOG_CHECKPOINT_KEY, else the only one there is.

    Raises:
        UsageError: there is none, or more than one.
        SigningKeyError: it cannot be used.
    """
    keys = default_key_store(os.environ)
    name = name or os.environ.get(KEY_VARIABLE)
    if name:
        return keys.load_key(name)
    names = [entry.name for entry in keys.list_keys()]
    if len(names) == 1:
        return keys.load_key(names[0])
    if not names:
        raise UsageError("there is no key to sign with: `turnlog keys new --name NAME` makes one")
    raise UsageError(f"which key? give --key NAME, or {KEY_VARIABLE}: one of {', '.join(map(repr, names))}")


def own_verifiers() -> list[Verifier]:
    """Return what checks signatures of one's own keys, as far as they can be read."""
    keys = default_key_store(os.environ)
    found: list[Verifier] = []
    for entry in keys.list_keys():
        try:
            signer = keys.load_key(entry.name)
        except SigningKeyError:
            continue
        found += (signer.verifier, signer.cosigner_verifier)
    return found
