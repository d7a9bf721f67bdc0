"""The stand-alone verifier and `turnlog verify-proof` accept the same files, refuse the same, and show the same."""

import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import proof_cases as cases
from tests.cli.command import Command, Outcome
from tests.docs.pages import ROOT
from tests.soak import SOAK

from turnlog.audit import arrivals
from turnlog.audit.checkpoints import Checkpoint, cosign, sign, with_signatures, written_hash
from turnlog.audit.merkle import EMPTY_ROOT, leaf_hash, root
from turnlog.audit.notes import Signer, Verifier
from turnlog.audit.proofs import (
    CONSISTENCY,
    PROOF,
    Proof,
    ProvedEvent,
    check_consistency,
    write_consistency,
    write_proof,
)
from turnlog.digest import payload_hash, sri
from turnlog.errors import ProofError, SigningKeyError, TurnlogError
from turnlog.events import build, private_part
from turnlog.events.form import meta_text
from turnlog.events.sealing import seal_private, sealed_pieces
from turnlog.projections.checkpoints import CHECKPOINTS
from turnlog.projections.tree import TREE
from turnlog.store import SideTables
from turnlog.store.sqlite.schema import side_objects
from turnlog.testing.strategies import json_objects, json_values

_T = TypeVar("_T")

PROGRAM = ROOT / "tools" / "verify_turnlog.py"


class Remembering(Verifier, frozen=True):
    """A key that checks no good signature twice: it takes long, and most edits leave what is signed as it is."""

    def check(self, text: str, value: bytes) -> None:
        """Check a signature."""
        _checked(self, text, value)


@cache
def _checked(key: Remembering, text: str, value: bytes) -> None:
    Verifier.check(key, text, value)


BELIEVED = [Remembering.parse(key) for key in cases.KEYS]


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_turnlog", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STRANGER: Any = _loaded()
STRANGERS_KEYS = [STRANGER.Key(key) for key in cases.KEYS]
for _key in STRANGERS_KEYS:
    _key.check = cache(_key.check)


def _signed(signed: Any) -> dict[str, Any]:
    return {
        "origin": signed.checkpoint.origin,
        "size": signed.checkpoint.size,
        "root": written_hash(signed.checkpoint.root),
        "signed_by": [verifier.name for verifier in signed.signed_by],
        "cosigned_by": [{"name": name, "time_s": time_s} for name, time_s in signed.cosigned_by],
    }


def ours(content: bytes, keys: Iterable[Verifier]) -> dict[str, Any] | str:
    """Return what turnlog says of a file: what `--json` shows, or why it is refused."""
    try:
        text = content.decode()
        if text.startswith(CONSISTENCY + "\n"):
            grown = check_consistency(text, keys)
            origin = grown.old.checkpoint.origin
            return {"holds": True, "origin": origin, "old": _signed(grown.old), "new": _signed(grown.new)}
        _, report = cases.opened(text, keys)
    except UnicodeDecodeError:
        return "not UTF-8"
    except ProofError as error:
        return str(error)
    events = [
        {
            "id": event.id,
            "topic": event.topic,
            "time_ms": event.time_ms,
            "shown": list(event.shown),
            "withheld": event.withheld,
        }
        for event in report.events
    ]
    return {
        "holds": True,
        "checkpoint": _signed(report.signed),
        "index": report.index,
        "events": events,
        "not_shown": list(report.not_shown),
        "guests_possible": report.guests_possible,
    }


def theirs(content: bytes, keys: list[Any]) -> dict[str, Any] | str:
    """Return what the stand-alone verifier says of it."""
    try:
        return STRANGER.as_json(STRANGER.check_file(content, keys)[0])
    except STRANGER.RefusedError as error:
        return str(error)


def agreed(content: str | bytes, keys: Iterable[str] = cases.KEYS) -> dict[str, Any] | None:
    """Check that both say the same of a file. Return what it shows; None if it is refused."""
    content = content if isinstance(content, bytes) else content.encode()
    if keys is cases.KEYS:
        found, strangers = ours(content, BELIEVED), theirs(content, STRANGERS_KEYS)
    else:
        found = ours(content, [Verifier.parse(key) for key in keys])
        strangers = theirs(content, [STRANGER.Key(key) for key in keys])
    if isinstance(found, str) or isinstance(strangers, str):
        assert type(found) is type(strangers), (found, strangers, content[:3000])
        return None
    assert found == strangers
    return found


# ---------------------------------------------------------------------------------------------------- files as they are


