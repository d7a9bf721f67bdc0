"""Sealed private parts and payloads: AES-256-GCM under a data key of one subject, or of the log.

A sealed private part shows which key it needs, and hash and size of the sealed payload, so that every byte can be
verified without a key. In it is the private part in plain form, with the hash and the size of the payload itself.

```
event secret   = HMAC-SHA256(data key, "turnlog sealed-1" ‖ 0x00 ‖ nonce)
`sealed`       = AES-256-GCM(event secret, 12 bytes 0, associated data "private part", the plain private part)
sealed payload = AES-256-GCM(event secret, 11 bytes 0 and 1, associated data "payload", 0x00 ‖ the payload,
                 or 0x01 ‖ one Zstandard frame of it)
```

What says something of several subjects, such as a request, is sealed under all of their keys at once: their ids are
joined with `+`, in ascending order, and for the data key stands SHA-256("turnlog joined keys" ‖ 0x00 ‖ the keys in that
order). So it goes with any of them.

Both ends with the tag of 16 bytes. `nonce` is 16 random bytes, so that no event secret is used twice. The event secret
opens this event and no other: it can be shown to somebody. `secret_hash` commits to it, so that what is sealed opens in
one way only.

Sources: NIST SP 800-38D (GCM), RFC 2104 (HMAC).
"""

# Annotations are not put off here: msgspec would compile each one of them again, in every process.

import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec import Struct

from turnlog.digest import payload_hash
from turnlog.errors import CorruptionError
from turnlog.model.json_text import UNREADABLE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import GCM

SEALED = b'{"form":"sealed-1",'
"""What a sealed private part begins with."""

SECRET_BYTES = 32
NONCE_BYTES = 16
TAG_BYTES = 16

_LABEL = b"turnlog sealed-1\x00"
_KEY_LABEL = b"turnlog data key\x00"
_JOINED_LABEL = b"turnlog joined keys\x00"
_PRIVATE_NONCE, _PAYLOAD_NONCE = bytes(12), bytes(11) + b"\x01"
_PAYLOAD = b"payload"
_ID_BYTES = 16
_PIECE_BYTES = 1024 * 1024
_DOES_NOT_OPEN = "it does not open with its key"


