"""Proof files to try verifiers on: good ones of logs that have one of everything, plain and sealed, and edits."""

import io
import itertools
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests import sealed_log
from tests.golden import generate

from turnlog import TurnLog
from turnlog.audit.checkpoints import Checkpoint, cosign, sign, with_signatures
from turnlog.audit.merkle import consistency_proof, leaf_hash, root
from turnlog.audit.notes import Signer, Verifier
from turnlog.audit.proofs import EXTRA, PROOF, Proof, ProofReport, open_parts, write_consistency, write_proof
from turnlog.events import Recorded
from turnlog.projections import synchronous
from turnlog.store import open_store

ORIGIN = "example.com/log"
TIME_S = 1_773_600_000
PARTS = ("private", "payload", "request", "loss")


def signer(name: str, seed: int) -> Signer:
    """Return a key that is always the same."""
    return Signer(name=name, private_key=Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


LOG, SECOND, STRANGER = signer(ORIGIN, 1), signer("example.com/second", 2), signer("example.com/stranger", 3)
NAMESAKE = signer(ORIGIN, 4)
WITNESS = signer("witness.example/w", 5)
KEYS = (LOG.verifier.vkey, SECOND.verifier.vkey, WITNESS.cosigner_verifier.vkey)
"""The keys that are believed."""


def opened(text: str, keys: Iterable[Verifier]) -> tuple[Proof, ProofReport]:
    """Read the text of a proof file and check it, and return all of it, and what it proves."""
    parts, report = open_parts(io.BytesIO(text.encode(errors="surrogatepass")), keys)
    return parts.whole(), report


def all_signed(note: str) -> str:
    """Return a note with the signatures of another key, of a stranger and of a witness below."""
    text = note[: note.rindex("\n\n") + 1]
    lines = [
        SECOND.sign(text),
        STRANGER.sign(text),
        cosign(text, WITNESS, TIME_S),
        cosign(text, WITNESS, TIME_S + 5),
        LOG.sign(text),
    ]
    return with_signatures(note, lines)


@cache
def good() -> dict[str, str]:
    """Return good proof files by what they are of."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        generate.fill(path)
        store = open_store(f"sqlite:///{path}", projections=synchronous())
        with TurnLog(store) as log, store.read() as transaction:
            found = dict(_good(log, list(transaction.log())))
        return found | dict(_sealed(Path(folder) / "sealed.db"))


def _good(log: TurnLog, events: list[Recorded]) -> Iterator[tuple[str, str]]:
    note = log.audit.checkpoint(LOG, origin=ORIGIN).note
    heads = [bookmark.turn for bookmark in log.bookmarks.all()]
    asked = heads[0]
    for head in heads:
        for thread, calls in itertools.product((False, True), repeat=2):
            proof = log.audit.prove(head, note=note, thread=thread, calls=calls)
            yield f"{head}, thread {thread}, calls {calls}", write_proof(proof)
            if len(proof.events) > 5:
                asked = head
    for count in range(1, len(PARTS) + 1):
        for withheld in itertools.combinations(PARTS, count):
            proof = log.audit.prove(
                asked, note=note, thread=True, calls=True, withheld=lambda _, those=frozenset(withheld): those
            )
            yield f"without {', '.join(withheld)}", write_proof(proof)
    leaves = [recorded.leaf_hash for recorded in events]
    for recorded in events:
        yield (
            f"event {recorded.global_position}",
            write_proof(log.audit.prove(recorded.header.id, note=note, calls=True)),
        )
    yield "one event alone", write_proof(log.audit.prove(asked, note=all_signed(note), withheld=_all_but_every_other()))
    for size in range(len(leaves) + 1):
        old = sign(Checkpoint(ORIGIN, size, root(leaves[:size])), LOG)
        new = sign(Checkpoint(ORIGIN, len(leaves), root(leaves), ("an extension",)), SECOND)
        if size % 3 == 0:
            old, new = all_signed(old), all_signed(new)
        yield f"growth from {size}", write_consistency(old, new, consistency_proof(size, leaves))


def _sealed(path: Path) -> Iterator[tuple[str, str]]:
    """Yield proofs of a sealed log: opened, left sealed, in parts, and after a key is gone."""
    seals = sealed_log.SealsInMemory()
    sealed_log.fill(path, seals)
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        note = log.audit.checkpoint(LOG, origin=ORIGIN).note
        events = list(log.events())
        for withheld in (("secret",), ("secret", "payload"), ("payload",), ("request",), ("private",), ()):
            proof = log.audit.prove(
                "both", note=note, thread=True, calls=True, withheld=lambda _, those=frozenset(withheld): those
            )
            yield f"sealed, without {', '.join(withheld) or 'nothing'}", write_proof(proof)
        for recorded in events:
            proof = log.audit.prove(recorded.header.id, note=note, calls=True)
            yield f"sealed event {recorded.global_position}", write_proof(proof)
        seals.destroy("Ada")
        for thread in (False, True):
            proof = log.audit.prove("both", note=note, thread=thread, calls=True)
            yield f"sealed, without a key, thread {thread}", write_proof(proof)
        closed = next(recorded for recorded in events if recorded.sealed is not None)
        yield "sealed event that is closed", write_proof(log.audit.prove(closed.header.id, note=note))


def _all_but_every_other():
    odd = itertools.cycle([frozenset[str](), frozenset({"private"})])

    def withheld(_: Recorded) -> frozenset[str]:
        return next(odd)

    return withheld


def small() -> list[str]:
    """Return a few small proof files, one of each kind."""
    by_size = sorted(good().values(), key=len)
    proofs = [text for text in by_size if text.startswith(PROOF)]
    growth = [text for text in by_size if not text.startswith(PROOF)]
    signed = next(text for name, text in good().items() if name == "one event alone")
    calls = next(
        text for text in proofs if "request" in json.dumps(events_of(text)) and "secret" not in events_of(text)[0]
    )
    opened = next(text for text in proofs if {"secret", "payload"} <= events_of(text)[0].keys())
    grown = good()["growth from 3"]
    return [proofs[0], signed, calls, growth[0], grown, opened, good()["sealed event that is closed"]]


def events_of(text: str) -> list[dict[str, str]]:
    """Return the events of a proof file, each part in base64."""
    return json.loads(b64decode(text.split("\n")[1].removeprefix("extra ")))["events"]


def with_extra(text: str, extra: bytes) -> str:
    """Return a proof file with other bytes as its `extra`."""
    lines = text.split("\n")
    lines[1] = f"extra {b64encode(extra).decode()}"
    return "\n".join(lines)


def spelled(events: Any, **more: Any) -> bytes:
    """Return events as they are spelled in a proof."""
    value = {"events": events, "format": EXTRA, **more}
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def with_events(text: str, events: Any, **more: Any) -> str:
    """Return a proof file with other events."""
    return with_extra(text, spelled(events, **more))


def signed_event(header: bytes, **parts: bytes) -> str:
    """Return the proof of an event that is alone in its log: whatever its bytes are, tree and signature are right."""
    event = {name: b64encode(value).decode() for name, value in {"header": header, **parts}.items()}
    note = sign(Checkpoint(ORIGIN, 1, root([leaf_hash(header)])), LOG)
    return with_events(f"{PROOF}\nextra \nindex 0\n\n{note}", [event])


def edited_lines(text: str) -> Iterator[str]:
    """Yield a file with each line removed, doubled, empty, swapped with the next, and what stands before and after."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        yield "\n".join(lines[:at] + lines[at + 1 :])
        yield "\n".join([*lines[:at], line, *lines[at:]])
        yield "\n".join([*lines[:at], "", *lines[at:]])
        yield "\n".join([*lines[:at], "another line", *lines[at:]])
        yield "\n".join([*lines[:at], *lines[at + 1 : at + 2], line, *lines[at + 2 :]])
        yield "\n".join(lines[:at])
        yield "\n".join(lines[at:])
        for changed in (f" {line}", f"{line} ", f"{line}\r", f"{line}=", line[1:], line[:-1], line.swapcase()):
            yield "\n".join([*lines[:at], changed, *lines[at + 1 :]])


def edited_bytes(content: bytes) -> Iterator[bytes]:
    """Yield a file with each byte changed to one of another class, removed, or doubled, and cut there."""
    classes = itertools.cycle(
        [b"\x00", b"\t", b"\n", b" ", b"+", b"/", b"=", b"0", b"A", b"z", b"\x7f", b"\x80", b"\xff"]
    )
    for at in range(len(content)):
        before, after = content[:at], content[at + 1 :]
        yield before + next(classes) + after
        if at % 3 == 0:
            yield before + bytes([content[at] ^ 1]) + after
            yield before + after
        if at % 9 == 0:
            yield content[: at + 1] + content[at:]
            yield before


def edited_events(text: str) -> Iterator[str]:
    """Yield a proof file with each event left out, and some edited as somebody who wants to be believed would."""
    events = events_of(text)
    last = len(events) - 1
    step = max(1, len(events) // 5)
    for at, event in enumerate(events):
        others = [*events[:at], *events[at + 1 :]]
        yield with_events(text, others)
        if at % step:
            continue
        yield with_events(text, [*events, event])
        yield with_events(text, [event, *others])
        for name, value in event.items():
            rest = {key: part for key, part in event.items() if key != name}
            yield with_events(text, [*events[:at], rest, *events[at + 1 :]])
            for changed in (
                "",
                value + "=",
                value.rstrip("="),
                "AAAA" + value,
                b64encode(b64decode(value) + b" ").decode(),
                b64encode(b64decode(value)[:-1]).decode(),
                b64encode(bytes([b64decode(value)[0] ^ 1]) + b64decode(value)[1:] if value else b"x").decode(),
                events[last - at].get(name, ""),
                None,
                5,
                [value],
            ):
                yield with_events(text, [*events[:at], {**event, name: changed}, *events[at + 1 :]])
        for name in ("payload", "request", "loss", "secret", "note", "Header", ""):
            if name not in event:
                yield with_events(text, [*events[:at], {**event, name: ""}, *events[at + 1 :]])
                yield with_events(text, [*events[:at], {**event, name: event["header"]}, *events[at + 1 :]])
    for made in (
        spelled([]),
        spelled(None),
        spelled({}),
        spelled([None]),
        spelled([{}]),
        spelled(events, more=1),
        spelled(events, format="turnlog-proof-2"),
        spelled(events, format=None),
        json.dumps({"events": events}, separators=(",", ":")).encode(),
        json.dumps({"format": EXTRA, "events": events}, separators=(",", ":")).encode(),
        json.dumps({"events": events, "format": EXTRA}).encode(),
        spelled(events).replace(b'"events":', b'"events":[],"events":', 1),
        spelled(events).replace(b'"header":', b'"header":"","header":', 1),
        spelled(events).replace(b"turnlog", rb"\u0074urnlog"),
        spelled(events).replace(b"==", rb"=\u003d"),
        spelled(events).replace(b"/", rb"\/"),
        spelled(events) + b"\n",
        b" " + spelled(events),
        b"\xef\xbb\xbf" + spelled(events),
        spelled(events) + b"\x00",
        spelled(events)[:-1],
        b"[" * 100_000,
        b"null",
        b"",
        b"\xff",
    ):
        yield with_extra(text, made)


def edited_place(text: str) -> Iterator[str]:
    """Yield a proof file with another index, and another size in its checkpoint, which keeps its signature."""
    lines = text.split("\n")
    note = lines.index("") + 1
    for at, prefix in ((2, "index "), (note + 1, "")):
        value = int(lines[at].removeprefix("index "))
        for changed in (
            *range(max(0, value - 3), value + 4),
            value * 2,
            -1,
            f"0{value}",
            f"+{value}",
            f"{value}.0",
            f"{value}\u0660",
            2**63 - 1,
            2**63,
            "9" * 19,
            "9" * 5000,
            "",
        ):
            yield "\n".join([*lines[:at], f"{prefix}{changed}", *lines[at + 1 :]])