def test_good_files_hold_and_show_the_same() -> None:
    """Single events, threads, calls, each kind withheld, growth, many signatures."""
    found = {name: agreed(text) for name, text in cases.good().items()}
    assert [name for name, shown in found.items() if shown is None] == []
    assert {
        part for shown in found.values() if shown for event in shown.get("events", ()) for part in event["shown"]
    } == {*cases.PARTS, "sealed", "sealed payload"}


@pytest.mark.parametrize("number", range(7))
def test_edited_lines(number: int) -> None:
    """Every line removed, doubled, swapped, emptied, cut; none of it holds but what changes nothing."""
    text = cases.small()[number]
    edits = list(cases.edited_lines(text))
    held = [edit for edit in edits if edit != text and agreed(edit) is not None]
    # A signature that was doubled or taken away, and the file with its signatures in another order.
    body = text.rindex("\n\n")
    assert all(edit.startswith(text[:body]) or text.startswith(CONSISTENCY) for edit in held)


@pytest.mark.parametrize("number", range(7))
def test_edited_bytes(number: int) -> None:
    """Every byte changed, removed and doubled, and the file cut there."""
    content = cases.small()[number].encode()
    extra = content.find(b"\nindex ")
    # Of the events, which are long, some bytes.
    edits = list(cases.edited_bytes(content)) if extra < 0 else None
    if edits is None:
        step = max(1, extra // (4000 if SOAK else 100))
        edits = [
            content[:at] + change + content[at + 1 :]
            for at in range(0, extra, step)
            for change in (b"", b"A", b"=", b"\n", b"\xff", bytes([content[at] ^ 1]))
        ]
        edits += [content[:extra] + rest for rest in cases.edited_bytes(content[extra:])]
    for edit in edits:
        agreed(edit)


@pytest.mark.parametrize("name", ["calls", "alone", "withheld", "opened", "sealed", "closed"])
def test_edited_events(name: str) -> None:
    """Events left out, doubled, in another order, with other parts, other fields, and other JSON."""
    texts = {
        "calls": max(
            (text for text in cases.good().values() if text.startswith("c2sp")), key=lambda text: text.count("")
        ),
        "alone": cases.small()[1],
        "withheld": cases.good()["without payload, request"],
        "opened": cases.good()["sealed, without nothing"],
        "sealed": cases.good()["sealed, without secret"],
        "closed": cases.good()["sealed, without a key, thread True"],
    }
    shown = agreed(texts[name])
    assert shown is not None
    for edit in cases.edited_events(texts[name]):
        found = agreed(edit)
        # What holds shows no more than the whole does, and of the same log and place.
        if found is not None:
            assert found["index"] == shown["index"]
            before = {event["id"]: event for event in shown["events"]}
            for event in found["events"]:
                assert set(event["shown"]) <= {*before[event["id"]]["shown"], *_closed(texts[name], event["id"])}


def _closed(text: str, event_id: str) -> set[str]:
    """Return what is left of an event once its secret is not shown."""
    for event in cases.events_of(text):
        if "secret" in event and json.loads(b64decode(event["header"]))["id"] == event_id:
            return {"sealed"}
    return set()


def test_edited_index_and_size() -> None:
    """Another index, another size, and other spellings of both."""
    for text in cases.small()[:3]:
        assert {edit for edit in cases.edited_place(text) if agreed(edit) is not None} == {text}


def test_events_of_one_proof_in_another() -> None:
    """The events, the path, the place and the checkpoint of a proof belong together."""
    texts = [text for text in cases.good().values() if text.startswith(PROOF)]
    texts = [*texts[:9], *texts[-3:]]
    for first in texts:
        for second in texts:
            one, two = first.split("\n"), second.split("\n")
            agreed("\n".join([*one[:1], two[1], *one[2:]]))
            agreed("\n".join([*one[:2], two[2], *one[3:]]))
            agreed("\n".join([*one[:3], *two[3:]]))


# --------------------------------------------------------------------------------------------------------------- keys


KEY_LISTS = {
    "none that signed": [cases.signer(cases.ORIGIN, 9).verifier.vkey],
    "of the same name": [cases.NAMESAKE.verifier.vkey],
    "one of two": [cases.SECOND.verifier.vkey],
    "of a witness alone": [cases.WITNESS.cosigner_verifier.vkey],
    "a witness's as a log's": [cases.WITNESS.verifier.vkey, cases.LOG.verifier.vkey],
    "a log's as a witness's": [cases.LOG.cosigner_verifier.vkey],
    "the same twice": [cases.LOG.verifier.vkey] * 2,
    "none": [],
}


@pytest.mark.parametrize("name", KEY_LISTS)
def test_keys(name: str) -> None:
    """Which keys are believed decides."""
    holds = name in ("one of two", "a witness's as a log's", "the same twice")
    assert (agreed(cases.good()["one event alone"], KEY_LISTS[name]) is not None) == holds
    for text in cases.small():
        agreed(text, KEY_LISTS[name])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "name",
        "a+b+c",
        cases.KEYS[0] + "A",
        cases.KEYS[0][:-1],
        cases.KEYS[0].replace("+", " ", 1),
        cases.KEYS[0].upper(),
        "x" + cases.KEYS[0],
        cases.KEYS[0].replace("example", "ex\u00a0ample"),
        cases.KEYS[0].replace("example", "ex\u00e4mple"),
        cases.STRANGER.skey,
        *cases.KEYS,
    ],
)
def test_key_lines(line: str) -> None:
    """What is a key for one is one for the other."""

    def usable(read: Any, error: type[Exception]) -> bool:
        try:
            read(line)
        except error:
            return False
        return True

    assert usable(Verifier.parse, SigningKeyError) == usable(STRANGER.Key, STRANGER.UnusableError)


