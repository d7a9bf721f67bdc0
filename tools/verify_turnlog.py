#!/usr/bin/env python3
"""Check proofs of turnlog logs, without turnlog. It needs Python 3.9 or later and the package `cryptography`.

    python verify_turnlog.py FILE --key KEYS [--json] [--extract FOLDER] [--compare FOLDER]

FILE is what `turnlog prove` wrote. KEYS is a text file with the keys that you believe, one vkey a line, which you got
from somewhere else than FILE. Exit status 0: it holds, and what it shows is printed. 1: it does not hold, and one line
says why. 2: it could not be checked. `--extract` writes the bytes that it shows into a new folder; `--compare` checks
that the files of a folder, as `turnlog evidence` makes it, are these bytes, and says what else is in the folder.

What a proof says: the key's owner has signed a checkpoint of a log, which is its size and the root of a Merkle tree
over the headers of all its events (RFC 6962). A path of hashes leads from the first event of the proof to that root.
Each further event is cited by one before it, by its id and by the digest of its header. A header has the hash of its
event's private part, this one that of the payload, and a call's private part also those of the exact request and of
the loss report. So nothing that a proof shows can be changed. What is withheld is simply not there. A private part can
be sealed (AES-256-GCM). Then the proof shows the secret that opens it, whose hash it has, or only the sealed bytes.

The formats are those of docs/reference/log-format.md, of C2SP signed-note, tlog-checkpoint, tlog-cosignature and
tlog-proof. All is spelled in one way only, and anything else is refused, so that no two readers read it differently.
"""

import argparse
import base64
import hashlib
import json
import math
import os
import re
import signal
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PROOF = "c2sp.org/tlog-proof@v1"
CONSISTENCY = "turnlog-consistency-proof@v1"
EVENTS = "turnlog-proof-1"
PARTS = ("header", "loss", "payload", "private", "request", "secret")

FILE_BYTES_MAX = 1 << 30
PART_BYTES_MAX = 16 << 20
DEPTH_MAX = 128
KEY_FILE_BYTES_MAX = 256 << 20
NOTE_BYTES_MAX = 1_000_000
SIGNATURES_MAX = 100
HASHES_MAX = 63
SIZE_MAX = 2**63 - 1
TIME_MS_MAX = 2**53 - 1
LAST_ID = "f5lxx1zz5pnorynqglhzmsp33"

OF_A_LOG, OF_A_WITNESS = 1, 4
"""Kinds of keys. Both are Ed25519; what a witness signs begins with the time at which it does."""


class RefusedError(Exception):
    """The proof does not hold."""


class UnusableError(Exception):
    """There is nothing to check, or nothing to check it with."""


def require(condition, why):
    if not condition:
        raise RefusedError(why)


# -------------------------------------------------------------------------------------------------- hashes and numbers


def sha256(data):
    return hashlib.sha256(data).digest()


def written(digest):
    """Return a hash as headers and private parts write it."""
    return "sha256-" + base64.b64encode(digest).decode()


