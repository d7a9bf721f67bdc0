"""Write the golden cases anew: `make golden`. Those of the wires alone: `python -m tests.golden.wire_cases`.

A store that any version of turnlog wrote is opened by every later one. So the store of each version of the tables is
kept as it was written, with what reading it must give, and neither is written again. A new version gets files of its
own. Ids, times and salts are fixed, so that a second run writes the same events.
"""

import io
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from tests.cli import screens
from tests.golden import hostile_exports, tamper_table, wire_cases

from turnlog import ContextWindow, LossEntry, LossReport, Response, Text, Tool, TurnLog, Usage, projections
from turnlog.digest import payload_hash
from turnlog.events import ERASURE, FORMAT, TARGET, Citation, Event, Seals, build, cite, genesis, private_part
from turnlog.events.form import meta_text
from turnlog.model import ErasureMeta, ReplyFacts
from turnlog.providers import PreparedRequest
from turnlog.record import EventDraft, document_draft, plan_event, plan_turn
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, open_store
from turnlog.store.sqlite.schema import VERSION

FOLDER = Path(__file__).parent
STORE = FOLDER / f"store-v{VERSION}.db"
EXPECTED = FOLDER / f"store-v{VERSION}.json"
TURN_KEYS = ("id", "hash", "meta", "size", "stream", "position", "global_position", "digest", "time", "erased")
THREAD_KEYS = ("id", "turns", "heads", "bookmarks", "started", "last")
EVENTS = FOLDER / f"events-v{FORMAT}.json"
TIME_MS = 1_773_599_999_000
SESSION = (
    '{"type":"user","uuid":"u-1","parentUuid":null,"sessionId":"s-1","timestamp":"2026-03-15T18:20:00Z",'
    '"message":{"role":"user","content":"Which of my notes?"}}\n'
    '{"type":"Odd Type","uuid":"u-2","parentUuid":"u-1","sessionId":"s-1","timestamp":"2026-03-15T18:20:01Z"}\n'
)


def fixed_sources(prefix: str = "03fr9cxksbd0ufbbn4sb2e", count: int = 3) -> Sources:
    """Return ids, times and salts that are the same at each run."""

    def ids() -> Iterator[str]:
        for number in range(10**count):
            yield f"{prefix}{number:0{count}}"

    def times() -> Iterator[int]:
        for number in range(10**count):
            yield TIME_MS + 1000 * number

    def salts() -> Iterator[bytes]:
        for number in range(10**count):
            yield sha256(f"{prefix}{number}".encode()).digest()[:16]

    new_id, time_ms, salt = ids(), times(), salts()
    return Sources(new_id=lambda: next(new_id), time_ms=lambda: next(time_ms), salt=lambda: next(salt))


def open_log(url: str, sources: Sources) -> TurnLog:
    """Open a log that takes ids, times and salts from fixed sources."""
    return TurnLog(open_store(url, projections=projections.synchronous()), sources=sources)