# --------------------------------------------------------------------------- what only the holder of the key could make


def test_checkpoints_that_are_none() -> None:
    """Signed texts that are no checkpoints, and signatures that are none."""
    text = cases.small()[0]
    head = text[: text.index("\n\n") + 2]
    size, root = text[len(head) :].split("\n")[1:3]
    bodies = [
        f"{cases.ORIGIN}\n{size}\n{root}\n",
        f"{cases.ORIGIN}\n{size}\n{root}\nmore\n",
        f"{cases.ORIGIN}\n{size}\n{root}\n— more\n",
        f"{cases.ORIGIN}\n{size}\n{root}\n\nmore\n",
        f"\n{cases.ORIGIN}\n{size}\n{root}\n",
        f"\n{size}\n{root}\n",
        f"{cases.ORIGIN}\n0{size}\n{root}\n",
        f"{cases.ORIGIN}\n{size}\n{root[:-1]}\n",
        f"{cases.ORIGIN}\n{size}\n",
        f"{cases.ORIGIN}\n{size}\n{root}\n\x7f\u2028\n",
        f"{cases.ORIGIN}\n{size}\n{root}\n" + "x" * 1_000_000 + "\n",
    ]
    for body in bodies:
        for count in (1, 99, 100, 101):
            signature = f"— {cases.ORIGIN} {_ed25519(cases.LOG, body)}\n"
            agreed(f"{head}{body}\n{signature * count}")
            agreed(f"{head}{body}\n{signature * count}\n")
    assert agreed(f"{head}{bodies[0]}\n— {cases.ORIGIN} {_ed25519(cases.LOG, bodies[0])}\n") is not None


def _ed25519(signer: Signer, body: str) -> str:
    return b64encode(signer.verifier.key_id + signer.private_key.sign(body.encode())).decode()


@pytest.mark.parametrize("time_s", [0, 1, 2**31, 2**53, 2**62, 2**63 - 1])
def test_times_of_witnesses(time_s: int) -> None:
    """Any time that a witness can say is read and shown, also those that no clock shows."""
    text = cases.small()[0]
    head, _, note = text.partition("\n\n")
    body = note[: note.rindex("\n\n") + 1]
    value = time_s.to_bytes(8) + cases.WITNESS.private_key.sign(f"cosignature/v1\ntime {time_s}\n{body}".encode())
    line = f"— {cases.WITNESS.name} {b64encode(cases.WITNESS.cosigner_verifier.key_id + value).decode()}"
    content = f"{head}\n\n{with_signatures(note, [line])}".encode()
    shown = agreed(content)
    assert shown is not None
    assert shown["checkpoint"]["cosigned_by"] == [{"name": cases.WITNESS.name, "time_s": time_s}]
    lines = list(
        STRANGER.report_lines(
            STRANGER.check_file(f"{head}\n\n{with_signatures(note, [line])}".encode(), STRANGERS_KEYS)[0]
        )
    )
    assert any(line.startswith("  witnessed by witness.example/w  ") for line in lines)
    for short in (b"", value[:7], value[:8], value[:-1], value + b"x", bytes([0xFF]) + value[1:]):
        line = f"— {cases.WITNESS.name} {b64encode(cases.WITNESS.cosigner_verifier.key_id + short).decode()}"
        assert agreed(f"{head}\n\n{note}{line}\n") is None