class Sealed(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A private part in sealed form, as it is stored.

    Attributes:
        form: its form and the version of it.
        hash: hash of the sealed payload; None where there is no payload.
        key: id of the data key, or of several that are joined.
        nonce: 16 random bytes.
        sealed: the private part in plain form, sealed.
        secret_hash: hash of the event secret.
        size: bytes of the sealed payload.
        tags: what stands for names that indexes need: see `Seals.tag`.
    """

    form: Literal["sealed-1"]
    hash: str | None
    key: str
    nonce: bytes
    sealed: bytes
    secret_hash: str
    size: int | None
    tags: dict[str, str] = {}

    @property
    def keys(self) -> list[str]:
        """The ids of the data keys that are all needed."""
        return key_ids(self.key)


def key_ids(key: str) -> list[str]:
    """Return the ids of the data keys behind an id: it may be of several that are joined."""
    return key.split("+")


class DataKey(Struct, frozen=True, kw_only=True):
    """The key of all that is sealed of one subject: 32 random bytes, and the id that events name it by."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        """Show the id, and not the key."""
        return f"DataKey(id={self.id!r})"

    @classmethod
    def of(cls, secret: bytes) -> "DataKey":
        """Return the key of 32 bytes. Its id says nothing of them, and belongs to no other ones."""
        return cls(id=short(sha256(_KEY_LABEL + secret).digest()), secret=secret)

    def event_secret(self, nonce: bytes) -> bytes:
        """Return the secret of one event."""
        return hmac.digest(self.secret, _LABEL + nonce, "sha256")


Tagged = Literal["bookmark", "subject", "keys"]
"""What tags stand for: names of bookmarks, subjects, and (with an empty name) the keys as such."""


class Seals(Protocol):
    """The keys of what is sealed. They are outside the store: who destroys one erases every copy of what it sealed.

    Safe to use from many threads. What it returns holds now: another process may have destroyed a key since.
    """

    def get(self, key_id: str) -> DataKey | None:
        """Return a data key by its id; None where it is not here.

        Raises:
            SealError: the keys cannot be read.
        """
        ...

    def of_subject(self, subject: str | None) -> DataKey | None:
        """Return the data key of a subject, or (None) that of what has no subject; None where there is none.

        Raises:
            SealError: the keys cannot be read.
        """
        ...

    def make(self, subject: str | None) -> DataKey:
        """Return the data key of a subject, made if there is none. On return it is kept durably.

        Raises:
            SealError: it cannot be kept.
        """
        ...

    def ids_of(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the data keys of a subject: what `destroy` would return.

        Raises:
            SealError: the keys cannot be read, or one of these does not open.
        """
        ...

    def destroy(self, subject: str) -> tuple[str, ...]:
        """Destroy the data keys of a subject, durably, and return their ids. Does nothing where there are none.

        Raises:
            SealError: one does not open, and none was destroyed; or one cannot be destroyed.
        """
        ...

    def tag(self, kind: Tagged, name: str) -> str:
        """Return what stands for a name in what is stored: the same for the same name, and it says nothing of it.

        Raises:
            SealError: the keys cannot be read.
        """
        ...


def joined(keys: Iterable[DataKey]) -> DataKey:
    """Return what seals under several data keys at once, so that all of them are needed to open it; at least one."""
    parts = sorted({key.id: key for key in keys}.values(), key=lambda key: key.id)
    if len(parts) == 1:
        return parts[0]
    secret = sha256(_JOINED_LABEL + b"".join(key.secret for key in parts)).digest()
    return DataKey(id="+".join(key.id for key in parts), secret=secret)


def find_key(seals: Seals, key_id: str) -> DataKey | None:
    """Return a data key, or several that are joined, by id; None where one of them is not here.

    Raises:
        SealError: the keys cannot be read.
    """
    found: list[DataKey] = []
    for part in key_ids(key_id):
        key = seals.get(part)
        if key is None:
            return None
        found.append(key)
    return joined(found)


def short(digest: bytes) -> str:
    """Return the first 16 bytes of a digest as 22 characters of base64 for URLs."""
    return urlsafe_b64encode(digest[:_ID_BYTES]).decode("ascii").rstrip("=")


def new_nonce() -> bytes:
    """Return 16 random bytes."""
    return os.urandom(NONCE_BYTES)


def secret_hash(event_secret: bytes) -> str:
    """Return what a sealed private part says of its event secret."""
    return payload_hash(event_secret)


def seal_private(event_secret: bytes, plain: bytes) -> bytes:
    """Seal a private part in plain form."""
    return _cipher(event_secret).encrypt(_PRIVATE_NONCE, plain, b"private part")


def sealed_pieces(event_secret: bytes, content: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Seal a payload, with the byte before it that says how it is kept.

    Both are in pieces: each of the content can go once it was taken.
    """
    encryptor = _gcm(event_secret).encryptor()
    encryptor.authenticate_additional_data(_PAYLOAD)
    for piece in content:
        yield encryptor.update(piece)
    yield encryptor.finalize()
    yield encryptor.tag


def open_private(sealed: Sealed, event_secret: bytes) -> bytes:
    """Return the private part in plain form.

    Raises:
        ValueError: this is not the secret of it, or it was changed.
    """
    if secret_hash(event_secret) != sealed.secret_hash:
        raise ValueError("the event secret is not the one that it was sealed with")
    return _opened(event_secret, _PRIVATE_NONCE, sealed.sealed, b"private part")


class OpenedPayload:
    """A payload with the byte before it that says how it is kept, read from its beginning on. It is opened meanwhile.

    Nothing of it is to be believed before all of it was read: the last bytes are given out only if it holds.
    """

    def __init__(self, event_secret: bytes, sealed: bytes) -> None:
        """Begin to open a sealed payload.

        Raises:
            ValueError: it is none.
        """
        if len(sealed) < TAG_BYTES:
            raise ValueError(_DOES_NOT_OPEN)
        self._rest = memoryview(sealed)[:-TAG_BYTES]
        self._decryptor = _gcm(event_secret, sealed[-TAG_BYTES:]).decryptor()
        self._decryptor.authenticate_additional_data(_PAYLOAD)
        self._is_at_end = False

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return len(self._rest)

    def read(self, count: int, /) -> bytes:
        """Return the next bytes, as many as are asked for or all that are left; at the end none.

        Raises:
            ValueError: they are the last ones, and this is not the secret of it, or it was changed.
        """
        if self._is_at_end:
            return b""
        piece, self._rest = self._rest[:count], self._rest[count:]
        content = self._decryptor.update(piece)
        if not self._rest:
            self._end()
        return content

    def pieces(self) -> Iterator[bytes]:
        """Iterate over what is left, in pieces. Raises what `read` raises."""
        return iter(lambda: self.read(_PIECE_BYTES), b"")

    def check(self) -> None:
        """Check what is left, and with it all.

        Raises:
            ValueError: this is not the secret of it, or it was changed.
        """
        for _ in self.pieces():
            pass

    def _end(self) -> None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see `_cipher`

        self._is_at_end = True
        try:
            self._decryptor.finalize()
        except InvalidTag as error:
            raise ValueError(_DOES_NOT_OPEN) from error


def event_secret_of(sealed: Sealed, seals: Seals | None) -> bytes | None:
    """Return the event secret of a sealed part; None where its key is not here."""
    key = None if seals is None else find_key(seals, sealed.key)
    return None if key is None else key.event_secret(sealed.nonce)


def read_sealed(private_state: bytes, event_id: str, global_position: int | None) -> Sealed:
    """Read a sealed private part.

    Raises:
        CorruptionError: it is none.
    """
    try:
        return _sealed.decode(private_state)
    except UNREADABLE as error:
        raise CorruptionError(
            f"the sealed private part of event {event_id!r} cannot be read: {error}", global_position=global_position
        ) from error


def _opened(event_secret: bytes, nonce: bytes, sealed: bytes, what: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see `_cipher`

    try:
        return _cipher(event_secret).decrypt(nonce, sealed, what)
    except InvalidTag as error:
        raise ValueError(_DOES_NOT_OPEN) from error


def _cipher(event_secret: bytes) -> "_Cipher":
    # It takes some milliseconds to import, and most logs have nothing sealed.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(event_secret)


def _gcm(event_secret: bytes, tag: bytes | None = None) -> "Cipher[GCM]":
    """Return what seals and opens payloads in pieces."""
    from cryptography.hazmat.primitives.ciphers import Cipher  # noqa: PLC0415 - see `_cipher`
    from cryptography.hazmat.primitives.ciphers.algorithms import AES  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.modes import GCM  # noqa: PLC0415

    return Cipher(AES(event_secret), GCM(_PAYLOAD_NONCE, tag))


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes: ...


_sealed = msgspec.json.Decoder(Sealed)