def fill(path: Path) -> None:
    """Record one of everything in a new store."""
    sources = fixed_sources()
    with open_log(f"sqlite:///{path}", sources) as log:
        root = log.add_turn(
            "You answer in one line.",
            role="system",
            bookmark="main",
            provider_ptr="milli",
            servers=["files"],
            inherited={"limits": {"tokens": 100, "seconds": 2.5}, "note": "crème, 茶, 🌿"},
        )
        question = log.add_turn(["What is in the notes?", "Take your time."], continues="main", cache=True)
        document(log, sources, path.parent / "field-notes.txt", field_notes(), continues=question.id)
        call = log.add_turn(
            '[{"type": "thinking", "thinking": "Look first.", "signature": "c2ln"},'
            ' {"type": "tool_use", "id": "call_1", "name": "files.read", "input": {"b": 1.50, "a": "\\u00e9"}}]',
            json=True,
            role="assistant",
            continues="main",
            reply=ReplyFacts(
                model="example-model-1",
                provider="example",
                api="messages",
                stop_reason="tool_use",
                usage={"input_tokens": 12, "output_tokens": 7, "cache_read_input_tokens": 3},
            ),
        )
        log.add_turn(
            [{"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "Nothing."}]}],
            continues=call.id,
        )
        log.add_turn("It st", role="assistant", continues="main", reply=ReplyFacts(stop_reason="aborted"))
        log.add_turn("no answer", role="assistant", continues="main", reply=ReplyFacts(error="the connection was lost"))
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
        other = log.add_turn("Another thread.", bookmark=False)
        document(log, sources, path.parent / "dot.bin", b"\x00\x01\x02", continues=other.id)
        log.bookmarks.set("start", root.id)
        log.bookmarks.set("gone", other.id)
        log.bookmarks.rename("elsewhere", "away")
        log.bookmarks.delete("gone")
        log.pointers.set("milli", "example", "example-model-1", params={"max_tokens": 100, "b": 1.50})
        log.providers.set("example", adapter="openai_chat", base_url="https://models.example/v1")
        log.servers.set("files", ["serve-files", "--here"], env=["HOME"], timeout_s=2.5)
        ask(log, "talk")
        log.add_event(
            "acme.review",
            b"\x00not JSON",
            private={"by": "somebody", "marks": [1e-7, 1e22, -0.0, 0.1]},
            public={"grade": 1},
            cites=[("reviewed", answer.id)],
        )
        session(log, path.parent / "session.jsonl")
        guests(log)
        erase(log, sources, log.add_turn("To be erased.", continues=other.id, inherited={"private": True}).id, path)


def document(log: TurnLog, sources: Sources, path: Path, payload: bytes, *, continues: str) -> None:
    """Record a document under a path that is the same on every machine."""
    path.write_bytes(payload)
    draft = document_draft(path, continues=continues, content_type="text/plain" if path.suffix == ".txt" else None)
    path.unlink()
    meta = msgspec.structs.replace(draft.meta, original_path=f"/documents/{path.name}")
    draft = msgspec.structs.replace(draft, meta=meta)
    placed = log.store.place(draft.payload)
    log.store.write(lambda transaction: plan_turn(transaction, draft, placed, sources))


def ask(log: TurnLog, bookmark: str) -> None:
    """Record three calls of a conversation with their replies, so that the requests have parts of each other."""
    tools = [Tool(name="files___read", description="Read a file.")]
    for number in range(3):
        turn = log.add_turn("Go on? " * 20, continues=bookmark if number else None, bookmark=bookmark)
        # By hand, so that adapters can change and the store says the same.
        lost = LossEntry(kind="dropped", turn=turn.id, block="thinking", index=0, why="nobody knows its signature")
        request = PreparedRequest(
            adapter="example",
            version="1",
            provider="example",
            api="messages",
            model="example-model-1",
            stream=False,
            head=b'{"model":"example-model-1","messages":[',
            messages=[message.content_json + b"," for message in log.context(bookmark).messages],
            closing=b"null]}",
            loss_report=LossReport(entries=(lost,) if number == 1 else ()),
            tools=tuple(tools),
            params={"max_tokens": 9},
        )
        call = log.calls.record(turn.id, request, servers=["files"])
        response = Response(
            content=(Text(text="Yes."),),
            model="example-model-1",
            stop_reason="stop",
            provider="example",
            api="messages",
            usage=Usage(input_tokens=7, output_tokens=1),
        )
        log.calls.record_reply(call, [b'{"text":"Yes."}', b"not JSON"], response)


def session(log: TurnLog, path: Path) -> None:
    """Import a session of another program."""
    path.write_text(SESSION, encoding="utf-8")
    log.import_claude_code(path)
    path.unlink()


def guests(log: TurnLog) -> None:
    """Take in another log, with a bookmark that this one has too, and a register of which one is confirmed."""
    with open_log("memory://", fixed_sources("03fr9cxksbd0ufbbn4sb2f")) as theirs:
        theirs.add_turn("A guest.", bookmark="main")
        theirs.add_turn("Another guest.", continues="main")
        theirs.bookmarks.set("theirs", theirs.turn("main").id)
        theirs.pointers.set("giga", "example", "example-model-9")
        theirs.pointers.set("mega", "example", "example-model-8")
        exported = io.BytesIO()
        theirs.export(exported)
    exported.seek(0)
    log.import_turnlog(exported, bookmarks="keep")
    log.registers.trust([register.id for register in log.registers.imported() if register.name == "mega"])


def erase(log: TurnLog, sources: Sources, event_id: str, path: Path) -> None:
    """Take the private part and the payload of an event away, and record that."""
    draft = EventDraft(topic=ERASURE, meta=ErasureMeta(reason="on request", by="somebody"))
    target = log.event(event_id)
    log.store.write(lambda t: plan_event(t, draft, NO_PAYLOAD, sources, [cite(target, TARGET)]))
    database = sqlite3.connect(path)
    with database:
        database.execute(
            "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE event_id = ?",
            (event_id,),
        )
    database.close()


def field_notes() -> bytes:
    """Return a document that is large enough for a file of its own, and compresses."""
    return "".join(f"{line:05} rain over the river, wind from the west\n" for line in range(2000)).encode()


def reading(path: Path, *, seals: Seals | None = None, closed: bool = False) -> dict[str, Any]:
    """Return what reading a store gives, as plain values: what must stay, and not what later versions may add.

    Args:
        path: the store.
        seals: the keys of what is sealed.
        closed: whether its calls and registers are sealed, and the keys are not there.
    """
    with TurnLog.open(f"sqlite:///{path}", create=False, seals=seals) as log:
        recorded = list(log.events())
        turns = [log.turn(each.header.id) for each in recorded if each.header.topic == "gpt.turn"]
        bookmarks = {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}
        calls = [each.header.id for each in recorded if each.header.topic == "gpt.call" and not closed]
        found = {
            "log": log.id,
            "events": [event_record(each) | {"arrival": each.arrival} for each in recorded],
            "turns": [{key: turn.to_record()[key] for key in TURN_KEYS} for turn in turns],
            "ancestries": {turn.id: [one.id for one in log.ancestry(turn.id)] for turn in turns},
            "children": {turn.id: [one.id for one in log.children(turn.id)] for turn in turns},
            "bookmarks": bookmarks,
            "threads": [{key: getattr(thread, key) for key in THREAD_KEYS} for thread in log.threads()],
            "windows": {name: shortened(log.context(turn, explain=True)) for name, turn in bookmarks.items()},
            "requests": {call: log.calls.request(call).decode() for call in calls},
            "calls": [] if closed else [call.to_record() for call in log.calls.of("talk")],
            "replies": [] if closed else [event.decode() for event in log.calls.events("talk")],
            "pointers": [] if closed else [msgspec.to_builtins(pointer) for pointer in log.pointers.all()],
            "providers": [] if closed else [msgspec.to_builtins(provider) for provider in log.providers.all()],
            "servers": [] if closed else [msgspec.to_builtins(server) for server in log.servers.all()],
            "imported registers": [register.to_record() for register in log.registers.imported()],
        }
    return json.loads(json.dumps(found))


def event_record(event: Event) -> dict[str, Any]:
    """Return the bytes of an event as text, and its digest."""
    private = None if event.private_state is None else event.private_state.decode()
    return {"state": event.state.decode(), "private": private, "digest": event.digest}


def shortened(window: ContextWindow) -> str:
    """Return a window as JSON, the data of large documents replaced by its hash."""
    text = window.to_json().decode()
    return re.sub(r'"data":"([^"]{1000,})"', lambda data: f'"data":"{payload_hash(data[1].encode())}"', text)


def literal_events() -> dict[str, Event]:
    """Return a few events by what is special about them."""
    root = "03fr9cxksbd0ufbbn4sb2e5pj"
    role = {"role": "user"}

    def turn(
        private: dict[str, Any],
        *,
        id: str = root,
        public: dict[str, Any] = role,
        parents: tuple[Citation, ...] = (),
    ) -> Event:
        payload = b'[{"type":"text","text":"Name a river."}]'
        return build(
            topic="gpt.turn",
            id=id,
            time=TIME_MS,
            meta=meta_text(public),
            private=private_part(private, hash=payload_hash(payload), size=len(payload), salt=bytes(range(16))),
            citations=parents,
            stream=root,
            position=len(parents),
        )

    inherited = {"z": {"b": 1, "a": [{"d": 1, "c": 2}]}, "a": None}
    numbers = [0, -1, 2**53, 2**64 - 1, -(2**63), 1.0, 1e-7, 1e-5, 1e15, 1e16, 1.5e300, -0.0, 0.1, 100.0]
    parent = cite(turn({}), "parent")
    return {
        "the first event": genesis(root[:-1] + "i", TIME_MS),
        "a root turn": turn({}),
        "a turn with a parent": turn(
            {"head": "main"}, id=root[:-1] + "k", public=role | {"cache": True}, parents=(parent,)
        ),
        "keys out of order at every level": turn({"inherited": inherited}),
        "text that JSON escapes, and text that it does not": turn(
            {"head": 'a"b\\c/d é茶🌿 \u2028 \x7f', "error": "\n\t\x08\x0c\r\x01\x1f"}
        ),
        "numbers": turn({"inherited": {"n": numbers}}),
        "no private part": build(
            topic="log.trust",
            id=root,
            time=0,
            meta=meta_text({}),
            private=None,
            citations=[Citation(relation="target", digest=parent.digest, id=parent.id)],
        ),
        "no payload": build(
            topic="gpt.bookmark",
            id=root,
            time=TIME_MS,
            meta=meta_text({"action": "set"}),
            private=private_part({"name": "main"}, hash=None, size=None, salt=bytes(16)),
            citations=[Citation(relation="turn", digest=parent.digest, id=parent.id)],
        ),
    }


def main() -> None:
    """Write the store of this version, if there is none yet, and what things come to now."""
    if not STORE.exists():
        fill(STORE)
        shutil.rmtree(f"{STORE}-payloads/.incoming", ignore_errors=True)
        write_json(EXPECTED, reading(STORE))
    write_json(EVENTS, {name: event_record(event) for name, event in literal_events().items()})
    written = wire_cases.write()
    tamper_table.write()
    with tempfile.TemporaryDirectory() as temporary:
        hostile_exports.write(Path(temporary))
    pages = screens.write()
    print(f"wrote {EVENTS.name}, {tamper_table.PAGE.name}, {written} files of wires")
    print(f"and the screens of {pages} pages")


def write_json(path: Path, value: object) -> None:
    """Write a value for people and for comparing."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