def from_base64(text, what):
    """Return the bytes behind base64 that is written in the one way that it should be."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise RefusedError(f"{what} is not base64") from None
    spelled = base64.b64encode(data)
    same = spelled == text if isinstance(text, bytes) else spelled.decode() == text
    require(same, f"{what} is not base64 as it should be written")
    return data


def read_hash(text):
    digest = from_base64(text, "a hash")
    require(len(digest) == 32, "a hash is not 32 bytes")
    return digest


def read_size(text):
    require(re.fullmatch("0|[1-9][0-9]{0,18}", text), "a number is not written as it should be")
    require(int(text) <= SIZE_MAX, "a number is too large")
    return int(text)


# ---------------------------------------------------------------------------------------- the Merkle tree, RFC 6962 §2


def node_hash(left, right):
    return sha256(b"\x01" + left + right)


def subtree_ends(size):
    """Return how many leaves the left subtree of a tree has: the largest power of two that is less than its size."""
    return 1 << (size - 1).bit_length() - 1


def root_from_inclusion(leaf, index, size, path):
    """Return the root that a path leads to from a leaf (RFC 6962 §2.1.1). The path is from the leaf upwards."""
    if size == 1:
        require(not path, "the inclusion proof has too many hashes")
        return leaf
    require(path, "the inclusion proof has too few hashes")
    middle = subtree_ends(size)
    if index < middle:
        return node_hash(root_from_inclusion(leaf, index, middle, path[:-1]), path[-1])
    return node_hash(path[-1], root_from_inclusion(leaf, index - middle, size - middle, path[:-1]))


def check_inclusion(leaf, index, size, path, root):
    require(index < size, f"a log of {size} events has none at index {index}")
    require(root_from_inclusion(leaf, index, size, path) == root, "the inclusion proof leads to another root")


def roots_from_consistency(old_size, new_size, path, old_root, whole):
    """Return the old and the new root of a subtree that a path leads to (RFC 6962 §2.1.2).

    `whole`: the subtree begins where the tree does. Only then can it be the old tree itself, whose root is known.
    """
    if old_size == new_size:
        if whole:
            require(not path, "the consistency proof has too many hashes")
            return old_root, old_root
        require(len(path) == 1, "the consistency proof has another number of hashes than it needs")
        return path[0], path[0]
    require(path, "the consistency proof has too few hashes")
    middle = subtree_ends(new_size)
    if old_size <= middle:
        old, new = roots_from_consistency(old_size, middle, path[:-1], old_root, whole)
        return old, node_hash(new, path[-1])
    old, new = roots_from_consistency(old_size - middle, new_size - middle, path[:-1], old_root, False)
    return node_hash(path[-1], old), node_hash(path[-1], new)


def check_growth(old, new, path):
    """Check that the tree of a checkpoint has grown into that of another."""
    require(old["size"] <= new["size"], f"a log of {old['size']} events cannot have grown into one of {new['size']}")
    if old["size"] == 0:
        require(not path, "the consistency proof has too many hashes")
        require(old["root"] == sha256(b""), "the root of the empty tree is another one")
        require(new["size"] or new["root"] == old["root"], "trees of the same size have different roots")
        return
    roots = roots_from_consistency(old["size"], new["size"], path, old["root"], True)
    require(roots == (old["root"], new["root"]), "the consistency proof leads to other roots")


# --------------------------------------------------------------------------------------- signed notes and checkpoints


def is_name(name):
    return bool(name) and not re.search(r"[\s+\x00-\x1f\ud800-\udfff]", name)


class Key:
    """A public key that somebody believes: `NAME+KEY ID+BASE64 of kind and key`."""

    def __init__(self, line):
        parts = line.split("+", 2)
        try:
            formed = len(parts) == 3 and re.fullmatch("[0-9a-f]{8}", parts[1])
            require(formed, "it is not of the form NAME+KEYID+BASE64")
            require(is_name(parts[0]), "it has no name as keys have")
            data = from_base64(parts[2], "its last part")
            require(len(data) == 33 and data[0] in (OF_A_LOG, OF_A_WITNESS), "it is no key of a kind that is known")
            self.name, self.id = parts[0], bytes.fromhex(parts[1])
            require(self.id == sha256(self.name.encode() + b"\n" + data)[:4], "its key id does not fit")
        except RefusedError as error:
            raise UnusableError(f"a key cannot be used: {error}") from None
        self.line, self.kind, self.public = line, data[0], Ed25519PublicKey.from_public_bytes(data[1:])

    def check(self, text, signature):
        """Check a signature over the text of a note. Return the time of a witness's, in seconds; else None."""
        time_s, message = None, text
        if self.kind == OF_A_WITNESS:
            time_s, signature = int.from_bytes(signature[:8], "big"), signature[8:]
            require(time_s <= SIZE_MAX, "a cosignature is malformed")
            message = f"cosignature/v1\ntime {time_s}\n{text}"
        try:
            self.public.verify(signature, message.encode())
        except InvalidSignature:
            raise RefusedError(f"the signature of {self.name!r} is not of this text and its key") from None
        return time_s


def check_note_text(text):
    require(len(text) <= NOTE_BYTES_MAX, f"a note has more than {NOTE_BYTES_MAX:,} bytes")
    require(len(text.encode(errors="replace")) <= NOTE_BYTES_MAX, f"a note has more than {NOTE_BYTES_MAX:,} bytes")
    require(not re.search(r"[\x00-\x09\x0b-\x1f]", text), "a note has control characters")