def test_growth_that_is_none() -> None:
    """Growth backwards, of another log, of the empty tree, and from other roots."""

    def note(size: int, root: bytes, origin: str = cases.ORIGIN) -> str:
        return sign(Checkpoint(origin, size, root), cases.LOG)

    empty, other = note(0, EMPTY_ROOT), note(0, b"x" * 32)
    one, two = note(1, b"1" * 32), note(2, b"2" * 32)
    assert agreed(write_consistency(empty, one, [])) is not None
    assert agreed(write_consistency(empty, empty, [])) is not None
    assert agreed(write_consistency(one, one, [])) is not None
    assert agreed(write_consistency(one, cosigned(one), [])) is not None
    for old, new, hashes in [
        (other, one, []),
        (empty, other, []),
        (empty, one, [b"x" * 32]),
        (one, empty, []),
        (two, one, [b"x" * 32]),
        (one, two, []),
        (one, two, [b"x" * 32]),
        (one, note(1, b"2" * 32), []),
        (one, note(1, b"1" * 32, "another"), []),
        (one, one, [b"x" * 32]),
        (one, two, [b"x" * 32] * 63),
        (one, two, [b"x" * 32] * 64),
        (note(2**63 - 2, b"1" * 32), note(2**63 - 1, b"1" * 32), [b"x" * 32] * 63),
    ]:
        assert agreed(write_consistency(old, new, hashes)) is None


def cosigned(note: str) -> str:
    return with_signatures(note, [cosign(note[: note.rindex("\n\n") + 1], cases.WITNESS, cases.TIME_S)])


# -------------------------------------------------------------------------------------- random edits by the key's owner


ID = "03fr9cxksbd0ufbbn4sb2e5pj"
HEADER = {
    "citations": [{"as": "parent", "digest": payload_hash(b""), "id": ID}],
    "format": 2,
    "id": ID,
    "meta": {"role": "user"},
    "position": 0,
    "private": None,
    "stream": ID,
    "time": 1_773_599_999_000,
    "topic": "gpt.call",
}
PAYLOAD, REQUEST = b"payload", b"request"
PRIVATE = {
    "hash": payload_hash(PAYLOAD),
    "meta": {"request": {"hash": payload_hash(REQUEST), "size": len(REQUEST)}},
    "salt": b64encode(bytes(16)).decode(),
    "size": len(PAYLOAD),
}
NUMBERS = (0, 1, -1, 2, 2**53 - 1, 2**53, 2**63, 2**64, 10**30, 0.0, 1.0, -0.0, 2.0, 1e16, 1e22)
IDS = (ID, ID.upper(), "f5lxx1zz5pnorynqglhzmsp33", "f5lxx1zz5pnorynqglhzmsp34", "0" * 25, "\u0660" * 25)
ODD = json_values() | st.sampled_from([*NUMBERS, *IDS, True, None, "", {}, []])
NAMES = st.sampled_from([*HEADER, *PRIVATE, "as", "digest", "more"])
EDITS = st.lists(st.tuples(NAMES, st.sampled_from("sdn"), ODD), max_size=3)


