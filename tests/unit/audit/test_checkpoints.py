"""Checkpoints: their text, who has signed them, and witnesses' signatures below them."""

from base64 import b64encode
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from turnlog.audit.checkpoints import (
    SIZE_MAX,
    Checkpoint,
    cosign,
    open_checkpoint,
    parse_checkpoint,
    parse_hash,
    parse_size,
    sign,
    with_signatures,
    written_hash,
)
from turnlog.audit.notes import Signer, parse_note
from turnlog.errors import ProofError

ROOT = sha256(b"root").digest()
WRITTEN = b64encode(ROOT).decode()
HEAD = Checkpoint("example.com/log", 7, ROOT)


def signer(name: str, seed: int) -> Signer:
    return Signer(name=name, private_key=Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


LOG = signer("example.com/log", 1)
NEXT = signer("example.com/log-2", 2)
WITNESS = signer("witness.example/w", 3)
OTHER_WITNESS = signer("other.example/w", 4)


# --------------------------------------------------------------------------------------------------------------- text


def test_text_is_three_lines() -> None:
    """Origin, size in decimal, root in base64; and what extends it."""
    assert HEAD.text == f"example.com/log\n7\n{WRITTEN}\n"
    extended = Checkpoint("example.com/log", 0, ROOT, ("one", "two words"))
    assert extended.text == f"example.com/log\n0\n{WRITTEN}\none\ntwo words\n"
    assert parse_checkpoint(extended.text) == extended


lines = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs",)), min_size=1)


@given(lines, st.integers(0, SIZE_MAX), st.binary(min_size=32, max_size=32), st.lists(lines))
def test_text_is_read_back(origin: str, size: int, root: bytes, extensions: list[str]) -> None:
    """Whatever a checkpoint has, signed or not."""
    head = Checkpoint(origin, size, root, tuple(extensions))
    assert parse_checkpoint(head.text) == head
    assert open_checkpoint(sign(head, LOG), [LOG.verifier]).checkpoint == head


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "o\n",
        "o\n7\n",
        f"o\n7\n{WRITTEN}",
        f"\n7\n{WRITTEN}\n",
        f"o\n7\n{WRITTEN}\n\n",
        f"o\n7\n{WRITTEN}\n\nx\n",
        f"o\n\n7\n{WRITTEN}\n",
        f"o\n07\n{WRITTEN}\n",
        f"o\n+7\n{WRITTEN}\n",
        f"o\n-7\n{WRITTEN}\n",
        f"o\n7 \n{WRITTEN}\n",
        f"o\n7.0\n{WRITTEN}\n",
        f"o\n٧\n{WRITTEN}\n",
        f"o\n{2**63}\n{WRITTEN}\n",
        f"o\n{10**40}\n{WRITTEN}\n",
        f"o\n7\n{WRITTEN[:-1]}\n",
        f"o\n7\n{WRITTEN[:40]}\n",
        f"o\n7\n{b64encode(ROOT + b'x').decode()}\n",
        f"o\n7\n{ROOT.hex()}\n",
        f"o\n7\n {WRITTEN}\n",
        f"o\r\n7\r\n{WRITTEN}\r\n",
        f"o\to\n7\n{WRITTEN}\n",
        f"\ud800\n7\n{WRITTEN}\n",
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    """Every field has one spelling."""
    with pytest.raises(ProofError):
        parse_checkpoint(text)


@pytest.mark.parametrize(
    "fields",
    [
        ("", 1, ROOT),
        ("a\nb", 1, ROOT),
        ("a\tb", 1, ROOT),
        ("a", -1, ROOT),
        ("a", 2**63, ROOT),
        ("a", 1, ROOT[:31]),
        ("a", 1, ROOT, ("",)),
        ("a", 1, ROOT, ("x\ny",)),
        ("a", 1, ROOT, ("\x7f\x00",)),
    ],
)
def test_what_could_not_be_read_again_is_not_made(fields: tuple) -> None:
    """Nobody signs what nobody can check."""
    with pytest.raises(ProofError):
        Checkpoint(*fields)


def test_root_of_another_spelling_is_refused() -> None:
    """The last character of the base64 of 32 bytes has bits that say nothing: they are zero."""
    assert parse_hash(WRITTEN) == ROOT
    assert written_hash(ROOT) == WRITTEN
    twin = WRITTEN[:-2] + chr(ord(WRITTEN[-2]) + 1) + "="
    with pytest.raises(ProofError):
        parse_hash(twin)


def test_sizes() -> None:
    """From 0 to 2^63 - 1."""
    assert [parse_size(text) for text in ("0", "1", str(SIZE_MAX))] == [0, 1, SIZE_MAX]
    for text in ("", "00", "01", " 1", "1\n", str(SIZE_MAX + 1)):
        with pytest.raises(ProofError):
            parse_size(text)


# ---------------------------------------------------------------------------------------------------------- signatures


def test_signed_checkpoint_is_opened() -> None:
    """With the keys of its log, and of its witnesses with the time that they say."""
    note = with_signatures(
        sign(HEAD, LOG),
        [NEXT.sign(HEAD.text), cosign(HEAD.text, WITNESS, 100), cosign(HEAD.text, OTHER_WITNESS, 50) + "\n"],
    )
    keys = [LOG.verifier, NEXT.verifier, WITNESS.cosigner_verifier, OTHER_WITNESS.cosigner_verifier]
    opened = open_checkpoint(note, keys)
    assert opened.checkpoint == HEAD
    assert opened.note_text == note
    assert opened.signed_by == [LOG.verifier, NEXT.verifier]
    assert opened.cosigned_by == [("witness.example/w", 100), ("other.example/w", 50)]
    only = open_checkpoint(note, [NEXT.verifier])
    assert (only.signed_by, only.cosigned_by) == ([NEXT.verifier], [])


def test_key_of_the_log_must_have_signed() -> None:
    """Witnesses alone do not make a checkpoint, and a log's key is not a witness's."""
    note = with_signatures(sign(HEAD, LOG), [cosign(HEAD.text, WITNESS, 100)])
    with pytest.raises(ProofError, match="witnesses have signed the checkpoint"):
        open_checkpoint(note, [WITNESS.cosigner_verifier])
    for keys in ([], [NEXT.verifier], [WITNESS.verifier], [LOG.cosigner_verifier]):
        with pytest.raises(ProofError, match="no key that is known here"):
            open_checkpoint(note, keys)


def test_witness_that_signed_twice_counts_once() -> None:
    """With its latest time; so that who counts signatures counts witnesses."""
    lines = [cosign(HEAD.text, WITNESS, time_s) for time_s in (100, 300, 200)]
    opened = open_checkpoint(with_signatures(sign(HEAD, LOG), lines), [LOG.verifier, WITNESS.cosigner_verifier])
    assert opened.cosigned_by == [("witness.example/w", 300)]


def test_wrong_cosignature_of_a_known_witness_is_refused() -> None:
    """One that is of another checkpoint, moved below this one."""
    other = Checkpoint("example.com/log", 8, ROOT)
    note = with_signatures(sign(HEAD, LOG), [cosign(other.text, WITNESS, 100)])
    assert open_checkpoint(note, [LOG.verifier]).cosigned_by == []
    with pytest.raises(ProofError, match=r"'witness\.example/w'"):
        open_checkpoint(note, [LOG.verifier, WITNESS.cosigner_verifier])


@pytest.mark.parametrize("field", ["example.com/log\n", "\n7\n", WRITTEN])
def test_changed_checkpoint_is_refused(field: str) -> None:
    """Whatever line of it is changed."""
    changes = {"example.com/log\n": "example.com/lag\n", "\n7\n": "\n8\n", WRITTEN: b64encode(bytes(32)).decode()}
    note = sign(HEAD, LOG).replace(field, changes[field], 1)
    with pytest.raises(ProofError, match="is not of this text"):
        open_checkpoint(note, [LOG.verifier])


def test_signed_text_that_is_no_checkpoint_is_refused() -> None:
    """A key may sign other notes too: they are none of the log's heads."""
    text = "hello\n"
    with pytest.raises(ProofError, match="three lines"):
        open_checkpoint(f"{text}\n{LOG.sign(text)}\n", [LOG.verifier])


def test_only_checkpoints_are_cosigned() -> None:
    """A witness signs no other text."""
    for text in ("hello\n", sign(HEAD, LOG)):
        with pytest.raises(ProofError):
            cosign(text, WITNESS, 100)


def test_signatures_are_added_once() -> None:
    """None is lost, none is there twice, and the text stays."""
    note = sign(HEAD, LOG)
    line = cosign(HEAD.text, WITNESS, 100)
    more = with_signatures(note, [line, line, line + "\n"])
    assert more == f"{note}{line}\n"
    assert with_signatures(more, [line, *note.splitlines()[-1:]]) == more
    assert parse_note(more).text == HEAD.text


def test_too_many_or_malformed_signatures_are_not_added() -> None:
    """The note can be read again, or is not made."""
    note = sign(HEAD, LOG)
    lines = [cosign(HEAD.text, WITNESS, time_s) for time_s in range(1, 101)]
    assert len(parse_note(with_signatures(note, lines[:99])).signatures) == 100
    with pytest.raises(ProofError, match="more than 100"):
        with_signatures(note, lines)
    for wrong in ("", "— a", "x", lines[0] + "\n\n", "\n" + lines[0]):
        with pytest.raises(ProofError):
            with_signatures(note, [wrong])