def read_signature(line):
    name, _, encoded = line[2:].partition(" ")
    data = from_base64(encoded, "a signature")
    require(line.startswith("\u2014 ") and is_name(name) and len(data) > 4, "a signature line is malformed")
    return name, data[:4], data[4:]


def read_checkpoint(text):
    lines = text.split("\n")[:-1]
    require(len(lines) >= 3 and all(lines), "a checkpoint has three lines or more: origin, size, root")
    return {"origin": lines[0], "size": read_size(lines[1]), "root": read_hash(lines[2]), "extensions": lines[3:]}


def open_checkpoint(note, keys):
    """Return a signed checkpoint. A key that is believed must have signed it; signatures of others are ignored."""
    check_note_text(note)
    body, blank, signatures = note.rpartition("\n\n")
    require(blank and signatures.endswith("\n"), "a signed note is a text, an empty line, and signature lines")
    lines = signatures.split("\n")[:-1]
    require(len(lines) <= SIGNATURES_MAX, f"a note has more than {SIGNATURES_MAX} signatures")
    text = body + "\n"
    found = [read_signature(line) for line in lines]
    checkpoint = read_checkpoint(text)
    signed_by, cosigned_by = {}, {}
    for name, key_id, value in found:
        named = [key for key in keys if (key.name, key.id) == (name, key_id)]
        if named:
            key, time_s = signer_among(named, text, value)
            if key.kind == OF_A_LOG:
                signed_by[key.line] = key
            else:
                cosigned_by[key.line] = (key.name, max(time_s, cosigned_by.get(key.line, ("", 0))[1]))
    require(signed_by or cosigned_by, "no key that is known here has signed the note")
    require(signed_by, "witnesses have signed the checkpoint, and no key of the log that is known here")
    return {**checkpoint, "signed_by": list(signed_by.values()), "cosigned_by": list(cosigned_by.values())}


def signer_among(keys, text, value):
    """Return which of the keys of one name and id a signature is of, and its time. There is one, nearly always."""
    why = None
    for key in keys:
        try:
            return key, key.check(text, value)
        except RefusedError as error:
            why = why or error
    raise why


# --------------------------------------------------------------------------------------------- JSON in its one spelling