def edited(record: dict[str, Any], edits: list[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return a record with fields set, deleted, or set in what it has one level down."""
    made = dict(record)
    for name, how, value in edits:
        if how == "d":
            made.pop(name, None)
        elif how == "s":
            made[name] = value
        else:
            for key, inner in made.items():
                if isinstance(inner, dict):
                    made[key] = {**inner, name: value}
                elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
                    made[key] = [{**inner[0], name: value}, *inner]
    return made


def canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


SPELLINGS = {
    "canonical": canonical,
    "with blanks": lambda value: json.dumps(value, sort_keys=True).encode(),
    "of Python": lambda value: json.dumps(value, sort_keys=True, separators=(",", ":")).encode(),
    "unsorted": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(),
}


@given(EDITS, EDITS, st.sampled_from([*SPELLINGS]), st.sampled_from([*SPELLINGS]))
@example([], [], "canonical", "canonical")
@example([("meta", "s", {"a": 1e16, "b": 1e-7, "c": -0.0, "d": 100.0, "e": 2**64})], [], "canonical", "canonical")
@example([("meta", "s", {"\x7f": '\u2028\x1f"\\/\U0001f600'})], [], "canonical", "canonical")
@example([("time", "s", 2**53 - 1)], [], "canonical", "canonical")
def test_random_events(header_edits: Any, private_edits: Any, header_spelling: str, private_spelling: str) -> None:
    """Headers and private parts that only the owner of the key could have signed."""
    private = SPELLINGS[private_spelling](edited(PRIVATE, private_edits))
    made = edited({**HEADER, "private": sri(sha256(private).digest())}, header_edits)
    header = SPELLINGS[header_spelling](made)
    for parts in ({}, {"private": private}, {"private": private, "payload": PAYLOAD, "request": REQUEST}):
        shown = agreed(cases.signed_event(header, **parts))
        if not header_edits and not private_edits and header_spelling == private_spelling == "canonical":
            assert shown is not None


SECRET = sha256(b"secret").digest()
SEALED_PAYLOAD = b"".join(sealed_pieces(SECRET, [b"\x00", PAYLOAD]))
SEALED = {
    "form": "sealed-1",
    "hash": payload_hash(SEALED_PAYLOAD),
    "key": "k" * 22,
    "nonce": b64encode(bytes(16)).decode(),
    "sealed": "",
    "secret_hash": sri(sha256(SECRET).digest()),
    "size": len(SEALED_PAYLOAD),
    "tags": {"head": "t" * 22},
}
SEALED_ODD = ODD | st.sampled_from(
    [
        SEALED["hash"],
        SEALED["nonce"],
        PRIVATE["salt"],
        b64encode(bytes(15)).decode(),
        "AAAAAAAAAAAAAAAAAAAAAB==",
        "k" * 22,
    ]
)
SEALED_EDITS = st.lists(
    st.tuples(st.sampled_from([*SEALED, "form2", "more"]), st.sampled_from("sdn"), SEALED_ODD), max_size=2
)
PLAIN_EDITS = st.lists(st.tuples(st.sampled_from([*PRIVATE, "more"]), st.sampled_from("sdn"), ODD), max_size=2)


@pytest.mark.timeout(1200)
@given(SEALED_EDITS, PLAIN_EDITS, st.sampled_from([*SPELLINGS]), st.sampled_from([*SPELLINGS]), st.booleans())
@example([], [], "canonical", "canonical", False)
@example(
    [("nonce", "s", "AAAAAAAAAAAAAAAAAAAAAB=="), ("more", "s", SEALED["nonce"])], [], "canonical", "canonical", False
)
@example(
    [], [("salt", "s", "AAAAAAAAAAAAAAAAAAAAAB=="), ("more", "s", PRIVATE["salt"])], "canonical", "canonical", False
)
@example([("hash", "s", "")], [], "canonical", "canonical", False)
@example([("size", "s", 16)], [], "canonical", "canonical", False)
@example([("tags", "s", {})], [], "canonical", "canonical", False)
@example([("hash", "s", None), ("size", "s", None)], [], "canonical", "canonical", False)
@example([], [("hash", "s", None), ("size", "s", None)], "canonical", "canonical", False)
@example([], [("form", "s", "sealed-1")], "canonical", "canonical", False)
@example([("form", "s", "sealed-2")], [], "canonical", "canonical", False)
@example([], [], "canonical", "canonical", True)
def test_random_sealed_events(
    sealed_edits: Any, private_edits: Any, sealed_spelling: str, private_spelling: str, is_short: bool
) -> None:
    """Sealed private parts, and what is sealed in them, that only the owner of the key could have signed."""
    secret = SECRET[:16] if is_short else SECRET
    plain = SPELLINGS[private_spelling](edited(PRIVATE, private_edits))
    whole = {**SEALED, "sealed": b64encode(seal_private(secret, plain)).decode()}
    whole["secret_hash"] = sri(sha256(secret).digest())
    private = SPELLINGS[sealed_spelling](edited(whole, sealed_edits))
    header = canonical({**HEADER, "private": sri(sha256(private).digest())})
    holds: list[bool] = []
    for parts in (
        {},
        {"private": private},
        {"private": private, "payload": SEALED_PAYLOAD},
        {"private": private, "secret": secret},
        {"private": private, "secret": secret, "payload": PAYLOAD},
        {"private": private, "secret": secret, "payload": PAYLOAD, "request": REQUEST},
        {"private": private, "secret": secret, "payload": SEALED_PAYLOAD},
        {"private": private, "payload": PAYLOAD},
        {"private": private, "request": REQUEST},
        {"private": private, "secret": bytes(32)},
        {"private": private, "secret": b""},
        {"secret": secret},
        {"private": canonical(PRIVATE), "secret": secret},
    ):
        holds.append(agreed(cases.signed_event(header, **parts)) is not None)
    if not sealed_edits and not private_edits and sealed_spelling == private_spelling == "canonical":
        assert holds == [True] * 3 + [not is_short] * 3 + [False] * 7


def test_what_is_no_sealed_part_is_refused() -> None:
    """Forms that are not known, a payload that is not the one, and what does not open."""
    for private in (b'{"form":"sealed"}', b'{"form":"sealed-1",}', b'{"form":"sealed-2","hash":null}', b"[]", b""):
        header = canonical({**HEADER, "private": sri(sha256(private).digest())})
        assert agreed(cases.signed_event(header, private=private)) is None
    changed = bytearray(seal_private(SECRET, canonical(PRIVATE)))
    changed[3] ^= 1
    private = canonical({**SEALED, "sealed": b64encode(changed).decode()})
    header = canonical({**HEADER, "private": sri(sha256(private).digest())})
    assert agreed(cases.signed_event(header, private=private)) is not None
    assert agreed(cases.signed_event(header, private=private, secret=SECRET)) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"time":1773599999000', b'"time":1773599999000.0'),
        (b'"time":1773599999000', b'"time":1773599999e3'),
        (b'"position":0', b'"position":-0'),
        (b'"position":0', b'"position":00'),
        (b'"position":0', b'"position":0,"position":0'),
        (b'"meta":{', b'"meta":{"a":NaN,'),
        (b'"meta":{', b'"meta":{"a":1e400,'),
        (b'"meta":{', b'"meta":{"a":Infinity,'),
        (b'"meta":{', b'"meta":{"a":1E5,'),
        (b'"meta":{', b'"meta":{"a":100000.0,'),
        (b'"meta":{', b'"meta":{"a":1e5,'),
        (b'"meta":{', b'"meta":{"a":1e16,'),
        (b'"meta":{', b'"meta":{"a":0.10,'),
        (b'"meta":{', b'"meta":{"a":"\\u0041",'),
        (b'"meta":{', b'"meta":{"a":"\\u001f",'),
        (b'"meta":{', b'"meta":{"a":"\\u001F",'),
        (b'"meta":{', b'"meta":{"a":"\\/",'),
        (b'"meta":{', b'"meta":{"a":"\\ud800",'),
        (b'"meta":{', b'"meta":{"a":"\\ud83d\\ude00",'),
        (b'"meta":{', b'"meta":{"a":"\x7f",'),
        (b'"meta":{', b'"meta":{"a":"\xff",'),
        (b'"meta":{', b'"meta":{"a":' + b"9" * 4300 + b","),
        (b'"meta":{', b'"meta":{"a":' + b"9" * 4301 + b","),
        (b'"meta":{', b'"meta":{"a":' + b"[" * 200 + b"]" * 200 + b","),
        (b'"meta":{', b'"meta":{"a":' + b"[" * 50_000 + b"]" * 50_000 + b","),
        (b'"meta":{', b'"meta":{"s":1,'),
        (b"{", b" {"),
        (b'"topic":', b'"topic" :'),
        (b"}", b"}\n"),
    ],
)
def test_spellings(old: bytes, new: bytes) -> None:
    """The same value in other spellings, and what is hardly JSON."""
    header = canonical(HEADER)
    assert old in header
    agreed(cases.signed_event(header.replace(old, new, 1)))
    private = canonical({**PRIVATE, "meta": {"a": HEADER}}).replace(old, new, 1)
    agreed(cases.signed_event(canonical({**HEADER, "private": sri(sha256(private).digest())}), private=private))


def _from_deep(levels: int, run: Callable[[], _T]) -> _T:
    """Call a function with so many frames between."""
    return run() if not levels else _from_deep(levels - 1, run)


def _nested_in(part: dict[str, Any], levels: int, bracket: bytes) -> bytes:
    """Return a part that is nested so deeply. Brackets within a text do not count."""
    opened, closed = (b"[", b"]") if bracket == b"[" else (b'{"a":', b"}")
    inner = opened * (levels - 2) + b'"[{\\"[{"' + closed * (levels - 2)
    return canonical({**part, "meta": {"a": "HERE"}}).replace(b'"HERE"', inner)


@pytest.mark.parametrize("frames", [0, 300, 600])
@pytest.mark.parametrize("bracket", [b"[", b"{"])
@pytest.mark.parametrize(("levels", "holds"), [(128, True), (129, False), (980, False)])
def test_depth_has_one_limit(levels: int, holds: bool, bracket: bytes, frames: int) -> None:
    """Of a header and of a private part, opened or not, and however much of the stack is left."""
    header = cases.signed_event(_nested_in(HEADER, levels, bracket))
    private = _nested_in(PRIVATE, levels, bracket)
    both = cases.signed_event(canonical({**HEADER, "private": sri(sha256(private).digest())}), private=private)
    for text in (header, both):
        assert (_from_deep(frames, lambda text=text: agreed(text)) is not None) is holds


def _least_room(bottom: int) -> int:
    """Return how far from the end of the stack three calls fit: what Python itself takes of it differs."""

    def fits(room: int) -> bool:
        try:
            _from_deep(bottom - room + 3, bool)
        except RecursionError:
            return False
        return True

    return next(filter(fits, range(1, 100)))


def test_without_room_nothing_is_said() -> None:
    """A file is not refused because whoever checks it has no stack left: it could not be checked."""
    text = cases.signed_event(_nested_in(HEADER, 128, b"[")).encode()
    bottom = sys.getrecursionlimit() - len(inspect.stack(0))
    with pytest.raises(TurnlogError, match="no room on the stack"):
        _from_deep(bottom - 120, lambda: cases.opened(text.decode(), BELIEVED))
    told: list[str] = []
    for room in range(_least_room(bottom), 300):
        try:
            _from_deep(bottom - room, lambda: STRANGER.check_file(text, STRANGERS_KEYS))
        except STRANGER.UnusableError as error:
            assert "no room on the stack" in str(error)  # noqa: PT017 - how much room it takes is Python's to say
            told.append("no room")
        else:
            told.append("holds")
    rooms = told.count("no room")
    assert 0 < rooms < len(told)
    assert told == ["no room"] * rooms + ["holds"] * (len(told) - rooms)


@pytest.mark.parametrize(
    "extensions",
    [
        pair
        for exact in ((), ("1 0\n",), ("1 1\n",), ("1 1\n2 0\n",), ("1 2\n",), ("1 0\n", "1 0\n"))
        for guests in ((), ("1 0\n",), ("1 1\n",), ("1 0\n", "1 0\n"))
        for pair in [
            (
                *(f"{arrivals.ARRIVALS}{payload_hash(runs.encode())}" for runs in exact),
                *(f"{arrivals.GUESTS}{payload_hash(runs.encode())}" for runs in guests),
            )
        ]
    ],
)
def test_lines_of_arrivals_are_read_alike(extensions: tuple[str, ...]) -> None:
    """Both tell the same of guests."""
    event = canonical(HEADER)
    head = cases.signed_event(event).partition("\n\n")[0]
    note = sign(Checkpoint(cases.ORIGIN, 1, leaf_hash(event), extensions), cases.LOG)
    assert agreed(f"{head}\n\n{note}") is not None


@given(json_objects(), json_objects())
def test_recorded_metadata_holds(public: dict[str, Any], private: dict[str, Any]) -> None:
    """Whatever metadata an event can be recorded with, its proof holds."""
    part = private_part(private, hash=payload_hash(PAYLOAD), size=len(PAYLOAD), salt=bytes(16))
    event = build(topic="acme.review", id=ID, time=1, meta=meta_text(public), private=part)
    assert event.private_state is not None
    assert agreed(cases.signed_event(event.state, private=event.private_state, payload=PAYLOAD)) is not None


@given(st.data())
def test_random_edits_of_files(data: st.DataObject) -> None:
    """Bytes replaced anywhere, and pieces moved, doubled and taken from other files."""
    texts = [text.encode() for text in cases.small()]
    content = data.draw(st.sampled_from(texts))
    for _ in range(data.draw(st.integers(1, 3))):
        first, last = sorted(data.draw(st.tuples(st.integers(0, len(content)), st.integers(0, len(content)))))
        other = data.draw(st.sampled_from(texts))
        start = data.draw(st.integers(0, len(other)))
        pieces = [b"", b"\n", b"\n\n", b" ", b"=", b"\xe2\x80\x94 ", content[first:last] * 2, other[start : start + 40]]
        piece = data.draw(st.sampled_from(pieces) | st.binary(max_size=5))
        content = content[:first] + piece + content[min(last, first + 60) :]
    agreed(content)


@given(st.data())
def test_random_edits_of_the_events(data: st.DataObject) -> None:
    """Bytes of the JSON and of the parts replaced, and written in base64 again."""
    small = cases.small()
    text = data.draw(st.sampled_from([*small[:3], *small[5:]]))
    events = cases.events_of(text)
    event = data.draw(st.sampled_from(events))
    name = data.draw(st.sampled_from(sorted(event)))
    content = bytearray(b64decode(event[name]))
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    event[name] = b64encode(content).decode()
    agreed(cases.with_events(text, events))


# ------------------------------------------------------------------------------------- the page on the log format


def page_texts(after: str) -> list[str]:
    """Return the text blocks of the page's section under a heading."""
    text = (ROOT / "docs" / "reference" / "log-format.md").read_text(encoding="utf-8")
    section = text[text.index(f"\n{after}\n") :]
    return re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_page_shows_a_checkpoint_and_its_growth() -> None:
    """They are of the page's own example, and hold with the key that it names."""
    example = [text.replace("\n", "").encode() for text in page_texts("### An example")[:3]]
    leaves = [leaf_hash(header) for header in example[:2]]
    note, head, growth = page_texts("## Checkpoints")[:3]
    extensions = arrivals.lines([(1, 0)], 2)
    assert note == sign(Checkpoint(cases.ORIGIN, 2, root(leaves), extensions), cases.LOG)
    shown = agreed(growth)
    assert shown is not None
    assert (shown["old"]["size"], shown["new"]["size"]) == (1, 2)
    event = ProvedEvent(header=example[1], private=example[2])
    proof = write_proof(Proof(index=1, hashes=(leaves[0],), note=note, events=(event,)))
    assert agreed(proof) is not None
    for line, expected in zip(proof.split("\n"), head.split("\n"), strict=False):
        assert line.startswith(expected.removesuffix("…"))
    page = (ROOT / "docs" / "reference" / "log-format.md").read_text(encoding="utf-8")
    assert f"`{cases.LOG.verifier.vkey}`" in page


@pytest.mark.parametrize("side", [TREE, CHECKPOINTS], ids=lambda side: side.name)
def test_page_has_the_statements_of_side_tables(side: SideTables) -> None:
    """Word for word, as SQLite has them."""
    page = (ROOT / "docs" / "reference" / "log-format.md").read_text(encoding="utf-8")
    for _, _, _, statement in side_objects(side).values():
        assert f"\n{statement};\n" in page


# ------------------------------------------------------------------------------------------------------- the programs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the keys, and a few files."""
    (tmp_path / "keys.txt").write_text("# who we believe\n\n" + "\n".join(cases.KEYS) + "\n")
    for number, text in enumerate(cases.small()):
        (tmp_path / f"good-{number}").write_text(text)
        (tmp_path / f"bad-{number}").write_text(text.replace(cases.ORIGIN, "example.org/log", 1))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "no-keys.txt").write_text("# none\n")
    (tmp_path / "bad-keys.txt").write_text("a+b+c\n")
    return tmp_path


def run_alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a stranger would: nothing of turnlog can be imported."""
    code = (
        f"import runpy, sys; sys.modules['turnlog'] = None; sys.argv = {['verify', *arguments]!r}; "
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-sE", "-c", code], cwd=folder, capture_output=True, text=True, check=False)


def test_program_ends_quietly_where_its_reader_leaves(folder: Path) -> None:
    """As in `… | head`: by the signal that says so, and without a traceback."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), "good-0", "--key", "keys.txt"],
            cwd=folder,
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def run_turnlog(folder: Path, *arguments: str) -> Outcome:
    return Command(store=folder / "log.db", folder=folder)("verify-proof", *arguments)


@pytest.mark.parametrize(
    ("name", "keys", "status"),
    [
        *((f"good-{number}", "keys.txt", 0) for number in range(7)),
        *((f"bad-{number}", "keys.txt", 1) for number in range(2)),
        ("empty", "keys.txt", 1),
        ("bytes", "keys.txt", 1),
        ("missing", "keys.txt", 2),
        ("good-0", "no-keys.txt", 2),
        ("good-0", "bad-keys.txt", 2),
        ("good-0", "missing", 2),
    ],
)
def test_programs_print_the_same(folder: Path, name: str, keys: str, status: int) -> None:
    """Exit status, lines for people and JSON for programs are the same; what is refused is said in one line."""
    for more in ([], ["--json"]):
        alone = run_alone(folder, name, "--key", keys, *more)
        own = run_turnlog(folder, name, "--key", keys, *more)
        assert (alone.returncode, own.status) == (status, status), (alone, own)
        if status == 0:
            assert (alone.stderr, own.stderr) == ("", "")
            said = own.text.removesuffix("  --show prints what they say\n")
            assert alone.stdout == said if not more else json.loads(alone.stdout) == json.loads(own.text)
        else:
            assert (alone.stderr.count("\n"), own.stderr.count("\n")) == (1, 1)
            if more and status == 1:
                assert (json.loads(alone.stdout)["holds"], json.loads(own.text)["holds"]) == (False, False)
            else:
                assert (alone.stdout, own.text) == ("", "")


def test_program_takes_the_bytes_out(folder: Path) -> None:
    """`--extract` writes what the proof shows, byte for byte, and into no folder that is there."""
    assert run_alone(folder, "good-2", "--key", "keys.txt", "--extract", "out").returncode == 0
    written = {path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
    assert written == {b64decode(value) for event in cases.events_of(cases.small()[2]) for value in event.values()}
    assert run_alone(folder, "good-2", "--key", "keys.txt", "--extract", "out").returncode == 2
    assert run_alone(folder, "bad-2", "--key", "keys.txt", "--extract", "other").returncode == 1
    assert not (folder / "other").exists()
