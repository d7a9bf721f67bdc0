"""Sealed events that were changed: verification names them, with keys and without, and what is read is never wrong."""

import base64
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.faults import hostile
from tests.rewriting import position, rewrite
from tests.sealed_log import SealsInMemory

from turnlog import TurnLog
from turnlog.digest import sri
from turnlog.errors import CorruptionError, SealedError
from turnlog.events.sealing import seal_private, short
from turnlog.model import content_bytes

INLINE, OTHER, FILE, OTHER_FILE, LAST = (letter * 25 for letter in "abcde")
TEXTS = {
    INLINE: "inline",
    OTHER: "others",
    FILE: "".join(sha256(b"%d" % number).hexdigest() for number in range(4000)),
    OTHER_FILE: "".join(sha256(b"-%d" % number).hexdigest() for number in range(4000)),
    LAST: "the last",
}

_encoder = msgspec.json.Encoder(order="sorted")


@pytest.fixture
def seals() -> SealsInMemory:
    """Give keys."""
    return SealsInMemory()


@pytest.fixture
def path(tmp_path: Path, seals: SealsInMemory) -> Path:
    """Give a sealed store, in which each turn is continued by the next one."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        log.seal()
        for turn, text in TEXTS.items():
            log.add_turn(text, id=turn, bookmark="main", subject="Ada", **({} if turn == INLINE else {"respond": True}))
        assert log.stats().file_count == 2
        assert log.verify().clean
    return path


def columns(path: Path, event_id: str) -> tuple[bytes, bytes, bytes]:
    """Return the header, the private part and what is kept of the payload of an event."""
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT state, private, payload FROM stored_events WHERE event_id = ?"
        [found] = connection.execute(statement, (event_id,))
    return found


def put(path: Path, event_id: str, column: str, value: bytes) -> None:
    """Put something else into a column."""
    with hostile.opened(path) as connection:
        connection.execute(f"UPDATE stored_events SET {column} = ? WHERE event_id = ?", (value, event_id))


def flipped(content: bytes, at: int) -> bytes:
    """Return bytes with one changed."""
    at %= len(content)
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def change_part(**fields: Callable[[Any], Any]) -> Callable[[Path, str], None]:
    """Return what changes fields of a sealed private part, and nothing else."""

    def change(path: Path, event_id: str) -> None:
        part = msgspec.json.decode(columns(path, event_id)[1])
        assert part["form"] == "sealed-1"
        changed = part | {field: make(part[field]) for field, make in fields.items()}
        assert changed != part
        put(path, event_id, "private", _encoder.encode(changed))

    return change


def in_base64(change: Callable[[bytes], bytes]) -> Callable[[str], str]:
    """Return what changes the bytes of a text in base64."""
    return lambda text: base64.b64encode(change(base64.b64decode(text))).decode()


def of_other(field: str) -> Callable[[Path, str], None]:
    """Return what takes a field of the private part of another event."""

    def change(path: Path, event_id: str) -> None:
        value = msgspec.json.decode(columns(path, OTHER)[1])[field]
        change_part(**{field: lambda _: value})(path, event_id)

    return change


def swap(column: str) -> Callable[[Path, str], None]:
    """Return what swaps something with that of another event."""

    def change(path: Path, event_id: str) -> None:
        index = ("state", "private", "payload").index(column)
        one, other = columns(path, event_id)[index], columns(path, OTHER)[index]
        put(path, event_id, column, other)
        put(path, OTHER, column, one)

    return change


def swap_files(path: Path, event_id: str) -> None:
    """Swap the payload files of two events."""
    one, other = (hostile.payload_file(path, position(path, turn)) for turn in (event_id, OTHER_FILE))
    content = one.read_bytes()
    for file in (one, other):
        file.chmod(0o600)
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def flip_file(at: int) -> Callable[[Path, str], None]:
    """Return what changes a byte of a payload file."""

    def change(path: Path, event_id: str) -> None:
        file = hostile.payload_file(path, position(path, event_id))
        file.chmod(0o600)
        file.write_bytes(flipped(file.read_bytes(), at))

    return change


DAMAGE: dict[str, tuple[str, Callable[[Path, str], None]]] = {
    "a sealed byte": (INLINE, change_part(sealed=in_base64(lambda sealed: flipped(sealed, 5)))),
    "a byte of the tag behind it": (INLINE, change_part(sealed=in_base64(lambda sealed: flipped(sealed, -1)))),
    "less of it": (INLINE, change_part(sealed=in_base64(lambda sealed: sealed[:-1]))),
    "nothing of it": (INLINE, change_part(sealed=lambda _: "")),
    "the nonce": (INLINE, change_part(nonce=in_base64(lambda nonce: flipped(nonce, 0)))),
    "the key": (INLINE, change_part(key=lambda key: short(key.encode()))),
    "the key of somebody else": (INLINE, change_part(key=lambda _: SealsInMemory().make("Bob").id)),
    "a tag": (INLINE, change_part(tags=lambda tags: {"head": short(tags["head"].encode())})),
    "no tag": (INLINE, change_part(tags=lambda _: {})),
    "the hash of the secret": (INLINE, change_part(secret_hash=lambda _: sri(bytes(32)))),
    "the hash of the payload": (INLINE, change_part(hash=lambda _: sri(bytes(32)))),
    "the size of the payload": (INLINE, change_part(size=lambda size: size + 1)),
    "the form": (INLINE, change_part(form=lambda _: "sealed-2")),
    "the private part of another event": (INLINE, swap("private")),
    "what is sealed in another event": (INLINE, of_other("sealed")),
    "the nonce of another event": (INLINE, of_other("nonce")),
    "a byte of the payload": (
        INLINE,
        lambda path, turn: put(path, turn, "payload", flipped(columns(path, turn)[2], 3)),
    ),
    "less of the payload": (INLINE, lambda path, turn: put(path, turn, "payload", columns(path, turn)[2][:-1])),
    "the payload of another event": (INLINE, swap("payload")),
    "the first byte of a file": (FILE, flip_file(0)),
    "a byte of a file": (FILE, flip_file(70_000)),
    "the last byte of a file": (FILE, flip_file(-1)),
    "the file of another event": (FILE, swap_files),
}


def _check_reading(path: Path, seals: SealsInMemory | None) -> list[str]:
    """Read all in every way, and return the turns that were refused as damaged. What is given is right."""
    damaged: list[str] = []
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        for turn, text in TEXTS.items():
            try:
                assert log.payload(turn) == content_bytes(text)
            except SealedError:
                assert seals is None or "key" in str(log.event(turn).private_state)
            except CorruptionError:
                damaged.append(turn)
        with suppress(CorruptionError):
            for message in log.context(LAST).messages:
                assert message.erased or message.content_json == content_bytes(TEXTS[message.turn])
    return damaged


@pytest.mark.parametrize("with_keys", [True, False])
@pytest.mark.parametrize("case", DAMAGE)
def test_changed_byte_is_found(path: Path, seals: SealsInMemory, case: str, *, with_keys: bool) -> None:
    """By itself it does not fit what the header commits to, whoever looks."""
    turn, change = DAMAGE[case]
    change(path, turn)
    with TurnLog.open(f"sqlite:///{path}", seals=seals if with_keys else None) as log:
        assert turn in {damage.event_id for damage in log.verify().damage}
    damaged = _check_reading(path, seals if with_keys else None)
    assert turn in damaged or not with_keys


def _reseal(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Return what seals another private part with the right key, as only who has it can."""

    def reseal(part: dict[str, Any]) -> None:
        key = SealsInMemory().make("Ada")
        secret = key.event_secret(base64.b64decode(part["nonce"]))
        plain = {
            "hash": sri(sha256(b"x").digest()),
            "meta": {},
            "salt": base64.b64encode(bytes(16)).decode(),
            "size": 1,
        }
        change(plain)
        part["sealed"] = base64.b64encode(seal_private(secret, _encoder.encode(plain))).decode()

    return reseal