BRACKETS = re.compile(rb'[\[{]+|[\]}]+|"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""Brackets, and strings, in which brackets are none."""


def depth_of(data):
    """Return how deep JSON is nested. It is counted, not read: reading may need more of the stack than there is."""
    depth = deepest = 0
    for found in BRACKETS.finditer(data):
        kind, count = found[0][:1], len(found[0])
        depth += count if kind in b"[{" else -count if kind in b"]}" else 0
        deepest = max(deepest, depth)
    return deepest


STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def spelled_double(value):
    """Return the one spelling of a number that has a point or an exponent."""
    if value == 0:
        return repr(value)
    # repr has the fewest digits that read back as the same double; where it puts the point is Python's own taste.
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + exponent
    if -4 <= point <= 16:
        text = "0" * (1 - point) + text + "0" * (point + 1 - len(text))
        point = max(point, 1)
        text = f"{text[:point]}.{text[point:]}"
    else:
        text = text[0] + ("." + text[1:] if text[1:] else "") + f"e{point - 1}"
    return "-" * sign + text


def read_json(data, what):
    """Return the value of JSON, which must be spelled as logs spell it: no blanks, sorted keys, plain strings."""
    misspelled = f"{what} is not spelled as it should be"
    require(depth_of(data) <= DEPTH_MAX, f"{what} is nested deeper than {DEPTH_MAX} levels")

    def number(text):
        value = float(text)
        require(math.isfinite(value) and spelled_double(value) == text, misspelled)
        return value

    def integer(text):
        require(text != "-0", misspelled)
        return int(text)

    def record(pairs):
        names = [name for name, _ in pairs]
        require(all(first < second for first, second in zip(names, names[1:])), misspelled)
        return dict(pairs)

    def constant(_):
        raise RefusedError(misspelled)

    try:
        text = data.decode()
        value = json.loads(
            text, parse_float=number, parse_int=integer, parse_constant=constant, object_pairs_hook=record
        )
        for string in STRING.findall(text):
            require(json.dumps(json.loads(string), ensure_ascii=False).encode() == string.encode(), misspelled)
    except ValueError as error:
        raise RefusedError(f"{what} cannot be read: {error}") from None
    require(not re.search(r"\s", STRING.sub("", text)), misspelled)
    return value


def is_text(value):
    return isinstance(value, str)


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_id(value):
    return is_text(value) and re.fullmatch("[0-9a-z]{25}", value) is not None and value <= LAST_ID


def is_short(value):
    """Tell whether a value is the id of a key, or a tag: 16 bytes in base64 for URLs."""
    return is_text(value) and re.fullmatch("[0-9A-Za-z_-]{22}", value) is not None


def is_hash(value):
    """Tell whether a value is a hash as it should be written."""
    return is_text(value) and re.fullmatch("sha256-[0-9A-Za-z+/]{42}[048AEIMQUYcgkosw]=", value) is not None


# ---------------------------------------------------------------------------------------------------------- the events


def read_header(data):
    header = read_json(data, "a header")
    require(isinstance(header, dict), "a header is no object")
    get = header.get
    require(is_integer(get("format")) and get("format") == 2, "an event is of another format than 2")
    require(is_id(get("id")) and is_id(get("stream")), "an event has no id or no stream")
    require(is_text(get("topic")), "an event has no topic")
    require(is_integer(get("time")) and 0 <= get("time") <= TIME_MS_MAX, "an event has no time")
    require(is_integer(get("position")) and get("position") >= 0, "an event has no position")
    require((get("position") == 0) == (get("stream") == get("id")), "the position of an event does not fit its stream")
    require("private" in header and (get("private") is None or is_text(get("private"))), "a header lacks `private`")
    require(isinstance(get("meta"), dict), "the metadata of a header is no object")
    citations = get("citations")
    require(isinstance(citations, list), "a header has no list of citations")
    for one in citations:
        named = isinstance(one, dict) and all(is_text(one.get(name)) for name in ("as", "digest", "id"))
        require(named, "a citation is not as it should be")
    require(len({(one["as"], one["id"]) for one in citations}) == len(citations), "an event is cited twice as the same")
    return header


def check_private_hash(data, header):
    require(header["private"] == written(sha256(data)), "a private part is not the one that its header commits to")


def read_private(data):
    require(data.startswith(b'{"hash":'), "a private part has a form that is not known here")
    private = read_json(data, "a private part")
    require("hash" in private and "size" in private and is_text(private.get("salt")), "a private part lacks a field")
    require(len(from_base64(private["salt"], "a salt")) == 16, "a salt is not 16 bytes")
    hash_, size, meta = private["hash"], private["size"], private.get("meta", {})
    require(hash_ is None or is_text(hash_), "the hash of a payload is none")
    require(size is None or (is_integer(size) and size >= 0), "the size of a payload is none")
    require((hash_ is None) == (size is None), "a private part lacks the hash or the size of its payload")
    require(isinstance(meta, dict), "the metadata of a private part is no object")
    require("meta" not in private or meta, "a private part has metadata that is empty")
    require(hash_ is not None or meta, "a private part says nothing")
    return private


def read_sealed(data):
    """Return a private part in sealed form: `hash` and `size` are those of the sealed payload."""
    sealed = read_json(data, "a sealed private part")
    get = sealed.get
    require("hash" in sealed and "size" in sealed, "a sealed private part lacks a field")
    require(
        all(is_text(get(name)) for name in ("key", "nonce", "sealed", "secret_hash")), "a sealed part lacks a field"
    )
    keys = get("key").split("+")
    require(all(map(is_short, keys)) and keys == sorted(set(keys)), "the id of a key is none")
    require(len(from_base64(get("nonce"), "a nonce")) == 16, "a nonce is not 16 bytes")
    require(len(from_base64(get("sealed"), "what is sealed")) > 16, "nothing is sealed in a private part")
    require(is_hash(get("secret_hash")), "the hash of a secret is none")
    require(get("hash") is None or is_hash(get("hash")), "the hash of a sealed payload is none")
    require(get("size") is None or (is_integer(get("size")) and get("size") > 16), "the size of a payload is none")
    require((get("hash") is None) == (get("size") is None), "a sealed part lacks the hash or the size of its payload")
    tags = get("tags", {})
    require(isinstance(tags, dict) and all(map(is_short, tags.values())), "a sealed part has a tag that is none")
    return sealed


def open_sealed(sealed, secret):
    """Return the private part that was sealed. What opens it opens it in one way only: its hash is known."""
    require(len(secret) == 32 and written(sha256(secret)) == sealed["secret_hash"], "a secret is not that of its event")
    try:
        data = AESGCM(secret).decrypt(bytes(12), base64.b64decode(sealed["sealed"]), b"private part")
    except InvalidTag:
        raise RefusedError("what is sealed does not open with its secret") from None
    private = read_private(data)
    same = (private["hash"] is None) == (sealed["hash"] is None)
    require(same, "a sealed private part does not tell of its payload what it shows")
    return private


def read_reference(header, meta, name):
    """Return hash and size of the request or the loss report of a call."""
    found = {}
    if header["topic"] == "gpt.call":
        for field in ("request", "loss"):
            value = meta.get(field)
            ok = isinstance(value, dict) and is_text(value.get("hash")) and is_integer(value.get("size"))
            require(value is None or ok, f"a call does not say what its {field} is")
            found[field] = value
    require(found.get(name), f"an event says nothing of a {name}, and one is shown")
    return found[name]["hash"], found[name]["size"]


def check_event(parts, header):
    """Check what is shown of an event against its header. Return the names of what is shown."""
    if "private" not in parts:
        require(parts.keys() == {"header"}, "what is shown of an event needs its private part, which is not shown")
        return []
    check_private_hash(parts["private"], header)
    is_open, is_sealed = "secret" in parts, parts["private"].startswith(b'{"form":"sealed-1",')
    require(is_sealed or not is_open, "a secret is shown of what is not sealed")
    private = read_sealed(parts["private"]) if is_sealed else read_private(parts["private"])
    if is_open:
        private = open_sealed(private, parts["secret"])
    closed = is_sealed and not is_open
    shown = ["sealed" if closed else "private"]
    for name in ("payload", "request", "loss"):
        if name in parts:
            if name == "payload":
                hash_, size = private["hash"], private["size"]
            else:
                require(not closed, "what is shown of a sealed event needs its secret, which is not shown")
                hash_, size = read_reference(header, private.get("meta", {}), name)
            same = (written(sha256(parts[name])), len(parts[name])) == (hash_, size)
            require(same, f"the {name} of event {header['id']!r} is not the one that was recorded")
            shown.append("sealed payload" if closed else name)
    return shown


def check_events(events, check_first):
    """Check events against each other. Return what is shown of each, and their parts.

    `check_first` is given the leaf hash of the first. No event is read before it is known to be in the tree or cited:
    so a file that does not hold cannot take more time and memory than its size allows.
    """
    found, kept, cited, digests, seen = [], [], set(), set(), {}
    for parts in events:
        leaf = sha256(b"\x00" + parts["header"])
        digest = written(leaf)
        if not found:
            check_first(leaf)
        else:
            require(digest in digests, f"event {len(found) + 1} is cited by none before it")
        header = read_header(parts["header"])
        shown = check_event(parts, header)
        if found:
            require((header["id"], digest) in cited, f"event {header['id']!r} is cited by none before it")
        require(header["id"] not in seen, f"event {header['id']!r} stands in the proof twice")
        seen[header["id"]] = [one["id"] for one in header["citations"]]
        cited.update((one["id"], one["digest"]) for one in header["citations"])
        digests.update(one["digest"] for one in header["citations"])
        found.append(
            {
                "id": header["id"],
                "topic": header["topic"],
                "time_ms": header["time"],
                "shown": shown,
                "withheld": not shown and header["private"] is not None,
            }
        )
        kept.append(parts)
    not_shown = dict.fromkeys(one for ids in seen.values() for one in ids if one not in seen)
    return found, kept, list(not_shown)


# ----------------------------------------------------------------------------------------------------------- the files


VALUE = rb'"([A-Za-z0-9+/=]*)"'
EVENT = re.compile(
    rb'\{"header":' + VALUE + b"".join(rb'(?:,"%b":%b)?' % (name.encode(), VALUE) for name in PARTS[1:]) + rb"\}"
)
BEFORE, BEHIND = b'{"events":[', b'],"format":"turnlog-proof-1"}'
CHUNK = 4 << 20


def read_events(text):
    """Yield the events of a line `extra`, one at a time. They are JSON in its one spelling, and no other is taken."""
    pieces = []
    for start in range(len("extra "), len(text), CHUNK):
        chunk = text[start : start + CHUNK]
        pieces.append(from_base64(chunk, "the events of the proof"))
        is_last = start + CHUNK >= len(text)
        require(is_last or len(pieces[-1]) * 4 == len(chunk) * 3, "the events of the proof are not base64")
    data = b"".join(pieces)
    del pieces
    misspelled = "the events are of a form that is not known here, or not spelled as they should be"
    require(data.startswith(BEFORE) and data.endswith(BEHIND), misspelled)
    at, end = len(BEFORE), len(data) - len(BEHIND)
    while True:
        found = EVENT.match(data, at, max(at, end))
        require(found, misspelled)
        parts = {name: value for name, value in zip(PARTS, found.groups()) if value is not None}
        for name in ("header", "private"):
            small = len(parts.get(name, b"")) <= PART_BYTES_MAX // 3 * 4 + 4
            require(small, f"a header or a private part has more than {PART_BYTES_MAX:,} bytes")
        yield {name: from_base64(value, "a part of an event") for name, value in parts.items()}
        at = found.end()
        if at == end:
            return
        require(data[at : at + 1] == b",", misspelled)
        at += 1


def read_hashes(lines):
    require(len(lines) <= HASHES_MAX, f"a proof has at most {HASHES_MAX} hashes")
    return [read_hash(line) for line in lines]


def check_proof(text, keys):
    """Check an inclusion proof. Return what it shows, and the parts of its events."""
    first, *lines = text.split("\n", 2)
    require(first == PROOF, f"it is no proof: the first line is not {PROOF!r}")
    extra, rest = lines if len(lines) == 2 else ("", "")
    head, blank, note = rest.partition("\n\n")
    index, *path = head.split("\n", HASHES_MAX + 2)
    complete = blank and extra.startswith("extra ") and index.startswith("index ")
    require(complete, "the proof lacks its events, its index or its checkpoint")
    index, path = read_size(index[len("index ") :]), read_hashes(path)
    checkpoint = open_checkpoint(note, keys)
    extensions = checkpoint.pop("extensions")

    def check_first(leaf):
        check_inclusion(leaf, index, checkpoint["size"], path, checkpoint["root"])

    shown, events, not_shown = check_events(read_events(extra), check_first)
    report = {"holds": True, "checkpoint": checkpoint, "index": index, "events": shown, "not_shown": not_shown}
    return {**report, "guests_possible": not is_of_one_log(extensions)}, events


def is_of_one_log(extensions):
    """Tell whether a checkpoint says that each event was recorded in its log, or came back to it from an export."""
    kinds = ("turnlog-arrivals ", "turnlog-guests ")
    exact, guests = ([line[len(kind) :] for line in extensions if line.startswith(kind)] for kind in kinds)
    if len(exact) != 1 or len(guests) > 1:
        return False
    recorded, restored = (written(sha256(runs)) for runs in (b"1 0\n", b"1 1\n"))
    return guests == [recorded] if guests else exact[0] in (recorded, restored)


def check_consistency(text, keys):
    """Check that a log has only grown from one checkpoint to another. Return both."""
    head, *notes = text.split("\n\n", 5)
    require(len(notes) == 4, "a consistency proof has two checkpoints, with empty lines between all")
    path = read_hashes(head.split("\n", HASHES_MAX + 2)[1:])
    old = open_checkpoint(f"{notes[0]}\n\n{notes[1]}\n", keys)
    new = open_checkpoint(f"{notes[2]}\n\n{notes[3]}", keys)
    require(old["origin"] == new["origin"], "the checkpoints are of different logs")
    check_growth(old, new, path)
    del old["extensions"], new["extensions"]
    return {"holds": True, "origin": old["origin"], "old": old, "new": new}


def check_file(content, keys):
    """Check the bytes of a file of either kind. Return what it shows, and the parts of its events."""
    try:
        return checked_file(content, keys)
    except RecursionError:
        raise UnusableError("there is no room on the stack to check it") from None


def checked_file(content, keys):
    require(len(content) <= FILE_BYTES_MAX, f"a proof has at most {FILE_BYTES_MAX:,} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RefusedError("it is not UTF-8, and so no proof") from None
    if text.startswith(CONSISTENCY + "\n"):
        return check_consistency(text, keys), []
    return check_proof(text, keys)


def read_keys(paths):
    keys = []
    for path in paths:
        content = read_file(path, KEY_FILE_BYTES_MAX)
        try:
            lines = [line.strip() for line in content.decode().splitlines()]
        except UnicodeDecodeError:
            raise UnusableError(f"{str(path)!r} is not UTF-8") from None
        found = [Key(line) for line in lines if line and not line.startswith("#")]
        if len(content) > KEY_FILE_BYTES_MAX or not found:
            raise UnusableError(f"{str(path)!r} has no key")
        keys += found
    return keys


def read_file(path, bytes_max):
    with path.open("rb") as file:
        return file.read(bytes_max + 1)


# --------------------------------------------------------------------------------------------------- what is printed


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text):
    """Return text on one line that cannot command a terminal."""
    text = CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return re.sub(r"[\t\n ]+", " ", text).strip()


def stamp(ms):
    if ms == 0:
        return "-"
    time = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=min(ms, 253_402_300_799_999))
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def signers(checkpoint):
    for key in checkpoint["signed_by"]:
        yield f"  signed by {printable(key.name)}  {key.id.hex()}"
    for name, time_s in checkpoint["cosigned_by"]:
        yield f"  witnessed by {printable(name)}  {stamp(time_s * 1000)}"


