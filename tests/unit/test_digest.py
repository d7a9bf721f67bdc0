"""Hashes and their written form."""

from base64 import b64encode
from hashlib import sha256

import pytest

from turnlog.digest import event_digest, leaf_hash, payload_hash, sri, sri_bytes

EMPTY = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="


def test_payload_hash_is_the_subresource_integrity_form() -> None:
    """The hash of the empty payload is the well-known one."""
    assert payload_hash(b"") == EMPTY


def test_leaf_hash_is_that_of_rfc_6962() -> None:
    """The leaf hash of the empty leaf is the one in RFC 6962's test vectors; the prefix is part of it."""
    assert leaf_hash(b"").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert leaf_hash(b"x") == sha256(b"\x00x").digest()


def test_event_digest_is_the_written_leaf_hash() -> None:
    """Parents are cited by the leaf hash, in written form."""
    assert event_digest(b"state") == sri(leaf_hash(b"state"))
    assert event_digest(b"state") != payload_hash(b"state")


def test_written_form_and_bytes_are_each_other() -> None:
    """From bytes to the written form and back is the identity."""
    digest = sha256(b"x").digest()
    assert sri_bytes(sri(digest)) == digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        EMPTY.removeprefix("sha256-"),
        EMPTY[:-1],
        EMPTY[:-1] + "\n=",
        EMPTY + "=",
        EMPTY.replace("+", "-").replace("sha256-", "sha256+"),
        EMPTY[:-2] + "V=",
        "sha256-" + b64encode(b"\x00" * 31).decode(),
        "sha256-" + b64encode(b"\x00" * 33).decode(),
        "sha512-" + b64encode(b"\x00" * 32).decode(),
        "sha256-\u00e9" + EMPTY[8:],
    ],
)
def test_other_written_forms_are_refused(text: str) -> None:
    """Another prefix, another length, loose base64 or non-zero padding bits are no hash."""
    with pytest.raises(ValueError, match=r"hash|base64|padding|ASCII|[Nn]on-base64|data"):
        sri_bytes(text)
