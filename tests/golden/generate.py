"""Write the golden cases anew: `make golden`. Those of the wires alone: `python -m tests.golden.wire_cases`.

A store that any version of turnlog wrote is opened by every later one. So the store of each version of the tables is
kept as it was written, with what reading it must give. A new version gets a file of its own: those of older versions
are never written again. Ids and times are fixed, so that a second run writes the same events.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from tests.golden import wire_cases

from turnlog import ContextWindow, TurnLog, projections
from turnlog.digest import event_digest, payload_hash
from turnlog.events import FORMAT, Event, Parent, encode, encode_meta
from turnlog.record import document_draft, plan_turn
from turnlog.store import open_store
from turnlog.store.sqlite.schema import VERSION

FOLDER = Path(__file__).parent
STORE = FOLDER / f"store-v{VERSION}.db"
EXPECTED = FOLDER / f"store-v{VERSION}.json"
TURN_KEYS = ("id", "hash", "meta", "size", "stream", "position", "global_position", "digest", "time")
THREAD_KEYS = ("id", "turns", "heads", "bookmarks", "started", "last")
EVENTS = FOLDER / f"events-v{FORMAT}.json"


def ids() -> Iterator[str]:
    """Give ids that are the same at each run."""
    for number in range(1000):
        yield f"03fr9cxksbd0ufbbn4sb2e{number:03}"


def fill(path: Path) -> None:
    """Record one of everything in a new store."""
    fresh = ids()
    store = open_store(f"sqlite:///{path}", projections=projections.synchronous())
    with TurnLog(store, fresh_id=lambda: next(fresh)) as log:
        root = log.add_turn(
            "You answer in one line.",
            role="system",
            bookmark="main",
            provider_ptr="milli",
            servers=["files"],
            inherited={"limits": {"tokens": 100, "seconds": 2.5}, "note": "crème, 茶, 🌿"},
        )
        question = log.add_turn(["What is in the notes?", "Take your time."], continues="main", cache=True)
        document(log, path.parent / "field-notes.txt", field_notes(), continues=question.id, id=next(fresh))
        call = log.add_turn(
            '[{"type": "thinking", "thinking": "Look first.", "signature": "c2ln"},'
            ' {"type": "tool_use", "id": "call_1", "name": "files.read", "input": {"b": 1.50, "a": "\\u00e9"}}]',
            json=True,
            role="assistant",
            continues="main",
            model="example-model-1",
            provider="example",
            api="messages",
            stop_reason="tool_use",
            usage={"input_tokens": 12, "output_tokens": 7, "cache_read_input_tokens": 3},
        )
        log.add_turn(
            [{"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "Nothing."}]}],
            continues=call.id,
        )
        log.add_turn("It st", role="assistant", continues="main", stop_reason="aborted")
        log.add_turn("no answer", role="assistant", continues="main", error="the connection was lost")
        answer = log.add_turn(
            [{"type": "text", "text": "Rain.", "citations": [{"page": 1}]}, {"type": "text", "text": "x" * 500}],
            role="assistant",
            continues="main",
        )
        fork = log.add_turn("And elsewhere?", continues=question.id, bookmark="elsewhere", search=True)
        log.add_turn(
            "Both, please.",
            continues=[fork.id, answer.id],
            bookmark="both",
            inherited={"limits": {"seconds": None}, "servers": []},
        )
        other = log.add_turn("Another thread.", bookmark=None)
        document(log, path.parent / "dot.bin", b"\x00\x01\x02", continues=other.id, id=next(fresh))
        log.set_bookmark("start", root.id)
        log.set_bookmark("gone", other.id)
        log.rename_bookmark("elsewhere", "away")
        log.delete_bookmark("gone")


def document(log: TurnLog, path: Path, payload: bytes, *, continues: str, id: str) -> None:
    """Record a document under a path that is the same on every machine."""
    path.write_bytes(payload)
    draft = document_draft(path, continues=continues, content_type="text/plain" if path.suffix == ".txt" else None)
    path.unlink()
    meta = msgspec.structs.replace(draft.meta, original_path=f"/documents/{path.name}")
    draft = msgspec.structs.replace(draft, meta=meta)
    placed = log.store.place(draft.payload)
    log.store.write(lambda transaction: plan_turn(transaction, draft, placed, id))


def field_notes() -> bytes:
    """Return a document that is large enough for a file of its own, and compresses."""
    return "".join(f"{line:05} rain over the river, wind from the west\n" for line in range(2000)).encode()


def reading(path: Path) -> dict[str, Any]:
    """Return what reading a store gives, as plain values: what must stay, and not what later versions may add."""
    with TurnLog.open(f"sqlite:///{path}", create=False) as log:
        recorded = list(log.events())
        turns = [log.turn(r.event.id) for r in recorded if r.event.topic == "gpt.turn"]
        bookmarks = {bookmark.name: bookmark.turn for bookmark in log.bookmarks()}
        found = {
            "events": [{"state": r.state.decode(), "digest": r.digest} for r in recorded],
            "turns": [{key: turn.to_record()[key] for key in TURN_KEYS} for turn in turns],
            "ancestries": {turn.id: [one.id for one in log.ancestry(turn.id)] for turn in turns},
            "children": {turn.id: [one.id for one in log.children(turn.id)] for turn in turns},
            "bookmarks": bookmarks,
            "threads": [{key: getattr(thread, key) for key in THREAD_KEYS} for thread in log.threads()],
            "windows": {name: shortened(log.context(name, explain=True)) for name in bookmarks},
        }
    return json.loads(json.dumps(found))


def shortened(window: ContextWindow) -> str:
    """Return a window as JSON, the data of large documents replaced by its hash."""
    text = window.to_json().decode()
    return re.sub(r'"data":"([^"]{1000,})"', lambda data: f'"data":"{payload_hash(data[1].encode())}"', text)


def literal_events() -> dict[str, Event]:
    """Return a few events by what is special about them."""
    root = "03fr9cxksbd0ufbbn4sb2e5pj"
    plain = {
        "format": 1,
        "id": root,
        "topic": "gpt.turn",
        "stream": root,
        "position": 0,
        "hash": "sha256-NUZRywJ/NE6Xf1jrQcH7g6ikDQJCi/Q0Ze6JaWbD7kw=",
        "size": 40,
        "parents": [],
    }
    meta = {"role": "user", "content_type": "application/json"}
    parent = Parent(id=root, digest="sha256-N07tn2v2rUM9UNv4EAvfuYh7iTjspiCqHRgEnkOM5KI=")
    child = plain | {"id": root[:-1] + "k", "position": 1, "parents": [parent]}
    return {
        "a root turn": Event(**plain, meta=encode_meta(meta)),
        "a turn with a parent": Event(**child, meta=encode_meta(meta | {"cache": True, "head": "main"})),
        "keys out of order at every level": Event(
            **plain, meta=encode_meta(meta | {"inherited": {"z": {"b": 1, "a": [{"d": 1, "c": 2}]}, "a": None}})
        ),
        "text that JSON escapes, and text that it does not": Event(
            **plain, meta=encode_meta(meta | {"head": 'a"b\\c/d é茶🌿 \u2028 \x7f', "error": "\n\t\x01"})
        ),
        "numbers": Event(**plain, meta=encode_meta(meta | {"inherited": {"n": [0, -1, 2**53, 1.0, 1e-7, 1e300, 0.1]}})),
        "no payload": Event(
            **plain | {"topic": "gpt.bookmark", "hash": None, "size": None},
            meta=encode_meta({"action": "set", "name": "main", "turn": root}),
        ),
    }


def main() -> None:
    """Write the store of this version, what reading it gives, and the bytes of the literal events."""
    for name in (STORE.name, f"{STORE.name}-wal", f"{STORE.name}-shm"):
        (FOLDER / name).unlink(missing_ok=True)
    shutil.rmtree(f"{STORE}-payloads", ignore_errors=True)
    fill(STORE)
    write_json(EXPECTED, reading(STORE))
    encoded = {name: encode(event) for name, event in literal_events().items()}
    write_json(EVENTS, {n: {"state": s.decode(), "digest": event_digest(s)} for n, s in encoded.items()})
    written = wire_cases.write()
    print(f"wrote {STORE.name}, {EXPECTED.name}, {EVENTS.name} and {written} files of wires")


def write_json(path: Path, value: object) -> None:
    """Write a value for people and for comparing."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