GUESTS = "events of other logs can be among them: the time of such a one is what that log said"


def report_lines(report):
    """Yield what a file shows, for people."""
    if "old" in report:
        old, new = report["old"], report["new"]
        origin = printable(report["origin"])
        yield f"it holds  {origin} has only grown, from {old['size']:,} to {new['size']:,} events"
        yield from signers(new)
        return
    checkpoint, events = report["checkpoint"], report["events"]
    count = f"{len(events):,} event" + "s" * (len(events) != 1)
    place = f"the first at global position {report['index'] + 1} of {checkpoint['size']:,}"
    yield f"it holds  {count} of {printable(checkpoint['origin'])}, {place}"
    yield from signers(checkpoint)
    topics = max(len(printable(event["topic"])) for event in events)
    times = max(len(stamp(event["time_ms"])) for event in events)
    for event in events:
        what = ", ".join(event["shown"]) or "header"
        what += "; private part withheld or erased" * event["withheld"]
        topic = printable(event["topic"])
        yield f"  {event['id']}  {stamp(event['time_ms']):<{times}}  {topic:<{topics}}  {what}"
    missing = len(report["not_shown"])
    if missing:
        yield f"  {missing:,} cited event" + ("s are" if missing > 1 else " is") + " not shown"
    if report["guests_possible"]:
        yield "  " + GUESTS


