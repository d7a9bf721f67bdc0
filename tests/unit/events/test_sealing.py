"""The sealed form of a private part, and what opens it."""

import hmac
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from tests.sealed_log import SealsInMemory

from turnlog.digest import sri
from turnlog.errors import CorruptionError, ErasedError, SealedError
from turnlog.events import Citation, Event, Seal, build, decode, meta_text, private_part, sealed_part, unreadable
from turnlog.events.flaws import flaw
from turnlog.events.sealing import (
    DataKey,
    OpenedPayload,
    find_key,
    joined,
    open_private,
    read_sealed,
    seal_private,
    sealed_pieces,
    secret_hash,
)

SECRET = bytes(range(32))
_encoder = msgspec.json.Encoder(order="sorted")


def whole(event_secret: bytes, content: bytes) -> bytes:
    """Seal a payload, and return all of it."""
    return b"".join(sealed_pieces(event_secret, [content]))


def event(
    seals: SealsInMemory, meta: dict[str, Any] | None = None, *, payload: bytes | None = b"sealed bytes"
) -> Event:
    """Return a sealed event of a topic of one's own."""
    seal = Seal.new(seals.make("Ada"))
    private = private_part(
        {"by": "Ada"} if meta is None else meta,
        hash=None if payload is None else sri(sha256(b"x").digest()),
        size=None if payload is None else 1,
        salt=bytes(16),
    )
    assert private is not None
    sealed = sealed_part(
        private,
        seal,
        hash=None if payload is None else sri(sha256(payload).digest()),
        size=None if payload is None else 18,
        tags={},
    )
    return build(
        topic="acme.review", id="0" * 25, time=1, meta=meta_text({}), private=private, sealed=sealed
    )  # fmt: skip


def test_data_key_is_named_by_what_says_nothing_of_it() -> None:
    """Its id is that of these 32 bytes alone."""
    key = DataKey.of(SECRET)
    assert key == DataKey.of(SECRET)
    assert len(key.id) == 22
    assert key.id != DataKey.of(bytes(32)).id
    assert key.id == "-5AP55vMglyJRdxDi_a2UQ"


def test_event_secret_is_as_documented() -> None:
    """HMAC-SHA256 over a label and the nonce, so that others can make it too."""
    nonce = bytes(range(16))
    expected = hmac.digest(SECRET, b"turnlog sealed-1\x00" + nonce, "sha256")
    assert DataKey.of(SECRET).event_secret(nonce) == expected
    assert secret_hash(expected) == sri(sha256(expected).digest())


def test_cipher_is_as_documented() -> None:
    """AES-256-GCM with two nonces under a secret that is used for one event, and two labels."""
    cipher = AESGCM(SECRET)
    assert seal_private(SECRET, b"text") == cipher.encrypt(bytes(12), b"text", b"private part")
    assert whole(SECRET, b"text") == cipher.encrypt(bytes(11) + b"\x01", b"text", b"payload")


@given(st.binary(max_size=300))
def test_what_was_sealed_opens(content: bytes) -> None:
    """With the same secret, and 16 bytes longer."""
    payload = whole(SECRET, content)
    assert OpenedPayload(SECRET, payload).read(len(payload)) == content
    assert len(payload) == len(content) + 16


@pytest.mark.parametrize("other", [b"", b"short", seal_private(SECRET, b"x"), whole(bytes(32), b"x")])
def test_what_was_not_sealed_so_does_not_open(other: bytes) -> None:
    """Neither what is too short, nor what was sealed as something else or under another secret."""
    with pytest.raises(ValueError, match="does not open"):
        OpenedPayload(SECRET, other).check()


def test_private_part_opens_with_the_secret_that_it_names() -> None:
    """Another one is refused before anything is decrypted."""
    seals = SealsInMemory()
    sealed = event(seals).sealed
    assert sealed is not None
    secret = seals.make("Ada").event_secret(sealed.nonce)
    assert open_private(sealed, secret).startswith(b'{"hash":')
    with pytest.raises(ValueError, match="not the one"):
        open_private(sealed, SECRET)