def _set(**fields: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    return lambda part: part.update({field: make(part[field]) for field, make in fields.items()})


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "a sealed byte": _set(sealed=in_base64(lambda sealed: flipped(sealed, 5))),
    "the nonce": _set(nonce=in_base64(lambda nonce: flipped(nonce, 0))),
    "a nonce that is too short": _set(nonce=lambda _: ""),
    "the hash of the secret": _set(secret_hash=lambda _: sri(bytes(32))),
    "a hash of the secret that is none": _set(secret_hash=lambda _: "x"),
    "the key of somebody else": _set(key=lambda _: SealsInMemory().make(None).id),
    "a key that is none": _set(key=lambda _: "../../x"),
    "a tag that is none": _set(tags=lambda _: {"head": "main"}),
    "nothing sealed": _set(sealed=lambda _: ""),
    "no payload": _set(hash=lambda _: None, size=lambda _: None),
    "another payload": _reseal(lambda _: None),
    "no payload in it": _reseal(lambda plain: (plain.pop("hash"), plain.pop("size"))),
    "a public field": _reseal(lambda plain: plain.update(meta={"role": "system"})),
    "no private part": _reseal(dict.clear),
    "a salt that is too short": _reseal(lambda plain: plain.update(salt="")),
    "a negative size": _reseal(lambda plain: plain.update(size=-1)),
    "a size of 64 GiB": _reseal(lambda plain: plain.update(size=1 << 36)),
}