def as_json(value):
    if isinstance(value, dict):
        fields = {"origin", "size", "root", "signed_by", "cosigned_by"}
        if fields == value.keys():
            return {
                **value,
                "root": base64.b64encode(value["root"]).decode(),
                "signed_by": [key.name for key in value["signed_by"]],
                "cosigned_by": [{"name": name, "time_s": time_s} for name, time_s in value["cosigned_by"]],
            }
        return {name: as_json(one) for name, one in value.items()}
    return value


# -------------------------------------------------------------------------------------------------- what is taken out


def file_name(header, parts, part):
    """Return the place of a part of an event in a folder, as `turnlog evidence` has it."""
    topic, event_id = header["topic"], header["id"]
    if part in ("header", "private"):
        return f"events/{event_id}.{part}.json"
    if part == "secret":
        return f"events/{event_id}.secret"
    if part == "request":
        return f"requests/{event_id}.json"
    if part == "loss":
        return f"requests/{event_id}.loss.txt"
    if parts["private"].startswith(b'{"form":') and "secret" not in parts:
        return f"payloads/{event_id}.sealed"
    if topic == "gpt.turn":
        is_document = header["meta"].get("type") == "document"
        return f"documents/{event_id}.bin" if is_document else f"turns/{event_id}.json"
    return {"gpt.reply": f"replies/{event_id}.txt", "mcp.tools": f"tools/{event_id}.json"}.get(
        topic, f"payloads/{event_id}.bin"
    )