def test_nonces_are_not_used_twice() -> None:
    """Each event has one of its own."""
    seals = SealsInMemory()
    sealed = [event(seals).sealed for _ in range(100)]
    assert len({each.nonce for each in sealed if each}) == 100
    assert len({each.sealed for each in sealed if each}) == 100


@pytest.mark.parametrize("payload", [b"sealed bytes", None])
def test_event_is_read_with_its_key_and_closed_without(payload: bytes | None) -> None:
    """The header is the same; hash and size of the payload are known only inside."""
    seals = SealsInMemory()
    made = event(seals, payload=payload)
    assert made.private_state is not None
    assert made.private_state.startswith(b'{"form":"sealed-1",')
    assert b'"Ada' not in made.private_state
    with_key = decode(made.state, made.private_state, seals=seals)
    assert with_key == made
    assert flaw(with_key) is None
    seals.destroy("Ada")
    for keys in (None, seals):
        without = decode(made.state, made.private_state, seals=keys)
        assert (without.private, without.hash, without.size) == (None, None, None)
        assert (without.sealed, without.stored_hash, without.stored_size) == (
            made.sealed, made.stored_hash, made.stored_size,
        )  # fmt: skip
        assert (without.erased, without.unreadable) == (False, True)
        assert flaw(without) is None
        error = unreadable(without, "it")
        assert isinstance(error, SealedError)
    erased = decode(made.state, None, seals=seals)
    assert (erased.erased, erased.unreadable, erased.sealed) == (True, True, None)
    assert type(unreadable(erased, "it")) is ErasedError


def test_form_that_is_not_known_is_refused() -> None:
    """A newer turnlog may have others."""
    made = event(SealsInMemory())
    for part, message in ((b'{"form":"sealed-2"}', "upgrade"), (b'{"form":"sealed-1",}', "cannot be read")):
        header = msgspec.json.decode(made.state) | {"private": sri(sha256(part).digest())}
        with pytest.raises(CorruptionError, match=message):
            decode(_encoder.encode(header), part)


def test_part_that_is_none_is_refused() -> None:
    """What cannot be decoded is damage, whatever decoders raise."""
    for part in (b'{"form":"sealed-1","hash":1}', b'{"form":"sealed-1","hash":"\xff"}', b"[" * 100_000, b""):
        with pytest.raises(CorruptionError, match="'an id'"):
            read_sealed(part, "an id", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nonce": bytes(15)}, "nonce has 15 bytes"),
        ({"sealed": bytes(16)}, "nothing is sealed"),
        ({"key": "x"}, "not the id of a key"),
        ({"key": "x" * 22 + "\n"}, "not the id of a key"),
        ({"tags": {"head": "Ada"}}, "tag that is none"),
        ({"hash": None}, "lacks the hash or the size"),
        ({"size": None}, "lacks the hash or the size"),
        ({"size": 16}, "size 16"),
        ({"size": -1}, "size -1"),
        ({"secret_hash": "sha256-"}, "secret_hash is none"),
        ({"hash": "md5-x"}, "hash is none"),
    ],
)
def test_flaws_of_a_sealed_part_are_told_without_keys(change: dict[str, Any], message: str) -> None:
    """What it shows has a form."""
    made = event(SealsInMemory())
    assert made.sealed is not None
    sealed = msgspec.structs.replace(made.sealed, **change)
    changed = build(
        topic="acme.review", id=made.header.id, time=1, meta=meta_text({}), private=made.private, sealed=sealed
    )
    found = flaw(decode(changed.state, changed.private_state))
    assert found is not None
    assert message in found


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part.replace(b'":', b'" :', 1),
        lambda part: part.replace(b'=","sealed', b'\\u003d","sealed'),
        lambda part: part[:-1] + b" }",
    ],
)
def test_other_bytes_for_the_same_part_are_a_flaw(change: Callable[[bytes], bytes]) -> None:
    """There is one form of each."""
    made = event(SealsInMemory())
    part = change(made.private_state or b"")
    assert part != made.private_state
    header = msgspec.json.decode(made.state) | {"private": sri(sha256(part).digest())}
    try:
        found = flaw(decode(_encoder.encode(header), part))
    except CorruptionError as error:
        found = str(error)
    assert found is not None
    assert "form" in found