NOT_READ = ("a key that is none", "a tag that is none")
"""What does not matter to who reads a payload: without its key it is closed, and it is found without tags."""


@pytest.mark.parametrize("case", FORGED)
def test_forged_event_that_is_consistent_in_itself_is_found(path: Path, seals: SealsInMemory, case: str) -> None:
    """Its header fits what was put there. Who has the keys sees that it does not open, or what it says is not so.

    Without the keys the events that cite it tell.
    """
    rewrite(path, OTHER, private=FORGED[case])
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        assert OTHER in {damage.event_id for damage in log.verify().damage}
    assert (OTHER in _check_reading(path, seals)) == (case not in NOT_READ)
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert {OTHER, FILE} & {damage.event_id for damage in log.verify().damage}
    _check_reading(path, None)


@pytest.mark.parametrize("case", FORGED)
def test_forged_last_event_is_found_with_keys(path: Path, seals: SealsInMemory, case: str) -> None:
    """Nothing cites it: its key is all that tells."""
    rewrite(path, LAST, private=FORGED[case])
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        assert {damage.event_id for damage in log.verify().damage} - {None} == {LAST}
    assert _check_reading(path, seals) == ([] if case in NOT_READ else [LAST])


@pytest.mark.parametrize("content_bytes_max", [None, 10])
def test_payload_of_a_forged_event_does_not_open(
    path: Path, seals: SealsInMemory, monkeypatch: pytest.MonkeyPatch, content_bytes_max: int | None
) -> None:
    """Hash and size fit the bytes that are there, and these are not what was sealed. However large it is."""
    if content_bytes_max is not None:
        monkeypatch.setattr("turnlog.store.payloads.CONTENT_BYTES_MAX", content_bytes_max)
    rewrite(path, LAST, payload=b"plain text in the place of sealed bytes")
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        assert {damage.event_id for damage in log.verify().damage} == {LAST}
        with pytest.raises(CorruptionError, match="does not open"):
            log.payload(LAST)


def test_missing_file_is_found_without_keys(path: Path, seals: SealsInMemory) -> None:
    """As that of a plain event."""
    hostile.payload_file(path, position(path, FILE)).unlink()
    for keys in (seals, None):
        with TurnLog.open(f"sqlite:///{path}", seals=keys) as log:
            assert {damage.event_id for damage in log.verify().damage} == {FILE}