def files_of(events):
    """Yield the place in a folder and the bytes of each part of events."""
    for parts in events:
        header = json.loads(parts["header"])
        for part, content in parts.items():
            yield file_name(header, parts, part), content


def extract(events, folder):
    """Write all bytes that a proof shows, as they are, into a new folder."""
    folder.mkdir(parents=True)
    for name, content in files_of(events):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


FOLDERS = ("documents", "events", "payloads", "replies", "requests", "tools", "turns")
BESIDE = ("README.txt", "index.html", "keys.txt", "verify_turnlog.py")
NAMES_MAX = 5


def names_in(folder):
    """Return the names of all files below a folder. A symbolic link, or what else is no file, is refused."""
    found = []
    for above, folders, files in os.walk(folder, onerror=refuse_folder):
        for path in (Path(above, name) for name in folders + files):
            name = path.relative_to(folder).as_posix()
            require(not path.is_symlink(), f"{name} is a symbolic link, and none of the files")
            require(path.is_dir() or path.is_file(), f"{name} is no file")
            if path.is_file():
                found.append(name)
    return sorted(found)


def refuse_folder(error):
    raise error


def compare(content, events, folder):
    """Check that the files of a folder are the bytes that a proof shows, and that there are no others among them.

    Return what is in the folder beside them: what `turnlog evidence` puts there, and what is foreign.
    """
    if not events:
        raise UnusableError("a consistency proof shows no files that a folder could have")
    shown = dict(files_of(events))
    expected = {**shown, "proof.tlog-proof": content, "checkpoint": content.split(b"\n\n", 1)[1]}
    found = names_in(folder)
    for name, data in expected.items():
        if name in found or (name in shown and not name.startswith("events/")):
            same = name in found and (folder / name).read_bytes() == data
            require(same, f"{name} is not what the proof shows")
    others = [name for name in found if name not in expected]
    for name in others:
        require(name.split("/")[0] not in FOLDERS, f"{name} is not in the proof")
    beside = [name for name in others if name in BESIDE]
    foreign = [name for name in others if name not in BESIDE]
    return {"files": len(found) - len(others), "beside": beside, "foreign": foreign}