def test_what_is_sealed_is_checked_as_what_is_not() -> None:
    """Who has the key sees what is wrong inside."""
    seals = SealsInMemory()
    key = seals.make("Ada")
    nonce = os.urandom(16)
    secret = key.event_secret(nonce)
    made = event(seals, payload=None)
    assert made.sealed is not None
    for inside, message in (
        (b"no private part", "no private part in plain form"),
        (b'{"hash":1}', "cannot be read"),
        (b'{"hash":"sha256-x","salt":"AAAAAAAAAAAAAAAAAAAAAA==","size":1}', "does not tell of its payload"),
    ):
        sealed = msgspec.structs.replace(
            made.sealed, nonce=nonce, sealed=seal_private(secret, inside), secret_hash=secret_hash(secret)
        )
        changed = build(
            topic="acme.review", id="0" * 25, time=1, meta=meta_text({}), private=made.private, sealed=sealed
        )
        with pytest.raises(CorruptionError, match=message):
            decode(changed.state, changed.private_state, seals=seals)
        assert flaw(decode(changed.state, changed.private_state)) is None


@pytest.mark.parametrize(
    ("topic", "action", "private", "tags", "without_keys"),
    [
        ("gpt.bookmark", "rename", {"name": "a", "to": "b"}, {"name", "to"}, False),
        ("gpt.bookmark", "rename", {"name": "a", "to": "b"}, {"name"}, True),
        ("gpt.bookmark", "delete", {"name": "a"}, {"name", "to"}, True),
        ("gpt.bookmark", "delete", {"name": "a"}, set[str](), True),
        ("gpt.bookmark", "set", {"name": "a"}, {"name"}, True),  # it cites no turn
        ("gpt.turn", None, {"head": "a"}, {"head"}, False),
        ("gpt.turn", None, {"head": "a"}, set[str](), None),
        ("gpt.turn", None, {}, {"head"}, None),
        ("gpt.turn", None, {"head": "a"}, {"head", "name"}, True),
        ("gpt.erasure", None, {"reason": "r"}, {"reason"}, True),
    ],
)
def test_tags_stand_for_the_names_that_there_are(
    topic: str, action: str | None, private: dict[str, Any], tags: set[str], without_keys: bool | None
) -> None:
    """`without_keys`: whether there is a flaw, also without keys; None: only with them."""
    seals = SealsInMemory()
    seal = Seal.new(seals.make("Ada"))
    public = {"role": "user"} if action is None else {"action": action}
    has_payload = topic == "gpt.turn"
    plain = private_part(
        private, hash=sri(bytes(32)) if has_payload else None, size=0 if has_payload else None, salt=bytes(16)
    )
    assert plain is not None
    sealed = sealed_part(
        plain,
        seal,
        hash=sri(bytes(32)) if has_payload else None,
        size=17 if has_payload else None,
        tags=dict.fromkeys(tags, "x" * 22),
    )
    target = [Citation(relation="target", digest=sri(bytes(32)), id="0" * 25)] if topic == "gpt.erasure" else []
    made = build(
        topic=topic,
        id="0" * 24 + "1",
        time=1,
        meta=meta_text({} if topic == "gpt.erasure" else public),
        private=plain,
        sealed=sealed,
        citations=target,
    )
    found = [flaw(decode(made.state, made.private_state, seals=keys)) for keys in (None, seals)]
    assert [each is not None for each in found] == [without_keys is True, without_keys is not False], found


def test_joined_keys_need_all_of_them() -> None:
    """In whatever order they are given, and each once; one alone is itself."""
    one, two, three = (DataKey.of(bytes([number]) * 32) for number in range(3))
    both = joined([two, one, two])
    assert both == joined([one, two])
    ordered = sorted((one, two), key=lambda key: key.id)
    assert both.id == "+".join(key.id for key in ordered)
    assert both.secret == sha256(b"turnlog joined keys\x00" + b"".join(key.secret for key in ordered)).digest()
    assert joined([three]) is three
    seals = SealsInMemory()
    hers, his = seals.make("Ada"), seals.make("Bob")
    assert find_key(seals, joined([hers, his]).id) == joined([his, hers])
    seals.destroy("Bob")
    assert find_key(seals, joined([hers, his]).id) is None
    assert "secret" not in repr(both)
