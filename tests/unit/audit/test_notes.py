"""Signed notes: keys in and out, strict reading, and which signatures count."""

from base64 import b64decode, b64encode
from contextlib import suppress
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from turnlog.audit.notes import (
    COSIGNATURE,
    NOTE_BYTES_MAX,
    SIGNATURE,
    Note,
    NoteSignature,
    Signer,
    Verifier,
    parse_note,
    parse_signature,
    verify_note,
)
from turnlog.errors import ProofError, SigningKeyError

# The example of Go's package golang.org/x/mod/sumdb/note.
SKEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
LINE = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="


def signer(name: str = "example.com/log", seed: int = 1) -> Signer:
    return Signer(name=name, private_key=Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def note_of(text: str, *lines: str) -> str:
    return text + "\n" + "".join(f"{line}\n" for line in lines)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


# --------------------------------------------------------------------------------------------------------------- keys


def test_keys_and_signatures_are_those_of_go() -> None:
    """The written forms of both keys, and the signature, which Ed25519 has one of."""
    peter = Signer.parse(SKEY)
    assert (peter.name, peter.skey, peter.verifier.vkey) == ("PeterNeumann", SKEY, VKEY)
    assert peter.sign(TEXT) == LINE
    assert verify_note(parse_note(note_of(TEXT, LINE)), [Verifier.parse(VKEY)]) == [peter.verifier]


def test_key_of_a_witness_has_another_id() -> None:
    """It is the same public key under kind 4, so that no signature can be taken for the other kind."""
    log, witness = signer().verifier, signer().cosigner_verifier
    assert (log.kind, witness.kind) == (SIGNATURE, COSIGNATURE)
    assert log.public_key == witness.public_key
    assert witness.key_id == sha256(b"example.com/log\n\x04" + witness.public_key).digest()[:4] != log.key_id
    assert Verifier.parse(witness.vkey) == witness
    assert b64decode(witness.vkey.split("+", 2)[2])[0] == 4


@given(st.text(min_size=1), st.binary(min_size=32, max_size=32))
def test_keys_survive_being_written(name: str, seed: bytes) -> None:
    """Any name that is one; the others are refused."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    if "+" in name or any(character.isspace() or character < " " for character in name):
        with pytest.raises(SigningKeyError):
            Signer(name=name, private_key=key)
        return
    made = Signer(name=name, private_key=key)
    assert Verifier.parse(made.verifier.vkey) == made.verifier
    assert Signer.parse(f"{made.skey}\n").private_key.private_bytes_raw() == seed


@pytest.mark.parametrize("name", ["", "a b", "a\u00a0b", "a\u2003b", "a+b", "a\nb", "a\x00", "\ud800"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """By every way to make a key."""
    for attempt in (
        lambda: Signer.generate(name),
        lambda: Verifier.of(name, SIGNATURE, bytes(32)),
        lambda: Verifier(name, bytes(4), SIGNATURE, bytes(32)),
        lambda: Verifier.parse(f"{name}+00000000+{base64(bytes([1]) + bytes(32))}"),
    ):
        with pytest.raises(SigningKeyError):
            attempt()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "PeterNeumann",
        "PeterNeumann+c74f20a3",
        VKEY.replace("c74f20a3", "c74f20a4"),  # of another key
        VKEY.replace("c74f20a3", "C74F20A3"),
        VKEY.replace("c74f20a3", "0xc74f20"),
        VKEY.replace("PeterNeumann", "peterneumann"),
        VKEY.replace("ARpc", "BBpc"),  # of another kind, under the id of this one
        VKEY.replace("ARpc", "AR pc"),
        VKEY[:-4],
        VKEY + "\n\n",
        VKEY + " ",
        " " + VKEY,
        "PeterNeumann+c74f20a3+",
        "PeterNeumann+c74f20a3+é",
        SKEY,
    ],
)
def test_malformed_verifier_keys_are_refused(line: str) -> None:
    """One that is cut, respelled, or does not fit its id."""
    with pytest.raises(SigningKeyError):
        Verifier.parse(line)


@pytest.mark.parametrize("kind", [0, 2, 3, 5, 6, 255])
def test_keys_of_other_kinds_are_refused(kind: int) -> None:
    """Also where their id fits."""
    key = bytes([kind]) + bytes(32)
    key_id = sha256(b"a\n" + key).hexdigest()[:8]
    with pytest.raises(SigningKeyError, match=f"of kind {kind}"):
        Verifier.parse(f"a+{key_id}+{base64(key)}")


def test_public_key_of_another_length_is_refused() -> None:
    """Also where its id fits."""
    hashed_first = b"a\n"
    for length in (0, 31, 33):
        key = bytes([1]) + bytes(length)
        with pytest.raises(SigningKeyError):
            Verifier.parse(f"a+{sha256(hashed_first + key).hexdigest()[:8]}+{base64(key)}")


@pytest.mark.parametrize(
    "line",
    [
        "",
        VKEY,
        SKEY.removeprefix("PRIVATE+KEY+"),
        SKEY.replace("c74f20a3", "c74f20a4"),
        SKEY.replace("PeterNeumann", "Peter Neumann"),
        SKEY.replace("+AYEK", "+BIEK"),
        SKEY[:-4],
        SKEY + "\n\n",
        SKEY + "A===",
    ],
)
def test_malformed_private_keys_are_refused_and_not_repeated(line: str) -> None:
    """No part of a secret is in a message, whatever is wrong with it."""
    with pytest.raises(SigningKeyError) as caught:
        Signer.parse(line)
    assert "VFGyNhPJEMzD1QIDr" not in str(caught.value)


def test_signer_shows_no_secret() -> None:
    """Not when it is printed, by itself or within something."""
    shown = f"{Signer.parse(SKEY)!r} {[Signer.parse(SKEY)]} {Signer.parse(SKEY)}"
    assert "PeterNeumann" in shown
    assert "AYEKFALV" not in shown
    assert "private" not in shown


# -------------------------------------------------------------------------------------------------------------- notes


def test_signed_notes_are_read_back() -> None:
    """Text with empty lines and any script; signatures in their order."""
    text = "Ognuno sta solo\n\ned è subito sera.\n\n\n— no signature\n"
    one, two = signer(seed=1), signer("example.com/other", seed=2)
    note = parse_note(note_of(text, one.sign(text), two.sign(text)))
    assert note.text == text
    assert [each.name for each in note.signatures] == [one.name, two.name]
    assert verify_note(note, [two.verifier, one.verifier]) == [one.verifier, two.verifier]


def test_signatures_of_other_keys_are_ignored() -> None:
    """Those that share a name or an id with one that is known, too; and more than one of the same key counts once."""
    one, other = signer(seed=1), signer(seed=2)
    line = one.sign("x\n")
    of_unknown_kind = NoteSignature(name=one.name, key_id=b"\x00\x00\x00\x01", value=b"?" * 5000).line
    same_id = NoteSignature(name="example.com/else", key_id=one.verifier.key_id, value=b"?").line
    note = parse_note(note_of("x\n", other.sign("x\n"), of_unknown_kind, line, same_id, line))
    assert verify_note(note, [one.verifier]) == [one.verifier]
    for verifiers in ([], [one.cosigner_verifier], [signer("example.com/third", 3).verifier]):
        with pytest.raises(ProofError, match="no key that is known here"):
            verify_note(note, verifiers)


def test_wrong_signature_of_a_known_key_is_refused() -> None:
    """Even beside a good one of the same key, or of another."""
    one, two = signer(seed=1), signer("example.com/other", seed=2)
    wrong = one.sign("y\n")
    for good in (one.sign("x\n"), two.sign("x\n")):
        for lines in ([good, wrong], [wrong, good]):
            with pytest.raises(ProofError, match=r"'example\.com/log' is not of this text"):
                verify_note(parse_note(note_of("x\n", *lines)), [one.verifier, two.verifier])


def test_every_changed_byte_of_text_or_signature_is_seen() -> None:
    """Signature and text are those that were signed, or the note is refused."""
    one = signer()
    text, line = "a b\nc\n", signer().sign("a b\nc\n")
    value = parse_signature(line).value
    for at in range(len(value)):
        for bit in range(8):
            forged = value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :]
            signature = NoteSignature(name=one.name, key_id=one.verifier.key_id, value=forged)
            with pytest.raises(ProofError):
                verify_note(Note(text=text, signatures=(signature,)), [one.verifier])
    for forged in ("a b\nc", "a b\n\nc\n", "A b\nc\n", "a b\nc\n\n", ""):
        with pytest.raises(ProofError):
            verify_note(Note(text=forged, signatures=(parse_signature(line),)), [one.verifier])
    for forged in (value[:-1], value + b"\0", b"", value[:32]):
        signature = NoteSignature(name=one.name, key_id=one.verifier.key_id, value=forged)
        with pytest.raises(ProofError):
            verify_note(Note(text=text, signatures=(signature,)), [one.verifier])


def test_key_that_is_given_twice_counts_once() -> None:
    """Equal keys are one key."""
    one = signer().verifier
    note = parse_note(note_of("x\n", signer().sign("x\n")))
    assert verify_note(note, [one, Verifier.parse(one.vkey)]) == [one]


def test_keys_of_one_name_and_id_are_all_tried() -> None:
    """An id is short, and another key can be made to fit it: what counts is the key that signed."""
    # Found by trying: of so many keys of one name, two have the same id.
    seeds = [number.to_bytes(32) for number in (64063, 139885)]
    one, twin = (
        Signer(name="example.com/log", private_key=Ed25519PrivateKey.from_private_bytes(seed)) for seed in seeds
    )
    assert one.verifier != twin.verifier
    assert (one.name, one.verifier.key_id) == (twin.name, twin.verifier.key_id)
    for each in (one, twin):
        note = parse_note(note_of("x\n", each.sign("x\n")))
        assert verify_note(note, [one.verifier, twin.verifier]) == [each.verifier]
    with pytest.raises(ProofError):
        verify_note(parse_note(note_of("x\n", one.sign("x\n"))), [twin.verifier])


MALFORMED = {
    "empty": "",
    "no signatures": "x\n",
    "no signatures after the empty line": "x\n\n",
    "no empty line": f"x\n{LINE}\n",
    "no line feed at the end": f"x\n\n{LINE}",
    "empty line at the end": f"x\n\n{LINE}\n\n",
    "another line below": f"x\n\n{LINE}\nx\n",
    "a hyphen": f"x\n\n{LINE.replace('—', '-')}\n",
    "two blanks": f"x\n\n{LINE.replace('— ', '—  ')}\n",
    "no name": "x\n\n— x08go/ZJ\n",
    "an empty name": "x\n\n—  x08go/ZJ\n",
    "a name with a plus": "x\n\n— a+b x08go/ZJ\n",
    "a name with a no-break space": "x\n\n— a\u00a0b x08go/ZJ\n",
    "no signature but an id": "x\n\n— a x08goA==\n",
    "base64 without padding": f"x\n\n{LINE[:-1]}\n",
    "base64 of another spelling": f"x\n\n{LINE[:-2]}N=\n",
    "base64 of URLs": f"x\n\n{LINE.replace('/', '_')}\n",
    "base64 with blanks": f"x\n\n{LINE} \n",
    "carriage returns": f"x\r\n\r\n{LINE}\r\n",
    "a tab": f"x\ty\n\n{LINE}\n",
    "a NUL": f"x\0\n\n{LINE}\n",
    "a surrogate": f"x\ud800\n\n{LINE}\n",
    "101 signatures": "x\n\n" + f"{LINE}\n" * 101,
    "too large": "x" * NOTE_BYTES_MAX + f"\n\n{LINE}\n",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_notes_are_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ProofError):
        parse_note(text)


def test_largest_notes_are_read() -> None:
    """A hundred signatures, and a million bytes."""
    assert len(parse_note("x\n\n" + f"{LINE}\n" * 100).signatures) == 100
    text = "x" * (NOTE_BYTES_MAX - len(f"\n\n{LINE}\n".encode()))
    assert parse_note(f"{text}\n\n{LINE}\n").text == f"{text}\n"


@given(st.text())
def test_any_text_is_a_note_or_refused(text: str) -> None:
    """Nothing else is raised, and what is signed is read back."""
    with suppress(ProofError):
        parse_note(text)
    one = signer()
    try:
        line = one.sign(text)
    except ProofError:
        assert not text.endswith("\n") or any(character < " " and character != "\n" for character in text)
    else:
        note = parse_note(note_of(text, line))
        assert note.text == text
        assert verify_note(note, [one.verifier]) == [one.verifier]


# -------------------------------------------------------------------------------------------------------- cosignatures


def test_cosignature_is_over_the_time_and_the_text() -> None:
    """As the format says it, checked without turnlog: 8 bytes of time, and an Ed25519 signature."""
    witness = signer("witness.example/w")
    signature = parse_signature(witness.cosign("o\n1\nr\n", 1679315147))
    assert (signature.name, signature.key_id) == ("witness.example/w", witness.cosigner_verifier.key_id)
    assert int.from_bytes(signature.value[:8]) == 1679315147
    key = Ed25519PublicKey.from_public_bytes(witness.verifier.public_key)
    key.verify(signature.value[8:], b"cosignature/v1\ntime 1679315147\no\n1\nr\n")


def test_time_of_a_cosignature_cannot_be_changed() -> None:
    """It is signed; and a time that is none is refused."""
    witness = signer("witness.example/w")
    value = parse_signature(witness.cosign("o\n1\nr\n", 7)).value
    for forged in ((8).to_bytes(8) + value[8:], (2**63 + 7).to_bytes(8) + value[8:], value[8:], value[:8], value[:-1]):
        with pytest.raises(ProofError):
            witness.cosigner_verifier.check("o\n1\nr\n", forged)
    for time_s in (0, -1, 2**63):
        with pytest.raises(ProofError, match="is not a time"):
            witness.cosign("o\n1\nr\n", time_s)


def test_signatures_of_one_kind_are_not_of_the_other() -> None:
    """A log's signature is no cosignature, even under the other key's id."""
    one = signer()
    text = "o\n1\nr\n"
    as_log, as_witness = parse_signature(one.sign(text)).value, parse_signature(one.cosign(text, 7)).value
    one.verifier.check(text, as_log)
    one.cosigner_verifier.check(text, as_witness)
    for verifier, value in (
        (one.verifier, as_witness),
        (one.verifier, as_witness[8:]),
        (one.cosigner_verifier, as_log),
    ):
        with pytest.raises(ProofError):
            verifier.check(text, value)