def comparison_lines(compared):
    """Yield what `--compare` has found, for people."""
    count = f"{compared['files']:,} file" + "s" * (compared["files"] != 1)
    yield f"  {count} of the folder: byte for byte what the proof shows"
    for which, what in (("beside", "not covered by the proof"), ("foreign", "foreign, not covered by the proof")):
        names = [printable(name) for name in compared[which]]
        more = f" and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
        if names:
            yield f"  {what}: {', '.join(names[:NAMES_MAX])}{more}"
    if "index.html" in compared["beside"]:
        yield "  index.html can have been changed: `turnlog evidence --proof` makes it anew from the proof"


def main():
    parser = argparse.ArgumentParser(description="Check a proof of a turnlog log.")
    parser.add_argument("file", type=Path, metavar="FILE", help="what `turnlog prove` wrote")
    parser.add_argument("--key", type=Path, action="append", required=True, help="file with keys to believe")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--extract", type=Path, metavar="FOLDER", help="write what it shows into a new folder")
    parser.add_argument("--compare", type=Path, metavar="FOLDER", help="check that its files are what it shows")
    arguments = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        keys = read_keys(arguments.key)
        content = read_file(arguments.file, FILE_BYTES_MAX)
        report, events = check_file(content, keys)
        if arguments.compare is not None:
            report["compared"] = compare(content, events, arguments.compare)
        if arguments.extract is not None:
            extract(events, arguments.extract)
    except RefusedError as error:
        if arguments.json:
            print(json.dumps({"holds": False, "why": str(error)}))
        sys.stderr.write(f"it does not hold: {printable(str(error))}\n")
        return 1
    except (UnusableError, OSError) as error:
        sys.stderr.write(f"it could not be checked: {printable(str(error))}\n")
        return 2
    if arguments.json:
        print(json.dumps(as_json(report), ensure_ascii=False))
    else:
        print("\n".join(report_lines(report)))
        if "compared" in report:
            print("\n".join(comparison_lines(report["compared"])))
    return 0


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads the output may leave, as `head` does
    sys.exit(main())
